"""Packing: many short terms in a few full rows of a fixed length, alone or in groups."""

import collections
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from data_pipeline.batches.spec import RowPlan, StepCut, StepSpec
from data_pipeline.dataset.tokenizer import load_tokenizer
from data_pipeline.files.identity import PROVENANCE
from data_pipeline.process import BadInput

# -------------------------------------------------------------------------------------------------
# First-fit packing of terms into rows.
#
# A medical term has about nine word pieces, so a batch with one term per row of 32 is mostly
# padding. Here several terms share a row. `first_fit_decreasing` decides where each goes,
# `pack_rows` writes the three arrays that the encoder reads. Both take the blocks of a step at
# once.

MOST_SHAPES = 8  # numbers of rows, each of which costs a compilation: seconds on a CPU
SHAPES_ON_ACCELERATORS = 2  # there, minutes: the usual number, and one that is enough for any block
_LEAST_SAVED = 0.005  # the part of all rows that one more shape must save in any run
_COMPILATION = 16  # steps that take as long as a compilation, with a MiniLM on two cores
LONG_RUN = 100_000  # steps


def first_fit_decreasing(lengths: np.ndarray, row_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Assign sequences to rows: longest first, each into the first row with room for it.

    The rows are filled one length at a time: all sequences of one length are placed at once,
    because first fit fills the rows in their order. The result is the textbook algorithm's, without
    a Python step per sequence.

    Args:
        lengths: int [..., N], the number of tokens of each sequence, each from 1 to `row_length`;
            each N are a block with rows of its own.
        row_length: the number of tokens in a row.

    Returns:
        (row, offset): int64 [..., N] each, the row of a sequence in its block and the place of its
        first token in that row.

    Raises:
        BadInput: if a sequence is empty or longer than a row.
    """
    lengths = np.asarray(lengths, np.int64)
    if lengths.size == 0:
        return np.zeros(lengths.shape, np.int64), np.zeros(lengths.shape, np.int64)
    if lengths.min() < 1 or lengths.max() > row_length:
        found = lengths.min() if lengths.min() < 1 else lengths.max()
        raise BadInput(
            f"cannot pack a sequence of {found} tokens into rows of {row_length}: every sequence "
            f"must have 1 to {row_length} tokens; use longer rows or a smaller max_length"
        )
    lengths_BN = lengths.reshape(-1, lengths.shape[-1])
    blocks = len(lengths_BN)
    # All blocks at once: longest first, then block by block. Small integers are sorted by counting.
    shortness = (row_length - lengths_BN.ravel()).astype(np.min_scalar_type(row_length))
    order = np.argsort(shortness, kind="stable")
    within = lengths_BN + np.arange(blocks)[:, None] * (row_length + 1)
    counts = np.bincount(within.ravel(), minlength=blocks * (row_length + 1))
    counts = counts.reshape(blocks, -1, 1)
    # Next fit never leaves two neighbours that would fit in one row, so twice the ideal number of
    # rows is enough.
    rows = 2 * -(-int(lengths_BN.sum(axis=1).max()) // row_length) + 1
    free = np.full((blocks, rows), row_length)
    room, put = np.empty_like(free), np.empty_like(free)
    cells, times, begins = [], [], []  # a cell: the sequences of one length in one row
    for length in np.flatnonzero(counts.any(axis=(0, 2)))[::-1]:
        np.floor_divide(free, length, out=room)
        np.cumsum(room, axis=1, out=put)
        put -= room  # the sequences that find room in the rows before
        np.subtract(counts[:, length], put, out=put)
        np.maximum(put, 0, out=put)
        np.minimum(put, room, out=put)
        cells.append(np.flatnonzero(put))
        times.append(put.ravel()[cells[-1]])
        begins.append(row_length - free.ravel()[cells[-1]])
        put *= length
        free -= put
    time = np.concatenate(times)
    cell = np.repeat(np.arange(time.size), time)
    nth = np.arange(cell.size) - (np.cumsum(time) - time)[cell]
    row, offset = np.empty(cell.size, np.int64), np.empty(cell.size, np.int64)
    row[order] = (np.concatenate(cells) % rows)[cell]
    offset[order] = np.concatenate(begins)[cell] + nth * lengths_BN.ravel()[order]
    return row.reshape(lengths.shape), offset.reshape(lengths.shape)


def pack_rows(
    tokens: np.ndarray,
    start: np.ndarray,
    row_length: int,
    rows: int | None = None,
    blocks: int = 1,
    **beside: np.ndarray,
) -> dict[str, np.ndarray]:
    """Write sequences into rows.

    Args:
        tokens: int32 [sum of lengths], the tokens of all sequences, one after the other.
        start: int64 [N + 1], sequence i is `tokens[start[i]:start[i + 1]]`.
        row_length: L, the number of tokens in a row.
        rows: R, the number of rows to return of each block; the rows that the sequences need if
            None.
        blocks: B, which have as many sequences each and rows of their own.
        beside: further numbers of each token, as `tokens`.

    Returns:
        int32 [B * R, L] each: `tokens`; `positions`, which restart at 0 in each sequence;
        `segments`, 1 + the index of the sequence in its block; and what is `beside`. Padding is 0
        in all of them.

    Raises:
        BadInput: if the sequences of a block need more than `rows` rows.
    """
    start = np.asarray(start, np.int64)
    lengths = np.diff(start)
    share = lengths.size // blocks
    row, offset = first_fit_decreasing(lengths.reshape(blocks, share), row_length)
    needed = int(row.max(initial=-1)) + 1
    if rows is None:
        rows = needed
    if needed > rows:
        raise BadInput(
            f"{share} sequences need {needed} rows of {row_length} tokens, but only {rows} "
            "are there; provide more rows (--rows; they change no result)"
        )
    first = ((np.arange(blocks)[:, None] * rows + row) * row_length + offset).ravel()
    begin = start[:-1] - start[0]
    token = np.arange(start[-1] - start[0])
    place = np.repeat(first - begin, lengths) + token
    within = slice(start[0], start[-1])
    values = {
        "tokens": tokens[within],
        "positions": token - np.repeat(begin, lengths),
        "segments": np.repeat(np.arange(lengths.size) % max(share, 1) + 1, lengths),
    }
    values |= {name: array[within] for name, array in beside.items()}
    packed = {name: np.zeros(blocks * rows * row_length, np.int32) for name in values}
    for name, array in packed.items():
        array[place] = values[name]
    return {name: array.reshape(blocks * rows, row_length) for name, array in packed.items()}


def packed_lengths(batch: Mapping[str, np.ndarray]) -> np.ndarray:
    """int [N]: the tokens of each term in packed rows, in the order of the rows; none without rows.

    Args:
        batch: with `positions` and `segments` of `pack_rows`, of any dimensions.
    """
    if "segments" not in batch:
        return np.zeros(0, np.int64)
    segments = batch["segments"]
    ends = segments > 0
    ends[..., :-1] &= segments[..., :-1] != segments[..., 1:]
    return batch["positions"][ends].astype(np.int64) + 1


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
    blocks = lengths_SGN.reshape(len(lengths_SGN), cut.passes * cut.blocks, -1)
    needed = [
        first_fit_decreasing(of_step, spec.row_length)[0].max(axis=-1) + 1 for of_step in blocks
    ]
    return plan_sizes(np.array(needed), cut, rows, run_steps, shapes)


def plan_sizes(
    needed_SB: np.ndarray,
    cut: StepCut,
    rows: int = 0,
    run_steps: int = LONG_RUN,
    shapes: int = MOST_SHAPES,
) -> RowPlan:
    """Choose the numbers of rows from the needs of the blocks of a sample of steps.

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
    return RowPlan(
        _choose_sizes(needed, ample, max(_LEAST_SAVED, _COMPILATION / run_steps), shapes)
    )


def _choose_sizes(
    needed_S: np.ndarray, ample: int, worth: float, shapes: int = MOST_SHAPES
) -> tuple[int, ...]:
    """Increasing sizes that leave the fewest rows unused. Each must save enough to be worth a
    compilation; `ample` is the last.

    Args:
        needed_S: rows that the steps of a sample need.
        ample: rows that are enough for any step.
        worth: the part of all rows that one more size must save.
        shapes: the most sizes to choose.
    """
    values, counts = np.unique(needed_S, return_counts=True)
    steps = np.concatenate([[0], np.cumsum(counts)])
    # Dynamic programming. best[i] is the number of rows computed in all steps that need at most
    # values[i - 1], and the sizes for it (the last is values[i - 1]); each round allows one more
    # size.
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
# What training asks of any source of packed batches in groups.

AHEAD = 4  # steps


def identity_of(manifest: Any) -> dict[str, Any]:
    """What a run says of the data of a manifest; plain JSON.

    All but the provenance must be the same when it goes on.
    """
    of_dataset = ("name", "release", "cleaning", "counts", "relations", "content_hash")
    of_tokenizer = ("hash", "max_length")
    made = {name: getattr(manifest, name, None) for name in ("licenses", "command")}
    values: dict[str, Any] = msgspec.to_builtins(
        {
            "dataset": {
                **{name: getattr(manifest, name) for name in of_dataset},
                PROVENANCE: {name: said for name, said in made.items() if said},
            },
            "tokenizer": {name: getattr(manifest.tokenizer, name) for name in of_tokenizer},
        }
    )
    return values


def kept_of(folder: Path) -> tuple[str, ...]:
    """`BatchSource.kept` of a dataset: an export has the tokenizer, and looks held-out names up."""
    heldout = ("heldout",) if (folder / "heldout" / "mentions.tsv").is_file() else ()
    return "tokenizer", *heldout


class PackedGroups:
    """The part of a `BatchSource` that follows from dataset, StepSpec, StepCut and RowPlan."""

    kept: tuple[str, ...] = ("tokenizer",)
    packed: tuple[str, ...] = ("tokens", "positions", "segments")
    floats: tuple[str, ...] = ()
    folder: Path
    manifest: Any
    """A `Manifest`, or a `MentionManifest`."""
    spec: Any
    """A `StepSpec`."""
    cut: StepCut
    plan: RowPlan

    @property
    def identity(self) -> dict[str, Any]:
        """What the data must have in common with those of a run that is resumed."""
        return identity_of(self.manifest)

    def shapes(self, rows: int) -> dict[str, tuple[int, ...]]:
        """The shape of each array of a batch, as `BatchMaker.batch` says."""
        return batch_shapes(self.spec, self.cut, rows, self.packed)

    def rows_in_use(self, batch: Mapping[str, np.ndarray]) -> int:
        """The rows that the fullest block of a batch needs."""
        return rows_in_use(batch["segments"])

    def fill(self, batch: Mapping[str, np.ndarray]) -> float:
        """The share of a batch's tokens that are not padding."""
        return float(np.mean(batch["segments"] > 0))

    def with_index(self, index: Path) -> Self:
        """These batches: they do not depend on an index.

        Raises:
            BadInput: always.
        """
        raise BadInput(f"found an index in {index}, but these batches ({self.folder}) use none")


def packed_blocks(
    tokens: np.ndarray,
    bounds: np.ndarray,
    cut: tuple[int, ...],
    row_length: int,
    rows: int,
    **beside: np.ndarray,
) -> dict[str, np.ndarray]:
    """int32 [..., R, L]: the packed rows of blocks (`pack_rows`).

    Args:
        tokens: of all sequences, block by block; each block has as many.
        bounds: int64 [N + 1], where sequences begin.
        cut: the blocks, such as (passes, blocks of a pass).
        row_length, rows: L and R.
        beside: further numbers of each token.
    """
    packed = pack_rows(tokens, bounds, row_length, rows, math.prod(cut), **beside)
    return {name: array.reshape(*cut, rows, row_length) for name, array in packed.items()}


def joined(
    start: np.ndarray, chosen: np.ndarray, *arrays: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The tokens of some sequences, concatenated.

    Args:
        start: int64 [n + 1], where sequences begin.
        chosen: int array [N], which of them.
        arrays: with one number for each token.

    Returns:
        (bounds, arrays): int64 [N + 1], where the chosen ones begin, and their numbers.
    """
    first = start[chosen]
    lengths = start[chosen + 1] - first
    bounds = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    place = np.repeat(first - bounds[:-1], lengths) + np.arange(bounds[-1])
    return bounds, [array[place] for array in arrays]


def made_ahead(
    make: Callable[[int], dict[str, np.ndarray]], steps: range
) -> Iterator[dict[str, np.ndarray]]:
    """The result of `make` for each of some steps, computed ahead in a thread."""
    ahead: collections.deque[Future] = collections.deque()
    with ThreadPoolExecutor(1) as maker:
        for step in steps:
            ahead.append(maker.submit(make, step))
            if len(ahead) > AHEAD:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def batch_shapes(
    spec: StepSpec, cut: StepCut, rows: int, packed: tuple[str, ...] = PackedGroups.packed
) -> dict[str, tuple[int, ...]]:
    """The shape of each array of a host's batch, with `rows` packed rows in a block."""
    passes, blocks, groups = cut.groups(spec).shape
    return {
        **dict.fromkeys(packed, (passes, blocks, rows, spec.row_length)),
        **{name: (passes, blocks, groups, *shape) for name, shape in spec.arrays.items()},
    }


# -------------------------------------------------------------------------------------------------
# Sample terms of the data, with which a run checks exports and other copies of its encoder.

_TERMS = 16


def spread(count: int) -> np.ndarray:
    """int64: at most TERMS indices into `count` things, evenly spread from the first to the
    last.
    """
    return np.unique(np.linspace(0, count - 1, min(_TERMS, count)).astype(np.int64))


def decoded_terms(folder: Path, tokens: np.ndarray, start: np.ndarray) -> list[str]:
    """Sample terms, decoded from their tokens.

    Args:
        folder: of the data; `tokenizer` lies in it.
        tokens, start: term i is tokens[start[i] : start[i + 1]].
    """
    tokenizer = load_tokenizer(folder / "tokenizer")
    chosen = [tokens[start[i] : start[i + 1]].tolist() for i in spread(len(start) - 1)]
    return list(map(tokenizer.decode, chosen))
