"""A dataset folder, built from a tiny UMLS release, as the dictionary that is searched."""

import functools
import gzip
import hashlib
import http.server
import re
import shutil
import threading
from pathlib import Path

import polars as pl
import pytest
import tiny_bert
from tiny_build import manifest_of
from tiny_ontology import write_ontology
from tiny_rf2 import loinc_files, rf2_files, write_files
from tiny_rrf import write_release

from data_pipeline.build_dataset.build import build_dataset
from data_pipeline.build_dataset.options import BuildOptions
from data_pipeline.dataset.dictionary import (
    AboutConcept,
    Dictionary,
    _Choice,
    groups_of_concepts,
    read_dictionary,
    read_entries,
    read_identifiers,
    union,
)
from data_pipeline.files.tables import content_hash, first_line, write_table
from data_pipeline.process import BadInput
from data_pipeline.terminology.mentions import Entry
from data_pipeline.terminology.retired_cuis import RetiredCuis, choose_list, read_retired_cuis
from data_pipeline.terminology.semantic_groups import ANY, GROUPS


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
    assert dictionary.terms == ["infarctus", "cardiac disease", "douleur aiguë"]
    assert dictionary.concepts == ["C0000001", "C0000002", "C0000006"]
    assert dictionary.languages == ["FRE"] * 3, "also of the one that is an English name, too"


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
    assert french.terms == ["infarctus", "cardiac disease", "douleur aiguë"]
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
    with pytest.raises(BadInput, match="--semantic-types T047: .* nor a MRSTY.RRF beside it"):
        read_dictionary(alone, types=["T047"])
    packed = gzip.compress(mrconso.with_name("MRSTY.RRF").read_bytes())
    (tmp_path / "MRSTY.RRF.gz").write_bytes(packed)
    assert read_dictionary(alone, types=["T047"]).concept_set == heart
    with pytest.raises(BadInput, match="--semantic-types T047; expected a dataset folder, a"):
        read_dictionary(tmp_path / "terms.tsv", types=["T047"])


def test_types_whose_names_hold_commas():
    known = ["Element, Ion", "Ion", "T001 Element, Isotope", "anatomy"]

    def chosen(*asked):
        return _Choice(types=asked).types_among(known, Path("it"))

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


def test_suppressed_terms_of_a_release_are_kept_on_request(tmp_path, folder):
    mrconso = write_release(tmp_path / "META") / "MRCONSO.RRF"
    kept = read_dictionary(mrconso, keep_suppressed=True)
    usual = read_dictionary(mrconso)
    rows, before = (set(zip(one.terms, one.concepts, strict=True)) for one in (kept, usual))
    assert rows - before == {("Sore limb", "C0000003"), ("Old name", "C0000004")}
    disease = ("T047 Disease or Syndrome",)
    assert kept.about("C0000004") == AboutConcept("Old name", (("MSH", "10"),), disease)
    english = read_dictionary(mrconso, ["ENG"], ["MSH"], keep_suppressed=True)
    assert {"Sore limb", "Old name"} <= set(english.terms)
    assert kept.description["keep_suppressed"] and "keep_suppressed" not in usual.description
    message = "expected a release or an ontology.* built with --keep-suppressed"
    with pytest.raises(BadInput, match=f"{folder}: found --dictionary-keep-suppressed; {message}"):
        read_dictionary(folder, keep_suppressed=True)


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
        BadInput, match="--dictionary-concepts-of MSH; expected a dataset folder, a release"
    ):
        read_dictionary(tmp_path / "terms.tsv", concepts_of=["MSH"])
    with pytest.raises(BadInput, match="--dictionary-sources MDR: no term .* has it; it has MSH"):
        read_dictionary(mrconso, None, ["MDR"])
    with pytest.raises(BadInput, match="--dictionary-sources MSH; expected a dataset folder, a"):
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
    message = "a folder without manifest.json; expected a dictionary: a TSV .* an ontology"
    with pytest.raises(BadInput, match=message):
        read_dictionary(tmp_path)
    path = write("d.tsv", "pain\tC1\n")
    message = "found --dictionary-languages ENG; expected a dataset folder, a release or an"
    with pytest.raises(BadInput, match=message):
        read_dictionary(path, ["ENG"])
    message = "d.tsv:1: found the columns pain, C1, ENG; expected term<TAB>CUI.*--term-column"
    with pytest.raises(BadInput, match=message):
        read_dictionary(write("d.tsv", "pain\tC1\tENG\n"))


ENTRIES = [Entry(("00",), ("操作, (a) [b]/c",)), Entry(("00.1x001",), ('"x" 术',))]


def test_codes_and_names_in_any_order_of_columns(tmp_path):
    path = tmp_path / "code.txt"
    path.write_text("\n".join(f"{e.codes[0]}\t{e.names[0]}" for e in ENTRIES), encoding="utf-8")
    assert read_entries(path) == ENTRIES
    path.write_text("\n".join(f"{e.names[0]}\t{e.codes[0]}" for e in ENTRIES), encoding="utf-8")
    assert read_entries(path) == ENTRIES


def test_a_workbook_without_a_header(tmp_path):
    rows = [("A00", "霍乱"), ("A00.0", "霍乱,由于01群霍乱弧菌"), ("A00", "x")]
    write_table(tmp_path / "icd.xlsx", pl.DataFrame(rows[1:], schema=list(rows[0]), orient="row"))
    assert read_entries(tmp_path / "icd.xlsx") == [
        Entry(("A00",), ("霍乱", "x")),
        Entry(("A00.0",), ("霍乱,由于01群霍乱弧菌",)),
    ]


