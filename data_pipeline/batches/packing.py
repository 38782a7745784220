"""Packing: many short terms in a few full rows of a fixed length, alone or in groups."""

import collections
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import numpy as np

from data_pipeline.batches.spec import RowPlan, StepCut, StepSpec
from data_pipeline.dataset.tokenizer import load_tokenizer
from data_pipeline.process import BadInput

# -------------------------------------------------------------------------------------------------
# Packing: many short terms in, few full rows of a fixed length out.
#
# A medical term has about nine word pieces, so a batch with one term per row of 32 is mostly
# padding. Here several terms share a row. `first_fit_decreasing` decides where each goes,
# `pack_rows` writes the three arrays that the encoder reads. This is the NumPy side, used to encode
# terms; `stream.py` does the same inside tf.data, and a test holds the two together.

MOST_SHAPES = 8  # numbers of rows, each of which costs a compilation: seconds on a CPU
SHAPES_ON_ACCELERATORS = 2  # there, minutes: the usual number, and one that is enough for any block
LEAST_SAVED = 0.005  # the part of all rows that one more shape must save in any run
COMPILATION = 16  # steps that take as long as a compilation, with a MiniLM on two cores
LONG_RUN = 100_000  # steps


def first_fit_decreasing(lengths: np.ndarray, row_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Place sequences into rows: longest first, each into the first row with room for it.

    The rows are filled one length at a time: all sequences of one length are placed at once,
    because first fit fills the rows in their order. The result is the textbook algorithm's, without
    a Python step per sequence.

    Args:
        lengths: int [N], the number of tokens of each sequence, each from 1 to `row_length`.
        row_length: the number of tokens in a row.

    Returns:
        (row, offset): int64 [N] each, the row of a sequence and the place of its first token in
        that row.

    Raises:
        BadInput: if a sequence is empty or longer than a row.
    """
    lengths = np.asarray(lengths, np.int64)
    if lengths.size == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if lengths.min() < 1 or lengths.max() > row_length:
        found = lengths.min() if lengths.min() < 1 else lengths.max()
        raise BadInput(
            f"cannot pack a sequence of {found} tokens into rows of {row_length}: every sequence "
            f"must have 1 to {row_length} tokens; use longer rows or a smaller max_length"
        )
    by_length = np.argsort(-lengths, kind="stable")
    counts = np.bincount(lengths, minlength=row_length + 1)
    # Next fit never leaves two neighbours that would fit in one row, so twice the ideal number of
    # rows is enough.
    free = np.full(2 * -(-int(lengths.sum()) // row_length) + 1, row_length, np.int64)
    row = np.empty(lengths.size, np.int64)
    offset = np.empty(lengths.size, np.int64)
    done = 0
    for length in np.flatnonzero(counts)[::-1]:
        room = free // length
        before = np.cumsum(room) - room
        placed = np.clip(counts[length] - before, 0, room)
        index = by_length[done : done + counts[length]]
        rows = np.repeat(np.arange(free.size), placed)
        nth_in_row = np.arange(counts[length]) - before[rows]
        row[index] = rows
        offset[index] = row_length - free[rows] + nth_in_row * length
        free -= placed * length
        done += counts[length]
    return row, offset


def pack_rows(
    tokens: np.ndarray,
    start: np.ndarray,
    row_length: int,
    rows: int | None = None,
    **beside: np.ndarray,
) -> dict[str, np.ndarray]:
    """Write sequences into rows.

    Args:
        tokens: int32 [sum of lengths], the tokens of all sequences, one after the other.
        start: int64 [N + 1], sequence i is `tokens[start[i]:start[i + 1]]`.
        row_length: L, the number of tokens in a row.
        rows: R, the number of rows to return; the rows that the sequences need if None.
        beside: further numbers of each token, as `tokens`.

    Returns:
        int32 [R, L] each: `tokens`; `positions`, which restart at 0 in each sequence; `segments`, 1
        + the index of the sequence; and what is `beside`. Padding is 0 in all of them.

    Raises:
        BadInput: if the sequences need more than `rows` rows.
    """
    start = np.asarray(start, np.int64)
    lengths = np.diff(start)
    row, offset = first_fit_decreasing(lengths, row_length)
    needed = int(row.max()) + 1 if row.size else 0
    if rows is None:
        rows = needed
    if needed > rows:
        raise BadInput(
            f"{lengths.size} sequences need {needed} rows of {row_length} tokens, but only {rows} "
            "are there; provide more rows (--rows; they change no result)"
        )
    sequence = np.repeat(np.arange(lengths.size), lengths)
    position = np.arange(sequence.size) - (start - start[0])[sequence]
    place = (row * row_length + offset)[sequence] + position
    within = slice(start[0], start[-1])
    values = {"tokens": tokens[within], "positions": position, "segments": sequence + 1}
    values |= {name: array[within] for name, array in beside.items()}
    packed = {name: np.zeros(rows * row_length, np.int32) for name in values}
    for name, array in packed.items():
        array[place] = values[name]
    return {name: array.reshape(rows, row_length) for name, array in packed.items()}


def plan_rows(
    lengths_SGN: np.ndarray,
    spec: StepSpec,
    cut: StepCut,
    rows: int = 0,
    run_steps: int = LONG_RUN,
    shapes: int = MOST_SHAPES,
) -> RowPlan:
    """Choose the numbers of rows from a sample of steps (`plan_sizes`).

    Args:
        lengths_SGN: int [S, G, N], the lengths of all terms of S steps, in tokens.
        spec, cut: what a batch is made of and how it is cut.
        rows, run_steps, shapes: as for `plan_sizes`.
    """
    steps = len(lengths_SGN)
    blocks = lengths_SGN.reshape(steps * cut.passes * cut.blocks, -1)
    needed = np.array(
        [first_fit_decreasing(block, spec.row_length)[0].max() + 1 for block in blocks]
    )
    return plan_sizes(needed.reshape(steps, -1), cut, rows, run_steps, shapes)


def plan_sizes(
    needed_SB: np.ndarray,
    cut: StepCut,
    rows: int = 0,
    run_steps: int = LONG_RUN,
    shapes: int = MOST_SHAPES,
) -> RowPlan:
    """Choose the numbers of rows from what the blocks of a sample of steps need (`choose_sizes`).

    `ample` is eight standard deviations above the mean, which sums of hundreds of term lengths do
    not reach.

    Args:
        needed_SB: int [S, blocks], rows.
        cut: how a batch is cut.
        rows: `ample`, if not 0.
        run_steps: of the run; a short one does not save the time that a shape's compilation takes.
        shapes: the most numbers of rows to choose.
    """

    def round_up(rows: float) -> int:
        return -(-int(np.ceil(rows)) // cut.row_multiple) * cut.row_multiple

    most = max(needed_SB.mean() + 8 * needed_SB.std(), needed_SB.max() + 1)
    ample = round_up(rows or most)
    needed = np.array([min(round_up(rows), ample) for rows in needed_SB.max(axis=1)])
    return RowPlan(choose_sizes(needed, ample, max(LEAST_SAVED, COMPILATION / run_steps), shapes))


def choose_sizes(
    needed_S: np.ndarray, ample: int, worth: float, shapes: int = MOST_SHAPES
) -> tuple[int, ...]:
    """Rising sizes that leave the fewest rows unused; each is worth compiling, `ample` is the last.

    Args:
        needed_S: rows that the steps of a sample need.
        ample: rows that are enough for any step.
        worth: the part of all rows that one more size must save.
        shapes: the most sizes to choose.
    """
    values, counts = np.unique(needed_S, return_counts=True)
    steps = np.concatenate([[0], np.cumsum(counts)])
    # Dynamic programming. best[i]: the rows computed in all steps that need at most values[i - 1],
    # and the sizes that do it, of which values[i - 1] is the last; with one size more each time.
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ()), *[(np.inf, ())] * len(values)]
    chosen: tuple[int, ...] = (ample,)
    cost = float(len(needed_S) * ample)
    for _ in range(shapes - 1):
        best = [(np.inf, ())] + [
            min(
                (
                    best[j][0] + (steps[i] - steps[j]) * values[i - 1],
                    (*best[j][1], int(values[i - 1])),
                )
                for j in range(i)
            )
            for i in range(1, len(values) + 1)
        ]
        found = min(
            (part + (steps[-1] - steps[i]) * ample, sizes) for i, (part, sizes) in enumerate(best)
        )
        if found[0] > (1 - worth) * cost:
            break
        cost, chosen = found[0], (*found[1], ample)
    return tuple(dict.fromkeys(chosen))


def rows_in_use(segments: np.ndarray) -> int:
    """The number of rows [..., R, L] up to the last one that holds a term in any block."""
    used = np.flatnonzero((segments[..., 0] > 0).any(axis=tuple(range(segments.ndim - 2))))
    return int(used[-1]) + 1 if used.size else 0


# -------------------------------------------------------------------------------------------------
# What a training run asks of batches of groups in packed rows, wherever they come from.

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


# -------------------------------------------------------------------------------------------------
# Some terms of the data, by which a run proves what leaves it.

TERMS = 16


def spread(count: int) -> np.ndarray:
    """int64: numbers of so many things at most TERMS, the first, the last and between them."""
    return np.unique(np.linspace(0, count - 1, min(TERMS, count)).astype(np.int64))


def decoded(folder: Path, tokens: np.ndarray, start: np.ndarray) -> list[str]:
    """Some terms as what their tokens say.

    Args:
        folder: of the data; `tokenizer` lies in it.
        tokens, start: term i is tokens[start[i] : start[i + 1]].
    """
    tokenizer = load_tokenizer(folder / "tokenizer")
    chosen = [tokens[start[i] : start[i + 1]].tolist() for i in spread(len(start) - 1)]
    return list(map(tokenizer.decode, chosen))
