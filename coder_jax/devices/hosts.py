"""Several processes as one run: their places, agreement among them, and a common end."""

import atexit
import json
import os
import re
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
from jax._src import distributed
from jax._src.clusters import ClusterEnv
from jax.errors import JaxRuntimeError

from data_pipeline import process
from data_pipeline.process import INTERRUPTED, TRY_AGAIN, BadInput, Stopped, is_quiet, message_of

# -------------------------------------------------------------------------------------------------
# Coordination of a run's hosts: their number, barriers, decisions of the first host.
#
# It uses jax's coordination service and never waits for devices. With one host nothing is sent and
# nothing is waited for.

T = TypeVar("T")

# Waiting for a host that is alive, but busy, has no natural end; one that dies ends the wait.
_A_DAY = 24 * 3600
# After this many answers of `first_decides` hosts wait for each other, and the answers are deleted.
_KEPT_DECISIONS = 1000

_calls = {"barrier": 0, "decision": 0}  # every host makes the same calls in the same order


def _service() -> Any:
    """jax's client of the coordination service, which has barriers and a store of short texts."""
    return distributed.global_state.client


def host_count() -> int:
    """The number of processes of the run."""
    return distributed.global_state.num_processes


def host_index() -> int:
    """The number of this process, from 0 on."""
    return distributed.global_state.process_id


def is_first() -> bool:
    """Whether this is process 0, which alone logs and writes small files."""
    return host_index() == 0


def log(text: str) -> None:
    """Print lines of progress on the first host alone; if quiet, only those of warnings."""
    if is_quiet():
        text = "\n".join(line for line in text.split("\n") if line.startswith("warning:"))
    if is_first() and text:
        print(text, flush=True)  # at once in a log file, too


def barrier(name: str, seconds: float = _A_DAY) -> None:
    """Wait until all hosts are here, but not for devices. `name` is for error messages."""
    if host_count() == 1:
        return
    _calls["barrier"] += 1
    # The name is part of the key: the number alone would hide hosts at different places in the
    # program.
    _service().wait_at_barrier(f"{_calls['barrier']} {name}", int(1000 * seconds))


def first_decides(value: T) -> T:
    """Process 0's value, sent to all hosts; any JSON value.

    It takes a fraction of a millisecond and does not wait for devices, so it can be asked for every
    step. The others wait until process 0 has come here.
    """
    if host_count() == 1:
        return value
    block, call = divmod(_calls["decision"], _KEPT_DECISIONS)
    _calls["decision"] += 1
    folder = "coder_jax/decisions"
    if block and not call:
        barrier("decisions")  # all of them have read the block before
        if is_first():
            _service().key_value_delete(f"{folder}/{block - 1}")
    if is_first():
        _service().key_value_set(f"{folder}/{block}/{call}", json.dumps(value))
        return value
    return json.loads(_service().blocking_key_value_get(f"{folder}/{block}/{call}", 1000 * _A_DAY))


def must_agree(what: str, value: Any) -> None:
    """Raise BadInput on a host whose `value` (JSON) is not that of process 0.

    Raises:
        BadInput: with both values.
    """
    own = json.loads(json.dumps(value))
    first = first_decides(own)
    if first != own:
        raise BadInput(
            f"{what} is {own!r} on host {host_index()}, but {first!r} on host 0; start all hosts "
            "with the same command on the same files"
        )


# -------------------------------------------------------------------------------------------------
# The place of a process in its run, from the environment.
#
# jax finds it out by itself on TPU slices (Google Cloud and Kubernetes), under Slurm, under Open
# MPI up to version 4, and in a Kubernetes job where its Python package `kubernetes` is installed.
#
#     JAX_COORDINATOR_ADDRESS=HOST:PORT  JAX_NUM_PROCESSES=N  JAX_PROCESS_ID=I
#
# say it elsewhere, and win over what jax finds; JAX_NUM_PROCESSES=1 alone makes a process run by
# itself.

# Seconds that a host waits for the others at the start.
_START_TIMEOUT = "CODER_JAX_START_TIMEOUT"
# Seconds without a heartbeat after which a host counts as lost.
_LOST_TIMEOUT = "CODER_JAX_LOST_HOST_TIMEOUT"


@dataclass(frozen=True)
class _Place:
    """The place of a process in its run."""

    coordinator: str  # HOST:PORT of process 0
    count: int
    index: int
    local_devices: tuple[int, ...] | None  # the GPUs that it may use; None for all it sees


