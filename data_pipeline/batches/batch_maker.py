"""The packed batch of any step of a dataset, and the stream of them.

The batch of a step is a pure function of (dataset, BatchSpec, step), so a run can start at any
step, on any number of hosts, and each host builds only its own share of the groups. How a step is
cut into passes and blocks (StepCut) and where its rows go (RowPlan) changes no result.
"""

import atexit
import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from data_pipeline.batches.augment import RewrittenNames
from data_pipeline.batches.draws import Draw, NeighbourDraw, PairDraw, TermDraw
from data_pipeline.batches.packing import (
    AHEAD,
    LONG_RUN,
    MOST_SHAPES,
    PackedGroups,
    decoded_terms,
    joined,
    kept_of,
    made_ahead,
    packed_blocks,
    plan_rows,
)
from data_pipeline.batches.spec import BatchSpec, NeighbourSpec, StepCut, TermSpec
from data_pipeline.dataset.store import TripletDataset
from data_pipeline.process import BadInput

# Steps far beyond any run; the number of rows is planned with their batches.
_FIRST_PLANNING_STEP = 2**40
_PLANNING_GROUPS = 1600
_MOST_AT_ONCE, _TERMS_AT_ONCE = 8, 1 << 14  # of steps that are made together


@dataclasses.dataclass(frozen=True, kw_only=True)
class TeacherVectors:
    """The vectors that another encoder gives the terms of a dataset.

    Attributes:
        vectors: float [n, D], perhaps mapped: those of a batch are read when it is made.
        row_of_term: int64 [N], the row of each term of the dataset.
        hash: of both, for runs that go on.
    """

    vectors: np.ndarray
    row_of_term: np.ndarray
    hash: str

    @property
    def width(self) -> int:
        """D."""
        return self.vectors.shape[1]

    def __call__(self, terms: np.ndarray) -> np.ndarray:
        """float32 [..., D]: the vectors of terms."""
        found = self.vectors[self.row_of_term[terms.ravel()]]
        return found.astype(np.float32).reshape(*terms.shape, self.width)


