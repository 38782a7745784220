"""Files of word and concept vectors: formats, what is missing, and messages."""

import gzip
import hashlib
import struct

import numpy as np
import pytest

from coder_jax.evaluation.vectors import word2vec_files
from coder_jax.evaluation.vectors.word2vec_files import read_vector_file
from data_pipeline.process.errors import BadInput

WORDS = {"heart": [1, 0, 0.5], "attack": [0, 2, -1.25], "Crohn": [3, 3, 3], "é": [7, 8, 9]}


def binary(words, count=None, between=b"\n"):
    rows = [k.encode() + b" " + struct.pack("<3f", *v) + between for k, v in words.items()]
    return f"{count or len(words)} 3\n".encode() + b"".join(rows)


def text(words, header=True):
    first = f"{len(words)} 3\n" if header else ""
    return first + "".join(f"{k} {' '.join(map(str, v))}\n" for k, v in words.items())


def csv(words):
    rows = [f'"{k}",{",".join(map(str, v))}\n' for k, v in words.items()]
    return '"","V1","V2","V3"\n' + "".join(rows)


def packed(content):
    """Gzipped without the time of day: tests are named by their content."""
    return gzip.compress(content, mtime=0)


@pytest.mark.parametrize(
    "name, content",
    [
        ("w.bin", binary(WORDS)),
        ("w.bin", binary(WORDS, between=b"")),
        ("w.bin", binary(WORDS, between=b"") + b" \n\n"),
        ("w.bin.gz", packed(binary(WORDS))),
        ("w.txt", text(WORDS).encode()),
        ("w.txt", text(WORDS).encode() + b"\n \n"),
        ("w.txt", text(WORDS).replace("\n", "\n\n", 1).encode()),
        ("w.vec.gz", packed(text(WORDS).encode())),
        ("glove.txt", text(WORDS, header=False).encode()),
        ("glove.txt", text(WORDS, header=False).replace("\n", " \n").encode()),
        ("w.txt", text(WORDS).replace("\n", " \n").encode()),
        ("cui2vec.csv", csv(WORDS).encode()),
    ],
)
def test_formats(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    wanted = set(WORDS)
    table = read_vector_file(path, wanted | {"absent"})
    assert table.in_file == 4 and table.file_hash == hashlib.sha256(content).hexdigest()
    assert set(table.row_of) == wanted
    for word, row in table.row_of.items():
        assert table.vectors[row].tolist() == WORDS[word]
    only = read_vector_file(path, {"attack"})
    assert only.vectors.shape == (1, 3) and only.in_file == 4


def test_quotes_belong_to_a_word_but_not_to_a_field_of_csv(tmp_path):
    words = {'"': [1, 2, 3], '"heart"': [4, 5, 6]}
    (tmp_path / "w.txt").write_text(text(words, header=False))
    assert set(read_vector_file(tmp_path / "w.txt", {*words, "heart"}).row_of) == set(words)


def test_large_binary_files_are_read_piece_by_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(word2vec_files, "READ_BYTES", 50)
    rng = np.random.default_rng(0)
    words = {f"w{i}": rng.normal(size=3).astype(np.float32).tolist() for i in range(500)}
    (tmp_path / "w.bin").write_bytes(binary(words))
    table = read_vector_file(tmp_path / "w.bin", set(words))
    assert {w: table.vectors[r].tolist() for w, r in table.row_of.items()} == words


PACKED = packed(binary(WORDS))


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("w.bin", binary(WORDS)[:-9], r"w.bin: found 3 of 4 vectors of 3 values; it is cut off"),
        (
            "w.bin",
            binary(WORDS, count=9),
            r"w.bin: found 4 of 9 vectors of 3 values; it is cut off",
        ),
        *(
            (
                "w.bin",
                binary(WORDS, 3, between),
                r"w.bin: found more than the 3 vectors that the fi",
            )
            for between in (b"", b"\n")
        ),
        ("w.txt", b"1 3\na 1 2 3\n\nb 1 2 3\n", r"w.txt:4: found more than the 1 vectors that the"),
        ("w.txt", b"3 3\na 1 2 3\n\nb 1 2 3\n", r"w.txt: found 2 of 3 vectors; it is cut off"),
        ("w.txt", b"2 3\na 1 2 3\nb 1 2\n", r"w.txt:3: found 2 values; expected 3, as before"),
        ("w.txt", b"3 3\na 1 2 3\nb 1 2 3\n", r"w.txt: found 2 of 3 vectors; it is cut off"),
        ("w.txt", b"2 3\na 1 2 3\nb 1 x 3\n", r"w.txt:3: found a value that is no .*: mend the li"),
        (
            "w.txt",
            b"2 3\na 1 2 3\nb 1 nan 3\n",
            r"w.txt:3: found NaN or infinite .*: mend this vec",
        ),
        ("w.txt", b"a word list\nb\n", r"w.txt:1: found b'a word list.*; expected vectors: word2"),
        ("w.txt", b"1 2\nheart 1 2\n", r"w.txt: found 1 vectors, none of a word or concept of"),
        *(
            ("w.bin.gz", broken, r"w.bin.gz: cannot be read \(.*\); give an existing, whole")
            for broken in (PACKED[:-20], PACKED[:10] + b"\xff" * 20 + PACKED[30:])
        ),
    ],
)
def test_files_that_cannot_be_used(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=message):
        read_vector_file(tmp_path / name, {"a", "b", "é"})
    with pytest.raises(BadInput, match="absent.bin: cannot be read"):
        read_vector_file(tmp_path / "absent.bin", {"a"})
