"""A group as the objectives see it: vectors and labels, no text and no encoder.

A loss lives inside its group: nothing here sees another group, so groups can run side by side, one
after the other, or on other devices, with the same result. (Queries and logits are made for all
groups at once, because the relation matrices are spread over all devices.)
"""

import dataclasses

import jax
import jax.numpy as jnp

from coder_jax.systems.groups.multi_similarity import multi_similarity_loss


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """U triplets, each m times: k = U * m pairs, N = 2k terms, or 3k with corrupted tails."""

    vectors: jax.Array
    """float32 [N, D], of the k heads, then of the k tails, then of the k corrupted tails."""
    concepts: jax.Array
    """int32 [N], the concept of each term."""
    relations: jax.Array
    """int32 [U], the relations of the distinct triplets; pair u * m + j is triplet u. A negative id
    means that the pairs of this triplet are two synonyms, with no relation to learn."""
    queries: jax.Array | None = None
    """float32 [k, D], where the relation leads from each head; None if relations are not learnt."""
    types: jax.Array | None = None
    """int32 [N], the semantic type of each term's concept; negative where it has none."""
    type_logits: jax.Array | None = None
    """float32 [N, S], the score of each semantic type for each term."""

    @property
    def related(self) -> jax.Array:
        """bool [k], the pairs that a relation joins; with queries only."""
        assert self.queries is not None
        repeats = self.queries.shape[0] // self.relations.shape[0]
        return jnp.repeat(self.relations >= 0, repeats)

    @property
    def positives(self) -> jax.Array:
        """bool [N, N], two terms of one concept."""
        same_NN = self.concepts[:, None] == self.concepts[None, :]
        return same_NN & ~jnp.eye(same_NN.shape[0], dtype=bool)

    @property
    def negatives(self) -> jax.Array:
        """bool [N, N], terms of two concepts."""
        return self.concepts[:, None] != self.concepts[None, :]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MultiSimilarity:
    """Hyperparameters of one multi-similarity loss; the papers' values."""

    alpha: float = 2.0
    """Sharpness for positives."""
    beta: float = 50.0
    """Sharpness for negatives."""
    base: float = 0.5
    """Lambda, the similarity around which pairs are weighed."""
    margin: float = 0.1
    """Epsilon of the mining."""


def unit(vectors: jax.Array) -> jax.Array:
    """Vectors of length one on the last axis; a zero vector stays zero, with finite gradients."""
    square = jnp.sum(vectors * vectors, axis=-1, keepdims=True)
    return vectors * jax.lax.rsqrt(jnp.maximum(square, 1e-24))


def products(a_AD: jax.Array, b_BD: jax.Array) -> jax.Array:
    """float32 [A, B], the inner product of every pair."""
    return jnp.einsum("ad,bd->ab", a_AD, b_BD, precision=jax.lax.Precision.HIGHEST)


def cosine(a_AD: jax.Array, b_BD: jax.Array) -> jax.Array:
    """float32 [A, B], the cosine of every pair."""
    return products(unit(a_AD), unit(b_BD))


def norm(vectors: jax.Array) -> jax.Array:
    """The length of vectors on the last axis; the gradient at zero is zero."""
    return jnp.sqrt(jnp.maximum(jnp.sum(vectors * vectors, axis=-1), 1e-12))


def distance(a_AD: jax.Array, b_BD: jax.Array) -> jax.Array:
    """float32 [A, B], the Euclidean distance of every pair.

    From inner products: the differences themselves would be an array [A, B, D].
    """
    square_AB = (a_AD**2).sum(-1)[:, None] + (b_BD**2).sum(-1)[None, :] - 2 * products(a_AD, b_BD)
    return jnp.sqrt(jnp.maximum(square_AB, 1e-12))


def term_loss(group: Group, loss: MultiSimilarity) -> tuple[jax.Array, dict[str, jax.Array]]:
    """L_MS of all terms of a group: those of one concept belong together.

    Returns:
        (loss, metrics): `loss_term`, and the mined pairs per anchor.
    """
    total, mined = multi_similarity_loss(
        cosine(group.vectors, group.vectors),
        group.positives,
        group.negatives,
        **dataclasses.asdict(loss),
    )
    return total, {
        "loss_term": total,
        "mined_positives": mined["positives"],
        "mined_negatives": mined["negatives"],
    }


def mean_where(values: jax.Array, counted: jax.Array) -> jax.Array:
    """The mean of the values that count; 0 if none does."""
    return jnp.where(counted, values, 0.0).sum() / jnp.maximum(counted.sum(), 1)
