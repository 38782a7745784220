"""Which reader a path goes to, and which files it is read from."""

from dataclasses import replace

import pytest
from tiny_build import write_tokenizer
from tiny_ontology import write_ontology
from tiny_rf2 import loinc_files, rf2_files, write_files
from tiny_rrf import tiny_files, write_release

from data_pipeline.build_dataset.build import build_dataset
from data_pipeline.build_dataset.options import BuildOptions
from data_pipeline.dataset.dictionary import read_dictionary
from data_pipeline.process import BadInput
from data_pipeline.sources.read_source import (
    _Kind,
    _kind_of,
    read_source,
    read_successions,
    source_paths,
)


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


HP = (
    "ontology: hp\ndata-version: 2\n\n[Term]\nid: HP:1\nname: pain\nalt_id: HP:4\n\n[Term]\n"
    'id: HP:2\nname: ache\nsynonym: "sore" EXACT []\nis_a: HP:1\n\n[Term]\nid: HP:3\nname: agony\n'
    "is_obsolete: true\nreplaced_by: HP:1\nreplaced_by: HP:2\n"
)
FRENCH = (
    "subject_id\ttranslation_language\ttranslation_value\nHP:2\tfr\tmal\nHP:3\tfr\tagonie\n"
    "HP:1\tfr\tdouleur\nHP:4\tfr\tpeiné\n"
)


def test_an_ontology_and_tables_of_further_names(tmp_path, write, capsys):
    ontology = write("hpo/hp.obo", HP)
    french = write("hpo/hp-fr.babelon.tsv", FRENCH)
    own = write("hpo/hp-own.csv", "code,name\nL:1,toothache\n")
    isa = write("hpo/hp-own.relations.csv", "head,relation,tail\nL:1,isa,HP:2\n")
    write("hpo/hp-cs.babelon.tsv", "")
    no_row = write("hpo/hp-ar.babelon.tsv", "subject_id\ttranslation_value\n")
    for name in ("list.csv", "~$hp-own.xlsx", ".hp-x.csv", "hp.obo-folder/x.csv", "readme.txt"):
        write(f"hpo/{name}", "code,name\nHP:1,not a name\n")
    folder = tmp_path / "hpo"
    assert source_paths(folder) == [ontology, no_row, french, own, isa]
    source = read_source(folder, tmp_path / "scratch")
    assert (source.name, source.release) == ("hp", "2")
    assert (
        "further names: hp-ar.babelon.tsv, hp-fr.babelon.tsv, hp-own.csv" in capsys.readouterr().err
    )
    assert [one["file"] for one in source.files] == [
        one.name for one in (ontology, french, own, isa)
    ]
    atoms = source.atoms.select("cui", "language", "suppress", "term").collect().rows()
    assert atoms == [
        ("HP:1", "ENG", "N", "pain"),
        ("HP:2", "ENG", "N", "ache"),
        ("HP:2", "ENG", "N", "sore"),
        ("HP:2", "FRE", "N", "mal"),
        ("HP:3", "FRE", "O", "agonie"),
        ("HP:1", "FRE", "N", "douleur"),
        ("HP:1", "FRE", "N", "peiné"),
        ("L:1", "UND", "N", "toothache"),
    ], "withdrawn: suppressed; merged: a name of the concept that is left"
    relations = source.relations.collect()
    assert ("L:1", "PAR", "inverse_isa", "HP:2") in [row[:4] for row in relations.rows()]
    assert relations.height == 4
    assert read_successions(folder, tmp_path / "s", ["HP:4"])["cui"].to_list() == ["HP:1"]
    found = read_dictionary(folder, languages=["FRE"])
    assert [pair[1:] for pair in found.pairs()] == [
        ("douleur", "HP:1"),
        ("peiné", "HP:1"),
        ("mal", "HP:2"),
    ]
    french.write_bytes(FRENCH.encode("latin-1"))
    assert "peiné" in read_dictionary(folder, encoding="latin-1").terms
    french.write_bytes(FRENCH.encode())
    options = BuildOptions(
        source=folder, out=tmp_path / "built", tokenizer=write_tokenizer(tmp_path), cleaning="none"
    )
    built = build_dataset(options)
    there = sorted(read_dictionary(built, raw=True).terms)
    assert there == ["ache", "douleur", "mal", "pain", "peiné", "sore", "toothache"]
    (built / "hp.obo").write_text(HP)
    assert sorted(read_dictionary(built, raw=True).terms) == there, "it still is a dataset"


