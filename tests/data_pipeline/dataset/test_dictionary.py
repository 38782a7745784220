"""A dataset folder, built from a tiny UMLS release, as the dictionary that is searched."""

import pytest
import tiny_bert
from tiny_build import manifest_of
from tiny_rrf import write_release

from data_pipeline.build.build_dataset import build_dataset
from data_pipeline.build.options import BuildOptions
from data_pipeline.dataset.dictionary import Dictionary, read_dictionary, union
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.retired_cuis import choose_list, read_retired_cuis


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("dataset")
    (tmp / "model").mkdir()
    tiny_bert.write_tokenizer(tmp / "model")
    return build_dataset(
        BuildOptions(source=write_release(tmp / "META"), out=tmp / "tiny", tokenizer=tmp / "model")
    )


def test_all_languages(folder):
    dictionary = read_dictionary(folder)
    rows = list(zip(dictionary.terms, dictionary.concepts, strict=True))
    assert rows == [
        ("heart attack", "C0000001"),
        ("myocardial infarction", "C0000001"),
        ("infarctus", "C0000001"),
        ("heart disease", "C0000002"),
        ("cardiac disease", "C0000002"),
        ("limb pain", "C0000003"),
        ('"pain" in limb', "C0000003"),
        ("douleur aiguë", "C0000006"),
    ]


def test_one_language(folder):
    dictionary = read_dictionary(folder, ["FRE"])
    assert dictionary.terms == ["infarctus", "douleur aiguë"]
    assert dictionary.concepts == ["C0000001", "C0000006"]


def test_the_record_says_what_it_was_made_of(folder):
    """So that two scores over a dictionary of one name are not taken for the same."""
    found = read_dictionary(folder, ["FRE"]).description
    assert found["languages"] == ["FRE"] and found["dataset_cleaning"] == "paper"
    manifest = manifest_of(folder)
    for name in ("name", "release", "content_hash"):
        assert found[f"dataset_{name}"] == manifest[name]
    assert found["dataset_filters"]["sources"] == []
    assert len(found["dataset_content_hash"]) == 64 != found["content_hash"]
    assert read_dictionary(folder).description["languages"] == ["ENG", "FRE"]


def test_a_language_that_is_not_there(folder):
    message = "--dictionary-languages GER: no term of .* has it; it has ENG, FRE"
    with pytest.raises(BadInput, match=message):
        read_dictionary(folder, ["ENG", "GER"])


def test_some_vocabularies(folder):
    """Of the terms that a vocabulary has, whichever has them too; and of the concepts it has."""
    everything = read_dictionary(folder)
    of_term = dict(zip(everything.terms, everything.vocabularies, strict=True))
    assert of_term["heart attack"] == ("MSH", "SNOMEDCT_US")
    assert of_term["cardiac disease"] == ("MSH", "MSHFRE"), "in two languages, once"
    assert of_term["infarctus"] == ("MSHFRE",)
    snomed = read_dictionary(folder, sources=["SNOMEDCT_US"])
    assert snomed.terms == ["heart attack", "myocardial infarction"]
    assert snomed.concepts == ["C0000001"] * 2
    assert snomed.vocabularies == [("SNOMEDCT_US",)] * 2
    assert snomed.source == f"{folder} SNOMEDCT_US"
    assert snomed.description["vocabularies"] == ["SNOMEDCT_US"]
    assert everything.description["vocabularies"] == [] == everything.description["concepts_of"]
    french = read_dictionary(folder, ["FRE"], ["MSH", "MSHFRE"])
    assert french.terms == ["infarctus", "douleur aiguë"]
    of_snomed = read_dictionary(folder, concepts_of=["SNOMEDCT_US"])
    assert of_snomed.terms == ["heart attack", "myocardial infarction", "infarctus"]
    assert of_snomed.description["concepts_of"] == ["SNOMEDCT_US"]
    both = read_dictionary(folder, sources=["MSHFRE"], concepts_of=["SNOMEDCT_US"])
    assert both.terms == ["infarctus"]


def test_vocabularies_that_are_not_there(folder):
    known = "it has MSH, MSHFRE, SNOMEDCT_US"
    with pytest.raises(BadInput, match=f"--dictionary-sources MDR: no term .* has it; {known}"):
        read_dictionary(folder, sources=["MSH", "MDR"])
    with pytest.raises(BadInput, match=f"--dictionary-concepts-of X: no term .* has it; {known}"):
        read_dictionary(folder, concepts_of=["X"])
    options = "--dictionary-languages and --dictionary-sources"
    with pytest.raises(BadInput, match=f"found no term of the choice.* other values for {options}"):
        read_dictionary(folder, ["FRE"], ["SNOMEDCT_US"])