def test_a_table_with_a_header_has_the_preferred_name_first(tmp_path):
    path = tmp_path / "terms.csv"
    path.write_text("name,preferred,concept\nMI,,C1\nrenal failure,,C2\nheart attack,Y,C1\n")
    assert read_entries(path) == [
        Entry(("C1",), ("heart attack", "MI")),
        Entry(("C2",), ("renal failure",)),
    ]


def test_medic_has_other_identifiers_and_synonyms(tmp_path):
    path = tmp_path / "medic.txt"
    path.write_text("MESH:C5|OMIM:613097||Tooth Agenesis, Selective|STHAG6\nD2||Bluetongue\n")
    assert read_entries(path) == [
        Entry(("C5", "613097"), ("Tooth Agenesis, Selective", "STHAG6")),
        Entry(("D2",), ("Bluetongue",)),
    ]


def test_the_names_of_a_release_have_the_preferred_one_first(tmp_path):
    def atom(cui, status, preferred, name):
        return f"{cui}|ENG|{status}|L|PF|S|{preferred}|A||||MSH|PT|D|{name}|0|N||"

    rows = [
        atom("C1", "S", "N", "MI"),
        atom("C1", "P", "Y", "heart attack"),
        atom("C2", "P", "Y", "limb pain"),
    ]
    (tmp_path / "MRCONSO.RRF").write_text("\n".join(rows) + "\n")
    assert read_entries(tmp_path / "MRCONSO.RRF") == [
        Entry(("C1",), ("heart attack", "MI")),
        Entry(("C2",), ("limb pain",)),
    ]


@pytest.mark.parametrize("line", ["D001|||", "| ||x"])
def test_a_line_of_medic_without_names_or_identifiers_is_said(write, line):
    path = write("medic.txt", f"C567755||Tooth Agenesis\n{line}\n")
    for reader in (read_dictionary, read_entries):
        with pytest.raises(BadInput, match="medic.txt: found .*; expected an identifier and a na"):
            reader(path)


@pytest.mark.parametrize("text", ["a\n", "a\tb\tc\n", "a\t\n", "|\ty\n"])
def test_a_broken_row_is_said(tmp_path, text):
    path = tmp_path / "code.txt"
    path.write_text(f"1\tx\n{text}")
    with pytest.raises(BadInput, match=":2: found"):
        read_entries(path)


# -------------------------------------------------------------------------------------------------
# The semantic groups of the concepts of a release, of a table, and of neither.

NONE = 1 << ANY
DISO, ANAT = (NONE | 1 << GROUPS.index(name) for name in ("DISO", "ANAT"))


def test_of_a_release(tmp_path):
    dictionary = read_dictionary(write_release(tmp_path) / "MRCONSO.RRF")
    found = groups_of_concepts(dictionary)
    assert found.keys() == dictionary.concept_set
    typed = {"C0000001", "C0000002", "C0000003"}
    assert {concept: bits for concept, bits in found.items() if bits != NONE} == dict.fromkeys(
        typed, DISO
    )
    # A concept that stands in for a retired one has its groups.
    renamed = dictionary.with_successors(RetiredCuis({"C0000001": "C0000077"}, "toy"))
    assert groups_of_concepts(renamed)["C0000077"] == DISO


def test_of_a_table(write):
    rows = "concept\tterm\tsemantic_type\nC1\tpain\tT184|T023\nC2\thand\tANAT\nC3\tx\t\n"
    found = groups_of_concepts(read_dictionary(write("t.tsv", rows)))
    assert found == {"C1": DISO | ANAT, "C2": ANAT, "C3": NONE}
    plain = read_dictionary(write("p.tsv", "pain\tC1\n"))
    with pytest.raises(BadInput, match="p.tsv: found no semantic types of its concepts .* give a "):
        groups_of_concepts(plain)


# -------------------------------------------------------------------------------------------------
# MEDIC as a dictionary that is searched.

MEDIC = (
    "C567755|613097||Tooth Agenesis, Selective, 6|STHAG6\n"
    "D003920||Diabetes Mellitus|STHAG6|Diabetes Mellitus\nMESH:D001|X||x\n"
)


def test_names_of_a_line_have_its_first_identifier(write):
    dictionary = read_dictionary(write("medic.txt", MEDIC))
    assert list(zip(dictionary.terms, dictionary.concepts, strict=True)) == [
        ("Tooth Agenesis, Selective, 6", "C567755"),
        ("STHAG6", "C567755"),
        ("Diabetes Mellitus", "D003920"),
        ("STHAG6", "D003920"),
        ("x", "D001"),
    ]
    about = dictionary.about("C567755")
    assert about.preferred == "Tooth Agenesis, Selective, 6"
    assert about.codes == (("MSH", "C567755"), ("OMIM", "613097"))
    assert dictionary.description["terms"] == 5


CTD = """\
#
# Fields:
# DiseaseName\tDiseaseID\tAltDiseaseIDs\tDefinition\tParentIDs\tSynonyms\tSlimMappings
#
Tooth Agenesis, Selective, 6\tMESH:C567755\tDO:DOID:1|OMIM:613097\t"quoted\tMESH:D1\tSTHAG6\tMouth
Diabetes Mellitus\tMESH:D003920\t\t\t\tSTHAG6|Diabetes Mellitus\t
# a comment
x\tOMIM:202110
"""