def test_an_encoding_that_nobody_gave_is_not_said(tmp_path, write, capsys):
    write("hpo/hp.obo", HP)
    write("hpo/hp-own.csv", "code,name\nHP:1,übel\n".encode("cp1252"))
    with pytest.raises(BadInput, match="hp-own.csv:2: .* not UTF-8; save it as UTF-8"):
        read_source(tmp_path / "hpo", tmp_path / "scratch")
    assert "latin-1" not in capsys.readouterr().err


def test_two_ontologies_in_a_folder(tmp_path, write):
    write("two/hp.obo", HP)
    write("two/mp.obo", "ontology: mp\ndata-version: 9\n\n[Term]\nid: HP:3\nname: wheeze\n")
    write("two/mp-fr.csv", "concept,term\nHP:3,sifflement\n")
    folder = tmp_path / "two"
    source = read_source(folder, tmp_path / "scratch")
    assert (source.name, source.release) == ("hp+mp", "2, 9")
    kept = [
        row[1] for row in source.atoms.select("suppress", "term").collect().rows() if row[0] == "N"
    ]
    assert kept[-2:] == ["wheeze", "sifflement"], "what one of them has is not withdrawn"
    assert source.retired["retired"].to_list() == ["HP:4"]
    write("two/hp (1).obo", HP)
    with pytest.raises(
        BadInput, match="found two ontologies with the name hp; expected one release"
    ):
        read_source(folder, tmp_path / "scratch")
    with pytest.raises(BadInput, match="folder of ontologies and tables, which has no standard"):
        read_source(folder, tmp_path / "scratch", standard=True)


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


@pytest.mark.parametrize("odd", ["\0", "\t", "\x0b", "\x0c", "\r", "\x85", "\u2028", "\ufeff"])
def test_names_lose_odd_characters_and_identifiers_are_refused(tmp_path, odd):
    def read(old, new, name="MRCONSO"):
        files = {name: tiny_files()[f"{name}.RRF"].replace(old, new)}
        return read_source(write_release(tmp_path / "META", **files), tmp_path / "scratch")

    source = read("Limb pain", f"Limb{odd}pain")
    plain = "Limbpain" if odd == "\ufeff" else "Limb pain"
    assert plain in source.atoms.collect()["term"].to_list()
    assert source.warnings == (
        "control characters, line separators and byte order marks became blanks; names that had "
        "some: 1",
    )
    assert not read("Limb pain", "Limb-pain").warnings
    for old, name in (
        *(("C0000003|", "MRCONSO"), ("|MSH|", "MRCONSO"), ("|MH|0|", "MRCONSO")),
        *(("Finding", "MRSTY"), ("C0000002|Y", "MRCUI")),
    ):
        with pytest.raises(BadInput, match=r"META: found '.*'; expected text without control"):
            read(old, f"{old[:2]}{odd}{old[2:]}", name)
        write_release(tmp_path / "META")


def test_odd_characters_in_other_formats(tmp_path, write):
    obo = "format-version: 1.2\nontology: x\n[Term]\nid: T:1\nname: pain\n"
    for path, message in (
        (write("a.obo", obo + "namespace: some\x01where\n"), r"a.obo: found 'some\\x01where'"),
        (write("b.obo", obo.replace("T:1", "T:\u20281")), r"b.obo: found 'T:\\u20281'; expected"),
        (write("t.csv", "id,name\nC\x0b1,a\n"), r"t.csv, column id: found 'C\\x0b1'; expected"),
    ):
        with pytest.raises(BadInput, match=message):
            read_source(path, tmp_path / "scratch")
    source = read_source(write("n.obo", obo.replace("pain", "pa\x01in")), tmp_path / "scratch")
    assert source.atoms.collect()["term"].to_list() == ["pa in"]


def test_strict_is_for_ontologies(tmp_path, write):
    tokenizer = write_tokenizer(tmp_path)
    options = BuildOptions(source=tmp_path, out=tmp_path / "o", tokenizer=tokenizer, strict=True)
    bad = write("a.obo", "ontology: x\n\n[Term]\nid: T:1\nname: pain\nwhat\n")
    for read in (
        lambda path: read_source(path, tmp_path / "scratch", strict=True),
        lambda path: read_dictionary(path, strict=True),
        lambda path: build_dataset(replace(options, source=path)),
    ):
        with pytest.raises(BadInput, match="found 1 lines that are not valid OBO: line 6, 'what'"):
            read(bad)
        with pytest.raises(BadInput, match=r"expected an ontology \(.obo\): leave"):
            read(write("t.csv", "id,name\nC1,a\n"))
    assert read_dictionary(bad).terms == ["pain"]
