"""The protocol by which a paper plugs into training: all that the training loop knows of one.

A `System` is a frozen dataclass of hyperparameters. It says what a batch is made of, which parts
its parameters have and how each is trained, and what the loss is. `train.py` does the rest:
devices, optimizer, checkpoints, resume, metrics.

    class MySystem(System): ...                                coder_jax/systems/my_system/
    Config(recipe="mine", system=MySystem(...), ...)           its recipes.py
    python -m coder_jax train --recipe mine --data ... --out ...
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import jax
from jax.sharding import Mesh

from data_pipeline.batches.spec import BatchSource, StepCut
from data_pipeline.files.contents import Run

if TYPE_CHECKING:
    from coder_jax.training.config import OptimizerConfig, RunConfig
    from coder_jax.training.proof import Proof

Params = dict[str, Any]
"""One entry for each part: an array, or a nested dictionary of arrays."""
Tree = Any
Batch = Mapping[str, jax.Array]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """How one top-level part of the parameters is trained, and where it lies."""

    rate: float | None = 1.0
    """Its learning rate as a multiple of the run's; None: held fixed, no gradient, no moments."""
    warms_up: bool = True
    """Whether its rate rises during the warm-up. False: it is at its peak from the first step."""
    decay: bool = False
    """Whether weight decay applies to its arrays of two dimensions or more."""
    undecayed: tuple[str, ...] = ()
    """Names inside the part that do not decay, though the others do."""
    spread: int | Literal["largest"] | None = None
    """The dimension of its arrays that lies over all devices; "largest": of each large array the
    largest, if the run asks for it (--shard-encoder); None: whole on every device."""
    touched: str | None = None
    """The array of the batch, int32, that numbers the rows (first dimension) which a step uses,
    negative for none: it works on these alone, and the loss finds them in the part, numbered anew
    in the batch. None: a step uses all."""
    untouched: Literal["catch up", "stay"] = "catch up"
    """What becomes of rows that a step does not use. "catch up": what dense Adam would do, made up
    for when they are used again. "stay": nothing, as in PyTorch's SparseAdam."""

    def validate(self, name: str) -> None:
        """Raise ValueError where the values contradict each other."""
        if self.touched and (self.decay or self.rate is None):
            raise ValueError(
                f"part {name}: rows that are updated alone neither decay nor are fixed"
            )


class Tick(NamedTuple):
    """Where in the run a loss is computed: with the seed, all that randomness may depend on."""

    step: jax.Array
    """int32 scalar, the steps that were taken before this one."""
    number: jax.Array
    """int32 scalar, which of the step's passes it is."""


