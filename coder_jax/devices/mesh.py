"""The device mesh and where each array lives on it: two axes, one table.

The axis `groups` counts the blocks of a pass: each holds the rows and the losses of some groups,
and needs nothing of the others but the sum of the gradients. Where there are more devices than
groups, several of them, the axis `within`, share a block: its rows and its anchors.

| array | place |
|---|---|
| tokens, positions, segments [P, B, R, L] | B over `groups`, R over `within` |
| concepts, relations, types [P, B, G, ...] | B over `groups` |
| relation matrices [R, D, D], their gradient and moments | the first D over all devices |
| encoder, its gradient and moments | on every device; or, if asked for, each large array over all |
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from coder_jax.systems.groups.relations import is_matrices
from data_pipeline.batches.spec import StepCut

AXES = ("groups", "within")
BATCH = {
    "tokens": PartitionSpec(None, "groups", "within"),
    "positions": PartitionSpec(None, "groups", "within"),
    "segments": PartitionSpec(None, "groups", "within"),
    "concepts": PartitionSpec(None, "groups"),
    "relations": PartitionSpec(None, "groups"),
    "types": PartitionSpec(None, "groups"),
}
VECTORS = PartitionSpec("groups", None, "within")  # [B, G, N, D]
QUERIES = PartitionSpec("groups")  # [B, G, U, m, D]
EVERYWHERE = PartitionSpec()
# Smaller arrays (biases, norms) stay on every device: to gather them would cost more than they do.
SMALLEST_TO_SHARD = 1 << 16


def make_mesh(groups: int, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """The mesh for `groups` groups per pass, over some devices (all of all hosts if None).

    Devices of one host are neighbours, so that a host makes neighbouring blocks.
    """
    if devices is None:
        devices = jax.devices()
    chosen = sorted(devices, key=lambda device: (device.process_index, device.id))
    blocks = math.gcd(groups, len(chosen))
    grid = np.array(chosen).reshape(blocks, len(chosen) // blocks)
    return Mesh(grid, AXES, axis_types=(AxisType.Auto, AxisType.Auto))


def step_cut(mesh: Mesh, passes: int) -> StepCut:
    """How a step is cut for the mesh, and the blocks that this host's devices hold."""
    here = jax.process_index()
    mine = [
        block
        for block, devices in enumerate(mesh.devices)
        if any(device.process_index == here for device in devices)
    ]
    return StepCut(
        passes=passes,
        blocks=mesh.shape["groups"],
        row_multiple=mesh.shape["within"],
        first=mine[0],
        last=mine[-1] + 1 if len(mine) < mesh.shape["groups"] else None,
    )


def replicated(mesh: Mesh) -> NamedSharding:
    """On every device."""
    return NamedSharding(mesh, EVERYWHERE)


def state_sharding(mesh: Mesh, state: Any, *, shard_encoder: bool) -> Any:
    """The place of each array of a `TrainState` of shapes: a tree of shardings like it.

    Args:
        mesh: the devices.
        state: parameters and optimizer state; an array belongs to the part ("encoder" or
            "relations") that the path to it names.
        shard_encoder: spread the encoder's large arrays over all devices, too.
    """

    def place(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
        parts = {getattr(part, "key", None) for part in path}
        if is_matrices(path, leaf):
            return NamedSharding(mesh, _spread(leaf.shape, mesh, [1]))
        if "encoder" in parts and shard_encoder and leaf.size >= SMALLEST_TO_SHARD:
            largest_first = sorted(range(leaf.ndim), key=lambda i: -leaf.shape[i])
            return NamedSharding(mesh, _spread(leaf.shape, mesh, largest_first))
        return replicated(mesh)

    return jax.tree_util.tree_map_with_path(place, state)


def _spread(shape: tuple[int, ...], mesh: Mesh, dimensions: list[int]) -> PartitionSpec:
    """The first of `dimensions` that divides over all devices, or over one axis; else nothing."""
    for axes in (AXES, AXES[:1], AXES[1:]):
        parts = math.prod(mesh.shape[axis] for axis in axes)
        for dimension in dimensions:
            if shape[dimension] % parts == 0:
                return PartitionSpec(*[None] * dimension, axes)
    return PartitionSpec()


def features_of_matrices(mesh: Mesh, width: int) -> tuple[str, ...] | None:
    """The axes over which the first D of the relation matrices is spread; None for none.

    A device that holds some rows of every matrix needs those features of every head: these are
    small, so the heads travel and the matrices stay.
    """
    spread = _spread((1, width, width), mesh, [1])
    return spread[1] if spread else None


def lie(mesh: Mesh, array: jax.Array, place: PartitionSpec) -> jax.Array:
    """In traced code: the array, which is to lie there; its gradient, too."""
    return jax.lax.with_sharding_constraint(array, NamedSharding(mesh, place))


def put_batch(mesh: Mesh, cut: StepCut, batch: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    """This host's blocks as part of the whole batch on all devices; the copy goes on by itself.

    Args:
        mesh: the devices.
        cut: of the batch.
        batch: [P, blocks of this host, ...] each.

    Returns:
        [P, B, ...] each, B the blocks of all hosts.
    """

    def put(name: str, mine: np.ndarray) -> jax.Array:
        def part(index: Any) -> np.ndarray:
            first, last, _ = index[1].indices(cut.blocks)
            return mine[index[0], first - cut.first : last - cut.first, *index[2:]]

        shape = (mine.shape[0], cut.blocks, *mine.shape[2:])
        return jax.make_array_from_callback(shape, NamedSharding(mesh, BATCH[name]), part)

    return {name: put(name, array) for name, array in batch.items()}


def put_whole(array: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """An array that every host has whole, laid out on the devices part by part."""
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def local_copy(mesh: Mesh, tree: Any) -> Any:
    """Arrays of all devices as whole arrays on one device of this host; all hosts must call it."""
    gathered = jax.jit(_same, out_shardings=replicated(mesh))(tree)
    return jax.tree.map(lambda array: array.addressable_data(0), gathered)


def _same(tree: Any) -> Any:  # one function, so that it is compiled once
    return tree
