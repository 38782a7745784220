"""Mentions of annotated abstracts: written out, divided, counted, with the concepts they mean."""

import pytest

from coder_jax.evaluation.benchmark import Given
from coder_jax.evaluation.names.text_mentions import (
    concepts_of_identifiers,
    mentions_by_type,
    read_folds,
)
from data_pipeline.dataset.dictionary import AboutConcept, Dictionary, read_dictionary
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.retired_cuis import RetiredCuis

TEST = (
    "1|t|Wilson disease (WD).\n1|a|WD and WD patients; renal and hepatic failure; a tremor.\n"
    "1\t0\t14\tWilson disease\tSpecificDisease\tMESH:D006527\n"
    "1\t21\t23\tWD\tModifier\tD006527\n1\t28\t39\tWD patients\tModifier\tD006527|D000001\n"
    "1\t41\t66\trenal and hepatic failure\tCompositeMention\tD1|OMIM:222222\t"
    "renal failure|hepatic failure\n"
    "1\t70\t76\ttremor\tDiseaseClass\t-1\n1\t70\t76\ttremor\tDiseaseClass\tD3+D4\n"
    "2|t|WD is white disease here.\n2|a|\n2\t0\t2\tWD\tDisease\tD999999\n"
    "2\t6\t11\twhite\tChemical\tC1\n"
)
MEDIC = "D006527|277900||Wilson disease|WD\nD051437|222222||Liver failure\nD1||Kidney failure\n"


def given(write, dictionary=MEDIC, text=TEST, **options):
    searched = read_dictionary(write("medic.txt", dictionary))
    return Given("toy", write("test.txt", text), searched, options=options)


def test_what_the_mentions_are(write):
    diseases, chemicals = mentions_by_type(write("test.txt", TEST)).values()
    assert list(zip(diseases.strings, diseases.gold, strict=True)) == [
        ("Wilson disease", ("D006527",)),
        ("Wilson disease", ("D006527",)),
        ("Wilson disease patients", ("D006527", "D000001")),
        ("renal failure", ("D1",)),
        ("hepatic failure", ("222222",)),
        ("WD", ("D999999",)),  # that abstract does not explain it
    ]
    assert diseases.counts == {
        **{"abbreviations written out": 2, "composite mentions divided": 1},
        **{"no identifier": 1, "several concepts at once": 1},
    }
    assert (chemicals.strings, chemicals.gold) == (["white"], [("C1",)])


def test_only_what_the_dictionary_has_counts(write):
    folds, exact, counts = read_folds(given(write))
    (fold,) = folds
    assert (fold.name, exact) == ("Disease", {})
    assert fold.gold == ["D006527", "D006527", "D006527", "D1", "D051437"]
    assert counts["Disease"]["not in the dictionary"] == 1
    assert counts["Chemical"] == {"abbreviations written out": 0, "not in the dictionary": 1}


def test_concepts_by_their_codes():
    about = {
        "C0000001": AboutConcept("a", (("MSH", "D1"), ("SNOMEDCT_US", "D2"))),
        "C0000002": AboutConcept("b", (("MSH", "D1"), ("OMIM", "222222"))),
    }
    dictionary = Dictionary(
        ["a", "b", "c"], ["C0000001", "C0000002", "D3"], "toy", about_concepts=about
    )
    found = concepts_of_identifiers(dictionary, ["D1", "D2", "D3", "222222", "D9"])
    assert found == {"D1": "C0000001|C0000002", "222222": "C0000002", "D3": "D3"}


TRAINING = (
    "5|t|x\n5\t0\t1\thepatic FAILURE\tDisease\tD006527\n5\t0\t1\thepatic failure\tDisease\tD1\n"
    "5\t0\t1\tHepatic failure\tDisease\tD1\n5\t0\t1\trenal failure\tDisease\t-1\n"
    "5\t0\t1\tWD\tDisease\tD1|D006527\n5\t0\t1\twilson disease\tChemical\tD1\n"
)


def test_exact_matches_of_training_annotations(write, tmp_path):
    train = write("train.txt", TRAINING)
    for argument in (str(train), f"toy={train}"):
        exact = read_folds(given(write, exact_match=[argument])).exact
        # The most frequent one; nothing of another type or without an identifier.
        assert exact == {"Disease": ["", "", "", "", "D1"]}
    assert read_folds(given(write, exact_match=[f"other={train}"])).exact == {}
    one = given(write, exact_match=[str(train)])
    merged = Given(
        one.name, one.path, one.dictionary, RetiredCuis({"D1": "D7"}, "toy"), one.options
    )
    assert read_folds(merged).exact == {"Disease": ["", "", "", "", "D7"]}


def test_messages(write):
    with pytest.raises(BadInput, match="found mentions in text and no dictionary to search; give"):
        read_folds(Given("toy", write("test.txt", TEST)))
    with pytest.raises(
        BadInput, match=r"no mention whose concept .such as '222222'. is in the dict"
    ):
        read_folds(given(write, "D999998||x\n"))


def test_as_many_mentions_as_the_paper_counts(shared_data):
    """NCBI disease: all; BC5CDR: of 4,424 lines, 53 of them composite, those in MEDIC of 2012."""
    folder = shared_data / "benchmarks"
    dictionary = read_dictionary(folder / "ncbi_disease/dictionary/medic_06Jul2012.txt")
    ncbi = read_folds(Given("n", folder / "ncbi_disease/test/NCBItestset_corpus.txt", dictionary))
    (diseases,) = ncbi.folds
    assert len(diseases.mentions) == 960
    assert ncbi.counts["Disease"]["not in the dictionary"] == 0
    bc5cdr = read_folds(Given("b", folder / "bc5cdr/CDR_TestSet.PubTator.txt", dictionary))
    (diseases,) = bc5cdr.folds
    assert (diseases.name, len(diseases.mentions)) == ("Disease", 4_344)
    counts = bc5cdr.counts["Disease"]
    assert counts["composite mentions divided"] == 53
    assert counts["not in the dictionary"] + counts["no identifier"] + 4_344 == 4_424 + 57
