"""ModernBERT on packed rows: its configuration and its network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple, NotRequired, Self, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from msgspec import Meta

from coder_jax.models.bert import (
    ACTIVATIONS,
    MASKED,
    AttentionMask,
    Bert,
    Probes,
    attention,
    drop_features,
    layer_norm,
    linear,
    table,
)
from coder_jax.models.bert_config import REQUIRED, BertConfig, HfSizes, Rate, read_values
from data_pipeline.process import BadInput

# -------------------------------------------------------------------------------------------------
# ModernBertConfig: the sizes of a ModernBERT, read from and written to its config.json.
#
# There are two generations of these files. The older one (transformers 4) has the layers' kinds and
# the bases of their rotary positions as `global_attn_every_n_layers`, `global_rope_theta` and
# `local_rope_theta`; the newer one lists them, as `layer_types` and `rope_parameters`.

MODERNBERT = "modernbert"
_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
# Config files leave out what equals the original values, which are the defaults below.
_OPTIONAL = {
    "activation": "hidden_activation",
    "layer_norm_eps": "norm_eps",
    "hidden_dropout": "embedding_dropout",
    "attention_dropout": "attention_dropout",
    "mlp_dropout": "mlp_dropout",
    "initializer_range": "initializer_range",
    "local_attention": "local_attention",
}
_BIASES = ("attention_bias", "mlp_bias", "norm_bias")
# The bases of rotary positions: our name, that of older files, and the original value.
_BASES = {
    _GLOBAL: ("global_theta", "global_rope_theta", 160_000.0),
    _LOCAL: ("local_theta", "local_rope_theta", 10_000.0),
}
_EVERY, _EVERY_DEFAULT = "global_attn_every_n_layers", 3
_Base = Annotated[float, Meta(gt=1, lt=1e12)]


class _Rope(TypedDict):
    """The rotary settings of the layers of a kind."""

    rope_type: NotRequired[str]
    rope_theta: NotRequired[_Base]


class _HfConfig(HfSizes):
    """config.json of a ModernBERT."""

    hidden_activation: NotRequired[str | None]
    norm_eps: NotRequired[Rate | None]
    embedding_dropout: NotRequired[Rate | None]
    attention_dropout: NotRequired[Rate | None]
    mlp_dropout: NotRequired[Rate | None]
    local_attention: NotRequired[Annotated[int, Meta(ge=1, le=1_000_000)] | None]
    global_attn_every_n_layers: NotRequired[Annotated[int, Meta(ge=1, le=256)] | None]
    global_rope_theta: NotRequired[_Base | None]
    local_rope_theta: NotRequired[_Base | None]
    layer_types: NotRequired[list[str] | None]
    rope_parameters: NotRequired[dict[str, _Rope | None] | None]


@dataclass(frozen=True, kw_only=True)
class ModernBertConfig(BertConfig):
    """Sizes and constants of a ModernBERT; the names in config.json are in REQUIRED and OPTIONAL.

    Attributes:
      hidden_dropout: of the embeddings.
      mlp_dropout: of the gated features within the feed-forward part.
      layer_types: GLOBAL or LOCAL, of each layer.
      local_attention: the window of local layers: a token sees half of it, rounded down, on
        either side.
      global_theta, local_theta: the bases of the rotary positions.
    """

    pooled: ClassVar[bool] = False
    inner_matrices: ClassVar[int] = 3  # of the features, of their gates, and back

    model_type: str = MODERNBERT
    type_vocab_size: int = 1
    layer_norm_eps: float = 1e-5
    hidden_dropout: float = 0.0
    attention_dropout: float = 0.0
    pad_token_id: int = 50283
    mlp_dropout: float = 0.0
    layer_types: tuple[str, ...]
    local_attention: int = 128
    global_theta: float = _BASES[_GLOBAL][2]
    local_theta: float = _BASES[_LOCAL][2]

    def __post_init__(self):
        super().__post_init__()
        head_width = self.hidden_size // self.num_heads
        if head_width % 2:
            raise BadInput(
                f"heads are {head_width} wide (hidden_size / num_attention_heads); expected an "
                "even number, of which rotary positions turn pairs; check config.json"
            )
        if not 0.0 <= self.mlp_dropout < 1.0:
            raise BadInput(f"mlp_dropout is {self.mlp_dropout}; expected a rate in [0, 1)")
        if self.pad_token_id >= self.vocab_size:
            raise BadInput(
                f"pad_token_id is {self.pad_token_id}, but the vocabulary has {self.vocab_size} "
                "entries; check config.json"
            )

    @classmethod
    def from_hf(cls, config: Mapping[str, Any], source: str = "config.json") -> Self:
        """The config of a Hugging Face ModernBERT; `source` is named in errors.

        Raises:
          BadInput: another architecture, a missing size or one that none has, or a variant that is
            not computed here (biases, other positions, other kinds of layers or activations).
        """
        if config.get("model_type") != MODERNBERT:
            raise BadInput(
                f"{source}: model_type is {config.get('model_type')!r}; expected {MODERNBERT}"
            )
        values = read_values(config, _HfConfig, _OPTIONAL, source)
        biased = [name for name in _BIASES if config.get(name)]
        if biased:
            raise BadInput(
                f"{source}: {', '.join(biased)} true; expected false, as in the published "
                "ModernBERTs: give one without biases"
            )
        if "pad_token_id" in config:  # null where there is none: then any will do
            values["pad_token_id"] = config["pad_token_id"] or 0
        values |= {"layer_types": _layer_types(config, source)} | _bases(config, source)
        return cls(**values)

    def with_dropout(self, rate: float) -> Self:
        return replace(super().with_dropout(rate), mlp_dropout=rate)

    @property
    def first_position(self) -> int:
        return 0

    def to_hf(self) -> dict[str, Any]:
        """The same as a config.json dict that transformers opens as the same model."""
        names = REQUIRED | _OPTIONAL | {"pad_token_id": "pad_token_id"}
        written = {theirs: getattr(self, ours) for ours, theirs in names.items()}
        thetas = {kind: getattr(self, ours) for kind, (ours, _, _) in _BASES.items()}
        written |= {
            "layer_types": list(self.layer_types),
            "rope_parameters": {
                kind: {"rope_type": "default", "rope_theta": theta}
                for kind, theta in thetas.items()
            },
            **dict.fromkeys(_BIASES, False),
        }
        # What transformers 4 reads, where it can say the same.
        written |= {older: thetas[kind] for kind, (_, older, _) in _BASES.items()}
        every = next((i for i in range(1, self.num_layers) if self.layer_types[i] == _GLOBAL), None)
        every = every or self.num_layers
        if self.layer_types == _alternating(self.num_layers, every):
            written[_EVERY] = every
        return {"architectures": ["ModernBertModel"], "model_type": MODERNBERT} | written


def _alternating(layers: int, every: int) -> tuple[str, ...]:
    """Kinds of layers: the first and every n-th after it are global."""
    return tuple(_LOCAL if number % every else _GLOBAL for number in range(layers))


def _layer_types(config: Mapping[str, Any], source: str) -> tuple[str, ...]:
    """The kind of each layer; BadInput for unknown kinds."""
    layers, listed = config["num_hidden_layers"], config.get("layer_types")
    if listed is None:
        return _alternating(layers, config.get(_EVERY) or _EVERY_DEFAULT)
    others = sorted({*listed} - {_GLOBAL, _LOCAL})
    if others or len(listed) != layers:
        found = f"the kinds {', '.join(others)}" if others else f"{len(listed)} of {layers} layers"
        raise BadInput(
            f"{source}: layer_types has {found}; expected {_GLOBAL} or {_LOCAL} for each layer: "
            "give another ModernBERT, or the config.json that belongs to the weights"
        )
    return tuple(listed)


def _bases(config: Mapping[str, Any], source: str) -> dict[str, float]:
    """The bases of the rotary positions; BadInput for unsupported position settings."""
    given = config.get("rope_parameters") or {}
    kinds = {(given.get(kind) or {}).get("rope_type", "default") for kind in _BASES}
    scaling = config.get("rope_scaling")
    if set(given) - set(_BASES) or kinds != {"default"} or scaling:
        what = f"rope_scaling {scaling!r}" if scaling else f"rope_parameters {given!r}"
        raise BadInput(
            f"{source}: found {what}; expected rope_type 'default' and a rope_theta for each of "
            f"{', '.join(_BASES)}: rotary positions that are scaled are not computed here; give a "
            "ModernBERT without them"
        )
    found: dict[str, float] = {}
    for kind, (ours, older, default) in _BASES.items():
        theta = (given.get(kind) or {}).get("rope_theta", config.get(older, default))
        # In older files null means that local layers use the global base.
        found[ours] = float(found["global_theta"] if theta is None else theta)
    return found


# -------------------------------------------------------------------------------------------------
# ModernBERT on packed rows.
#
# Warner et al. 2024, 'Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder'. Against
# BERT: rotary positions in place of a table, norms before attention and feed-forward part (none
# before the first attention, for the embeddings are normalized) and one after the last layer, gated
# linear units, no biases, and layers of two kinds: global ones, and local ones whose tokens see
# those within a window alone. Positions restart at every term, and so the window and the rotations
# do.
#
# Shapes: R rows, L tokens per row, T tokens of any axes, N terms, D hidden width, H heads, K head
# width.


class _Sight(NamedTuple):
    """The masks and positions of the layers of a kind."""

    mask: AttentionMask
    cos_RL1K: jax.Array  # float32, of half a head's width
    sin_RL1K: jax.Array


_Sights = dict[str, _Sight]  # by kind


class _Embeddings(nnx.Module):
    """Word vectors, normalized."""

    def __init__(self, config: ModernBertConfig, *, rngs: nnx.Rngs):
        self.word = table(config, config.vocab_size, rngs)
        self.norm = layer_norm(config, rngs, bias=False)

    def __call__(
        self, tokens_RL: jax.Array, positions_RL: jax.Array, probes: Probes | None = None
    ) -> jax.Array:
        if probes is not None:
            raise ValueError("probes need a BERT; a ModernBERT has no token types")
        return self.norm(self.word(tokens_RL))


class _Layer(nnx.Module):
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

    def attend(self, x_RLD, sights: _Sights, positions_RL, dropout_ids_RL, site) -> jax.Array:
        """Multi-head attention with rotary positions."""
        config, sight = self.config, sights[self.kind]
        rows, length, width = x_RLD.shape
        if self.attention_norm is not None:
            x_RLD = self.attention_norm(x_RLD).astype(self.dtype)
        qkv_RL3HK = self.qkv(x_RLD).reshape(
            rows, length, 3, config.num_heads, width // config.num_heads
        )
        q_RLHK, k_RLHK, v_RLHK = (qkv_RL3HK[:, :, i] for i in range(3))
        q_RLHK, k_RLHK = (_rotated(array, sight) for array in (q_RLHK, k_RLHK))
        return attention(
            config, q_RLHK, k_RLHK, v_RLHK, sight.mask, positions_RL, dropout_ids_RL, site
        )

    def transform(self, x_TD, attended_TD, dropout_ids_T, site) -> jax.Array:
        """The feed-forward part after attention, token by token; T stands for any axes."""
        config = self.config
        attended = self.attention_output(attended_TD)
        x_TD = x_TD + drop_features(attended, dropout_ids_T, site + 1, config.attention_dropout)
        both = self.intermediate(self.mlp_norm(x_TD).astype(self.dtype))
        features, gate = jnp.split(both, 2, axis=-1)
        gated = ACTIVATIONS[config.activation](features) * gate
        return x_TD + self.output(drop_features(gated, dropout_ids_T, site + 2, config.mlp_dropout))

    def __call__(self, x_RLD, sights: _Sights, positions_RL, dropout_ids_RL, site) -> jax.Array:
        attended_RLD = self.attend(x_RLD, sights, positions_RL, dropout_ids_RL, site)
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
        self.embeddings = _Embeddings(config, rngs=rngs)
        self.layers = nnx.List(
            [_Layer(config, i, dtype=self.dtype, rngs=rngs) for i in range(config.num_layers)]
        )
        self.final_norm = layer_norm(config, rngs, bias=False)

    def _mask(
        self, positions_RL: jax.Array, segments_RL: jax.Array, probes: Probes | None
    ) -> _Sights:
        return {kind: self._sight(kind, positions_RL, segments_RL) for kind in (_GLOBAL, _LOCAL)}

    def _sight(self, kind: str, positions_RL: jax.Array, segments_RL: jax.Array) -> _Sight:
        """The masks and positions of the layers of a kind, for packed rows."""
        config = self.config
        seen_RLL = segments_RL[:, :, None] == segments_RL[:, None, :]
        reach = config.local_attention // 2
        if kind == _LOCAL and reach < positions_RL.shape[1] - 1:  # else it leaves nothing out
            distance_RLL = jnp.abs(positions_RL[:, :, None] - positions_RL[:, None, :])
            seen_RLL &= distance_RLL <= reach
        mask = AttentionMask(jnp.where(seen_RLL, 0.0, MASKED)[:, None])
        theta = config.global_theta if kind == _GLOBAL else config.local_theta
        return _Sight(
            mask, *_rotations(positions_RL, theta, config.hidden_size // config.num_heads)
        )

    def _finished(self, x_TD, attended_TD, dropout_ids_T, site):
        x_TD = super()._finished(x_TD, attended_TD, dropout_ids_T, site)
        return self.final_norm(x_TD).astype(self.dtype)


def _rotations(
    positions_RL: jax.Array, theta: float, head_width: int
) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine of the angles by which pairs of numbers are turned, float32 [R, L, 1, K / 2].

    Su et al. 2021, 'RoFormer', equation 15: of position m and pair i, m * theta^(-2 i / K).
    """
    rate_K = np.float32(theta) ** -(np.arange(0, head_width, 2, dtype=np.float32) / head_width)
    angle_RL1K = positions_RL[:, :, None, None].astype(jnp.float32) * rate_K[None, None, None]
    return jnp.cos(angle_RL1K), jnp.sin(angle_RL1K)


def _rotated(array_RLHK: jax.Array, sight: _Sight) -> jax.Array:
    """Queries or keys, rotated in float32; a pair is a number and the one half a head later."""
    first, second = jnp.split(array_RLHK.astype(jnp.float32), 2, axis=-1)
    cos, sin = sight.cos_RL1K, sight.sin_RL1K
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return turned.astype(array_RLHK.dtype)
