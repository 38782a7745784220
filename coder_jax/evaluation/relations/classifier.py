"""Training of a linear softmax on pairs of vectors: W [e_h, e_t] + b, cross-entropy, Adam.

Neither paper names optimizer or schedule. CODER's released code has Adam without weight decay, for
encoders with a linear warm-up over the first 10 % of the steps and then a linear decay to zero,
otherwise with a constant rate, and PyTorch's initial values of a linear layer. So does this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class ClassifierSettings:
    """How the classifier is trained; the defaults are those for fixed features of an encoder.

    Attributes:
      epochs: passes over the training pairs, each in a new random order.
      batch_pairs: pairs per step; the last step of an epoch has what is left.
      learning_rate: at its peak.
      warmup: share of the steps in which the rate rises linearly from zero; it then falls
        linearly to zero. None: a constant rate.
      seed: of the initial values and the order.
    """

    epochs: int = 50
    batch_pairs: int = 512
    learning_rate: float = 1e-3
    warmup: float | None = 0.1
    seed: int = 0


# (params, data, pairs int32 [B, 2], step or None where nothing is trained) -> logits [B, classes]
Scorer = Callable[[Any, Any, jax.Array, jax.Array | None], jax.Array]


def initial_layer(width: int, classes: int, seed: int) -> dict[str, jax.Array]:
    """W [width, classes] and b [classes], uniform in +-1 / sqrt(width), as PyTorch begins."""
    bound = width**-0.5
    of_kernel, of_bias = jax.random.split(jax.random.key(seed))
    uniform = jax.random.uniform
    return {
        "W": uniform(of_kernel, (width, classes), minval=-bound, maxval=bound),
        "b": uniform(of_bias, (classes,), minval=-bound, maxval=bound),
    }


def logits(params: Mapping[str, jax.Array], vectors_B2D: jax.Array) -> jax.Array:
    """W [e_h, e_t] + b of B pairs of vectors, float32 [B, classes]."""
    joined_BF = vectors_B2D.reshape(len(vectors_B2D), -1)
    product_BK = jnp.matmul(joined_BF, params["W"], precision=jax.lax.Precision.HIGHEST)
    return product_BK + params["b"][None]


def pair_logits(
    params: Mapping[str, jax.Array], features_CD: jax.Array, pairs_B2: jax.Array, _: object
) -> jax.Array:
    """Logits of pairs of concepts, numbers of rows of their features: a `Scorer`."""
    return logits(params, features_CD[pairs_B2])


def cross_entropy(logits_BK: jax.Array, labels_B: jax.Array, weights_B: jax.Array) -> jax.Array:
    """The weighted mean cross-entropy; a weight of 0 leaves a row out."""
    each_B = optax.softmax_cross_entropy_with_integer_labels(logits_BK, labels_B)
    return jnp.sum(each_B * weights_B) / jnp.sum(weights_B)


def learning_rates(settings: ClassifierSettings, steps: int) -> optax.Schedule:
    """Step, from 0, -> learning rate."""
    if settings.warmup is None:
        return optax.constant_schedule(settings.learning_rate)
    rising = int(settings.warmup * steps)
    peak = settings.learning_rate
    rise = optax.linear_schedule(0.0, peak, rising)
    fall = optax.linear_schedule(peak, 0.0, steps - rising)
    return optax.join_schedules([rise, fall], [rising])


def fit(
    params: Any, data: Any, scorer: Scorer, rows: np.ndarray, settings: ClassifierSettings
) -> tuple[Any, float]:
    """Trains parameters with Adam; the parameters and the mean loss of the last epoch.

    Args:
      params: any tree of arrays.
      data: what else the scorer needs, on the devices.
      scorer: gives the logits of pairs.
      rows: int32 [n, 3], the training pairs and their labels.

    Raises:
      BadInput: the loss is not finite.
      Stopped: a signal asked for it.
    """
    size = min(settings.batch_pairs, len(rows))
    per_epoch = -(-len(rows) // size)
    optimizer = optax.adam(learning_rates(settings, settings.epochs * per_epoch))

    @jax.jit
    def step(params, state, data, batch_B3, weights_B, number):
        def loss(params):
            logits_BK = scorer(params, data, batch_B3[:, :2], number)
            return cross_entropy(logits_BK, batch_B3[:, 2], weights_B)

        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, value

    state = jax.jit(optimizer.init)(params)
    rng = np.random.default_rng(settings.seed)
    losses: list[jax.Array] = []
    for epoch in range(settings.epochs):
        order = rng.permutation(len(rows))
        losses = []
        for turn in range(per_epoch):
            stopping.poll()
            chosen = order[turn * size : (turn + 1) * size]
            weights = (np.arange(size) < len(chosen)).astype(np.float32)
            batch = rows[np.resize(chosen, size)]
            number = np.uint32(epoch * per_epoch + turn)
            arrays = jax.device_put((batch, weights, number))
            params, state, value = step(params, state, data, *arrays)
            losses.append(value * jax.device_put(np.float32(len(chosen))))
    final = float(np.sum(jax.device_get(losses)) / len(rows))
    if not np.isfinite(final):
        raise BadInput(
            f"found a training loss of {final}; expected a finite one: check the vectors for NaN"
        )
    return params, final


def predict(
    params: Any, data: Any, scorer: Scorer, rows: np.ndarray, block_pairs: int = 4096
) -> np.ndarray:
    """The class with the largest logit of each pair, int [n]; blocks of one shape."""
    score = jax.jit(lambda params, data, pairs_B2: scorer(params, data, pairs_B2, None))
    size = min(block_pairs, len(rows))
    predicted = []
    for first in range(0, len(rows), size):
        stopping.poll()
        block = rows[first : first + size, :2]
        scores_BK = jax.device_get(score(params, data, jax.device_put(np.resize(block, (size, 2)))))
        predicted.append(scores_BK[: len(block)].argmax(axis=1))
    return np.concatenate(predicted)
