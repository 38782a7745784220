"""Batches: a dataset in, the packed batch of any step out, through tf.data.

The batch of a step is a pure function of (dataset, BatchSpec, step), so a run can start at any
step, on any number of hosts, and each host builds only its own share of the groups. How a step is
cut into passes and blocks (StepCut) and where its rows go (RowPlan) changes no result.
"""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np

from data_pipeline.batches.draws import Draw, NeighbourDraw, PairDraw, TermDraw
from data_pipeline.batches.packing import LONG_RUN, MOST_SHAPES, PackedGroups, decoded, plan_rows
from data_pipeline.batches.spec import BatchSpec, NeighbourSpec, StepCut, TermSpec
from data_pipeline.dataset.store import TripletDataset, as_tensor, tf
from data_pipeline.process import BadInput

# Steps far beyond any run: the number of rows is planned on their batches.
FIRST_PLANNING_STEP = 2**40
PLANNING_GROUPS = 1600
# By name: a stream may be left open until Python ends, when TensorFlow has gone.
FAILED_ASSERT = tf.errors.InvalidArgumentError


def first_fit_decreasing(
    lengths_BN: tf.Tensor, max_length: int, row_length: int, rows: int, message: list
) -> tuple[tf.Tensor, ...]:
    """`packing.first_fit_decreasing` of several blocks at once, as a graph of tensor ops.

    Args:
        lengths_BN: int32 [B, N], each from 1 to `max_length`.
        max_length, row_length: the bounds of a sequence and of a row, in tokens.
        rows: the number of rows in a block.
        message: what the error says if a block needs more rows.

    Returns:
        int32 [B * N] each: the block of a sequence, its index in the block, its row and its offset
        in the row; block by block, longest sequence first.
    """
    blocks, sequences = lengths_BN.shape
    by_length = tf.argsort(lengths_BN, direction="DESCENDING", stable=True)
    counts = tf.math.bincount(
        lengths_BN, minlength=max_length + 1, maxlength=max_length + 1, axis=-1
    )
    free = tf.fill([blocks, rows], row_length)
    placed, offsets = [], []
    for length in range(max_length, 0, -1):
        room = free // length
        left = counts[:, length, None] - tf.cumsum(room, axis=1, exclusive=True)
        put = tf.clip_by_value(left, 0, room)
        placed.append(put)
        offsets.append(row_length - free)
        free -= put * length
    # A cell is a (block, length, row); the sequences are in the order of the cells.
    in_cell = tf.reshape(tf.stack(placed, axis=1), [-1])
    fits = tf.equal(tf.reduce_sum(in_cell), blocks * sequences)
    before = tf.cumsum(in_cell, exclusive=True)
    with tf.control_dependencies([tf.debugging.Assert(fits, message)]):
        places = tf.range(blocks * sequences)
        cell = tf.searchsorted(before, places, side="right") - 1  # quicker than tf.repeat
    nth = places - tf.gather(before, cell)
    length = max_length - cell // rows % max_length
    offset = tf.gather(tf.reshape(tf.stack(offsets, axis=1), [-1]), cell) + nth * length
    return cell // (max_length * rows), tf.reshape(by_length, [-1]), cell % rows, offset


