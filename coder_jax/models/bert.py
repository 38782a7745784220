"""BERT on packed rows: token ids of many terms in, hidden states or one vector per term out.

Several terms lie in one row; attention is block-diagonal, so that a term never sees its
neighbours, and positions restart at every term. Hence the vector of a term is the same as if it
had been encoded alone.

Devlin et al. 2019, 'BERT: Pre-training of Deep Bidirectional Transformers', with the post-layer
normalization of the released weights. Shapes: R rows, L tokens per row, N terms, D hidden width,
H heads, K head width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from coder_jax.models.bert_config import POOLINGS, BertConfig
from coder_jax.models.dropout import hash_dropout
from coder_jax.models.pooling import first_tokens, inner_segments, mean_by_term

__all__ = ["POOLINGS", "Bert", "BertConfig", "abstract_bert", "merge_encoder", "split_encoder"]

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    # The exact form through erf; jax.nn.gelu goes through erfc, which costs more on every backend.
    "gelu": lambda x: 0.5 * x * (1.0 + jax.lax.erf(x * 0.5**0.5)),
    "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
}
DROPOUT_SITES_PER_LAYER = 3
MASKED = -1e30


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


def linear(config: BertConfig, width_in: int, width_out: int, dtype: Any, rngs: nnx.Rngs):
    """A dense layer with BERT's initial values; parameters float32, computing in `dtype`."""
    return Linear(
        width_in,
        width_out,
        dtype=dtype,
        precision=matmul_precision(dtype),
        kernel_init=nnx.initializers.normal(config.initializer_range),
        rngs=rngs,
    )


def layer_norm(config: BertConfig, rngs: nnx.Rngs) -> nnx.LayerNorm:
    """Layer normalization in float32; the fast variance E[x^2] - E[x]^2 would cancel digits."""
    return nnx.LayerNorm(
        config.hidden_size,
        epsilon=config.layer_norm_eps,
        dtype=jnp.float32,
        use_fast_variance=False,
        rngs=rngs,
    )


