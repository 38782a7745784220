"""Timing of rivals in turn: each once per round, in another order each round."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

Rival = TypeVar("Rival")


def turns(rivals: Sequence[Rival], rounds: int) -> Iterator[list[Rival]]:
    """The order in each round.

    They take turns, so that a machine that becomes slower or faster does so for all; who begins
    changes, so that none always follows the same.
    """
    for number in range(rounds):
        begin = number % len(rivals)
        yield [*rivals[begin:], *rivals[:begin]]


def alternate(systems: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each call, by system and round.

    Args:
        systems: what to call; it returns when its work is done.
        rounds: how often each is called, in turn.
    """
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    for order in turns(list(systems), rounds):
        for name in order:
            started = time.perf_counter()
            systems[name]()
            seconds[name].append(time.perf_counter() - started)
    return seconds


def medians(seconds: dict[str, list[float]]) -> dict[str, float]:
    """The median round of each system."""
    return {name: statistics.median(taken) for name, taken in seconds.items()}
