"""What a BERT is made of: embeddings, attention, dense layers, with dropout that needs no state.

Shapes: R rows, L tokens per row, T tokens of any axes, D hidden width, H heads, K head width.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from coder_jax.models.bert_config import BertConfig
from coder_jax.models.fused_attention import fits, fused_attention
from coder_jax.models.packed.dropout import hash_dropout
from coder_jax.models.packed.probes import Probes

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    # The exact form through erf; jax.nn.gelu goes through erfc, which costs more on every backend.
    "gelu": lambda x: 0.5 * x * (1.0 + jax.lax.erf(x * 0.5**0.5)),
    "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
}
DROPOUT_SITES_PER_LAYER = 3
MASKED = -1e30


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AttentionMask:
    """What is added to the logits of attention, and what its probabilities are multiplied by.

    Where the mask is that of segments alone, it has these too: a kernel then needs nothing else.
    """

    added_R1LL: jax.Array
    kept_R1LL: jax.Array | None = None
    segments_RL: jax.Array | None = None


def matmul_precision(dtype: Any) -> jax.lax.Precision:
    """Full precision for float32 (accelerators would round to TF32 or bf16), else the default."""
    return jax.lax.Precision.HIGHEST if dtype == jnp.float32 else jax.lax.Precision.DEFAULT


class Linear(nnx.Linear):
    """A dense layer over the last axis, of any number of axes.

    It sees a matrix: the gradient of the kernel is then one product, without the transposes of the
    input that XLA makes on CPUs for more than one axis to sum over.
    """

    def __call__(self, inputs: jax.Array, out_sharding: Any = None) -> jax.Array:
        matrix = inputs.reshape(-1, inputs.shape[-1])
        return super().__call__(matrix, out_sharding).reshape(*inputs.shape[:-1], -1)


def linear(
    config: BertConfig,
    width_in: int,
    width_out: int,
    dtype: Any,
    rngs: nnx.Rngs,
    *,
    bias: bool = True,
) -> Linear:
    """A dense layer with BERT's initial values; parameters float32, computing in `dtype`."""
    return Linear(
        width_in,
        width_out,
        use_bias=bias,
        dtype=dtype,
        precision=matmul_precision(dtype),
        kernel_init=nnx.initializers.normal(config.initializer_range),
        rngs=rngs,
    )


def layer_norm(config: BertConfig, rngs: nnx.Rngs, *, bias: bool = True) -> nnx.LayerNorm:
    """Layer normalization in float32; the fast variance E[x^2] - E[x]^2 would cancel digits."""
    return nnx.LayerNorm(
        config.hidden_size,
        use_bias=bias,
        epsilon=config.layer_norm_eps,
        dtype=jnp.float32,
        use_fast_variance=False,
        rngs=rngs,
    )


def normalized(norm: nnx.LayerNorm, x_TD: jax.Array, dtype: Any) -> jax.Array:
    """The layer normalization of `x_TD`, in `dtype`; in bfloat16 with a gradient in few passes."""
    if dtype != jnp.bfloat16 or norm.scale is None or norm.bias is None:
        return norm(x_TD).astype(dtype)
    return _norm_bfloat16(norm.epsilon, x_TD, norm.scale[...], norm.bias[...])


def activated(name: str, x: jax.Array) -> jax.Array:
    """The activation of `x`; gelu in bfloat16 with a gradient that is computed once."""
    if name == "gelu" and x.dtype == jnp.bfloat16:
        return _gelu_bfloat16(x)
    return ACTIVATIONS[name](x)


# As jax derives them, these two gradients read float32 arrays several times and are computed anew
# for each of their readers. On an H200 this one saves 0.7 of 39 ms of a step of BERT-base (by the
# profiler), gelu's 0.3.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _norm_bfloat16(epsilon, x_TD, scale_D, bias_D):
    return _norm_forward(epsilon, x_TD, scale_D, bias_D)[0]


