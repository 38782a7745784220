"""The state of a run: parameters and optimizer state, made anew or as shapes for a restore."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh

from coder_jax.devices.mesh import put_whole, state_sharding
from coder_jax.models.bert import Bert
from coder_jax.systems.groups.heads import new_heads
from coder_jax.systems.groups.relations import has_matrices

Params = dict[str, Any]  # {"encoder": nested dict, and what is in `objective.head_shapes`}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """All that a step changes; nothing else in a run has a state."""

    step: Any  # int32 scalar, the steps that were taken; an array, or its shape
    params: Params
    opt_state: Any
    relation_steps: Any = None
    """int32 [R], the steps that each relation matrix is up to date with; None if with all."""


def split_encoder(bert: Bert) -> tuple[nnx.GraphDef, dict[str, Any]]:
    """The structure of an encoder, and its parameters as nested dictionaries of arrays."""
    graph, params = nnx.split(bert, nnx.Param)
    return graph, nnx.to_pure_dict(params)


def merge_encoder(graph: nnx.GraphDef, params: Mapping[str, Any]) -> Bert:
    """The encoder with these parameters, arrays or tracers."""
    return nnx.merge(graph, nnx.State(params))


def abstract_state(
    encoder: dict[str, Any],
    heads: dict[str, Any],
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    *,
    shard_encoder: bool = False,
    lazy: bool = False,
) -> TrainState:
    """The state as shapes with their place on the devices: what is filled, anew or by a restore.

    Args:
        encoder: shapes of the encoder's parameters.
        heads: shapes of the objective's own parameters (`objective.head_shapes`).
        optimizer: whose state belongs to it.
        mesh, shard_encoder: see `mesh.state_sharding`.
        lazy: relation matrices, if there are any, are updated as in `lazy_relations`.
    """
    params = {"encoder": encoder, **heads}
    relation_steps = None
    if lazy and has_matrices(heads):
        relation_steps = jax.ShapeDtypeStruct(heads["relations"].shape[:1], jnp.int32)
    state = TrainState(
        jax.ShapeDtypeStruct((), jnp.int32),
        params,
        jax.eval_shape(optimizer.init, params),
        relation_steps,
    )
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        state,
        state_sharding(mesh, state, shard_encoder=shard_encoder),
    )


def new_state(
    like: TrainState,
    encoder: dict[str, Any],
    optimizer: optax.GradientTransformation,
    *,
    noise: float,
    seed: int,
) -> TrainState:
    """The state before the first step; no device ever holds more than its part.

    Args:
        like: of `abstract_state`.
        encoder: the initial encoder's parameters, whole, in this host's memory.
        optimizer: whose state belongs to it.
        noise, seed: of `objective.new_heads`.
    """
    where = jax.tree.map(lambda leaf: leaf.sharding, like)
    params: Params = {
        "encoder": jax.tree.map(
            lambda array, sharding: put_whole(np.asarray(array), sharding),
            encoder,
            where.params["encoder"],
        )
    }
    heads = {name: shapes for name, shapes in like.params.items() if name != "encoder"}
    places = {name: where.params[name] for name in heads}
    params |= jax.jit(lambda: new_heads(heads, noise=noise, seed=seed), out_shardings=places)()
    opt_state = jax.jit(optimizer.init, out_shardings=where.opt_state)(params)
    steps, relation_steps = jax.tree.map(
        lambda leaf: put_whole(np.zeros(leaf.shape, np.int32), leaf.sharding),
        (like.step, like.relation_steps),
    )
    return TrainState(steps, params, opt_state, relation_steps)
