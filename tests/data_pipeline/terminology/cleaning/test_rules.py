"""The cleaning rules: what each does to awkward terms, column and single term alike."""

import polars as pl
import pytest

from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.cleaning.rules import (
    CLEANING,
    IN_WORDS,
    clean,
    semantic_tags,
    without_tags,
)

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


def cleaned(term, rules):
    """One term, as a column of one row."""
    return clean(pl.Series([term]), rules)[0]


@pytest.mark.parametrize("term", PAPER)
def test_paper_rules(term):
    assert cleaned(term, "paper") == PAPER[term]


def test_none_only_folds_blanks():
    assert cleaned("  Pain\n NOS (x-ray)\t", "none") == "Pain NOS (x-ray)"


LOOKUP = {
    "  Cold\t(disorder) ": "Cold",
    "COLD (DISORDER)": "COLD",
    "Bed rest (regime/therapy)": "Bed rest",
    "Ward (environment / location)": "Ward",
    "SNOMED CT Concept (SNOMED RT+CTV3)": "SNOMED CT Concept",
    "Excision (left) (procedure)": "Excision (left)",
    "Hemiplegia (left)": "Hemiplegia (left)",
    "Diabetes mellitus (type 2)": "Diabetes mellitus (type 2)",
    "Cold (disorder) of nose": "Cold (disorder) of nose",
    "Pain NOS, x-ray": "Pain NOS, x-ray",
    "poly(product)": "poly(product)",
    "(disorder)": "(disorder)",
    "Melanoma (disorder) (finding)": "Melanoma (disorder)",
    "Mood (mental disorder)": "Mood (mental disorder)",
    "": "",
}


@pytest.mark.parametrize("term", LOOKUP)
def test_lookup_drops_a_semantic_tag_and_nothing_else(term):
    assert cleaned(term, "lookup") == LOOKUP[term]


def test_the_tags_of_a_dictionary():
    """Whose brackets mean something else keeps them."""
    terms = [
        "Cold (disorder)",
        "Sneezing (FINDING)",
        "Left (side)",
        "Rest (regime/therapy) at home",
    ]
    tags = semantic_tags(terms)
    assert tags == {"disorder", "finding"} == semantic_tags(pl.Series(terms))
    mentions = pl.Series(["Cold (Disorder)", "Sneezing (finding)", "Saw (physical object)"])
    assert without_tags(mentions, tags).to_list() == ["Cold", "Sneezing", "Saw (physical object)"]
    assert semantic_tags(["Cold (left)", "(disorder)"]) == semantic_tags([]) == frozenset()
    assert without_tags(mentions, frozenset()).to_list() == mentions.to_list()


MLNORM = {
    "Œdème de l’œil (droit)": "oedeme de l ' oeil ( droit )",
    "Fie\u0300vre  À 40°C": "fievre a 40 degc",
    "IL2-Rβ1, β-η φ": "il 2 - rb 1 , b - e ph",
    "≥ 5µg/mL ×3": "> = 5 ug / ml x 3",
    "“Pain” NOS—“x”…": '" pain " nos - " x " . . .',
    "a1b22c T4N0M0": "a 1 b 22 c t 4 n 0 m 0",
    "a-b_c\\d[e]^f`{g|h}~!@i": "a - b _ c \\ d [ e ] ^ f ` { g | h } ~ ! @ i",
    "Straße Łódź №5": "strasse lodz no 5",
    "a\u2028b\u00a0\u3000c\u200bd": "a b cd",
    "()": "( )",
    "\u0301 ": "",
    "": "",
}


@pytest.mark.parametrize("term", MLNORM)
def test_mlnorm_rules(term):
    assert cleaned(term, "mlnorm") == MLNORM[term]
    assert cleaned(MLNORM[term], "mlnorm") == MLNORM[term]


def test_mlnorm_makes_ascii_of_every_character():
    """Also where a column is read in parts, and where a value is missing."""
    letters = [chr(point) for point in range(0x3000) if not 0xD800 <= point < 0xE000]
    column = clean(pl.Series([*letters, None, "É"]), "mlnorm")
    assert column[-2:].to_list() == [None, "e"]
    assert all(term.isascii() and term == term.lower() for term in column.drop_nulls())


def test_words_for_all_rules():
    assert set(IN_WORDS) == set(CLEANING)


@pytest.mark.parametrize("rules", CLEANING)
def test_column_expression_and_single_term_agree(rules):
    terms = [*PAPER, *LOOKUP, *MLNORM, *(f"{a} {b}" for a in PAPER for b in PAPER)]
    column = clean(pl.Series(terms), rules).to_list()
    lazy = pl.LazyFrame({"t": terms}).select(clean(pl.col("t"), rules)).collect()["t"].to_list()
    assert column == lazy == [cleaned(term, rules) for term in terms]
    assert not any(set(term) & set("\t\n\r") for term in column)


def test_unknown_rules_are_refused():
    with pytest.raises(
        BadInput, match="unknown cleaning 'papper'; expected one of lookup, mlnorm, none, paper"
    ):
        cleaned("x", "papper")
