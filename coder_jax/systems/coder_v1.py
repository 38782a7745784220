"""CODER v1: a multi-similarity loss on terms, TransE with corrupted tails, semantic types.

Yuan et al. 2020, section 3, the first paper of the name. It encodes three terms for each pair:
head, tail, and a term of a concept that took the tail's place.
"""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from coder_jax.systems.coder import small
from coder_jax.systems.encoder_system import EncoderSystem, Head, ModelConfig, RunWithEncoder
from coder_jax.systems.group_losses import (
    Group,
    GroupHead,
    GroupRun,
    MultiSimilarity,
    RelationTable,
    mean_over_groups,
    mean_where,
    norm,
    term_loss,
)
from coder_jax.training.system import Config, Loss, OptimizerConfig, Part, Tree
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.dataset.store import Manifest
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput

_TYPE_NOISE = 0.02  # standard deviation of a new kernel, as in BERT


@dataclasses.dataclass(frozen=True, kw_only=True)
class _TypeHead(GroupHead):
    """A linear layer from a term's vector to the semantic types of its concept."""

    name = "types"

    weight: float
    """Of its loss; 0: there is none."""
    rate: float
    seed: int

    def part(self) -> Part:
        return Part(rate=self.rate)

    def shapes(self, recorded_start: Any, width: int) -> Tree | None:
        if not (self.weight and recorded_start.types):
            return None
        return {
            "kernel": jax.ShapeDtypeStruct((width, recorded_start.types), jnp.float32),
            "bias": jax.ShapeDtypeStruct((recorded_start.types,), jnp.float32),
        }

    def init_params(self, shapes: Tree) -> Tree:
        shape = shapes["kernel"].shape
        key = jax.random.fold_in(jax.random.key(self.seed), 1)  # 0 is the relations'
        kernel = _TYPE_NOISE * jax.random.normal(key, shape)
        return {"kernel": kernel, "bias": jnp.zeros(shape[1:])}

    def check_data(self, manifest: Manifest, folder: Path) -> None:
        if self.weight and not manifest.semantic_types:
            raise BadInput(
                f"--type-weight is {self.weight}, but {folder} has no semantic types "
                "(MRSTY.RRF); give --type-weight 0"
            )

    def fill(self, group: Group, params: Tree, mesh: Mesh) -> Group:
        highest = jax.lax.Precision.HIGHEST
        logits = jnp.matmul(group.vectors, params["kernel"], precision=highest)
        logits += jnp.broadcast_to(params["bias"], logits.shape)
        return dataclasses.replace(group, type_logits=logits)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoderV1System(EncoderSystem):
    """CODER v1: the total loss is L_MS + mu * L_TransE + type_weight * L_STY."""

    name: ClassVar[str] = "coder_v1"
    title: ClassVar[str] = "CODER v1"
    paper: ClassVar[str] = "Yuan et al. 2020"
    content: ClassVar[type[RunWithEncoder]] = GroupRun

    batch: BatchSpec = dataclasses.field(default_factory=BatchSpec)
    relation_noise: float = 0.01
    """Standard deviation around the identity in a new relation matrix, or around 0 in a new
    translation."""
    relation_learning_rate_factor: float = 1.0
    """Relations, and the head of semantic types, learn at this multiple of the encoder's rate."""
    mu: float = 1.0
    """Weight of TransE; 0 does without relations (MS, MS+STY in the paper's table 6)."""
    transe_margin: float = 1.0
    """By how much a corrupted tail must be farther away than the tail."""
    type_weight: float = 0.0
    """Weight of the loss of semantic types; 0.1 in the paper's ablations with STY."""
    term: Annotated[MultiSimilarity, Flag(name="term.")] = dataclasses.field(
        default_factory=MultiSimilarity
    )

    def __post_init__(self) -> None:
        # With mu 0, too: what relations bring is measured on the same terms.
        batch = dataclasses.replace(
            self.batch, corrupted_tails=True, semantic_types=self.type_weight > 0
        )
        object.__setattr__(self, "batch", batch)

    @property
    def heads(self) -> tuple[Head, ...]:
        rate, seed = self.relation_learning_rate_factor, self.batch.seed
        relations = RelationTable(
            score="translation",
            mu=self.mu,
            noise=self.relation_noise,
            rate=rate,
            seed=seed,
            pairs=self.batch.pairs,
        )
        return relations, _TypeHead(weight=self.type_weight, rate=rate, seed=seed)

    def validate(self, optimizer: OptimizerConfig) -> None:
        super().validate(optimizer)
        if self.batch.draw == "pairs":
            raise BadInput(
                "--draw is pairs, which has each pair of names once and no relations; CODER v1 "
                "expects --draw relations, concepts or synonyms"
            )

    def hyperparameters(self) -> dict[str, Any]:
        return {"mu": self.mu}

    def loss(self, recorded_start: Any, mesh: Mesh) -> Loss:
        return mean_over_groups(self, recorded_start, mesh)

    def group_loss(self, group: Group) -> tuple[jax.Array, dict[str, jax.Array]]:
        """The loss of one group of k pairs; with relations N = 3k.

        Returns:
            (total, metrics): `loss_term` and the mined pairs per anchor; with relations
            `loss_relation` and `corrupted_farther`, the share of pairs whose corrupted tail is
            farther from the query than the tail; with types `loss_type` and `type_accuracy`.
        """
        total, metrics = term_loss(group, self.term)
        if self.mu and group.queries is not None:
            relation_loss, farther = _transe_loss(group, self.transe_margin)
            total = total + self.mu * relation_loss
            metrics |= {"loss_relation": relation_loss, "corrupted_farther": farther}
        if self.type_weight and group.type_logits is not None:
            type_loss, accuracy = _semantic_type_loss(group)
            total = total + self.type_weight * type_loss
            metrics |= {"loss_type": type_loss, "type_accuracy": accuracy}
        return total, metrics


