"""CODER: MS-loss on term-term and on term-relation-term pairs (Yuan et al. 2022, section 3.3).

The vectors, queries and concepts of one group in, its loss out. A loss lives inside its group:
nothing here sees another group, so groups can run side by side, one after the other, or on other
devices, with the same result. (The queries, `relations.relation_queries`, are made for all groups
at once, because the relation matrices are spread over all devices.)
"""

import dataclasses

import jax
import jax.numpy as jnp

from coder_jax.losses import multi_similarity_loss


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MultiSimilarity:
    """Hyperparameters of one multi-similarity loss; the paper's values."""

    alpha: float = 2.0
    """Sharpness for positives."""
    beta: float = 50.0
    """Sharpness for negatives."""
    base: float = 0.5
    """Lambda, the similarity around which pairs are weighed."""
    margin: float = 0.1
    """Epsilon of the mining."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CoderLoss:
    """The total loss is L_MS + mu * L_MS^rel."""

    mu: float = 1.0
    """Weight of the term-relation-term loss; 0 trains on synonyms alone."""
    term: MultiSimilarity = dataclasses.field(default_factory=MultiSimilarity)
    relation: MultiSimilarity = dataclasses.field(default_factory=MultiSimilarity)


def unit(vectors: jax.Array) -> jax.Array:
    """Vectors of length one on the last axis; a zero vector stays zero, with finite gradients."""
    square = jnp.sum(vectors * vectors, axis=-1, keepdims=True)
    return vectors * jax.lax.rsqrt(jnp.maximum(square, 1e-24))


def cosine(a_AD: jax.Array, b_BD: jax.Array) -> jax.Array:
    """float32 [A, B], the cosine of every pair."""
    return jnp.einsum("ad,bd->ab", unit(a_AD), unit(b_BD), precision=jax.lax.Precision.HIGHEST)


def group_loss(
    vector_ND: jax.Array,
    concept_N: jax.Array,
    relation_U: jax.Array,
    query_kD: jax.Array | None,
    loss: CoderLoss,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The loss of one group of k pairs, N = 2k.

    Args:
        vector_ND: float32 [2k, D], the vectors of the k heads, then of the k tails.
        concept_N: int32 [2k], the concept of each term.
        relation_U: int32 [U], the relations of the distinct triplets; pair u * m + j is triplet u.
            A negative id means that the pairs of this triplet are two synonyms and take no part in
            the term-relation-term loss.
        query_kD: float32 [k, D], the query of each head, or None with mu = 0.
        loss: hyperparameters.

    Returns:
        (total, metrics): `loss_term`, `loss_relation`, and the mined pairs per anchor of each.
    """
    pairs = concept_N.shape[0] // 2
    same_NN = concept_N[:, None] == concept_N[None, :]
    total, mined = multi_similarity_loss(
        cosine(vector_ND, vector_ND),
        same_NN & ~jnp.eye(2 * pairs, dtype=bool),
        ~same_NN,
        **dataclasses.asdict(loss.term),
    )
    metrics = {
        "loss_term": total,
        "mined_positives": mined["positives"],
        "mined_negatives": mined["negatives"],
    }
    if loss.mu and query_kD is not None:
        # The paper's stand-in for 'the triplet (h_i, r_i, t_j) is in the graph': t_j is t_i.
        reached_kk = same_NN[pairs:, pairs:]
        related_k = jnp.repeat(relation_U >= 0, pairs // relation_U.shape[0])
        relation_loss, mined = multi_similarity_loss(
            cosine(query_kD, vector_ND[pairs:]),
            reached_kk,
            ~reached_kk,
            related_k,
            **dataclasses.asdict(loss.relation),
        )
        total = total + loss.mu * relation_loss
        metrics |= {
            "loss_relation": relation_loss,
            "mined_relation_positives": mined["positives"],
            "mined_relation_negatives": mined["negatives"],
        }
    return total, metrics
