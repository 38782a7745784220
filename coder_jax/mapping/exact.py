"""A dictionary's terms in, those that have the same string as a mention out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

TERMS_AT_ONCE = 1 << 20


def folded(terms: Sequence[str]) -> pl.Series:
    """Strings with case and blanks folded, and accents written in one way (Unicode's NFC)."""
    series = pl.Series(list(terms), dtype=pl.String)
    series = series.str.normalize("NFC").str.to_lowercase()
    return series.str.replace_all(r"\s+", " ").str.strip_chars()


class SameStrings:
    """Finds the terms that are a mention's string, case and blanks aside.

    It holds 16 bytes for each term, whatever its length, beside the terms themselves.

    Attributes:
      terms: the strings that are compared, [n].
    """

    def __init__(self, terms: Sequence[str]):
        self.terms = terms
        parts = range(0, len(terms), TERMS_AT_ONCE)  # or all strings would be there several times
        hashes = np.concatenate(
            [
                np.zeros(0, np.uint64),
                *(folded(terms[one : one + TERMS_AT_ONCE]).hash().to_numpy() for one in parts),
            ]
        )
        self.order = np.argsort(hashes, kind="stable")
        self.hashes = hashes[self.order]

    def rows(self, mentions: Sequence[str]) -> list[np.ndarray]:
        """For each mention the rows, int64 and ascending, of the terms with its string."""
        wanted = folded(mentions)
        hashes = wanted.hash().to_numpy()
        first = np.searchsorted(self.hashes, hashes, "left")
        last = np.searchsorted(self.hashes, hashes, "right")
        found = [self.order[begin:end] for begin, end in zip(first, last, strict=True)]
        # Two strings may have one hash.
        rows = np.concatenate([np.zeros(0, np.int64), *found])
        strings = folded([self.terms[row] for row in rows]).to_list()
        same, start = [], 0
        for string, some in zip(wanted.to_list(), found, strict=True):
            end = start + len(some)
            is_same = [other == string for other in strings[start:end]]
            same.append(some[np.array(is_same, bool)])
            start = end
        return same
