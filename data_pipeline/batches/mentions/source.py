"""Batches of pairs with a mention, each of which comes once an epoch. NumPy alone."""

from __future__ import annotations

import abc
from pathlib import Path

import numpy as np

from data_pipeline.batches.draws.epochs import EpochBatches
from data_pipeline.batches.packing import LONG_RUN, MOST_SHAPES, plan_rows
from data_pipeline.batches.some_terms import spread
from data_pipeline.batches.spec import StepCut, StepSpec
from data_pipeline.dataset.mentions.store import MentionDataset, open_mentions

PLANNING_STEPS, PLANNING_GROUPS = 200, 1600


class MentionBatches(EpochBatches):
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
        self.check_size(what)
        # What most steps need, for the number of rows.
        steps = range(min(PLANNING_STEPS, max(8, PLANNING_GROUPS // spec.groups)))
        groups = np.arange(spec.groups)
        sample = np.stack([self.lengths(step, groups) for step in steps])
        self.plan = plan_rows(sample, spec, self.cut, rows, run_steps, shapes)

    def some_terms(self) -> list[str]:
        """A few names that are spread over the dictionary, always the same."""
        names = self.dataset.names.strings
        return [names[i] for i in spread(len(names))]

    @abc.abstractmethod
    def read(self) -> tuple[int, str]:
        """How many pairs there are, and what they are in words; all that batches need is read."""

    @abc.abstractmethod
    def lengths(self, step: int, groups: np.ndarray) -> np.ndarray:
        """int [G, N]: the tokens of each sequence of some parts of a step."""
