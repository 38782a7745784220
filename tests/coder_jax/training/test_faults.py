"""Runs that are killed, stopped, starved of disk and data lose nothing and end bitwise the same."""

import random
import shutil
import signal
import socket
import time

import jax
import numpy as np
import pytest
from training_process import (
    TrainingProcess,
    assert_nothing_lost,
    assert_same_end,
    finish,
    last_line,
    lines_of,
    make_data,
    newest,
)

from coder_jax.training.checkpoints import _read_item, saved_steps

STEPS = 30
# A checkpoint after every step: the newest two stay, and those of every tenth step.
OFTEN = ("--save-minutes", "0", "--save-steps", "10")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny BERT, a dataset and, after the first run, the compiled programs."""
    folder = tmp_path_factory.mktemp("faults")
    make_data(folder)
    return folder


@pytest.fixture(scope="module")
def straight(folder):
    """The folder of a run that nothing disturbed."""
    process = TrainingProcess(folder, folder / "straight", STEPS, *OFTEN)
    assert process.end() == 0, process.said()
    return process.out


@pytest.fixture
def out(folder, request):
    """A run folder that is not there yet."""
    return folder / request.node.name

    names = {path.name for path in (out / "checkpoints").iterdir()}
    assert names == {str(step) for step in saved_steps(out)}


@pytest.mark.slow
def test_a_run_that_is_killed_in_a_save_and_then_stopped_loses_nothing(folder, straight, out):
    process = TrainingProcess(folder, out, STEPS, *OFTEN)
    process.until(lambda: newest(out) >= 2)
    process.kill_in_a_save()
    assert_nothing_lost(out)
    before = newest(out)
    assert 2 <= before < STEPS, "the kill came too late to disturb anything"
    stop(TrainingProcess(folder, out, STEPS, *OFTEN), before + 2)
    finish(folder, out, STEPS, *OFTEN)
    assert_same_end(out, straight, STEPS)


def stop(process, step, in_a_save=False):
    """SIGTERM once `step` is saved."""
    out = process.out
    process.until(lambda: newest(out) >= step)
    if in_a_save:
        process.until(process.saving)
    process.process.send_signal(signal.SIGTERM)
    assert process.end() == 75, process.said()
    assert newest(out) == last_line(out), "the step under way was saved"
    assert newest(out) < STEPS, "it came too late to stop anything"
    assert_nothing_lost(out)


@pytest.mark.slow
def test_kill_9_loses_at_most_the_steps_since_the_last_checkpoint(folder, straight, out):
    """In the middle of saves, while it compiles, and at a random moment of the steps."""
    before = 0
    for when in ("save", "compile", "a moment later", "save"):
        process = TrainingProcess(folder, out, STEPS, *OFTEN)
        if when == "compile":
            process.until(lambda process=process: "compiling" in process.said())
        else:
            steps = before + random.Random(before).randint(1, 3)
            process.until(lambda steps=steps: newest(out) >= steps)
            if when == "save":
                process.kill_in_a_save()
            else:
                time.sleep(random.Random(steps).random() * 0.1)
        process.kill()
        assert_nothing_lost(out)
        assert newest(out) >= before
        before = newest(out)
    assert 0 < before < STEPS, "the kills came too late to disturb anything"
    finish(folder, out, STEPS, *OFTEN)
    assert_same_end(out, straight, STEPS)


@pytest.mark.slow
def test_sigterm_saves_and_exits_with_75(folder, straight, out):
    """During steps and in the middle of a save."""
    for in_a_save in (False, True):
        stop(TrainingProcess(folder, out, STEPS, *OFTEN), newest(out) + 2, in_a_save)
    finish(folder, out, STEPS, *OFTEN)
    assert_same_end(out, straight, STEPS)


IS_STOPPED_WHILE_IT_EVALUATES = """
import time
from coder_jax.evaluation.normalization import HeldOut
from data_pipeline import process as stopping
real, calls = HeldOut.scores, []
def scores(self, bert):
    calls.append(1)
    if len(calls) > 1:  # the first look is before step 1
        print("EVALUATING", flush=True)
        while not stopping.asked():
            time.sleep(0.01)
    return real(self, bert)
