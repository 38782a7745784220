"""Keywords of terms, such as the site and the type of a procedure: how they are found and
derived.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from data_pipeline import process
from data_pipeline.files.tables import tab_separated
from data_pipeline.process import BadInput, progress_bar, tell

# -------------------------------------------------------------------------------------------------
# A vocabulary of keywords, such as sites and types of procedures, and its matches in a string.
#
# A keyword-attentive ranker (Liang, Xue and Ruan, arXiv 2101.09101, section 3.2) looks at the words
# of each kind apart. A file of them has word<TAB>kind in each line.

_MOST_KINDS = 7  # a bit each in a uint8, of which the ranker needs one for all text
_HEADER = ("word", "kind")
# Characters of scripts without blanks between words: a word may begin or end anywhere.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u30ff\u3130-\u318f\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)
_UNIT = re.compile(f"{_UNSPACED.pattern}|(?:(?!{_UNSPACED.pattern})[^\\W_])+")


@dataclass(frozen=True)
class KeywordMatch:
    """A keyword in a string: string[first:last] is `word`, in any case, of kind `kind`."""

    first: int
    last: int
    kind: int
    word: str


@dataclass(frozen=True)
class KeywordVocabulary:
    """Words of some kinds; an empty vocabulary has no keywords.

    Attributes:
      words: kind -> its distinct words. A word may have several kinds.
    """

    words: Mapping[str, Sequence[str]]

    @property
    def kinds(self) -> list[str]:
        """The names of the kinds; kind i is bit i."""
        return list(self.words)

    @cached_property
    def _by_length(self) -> list[tuple[list[int], frozenset[str]]]:
        """For each kind the lengths of its words, longest first, and its words in lower case."""
        folded = [frozenset(map(_lower, words)) for words in self.words.values()]
        return [(sorted({len(word) for word in one}, reverse=True), one) for one in folded]

    def matches(self, string: str) -> list[KeywordMatch]:
        """The keywords of a string, ordered by kind, the longest of a kind first.

        Of a word its first occurrence counts; one within a longer match of its kind is dropped.
        Where words have blanks between them, a keyword is a whole word or several: "ear" is not in
        "heart". Chinese, Japanese, Korean and Thai words are found anywhere. Case does not count.
        """
        text, found = _lower(string), []
        may_begin = [not _is_inside(text, place) for place in range(len(text) + 1)]
        for kind, (lengths, words) in enumerate(self._by_length):
            kept: list[KeywordMatch] = []
            seen: set[str] = set()
            for length in lengths:
                for first in range(len(text) - length + 1):
                    last, word = first + length, text[first : first + length]
                    if word not in words or word in seen or not may_begin[first] & may_begin[last]:
                        continue
                    seen.add(word)
                    if not any(one.first <= first and last <= one.last for one in kept):
                        kept.append(KeywordMatch(first, last, kind, word))
            found += kept
        return found

    def kinds_of_characters(self, string: str) -> np.ndarray:
        """uint8 [len(string)]: bit k is set where a keyword of kind k is."""
        kinds = np.zeros(len(string), np.uint8)
        for match in self.matches(string):
            kinds[match.first : match.last] |= 1 << match.kind
        return kinds

    def kinds_of_tokens(self, string: str, offsets: Sequence[tuple[int, int]]) -> np.ndarray:
        """uint8 [tokens]: the kinds of the keywords that each token overlaps.

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


def _lower(string: str) -> str:
    """A string in lower case, converted character by character so that offsets stay."""
    return "".join(one.lower() if len(one.lower()) == 1 else one for one in string)


def _is_inside(text: str, place: int) -> bool:
    """Whether a position is inside a word of a script with blanks."""
    if not 0 < place < len(text):
        return False
    before, after = text[place - 1], text[place]
    if not (before.isalnum() and after.isalnum()):
        return False
    return not (_UNSPACED.match(before) or _UNSPACED.match(after))


def _units(string: str) -> list[tuple[int, int]]:
    """(first, last) of the units of a string: words, or characters in scripts without blanks."""
    return [match.span() for match in _UNIT.finditer(string)]


def read_keywords(path: Path) -> KeywordVocabulary:
    """Reads a file of word<TAB>kind, with or without that header; kinds keep the file's order.

    Raises:
      BadInput: a row that is not two columns, or more than _MOST_KINDS kinds.
    """
    words: dict[str, dict[str, None]] = {}
    for place, (number, fields) in enumerate(tab_separated(path)):
        if not place and tuple(field.lower() for field in fields) == _HEADER:
            continue
        if len(fields) != 2 or not all(fields):
            raise BadInput(
                f"{path}:{number}: found {len(fields)} columns or an empty one; expected "
                "word<TAB>kind: mend the line"
            )
        words.setdefault(fields[1], {})[fields[0]] = None
    if len(words) > _MOST_KINDS:
        raise BadInput(
            f"{path}: found {len(words)} kinds of keywords ({', '.join(words)}); expected at most "
            f"{_MOST_KINDS}: give some of them the same kind"
        )
    return KeywordVocabulary({kind: tuple(found) for kind, found in words.items()})


def keyword_lines(words: Mapping[str, Iterable[str]]) -> str:
    """The lines of a file that `read_keywords` reads, without a header."""
    return "".join(f"{word}\t{kind}\n" for kind, some in words.items() for word in some)


# -------------------------------------------------------------------------------------------------
# Keywords derived from a dictionary alone: frequent endings and frequent parts of names.
#
# The vocabulary of Liang, Xue and Ruan (arXiv 2101.09101) was made by hand and is not published.
# In many terminologies the type of a thing stands at the end of its name ("syndrome",
# "procedure", 术), and what it is about before: so endings are types, and parts that keep to one
# branch of the dictionary's tree, such as a chapter, are sites.

