"""Runs of two processes, one of which is killed or stopped: both end soon, and nothing is lost."""

import signal
import socket
import time

import jax
import numpy as np
import pytest
from training_process import TrainingProcess, last_line, make_batches, newest

from coder_jax.runs.checkpoint_reader import read_item, saved_steps

STEPS = 20
OFTEN = ("--save-minutes", "0", "--save-steps", "10")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny BERT, batches and, after the first run, the compiled programs."""
    folder = tmp_path_factory.mktemp("hosts_faults")
    make_batches(folder, STEPS)
    return folder


def start(folder, out):
    """The two processes of a run."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        address = f"localhost:{listener.getsockname()[1]}"
    return [
        TrainingProcess(folder, out, STEPS, *OFTEN, host=(address, 2, index)) for index in (0, 1)
    ]


def finish(folder, out):
    processes = start(folder, out)
    for process in processes:
        assert process.end() == 0, process.said()


@pytest.fixture(scope="module")
def straight(folder):
    """The folder of a run of two processes that nothing disturbed."""
    finish(folder, folder / "straight")
    return folder / "straight"


def assert_whole(out):
    """Every checkpoint can be read, and is what was saved."""
    for step in saved_steps(out):
        for item in ("params", "rest"):
            read_item(out / "checkpoints" / str(step), item)


def assert_same_end(out, straight):
    assert_whole(out)
    got = read_item(out / "checkpoints" / str(STEPS), "rest")
    want = read_item(straight / "checkpoints" / str(STEPS), "rest")
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
    assert 3 <= newest(out) < STEPS


@pytest.mark.slow
def test_a_host_that_is_killed_ends_the_other_and_the_run_goes_on(folder):
    out = folder / "run"
    kill_in_a_save(folder, out, 1)
    assert_whole(out)
    finish(folder, out)
    assert_whole(out)
    assert newest(out) == STEPS


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_after_a_kill_of_either_host_the_run_ends_the_same(folder, straight, killed):
    out = folder / f"killed{killed}"
    kill_in_a_save(folder, out, killed)
    finish(folder, out)
    assert_same_end(out, straight)


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [0, 1])
def test_sigterm_to_one_host_saves_and_stops_both(folder, straight, stopped):
    out = folder / f"stopped{stopped}"
    processes = start(folder, out)
    processes[stopped].until(lambda: newest(out) >= 3)
    processes[stopped].process.send_signal(signal.SIGTERM)
    assert [process.end() for process in processes] == [75, 75], processes[0].said()
    assert 3 <= newest(out) == last_line(out) < STEPS
    finish(folder, out)
    assert_same_end(out, straight)