HeldOut.scores = scores
"""


@pytest.mark.slow
def test_sigterm_during_an_evaluation_inside_training(folder, out):
    """The scores that it did not come to are made up for, with the same numbers."""
    looks = (*OFTEN, "--eval-steps", "10")
    process = TrainingProcess(folder, out, STEPS, *looks, before=IS_STOPPED_WHILE_IT_EVALUATES)
    process.until(lambda: "EVALUATING" in process.said())
    process.process.send_signal(signal.SIGTERM)
    assert process.end() == 75, process.said()
    assert newest(out) == 10
    assert [line["step"] for line in lines_of(out) if "eval" in line] == [0]
    finish(folder, out, STEPS, *looks)
    looked = out.with_name("looked")
    finish(folder, looked, STEPS, *looks)
    assert [line["step"] for line in lines_of(looked) if "eval" in line] == [0, 10, 20, 30]
    assert_same_end(out, looked, STEPS)


SLOW_DATA = """
import itertools, os, time
from data_pipeline.batches import batch_maker
batch_maker._MOST_AT_ONCE = 1
real = batch_maker.BatchMaker._at_once
def slow(self, steps):
    number = next(numbers)
    time.sleep(2 if 2 < number < 8 else 0)
    while number == 9 and not os.path.exists({go!r}):
        time.sleep(0.1)
    return real(self, steps)
numbers = itertools.count()
batch_maker.BatchMaker._at_once = slow
"""


@pytest.mark.slow
def test_slow_data_is_said_and_a_second_process_is_refused(folder, straight, out):
    go = out.with_name("go")
    slow = SLOW_DATA.format(go=str(go))
    process = TrainingProcess(folder, out, STEPS, "--save-steps", "10", before=slow)
    process.until(lambda: last_line(out) >= 1)
    second = TrainingProcess(folder, out, STEPS, *OFTEN)
    assert second.end() == 2
    assert f"process {process.process.pid} on" in second.said()
    assert "is training in" in second.said() and "Traceback" not in second.said()
    assert process.process.poll() is None
    go.touch()
    assert process.end() == 0, process.said()
    assert "the run waits for its data" in process.said()
    assert sum(line["data_wait"] > 0.5 for line in lines_of(out)) >= 3
    assert_same_end(out, straight, STEPS)


FILLS_THE_DISK = """
import os, shutil
from coder_jax.training.checkpoints import Checkpoints
real = Checkpoints.save
def save(self, step, *state, **notes):
    if step == 4 and not os.path.exists("{disk}/room"):
        self.manager.wait_until_finished()
        self._empty_deleted()
        with open("{disk}/ballast", "wb") as file:  # leaves less than a checkpoint needs
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage("{disk}").free - 60_000)
    real(self, step, *state, **notes)
Checkpoints.save = save
"""
# In a name space of its own anyone may mount a file system; it is seen in there alone.
SMALL_DISK = """
disk=$1; copies=$2; shift 2
mount -t tmpfs -o size=64m tmpfs "$disk" || exit 99
"$@"; echo "status $?"
cp -r "$disk/run" "$copies/full"
rm "$disk/ballast"; touch "$disk/room"
"$@"; echo "status $?"
cp -r "$disk/run" "$copies/run"
"""


@pytest.mark.slow
def test_a_full_disk_is_said_and_the_run_goes_on_once_there_is_room(folder, straight, out):
    if not shutil.which("unshare"):
        pytest.skip("no unshare on this system")
    disk, copies = out / "disk", out / "copies"
    disk.mkdir(parents=True)
    copies.mkdir()
    through = ["unshare", "-rm", "bash", "-c", SMALL_DISK, "bash", str(disk), str(copies)]
    fills = FILLS_THE_DISK.format(disk=disk)
    process = TrainingProcess(folder, disk / "run", STEPS, *OFTEN, before=fills, through=through)
    status = process.end()
    if status in (1, 99) and "status" not in process.said():
        pytest.skip(f"no file system of its own here: {process.said()}")
    full, status_2, rest = process.said().partition("status 2")
    assert status_2 and "ake room" in full and "Traceback" not in full, process.said()
    assert "status 0" in rest, process.said()
    assert newest(copies / "full") == 3
    assert_nothing_lost(copies / "full")
    assert_same_end(copies / "run", straight, STEPS)


REFUSING_DISK = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
"""


@pytest.mark.slow
def test_a_disk_that_refuses_to_write_is_named(folder, straight, out):
    """Files of checkpoints may not grow beyond 40 kB: what a quota or a failing disk does."""
    process = TrainingProcess(folder, out, STEPS, *OFTEN)
    process.until(lambda: newest(out) >= 2)
    process.kill()
    process = TrainingProcess(folder, out, STEPS, *OFTEN, before=REFUSING_DISK)
    assert process.end() == 2, process.said()
    assert f"{out}/checkpoints cannot be written to" in process.said()
    assert "Traceback" not in process.said()
    assert_nothing_lost(out)
    finish(folder, out, STEPS, *OFTEN)
    assert_same_end(out, straight, STEPS)