def test_a_release_of_suppressed_terms(tmp_path):
    mrconso = write_release(tmp_path / "META") / "MRCONSO.RRF"
    lines = mrconso.read_text().splitlines(keepends=True)
    mrconso.write_text("".join(line for line in lines if "|E||" in line))
    with pytest.raises(BadInput, match="suppressed ones aside; give another dictionary"):
        read_dictionary(mrconso)


def test_its_retired_cuis(folder):
    retired = read_retired_cuis(choose_list(None, folder))
    assert retired.successor == {"C0000009": "C0000002"}


def test_the_terms_of_a_release(tmp_path):
    mrconso = write_release(tmp_path / "META") / "MRCONSO.RRF"
    everything = read_dictionary(mrconso)
    rows = list(zip(everything.concepts, everything.terms, strict=True))
    assert rows[:2] == [("C0000001", "Heart attack"), ("C0000001", "Infarctus")], "preferred first"
    assert ("C0000003", '"Pain" in limb') in rows
    assert not {"Sore limb", "Old name"} & set(everything.terms), "suppressed"
    assert everything.terms.count("Cardiac disease") == 1, "in two languages, once"
    assert everything.vocabularies[everything.terms.index("Cardiac disease")] == ("MSH", "MSHFRE")
    chosen = read_dictionary(mrconso, ["ENG"], ["SNOMEDCT_US"])
    assert chosen.terms == ["HEART ATTACK", "Myocardial infarction NOS", "(NOS)"]
    assert chosen.source == f"{mrconso} ENG SNOMEDCT_US"
    assert chosen.description["languages"] == ["ENG"]
    assert chosen.description["vocabularies"] == ["SNOMEDCT_US"]
    of_snomed = read_dictionary(mrconso, ["ENG"], concepts_of=["SNOMEDCT_US"])
    assert set(of_snomed.concepts) == {"C0000001", "C0000005"}, "C0000005 is SNOMED's alone"
    assert "Heart attack" in of_snomed.terms, "MeSH's name of a concept that SNOMED has"
    assert of_snomed.description["concepts_of"] == ["SNOMEDCT_US"]
    both = read_dictionary(mrconso, ["ENG"], ["MSH"], ["SNOMEDCT_US"])
    assert both.terms == ["Heart attack"]
    with pytest.raises(BadInput, match="--dictionary-concepts-of MDR: no term .*; it has MSH, "):
        read_dictionary(mrconso, concepts_of=["MDR"])
    with pytest.raises(
        BadInput, match="--dictionary-concepts-of MSH; expected a dataset folder or the"
    ):
        read_dictionary(tmp_path / "terms.tsv", concepts_of=["MSH"])
    with pytest.raises(BadInput, match="--dictionary-sources MDR: no term .* has it; it has MSH"):
        read_dictionary(mrconso, None, ["MDR"])
    with pytest.raises(BadInput, match="--dictionary-sources MSH; expected a dataset folder or"):
        read_dictionary(tmp_path / "terms.tsv", None, ["MSH"])


def test_the_concepts_of_a_term_come_once():
    terms = ["cold", "fever", "cold", "cold"]
    dictionary = Dictionary(terms, ["C1", "C2", "C3|C1", "C1"], "toy")
    assert dictionary.concepts_of_terms() == {"cold": "C1|C3", "fever": "C2"}


def test_folds_that_share_a_dictionary_are_described_by_it():
    one = Dictionary(["a", "b", "a"], ["C1", "C2", "C1"], "one", retired=1)
    assert union([one, one]) is one
    assert one.description is one.description, "hashed once"
    assert (one.description["terms"], one.description["concepts"]) == (2, 2)
    both = union([one, Dictionary(["b", "c"], ["C2", "C3|C1"], "other", retired=2), one])
    assert both.description == {
        **{"source": "one and 1 more", "terms": 3, "concepts": 3, "retired": 3},
        "content_hash": Dictionary(["c", "b", "a"], ["C3|C1", "C2", "C1"], "").description[
            "content_hash"
        ],
    }


def test_dictionaries_that_cannot_be_used(write, tmp_path):
    message = "a folder without manifest.json; expected a dictionary: a TSV .* or the MRCONSO.RRF"
    with pytest.raises(BadInput, match=message):
        read_dictionary(tmp_path)
    path = write("d.tsv", "pain\tC1\n")
    message = "found --dictionary-languages ENG; expected a dataset folder or the MRCONSO.RRF"
    with pytest.raises(BadInput, match=message):
        read_dictionary(path, ["ENG"])
    with pytest.raises(BadInput, match="d.tsv:1: found 3 columns; expected 2: term<TAB>CUI"):
        read_dictionary(write("d.tsv", "pain\tC1\tENG\n"))
