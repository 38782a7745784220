"""Attention of packed rows as one GPU kernel that stores no L x L array in device memory.

A row is short (at most 128 tokens), so one program holds the logits of a row and a head in its
registers: products, softmax, dropout and their gradients are one kernel each way. It computes what
`bert.attention` does, mask, dropout bits and all, in bfloat16.

Written in Pallas for Triton. Shapes: R rows, L tokens per row, H heads, K head width.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.experimental import pallas as pl
from jax.experimental.custom_partitioning import custom_partitioning
from jax.experimental.pallas import triton

from coder_jax.models.dropout import GOLDEN_RATIO, mix_bits

_LONGEST_ROW = 128  # the logits of a longer one would not fit into the registers of a program
_SHORTEST = 16  # of rows and heads: the least that the matrix units take
_MASKED = -1e30


@dataclasses.dataclass(frozen=True)
class _Dropout:
    """Dropout of probabilities: `dropout.hash_dropout` for (token, site, head and key's place)."""

    rate: float
    site: int
    max_positions: int

    def keep(self, ids_L: jax.Array, positions_L: jax.Array, head: jax.Array) -> jax.Array:
        """bool [L, L]: the probabilities that dropout keeps."""
        salt = jnp.uint32(GOLDEN_RATIO * (self.site + 1) & 0xFFFFFFFF)
        token_L = mix_bits(ids_L + salt)
        place_L = head.astype(jnp.uint32) * jnp.uint32(self.max_positions)
        place_L = mix_bits(place_L + positions_L.astype(jnp.uint32) + jnp.uint32(GOLDEN_RATIO))
        bits_LL = mix_bits(token_L[:, None] ^ place_L[None, :])
        return bits_LL >= jnp.uint32(round(self.rate * 2**32))


def fits(length: int, head_width: int, dtype: Any) -> bool:
    """Whether the kernel supports rows of `length` tokens with heads of this width on this
    machine.
    """
    sizes = length, head_width
    powers = all(size & (size - 1) == 0 and size >= _SHORTEST for size in sizes)
    here = jax.default_backend() == "gpu"
    return here and dtype == jnp.bfloat16 and powers and length <= _LONGEST_ROW


def fused_attention(
    qkv_RL3HK: jax.Array,
    segments_RL: jax.Array,
    positions_RL: jax.Array,
    dropout_ids_RL: jax.Array | None,
    *,
    rate: float,
    site: int,
    max_positions: int,
    interpret: bool = False,
) -> jax.Array:
    """Attention within segments, bfloat16 [R, L, H, K].

    Rows may be spread over devices: each computes its own.

    Args:
      qkv_RL3HK: queries, keys and values, bfloat16.
      segments_RL: int32; token i sees token j iff their segments are equal.
      positions_RL: int32 place of each token within its own term.
      dropout_ids_RL: uint32, of each token; None = no dropout.
      rate, site, max_positions: of the dropout, as `bert.attention` has them.
      interpret: computes it step by step in place of compiling it, on any device.
    """
    dropout = None
    if dropout_ids_RL is not None and rate:
        dropout = _Dropout(rate, site, max_positions)
    else:
        dropout_ids_RL = jnp.zeros_like(segments_RL, jnp.uint32)
    of_tokens = segments_RL, positions_RL, dropout_ids_RL
    return _attention(dropout, interpret, qkv_RL3HK, *of_tokens)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attention(dropout, interpret, qkv_RL3HK, segments_RL, positions_RL, ids_RL):
    kernel = functools.partial(_forward_kernel, dropout=dropout)
    rule = "... l c h k, ... l, ... l, ... l -> ... l h k"
    _, length, _, heads, width = qkv_RL3HK.shape
    arrays = qkv_RL3HK, segments_RL, positions_RL, ids_RL
    return _call(kernel, rule, arrays, (length, heads, width), interpret, "packed_attention")


def _attention_forward(dropout, interpret, *given):
    return _attention(dropout, interpret, *given), given


def _attention_backward(dropout, interpret, given, grad_RLHK):
    qkv_RL3HK, *of_tokens = given
    kernel = functools.partial(_backward_kernel, dropout=dropout)
    rule = "... l c h k, ... l h k, ... l, ... l, ... l -> ... l c h k"
    arrays, name = (qkv_RL3HK, grad_RLHK, *of_tokens), "packed_attention_gradient"
    grad_RL3HK = _call(kernel, rule, arrays, qkv_RL3HK.shape[1:], interpret, name)
    return grad_RL3HK, None, None, None


_attention.defvjp(_attention_forward, _attention_backward)


def _call(kernel, rule, arrays, out_shape, interpret, name):
    """Runs a kernel for each row and head; its refs lack both dimensions.

    Each device runs it for the rows that it has: XLA, which cannot look into a kernel, would gather
    them all. `jax.vmap` adds a dimension of rows.

    Args:
      kernel: of refs of the arrays and of the result.
      rule: the dimensions of arrays and result, "..." those of rows, the only ones to be spread.
      arrays: [..., L, H, K], [..., L, 3, H, K] or [..., L].
      out_shape: of the result of one row.
      interpret, name: as `pallas_call` has them.
    """

    def on_one_device(*arrays):
        *of_rows, length = arrays[-1].shape
        flat = [array.reshape(-1, *array.shape[len(of_rows) :]) for array in arrays]
        out = jax.ShapeDtypeStruct((len(flat[0]), *out_shape), arrays[0].dtype)
        made = pl.pallas_call(
            kernel,
            grid=(len(flat[0]), out_shape[-2]),
            in_specs=[_block(array.shape) for array in flat],
            out_specs=_block(out.shape),
            out_shape=out,
            compiler_params=triton.CompilerParams(num_warps=max(1, length // 16), num_stages=1),
            interpret=interpret,
            name=name,
        )(*flat)
        return made.reshape(*of_rows, *out_shape)

    def partition(mesh, given, found):
        return mesh, on_one_device, found.sharding, tuple(array.sharding for array in given)

    spread = custom_partitioning(on_one_device)
    whole = tuple(name for name in ("l", "c", "h", "k") if name in rule)
    spread.def_partition(partition, sharding_rule=rule, need_replication_factors=whole)
    mapped = custom_vmap(spread)

    @mapped.def_vmap
    def _(size, is_mapped, *arrays):
        more = (
            array if has else jnp.broadcast_to(array, (size, *array.shape))
            for array, has in zip(arrays, is_mapped, strict=True)
        )
        return mapped(*more), True

    return mapped(*arrays)


def _block(shape):
    """Of an array [R, L], [R, L, H, K] or [R, L, 3, H, K] what the program of a row and head
    reads or writes.
    """
    if len(shape) == 2:
        return pl.BlockSpec((None, shape[1]), lambda row, head: (row, 0))
    of_head = [None if axis in (0, len(shape) - 2) else n for axis, n in enumerate(shape)]
    zeros = (0,) * (len(shape) - 3)
    return pl.BlockSpec(tuple(of_head), lambda row, head: (row, *zeros, head, 0))


def _probabilities(q_LK, k_LK, segments_L):
    """float32 [L, L]: the softmax over the keys of a token's segment."""
    logits_LL = triton.dot(q_LK, k_LK, trans_b=True) * q_LK.shape[-1] ** -0.5
    seen_LL = segments_L[:, None] == segments_L[None, :]
    logits_LL = jnp.where(seen_LL, logits_LL, _MASKED)
    powers_LL = jnp.exp(logits_LL - jnp.max(logits_LL, axis=1, keepdims=True))
    return powers_LL / jnp.sum(powers_LL, axis=1, keepdims=True)


def _dropped(dropout, values_LL, kept_LL):
    return values_LL if dropout is None else jnp.where(kept_LL, values_LL / (1 - dropout.rate), 0.0)


def _forward_kernel(qkv_ref, segments_ref, positions_ref, ids_ref, out_ref, *, dropout):
    q_LK, k_LK, v_LK = qkv_ref[:, 0, :], qkv_ref[:, 1, :], qkv_ref[:, 2, :]
    probs_LL = _probabilities(q_LK, k_LK, segments_ref[...])
    kept_LL = dropout and dropout.keep(ids_ref[...], positions_ref[...], pl.program_id(1))
    dropped_LL = _dropped(dropout, probs_LL, kept_LL).astype(v_LK.dtype)
    out_ref[...] = triton.dot(dropped_LL, v_LK).astype(out_ref.dtype)


def _backward_kernel(qkv_ref, grad_ref, segments_ref, positions_ref, ids_ref, out_ref, *, dropout):
    q_LK, k_LK, v_LK = qkv_ref[:, 0, :], qkv_ref[:, 1, :], qkv_ref[:, 2, :]
    grad_LK, dtype = grad_ref[...], qkv_ref.dtype
    probs_LL = _probabilities(q_LK, k_LK, segments_ref[...])
    kept_LL = dropout and dropout.keep(ids_ref[...], positions_ref[...], pl.program_id(1))
    dropped_LL = _dropped(dropout, probs_LL, kept_LL).astype(dtype)
    out_ref[:, 2, :] = triton.dot(dropped_LL, grad_LK, trans_a=True).astype(dtype)
    grad_LL = _dropped(dropout, triton.dot(grad_LK, v_LK, trans_b=True), kept_LL)
    mean_L1 = jnp.sum(probs_LL * grad_LL, axis=1, keepdims=True)
    scale = q_LK.shape[-1] ** -0.5
    logits_LL = (probs_LL * (grad_LL - mean_L1) * scale).astype(dtype)
    out_ref[:, 0, :] = triton.dot(logits_LL, k_LK).astype(dtype)
    out_ref[:, 1, :] = triton.dot(logits_LL, q_LK, trans_a=True).astype(dtype)
