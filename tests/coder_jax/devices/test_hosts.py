"""Two processes of one run: they meet, decide together and end together, however it ends.

Everything here is a real pair of processes on this machine, joined by jax over gloo.
"""

import contextlib
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator

import jax
import pytest
from host_pair import LONG, Pair, finish, free_port, start_alone
from jax._src.clusters import cloud_tpu_cluster, cluster
from jax.errors import JaxRuntimeError

from coder_jax.devices import hosts
from coder_jax.devices import hosts as host_watch
from coder_jax.devices.hosts import _find_place, _Place
from data_pipeline.process import INTERRUPTED, TRY_AGAIN, BadInput

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
    hosts._start_hosts()
    assert not jax.distributed.is_initialized()
    assert (hosts.host_count(), hosts.host_index(), hosts.is_first()) == (1, 0, True)
    hosts.barrier("here")
    assert hosts.first_decides("mine") == "mine"
    hosts.must_agree("batch", (1, 2))
    assert hosts.run_on_hosts(lambda: 3) == 3


# Many clusters have a proxy for the web; nobody listens at this one.
PROXIES = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")


def test_two_hosts_wait_for_each_other_and_do_what_the_first_decides(pair):
    run = pair(
        """
if me == 1:
    time.sleep(1)  # the others must wait
agree.barrier("start"), agree.barrier("start")
print("count", agree.host_count(), "first", agree.is_first(), "all", together())
print("decided", [agree.first_decides({"by": me, "call": call}) for call in range(2)])
agree._KEPT_DECISIONS = 4  # the first is faster, but must not forget what others still need
assert [agree.first_decides([me, call]) for call in range(20)] == [[0, call] for call in range(20)]
agree.barrier("decided")
assert len(agree._service().key_value_dir_get("coder_jax/decisions")) == 2
agree.barrier("counted")  # before the first decides again
agree.must_agree("batch", (1, "x"))
if me == 0:
    time.sleep(1)  # whoever is done waits at the end
""",
        **PROXIES,
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("index", "reason"), [(0, "not all others are"), pytest.param(1, "refused", marks=slow)]
)
def test_hosts_that_do_not_come_are_waited_for_only_so_long(repo, index, reason):
    address = f"localhost:{free_port()}"
    status, output = finish(start_alone(repo, index, address, wait=5))
    assert status == TRY_AGAIN, output
    waits = f"host {index} of 2: waiting for the others at {address}, "
    assert re.search(rf"{waits}\d+ of at most 5 s", output), output
    assert f"host {index} of 2 could not join its run at {address} within 5 s" in output
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


# -------------------------------------------------------------------------------------------------
# Where a process belongs: the environments of clusters, faked; nothing is started.

SLURM = {
    "SLURM_JOB_ID": "4096",
    "SLURM_STEP_NODELIST": "node[007-008]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_NTASKS": "16",
    "SLURM_PROCID": "9",
    "SLURM_LOCALID": "1",
}
OPEN_MPI = {
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
}
EXPLICIT = {
    "JAX_COORDINATOR_ADDRESS": "10.0.0.1:1234",
    "JAX_NUM_PROCESSES": "4",
    "JAX_PROCESS_ID": "3",
}
# Any of them on the machine that runs the tests would be found too.
READ = [
    *(SLURM | OPEN_MPI | EXPLICIT),
    *(
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_STEP_ID",
        "JAX_LOCAL_DEVICE_IDS",
        "JAX_COORDINATOR_PORT",
        "CUDA_VISIBLE_DEVICES",
    ),
    *("KUBERNETES_SERVICE_HOST", "TPU_WORKER_HOSTNAMES", "TPU_PROCESS_ADDRESSES", "TPU_WORKER_ID"),
    *("MEGASCALE_COORDINATOR_ADDRESS", "MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID"),
]


@pytest.fixture
def place(monkeypatch):
    """_find_place() in an environment that has of the variables above only those given."""

    def in_environment(variables: dict[str, str]) -> _Place | None:
        for name in READ:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return _find_place(os.environ)

    return in_environment


