"""Two processes of one run: they meet, decide together and end together, however it ends.

Everything here is a real pair of processes on this machine, joined by jax over gloo.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from coder_jax import host_watch, hosts
from data_pipeline.errors import BadInput
from data_pipeline.stopping import TRY_AGAIN

WORKER = """
import os, sys, time
import numpy as np
from coder_jax import hosts
from data_pipeline import stopping
from data_pipeline.command import run_command
from data_pipeline.errors import BadInput

def together():
    from jax.experimental import multihost_utils
    return multihost_utils.process_allgather(np.int32(hosts.host_index())).tolist()

def steps(collective):
    for step in range(1200):
        if collective:
            together()
        if step == 3:
            print("ready", flush=True)
        if hosts.first_decides(stopping.asked()):
            raise stopping.Stopped
        time.sleep(0.05)

def work():
    me = hosts.host_index()
{body}
    return 0

sys.exit(run_command(lambda: hosts.run_on_hosts(work)))
"""


class Pair:
    """Two processes that do `body`; how they ended, in `status` and `output`, after `wait`."""

    def __init__(self, body: str, repo: Path, folder: Path, **environment: str):
        self.files = [folder / "host0.log", folder / "host1.log"]
        code = WORKER.format(body="\n".join("    " + line for line in body.splitlines()))
        common = {
            "JAX_COORDINATOR_ADDRESS": f"localhost:{free_port()}",
            "JAX_NUM_PROCESSES": "2",
            "CODER_JAX_START_TIMEOUT": "60",
            "PYTHONPATH": str(repo),
        }
        self.processes = []
        for index, file in enumerate(self.files):
            with file.open("w") as log:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, "-c", code],
                        env=os.environ | common | environment | {"JAX_PROCESS_ID": str(index)},
                        stdout=log,
                        stderr=log,
                    )
                )

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + 60
        while not all("ready" in file.read_text() for file in self.files):
            assert time.monotonic() < deadline, self.output
            time.sleep(0.05)

    def wait(self, timeout: float) -> list[int]:
        """The statuses of both; the time is the test's own bound."""
        deadline = time.monotonic() + timeout
        return [process.wait(deadline - time.monotonic()) for process in self.processes]

    @property
    def output(self) -> list[str]:
        return [file.read_text() for file in self.files]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


@pytest.fixture
def pair(repo, tmp_path) -> Iterator:
    """Starts a `Pair`, and ends what is left of it."""
    with contextlib.ExitStack() as stack:

        def start(body: str, **environment: str) -> Pair:
            started = Pair(body, repo, tmp_path, **environment)
            for process in started.processes:
                stack.callback(process.wait)
                stack.callback(process.kill)
            return started

        yield start


def test_one_host_starts_nothing_and_waits_for_nothing():
    hosts.start_hosts()
    assert not jax.distributed.is_initialized()
    assert (hosts.host_count(), hosts.host_index(), hosts.is_first()) == (1, 0, True)
    hosts.barrier("here")
    assert hosts.first_decides("mine") == "mine"
    hosts.must_agree("batch", (1, 2))
    assert hosts.run_on_hosts(lambda: 3) == 3


def test_two_hosts_wait_for_each_other_and_do_what_the_first_decides(pair):
    run = pair(
        """
if me == 1:
    time.sleep(1)  # the others must wait
hosts.barrier("start"), hosts.barrier("start")
print("count", hosts.host_count(), "first", hosts.is_first(), "all", together())
print("decided", [hosts.first_decides({"by": me, "call": call}) for call in range(2)])
hosts.KEPT_DECISIONS = 4  # the first is faster, but must not forget what others still need
assert [hosts.first_decides([me, call]) for call in range(20)] == [[0, call] for call in range(20)]
time.sleep(0.5)
assert len(hosts.service().key_value_dir_get("coder_jax/decisions")) == 2
hosts.must_agree("batch", (1, "x"))
if me == 0:
    time.sleep(1)  # whoever is done waits at the end
"""
    )
    assert run.wait(60) == [0, 0], run.output
    for index, text in enumerate(run.output):
        assert f"count 2 first {index == 0} all [0, 1]" in text
        assert "decided [{'by': 0, 'call': 0}, {'by': 0, 'call': 1}]" in text
        assert f"host {index} of 2" in text


