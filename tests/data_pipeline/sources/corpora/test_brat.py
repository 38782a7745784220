"""BRAT's files: mentions with their places and notes, folders and archives, and what is broken."""

import io
import tarfile
import zipfile
from pathlib import PurePosixPath

import pytest

from data_pipeline.process.errors import BadInput
from data_pipeline.sources.corpora.brat import (
    Annotation,
    contents,
    documents,
    names_in,
    read_mentions,
)

TEXT = " mal de tête ’ et de dos"
MENTION = "T1\tDISO 1 12\tmal de tête\n"
BACK = "T2\tDISO 1 4;18 24\tmal de dos\n"


def read(ann, text=TEXT):
    return read_mentions(
        ann, text, "a.ann", check_type=lambda kind, place: None, example="T1<TAB>DISO 0 3<TAB>mal"
    )


def test_mentions_with_their_notes():
    ann = f"#9\tAnnotatorNotes T1\tC1  C2 \n{MENTION}{BACK}#2\tAnnotatorNotes T2\t\r\n"
    head = Annotation("T1", "DISO", ((1, 12),), "mal de tête", 2, "C1  C2 ")
    assert read(ann) == [head, Annotation("T2", "DISO", ((1, 4), (18, 24)), "mal de dos", 3, "")]
    turned = "T7\tDISO 15 17;1 4\tet mal"
    assert read(turned) == [Annotation("T7", "DISO", ((15, 17), (1, 4)), "et mal", 1, None)]
    assert read("") == []


def test_other_lines_of_brat_are_left_aside():
    others = "R1\tIs Arg1:T1 Arg2:T1\nE1\tDISO:T1\nA1\tGone T1\n*\tSame T1 T2\n#3\tTodo T1\tx\n\n"
    assert read(MENTION + others) == read(MENTION)


@pytest.mark.parametrize(
    "ann, message",
    [
        ("T1 DISO 1 12 mal de tête", r"a.ann:1: found 'T1 DISO .*; expected T1<TAB>DISO 0 3<TAB>"),
        ("T1\tDISO 1-12\tmal de tête", "a.ann:1: found .*; expected T1<TAB>DISO"),
        ("oops", "a.ann:1: found 'oops'; expected T1<TAB>DISO"),
        ("T1\tDISO 2 12\tmal de tête", "a.ann:1: found the mention .* text has 'al de tête'"),
        ("T1\tDISO 18 99\tde dos", "a.ann:1: found the mention 'de dos' where .*; expected the sa"),
        ("T1\tDISO 1 12;5 5\tmal de tête", "a.ann:1: found the mention"),
        (MENTION + "T1\tDISO 1 4\tmal", "a.ann:2: found T1 again, which line 1 has; expected each"),
        (MENTION + "#1\tAnnotatorNotes T3\tC1", "a.ann:2: found a note on T3, and no such mention"),
        (
            MENTION + "#1\tAnnotatorNotes T1\tC1\n#2\tAnnotatorNotes T1\tC2",
            "a.ann:3: found a second note on T1, after that of line 2; expected one",
        ),
        (
            MENTION + "#1 AnnotatorNotes T1 C1",
            "a.ann:2: found '#1 AnnotatorNotes T1 C1'; expected #1<TAB>AnnotatorNotes T1<TAB>note",
        ),
    ],
)
def test_lines_that_are_broken(ann, message):
    with pytest.raises(BadInput, match=message):
        read(ann)


@pytest.fixture
def packed(tmp_path):
    """One document as a folder, a .zip and a .tar.gz."""
    folder = tmp_path / "corpus"
    (folder / "x").mkdir(parents=True)
    (folder / "x" / "1.ann").write_text(MENTION)
    (folder / "x" / "1.txt").write_text(TEXT)
    (folder / "x" / "1.ann~").write_text("old")
    (folder / "x" / "._1.ann").write_bytes(b"\x00\xff")
    with zipfile.ZipFile(tmp_path / "corpus.zip", "w") as archive:
        for file in sorted(folder.rglob("*.*")):
            archive.write(file, file.relative_to(folder))
        archive.writestr("__MACOSX/x/1.ann", b"\x00\xff")
    with tarfile.open(tmp_path / "corpus.tar.gz", "w:gz") as archive:
        archive.add(folder, ".")
    return folder, tmp_path / "corpus.zip", tmp_path / "corpus.tar.gz"


def test_folders_and_archives(packed):
    for path in packed:
        assert list(documents(path)) == [(PurePosixPath("x/1.ann"), MENTION, TEXT)]
        assert PurePosixPath("x/1.txt") in names_in(path)
    (packed[0] / "x" / "1.txt").unlink()
    with pytest.raises(BadInput, match="x/1.ann: found no 1.txt beside it; fetch it again"):
        list(documents(packed[0]))


def test_archives_that_are_damaged(packed, tmp_path):
    def everything(name):
        return True

    for path, kind in zip(packed[1:], (".zip", ".tar.gz"), strict=True):
        path.write_bytes(path.read_bytes()[:-200])
        with pytest.raises(BadInput, match=f"cannot be read as a {kind} file"):
            contents(path, everything)
    assert names_in(packed[1]) == names_in(packed[2]) == []
    with pytest.raises(BadInput, match="cannot be read .*; give an existing file"):
        contents(tmp_path / "absent.zip", everything)
    bomb = tmp_path / "bomb.tar.gz"
    with tarfile.open(bomb, "w:gz") as archive:
        info = tarfile.TarInfo("1.ann")
        info.size = 65 << 20
        archive.addfile(info, io.BytesIO(bytes(info.size)))
    with pytest.raises(BadInput, match="bomb.tar.gz unpacks to 68 MB or more"):
        contents(bomb, everything)
