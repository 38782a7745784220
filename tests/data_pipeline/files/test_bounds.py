"""What a file may ask for: lines of some length, archives that unpack to some times their size."""

import gzip
import io
import zipfile

import pytest

from coder_jax.commands.normalize import read_mentions
from coder_jax.encoding.term_lines import TermLines
from coder_jax.evaluation.normalization.mantra_files import files_in
from coder_jax.evaluation.vectors.word2vec_files import read_vector_file
from data_pipeline.files.bounds import (
    ALWAYS_FINE,
    LONGEST_LINE,
    bounded_lines,
    check_lines,
    check_unpacked,
)
from data_pipeline.files.rows import is_double_piped, tab_separated
from data_pipeline.process.errors import BadInput
from data_pipeline.sources.obo import read_obo
from data_pipeline.sources.release_files import unpack_release

LONG = bytes(3 * LONGEST_LINE)
TOO_LONG = "found a line of more than 1,048,576 bytes; expected text with line ends"


def test_lines():
    text = b"a\nb\r\n" + b"c" * (LONGEST_LINE - 1) + b"\nd"
    assert b"".join(bounded_lines(io.BytesIO(text), "x")) == text
    assert len(list(bounded_lines(io.BytesIO(text), "x"))) == 4
    check_lines(text, "x")
    with pytest.raises(BadInput, match=f"x:3: {TOO_LONG}"):
        list(bounded_lines(io.BytesIO(b"a\nb\n" + LONG), "x"))
    with pytest.raises(BadInput, match=f"x:3: {TOO_LONG}"):
        check_lines(b"a\nb\n" + LONG, "x")


def test_no_reader_takes_a_line_without_an_end(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"heart attack\tC1\n" + LONG)
    vectors = tmp_path / "v.txt"
    vectors.write_bytes(b"a 1 2 3\n" + LONG)
    (tmp_path / "x.obo").write_bytes(b"format-version: 1.2\n" + LONG)
    piped = tmp_path / "piped.txt"
    piped.write_bytes(LONG)
    with piped.open("rb") as file:
        for read in (
            lambda: tab_separated(path),
            lambda: TermLines(io.BytesIO(LONG), "x", 100),
            lambda: list(read_mentions(io.BytesIO(LONG), "x")),
            lambda: list(read_mentions(file, "x")),
            lambda: read_vector_file(vectors, {"a"}),
            lambda: read_obo(tmp_path / "x.obo"),
            lambda: is_double_piped(piped),
        ):
            with pytest.raises(BadInput, match=TOO_LONG):
                read()


def test_what_unpacks_to_far_more_is_refused(tmp_path):
    check_unpacked("x", 1, ALWAYS_FINE)
    check_unpacked("x", ALWAYS_FINE, 200 * ALWAYS_FINE)
    with pytest.raises(BadInput, match="x unpacks to 67 MB or more, from 0.0 MB; expected at most"):
        check_unpacked("x", 1000, ALWAYS_FINE + 1)
    zeros = bytes(ALWAYS_FINE + (16 << 20))
    packed = gzip.compress(zeros, 9)
    (tmp_path / "x.obo.gz").write_bytes(packed)
    (tmp_path / "META").mkdir()
    (tmp_path / "META" / "MRCONSO.RRF.gz").write_bytes(packed)
    for name, member in (("r.zip", "META/MRCONSO.RRF"), ("m.zip", "Medline_GSC_fr_man.xml")):
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
            file.writestr(member, zeros)
    for read in (
        lambda: read_obo(tmp_path / "x.obo.gz"),
        lambda: unpack_release(tmp_path / "META", tmp_path / "scratch"),
        lambda: unpack_release(tmp_path / "r.zip", tmp_path / "scratch"),
        lambda: list(files_in(tmp_path / "m.zip")),
    ):
        with pytest.raises(BadInput, match="unpacks to .* MB or more, from 0.1 MB; expected at mo"):
            read()
