"""BERT, RoBERTa, XLM-R and DistilBERT on packed rows: layers, attention, pooling."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from coder_jax.models.bert_config import POOLINGS, BertConfig
from coder_jax.models.dropout import hash_dropout

# -------------------------------------------------------------------------------------------------
# Sequences of two parts with keyword-guided attention.


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Probes:
    """Sequences of two parts that begin with [CLS] and K probes, each of which attends to one kind
    of keyword.

    Liang, Xue, Ruan 2021, section 3.2 (keyword-attentive ranker).
    """

    kinds: jax.Array
    """int32 [R, L], a bit set for each token: bit 0 of text, [CLS] and [SEP]; bit k of probe k
    (from 1) and of words of its kind. Tokens see each other where they have a bit in common."""
    types: jax.Array
    """int32 [R, L], the part of the sequence, 0 or 1: BERT's token types."""
    number: int = dataclasses.field(metadata={"static": True})
    """K. [CLS] and the probes have position 0, the next token position 1."""
    after: bool = dataclasses.field(default=True, metadata={"static": True})
    """The mask is applied to the softmax's result, which is not normalized again (equation 9);
    else before the softmax, as in the authors' code."""

    def sees(self) -> jax.Array:
        """bool [R, L, L]: whether a token attends to another, apart from segments."""
        return (self.kinds[:, :, None] & self.kinds[:, None, :]) != 0


# -------------------------------------------------------------------------------------------------
# The layers of a BERT: embeddings, attention, dense layers, stateless dropout.
#
# Shapes: R rows, L tokens per row, T tokens of any axes, D hidden width, H heads, K head width.

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    # The exact form through erf; jax.nn.gelu goes through erfc, which costs more on every backend.
    "gelu": lambda x: 0.5 * x * (1.0 + jax.lax.erf(x * 0.5**0.5)),
    "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
}
_DROPOUT_SITES_PER_LAYER = 3
MASKED = -1e30


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AttentionMask:
    """Terms added to the logits of attention (of each head, or of all), and factors of its
    probabilities.

    Where the mask is that of segments alone, it has these too: a kernel then needs nothing else.
    """

    added_R1LL: jax.Array
    kept_R1LL: jax.Array | None = None
    segments_RL: jax.Array | None = None


def _matmul_precision(dtype: Any) -> jax.lax.Precision:
    """Highest precision for float32 (accelerators would round to TF32 or bf16), else the
    default.
    """
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
        precision=_matmul_precision(dtype),
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


def _normalized(norm: nnx.LayerNorm, x_TD: jax.Array, dtype: Any) -> jax.Array:
    """The layer normalization of `x_TD`, in `dtype`; in bfloat16 with a gradient in few passes."""
    if dtype != jnp.bfloat16 or norm.scale is None or norm.bias is None:
        return norm(x_TD).astype(dtype)
    return _norm_bfloat16(norm.epsilon, x_TD, norm.scale[...], norm.bias[...])


def _activated(name: str, x: jax.Array) -> jax.Array:
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
    scale_TD, bias_TD = (_of_all_tokens(array_D, x_TD.ndim) for array_D in (scale_D, bias_D))
    out_TD = (float_TD - mean_T1) * rate_T1 * scale_TD + bias_TD
    return out_TD.astype(x_TD.dtype), (x_TD, mean_T1, rate_T1, scale_D)


def _norm_backward(epsilon, saved, grad_TD):
    x_TD, mean_T1, rate_T1, scale_D = saved
    grad_TD = grad_TD.astype(jnp.float32)
    unit_TD = (x_TD.astype(jnp.float32) - mean_T1) * rate_T1
    of_unit_TD = grad_TD * _of_all_tokens(scale_D, grad_TD.ndim)
    mean_grad_T1 = jnp.mean(of_unit_TD, axis=-1, keepdims=True)
    along_T1 = jnp.mean(of_unit_TD * unit_TD, axis=-1, keepdims=True)
    grad_x_TD = rate_T1 * (of_unit_TD - mean_grad_T1 - unit_TD * along_T1)
    tokens = tuple(range(grad_TD.ndim - 1))
    grads_D = jnp.sum(grad_TD * unit_TD, axis=tokens), jnp.sum(grad_TD, axis=tokens)
    return (grad_x_TD.astype(x_TD.dtype), *grads_D)


