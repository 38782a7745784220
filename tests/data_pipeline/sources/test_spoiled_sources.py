"""Every format of input, spoiled in hundreds of ways: a clear error or a right result.

Some forms of each are tried always. `bash launch/test.sh -m slow
tests/data_pipeline/sources/test_spoiled_sources.py -s` tries a thousand and prints the counts; the
seed and the number of a form that fails are said, and `readings(first=...)` makes it again.
"""

import gzip
import io
import re
import tarfile
import tempfile
from pathlib import Path

import openpyxl
import polars as pl
import pytest
from quaero_corpus import write_quaero
from spoiled_files import readings, spoiled_bytes, spoiled_json, spoiled_text, spoiled_zip
from tiny_rf2 import loinc_files, rf2_files, write_files
from tiny_rrf import write_release

from data_pipeline.dataset.dictionary import read_dictionary, read_entries, read_identifiers
from data_pipeline.files.tables import read_table
from data_pipeline.sources.corpora import (
    is_quaero,
    mention_rows,
    read_abstracts,
    read_gold,
    read_mentions,
    read_quaero,
)
from data_pipeline.sources.read_source import read_source
from data_pipeline.sources.text import TextReader
from data_pipeline.terminology.filters import Filters
from data_pipeline.terminology.mentions import read_supervised
from data_pipeline.terminology.retired_cuis import read_retired_cuis
from data_pipeline.terminology.terminology import read_terminology

SEED = 39
ALWAYS, SLOW = 25, 1000
# What would break a line of a table, or is no character to people.
ODD = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\ufeff]")
PUBTATOR = (
    "1|t|Ocular toxicity and colon cancer.\n1|a|A | t | b.\n"
    "1\t0\t15\tOcular toxicity\tDisease\tD014786|D006311\tOcular|toxicity\n"
    "1\t20\t32\tcolon cancer\tDisease\tMESH:D003110+OMIM:114500\n1\tCID\tD014786\tD003110\n\n"
)
OBO = """format-version: 1.2
data-version: 7
default-namespace: tiny
ontology: tiny
[Term]
id: T:1
name: pain of limb
def: "Pain, \\"of\\" a limb." [x:1]
synonym: "acute attack {a}" EXACT [y:2]
synonym: "ache" RELATED []
xref: UMLS:C1
alt_id: T:9
namespace: other
[Term]
id: T:2
name: attack
is_a: T:1 ! pain of limb
relationship: part_of T:1
[Term]
id: T:3
name: old
is_obsolete: true
replaced_by: T:1
[Typedef]
id: part_of
name: part of
inverse_of: has_part
"""
TABLE = (
    "concept\tname\tlanguage\tvocabulary\ttype\tpreferred\tcode\n"
    'C1\theart "attack"\ten\tLOCAL\tDisease|Finding\tY\t001\n'
    "C1\tinfarctus\tfr\tLOCAL\tDisease\tN\t\nC2|C3\tlimb, pain\ten\tOTHER\t\t\t7\n"
)
RELATIONS = "head\trelation\ttail\nC1\tis a\tC2\nC2\tpart_of\tC3\n"


def rows_of(frame):
    return frame.collect().rows() if isinstance(frame, pl.LazyFrame) else frame.rows()


def clean_of(read):
    """The reading, after a look at every string in it."""
    found = repr(read)
    values, odd = [read], []
    while values:
        value = values.pop()
        if isinstance(value, str):
            odd += [value] if ODD.search(value) else []
        elif isinstance(value, dict):
            values += [*value, *value.values()]
        elif isinstance(value, list | tuple | set | frozenset):
            values += value
    if odd:
        raise AssertionError(f"characters that are none: {odd[0]!r:.60}")
    return found


def source(path, scratch):
    """A source as the build takes it, and as a dictionary."""
    read = read_source(path, scratch, ["EXACT", "RELATED"])
    terms = read_terminology(read, Filters(), "lookup")
    small = (read.retired, read.xrefs)
    dictionary = read_dictionary(path, raw=True)
    about = [dictionary.about(concept) for concept in sorted(dictionary.concept_set)]
    return clean_of(
        [
            *(rows_of(frame) for frame in (terms.terms, terms.codes, *small)),
            *(terms.cuis.to_list(), terms.languages, terms.vocabularies, terms.relation_labels),
            *(terms.semantic_types, terms.heads.tolist(), terms.tails.tolist()),
            *(read.name, dictionary.terms, dictionary.concepts, about),
        ]
    )


