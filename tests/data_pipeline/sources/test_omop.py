"""OMOP's vocabularies from Athena: names, synonyms, relations, invalid and standard concepts."""

import shutil
import zipfile
from pathlib import Path

import pytest

from data_pipeline.dataset.dictionary import read_dictionary
from data_pipeline.process import BadInput
from data_pipeline.sources.read_source import read_source, read_successions, source_paths

CONCEPT = """\
concept_id concept_name domain_id vocabulary_id concept_class_id standard_concept concept_code \
valid_start_date valid_end_date invalid_reason
312327 Acute_myocardial_infarction Condition SNOMED Disorder S 57054005 19700101 20991231 -
45572081 Infarction_of_"heart",_acute Condition ICD10 4-char_code - I21.9 20000101 20991231 -
19059056 aspirin_81_MG_Oral_Tablet Drug RxNorm Clinical_Drug S 243670 19700101 20991231 -
1112807 aspirin Drug RxNorm Ingredient S 1191 19700101 20991231 -
900004 heart_attack_NOS Condition SNOMED Disorder - 123 19700101 20200101 U
900005 withdrawn Condition SNOMED Disorder - 124 19700101 20200101 D
2000001 - Procedure CPT4 CPT4 S 33010 19700101 20991231 -
4180186 English_language Language SNOMED Qualifier_Value S 297487008 19700101 20991231 -
4182504 German_language Language SNOMED Qualifier_Value S 288511008 19700101 20991231 -
"""
SYNONYM = """\
concept_id concept_synonym_name language_concept_id
312327 Heart_attack 4180186
312327 Akuter_Myokardinfarkt 4182504
1112807 acetylsalicylic_acid 999
2000001 Pericardiocentesis 4180186
"""
RELATIONSHIP = """\
concept_id_1 concept_id_2 relationship_id valid_start_date valid_end_date invalid_reason
45572081 312327 Maps_to 19700101 20991231 -
312327 312327 Maps_to 19700101 20991231 -
900004 312327 Concept_replaced_by 19700101 20991231 -
900004 312327 Maps_to 19700101 20991231 -
19059056 1112807 RxNorm_has_ing 19700101 20991231 -
1112807 19059056 RxNorm_ing_of 19700101 20991231 -
45572081 312327 Is_a 19700101 20991231 -
312327 45572081 Subsumes 19700101 20991231 -
1112807 312327 May_treat 19700101 20200101 D
"""
VOCABULARY = """\
vocabulary_id vocabulary_name vocabulary_reference vocabulary_version vocabulary_concept_id
None OMOP_Standardized_Vocabularies OMOP v5.0_30-AUG-24 44819096
SNOMED Systematic_Nomenclature IHTSDO 2024-02-01 44819097
"""
FILES = {
    "CONCEPT.csv": CONCEPT,
    "CONCEPT_SYNONYM.csv": SYNONYM,
    "CONCEPT_RELATIONSHIP.csv": RELATIONSHIP,
    "VOCABULARY.csv": VOCABULARY,
}


def tabbed(rows: str) -> str:
    """Rows as above, in which _ is a blank of a value and - an empty one, as tab-separated text."""
    header, *lines = rows.splitlines()
    values = [
        "\t".join("" if v == "-" else v.replace("_", " ") for v in row.split()) for row in lines
    ]
    return "\n".join(["\t".join(header.split()), *values, ""])


@pytest.fixture
def download(tmp_path) -> Path:
    folder = tmp_path / "vocabulary_download_v5"
    folder.mkdir()
    for name, rows in FILES.items():
        (folder / name).write_text(tabbed(rows), encoding="utf-8")
    return folder


def names(source, concept: str) -> list[tuple[str, ...]]:
    frame = source.atoms.collect()
    rows = frame.filter(frame["cui"] == concept).sort("rank", "term")
    return list(
        rows.select("term", "term_type", "language", "source", "code", "suppress").iter_rows()
    )


