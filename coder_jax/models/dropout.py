"""Stateless dropout: the mask is a hash of token and feature, so packing does not change it."""

from __future__ import annotations

import jax
import jax.numpy as jnp

# -------------------------------------------------------------------------------------------------
# A hash of 32-bit numbers in traced code, which gives random numbers without state.
#
# Dropout masks and the checksums of a checkpoint are made of it.

GOLDEN_RATIO = 0x9E3779B9


def mix_bits(x: jax.Array) -> jax.Array:
    """A uint32 bijection in which every input bit changes every output bit half of the time.

    Two rounds of xor-shift and multiply, the constants of Chris Wellons' 'lowbias32' (2018).
    """
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


# -------------------------------------------------------------------------------------------------
# Dropout whose mask is a hash of (token id, site, feature), wherever a term is packed.
#
# Ordinary dropout draws its mask by place in the array, so that packing the same terms otherwise,
# or over other devices, would change a training run. Here each token carries a number of its own,
# and the mask follows that number.


def hash_dropout(
    x: jax.Array, ids: jax.Array, site: int, features: jax.Array, rate: float
) -> jax.Array:
    """Zeroes elements of `x` with probability `rate` and scales the others by 1 / (1 - rate).

    Args:
      x: any float array.
      ids: uint32, broadcastable to x: the number of the token each element belongs to.
      site: number of the place in the network (Python int), so that sites differ.
      features: uint32, broadcastable to x: the number of the element within its token.
      rate: in [0, 1); at 0 x comes back as it is.
    """
    if rate == 0.0:
        return x
    # Numbers are mixed while they are small arrays; one round is left per element.
    tokens = mix_bits(ids.astype(jnp.uint32) + jnp.uint32(GOLDEN_RATIO * (site + 1) & 0xFFFFFFFF))
    bits = mix_bits(tokens ^ mix_bits(features.astype(jnp.uint32) + jnp.uint32(GOLDEN_RATIO)))
    keep = bits >= jnp.uint32(round(rate * 2**32))
    # In float32, as 0.9 is no number of bfloat16: all kept elements would be 0.2 % too large.
    scaled = x.astype(jnp.promote_types(x.dtype, jnp.float32)) / (1.0 - rate)
    return jnp.where(keep, scaled.astype(x.dtype), jnp.zeros_like(x))
