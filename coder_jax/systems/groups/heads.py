"""The objective of a run: which system it is, and the parameters that are trained with the encoder.

{"relations": the relation table, if relations are learnt, "types": the head of semantic types, if
these are learnt}.
"""

from typing import Any

import jax
import jax.numpy as jnp

from coder_jax.systems.coder import objective as coder
from coder_jax.systems.coder.objective import CoderLoss
from coder_jax.systems.coder_v1 import objective as coder_v1
from coder_jax.systems.coder_v1.objective import CoderV1Loss
from coder_jax.systems.groups.group import Group
from coder_jax.systems.groups.relations import init_relations, table_shape

SystemLoss = CoderLoss | CoderV1Loss
TYPE_NOISE = 0.02  # standard deviation of a new kernel, as in BERT


def group_loss(group: Group, loss: SystemLoss) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The loss of one group and its metrics, by the system that the hyperparameters belong to."""
    if isinstance(loss, CoderV1Loss):
        return coder_v1.group_loss(group, loss)
    return coder.group_loss(group, loss)


def head_shapes(loss: SystemLoss, relations: int, types: int, width: int) -> dict[str, Any]:
    """The objective's own parameters, as shapes.

    Args:
        loss: hyperparameters.
        relations: R, the relations of the data.
        types: S, its semantic types.
        width: D, of the encoder.
    """

    def float32(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    heads: dict[str, Any] = {}
    if loss.mu and relations:
        heads["relations"] = float32(*table_shape(loss.score, relations, width))
    if loss.type_weight and types:
        heads["types"] = {"kernel": float32(width, types), "bias": float32(types)}
    return heads


def new_heads(like: dict[str, Any], *, noise: float, seed: int) -> dict[str, Any]:
    """The objective's own parameters before the first step; for traced code.

    Args:
        like: of `head_shapes`.
        noise, seed: of `init_relations`.
    """
    heads: dict[str, Any] = {}
    if "relations" in like:
        heads["relations"] = init_relations(like["relations"].shape, noise=noise, seed=seed)
    if "types" in like:
        shape = like["types"]["kernel"].shape
        kernel = TYPE_NOISE * jax.random.normal(jax.random.key(seed), shape)
        heads["types"] = {"kernel": kernel, "bias": jnp.zeros(shape[1:])}
    return heads