def test_names_and_synonyms(download, tmp_path):
    source = read_source(download, tmp_path / "scratch")
    assert (source.name, source.release) == ("omop", "v5.0 30-AUG-24")
    infarction = ("SNOMED", "57054005", "N")
    assert names(source, "312327") == [
        ("Acute myocardial infarction", "PT", "ENG", *infarction),
        ("Akuter Myokardinfarkt", "SY", "GER", *infarction),
        ("Heart attack", "SY", "ENG", *infarction),
    ]
    assert [row[2] for row in names(source, "1112807")] == ["ENG", "UND"], "999 is no language"
    (quoted,) = names(source, "45572081")
    assert quoted[0] == 'Infarction of "heart", acute', "quotation marks are characters"
    assert names(source, "2000001") == [], "it has a synonym, but no name"
    assert source.warnings == (
        "1 concepts without a name were left out; CPT4 gets its names from the program cpt4.jar of "
        "the download",
    )
    types = source.types.collect()
    assert types.filter(types["cui"] == "1112807")["type"].to_list() == ["Drug", "Ingredient"]
    assert [one["file"] for one in source.files] == sorted(FILES)
    assert [path.name for path in source_paths(download)] == sorted(FILES)


def test_as_databases_export_it(download, tmp_path):
    whole = read_source(download, tmp_path / "scratch")
    path = download / "CONCEPT.csv"
    header, *rows = path.read_text().splitlines()
    rows = [f"{row}NULL" if row.endswith("\t") else row for row in rows]
    path.write_text("\n".join([header.upper(), *rows, ""]))
    source = read_source(download, tmp_path / "scratch")
    assert source.atoms.collect().equals(whole.atoms.collect())
    assert source.retired.equals(whole.retired)


def test_what_is_invalid_is_suppressed_and_retired(download, tmp_path):
    source = read_source(download, tmp_path / "scratch")
    assert [row[-1] for row in names(source, "900004") + names(source, "900005")] == ["O", "O"]
    assert source.retired.rows() == [
        ("900004", "replaced_by", "312327", True),
        ("900005", "invalid", "", False),
    ]


def test_relations_say_what_the_tail_is_to_the_head(download, tmp_path):
    relations = read_source(download, tmp_path / "scratch").relations.collect()
    assert set(relations.select("head", "rel", "rela", "tail", "source").iter_rows()) == {
        ("312327", "CHD", "isa", "45572081", "ICD10"),
        ("45572081", "PAR", "inverse_isa", "312327", "SNOMED"),
        ("1112807", "RO", "rxnorm_has_ing", "19059056", "RxNorm"),
        ("19059056", "RO", "rxnorm_ing_of", "1112807", "RxNorm"),
        ("312327", "RO", "maps_to", "45572081", "ICD10"),
        ("312327", "RO", "maps_to", "312327", "SNOMED"),
        ("312327", "RO", "maps_to", "900004", "SNOMED"),
    }


def test_standard_concepts_have_the_names_of_what_maps_to_them(download, tmp_path):
    source = read_source(download, tmp_path / "scratch", standard=True)
    assert [row[:2] + row[3:] for row in names(source, "312327")] == [
        ("Acute myocardial infarction", "PT", "SNOMED", "57054005", "N"),
        ("Akuter Myokardinfarkt", "SY", "SNOMED", "57054005", "N"),
        ("Heart attack", "SY", "SNOMED", "57054005", "N"),
        ('Infarction of "heart", acute', "SY", "ICD10", "", "N"),
        ("heart attack NOS", "SY", "SNOMED", "", "N"),
    ]
    concepts = set(source.atoms.collect()["cui"])
    assert concepts == {"312327", "19059056", "1112807", "4180186", "4182504"}
    assert set(source.types.collect()["cui"]) == concepts


def test_a_zip_is_read_like_its_folder(download, tmp_path):
    packed = tmp_path / "download.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for name in FILES:
            archive.write(download / name, name)
    (one, other) = (read_source(path, tmp_path / "scratch") for path in (packed, download))
    assert one.atoms.collect().equals(other.atoms.collect())
    assert one.relations.collect().equals(other.relations.collect())


