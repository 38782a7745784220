"""SapBERT: MS-loss on pairs that a miner of triplets finds (Liu et al. 2021, section 2)."""

import dataclasses
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
import tyro

from coder_jax.systems.groups.group import Group, MultiSimilarity, cosine
from coder_jax.systems.groups.group_system import GroupSystem
from coder_jax.systems.groups.multi_similarity import weighed_pairs
from data_pipeline.batches.spec import BatchSpec


def batch() -> BatchSpec:
    """One group of 256 pairs of names: 512 terms."""
    return BatchSpec(draw="pairs", groups=1, triplets=256, repeats=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SapBertSystem(GroupSystem):
    """SapBERT: names of a concept belong together; relations are not used."""

    name: ClassVar[str] = "sapbert"
    title: ClassVar[str] = "SapBERT"
    paper: ClassVar[str] = "Liu et al. 2021"

    batch: Annotated[BatchSpec, tyro.conf.arg(name="")] = dataclasses.field(default_factory=batch)
    term: MultiSimilarity = MultiSimilarity(alpha=1.0, beta=60.0, base=0.5, margin=0.2)
    """Constants of the loss. Its margin is that of the triplets: in Euclidean distance of vectors
    of length one."""

    def group_loss(self, group: Group) -> tuple[jax.Array, dict[str, jax.Array]]:
        similarity_NN = cosine(group.vectors, group.vectors)
        positive_NN, negative_NN = mined_triplets(
            similarity_NN, group.positives, group.negatives, margin=self.term.margin
        )
        loss, mined = weighed_pairs(
            similarity_NN,
            positive_NN,
            negative_NN,
            alpha=self.term.alpha,
            beta=self.term.beta,
            base=self.term.base,
        )
        return loss, {
            "loss_term": loss,
            "mined_positives": mined["positives"],
            "mined_negatives": mined["negatives"],
        }


def mined_triplets(
    similarity_AB: jax.Array, positive_AB: jax.Array, negative_AB: jax.Array, *, margin: float
) -> tuple[jax.Array, jax.Array]:
    """The pairs of all triplets in which a negative is not farther than a positive by a margin.

    A triplet of anchor a, positive p and negative n is kept if d_an - d_ap <= margin, with d the
    Euclidean distance of vectors of length one; a pair is kept if it is in a triplet that is.

    Args:
        similarity_AB: float [A, B], cosines.
        positive_AB, negative_AB: bool [A, B], as for `multi_similarity_loss`.
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
