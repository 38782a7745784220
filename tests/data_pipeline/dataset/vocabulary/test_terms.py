"""Terms to learn from: every source, each term once in its language, as the encoder gets it."""

import pytest
from tiny_mentions import tiny_mentions
from tiny_ontology import write_ontology
from tiny_rrf import write_release

from data_pipeline.dataset.vocabulary.terms import MOST_OF_A_TERM, read_terms
from data_pipeline.process.errors import BadInput


def test_a_list_has_a_term_in_each_line(write):
    path = write("terms.txt", "\ufeffHerz\n\n Niere, links \r\nHerz\nLeber\n")
    assert read_terms([path]) == {"UND": ["Herz", "Niere, links", "Leber"]}


def test_tables_with_and_without_languages(write):
    two = write("two.tsv", "mention\tCUI\nHerz\tC1\nNiere\tC2\n")
    assert read_terms([two]) == {"UND": ["Herz", "Niere"]}
    piped = write("piped.txt", "C1||Herz\nC2||Niere\n")
    assert read_terms([two, piped]) == {"UND": ["Herz", "Niere"]}
    table = write("table.csv", "code,name,language\n1,Herz,GER\n1,coeur,FRE\n2,Herz,GER\n")
    assert read_terms([table, two]) == {"FRE": ["coeur"], "GER": ["Herz"], "UND": ["Herz", "Niere"]}
    assert read_terms([table], ["FRE"]) == {"FRE": ["coeur"]}


def test_a_release_by_languages(tmp_path):
    release = write_release(tmp_path)
    found = read_terms([release / "MRCONSO.RRF"], ["FRE"])
    assert found.keys() == {"FRE"} and "Infarctus" in found["FRE"]
    assert {"ENG", "FRE"} <= read_terms([release / "MRCONSO.RRF"]).keys()


def test_names_and_training_mentions_of_a_folder(tmp_path):
    data = tiny_mentions(tmp_path)
    (found,) = read_terms([data.folder]).values()
    train = {*data.splits["train"].mentions.strings}
    assert {*found} == {*data.names.strings} | train
    held_out = {*data.splits["test"].mentions.strings} - {*found}
    assert held_out, "mentions of the test split are not learnt from"


def test_terms_are_cleaned_as_the_encoder_does_it(write):
    path = write("terms.txt", "Diabetes (disorder)\n")
    (raw,), (cleaned,) = (read_terms([path], (), one)["UND"] for one in ("none", "paper"))
    assert raw == "Diabetes (disorder)" and cleaned != raw


def test_a_dataset_has_languages(tmp_path):
    from tiny_bert import write_tokenizer

    from data_pipeline.build import __main__ as build

    (tmp_path / "tokenizer").mkdir()
    write_tokenizer(tmp_path / "tokenizer")
    ontology = write_ontology(tmp_path / "tiny.obo", classes=20)
    words = ["--source", ontology, "--tokenizer", tmp_path / "tokenizer", "--out", tmp_path / "d"]
    assert build.main([*map(str, words)]) == 0
    found = read_terms([tmp_path / "d"])
    assert found.keys() == {"ENG"} and len(found["ENG"]) >= 20


@pytest.mark.parametrize(
    ("content", "languages", "message"),
    [
        ("\n \n", [], "found no term"),
        ("", [], "found no term"),
        ("Herz\n", ["GER"], "expected a source that names languages"),
        ("x" * (MOST_OF_A_TERM + 1), [], "found a term of 10,001 characters"),
    ],
)
def test_what_cannot_be_learnt_from_is_said(write, content, languages, message):
    with pytest.raises(BadInput, match=message):
        read_terms([write("terms.txt", content)], languages)


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(BadInput, match="absent.txt"):
        read_terms([tmp_path / "absent.txt"])
    with pytest.raises(BadInput, match=r"manifest\.json"):
        read_terms([tmp_path])