def test_a_table_of_concepts_under_any_name_is_a_dictionary(download, tmp_path):
    alone = tmp_path / "elsewhere" / "my_concepts.csv"
    alone.parent.mkdir()
    alone.write_text(tabbed(CONCEPT), encoding="utf-8")
    dictionary = read_dictionary(alone, raw=True)
    assert "heart attack NOS" not in dictionary.terms, "it is invalid"
    about = dictionary.about("45572081")
    assert about.codes == (("ICD10", "I21.9"),)
    assert about.types == ("4-char code", "Condition")
    assert "withdrawn" in read_dictionary(alone, keep_suppressed=True).terms
    with pytest.raises(BadInput, match="has no CONCEPT_RELATIONSHIP.csv, which says what maps to"):
        read_dictionary(alone, standard=True)
    beside = read_dictionary(download / "CONCEPT.csv", ["ENG"], standard=True, raw=True)
    assert {"Heart attack", "heart attack NOS"} <= set(beside.terms)


def test_a_dictionary_of_one_domain_and_vocabulary(download):
    chosen = read_dictionary(download, None, ["RxNorm"], types=["Ingredient"], raw=True)
    assert sorted(chosen.terms) == ["acetylsalicylic acid", "aspirin"]


@pytest.mark.parametrize("packed", [False, True])
def test_a_download_without_its_table_of_vocabularies(download, packed):
    (download / "VOCABULARY.csv").unlink()
    path = Path(shutil.make_archive(str(download), "zip", download)) if packed else download
    assert "aspirin" in read_dictionary(path, standard=True, raw=True).terms


def test_only_omop_has_standard_concepts(tmp_path):
    table = tmp_path / "terms.tsv"
    table.write_text("concept\tterm\nC1\tfever\n")
    with pytest.raises(BadInput, match="table of terms, which has no standard concepts"):
        read_source(table, tmp_path, standard=True)
    with pytest.raises(BadInput, match="found --dictionary-standard; expected OMOP's vocabularies"):
        read_dictionary(table, standard=True)


def test_a_broken_row_is_said_with_its_line(download, tmp_path):
    path = download / "CONCEPT_RELATIONSHIP.csv"
    path.write_text(tabbed(RELATIONSHIP) + "312327\t1112807\tMay treat\n", encoding="utf-8")
    with pytest.raises(
        BadInput, match=r"CONCEPT_RELATIONSHIP\.csv:11: found 3 columns; expected 6"
    ):
        read_source(download, tmp_path / "scratch")
    path.write_text(tabbed(RELATIONSHIP) + "\r\n", encoding="utf-8")
    with pytest.raises(BadInput, match=r"\.csv:11: found an empty line; expected 6 columns: take"):
        read_source(download, tmp_path / "scratch")
    path.unlink()
    source = read_source(download, tmp_path / "scratch")
    assert source.relations is None
    assert source.warnings[0] == "CONCEPT_RELATIONSHIP.csv is missing: no relations"


def test_a_table_that_is_called_concept_is_a_table(tmp_path):
    table = tmp_path / "concept.csv"
    table.write_text("concept,term\nC1,fever\n")
    assert read_dictionary(table).terms == ["fever"]


def test_what_became_of_concepts(download, tmp_path):
    """Of valid ones that are not standard, and of invalid ones, what they map to."""
    asked = ["45572081", "900004", "900005", "1112807", "2000001"]
    expected = {
        ("45572081", "not standard", "312327"),
        ("900004", "replaced_by", "312327"),
        ("900004", "maps to", "312327"),
        ("900005", "invalid", ""),
    }
    for number, path in enumerate((download, download / "CONCEPT.csv")):
        table = read_successions(path, tmp_path / str(number), asked)
        assert set(table.select("retired", "relation", "cui").iter_rows()) == expected
    (download / "CONCEPT_RELATIONSHIP.csv").unlink()
    table = read_successions(download, tmp_path / "alone", asked)
    assert table.select("retired", "relation", "cui").rows() == [("45572081", "not standard", "")]
