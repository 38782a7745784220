"""ModernBERT on packed rows: token ids of many terms in, hidden states or a vector per term out.

Warner et al. 2024, 'Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder'. Against BERT:
rotary positions in place of a table, norms before attention and feed-forward part (none before the
first attention, for the embeddings are normalized) and one after the last layer, gated linear
units, no biases, and layers of two kinds: global ones, and local ones whose tokens see those
within a window alone. Positions restart at every term, and so the window and the rotations do.

Shapes: R rows, L tokens per row, T tokens of any axes, N terms, D hidden width, H heads, K head
width.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from coder_jax.models.bert import Bert
from coder_jax.models.bert_layers import (
    ACTIVATIONS,
    DROPOUT_SITES_PER_LAYER,
    MASKED,
    AttentionMask,
    attention,
    drop_features,
    layer_norm,
    linear,
    table,
)
from coder_jax.models.modernbert.config import GLOBAL, LOCAL, ModernBertConfig


class Sight(NamedTuple):
    """What the layers of a kind see: which tokens each token does, and where they stand."""

    mask: AttentionMask
    cos_RL1K: jax.Array  # float32, of half a head's width
    sin_RL1K: jax.Array


class Embeddings(nnx.Module):
    """Word vectors, normalized."""

    def __init__(self, config: ModernBertConfig, *, rngs: nnx.Rngs):
        self.word = table(config, config.vocab_size, rngs)
        self.norm = layer_norm(config, rngs, bias=False)

    def __call__(self, tokens_RL: jax.Array) -> jax.Array:
        return self.norm(self.word(tokens_RL))


class Layer(nnx.Module):
    """One layer: a norm and attention, a norm and a gated feed-forward part, both added to x."""

    def __init__(self, config: ModernBertConfig, number: int, *, dtype: Any, rngs: nnx.Rngs):
        def dense(width_in: int, width_out: int) -> nnx.Linear:
            return linear(config, width_in, width_out, dtype, rngs, bias=False)

        width, inner = config.hidden_size, config.intermediate_size
        self.config, self.dtype, self.kind = config, dtype, config.layer_types[number]
        self.attention_norm = layer_norm(config, rngs, bias=False) if number else None
        self.qkv = dense(width, 3 * width)
        self.attention_output = dense(width, width)
        self.mlp_norm = layer_norm(config, rngs, bias=False)
        self.intermediate = dense(width, 2 * inner)
        self.output = dense(inner, width)

    def attend(self, x_RLD, sight: Sight, positions_RL, dropout_ids_RL, site) -> jax.Array:
        """Multi-head attention, queries and keys turned by their positions."""
        config = self.config
        rows, length, width = x_RLD.shape
        if self.attention_norm is not None:
            x_RLD = self.attention_norm(x_RLD).astype(self.dtype)
        qkv_RL3HK = self.qkv(x_RLD).reshape(
            rows, length, 3, config.num_heads, width // config.num_heads
        )
        q_RLHK, k_RLHK, v_RLHK = (qkv_RL3HK[:, :, i] for i in range(3))
        q_RLHK, k_RLHK = (rotated(array, sight) for array in (q_RLHK, k_RLHK))
        return attention(
            config, q_RLHK, k_RLHK, v_RLHK, sight.mask, positions_RL, dropout_ids_RL, site
        )

    def transform(self, x_TD, attended_TD, dropout_ids_T, site) -> jax.Array:
        """What follows attention, token by token; any axes in place of T."""
        config = self.config
        attended = self.attention_output(attended_TD)
        x_TD = x_TD + drop_features(attended, dropout_ids_T, site + 1, config.attention_dropout)
        both = self.intermediate(self.mlp_norm(x_TD).astype(self.dtype))
        features, gate = jnp.split(both, 2, axis=-1)
        gated = ACTIVATIONS[config.activation](features) * gate
        return x_TD + self.output(drop_features(gated, dropout_ids_T, site + 2, config.mlp_dropout))

    def __call__(self, x_RLD, sight: Sight, positions_RL, dropout_ids_RL, site) -> jax.Array:
        attended_RLD = self.attend(x_RLD, sight, positions_RL, dropout_ids_RL, site)
        return self.transform(x_RLD, attended_RLD, dropout_ids_RL, site)


class ModernBert(Bert):
    """ModernBERT encoder over packed rows; parameters float32, computing in `dtype`.

    Attributes:
      config: sizes, activation, kinds of layers and dropout rates (`ModernBertConfig`).
      dtype: compute type, float32 (matmuls in full precision) or bfloat16.
      pooler: None; the weights have none.
    """

    config: ModernBertConfig

    def __init__(
        self,
        config: ModernBertConfig,
        *,
        dtype: Any = jnp.float32,
        pooler: bool = False,
        rngs: nnx.Rngs,
    ):
        if pooler:
            raise ValueError("pooler is True; a ModernBERT has none")
        self.config, self.dtype, self.pooler = config, jnp.dtype(dtype), None
        self.embeddings = Embeddings(config, rngs=rngs)
        self.layers = nnx.List(
            [Layer(config, i, dtype=self.dtype, rngs=rngs) for i in range(config.num_layers)]
        )
        self.final_norm = layer_norm(config, rngs, bias=False)

    def _attended(self, tokens_RL, positions_RL, segments_RL, dropout_ids_RL, probes=None):
        if probes is not None:
            raise ValueError("probes need a BERT; a ModernBERT has no token types")
        x_RLD = self.embeddings(tokens_RL)
        x_RLD = drop_features(x_RLD, dropout_ids_RL, 0, self.config.hidden_dropout)
        x_RLD = x_RLD.astype(self.dtype)
        sights = {kind: self._sight(kind, positions_RL, segments_RL) for kind in (GLOBAL, LOCAL)}
        *layers, last = self.layers
        site = 1
        for layer in layers:
            x_RLD = layer(x_RLD, sights[layer.kind], positions_RL, dropout_ids_RL, site)
            site += DROPOUT_SITES_PER_LAYER
        attended = last.attend(x_RLD, sights[last.kind], positions_RL, dropout_ids_RL, site)
        return x_RLD, attended, site

    def _sight(self, kind: str, positions_RL: jax.Array, segments_RL: jax.Array) -> Sight:
        """What the layers of a kind see in packed rows."""
        config = self.config
        seen_RLL = segments_RL[:, :, None] == segments_RL[:, None, :]
        reach = config.local_attention // 2
        if kind == LOCAL and reach < positions_RL.shape[1] - 1:  # else it leaves nothing out
            distance_RLL = jnp.abs(positions_RL[:, :, None] - positions_RL[:, None, :])
            seen_RLL &= distance_RLL <= reach
        mask = AttentionMask(jnp.where(seen_RLL, 0.0, MASKED)[:, None])
        theta = config.global_theta if kind == GLOBAL else config.local_theta
        return Sight(mask, *rotations(positions_RL, theta, config.hidden_size // config.num_heads))

    def _finished(self, x_TD, attended_TD, dropout_ids_T, site):
        x_TD = super()._finished(x_TD, attended_TD, dropout_ids_T, site)
        return self.final_norm(x_TD).astype(self.dtype)


def rotations(
    positions_RL: jax.Array, theta: float, head_width: int
) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine of the angles by which pairs of numbers are turned, float32 [R, L, 1, K / 2].

    Su et al. 2021, 'RoFormer', equation 15: of position m and pair i, m * theta^(-2 i / K).
    """
    rate_K = np.float32(theta) ** -(np.arange(0, head_width, 2, dtype=np.float32) / head_width)
    angle_RL1K = positions_RL[:, :, None, None].astype(jnp.float32) * rate_K[None, None, None]
    return jnp.cos(angle_RL1K), jnp.sin(angle_RL1K)


def rotated(array_RLHK: jax.Array, sight: Sight) -> jax.Array:
    """Queries or keys, turned in float32; a pair is a number and the one half a head behind it."""
    first, second = jnp.split(array_RLHK.astype(jnp.float32), 2, axis=-1)
    cos, sin = sight.cos_RL1K, sight.sin_RL1K
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return turned.astype(array_RLHK.dtype)