@pytest.mark.parametrize("packed", [False, True])
def test_medic_as_ctd_distributes_it(write, tmp_path, packed):
    path = write("CTD_diseases.tsv", CTD)
    if packed:
        path = tmp_path / "CTD_diseases.tsv.gz"
        path.write_bytes(gzip.compress(CTD.encode()))
    dictionary = read_dictionary(path)
    other = read_dictionary(write("medic.txt", MEDIC.replace("MESH:D001|X", "202110")))
    assert (dictionary.terms, dictionary.concepts) == (other.terms, other.concepts)
    assert {one: dictionary.about(one) for one in dictionary.concept_set} == {
        one: other.about(one) for one in other.concept_set
    }
    assert read_entries(path) == [
        Entry(("C567755", "613097"), ("Tooth Agenesis, Selective, 6", "STHAG6")),
        Entry(("D003920",), ("Diabetes Mellitus", "STHAG6")),
        Entry(("202110",), ("x",)),
    ]
    with pytest.raises(BadInput, match="--dictionary-languages ENG; expected a dataset folder"):
        read_dictionary(path, ["ENG"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\tSynonyms", "\tOthers", "found the columns DiseaseName, .*; expected Synonyms, too"),
        ("MESH:D003920", "", r":6: found 'Diabetes .*; expected the 7 columns of its header"),
        ("\tMouth", "\tMouth\tx\ty", r":5: found 'Tooth .*; expected the 7 columns"),
    ],
)
def test_a_broken_medic_of_ctd_is_said(write, old, new, message):
    with pytest.raises(BadInput, match=message):
        read_dictionary(write("CTD_diseases.tsv", CTD.replace(old, new)))


def test_lists_of_concepts(write):
    assert read_identifiers(write("a.txt", "CUI\nC1\nC2\n\nC1\n")) == ["C1", "C2"]
    assert read_identifiers(write("a.txt", "C1\nMESH:D1")) == ["C1", "MESH:D1"]
    assert read_identifiers(write("a.tsv", "term\tCUI\nx\tC1\ny\n")) == ["C1"]
    assert read_identifiers(write("m.txt", MEDIC)) == ["C567755", "613097", "D003920", "D001", "X"]
    assert read_identifiers(write("c.tsv", CTD)) == ["C567755", "613097", "D003920", "202110"]


def test_concepts_of_umls_stay_as_they_are(write):
    """A CUI has a digit more than an identifier of MeSH; "|" in its line is no separator."""
    dictionary = read_dictionary(write("umls.txt", "C0567755|C0000001||a|b\n"))
    assert (dictionary.terms, dictionary.concepts) == (["a|b"], ["C0567755|C0000001"])


def test_the_medic_of_ncbi_disease(shared_data):
    path = shared_data / "benchmarks/ncbi_disease/dictionary/medic_06Jul2012.txt"
    dictionary = read_dictionary(path)
    assert len(dictionary.terms) == 76_237 and len(dictionary.concept_set) == 11_915
    concepts: dict[str, set[str]] = {}
    for _, name, concept in dictionary.pairs():
        concepts.setdefault(name.lower(), set()).add(concept)
    assert sum(len(some) > 1 for some in concepts.values()) == 957
    assert ("OMIM", "613097") in dictionary.about("C567755").codes


# -------------------------------------------------------------------------------------------------
# Dictionaries in tables: columns by their names in any order, choices, and what is refused.

ROWS = [("heart attack", "C1"), ("MI", "C1"), ("headache", "C2")]
TABLE = """\
Concept;Source;Code;Label;Lang;Type;preferred
C2;MSH;D006261;headache;en;T184 Sign or Symptom;1
C1;MSH;D009203;MI;eng;T047 Disease or Syndrome;0
C1;SCT;22298006;Heart attack;en-GB;T047 Disease or Syndrome;y
C1;MSH;D009203;Heart attack;EN;;Y
C2;ICD;G44.8;Kopfschmerz;de;T184 Sign or Symptom|T033 Finding;true
"""


def rows_of(dictionary):
    return list(zip(dictionary.terms, dictionary.concepts, strict=True))


@pytest.mark.parametrize(
    "name, text",
    [
        ("d.tsv", "heart attack\tC1\nMI\tC1\nheadache\tC2\n"),
        ("d.tsv", "Term\tCUI\nheart attack\tC1\nMI\tC1\nheadache\tC2\n"),
        ("d.tsv", "CUI\tterm\nC1\theart attack\nC1\tMI\nC2\theadache\n"),
        ("d.txt", "\ufeffterm\tconcept id\r\nheart attack\tC1\r\nMI\tC1\r\nheadache\tC2\r\n"),
        ("d.csv", "Concept-ID,Name\nC1, heart attack\nC1,MI \n\nC2,headache\n"),
        ("d.csv", 'Label;Code\n"heart attack";C1\nMI;C1\nheadache;C2\n'),
        ("d.tsv", "row\tdescription\tidentifier\n1\theart attack\tC1\n2\tMI\tC1\n3\theadache\tC2"),
        ("d.tsv", "name\tdescription\tcui\nheart attack\tx\tC1\nMI\t\tC1\nheadache\t\tC2"),
        ("d.txt", "C1||heart attack\nC1||MI\nC2||headache\n"),
    ],
)
def test_columns_are_found_by_their_names_in_any_order(write, name, text):
    dictionary = read_dictionary(write(name, text))
    assert rows_of(dictionary) == ROWS
    assert dictionary.languages is None is dictionary.vocabularies
    assert dictionary.about("C1") == AboutConcept("heart attack"), "no codes and no types"
    assert dictionary.description["source"] == str(write(name, text))
    assert dictionary.description["content_hash"] == content_hash(ROWS)


def test_workbooks_and_packed_tables(tmp_path):
    frame = pl.DataFrame(ROWS, schema=["Name", "ID"], orient="row")
    write_table(tmp_path / "d.xlsx", frame)
    assert rows_of(read_dictionary(tmp_path / "d.xlsx")) == ROWS
    write_table(tmp_path / "d.csv", frame)
    packed = tmp_path / "d.csv.gz"
    packed.write_bytes(gzip.compress((tmp_path / "d.csv").read_bytes()))
    assert rows_of(read_dictionary(packed)) == ROWS


