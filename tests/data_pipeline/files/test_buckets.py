"""Folders in buckets, against a real S3 server on this machine."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("s3fs", reason="s3fs is not installed (see requirements-cloud.txt)")
pytest.importorskip("moto", reason="moto is not installed (see requirements-test.txt)")

from s3_server import BUCKET, with_server

from data_pipeline.files import buckets
from data_pipeline.files.buckets import (
    _fetch_folder,
    address,
    file_sizes,
    in_bucket,
    local_folder,
    move_folder,
    open_bucket,
    publish_folder,
)
from data_pipeline.process import BadInput

MARK = "manifest.json"


pytestmark = pytest.mark.usefixtures("in_bucket")


@pytest.fixture
def url(request):
    return f"{BUCKET}/{request.node.name}/names"


@pytest.fixture
def folder(tmp_path):
    """Some files, one of them empty, one in a folder of its own."""
    made = tmp_path / "made"
    (made / "tokenizer").mkdir(parents=True)
    (made / "tokenizer" / "vocab.txt").write_text("[PAD]\n")
    (made / "empty").write_bytes(b"")
    (made / "terms").write_bytes(os.urandom(3_000_000))
    (made / MARK).write_text('{"content_hash": 1}\n')
    return made


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def names_at(url: str) -> set[str]:
    return set(file_sizes(*open_bucket(url)))


@pytest.mark.parametrize("text", ["s3://b/x", "gs://b/x/y", "s3:/b/x", Path("gs://b/x/y")])
def test_addresses_of_buckets(text):
    assert in_bucket(text)
    assert address(text) in ("s3://b/x", "gs://b/x/y")


@pytest.mark.parametrize("text", ["out/run", "/s3/x", "s3", "s3:", "hf://x/y", Path("gs")])
def test_other_paths_are_on_this_machine(text):
    assert not in_bucket(text)
    assert local_folder(text, MARK) == Path(text)


def test_what_was_published_comes_back(folder, url):
    (folder / "large").write_bytes(os.urandom(60_000_000))  # more than one part of a transfer
    publish_folder(folder, url, MARK)
    fetched = local_folder(url + "/", MARK)
    assert contents(fetched) == contents(folder)
    assert [entry.name for entry in fetched.parent.glob("*.partial")] == []


def test_a_folder_is_fetched_once(folder, url, monkeypatch):
    publish_folder(folder, url, MARK)
    first = _fetch_folder(url, MARK)
    monkeypatch.setattr(buckets, "_download", lambda *_: pytest.fail("fetched again"))
    assert _fetch_folder(Path(url), MARK) == first


def test_another_content_at_the_same_address_is_another_copy(folder, url):
    publish_folder(folder, url, MARK)
    first = _fetch_folder(url, MARK)
    (folder / MARK).write_text('{"content_hash": 2}\n')
    (folder / "terms").rename(folder / "more_terms")
    publish_folder(folder, url, MARK, overwrite=True)
    second = _fetch_folder(url, MARK)
    assert second != first
    assert contents(second) == contents(folder)
    assert names_at(url) == set(contents(folder))  # nothing is left of the first


def test_a_fetch_goes_on_with_the_files_that_it_has(folder, url, monkeypatch):
    publish_folder(folder, url, MARK)
    files, _ = open_bucket(url)
    fetched, get = [], files.get_file

    def get_all_but_vocabulary(name, to):
        fetched.append(name)
        if name.endswith("vocab.txt"):
            raise OSError("connection lost")
        get(name, to)

    monkeypatch.setattr(files, "get_file", get_all_but_vocabulary)
    with pytest.raises(BadInput, match=r"cannot be read .*connection lost.*credentials"):
        _fetch_folder(url, MARK)
    monkeypatch.setattr(files, "get_file", lambda name, to: (fetched.append(name), get(name, to)))
    assert contents(_fetch_folder(url, MARK)) == contents(folder)
    counts = {Path(name).name: fetched.count(name) for name in fetched}
    assert counts["vocab.txt"] == 2
    assert counts["terms"] == 1 or counts["empty"] == 1  # what had come when the connection broke


def test_a_file_that_comes_cut_off_is_no_part_of_the_copy(folder, url, monkeypatch):
    publish_folder(folder, url, MARK)
    files, _ = open_bucket(url)
    get = files.get_file

    def cut_off(name, to):
        get(name, to)
        if name.endswith("terms"):
            os.truncate(to, 1000)

    monkeypatch.setattr(files, "get_file", cut_off)
    with pytest.raises(BadInput, match="terms came with 1,000 of 3,000,000 bytes"):
        _fetch_folder(url, MARK)
    monkeypatch.undo()


@pytest.mark.slow
def test_processes_of_a_host_fetch_once(folder, url, server, tmp_path):
    publish_folder(folder, url, MARK)
    code = (
        "import sys; from data_pipeline.files.buckets import _fetch_folder; "
        "print(_fetch_folder(sys.argv[1], sys.argv[2]))"
    )
    start = [sys.executable, "-c", code, url, MARK]
    settings = with_server(server) | {"CODER_JAX_CACHE": str(tmp_path / "shared")}
    processes = [
        subprocess.Popen(
            start, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=settings
        )
        for _ in range(3)
    ]
    said = [process.communicate(timeout=300) for process in processes]
    outputs = [out.splitlines() for out, _ in said]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len({lines[-1] for lines in outputs}) == 1
    assert sum("fetching 4 files" in error for _, error in said) == 1, said
    assert contents(Path(outputs[0][-1])) == contents(folder)


def test_a_publishing_that_was_killed_is_not_whole_and_can_be_repeated(folder, url, server):
    for number in range(20):
        (folder / f"part-{number}").write_bytes(os.urandom(1_000_000))
    code = (
        "import sys, time; from pathlib import Path; from data_pipeline.files import buckets\n"
        "files = buckets.open_bucket(sys.argv[2])[0]; put = files.put_file\n"
        "def put_all_but_mark(file, to):\n"
        "    time.sleep(600 if to.endswith(sys.argv[3]) else 0); put(file, to)\n"
        "files.put_file = put_all_but_mark\n"
        "buckets.publish_folder(Path(sys.argv[1]), *sys.argv[2:])"
    )
    start = [sys.executable, "-c", code, str(folder), url, MARK]
    process = subprocess.Popen(start, env=with_server(server))
    while not names_at(url):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert MARK not in names_at(url)
    with pytest.raises(BadInput, match=rf"has no {MARK}; expected a folder .* published whole"):
        _fetch_folder(url, MARK)
    publish_folder(folder, url, MARK)
    assert contents(_fetch_folder(url, MARK)) == contents(folder)


def test_a_folder_is_moved_with_all_below_it(folder, url):
    publish_folder(folder, url, MARK)
    move_folder(url, f"{url}-aside")
    assert names_at(url) == set()
    assert contents(_fetch_folder(f"{url}-aside", MARK)) == contents(folder)


def test_what_is_there_is_not_overwritten(folder, url):
    publish_folder(folder, url, MARK)
    with pytest.raises(BadInput, match=r"is not empty .*--overwrite"):
        publish_folder(folder, url, MARK)


def test_files_of_others_are_left_alone(folder, url):
    files, root = open_bucket(url)
    files.pipe_file(f"{root}/thesis.tex", b"my only copy")
    with pytest.raises(BadInput, match=r"is not empty \(it has thesis.tex\)"):
        publish_folder(folder, url, MARK)
    assert names_at(url) == {"thesis.tex"}


@pytest.mark.parametrize("absent", ["s3://bucket/nothing/here", "s3://no-such-bucket/names"])
def test_a_folder_that_is_not_there(absent):
    with pytest.raises(BadInput, match=r"has no manifest\.json|cannot be read"):
        _fetch_folder(absent, MARK)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(BadInput, match=r"needs the package gcsfs.*requirements-cloud\.txt"):
        _fetch_folder("gs://bucket/names", MARK)


def test_a_disk_that_is_too_small_is_said_before(folder, url, monkeypatch):
    publish_folder(folder, url, MARK)
    usage = type("Usage", (), {"free": 1_000_000})
    monkeypatch.setattr(buckets.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(BadInput, match=r"0.0 GB left, but 0.0 GB are to be fetched.*CODER_JAX_CA"):
        _fetch_folder(url, MARK)
