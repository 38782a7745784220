"""The train step: a state and a packed batch in, the next state and the step's metrics out.

One jitted function. The groups of a pass run side by side; passes follow one another and their
gradients are averaged, which changes nothing but memory, because a loss lives inside its group.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh, PartitionSpec

from coder_jax.devices.mesh import (
    EVERYWHERE,
    QUERIES,
    VECTORS,
    features_of_matrices,
    lie,
    replicated,
)
from coder_jax.models.dropout import mix_bits
from coder_jax.systems.groups.group import Group
from coder_jax.systems.groups.heads import SystemLoss, group_loss
from coder_jax.systems.groups.relations import relation_matrices, relation_queries, translated
from coder_jax.training.lazy_rows import MissedSteps, borrow, put_back
from coder_jax.training.state import Params, TrainState, merge_encoder

# (state, batch) -> (state, metrics), compiled when it is first called.
TrainStep = jax.stages.Wrapped


def dropout_ids(
    seed: int,
    step: jax.Array,
    first_term_B: jax.Array,
    segments_BRL: jax.Array,
    positions_BRL: jax.Array,
) -> jax.Array:
    """uint32 [B, R, L]: a number for each token, a function of seed, step, term and position.

    The term counts within the step, not within its block, the first of which is `first_term_B`:
    dropout does not depend on how the step is cut or packed.
    """
    term_BRL = (first_term_B[:, None, None] + segments_BRL).astype(jnp.uint32)
    of_step = mix_bits(mix_bits(jnp.uint32(seed % 2**32)) ^ step.astype(jnp.uint32))
    return mix_bits(mix_bits(of_step ^ term_BRL) ^ positions_BRL.astype(jnp.uint32))


def single(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """As `jax.vmap` of a function, for arrays whose first dimension is one."""

    def mapped(*arguments: Any) -> jax.Array:
        return function(*jax.tree.map(lambda array: array[0], arguments))[None]

    return mapped


def all_queries(
    mesh: Mesh, table: jax.Array, relation_BGU: jax.Array, head_BGkD: jax.Array
) -> jax.Array:
    """The queries of all groups, [B, G, k, D]: each device adds what its part of matrices gives.

    Args:
        mesh: the devices.
        table: float32 [R, D, D], matrices, or [R, D], translations.
        relation_BGU: int32, of the distinct triplets.
        head_BGkD: float32, the vectors of the heads.
    """
    put = partial(lie, mesh)
    width = head_BGkD.shape[-1]
    head_BGUmD = head_BGkD.reshape(*relation_BGU.shape, -1, width)
    if table.ndim == 2:
        query_BGUmD = translated(table, relation_BGU, head_BGUmD)
        return put(query_BGUmD, QUERIES).reshape(head_BGkD.shape)
    axes = features_of_matrices(mesh, width)
    if axes is None:
        matrix_BGUDD = relation_matrices(table, relation_BGU)
        query_BGUmD = relation_queries(matrix_BGUDD, relation_BGU, head_BGUmD)
    else:
        relation_BGU = put(relation_BGU, EVERYWHERE)
        matrix_BGUDD = relation_matrices(table, relation_BGU)
        # The constraint holds for the gradient, too: it is made where the matrices lie.
        matrix_BGUDD = put(matrix_BGUDD, PartitionSpec(None, None, None, axes))
        if mesh.shape["within"] > 1:  # XLA knows no direct way between these places
            head_BGUmD = put(head_BGUmD, EVERYWHERE)
        head_BGUmD = put(head_BGUmD, PartitionSpec(None, None, None, None, axes))
        query_BGUmD = relation_queries(matrix_BGUDD, relation_BGU, head_BGUmD)
        if mesh.shape["within"] > 1:
            query_BGUmD = put(query_BGUmD, EVERYWHERE)
    return put(query_BGUmD, QUERIES).reshape(head_BGkD.shape)


def make_loss(
    graph: nnx.GraphDef,
    loss: SystemLoss,
    mesh: Mesh,
    *,
    pairs: int,
    pooling: str,
    seed: int,
    dropout: bool,
) -> Callable[..., tuple[jax.Array, dict[str, jax.Array]]]:
    """The mean loss over the groups of one pass, as a function of parameters and batch."""

    put = partial(lie, mesh)

    def pass_loss(
        params: Params, batch: Mapping[str, jax.Array], number: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        blocks, groups, terms = batch["concepts"].shape
        rows = [batch[name] for name in ("tokens", "positions", "segments")]
        first_term_B = (number * blocks + jnp.arange(blocks)) * groups * terms
        ids = dropout_ids(seed, step, first_term_B, rows[2], rows[1]) if dropout else None
        bert = merge_encoder(graph, params["encoder"])

        def encode(rows: list[jax.Array], ids_RL: jax.Array | None) -> jax.Array:
            tokens_RL, positions_RL, segments_RL = rows
            return bert.term_vectors(
                tokens_RL, positions_RL, segments_RL, groups * terms, pooling, ids_RL
            )

        # A batch dimension of one costs a CPU transposes in the gradient of every dense layer.
        encode_blocks = jax.vmap(encode) if blocks > 1 else single(encode)
        vector_BGND = put(encode_blocks(rows, ids).reshape(blocks, groups, terms, -1), VECTORS)
        queries, logits = None, None
        if "relations" in params:
            head_BGkD = vector_BGND[:, :, :pairs]
            queries = all_queries(mesh, params["relations"], batch["relations"], head_BGkD)
        if "types" in params:
            logits = vector_BGND @ params["types"]["kernel"]
            logits += jnp.broadcast_to(params["types"]["bias"], logits.shape)
        group = Group(
            vectors=vector_BGND,
            concepts=batch["concepts"],
            relations=batch["relations"],
            queries=queries,
            types=batch.get("types"),
            type_logits=logits,
        )
        loss_BG, metrics_BG = jax.vmap(jax.vmap(partial(group_loss, loss=loss)))(group)
        return loss_BG.mean(), jax.tree.map(jnp.mean, metrics_BG)

    return pass_loss


def make_train_step(
    graph: nnx.GraphDef,
    loss: SystemLoss,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    where: TrainState,
    *,
    pairs: int,
    pooling: str,
    seed: int,
    dropout: bool,
    missed: MissedSteps | None = None,
) -> TrainStep:
    """The jitted step; it takes the state's memory over (donation), so keep no reference to it.

    Args:
        graph: structure of the encoder (`split_encoder`).
        loss: hyperparameters of the objective.
        optimizer: of `make_optimizer`.
        mesh: the devices.
        where: the sharding of each array of the state, of arrays or shapes.
        pairs: k, of a group.
        pooling: cls, mean or pooler.
        seed: of the dropout.
        dropout: whether the encoder's dropout is on.
        missed: of a state whose relation matrices are updated as in `lazy_relations`.

    Returns:
        step(state, batch) -> (state, metrics); the batch is that of `mesh.put_batch`, metrics are
        float32 scalars.
    """
    pass_loss = make_loss(
        graph, loss, mesh, pairs=pairs, pooling=pooling, seed=seed, dropout=dropout
    )
    value_and_grad = jax.value_and_grad(pass_loss, has_aux=True)

    def train_step(
        state: TrainState, batch: dict[str, jax.Array]
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        passes = batch["tokens"].shape[0]
        whole, borrowed = state, None
        if missed is not None:
            state, batch, borrowed = borrow(state, batch, missed, mesh)

        def one_pass(number: jax.Array, part: dict[str, jax.Array]) -> tuple[Any, Params]:
            (total, metrics), grads = value_and_grad(state.params, part, number, state.step)
            return {"loss": total, **metrics}, grads

        if passes == 1:
            metrics, grads = one_pass(jnp.int32(0), jax.tree.map(lambda array: array[0], batch))
        else:
            metrics, grads = _mean_over_passes(one_pass, batch, passes)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        metrics["grad_norm"] = optax.tree.norm(grads)
        params = optax.apply_updates(state.params, updates)
        state = TrainState(step=state.step + 1, params=params, opt_state=opt_state)
        return state if borrowed is None else put_back(whole, state, borrowed), metrics

    places = jax.tree.map(lambda leaf: leaf.sharding, where), replicated(mesh)
    return jax.jit(train_step, donate_argnums=0, out_shardings=places)


def _mean_over_passes(
    one_pass: Callable[..., Any], batch: dict[str, jax.Array], passes: int
) -> Any:
    """The mean of what `one_pass` returns, one pass after the other, in the memory of one."""
    part = jax.tree.map(lambda array: array[0], batch)
    zeros = jax.tree.map(
        lambda shape: jnp.zeros(shape.shape, shape.dtype),
        jax.eval_shape(one_pass, jnp.int32(0), part),
    )

    def add(total: Any, numbered: tuple[jax.Array, dict[str, jax.Array]]) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, one_pass(*numbered)), None

    total, _ = jax.lax.scan(add, zeros, (jnp.arange(passes, dtype=jnp.int32), batch))
    return jax.tree.map(lambda value: value / passes, total)
