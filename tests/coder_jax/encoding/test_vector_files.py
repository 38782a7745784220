"""Vectors written in chunks: the same bytes however often the work is cut off, and by whom."""

import hashlib
import io
import json
import os
import shutil
from pathlib import Path

import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from tiny_bert import TINY, write_tokenizer

from coder_jax.devices import hosts
from coder_jax.encoding import vector_files
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.encoding.search import search
from coder_jax.encoding.vector_files import (
    JoinedRows,
    RowsOfFile,
    TermLines,
    TermList,
    about_vectors,
    encoder_protocol,
    hash_weights,
    read_vectors,
    unit,
    write_vectors,
)
from coder_jax.models.hf_files import EncoderSettings
from coder_jax.models.hf_weights import random_bert
from data_pipeline import process
from data_pipeline.dataset.tokenizer import load_tokenizer, tokenizer_hash
from data_pipeline.files.whole import _ALIGNMENT, locked
from data_pipeline.process import BadInput

WORDS = ["heart attack", "pain", "", "µ limb", "chronic renal failure", "pain"]
TERMS = TermList([f"{word} {number % 7}" for number, word in enumerate(WORDS * 7)], 8)  # 42 terms


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    return load_tokenizer(folder)


@pytest.fixture(scope="module")
def encoder(tokenizer):
    return TermEncoder(random_bert(TINY, seed=0), tokenizer, EncoderSettings(pooling="mean"))


def about_of(encoder, terms=TERMS, dtype="float32", weights="w"):
    return about_vectors(encoder, "toy", weights, terms, dtype)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def undisturbed(encoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    assert write_vectors(encoder, TERMS, folder / "v.npy", about_of(encoder))
    return files(folder)


def test_row_i_is_term_i(encoder, undisturbed, tmp_path):
    assert undisturbed.keys() == {"v.npy", "v.npy.json"}
    (tmp_path / "v.npy").write_bytes(undisturbed["v.npy"])
    vectors = np.load(tmp_path / "v.npy")
    terms = sum((TERMS.chunk(number) for number in range(TERMS.chunks)), [])
    assert vectors.dtype == np.float32 and vectors.shape == (42, TINY.hidden_size)
    np.testing.assert_allclose(vectors, encoder.encode(terms), rtol=0, atol=1e-5)
    about = json.loads(undisturbed["v.npy.json"])
    assert about["terms"] == {"count": 42, "hash": TERMS.hash, "per_chunk": 8}
    assert about["encoder"]["pooling"] == "mean" and about["encoder"]["model"] == "toy"


def test_float16_and_no_terms(encoder, undisturbed, tmp_path):
    out = tmp_path / "v.npy"
    (tmp_path / "single.npy").write_bytes(undisturbed["v.npy"])
    write_vectors(encoder, TERMS, out, about_of(encoder, dtype="float16"))
    np.testing.assert_array_equal(np.load(out), np.load(tmp_path / "single.npy").astype(np.float16))
    nothing = TermList([], 8)
    write_vectors(encoder, nothing, out, about_of(encoder, nothing))
    assert np.load(out).shape == (0, TINY.hidden_size)


class Killed(BaseException):
    """Nothing in the program catches it."""


def kill_at(monkeypatch, moment: int, before: bool) -> list[str]:
    """Kills the process before or after its `moment`-th change of the disk; returns the changes."""
    changes: list[str] = []

    def watched(name, original):
        def change(*args, **kwargs):
            changes.append(name)
            if len(changes) == moment and before:
                raise Killed
            result = original(*args, **kwargs)
            if len(changes) >= moment:
                raise Killed
            return result

        return change

    for owner, name in (
        *((os, "replace"), (os, "fsync"), (Path, "unlink"), (Path, "mkdir")),
        *((shutil, "rmtree"), (np, "save"), (np.lib.format, "write_array_header_1_0")),
    ):
        monkeypatch.setattr(owner, name, watched(name, getattr(owner, name)))
    return changes


@pytest.mark.slow
@pytest.mark.parametrize(("before", "older"), [(True, False), (False, True)])
def test_killed_at_any_change_of_the_disk(encoder, undisturbed, tmp_path, before, older):
    about = about_of(encoder)
    write_vectors(encoder, TERMS, tmp_path / "older.npy", about_of(encoder, dtype="float16"))
    with pytest.MonkeyPatch.context() as patch:
        changes = kill_at(patch, 10**9, before)
        write_vectors(encoder, TERMS, tmp_path / "v.npy", about)
    assert len(changes) > 30 and {"replace", "fsync", "unlink", "rmtree", "save"} <= set(changes)
    for moment in range(1, len(changes) + 1):
        folder = tmp_path / str(moment)
        folder.mkdir()
        if older:
            shutil.copy(tmp_path / "older.npy", folder / "v.npy")
            shutil.copy(tmp_path / "older.npy.json", folder / "v.npy.json")
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, moment, before)
            with pytest.raises(Killed):
                write_vectors(encoder, TERMS, folder / "v.npy", about)
        if (folder / "v.npy").exists():  # only ever whole
            assert (folder / "v.npy").read_bytes() in (
                undisturbed["v.npy"],
                (tmp_path / "older.npy").read_bytes(),
            )
        write_vectors(encoder, TERMS, folder / "v.npy", about)
        assert files(folder) == undisturbed, (moment, changes[moment - 1])
        assert {path.name for path in folder.iterdir()} == set(undisturbed)