def _norm_forward(epsilon, x_TD, scale_D, bias_D):
    float_TD = x_TD.astype(jnp.float32)
    mean_T1 = jnp.mean(float_TD, axis=-1, keepdims=True)
    variance_T1 = jnp.mean(jnp.square(float_TD - mean_T1), axis=-1, keepdims=True)
    rate_T1 = jax.lax.rsqrt(variance_T1 + epsilon)
    scale_TD, bias_TD = (of_all_tokens(array_D, x_TD.ndim) for array_D in (scale_D, bias_D))
    out_TD = (float_TD - mean_T1) * rate_T1 * scale_TD + bias_TD
    return out_TD.astype(x_TD.dtype), (x_TD, mean_T1, rate_T1, scale_D)


def _norm_backward(epsilon, saved, grad_TD):
    x_TD, mean_T1, rate_T1, scale_D = saved
    grad_TD = grad_TD.astype(jnp.float32)
    unit_TD = (x_TD.astype(jnp.float32) - mean_T1) * rate_T1
    of_unit_TD = grad_TD * of_all_tokens(scale_D, grad_TD.ndim)
    mean_grad_T1 = jnp.mean(of_unit_TD, axis=-1, keepdims=True)
    along_T1 = jnp.mean(of_unit_TD * unit_TD, axis=-1, keepdims=True)
    grad_x_TD = rate_T1 * (of_unit_TD - mean_grad_T1 - unit_TD * along_T1)
    tokens = tuple(range(grad_TD.ndim - 1))
    grads_D = jnp.sum(grad_TD * unit_TD, axis=tokens), jnp.sum(grad_TD, axis=tokens)
    return (grad_x_TD.astype(x_TD.dtype), *grads_D)


def of_all_tokens(array_D: jax.Array, axes: int) -> jax.Array:
    return array_D.reshape((1,) * (axes - 1) + (-1,))


_norm_bfloat16.defvjp(_norm_forward, _norm_backward)


@jax.custom_vjp
def _gelu_bfloat16(x):
    return ACTIVATIONS["gelu"](x)


def _gelu_backward(x, grad):
    float_x = x.astype(jnp.float32)
    below = 0.5 * (1.0 + jax.lax.erf(float_x * 0.5**0.5))
    density = jnp.exp(-0.5 * float_x * float_x) * (0.5 / math.pi) ** 0.5
    slope = below + float_x * density
    return (jax.lax.optimization_barrier((grad.astype(jnp.float32) * slope).astype(x.dtype)),)


_gelu_bfloat16.defvjp(lambda x: (_gelu_bfloat16(x), x), _gelu_backward)


def table(config: BertConfig, size: int, rngs: nnx.Rngs) -> nnx.Embed:
    """A table of vectors with BERT's initial values, float32 [size, D]."""
    init = nnx.initializers.normal(config.initializer_range)
    return nnx.Embed(size, config.hidden_size, embedding_init=init, rngs=rngs)


def attention(
    config: BertConfig,
    q_RLHK: jax.Array,
    k_RLHK: jax.Array,
    v_RLHK: jax.Array,
    mask: AttentionMask,
    positions_RL: jax.Array,
    dropout_ids_RL: jax.Array | None,
    site: int,
) -> jax.Array:
    """Multi-head attention, [R, L, H * K]; logits and softmax in float32."""
    dtype, precision = v_RLHK.dtype, matmul_precision(v_RLHK.dtype)
    logits_RHLL = jnp.einsum(
        "rqhk,rvhk->rhqv",
        q_RLHK * q_RLHK.shape[-1] ** -0.5,
        k_RLHK,
        precision=precision,
        preferred_element_type=jnp.float32,
    )
    probs_RHLL = jax.nn.softmax(logits_RHLL + mask.added_R1LL, axis=-1)
    if mask.kept_R1LL is not None:
        probs_RHLL = probs_RHLL * mask.kept_R1LL
    if dropout_ids_RL is not None:
        # Head and place of the key within its own term: free of where the term was packed.
        heads_H = jnp.arange(config.num_heads, dtype=jnp.uint32)[None, :, None, None]
        keys_R11L = positions_RL.astype(jnp.uint32)[:, None, None, :]
        probs_RHLL = hash_dropout(
            probs_RHLL,
            dropout_ids_RL[:, None, :, None],
            site,
            heads_H * jnp.uint32(config.max_positions) + keys_R11L,
            config.attention_dropout,
        )
    out_RLHK = jnp.einsum("rhqv,rvhk->rqhk", probs_RHLL.astype(dtype), v_RLHK, precision=precision)
    return out_RLHK.reshape(*positions_RL.shape, config.hidden_size)