def test_what_more_a_table_says_of_terms_and_concepts(write):
    dictionary = read_dictionary(write("d.csv", TABLE))
    assert rows_of(dictionary) == [
        ("headache", "C2"),
        ("Kopfschmerz", "C2"),
        ("Heart attack", "C1"),
        ("MI", "C1"),
    ], "the preferred names of a concept first"
    assert dictionary.languages == ["ENG", "GER", "ENG", "ENG"]
    assert dictionary.vocabularies == [("MSH",), ("ICD",), ("MSH", "SCT"), ("MSH",)]
    assert dictionary.about("C1") == AboutConcept(
        "Heart attack", (("MSH", "D009203"), ("SCT", "22298006")), ("T047 Disease or Syndrome",)
    )
    assert dictionary.about("C2") == AboutConcept(
        "headache",
        (("MSH", "D006261"), ("ICD", "G44.8")),
        ("T184 Sign or Symptom", "T033 Finding"),
    )


def test_a_code_of_a_vocabulary_is_the_concept_where_nothing_else_is(write):
    dictionary = read_dictionary(write("d.csv", "code,system,name\nI21,ICD10,MI\n"))
    assert dictionary.about("I21") == AboutConcept("MI", (("ICD10", "I21"),))


def test_equal_codes_of_different_vocabularies_are_told(write, capsys):
    text = "term,code,vocabulary\nOne-sided,250,LAB\nDiabetes,250,ICD9CM\nMI,1,A\nmi,1,B\n"
    read_dictionary(write("d.csv", text))
    told = capsys.readouterr().err
    assert "1 codes are of several vocabularies, with other terms, such as 250: " in told
    assert "'One-sided' (LAB) and 'Diabetes' (ICD9CM); equal codes are read as one" in told
    read_dictionary(write("d.csv", text.replace("250,ICD", "25,ICD")))
    assert not capsys.readouterr().err


def test_a_vocabulary_is_told_without_a_code(write):
    text = "concept,vocabulary,term\nC1,ICD10,MI\nC1,LOCAL,heart attack\nC2,,pain\n"
    dictionary = read_dictionary(write("d.csv", text))
    assert dictionary.about("C1").codes == (("ICD10", ""), ("LOCAL", ""))
    assert dictionary.about("C2").codes == ()
    assert dictionary.code_vocabularies == ["ICD10", "LOCAL"]


def test_rows_that_are_not_active_are_no_terms(write, capsys):
    text = "id\tactive\tconceptId\tterm\n1\t1\t9\tMI\n2\t0\t9\tstroke of the heart\n"
    assert rows_of(read_dictionary(write("d.txt", text))) == [("MI", "9")]
    assert "d.txt: 1 rows left out, which are not active" in capsys.readouterr().err
    text = text.replace("\t0\t", "\tyes\t")
    assert len(read_dictionary(write("d.txt", text)).terms) == 2


MRCONSO_ROWS = (
    "C9000001|ENG|P|L1|PF|S1|Y|A1||M1|D1|MSH|MH|D1|Kidney stone|0|N|256|\n"
    "C9000001|ENG|S|L2|PF|S2|Y|A2||M1|D1|MSH|ET|D1|Old stone|0|O|256|\n"
)


@pytest.mark.parametrize(
    ("column", "kept", "left_out"),
    [
        *(("active", "TRUE", "FALSE"), ("is_active", "yes", "no"), ("Aktiv", "ja", "nein")),
        *(("inactive", "", "1"), ("obsolete", "false", "true"), ("suppress", "N", "O")),
        *(("Status", "Active", "Deprecated"), ("invalid_reason", "NULL", "U")),
        ("inactive", "active", "inactive"),
    ],
)
def test_columns_that_say_which_rows_are_withdrawn(write, capsys, column, kept, left_out):
    text = f"concept,term,{column}\n1,MI,{kept}\n2,stroke of the heart,{left_out}\n"
    assert rows_of(read_dictionary(write("d.csv", text))) == [("MI", "1")]
    assert "d.csv: 1 rows left out, which are not active" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["perhaps", ""])
def test_rows_with_other_values_are_kept_and_told(write, capsys, value):
    text = f"concept,term,active,status\n1,MI,1,final\n2,stroke,{value},draft\n3,ache,0,\n"
    assert rows_of(read_dictionary(write("d.csv", text))) == [("MI", "1"), ("stroke", "2")]
    told = capsys.readouterr().err
    assert "1 rows are kept whose column active has another value than exp" in told
    assert f"the first {value!r}; expected 0 for rows to leave out, or 1" in told
    assert "status" not in told


def test_of_versions_of_a_description_the_newest_counts(write, capsys):
    header = "id\teffectiveTime\tactive\tconceptId\ttypeId\tterm\n"
    rows = "1\t2002\t1\t9\t3\tOld\n1\t2015\t0\t9\t3\tOld\n2\t2002\t1\t9\t3\tApoplexie\n"
    rows += "2\t2016\t1\t9\t3\tApoplexy\n3\t2002\t1\t9\t900000000000550004\tWhat it is\n"
    assert rows_of(read_dictionary(write("d.txt", header + rows))) == [("Apoplexy", "9")]
    told = capsys.readouterr().err
    assert "2 rows left out, of which there are newer versions" in told
    assert "some of which may be inactive: give the Snapshot folder" in told


def test_concepts_of_omop_as_a_database_exports_them(write, capsys):
    header = "concept_id,concept_name,domain_id,vocabulary_id,concept_code,invalid_reason\n"
    rows = "7,Ache,Condition,SNOMED,H1,\n8,,Procedure,CPT4,99,\n9,Old,Condition,SNOMED,H2,D\n"
    dictionary = read_dictionary(write("export.csv", header + rows))
    assert rows_of(dictionary) == [("Ache", "7")]
    assert dictionary.about("7").codes == (("SNOMED", "H1"),)
    assert "1 concepts without a name were left out" in capsys.readouterr().err


