"""SapBERT: a multi-similarity loss on pairs of names, with mined triplets.

Liu et al. 2021, section 2.
"""

import dataclasses
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from coder_jax.systems.coder import small_synonyms
from coder_jax.systems.encoder_system import EncoderSystem, RunWithEncoder
from coder_jax.systems.group_losses import (
    Group,
    GroupRun,
    MultiSimilarity,
    check_widths,
    cosine,
    mean_over_groups,
    told_widths,
    weighed_pairs,
)
from coder_jax.training.system import Config, Loss, OptimizerConfig
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.flags import Flag


def _pairs_of_names() -> BatchSpec:
    """One group of 256 pairs of names: 512 terms."""
    return BatchSpec(draw="pairs", groups=1, triplets=256, repeats=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SapBertSystem(EncoderSystem):
    """SapBERT: names of a concept belong together; relations are not used."""

    name: ClassVar[str] = "sapbert"
    title: ClassVar[str] = "SapBERT"
    paper: ClassVar[str] = "Liu et al. 2021"
    content: ClassVar[type[RunWithEncoder]] = GroupRun

    batch: BatchSpec = dataclasses.field(default_factory=_pairs_of_names)
    term: Annotated[MultiSimilarity, Flag(name="term.")] = MultiSimilarity(
        alpha=1.0, beta=60.0, base=0.5, margin=0.2
    )
    """Constants of the loss. Its margin is that of the triplets: in Euclidean distance of vectors
    of length one."""
    matryoshka: tuple[int, ...] = ()
    """Sum the loss over the first so many numbers of the vectors, such as 384 256 128 64: then the
    first numbers alone are vectors, too (--width of encode, evaluate, normalize, serve)."""

    def validate(self, optimizer: OptimizerConfig) -> None:
        super().validate(optimizer)
        check_widths(self.matryoshka)

    def hyperparameters(self) -> dict[str, Any]:
        return told_widths(self.matryoshka)

    def loss(self, recorded_start: Any, mesh: Mesh) -> Loss:
        return mean_over_groups(self, recorded_start, mesh)

    def group_loss(self, group: Group) -> tuple[jax.Array, dict[str, jax.Array]]:
        """The loss of one group and its metrics."""
        similarity_NN = cosine(group.vectors, group.vectors)
        positive_NN, negative_NN = _mined_triplets(
            similarity_NN, group.positives, group.negatives, margin=self.term.margin
        )
        loss, mined = weighed_pairs(similarity_NN, positive_NN, negative_NN, self.term)
        return loss, {
            "loss_term": loss,
            "mined_positives": mined["positives"],
            "mined_negatives": mined["negatives"],
        }


def _mined_triplets(
    similarity_AB: jax.Array,
    positive_AB: jax.Array,
    negative_AB: jax.Array,
    *,
    margin: float,
) -> tuple[jax.Array, jax.Array]:
    """The pairs of all triplets in which the negative is not farther than the positive by a margin.

    A triplet of anchor a, positive p and negative n is kept if d_an - d_ap <= margin, with d the
    Euclidean distance of vectors of length one; a pair is kept if it is in a triplet that is.

    Args:
        similarity_AB: float [A, B], cosines.
        positive_AB, negative_AB: bool [A, B], as for `_multi_similarity_loss`.
        margin: 0.2 in the paper.

    Returns:
        bool [A, B]: the positives that are kept, and the negatives.
    """
    distance_AB = jnp.sqrt(jnp.maximum(2 - 2 * jax.lax.stop_gradient(similarity_AB), 0.0))
    farthest_positive_A1 = jnp.where(positive_AB, distance_AB, -jnp.inf).max(1, keepdims=True)
    nearest_negative_A1 = jnp.where(negative_AB, distance_AB, jnp.inf).min(1, keepdims=True)
    return (
        positive_AB & (nearest_negative_A1 - distance_AB <= margin),
        negative_AB & (distance_AB - farthest_positive_A1 <= margin),
    )


# -------------------------------------------------------------------------------------------------
# Recipes of SapBERT (Liu et al. 2021), a peer of CODER that learns from synonyms alone.
#
# | value | where it stands |
# |---|---|
# | MS-loss, alpha 1, beta 60, lambda 0.5 | released code |
# | all triplets that break a margin of 0.2 | paper, section 2 |
# | 256 pairs of names a step, at most 50 of a concept; one epoch | released code |
# | AdamW at 2e-5 all along, decay 0.01, no clipping; terms of at most 25 tokens | released code |
# | vector of a term: the last hidden state of [CLS] | paper, section 2 |
#
# The decay spares biases and layer norms, as it does for all systems here; in the released code it
# does not.


def sapbert() -> Config[SapBertSystem]:
    """SapBERT of the paper: PubMedBERT, one epoch of the English synonyms of UMLS 2020AA.

        python -m data_pipeline.build --source umls-2020AA-full.zip --languages ENG \\
            --tokenizer microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract --max-length 25 \\
            --cleaning none --out datasets/sapbert
        bash launch/train.sh --recipe sapbert --data datasets/sapbert --out runs/sapbert

    Its scores in CODER's table: Cadec 54.05, PsyTar 52.45. The released code took 11,792,953 pairs
    of lower-cased names, 46,066 steps; of other data one epoch is its pairs / 256. Not trained
    here.
    """
    optimizer = OptimizerConfig(
        epochs=1,
        steps=46_066,
        warmup_steps=0,
        learning_rate=2e-5,
        schedule="constant",
        clip_norm=0.0,
    )
    return Config(recipe="sapbert", system=SapBertSystem(), optimizer=optimizer)


def small_sapbert() -> Config[SapBertSystem]:
    """SapBERT's loss, miner and pairs with the encoder, the steps and the size of `small`.

        bash launch/train.sh --recipe small_sapbert --data DIR --out runs/sapbert

    128 pairs a step; rate and warm-up of `small_synonyms`, which differs in the miner, the
    constants, how often a concept comes, and which names: pairs are of any two, there they are of
    two that share few word pieces.
    """
    base = small_synonyms()
    system = SapBertSystem(
        model=base.system.model,
        batch=dataclasses.replace(
            _pairs_of_names(), triplets=128, row_length=base.system.batch.row_length
        ),
    )
    return Config(recipe="small_sapbert", system=system, optimizer=base.optimizer, run=base.run)