class Embeddings(nnx.Module):
    """Word + position + type vectors (type 0 but for sequences of two parts), normalized."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.word = table(config, config.vocab_size, rngs)
        self.position = table(config, config.max_positions, rngs)
        self.token_type = table(config, config.type_vocab_size, rngs)
        self.norm = layer_norm(config, rngs)
        self.first_position = config.first_position

    def __call__(
        self, tokens_RL: jax.Array, positions_RL: jax.Array, probes: Probes | None = None
    ) -> jax.Array:
        type_RLD = self.token_type.embedding[0][None, None]
        if probes is not None:
            positions_RL = jnp.maximum(positions_RL - probes.number, 0)
            type_RLD = self.token_type(probes.types)
        position_RLD = self.position(positions_RL + self.first_position)
        return self.norm(self.word(tokens_RL) + position_RLD + type_RLD)


class Layer(nnx.Module):
    """One transformer layer: self-attention and feed-forward, each with a residual and a norm."""

    def __init__(self, config: BertConfig, *, dtype: Any, rngs: nnx.Rngs):
        width, inner = config.hidden_size, config.intermediate_size
        self.config, self.dtype = config, dtype
        self.qkv = linear(config, width, 3 * width, dtype, rngs)
        self.attention_output = linear(config, width, width, dtype, rngs)
        self.attention_norm = layer_norm(config, rngs)
        self.intermediate = linear(config, width, inner, dtype, rngs)
        self.output = linear(config, inner, width, dtype, rngs)
        self.output_norm = layer_norm(config, rngs)

    def attend(self, x_RLD, mask, positions_RL, dropout_ids_RL, site) -> jax.Array:
        """Multi-head attention."""
        config = self.config
        rows, length, width = x_RLD.shape
        head_width = width // config.num_heads
        qkv_RL3HK = self.qkv(x_RLD).reshape(rows, length, 3, config.num_heads, head_width)
        if mask.segments_RL is not None and fits(length, head_width, self.dtype):
            return fused_attention(
                qkv_RL3HK,
                mask.segments_RL,
                positions_RL,
                dropout_ids_RL,
                rate=config.attention_dropout,
                site=site,
                max_positions=config.max_positions,
            ).reshape(x_RLD.shape)
        q_RLHK, k_RLHK, v_RLHK = (qkv_RL3HK[:, :, i] for i in range(3))
        return attention(config, q_RLHK, k_RLHK, v_RLHK, mask, positions_RL, dropout_ids_RL, site)

    def transform(self, x_TD, attended_TD, dropout_ids_T, site) -> jax.Array:
        """What follows attention, token by token; any axes in place of T."""
        config = self.config
        attended = self.attention_output(attended_TD)
        attended = drop_features(attended, dropout_ids_T, site + 1, config.hidden_dropout)
        x_TD = normalized(self.attention_norm, x_TD + attended, self.dtype)
        inner = self.output(activated(config.activation, self.intermediate(x_TD)))
        inner = drop_features(inner, dropout_ids_T, site + 2, config.hidden_dropout)
        return normalized(self.output_norm, x_TD + inner, self.dtype)

    def __call__(self, x_RLD, mask, positions_RL, dropout_ids_RL, site) -> jax.Array:
        attended_RLD = self.attend(x_RLD, mask, positions_RL, dropout_ids_RL, site)
        return self.transform(x_RLD, attended_RLD, dropout_ids_RL, site)


def drop_features(x_TD, dropout_ids_T, site: int, rate: float) -> jax.Array:
    """Dropout over the features of each token; none where there are no ids. Any axes for T."""
    if dropout_ids_T is None:
        return x_TD
    features = jnp.arange(x_TD.shape[-1], dtype=jnp.uint32)
    features = features.reshape((1,) * dropout_ids_T.ndim + (-1,))
    return hash_dropout(x_TD, dropout_ids_T[..., None], site, features, rate)
