"""The optimizer: Adam for each part at its own rate, warm-up, decay, clipped global norm."""

from collections.abc import Mapping
from typing import Any

import jax
import optax

from coder_jax.training.config import OptimizerConfig
from coder_jax.training.system import Params, Part


def learning_rate(config: OptimizerConfig, *, warms_up: bool = True) -> optax.Schedule:
    """Step -> rate: linear from 0 to the peak during the warm-up, then as `config.schedule` says.

    The first step already has a rate above 0, so that no step is without effect.

    Args:
        config: of the run.
        warms_up: False: at the peak during the warm-up, too.
    """
    warmup, peak = config.warmup_steps, config.learning_rate
    rise = optax.linear_schedule(peak / (warmup + 1) if warms_up else peak, peak, warmup)
    if config.schedule == "constant":
        return optax.join_schedules([rise, optax.constant_schedule(peak)], [warmup])
    fall = optax.linear_schedule(peak, 0.0, config.steps - warmup)
    return optax.join_schedules([rise, fall], [warmup])


def rate_of_part(config: OptimizerConfig, part: Part) -> optax.Schedule:
    """Step -> learning rate of a part that is trained."""
    schedule, multiple = learning_rate(config, warms_up=part.warms_up), part.rate
    assert multiple is not None
    if multiple == 1.0:
        return schedule
    return lambda step: multiple * schedule(step)


def decayed(params: Any, undecayed: tuple[str, ...]) -> Any:
    """True for each array of a part that weight decay applies to.

    Biases and layer norms have one dimension and do not decay; nor does what `undecayed` names.
    """

    def decays(path: tuple[Any, ...], array: jax.Array) -> bool:
        inside = {getattr(key, "key", None) for key in path}
        return array.ndim >= 2 and not inside & set(undecayed)

    return jax.tree_util.tree_map_with_path(decays, params)


def make_optimizer(
    config: OptimizerConfig, parts: Mapping[str, Part]
) -> optax.GradientTransformation:
    """The optimizer of the parts that are trained: {part: arrays} without those held fixed."""
    moments = {"b1": config.b1, "b2": config.b2, "eps": config.eps}
    optimizers: dict[Any, optax.GradientTransformation] = {}
    for name, part in parts.items():
        if part.rate is None:
            continue
        rate = rate_of_part(config, part)
        if part.decay:
            optimizers[name] = optax.adamw(
                rate,
                weight_decay=config.weight_decay,
                mask=lambda params, part=part: decayed(params, part.undecayed),
                **moments,
            )
        else:
            optimizers[name] = optax.adam(rate, **moments)

    def label_parts(params: Any) -> Any:
        return {
            name: jax.tree.map(lambda _, name=name: name, part) for name, part in params.items()
        }

    by_part = optax.partition(optimizers, label_parts)
    if not config.clip_norm:
        return by_part
    return optax.chain(optax.clip_by_global_norm(config.clip_norm), by_part)


def trained(params: Params, parts: Mapping[str, Part]) -> Params:
    """The parameters that the optimizer changes."""
    return {name: value for name, value in params.items() if parts[name].rate is not None}