def test_the_encoder_s_thread_ends_with_a_failed_write(encoder, tmp_path, monkeypatch):
    """At once: if the memory of a failure kept it, it could end while another thread begins."""
    begun = []
    encode = encoder.encode_chunks
    monkeypatch.setattr(
        encoder, "encode_chunks", lambda *a, **k: begun.append(encode(*a, **k)) or begun[0]
    )
    monkeypatch.setattr(vector_files, "_save_chunk", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_vectors(encoder, TERMS, tmp_path / "v.npy", about_of(encoder))
    assert begun[0].gi_frame is None


def test_finished_chunks_are_not_made_again(encoder, undisturbed, tmp_path, monkeypatch):
    out = tmp_path / "v.npy"
    asked = []

    def chunks_until(chunks, unit=True, bar=None):
        for number, chunk in enumerate(encode(chunks, bar=bar)):
            yield chunk
            if number == 2:
                raise process.Stopped

    encode = encoder.encode_chunks
    monkeypatch.setattr(encoder, "encode_chunks", chunks_until)
    with pytest.raises(process.Stopped):
        write_vectors(encoder, TERMS, out, about_of(encoder))
    kept = sorted(path.name for path in (tmp_path / "v.npy.partial").glob("0*"))
    assert kept == ["0000000.npy", "0000001.npy", "0000002.npy"]
    whole = TermList.chunk

    def chunk(terms, number):
        asked.append(number)
        return whole(terms, number)

    monkeypatch.setattr(TermList, "chunk", chunk)
    monkeypatch.setattr(encoder, "encode_chunks", encode)
    assert write_vectors(encoder, TERMS, out, about_of(encoder))
    assert asked == [3, 4, 5]
    assert files(tmp_path) == undisturbed
    assert not write_vectors(encoder, TERMS, out, about_of(encoder)), "it is there already"
    assert asked == [3, 4, 5]


def test_it_stops_between_chunks_that_are_joined(encoder, undisturbed, tmp_path, monkeypatch):
    out = tmp_path / "v.npy"
    joined = []

    def poll():
        joined.append((tmp_path / "v.npy.partial" / "joined.npy").exists())
        if sum(joined) == 3:
            raise process.Stopped

    monkeypatch.setattr(process, "poll", poll)
    with pytest.raises(process.Stopped):
        write_vectors(encoder, TERMS, out, about_of(encoder))
    left = sorted(path.name for path in (tmp_path / "v.npy.partial").glob("0*"))
    assert left == ["0000002.npy", "0000003.npy", "0000004.npy", "0000005.npy"]
    with pytest.raises(BadInput, match="v.npy: is not finished; run the `encode`"):
        read_vectors(out, encoder, "w", TERMS)
    write_vectors(encoder, TERMS, out, about_of(encoder))
    assert files(tmp_path) == undisturbed


def test_other_settings_neither_go_on_nor_count_as_there(encoder, tmp_path, monkeypatch):
    out, work = tmp_path / "v.npy", tmp_path / "v.npy.partial"
    write_vectors(encoder, TERMS, out, about_of(encoder))
    assert write_vectors(encoder, TERMS, out, about_of(encoder, dtype="float16")), "replaced"
    assert np.load(out).dtype == np.float16
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, 12, True)
        write_vectors(encoder, TERMS, out, about_of(encoder))
    other = about_of(encoder, weights="x")
    with pytest.raises(
        BadInput,
        match=r"was begun .*\(encoder.weights_hash: 'w' there, 'x' here\); give the s",
    ):
        write_vectors(encoder, TERMS, out, other)
    with (
        locked(work / vector_files._LOCK, "held by the test"),
        pytest.raises(BadInput, match="another process is encoding there; wait for it"),
    ):
        write_vectors(encoder, TERMS, out, about_of(encoder))
    assert np.load(out).dtype == np.float16, "the older file stays until the new one is whole"