def _transe_loss(group: Group, margin: float) -> tuple[jax.Array, jax.Array]:
    r"""The mean over pairs of :math:`\max(0, m + |h + r - t| - |h + r - t'|)`.

    Pairs without a relation do not count.

    Returns:
        (loss, share of the pairs for which t' is farther away than t).
    """
    assert group.queries is not None
    pairs = group.queries.shape[0]
    tails_kD, corrupted_kD = group.vectors[pairs : 2 * pairs], group.vectors[2 * pairs :]
    true_k = norm(group.queries - tails_kD)
    false_k = norm(group.queries - corrupted_kD)
    violation_k = jnp.maximum(0.0, margin + true_k - false_k)
    return mean_where(violation_k, group.related), mean_where(true_k < false_k, group.related)


def _semantic_type_loss(group: Group) -> tuple[jax.Array, jax.Array]:
    """The mean cross-entropy of terms' semantic types (the paper prints a sum), and the accuracy.

    Terms whose concept has no type do not count.
    """
    assert group.types is not None and group.type_logits is not None
    typed_N = group.types >= 0
    right_N1 = jnp.maximum(group.types, 0)[:, None]
    log_p_NS = jax.nn.log_softmax(group.type_logits)
    surprise_N = -jnp.take_along_axis(log_p_NS, right_N1, axis=1)[:, 0]
    guess_N = group.type_logits.argmax(axis=1)
    return mean_where(surprise_N, typed_N), mean_where(guess_N == group.types, typed_N)


# -------------------------------------------------------------------------------------------------
# Recipes of CODER v1 (Yuan et al. 2020): its encoders, and a small machine.
#
# | value | where it stands |
# |---|---|
# | 256 in a group, 8 groups in a step; rate 2e-5; mu 1, margin 1 | paper, B.1; that 256 are terms:
#     released code |
# | at most 8 pairs of a triplet | released code; the paper, 3.2: at most 8 terms of a concept |
# | a corrupted tail for each pair | released code; the paper, 3.2: one for each triplet |
# | AdamW's decay 0.01, its eps 1e-8, clipping to norm 1, warm-up 10,000 | released code alone |
# | 125,000 updates: "1M steps" of micro-batches, every eighth followed by an update | released code
#     |

_PAIRS = 85  # of a group: heads, tails and corrupted tails are 255 terms; the paper has 256 (B.1)


def coder_v1_eng() -> Config[CoderV1System]:
    """CODER v1, English: BioBERT, 125,000 steps, TransE with corrupted tails (MS+REL).

        python -m data_pipeline.build --source umls-2020AA-full.zip --languages ENG \\
            --tokenizer dmis-lab/biobert-v1.1 --keep-suppressed --out datasets/v1_eng
        bash launch/train.sh --recipe coder_v1_eng --data datasets/v1_eng --out runs/v1_eng

    One week on one RTX 2080 Ti in the paper. Its "1M steps" are read as the released code counts,
    micro-batches of 256 terms of which every eighth is followed by an update: 125,000 updates. That
    fits the week: 423 terms a second are 7 TFLOP/s at 32 tokens a term, while 1,000,000 updates
    would be four times the card's float32 peak. This is an inference, not a sentence of the paper.
    If they are updates: --steps 1000000. `coder_eng` counts the same way. The paper has no warm-up;
    10,000 is that of the released code, which counts it in updates.

    A group as in the released code: of a triplet at most 8 pairs, as many as head and tail both
    have terms for, none of which is shown twice; further triplets until the group is full; and for
    each pair a corrupted tail of its own, a term of another random concept. The paper takes one
    corrupted concept for each triplet, with up to 8 of its terms. It allows 8 terms of a concept in
    a batch; a concept of several triplets may have more here.
    """
    return Config(
        recipe="coder_v1_eng",
        system=CoderV1System(
            model=ModelConfig(init="dmis-lab/biobert-v1.1"),
            batch=BatchSpec(fill_pairs=_PAIRS, names="distinct"),
        ),
        optimizer=OptimizerConfig(steps=125_000),
    )


def coder_v1_all() -> Config[CoderV1System]:
    """CODER v1 of the twelve languages that the paper names: multilingual BERT.

        python -m data_pipeline.build --source umls-2020AA-full.zip --languages ENG CZE FRE GER \\
            ITA JPN POR RUS SPA DUT KOR CHI --tokenizer bert-base-multilingual-cased \\
            --keep-suppressed --out datasets/umls_all
        bash launch/train.sh --recipe coder_v1_all --data datasets/umls_all --out runs/coder_v1_all
    """
    base = coder_v1_eng()
    model = ModelConfig(init="bert-base-multilingual-cased")
    system = dataclasses.replace(base.system, model=model)
    return dataclasses.replace(base, recipe="coder_v1_all", system=system)


def small_v1() -> Config[CoderV1System]:
    """`small` with the loss and the groups of CODER v1, on as many terms.

    As in `small`, concepts that have a synonym are drawn, with names that share few word pieces.
    """
    base = small()
    batch = dataclasses.replace(base.system.batch, fill_pairs=_PAIRS, repeats=8)
    system = CoderV1System(
        model=base.system.model,
        batch=batch,
        relation_learning_rate_factor=base.system.relation_learning_rate_factor,
    )
    return Config(recipe="small_v1", system=system, optimizer=base.optimizer, run=base.run)
