"""The command `encode`: its .npy file, messages, stops and kills, two hosts."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import numpy as np
import pytest
from tiny_bert import write_model, write_tokenizer
from tiny_rrf import write_release

from coder_jax import TermEncoder
from coder_jax.commands import encode
from coder_jax.devices import hosts
from coder_jax.encoding import vector_files
from coder_jax.encoding.vector_files import TermList, hash_weights
from data_pipeline.build_dataset.build import build_dataset
from data_pipeline.build_dataset.options import BuildOptions
from data_pipeline.dataset.dictionary import read_dictionary
from data_pipeline.flags import parsed
from data_pipeline.process import BadInput, Stopped, _stop_when_asked


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("model") / "tiny"
    write_model(folder)
    return folder


def run(*arguments: object) -> int:
    return encode.run(parsed(encode.OPTIONS, [str(argument) for argument in arguments])[0])


def test_row_i_is_line_i(model, tmp_path, capsys):
    (tmp_path / "terms.txt").write_bytes("\ufeffpain\r\n\nµ limb\npain".encode())
    out = tmp_path / "vectors.npy"
    assert run("--model", model, "--out", out, "--pooling", "mean", tmp_path / "terms.txt") == 0
    expected = TermEncoder.from_pretrained(model, "mean").encode(["pain", "", "µ limb", "pain"])
    np.testing.assert_array_equal(np.load(out), expected)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("terms.txt", "vectors.npy", "vectors.npy.json")
    }
    captured = capsys.readouterr()
    assert captured.out == "" and "4 vectors of width 32" in captured.err
    assert "4/4" in captured.err  # the progress bar counts lines


def test_capitals_that_are_made_small_are_told_once(tmp_path, capsys):
    write_model(tmp_path / "model", more=["Heart"])
    (tmp_path / "terms.txt").write_text("Heart\n")
    words = ["--model", tmp_path / "model", "--out", tmp_path / "vectors.npy"]
    assert run(*words, tmp_path / "terms.txt") == 0
    printed = capsys.readouterr().err
    assert printed.count("have capitals") == 1 and "(such as Heart)" in printed


def test_stdin_and_float16(model, tmp_path, monkeypatch):
    stdin = types.SimpleNamespace(buffer=io.BytesIO(b"pain\nlimb\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    out = tmp_path / "vectors.npy"
    run("--model", model, "--out", out, "--storage", "float16")
    saved = np.load(out)
    expected = TermEncoder.from_pretrained(model).encode(["pain", "limb"])
    np.testing.assert_array_equal(saved, expected.astype(np.float16))
    assert {path.name for path in tmp_path.iterdir()} == {"vectors.npy", "vectors.npy.json"}


def test_a_stop_does_not_wait_for_the_end_of_stdin(model, tmp_path, monkeypatch):
    reading, writing = os.pipe()
    with open(reading, "rb") as stdin, open(writing, "wb", buffering=0) as terms:
        monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=stdin))
        terms.write(b"pain\n")
        give_up = threading.Timer(60, terms.close)
        give_up.start()
        with _stop_when_asked("stopping"), pytest.raises(Stopped):
            os.kill(os.getpid(), signal.SIGTERM)
            run("--model", model, "--out", tmp_path / "vectors.npy")
        give_up.cancel()
        assert not terms.closed
    assert list(tmp_path.iterdir()) == []


def test_the_terms_of_a_dictionary(model, tmp_path, capsys):
    (tmp_path / "terms.tsv").write_text("term\tCUI\npain\tC1\nlimb\tC2\npain\tC3\n")
    out = tmp_path / "vectors.npy"
    arguments = ("--model", model, "--out", out, "--dictionary", tmp_path / "terms.tsv")
    run(*arguments)
    expected = TermEncoder.from_pretrained(model).encode(["pain", "limb", "pain"])
    np.testing.assert_array_equal(np.load(out), expected)
    about = json.loads((tmp_path / "vectors.npy.json").read_text())
    assert about["encoder"]["weights_hash"] == hash_weights(model)
    before = out.stat()
    run(*arguments)
    assert out.stat() == before
    assert "3 vectors of width 32, as they were" in capsys.readouterr().err


def test_through_a_link(model, tmp_path):
    """To another disk, say: the link stays, and what leads through it finds the vectors."""
    terms, big, out = tmp_path / "terms.txt", tmp_path / "big disk", tmp_path / "out.npy"
    terms.write_text("pain\nlimb\n")
    big.mkdir()
    out.symlink_to("big disk/vectors.npy")
    run("--model", model, "--out", out, terms)
    assert out.is_symlink() and np.load(out).shape == (2, 32)
    assert {path.name for path in big.iterdir()} == {"vectors.npy", "vectors.npy.json"}
    assert {path.name for path in tmp_path.iterdir()} == {"terms.txt", "big disk", "out.npy"}
    assert vector_files._work_folder(out).parent == big, "what becomes the file is on its disk"
    encoder = TermEncoder.from_pretrained(model)
    listed = TermList(["pain", "limb"], 8)
    read = vector_files.read_vectors(out, encoder, hash_weights(model), listed)
    np.testing.assert_array_equal(read[:], np.load(out))
    before = out.stat()
    run("--model", model, "--out", out, terms)
    assert out.stat() == before, "they are known to be done"


def test_a_link_with_its_description_beside_it(model, tmp_path):
    """As tools that keep data under names of their own link them."""
    terms, out = tmp_path / "terms.txt", tmp_path / "out.npy"
    terms.write_text("pain\nlimb\n")
    run("--model", model, "--out", out, terms)
    for number, name in enumerate(("out.npy", "out.npy.json")):
        (tmp_path / name).rename(tmp_path / f"kept{number}")
        (tmp_path / name).symlink_to(f"kept{number}")
    encoder = TermEncoder.from_pretrained(model)
    listed = TermList(["pain", "limb"], 8)
    assert len(vector_files.read_vectors(out, encoder, hash_weights(model), listed)) == 2


def test_input_that_cannot_be_used(model, tmp_path):
    terms = tmp_path / "terms.txt"
    terms.write_bytes(b"pain\nl\xe4hmung\n")
    with pytest.raises(BadInput, match=r"terms.txt:2: found byte 0xe4, which is not UTF-8"):
        run("--model", model, "--out", tmp_path / "out.npy", terms)
    out = tmp_path / "out.npy"
    with pytest.raises(BadInput, match="out.npz; expected a name that ends in .npy"):
        run("--model", model, "--out", tmp_path / "out.npz", terms)
    with pytest.raises(BadInput, match="there is no folder .*absent; make it first"):
        run("--model", model, "--out", tmp_path / "absent" / "out.npy", terms)
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(BadInput, match="folder.npy is a folder; expected a file, such as .*/vect"):
        run("--model", model, "--out", tmp_path / "folder.npy", terms)
    (tmp_path / "folder.npy").rmdir()
    os.mkfifo(tmp_path / "pipe.npy")
    with pytest.raises(BadInput, match="pipe.npy is a device or a pipe; expected a .npy file"):
        run("--model", model, "--out", tmp_path / "pipe.npy", terms)
    (tmp_path / "pipe.npy").unlink()
    with pytest.raises(BadInput, match="found s3:.*; expected a file on this machine"):
        run("--model", model, "--out", "s3://bucket/vectors.npy", terms)
    with pytest.raises(BadInput, match="absent.txt cannot be read .No such file"):
        run("--model", model, "--out", out, tmp_path / "absent.txt")
    with pytest.raises(BadInput, match="terms.txt and --dictionary; expected one of them"):
        run("--model", model, "--out", out, terms, "--dictionary", terms)
    with pytest.raises(BadInput, match="--dictionary-languages: found 'ENG'; expected --dictio"):
        run("--model", model, "--out", out, terms, "--dictionary-languages", "ENG")
    with pytest.raises(BadInput, match="--terms-per-chunk: found 0; expected 1 or more"):
        run("--model", model, "--out", out, terms, "--terms-per-chunk", "0")
    assert [path.name for path in tmp_path.iterdir()] == ["terms.txt"]


def test_the_terms_of_a_dataset_are_those_that_normalize_looks_among(tmp_path):
    """Strings as the source writes them, of the concepts and languages that are chosen."""
    (tmp_path / "tokenizer").mkdir()
    write_tokenizer(tmp_path / "tokenizer")
    source = write_release(tmp_path / "META")
    data = build_dataset(
        BuildOptions(source=source, out=tmp_path / "data", tokenizer=tmp_path / "tokenizer")
    )
    words = ["--model", "m", "--out", "o.npy", "--dictionary", str(data)]
    words += ["--dictionary-languages", "ENG", "--semantic-types", "T047"]
    with encode._open_terms(parsed(encode.OPTIONS, words)[0]) as (terms, cleaning):
        found = terms.chunk(0)
    assert found == read_dictionary(data, ["ENG"], types=["T047"], raw=True).terms
    assert "Heart disease (disorder)" in found and "Limb pain" not in found


def test_stdin_is_refused_on_several_hosts(model, tmp_path, monkeypatch):
    monkeypatch.setattr(hosts, "host_count", lambda: 2)
    with pytest.raises(BadInput, match="stdin as the terms of several hosts; give a file that"):
        run("--model", model, "--out", tmp_path / "out.npy", "-")


CHUNKS = 500


class Encoding:
    """A process that encodes `terms`; `wait` gives its exit status, `said` its stderr."""

    def __init__(self, model, out: Path, terms: Path, index: int = 0, **environment: str):
        self.index, self.partial = index, out.with_name("vectors.npy.partial")
        self.log = out.with_name(f"log-{index}")
        command = [sys.executable, "-m", "coder_jax", "encode", "--model", model, "--out", out]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*map(str, command), terms, "--terms-per-chunk", "20"],
                cwd=Path(__file__).parents[3],
                stderr=log,
                env=os.environ | environment,
            )

    def wait_for_chunks(self, chunks: int, of_host: int | None = None) -> None:
        end = time.monotonic() + 300
        while self.chunks(of_host) < chunks:
            assert self.process.poll() is None and time.monotonic() < end, self.log.read_text()
            time.sleep(0.002)

    def chunks(self, of_host: int | None = None) -> int:
        """How many are finished, of all or by one of two hosts."""
        numbers = [int(path.stem) for path in self.partial.glob("0*.npy")]
        return sum(of_host in (None, number % 2) for number in numbers)

    def wait(self) -> int:
        return self.process.wait(timeout=300)

    def said(self) -> str:
        text = self.log.read_text()
        self.log.unlink()
        return text


@pytest.fixture(scope="module")
def many(model, tmp_path_factory):
    """A file of terms, and the vectors that one undisturbed process makes of it, as bytes."""
    folder = tmp_path_factory.mktemp("many")
    words = ("heart", "pain", "renal", "limb")
    lines = [f"{words[n % 4]} {n % 977:x}\n" for n in range(20 * CHUNKS - 7)]
    (folder / "terms.txt").write_text("".join(lines))
    encoding = Encoding(model, folder / "vectors.npy", folder / "terms.txt")
    assert encoding.wait() == 0, encoding.said()
    return folder / "terms.txt", (folder / "vectors.npy").read_bytes()


@pytest.mark.slow
def test_killed_and_asked_to_stop_it_goes_on(model, many, tmp_path):
    terms, undisturbed = many
    out = tmp_path / "vectors.npy"
    encoding = Encoding(model, out, terms)
    encoding.wait_for_chunks(30)
    encoding.process.kill()
    encoding.wait()
    kept = encoding.chunks()
    assert 30 <= kept < CHUNKS and not out.exists()

    encoding = Encoding(model, out, terms)
    encoding.wait_for_chunks(kept + 30)
    encoding.process.terminate()
    assert encoding.wait() == 75
    assert "SIGTERM: stopping; finished chunks are kept" in encoding.said()
    assert kept + 30 <= encoding.chunks() < CHUNKS and not out.exists()

    encoding = Encoding(model, out, terms)
    assert (encoding.wait(), "9,993 vectors" in encoding.said()) == (0, True)
    assert out.read_bytes() == undisturbed
    assert {path.name for path in tmp_path.iterdir()} == {"vectors.npy", "vectors.npy.json"}


@pytest.mark.slow
def test_two_hosts_stop_together_and_one_goes_on(model, many, tmp_path):
    terms, undisturbed = many
    out = tmp_path / "vectors.npy"
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    run = {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": "2"}
    pair = [Encoding(model, out, terms, i, **run, JAX_PROCESS_ID=str(i)) for i in (0, 1)]
    for host in pair:
        host.wait_for_chunks(10, host.index)
    pair[1].process.terminate()  # it tells the other
    assert [host.wait() for host in pair] == [75, 75], pair[0].said() + pair[1].said()
    kept = {int(path.stem) for path in pair[0].partial.glob("0*.npy")}
    assert {number % 2 for number in kept} == {0, 1} and len(kept) < CHUNKS
    assert "encoding" in pair[0].said() and "encoding" not in pair[1].said()

    alone = Encoding(model, out, terms)
    assert (alone.wait(), "9,993 vectors" in alone.said()) == (0, True)
    assert out.read_bytes() == undisturbed
    assert {path.name for path in tmp_path.iterdir()} == {"vectors.npy", "vectors.npy.json"}


def test_two_hosts_finish_together(model, tmp_path, monkeypatch):
    """As each of two hosts sees it; barriers are where both must have come."""
    terms, out = tmp_path / "terms.txt", tmp_path / "vectors.npy"
    terms.write_text("pain\nlimb\nheart\nrenal\nacute\n")
    arguments = ("--model", model, "--out", out, "--terms-per-chunk", "1", terms)
    meeting, failed = threading.Barrier(2, timeout=300), []
    index = threading.local()

    def host(number: int) -> None:
        index.value = number
        try:
            run(*arguments)
        except BaseException as error:
            failed.append(error)
            meeting.abort()

    def first_decides(value):
        if index.value == 0:
            meeting.decision = value
        meeting.wait()
        decided = meeting.decision
        meeting.wait()
        return decided

    for name, fake in {
        "host_index": lambda: index.value,
        "host_count": lambda: 2,
        "is_first": lambda: index.value == 0,
        "barrier": lambda name: meeting.wait(),
        "first_decides": first_decides,
    }.items():
        monkeypatch.setattr(hosts, name, fake)
        if hasattr(vector_files, name):
            monkeypatch.setattr(vector_files, name, fake)
    saved, save_chunk = [], vector_files._save_chunk

    def save(path, *arguments):
        saved.append(path.name)
        time.sleep(0.1 * (int(path.stem) % 2))  # the second host is behind
        save_chunk(path, *arguments)

    monkeypatch.setattr(vector_files, "_save_chunk", save)
    threads = [threading.Thread(target=host, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert sorted(saved) == [f"000000{number}.npy" for number in range(5)]  # each by one host
    expected = TermEncoder.from_pretrained(model).encode(terms.read_text().split())
    np.testing.assert_allclose(np.load(out), expected, rtol=0, atol=1e-5)
    left = {"terms.txt", "vectors.npy", "vectors.npy.json"}
    assert {path.name for path in tmp_path.iterdir()} == left
