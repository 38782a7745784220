"""Which reader a path goes to, and which files it is read from."""

import pytest
from tiny_ontology import write_ontology
from tiny_rf2 import loinc_files, rf2_files, write_files
from tiny_rrf import write_release

from data_pipeline.process import BadInput
from data_pipeline.sources.read_source import _Kind, _kind_of, read_source, source_paths


def test_what_a_source_is_told_by_its_files(tmp_path, write):
    terms = write("own.tsv", "concept\tname\nC1\ta\n")
    relations = write("own.relations.csv", "head,relation,tail\nC1,isa,C1\n")
    meta = write_release(tmp_path / "META")
    obo = write_ontology(tmp_path / "a.obo", 3)
    rf2 = write_files(tmp_path / "rf2", rf2_files())
    loinc = write_files(tmp_path / "loinc", loinc_files())
    zipped = [
        write_files(tmp_path / "rf2.zip", rf2_files()),
        write_files(tmp_path / "loinc.zip", loinc_files()),
    ]
    table = loinc / "LoincTable" / "Loinc.csv"
    both = [table, table.with_name("MapTo.csv")]
    snapshot = [path for path in sorted(rf2.rglob("*.txt")) if "not read" not in path.read_text()]
    for path, kind, name, paths in (
        (terms, _Kind.TERMS, "own", [terms, relations]),
        (obo, _Kind.OBO, "tiny", [obo]),
        (meta, _Kind.RRF, "umls", sorted(meta.iterdir())),
        (meta / "MRCONSO.RRF", _Kind.RRF, "umls", [meta / "MRCONSO.RRF"]),
        (rf2, _Kind.SNOMED, "snomedct", snapshot),
        (zipped[0], _Kind.SNOMED, "snomedct", zipped[:1]),
        (loinc, _Kind.LOINC, "loinc", both),
        (zipped[1], _Kind.LOINC, "loinc", zipped[1:]),
        (table, _Kind.LOINC, "loinc", both),
    ):
        assert (_kind_of(path), source_paths(path)) == (kind, paths), path
        assert read_source(path, tmp_path / "scratch").name == name


def test_scopes_arrive_in_whatever_case(tmp_path):
    loinc = write_files(tmp_path / "loinc", loinc_files())
    assert not read_source(loinc, tmp_path / "scratch", ["related"]).warnings


def test_what_is_none_of_them(tmp_path, write):
    message = "none does not exist; expected a UMLS release .* of LOINC"
    with pytest.raises(BadInput, match=message):
        source_paths(tmp_path / "none")
    with pytest.raises(BadInput, match="a.zip cannot be read as a zip archive"):
        read_source(write("a.zip", "x"), tmp_path / "scratch")
    write("folder/readme.txt", "x")
    with pytest.raises(BadInput, match="no MRCONSO.RRF at .*folder; expected a UMLS META folder"):
        read_source(tmp_path / "folder", tmp_path / "scratch")
