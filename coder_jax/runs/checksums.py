"""Checksums of a state's arrays: what was saved is what is restored, or it is said.

tensorstore checks the indexes of what it stores, but not the bytes of the arrays: a bit that flips
on a disk comes back as another weight. A checksum here is a sum of integers over all elements, so
it does not depend on how an array is spread over devices and hosts, and each device reads only its
own part.
"""

from typing import Any

import jax
import jax.numpy as jnp

from coder_jax.models.bits import GOLDEN_RATIO, mix_bits


class Damaged(Exception):
    """A checkpoint that cannot be read, or does not hold what was saved; the message says what."""


@jax.jit
def checksum(array: jax.Array) -> jax.Array:
    """uint32: the sum of a hash of every element's bits and place, modulo 2^32.

    The hash is a bijection of the bits, so that one changed element always changes the sum; several
    go unnoticed once in four billion.
    """
    bits = jax.lax.bitcast_convert_type(array, jnp.dtype(f"uint{8 * array.dtype.itemsize}"))
    place = jnp.zeros(array.shape, jnp.uint32)
    for dimension in range(array.ndim):
        index = jax.lax.broadcasted_iota(jnp.uint32, array.shape, dimension)
        place += index * jnp.uint32((GOLDEN_RATIO * (2 * dimension + 1)) % 2**32)
    return jnp.sum(mix_bits(bits.astype(jnp.uint32) ^ mix_bits(place)), dtype=jnp.uint32)


def checksums(tree: Any) -> dict[str, int]:
    """The checksum of every array, by its path in the tree; arrays have at most 32 bits a value.

    Every host calls it with the same tree, as it does the step.
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
    sums = jax.device_get([checksum(array) for _, array in leaves])
    return {name: int(value) for name, value in zip(names, sums, strict=True)}


def check_sums(found: dict[str, int], saved: dict[str, int]) -> None:
    """Raise Damaged, with the name of an array, unless all are as they were saved."""
    wrong = sorted(name for name in found | saved if found.get(name) != saved.get(name))
    if wrong:
        more = f" and {len(wrong) - 1} more arrays" if len(wrong) > 1 else ""
        raise Damaged(
            f"{wrong[0]}{more} came back with other values than were saved (by checksum), so the "
            "file was changed or the disk is failing"
        )