def _of_all_tokens(array_D: jax.Array, axes: int) -> jax.Array:
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
    dtype, precision = v_RLHK.dtype, _matmul_precision(v_RLHK.dtype)
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
        # Head and position of the key within its own term, independent of the packing.
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


class _Embeddings(nnx.Module):
    """Word + position + type vectors (type 0 but for sequences of two parts), normalized.

    Some architectures have no types.
    """

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.word = table(config, config.vocab_size, rngs)
        self.position = table(config, config.max_positions, rngs)
        types = config.type_vocab_size
        self.token_type = table(config, types, rngs) if types else None
        self.norm = layer_norm(config, rngs)
        self.first_position = config.first_position

    def __call__(
        self, tokens_RL: jax.Array, positions_RL: jax.Array, probes: Probes | None = None
    ) -> jax.Array:
        if self.token_type is None:
            if probes is not None:
                raise ValueError("probes need a BERT; this architecture has no token types")
            return self.norm(
                self.word(tokens_RL) + self.position(positions_RL + self.first_position)
            )
        type_RLD = self.token_type.embedding[0][None, None]
        if probes is not None:
            positions_RL = jnp.maximum(positions_RL - probes.number, 0)
            type_RLD = self.token_type(probes.types)
        position_RLD = self.position(positions_RL + self.first_position)
        return self.norm(self.word(tokens_RL) + position_RLD + type_RLD)


class _Layer(nnx.Module):
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
        # Imported here, as it imports Pallas: `train --help` stays quick.
        from coder_jax.models.fused_attention import fits, fused_attention

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
        """The feed-forward part after attention, token by token; T stands for any axes."""
        config = self.config
        attended = self.attention_output(attended_TD)
        if config.drops_attended:
            attended = drop_features(attended, dropout_ids_T, site + 1, config.hidden_dropout)
        x_TD = _normalized(self.attention_norm, x_TD + attended, self.dtype)
        inner = self.output(_activated(config.activation, self.intermediate(x_TD)))
        inner = drop_features(inner, dropout_ids_T, site + 2, config.hidden_dropout)
        return _normalized(self.output_norm, x_TD + inner, self.dtype)

    def __call__(self, x_RLD, mask, positions_RL, dropout_ids_RL, site) -> jax.Array:
        attended_RLD = self.attend(x_RLD, mask, positions_RL, dropout_ids_RL, site)
        return self.transform(x_RLD, attended_RLD, dropout_ids_RL, site)


def drop_features(x_TD, dropout_ids_T, site: int, rate: float) -> jax.Array:
    """Dropout of the features of each token; none without ids. T stands for any axes."""
    if dropout_ids_T is None:
        return x_TD
    features = jnp.arange(x_TD.shape[-1], dtype=jnp.uint32)
    features = features.reshape((1,) * dropout_ids_T.ndim + (-1,))
    return hash_dropout(x_TD, dropout_ids_T[..., None], site, features, rate)


# -------------------------------------------------------------------------------------------------
# Pooling: where each term begins in the packed rows, and one vector for each.
#
# Shapes: R rows, L tokens per row, N terms, D hidden width.


def _first_tokens(segments_RL: jax.Array, num_terms: int) -> jax.Array:
    """int32 [N]: where the first token of each term lies among the R * L; R * L if nowhere.

    The first token of a term is where its segment begins, whatever positions its tokens have.
    """
    before_RL = jnp.pad(segments_RL, ((0, 0), (1, 0)))[:, :-1]
    is_first = ((segments_RL != before_RL) & (segments_RL > 0)).reshape(-1)
    segments = segments_RL.reshape(-1)
    term = jnp.where(is_first, segments - 1, num_terms)
    place = jnp.arange(segments.size, dtype=jnp.int32)
    return jnp.full(num_terms, segments.size, jnp.int32).at[term].set(place, mode="drop")


def inner_segments(segments_RL: jax.Array) -> jax.Array:
    """int32 [R, L]: the segments without the first and the last token of each, [CLS] and [SEP]."""
    before_RL = jnp.pad(segments_RL, ((0, 0), (1, 0)))[:, :-1]
    after_RL = jnp.pad(segments_RL, ((0, 0), (0, 1)))[:, 1:]
    return jnp.where((segments_RL == before_RL) & (segments_RL == after_RL), segments_RL, 0)


