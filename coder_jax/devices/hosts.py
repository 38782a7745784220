"""Hosts: the processes of one run, over jax's own multi-controller runtime.

The processes that `place.py` finds see each other's devices, wait for each other, and end
together. On a laptop and on any other single host nothing is started and nothing is waited for.
"""

import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable

import jax
from jax._src import distributed
from jax.errors import JaxRuntimeError

from coder_jax.devices import watch as host_watch
from coder_jax.devices.agree import barrier, host_count, host_index, service
from coder_jax.devices.place import (
    LOST_TIMEOUT,
    START_TIMEOUT,
    Place,
    find_place,
    lost_seconds,
    start_seconds,
)
from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput
from data_pipeline.process.stopping import Stopped

# Hosts that stop do so at the same place in the program, unless one alone was asked there.
STOP_SECONDS = 30.0
POLL_SECONDS = 0.2
# How a start fails that a new one may mend: the coordinator went away, or does not answer.
NOT_THERE = re.compile("UNAVAILABLE|DEADLINE_EXCEEDED|CANCELLED|Socket closed")


def start_hosts() -> None:
    """Join the other processes of the run, if there are any; call before any other use of jax.

    Raises:
        BadInput: if the environment contradicts itself, or the port is taken.
        HostLost: if the others do not come in time.
        Stopped: if this host is asked to stop meanwhile.
    """
    if distributed.global_state.client is not None:
        return
    place = find_place(os.environ)
    if place is None:
        return
    if place.index == 0:
        check_port(place)
    # jax would take SIGTERM for itself, and commands would never hear of it.
    jax.config.update("jax_enable_preemption_service", False)
    start, lost = start_seconds(), lost_seconds()
    errors: list[Exception] = []

    def join() -> None:
        try:
            jax.distributed.initialize(
                place.coordinator,
                place.count,
                place.index,
                local_device_ids=place.local_devices,
                cluster_detection_method="deactivate",
                # Its own end of waiting is an abort without a word to the user: ours comes first.
                initialization_timeout=start + 60,
                heartbeat_timeout_seconds=lost,
            )
        except Exception as error:
            errors.append(error)

    joining = threading.Thread(target=join, daemon=True)
    joining.start()
    wait_for_start(joining, start)
    if joining.is_alive() or errors:
        reason = why_not_started(place, start, errors)
        if errors and not NOT_THERE.search(str(errors[0])):
            host_watch.leave_at_exit(2)  # the interpreter's own exit would wait for the thread
            raise BadInput(reason)
        host_watch.leave_at_exit(stopping.TRY_AGAIN)
        print(f"error: {reason}", file=sys.stderr)
        raise host_watch.HostLost
    print(
        f"host {place.index} of {place.count}, coordinator {place.coordinator}; "
        f"if a host is lost, the others stop within {lost} s ({LOST_TIMEOUT})",
        file=sys.stderr,
        flush=True,
    )


def wait_for_start(joining: threading.Thread, seconds: int) -> None:
    """Wait for the other hosts, and for a signal."""
    deadline = time.monotonic() + seconds
    while joining.is_alive() and time.monotonic() < deadline:
        joining.join(POLL_SECONDS)
        try:
            stopping.poll()
        except Stopped as stopped:
            host_watch.leave_at_exit(stopped.status)
            raise


def run_on_hosts(work: Callable[[], int]) -> int:
    """The exit status of `work()`, done on all hosts of the run, which end together.

    A host that fails tells the others why, and they leave with its status; a host that is asked to
    stop asks the others. With one host it is just `work()`.

    Raises:
        BadInput: as `start_hosts`.
        HostLost: if another host is gone.
    """
    start_hosts()
    if host_count() == 1:
        return work()
    watch = host_watch.Watch(service(), host_index())
    watch.start()
    try:
        try:
            status = work()
        except Stopped as stopped:
            stop_together(watch, stopped)
            raise
        if status:
            watch.say_failed(status, f"it returned status {status}")
        else:
            barrier("end")
    except Stopped:
        raise
    except BaseException as error:
        host_watch.fail(watch, error)
        raise
    finally:
        watch.end()
    return status


def stop_together(watch: host_watch.Watch, stopped: Stopped) -> None:
    """Wait for the others, who stop too, and end with the status of the signal that came first.

    Where this host was asked to stop at a place where it polls alone, the others may wait for it
    somewhere else: they are told to leave.
    """
    watch.say_asked()
    together = True
    try:
        barrier("end", STOP_SECONDS)
    except JaxRuntimeError:
        together = False
    stopped.status = watch.status_when_asked() or stopped.status
    if not together:
        watch.say_failed(stopped.status, "it was asked to stop")


def check_port(place: Place) -> None:
    """Raise BadInput if the coordinator cannot have its port: jaxlib may crash there."""
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


def why_not_started(place: Place, waited: int, errors: list[Exception]) -> str:
    """What is known about a start that failed."""
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
            f"firewall is between (port {port}), or wait longer with {START_TIMEOUT}"
        )
    return (
        f"{where} within {waited} s: process 0 is there, but not all others are; check that "
        f"{place.count} processes were started, each with its own id, and what they say, or wait "
        f"longer with {START_TIMEOUT}"
    )
