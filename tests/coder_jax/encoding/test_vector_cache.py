"""Kept vectors: encoded once, of equal bits, and never those of anything else."""

import errno
import gc
import json
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tiny_bert import write_model

from coder_jax import TermEncoder
from coder_jax.encoding import encoder as encoded_dictionary
from coder_jax.encoding import vector_files
from coder_jax.encoding.encoder import _vectors_in_chunks
from coder_jax.encoding.vector_files import cached_vectors
from data_pipeline import process
from data_pipeline.files.whole import newest_lock
from data_pipeline.process import BadInput
from data_pipeline.terminology import cleaning

WORDS = ["heart attack", "Pain (left)", "µ limb", "chronic renal failure"]
TERMS = [f"{word} {number}" for number, word in enumerate(WORDS * 5)]  # 20 terms
VECTORS, CHECKSUM = "vectors.npy", "checksum.json"


@pytest.fixture
def encoder(tiny_folder):
    return TermEncoder.from_pretrained(tiny_folder, "mean")


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    """Three terms are many, and six a chunk; the folder of kept vectors."""
    monkeypatch.setenv("CODER_JAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(vector_files, "LEAST_TERMS", 3)
    for module in (vector_files, encoded_dictionary):
        monkeypatch.setattr(module, "TERMS_PER_CHUNK", 6)
    return tmp_path / "cache" / "vectors"


@pytest.fixture
def encoded(monkeypatch):
    """The chunks that are encoded, one after the other."""
    chunks = []
    encode_chunks = TermEncoder.encode_chunks

    def counted(self, given, **options):
        def noted():
            for chunk in given:
                chunks.append(chunk)
                yield chunk

        return encode_chunks(self, noted(), **options)

    monkeypatch.setattr(TermEncoder, "encode_chunks", counted)
    return chunks


def folders(kept):
    return sorted(path.name for path in kept.iterdir() if path.is_dir())


def only_folder(kept):
    (name,) = folders(kept)
    return kept / name


def test_encoded_once_with_the_bits_of_those_that_are_not_kept(encoder, encoded, kept, capsys):
    first = cached_vectors(encoder, TERMS, progress=True)
    folder = only_folder(kept)
    said = f"vectors of 20 terms: kept in the cache {folder} for the next time\n"
    assert said in capsys.readouterr().err
    assert len(encoded) == 4
    again = cached_vectors(encoder, tuple(TERMS), progress=True)
    assert len(encoded) == 4, "nothing is encoded again"
    assert capsys.readouterr().err == (
        f"vectors of 20 terms: read from the cache {folder} (--no-cache makes them anew)\n"
    )
    apart = _vectors_in_chunks(encoder, TERMS, unit=True, progress=False)
    for vectors in (first, again):
        assert vectors.shape == (20, 32)
        np.testing.assert_array_equal(np.asarray(vectors), apart)
    np.testing.assert_allclose(apart, encoder.encode(TERMS), atol=1e-5)
    cached_vectors(encoder, TERMS)
    assert capsys.readouterr().err == "", "without progress nothing is said"


def test_a_dictionary_and_its_mentions_use_them(encoder, encoded, kept):
    concepts = [f"C{number}" for number in range(20)]
    first = encoder.normalize(TERMS[:2], (TERMS, concepts), 2)
    assert len(encoded) == 4 and [matches[0].concept for matches in first] == ["C0", "C1"]
    assert encoder.normalize(TERMS[:2], dict(zip(TERMS, concepts, strict=True)), 2) == first
    assert len(encoded) == 4
    without = encoder.encode_dictionary((TERMS, concepts), cache=False)
    assert len(encoded) == 8
    assert encoder.normalize(TERMS[:2], without, 2) == first


@pytest.mark.slow
def test_of_anything_else_they_are_others(encoder, tiny_folder, kept, tmp_path, monkeypatch):
    """Settings, arithmetic, terms and their order, what cleaning makes of them, weights, config."""

    def opened(folder=tiny_folder, pooling="mean", **settings):
        return TermEncoder.from_pretrained(folder, pooling, **settings)

    weights = shutil.copytree(tiny_folder, tmp_path / "weights")
    write_model(weights, seed=1)
    tokenizer = shutil.copytree(tiny_folder, tmp_path / "tokenizer")
    (tokenizer / "vocab.txt").write_text(
        (tokenizer / "vocab.txt").read_text().replace("acute\nheart", "heart\nacute")
    )
    config = shutil.copytree(tiny_folder, tmp_path / "config")
    saved = json.loads((config / "config.json").read_text())
    (config / "config.json").write_text(json.dumps(saved | {"layer_norm_eps": 1e-3}))
    few = TERMS[:4]
    cases = [
        (encoder, few),
        (encoder, few[::-1]),
        (encoder, few[1:]),
        (opened(pooling="cls"), few),
        (opened(max_length=20), few),
        (opened(attend_padding=True), few),
        (opened(cleaning="paper"), few),
        (opened(dtype="bfloat16"), few),
        *((opened(folder), few) for folder in (weights, tokenizer, config)),
    ]
    for number, (one, terms) in enumerate(cases, start=1):
        cached_vectors(one, terms)
        assert len(folders(kept)) == number, f"case {number} took the vectors of another"
    copied = shutil.copytree(tiny_folder, tmp_path / "copied")
    cached_vectors(opened(copied), few)
    assert len(folders(kept)) == len(cases), "the same weights elsewhere have the same vectors"
    others = cleaning.CLEANING | {"paper": lambda terms: terms.str.to_lowercase()}
    monkeypatch.setattr(cleaning, "CLEANING", others)
    cached_vectors(opened(cleaning="paper"), few)
    assert len(folders(kept)) == len(cases) + 1, "other rules of the same name"


def test_what_was_stopped_goes_on(encoder, encoded, monkeypatch):
    save_chunk = vector_files._save_chunk

    def stop_at_the_third(path, vectors, dtype):
        if path.stem.endswith("2"):
            raise process.Stopped
        save_chunk(path, vectors, dtype)

    with monkeypatch.context() as patch, pytest.raises(process.Stopped):
        patch.setattr(vector_files, "_save_chunk", stop_at_the_third)
        cached_vectors(encoder, TERMS)
    encoded.clear()
    vectors = cached_vectors(encoder, TERMS)
    assert encoded == [TERMS[12:18], TERMS[18:]]
    np.testing.assert_array_equal(
        vectors, _vectors_in_chunks(encoder, TERMS, unit=True, progress=False)
    )


def flip(path):
    content = bytearray(path.read_bytes())
    content[-7] ^= 4
    path.write_bytes(content)


DAMAGE = {
    "a bit": lambda folder: flip(folder / VECTORS),
    "cut off": lambda folder: os.truncate(folder / VECTORS, 700),
    "gone": lambda folder: (folder / VECTORS).unlink(),
    "no JSON": lambda folder: (folder / f"{VECTORS}.json").write_text("{"),
    "no JSON of the sum": lambda folder: (folder / CHECKSUM).write_text("[]"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_ones_are_noticed_and_made_anew(encoder, encoded, kept, capsys, damage):
    whole = np.array(cached_vectors(encoder, TERMS))
    damage(only_folder(kept))
    encoded.clear()
    np.testing.assert_array_equal(cached_vectors(encoder, TERMS), whole)
    assert len(encoded) == 4
    assert f"{only_folder(kept)}: its vectors are damaged; they are made anew" in (
        capsys.readouterr().err
    )
    np.testing.assert_array_equal(cached_vectors(encoder, TERMS), whole)
    assert len(encoded) == 4, "whole again"


@pytest.mark.parametrize("file", ["about.json", "0000000.npy"])
def test_damage_of_what_was_begun(encoder, kept, monkeypatch, file):
    with monkeypatch.context() as patch, pytest.raises(process.Stopped):
        patch.setattr(vector_files, "_join", lambda *_: (_ for _ in ()).throw(process.Stopped))
        cached_vectors(encoder, TERMS)
    begun = only_folder(kept) / f"{VECTORS}.partial" / file
    assert begun.stat().st_size > 100
    os.truncate(begun, 60)
    vectors = cached_vectors(encoder, TERMS)
    np.testing.assert_array_equal(
        vectors, _vectors_in_chunks(encoder, TERMS, unit=True, progress=False)
    )


def test_killed_before_the_sum_was_written(encoder, encoded, kept):
    cached_vectors(encoder, TERMS)
    (only_folder(kept) / CHECKSUM).unlink()
    encoded.clear()
    assert cached_vectors(encoder, TERMS) is not None and encoded == []
    assert (only_folder(kept) / CHECKSUM).exists()


def test_of_two_one_encodes_and_the_other_waits(encoder, encoded, monkeypatch, capsys):
    monkeypatch.setattr(vector_files, "_CACHE_POLL_SECONDS", 0.01)
    waits = threading.Event()
    tell = vector_files.tell

    def told(text):
        tell(text)
        if "waiting" in text:
            waits.set()

    save_chunk = vector_files._save_chunk

    def slow(*args):
        assert waits.wait(20), "the other one does not wait"
        save_chunk(*args)

    monkeypatch.setattr(vector_files, "tell", told)
    monkeypatch.setattr(vector_files, "_save_chunk", slow)
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(cached_vectors, encoder, TERMS) for _ in range(2)]
        found = [np.asarray(one.result()) for one in both]
    assert len(encoded) == 4
    np.testing.assert_array_equal(*found)
    line = "vectors of 20 terms: another process is encoding them; waiting for it\n"
    assert capsys.readouterr().err.count(line) == 1


@pytest.mark.parametrize("moment", ["the folder", "a chunk"])
def test_without_a_place_for_them_nothing_is_kept(
    encoder, kept, tmp_path, monkeypatch, capsys, moment
):
    if moment == "the folder":
        (tmp_path / "cache").write_text("no folder")
        problem = "Not a directory"
    else:
        problem = os.strerror(errno.ENOSPC)

        def full(*_):
            raise OSError(errno.ENOSPC, problem)

        monkeypatch.setattr(vector_files, "_save_chunk", full)
    concepts = ["C"] * 20
    dictionary = encoder.encode_dictionary((TERMS, concepts))
    assert isinstance(dictionary.vectors, np.ndarray)
    err = capsys.readouterr().err
    assert err == f"vectors of 20 terms: not kept in {kept} ({problem})\n"
    if moment == "a chunk":
        left = [path.name for path in only_folder(kept).iterdir()]
        assert left == ["lock"], "what would fill the disk is not left there"


def age(kept, terms_of, days):
    for path in kept.iterdir():
        if path.name == terms_of:
            os.utime(path, (os.stat(path).st_mtime - 86400 * days,) * 2)


def test_the_least_recently_used_go(encoder, kept, monkeypatch):
    """Each list takes 2.6 KB when done, and must have room for 3.3 KB at first."""
    lists = [[f"{term} of {one}" for term in TERMS] for one in "abcd"]
    names = []
    for terms in lists[:3]:
        cached_vectors(encoder, terms)
        (name,) = set(folders(kept)) - set(names)
        names.append(name)
        age(kept, name, 10 - len(names))
    gc.collect()
    cached_vectors(encoder, lists[0])  # used again: the second is the oldest now
    size = vector_files._size_of(kept / names[0])
    assert 20 * 32 * 4 < size < 5000
    monkeypatch.setenv("CODER_JAX_CACHE_GB", str((2 * size + 26 * 32 * 4) / 1e9))
    cached_vectors(encoder, lists[3])
    assert set(names) - set(folders(kept)) == {names[1]} and len(folders(kept)) == 3
    locks = {path.name for path in kept.iterdir() if path.is_file()}
    assert locks == {f"{name}.used" for name in folders(kept)} | {"room.lock"}


def test_what_is_in_use_is_not_removed(encoder, kept, monkeypatch, capsys):
    in_use = cached_vectors(encoder, TERMS)
    monkeypatch.setenv("CODER_JAX_CACHE_GB", "0.000004")
    other = [f"other {term}" for term in TERMS]
    assert cached_vectors(encoder, other) is None
    assert "20 terms: not kept in" in (said := capsys.readouterr().err)
    assert "CODER_JAX_CACHE_GB leaves 0.00 GB)" in said
    assert np.isfinite(in_use[:]).all()
    (whole,) = kept.rglob(CHECKSUM)
    with newest_lock(vector_files._used_by(whole.parent), shared=True):
        del in_use
        gc.collect()
        assert cached_vectors(encoder, other) is None, "another process uses it"
    assert cached_vectors(encoder, other) is not None, "nobody does"
    assert len(list(kept.rglob(CHECKSUM))) == 1


@pytest.mark.parametrize("size", ["many", "-1", "nan"])
def test_a_limit_that_is_no_size(encoder, monkeypatch, size):
    monkeypatch.setenv("CODER_JAX_CACHE_GB", size)
    with pytest.raises(BadInput, match=f"CODER_JAX_CACHE_GB is '{size}'; expected gigabytes"):
        cached_vectors(encoder, TERMS)


def test_what_a_run_has_learnt_is_told_by_its_parameters(encoder, tiny_folder, kept, tmp_path):
    """Kept of what was made in memory, too, if it is said to be a run's; others have no file."""
    write_model(tmp_path / "trained", seed=1)
    trained = TermEncoder.from_pretrained(tmp_path / "trained", "mean")

    def in_memory(one):
        return TermEncoder(one.bert, one.tokenizer, one.settings)

    assert cached_vectors(in_memory(encoder), TERMS) is None
    first = np.asarray(cached_vectors(in_memory(encoder), TERMS, of_run=True))
    np.testing.assert_array_equal(first, cached_vectors(in_memory(encoder), TERMS, of_run=True))
    assert len(folders(kept)) == 1
    later = np.asarray(cached_vectors(in_memory(trained), TERMS, of_run=True))
    assert len(folders(kept)) == 2 and np.abs(later - first).max() > 0.1, "it was trained on"
    np.testing.assert_array_equal(later, cached_vectors(trained, TERMS))


def test_of_whatever_length_they_are_others(encoder, kept):
    unit = np.asarray(cached_vectors(encoder, TERMS))
    raw = np.asarray(cached_vectors(encoder, TERMS, unit=False))
    assert len(folders(kept)) == 2
    np.testing.assert_array_equal(
        raw, _vectors_in_chunks(encoder, TERMS, unit=False, progress=False)
    )
    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    assert np.abs(lengths - 1).min() > 0.1
    np.testing.assert_allclose(raw / lengths, unit, atol=1e-6)


def test_what_is_not_kept(encoder, kept, monkeypatch):
    in_memory = TermEncoder(encoder.bert, encoder.tokenizer, encoder.settings)
    assert cached_vectors(in_memory, TERMS) is None, "its weights have no file"
    assert cached_vectors(encoder, TERMS[:2]) is None, "too few"
    monkeypatch.setenv("CODER_JAX_CACHE_GB", "0")
    assert cached_vectors(encoder, TERMS) is None
    assert not kept.exists()
