"""ModernBertConfig: the sizes of a ModernBERT, read from and written to its config.json.

There are two generations of these files. The older one (transformers 4) has the layers' kinds and
the bases of their rotary positions as `global_attn_every_n_layers`, `global_rope_theta` and
`local_rope_theta`; the newer one lists them, as `layer_types` and `rope_parameters`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NotRequired, Self, TypedDict

from msgspec import Meta

from coder_jax.models.bert_config import REQUIRED, BertConfig, HfSizes, Rate, read_values
from data_pipeline.process.errors import BadInput

MODERNBERT = "modernbert"
GLOBAL, LOCAL = "full_attention", "sliding_attention"
# Config files leave out what equals the original values, which are the defaults below.
OPTIONAL = {
    "activation": "hidden_activation",
    "layer_norm_eps": "norm_eps",
    "hidden_dropout": "embedding_dropout",
    "attention_dropout": "attention_dropout",
    "mlp_dropout": "mlp_dropout",
    "initializer_range": "initializer_range",
    "local_attention": "local_attention",
}
BIASES = ("attention_bias", "mlp_bias", "norm_bias")
# The bases of rotary positions: our name, that of older files, and the original value.
BASES = {
    GLOBAL: ("global_theta", "global_rope_theta", 160_000.0),
    LOCAL: ("local_theta", "local_rope_theta", 10_000.0),
}
EVERY, EVERY_DEFAULT = "global_attn_every_n_layers", 3
Base = Annotated[float, Meta(gt=1, lt=1e12)]


class Rope(TypedDict):
    """Of the layers of a kind."""

    rope_type: NotRequired[str]
    rope_theta: NotRequired[Base]


class HfConfig(HfSizes):
    """config.json of a ModernBERT."""

    hidden_activation: NotRequired[str | None]
    norm_eps: NotRequired[Rate | None]
    embedding_dropout: NotRequired[Rate | None]
    attention_dropout: NotRequired[Rate | None]
    mlp_dropout: NotRequired[Rate | None]
    local_attention: NotRequired[Annotated[int, Meta(ge=1, le=1_000_000)] | None]
    global_attn_every_n_layers: NotRequired[Annotated[int, Meta(ge=1, le=256)] | None]
    global_rope_theta: NotRequired[Base | None]
    local_rope_theta: NotRequired[Base | None]
    layer_types: NotRequired[list[str] | None]
    rope_parameters: NotRequired[dict[str, Rope | None] | None]


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
    global_theta: float = BASES[GLOBAL][2]
    local_theta: float = BASES[LOCAL][2]

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
        values = read_values(config, HfConfig, OPTIONAL, source)
        biased = [name for name in BIASES if config.get(name)]
        if biased:
            raise BadInput(
                f"{source}: {', '.join(biased)} true; expected false, as in the published "
                "ModernBERTs: give one without biases"
            )
        if "pad_token_id" in config:  # null where there is none: then any will do
            values["pad_token_id"] = config["pad_token_id"] or 0
        values |= {"layer_types": layer_types(config, source)} | bases(config, source)
        return cls(**values)

    def with_dropout(self, rate: float) -> Self:
        return replace(super().with_dropout(rate), mlp_dropout=rate)

    @property
    def first_position(self) -> int:
        return 0

    def to_hf(self) -> dict[str, Any]:
        """The same as a config.json dict that transformers opens as the same model."""
        names = REQUIRED | OPTIONAL | {"pad_token_id": "pad_token_id"}
        written = {theirs: getattr(self, ours) for ours, theirs in names.items()}
        thetas = {kind: getattr(self, ours) for kind, (ours, _, _) in BASES.items()}
        written |= {
            "layer_types": list(self.layer_types),
            "rope_parameters": {
                kind: {"rope_type": "default", "rope_theta": theta}
                for kind, theta in thetas.items()
            },
            **dict.fromkeys(BIASES, False),
        }
        # What transformers 4 reads, where it can say the same.
        written |= {older: thetas[kind] for kind, (_, older, _) in BASES.items()}
        every = next((i for i in range(1, self.num_layers) if self.layer_types[i] == GLOBAL), None)
        every = every or self.num_layers
        if self.layer_types == alternating(self.num_layers, every):
            written[EVERY] = every
        return {"architectures": ["ModernBertModel"], "model_type": MODERNBERT} | written


def alternating(layers: int, every: int) -> tuple[str, ...]:
    """Kinds of layers, of which the first and each so many after it are global."""
    return tuple(LOCAL if number % every else GLOBAL for number in range(layers))


def layer_types(config: Mapping[str, Any], source: str) -> tuple[str, ...]:
    """The kind of each layer; BadInput for others than there are."""
    layers, listed = config["num_hidden_layers"], config.get("layer_types")
    if listed is None:
        return alternating(layers, config.get(EVERY) or EVERY_DEFAULT)
    others = sorted({*listed} - {GLOBAL, LOCAL})
    if others or len(listed) != layers:
        found = f"the kinds {', '.join(others)}" if others else f"{len(listed)} of {layers} layers"
        raise BadInput(
            f"{source}: layer_types has {found}; expected {GLOBAL} or {LOCAL} for each layer: give "
            "another ModernBERT, or the config.json that belongs to the weights"
        )
    return tuple(listed)


def bases(config: Mapping[str, Any], source: str) -> dict[str, float]:
    """The bases of the rotary positions; BadInput for positions that are changed otherwise."""
    given = config.get("rope_parameters") or {}
    kinds = {(given.get(kind) or {}).get("rope_type", "default") for kind in BASES}
    scaling = config.get("rope_scaling")
    if set(given) - set(BASES) or kinds != {"default"} or scaling:
        what = f"rope_scaling {scaling!r}" if scaling else f"rope_parameters {given!r}"
        raise BadInput(
            f"{source}: found {what}; expected rope_type 'default' and a rope_theta for each of "
            f"{', '.join(BASES)}: rotary positions that are scaled are not computed here; give a "
            "ModernBERT without them"
        )
    found: dict[str, float] = {}
    for kind, (ours, older, default) in BASES.items():
        theta = (given.get(kind) or {}).get("rope_theta", config.get(older, default))
        # Older files have null for local layers that take the global one's.
        found[ours] = float(found["global_theta"] if theta is None else theta)
    return found
