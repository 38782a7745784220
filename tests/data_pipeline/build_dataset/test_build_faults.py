"""Builds that are really killed, stopped, or fed by a failing disk: nothing is lost or broken."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny_bert
from tiny_rrf import tiny_files, write_release

from benchmarks.synthetic_release import _Size
from benchmarks.synthetic_release import _write_release as write_synthetic
from data_pipeline.build_dataset.build import build_dataset
from data_pipeline.build_dataset.options import BuildOptions
from data_pipeline.dataset.store import open_dataset
from data_pipeline.process import TRY_AGAIN, BadInput, Stopped, _stop_when_asked
from data_pipeline.sources.rrf import _check_lines, read_rrf

SIZE = _Size(concepts=24_000, terms=70_000, relations=100_000)
SHARDS = 20


class Build:
    """A build in a process of its own, which takes some seconds once Python has started."""

    def __init__(self, folder: Path, repo: Path):
        model = folder / "model"
        if not model.exists():
            model.mkdir()
            tiny_bert.write_tokenizer(model)
            write_synthetic(folder / "META", SIZE)
        self.out, self.repo = folder / "out", repo
        self.command = [
            sys.executable, "-m", "data_pipeline.build", "--source", str(folder / "META"),
            "--out", str(self.out), "--tokenizer", str(model), "--shards", str(SHARDS),
        ]  # fmt: skip

    def start(self, *more: str) -> subprocess.Popen:
        return subprocess.Popen(
            [*self.command, *more], cwd=self.repo, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip

    def finished_shards(self) -> list[Path]:
        return list(self.out.parent.glob(".out.building-*/*.tfrecord-*.json"))

    def wait_for_shards(self, process: subprocess.Popen, count: int) -> None:
        while len(self.finished_shards()) < count:
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.002)

    @staticmethod
    def end(process: subprocess.Popen) -> None:
        """Waits for a build that comes through."""
        said = process.communicate(timeout=180)[1]
        assert process.returncode == 0, said

    def content_hash(self) -> str:
        return json.loads((self.out / "manifest.json").read_text())["content_hash"]

    def left(self) -> list[str]:
        return sorted(path.name for path in self.out.parent.iterdir())


@pytest.fixture
def build(tmp_path, repo) -> Build:
    return Build(tmp_path, repo)


@pytest.fixture(scope="module")
def content_hash(tmp_path_factory, repo) -> str:
    """Of the same build, undisturbed."""
    build = Build(tmp_path_factory.mktemp("straight"), repo)
    build.end(build.start())
    return build.content_hash()


@pytest.mark.slow
def test_sigterm_keeps_the_finished_shards(build, content_hash):
    process = build.start()
    build.wait_for_shards(process, 2)
    os.kill(process.pid, signal.SIGTERM)
    said = process.communicate(timeout=300)[1]
    assert process.returncode == TRY_AGAIN
    assert "SIGTERM: stopping soon; the same command goes on" in said and "Traceback" not in said
    finished = len(build.finished_shards())
    assert 2 <= finished < SHARDS and not build.out.exists()
    process = build.start()
    build.wait_for_shards(process, finished)
    build.end(process)
    assert build.content_hash() == content_hash
    assert build.left() == ["META", "model", "out"]


@pytest.mark.slow
def test_kill_9_at_random_moments(build, content_hash):
    """Kills until the build has come through: at the start, in shards, and in the last renaming."""
    random.seed(3)
    kills = 0
    while True:
        process = build.start()
        shards = len(build.finished_shards())
        if kills == 0:
            time.sleep(random.uniform(0, 5))  # while it imports or reads
        elif shards + 7 <= SHARDS:
            build.wait_for_shards(process, shards + random.randint(1, 7))
            time.sleep(random.uniform(0, 0.05))
        else:
            break
        process.kill()
        process.communicate()
        kills += 1
        assert not build.out.exists()
    build.end(process)
    assert kills >= 3
    assert build.content_hash() == content_hash
    assert open_dataset(build.out).manifest.counts.concepts > 20_000
    assert build.left() == ["META", "model", "out"]


# What is done last, in this order; a process can be killed before or after each.
LAST_STEPS = ("write_metadata", "manifest", "move old away", "rename", "tidy up")
KILL_IN_FINISH = """
import os, shutil, signal, sys
from data_pipeline.build_dataset import __main__ as build
from data_pipeline.dataset import write as write_dataset

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

step = sys.argv.pop(1)
if step == "write_metadata":
    write_dataset.tfds.folder_dataset.write_metadata = die
elif step == "manifest":
    write_dataset.write_identity = die
elif step in ("move old away", "rename"):
    # Moving it to where the old one is fails first; then the old one moves away.
    tries = {"out": 2 if step == "rename" else 9, ".out.old": 1 if step == "move old away" else 9}

    def replace(old, new, real=os.replace):
        name = os.path.basename(new)
        tries[name] = tries.get(name, 9) - 1
        return die() if not tries[name] else real(old, new)

    os.replace = replace