# (params, extra, batch of one pass, tick) -> (mean loss over the pass, (extra, metrics)). Arrays of
# the batch are [B, ...]; metrics are float32 scalars.
Loss = Callable[[Params, Tree, Batch, Tick], tuple[jax.Array, tuple[Tree, dict[str, jax.Array]]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """A run at one of its steps.

    For scores its arrays are whole, on one device of the first host; for a refresh they lie as they
    do in training. Rows that catch up (`Part.untouched`) are as when they were last used, but for
    the last step.
    """

    step: int
    """Steps that were taken."""
    params: Params
    extra: Tree
    mesh: Mesh
    about: Mapping[str, Any]
    """Of `System.start`."""
    computed: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What the scores and the refresh of a step both need: who makes it first leaves it here."""


# What a run is scored by: {"benchmark": {"metric": value}}. Raises Stopped if asked to stop.
Scorer = Callable[[View], dict[str, dict[str, float]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedRun:
    """A run as its folder tells it, for `System.export`."""

    step: int
    params: Params
    """NumPy arrays; rows that catch up (`Part.untouched`) lag in all but the last step's."""
    identity: Mapping[str, Any]
    """Of run.json."""
    folder: Path
    """Its small files: what `BatchSource.kept` names, metrics.jsonl."""
    extra: Tree = dataclasses.field(default_factory=dict)
    """NumPy arrays, as in training; {} where the system has none."""
    notes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Of the checkpoint; {} where the parameters are not its own."""
    weights: str = ""
    """What parameters were made of, for people, if they are not those of the step."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trained:
    """What a run has learnt, for those who look at it: reports, demos."""

    encoder: Any
    """A `TermEncoder`, or what encodes as it does."""
    card: Mapping[str, Any]
    """What the model card tells (`export.model_card`)."""
    tables: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What was learnt beside it, by the name of its part."""


class System(abc.ABC):
    """One paper: subclasses are frozen dataclasses, and a recipe is a value of one."""

    name: ClassVar[str]
    """By which run.json tells the class; one of the names in `systems/recipes.py`."""
    content: ClassVar[Any] = Run
    """What run.json must have, a type for `json_files.typed`."""
    refresh_steps = 0
    """Steps between two calls of `refresh`, the first of which comes before step 1; 0 for none."""
    best: ClassVar[str | None] = None
    """The score, "benchmark/metric", by which a checkpoint is the best; None: the last is."""
    whole: ClassVar[bool] = False
    """Whether the loss needs the whole batch at once: then a step has one pass only. A system with
    `extra` needs it, as statistics of parts of a batch are not those of the batch."""
    carries_extra: ClassVar[bool] = False
    """Whether `carry` needs the other run's `extra`."""
    scored: ClassVar[tuple[str, ...]] = ()
    """The parts that `scorer` is given; all of them if empty."""

    # ---- What a step is ----

    @property
    @abc.abstractmethod
    def groups(self) -> int:
        """The parts of a step that may lie on different devices, or follow one another in passes
        unless `whole`; the loss of a step is the mean over them."""

    @property
    @abc.abstractmethod
    def terms(self) -> int:
        """The terms of a step, in which its speed is told."""

    @property
    def arithmetic(self) -> str:
        """The numbers that it computes with, for people, once it is `decided`."""
        return "float32"

    @abc.abstractmethod
    def validate(self, optimizer: "OptimizerConfig") -> None:
        """Raise BadInput, with the numbers and the remedy, where values cannot be used."""

    def decided(self) -> Self:
        """The system with nothing left to the machine: a run never changes its arithmetic."""
        return self

    def fitted(self, source: BatchSource) -> Self:
        """The system with nothing left to the data, such as the steps of an epoch."""
        return self

    @abc.abstractmethod
    def open(self, data: Path, cut: StepCut, *, rows: int, steps: int) -> BatchSource:
        """The batches of a run.

        Args:
            data: folder of a dataset, or of batches in files.
            cut: how a step is cut for the devices.
            rows: packed rows to provide for the fullest block; planned if 0.
            steps: of the run.
        """

    # ---- Parameters ----

    @abc.abstractmethod
    def parts(self) -> dict[str, Part]:
        """The parts that the parameters may have; those of a run are in `shapes`."""

    @abc.abstractmethod
    def start(
        self, source: BatchSource, noted: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], Params]:
        """What a new run begins with.

        Args:
            noted: `about` of the run, if it began already: the same files are read again.

        Returns:
            (about, initial): what of it must be known to go on without its files (run.json keeps
            it: plain JSON), and the parameters that were read, NumPy arrays, of some of the parts.

        Raises:
            BadInput: if its files cannot be read, or do not fit the data.
        """

    def prepare(
        self, source: BatchSource, about: Mapping[str, Any], initial: Params, folder: Path
    ) -> Params:
        """What else a new run begins with that takes long to make, or files that belong to it.

        Called on all hosts after `start`, until the run has a checkpoint: what a run that was
        stopped meanwhile has in `folder` is used again, and equal arguments give equal parameters.

        Args:
            source, about, initial: of the run, and of `start`.
            folder: of the run's small files; the first host writes there.

        Returns:
            Parameters beside, or in place of, those of `initial`.

        Raises:
            Stopped: if it was asked to.
        """
        return {}

    def carry(self, run: SavedRun, source: BatchSource) -> tuple[dict[str, Any], Params]:
        """As `start`, for a run that begins with another run's parameters.

        Args:
            run: the other run; its `extra` only where this system asks for it (`carries_extra`).
            source: of this run.
        """
        return dict(run.identity["start"]), {
            name: run.params[name] for name in self.parts() if name in run.params
        }

    @abc.abstractmethod
    def shapes(self, about: Mapping[str, Any]) -> tuple[Params, Tree]:
        """(params, extra) as `jax.ShapeDtypeStruct`s; `extra` holds what is neither parameter nor
        moment, such as running statistics, and is {} where there is none."""

    @abc.abstractmethod
    def begin(self, params: Params, extra: Tree) -> tuple[Params, Tree]:
        """For traced code: the parts that `start` has not read, and extra, before the first step;
        `params` and `extra` are their shapes."""

    @abc.abstractmethod
    def loss(self, about: Mapping[str, Any], mesh: Mesh, *, dropout: bool = True) -> Loss:
        """The loss of a pass; may say with `mesh.constrain` where its arrays lie."""

    # ---- While it trains ----

    def refresh(self, view: View, source: BatchSource, folder: Path) -> None:
        """Write an index that the batches of the next `refresh_steps` steps depend on.

        All hosts call it, and compute together; the first writes. Equal parameters on the same
        devices must give equal files.

        Args:
            view, source: of the run, and its batches so far.
            folder: it gets its name when all is written. Empty, or with what a run that was stopped
                has written there, perhaps for other parameters, as of other devices.
        """
        raise ValueError(f"system {self.name} has no refresh, but refresh_steps")

    def scorer(self, source: BatchSource, run: "RunConfig") -> Scorer | None:
        """What the run is scored by before step 1, every `eval_steps` and at the end.

        Raises:
            BadInput: if the data has nothing to score by.
        """
        return None

    def proof(self, source: BatchSource, about: Mapping[str, Any]) -> "Proof | None":
        """What proves at each save that what is read of the run is what was trained (`proof.py`).

        None: nothing does; then `answers` is not asked.
        """
        return None

    # ---- When it is trained ----

    def answers(self, run: SavedRun, terms: list[str]) -> dict[str, Any]:
        """What is read of a run makes of terms: arrays, by the names of the outputs of `proof`."""
        return {}

    @abc.abstractmethod
    def trained(self, run: SavedRun) -> Trained:
        """What a run has learnt."""

    @abc.abstractmethod
    def export(self, run: SavedRun, out: Path, **options: Any) -> dict[str, float]:
        """Write a folder for the Hugging Face Hub.

        Args:
            run: what was trained.
            out: the folder; an earlier export there is replaced.
            options: of the command `export`: `card`, what the model card says in place of what is
                known of the run, such as its license; `pytorch_bin`, also to write old weights.

        Returns:
            The largest difference of vectors for each library that opened the export.
        """