class BatchMaker(PackedGroups):
    """Makes the batch of any step; holds the dataset's tables.

    Args:
        dataset: the opened dataset.
        spec: what a batch is made of.
        cut: how the groups of a step are cut, and which of them this host makes.
        rows: rows to provide for the fullest block; planned from the dataset if 0.
        run_steps: of the run, which decides how many shapes are worth compiling.
        teacher: the vectors of another encoder, if the spec asks for them.

    Raises:
        BadInput: if the numbers do not fit each other or the dataset.
    """

    floats: tuple[str, ...] = ("teacher",)

    def __init__(
        self,
        dataset: TripletDataset,
        spec: BatchSpec | TermSpec,
        cut: StepCut | None = None,
        *,
        rows: int = 0,
        run_steps: int = LONG_RUN,
        shapes: int = MOST_SHAPES,
        teacher: TeacherVectors | None = None,
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
        self.max_length = int(dataset.manifest.tokenizer.max_length)
        if self.max_length > spec.row_length:
            raise BadInput(
                f"the dataset's terms have up to {self.max_length} tokens, but rows have "
                f"{spec.row_length}; give --row-length {self.max_length} or more"
            )
        self.dataset, self.folder, self.manifest = dataset, dataset.folder, dataset.manifest
        self.kept = kept_of(self.folder)
        self.token_start, self.tokens = dataset.token_start, dataset.tokens
        self.rewritten: RewrittenNames | None = None
        if isinstance(spec, BatchSpec):
            self.rewritten = RewrittenNames(dataset, spec) if spec.augment else None
            assert bool(spec.teacher) == (teacher is not None), "a teacher comes with its vectors"
        self.teacher = teacher
        if spec.seed:  # all seeds have the rows of the first, and so share its compiled programs
            first = dataclasses.replace(spec, seed=0)
            self.plan = BatchMaker(
                dataset,
                first,
                cut,
                rows=rows,
                run_steps=run_steps,
                shapes=shapes,
                teacher=teacher,
            ).plan
        else:
            self.plan = plan_rows(self.sample_lengths(), spec, self.cut, rows, run_steps, shapes)

    @property
    def steps_per_epoch(self) -> float:
        """The steps in which each item of the draw comes once: a triplet, a concept, a pair of
        names, a term, or an anchor with its neighbours.
        """
        return self.draw.groups_per_epoch / self.spec.groups

    @property
    def identity(self) -> dict[str, Any]:
        """What the data must have in common with those of a run that is resumed."""
        if self.teacher is None:
            return super().identity
        return super().identity | {"teacher": {"hash": self.teacher.hash}}

    def shapes(self, rows: int) -> dict[str, tuple[int, ...]]:
        """The shape of each array of a batch, as `batch` says."""
        shapes = super().shapes(rows)
        if self.teacher is None:
            return shapes
        return shapes | {"teacher": (*shapes["concepts"], self.teacher.width)}

    def some_terms(self) -> list[str]:
        """A few terms spread over the data, the same in every run."""
        return decoded_terms(self.folder, self.dataset.tokens, self.dataset.token_start)

    def with_index(self, index: Path) -> Self:
        """The same data with the neighbours of an index; the planned numbers of rows stay.

        Raises:
            BadInput: if there is nothing here that depends on one, or it is of other data.
        """
        if not isinstance(self.draw, NeighbourDraw):
            return super().with_index(index)
        other = copy.copy(self)
        other.draw = self.draw.with_index(index)
        return other

    def _drawn(self, step: int, groups: np.ndarray) -> dict[str, np.ndarray]:
        """What `Draw` says of the terms of some groups; with `teacher`, if asked for."""
        drawn = self.draw(step, groups)
        if self.teacher is not None:
            drawn = drawn | {"teacher": self.teacher(drawn["terms"])}
        return drawn

    def _tokens(self, terms: np.ndarray, step: int, groups: np.ndarray) -> tuple[np.ndarray, ...]:
        """The tokens of the drawn terms of some groups: int64 bounds [G * N + 1], and tokens.

        Args:
            terms: int64 [G, N].
            step, groups: as for the draw.
        """
        bounds, (tokens,) = joined(self.token_start, terms.ravel(), self.tokens)
        if self.rewritten is None:
            return bounds, tokens
        return self.rewritten(bounds, tokens, terms, step * self.spec.groups + np.asarray(groups))

    def sample_lengths(self) -> np.ndarray:
        """int32 [S, G, N]: the lengths of the terms of some steps, the same on every host."""
        steps = min(200, max(8, _PLANNING_GROUPS // self.spec.groups))
        groups = np.arange(steps * self.spec.groups)
        drawn = self.draw(_FIRST_PLANNING_STEP, groups)
        bounds, _ = self._tokens(drawn["terms"], _FIRST_PLANNING_STEP, groups)
        return np.diff(bounds).reshape(steps, self.spec.groups, -1).astype(np.int32)

    def batch(self, step: int) -> dict[str, np.ndarray]:
        """The batch of a step: P passes of B blocks of this host.

        Returns:
            int32: `tokens`, `positions`, `segments` [P, B, R, L], R rows of L tokens (see
                `packing.pack_rows`; segment s is the term at place s - 1 of the flattened concepts
                of its block), R as in `self.plan.ample`; and what `Draw` says of the terms,
                [P, B, groups, ...] each, without the terms. float32: `teacher`, [P, B, groups, N,
                D], the vectors that a teacher gives the terms, if there is one.

        Raises:
            BadInput: if a block needs more rows than were planned.
        """
        return {name: array[0] for name, array in self._at_once(range(step, step + 1)).items()}

    def _at_once(self, steps: range) -> dict[str, np.ndarray]:
        """`batch` for several steps at once [S, P, B, ...]: fewer calls of NumPy are faster."""
        shape = (len(steps), *self.groups.shape)
        first = np.arange(len(steps))[:, None] * self.spec.groups
        groups = (first + self.groups.ravel()).ravel()
        drawn = self._drawn(steps[0], groups)
        bounds, tokens = self._tokens(drawn.pop("terms"), steps[0], groups)
        rows = self.plan.ample
        try:
            packed = packed_blocks(tokens, bounds, shape[:3], self.spec.row_length, rows)
        except BadInput as error:
            if len(steps) > 1:  # which of them is it?
                for step in steps:
                    self.batch(step)
            what = f"more than the planned {rows} rows are needed by the batch of step {steps[0]}"
            raise BadInput(_too_few_rows(what)) from error
        return packed | {
            name: values.reshape(*shape, *values.shape[1:]) for name, values in drawn.items()
        }

    def unpacked(self, step: int) -> dict[str, np.ndarray]:
        """All groups of a step before they are cut and packed.

        Returns:
            `tokens` int32 [sum of lengths]; `lengths` int32 [G, N]; and what `Draw` says of the
            terms, without the terms.
        """
        groups = np.arange(self.spec.groups)
        drawn = self._drawn(step, groups)
        terms = drawn.pop("terms")
        bounds, tokens = self._tokens(terms, step, groups)
        lengths = np.diff(bounds).reshape(terms.shape).astype(np.int32)
        return {"tokens": tokens.astype(np.int32), "lengths": lengths, **drawn}

    def batches(
        self, first_step: int, last_step: int | None = None
    ) -> Iterator[dict[str, np.ndarray]]:
        """The batches of steps first_step to last_step - 1 (or endless), computed ahead."""
        at_once = max(1, min(_MOST_AT_ONCE, _TERMS_AT_ONCE // self.spec.terms))
        kinds = {name: "float32" if name in self.floats else "int32" for name in self.shapes(1)}
        for made in _streamed(self._at_once, kinds, first_step, last_step, at_once):
            for nth in range(len(made["tokens"])):
                yield {name: array[nth] for name, array in made.items()}


def _streamed(
    make: Callable[[range], dict[str, np.ndarray]],
    kinds: Mapping[str, str],
    first_step: int,
    last_step: int | None,
    at_once: int,
) -> Iterator[dict[str, np.ndarray]]:
    """The results of `make` for steps first_step to last_step - 1 (or endless), through tf.data.

    Where TensorFlow is not installed a thread makes them ahead.

    Args:
        make: from a range of steps to the arrays of their batches.
        kinds: the name of each array, and what its numbers are.
        first_step, last_step: which steps.
        at_once: steps that `make` is asked for.
    """
    last = np.iinfo(np.int64).max if last_step is None else last_step

    def arrays_from(begin: int) -> dict[str, np.ndarray]:
        return make(range(begin, min(begin + at_once, last)))

    try:
        from data_pipeline.quiet_tensorflow import tf
    except ImportError:
        yield from made_ahead(arrays_from, range(first_step, last, at_once))
        return
    failed: dict[int, Exception] = {}

    def arrays(begin: np.int64) -> list[np.ndarray]:
        try:
            made = arrays_from(int(begin))
        except Exception as error:
            failed[int(begin)] = error
            raise
        return [made[name] for name in kinds]

    def mapped(begin: "tf.Tensor") -> dict[str, "tf.Tensor"]:
        made = tf.numpy_function(arrays, [begin], list(map(tf.as_dtype, kinds.values())))
        return dict(zip(kinds, made, strict=True))

    # One thread: with two, Python's interpreter lock makes it slower.
    stream = tf.data.Dataset.range(first_step, last, at_once).map(mapped)
    opened = [stream.prefetch(-(-AHEAD // at_once)).as_numpy_iterator()]
    # TensorFlow's threads must not call Python once it has begun to shut down: each would wait for
    # the other for ever.
    atexit.register(opened.clear)
    error_of_tensorflow = tf.errors.OpError  # `tf` may have gone then
    try:
        while opened:
            batch = next(opened[0], None)
            if batch is None:
                return
            yield batch
    except error_of_tensorflow:
        if failed:
            raise failed[min(failed)] from None
        raise
    finally:
        opened.clear()
        atexit.unregister(opened.clear)


def _too_few_rows(what: str) -> str:
    """The message for a batch that needs more rows than were planned."""
    return (
        f"the plan for packed rows does not hold: {what}. Set --rows to a larger number and give "
        "the same command again: the run goes on where it stopped, and rows change no result"
    )