else:
    shutil.rmtree = die
sys.exit(build.main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("step", LAST_STEPS)
def test_kill_9_in_the_last_steps(build, content_hash, step):
    """An older dataset gives way only to a whole one, and a second run mends what is half done."""
    tiny = write_release(build.out.parent / "tiny")
    build_dataset(BuildOptions(source=tiny, out=build.out, tokenizer=build.out.parent / "model"))
    shutil.rmtree(tiny)
    arguments = build.command[3:] + ["--overwrite"]
    done = subprocess.run(
        [sys.executable, "-c", KILL_IN_FINISH, step, *arguments],
        cwd=build.repo, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    if step in LAST_STEPS[:3]:  # the old one is still there
        assert open_dataset(build.out).manifest.counts.concepts == 4
    if step == "rename":  # nor is it lost: whoever looks gives it its name again
        assert not build.out.exists()
        assert open_dataset(build.out).manifest.counts.concepts == 4
    build.end(build.start("--overwrite"))
    assert build.content_hash() == content_hash
    assert build.left() == ["META", "model", "out"]
    assert not list(build.out.glob("*.json.*")) and not list(build.out.glob("*tfrecord-*.json"))


@pytest.mark.slow
def test_a_shard_that_a_power_cut_made_shorter_is_written_again(build, content_hash):
    process = build.start()
    build.wait_for_shards(process, 3)
    process.kill()
    process.communicate()
    described = sorted(build.finished_shards())[0]
    shard = described.with_name(described.name.removesuffix(".json"))
    shard.write_bytes(shard.read_bytes()[:-100])
    build.end(build.start())
    assert build.content_hash() == content_hash and open_dataset(build.out).heads.size


def test_asked_to_stop_while_reading(tmp_path):
    """Nothing is kept of a build that was stopped before its first shard."""
    (tmp_path / "model").mkdir()
    tiny_bert.write_tokenizer(tmp_path / "model")
    source, out = write_release(tmp_path / "META"), tmp_path / "out"
    options = BuildOptions(source=source, out=out, tokenizer=tmp_path / "model")
    with _stop_when_asked("stopping"):
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Stopped):
            _check_lines(source / "MRSTY.RRF", "MRSTY")
        with pytest.raises(Stopped):
            build_dataset(options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["META", "model"]


no_failing_file = pytest.mark.skipif(
    not os.path.exists("/proc/self/mem"), reason="no file that cannot be read on this system"
)


@no_failing_file
def test_a_failing_disk_is_named(tmp_path):
    """The first bytes of a process's memory are not there: reading them is an I/O error."""
    folder = write_release(tmp_path / "META", MRREL=None)
    (folder / "MRREL.RRF").symlink_to("/proc/self/mem")
    with pytest.raises(BadInput) as error:
        read_rrf(folder, tmp_path / "scratch")
    assert f"{folder / 'MRREL.RRF'} cannot be read: [Errno 5] Input/output error" in str(
        error.value
    )
    assert "give the same command again" in str(error.value)


@no_failing_file
def test_a_failing_disk_while_unpacking(tmp_path):
    folder = write_release(tmp_path / "META", MRREL=None)
    (folder / "MRREL.RRF.gz").symlink_to("/proc/self/mem")
    with pytest.raises(BadInput, match="MRREL.RRF.gz cannot be read: .*Input/output error"):
        read_rrf(folder, tmp_path / "scratch")


def test_a_file_that_grows_shorter_while_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "MRSTY.RRF"
    path.write_text(tiny_files()["MRSTY.RRF"])
    monkeypatch.setattr("os.path.getsize", lambda _: 9_999)
    with pytest.raises(BadInput, match=r"MRSTY.RRF: \d+ bytes could be read, expected 9,999"):
        _check_lines(path, "MRSTY")


# A file system of its own for one process, which runs full and is then made larger.
FULL_DISK = """
disk=$1 copy=$2; shift 2
mount -t tmpfs -o size=6m none "$disk" || exit 99
"$@"; echo "status $?"
ls -A "$disk"; ls "$disk"/.out.building-*
mount -o remount,size=500m "$disk"
"$@" && cp "$disk/out/manifest.json" "$copy"
"""


@pytest.mark.slow
def test_a_disk_that_runs_full(build, content_hash):
    disk, copy = build.out.parent / "disk", build.out.parent / "manifest.json"
    disk.mkdir()
    command = [str(disk / "out") if word == str(build.out) else word for word in build.command]
    if not shutil.which("unshare"):
        pytest.skip("no unshare on this system")
    done = subprocess.run(
        ["unshare", "-rm", "bash", "-c", FULL_DISK, "bash", str(disk), str(copy), *command],
        cwd=build.repo, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode in (1, 99) and "status" not in done.stdout:
        pytest.skip(f"no file system of its own here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    before = done.stdout.partition("built")[0]
    assert "status 2" in before and "manifest.json" not in before
    assert "error: the disk is full" in done.stderr and "run the same command again" in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads(copy.read_text())["content_hash"] == content_hash