def _mean_by_term(hidden_RLD: jax.Array, segments_RL: jax.Array, num_terms: int) -> jax.Array:
    """float32 [N, D]: the mean over each term's tokens, [CLS] and [SEP] included (CODER's e_avg).

    With the segments of `inner_segments`, the mean over its word pieces alone.

    Args:
      hidden_RLD: hidden states.
      segments_RL: 1 + number of the term of each token, 0 = padding.
      num_terms: N; a number that no token carries gets a zero vector.
    """
    segments = segments_RL.reshape(-1)

    def sum_by_term(values):
        return jax.ops.segment_sum(values, segments, num_terms + 1)[1:]

    lengths_N = sum_by_term(jnp.ones(segments.shape, jnp.float32))
    total_ND = sum_by_term(hidden_RLD.reshape(-1, hidden_RLD.shape[-1]).astype(jnp.float32))
    return total_ND / jnp.maximum(lengths_N, 1.0)[:, None]


# -------------------------------------------------------------------------------------------------
# BERT on packed rows.
#
# Several terms lie in one row; attention is block-diagonal, so that a term never sees its
# neighbours, and positions restart at every term. Hence the vector of a term is the same as if it
# had been encoded alone.
#
# Devlin et al. 2019, 'BERT: Pre-training of Deep Bidirectional Transformers', with the post-layer
# normalization of the released weights. Shapes: R rows, L tokens per row, N terms, D hidden width,
# H heads, K head width.


