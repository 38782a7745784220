"""Where a process belongs in its run: the environment in, a `Place` out.

jax finds it out by itself on TPU slices (Google Cloud and Kubernetes), under Slurm, under Open MPI
up to version 4, and in a Kubernetes job where its Python package `kubernetes` is installed.

    JAX_COORDINATOR_ADDRESS=HOST:PORT  JAX_NUM_PROCESSES=N  JAX_PROCESS_ID=I

say it elsewhere, and win over what jax finds; JAX_NUM_PROCESSES=1 alone makes a process run by
itself.
"""

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jax._src.clusters import ClusterEnv

from data_pipeline.process.errors import BadInput

# Seconds that a host waits for the others at the start.
START_TIMEOUT = "CODER_JAX_START_TIMEOUT"
# Seconds without a heartbeat after which a host counts as lost.
LOST_TIMEOUT = "CODER_JAX_LOST_HOST_TIMEOUT"


@dataclass(frozen=True)
class Place:
    """Where a process belongs in its run."""

    coordinator: str  # HOST:PORT of process 0
    count: int
    index: int
    local_devices: tuple[int, ...] | None  # the GPUs that it may use; None for all it sees


def find_place(environment: Mapping[str, str]) -> Place | None:
    """Where this process belongs; None if it is the only one of its run.

    Raises:
        BadInput: if variables are half set or wrong, or a cluster cannot be asked.
    """
    address = environment.get("JAX_COORDINATOR_ADDRESS") or None
    count = number(environment, "JAX_NUM_PROCESSES", least=1)
    index = number(environment, "JAX_PROCESS_ID", least=0)
    devices = None
    if count != 1 and None in (address, count, index):
        address, count, index, devices = ask_jax(address, count, index)
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
    return Place(address, count, index, usable_devices(devices, environment))


def alone(verb: str) -> None:
    """BadInput where `verb`, a command for one host, was started on several."""
    place = find_place(os.environ)
    if place is not None:
        raise BadInput(
            f"found {place.count} processes, of which this is number {place.index}; {verb} runs "
            "on one host: start it once, with JAX_NUM_PROCESSES=1"
        )


def ask_jax(
    address: str | None, count: int | None, index: int | None
) -> tuple[str | None, int | None, int | None, Any]:
    """What jax finds out by itself of (address, count, index, local devices) that is not given."""
    try:
        with warnings.catch_warnings():
            # One pod of Kubernetes without its Python package is a single host like any other.
            warnings.filterwarnings("ignore", message=".*Kubernetes environment detected")
            return ClusterEnv.auto_detect_unset_distributed_params(
                address, count, index, None, None, start_seconds()
            )
    except Exception as error:  # whatever the metadata server, DNS or the Kubernetes API may raise
        raise BadInput(
            f"this looks like a cluster, but jax cannot find out where this process belongs in it "
            f"({type(error).__name__}: {error}); mend that, or set JAX_COORDINATOR_ADDRESS, "
            "JAX_NUM_PROCESSES and JAX_PROCESS_ID, or run alone with JAX_NUM_PROCESSES=1"
        ) from error


def usable_devices(
    found: Sequence[int] | None, environment: Mapping[str, str]
) -> tuple[int, ...] | None:
    """The GPUs of this process: jax's choice, one per process, where that is what was started."""
    if ids := environment.get("JAX_LOCAL_DEVICE_IDS"):
        try:
            return tuple(int(part) for part in ids.split(","))
        except ValueError:
            raise BadInput(
                f"JAX_LOCAL_DEVICE_IDS is {ids!r}; expected numbers of GPUs such as 0,1"
            ) from None
    one_per_node = environment.get("SLURM_NTASKS") == environment.get("SLURM_STEP_NUM_NODES", "")
    # Where the scheduler shows a process one GPU only, that GPU is number 0, whatever its number.
    one_visible = environment.get("CUDA_VISIBLE_DEVICES", ",").count(",") == 0
    return None if found is None or one_per_node or one_visible else tuple(found)


def number(environment: Mapping[str, str], name: str, least: int) -> int | None:
    """The whole number in a variable; None if it is not set or empty."""
    text = environment.get(name, "")
    if not text:
        return None
    if not text.isdecimal() or int(text) < least:
        raise BadInput(f"{name} is {text!r}; expected a whole number, {least} or more")
    return int(text)


def start_seconds() -> int:
    """How long a host waits for the others at the start."""
    return number(os.environ, START_TIMEOUT, least=1) or 300


def lost_seconds() -> int:
    """How long a host may be silent until it counts as lost."""
    return number(os.environ, LOST_TIMEOUT, least=1) or 60