def test_hosts_that_encode_something_else_are_refused(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(hosts, "first_decides", lambda own: "cls" if own == "mean" else own)
    with pytest.raises(
        BadInput, match=r"encoded \(encoder pooling\) is 'mean' on host 0, but 'cls' on host 0; st"
    ):
        write_vectors(encoder, TERMS, tmp_path / "v.npy", about_of(encoder))
    assert list(tmp_path.iterdir()) == []


def test_no_room(encoder, tmp_path, monkeypatch):
    free = shutil._ntuple_diskusage(10**6, 10**6, 42 * 32 * 4)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    with pytest.raises(BadInput, match=r"the vectors need 0.00 GB, and 0.00 GB are free; make r"):
        write_vectors(encoder, TERMS, tmp_path / "v.npy", about_of(encoder))
    assert list(tmp_path.iterdir()) == []


def test_vectors_are_read_only_for_what_they_were_made_of(encoder, tokenizer, tmp_path):
    path = tmp_path / "v.npy"
    with pytest.raises(BadInput, match="v.npy: there is no such file; encode the dictionary with"):
        read_vectors(path, encoder, "w", TERMS)
    write_vectors(encoder, TERMS, path, about_of(encoder, dtype="float16"))
    vectors = read_vectors(path, encoder, "w", TERMS)
    assert isinstance(vectors[3:5], np.memmap) and vectors.dtype == np.float16
    np.testing.assert_array_equal(vectors[3:5], np.load(path)[3:5])
    again = TermList(sum((TERMS.chunk(number) for number in range(TERMS.chunks)), []), 5)
    read_vectors(path, encoder, "w", again)  # chunks are nobody's business
    other = TermList([*TERMS.chunk(0), "x"], 3)
    with pytest.raises(BadInput, match=r"terms.count: 42 there, 9 here; terms.hash: \w{12} there"):
        read_vectors(path, encoder, "w", other)
    with pytest.raises(BadInput, match="weights_hash: 'w' there, 'y' here.*coder_jax encode"):
        read_vectors(path, encoder, "y", TERMS)
    cls = TermEncoder(encoder.bert, tokenizer, EncoderSettings(pooling="cls"))
    with pytest.raises(BadInput, match=r"\(encoder.pooling: 'mean' there, 'cls' here\)"):
        read_vectors(path, cls, "w", TERMS)
    raw = about_vectors(encoder, "toy", "w", TERMS, "float32", unit=False)
    write_vectors(encoder, TERMS, tmp_path / "raw.npy", raw)
    with pytest.raises(BadInput, match="vectors.unit: False there, True here"):
        read_vectors(tmp_path / "raw.npy", encoder, "w", TERMS)
    np.save(path, np.zeros((42, 3)))
    with pytest.raises(BadInput, match=r"shape \(42, 3\), not \(42, 32\); encode the dictionary"):
        read_vectors(path, encoder, "w", TERMS)
    (tmp_path / "v.npy.json").write_text("{}")
    with pytest.raises(BadInput, match="v.npy.json has the format None, expected 'coder_jax v"):
        read_vectors(path, encoder, "w", TERMS)
    (tmp_path / "v.npy.json").unlink()
    with pytest.raises(BadInput, match="v.npy.json: there is no such file; encode the dict"):
        read_vectors(path, encoder, "w", TERMS)


# -------------------------------------------------------------------------------------------------
# What vectors are said to be made with: of a real encoder, and the hash of its weights.


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_protocol_of_a_real_encoder(minilm_path, dtype):
    encoder = TermEncoder.from_pretrained(minilm_path, pooling="cls", max_length=24, dtype=dtype)
    assert encoder.bert.dtype == jnp.dtype(dtype)
    assert msgspec.to_builtins(encoder_protocol(encoder, "some/model", "1f")) == {
        **{"model": "some/model", "weights_hash": "1f", "pooling": "cls", "max_length": 24},
        **{"attend_padding": False, "lowercases": True, "cleaning": "none", "dtype": dtype},
        "tokenizer_hash": tokenizer_hash(load_tokenizer(minilm_path)),
    }
    encoder.tokenizer.normalizer = None
    assert not encoder_protocol(encoder, "some/model").lowercases


def test_the_hash_of_weights(tmp_path):
    def sha(*parts):
        return hashlib.sha256(b"".join(parts)).hexdigest()

    assert hash_weights(tmp_path) == sha()
    (tmp_path / "pytorch_model.bin").write_bytes(b"torch")
    (tmp_path / "config.json").write_bytes(b"{}")
    assert hash_weights(tmp_path) == sha(b"torch")
    for number in (2, 1):  # in the order of their names
        (tmp_path / f"model-{number}-of-2.safetensors").write_bytes(bytes([number]))
    assert hash_weights(tmp_path) == sha(b"\1", b"\2"), "safetensors before PyTorch's"


# -------------------------------------------------------------------------------------------------
# Terms in chunks: the lines of a file as they are, one hash however they are read.

TERMS_TERM_LINES = ["pain", "", "µ limb", "a\u2028b", "pain", "x"]
CONTENT = "\ufeffpain\r\n\nµ limb\r\na\u2028b\npain\nx"


def all_chunks(terms):
    return [terms.chunk(number) for number in range(terms.chunks)]


@pytest.mark.parametrize("per_chunk", [1, 2, 4, 6, 100])
@pytest.mark.parametrize("end", ["", "\n"])
def test_lines_and_lists_give_the_same_chunks(per_chunk, end):
    lines = TermLines(io.BytesIO((CONTENT + end).encode()), "terms.txt", per_chunk)
    listed = TermList(TERMS_TERM_LINES, per_chunk)
    assert sum(all_chunks(lines), []) == TERMS_TERM_LINES
    assert all_chunks(lines) == all_chunks(listed)
    assert lines.count == listed.count == 6
    assert lines.hash == listed.hash
    assert (
        lines.hash
        == hashlib.sha256("".join(f"{t}\n" for t in TERMS_TERM_LINES).encode()).hexdigest()
    )


def test_chunks_can_be_read_in_any_order():
    lines = TermLines(io.BytesIO(CONTENT.encode()), "terms.txt", 2)
    assert [lines.chunk(number) for number in (2, 0, 1)] == [
        TERMS_TERM_LINES[4:],
        TERMS_TERM_LINES[:2],
        TERMS_TERM_LINES[2:4],
    ]


def test_no_lines_and_empty_lines():
    assert TermLines(io.BytesIO(b""), "terms.txt", 4).chunks == 0
    assert TermLines(io.BytesIO(b""), "terms.txt", 4).hash == TermList([], 4).hash
    assert all_chunks(TermLines(io.BytesIO(b"\n\n"), "terms.txt", 4)) == [["", ""]]


def test_the_hash_sees_each_term_and_the_order():
    hashes = {
        TermList(terms, 4).hash
        for terms in (
            TERMS_TERM_LINES,
            TERMS_TERM_LINES[::-1],
            TERMS_TERM_LINES[1:],
            [*TERMS_TERM_LINES, ""],
        )
    }
    assert len(hashes) == 4


def test_bytes_that_are_not_utf8_are_found_before_work_begins():
    with pytest.raises(BadInput, match=r"terms.txt:5: found byte 0xe4, which is not UTF-8; conv"):
        TermLines(io.BytesIO(b"a\nb\nc\nd\nl\xe4hmung\nf\n"), "terms.txt", 3)
    for content, message in (
        (b"PK\x03\x04\n", "x: found a zip archive"),
        ("a\nb\n".encode("utf-16-le"), "x:1: found a zero byte; expected text in UTF-8"),
    ):
        with pytest.raises(BadInput, match=message):
            TermLines(io.BytesIO(content), "x", 2)


def test_reading_stops_when_asked(monkeypatch):
    monkeypatch.setattr(process, "_asked", [15])
    with pytest.raises(process.Stopped):
        TermLines(io.BytesIO(b"a\n"), "terms.txt", 3)


# -------------------------------------------------------------------------------------------------
# Vectors as rows: of a file that is let go again, and at unit length.


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
    found, runs, read_whole = RowsOfFile(path), [], vector_files._read_whole

    def watched(file, part):
        runs.append(len(part))
        read_whole(file, part)

    monkeypatch.setattr(vector_files, "_read_whole", watched)
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
        vector_files._read_whole(stream, part)
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
    assert whole.dtype == np.float32 and whole.ctypes.data % _ALIGNMENT == 0
    monkeypatch.setattr(vector_files, "_ROWS_IN_CACHE", 4)
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


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda chunk: chunk[:-1],
            r"0000001.npy holds float32 \(7, 32\); expected float32 \(8, 32",
        ),
        (lambda chunk: np.hstack([chunk, chunk]), r"0000001.npy holds float32 \(8, 64\); expected"),
        (lambda chunk: chunk.astype(np.float64), r"0000001.npy holds float64 \(8, 32\); expected"),
        (lambda chunk: chunk.astype(int), r"0000001.npy: found int64 of shape"),
        (lambda chunk: np.full_like(chunk, np.nan), "0000001.npy has NaN or infinite values"),
        (lambda chunk: None, r"0000001.npy cannot be read \(ValueError: "),
    ],
)
@pytest.mark.parametrize("joined", [0, 1])
def test_a_damaged_chunk_is_not_joined(
    encoder, undisturbed, tmp_path, monkeypatch, damage, message, joined
):
    """It is named, and the same command goes on once it is deleted, joined in part or not."""
    out, work = tmp_path / "v.npy", tmp_path / "v.npy.partial"
    with monkeypatch.context() as patch, pytest.raises(Killed):
        flushed = []

        def flush(file):
            flushed.append(file)
            if len(flushed) > joined:
                raise Killed

        patch.setattr(vector_files, "_flush", flush)
        write_vectors(encoder, TERMS, out, about_of(encoder))
    path = work / "0000001.npy"
    changed = damage(np.load(path))
    path.write_bytes(b"x" * 99) if changed is None else np.save(path, changed)
    for _ in range(2):
        with pytest.raises(BadInput, match=f"{message}.*; delete this file and give the same comm"):
            write_vectors(encoder, TERMS, out, about_of(encoder))
    assert not out.exists()
    path.unlink()
    assert write_vectors(encoder, TERMS, out, about_of(encoder))
    assert files(tmp_path) == undisturbed