def _find_place(environment: Mapping[str, str]) -> _Place | None:
    """The place of this process; None if it is the only one of its run.

    Raises:
        BadInput: if variables are half set or wrong, or a cluster cannot be asked.
    """
    address = environment.get("JAX_COORDINATOR_ADDRESS") or None
    count = _number(environment, "JAX_NUM_PROCESSES", least=1)
    index = _number(environment, "JAX_PROCESS_ID", least=0)
    devices = None
    # A shell of salloc is a step of one task; the tasks that jax counts are the whole job's.
    own_step = environment.get("SLURM_STEP_NUM_TASKS") == "1"
    if own_step and (address, count, index) == (None, None, None):
        return None
    if count != 1 and None in (address, count, index):
        address, count, index, devices = _ask_jax(address, count, index)
    if count == 1 or (address, count, index) == (None, None, None):
        return None
    if address is None or count is None or index is None:
        values = {
            "JAX_COORDINATOR_ADDRESS": address,
            "JAX_NUM_PROCESSES": count,
            "JAX_PROCESS_ID": index,
        }
        missing = " and ".join(name for name, value in values.items() if value is None)
        raise BadInput(
            f"{missing} must be set too, as jax finds no cluster here; set all of "
            f"{', '.join(values)}, or none"
        )
    if index >= count:
        raise BadInput(
            f"JAX_PROCESS_ID is {index}, but there are {count} processes; their ids are 0 to "
            f"{count - 1}"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise BadInput(
            f"JAX_COORDINATOR_ADDRESS is {address!r}; expected HOST:PORT, the name or address of "
            "the machine of process 0 and a port that is free there"
        )
    return _Place(address, count, index, _usable_devices(devices, environment))


def alone(verb: str) -> None:
    """Raise BadInput where `verb`, a command for one host, was started on several."""
    place = _find_place(os.environ)
    if place is not None:
        raise BadInput(
            f"found {place.count} processes, of which this is number {place.index}; {verb} runs "
            "on one host: start it once, with JAX_NUM_PROCESSES=1"
        )


def _ask_jax(
    address: str | None, count: int | None, index: int | None
) -> tuple[str | None, int | None, int | None, Any]:
    """Fills in the values of (address, count, index, local devices) that jax can detect itself."""
    try:
        with warnings.catch_warnings():
            # A Kubernetes pod without the Python package is treated as a single host.
            warnings.filterwarnings("ignore", message=".*Kubernetes environment detected")
            return ClusterEnv.auto_detect_unset_distributed_params(
                address, count, index, None, None, _start_seconds()
            )
    except Exception as error:  # whatever the metadata server, DNS or the Kubernetes API may raise
        raise BadInput(
            f"this looks like a cluster, but jax cannot find out where this process belongs in it "
            f"({type(error).__name__}: {error}); mend that, or set JAX_COORDINATOR_ADDRESS, "
            "JAX_NUM_PROCESSES and JAX_PROCESS_ID, or run alone with JAX_NUM_PROCESSES=1"
        ) from error


def _usable_devices(
    found: Sequence[int] | None, environment: Mapping[str, str]
) -> tuple[int, ...] | None:
    """The GPUs of this process: one per process if the scheduler started it so, else jax's
    choice.
    """
    if ids := environment.get("JAX_LOCAL_DEVICE_IDS"):
        try:
            return tuple(int(part) for part in ids.split(","))
        except ValueError:
            raise BadInput(
                f"JAX_LOCAL_DEVICE_IDS is {ids!r}; expected numbers of GPUs such as 0,1"
            ) from None
    one_per_node = (
        environment.get("SLURM_NTASKS") == environment.get("SLURM_STEP_NUM_NODES", "")
        or environment.get("OMPI_COMM_WORLD_LOCAL_SIZE") == "1"
    )
    # If the scheduler shows a process only one GPU, that GPU is number 0, whatever its real number.
    one_visible = environment.get("CUDA_VISIBLE_DEVICES", ",").count(",") == 0
    return None if found is None or one_per_node or one_visible else tuple(found)


def _number(environment: Mapping[str, str], name: str, least: int) -> int | None:
    """The integer in an environment variable; None if it is unset or empty."""
    text = environment.get(name, "")
    if not text:
        return None
    if not text.isdecimal() or int(text) < least:
        raise BadInput(f"{name} is {text!r}; expected a whole number, {least} or more")
    return int(text)


def _start_seconds() -> int:
    """How long a host waits for the others at the start."""
    return _number(os.environ, _START_TIMEOUT, least=1) or 300


def _lost_seconds() -> int:
    """After what silence a host counts as lost."""
    return _number(os.environ, _LOST_TIMEOUT, least=1) or 60


# -------------------------------------------------------------------------------------------------
# Messages between hosts at work: one has failed, or was asked to stop.
#
# Words go through jax's coordination service, which lives in process 0. A host that dies without a
# word is noticed by jax itself: at once where a collective on the CPU loses its connection, else
# when its heartbeats stay out; jax then aborts the others (SIGABRT, status 134).

_WORDS = "coder_jax/words/"
_FAILED = _WORDS + "failed"
_ASKED = _WORDS + "asked"

_WATCH_SECONDS = 0.5
# How long a host's own error may take to surface before another host's message ends it.
_GRACE_SECONDS = 1.0
# The service ends with process 0, so process 0 stays until the others must have read the message.
_LINGER_SECONDS = 3.0

# How the runtime's errors name a process that is gone.
_HOST_LOST = re.compile(
    r"Gloo .* failed|remote process exited"
    r"|heartbeat timeout|Barrier (failed|timed out)|coordination service",
    re.IGNORECASE,
)
# Hubs and buckets may use the same words, so only errors of jax's class count.
_CONNECTION_LOST = re.compile(r"Connection (closed|reset) by peer|Socket closed", re.IGNORECASE)


class _HostLost(Stopped):
    """Another host of the run is gone or never came; repeating the command resumes the run."""


class _Watch(threading.Thread):
    """Reads the other hosts' messages twice a second, and sends this host's.

    Args:
        client: of jax's coordination service.
        index: of this host.
    """

    def __init__(self, client: Any, index: int):
        super().__init__(daemon=True, name="host watch")
        self.client, self.index = client, index
        self.ended = threading.Event()
        self.following = False  # another host's word is about to end this process

    def run(self) -> None:
        while not self.ended.wait(_WATCH_SECONDS):
            self.say_asked()
            words = self.words()
            if _FAILED in words:
                self.follow(words[_FAILED])
            elif _ASKED in words:
                process.ask(int(words[_ASKED]))

    def words(self) -> dict[str, str]:
        """All messages so far; none if process 0 is gone (jax ends this process then)."""
        try:
            return dict(self.client.key_value_dir_get(_WORDS))
        except RuntimeError:
            return {}

    def say(self, key: str, value: str) -> None:
        """Send a message to all hosts. Only the first message counts."""
        try:
            self.client.key_value_set(key, value)
        except RuntimeError:
            return  # it has been said, or process 0 is gone

    def say_asked(self) -> None:
        """Forward a signal that this host received, if any."""
        if number := process.signal_asked():
            self.say(_ASKED, str(int(number)))

    def status_when_asked(self) -> int | None:
        """The exit status for the signal that was reported first, if any."""
        number = self.words().get(_ASKED)
        return None if number is None else process.exit_status(int(number))

    def say_failed(self, status: int, reason: str) -> None:
        """Tell all hosts to leave with `status`, and leave at exit without waiting for them."""
        self.say(_FAILED, f"{self.index} {status} {reason}")
        _leave_at_exit(status, linger=self.index == 0)

    def follow(self, word: str) -> None:
        """Leave as another host did, unless this one is already leaving."""
        index, status, reason = word.split(" ", 2)
        if int(index) == self.index or self.ended.wait(_GRACE_SECONDS):
            return
        self.following = True
        print(f"error: host {index} ended this run: {reason}", file=sys.stderr)
        _leave(int(status), linger=self.index == 0)

    def end(self) -> None:
        """Stop watching."""
        self.ended.set()
        if self is not threading.current_thread():
            self.join()


def _fail(watch: _Watch, error: BaseException) -> None:
    """Tell the others why this host leaves.

    Raises:
        _HostLost: instead of `error`, where that only says that another host is gone.
    """
    lost = lost_host(error)
    if lost is None or isinstance(error, BadInput):
        watch.say_failed(_status_of(error), f"{type(error).__name__}: {error}")
        return
    # A failed host has sent its message just before, so the watch ends this process with its
    # status.
    time.sleep(2 * _WATCH_SECONDS + _GRACE_SECONDS)
    if watch.following:
        watch.join()
    watch.say_failed(TRY_AGAIN, "it lost the connection to another host")
    print(
        f"error: another host of this run is gone ({lost.splitlines()[0]}): it died, was preempted "
        "or lost its network; its own output says more",
        file=sys.stderr,
    )
    raise _HostLost from error


def lost_host(error: BaseException | None) -> str | None:
    """What jax says of a lost host, in an error or its causes; None if nothing."""
    while error is not None:
        text, jaxs_own = str(error), isinstance(error, JaxRuntimeError)
        if _HOST_LOST.search(text) or (jaxs_own and _CONNECTION_LOST.search(text)):
            return text
        error = error.__cause__ or error.__context__
    return None


def _status_of(error: BaseException) -> int:
    """The exit status that `data_pipeline.process.run_command` gives for an error."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return 1 if message_of(error) is None else 2


def _leave_at_exit(status: int, linger: bool = False) -> None:
    """At the end of Python, exit with `status` without jax's wait for the other hosts."""
    atexit.register(_leave, status, linger)


def _leave(status: int, linger: bool) -> None:
    """End this process now."""
    sys.stdout.flush()
    sys.stderr.flush()
    if linger:
        time.sleep(_LINGER_SECONDS)
    os._exit(status)


# -------------------------------------------------------------------------------------------------
# The processes of one run, on jax's multi-controller runtime.
#
# They see each other's devices, wait for each other, and end
# together. On a laptop and on any other single host nothing is started and nothing is waited for.

# Hosts that stop do so at the same step, unless only one was asked to.
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.2
_FIRST_LINE_SECONDS, _LINE_SECONDS = 3.0, 30.0  # between lines that say that a host waits
# Start-up errors that a restart may cure: the coordinator is gone or does not answer.
_NOT_THERE = re.compile("UNAVAILABLE|DEADLINE_EXCEEDED|CANCELLED|Socket closed")


def _start_hosts() -> None:
    """Join the other processes of the run, if there are any; call before any other use of jax.

    Raises:
        BadInput: if the environment contradicts itself, or the port is taken.
        _HostLost: if the others do not come in time.
        Stopped: if this host is asked to stop meanwhile.
    """
    if distributed.global_state.client is not None:
        return
    place = _find_place(os.environ)
    if place is None:
        _say_if_others_are_not_started(os.environ)
        return
    if place.index == 0:
        _check_port(place)
    _keep_from_proxies(place.coordinator, os.environ)
    # jax would handle SIGTERM itself, and commands would not see it.
    jax.config.update("jax_enable_preemption_service", False)
    start, lost = _start_seconds(), _lost_seconds()
    errors: list[Exception] = []

    def join() -> None:
        try:
            jax.distributed.initialize(
                place.coordinator,
                place.count,
                place.index,
                local_device_ids=place.local_devices,
                cluster_detection_method="deactivate",
                # jax's own timeout aborts without a message, so ours comes first.
                initialization_timeout=start + 60,
                heartbeat_timeout_seconds=lost,
            )
        except Exception as error:
            errors.append(error)

    joining = threading.Thread(target=join, daemon=True)
    joining.start()
    _wait_for_start(joining, start, place)
    if joining.is_alive() or errors:
        reason = _why_not_started(place, start, errors)
        if errors and not _NOT_THERE.search(str(errors[0])):
            _leave_at_exit(2)  # the interpreter's own exit would wait for the thread
            raise BadInput(reason)
        _leave_at_exit(process.TRY_AGAIN)
        print(f"error: {reason}", file=sys.stderr)
        raise _HostLost
    print(
        f"host {place.index} of {place.count}, coordinator {place.coordinator}; "
        f"if a host is lost, the others stop within {lost} s ({_LOST_TIMEOUT})",
        file=sys.stderr,
        flush=True,
    )


def _say_if_others_are_not_started(environment: Mapping[str, str]) -> None:
    """Tell of a job of several tasks in which only the batch script runs."""
    tasks = _number(environment, "SLURM_NTASKS", least=1) or 1
    if tasks > 1 and "SLURM_STEP_ID" not in environment and "JAX_NUM_PROCESSES" not in environment:
        log(
            f"this process runs alone, though Slurm gave the job {tasks} tasks: start it by srun "
            "(launch/slurm.sbatch does)"
        )


def _keep_from_proxies(coordinator: str, environment: MutableMapping[str, str]) -> None:
    """Let the hosts of a run talk to each other directly, where http_proxy is set for the web.

    gRPC, which jax uses, would send their words to the proxy, which cannot reach them.
    """
    host = coordinator.rpartition(":")[0].strip("[]")
    names = ("no_grpc_proxy", "no_proxy", "NO_PROXY")
    others = next((environment[name] for name in names if environment.get(name)), "")
    environment["no_grpc_proxy"] = ",".join(filter(None, [others, host]))


def _wait_for_start(joining: threading.Thread, seconds: int, place: _Place) -> None:
    """Wait for the other hosts, and for a signal; a line now and then says so."""
    began = told = time.monotonic()
    while joining.is_alive() and time.monotonic() < began + seconds:
        joining.join(_POLL_SECONDS)
        waited = time.monotonic() - began
        if time.monotonic() > told + (_LINE_SECONDS if told > began else _FIRST_LINE_SECONDS):
            told = time.monotonic()
            print(
                f"host {place.index} of {place.count}: waiting for the others at "
                f"{place.coordinator}, {waited:.0f} of at most {seconds} s ({_START_TIMEOUT}). To "
                "run alone: JAX_NUM_PROCESSES=1",
                file=sys.stderr,
                flush=True,
            )
        try:
            process.poll()
        except Stopped as stopped:
            _leave_at_exit(stopped.status)
            raise


def run_on_hosts(work: Callable[[], int]) -> int:
    """Run `work()` on all hosts of the run, which end together; returns the exit status.

    A host that fails tells the others why, and they leave with its status; a host that is asked to
    stop asks the others. With one host it is just `work()`.

    Raises:
        BadInput: as `_start_hosts`.
        _HostLost: if another host is gone.
    """
    _start_hosts()
    if host_count() == 1:
        return work()
    watch = _Watch(_service(), host_index())
    watch.start()
    try:
        try:
            status = work()
        except Stopped as stopped:
            _stop_together(watch, stopped)
            raise
        if status:
            watch.say_failed(status, f"it returned status {status}")
        else:
            barrier("end")
    except Stopped:
        raise
    except BaseException as error:
        _fail(watch, error)
        raise
    finally:
        watch.end()
    return status


def _stop_together(watch: _Watch, stopped: Stopped) -> None:
    """Wait for the others to stop, too, and exit with the status of the signal that came first.

    Where this host was asked to stop at a place where it polls alone, the others may wait for it
    somewhere else: they are told to leave.
    """
    watch.say_asked()
    together = True
    try:
        barrier("end", _STOP_SECONDS)
    except JaxRuntimeError:
        together = False
    stopped.status = watch.status_when_asked() or stopped.status
    if not together:
        watch.say_failed(stopped.status, "it was asked to stop")


def _check_port(place: _Place) -> None:
    """Raise BadInput if the coordinator's port is taken, as jaxlib may crash there."""
    if os.environ.get("JAX_COORDINATOR_BIND_ADDRESS"):
        return  # of one network interface only
    port = int(place.coordinator.rpartition(":")[2])
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        socket.create_server(("", port), family=family, dualstack_ipv6=both).close()
    except OSError as error:
        raise BadInput(
            f"process 0 cannot listen at {place.coordinator} ({os.strerror(error.errno or 0)}); is "
            "another run there? Choose another port with JAX_COORDINATOR_PORT, or "
            "JAX_COORDINATOR_ADDRESS if that is set"
        ) from error


def _why_not_started(place: _Place, waited: int, errors: list[Exception]) -> str:
    """What is known about a failed start."""
    where = f"host {place.index} of {place.count} could not join its run at {place.coordinator}"
    if errors:
        reason = str(errors[0]).splitlines()[0]
        return f"{where}: {reason}; were all hosts started together, each with its own id?"
    host, _, port = place.coordinator.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except OSError as error:
        return (
            f"{where} within {waited} s: {error}; check that process 0 runs there and that no "
            f"firewall is between (port {port}), or wait longer with {_START_TIMEOUT}"
        )
    return (
        f"{where} within {waited} s: process 0 is there, but not all others are; check that "
        f"{place.count} processes were started, each with its own id, and what they say, or wait "
        f"longer with {_START_TIMEOUT}"
    )
