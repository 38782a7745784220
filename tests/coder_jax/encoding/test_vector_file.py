"""Vectors written in chunks: the same bytes however often the work is cut off, and by whom."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_bert import TINY, write_tokenizer

from coder_jax.devices import agree
from coder_jax.encoding import vector_file
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.encoding.encoder_protocol import about_vectors
from coder_jax.encoding.term_lines import TermList
from coder_jax.encoding.vector_file import read_vectors, write_vectors
from coder_jax.models.encoder_settings import EncoderSettings
from coder_jax.models.hf_weights import random_bert
from data_pipeline.dataset.tokenize_terms import load_tokenizer
from data_pipeline.files.file_lock import locked
from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput

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


def test_finished_chunks_are_not_made_again(encoder, undisturbed, tmp_path, monkeypatch):
    out = tmp_path / "v.npy"
    asked = []

    def chunks_until(chunks, unit=True, bar=None):
        for number, chunk in enumerate(encode(chunks, bar=bar)):
            yield chunk
            if number == 2:
                raise stopping.Stopped

    encode = encoder.encode_chunks
    monkeypatch.setattr(encoder, "encode_chunks", chunks_until)
    with pytest.raises(stopping.Stopped):
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
            raise stopping.Stopped

    monkeypatch.setattr(stopping, "poll", poll)
    with pytest.raises(stopping.Stopped):
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
        locked(work / vector_file.LOCK, "held by the test"),
        pytest.raises(BadInput, match="another process is encoding there; wait for it"),
    ):
        write_vectors(encoder, TERMS, out, about_of(encoder))
    assert np.load(out).dtype == np.float16, "the older file stays until the new one is whole"


def test_hosts_that_encode_something_else_are_refused(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(agree, "first_decides", lambda own: "cls" if own == "mean" else own)
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
