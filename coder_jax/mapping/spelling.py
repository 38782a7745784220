"""Strings that are compared: what counts as the same letters, and what as a typing error."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from os.path import commonprefix

import numpy as np
import polars as pl

# -------------------------------------------------------------------------------------------------
# The same letters.

# Signs that nobody sees, and those that programs put in the place of others.
_INVISIBLE = r"[\p{Cf}\p{Cc}--\s]"
_APOSTROPHES, _HYPHENS = r"[‘’ʼ´`]", r"[‐‑‒–−]"


def plain(terms: Sequence[str]) -> pl.Series:
    """Strings in Unicode's NFKC form, with plain blanks, hyphens and apostrophes.

    Signs that nobody sees (zero-width ones, soft hyphens, byte order marks) are left out.
    """
    series = pl.Series(list(terms), dtype=pl.String)
    series = series.str.replace_all(_APOSTROPHES, "'").str.normalize("NFKC")
    series = series.str.replace_all(_INVISIBLE, "").str.replace_all(_HYPHENS, "-")
    return series.str.replace_all(r"\s+", " ").str.strip_chars()


def visible(text: str) -> str:
    """A string without the signs that nobody sees; all others stay, blanks as they are."""
    if text.isprintable():
        return text
    return "".join(
        sign for sign in text if sign.isspace() or unicodedata.category(sign) not in ("Cf", "Cc")
    )


def same_letters(terms: Sequence[str]) -> pl.Series:
    """Strings that are equal where terms differ in case, blanks or writing alone."""
    return plain(terms).str.to_lowercase().str.replace_all("ß", "ss", literal=True)


# -------------------------------------------------------------------------------------------------
# Typing errors: one letter too many, too few or wrong, or two neighbours swapped.

_LONG = 6  # letters of a word that may be misspelt; a shorter one is as likely another word
_MOST_ALIKE = 2000  # terms that share half of a string with a mention; more are not compared
_TERMS_AT_ONCE = 1 << 20
# One letter apart, and never the same: sizes and directions, salts and hydrocarbons.
_BEGINS = (
    *(("macro", "micro"), ("abduc", "adduc"), ("ante", "anti"), ("exo", "eso")),
    *(("ureter", "urethr"), ("arter", "arthr"), ("dysphas", "dysphag")),
)
_ENDS = ({"ate", "ite", "ide"}, {"ane", "ene", "yne"})


class TypingErrors:
    """Finds the terms of which a mention is a misspelt form.

    The error is in a word of six letters or more (of the mention or of the term), not its first
    letter and no digit, and the dictionary has the mention's word nowhere: "perineal" is no
    misspelt "peroneal". Blanks and hyphens between letters may differ, too.

    A string with one error has half of the term, before or behind the error: terms are found by
    their halves. It holds about 30 bytes for each term.

    Args:
      terms: the strings that are compared, [n].
    """

    def __init__(self, terms: Sequence[str]):
        self.terms = terms
        halves: list[tuple[np.ndarray, np.ndarray]] = []
        words = np.zeros(0, np.uint64)
        for start in range(0, len(terms), _TERMS_AT_ONCE):
            part = same_letters(terms[start : start + _TERMS_AT_ONCE])
            found = part.str.extract_all(r"\p{L}+").explode().drop_nulls().unique().hash()
            words = np.union1d(words, found.to_numpy())
            kept = part.to_frame("term").with_row_index("row")
            kept = kept.filter(pl.col("term").str.len_chars() >= _LONG)
            length = pl.col("term").str.len_chars()
            half = length // 2
            heads = pl.format("{}<{}", length, pl.col("term").str.head(half))
            tails = pl.format("{}>{}", length, pl.col("term").str.tail(length - half))
            keys = kept.select(head=heads.hash(), tail=tails.hash())
            rows = (kept["row"].to_numpy() + start).astype(np.uint32)
            halves += [(keys[half].to_numpy(), rows) for half in ("head", "tail")]
        self.words = words
        hashes = np.concatenate([np.zeros(0, np.uint64), *(part for part, _ in halves)])
        rows = np.concatenate([np.zeros(0, np.uint32), *(part for _, part in halves)])
        order = np.argsort(hashes, kind="stable")
        self.hashes, self.rows_of = hashes[order], rows[order]

    def rows(self, mentions: Sequence[str]) -> list[list[int]]:
        """For each mention the rows, ascending, of the terms that it is a misspelt form of."""
        from rapidfuzz.distance import OSA

        strings = same_letters(mentions).to_list()
        keys: list[str] = []
        owners: list[int] = []  # of each key
        for place, string in enumerate(strings):
            if len(string) >= _LONG:
                of_string = _keys(string)
                keys += of_string
                owners += [place] * len(of_string)
        hashes = pl.Series(keys, dtype=pl.String).hash().to_numpy()
        begins = np.searchsorted(self.hashes, hashes, "left")
        ends = np.searchsorted(self.hashes, hashes, "right")
        alike: list[set[int]] = [set() for _ in strings]
        for owner, begin, end in zip(owners, begins, ends, strict=True):
            if end - begin <= _MOST_ALIKE:
                alike[owner].update(self.rows_of[begin:end].tolist())
        held = sorted(set().union(*alike))
        terms = dict(zip(held, same_letters([self.terms[row] for row in held]), strict=True))
        pairs = [
            (place, row)
            for place, rows in enumerate(alike)
            for row in sorted(rows)
            if OSA.distance(strings[place], terms[row], score_cutoff=1) == 1
        ]
        edits = [_edited_words(strings[place], terms[row]) for place, row in pairs]
        unknown = self._unknown([edit[0] if edit else "" for edit in edits])
        found: list[list[int]] = [[] for _ in strings]
        for (place, row), edit, is_unknown in zip(pairs, edits, unknown, strict=True):
            if edit is not None and (is_unknown or not edit[0]):
                found[place].append(row)
        return found

    def _unknown(self, words: Sequence[str]) -> np.ndarray:
        """bool: whether no term has a word."""
        hashes = pl.Series(words, dtype=pl.String).hash().to_numpy()
        return ~np.isin(hashes, self.words)


def _keys(string: str) -> list[str]:
    """What a term has as its first or its last half that is one error away from a string."""
    length, keys = len(string), []
    for other in (length - 1, length, length + 1):
        half = other // 2
        keys.append(f"{other}<{string[:half]}")
        keys.append(f"{other}>{string[length - (other - half) :]}")
    half = length // 2  # the two letters at the middle may be swapped
    keys.append(f"{length}<{string[: half - 1]}{string[half]}")
    return keys


def _edited_words(string: str, term: str) -> tuple[str, str] | None:
    """The words that differ between two strings one error apart; None if that is no typing error.

    ("", "") where only a blank or a hyphen between letters differs.
    """
    begin = len(commonprefix([string, term]))
    most = min(len(string), len(term)) - begin
    end = len(commonprefix([string[::-1], term[::-1]]))
    end = min(end, most)
    changed = string[begin : len(string) - end] + term[begin : len(term) - end]
    if not set(changed) - {" ", "-"}:
        around = _letters_around(string, begin, end)
        both = string[begin - 1 : begin].isalpha() and string[len(string) - end :][:1].isalpha()
        return ("", "") if both and len(around) >= _LONG else None
    if not all(sign.lower() != sign.upper() for sign in changed):
        return None
    word, other = _letters_around(string, begin, end), _letters_around(term, begin, end)
    if max(len(word), len(other)) < _LONG:
        return None
    if word[0] != other[0] and word[:2] != other[1::-1]:
        return None  # as "afferent" and "efferent", "typical" and "atypical"
    return None if _is_contrary(word, other) else (word, other)


def _is_contrary(word: str, other: str) -> bool:
    """Whether two words differ in a beginning or an end that changes what they name."""
    begins = any({word[: len(a)], other[: len(a)]} == {a, b} for a, b in _BEGINS)
    ends = {word.removesuffix("s")[-3:], other.removesuffix("s")[-3:]}
    stoma = ("stom" in word) != ("stom" in other)  # thoracostomy is no thoracotomy
    return begins or stoma or len(ends) == 2 and any(ends <= kinds for kinds in _ENDS)


def _letters_around(string: str, begin: int, end: int) -> str:
    """The letters at a place, without blanks and hyphens; `end` signs stand behind the place."""
    before = re.search(r"[^\W\d_]*$", string[:begin])
    after = re.match(r"[^\W\d_]*", string[len(string) - end :])
    middle = string[begin : len(string) - end]
    assert before and after
    return before[0] + middle.strip(" -") + after[0]
