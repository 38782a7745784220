"""The configuration of a training run: typed, closed, visible; flags; JSON in and out.

The defaults are the paper's values for CODER_ENG; recipes.py has the others. No object here acts.
"""

import dataclasses
import json
from typing import Annotated, Any, Literal

import tyro

from coder_jax.systems.coder.objective import CoderLoss
from coder_jax.systems.groups.heads import SystemLoss
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.process.errors import BadInput


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The encoder that is trained."""

    init: str = "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract"
    """Folder or hub id of the BERT to start from."""
    pooling: Literal["cls", "mean", "pooler"] = "cls"
    """How the hidden states of a term become its vector."""
    dropout: float | None = None
    """Rate for hidden states and attention; the initial encoder's own rates if None."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the encoder; auto is bfloat16 on an accelerator, else float32."""
    relation_noise: float = 0.01
    """Standard deviation around the identity in a new relation matrix, or around 0 in a new
    translation."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """AdamW with linear warm-up and linear decay to zero."""

    steps: int = 100_000
    """Optimizer steps of the whole run."""
    learning_rate: float = 2e-5
    """Peak of the encoder's learning rate."""
    warmup_steps: int = 10_000
    """Steps over which the rate rises."""
    relation_learning_rate_factor: float = 1.0
    """Relations, and the head of semantic types, learn at this multiple of the encoder's rate."""
    relation_update: Literal["lazy", "dense"] = "lazy"
    """Which relation matrices a step rewrites: those that it uses, which then make up for the steps
    that they missed, or all; the same but for rounding."""
    weight_decay: float = 0.01
    """Of kernels and embeddings; biases, norms and relation matrices do not decay."""
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that a training run depends on."""

    recipe: tyro.conf.Suppress[str] = "coder_eng"
    model: Annotated[ModelConfig, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=ModelConfig
    )
    batch: Annotated[BatchSpec, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=BatchSpec
    )
    # The recipe chooses the system; its flags are then those of --help.
    loss: Annotated[SystemLoss, tyro.conf.arg(name=""), tyro.conf.AvoidSubcommands] = (
        dataclasses.field(default_factory=CoderLoss)
    )
    optimizer: Annotated[OptimizerConfig, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=OptimizerConfig
    )
    run: Annotated[RunConfig, tyro.conf.arg(name="")] = dataclasses.field(default_factory=RunConfig)

    def validate(self) -> None:
        """Raise BadInput, with the numbers and the remedy, where values cannot be used."""
        self.batch.validate()
        optimizer, run = self.optimizer, self.run
        if not 0 <= optimizer.warmup_steps < optimizer.steps:
            raise BadInput(
                f"warmup_steps is {optimizer.warmup_steps} and steps is {optimizer.steps}; "
                "the warm-up must be shorter than the run"
            )
        if optimizer.relation_update == "lazy" and optimizer.b1**2 >= optimizer.b2:
            raise BadInput(
                f"b1 is {optimizer.b1} and b2 is {optimizer.b2}: the lazy update of relation "
                "matrices needs b1 < sqrt(b2); use --relation-update dense"
            )
        if self.model.dropout is not None and not 0 <= self.model.dropout < 1:
            raise BadInput(
                f"dropout is {self.model.dropout}; it must be at least 0 and less than 1"
            )
        if self.loss.mu and self.batch.draw == "synonyms":
            raise BadInput(
                f"mu is {self.loss.mu}, but the draw 'synonyms' takes no relations; "
                "use --mu 0 or another draw"
            )
        self.loss.validate(self.batch)
        for name in ("passes", "log_steps", "save_steps"):
            if getattr(run, name) < 1:
                raise BadInput(f"{name} is {getattr(run, name)}; it must be at least 1")


def to_json(config: Config) -> dict[str, Any]:
    """The configuration as nested dictionaries of plain values."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def differences(ours: dict[str, Any], theirs: dict[str, Any], prefix: str = "") -> list[str]:
    """A line for each value that differs between two nested dictionaries."""
    lines = []
    for name in sorted(ours.keys() | theirs.keys()):
        a, b = ours.get(name, "absent"), theirs.get(name, "absent")
        if isinstance(a, dict) and isinstance(b, dict):
            lines += differences(a, b, f"{prefix}{name}.")
        elif a != b:
            lines.append(f"{prefix}{name}: {shortened(a)} there, {shortened(b)} here")
    return lines


def shortened(value: Any) -> str:
    """A value as text of at most 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
