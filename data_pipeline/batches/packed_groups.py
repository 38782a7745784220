"""What a training run asks of batches of groups in packed rows, wherever they come from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from data_pipeline.batches.packing import rows_in_use
from data_pipeline.batches.spec import BatchSpec, RowPlan, StepCut, StepSpec, TermSpec
from data_pipeline.process.errors import BadInput


def identity_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What of a dataset must be the same when a run goes on."""
    of_dataset = ("name", "release", "cleaning", "counts", "relations", "content_hash")
    return {
        "dataset": {name: manifest[name] for name in of_dataset},
        "tokenizer": {name: manifest["tokenizer"][name] for name in ("hash", "max_length")},
    }


class PackedGroups:
    """The part of a `BatchSource` that follows from dataset, StepSpec, StepCut and RowPlan."""

    kept: tuple[str, ...] = ("tokenizer",)
    packed: tuple[str, ...] = ("tokens", "positions", "segments")
    floats: tuple[str, ...] = ()
    folder: Path
    manifest: Mapping[str, Any]
    spec: BatchSpec | TermSpec
    cut: StepCut
    plan: RowPlan

    @property
    def identity(self) -> dict[str, Any]:
        """What of the data must be the same when a run goes on."""
        return identity_of(self.manifest)

    def shapes(self, rows: int) -> dict[str, tuple[int, ...]]:
        """The shape of each array of a batch, as `BatchMaker.batch` says."""
        return batch_shapes(self.spec, self.cut, rows)

    def rows_in_use(self, batch: Mapping[str, np.ndarray]) -> int:
        """The rows that the fullest block of a batch needs."""
        return rows_in_use(batch["segments"])

    def fill(self, batch: Mapping[str, np.ndarray]) -> float:
        """The part of a batch's tokens that are no padding."""
        return float(np.mean(batch["segments"] > 0))

    def with_index(self, index: Path) -> Self:
        """These batches depend on no index.

        Raises:
            BadInput: always.
        """
        raise BadInput(f"found an index in {index}, but these batches ({self.folder}) use none")


def batch_shapes(spec: StepSpec, cut: StepCut, rows: int) -> dict[str, tuple[int, ...]]:
    """The shape of each array of a host's batch; `rows` packed rows in a block."""
    passes, blocks, groups = cut.groups(spec).shape
    return {
        **dict.fromkeys(PackedGroups.packed, (passes, blocks, rows, spec.row_length)),
        **{name: (passes, blocks, groups, *shape) for name, shape in spec.arrays.items()},
    }
