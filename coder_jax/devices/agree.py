"""What the hosts of a run agree on: how many they are, barriers, decisions of the first one.

It speaks to the coordination service of jax and never waits for devices. With one host nothing is
sent and nothing is waited for. `hosts.py` starts and ends them.
"""

import json
from typing import Any, TypeVar

from jax._src import distributed

from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import is_quiet

T = TypeVar("T")

# Waiting for a host that is alive, but busy, has no natural end; one that dies ends the wait.
A_DAY = 24 * 3600
# Hosts wait for each other after so many answers of `first_decides`, which are forgotten then.
KEPT_DECISIONS = 1000

_calls = {"barrier": 0, "decision": 0}  # every host makes the same calls in the same order


def service() -> Any:
    """jax's client of the coordination service: barriers, and short texts under keys."""
    return distributed.global_state.client


def host_count() -> int:
    """How many processes the run has."""
    return distributed.global_state.num_processes


def host_index() -> int:
    """Which of them this is, from 0 on."""
    return distributed.global_state.process_id


def is_first() -> bool:
    """Whether this is process 0, which alone logs and writes small files."""
    return host_index() == 0


def say(text: str) -> None:
    """Print a line about the work on the first host alone, unless quiet."""
    if is_first() and not is_quiet():
        print(text, flush=True)  # at once in a log file, too


def barrier(name: str, seconds: float = A_DAY) -> None:
    """Wait until all hosts are here. It does not wait for devices. `name` is for error messages."""
    if host_count() == 1:
        return
    _calls["barrier"] += 1
    # All hosts must mean the same place in the program; the number alone would hide a mix-up.
    service().wait_at_barrier(f"{_calls['barrier']} {name}", int(1000 * seconds))


def first_decides(value: T) -> T:
    """The value that process 0 has, on all hosts: anything that JSON can hold.

    It takes a fraction of a millisecond and does not wait for devices, so it can be asked for every
    step. The others wait until process 0 has come here.
    """
    if host_count() == 1:
        return value
    block, call = divmod(_calls["decision"], KEPT_DECISIONS)
    _calls["decision"] += 1
    folder = "coder_jax/decisions"
    if block and not call:
        barrier("decisions")  # all of them have read the block before
        if is_first():
            service().key_value_delete(f"{folder}/{block - 1}")
    if is_first():
        service().key_value_set(f"{folder}/{block}/{call}", json.dumps(value))
        return value
    return json.loads(service().blocking_key_value_get(f"{folder}/{block}/{call}", 1000 * A_DAY))


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
