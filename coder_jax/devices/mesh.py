"""The device mesh and where each array lies on it: two axes, one table.

The axis `groups` counts the blocks of a pass: each holds the rows and the losses of some groups,
and needs nothing of the others but the sum of the gradients. Where there are more devices than
groups, several of them, the axis `within`, share a block: its rows and its anchors.

| array | place |
|---|---|
| packed rows of a batch [P, B, R, L] | B over `groups`, R over `within` |
| other arrays of a batch [P, B, G, ...] | B over `groups` |
| a part of the parameters, its gradient and moments | on every device; or one dimension over all |
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from data_pipeline.batches.spec import StepCut

AXES = ("groups", "within")
BLOCKS = PartitionSpec("groups")  # [B, ...]
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


def local_mesh() -> Mesh:
    """One axis, `data`, over the devices of this host."""
    return Mesh(np.array(jax.local_devices()), ("data",), axis_types=(AxisType.Auto,))


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


def batch_place(name: str, packed: Sequence[str]) -> PartitionSpec:
    """The place of an array of a batch, [P, B, ...]; `packed` names those of packed rows."""
    return PartitionSpec(None, "groups", *(["within"] if name in packed else []))


def place_of(mesh: Mesh, shape: Sequence[int], spread: int | str | None) -> NamedSharding:
    """The place of an array of parameters.

    Args:
        mesh: the devices.
        shape: of the array.
        spread: the dimension that lies over all devices; "largest": the first that can, beginning
            with the largest, if the array is large; None: whole on each device.
    """
    if isinstance(spread, int) and spread < len(shape):
        return NamedSharding(mesh, _spread(shape, mesh, [spread]))
    if spread == "largest" and math.prod(shape) >= SMALLEST_TO_SHARD:
        largest_first = sorted(range(len(shape)), key=lambda i: -shape[i])
        return NamedSharding(mesh, _spread(shape, mesh, largest_first))
    return replicated(mesh)


def _spread(shape: Sequence[int], mesh: Mesh, dimensions: list[int]) -> PartitionSpec:
    """The first of `dimensions` that divides over all devices, or over one axis; else nothing."""
    for axes in (AXES, AXES[:1], AXES[1:]):
        parts = math.prod(mesh.shape[axis] for axis in axes)
        for dimension in dimensions:
            if shape[dimension] % parts == 0:
                return PartitionSpec(*[None] * dimension, axes)
    return PartitionSpec()


def spread_axes(mesh: Mesh, size: int) -> tuple[str, ...] | None:
    """The axes over which a dimension of this size is spread; None for none."""
    spread = _spread((size,), mesh, [0])
    return spread[0] if spread else None


def constrain(mesh: Mesh, array: jax.Array, place: PartitionSpec) -> jax.Array:
    """In traced code: the array, which is to lie there; its gradient, too."""
    return jax.lax.with_sharding_constraint(array, NamedSharding(mesh, place))


def put_batch(
    mesh: Mesh, cut: StepCut, batch: Mapping[str, np.ndarray], packed: Sequence[str]
) -> dict[str, jax.Array]:
    """This host's blocks as part of the whole batch on all devices; the copy goes on by itself.

    Args:
        mesh: the devices.
        cut: of the batch.
        batch: [P, blocks of this host, ...] each.
        packed: names of the arrays of packed rows.

    Returns:
        [P, B, ...] each, B the blocks of all hosts.
    """

    def put(name: str, mine: np.ndarray) -> jax.Array:
        def part(index: Any) -> np.ndarray:
            first, last, _ = index[1].indices(cut.blocks)
            return mine[index[0], first - cut.first : last - cut.first, *index[2:]]

        shape = (mine.shape[0], cut.blocks, *mine.shape[2:])
        place = NamedSharding(mesh, batch_place(name, packed))
        return jax.make_array_from_callback(shape, place, part)

    return {name: put(name, array) for name, array in batch.items()}


def batch_shapes(
    mesh: Mesh,
    cut: StepCut,
    shapes: Mapping[str, tuple[int, ...]],
    packed: Sequence[str],
    floats: Sequence[str] = (),
) -> dict[str, jax.ShapeDtypeStruct]:
    """What `put_batch` returns, as shapes with their places.

    Args:
        mesh, cut, packed: as for `put_batch`.
        shapes: [P, blocks of this host, ...] each (`BatchSource.shapes`).
        floats: names of the arrays that are float32; the others are int32.
    """
    return {
        name: jax.ShapeDtypeStruct(
            (shape[0], cut.blocks, *shape[2:]),
            np.float32 if name in floats else np.int32,
            sharding=NamedSharding(mesh, batch_place(name, packed)),
        )
        for name, shape in shapes.items()
    }


def put_whole(array: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """An array that every host has whole, laid out on the devices part by part."""
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def local_copy(mesh: Mesh, tree: Any) -> Any:
    """Arrays of all devices as whole arrays on one device of this host; all hosts must call it."""
    gathered = jax.jit(_same, out_shardings=replicated(mesh))(tree)
    return jax.tree.map(lambda array: array.addressable_data(0), gathered)


def _same(tree: Any) -> Any:  # one function, so that it is compiled once
    return tree
