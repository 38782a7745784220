"""Losses: pure functions of similarity matrices and masks. They know no model and no configuration.

All of this is float32 (or float64) with no matrix products inside; the similarities that come in
should be float32 of the highest matmul precision, because they are multiplied by beta = 50 here.
"""

import jax
import jax.numpy as jnp


def log_one_plus_sum_exp(exponent_AB: jax.Array, include_AB: jax.Array) -> jax.Array:
    """log(1 + sum over included j of exp(x_ij)); no overflow, gradients finite for finite input.

    Args:
        exponent_AB: float [A, B].
        include_AB: bool [A, B]; a row without any gives exactly 0.

    Returns:
        float [A].
    """
    masked_AB = jnp.where(include_AB, exponent_AB, -jnp.inf)
    # The 1 is exp(0), so the largest exponent is never below 0 and a row without any stays finite.
    largest_A = jax.lax.stop_gradient(jnp.maximum(masked_AB.max(axis=1, initial=0.0), 0.0))
    sum_A = jnp.where(include_AB, jnp.exp(masked_AB - largest_A[:, None]), 0.0).sum(axis=1)
    return largest_A + jnp.log(jnp.exp(-largest_A) + sum_A)


def multi_similarity_loss(
    similarity_AB: jax.Array,
    positive_AB: jax.Array,
    negative_AB: jax.Array,
    anchor_A: jax.Array | None = None,
    *,
    alpha: float = 2.0,
    beta: float = 50.0,
    base: float = 0.5,
    margin: float = 0.1,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    r"""Multi-similarity loss with its hard-pair mining, over any similarity matrix.

    For anchor i a negative j is kept if :math:`S_{ij} > \min_{pos} S_{ik} - \epsilon`, a positive j
    if :math:`S_{ij} < \max_{neg} S_{ik} + \epsilon`. With the kept pairs

    .. math:: L_i = \frac1\alpha \log(1 + \sum_{pos} e^{-\alpha (S_{ij} - \lambda)})
                  + \frac1\beta \log(1 + \sum_{neg} e^{\beta (S_{ij} - \lambda)}).

    An anchor without positives keeps no negatives and the other way round; it counts as 0 in the
    mean.

    Requirements: similarities that are comparable within a row; cosine for the default
    hyperparameters.

    Args:
        similarity_AB: float [A, B], anchors against candidates.
        positive_AB: bool [A, B], the pairs with label 1, less the pair of a term with itself.
        negative_AB: bool [A, B], the pairs with label 0. A pair in neither mask takes no part.
        anchor_A: bool [A], anchors that count; all of them if None.
        alpha, beta: sharpness for positives and negatives.
        base: lambda, the similarity around which pairs are weighed.
        margin: epsilon of the mining.

    Returns:
        (loss, pairs): the mean over the anchors that count (0 if there are none), and `positives`
        and `negatives`, the numbers of mined pairs per anchor that counts.

    References:
        Wang et al., Multi-Similarity Loss with General Pair Weighting for Deep Metric Learning,
        2019; Yuan et al., CODER, 2022, section 3.3.
    """
    if anchor_A is not None:
        positive_AB = positive_AB & anchor_A[:, None]
        negative_AB = negative_AB & anchor_A[:, None]
    # Rows without positives (negatives) give +inf (-inf) and so mine nothing, as they must.
    hardest_positive_A1 = jnp.where(positive_AB, similarity_AB, jnp.inf).min(axis=1, keepdims=True)
    hardest_negative_A1 = jnp.where(negative_AB, similarity_AB, -jnp.inf).max(axis=1, keepdims=True)
    mined_negative_AB = negative_AB & (similarity_AB > hardest_positive_A1 - margin)
    mined_positive_AB = positive_AB & (similarity_AB < hardest_negative_A1 + margin)
    return weighed_pairs(
        similarity_AB,
        mined_positive_AB,
        mined_negative_AB,
        anchor_A,
        alpha=alpha,
        beta=beta,
        base=base,
    )


def weighed_pairs(
    similarity_AB: jax.Array,
    positive_AB: jax.Array,
    negative_AB: jax.Array,
    anchor_A: jax.Array | None = None,
    *,
    alpha: float,
    beta: float,
    base: float,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The mean of the L_i of `multi_similarity_loss` over pairs that were mined in whatever way.

    Args and what comes back are as there, of the mined pairs.
    """
    loss_A = (
        log_one_plus_sum_exp(-alpha * (similarity_AB - base), positive_AB) / alpha
        + log_one_plus_sum_exp(beta * (similarity_AB - base), negative_AB) / beta
    )
    anchors = similarity_AB.shape[0] if anchor_A is None else anchor_A.sum()
    per_anchor = 1.0 / jnp.maximum(anchors, 1).astype(similarity_AB.dtype)
    return loss_A.sum() * per_anchor, {
        "positives": positive_AB.sum() * per_anchor,
        "negatives": negative_AB.sum() * per_anchor,
    }
