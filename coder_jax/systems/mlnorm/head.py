"""From the pooled vector of a term to its place among the concepts: linear, ReLU, batch norm, unit.

In this order (MLNorm, equation 4). Shapes: N terms, W width of the encoder, D width of the classes.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from coder_jax.systems.mlnorm.class_softmax import unit_rows

MOMENTUM = 0.1  # share of the newest batch in the running statistics; PyTorch's default
EPSILON = 1e-5


def head_shapes(encoder_width: int, width: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """(parameters, running statistics) as `jax.ShapeDtypeStruct`s."""

    def float32(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    params = {
        "kernel": float32(encoder_width, width),
        "bias": float32(width),
        "scale": float32(width),
        "shift": float32(width),
    }
    return params, {"mean": float32(width), "variance": float32(width)}


def new_head(shapes: dict[str, Any], key: jax.Array) -> dict[str, jax.Array]:
    """A head before the first step, as PyTorch begins one: uniform within 1 / sqrt(W)."""
    of_kernel, of_bias = jax.random.split(key)
    kernel, bias = shapes["kernel"], shapes["bias"]
    bound = kernel.shape[0] ** -0.5
    return {
        "kernel": jax.random.uniform(of_kernel, kernel.shape, minval=-bound, maxval=bound),
        "bias": jax.random.uniform(of_bias, bias.shape, minval=-bound, maxval=bound),
        "scale": jnp.ones(bias.shape),
        "shift": jnp.zeros(bias.shape),
    }


def new_statistics(shapes: dict[str, Any]) -> dict[str, jax.Array]:
    """Running statistics before the first step: mean 0, variance 1."""
    return {
        "mean": jnp.zeros(shapes["mean"].shape),
        "variance": jnp.ones(shapes["variance"].shape),
    }


def projected(head: dict[str, jax.Array], pooled_NW: jax.Array) -> jax.Array:
    """float32 [N, D]: linear and ReLU."""
    linear_ND = jnp.einsum(
        "nw,wd->nd", pooled_NW, head["kernel"], precision=jax.lax.Precision.HIGHEST
    )
    return jax.nn.relu(linear_ND + head["bias"][None, :])


def normalized(
    head: dict[str, jax.Array], projected_ND: jax.Array, mean_D: jax.Array, variance_D: jax.Array
) -> jax.Array:
    """float32 [N, D]: batch norm with these statistics, then unit length."""
    root_D = jax.lax.rsqrt(variance_D + EPSILON)
    normal_ND = (projected_ND - mean_D[None, :]) * (root_D * head["scale"])[None, :]
    return unit_rows(normal_ND + head["shift"][None, :])


def train_head(
    head: dict[str, jax.Array], statistics: dict[str, jax.Array], pooled_NW: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The vectors of a whole batch, normal by its own statistics, and the running ones after it.

    As in PyTorch the running variance takes the unbiased one of the batch, N / (N - 1).

    Args:
        head: the parameters.
        statistics: the running ones before.
        pooled_NW: float32, of all terms of the step.
    """
    projected_ND = projected(head, pooled_NW)
    mean_D, variance_D = projected_ND.mean(0), projected_ND.var(0)
    terms = projected_ND.shape[0]
    seen = {"mean": mean_D, "variance": variance_D * (terms / max(terms - 1, 1))}
    running = {
        name: (1 - MOMENTUM) * statistics[name] + MOMENTUM * jax.lax.stop_gradient(seen[name])
        for name in statistics
    }
    return normalized(head, projected_ND, mean_D, variance_D), running


def apply_head(
    head: dict[str, jax.Array], statistics: dict[str, jax.Array], pooled_NW: jax.Array
) -> jax.Array:
    """float32 [N, D]: vectors by the running statistics, for prediction.

    Args:
        head, statistics: of a trained run.
        pooled_NW: float32.
    """
    projected_ND = projected(head, pooled_NW)
    return normalized(head, projected_ND, statistics["mean"], statistics["variance"])
