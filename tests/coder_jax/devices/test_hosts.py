"""Two processes of one run: they meet, decide together and end together, however it ends.

Everything here is a real pair of processes on this machine, joined by jax over gloo.
"""

import contextlib
import signal
import socket
import time
from collections.abc import Iterator

import jax
import pytest
from host_pair import LONG, Pair, finish, free_port, start_alone

from coder_jax.devices import agree, hosts
from data_pipeline.process.stopping import INTERRUPTED, TRY_AGAIN

slow = pytest.mark.slow


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
    assert (agree.host_count(), agree.host_index(), agree.is_first()) == (1, 0, True)
    agree.barrier("here")
    assert agree.first_decides("mine") == "mine"
    agree.must_agree("batch", (1, 2))
    assert hosts.run_on_hosts(lambda: 3) == 3


def test_two_hosts_wait_for_each_other_and_do_what_the_first_decides(pair):
    run = pair(
        """
if me == 1:
    time.sleep(1)  # the others must wait
agree.barrier("start"), agree.barrier("start")
print("count", agree.host_count(), "first", agree.is_first(), "all", together())
print("decided", [agree.first_decides({"by": me, "call": call}) for call in range(2)])
agree.KEPT_DECISIONS = 4  # the first is faster, but must not forget what others still need
assert [agree.first_decides([me, call]) for call in range(20)] == [[0, call] for call in range(20)]
agree.barrier("decided")
assert len(agree.service().key_value_dir_get("coder_jax/decisions")) == 2
agree.barrier("counted")  # before the first decides again
agree.must_agree("batch", (1, "x"))
if me == 0:
    time.sleep(1)  # whoever is done waits at the end
"""
    )
    assert run.wait() == [0, 0], run.output
    for index, text in enumerate(run.output):
        assert f"count 2 first {index == 0} all [0, 1]" in text
        assert "decided [{'by': 0, 'call': 0}, {'by': 0, 'call': 1}]" in text
        assert f"host {index} of 2" in text


@slow
def test_hosts_that_were_started_differently_are_told_so(pair):
    run = pair('agree.must_agree("--data", f"folder{me}")\nsteps(collective=True)')
    assert run.wait() == [2, 2], run.output
    assert "error: --data is 'folder1' on host 1, but 'folder0' on host 0" in run.output[1]
    assert "host 1 ended this run: BadInput: --data" in run.output[0]


@pytest.mark.parametrize(
    ("failing", "failure", "status", "word"),
    [
        (0, 'raise BadInput("found x")', 2, "BadInput: found x"),
        pytest.param(1, 'raise ValueError("a defect")', 1, "ValueError: a defect", marks=slow),
        pytest.param(1, "return 5", 5, "it returned status 5", marks=slow),
    ],
)
def test_a_host_that_fails_ends_the_others_with_its_status(pair, failing, failure, status, word):
    # The other host is in a computation with the failed one, where jax alone would let it hang.
    run = pair(f"together()\nif me == {failing}:\n    {failure}\nsteps(collective=True)")
    assert run.wait() == [status, status], run.output
    assert f"host {failing} ended this run: {word}" in run.output[1 - failing]
    assert "gone" not in "".join(run.output), "the cause is said, not guessed"
    assert run.output[failing].count("Traceback") == (status == 1)


@pytest.mark.parametrize(
    ("asked", "number", "status"),
    [
        # The first decides to stop, before the second has heard which signal came.
        (0, signal.SIGINT, INTERRUPTED),
        pytest.param(1, signal.SIGTERM, TRY_AGAIN, marks=slow),
    ],
)
def test_a_host_that_is_asked_to_stop_stops_all_with_one_status(pair, asked, number, status):
    run = pair("steps(collective=True)")
    run.wait_until_ready()
    run.processes[asked].send_signal(number)
    assert run.wait() == [status, status], run.output
    for text in run.output:
        assert "the same command goes on" in text and "Traceback" not in text


def test_hosts_that_are_asked_one_after_the_other_save(pair):
    """As preemption does it; what is passed on and the host's own signal are not two signals."""
    run = pair(
        """
print("ready", flush=True)
while not stopping.asked():
    time.sleep(0.05)
time.sleep(4)  # a long step
print("saved", flush=True)
stopping.poll()
"""
    )
    run.wait_until_ready()
    for process in run.processes:
        process.send_signal(signal.SIGTERM)
        time.sleep(2)
    assert run.wait() == [TRY_AGAIN, TRY_AGAIN], run.output
    assert all("saved" in text and text.count("SIGTERM") == 1 for text in run.output), run.output


@pytest.mark.slow
@pytest.mark.parametrize("asked", [pytest.param(0, marks=slow), 1])
def test_a_host_that_stops_alone_does_not_leave_the_others_waiting(pair, asked):
    run = pair(
        f"""
hosts.STOP_SECONDS = 2
print("ready", flush=True)
if me == {asked}:
    while True:
        time.sleep(0.05)
        stopping.poll()
elif me == 0:
    agree.barrier("elsewhere")
else:
    agree.first_decides(1)
"""
    )
    run.wait_until_ready()
    run.processes[asked].send_signal(signal.SIGTERM)
    assert run.wait() == [TRY_AGAIN, TRY_AGAIN], run.output
    assert f"host {asked} ended this run: it was asked to stop" in run.output[1 - asked]
    assert "Traceback" not in "".join(run.output)


def test_when_a_host_is_killed_the_other_says_so_and_can_be_started_again(pair):
    run = pair("steps(collective=True)")
    run.wait_until_ready()
    run.processes[1].kill()
    assert run.wait()[0] == TRY_AGAIN, run.output
    assert "another host of this run is gone" in run.output[0]
    assert "Traceback" not in run.output[0]


@slow
@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_host_is_noticed_outside_of_computations_too(pair, killed):
    run = pair("steps(collective=False)\ntime.sleep(600)", CODER_JAX_LOST_HOST_TIMEOUT="20")
    run.wait_until_ready()
    run.processes[killed].kill()
    # jax itself ends the other one; a launcher reads this status as it reads TRY_AGAIN.
    assert run.wait()[1 - killed] == -signal.SIGABRT, run.output
    assert "another task died" in run.output[1 - killed]


@pytest.mark.parametrize(
    ("index", "reason"), [(0, "not all others are"), pytest.param(1, "refused", marks=slow)]
)
def test_hosts_that_do_not_come_are_waited_for_only_so_long(repo, index, reason):
    address = f"localhost:{free_port()}"
    status, output = finish(start_alone(repo, index, address, wait=2))
    assert status == TRY_AGAIN, output
    assert f"host {index} of 2 could not join its run at {address} within 2 s" in output
    assert reason in output and "CODER_JAX_START_TIMEOUT" in output
    assert "Traceback" not in output


def test_a_host_that_waits_for_the_others_can_be_stopped(repo):
    port = free_port()
    process = start_alone(repo, 0, f"localhost:{port}", wait=10 * LONG)
    deadline = time.monotonic() + LONG
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("localhost", port)):
            break
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    status, output = finish(process)
    assert status == TRY_AGAIN and "stopped" in output, output


def test_a_port_that_is_taken_is_named(repo):
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        port = server.getsockname()[1]
        status, output = finish(start_alone(repo, 0, f"localhost:{port}", wait=2))
    assert status == 2, output
    assert f"cannot listen at localhost:{port} (Address already in use)" in output
