"""Checkpoints at s3:// addresses, against a real S3 server on this machine."""

import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("s3fs", reason="s3fs is not installed (see requirements-cloud.txt)")
pytest.importorskip("moto", reason="moto is not installed (see requirements-test.txt)")

from orbax.checkpoint._src.serialization import tensorstore_utils
from s3_server import BUCKET, s3_server, use, with_server

from coder_jax.training.checkpoints import _allow_s3, _checkpoint_folder, _s3_or
from data_pipeline.files.buckets import file_sizes, open_bucket
from data_pipeline.process import BadInput


@pytest.fixture(scope="module")
def server():
    with s3_server() as settings:
        yield settings


@pytest.fixture
def unchanged(monkeypatch):
    """Orbax as it is installed, put back after the test."""
    for name in ("_use_gcs_driver", "_normalize_path"):
        monkeypatch.setattr(tensorstore_utils, name, getattr(tensorstore_utils, name))
    gcs = tensorstore_utils.gcs_utils
    monkeypatch.setattr(gcs, "get_kvstore_for_gcs", gcs.get_kvstore_for_gcs)
    return monkeypatch


def start(server, repo, *arguments):
    command = [
        sys.executable,
        str(repo / "tests" / "helpers" / "bucket_checkpoints.py"),
        *map(str, arguments),
    ]
    settings = with_server(server) | {"PYTHONPATH": str(repo)}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=settings
    )


def lines_of(process):
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return output.splitlines()


def steps_with_files(url):
    """Step -> the files that are there of its checkpoint."""
    found = {}
    for name in file_sizes(*open_bucket(f"{url}/checkpoints")):
        step, _, rest = name.partition("/")
        found.setdefault(int(step), set()).add(rest)
    return found


@pytest.mark.slow
def test_checkpoints_are_saved_restored_and_deleted_whole(server, repo, monkeypatch):
    use(monkeypatch, server)
    url = f"{BUCKET}/whole"
    assert lines_of(start(server, repo, url, 4))[0] == "found"
    files = steps_with_files(url)
    assert set(files) == {3, 4}  # of the two before nothing is left, neither arrays nor notes
    assert all("commit_success.txt" in names for names in files.values())
    assert lines_of(start(server, repo, url, 1)) == ["found 3 4", "restored 4", "saved 5"]


@pytest.mark.slow
def test_two_processes_save_and_one_goes_on(server, repo, monkeypatch):
    use(monkeypatch, server)
    url = f"{BUCKET}/several"

    def together():
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        processes = [start(server, repo, url, 2, process, 2, port) for process in (0, 1)]
        return [lines_of(process) for process in processes]

    assert together() == [["found", "saved 1", "saved 2"]] * 2
    assert lines_of(start(server, repo, url, 1)) == ["found 1 2", "restored 2", "saved 3"]
    assert together()[1] == ["found 2 3", "restored 3", "saved 4", "saved 5"]


def kill_and_start_again(server, repo, url, rounds):
    """The newest step after `rounds` processes were killed at random moments."""
    chance, newest = random.Random(0), 0
    for _ in range(rounds):
        process = start(server, repo, url, 1000)
        found = process.stdout.readline().split()[1:]
        assert not newest or int(found[-1]) >= newest  # nothing that was saved is lost
        time.sleep(chance.uniform(0, 2.5))
        process.kill()
        saved = [line.split()[1] for line in process.communicate()[0].splitlines()]
        newest = max([newest, *map(int, found + saved)])
        assert process.returncode == -9
    return newest


@pytest.mark.slow
def test_a_kill_at_any_moment_loses_no_checkpoint(server, repo, monkeypatch):
    use(monkeypatch, server)
    url = f"{BUCKET}/killed"
    newest = kill_and_start_again(server, repo, url, rounds=30)
    lines = lines_of(start(server, repo, url, 1))
    assert newest == 0 or f"restored {lines[0].split()[-1]}" in lines
    assert newest <= int(lines[-1].split()[1]) - 1
    whole = {step for step, names in steps_with_files(url).items() if "commit_success.txt" in names}
    assert whole == set(steps_with_files(url))  # what a killed save left was cleaned up


def test_other_addresses_are_as_before(unchanged):
    def described():
        build = tensorstore_utils.build_kvstore_tspec
        return [build(path) for path in ("gs://bucket/run", "/data/run")]

    before = described()
    _allow_s3()
    _allow_s3()
    assert described() == before
    spec = tensorstore_utils.build_kvstore_tspec("s3://bucket/run/1")["base"]
    assert (spec["driver"], spec["bucket"], spec["path"]) == ("s3", "bucket", "run/1")


def test_end_point_and_region_come_from_the_environment(monkeypatch):
    places = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION")
    for name in (*places, "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    plain = {"driver": "s3", "bucket": "b", "path": "x/y"}
    assert _s3_or(str, "s3://b/x/y") == plain
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store:9000")
    assert _s3_or(str, "s3://b/x/y") == plain | {
        "aws_region": "eu-west-1",
        "endpoint": "http://store:9000",
    }
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://s3:9000")
    assert _s3_or(str, "s3://b/x/y")["endpoint"] == "http://s3:9000"


def test_an_orbax_that_works_otherwise_is_named(unchanged):
    unchanged.delattr(tensorstore_utils, "_normalize_path")
    with pytest.raises(BadInput, match=r"orbax-checkpoint \d.*_normalize_path.*constraints\.txt"):
        _allow_s3()


def test_a_folder_of_this_machine_stays_one(tmp_path):
    assert _checkpoint_folder(tmp_path) == Path(tmp_path / "checkpoints").resolve()