def test_hosts_that_were_started_differently_are_told_so(pair):
    run = pair('hosts.must_agree("--data", f"folder{me}")\nsteps(collective=True)')
    assert run.wait(60) == [2, 2], run.output
    assert "error: --data is 'folder1' on host 1, but 'folder0' on host 0" in run.output[1]
    assert "host 1 ended this run: BadInput: --data" in run.output[0]


@pytest.mark.parametrize(
    ("failing", "failure", "status", "word"),
    [
        (0, 'raise BadInput("found x")', 2, "BadInput: found x"),
        (1, 'raise ValueError("a defect")', 1, "ValueError: a defect"),
        (1, "return 5", 5, "it returned status 5"),
    ],
)
def test_a_host_that_fails_ends_the_others_with_its_status(pair, failing, failure, status, word):
    # The other host is in a computation with the failed one, where jax alone would let it hang.
    run = pair(f"together()\nif me == {failing}:\n    {failure}\nsteps(collective=True)")
    assert run.wait(40) == [status, status], run.output
    assert f"host {failing} ended this run: {word}" in run.output[1 - failing]
    assert "gone" not in "".join(run.output), "the cause is said, not guessed"
    assert run.output[failing].count("Traceback") == (status == 1)


@pytest.mark.parametrize("asked", [0, 1])
def test_a_host_that_is_asked_to_stop_stops_all(pair, asked):
    run = pair("steps(collective=True)")
    run.wait_until_ready()
    run.processes[asked].send_signal(signal.SIGTERM)
    assert run.wait(30) == [TRY_AGAIN, TRY_AGAIN], run.output
    for text in run.output:
        assert "the same command goes on" in text and "Traceback" not in text


def test_when_a_host_is_killed_the_other_says_so_and_can_be_started_again(pair):
    run = pair("steps(collective=True)")
    run.wait_until_ready()
    run.processes[1].kill()
    assert run.wait(30)[0] == TRY_AGAIN, run.output
    assert "another host of this run is gone" in run.output[0]
    assert "Traceback" not in run.output[0]


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_host_is_noticed_outside_of_computations_too(pair, killed):
    run = pair("steps(collective=False)\ntime.sleep(600)", CODER_JAX_LOST_HOST_TIMEOUT="4")
    run.wait_until_ready()
    run.processes[killed].kill()
    # jax itself ends the other one; a launcher reads this status as it reads TRY_AGAIN.
    assert run.wait(30)[1 - killed] == -signal.SIGABRT, run.output
    assert "another task died" in run.output[1 - killed]


def start_alone(repo, index: int, address: str) -> tuple[int, str, float]:
    """Status, output and seconds of one process of two whose other one never comes."""
    began = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-c", WORKER.format(body="    pass")],
        env=os.environ
        | {
            "JAX_COORDINATOR_ADDRESS": address,
            "JAX_NUM_PROCESSES": "2",
            "JAX_PROCESS_ID": str(index),
            "CODER_JAX_START_TIMEOUT": "2",
            "PYTHONPATH": str(repo),
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    return result.returncode, result.stdout + result.stderr, time.monotonic() - began


@pytest.mark.parametrize(("index", "reason"), [(0, "not all others are"), (1, "refused")])
def test_hosts_that_do_not_come_are_waited_for_only_so_long(repo, index, reason):
    address = f"localhost:{free_port()}"
    status, output, took = start_alone(repo, index, address)
    assert status == 2, output
    assert f"host {index} of 2 could not join its run at {address} within 2 s" in output
    assert reason in output and "CODER_JAX_START_TIMEOUT" in output
    assert "Traceback" not in output and took < 30


def test_a_port_that_is_taken_is_named(repo):
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        port = server.getsockname()[1]
        status, output, _ = start_alone(repo, 0, f"localhost:{port}")
    assert status == 2, output
    assert f"cannot listen at localhost:{port} (Address already in use)" in output


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BadInput("x"), 2),
        (OSError(28, "No space left on device"), 2),
        (OSError(5, "Input/output error"), 1),
        (ValueError("x"), 1),
        (KeyboardInterrupt(), 130),
        (SystemExit(4), 4),
    ],
)
def test_the_others_leave_with_the_status_of_the_command(error, status):
    assert host_watch.status_of(error) == status