def test_the_search_of_athena_says_standard_where_others_have_the_concept(write):
    text = "Id\tCode\tName\tClass\tConcept\tValidity\tDomain\tVocab\n"
    text += "7\tH1\tAche\tDisorder\tStandard\tValid\tCondition\tSNOMED\n"
    text += "8\tH2\tOld\tDisorder\tNon-standard\tInvalid\tCondition\tSNOMED\n"
    dictionary = read_dictionary(write("athena.csv", text))
    assert rows_of(dictionary) == [("Ache", "7")]
    assert dictionary.about("7").codes == (("SNOMED", "H1"),)


def test_a_table_of_loinc_numbers_and_names(write):
    text = "LOINC_NUM,LONG_COMMON_NAME,STATUS\n4548-4,HbA1c,ACTIVE\n1-1,Old,DEPRECATED\n"
    assert rows_of(read_dictionary(write("lab.csv", text))) == [("HbA1c", "4548-4")]


@pytest.mark.parametrize("row", ["#N/A,MI", "1,#REF!"])
def test_an_error_of_a_spreadsheet_is_no_term_and_no_concept(write, row):
    with pytest.raises(BadInput, match="d.csv:2: found '#(N/A|REF!)' in the column"):
        read_dictionary(write("d.csv", f"concept,term\n{row}\n"))
    with pytest.raises(BadInput, match="d.tsv:2: found #N/A, an error of a spreadsheet"):
        read_dictionary(write("d.tsv", "fever\tC1\ncough\t#N/A\n"))


@pytest.mark.parametrize("name", ["MRCONSO_ENG.RRF", "umls.txt", "umls", "terms.csv.gz"])
def test_mrconso_by_another_name_is_told_by_its_rows(write, name):
    content = MRCONSO_ROWS.encode()
    path = write(name, gzip.compress(content) if name.endswith(".gz") else content)
    write("MRSTY.RRF", "C9000001|T047|B2|Disease or Syndrome|AT1||\n")
    dictionary = read_dictionary(path)
    assert rows_of(dictionary) == [("Kidney stone", "C9000001")]
    about = dictionary.about("C9000001")
    assert about.codes == (("MSH", "D1"),) and about.types == ("T047 Disease or Syndrome",)
    assert len(read_dictionary(path, keep_suppressed=True).terms) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1|||5|AUI|x||NDC|RXNORM|1|N||\n", "a file of the UMLS or RxNorm without terms"),
        (b"CUI|LAT|TS|SAB|STR|SUPPRESS|\n", "MRCONSO.RRF in another form"),
        (b"\x80\x04\x95abc", "as MedCAT's cdb.dat is: give the table that it was made from"),
        (b'<?xml version="1.0"?>\n<rdf:RDF/>\n', "an ontology in OWL: give the ontology in OBO"),
        (b'{"graphs": []}\n', "JSON: give the ontology in OBO"),
    ],
)
def test_other_files_say_what_to_give(write, content, message):
    path = write("d.txt", "")
    path.write_bytes(content)
    with pytest.raises(BadInput, match=message):
        read_dictionary(path)


@pytest.mark.parametrize("term", ["<1 year old", "{fever}"])
def test_a_term_that_begins_like_another_format(write, term):
    assert rows_of(read_dictionary(write("d.tsv", f"{term}\t1\npain\t2\n")))[0] == (term, "1")


@pytest.mark.parametrize("title", ["Our catalogue", "Our catalogue, 2024", "Ours; of 2024"])
def test_titles_above_the_header_of_a_dictionary_are_left_aside(write, capsys, title):
    path = write("d.csv", f"{title}\n\nterm,concept\nMI,1\n")
    assert rows_of(read_dictionary(path)) == [("MI", "1")]
    assert "the header is row 3; what stands above it is left aside" in capsys.readouterr().err


def test_what_only_looks_like_mrconso_is_no_table(write):
    row = MRCONSO_ROWS.partition("\n")[0].replace("|ENG|", "|English|")
    with pytest.raises(BadInput, match=r"like MRCONSO.RRF in another form; .* of 18 columns, each"):
        read_dictionary(write("MRCONSO_ENG.RRF", row + "\n"))


def test_a_table_for_medcat(write):
    text = (
        "cui,name,ontologies,name_status,type_ids,description\n"
        "C1,MI,SNOMED|ICD10,N,T047,\n"
        "C1,Heart attack|Cardiac infarction,SNOMED,A,T047|T046,\n"
        "C1,Myocardial infarction,SNOMED,P,T047,Death of muscle\n"
        "C2,Pain,ICD10,P,,\n"
    )
    dictionary = read_dictionary(write("cdb.csv", text))
    assert rows_of(dictionary) == [
        ("Myocardial infarction", "C1"),
        ("MI", "C1"),
        ("Heart attack", "C1"),
        ("Cardiac infarction", "C1"),
        ("Pain", "C2"),
    ]
    assert dictionary.vocabularies[1] == ("ICD10", "SNOMED")
    about = dictionary.about("C1")
    assert (about.preferred, about.types) == ("Myocardial infarction", ("T047", "T046"))
    assert rows_of(read_dictionary(write("cdb.csv", text), sources=["ICD10"])) == [
        ("MI", "C1"),
        ("Pain", "C2"),
    ]