@pytest.fixture
def tpu_machine(monkeypatch):
    """A machine with TPU chips, whose metadata server answers from a dictionary."""
    metadata: dict[str, str] = {"tpu-env": "ACCELERATOR_TYPE: 'v5litepod-16'"}

    def get_metadata(key: str) -> tuple[str, int]:
        return (metadata[key], 200) if key in metadata else ("", 404)

    monkeypatch.setattr(cloud_tpu_cluster, "get_metadata", get_metadata)
    monkeypatch.setattr(cloud_tpu_cluster, "running_in_cloud_tpu_vm", True)
    monkeypatch.setattr(cluster, "running_in_cloud_tpu_vm", True)
    monkeypatch.delenv("TPU_SKIP_MDS_QUERY", raising=False)
    return metadata


def test_a_laptop_is_one_host(place):
    assert place({}) is None


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (SLURM, _Place("node007:61440", 16, 9, (1,))),
        (SLURM | {"JAX_COORDINATOR_PORT": "5000"}, _Place("node007:5000", 16, 9, (1,))),
        # One task per node has all GPUs of its node, not only the first.
        (
            SLURM | {"SLURM_NTASKS": "2", "SLURM_PROCID": "1", "SLURM_LOCALID": "0"},
            _Place("node007:61440", 2, 1, None),
        ),
        # A task that was bound to one GPU sees that one alone, as number 0.
        (SLURM | {"CUDA_VISIBLE_DEVICES": "3"}, _Place("node007:61440", 16, 9, None)),
        (SLURM | {"CUDA_VISIBLE_DEVICES": "0,1,2"}, _Place("node007:61440", 16, 9, (1,))),
        (SLURM | {"JAX_LOCAL_DEVICE_IDS": "2,3"}, _Place("node007:61440", 16, 9, (2, 3))),
        (SLURM | {"JAX_COORDINATOR_ADDRESS": "ib0:7000"}, _Place("ib0:7000", 16, 9, (1,))),
        (SLURM | EXPLICIT, _Place("10.0.0.1:1234", 4, 3, None)),
        (OPEN_MPI, _Place("10.96.0.1:62624", 4, 3, (1,))),
        (
            OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
            _Place("10.96.0.1:62624", 4, 3, None),
        ),
        (EXPLICIT, _Place("10.0.0.1:1234", 4, 3, None)),
        (EXPLICIT | {"JAX_COORDINATOR_ADDRESS": "[::1]:1234"}, _Place("[::1]:1234", 4, 3, None)),
    ],
)
def test_clusters_and_explicit_variables(place, variables, expected):
    assert place(variables) == expected


@pytest.mark.parametrize(
    "variables",
    [
        SLURM | {"SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"},
        SLURM | {"JAX_NUM_PROCESSES": "1"},
        {"JAX_NUM_PROCESSES": "1"},
        dict.fromkeys(EXPLICIT, ""),
        {name: value for name, value in SLURM.items() if "STEP" not in name},  # a batch script
        SLURM | {"SLURM_STEP_NUM_TASKS": "1"},  # a shell of salloc, which is a step of its own
    ],
)
def test_one_process_is_one_host(place, variables):
    assert place(variables) is None


def test_a_batch_script_without_srun_is_told_that_it_runs_alone(place, capsys):
    script = {name: value for name, value in SLURM.items() if "STEP" not in name}
    for variables in (script, SLURM | {"SLURM_STEP_ID": "0"}, script | {"JAX_NUM_PROCESSES": "1"}):
        place(variables)
        hosts._say_if_others_are_not_started(os.environ)
        told = "runs alone, though Slurm gave the job 16 tasks" in capsys.readouterr().out
        assert told == (variables == script)


def test_a_tpu_slice_on_google_cloud(place, tpu_machine):
    tpu_machine["agent-worker-number"] = "2"
    tpu_machine["worker-network-endpoints"] = "a:b:127.0.0.1,a:b:127.0.0.2,a:b:127.0.0.3"
    assert place({}) == _Place("127.0.0.1:8482", 3, 2, None)


