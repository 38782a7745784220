"""Batches: a dataset in, the packed batch of any step out, through tf.data.

The batch of a step is a pure function of (dataset, BatchSpec, step, share), so a run can start at
any step, on any number of hosts, and each host builds only its own share of the groups. Where the
rows of a step go is planned once from the dataset (RowPlan) and changes no result.
"""

from collections.abc import Iterator

import numpy as np

from data_pipeline.batch_spec import BatchSpec, RowPlan
from data_pipeline.draw import Draw
from data_pipeline.errors import BadInput
from data_pipeline.quiet_tensorflow import tf
from data_pipeline.store import TripletDataset

# Steps far beyond any run: the number of rows is planned on their batches.
PLANNING_STEPS = range(2**40, 2**40 + 200)


def first_fit_decreasing(
    lengths: tf.Tensor, max_length: int, row_length: int, rows: int
) -> tuple[tf.Tensor, ...]:
    """`packing.first_fit_decreasing` as a graph of tensor ops.

    Args:
        lengths: int32 [N], each from 1 to `max_length`.
        max_length, row_length: the bounds of a sequence and of a row, in tokens.
        rows: the number of rows that may be used.

    Returns:
        int32 [N'] each: the index of a sequence, its row and its offset in the row, longest
        sequence first. N' < N if the rows did not suffice.
    """
    by_length = tf.argsort(lengths, direction="DESCENDING", stable=True)
    counts = tf.math.bincount(lengths, minlength=max_length + 1, maxlength=max_length + 1)
    free = tf.fill([rows], row_length)
    placed, offsets = [], []
    for length in range(max_length, 0, -1):
        room = free // length
        put = tf.clip_by_value(counts[length] - tf.cumsum(room, exclusive=True), 0, room)
        placed.append(put)
        offsets.append(row_length - free)
        free -= put * length
    # A cell is a (length, row); the sequences are in the order of the cells.
    in_cell = tf.reshape(tf.stack(placed), [-1])
    cell = tf.repeat(tf.range(max_length * rows), in_cell)
    nth = tf.range(tf.size(cell)) - tf.gather(tf.cumsum(in_cell, exclusive=True), cell)
    offset = tf.gather(tf.reshape(tf.stack(offsets), [-1]), cell) + nth * (
        max_length - cell // rows
    )
    return by_length[: tf.size(cell)], cell % rows, offset