# -------------------------------------------------------------------------------------------------
# Runs of two processes, one of which is killed or stopped: both end soon, and nothing is lost.

STEPS_FAULTS_HOSTS = 20
OFTEN_FAULTS_HOSTS = ("--save-minutes", "0", "--save-steps", "10")


@pytest.fixture(scope="module")
def folder_of_faults_hosts(tmp_path_factory):
    """A tiny BERT, a dataset and, after the first run, the compiled programs."""
    folder = tmp_path_factory.mktemp("hosts_faults")
    make_data(folder)
    return folder


def start(folder, out):
    """The two processes of a run."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        address = f"localhost:{listener.getsockname()[1]}"
    return [
        TrainingProcess(
            folder, out, STEPS_FAULTS_HOSTS, *OFTEN_FAULTS_HOSTS, host=(address, 2, index)
        )
        for index in (0, 1)
    ]


def finish_of_faults_hosts(folder, out):
    processes = start(folder, out)
    for process in processes:
        assert process.end() == 0, process.said()


@pytest.fixture(scope="module")
def straight_of_faults_hosts(folder_of_faults_hosts):
    """The folder of a run of two processes that nothing disturbed."""
    finish_of_faults_hosts(folder_of_faults_hosts, folder_of_faults_hosts / "straight")
    return folder_of_faults_hosts / "straight"


def assert_whole(out):
    """Every checkpoint can be read, and is what was saved."""
    for step in saved_steps(out):
        for item in ("params", "rest"):
            _read_item(out / "checkpoints" / str(step), item)


def assert_same_end_of_faults_hosts(out, straight):
    assert_whole(out)
    got = _read_item(out / "checkpoints" / str(STEPS_FAULTS_HOSTS), "rest")
    want = _read_item(straight / "checkpoints" / str(STEPS_FAULTS_HOSTS), "rest")
    jax.tree.map(np.testing.assert_array_equal, got, want)


def kill_in_a_save(folder, out, killed):
    """In the middle of a save, which all hosts write together; the other host ends soon."""
    processes = start(folder, out)
    processes[killed].until(lambda: newest(out) >= 3)
    processes[killed].kill_in_a_save()
    began = time.monotonic()
    other = processes[1 - killed]
    status = other.end()
    assert time.monotonic() - began < 180, "soon: within LOST_HOST_SECONDS on an idle machine"
    # jax aborts where it notices first (SIGABRT); the launchers start again on both.
    assert status in (75, -signal.SIGABRT), other.said()
    assert "another host of this run is gone" in other.said() or "another task died" in other.said()
    assert 3 <= newest(out) < STEPS_FAULTS_HOSTS


@pytest.mark.slow
def test_a_host_that_is_killed_ends_the_other_and_the_run_goes_on(folder_of_faults_hosts):
    out = folder_of_faults_hosts / "run"
    kill_in_a_save(folder_of_faults_hosts, out, 1)
    assert_whole(out)
    finish_of_faults_hosts(folder_of_faults_hosts, out)
    assert_whole(out)
    assert newest(out) == STEPS_FAULTS_HOSTS


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_after_a_kill_of_either_host_the_run_ends_the_same(
    folder_of_faults_hosts, straight_of_faults_hosts, killed
):
    out = folder_of_faults_hosts / f"killed{killed}"
    kill_in_a_save(folder_of_faults_hosts, out, killed)
    finish_of_faults_hosts(folder_of_faults_hosts, out)
    assert_same_end_of_faults_hosts(out, straight_of_faults_hosts)


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [0, 1])
def test_sigterm_to_one_host_saves_and_stops_both(
    folder_of_faults_hosts, straight_of_faults_hosts, stopped
):
    out = folder_of_faults_hosts / f"stopped{stopped}"
    processes = start(folder_of_faults_hosts, out)
    processes[stopped].until(lambda: newest(out) >= 3)
    processes[stopped].process.send_signal(signal.SIGTERM)
    assert [process.end() for process in processes] == [75, 75], processes[0].said()
    assert 3 <= newest(out) == last_line(out) < STEPS_FAULTS_HOSTS
    finish_of_faults_hosts(folder_of_faults_hosts, out)
    assert_same_end_of_faults_hosts(out, straight_of_faults_hosts)
