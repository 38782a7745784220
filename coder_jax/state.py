"""The state of a run: parameters and optimizer state, made anew or as shapes for a restore."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Sharding

from coder_jax.bert import Bert

Params = dict[str, Any]  # {"encoder": nested dict, "relations": float32 [R, D, D] unless mu is 0}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """All that a step changes; nothing else in a run has a state."""

    step: Any  # int32 scalar, the steps that were taken; an array, or its shape
    params: Params
    opt_state: Any


def split_encoder(bert: Bert) -> tuple[nnx.GraphDef, dict[str, Any]]:
    """The structure of an encoder, and its parameters as nested dictionaries of arrays."""
    graph, params = nnx.split(bert, nnx.Param)
    return graph, nnx.to_pure_dict(params)


def merge_encoder(graph: nnx.GraphDef, params: Mapping[str, Any]) -> Bert:
    """The encoder with these parameters, arrays or tracers."""
    return nnx.merge(graph, nnx.State(params))


def new_state(
    encoder: dict[str, Any],
    relations: np.ndarray | None,
    optimizer: optax.GradientTransformation,
    sharding: Sharding,
) -> TrainState:
    """The state before the first step; `relations` is float32 [R, D, D], or None for none."""
    params = {"encoder": encoder} | ({} if relations is None else {"relations": relations})
    params = jax.device_put(params, sharding)
    opt_state = jax.jit(optimizer.init, out_shardings=sharding)(params)
    return TrainState(jax.device_put(np.int32(0), sharding), params, opt_state)


def abstract_state(
    encoder: dict[str, Any],
    relations: int,
    width: int,
    optimizer: optax.GradientTransformation,
    sharding: Sharding,
) -> TrainState:
    """The state as shapes with their place on the devices: what a restore fills.

    Args:
        encoder: shapes of the encoder's parameters.
        relations: R, the relation matrices; 0 for no table.
        width: D.
        optimizer: whose state belongs to it.
        sharding: of every array.
    """
    table = jax.ShapeDtypeStruct((relations, width, width), jnp.float32)
    params = {"encoder": encoder} | ({"relations": table} if relations else {})
    state = TrainState(
        jax.ShapeDtypeStruct((), jnp.int32), params, jax.eval_shape(optimizer.init, params)
    )
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), state
    )
