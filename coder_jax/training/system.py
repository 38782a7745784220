"""The protocol through which a paper's system plugs into training, and the configuration of a
run.
"""

import abc
import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    Self,
    TypeVar,
)

import jax
import msgspec
import numpy as np
from jax.sharding import Mesh
from msgspec import UNSET, UnsetType

from coder_jax.training.run_folder import Run, RunJson, StartOfRun, typed_run
from data_pipeline.batches.spec import BatchSource, StepCut, flag_of
from data_pipeline.files.identity import NEUTRAL, typed
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput

# -------------------------------------------------------------------------------------------------
# The protocol of a system: all that the training loop knows of a paper.
#
# A `System` is a frozen dataclass of hyperparameters. It says what a batch is made of, which parts
# its parameters have and how each is trained, and what the loss is. `train.py` does the rest:
# devices, optimizer, checkpoints, resume, metrics.
#
#     class MySystem(System): ...                                coder_jax/systems/my_system.py
#     Config(recipe="mine", system=MySystem(...), ...)           its recipes, in the same file
#     python -m coder_jax train --recipe mine --data ... --out ...

T = TypeVar("T")
ONCE = 1 << 40  # steps: more than any run has

Params = dict[str, Any]
"""One entry for each part: an array, or a nested dictionary of arrays."""
Tree = Any
Batch = Mapping[str, jax.Array]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A top-level part of the parameters: its training and its placement."""

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
        """Raise ValueError for contradictory values."""
        if self.touched and (self.decay or self.rate is None):
            raise ValueError(
                f"part {name}: rows that are updated alone neither decay nor are fixed"
            )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StepKey:
    """The place in the run at which a loss is computed, and what is computed twice to save memory.

    With the seed the place determines all randomness.
    """

    step: jax.Array
    """int32 scalar, the steps that were taken before this one."""
    number: jax.Array
    """int32 scalar, which of the step's passes it is."""
    chunks: int = dataclasses.field(default=1, metadata={"static": True})
    """`RunConfig.cache_chunks`."""
    remat: str = dataclasses.field(default="none", metadata={"static": True})
    """`RunConfig.remat`."""


