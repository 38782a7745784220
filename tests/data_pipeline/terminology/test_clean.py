"""The cleaning rules: what each does to awkward terms, column and single term alike."""

import polars as pl
import pytest

from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.clean import CLEANING, clean, clean_term

PAPER = {
    "Pain NOS": "pain",
    "NOS pain": "pain",
    "Pain nos NOS knee": "pain knee",
    "pain, NOS": "pain,",
    "Nosocomial infection": "nosocomial infection",
    "NOS": "",
    "Cold (disorder)": "cold",
    "Cold (a (b (c) d) e) sore": "cold sore",
    "(disorder)": "",
    "2-(4-x)ethyl[5] {6}": "2 ethyl[5] {6}",
    "open ( bracket": "open ( bracket",
    "X-ray of the arm--left": "x ray of the arm left",
    "  a\t b\n\u00a0 c\u2028d ": "a b c d",
    "Ödem ΟΔΟΣ": "ödem οδος",
    "痛み（腰）": "痛み（腰）",
    "Disease NOS (disorder)": "disease",
    "": "",
}


@pytest.mark.parametrize("term", PAPER)
def test_paper_rules(term):
    assert clean_term(term, "paper") == PAPER[term]


def test_none_only_folds_blanks():
    assert clean_term("  Pain\n NOS (x-ray)\t", "none") == "Pain NOS (x-ray)"


@pytest.mark.parametrize("rules", CLEANING)
def test_column_expression_and_single_term_agree(rules):
    terms = [*PAPER, *(f"{a} {b}" for a in PAPER for b in PAPER)]
    column = clean(pl.Series(terms), rules).to_list()
    lazy = pl.LazyFrame({"t": terms}).select(clean(pl.col("t"), rules)).collect()["t"].to_list()
    assert column == lazy == [clean_term(term, rules) for term in terms]
    assert not any(set(term) & set("\t\n\r") for term in column)


def test_unknown_rules_are_refused():
    with pytest.raises(BadInput, match="unknown cleaning 'papper'; expected one of none, paper"):
        clean_term("x", "papper")