class BatchMaker(PackedGroups):
    """Makes the batch of any step; holds the dataset's tables as tensors.

    Args:
        dataset: the opened dataset.
        spec: what a batch is made of.
        cut: how the groups of a step are cut, and which of them this host makes.
        rows: rows to provide for the fullest block; planned from the dataset if 0.
        run_steps: of the run, which decides how many shapes are worth compiling.

    Raises:
        BadInput: if the numbers do not fit each other or the dataset.
    """

    def __init__(
        self,
        dataset: TripletDataset,
        spec: BatchSpec | TermSpec,
        cut: StepCut | None = None,
        *,
        rows: int = 0,
        run_steps: int = LONG_RUN,
        shapes: int = MOST_SHAPES,
    ):
        self.draw: Draw | PairDraw | TermDraw | NeighbourDraw
        if isinstance(spec, TermSpec):
            self.draw = TermDraw(dataset, spec)
        elif isinstance(spec, NeighbourSpec):
            self.draw = NeighbourDraw(dataset, spec)
        else:
            self.draw = (PairDraw if spec.draw == "pairs" else Draw)(dataset, spec)
        self.spec, self.cut = spec, cut or StepCut()
        self.groups = self.cut.groups(spec)
        self.max_length = int(dataset.manifest["tokenizer"]["max_length"])
        if self.max_length > spec.row_length:
            raise BadInput(
                f"the dataset's terms have up to {self.max_length} tokens, but rows have "
                f"{spec.row_length}; use a row_length of at least {self.max_length}"
            )
        self.dataset, self.folder, self.manifest = dataset, dataset.folder, dataset.manifest
        self.token_start = as_tensor(dataset.token_start)
        self.tokens = as_tensor(dataset.tokens)
        self.plan = plan_rows(self.sample_lengths(), spec, self.cut, rows, run_steps, shapes)

    def some_terms(self) -> list[str]:
        """A few terms that are spread over the data, always the same."""
        return decoded(self.folder, self.dataset.tokens, self.dataset.token_start)

    def with_index(self, index: Path) -> Self:
        """The same data with the neighbours of an index; its plan of rows stays.

        Raises:
            BadInput: if there is nothing here that depends on one, or it is of other data.
        """
        if not isinstance(self.draw, NeighbourDraw):
            return super().with_index(index)
        other = copy.copy(self)
        other.draw = self.draw.with_index(index)
        return other

    def _lengths(self, terms: tf.Tensor) -> tf.Tensor:
        return tf.cast(
            tf.gather(self.token_start, terms + 1) - tf.gather(self.token_start, terms), tf.int32
        )

    def sample_lengths(self) -> np.ndarray:
        """int32 [S, G, N]: the lengths of the terms of some steps, the same on every host."""
        lengths = tf.function(
            lambda step: self._lengths(self.draw(step, np.arange(self.spec.groups))["terms"]),
            autograph=False,
        )
        steps = min(200, max(8, PLANNING_GROUPS // self.spec.groups))
        return np.stack(
            [lengths(tf.constant(FIRST_PLANNING_STEP + number)) for number in range(steps)]
        )

    def batch(self, step: tf.Tensor) -> dict[str, tf.Tensor]:
        """The batch of a step, as tensors: P passes of B blocks of this host.

        Returns:
            int32: `tokens`, `positions`, `segments` [P, B, R, L], R rows of L tokens (see
                `packing.pack_rows`; segment s is the term at place s - 1 of the flattened concepts
                of its block), R as in `self.plan.ample`; and what `Draw` says of the terms,
                [P, B, groups, ...] each, without the terms.
        """
        drawn = self.draw(step, self.groups.ravel())
        passes, blocks, _ = shape = self.groups.shape
        terms = tf.reshape(drawn.pop("terms"), [passes * blocks, -1])
        packed = self._pack(terms, step)
        return {
            **{
                name: tf.reshape(rows, [passes, blocks, self.plan.ample, -1])
                for name, rows in packed.items()
            },
            **{name: tf.reshape(values, [*shape, -1]) for name, values in drawn.items()},
        }

    def _pack(self, terms: tf.Tensor, step: tf.Tensor) -> dict[str, tf.Tensor]:
        """The rows of all blocks of terms [blocks, N], block by block, [blocks * R, L] each."""
        rows, row_length = self.plan.ample, self.spec.row_length
        message = [f"more than the planned {rows} rows are needed by the batch of step", step]
        lengths = self._lengths(terms)
        block, term, row, offset = first_fit_decreasing(
            lengths, self.max_length, row_length, rows, message
        )
        size = len(self.groups) * self.groups.shape[1] * rows * row_length
        # From the side of the slots: each belongs to the last sequence that starts at or before it,
        # if that reaches so far. This takes a third less time than to spread out the sequences.
        starting = tf.scatter_nd(
            ((block * rows + row) * row_length + offset)[:, None],
            block * tf.shape(terms)[1] + term + 1,
            [size],
        )
        sequence = tf.cumsum(tf.cast(starting > 0, tf.int32)) - 1
        first = tf.cast(tf.where(starting > 0)[:, 0], tf.int32)
        index = tf.gather(starting, first) - 1
        position = tf.range(size) - tf.gather(first, sequence)
        length = tf.gather(tf.reshape(lengths, [-1]), index)
        is_token = position < tf.gather(length, sequence)
        position = tf.where(is_token, position, 0)
        start = tf.gather(self.token_start, tf.gather(tf.reshape(terms, [-1]), index))
        source = tf.gather(start, sequence) + tf.cast(position, tf.int64)
        token = tf.cast(tf.gather(self.tokens, source), tf.int32)
        segment = tf.gather(index % tf.shape(terms)[1] + 1, sequence)
        packed = {
            "tokens": tf.where(is_token, token, 0),
            "positions": position,
            "segments": tf.where(is_token, segment, 0),
        }
        return {name: tf.reshape(slots, [-1, row_length]) for name, slots in packed.items()}

    def unpacked(self, step: tf.Tensor) -> dict[str, tf.Tensor]:
        """All groups of a step before they are cut and packed.

        Returns:
            `tokens` int32 [sum of lengths]; `lengths` int32 [G, N]; and what `Draw` says of the
            terms, without the terms.
        """
        drawn = self.draw(step, np.arange(self.spec.groups))
        terms = tf.reshape(drawn.pop("terms"), [-1])
        lengths = self._lengths(terms)
        within = tf.ragged.range(lengths).flat_values
        first = tf.repeat(tf.gather(self.token_start, terms), lengths)
        tokens = tf.cast(tf.gather(self.tokens, first + tf.cast(within, tf.int64)), tf.int32)
        return {"tokens": tokens, "lengths": tf.reshape(lengths, drawn["concepts"].shape), **drawn}

    def batches(
        self, first_step: int, last_step: int | None = None
    ) -> Iterator[dict[str, np.ndarray]]:
        """The batches of steps first_step to last_step - 1 (or endless), made ahead in parallel."""
        yield from self._stream(self.batch, first_step, last_step)

    def unpacked_batches(self, first_step: int, last_step: int) -> Iterator[dict[str, np.ndarray]]:
        """As `batches`, of `unpacked`."""
        yield from self._stream(self.unpacked, first_step, last_step)

    def _stream(self, make, first_step: int, last_step: int | None):
        steps = tf.data.Dataset.range(
            first_step, np.iinfo(np.int64).max if last_step is None else last_step
        )
        # No Python here depends on tensors; to look for such code would take seconds.
        make = tf.autograph.experimental.do_not_convert(make)
        stream = steps.map(make, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        options = tf.data.Options()
        # Rewriting the graph would copy the dataset's tables, gigabytes, for a moment.
        options.experimental_optimization.apply_default_optimizations = False
        stream = stream.with_options(options)
        try:
            yield from stream.prefetch(8).as_numpy_iterator()
        except FAILED_ASSERT as error:
            if "planned" not in str(error):
                raise
            raise BadInput(too_few_rows(error.message.splitlines()[0])) from error


def too_few_rows(what: str) -> str:
    """The message where a batch needs more rows than were planned."""
    return (
        f"the plan for packed rows does not hold: {what}. Set --rows to a larger number and give "
        "the same command again: the run goes on where it stopped, and rows change no result"
    )