def dictionary(path, _):
    read = read_dictionary(path)
    return clean_of([read.terms, read.concepts, [read.about(one) for one in read.concept_set]])


def brat(path, _):
    text = "mal de t\u00eate et de dos"
    return repr(
        read_mentions(
            path.read_bytes().decode("utf-8", "replace"),
            text,
            "a.ann",
            check_type=lambda kind, place: None,
            example="T1",
        )
    )


def documents(path, _):
    reader = TextReader()
    return repr((list(reader.documents(path)), reader.counts))


def quaero(path, _):
    return repr(read_quaero(path)) if is_quaero(path) else "another thing"


def gold(path, _):
    return repr(read_gold(path))


def quaero_files(folder):
    """The corpus as (name in it, content) of each file."""
    root = write_quaero(folder)
    found = (one for one in sorted(root.rglob("*")) if one.is_file())
    return {one.relative_to(root).as_posix(): one.read_text() for one in found}


def packed(folder, files, name):
    """A .tar.gz of files; its path."""
    with tarfile.open(folder / name, "w:gz") as archive:
        for inside, text in files.items():
            info = tarfile.TarInfo(inside)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return folder / name


def workbook(path):
    book = openpyxl.Workbook()
    for line in TABLE.splitlines():
        book.active.append(line.split("\t"))
    book.save(path)
    return path


def release(folder, *files):
    """A UMLS release with these files alone, if any are named; its folder."""
    rest = {} if not files else dict.fromkeys({"MRREL", "MRSTY", "MRCUI", "MRFILES"} - {*files})
    return write_release(folder / "META", **rest)


def zipped(folder):
    files = {one.name: one.read_text() for one in release(folder).iterdir()}
    return write_files(folder / "umls.zip", {f"META/{name}": files[name] for name in sorted(files)})


def rrf(name):
    return lambda folder: (release(folder), folder / "META" / name)


def rf2(name):
    def make(folder):
        root = write_files(folder / "snomed", rf2_files())
        return root, next(root.rglob(f"{name}*.txt"))

    return make


def loinc(name):
    return lambda folder: (
        write_files(folder / "loinc", loinc_files()),
        folder / "loinc" / "LoincTable" / name,
    )


def text(name, content):
    def make(folder):
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path, path

    return make


def alone(make):
    return lambda folder: (make(folder),) * 2


def with_relations(folder):
    (folder / "terms.tsv").write_text(TABLE)
    (folder / "terms.relations.tsv").write_text(RELATIONS)
    return folder / "terms.tsv", folder / "terms.relations.tsv"


def any_json(rng, content):
    return spoiled_json(rng, content, ("*",))


