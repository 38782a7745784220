"""What a training step will need on each device, before anything is compiled or loaded.

The state and its gradient follow from their shapes and places. The activations of the encoder are
an estimate: XLA decides how many of them it keeps. Against the compiler's own figures it is right
in float32 on one CPU; for bfloat16 on TPUs it was too high by a third to a half.
"""

import dataclasses
import os
from typing import Any

import jax
import numpy as np

from coder_jax.models.bert import Bert
from coder_jax.systems.groups.relations import has_matrices
from coder_jax.training.state import TrainState
from data_pipeline.batches.spec import BatchSpec, RowPlan, StepCut
from data_pipeline.process.errors import BadInput

GIB = 2**30
# Per token and layer: arrays of the hidden width, and of the width between the two dense layers,
# that the backward pass reads again.
HIDDEN_ARRAYS, INNER_ARRAYS = 10, 3
# Per layer: arrays [rows, heads, L, L] (logits, probabilities, dropout).
ATTENTION_ARRAYS = 3


@dataclasses.dataclass(frozen=True)
class MemoryPlan:
    """Bytes on the device that holds most, by what they are for."""

    parts: dict[str, int]
    limit: int  # bytes that one device has
    devices: int
    advice: dict[str, str]  # part -> what makes it smaller

    @property
    def total(self) -> int:
        """All parts together."""
        return sum(self.parts.values())

    @property
    def least(self) -> int:
        """What is needed for certain; gradients come as activations go."""
        state = self.parts["parameters"] + self.parts["moments"]
        return state + max(self.parts["gradients"], self.parts["activations"] // 2)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {size / GIB:.2f}" for name, size in self.parts.items() if size)
        plural = "s" if self.devices > 1 else ""
        return (
            f"memory on each of {self.devices} device{plural}: about {self.total / GIB:.2f} of "
            f"{self.limit / GIB:.1f} GiB ({parts})"
        )


def plan_memory(
    like: TrainState, structure: Bert, spec: BatchSpec, cut: StepCut, rows: RowPlan
) -> MemoryPlan:
    """The plan of a run.

    Args:
        like: the state as shapes with their places (`abstract_state`).
        structure: the encoder as shapes.
        spec, cut, rows: of the batches.
    """
    params, moments = bytes_per_device(like.params), bytes_per_device(like.opt_state)
    table = bytes_per_device(like.params["relations"]) if has_matrices(like.params) else 0
    # With the lazy update a step works on the matrices that it needs, and their moments, instead.
    borrowed = 0
    if like.relation_steps is not None:
        number = like.relation_steps.shape[0]
        borrowed = table * min(number, spec.groups * spec.triplets) // number
    trained = params - table + borrowed if borrowed else params
    accumulated = trained if cut.passes > 1 else 0
    mesh = like.step.sharding.mesh
    gathered = 0
    if any(leaf.sharding.spec for leaf in jax.tree.leaves(like.params["encoder"])):
        # The word table, or a layer, is whole on every device while it is at work.
        gathered = max(leaf.size * 4 for leaf in jax.tree.leaves(like.params["encoder"]))
    parts = {
        "parameters": params,
        "moments": moments,
        "gradients": trained + accumulated + gathered,
        "activations": activation_bytes(structure, spec, -(-rows.ample // cut.row_multiple)),
        "relations at work": 3 * borrowed
        + (table and queries_bytes(structure, spec, cut, mesh.size)),
    }
    on_state = "more devices" + (
        "" if gathered or mesh.size == 1 else ", or --shard-encoder, which spreads the encoder too"
    )
    advice = {
        "parameters": on_state,
        "moments": on_state,
        "gradients": on_state,
        "activations": f"more passes (--passes {2 * cut.passes}), which change no result, or "
        "--dtype bfloat16",
        "relations at work": f"more passes (--passes {2 * cut.passes}), which change no result",
    }
    return MemoryPlan(parts, device_memory(), mesh.size, advice)


def bytes_per_device(tree: Any) -> int:
    """Bytes of shapes with shardings that one device holds."""
    return sum(
        int(np.prod(leaf.sharding.shard_shape(leaf.shape))) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )


def activation_bytes(structure: Bert, spec: BatchSpec, rows: int) -> int:
    """What the backward pass of `rows` packed rows reads again, and the float32 logits at work."""
    config, size = structure.config, structure.dtype.itemsize
    mixed = (size + 4) / 2  # layer norms and softmax compute in float32
    of_token = (
        HIDDEN_ARRAYS * config.hidden_size * mixed + INNER_ARRAYS * config.intermediate_size * size
    )
    of_token += ATTENTION_ARRAYS * config.num_heads * spec.row_length * mixed
    return int(config.num_layers * rows * spec.row_length * of_token)


def queries_bytes(structure: Bert, spec: BatchSpec, cut: StepCut, devices: int) -> int:
    """The gathered relation matrices of a pass, and their gradient."""
    triplets = spec.groups // cut.passes * spec.triplets
    return 2 * triplets * structure.config.hidden_size**2 * 4 // devices


def device_memory() -> int:
    """Bytes that one device may use; on a CPU its share of what the whole machine has."""
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"]
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return machine // jax.local_device_count()


def check_memory(plan: MemoryPlan) -> str:
    """The plan in words, with a warning if it may not fit.

    Raises:
        BadInput: if it cannot fit, with the parts and the setting that helps most.
    """
    if plan.total <= plan.limit:
        return str(plan)
    largest = max(plan.parts, key=lambda name: plan.parts[name])
    helps = f"Most are {largest}; use {plan.advice[largest]}"
    if plan.least > plan.limit:
        raise BadInput(f"{plan}: this does not fit. {helps}")
    return f"{plan}\nwarning: this may not fit. {helps}"
