"""A dataset folder, built from a tiny UMLS release, as the dictionary that is searched."""

import gzip
import re
import shutil
from pathlib import Path

import pytest
import tiny_bert
from tiny_build import manifest_of
from tiny_rrf import write_release

from data_pipeline.build.build_dataset import build_dataset
from data_pipeline.build.options import BuildOptions
from data_pipeline.dataset.dictionaries.choice import Choice
from data_pipeline.dataset.dictionary import AboutConcept, Dictionary, read_dictionary, union
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.retired_cuis import RetiredCuis, choose_list, read_retired_cuis


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


def test_the_strings_of_the_source(folder):
    """What a look-up needs: nothing deleted, each string with the vocabularies that write it so."""
    dictionary = read_dictionary(folder, raw=True)
    rows = list(zip(dictionary.terms, dictionary.concepts, dictionary.vocabularies, strict=True))
    assert rows == [
        ("Heart attack", "C0000001", ("MSH",)),
        ("HEART ATTACK", "C0000001", ("SNOMEDCT_US",)),
        ("Myocardial infarction NOS", "C0000001", ("SNOMEDCT_US",)),
        ("Infarctus", "C0000001", ("MSHFRE",)),
        ("Heart disease (disorder)", "C0000002", ("MSH",)),
        ("Cardiac disease", "C0000002", ("MSH", "MSHFRE")),
        ("Limb pain", "C0000003", ("MSH",)),
        ('"Pain" in limb', "C0000003", ("MSH",)),
        ("Douleur aiguë", "C0000006", ("MSHFRE",)),
    ]
    assert dictionary.languages == ["ENG"] * 3 + ["FRE"] + ["ENG"] * 4 + ["FRE"]
    assert dictionary.description["raw"] is True and "raw" not in read_dictionary(folder).chosen
    snomed = read_dictionary(folder, sources=["SNOMEDCT_US"], raw=True)
    assert snomed.terms == ["HEART ATTACK", "Myocardial infarction NOS"]
    chosen = read_dictionary(folder, ["FRE"], None, ["SNOMEDCT_US"], raw=True)
    assert chosen.terms == ["Infarctus"]


ABOUT = {
    "C0000001": AboutConcept(
        "Heart attack",
        (("MSH", "0"), ("MSHFRE", "3"), ("SNOMEDCT_US", "1"), ("SNOMEDCT_US", "2")),
        ("T047 Disease or Syndrome",),
    ),
    "C0000002": AboutConcept(
        "Heart disease (disorder)",
        (("MSH", "4"), ("MSH", "5"), ("MSHFRE", "6")),
        ("T047 Disease or Syndrome",),
    ),
    "C0000003": AboutConcept(
        "Limb pain", (("MSH", "7"), ("MSH", "8")), ("T033 Finding", "T184 Sign or Symptom")
    ),
    "C0000006": AboutConcept("Douleur aiguë", (("MSHFRE", "12"),)),
}


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("source", ["dataset", "release"])
def test_what_is_known_of_concepts(folder, source, raw):
    path = folder if source == "dataset" else folder.parent / "META" / "MRCONSO.RRF"
    dictionary = read_dictionary(path, raw=raw)
    no_term_left = {"C0000005": AboutConcept("(NOS)", (("SNOMEDCT_US", "11"),))}
    known = ABOUT | (no_term_left if source == "release" else {})
    assert dictionary.about_concepts == known
    assert {concept: dictionary.about(concept) for concept in known} == known
    for unknown in ("", "C0000004", "C9999999"):
        with pytest.raises(KeyError):
            dictionary.about(unknown)
    # Codes of the vocabularies that are chosen; the name of the concept all the same.
    snomed = read_dictionary(path, sources=["SNOMEDCT_US"], raw=raw).about("C0000001")
    assert snomed == ABOUT["C0000001"]._replace(codes=(("SNOMEDCT_US", "1"), ("SNOMEDCT_US", "2")))
    french = read_dictionary(path, ["FRE"], raw=raw)
    assert french.about("C0000001").preferred == "Infarctus"
    assert french.about("C0000001").codes == ABOUT["C0000001"].codes


