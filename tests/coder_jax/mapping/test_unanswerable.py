"""Mentions that name nothing."""

import pytest

from coder_jax.mapping.unanswerable import why_unanswerable


@pytest.mark.parametrize(
    ("mention", "why"),
    [
        ("", "empty"),
        (" \t", "empty"),
        ("\u3000", "empty"),
        ("n/a", "a placeholder"),
        ("N/A.", "a placeholder"),
        ("[none]", "a placeholder"),
        ("Unknown", "a placeholder"),
        ("k.A.", "a placeholder"),
        ("Keine  Angabe", "a placeholder"),
        ("non renseigné", "a placeholder"),
        ("see attached letter", "a placeholder"),
        ("Please see the report, 3/4", "a placeholder"),
        ("siehe Anlage", "a placeholder"),
        ("?", "no letters"),
        ("---", "no letters"),
        ("§", "no letters"),
        ("12", "a number"),
        ("1,5 %", "a number"),
        ("１２", "a number"),
        ("x", "one letter"),
        ("К", "one letter"),
    ],
)
def test_no_answer(mention, why):
    assert why_unanswerable(mention) == why


@pytest.mark.parametrize(
    "mention",
    [
        *("咳", "痛", "T2", "II", "12 mg", "K+", "see-saw nystagmus", "seeing double"),
        *("unknown primary tumour", "testis", "nothing by mouth", "kala-azar", "absence"),
    ],
)
def test_a_name_is_looked_up(mention):
    assert why_unanswerable(mention) == ""
