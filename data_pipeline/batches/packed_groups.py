"""What a training run asks of batches of groups in packed rows, wherever they come from."""

import collections
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import numpy as np

from data_pipeline.batches.packing import pack_rows, rows_in_use
from data_pipeline.batches.spec import RowPlan, StepCut, StepSpec
from data_pipeline.process.errors import BadInput

AHEAD = 4  # steps


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
    spec: Any
    """A `StepSpec`."""
    cut: StepCut
    plan: RowPlan

    @property
    def identity(self) -> dict[str, Any]:
        """What of the data must be the same when a run goes on."""
        return identity_of(self.manifest)

    def shapes(self, rows: int) -> dict[str, tuple[int, ...]]:
        """The shape of each array of a batch, as `BatchMaker.batch` says."""
        return batch_shapes(self.spec, self.cut, rows, self.packed)

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


def packed_blocks(
    tokens: np.ndarray,
    bounds: np.ndarray,
    cut: tuple[int, int],
    row_length: int,
    rows: int,
    **beside: np.ndarray,
) -> dict[str, np.ndarray]:
    """int32 [P, B, R, L]: the packed rows of P passes of B blocks (`pack_rows`).

    Args:
        tokens: of all sequences, block by block; each block has as many.
        bounds: int64 [N + 1], where sequences begin.
        cut: (P, B).
        row_length, rows: L and R.
        beside: further numbers of each token.
    """
    passes, blocks = cut
    share = (len(bounds) - 1) // (passes * blocks)
    packed = [
        pack_rows(tokens, bounds[at : at + share + 1], row_length, rows, **beside)
        for at in range(0, len(bounds) - 1, share)
    ]
    return {
        name: np.stack([block[name] for block in packed]).reshape(passes, blocks, rows, row_length)
        for name in packed[0]
    }


def joined(
    start: np.ndarray, chosen: np.ndarray, *arrays: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The tokens of some sequences, one after the other.

    Args:
        start: int64 [n + 1], where sequences begin.
        chosen: int [N], which of them.
        arrays: with one number for each token.

    Returns:
        (bounds, arrays): int64 [N + 1], where the chosen ones begin, and their numbers.
    """
    lengths = np.diff(start)[chosen]
    bounds = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    place = np.repeat(start[:-1][chosen] - bounds[:-1], lengths) + np.arange(bounds[-1])
    return bounds, [array[place] for array in arrays]


def made_ahead(
    make: Callable[[int], dict[str, np.ndarray]], first_step: int, last_step: int
) -> Iterator[dict[str, np.ndarray]]:
    """What `make` gives for the steps first_step to last_step - 1, made ahead in a thread."""
    ahead: collections.deque[Future] = collections.deque()
    with ThreadPoolExecutor(1) as maker:
        for step in range(first_step, last_step):
            ahead.append(maker.submit(make, step))
            if len(ahead) > AHEAD:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def batch_shapes(
    spec: StepSpec, cut: StepCut, rows: int, packed: tuple[str, ...] = PackedGroups.packed
) -> dict[str, tuple[int, ...]]:
    """The shape of each array of a host's batch; `rows` packed rows in a block."""
    passes, blocks, groups = cut.groups(spec).shape
    return {
        **dict.fromkeys(packed, (passes, blocks, rows, spec.row_length)),
        **{name: (passes, blocks, groups, *shape) for name, shape in spec.arrays.items()},
    }
