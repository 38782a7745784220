"""Vectors as rows: of a file that is let go again, and at unit length."""

import io
import os
from pathlib import Path

import numpy as np
import pytest

from coder_jax.encoding import rows
from coder_jax.encoding.rows import JoinedRows, RowsOfFile, unit
from coder_jax.encoding.search import search
from data_pipeline.dataset.aligned import is_aligned
from data_pipeline.process.errors import BadInput


@pytest.fixture
def file(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float16)
    np.save(tmp_path / "v.npy", vectors)
    return tmp_path / "v.npy", vectors


def test_rows_of_a_file_are_those_of_the_array(file):
    path, vectors = file
    found = RowsOfFile(path)
    assert (found.shape, len(found), found.dtype) == ((50, 8), 50, np.float16)
    for chosen in (slice(3, 9), np.array([7, 7, 0]), slice(48, 60)):
        np.testing.assert_array_equal(found[chosen], vectors[chosen])
    queries = vectors[:3].astype(np.float32)
    np.testing.assert_array_equal(
        search(queries, found, 4, block_keys=16), search(queries, vectors, 4, block_keys=16)
    )


def test_numbered_rows_are_read_run_by_run(file, monkeypatch):
    path, vectors = file
    found, runs, read_whole = RowsOfFile(path), [], rows._read_whole

    def watched(file, part):
        runs.append(len(part))
        read_whole(file, part)

    monkeypatch.setattr(rows, "_read_whole", watched)
    for chosen, want in (
        ([4, 5, 6, 7], [4]),
        ([31, 5, 6, 5, 0, 7], [1, 3, 1]),
        ([49], [1]),
        ([2, 4], [1, 1]),
        ([], []),
    ):
        runs.clear()
        part = found[np.array(chosen, np.int32)]
        assert runs == want and part.dtype == np.float16 and part.shape == (len(chosen), 8)
        np.testing.assert_array_equal(part, vectors[np.array(chosen, int)])
    for chosen in ([50], [-1, 3]):
        with pytest.raises(IndexError, match=r"found rows -?\d+ to \d+; expected 0 to 49"):
            found[np.array(chosen)]


def test_reads_that_come_in_pieces_and_a_file_that_ends_early(file, tmp_path):
    path, vectors = file

    class Pieces(io.FileIO):
        def readinto(self, buffer):
            return super().readinto(buffer[:5])

    with Pieces(path) as stream:
        stream.seek(128 + 3 * 16)
        part = np.empty((2, 8), np.float16)
        rows._read_whole(stream, part)
    np.testing.assert_array_equal(part, vectors[3:5])
    found = RowsOfFile(path)
    os.truncate(path, path.stat().st_size - 3)
    assert found[np.array([48])].shape == (1, 8)
    with pytest.raises(EOFError, match="3 bytes fewer than its header says"):
        found[np.array([49])]


@pytest.mark.parametrize(
    "array", [np.zeros(5), np.zeros((2, 3, 4)), np.asfortranarray(np.eye(3)[:2])]
)
def test_a_file_of_something_else(tmp_path, array):
    np.save(tmp_path / "v.npy", array)
    words = (
        r"v.npy: found float64 of shape .*expected float vectors \[n, D\], row by row; encode the"
    )
    with pytest.raises(BadInput, match=words):
        RowsOfFile(tmp_path / "v.npy")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not list them")
def test_a_file_is_mapped_only_as_long_as_its_rows_are_held(file):
    path, _ = file

    def is_mapped():
        return str(path) in Path("/proc/self/maps").read_text()

    found = RowsOfFile(path)
    assert not is_mapped()
    part = found[3:9]
    assert is_mapped()
    del part
    assert not is_mapped() and found[np.array([1, 2])].shape == (2, 8) and not is_mapped()


def test_unit_is_the_same_in_pieces(monkeypatch):
    vectors = np.random.default_rng(1).normal(size=(23, 5)).astype(np.float32)
    vectors[4] = 0
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = vectors / np.where(lengths > 0, lengths, 1)
    whole = unit(vectors)
    np.testing.assert_array_equal(whole, expected)
    assert whole.dtype == np.float32 and is_aligned(whole)
    monkeypatch.setattr(rows, "ROWS_IN_CACHE", 4)
    np.testing.assert_array_equal(unit(vectors), expected)
    assert unit(vectors, dtype=np.float64).dtype == np.float64
    assert unit(vectors[:0]).shape == (0, 5)
    vectors[[9, 21], 2] = np.nan, np.inf
    with pytest.raises(BadInput, match=r"2 vectors of 23 with NaN or infinite .*first: row 9\)"):
        unit(vectors)
    with pytest.raises(BadInput, match=r"2 terms of 23 .*first: row 1009\)"):
        unit(vectors, "terms", numbers=np.arange(1000, 1023))


def test_no_damage_to_a_header_is_a_traceback(tmp_path):
    """NumPy reads a header as Python: what is damaged there fails in many ways."""
    path = tmp_path / "v.npy"
    np.save(path, np.eye(4, dtype=np.float32))
    whole = path.read_bytes()
    kinds = set()
    for place in range(128):
        for byte in b"\x00\xff'({,0Z9 \n":
            path.write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])
            try:
                kinds.add(str(RowsOfFile(path).shape))
            except BadInput as error:
                kinds.add(type(error.__cause__).__name__)
    assert {"(4, 4)", "ValueError", "SyntaxError"} <= kinds
    np.savez(tmp_path / "several.npz", a=np.eye(2))
    (tmp_path / "several.npz").rename(path)
    with pytest.raises(BadInput, match="v.npy holds several arrays; expected a .npy file of one"):
        RowsOfFile(path)


def test_joined_rows_are_those_of_one_array(tmp_path):
    whole = np.arange(36, dtype=np.float32).reshape(12, 3)
    np.save(tmp_path / "one.npy", whole[5:6])
    joined = JoinedRows([whole[:5], RowsOfFile(tmp_path / "one.npy"), whole[6:]])
    assert joined.shape == (12, 3) and len(joined) == 12
    slices = slice(2, 9), slice(None), slice(0, 0), slice(-2, None)
    for chosen in (*slices, np.array([11, 4, 5, 4])):
        found = joined[chosen]
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, whole[chosen])
    for wrong in (12, -1):
        with pytest.raises(IndexError, match=f"found the row {wrong}; there are 12"):
            joined[np.array([3, wrong])]


def test_rows_of_a_file_as_an_array(file):
    path, vectors = file
    found = RowsOfFile(path)
    np.testing.assert_array_equal(np.asarray(found), vectors)
    assert np.asarray(found, np.float64).dtype == np.float64
    np.testing.assert_array_equal(vectors[:2] @ np.asarray(found).T, vectors[:2] @ vectors.T)
