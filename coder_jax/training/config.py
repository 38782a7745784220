"""The configuration of a training run: typed, closed, visible; flags; JSON in and out.

What a paper decides is in its `System`; the recipes choose one. No object here acts.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Generic, Literal, TypeVar

import tyro

from coder_jax.training.system import System
from data_pipeline.files.identity import GONE
from data_pipeline.files.json_files import typed
from data_pipeline.process.errors import BadInput

S = TypeVar("S", bound=System)
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """AdamW with linear warm-up and linear decay to zero."""

    steps: int = 100_000
    """Optimizer steps of the whole run."""
    learning_rate: float = 2e-5
    """Peak of the learning rate."""
    warmup_steps: int = 10_000
    """Steps over which the rate rises."""
    schedule: Literal["linear", "constant"] = "linear"
    """After the warm-up the rate falls in a line to 0 at the last step, or stays."""
    weight_decay: float = 0.01
    """Of kernels and embeddings; biases and norms do not decay."""
    clip_norm: float = 1.0
    """Largest global gradient norm; 0 never clips."""
    b1: float = 0.9
    """Decay of Adam's mean of the gradient."""
    b2: float = 0.999
    """Decay of Adam's mean of the squared gradient."""
    eps: float = 1e-8
    """Added to the denominator of Adam's step."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Where and how a run is carried out; may differ when a run goes on.

    Nothing here changes a result, but for float rounding where passes or rows differ.
    """

    data: str = ""
    """Folder of a built dataset, or of batches written by data_pipeline.batch_files."""
    out: str = ""
    """Folder of the run; a run that is there already goes on."""
    passes: int = 1
    """Parts of a step that follow one another; more of them need less memory."""
    rows: int = 0
    """Packed rows to provide for the fullest block; planned from the dataset if 0."""
    shard_encoder: bool = False
    """Spread encoder and moments over all devices: less memory, more communication."""
    log_steps: int = 10
    """Steps between lines of metrics.jsonl."""
    eval_steps: int = 0
    """Steps between evaluations on the held-out terms; 0 never evaluates."""
    eval_terms: int = 10_000
    """Most terms to search in such an evaluation: those of the held-out concepts, then others."""
    save_steps: int = 10_000
    """Steps between checkpoints that are kept."""
    save_minutes: float = 15.0
    """Minutes between checkpoints that make place for the next one."""
    restore_step: int = 0
    """Go on from this step's checkpoint if the newest one cannot be read; 0 stops there."""
    extend: bool = False
    """Let --steps be more than the run in --out has: it becomes longer. It goes on from its newest
    checkpoint, at the learning rate that a run of --steps steps has there."""
    track: Literal["none", "wandb", "mlflow"] = "none"
    """Send metrics there, too; needs its package (pip install wandb, pip install mlflow)."""
    quiet: bool = False
    """Print warnings and errors alone: no progress, no scores."""


# The least values of numbers above.
LEAST = dict.fromkeys(("passes", "log_steps", "save_steps", "eval_terms"), 1) | dict.fromkeys(
    (
        *("learning_rate", "weight_decay", "clip_norm", "b1", "b2", "eps"),
        *("rows", "eval_steps", "save_minutes", "restore_step"),
        *("mu", "type_weight", "relation_noise", "relation_learning_rate_factor"),
    ),
    0,
)
BELOW = {"b1": 1, "b2": 1}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(Generic[S]):
    """Everything that a training run depends on."""

    recipe: tyro.conf.Suppress[str]
    system: Annotated[S, tyro.conf.arg(name="")]
    optimizer: Annotated[OptimizerConfig, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=OptimizerConfig
    )
    start: Annotated[str, tyro.conf.arg(name="from")] = ""
    """Folder of another run, with whose newest parameters (for a system that chooses by a score,
    its best ones) this one begins."""
    run: Annotated[RunConfig, tyro.conf.arg(name="")] = dataclasses.field(default_factory=RunConfig)

    def validate(self) -> None:
        """Raise BadInput, with the numbers and the remedy, where values cannot be used."""
        optimizer, run = self.optimizer, self.run
        if not 0 <= optimizer.warmup_steps < optimizer.steps:
            raise BadInput(
                f"warmup_steps is {optimizer.warmup_steps} and steps is {optimizer.steps}; "
                "the warm-up must be shorter than the run"
            )
        self.system.validate(optimizer)
        for settings in (optimizer, run, self.system):
            check_numbers(settings)
        if self.system.best is not None and not run.eval_steps:
            raise BadInput(
                f"eval_steps is 0, but of {self.system.name} the checkpoint with the best "
                f"{self.system.best} is taken; use --eval-steps N"
            )
        if self.system.whole and run.passes > 1:
            raise BadInput(
                f"passes is {run.passes}, but the loss of {self.system.name} needs the whole batch "
                "at once; use --passes 1 and, if memory is short, more devices"
            )


def check_numbers(settings: Any) -> None:
    """BadInput for a setting, at any depth, that is no finite number or outside of its bounds."""
    for field in dataclasses.fields(settings):
        name, value = field.name, getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            check_numbers(value)
        elif isinstance(value, int | float):
            if not math.isfinite(value):
                raise BadInput(f"{name} is {value}; it must be a finite number")
            if name in LEAST and value < LEAST[name]:
                raise BadInput(f"{name} is {value}; it must be at least {LEAST[name]}")
            if name in BELOW and value >= BELOW[name]:
                raise BadInput(f"{name} is {value}; it must be less than {BELOW[name]}")


def to_json(config: Config) -> dict[str, Any]:
    """The configuration as nested dictionaries of plain values."""
    values = json.loads(json.dumps(dataclasses.asdict(config)))
    values["system"] = {"name": config.system.name, **values["system"]}
    return values


def from_json(kind: type[T], values: dict[str, Any], source: str) -> T:
    """A frozen dataclass from what `dataclasses.asdict` and JSON made of it.

    Args:
        kind: the dataclass; its fields may be dataclasses.
        values: one for each field.
        source: what names the values in messages.

    Raises:
        BadInput: if a value is not of its field's type, or there are other fields.
    """
    made = typed(values, kind, source, "it is damaged, or of another version of coder_jax")
    known = dataclasses.asdict(made)  # type: ignore[call-overload]
    for found, names in (
        ("has no", names_beside(known, values)),
        ("has the unknown", names_beside(values, known)),
    ):
        if names:
            raise BadInput(
                f"{source}: {kind.__name__} {found} {', '.join(names)}; expected the settings of "
                "this version of coder_jax: use it with the version that wrote it"
            )
    return made


def names_beside(there: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    """The names in nested dictionaries of settings that others do not have."""
    names = []
    for name, value in there.items():
        if name not in others and (name, value) not in GONE:
            names.append(name)
        elif isinstance(value, Mapping) and isinstance(others.get(name), Mapping):
            names += names_beside(value, others[name])
    return names
