"""Batches of pairs with a mention, each of which comes once an epoch. NumPy alone."""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data_pipeline.batches.draws.shuffles import permutation
from data_pipeline.batches.packed_groups import PackedGroups, made_ahead
from data_pipeline.batches.packing import LONG_RUN, MOST_SHAPES, plan_rows
from data_pipeline.batches.spec import StepCut, StepSpec
from data_pipeline.dataset.mentions.store import MentionDataset, open_mentions
from data_pipeline.process.errors import BadInput

ORDER = 0  # a stream of random numbers; subclasses have others
PLANNING_STEPS, PLANNING_GROUPS = 200, 1600


class MentionBatches(PackedGroups, abc.ABC):
    """The part of a source of such batches that does not depend on what is drawn for a pair.

    Args:
        folder: of the mentions.
        spec: what a step is made of.
        cut, rows, run_steps, shapes: as for `BatchMaker`.

    Raises:
        BadInput: if there are fewer pairs than a step takes.
    """

    def __init__(
        self,
        folder: Path,
        spec: StepSpec,
        cut: StepCut | None = None,
        *,
        rows: int = 0,
        run_steps: int = LONG_RUN,
        shapes: int = MOST_SHAPES,
    ):
        spec.validate()
        self.folder, self.spec, self.cut = folder, spec, cut or StepCut()
        self.dataset: MentionDataset = open_mentions(folder)
        self.manifest = self.dataset.manifest
        self.groups = self.cut.groups(spec)
        self.size, what = self.read()
        if self.size < self.spec.pairs:
            raise BadInput(
                f"{folder} has {self.size} {what}, but a step takes {self.spec.pairs}; use fewer "
                "(--pairs)"
            )
        # What most steps need, for the number of rows.
        steps = range(min(PLANNING_STEPS, max(8, PLANNING_GROUPS // spec.groups)))
        groups = np.arange(spec.groups)
        sample = np.stack([self.lengths(step, groups) for step in steps])
        self.plan = plan_rows(sample, spec, self.cut, rows, run_steps, shapes)

    @abc.abstractmethod
    def read(self) -> tuple[int, str]:
        """How many pairs there are, and what they are in words; all that batches need is read."""

    @abc.abstractmethod
    def lengths(self, step: int, groups: np.ndarray) -> np.ndarray:
        """int [G, N]: the tokens of each sequence of some parts of a step."""

    @abc.abstractmethod
    def batch(self, step: int) -> dict[str, np.ndarray]:
        """The batch of a step."""

    @property
    def steps_per_epoch(self) -> int:
        """An epoch is a whole number of steps; the few pairs beyond are others in each epoch."""
        return self.size // self.spec.pairs

    def drawn(self, step: int, groups: np.ndarray) -> np.ndarray:
        """int64 [G, pairs of a part]: the pairs of some parts of a step."""
        epoch, within = divmod(step, self.steps_per_epoch)
        order = order_of_epoch(self.size, self.spec.seed, epoch)
        of_step = order[within * self.spec.pairs : (within + 1) * self.spec.pairs]
        return of_step.reshape(self.spec.groups, -1)[groups]

    def batches(self, first_step: int, last_step: int) -> Iterator[dict[str, np.ndarray]]:
        """The batches of steps first_step to last_step - 1, made ahead."""
        yield from made_ahead(self.batch, first_step, last_step)


@functools.lru_cache(maxsize=2)  # the batch made ahead may be of the next epoch
def order_of_epoch(size: int, seed: int, epoch: int) -> np.ndarray:
    """int64 [size]: the pairs in the order of an epoch."""
    return permutation(size, seed, ORDER, epoch)