def test_several_tpu_slices_on_google_cloud(place, tpu_machine):
    tpu_machine["agent-worker-number"] = "1"
    tpu_machine["worker-network-endpoints"] = "127.0.0.3,127.0.0.4"
    tpu_machine["tpu-env"] = (
        "MEGASCALE_COORDINATOR_ADDRESS: '127.0.0.1:8080'\n"
        "MEGASCALE_NUM_SLICES: '2'\nMEGASCALE_SLICE_ID: '1'"
    )
    assert place({}) == _Place("127.0.0.1:8482", 4, 3, None)


def test_one_tpu_machine_is_one_host(place, tpu_machine):
    tpu_machine["agent-worker-number"] = "0"
    tpu_machine["worker-network-endpoints"] = "127.0.0.1"
    assert place({}) is None


def test_a_tpu_slice_on_kubernetes(place, tpu_machine):
    variables = {"TPU_WORKER_HOSTNAMES": "localhost,other", "TPU_WORKER_ID": "1"}
    assert place(variables) == _Place("localhost:8482", 2, 1, None)


def test_a_pod_without_the_package_of_kubernetes_is_one_host(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    assert place({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) is None


def test_a_cluster_that_cannot_be_asked_is_named(place, tpu_machine):
    tpu_machine["agent-worker-number"] = "0"
    tpu_machine["worker-network-endpoints"] = "what:is"
    with pytest.raises(BadInput, match="what:is.*JAX_NUM_PROCESSES=1"):
        place({})


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"JAX_PROCESS_ID": "0"}, "JAX_COORDINATOR_ADDRESS and JAX_NUM_PROCESSES must be set too"),
        ({"JAX_COORDINATOR_ADDRESS": "a:1"}, "JAX_NUM_PROCESSES and JAX_PROCESS_ID must be set"),
        (EXPLICIT | {"JAX_PROCESS_ID": ""}, "^JAX_PROCESS_ID must be set too"),
        (EXPLICIT | {"JAX_PROCESS_ID": "4"}, "is 4, but there are 4 processes.* 0 to 3"),
        (EXPLICIT | {"JAX_PROCESS_ID": "-1"}, "JAX_PROCESS_ID is '-1'"),
        (EXPLICIT | {"JAX_NUM_PROCESSES": "0"}, "JAX_NUM_PROCESSES is '0'.* 1 or more"),
        (EXPLICIT | {"JAX_NUM_PROCESSES": "two"}, "JAX_NUM_PROCESSES is 'two'"),
        (EXPLICIT | {"JAX_COORDINATOR_ADDRESS": "10.0.0.1"}, "expected HOST:PORT"),
        (EXPLICIT | {"JAX_COORDINATOR_ADDRESS": ":1234"}, "expected HOST:PORT"),
        (EXPLICIT | {"JAX_COORDINATOR_ADDRESS": "a:65536"}, "expected HOST:PORT"),
        (EXPLICIT | {"JAX_LOCAL_DEVICE_IDS": "a,b"}, "JAX_LOCAL_DEVICE_IDS is 'a,b'"),
    ],
)
def test_what_is_half_set_or_wrong_is_named(place, variables, message):
    with pytest.raises(BadInput, match=message):
        place(variables)


# -------------------------------------------------------------------------------------------------
# What the watch makes of errors; the watch at work is in test_hosts.py.


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
    assert host_watch._status_of(error) == status


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


RESET = "UNAVAILABLE: Connection reset by peer"
GLOO = f"UNKNOWN: Gloo AllGather failed: {RESET}"


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (JaxRuntimeError(RESET), RESET),
        (caused(ValueError("cannot restore"), JaxRuntimeError(RESET)), RESET),
        (ValueError(GLOO), GLOO),  # jax raises both classes
        (JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory"), None),
        # Of a hub or a bucket.
        (ConnectionResetError(104, "Connection reset by peer"), None),
        (caused(ValueError("GET https://...: Connection closed by peer"), OSError(RESET)), None),
    ],
)
def test_only_what_jax_says_means_a_lost_host(error, lost):
    assert host_watch.lost_host(error) == lost
