"""Terms with the string of a mention."""

import numpy as np
import polars as pl
import pytest

from coder_jax.mapping import exact
from coder_jax.mapping.exact import SameStrings

TERMS = [
    "Hemiplegia (left)",
    "Hemiplegia (right)",
    "AIDS",
    "aids",
    "Été",
    "Straße",
    "heart\u00a0attack",
]


@pytest.mark.parametrize(
    ("mention", "rows"),
    [
        ("Hemiplegia (right)", [1]),
        ("  hemiplegia \t(RIGHT)\n", [1]),
        ("Aids", [2, 3]),
        ("e\u0301te\u0301", [4]),  # the accents as signs of their own
        ("STRASSE", []),
        ("Heart attack", [6]),
        ("hemiplegia", []),
        ("", []),
    ],
)
def test_case_and_blanks_are_folded_and_nothing_else(mention, rows):
    assert [found.tolist() for found in SameStrings(TERMS).rows([mention])] == [rows]


def test_many_at_once_and_none():
    same = SameStrings(TERMS)
    assert [found.tolist() for found in same.rows(["x", "AIDS", "été"])] == [[], [2, 3], [4]]
    assert same.rows([]) == []


def test_two_strings_with_one_hash_are_told_apart(monkeypatch):
    class Clumsy:
        """Strings whose hash is their length."""

        def __init__(self, strings):
            self.strings = strings

        def hash(self):
            return pl.Series([len(one) for one in self.strings], dtype=pl.UInt64)

        def to_list(self):
            return self.strings

    folded = exact.folded
    monkeypatch.setattr(exact, "folded", lambda terms: Clumsy(folded(terms).to_list()))
    rows = SameStrings(["abc", "abd", "ABC"]).rows(["abd", "abc", "xyz"])
    assert [found.tolist() for found in rows] == [[1], [0, 2], []]
    assert all(found.dtype == np.int64 for found in rows)
