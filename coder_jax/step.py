"""The train step: a state and a packed batch in, the next state and the step's metrics out.

One jitted function. The groups of a pass run side by side; passes follow one another and their
gradients are averaged, which changes nothing but memory, because a loss lives inside its group.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh

from coder_jax.hash_dropout import mix_bits
from coder_jax.mesh import replicated
from coder_jax.state import Params, TrainState, merge_encoder
from coder_jax.systems.coder import CoderLoss, group_loss


def dropout_ids(
    seed: int, step: jax.Array, first_term: jax.Array, batch: Mapping[str, jax.Array]
) -> jax.Array:
    """uint32 [R, L]: a random number for each token, a function of seed, step, term and position.

    The term counts within the step, not within its pass: dropout does not depend on how the step
    is cut or packed.
    """
    term_RL = (first_term + batch["segments"]).astype(jnp.uint32)
    of_step = mix_bits(mix_bits(jnp.uint32(seed % 2**32)) ^ step.astype(jnp.uint32))
    return mix_bits(mix_bits(of_step ^ term_RL) ^ batch["positions"].astype(jnp.uint32))


def make_loss(
    graph: nnx.GraphDef, loss: CoderLoss, *, pooling: str, seed: int, dropout: bool
) -> Callable[..., tuple[jax.Array, dict[str, jax.Array]]]:
    """The mean loss over the groups of one pass, as a function of parameters and batch."""

    def pass_loss(
        params: Params, batch: Mapping[str, jax.Array], number: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        groups, terms = batch["concepts"].shape
        ids = dropout_ids(seed, step, number * groups * terms, batch) if dropout else None
        vector_ND = merge_encoder(graph, params["encoder"]).term_vectors(
            batch["tokens"], batch["positions"], batch["segments"], groups * terms, pooling, ids
        )
        loss_G, metrics_G = jax.vmap(group_loss, in_axes=(0, 0, 0, None, None))(
            vector_ND.reshape(groups, terms, -1),
            batch["concepts"],
            batch["relations"],
            params.get("relations"),
            loss,
        )
        return loss_G.mean(), jax.tree.map(jnp.mean, metrics_G)

    return pass_loss


def make_train_step(
    graph: nnx.GraphDef,
    loss: CoderLoss,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    *,
    pooling: str,
    seed: int,
    dropout: bool,
) -> Callable[[TrainState, dict[str, jax.Array]], tuple[TrainState, dict[str, jax.Array]]]:
    """The jitted step; it takes the state's memory over (donation), so keep no reference to it.

    Args:
        graph: structure of the encoder (`split_encoder`).
        loss: hyperparameters of the objective.
        optimizer: of `make_optimizer`.
        mesh: the devices.
        pooling: cls, mean or pooler.
        seed: of the dropout.
        dropout: whether the encoder's dropout is on.

    Returns:
        step(state, batch) -> (state, metrics); the batch is that of `BatchMaker.batch`, metrics
        are float32 scalars.
    """
    pass_loss = make_loss(graph, loss, pooling=pooling, seed=seed, dropout=dropout)
    value_and_grad = jax.value_and_grad(pass_loss, has_aux=True)

    def train_step(
        state: TrainState, batch: dict[str, jax.Array]
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        passes = batch["tokens"].shape[0]

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
        return TrainState(step=state.step + 1, params=params, opt_state=opt_state), metrics

    return jax.jit(train_step, donate_argnums=0, out_shardings=replicated(mesh))


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