CSV = TABLE.replace(",", " ").replace('"', '""').replace("\t", ",")
RF2 = ("sct2_Concept", "sct2_Description_Snapshot-en", "sct2_Relationship_Snapshot")
REFSETS = ("der2_cRefset_LanguageSnapshot-en", "der2_cRefset_AssociationSnapshot")
TWO = 'Heart attack\tC0000001\nLimb pain\tC0000002|C0000003\n"Ache"\tC0000004\n'
CHIP = (
    '[{"text": "a b", "normalized_result": "x##y"}, {"text": "\\"c\\"", "normalized_result": "z"}]'
)
MENTIONS = "mention\tCUI\tlanguage\nache\tC1|C2\tENG\nmal\tC3\tFRE\n"
SUPERVISED = 'mention,cui,language,semantic_group\nache,C1,en,DISO\n"mal, dos",C3,fr,\n'
MEDIC = "D000001|OMIM:100001||heart attack|infarct\nD000002||limb pain|ache\n"
ANN = "T1\tDISO 0 3\tmal\n#1\tAnnotatorNotes T1\tC1\nT2\tDISO 0 3;18 21\tmal dos\nR1\tx T1 T2\n"
JSONL = '{"text": "Heart attack (HA).", "cuis": ["C1"], "names": ["ha"]}\n{"text": "b"}\n'
# Name -> (how to make the path that is read and the file that is spoiled, how it is spoiled, how it
# is read).
FORMATS = {
    **{name: (rrf(f"{name}.RRF"), spoiled_text, source) for name in ("MRCONSO", "MRREL", "MRSTY")},
    **{name: (rrf(f"{name}.RRF"), spoiled_text, source) for name in ("MRCUI", "MRFILES")},
    "MRCONSO alone": (
        alone(lambda folder: release(folder, "MRCONSO") / "MRCONSO.RRF"),
        spoiled_text,
        source,
    ),
    "umls.zip": (alone(zipped), spoiled_zip, source),
    "obo": (text("tiny.obo", OBO), spoiled_text, source),
    "obo.gz": (text("tiny.obo.gz", gzip.compress(OBO.encode())), spoiled_bytes, source),
    "tsv": (text("terms.tsv", TABLE), spoiled_text, source),
    "csv": (text("terms.csv", CSV), spoiled_text, source),
    "relations": (with_relations, spoiled_text, source),
    "xlsx": (alone(lambda folder: workbook(folder / "terms.xlsx")), spoiled_zip, source),
    **{name: (rf2(name), spoiled_text, source) for name in (*RF2, *REFSETS)},
    "snomed.zip": (
        alone(lambda folder: write_files(folder / "s.zip", rf2_files())),
        spoiled_zip,
        source,
    ),
    **{name: (loinc(name), spoiled_text, source) for name in ("Loinc.csv", "MapTo.csv")},
    "loinc.zip": (
        alone(lambda folder: write_files(folder / "l.zip", loinc_files())),
        spoiled_zip,
        source,
    ),
    "dictionary": (text("d.tsv", "term\tCUI\n" + TWO), spoiled_text, dictionary),
    "piped": (text("d.txt", "C1||heart attack\nC2||ache||text\n"), spoiled_text, dictionary),
    "medic": (text("d.txt", MEDIC), spoiled_text, dictionary),
    "entries": (text("d.tsv", TWO), spoiled_text, lambda path, _: repr(read_entries(path))),
    "list": (text("l.txt", "C1\nC2\n\nC3\n"), spoiled_text, lambda path, _: read_identifiers(path)),
    "retired": (
        text("r.tsv", "old\tnew\nC1\tC2\nC2\tC3\nC4\tC3\n"),
        spoiled_text,
        lambda path, _: repr(read_retired_cuis(path)),
    ),
    "mentions": (text("m.tsv", MENTIONS), spoiled_text, lambda path, _: mention_rows(path)),
    "supervised": (
        text("m.csv", SUPERVISED),
        spoiled_text,
        lambda path, _: clean_of(read_supervised([path], []).rows()),
    ),
    "pubtator": (text("p.txt", PUBTATOR), spoiled_text, lambda path, _: repr(read_abstracts(path))),
    "gold": (text("g.txt", PUBTATOR), spoiled_text, lambda path, _: repr(read_gold(path))),
    "gold.csv": (text("g.csv", '"a, b",x##y\nc,z\n'), spoiled_text, gold),
    "chip": (text("g.json", CHIP), any_json, gold),
    "brat": (text("a.ann", ANN), spoiled_text, brat),
    "quaero.zip": (
        alone(lambda folder: write_files(folder / "q.zip", quaero_files(folder))),
        spoiled_zip,
        quaero,
    ),
    "quaero.tar.gz": (
        alone(lambda folder: packed(folder, quaero_files(folder), "q.tar.gz")),
        spoiled_bytes,
        quaero,
    ),
    "table": (
        text("t.csv", CSV),
        spoiled_text,
        lambda path, _: repr(read_table(path).frame.rows()),
    ),
    "json lines": (text("t.jsonl", JSONL), spoiled_text, documents),
    "plain text": (text("t.txt", "One. Two.\n\nThree.\n"), spoiled_text, documents),
    "definitions": (text("t.obo", OBO), spoiled_text, documents),
}


def check(name, folder, count):
    make, spoil, read = FORMATS[name]
    path, file = make(folder)

    def reading():
        with tempfile.TemporaryDirectory() as scratch:
            return read(path, Path(scratch) / "s")

    return readings(file, reading, seed=SEED, count=count, spoil=spoil)


@pytest.mark.parametrize("name", FORMATS)
def test_a_spoiled_input_is_refused_or_read(tmp_path, name):
    check(name, tmp_path, ALWAYS)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_an_input_spoiled_in_a_thousand_ways(tmp_path, name):
    print(f"{name}: {check(name, tmp_path, SLOW)}")
