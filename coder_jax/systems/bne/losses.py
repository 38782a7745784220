r"""The logistic losses of BNE, on raw dot products: what belongs together against what does not.

Phan, Sun, Tay 2019, section 3.2: :math:`\ell(x) = \log(1 + e^{-x})`, equations 3 to 5 as rewritten
under "Distance Function and Optimization", with one negative of the mini-batch for each name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import jax
import jax.numpy as jnp

Negatives = Literal["random", "hardest"]
LOSSES = ("synonym", "concept", "context")


def choose_negatives(
    scores_NM: jax.Array, allowed_NM: jax.Array, negatives: Negatives, key: jax.Array
) -> jax.Array:
    """int32 [N]: for each name one of what is allowed to it; 0 where nothing is.

    Args:
        scores_NM: float32, dot products.
        allowed_NM: bool.
        negatives: random, each with the same chance; or hardest, that of the largest dot product
            (as in Wieting et al. 2015), the first of equal ones.
        key: of the random choice.
    """
    order_NM = jax.lax.stop_gradient(scores_NM)
    if negatives == "random":
        order_NM = jax.random.uniform(key, scores_NM.shape)
    return jnp.argmax(jnp.where(allowed_NM, order_NM, -jnp.inf), axis=1)


def logistic_pair_loss(
    positive_N: jax.Array, negative_N: jax.Array, has_negative_N: jax.Array, counts_N: jax.Array
) -> tuple[jax.Array, jax.Array]:
    r"""The mean over names of :math:`\ell(x^+) + \ell(-x^-)`.

    Args:
        positive_N, negative_N: float32, x of the right pair and of the other one.
        has_negative_N: bool; a name without one has the first term alone.
        counts_N: bool, the names that take part.

    Returns:
        (loss, share of the names with a negative whose right pair is the nearer one); 0 where none
        takes part.
    """
    both = counts_N & has_negative_N
    right_N = jax.nn.softplus(-positive_N)
    wrong_N = jax.nn.softplus(negative_N)
    loss_N = jnp.where(counts_N, right_N, 0.0) + jnp.where(both, wrong_N, 0.0)
    nearer = (both & (positive_N > negative_N)).sum() / jnp.maximum(both.sum(), 1)
    return loss_N.sum() / jnp.maximum(counts_N.sum(), 1), nearer


def pair_loss(
    vectors_ND: jax.Array,
    positives_ND: jax.Array,
    others_MD: jax.Array,
    allowed_NM: jax.Array,
    counts_N: jax.Array,
    *,
    negatives: Negatives,
    key: jax.Array,
    scale: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """`logistic_pair_loss` of names with their right vectors and with chosen others.

    Args:
        vectors_ND: float32, f(s).
        positives_ND: f(s'), g(c) or q(s), for each name.
        others_MD: from which its negative is chosen.
        allowed_NM: bool, which of them may be.
        counts_N: bool, the names that take part.
        negatives, key: of `choose_negatives`.
        scale: float32 [2]: a factor of the dot products and a number added to them (the released
            code's of the synonym loss); None: as they are.
    """

    def score(one_ND: jax.Array, other_ND: jax.Array) -> jax.Array:
        dot_N = (one_ND * other_ND).sum(axis=-1)
        return dot_N if scale is None else scale[0] * dot_N + scale[1]

    highest = jax.lax.Precision.HIGHEST
    scores_NM = jnp.matmul(vectors_ND, others_MD.T, precision=highest)
    chosen_N = choose_negatives(scores_NM, allowed_NM, negatives, key)
    return logistic_pair_loss(
        score(vectors_ND, positives_ND),
        score(vectors_ND, others_MD[chosen_N]),
        allowed_NM.any(axis=1),
        counts_N,
    )


def bne_loss(
    vector_BGND: jax.Array,
    batch: Mapping[str, jax.Array],
    *,
    weights: Mapping[str, float],
    negatives: Negatives,
    key: jax.Array,
    scale: jax.Array | None = None,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The weighted sum of the three losses over all names of a step (equation 6).

    The negative of a name is of another concept of the step, and is none of the same words.

    Args:
        vector_BGND: float32, f of the names of blocks and groups, those of a pair N / 2 apart.
        batch: of `NameBatches`: what each name's concept, wording and targets are.
        weights: of each of LOSSES; a loss of weight 0 is left out.
        negatives, scale: of `pair_loss`; `scale` is of the loss of synonyms alone.
        key: of random negatives, which are others for each loss.

    Returns:
        (loss, metrics): each loss, and the share of names nearer to their own than to the other.
    """

    def flat(array: jax.Array) -> jax.Array:
        return array.reshape(-1, array.shape[-1])

    vectors = flat(vector_BGND)
    synonyms = flat(jnp.roll(vector_BGND, vector_BGND.shape[2] // 2, axis=2))
    concept, wording = (batch[name].reshape(-1) for name in ("concepts", "wordings"))
    other_NN = (concept[:, None] != concept[None]) & (wording[:, None] != wording[None])
    # Of each loss: the right vector of a name, from which the others come, which names take part.
    parts = {"synonym": (synonyms, vectors, jnp.ones(len(vectors), bool))}
    for name, target in (("concept", "concept"), ("context", "name")):
        constants = flat(batch[f"{target}_targets"])
        parts[name] = constants, constants, batch[f"{target}_known"].reshape(-1) > 0
    total = jnp.float32(0.0)
    metrics: dict[str, jax.Array] = {}
    for number, name in enumerate(LOSSES):
        if not weights[name]:
            continue
        positives, others, counts = parts[name]
        loss, nearer = pair_loss(
            vectors,
            positives,
            others,
            other_NN & counts[None],
            counts,
            negatives=negatives,
            key=jax.random.fold_in(key, number),
            scale=scale if name == "synonym" else None,
        )
        total += weights[name] * loss
        metrics |= {f"loss_{name}": loss, f"nearer_{name}": nearer}
    return total, metrics
