"""The losses of the candidate generator (Liang, Xue, Ruan 2021, section 3.1.1).

Shapes: M mentions, K negatives of each, D width, C classes of the number of concepts.
"""

import jax
import jax.numpy as jnp

from coder_jax.systems.groups.group import norm


def triplet_margin_loss(
    mention_MD: jax.Array, name_MD: jax.Array, others_MKD: jax.Array, margin: float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Mean over all triplets of max(0, D(mention, name) + margin - D(mention, other)).

    D is the Euclidean distance of vectors as they are, not of unit length (equations 6 and 7).

    Args:
        mention_MD: float32, of the mentions.
        name_MD: a name of a concept of each.
        others_MKD: names of other concepts.
        margin: m, in the units of the distance.

    Returns:
        (loss, metrics): the mean distances, and the share of triplets within the margin.
    """
    near_M1 = norm(mention_MD - name_MD)[:, None]
    far_MK = norm(mention_MD[:, None] - others_MKD)
    loss_MK = jax.nn.relu(near_M1 + margin - far_MK)
    return loss_MK.mean(), {
        "distance_name": near_M1.mean(),
        "distance_others": far_MK.mean(),
        "within_margin": (loss_MK > 0).mean(),
    }


def number_loss(
    logits_MC: jax.Array, numbers_M: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Mean cross-entropy of the number of concepts of each mention (equation 8).

    Args:
        logits_MC: float32, scores of one, two, ... concepts.
        numbers_M: int32, the class of each mention, from 0.

    Returns:
        (loss, metrics): the share of mentions whose class has the largest score.
    """
    log_MC = jax.nn.log_softmax(logits_MC)
    of_class_M = jnp.take_along_axis(log_MC, numbers_M[:, None], axis=-1)[:, 0]
    right_M = logits_MC.argmax(-1) == numbers_M
    return -of_class_M.mean(), {"number_accuracy": right_M.mean()}