class Embeddings(nnx.Module):
    """Word + position + type-0 vectors, normalized."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        def table(size: int) -> nnx.Embed:
            init = nnx.initializers.normal(config.initializer_range)
            return nnx.Embed(size, config.hidden_size, embedding_init=init, rngs=rngs)

        self.word = table(config.vocab_size)
        self.position = table(config.max_positions)
        self.token_type = table(config.type_vocab_size)
        self.norm = layer_norm(config, rngs)
        self.first_position = config.first_position

    def __call__(self, tokens_RL: jax.Array, positions_RL: jax.Array) -> jax.Array:
        type_D = self.token_type.embedding[0]
        position_RLD = self.position(positions_RL + self.first_position)
        return self.norm(self.word(tokens_RL) + position_RLD + type_D[None, None])


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

    def attend(self, x_RLD, mask_R1LL, positions_RL, dropout_ids_RL, site) -> jax.Array:
        """Multi-head attention; logits and softmax in float32."""
        config, precision = self.config, matmul_precision(self.dtype)
        rows, length, width = x_RLD.shape
        head_width = width // config.num_heads
        qkv_RL3HK = self.qkv(x_RLD).reshape(rows, length, 3, config.num_heads, head_width)
        q_RLHK, k_RLHK, v_RLHK = (qkv_RL3HK[:, :, i] for i in range(3))
        logits_RHLL = jnp.einsum(
            "rqhk,rvhk->rhqv",
            q_RLHK * head_width**-0.5,
            k_RLHK,
            precision=precision,
            preferred_element_type=jnp.float32,
        )
        probs_RHLL = jax.nn.softmax(logits_RHLL + mask_R1LL, axis=-1)
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
        out_RLHK = jnp.einsum(
            "rhqv,rvhk->rqhk", probs_RHLL.astype(self.dtype), v_RLHK, precision=precision
        )
        return out_RLHK.reshape(rows, length, width)

    def transform(self, x_TD, attended_TD, dropout_ids_T, site) -> jax.Array:
        """What follows attention, token by token; any axes in place of T."""
        config = self.config
        attended = self.attention_output(attended_TD)
        attended = drop_features(attended, dropout_ids_T, site + 1, config.hidden_dropout)
        x_TD = self.attention_norm(x_TD + attended).astype(self.dtype)
        inner = self.output(ACTIVATIONS[config.activation](self.intermediate(x_TD)))
        inner = drop_features(inner, dropout_ids_T, site + 2, config.hidden_dropout)
        return self.output_norm(x_TD + inner).astype(self.dtype)

    def __call__(self, x_RLD, mask_R1LL, positions_RL, dropout_ids_RL, site) -> jax.Array:
        attended_RLD = self.attend(x_RLD, mask_R1LL, positions_RL, dropout_ids_RL, site)
        return self.transform(x_RLD, attended_RLD, dropout_ids_RL, site)


class Bert(nnx.Module):
    """BERT encoder over packed rows; parameters float32, computing in `dtype`.

    Attributes:
      config: sizes, activation and dropout rates (`BertConfig`).
      dtype: compute type, float32 (matmuls in full precision) or bfloat16.
      pooler: the dense layer of tanh pooling, or None where the weights have none.
    """

    def __init__(
        self, config: BertConfig, *, dtype: Any = jnp.float32, pooler: bool = True, rngs: nnx.Rngs
    ):
        self.config, self.dtype = config, jnp.dtype(dtype)
        self.embeddings = Embeddings(config, rngs=rngs)
        self.layers = nnx.List(
            [Layer(config, dtype=self.dtype, rngs=rngs) for _ in range(config.num_layers)]
        )
        width = config.hidden_size
        self.pooler = linear(config, width, width, jnp.float32, rngs) if pooler else None

    def __call__(
        self,
        tokens_RL: jax.Array,
        positions_RL: jax.Array,
        segments_RL: jax.Array,
        dropout_ids_RL: jax.Array | None = None,
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
        """
        x_RLD, attended_RLD, site = self._attended(
            tokens_RL, positions_RL, segments_RL, dropout_ids_RL
        )
        return self.layers[-1].transform(x_RLD, attended_RLD, dropout_ids_RL, site)

    def _attended(self, tokens_RL, positions_RL, segments_RL, dropout_ids_RL):
        """The last layer's input, what its attention makes of it, and the layer's dropout site."""
        x_RLD = self.embeddings(tokens_RL, positions_RL)
        x_RLD = drop_features(x_RLD, dropout_ids_RL, 0, self.config.hidden_dropout)
        x_RLD = x_RLD.astype(self.dtype)
        same_RLL = segments_RL[:, :, None] == segments_RL[:, None, :]
        mask_R1LL = jnp.where(same_RLL, 0.0, MASKED)[:, None]
        *layers, last = self.layers
        site = 1
        for layer in layers:
            x_RLD = layer(x_RLD, mask_R1LL, positions_RL, dropout_ids_RL, site)
            site += DROPOUT_SITES_PER_LAYER
        return x_RLD, last.attend(x_RLD, mask_R1LL, positions_RL, dropout_ids_RL, site), site

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
            return mean_by_term(hidden_RLD, segments_RL, num_terms)
        # Only [CLS] is read: nothing else needs the last layer's dense part.
        x_RLD, attended_RLD, site = self._attended(
            tokens_RL, positions_RL, segments_RL, dropout_ids_RL
        )
        first_N = first_tokens(segments_RL, num_terms)

        def of_first(values: jax.Array) -> jax.Array:
            return values.at[first_N].get(mode="fill", fill_value=0)

        width = x_RLD.shape[-1]
        hidden_ND = self.layers[-1].transform(
            of_first(x_RLD.reshape(-1, width)),
            of_first(attended_RLD.reshape(-1, width)),
            None if dropout_ids_RL is None else of_first(dropout_ids_RL.reshape(-1)),
            site,
        )
        there_N1 = (first_N < positions_RL.size)[:, None]
        cls_ND = jnp.where(there_N1, hidden_ND.astype(jnp.float32), 0.0)
        return cls_ND if self.pooler is None or pooling == "cls" else jnp.tanh(self.pooler(cls_ND))

    def with_dtype(self, dtype: Any) -> Bert:
        """The same parameters, computing in another dtype."""
        structure = abstract_bert(self.config, dtype, pooler=self.pooler is not None)
        graph, _ = nnx.split(structure)
        return nnx.merge(graph, nnx.state(self))


def drop_features(x_TD, dropout_ids_T, site: int, rate: float) -> jax.Array:
    """Dropout over the features of each token; none where there are no ids. Any axes for T."""
    if dropout_ids_T is None:
        return x_TD
    features = jnp.arange(x_TD.shape[-1], dtype=jnp.uint32)
    features = features.reshape((1,) * dropout_ids_T.ndim + (-1,))
    return hash_dropout(x_TD, dropout_ids_T[..., None], site, features, rate)


def abstract_bert(config: BertConfig, dtype: Any = jnp.float32, *, pooler: bool = True) -> Bert:
    """A Bert whose parameters are shapes only: its structure, at no cost."""
    return nnx.eval_shape(lambda: Bert(config, dtype=dtype, pooler=pooler, rngs=nnx.Rngs(0)))


def split_encoder(bert: Bert) -> tuple[nnx.GraphDef, dict[str, Any]]:
    """The structure of an encoder, and its parameters as nested dictionaries of arrays."""
    graph, params = nnx.split(bert, nnx.Param)
    return graph, nnx.to_pure_dict(params)


def merge_encoder(graph: nnx.GraphDef, params: Mapping[str, Any]) -> Bert:
    """The encoder with these parameters, arrays or tracers."""
    return nnx.merge(graph, nnx.State(params))