class BatchMaker:
    """Makes the batch of any step; holds the dataset's tables as tensors.

    Args:
        dataset: the opened dataset.
        spec: what a batch is made of.
        share: (index, count): make only the groups of this one of `count` equal shares (hosts).
        passes: the equal parts of the share that are packed apart and follow one another on the
            device.
        row_multiple: the number of rows is a multiple of this (the devices that share them).
        rows: rows to provide for the fullest batch; planned from the dataset if 0.

    Raises:
        BadInput: if the numbers do not fit each other or the dataset.
    """

    def __init__(
        self,
        dataset: TripletDataset,
        spec: BatchSpec,
        *,
        share: tuple[int, int] = (0, 1),
        passes: int = 1,
        row_multiple: int = 1,
        rows: int = 0,
    ):
        self.draw = Draw(dataset, spec, share)
        if self.draw.groups % passes:
            raise BadInput(
                f"{self.draw.groups} groups per host do not divide evenly into {passes} passes; "
                f"use a number of passes that divides {self.draw.groups}"
            )
        self.max_length = int(dataset.manifest["tokenizer"]["max_length"])
        if self.max_length > spec.row_length:
            raise BadInput(
                f"the dataset's terms have up to {self.max_length} tokens, but rows have "
                f"{spec.row_length}; use a row_length of at least {self.max_length}"
            )
        self.folder, self.manifest = dataset.folder, dataset.manifest
        self.spec, self.passes = spec, passes
        self.token_start = tf.constant(dataset.token_start)
        self.tokens = tf.constant(dataset.tokens)
        self.plan = self._plan_rows(row_multiple, rows)

    def _lengths(self, terms: tf.Tensor) -> tf.Tensor:
        return tf.cast(
            tf.gather(self.token_start, terms + 1) - tf.gather(self.token_start, terms), tf.int32
        )

    def _place(self, lengths: tf.Tensor, rows: int) -> tuple[tf.Tensor, ...]:
        return first_fit_decreasing(lengths, self.max_length, self.spec.row_length, rows)

    def _plan_rows(self, row_multiple: int, rows: int) -> RowPlan:
        """Choose the two row counts from a sample of batches.

        `usual` has the lowest expected cost; `ample` is eight standard deviations above the mean,
        which sums of hundreds of term lengths do not reach.
        """
        part = self.spec.terms * self.draw.groups // self.spec.groups // self.passes
        bound = 2 * -(-part * self.max_length // self.spec.row_length) + 1

        @tf.function
        def rows_needed(step: tf.Tensor) -> tf.Tensor:
            parts = tf.reshape(self._lengths(self.draw(step)["terms"]), [self.passes, part])
            return tf.stack(
                [tf.reduce_max(self._place(lengths, bound)[1]) + 1 for lengths in tf.unstack(parts)]
            )

        needed = np.array([rows_needed(tf.constant(step)).numpy().max() for step in PLANNING_STEPS])

        def round_up(rows: float) -> int:
            return -(-int(np.ceil(rows)) // row_multiple) * row_multiple

        enough = min(max(needed.mean() + 8 * needed.std(), needed.max() + 1), bound)
        ample = round_up(rows or enough)
        choices = sorted({round_up(rows) for rows in needed})
        usual = min(choices, key=lambda rows: rows + (ample - rows) * np.mean(needed > rows))
        return RowPlan(passes=self.passes, usual=usual, ample=ample)

    def batch(self, step: tf.Tensor) -> dict[str, tf.Tensor]:
        """The batch of a step, as tensors: P passes, each of G groups in R rows of L tokens.

        Returns:
            int32: `tokens`, `positions`, `segments` [P, R, L] (see `packing.pack_rows`; segment s
                is the term at place s - 1 of the flattened concepts of its pass), `concepts` [P, G,
                2k] (heads, then tails), `relations` [P, G, U]; pair u * m + j is the j-th
                occurrence of triplet u.
        """
        drawn = self.draw(step)
        terms = tf.reshape(drawn["terms"], [self.passes, -1])
        lengths = self._lengths(terms)
        placed = [self._place(part, self.plan.ample) for part in tf.unstack(lengths)]
        needed = tf.reduce_max([tf.reduce_max(row) for _, row, _ in placed]) + 1
        fits = tf.reduce_all([tf.equal(tf.size(row), tf.shape(terms)[1]) for _, row, _ in placed])
        message = f"more than the planned {self.plan.ample} rows are needed by the batch of step"
        with tf.control_dependencies([tf.debugging.Assert(fits, [message, step])]):
            rows = tf.where(needed <= self.plan.usual, self.plan.usual, self.plan.ample)
        packed = [
            self._write(*args, rows)
            for args in zip(tf.unstack(terms), tf.unstack(lengths), placed, strict=True)
        ]
        shape = [self.passes, self.draw.groups // self.passes, -1]
        return {
            **{name: tf.stack([part[name] for part in packed]) for name in packed[0]},
            "concepts": tf.reshape(drawn["concepts"], shape),
            "relations": tf.reshape(drawn["relations"], shape),
        }

    def _write(
        self, terms: tf.Tensor, lengths: tf.Tensor, placed: tuple[tf.Tensor, ...], rows: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The rows of one pass: [R, L] each, from where its terms were placed."""
        term, row, offset = placed
        length = tf.gather(lengths, term)
        sequence = tf.repeat(tf.range(tf.size(term)), length)
        position = tf.range(tf.size(sequence)) - tf.gather(
            tf.cumsum(length, exclusive=True), sequence
        )
        source = tf.gather(tf.gather(self.token_start, tf.gather(terms, term)), sequence) + tf.cast(
            position, tf.int64
        )
        place = tf.gather(row * self.spec.row_length + offset, sequence) + position
        columns = tf.stack(
            [tf.gather(self.tokens, source), position, tf.gather(term, sequence) + 1], axis=1
        )
        flat = tf.scatter_nd(place[:, None], columns, [rows * self.spec.row_length, 3])
        packed = tf.unstack(tf.reshape(flat, [rows, self.spec.row_length, 3]), axis=2)
        return dict(zip(("tokens", "positions", "segments"), packed, strict=True))

    def batches(
        self, first_step: int, last_step: int | None = None
    ) -> Iterator[dict[str, np.ndarray]]:
        """The batches of steps first_step to last_step - 1 (or endless), made ahead in parallel."""
        steps = tf.data.Dataset.range(
            first_step, np.iinfo(np.int64).max if last_step is None else last_step
        )
        stream = steps.map(self.batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        try:
            yield from stream.prefetch(8).as_numpy_iterator()
        except tf.errors.InvalidArgumentError as error:
            if "planned" not in str(error):
                raise
            raise BadInput(
                f"the plan for packed rows does not hold: {error.message.splitlines()[0]}. Set "
                "--rows to a larger number and give the same command again: the run goes on where "
                "it stopped, and rows change no result"
            ) from error