_SITE, _TYPE = "site", "type"
# The allowed numbers of units in an ending and in a part: characters, or words where blanks
# separate them.
_ENDING_CHARACTERS, _ENDING_WORDS = (3, 4), (1,)
_PART_CHARACTERS, _PART_WORDS = (2, 3, 4), (1, 2, 3)
_SHORTEST_WORD = 3  # in letters, of what a keyword begins or ends with: not "of", "in", "II"
_JOINTS = ("", " ", "-")  # between the units of one keyword


def derive_keywords(
    names: Sequence[str],
    branches: Sequence[Collection[str]],
    *,
    ending_names: int = 15,
    part_names: int = 5,
    purity: float = 0.6,
) -> dict[str, list[str]]:
    """The keywords of a dictionary, ordered by the number of names that have them.

    Args:
      names: preferred names, [N].
      branches: of each name, the branches of the tree that its concept is on.
      ending_names: fewest names that have an ending.
      part_names: fewest names that have a part.
      purity: least share of a part's names on one branch. A dictionary in which fewer than half
        of the names are on a branch with `part_names` names has no such tree; there all parts
        count.

    Returns:
      "site" and "type", each with its words in lower case.
    """
    texts = [_lower(name) for name in names]
    ends = Counter(one for text in texts for one in _endings(text))
    types = {ending: count for ending, count in ends.items() if count >= ending_names}
    for ending in {piece for one in types for piece in _pieces(one, _endings(one), ends)}:
        types.pop(ending, None)
    counts: Counter[str] = Counter()
    for text in progress_bar(texts, desc="count parts", unit="name"):
        process.poll()
        counts.update(set(_parts(text)))
    frequent = {part: count for part, count in counts.items() if count >= part_names}
    kept = _pure(texts, branches, frequent, part_names, purity)
    # A part that is a type, ends with a type or is a piece of a type is not a site.
    pieces = {part for ending in types for part in _parts(ending)}
    kept = {one for one in kept - pieces if types.keys().isdisjoint(_endings(one))}
    sites = {part: frequent[part] for part in _maximal(kept, frequent)}
    return {_SITE: _ordered(sites), _TYPE: _ordered(types)}


def _ordered(counts: dict[str, int]) -> list[str]:
    return sorted(counts, key=lambda word: (-counts[word], word))


def _endings(text: str) -> list[str]:
    """The ends of a name that may be its type, ignoring what follows the last word."""
    spans = _units(text)
    found = []
    for length in (*_ENDING_CHARACTERS, *_ENDING_WORDS):
        some = spans[-length:]
        if len(some) == length and _is_keyword(text, some, _ENDING_CHARACTERS, _ENDING_WORDS):
            found.append(text[some[0][0] : some[-1][1]])
    return found


def _parts(text: str) -> Iterator[str]:
    """The parts of a name that may be keywords."""
    spans = _units(text)
    for first in range(len(spans)):
        for length in {*_PART_CHARACTERS, *_PART_WORDS}:
            some = spans[first : first + length]
            if len(some) == length and _is_keyword(text, some, _PART_CHARACTERS, _PART_WORDS):
                yield text[some[0][0] : some[-1][1]]


def _is_keyword(
    text: str, spans: Sequence[tuple[int, int]], characters: Sequence[int], words: Sequence[int]
) -> bool:
    """Whether consecutive units form one keyword with an allowed number of units."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    between = zip(spans, spans[1:], strict=False)
    if any(text[last:first] not in _JOINTS for (_, last), (first, _) in between):
        return False
    is_unspaced = [_UNSPACED.match(text[first:last]) is not None for first, last in spans]
    if all(is_unspaced):
        return len(spans) in characters
    if any(is_unspaced) or len(spans) not in words:
        return False
    edges = (text[slice(*spans[0])], text[slice(*spans[-1])])
    return all(
        len(edge) >= _SHORTEST_WORD and edge.isalpha() and edge not in ENGLISH_STOP_WORDS
        for edge in edges
    )


def _pure(
    texts: Sequence[str],
    branches: Sequence[Collection[str]],
    frequent: Collection[str],
    part_names: int,
    purity: float,
) -> set[str]:
    """The parts whose names are mostly on one branch; all parts if the dictionary has no tree."""
    sizes = Counter(branch for some in branches for branch in set(some))
    on_branch = sum(any(sizes[branch] >= part_names for branch in some) for some in branches)
    if 2 * on_branch < len(texts):
        tell(
            "the dictionary has no tree of branches with several names: parts are kept by their "
            "frequency alone; look through the words"
        )
        return set(frequent)
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    total: Counter[str] = Counter()
    for text, some in zip(texts, branches, strict=True):
        for part in set(_parts(text)).intersection(frequent):
            total[part] += 1
            found[part].update(set(some))
    most = {part: max(counts.values(), default=0) for part, counts in found.items()}
    return {part for part, count in most.items() if count >= purity * total[part]}


def _maximal(kept: Collection[str], counts: Mapping[str, int]) -> set[str]:
    """Parts, except pieces of a longer part that occur in no other names: mostly pieces of
    words.
    """
    return set(kept) - {piece for part in kept for piece in _pieces(part, _parts(part), counts)}


def _pieces(whole: str, parts: Iterable[str], counts: Mapping[str, int]) -> set[str]:
    """The proper parts of a keyword that occur in no names but those of the whole keyword."""
    return {part for part in parts if part != whole and counts.get(part) == counts[whole]}
