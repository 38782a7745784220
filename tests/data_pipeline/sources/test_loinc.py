"""LOINC's table, as it is laid out, with invented content, as a source."""

import polars as pl
import pytest
from tiny_rf2 import loinc_files, write_files

from data_pipeline.process import BadInput
from data_pipeline.sources.loinc import read_loinc
from data_pipeline.sources.read_source import is_release, read_source
from data_pipeline.sources.source import ATOMS, RETIRED


@pytest.mark.parametrize(
    "name", ["Loinc_2.80", "Loinc_2.80.zip", "Loinc_2.80/LoincTable/Loinc.csv"]
)
def test_the_table_is_a_source(tmp_path, name):
    root = tmp_path / name
    write_files(root if root.suffix != ".csv" else tmp_path / "Loinc_2.80", loinc_files())
    source = read_loinc(root, tmp_path / "scratch")
    assert (source.name, source.release, source.relations) == ("loinc", "2.80", None)
    assert sorted(file["file"] for file in source.files) == ["Loinc.csv", "MapTo.csv"]
    atoms = source.atoms.collect()
    assert tuple(atoms.columns) == ATOMS and atoms["rank"].dtype == pl.UInt8
    assert set(atoms.select("language", "source").rows()) == {("ENG", "LNC")}
    assert (atoms["code"] == atoms["cui"]).all()
    rows = atoms.select("cui", "suppress", "term_type", "rank", "term").sort("cui", "rank").rows()
    assert rows == [
        ("10001-1", "N", "LC", 0, 'Limbogen [Mass/volume] in "Serum", or Plasma'),
        ("10001-1", "N", "DN", 1, "Limbogen"),
        ("10001-1", "N", "OSN", 2, "Limbogen SerPl-mCnc"),
        ("10001-1", "N", "LN", 3, "Limbogen:MCnc:Pt:Ser/Plas:Qn"),
        ("10002-9", "O", "LC", 0, "Limb pain by Observation"),
        ("10002-9", "O", "OSN", 2, "Limb pain Obs"),
        ("10002-9", "O", "LN", 3, "Limb pain:Find:Pt:^Patient:Ord:Observed"),
    ]
    assert source.types.collect().rows() == [("10001-1", "CHEM"), ("10002-9", "CLIN")]
    assert tuple(source.retired.columns) == RETIRED
    assert source.retired.rows() == [("10002-9", "MAP_TO", "10001-1", True)]
    assert source.warnings == ("3 RELATED names left out (add them with --synonym-scopes RELATED)",)


def test_related_names_if_asked_for(tmp_path):
    root = write_files(tmp_path / "l", loinc_files())
    source = read_loinc(root, tmp_path / "scratch", ["RELATED"], "mine")
    assert source.release == "mine" and not source.warnings
    related = source.atoms.collect().filter(pl.col("term_type") == "RN")
    assert related.select("cui", "rank", "term").rows() == [
        ("10001-1", 4, "LBG"),
        ("10001-1", 4, "Chemistry"),
        ("10001-1", 4, "Limbo"),
    ]


def test_deprecated_terms_without_a_map(tmp_path):
    files = loinc_files()
    root = write_files(tmp_path / "l", {"Loinc.csv": files["LoincTable/Loinc.csv"]})
    source = read_loinc(root / "Loinc.csv", tmp_path / "scratch")
    assert source.retired.rows() == [] and source.release == "unknown"
    write_files(root, {"MapTo.csv": "LOINC,MAP_TO,COMMENT\r\n10009-9,10001-1,\r\n"})
    source = read_loinc(root / "Loinc.csv", tmp_path / "scratch")
    assert source.retired.rows() == [("10002-9", "DEPRECATED", "", False)]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"LOINC_NUM": "10001"}, "Loinc.csv:2: LOINC_NUM is '10001'; expected a number such as"),
        ({"STATUS": "OLD"}, "Loinc.csv:2: STATUS is 'OLD'; expected one of ACTIVE, TRIAL"),
        ({"LONG_COMMON_NAME": " "}, "Loinc.csv:2: LONG_COMMON_NAME is ' '; expected a name"),
    ],
)
def test_a_malformed_row_is_said_with_its_line(tmp_path, changes, message):
    root = write_files(tmp_path / "l", loinc_files(**changes))
    with pytest.raises(BadInput, match=message):
        read_loinc(root, tmp_path / "scratch")


@pytest.mark.parametrize("separator", [",", ";"])
def test_loinc_by_another_name_is_told_by_its_columns(tmp_path, separator):
    table = loinc_files()["LoincTable/Loinc.csv"].replace('","', f'"{separator}"')
    root = write_files(tmp_path / "l", {"LoincTableCore.csv": table})
    whole = read_loinc(write_files(tmp_path / "w", loinc_files()), tmp_path / "scratch")
    source = read_source(root / "LoincTableCore.csv", tmp_path / "scratch")
    assert source.name == "loinc"
    assert source.atoms.collect().equals(whole.atoms.collect())
    assert is_release(root / "LoincTableCore.csv")


def test_missing_files_and_columns(tmp_path):
    with pytest.raises(BadInput, match="has no Loinc.csv; expected a release of LOINC"):
        read_loinc(tmp_path, tmp_path / "scratch")
    files = loinc_files()
    text = files["LoincTable/Loinc.csv"].replace('"SHORTNAME"', '"NAME"')
    root = write_files(tmp_path / "l", {"Loinc.csv": text})
    with pytest.raises(BadInput, match="Loinc.csv has no column SHORTNAME; expected LOINC's own"):
        read_loinc(root, tmp_path / "scratch")