def test_columns_may_be_named(write):
    path = write("d.csv", "id,code,Bezeichnung\n1,I21,Herzinfarkt\n2,R51,Kopfschmerz\n")
    expected = [("Herzinfarkt", "I21"), ("Kopfschmerz", "R51")]
    columns = {"term": "bezeichnung", "concept": "code"}
    assert rows_of(read_dictionary(path, columns=columns)) == expected
    columns["term"] = "Bezeichung"
    with pytest.raises(BadInput, match="--term-column Bezeichung: no column .*did you mean"):
        read_dictionary(path, columns=columns)
    with pytest.raises(BadInput, match="id and code, each of which could .*--concept-column"):
        read_dictionary(path)
    two = write("d.tsv", "Kode\tBegriff\nI21\tHerzinfarkt\nR51\tKopfschmerz\n")
    columns = {"term": "Begriff", "concept": "Kode"}
    assert rows_of(read_dictionary(two, columns=columns)) == expected
    folder = write("hp.obo", "format-version: 1.2\n")
    with pytest.raises(BadInput, match="found --term-column; expected a table: leave it out"):
        read_dictionary(folder, columns=columns)


@pytest.mark.parametrize(
    "name, text",
    [
        ("d.csv", "concept,term\nMEN,Menière\n"),
        ("d.tsv", "Menière\tMEN\n"),
        ("d.txt", "MEN||Menière\n"),
    ],
)
def test_what_is_not_utf8_is_read_in_the_encoding_given(write, capsys, name, text):
    path = write(name, text)
    utf8 = read_dictionary(path, encoding="cp1252")
    assert rows_of(utf8) == [("Menière", "MEN")] and not capsys.readouterr().err
    path.write_bytes(text.encode("cp1252"))
    assert rows_of(read_dictionary(path, encoding="cp1252")) == [("Menière", "MEN")]
    assert "is not UTF-8, so it is read as cp1252\n" in capsys.readouterr().err
    with pytest.raises(BadInput, match="which is not UTF-8"):
        read_dictionary(path)


def test_what_is_not_said_is_empty(write):
    text = "concept\tterm\tlanguage\tsab\tcode\tsty\n1\ta\t\t\t\t\n2|3\tb\tfr\tX\tX2\tT1 Type\n"
    dictionary = read_dictionary(write("d.tsv", text))
    assert rows_of(dictionary) == [("a", "1"), ("b", "2"), ("b", "3")]
    assert dictionary.languages == ["UND", "FRE", "FRE"]
    assert dictionary.vocabularies == [(), ("X",), ("X",)]
    assert dictionary.about("1") == AboutConcept("a")
    assert dictionary.about("3") == AboutConcept("b", (("X", "X2"),), ("T1 Type",))


@pytest.mark.parametrize(
    "choice, terms",
    [
        ({"languages": ["GER"]}, ["Kopfschmerz"]),
        ({"languages": ["ENG"], "sources": ["SCT"]}, ["Heart attack"]),
        ({"sources": ["ICD", "SCT"]}, ["Heart attack", "Kopfschmerz"]),
        ({"concepts_of": ["ICD"]}, ["headache", "Kopfschmerz"]),
        ({"types": ["T047"]}, ["Heart attack", "MI"]),
        ({"types": ["finding"], "languages": ["ENG"]}, ["headache"]),
    ],
)
def test_choices(write, choice, terms):
    path = write("d.csv", TABLE)
    dictionary = read_dictionary(path, **choice)
    assert dictionary.terms == terms
    chosen = " ".join(one for asked in choice.values() for one in asked)
    assert dictionary.source.split(" ", 1)[0] == str(path)
    assert sorted(dictionary.source.split()[1:]) == sorted(chosen.split())
    assert dictionary.chosen["languages"] == choice.get("languages", [])


def test_codes_are_those_of_the_vocabularies_chosen(write):
    dictionary = read_dictionary(write("d.csv", TABLE), sources=["SCT", "MSH"])
    assert dictionary.about("C1").codes == (("MSH", "D009203"), ("SCT", "22298006"))
    dictionary = read_dictionary(write("d.csv", TABLE), sources=["SCT"])
    assert dictionary.about("C1").codes == (("SCT", "22298006"),)
    german = read_dictionary(write("d.csv", TABLE), ["GER"])
    assert german.about("C2").preferred == "Kopfschmerz"


def test_choices_that_a_table_does_not_have(write):
    path = write("d.csv", TABLE)
    with pytest.raises(BadInput, match="--dictionary-languages FRE: no term of .* ENG, GER"):
        read_dictionary(path, ["FRE"])
    with pytest.raises(BadInput, match="--semantic-types T1: no concept of .*; it has T033 Find"):
        read_dictionary(path, types=["T1"])
    with pytest.raises(BadInput, match="found no term of the choice"):
        read_dictionary(path, ["GER"], ["SCT"])
    path = write("d.tsv", "CUI\tterm\nC1\ta\n")
    message = "found --dictionary-sources MSH; expected a table with a column vocabulary, .*: add"
    with pytest.raises(BadInput, match=message):
        read_dictionary(path, sources=["MSH"])
    with pytest.raises(BadInput, match="found --semantic-types T1; expected a table with a column"):
        read_dictionary(path, types=["T1"])


@pytest.mark.parametrize(
    "name, text, message",
    [
        (
            "d.csv",
            "headache;C2\npain;C1\n",
            "d.csv:1: found the columns headache, C2; expected term<TAB>CUI",
        ),
        ("d.csv", "\nKode;Begriff;x\n1;a;b\n", "d.csv:2: found the columns Kode, Begriff, x; exp"),
        ("d.csv", " \n", "d.csv: found no lines; expected tab-separated rows"),
        (
            "d.tsv",
            "id\tcode\tterm\n1\tC1\ta\n",
            "columns id and code, each .* could be the concept",
        ),
        ("d.csv", "cui,name,synonym\nC1,a,b\n", "columns name and synonym, each .* be the term"),
        (
            "d.csv",
            "cui,name\nC1,a\n,b\n",
            "d.csv:3: found '' in the column cui; expected a concept",
        ),
        (
            "d.csv",
            "cui,name\nC1,a\n|,b\n",
            r"d.csv:3: found '\|' in the column cui; expected a con",
        ),
        (
            "d.csv",
            "cui,name\nC1, \nC2,b\n",
            "d.csv:2: found '' in the column name; expected a term",
        ),
        ("d.csv", "cui,name,ispref\nC1,a,maybe\n", "d.csv:2: found 'maybe' in the column ispref"),
        ("d.csv", "cui,name\nC1,a,b\n", "d.csv:2: found 3 columns"),
        ("d.csv", "cui,name\n", "d.csv: found a header and no rows"),
        ("d.csv", "cui,name\nC1,Fièvre\n".encode("latin-1"), "not UTF-8; save it as UTF-8, or as"),
    ],
)
def test_tables_that_are_no_dictionary(write, name, text, message):
    with pytest.raises(BadInput, match=message):
        read_dictionary(write(name, text))