# (params, extra, batch of one pass, step key) -> (mean loss over the pass, (extra, metrics)).
# Arrays of the batch are [B, ...]; metrics are float32 scalars.
Loss = Callable[[Params, Tree, Batch, StepKey], tuple[jax.Array, tuple[Tree, dict[str, jax.Array]]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """A run at one of its steps.

    For scores its arrays are whole, on one device of each host; for a refresh they lie as they do
    in training. Rows that catch up (`Part.untouched`) are as when they were last used, but for the
    last step.
    """

    step: int
    """Steps that were taken."""
    params: Params
    extra: Tree
    mesh: Mesh
    recorded_start: Any
    """Of `System.load_initial`."""
    computed: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What the scores and the refresh of a step both need: who makes it first leaves it here."""


# The scores of a run: {"benchmark": {"metric": value}}. All hosts call it, so that they can share
# the work; those of the first count, and the others may give none. Raises Stopped if asked to stop.
Scorer = Callable[[View], dict[str, dict[str, float]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedRun:
    """A run as read from its folder, for `System.export`."""

    step: int
    params: Params
    """NumPy arrays; rows that catch up (`Part.untouched`) lag in all but the last step's."""
    identity: RunJson
    """Of run.json."""
    folder: Path
    """Its small files: what `BatchSource.kept` names, metrics.jsonl."""
    extra: Tree = dataclasses.field(default_factory=dict)
    """NumPy arrays, as in training; {} where the system has none."""
    notes: "Notes" = dataclasses.field(default_factory=lambda: Notes())
    """Of the checkpoint; none where the parameters are not its own."""
    weights: str = ""
    """What parameters were made of, for people, if they are not those of the step."""

    def described(self, content: type[T]) -> T:
        """What run.json says, as a type such as `System.content`; BadInput if it is another's."""
        return typed_run(self.identity, content, "run.json of the run to start from")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trained:
    """The result of a run, for reports and demos."""

    encoder: Any
    """A `TermEncoder`, or what encodes as it does."""
    card: Mapping[str, Any]
    """What the model card tells (`export.model_card`)."""
    tables: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What was learnt beside it, by the name of its part."""


class System(abc.ABC):
    """The protocol of a paper's system: subclasses are frozen dataclasses, recipes are their
    instances.
    """

    name: ClassVar[str]
    """By which run.json tells the class; one of the names in `systems/recipes.py`."""
    content: ClassVar[type[Run]] = Run
    """What run.json must have; its `start` is what `load_initial` gives."""
    refresh_steps = 0
    """Steps between two calls of `refresh`, the first of which comes before step 1; 0 for none,
    `ONCE` for that one alone, as `resolved_for` makes it of a 0 that users give."""
    whole: ClassVar[bool] = False
    """Whether the loss needs the whole batch at once: then a step has one pass only. A system with
    `extra` needs it, as statistics of parts of a batch are not those of the batch."""
    encodes_rows: ClassVar[bool] = False
    """Whether its loss encodes packed rows with a BERT, as `StepKey.chunks` and `remat` say."""
    init_needs_extra: ClassVar[bool] = False
    """Whether `init_from_run` needs the other run's `extra`."""
    scored: ClassVar[tuple[str, ...]] = ()
    """The parts that `scorer` is given; all of them if empty."""

    @property
    def best(self) -> str | None:
        """The score, "benchmark/metric", by which a checkpoint is the best; None: the last is."""
        return None

    # ---- What a step is ----

    @property
    @abc.abstractmethod
    def groups(self) -> int:
        """The parts of a step that may be on different devices or, unless `whole`, in different
        passes; the loss of a step is their mean.
        """

    @property
    @abc.abstractmethod
    def terms(self) -> int:
        """The number of terms of a step, by which speed is measured."""

    def flops(self, recorded_start: Any, lengths: np.ndarray) -> float:
        """Floating-point operations that a step needs at least, forward and backward; 0: unknown.

        Args:
            recorded_start: of `load_initial`.
            lengths: int, tokens of each term of the step.
        """
        return 0.0

    @property
    def arithmetic(self) -> str:
        """The dtype of its computations, in words, once `resolved`."""
        return "float32"

    @abc.abstractmethod
    def validate(self, optimizer: "OptimizerConfig") -> None:
        """Raise BadInput, with the numbers and the remedy, for impossible values."""

    def resolved(self) -> Self:
        """The system with all machine-dependent settings fixed: a run never changes its
        arithmetic.
        """
        return self

    def resolved_for(self, source: BatchSource) -> Self:
        """The system with all data-dependent settings fixed, such as the steps of an epoch."""
        return self

    @abc.abstractmethod
    def open(self, data: Path, cut: StepCut, *, rows: int, steps: int) -> BatchSource:
        """The batches of a run.

        Args:
            data: folder of a dataset.
            cut: how a step is cut for the devices.
            rows: packed rows to provide for the fullest block; planned if 0.
            steps: of the run.
        """

    # ---- Parameters ----

    @abc.abstractmethod
    def parts(self) -> dict[str, Part]:
        """The parts that parameters may have; those of a run are in `shapes`."""

    @abc.abstractmethod
    def load_initial(
        self, source: BatchSource, recorded_start: Any = None
    ) -> tuple[StartOfRun, Params]:
        """The initial parameters of a new run that come from files.

        Args:
            recorded_start: of run.json, if the run began already: the same files are read again.

        Returns:
            (start, initial): what of it must be known to go on without its files, as run.json keeps
            it (`content`), and the parameters that were read, NumPy arrays, of some of the parts.

        Raises:
            BadInput: if its files cannot be read, or do not fit the data.
        """

    def precompute(
        self, source: BatchSource, recorded_start: Any, initial: Params, folder: Path
    ) -> Params:
        """Further initial data of a new run that takes long to compute, or files that belong to the
        run.

        Called on all hosts after `load_initial`, until the run has a checkpoint: what a run that
        was stopped meanwhile has in `folder` is used again, and equal arguments give equal
        parameters.

        Args:
            source, recorded_start, initial: of the run, and of `load_initial`.
            folder: of the run's small files; the first host writes there.

        Returns:
            Parameters beside, or in place of, those of `initial`.

        Raises:
            Stopped: if it was asked to.
        """
        return {}

    def init_from_run(self, run: SavedRun, source: BatchSource) -> tuple[StartOfRun, Params]:
        """`load_initial` for a run that starts from another run's parameters.

        Args:
            run: the other run; its `extra` only where this system asks for it (`init_needs_extra`).
            source: of this run.
        """
        return run.described(self.content).start, {
            name: run.params[name] for name in self.parts() if name in run.params
        }

    @abc.abstractmethod
    def shapes(self, recorded_start: Any) -> tuple[Params, Tree]:
        """(params, extra) as `jax.ShapeDtypeStruct`s; `extra` holds state that is neither parameter
        nor moment, such as running statistics, and is {} if there is none.
        """

    @abc.abstractmethod
    def init_params(self, params: Params, extra: Tree) -> tuple[Params, Tree]:
        """In traced code: initial values of the parts that `load_initial` did not read, and of
        extra; `params` and `extra` are their shapes.
        """

    @abc.abstractmethod
    def loss(self, recorded_start: Any, mesh: Mesh) -> Loss:
        """The loss of a pass; may place its arrays with `mesh.constrain`."""

    # ---- During training ----

    def refresh(self, view: View, source: BatchSource, folder: Path) -> None:
        """Write an index on which the batches of the next `refresh_steps` steps depend.

        All hosts call it, and compute together; the first writes. Equal parameters on the same
        devices must give equal files.

        Args:
            view, source: of the run, and its batches so far.
            folder: it gets its name when all is written. Empty, or with what a run that was stopped
                has written there, perhaps for other parameters, as of other devices.
        """
        raise ValueError(f"system {self.name} has no refresh, but refresh_steps")

    def scorer(self, source: BatchSource, run: "RunConfig") -> Scorer | None:
        """The scorer of a run, called before step 1, every `eval_steps` and at the end.

        Raises:
            BadInput: if the data has nothing to score by.
        """
        return None

    def proof(self, source: BatchSource, recorded_start: Any) -> "Proof | None":
        """The outputs, recorded at each save, that readers of the run must reproduce.

        None: nothing does; then `saved_outputs` is not asked.
        """
        return None

    def try_export(self, run: SavedRun) -> None:  # noqa: B027
        """Make and open an export of a new run before its first step; the first host calls it.

        Args:
            run: with the parameters that it begins with, and the data's folder as its own.

        Raises:
            BadInput: if what the run trains could not be exported.
        """

    # ---- After training ----

    def saved_outputs(self, run: SavedRun, terms: list[str]) -> dict[str, Any]:
        """The outputs of `proof`, computed by the model as read from a run; arrays by name."""
        return {}

    @abc.abstractmethod
    def trained(self, run: SavedRun) -> Trained:
        """The result of a run, for reports and demos."""

    @abc.abstractmethod
    def export(
        self,
        run: SavedRun,
        out: Path,
        *,
        card: Mapping[str, Any] | None = None,
        pytorch_bin: bool = False,
    ) -> dict[str, float]:
        """Write a folder for the Hugging Face Hub.

        Args:
            run: what was trained.
            out: the folder; an earlier export there is replaced.
            card: what the model card says in place of what is known of the run, such as its
                license.
            pytorch_bin: whether to write pytorch_model.bin, too.

        Returns:
            The largest difference of vectors for each library that opened the export.
        """


# -------------------------------------------------------------------------------------------------
# The configuration of a training run: typed dataclasses, their flags, and JSON.
#
# What a paper decides is in its `System`; the recipes choose one. No object here acts.

S = TypeVar("S", bound=System)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """AdamW with linear warm-up and linear decay to zero."""

    steps: int = 100_000
    """Optimizer steps of the run."""
    epochs: float = 0.0
    """Passes over the dataset, in place of --steps (0: --steps counts). The warm-up then keeps its
    share of the run, unless --warmup-steps is given, too. Where a recipe has epochs, its --steps
    are those of the paper's data."""
    learning_rate: float = 2e-5
    """Highest learning rate, after the warm-up."""
    warmup_steps: float = 10_000
    """Steps in which the learning rate rises from 0 (below 1: a share of the run). They must be
    fewer than --steps."""
    schedule: Literal["linear", "constant"] = "linear"
    """After the warm-up the learning rate falls linearly to 0 at the last step, or is constant."""
    weight_decay: float = 0.01
    """Weight decay of kernels and embeddings; biases and norms have none."""
    clip_norm: float = 1.0
    """Gradients are clipped to this global norm; 0 never clips."""
    b1: float = 0.9
    """Decay of Adam's mean of the gradient."""
    b2: float = 0.999
    """Decay of Adam's mean of the squared gradient."""
    eps: float = 1e-8
    """Added to the denominator of Adam's step."""
    first_moment: Literal["float32", "bfloat16"] = "float32"
    """How Adam's mean of the gradient is stored; bfloat16 takes 2 bytes a weight, not 4. The mean
    of the square stays float32: bfloat16 would lose its small changes."""

    def resolved_for(self, source: BatchSource) -> Self:
        """The same in whole steps, as the epochs of the data have them; BadInput as of
        `check_warmup`.
        """
        steps = self.steps
        if self.epochs:
            steps = max(1, round(self.epochs * source.steps_per_epoch))
        warmup = self.warmup_steps * (steps if self.warmup_steps < 1 else 1)
        resolved = dataclasses.replace(self, steps=steps, warmup_steps=round(warmup))
        resolved.check_warmup()
        return resolved

    def check_warmup(self) -> None:
        """Raise BadInput for a warm-up that is not shorter than the run."""
        if 0 <= self.warmup_steps < self.steps:
            return
        length, flag = f"--steps is {self.steps}", "--steps"
        if self.epochs:
            length, flag = f"--epochs is {self.epochs:g}, {self.steps} steps", "--epochs"
        raise BadInput(
            f"--warmup-steps is {self.warmup_steps:g} and {length}: the warm-up must be shorter "
            f"than the run; give --warmup-steps {self.steps // 10} or more {flag}"
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Where and how a run is carried out; may differ when a run goes on.

    Nothing here changes a result, but for float rounding where passes or rows differ.
    """

    data: str = ""
    """Folder of the dataset, made by `python -m coder_jax build`. For recall that of `python -m
    data_pipeline.build_mentions`, for rank that of `python -m coder_jax candidates`."""
    out: str = ""
    """Folder of the run (one that is already there is resumed)."""
    passes: int = 1
    """Compute a step in so many parts, for less memory (gradient accumulation). It must divide
    --groups. Raise it if there is too little memory."""
    cache_chunks: int = 1
    """Encode the terms of a pass in so many chunks, for less memory and more time: each is encoded
    twice (GradCache). Raise it where --passes cannot be raised, as with --groups 1."""
    remat: Literal["none", "layers", "dots"] = "none"
    """What the backward pass computes again, for less memory and more time. none: nothing; layers:
    each layer of the encoder, of which only the input is kept; dots: all but the layers' products
    with weights."""
    rows: int = 0
    """Rows of tokens to provide for a device's terms; 0: planned from the dataset. Set it only if
    an error asks for it."""
    shard_encoder: bool = False
    """Divide the encoder and Adam's means over all devices, for less memory and more communication.
    For an encoder that is too large for one device."""
    log_steps: int = 10
    """Steps between lines of metrics.jsonl."""
    eval_steps: int = 0
    """Steps between evaluations on the held-out terms or mentions (0: never)."""
    eval_terms: int = 10_000
    """Most terms to search in the evaluations of --eval-steps: those of the held-out concepts, then
    others."""
    save_steps: int = 10_000
    """Steps between checkpoints that are kept."""
    keep: int = 0
    """Keep the newest so many checkpoints of --save-steps, and of recall, rank and BNE the best; 0:
    all."""
    save_minutes: float = 15.0
    """Minutes between further checkpoints, to resume from; only the newest two are kept."""
    restore_step: int = 0
    """Resume from this step's checkpoint if the newest one cannot be read; 0: stop then."""
    extend: bool = False
    """Let a run continue to more --steps than it was started with. The schedule is recomputed for
    the new length, so with --schedule linear the learning rate jumps up."""
    track: Literal["none", "wandb", "mlflow"] = "none"
    """Also send metrics to this service; needs pip install wandb or mlflow. Its files lie in the
    folder of the run; if that is in a bucket, set WANDB_DIR to a folder on a disk."""
    profile: Annotated[str, Flag(metavar="FIRST:LAST")] = ""
    """Trace these steps, such as 10:15: what the devices do and when, for TensorBoard and Perfetto,
    in the run's folder tensorboard."""
    peak_tflops: float = 0.0
    """Peak TFLOP/s of one device; `mfu` is the share of it that is used. 0: as its maker says
    (bfloat16), where it is known."""
    quiet: bool = False
    """Print only warnings and errors."""

    @property
    def profiled(self) -> range:
        """The steps that are traced; BadInput for anything but FIRST:LAST."""
        if not self.profile:
            return range(0)
        first, colon, last = self.profile.partition(":")
        numbers = [int(part) if part.isdecimal() else 0 for part in (first, last)]
        if not colon or not 1 <= numbers[0] <= numbers[1]:
            raise BadInput(
                f"--profile is {self.profile!r}; expected FIRST:LAST, two steps such as 10:15"
            )
        return range(numbers[0], numbers[1] + 1)


# The least values of numbers above.
_LEAST = dict.fromkeys(
    ("passes", "cache_chunks", "log_steps", "save_steps", "eval_terms"), 1
) | dict.fromkeys(
    (
        *("epochs", "learning_rate", "weight_decay", "clip_norm", "b1", "b2", "eps"),
        *("rows", "eval_steps", "save_minutes", "restore_step", "keep", "peak_tflops"),
        *("mu", "type_weight", "relation_noise", "relation_learning_rate_factor"),
        "relation_rank",
    ),
    0,
)
_BELOW = {"b1": 1, "b2": 1}
_UNNAMED = ("batch", "model")  # parts of a system whose name is not in the flags of their values


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(Generic[S]):
    """Everything that a training run depends on."""

    recipe: str
    system: S
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    start: Annotated[str, Flag(metavar="RUN", name="--from", heading="the start")] = ""
    """Folder of another run, to start from all that it learnt (--init takes its encoder alone); its
    newest checkpoint, but the best of recall, rank and BNE with --development."""
    run: RunConfig = dataclasses.field(default_factory=RunConfig)

    def validate(self) -> None:
        """Raise BadInput, with the numbers and the remedy, for impossible values."""
        optimizer, run = self.optimizer, self.run
        if not optimizer.epochs:  # else the data says how long it is
            optimizer.check_warmup()
        self.system.validate(optimizer)
        if run.profiled and not optimizer.epochs and run.profiled[-1] > optimizer.steps:
            raise BadInput(
                f"--profile is {run.profile} and --steps is {optimizer.steps}: the run ends "
                "before; give steps that it has"
            )
        for settings in (optimizer, run, self.system):
            _check_numbers(settings)
        if self.system.best is not None and not run.eval_steps:
            raise BadInput(
                f"--eval-steps is 0, but {self.system.name} takes the checkpoint with the best "
                f"{self.system.best}; give --eval-steps 1 or more"
            )
        if self.system.whole and run.passes > 1:
            raise BadInput(
                f"--passes is {run.passes}, but the loss of {self.system.name} needs the whole "
                "batch at once; give --passes 1 and, if memory is short, --cache-chunks, more "
                "devices or fewer --pairs"
            )
        if not self.system.encodes_rows and (run.cache_chunks, run.remat) != (1, "none"):
            flag = f"--cache-chunks is {run.cache_chunks}"
            if run.cache_chunks == 1:
                flag = f"--remat is {run.remat}"
            raise BadInput(
                f"{flag}, but {self.system.name} trains no BERT, whose layers these flags compute "
                "twice; leave it out"
            )


def _check_numbers(settings: Any, prefix: str = "") -> None:
    """Raise BadInput for a setting, at any depth, that is not finite or out of bounds."""
    for field in dataclasses.fields(settings):
        name, value = field.name, getattr(settings, field.name)
        flag = flag_of(f"{prefix}{name}")
        if dataclasses.is_dataclass(value):
            _check_numbers(value, "" if name in _UNNAMED else f"{name}.")
        elif isinstance(value, int | float):
            if not math.isfinite(value):
                raise BadInput(f"{flag} is {value}; expected a finite number")
            if name in _LEAST and value < _LEAST[name]:
                raise BadInput(f"{flag} is {value}; expected {_LEAST[name]} or more")
            if name in _BELOW and value >= _BELOW[name]:
                raise BadInput(f"{flag} is {value}; expected less than {_BELOW[name]}")


def to_json(config: Config) -> dict[str, Any]:
    """The configuration as nested dictionaries of plain values."""
    values = json.loads(json.dumps(dataclasses.asdict(config)))
    values["system"] = {"name": config.system.name, **values["system"]}
    return values


def from_json(kind: type[T], values: dict[str, Any], source: str) -> T:
    """A frozen dataclass from the JSON form of `dataclasses.asdict`.

    Args:
        kind: the dataclass; its fields may be dataclasses.
        values: one for each field.
        source: what names the values in messages.

    Raises:
        BadInput: if a value is not of its field's type, or there are other fields.
    """
    made = typed(values, kind, source, "it is damaged, or of another version of coder_jax")
    known = json.loads(json.dumps(dataclasses.asdict(made)))  # type: ignore[call-overload]
    for found, names in (
        ("has no", _names_beside(known, values)),
        ("has the unknown", _names_beside(values, known)),
    ):
        if names:
            raise BadInput(
                f"{source}: {kind.__name__} {found} {', '.join(names)}; expected the settings of "
                "this version of coder_jax: use it with the version that wrote it"
            )
    return made


def _names_beside(there: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    """Names in nested dictionaries of settings that the other does not have."""
    names = []
    for name, value in there.items():
        if name not in others and (name, value) not in NEUTRAL:
            names.append(name)
        elif isinstance(value, Mapping) and isinstance(others.get(name), Mapping):
            names += _names_beside(value, others[name])
    return names


# -------------------------------------------------------------------------------------------------
# The proof of a run: outputs for some terms, computed by training itself.
#
# At each save the notes of the checkpoint get `terms` and `outputs`, as they have them of the
# parameters before the first step. Whoever reads the run must find these outputs again.

_TOLERANCE = 1e-5  # of unit vectors, cosines and probabilities, float32


@dataclasses.dataclass(frozen=True)
class Proof:
    """The outputs of training for some terms."""

    terms: Sequence[str]
    outputs: Callable[[Params, Tree], dict[str, jax.Array]]
    """Of (params, extra), as they lie in training: float32, the first dimension counts the terms.
    It is compiled, and all hosts call it."""


@dataclasses.dataclass(frozen=True)
class Proved:
    """What notes have of a `Proof`: outputs by their names, lists of numbers."""

    terms: list[str]
    outputs: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class IndexOfRun:
    """Which index the batches of a step depend on: when it was made, and a hash of it."""

    step: int
    hash: str


class Notes(msgspec.Struct, frozen=True):
    """What a run knows when it saves a checkpoint, beside its state."""

    best: tuple[int, float] | None = None
    """Step and score of the best checkpoint so far."""
    index: IndexOfRun | None = None
    proof_of_start: Proved | None | UnsetType = msgspec.field(
        name="proof of the start", default=UNSET
    )
    """The outputs of the parameters before the first step."""
    proof: Proved | None | UnsetType = UNSET
    """Those of the checkpoint."""


def proved(
    proof: Proof | None, params: Params, extra: Tree, one_host: Callable[[Any], Any]
) -> Proved | None:
    """The proof of some parameters, for the notes; all hosts call it.

    Args:
        proof: of `System.proof`.
        params, extra: of the state.
        one_host: of `Step`.
    """
    if proof is None:
        return None
    outputs = jax.device_get(one_host(proof.outputs(params, extra)))
    # Nine digits give a float32 back as it was.
    rounded = np.vectorize(lambda value: float(f"{value:.9g}"), otypes=[float])
    return Proved(
        terms=list(proof.terms),
        outputs={name: rounded(array).tolist() for name, array in outputs.items()},
    )


def check_proof(
    found: Callable[[list[str]], Mapping[str, np.ndarray]],
    run: SavedRun,
    what: str,
    *,
    of_start: bool = False,
) -> bool:
    """Whether a run has a proof.

    Args:
        found: what is made of terms by what was read of the run, by the name of each output.
        run: it.
        what: was read, for messages.
        of_start: whether it was made of the parameters before the first step.

    Raises:
        BadInput: if what is found is not what training found.
    """
    kept = run.notes.proof_of_start if of_start else run.notes.proof
    if not kept:
        return False
    for name, array in found(kept.terms).items():
        expected = np.array(kept.outputs[name], np.float32)
        expected = expected.reshape(len(expected), -1)  # a probability may be [n] or [n, 1]
        apart = np.abs(np.reshape(array, expected.shape) - expected).max(axis=1)
        worst = int(np.argmax(np.where(np.isnan(apart), np.inf, apart)))
        if not apart[worst] <= _TOLERANCE:  # catches NaN too
            raise BadInput(
                f"{what} gives other {name} than training gave: they differ by {apart[worst]:.2e} "
                f"for the term {kept.terms[worst]!r}; expected at most {_TOLERANCE:.0e}. It was "
                "read otherwise than it was trained, and is of no use: take another checkpoint, or "
                "the version of coder_jax by which the run was trained"
            )
    return True
