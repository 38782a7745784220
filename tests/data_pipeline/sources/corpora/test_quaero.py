"""The QUAERO corpus: table 2 of the MLNorm paper on the real one, its odd cases on a small one."""

import hashlib
import shutil
import tarfile

import pytest
from quaero_corpus import write_quaero

from data_pipeline.process.errors import BadInput
from data_pipeline.sources.corpora.brat import contents
from data_pipeline.sources.corpora.quaero import is_quaero, read_quaero

# Mentions, distinct strings, distinct notes; documents with a mention, mentions of several CUIs and
# of several pieces, and without a note. Table 2 of the paper has the first three; it has 650 in
# place of 651.
TABLE_2 = {
    ("train", "EMEA"): (2695, 923, 651, 11, 11, 27, 0),
    ("train", "MEDLINE"): (2994, 2296, 1860, 791, 12, 13, 0),
    ("dev", "EMEA"): (2260, 756, 525, 12, 29, 15, 0),
    ("dev", "MEDLINE"): (2977, 2288, 1847, 792, 1, 21, 2),
    ("test", "EMEA"): (2204, 658, 474, 15, 0, 42, 1),
    ("test", "MEDLINE"): (3103, 2390, 1909, 804, 1, 23, 7),
}


# SHA-256 of what sha256sum prints of all .ann and .txt files under corpus/, sorted by name.
FILES = "151195c74aecd05261c2d389c3301cf9a74a6626cb9a973c8eb9326001293fca"


def row_of(mentions):
    notes = [one.note for one in mentions if one.note is not None]
    several = [one for one in mentions if len((one.note or "").replace(",", " ").split()) > 1]
    return (
        len(mentions),
        len({one.text for one in mentions}),
        len({note.partition("\t")[0] for note in notes}),
        len({one.document for one in mentions}),
        len(several),
        sum(len(one.spans) > 1 for one in mentions),
        len(mentions) - len(notes),
    )


def test_table_2_of_the_paper(shared_data):
    packed = shared_data / "benchmarks" / "quaero" / "QUAERO_FrenchMed.tar.gz"
    found = read_quaero(packed)
    assert {one: row_of(mentions) for one, mentions in found.items()} == TABLE_2
    files = contents(
        packed, lambda name: name.suffix in (".ann", ".txt") and "corpus" in name.parts
    )
    assert len(files) == 2 * 2536
    lines = {
        f"./{name.relative_to('corpus')}": hashlib.sha256(content).hexdigest()
        for name, content in files.items()
    }
    listed = "".join(f"{lines[name]}  {name}\n" for name in sorted(lines))
    assert hashlib.sha256(listed.encode()).hexdigest() == FILES


def by_words(mentions):
    return {(one.group, one.text): one for one in mentions}


def test_the_odd_cases(tmp_path):
    root = write_quaero(tmp_path)
    found = read_quaero(root)
    sets = [("train", "EMEA"), ("train", "MEDLINE"), ("dev", "EMEA"), ("dev", "MEDLINE")]
    assert list(found) == sets
    assert [len(mentions) for mentions in found.values()] == [7, 7, 7, 7]
    leaflet = by_words(found["train", "EMEA"])
    whole, nested = leaflet["DISO", "métastases hépatiques"], leaflet["ANAT", "hépatiques"]
    assert whole.spans[0][0] < nested.spans[0][0] and whole.spans[0][1] == nested.spans[0][1]
    assert whole.document == "train/EMEA/318_2"
    back, chronic = leaflet["DISO", "douleurs du dos"], leaflet["DISO", "douleurs chroniques"]
    assert len(back.spans) == 2 and back.spans[0][0] == chronic.spans[0][0]
    sleepy, alike = leaflet["DISO", "somnolence"], leaflet["PHYS", "somnolence"]
    assert sleepy.spans == alike.spans
    assert (sleepy.cuis, alike.cuis) == (("C0013144", "C2830004"), ("C0013144",))
    title = by_words(found["dev", "MEDLINE"])
    turned = title["DISO", "sinus de la face Fractures"]
    assert turned.spans[0] > turned.spans[1] and turned.cuis == ("C0272460",)
    notes = {words: (one.note, one.cuis) for (_, words), one in title.items()}
    assert notes["Fractures"] == ("C001665", ("C001665",))
    assert notes["brûlures"] == ("C0006434,C0274287", ("C0006434,C0274287",))
    assert notes["sinus"] == (" C0030471", ("", "C0030471"))
    assert notes["face"] == ("C0015450\t  ", ("C0015450",))
    assert notes["sinus de la face"] == (None, ())
    assert notes["la face"] == ("", ("",))


def test_wherever_it_lies(tmp_path):
    root = write_quaero(tmp_path)
    with tarfile.open(tmp_path / "QUAERO_FrenchMed.tar.gz", "w:gz") as packed:
        packed.add(root, ".")
    shutil.make_archive(str(tmp_path / "QUAERO_FrenchMed_brat"), "zip", tmp_path, root.name)
    found = read_quaero(root)
    paths = [
        root / "corpus",
        *(tmp_path / f"QUAERO_FrenchMed{e}" for e in (".tar.gz", "_brat.zip")),
    ]
    for path in paths:
        assert is_quaero(path) and read_quaero(path) == found
    assert is_quaero(root) and not is_quaero(tmp_path) and not is_quaero(root / "corpus" / "dev")
    shutil.rmtree(root / "corpus" / "train")
    assert list(read_quaero(root)) == [("dev", "EMEA"), ("dev", "MEDLINE")]


def test_what_cannot_be_used(tmp_path):
    root = write_quaero(tmp_path)
    title = root / "corpus" / "dev" / "MEDLINE" / "1050806.ann"
    kept = title.read_text()
    title.write_text(kept.replace("ANAT", "ANATO", 1))
    message = r"MEDLINE/1050806.ann:\d+: found the semantic group 'ANATO'; did you mean ANAT\?; exp"
    with pytest.raises(BadInput, match=message):
        read_quaero(root)
    title.write_text(kept.replace("T1\tDISO 0 9", "T1\tDISO 0 8"))
    with pytest.raises(
        BadInput, match="1050806.ann:1: found the mention 'Fractures' where the tex"
    ):
        read_quaero(root)
    title.write_text(kept)
    shutil.copytree(root / "corpus", root / "copy")
    with pytest.raises(BadInput, match="found dev/EMEA both in co.*; expected one corpus: give"):
        read_quaero(root)
    shutil.rmtree(root / "copy")
    (root / "notes").mkdir()
    for suffix in ("ann", "txt"):
        (root / "notes" / f"1.{suffix}").write_text("")
    with pytest.raises(
        BadInput, match="found notes/1.ann; expected the folder QUAERO_FrenchMed or"
    ):
        read_quaero(root)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(BadInput, match="found no mentions of the QUAERO corpus; expected the fold"):
        read_quaero(empty)