@pytest.mark.parametrize(
    "codes",
    [
        *(["C0018681", "C0027051"], ["G44.8", "I21"], ["22298006", "25064002"]),
        *(["HP:0002315", "HP:0001658"], ["SNOMEDCT_US:22298006", "SNOMEDCT_US:1"]),
    ],
)
def test_columns_that_look_swapped_are_read_so_and_it_is_said(write, codes, capsys):
    rows = [
        f"{code}\t{term}\n" for code, term in zip(codes, ["headache", "MI (acute)"], strict=True)
    ]
    many = "".join(rows) * 10 + "x\theadache\n"
    swapped = read_dictionary(write("d.tsv", many))
    assert (swapped.terms[0], swapped.concepts[0]) == ("headache", codes[0])
    said = (
        f"d.tsv: read as concept<TAB>term, as its first column looks like codes ('{codes[0]}', 'hea"
    )
    assert said in capsys.readouterr().err
    named = read_dictionary(write("d.tsv", f"concept\tterm\n{many}"))
    assert named.concepts[0] == codes[0] and named.terms[0] == "headache"
    as_they_are = read_dictionary(write("d.tsv", f"term\tconcept\n{many}".replace("x\t", "C9\t")))
    assert as_they_are.terms[0] == codes[0], "whoever names the columns is believed"


@pytest.mark.parametrize(
    "rows",
    [
        "p53\t7157\nIL2\t3558\n",
        "CD4\tC0003323\nT4\tC0040165\n",
        "headache\tC-LEFT\nasthma\tC-RIGHT\n",
        "vitamin-b12\tcobalamin\ninterleukin-6\tcytokine\n",
        "t1\ta\nt2\tb\n",
        "p53\ttumor protein\nheadache\tpain\n",
    ],
)
def test_names_that_look_like_codes_are_terms_all_the_same(write, rows):
    path = write("d.tsv", rows)
    assert rows_of(read_dictionary(path)) == [tuple(row.split("\t")) for row in rows.splitlines()]


def test_rows_of_today_are_read_as_they_were(write):
    """Quotes and commas are ordinary characters; further header names are only those of before."""
    rows = [('"Foo" syndrome', "C1|C2"), ("a, b; c", "C3"), ("term", "CUI"), ("a", "C1")]
    text = "".join(f"{term}\t{concept}\n" for term, concept in [("string", "code"), *rows])
    assert rows_of(read_dictionary(write("d.csv", text))) == rows
    assert rows_of(read_dictionary(write("d.csv", text.split("\n", 1)[1]))) == rows


def test_blanks_and_ends_of_joined_concepts_are_no_concepts(write):
    path = write("d.tsv", "fever\tC1 | C2\ncough\tC1|\nache\tC3\n")
    assert rows_of(read_dictionary(path)) == [("fever", "C1|C2"), ("cough", "C1"), ("ache", "C3")]
    assert rows_of(read_dictionary(write("e.tsv", "C1 | C2||fever\n"))) == [("fever", "C1|C2")]
    path.write_text("fever\t | \n")
    with pytest.raises(BadInput, match="found the term 'fever' with the concepts .* one or more"):
        read_dictionary(path)


def test_entries_have_one_of_the_joined_codes_each(write):
    assert read_entries(write("d.tsv", "C1 | C2\tfever\nC1|\tpyrexia\n")) == [
        Entry(("C1",), ("fever", "pyrexia")),
        Entry(("C2",), ("fever",)),
    ]


@pytest.mark.parametrize("text", ["fever\tC1\ncough\tC2\n", "C1||fever\nC2||cough\n"])
def test_a_packed_file_is_read_as_it_is_unpacked(write, tmp_path, text):
    plain, packed = write("d.tsv", text), tmp_path / "d.tsv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert rows_of(read_dictionary(packed)) == rows_of(read_dictionary(plain))
    assert first_line(packed) == first_line(plain)


@pytest.mark.parametrize("header", ["", '"term"\t"concept"\n'])
def test_quotes_that_excel_and_r_write_are_no_letters(write, header):
    path = write("d.tsv", f'{header}"Fieber"\t"C1"\n"Husten, trocken"\t"C2"\n')
    assert rows_of(read_dictionary(path)) == [("Fieber", "C1"), ("Husten, trocken", "C2")]


@pytest.mark.parametrize("header", ["Begriff\tCode", "ICD-Schlüssel\tBegriff"])
def test_a_header_with_other_names_is_told(write, capsys, header):
    rows = ["Fieber\tC1", "Husten\tC2"]
    if header.endswith("Begriff"):
        rows = ["\t".join(reversed(row.split("\t"))) for row in rows]
    path = write("d.tsv", "\n".join([header, *rows]))
    assert len(read_dictionary(path).terms) == 3
    assert "above codes, which is taken for a row; expected term<TAB" in capsys.readouterr().err
    read_dictionary(write("e.tsv", "fever\tC1\ncough\tC2"))
    assert not capsys.readouterr().err


