"""A hash of 32-bit numbers in traced code: random numbers that no state and no order goes into.

Dropout masks and the checksums of a checkpoint are made of it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

GOLDEN_RATIO = 0x9E3779B9


def mix_bits(x: jax.Array) -> jax.Array:
    """A uint32 bijection in which every input bit changes every output bit half of the time.

    Two rounds of xor-shift and multiply, the constants of Chris Wellons' 'lowbias32' (2018).
    """
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)
