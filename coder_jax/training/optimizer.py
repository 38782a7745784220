"""The optimizer: AdamW with a decay mask, linear warm-up and decay, clipping of the global norm."""

from typing import Any

import jax
import optax

from coder_jax.training.config import OptimizerConfig


def learning_rate(config: OptimizerConfig) -> optax.Schedule:
    """Step -> rate: linear from 0 to the peak during the warm-up, then linear to 0 at the end.

    The first step already has a rate above 0, so that no step is without effect.
    """
    warmup, peak = config.warmup_steps, config.learning_rate
    rise = optax.linear_schedule(peak / (warmup + 1), peak, warmup)
    fall = optax.linear_schedule(peak, 0.0, config.steps - warmup)
    return optax.join_schedules([rise, fall], [warmup])


def relation_learning_rate(config: OptimizerConfig) -> optax.Schedule:
    """Step -> rate of the relation matrices: a multiple of the encoder's."""
    schedule = learning_rate(config)

    def relation_schedule(step: jax.Array) -> jax.Array:
        return config.relation_learning_rate_factor * schedule(step)

    return relation_schedule


def decayed(params: Any) -> Any:
    """True for each parameter of the encoder that weight decay applies to: kernels and tables.

    Biases and layer norms have one dimension. The pooler does not decay either, so that it stays
    as it was where no gradient reaches it (pooling cls or mean).
    """

    def decays(path: tuple[Any, ...], array: jax.Array) -> bool:
        return array.ndim >= 2 and not any(part.key == "pooler" for part in path)

    return jax.tree_util.tree_map_with_path(decays, params)


def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformation:
    """The optimizer of {'encoder': ..., and what is in `objective.head_shapes`}.

    Relation matrices do not decay: towards zero they would forget the identity that they start
    at. They have a learning rate of their own, `relation_learning_rate_factor` times the encoder's;
    and so have translations and the head of semantic types.
    """
    moments = {"b1": config.b1, "b2": config.b2, "eps": config.eps}
    optimizers = {
        "encoder": optax.adamw(
            learning_rate(config), weight_decay=config.weight_decay, mask=decayed, **moments
        ),
        "relations": optax.adam(relation_learning_rate(config), **moments),
    }

    def label_parts(params: Any) -> Any:
        return jax.tree_util.tree_map_with_path(
            lambda path, _: "encoder" if path[0].key == "encoder" else "relations", params
        )

    by_part = optax.partition(optimizers, label_parts)
    if not config.clip_norm:
        return by_part
    return optax.chain(optax.clip_by_global_norm(config.clip_norm), by_part)
