"""The state of a run, and the optimizer that changes it, with its learning rate."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from coder_jax.devices.mesh import place_of, put_whole, replicated
from coder_jax.training.system import OptimizerConfig, Params, Part, System
from data_pipeline.process import BadInput

# -------------------------------------------------------------------------------------------------
# The optimizer: Adam with a learning rate for each part, warm-up, decay, clipped global norm.


def learning_rate(config: OptimizerConfig, *, warms_up: bool = True) -> optax.Schedule:
    """Step -> rate: linear from 0 to the peak during the warm-up, then as `config.schedule` says.

    The first step already has a rate above 0, so that no step is without effect.

    Args:
        config: of the run.
        warms_up: False: at the peak during the warm-up, too.
    """
    warmup, peak = config.warmup_steps, config.learning_rate
    first = peak / (warmup + 1) if warms_up else peak

    def rate(count: jax.typing.ArrayLike) -> jax.Array:
        step = jnp.asarray(count)
        # Not optax's schedules: they want numbers, and a compiled step has these as arguments.
        risen = jnp.clip(step, 0, warmup) / jnp.maximum(warmup, 1)
        rise = first + (peak - first) * risen
        if config.schedule == "constant":
            return jnp.where(step < warmup, rise, peak)
        fallen = jnp.clip(step - warmup, 0, config.steps - warmup) / (config.steps - warmup)
        return jnp.where(step < warmup, rise, peak * (1 - fallen))

    return rate


def rate_of_part(config: OptimizerConfig, part: Part) -> optax.Schedule:
    """Step -> learning rate of a trained part."""
    schedule, multiple = learning_rate(config, warms_up=part.warms_up), part.rate
    assert multiple is not None
    if multiple == 1.0:
        return schedule
    return lambda step: multiple * schedule(step)


def _decayed(params: Any, undecayed: tuple[str, ...]) -> Any:
    """True for each array of a part to which weight decay applies.

    Biases and layer norms have one dimension and do not decay; nor does what `undecayed` names.
    """

    def decays(path: tuple[Any, ...], array: jax.Array) -> bool:
        inside = {getattr(key, "key", None) for key in path}
        return array.ndim >= 2 and not inside & set(undecayed)

    return jax.tree_util.tree_map_with_path(decays, params)


def make_optimizer(
    config: OptimizerConfig, parts: Mapping[str, Part]
) -> optax.GradientTransformation:
    """The optimizer of the trained parts: {part: arrays}, without fixed ones."""
    moments: dict[str, Any] = {"b1": config.b1, "b2": config.b2, "eps": config.eps}
    moments["mu_dtype"] = config.first_moment
    optimizers: dict[Any, optax.GradientTransformation] = {}
    for name, part in parts.items():
        if part.rate is None:
            continue
        rate = rate_of_part(config, part)
        if part.decay:
            optimizers[name] = optax.adamw(
                rate,
                weight_decay=config.weight_decay,
                mask=lambda params, part=part: _decayed(params, part.undecayed),
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


# -------------------------------------------------------------------------------------------------
# The state of a run, initialized or as shapes for a restore.


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """All that a step changes; nothing else in a run has a state."""

    step: Any  # int32 scalar, the steps that were taken; an array, or its shape
    params: Params
    extra: Any
    """What is neither parameter nor moment, such as running statistics; {} where there is none."""
    opt_state: Any
    row_steps: dict[str, Any]
    """By part whose rows catch up (`lazy_rows`): int32 [R], the steps that each is up to date
    with."""

    @property
    def rest(self) -> dict[str, Any]:
        """All but step and parameters, as a checkpoint stores it."""
        return {"extra": self.extra, "opt_state": self.opt_state, "row_steps": self.row_steps}

    @classmethod
    def restored(cls, like: "TrainState", step: int, params: Params, rest: Any) -> "TrainState":
        """The state from what a checkpoint stores; `like` has the place of `step`."""
        return cls(jax.device_put(np.int32(step), like.step.sharding), params, **rest)


def check_parts(parts: Mapping[str, Part], params: Params) -> dict[str, Part]:
    """The parts of these parameters.

    Raises:
        ValueError: if a part of the parameters was not declared, or contradicts itself.
        BadInput: if none is trained.
    """
    undeclared = sorted(params.keys() - parts.keys())
    if undeclared:
        raise ValueError(f"parts {undeclared} of the parameters are not in System.parts()")
    found = {name: parts[name] for name in sorted(params)}
    for name, part in found.items():
        part.validate(name)
    rows: dict[str, int] = {}
    for name, part in found.items():
        for array in jax.tree.leaves(params[name]) if part.touched else ():
            if rows.setdefault(str(part.touched), array.shape[0]) != array.shape[0]:
                raise ValueError(
                    f"part {name}: an array has {array.shape[0]} rows, another that "
                    f"{part.touched} numbers has {rows[str(part.touched)]}; expected as many"
                )
    if all(part.rate is None for part in found.values()):
        raise BadInput(f"all parts ({', '.join(found)}) are held fixed: there is nothing to train")
    return found


def is_of_part(part: str, path: tuple[Any, ...], leaf: Any) -> bool:
    """Whether a leaf of a `TrainState` is an array of a part, or a moment of one."""
    if leaf.ndim == 0 or getattr(path[0], "name", "") not in ("params", "opt_state"):
        return False
    # The first key is the part's name, or in the optimizer's state its label.
    return next((key.key for key in path if hasattr(key, "key")), None) == part


def abstract_state(
    system: System,
    recorded_start: Any,
    parts: Mapping[str, Part],
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    *,
    spread_largest: bool,
) -> TrainState:
    """The state as shapes with shardings, to be filled by initialization or a restore.

    Args:
        system, recorded_start: whose `shapes` it has.
        parts: of `check_parts`.
        optimizer: whose state belongs to it.
        mesh: the devices.
        spread_largest: whether parts with `spread` "largest" are spread.
    """
    params, extra = system.shapes(recorded_start)
    row_steps = {
        name: jax.ShapeDtypeStruct(jax.tree.leaves(params[name])[0].shape[:1], jnp.int32)
        for name, part in parts.items()
        if part.touched and part.untouched == "catch up"
    }
    opt_state = jax.eval_shape(optimizer.init, trained(params, parts))
    state = TrainState(jax.ShapeDtypeStruct((), jnp.int32), params, extra, opt_state, row_steps)

    def placed(path: tuple[Any, ...], leaf: Any) -> Any:
        inside = [name for name in parts if is_of_part(name, path, leaf)]
        where = replicated(mesh)
        if inside:
            spread = parts[inside[0]].spread
            if spread != "largest" or spread_largest:
                where = place_of(mesh, leaf.shape, spread)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where)

    return jax.tree_util.tree_map_with_path(placed, state)


def new_state(
    like: TrainState,
    system: System,
    initial: Params,
    parts: Mapping[str, Part],
    optimizer: optax.GradientTransformation,
) -> TrainState:
    """The state before the first step; no device ever holds more than its part.

    Args:
        like: of `abstract_state`.
        system: whose `init_params` makes what was not read.
        initial: parts that were read, whole, in this host's memory.
        parts, optimizer: of `abstract_state`.
    """
    where = jax.tree.map(lambda leaf: leaf.sharding, like)
    read = {name: initial[name] for name in like.params if name in initial}
    params: Params = {name: _place_read(part, like.params[name]) for name, part in read.items()}
    missing = {name: shapes for name, shapes in like.params.items() if name not in read}
    places = {name: where.params[name] for name in missing}, where.extra
    new_params, extra = jax.jit(
        lambda: system.init_params(missing, like.extra), out_shardings=places
    )()
    params |= new_params
    opt_state = jax.jit(optimizer.init, out_shardings=where.opt_state)(trained(params, parts))
    step, row_steps = jax.tree.map(
        lambda leaf: put_whole(np.zeros(leaf.shape, np.int32), leaf.sharding),
        (like.step, like.row_steps),
    )
    return TrainState(step, params, extra, opt_state, row_steps)


def _place_read(read: Any, like: Any) -> Any:
    """Arrays read from files, placed like the shapes of `like`.

    Arrays are found by their names, whatever order they come in.

    Raises:
        BadInput: if one is missing, or has another shape.
    """
    names = jax.tree_util.keystr
    found = {
        names(path, simple=True, separator="/"): array
        for path, array in jax.tree_util.tree_leaves_with_path(read)
    }

    def place(path: Any, shape: Any) -> jax.Array:
        name = names(path, simple=True, separator="/")
        array = np.asarray(found[name]) if name in found else None
        if array is None or array.shape != shape.shape:
            what = "nothing" if array is None else f"an array {array.shape}"
            raise BadInput(
                f"{name}: found {what}, expected {shape.shape}; what the run starts from has "
                "another structure than the run: choose one that fits"
            )
        return put_whole(array, shape.sharding)

    return jax.tree_util.tree_map_with_path(place, like)


def overview(like: TrainState, parts: Mapping[str, Part], *, spread_largest: bool = False) -> str:
    """A summary of the parameters by part: number, size, training, placement.

    It ends with a warning if parts with `spread` "largest" were to be spread, and none is.
    """
    devices = like.step.sharding.mesh.size
    lines, in_vain = [], spread_largest and devices > 1
    for name, part in parts.items():
        arrays = jax.tree.leaves(like.params[name])
        count = sum(array.size for array in arrays)
        size = sum(array.size * array.dtype.itemsize for array in arrays)
        per_device = bytes_per_device(arrays)
        rate = "held fixed" if part.rate is None else f"learning rate x {part.rate:g}"
        rows = f", the rows of {part.touched} that a step uses" if part.touched else ""
        where = f"whole on each of {devices} devices" if devices > 1 else "on one device"
        if per_device < size:
            where = f"spread over {devices} devices, {per_device / 1e6:,.1f} MB each"
            in_vain &= part.spread != "largest"
        lines.append(f"  {name:<12} {count:>13,} {size / 1e6:>10,.1f} MB  {rate}{rows}; {where}")
    if in_vain:
        lines.append(
            "warning: --shard-encoder spreads nothing: found no large array of an encoder with a "
            f"dimension that {devices} devices divide; use another number of them, or leave it out"
        )
    return "\n".join(["parameters", *lines])


def bytes_per_device(tree: Any) -> int:
    """Bytes per device of shapes with shardings."""
    return sum(
        int(np.prod(leaf.sharding.shard_shape(leaf.shape))) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )
