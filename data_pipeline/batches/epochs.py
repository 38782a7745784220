"""Epochs in NumPy: each item once, in an order that is a function of a few integers."""

import abc
import functools
from collections.abc import Iterator

import numpy as np

from data_pipeline.batches.packing import PackedGroups, made_ahead
from data_pipeline.process import BadInput

# -------------------------------------------------------------------------------------------------
# Order and random numbers without state, in NumPy: a pure function of a few integers.
#
# The scrambling is that of `order.py` (the finalizer of SplitMix64; Steele, Lea, Flood 2014), so
# that the numbers stay the same with every version of NumPy.


def mix_array(value: np.ndarray) -> np.ndarray:
    """One-to-one scrambling of uint64: every input bit changes about half of the output bits."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def random_numbers(items: np.ndarray, *parts: int) -> np.ndarray:
    """uint64, a random number for each of some items (integers), named by further integers."""
    hashed = np.zeros(1, np.uint64)
    for part in parts:
        hashed = mix_array(hashed ^ np.uint64(part))
    return mix_array(hashed ^ np.asarray(items, np.uint64))


def random_below(sizes: np.ndarray, items: np.ndarray, *parts: int) -> np.ndarray:
    """int64, for each item a random integer in [0, size), for sizes below 2**32.

    Multiply and shift; the bias is under size / 2**32.
    """
    high = random_numbers(items, *parts) >> np.uint64(32)
    return ((high * np.asarray(sizes, np.uint64)) >> np.uint64(32)).astype(np.int64)


def permutation(size: int, *parts: int) -> np.ndarray:
    """int64 [size]: the numbers below `size` in an order that the other integers name."""
    return np.argsort(random_numbers(np.arange(size), *parts), kind="stable")


# -------------------------------------------------------------------------------------------------
# Batches of pairs that are drawn from items, each of which comes once an epoch. NumPy alone.

ORDER = 0  # a stream of random numbers; subclasses have others


class EpochBatches(PackedGroups, abc.ABC):
    """The part of a source of such batches that follows from the number of its items."""

    size: int
    """What is drawn once an epoch; each gives one of the pairs of a step."""

    def check_size(self, what: str) -> None:
        """BadInput if there are fewer items than a step takes; `what` are they, in words."""
        if self.size < self.spec.pairs:
            raise BadInput(
                f"{self.folder} has {self.size} {what}, but a step takes {self.spec.pairs}; use "
                "fewer (--pairs)"
            )

    @property
    def steps_per_epoch(self) -> int:
        """An epoch is a whole number of steps; the few items beyond are others in each epoch."""
        return self.size // self.spec.pairs

    def drawn(self, step: int, groups: np.ndarray) -> np.ndarray:
        """int64 [G, pairs of a part]: the items of some parts of a step."""
        epoch, within = divmod(step, self.steps_per_epoch)
        order = order_of_epoch(self.size, self.spec.seed, epoch)
        of_step = order[within * self.spec.pairs : (within + 1) * self.spec.pairs]
        return of_step.reshape(self.spec.groups, -1)[groups]

    @abc.abstractmethod
    def batch(self, step: int) -> dict[str, np.ndarray]:
        """The batch of a step."""

    def batches(self, first_step: int, last_step: int) -> Iterator[dict[str, np.ndarray]]:
        """The batches of steps first_step to last_step - 1, made ahead."""
        yield from made_ahead(self.batch, first_step, last_step)


@functools.lru_cache(maxsize=2)  # the batch made ahead may be of the next epoch
def order_of_epoch(size: int, seed: int, epoch: int) -> np.ndarray:
    """int64 [size]: the items in the order of an epoch."""
    return permutation(size, seed, ORDER, epoch)