def test_a_quote_below_a_comment_takes_no_rows(write):
    text = '# my terms\n"abc\tC1\nfoo\tC2\nbar"\tC3\nbaz\tC4\n'
    assert len(read_dictionary(write("d.tsv", text)).terms) == 4


def test_a_header_of_pipes_is_no_term(write):
    assert rows_of(read_dictionary(write("d.txt", "CUI||name\nC1||a\n"))) == [("a", "C1")]


# -------------------------------------------------------------------------------------------------
# Ontologies and releases as they come, and files on the web.


def everything(dictionary):
    concepts = sorted(dictionary.concept_set)
    rows = zip(dictionary.terms, dictionary.concepts, dictionary.languages, strict=True)
    return sorted(rows), [dictionary.about(concept) for concept in concepts]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Of each kind, one that was not built."""
    folder = tmp_path_factory.mktemp("sources")
    release = write_release(folder / "2020AA" / "META")
    return {
        "folder of a UMLS release": release,
        "zip of a UMLS release": Path(shutil.make_archive(str(folder / "umls"), "zip", release)),
        "ontology": write_ontology(folder / "tiny.obo", classes=30),
        "SNOMED CT": write_files(folder / "snomed", rf2_files()),
        "LOINC": write_files(folder / "loinc", loinc_files()),
    }


@pytest.mark.parametrize("kind", ["ontology", "SNOMED CT", "LOINC"])
def test_a_source_is_the_dictionary_that_its_dataset_is(sources, kind, tmp_path):
    (tmp_path / "model").mkdir()
    tiny_bert.write_tokenizer(tmp_path / "model")
    options = BuildOptions(
        source=sources[kind], out=tmp_path / "built", tokenizer=tmp_path / "model"
    )
    built = read_dictionary(build_dataset(options), raw=True)
    found = read_dictionary(sources[kind], raw=True)
    assert everything(found)[0] == everything(built)[0] and len(found.terms) >= 4
    if kind != "LOINC":  # there the built concept has the types of a retired one, too
        assert everything(found)[1] == everything(built)[1]
    assert found.dataset is None


def test_a_release_is_the_dictionary_that_its_mrconso_is(sources):
    folder = sources["folder of a UMLS release"]
    expected = everything(read_dictionary(folder / "MRCONSO.RRF", raw=True))
    assert everything(read_dictionary(folder, raw=True)) == expected
    assert everything(read_dictionary(sources["zip of a UMLS release"], raw=True)) == expected
    chosen = read_dictionary(folder, languages=["FRE"], types=["T047"])
    assert chosen.terms and set(chosen.languages) == {"FRE"}


@pytest.fixture
def web(tmp_path, monkeypatch):
    """The address of a server of the files in a folder, and the folder."""
    monkeypatch.setenv("CODER_JAX_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "web"
    folder.mkdir()
    handler = functools.partial(QuietServer, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", folder
        server.shutdown()
        thread.join()


class QuietServer(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Nothing on stderr."""

    def send_header(self, name, value):
        is_short = "short" in self.path and name == "Content-Length"
        super().send_header(name, "1000" if is_short else value)


def test_a_file_on_the_web_is_fetched_once_and_its_hash_kept(web, capsys):
    url, folder = web
    ontology = write_ontology(folder / "tiny onto.obo", classes=30)
    expected = read_dictionary(ontology)
    content = ontology.read_bytes()
    for given in (f"{url}/tiny%20onto.obo", Path(f"{url}/tiny%20onto.obo")):
        assert read_dictionary(given).terms == expected.terms
        ontology.unlink(missing_ok=True)
    said = capsys.readouterr().err
    digest = hashlib.sha256(content).hexdigest()
    assert said.count(f"(SHA-256 {digest[:16]}...)") == 1
    (kept,) = (folder.parent / "cache" / "files").glob("*/*.sha256")
    assert kept.read_text() == f"{digest}  tiny onto.obo\n"
    with pytest.raises(BadInput, match="tiny.tsv cannot be fetched .*404.*fetch the file by hand"):
        read_dictionary(f"{url}/tiny.tsv")


def test_a_file_on_the_web_that_is_cut_off_leaves_nothing(web):
    url, folder = web
    (folder / "short.tsv").write_text("heart attack\tC1\n")
    with pytest.raises(BadInput, match="short.tsv cannot be fetched"):
        read_dictionary(f"{url}/short.tsv")
    (kept,) = (folder.parent / "cache" / "files").iterdir()
    assert [path.name for path in kept.iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("name", "rows", "identifier"),
    [
        ("d.tsv", "term\tCUI\nsore{}limb\t{}C1\n", "C1"),
        ("d.txt", "{}C1||sore{}limb\n", "C1"),
        ("d.txt", "{}D000001||sore{}limb|ache\n", "D000001"),
        ("d.csv", "concept,name,language\n{}C1,sore{}limb,en\n", "C1"),
    ],
)
def test_odd_characters(write, capsys, name, rows, identifier):
    """Terms lose them, which is said; identifiers with some are refused."""
    first = rows.index("{}") < rows.index("sore")  # the identifier comes first
    path = write(name, rows.format(*("", "\x0b")[:: 1 if first else -1]))
    read = read_dictionary(path)
    assert read.terms[0] == "sore limb" and read.concepts[0] == identifier
    assert "names that had some: 1" in capsys.readouterr().err
    assert read_entries(path)[0].names[0] == "sore limb"
    write(name, rows.format(*("\x01", "")[:: 1 if first else -1]))
    for reader in (read_dictionary, read_entries):
        with pytest.raises(BadInput, match=rf"found '\\x01{identifier}'; expected text without"):
            reader(path)
    write(
        name,
        rows.replace("sore", "").replace("limb", "").format(*("", "\x01")[:: 1 if first else -1]),
    )
    with pytest.raises(BadInput, match=r"found the term '\\x01'; expected text without control"):
        read_dictionary(path)