class Bert(nnx.Module):
    """BERT encoder over packed rows; parameters float32, computing in `dtype`.

    An architecture that differs in embeddings and layers alone is a subclass (`ModernBert`).

    Attributes:
      config: sizes, activation and dropout rates (`BertConfig`).
      dtype: compute type, float32 (matmuls in full precision) or bfloat16.
      pooler: the dense layer of tanh pooling, or None where the weights have none.
      remat: what gradients compute again, for less memory, in place of keeping it: none; layers;
        or dots, all of a layer but its products with weights.
    """

    remat: str = "none"
    embeddings: Any  # their class is of the architecture
    layers: Any

    def __init__(
        self, config: BertConfig, *, dtype: Any = jnp.float32, pooler: bool = True, rngs: nnx.Rngs
    ):
        self.config, self.dtype = config, jnp.dtype(dtype)
        self.embeddings = _Embeddings(config, rngs=rngs)
        self.layers = nnx.List(
            [_Layer(config, dtype=self.dtype, rngs=rngs) for _ in range(config.num_layers)]
        )
        width = config.hidden_size
        self.pooler = linear(config, width, width, jnp.float32, rngs) if pooler else None

    def __call__(
        self,
        tokens_RL: jax.Array,
        positions_RL: jax.Array,
        segments_RL: jax.Array,
        dropout_ids_RL: jax.Array | None = None,
        probes: Probes | None = None,
    ) -> jax.Array:
        """Hidden states of the last layer, [R, L, D] in the compute dtype.

        Args:
          tokens_RL: int32 word pieces of packed terms.
          positions_RL: int32 place of each token within its own term, from 0.
          segments_RL: int32, equal for the tokens of one term; 0 = padding. Token i sees token j
            iff their segments are equal (padding sees padding, so no row is empty).
          dropout_ids_RL: uint32, one number per token that no other (step, term, position)
            shares; None = no dropout. Masks depend on these numbers only, never on the place
            in the pack.
          probes: of sequences that begin with probes for keywords; None for terms.
        """
        x_RLD, attended_RLD, site = self._attended(
            tokens_RL, positions_RL, segments_RL, dropout_ids_RL, probes
        )
        return self._finished(x_RLD, attended_RLD, dropout_ids_RL, site)

    def _attended(self, tokens_RL, positions_RL, segments_RL, dropout_ids_RL, probes=None):
        """The last layer's input, the output of its attention, and its dropout site."""
        x_RLD = self.embeddings(tokens_RL, positions_RL, probes)
        x_RLD = drop_features(x_RLD, dropout_ids_RL, 0, self.config.hidden_dropout)
        x_RLD = x_RLD.astype(self.dtype)
        mask = self._mask(positions_RL, segments_RL, probes)
        *layers, last = self.layers
        site = 1
        for layer in layers:
            x_RLD = self._applied(layer, site, x_RLD, mask, positions_RL, dropout_ids_RL)
            site += _DROPOUT_SITES_PER_LAYER
        attended = self._applied(last.attend, site, x_RLD, mask, positions_RL, dropout_ids_RL)
        return x_RLD, attended, site

    def _mask(self, positions_RL: jax.Array, segments_RL: jax.Array, probes: Probes | None) -> Any:
        """What the layers of the architecture take as their mask, the same for all of them."""
        seen_RLL = segments_RL[:, :, None] == segments_RL[:, None, :]
        kept_R1LL = None
        if probes is not None and probes.after:
            kept_R1LL = probes.sees()[:, None].astype(jnp.float32)
        elif probes is not None:
            seen_RLL &= probes.sees()
        return AttentionMask(
            jnp.where(seen_RLL, 0.0, MASKED)[:, None],
            kept_R1LL,
            segments_RL if probes is None else None,
        )

    def _applied(self, part: Callable[..., jax.Array], site: int, *arrays: Any) -> jax.Array:
        """The result of a layer, or of a part of one; its gradient keeps what `remat` says."""
        if self.remat == "none":
            return part(*arrays, site)
        policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
        again = jax.checkpoint(
            lambda *arrays: part(*arrays, site), policy=policy if self.remat == "dots" else None
        )
        return again(*arrays)

    def _finished(self, x_TD, attended_TD, dropout_ids_T, site):
        """Hidden states of tokens on any axes, from the output of `_attended`."""
        return self._applied(self.layers[-1].transform, site, x_TD, attended_TD, dropout_ids_T)

    def term_vectors(
        self,
        tokens_RL: jax.Array,
        positions_RL: jax.Array,
        segments_RL: jax.Array,
        num_terms: int,
        pooling: str,
        dropout_ids_RL: jax.Array | None = None,
    ) -> jax.Array:
        """One float32 vector per term, [N, D], not normalized; `pooling` as in POOLINGS.

        A term that no token carries gets a zero vector.

        Raises:
          ValueError: another pooling, or 'pooler' without a pooler.
        """
        if pooling not in POOLINGS:
            raise ValueError(f"pooling is {pooling!r}; expected one of {', '.join(POOLINGS)}")
        if pooling == "pooler" and self.pooler is None:
            raise ValueError("pooling 'pooler' needs weights with a pooler; these have none")
        if pooling in ("mean", "pieces"):
            hidden_RLD = self(tokens_RL, positions_RL, segments_RL, dropout_ids_RL)
            if pooling == "pieces":
                segments_RL = inner_segments(segments_RL)
            return _mean_by_term(hidden_RLD, segments_RL, num_terms)
        # Only [CLS] is read: nothing else needs the last layer's dense part.
        x_RLD, attended_RLD, site = self._attended(
            tokens_RL, positions_RL, segments_RL, dropout_ids_RL
        )
        first_N = _first_tokens(segments_RL, num_terms)

        def of_first(values: jax.Array) -> jax.Array:
            return values.at[first_N].get(mode="fill", fill_value=0)

        width = x_RLD.shape[-1]
        hidden_ND = self._finished(
            of_first(x_RLD.reshape(-1, width)),
            of_first(attended_RLD.reshape(-1, width)),
            None if dropout_ids_RL is None else of_first(dropout_ids_RL.reshape(-1)),
            site,
        )
        there_N1 = (first_N < positions_RL.size)[:, None]
        cls_ND = jnp.where(there_N1, hidden_ND.astype(jnp.float32), 0.0)
        return cls_ND if self.pooler is None or pooling == "cls" else jnp.tanh(self.pooler(cls_ND))

    def vectors_and_first(
        self,
        tokens_RL: jax.Array,
        positions_RL: jax.Array,
        segments_RL: jax.Array,
        num_terms: int,
        pooling: str,
        dropout_ids_RL: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """(vectors, [CLS]) of one pass, float32 [N, D] each; see `term_vectors`.

        Args:
          pooling: cls, mean or pieces.
        """
        hidden_RLD = self(tokens_RL, positions_RL, segments_RL, dropout_ids_RL)
        first_N = _first_tokens(segments_RL, num_terms)
        flat = hidden_RLD.reshape(-1, hidden_RLD.shape[-1]).astype(jnp.float32)
        first_ND = flat.at[first_N].get(mode="fill", fill_value=0)
        if pooling == "cls":
            return first_ND, first_ND
        inner = inner_segments(segments_RL) if pooling == "pieces" else segments_RL
        return _mean_by_term(hidden_RLD, inner, num_terms), first_ND

    def pair_vectors(
        self,
        tokens_RL: jax.Array,
        positions_RL: jax.Array,
        segments_RL: jax.Array,
        probes: Probes,
        num_pairs: int,
        dropout_ids_RL: jax.Array | None = None,
    ) -> jax.Array:
        """float32 [N, D], one vector per pair: the mean over [CLS] and its probes.

        Liang, Xue, Ruan 2021, section 3.2. The arguments are those of a call; a segment is a pair.
        """
        hidden_RLD = self(tokens_RL, positions_RL, segments_RL, dropout_ids_RL, probes)
        read_RL = jnp.where(positions_RL <= probes.number, segments_RL, 0)
        return _mean_by_term(hidden_RLD, read_RL, num_pairs)

    def with_dtype(self, dtype: Any) -> Bert:
        """The same parameters, computing in another dtype."""
        pooler = self.pooler is not None
        structure, _ = structure_and_shapes(type(self), self.config, jnp.dtype(dtype), pooler)
        return merge_encoder(structure, split_encoder(self)[1], self.remat)


class Structure(NamedTuple):
    """The structure of an encoder, without its parameters.

    Attributes:
      graph: what nnx makes it of.
      names: of its parameters, such as ('layers', 10, 'output', 'bias'), in the order of the graph.
    """

    graph: nnx.GraphDef
    names: tuple[tuple[Any, ...], ...]


def split_encoder(bert: Bert) -> tuple[Structure, dict[str, Any]]:
    """The structure of an encoder, and its parameters as nested dictionaries of arrays."""
    graph, params = nnx.split(bert, nnx.Param)
    return Structure(graph, tuple(nnx.to_flat_state(params).paths)), nnx.to_pure_dict(params)


@functools.cache  # seconds of 24 layers, and a command asks for the same encoder several times
def structure_and_shapes(
    kind: type[Bert], config: BertConfig, dtype: jnp.dtype, pooler: bool
) -> tuple[Structure, dict[str, Any]]:
    """The structure of an encoder of this class, and the shapes of its parameters."""
    return split_encoder(
        nnx.eval_shape(lambda: kind(config, dtype=dtype, pooler=pooler, rngs=nnx.Rngs(0)))
    )


def merge_encoder(structure: Structure, params: Mapping[str, Any], remat: str = "none") -> Bert:
    """The encoder with these parameters, arrays or tracers; `remat` is the attribute of `Bert`.

    nnx.merge pairs them with the graph by their sorted order, so their names must be the graph's.

    Raises:
      ValueError: they have other names; a number of a layer is an integer, never text.
    """
    state = nnx.State(params)
    found = tuple(nnx.to_flat_state(state).paths)
    if found != structure.names:
        ours, theirs = ({*found} - {*structure.names}), ({*structure.names} - {*found})
        first = [min(names, key=repr, default="no other") for names in (ours, theirs)]
        raise ValueError(
            f"the parameters are not those of the encoder: found {first[0]}, expected {first[1]} "
            f"(and {len(ours) + len(theirs)} differences in all); names and integers must be those "
            "of split_encoder, as arrays are paired by their order"
        )
    bert = nnx.merge(structure.graph, state)
    bert.remat = remat
    return bert


@functools.cache  # a structure takes milliseconds to hash: once for an encoder, not at each call
def compiled(function: Callable[..., Any], structure: Structure, *static: str) -> Any:
    """A function of an encoder as a compiled function of the encoder's parameters.

    Encoders of one structure share what was compiled.

    Args:
      function: of an encoder, of arrays, and of keywords.
      structure: of the encoders.
      static: the keywords whose values are no arrays.
    """

    def of_params(params: Mapping[str, Any], *arrays: Any, **settings: Any) -> Any:
        return function(merge_encoder(structure, params), *arrays, **settings)

    return jax.jit(of_params, static_argnames=static)
