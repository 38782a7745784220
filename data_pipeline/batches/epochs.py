"""Batches that take each item once an epoch, in an order computed from a few integers."""

import abc
import functools
from collections.abc import Iterator

import numpy as np

from data_pipeline.batches.order import permutation
from data_pipeline.batches.packing import PackedGroups, made_ahead
from data_pipeline.process import BadInput

ORDER = 0  # a stream of random numbers; subclasses have others


class EpochBatches(PackedGroups, abc.ABC):
    """A source of batches in which each of `size` items comes once an epoch."""

    size: int
    """What is drawn once an epoch; each gives one of the pairs of a step."""

    def check_size(self, what: str) -> None:
        """Raise BadInput if there are fewer items than a step takes; `what` names them in the
        message.
        """
        if self.size < self.spec.pairs:
            raise BadInput(
                f"{self.folder} has {self.size} {what}, but a step takes {self.spec.pairs}; use "
                "fewer (--pairs)"
            )

    @property
    def steps_per_epoch(self) -> int:
        """Whole steps in an epoch; the few items that are left out change from epoch to epoch."""
        return self.size // self.spec.pairs

    def drawn(self, step: int, groups: np.ndarray) -> np.ndarray:
        """int64 [G, pairs of a part]: the items in some parts of a step."""
        epoch, within = divmod(step, self.steps_per_epoch)
        order = _order_of_epoch(self.size, self.spec.seed, epoch)
        of_step = order[within * self.spec.pairs : (within + 1) * self.spec.pairs]
        return of_step.reshape(self.spec.groups, -1)[groups]

    @abc.abstractmethod
    def batch(self, step: int) -> dict[str, np.ndarray]:
        """The batch of a step."""

    def batches(self, first_step: int, last_step: int) -> Iterator[dict[str, np.ndarray]]:
        """The batches of steps first_step to last_step - 1, computed ahead in a thread."""
        yield from made_ahead(self.batch, range(first_step, last_step))


@functools.lru_cache(maxsize=2)  # the batch made ahead may be of the next epoch
def _order_of_epoch(size: int, seed: int, epoch: int) -> np.ndarray:
    """int64 [size]: the items in the order of an epoch."""
    return permutation(size, seed, ORDER, epoch)
