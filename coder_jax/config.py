"""The configuration of a training run: typed, closed, visible; recipes; flags; JSON in and out.

A recipe is a function that changes only what differs from the defaults, which are the paper's
values for CODER_ENG. No object here acts.
"""

import dataclasses
import json
from typing import Annotated, Any, Literal

import tyro

from coder_jax.systems.coder import CoderLoss
from coder_jax.systems.coder_v1 import CoderV1Loss
from coder_jax.systems.group import MultiSimilarity
from data_pipeline.batch_spec import BatchSpec
from data_pipeline.errors import BadInput


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
    loss: Annotated[CoderLoss | CoderV1Loss, tyro.conf.arg(name=""), tyro.conf.AvoidSubcommands] = (
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
        self._validate_loss()
        for name in ("passes", "log_steps", "save_steps"):
            if getattr(run, name) < 1:
                raise BadInput(f"{name} is {getattr(run, name)}; it must be at least 1")

    def _validate_loss(self) -> None:
        loss, batch = self.loss, self.batch
        if loss.mu and batch.draw == "synonyms":
            raise BadInput(
                f"mu is {loss.mu}, but the draw 'synonyms' takes no relations; "
                "use --mu 0 or another draw"
            )
        if not isinstance(loss, CoderV1Loss):
            if batch.corrupted_tails:
                raise BadInput(
                    "corrupted_tails is on, but only CODER v1 uses them; use --no-corrupted-tails, "
                    "or a recipe of CODER v1"
                )
            return
        if loss.mu and not batch.corrupted_tails:
            raise BadInput(
                f"mu is {loss.mu}, but the batches have no corrupted tails, which TransE needs; "
                "use --corrupted-tails or --mu 0"
            )
        if loss.type_weight and not batch.semantic_types:
            raise BadInput(
                f"type_weight is {loss.type_weight}, but the batches tell no semantic types; use "
                "--semantic-types or --type-weight 0"
            )


def coder_eng() -> Config:
    """CODER_ENG of the paper: PubMedBERT, 100,000 steps of 8 groups of 128 triplets."""
    return Config()


def coder_all() -> Config:
    """CODER_ALL of the paper: multilingual BERT, 1,000,000 steps, terms of all languages."""
    return Config(
        recipe="coder_all",
        model=ModelConfig(init="bert-base-multilingual-cased"),
        optimizer=OptimizerConfig(steps=1_000_000),
        run=RunConfig(save_steps=100_000),
    )


def coder_eng_no_relations() -> Config:
    """CODER_ENG's ablation without the relation similarity (table 5)."""
    return dataclasses.replace(coder_eng(), recipe="coder_eng_no_relations", loss=CoderLoss(mu=0.0))


def coder_eng_transe() -> Config:
    """CODER_ENG's ablation with a TransE-like similarity (table 5, appendix A.5)."""
    return dataclasses.replace(coder_eng(), recipe="coder_eng_transe", loss=transe_like(28.0))


def transe_like(distance: float) -> CoderLoss:
    """CODER with the similarity -|e_i + r - e_j| and the constants of appendix A.5.

    The appendix sets lambda to 28, what the norm is about at first, so that exponents stay near 0;
    the similarity is the norm's negative, hence -28.

    Args:
        distance: between terms of the initial encoder; the constants are in its units, so that the
            loss is the same for an encoder whose vectors are all shorter.
    """
    unit = distance / 28
    relation = MultiSimilarity(alpha=0.2 / unit, beta=5.0 / unit, base=-distance, margin=0.1 * unit)
    return CoderLoss(mu=0.1 / unit, score="translation", relation=relation)


def coder_v1_eng() -> Config:
    """CODER v1, English: BioBERT, 1,000,000 steps, TransE with corrupted tails (MS+REL)."""
    # The paper has 256 terms in a batch: 10 triplets of 8 terms for head, tail and corrupted tail.
    return Config(
        recipe="coder_v1_eng",
        model=ModelConfig(init="dmis-lab/biobert-v1.1"),
        batch=BatchSpec(triplets=10, corrupted_tails=True),
        loss=CoderV1Loss(),
        optimizer=OptimizerConfig(steps=1_000_000),
        run=RunConfig(save_steps=100_000),
    )


def coder_v1_all() -> Config:
    """CODER v1 of all languages: multilingual BERT."""
    return dataclasses.replace(
        coder_v1_eng(),
        recipe="coder_v1_all",
        model=ModelConfig(init="bert-base-multilingual-cased"),
    )


def _v1_ablation(name: str, loss: CoderV1Loss) -> Config:
    """CODER v1 with another loss on the same terms, those of the corrupted tails too."""
    v1 = coder_v1_eng()
    batch = dataclasses.replace(v1.batch, semantic_types=loss.type_weight > 0)
    return dataclasses.replace(v1, recipe=name, batch=batch, loss=loss)


def coder_v1_eng_types() -> Config:
    """CODER v1's ablation MS+REL+STY (table 6): semantic types are learnt, too."""
    return _v1_ablation("coder_v1_eng_types", CoderV1Loss(type_weight=0.1))


def coder_v1_eng_types_no_relations() -> Config:
    """CODER v1's ablation MS+STY (table 6)."""
    return _v1_ablation("coder_v1_eng_types_no_relations", CoderV1Loss(mu=0.0, type_weight=0.1))


def coder_v1_eng_no_relations() -> Config:
    """CODER v1's ablation MS (table 6)."""
    return _v1_ablation("coder_v1_eng_no_relations", CoderV1Loss(mu=0.0))


def small() -> Config:
    """An ontology with few names per concept, on a small machine: minutes, not days.

    With two names per concept, eight repeats of a triplet are copies of the same strings, and most
    rows join concepts with one name, which teach nothing about synonyms. So concepts that have a
    synonym are drawn, all equally often, with two different names each; and the relation matrices,
    which start at the identity, learn faster than the encoder, or they would hardly move in a few
    hundred steps.
    """
    return Config(
        recipe="small",
        model=ModelConfig(init="sentence-transformers/all-MiniLM-L6-v2"),
        batch=BatchSpec(
            draw="concepts",
            distinct_terms=True,
            groups=1,
            triplets=64,
            repeats=2,
            row_length=32,  # a CPU computes attention between the terms of a row in vain
        ),
        optimizer=OptimizerConfig(
            steps=240, learning_rate=5e-5, warmup_steps=24, relation_learning_rate_factor=20.0
        ),
        run=RunConfig(eval_steps=80, save_steps=80),
    )


def small_transe() -> Config:
    """`small` with CODER's TransE-like similarity."""
    # 7: between the [CLS] vectors of heads and other heads' tails, with MiniLM.
    return dataclasses.replace(small(), recipe="small_transe", loss=transe_like(7.0))


def small_v1() -> Config:
    """`small` with the loss of CODER v1, on about as many terms."""
    batch = dataclasses.replace(small().batch, triplets=42, corrupted_tails=True)
    return dataclasses.replace(small(), recipe="small_v1", batch=batch, loss=CoderV1Loss())


RECIPES = {
    recipe.__name__: recipe
    for recipe in (
        coder_eng,
        coder_eng_no_relations,
        coder_eng_transe,
        coder_all,
        coder_v1_eng,
        coder_v1_eng_types,
        coder_v1_eng_types_no_relations,
        coder_v1_eng_no_relations,
        coder_v1_all,
        small,
        small_transe,
        small_v1,
    )
}


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
