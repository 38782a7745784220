"""A vocabulary of keywords, such as sites and types of procedures, and where a string has them.

A keyword-attentive ranker (Liang, Xue and Ruan, arXiv 2101.09101, section 3.2) looks at the words
of each kind apart. A file of them has word<TAB>kind in each line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from data_pipeline.files.rows import tab_separated
from data_pipeline.process.errors import BadInput

MOST_KINDS = 7  # a bit each in a uint8, of which the ranker needs one for all text
HEADER = ("word", "kind")
# Characters that are written without blanks between words: a word may begin or end anywhere.
UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u30ff\u3130-\u318f\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)
UNIT = re.compile(f"{UNSPACED.pattern}|(?:(?!{UNSPACED.pattern})[^\\W_])+")


@dataclass(frozen=True)
class Match:
    """A keyword in a string: string[first:last] is `word`, whatever the case, of kind `kind`."""

    first: int
    last: int
    kind: int
    word: str


@dataclass(frozen=True)
class KeywordVocabulary:
    """Words of some kinds; without any, nothing is a keyword.

    Attributes:
      words: kind -> its distinct words. A word may have several kinds.
    """

    words: Mapping[str, Sequence[str]]

    @property
    def kinds(self) -> list[str]:
        """Their names; kind i is bit i."""
        return list(self.words)

    @cached_property
    def _by_length(self) -> list[tuple[list[int], frozenset[str]]]:
        """Of each kind the lengths of its words, longest first, and the words in lower case."""
        folded = [frozenset(map(lower, words)) for words in self.words.values()]
        return [(sorted({len(word) for word in one}, reverse=True), one) for one in folded]

    def matches(self, string: str) -> list[Match]:
        """The keywords of a string, kind by kind, the longest of a kind first.

        Of a word its first occurrence counts; one within a longer match of its kind is dropped.
        Where words have blanks between them, a keyword is a whole word or several: "ear" is not in
        "heart". Chinese, Japanese, Korean and Thai words are found anywhere. Case does not count.
        """
        text, found = lower(string), []
        may_begin = [not is_inside(text, place) for place in range(len(text) + 1)]
        for kind, (lengths, words) in enumerate(self._by_length):
            kept: list[Match] = []
            seen: set[str] = set()
            for length in lengths:
                for first in range(len(text) - length + 1):
                    last, word = first + length, text[first : first + length]
                    if word not in words or word in seen or not may_begin[first] & may_begin[last]:
                        continue
                    seen.add(word)
                    if not any(one.first <= first and last <= one.last for one in kept):
                        kept.append(Match(first, last, kind, word))
            found += kept
        return found

    def kinds_of_characters(self, string: str) -> np.ndarray:
        """uint8 [len(string)]: bit k is set where a keyword of kind k stands."""
        kinds = np.zeros(len(string), np.uint8)
        for match in self.matches(string):
            kinds[match.first : match.last] |= 1 << match.kind
        return kinds

    def kinds_of_tokens(self, string: str, offsets: Sequence[tuple[int, int]]) -> np.ndarray:
        """uint8 [tokens]: the kinds of the keywords that a token overlaps.

        Args:
          string: what was tokenized.
          offsets: of each token its first character and the one behind its last, as `tokenizers`
            gives them; the same twice for a special token, which is of no kind.
        """
        kinds = self.kinds_of_characters(string)
        if not kinds.any():
            return np.zeros(len(offsets), np.uint8)
        return np.array(
            [np.bitwise_or.reduce(kinds[first:last]) for first, last in offsets], np.uint8
        )


def lower(string: str) -> str:
    """A string in lower case, character by character, so that places stay the same."""
    return "".join(one.lower() if len(one.lower()) == 1 else one for one in string)


def is_inside(text: str, place: int) -> bool:
    """Whether a place is inside a word that is written with blanks around it."""
    if not 0 < place < len(text):
        return False
    before, after = text[place - 1], text[place]
    if not (before.isalnum() and after.isalnum()):
        return False
    return not (UNSPACED.match(before) or UNSPACED.match(after))


def units(string: str) -> list[tuple[int, int]]:
    """(first, last) of what a string is made of: words, or characters where no blanks divide."""
    return [match.span() for match in UNIT.finditer(string)]


def read_keywords(path: Path) -> KeywordVocabulary:
    """A file of word<TAB>kind, with that header or without; kinds in the order of the file.

    Raises:
      BadInput: a row that is not two columns, or more than MOST_KINDS kinds.
    """
    words: dict[str, dict[str, None]] = {}
    for place, (number, fields) in enumerate(tab_separated(path)):
        if not place and tuple(field.lower() for field in fields) == HEADER:
            continue
        if len(fields) != 2 or not all(fields):
            raise BadInput(
                f"{path}:{number}: found {len(fields)} columns or an empty one; expected "
                "word<TAB>kind: mend the line"
            )
        words.setdefault(fields[1], {})[fields[0]] = None
    if len(words) > MOST_KINDS:
        raise BadInput(
            f"{path}: found {len(words)} kinds of keywords ({', '.join(words)}); expected at most "
            f"{MOST_KINDS}: give some of them the same kind"
        )
    return KeywordVocabulary({kind: tuple(found) for kind, found in words.items()})


def keyword_lines(words: Mapping[str, Iterable[str]]) -> str:
    """The text of a file that `read_keywords` reads, without a header."""
    return "".join(f"{word}\t{kind}\n" for kind, some in words.items() for word in some)
