"""The train step: one jitted function from a state and a batch to the next state and its metrics.

The groups of a pass run side by side; passes follow one another and their gradients are averaged,
which changes nothing but memory, because a loss lives inside its group.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from coder_jax.devices.mesh import (
    EVERYWHERE,
    check_memory,
    compiled_to_fit,
    constrain,
    device_memory,
    local_copy,
    make_mesh,
    memory_advice,
    placed_batch_shapes,
    put_whole,
    replicated,
    step_cut,
)
from coder_jax.training.lazy_rows import LazyRows, lazy_parts
from coder_jax.training.state import (
    TrainState,
    abstract_state,
    bytes_per_device,
    check_parts,
    make_optimizer,
    trained,
)
from coder_jax.training.system import Config, Loss, Params, Part, StepKey
from data_pipeline.batches.spec import BatchSource, StepCut

Metrics = dict[str, jax.Array]


def _make_train_step(
    loss: Callable[[Config], Loss],
    config: Config,
    parts: Mapping[str, Part],
    lazy: LazyRows,
    where: TrainState,
) -> jax.stages.Wrapped:
    """The jitted step; it donates the state's memory, so keep no reference to the old state.

    Args:
        loss: of `System.loss`, of a configuration.
        config: of the run.
        parts: of the parameters.
        lazy: how it works on the rows that it uses.
        where: the sharding of each array of the state, of arrays or shapes.

    Returns:
        step(state, batch, numbers) -> (state, metrics); the batch is that of `mesh.put_batch`,
        numbers are `_numbers` of the configuration, metrics are float32 scalars.
    """

    run = config.run
    mesh = where.step.sharding.mesh
    spread = [name for name in trained(where.params, parts) if parts[name].spread == "largest"]

    def gathered_whole(params: Params) -> Params:
        """Weights that lie spread, whole on each device for the length of a step.

        Left to itself the compiler would rather send activations, many times as many bytes.
        """
        whole = {
            name: jax.tree.map(lambda array: constrain(mesh, array, EVERYWHERE), params[name])
            for name in spread
        }
        return {**params, **whole}

    def scattered(grads: Params) -> Params:
        """Gradients summed over the devices, each of which keeps what its weights need."""

        def put(array: jax.Array, like: Any) -> jax.Array:
            return jax.lax.with_sharding_constraint(array, like.sharding)

        return {**grads, **{n: jax.tree.map(put, grads[n], where.params[n]) for n in spread}}

    def train_step(
        state: TrainState, batch: dict[str, jax.Array], numbers: dict[str, jax.Array]
    ) -> tuple[TrainState, Metrics]:
        now = _with_numbers(config, numbers)
        loss_now, optimizer = loss(now), make_optimizer(now.optimizer, parts)
        rows = dataclasses.replace(lazy, config=now.optimizer)
        passes = jax.tree.leaves(batch)[0].shape[0]
        whole = state
        state, batch, gathered = rows.gather_rows(state, batch)
        learnt = trained(state.params, parts)
        fixed = {name: value for name, value in state.params.items() if name not in learnt}
        used = gathered_whole(learnt)

        def one_pass(number: jax.Array, part: dict[str, jax.Array]) -> tuple[Any, Any, Any]:
            def of_learnt(learnt: Any) -> Any:
                step_key = StepKey(state.step, number, run.cache_chunks, run.remat)
                return loss_now({**fixed, **learnt}, state.extra, part, step_key)

            gradient = jax.value_and_grad(of_learnt, has_aux=True)
            (total, (extra, metrics)), grads = gradient(used)
            return {"loss": total, **metrics}, scattered(grads), extra

        if passes == 1:
            first = jax.tree.map(lambda array: array[0], batch)
            metrics, grads, extra = one_pass(jnp.int32(0), first)
        else:
            metrics, grads, extra = _mean_over_passes(one_pass, batch, passes)
        updates, opt_state = optimizer.update(grads, state.opt_state, learnt)
        metrics["grad_norm"] = optax.tree.norm(grads)
        for name, of_part in grads.items():
            metrics[f"grad_norm/{name}"] = optax.tree.norm(of_part)
        params = {**fixed, **optax.apply_updates(learnt, updates)}
        after = TrainState(state.step + 1, params, extra, opt_state, state.row_steps)
        return rows.scatter_rows(whole, after, gathered), metrics

    places = jax.tree.map(lambda leaf: leaf.sharding, where), replicated(mesh)
    return jax.jit(train_step, donate_argnums=0, out_shardings=places)


def _numbers(config: Config) -> dict[str, np.ndarray]:
    """What a step's program takes as arguments, so that runs which differ in no more share it: a
    compilation takes minutes on an accelerator.
    """
    optimizer = config.optimizer
    numbers = {
        "learning_rate": np.array(optimizer.learning_rate, np.float32),
        "warmup_steps": np.array(optimizer.warmup_steps, np.int32),
        "steps": np.array(optimizer.steps, np.int32),
    }
    if batch := getattr(config.system, "batch", None):  # `System` asks for none
        numbers["seed"] = np.array(batch.seed % 2**32, np.uint32)
    return numbers


def _with_numbers(config: Config, numbers: Mapping[str, Any]) -> Config:
    """The configuration with the values of `_numbers` in their places."""
    schedule, system = dict(numbers), config.system
    if "seed" in schedule:
        batch = dataclasses.replace(system.batch, seed=schedule.pop("seed"))
        system = dataclasses.replace(system, batch=batch)
    optimizer = dataclasses.replace(config.optimizer, **schedule)
    return dataclasses.replace(config, system=system, optimizer=optimizer)


def _mean_over_passes(
    one_pass: Callable[..., Any], batch: dict[str, jax.Array], passes: int
) -> Any:
    """The mean of the results of `one_pass` over the passes, computed one by one in the memory of
    one.
    """
    part = jax.tree.map(lambda array: array[0], batch)
    zeros = jax.tree.map(
        lambda shape: jnp.zeros(shape.shape, shape.dtype),
        jax.eval_shape(one_pass, jnp.int32(0), part),
    )

    def add(total: Any, numbered: tuple[jax.Array, dict[str, jax.Array]]) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, one_pass(*numbered)), None

    total, _ = jax.lax.scan(add, zeros, (jnp.arange(passes, dtype=jnp.int32), batch))
    return jax.tree.map(lambda value: value / passes, total)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """The step function of a run and its arguments, compiled when shapes are known.

    Attributes:
        mesh: the devices.
        cut: how a step is cut for them.
        parts: of the parameters.
        like: the state as shapes with their places.
        optimizer: of the parts that are trained.
        lazy: how a step works on the rows that it uses.
        jitted: of `_make_train_step`.
        config: of the run.
    """

    mesh: Mesh
    cut: StepCut
    parts: dict[str, Part]
    like: TrainState
    optimizer: optax.GradientTransformation
    lazy: LazyRows
    jitted: jax.stages.Wrapped
    config: Config
    compiled: dict[int, jax.stages.Compiled] = dataclasses.field(default_factory=dict)

    def one_host(self, tree: Any) -> Any:
        """Sharded arrays as full arrays on one device of this host; all hosts call it."""
        return local_copy(self.mesh, tree)

    def lower(self, batch: Mapping[str, Any]) -> jax.stages.Lowered:
        """The step for batches of these shapes, not yet compiled."""
        numbers = {
            name: jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=replicated(self.mesh))
            for name, value in _numbers(self.config).items()
        }
        return self.jitted.lower(self.like, batch, numbers)

    @functools.cached_property
    def _placed_numbers(self) -> dict[str, jax.Array]:
        where = replicated(self.mesh)
        return {name: put_whole(value, where) for name, value in _numbers(self.config).items()}

    def compile(self, source: BatchSource, rows: int) -> str:
        """Compile the step for blocks with this many rows.

        Returns:
            what the program needs of each device's memory, in words.

        Raises:
            BadInput: if it does not fit; nothing was loaded or run.
        """
        shapes = placed_batch_shapes(
            self.mesh, self.cut, source.shapes(rows), source.packed, source.floats
        )
        system, passes = self.config.system, self.cut.passes
        chunks, within = self.config.run.cache_chunks, self.mesh.shape["within"]
        can_divide = not system.whole and system.groups % (2 * passes) == 0
        can_spread = any(part.spread == "largest" for part in self.parts.values())
        advice = functools.partial(
            memory_advice,
            can_spread=can_spread and not self.config.run.shard_encoder,
            more_passes=2 * passes if can_divide else 0,
            more_chunks=2 * chunks if system.encodes_rows and rows >= 2 * chunks * within else 0,
        )
        held = bytes_per_device(self.like)
        lowered = self.lower(shapes)
        self.compiled[rows] = compiled_to_fit(lowered, advice(held > device_memory() / 2))
        fuller = source.plan.ample / rows
        return check_memory(self.compiled[rows], self.mesh.size, advice, fuller=fuller)

    def __call__(
        self, state: TrainState, batch: dict[str, jax.Array], rows: int
    ) -> tuple[TrainState, Metrics]:
        """Take a step with a batch of that many rows in a block; `state` is donated.

        Raises:
            XlaRuntimeError: if an array would have to come from this host's memory: what a step
                needs lies on the devices, or each step would wait for a copy.
        """
        numbers = self._placed_numbers
        with jax.transfer_guard("disallow"):
            return self.compiled[rows](state, batch, numbers)


def make_step(
    config: Config,
    recorded_start: Any,
    packed: tuple[str, ...],
    *,
    devices: Sequence[jax.Device] | None = None,
) -> Step:
    """The step of a run, not yet compiled.

    Args:
        config: the run.
        recorded_start: of `System.load_initial`.
        packed: of `BatchSource.packed`.
        devices: of the mesh; all of all hosts if None.
    """
    system, run = config.system, config.run
    mesh = make_mesh(system.groups // run.passes, devices)
    parts = check_parts(system.parts(), system.shapes(recorded_start)[0])
    optimizer = make_optimizer(config.optimizer, parts)
    like = abstract_state(
        system, recorded_start, parts, optimizer, mesh, spread_largest=run.shard_encoder
    )
    lazy = LazyRows(lazy_parts(parts), config.optimizer, mesh, packed)

    def loss(config: Config) -> Loss:
        return config.system.loss(recorded_start, mesh)

    return Step(
        mesh=mesh,
        cut=step_cut(mesh, run.passes, run.cache_chunks),
        parts=parts,
        like=like,
        optimizer=optimizer,
        lazy=lazy,
        jitted=_make_train_step(loss, config, parts, lazy, like),
        config=config,
    )
