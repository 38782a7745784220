"""SNOMED CT in RF2, as it is laid out, with invented content, as a source."""

import zipfile

import polars as pl
import pytest
from tiny_rf2 import rf2_files, write_files

from data_pipeline.process import BadInput
from data_pipeline.sources.snomed import read_snomed
from data_pipeline.sources.source import ATOMS, RELATIONS, RETIRED

NAMED = "Snapshot/Terminology/sct2_{}_Snapshot{}_INT_20250101.txt"


def changed(name, change, **options):
    """The files of the release, one of them changed."""
    files = rf2_files(**options)
    assert change(files[name]) != files[name]
    return {**files, name: change(files[name])}


@pytest.mark.parametrize("name", ["SnomedCT_InternationalRF2_PRODUCTION_20250101", "release.zip"])
def test_the_snapshot_is_a_source(tmp_path, name):
    files = rf2_files()
    full = {key.replace("Snapshot", "Full"): "not read\r\n" for key in files}
    root = write_files(tmp_path / name, files | full)
    source = read_snomed(root, tmp_path / "scratch")
    assert (source.name, source.release) == ("snomedct", "20250101") and not source.warnings
    assert len(source.files) == 7 and all("Snapshot" in file["file"] for file in source.files)
    atoms = source.atoms.collect()
    assert tuple(atoms.columns) == ATOMS and atoms["rank"].dtype == pl.UInt8
    kept = atoms.filter(pl.col("cui").is_in(["1001", "1002", "1004"]))
    fixed = kept.select("source", "suppress").unique().rows()
    assert fixed == [("SNOMEDCT", "N")] and (kept["code"] == kept["cui"]).all()
    assert kept.select("cui", "language", "term_type", "rank", "term").sort(
        "rank", "term"
    ).rows() == [
        ("1001", "ENG", "PT", 0, '"Acute" limb pain'),
        ("1001", "SPA", "PT", 0, "Dolor agudo"),
        ("1001", "ENG", "FN", 1, "Acute limb pain (left) (disorder)"),
        ("1004", "SPA", "FN", 1, "Ataque (trastorno)"),
        ("1001", "SPA", "FN", 1, "Dolor agudo (trastorno)"),
        ("1002", "ENG", "FN", 1, "Limb pain (finding)"),
        ("1001", "ENG", "SY", 2, "Attack of the limb"),
    ]
    assert not {"2001", "2002"} & set(atoms["cui"]), "concepts that are no more"
    types = dict(source.types.collect().rows())
    assert types["1001"] == "disorder", "the English tag, the last bracket"
    assert types["1004"] == "trastorno", "it has no English one"


def test_relations_have_the_names_of_their_types(tmp_path):
    source = read_snomed(write_files(tmp_path / "s", rf2_files()), tmp_path / "scratch")
    relations = source.relations.collect()
    assert tuple(relations.columns) == RELATIONS
    assert relations.select("head", "rel", "rela", "tail").rows() == [
        ("1002", "CHD", "isa", "1001"),
        ("1003", "RO", "finding_site", "1001"),
        ("1001", "RO", "caused_by", "1004"),
        ("1001", "PAR", "inverse_isa", "1002"),
        ("1001", "RO", "inverse_finding_site", "1003"),
        ("1004", "RO", "inverse_caused_by", "1001"),
    ]


def test_inactive_concepts_are_retired(tmp_path):
    source = read_snomed(write_files(tmp_path / "s", rf2_files()), tmp_path / "scratch")
    assert tuple(source.retired.columns) == RETIRED
    assert source.retired.rows() == [
        ("2001", "same_as", "1002", True),
        ("2002", "possibly_equivalent_to", "1001", False),
        ("2002", "possibly_equivalent_to", "1002", False),
        ("2003", "replaced_by", "2001", False),
        ("2004", "inactive", "", False),
    ]


def test_what_a_newer_edition_says_of_a_component_counts(tmp_path):
    old = rf2_files()
    name = NAMED.format("Concept", "").replace("INT_20250101", "AU_20250401")
    new = changed(
        name, lambda text: text.replace("1002\t20250401\t1", "1002\t20250401\t0"),
        date="20250401", edition="AU",
    )  # fmt: skip
    root = write_files(tmp_path / "both", old | {name: new[name]})
    source = read_snomed(root, tmp_path / "scratch")
    assert source.release == "20250401"
    assert "1002" not in set(source.atoms.collect()["cui"])
    assert ("1002", "inactive", "", False) in source.retired.rows()


def test_descriptions_without_their_concepts_are_said(tmp_path):
    concepts = NAMED.format("Concept", "")
    files = changed(concepts, lambda text: "\r\n".join(text.split("\r\n")[:4]) + "\r\n")
    source = read_snomed(write_files(tmp_path / "s", files), tmp_path / "scratch")
    assert "9 descriptions of concepts that no Concept file has" in source.warnings[0]


@pytest.mark.parametrize(
    "kind, change, message",
    [
        ("Concept", lambda text: text.replace("moduleId", "module"), "txt:1: found the header 'id"),
        (
            "Concept",
            lambda text: text[:-9],
            "Concept_.*txt:12: found 5 columns; .* a line break, so it is cut off",
        ),
        ("Relationship", lambda text: text + "\r\n", "Relationship_.*txt:6: found an empty line"),
        ("Relationship", lambda text: text.replace("1003", "1\t3", 1), "txt:3: found 11 columns"),
    ],
)
def test_a_malformed_file_is_said_with_its_line(tmp_path, kind, change, message):
    root = write_files(tmp_path / "s", changed(NAMED.format(kind, ""), change))
    with pytest.raises(BadInput, match=message):
        read_snomed(root, tmp_path / "scratch")


def test_other_bytes_and_missing_files(tmp_path):
    root = write_files(tmp_path / "s", rf2_files())
    spanish = root / NAMED.format("Description", "-es")
    spanish.write_bytes(spanish.read_bytes().replace(b"Ataque", b"Ataqu\xe9"))
    with pytest.raises(BadInput, match="-es_INT_20250101.txt:4: found byte 0xe9, which is not UTF"):
        read_snomed(root, tmp_path / "scratch")
    (root / NAMED.format("Concept", "")).unlink()
    with pytest.raises(BadInput, match="has no sct2_Concept_Snapshot_.*give its Snapshot folder"):
        read_snomed(root, tmp_path / "scratch")
    copy = root / "copy" / spanish.name
    copy.parent.mkdir()
    copy.write_bytes(spanish.read_bytes())
    with pytest.raises(
        BadInput, match="has sct2_Description_Snapshot-es_.* twice, in .*/Terminology and .*/copy"
    ):
        read_snomed(root, tmp_path / "scratch")
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(NAMED.format("Concept", ""), b"\n" * (65 << 20))
    with pytest.raises(BadInput, match="sct2_Concept_.* in .*a.zip unpacks to 68 MB or more"):
        read_snomed(tmp_path / "a.zip", tmp_path / "scratch")
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04")
    with pytest.raises(BadInput, match="a.zip cannot be read as a zip archive"):
        read_snomed(tmp_path / "a.zip", tmp_path / "scratch")


def test_a_file_that_is_empty(tmp_path):
    root = write_files(tmp_path / "s", rf2_files())
    next(root.rglob("sct2_Concept*")).write_bytes(b"")
    with pytest.raises(BadInput, match="sct2_Concept.*txt is empty; expected id effectiveTime"):
        read_snomed(root, tmp_path / "scratch")