def test_what_is_known_is_read_when_it_is_asked_for(folder, tmp_path):
    copied = shutil.copytree(folder.parent / "META", tmp_path / "META")
    lazy, at_once = (read_dictionary(copied / "MRCONSO.RRF", raw=raw) for raw in (False, True))
    (copied / "MRSTY.RRF").write_text("broken\n")
    assert at_once.about("C0000001") == ABOUT["C0000001"]
    with pytest.raises(BadInput, match="MRSTY.RRF, line 1: found 1 columns"):
        lazy.about("C0000001")
    with pytest.raises(BadInput, match="MRSTY.RRF, line 1: found 1 columns"):
        read_dictionary(copied / "MRCONSO.RRF", raw=True)


def test_concepts_of_some_types(folder, tmp_path):
    mrconso = folder.parent / "META" / "MRCONSO.RRF"
    heart, limb = {"C0000001", "C0000002"}, {"C0000003"}
    for path in (folder, mrconso):
        for asked, concepts in (
            (["T047"], heart),
            (["disease or syndrome"], heart),
            (["t047 Disease or Syndrome"], heart),
            (["T033", "T047"], heart | limb),
            (["T033,T184"], limb),
            (["Finding, t047"], heart | limb),
        ):
            found = read_dictionary(path, types=asked)
            assert found.concept_set == concepts, (path, asked)
            assert found.description["semantic_types"] == asked
        assert read_dictionary(path, ["FRE"], types=["T047"]).terms[0].lower() == "infarctus"
        message = (
            "--semantic-types Disease and Syndrome: no concept of .* has it; it has T033 Finding, "
            "T047 Disease or Syndrome, T184 Sign or Symptom; did you mean disease or syndrome?"
        )
        with pytest.raises(BadInput, match=re.escape(message).replace(r"\.\*", ".*")):
            read_dictionary(path, types=["Disease and Syndrome"])
        with pytest.raises(BadInput, match="other values for --dictionary-languages and --sema"):
            read_dictionary(path, ["FRE"], types=["T184"])
    assert "semantic_types" not in read_dictionary(folder).description
    alone = shutil.copy(mrconso, tmp_path)
    with pytest.raises(BadInput, match="--semantic-types T047: found no MRSTY.RRF beside"):
        read_dictionary(alone, types=["T047"])
    packed = gzip.compress(mrconso.with_name("MRSTY.RRF").read_bytes())
    (tmp_path / "MRSTY.RRF.gz").write_bytes(packed)
    assert read_dictionary(alone, types=["T047"]).concept_set == heart
    with pytest.raises(BadInput, match="--semantic-types T047; expected a dataset folder or"):
        read_dictionary(tmp_path / "terms.tsv", types=["T047"])


def test_types_whose_names_hold_commas():
    known = ["Element, Ion", "Ion", "T001 Element, Isotope", "anatomy"]

    def chosen(*asked):
        return Choice(types=asked).types_among(known, Path("it"))

    assert chosen("element, ion") == [0], "as a whole, where there is such a name"
    assert chosen("ION") == [1] and chosen("Element, Isotope") == chosen("T001") == [2]
    assert chosen("T001,Ion", "anatomy") == [1, 2, 3]
    with pytest.raises(BadInput, match="--semantic-types Element: no concept of it has it"):
        chosen("Element,Ions")


def test_values_that_may_be_meant(folder):
    with pytest.raises(BadInput, match="it has ENG, FRE; did you mean FRE?"):
        read_dictionary(folder, ["FR"])
    with pytest.raises(BadInput, match="SNOMEDCT_US; did you mean SNOMEDCT_US?"):
        read_dictionary(folder, sources=["SNOMEDCT"])


def test_a_release_of_suppressed_terms(tmp_path):
    mrconso = write_release(tmp_path / "META") / "MRCONSO.RRF"
    lines = mrconso.read_text().splitlines(keepends=True)
    mrconso.write_text("".join(line for line in lines if "|E||" in line))
    with pytest.raises(BadInput, match="suppressed ones aside; give another dictionary"):
        read_dictionary(mrconso)


def test_its_retired_cuis(folder):
    retired = read_retired_cuis(choose_list(None, folder))
    assert retired.successor == {"C0000009": "C0000002"}


def test_what_is_known_of_a_concept_that_stands_in_for_a_retired_one(folder):
    dictionary = read_dictionary(folder)
    now = dictionary.with_successors(RetiredCuis({"C0000003": "C1", "C0000006": "C0000001"}, "it"))
    assert now.retired == 3 and "C0000003" not in now.concept_set
    assert now.about("C1") == ABOUT["C0000003"]
    assert now.about("C0000001") == ABOUT["C0000001"], "its own, not that of what joined it"


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
