"""The device mesh and where each array lives on it: one axis, one table.

Rows of a batch, and groups where their number allows, are spread over the axis `data`; parameters
and optimizer state are on every device.
"""

from collections.abc import Mapping

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

# Array of a batch -> the dimension that is spread over the devices.
SPREAD = {"tokens": 1, "positions": 1, "segments": 1, "concepts": 1, "relations": 1}


def make_mesh(devices: int | None = None) -> Mesh:
    """A mesh with the one axis `data` over the first `devices` devices; over all if None."""
    chosen = jax.devices()[:devices]
    return jax.make_mesh((len(chosen),), ("data",), (AxisType.Auto,), devices=chosen)


def replicated(mesh: Mesh) -> NamedSharding:
    """On every device."""
    return NamedSharding(mesh, PartitionSpec())


def batch_sharding(mesh: Mesh, name: str, shape: tuple[int, ...]) -> NamedSharding:
    """Where an array of a batch lives: spread over `data` if its dimension divides evenly."""
    dimension = SPREAD[name]
    if shape[dimension] % mesh.size:
        return replicated(mesh)
    return NamedSharding(mesh, PartitionSpec(*[None] * dimension, "data"))


def put_batch(mesh: Mesh, batch: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    """The arrays of a batch on the devices; the copy goes on while Python does."""
    return {
        name: jax.device_put(array, batch_sharding(mesh, name, array.shape))
        for name, array in batch.items()
    }
