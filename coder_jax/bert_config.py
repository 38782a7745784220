"""BertConfig: the sizes of a BERT, read from and written to Hugging Face's config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from data_pipeline.errors import BadInput

POOLINGS = ("cls", "mean", "pooler")
REQUIRED = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
}
# Config files leave out what equals BERT's original values, which are the defaults below.
OPTIONAL = {
    "type_vocab_size": "type_vocab_size",
    "activation": "hidden_act",
    "layer_norm_eps": "layer_norm_eps",
    "hidden_dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "initializer_range": "initializer_range",
    "pad_token_id": "pad_token_id",
}
ACTIVATION_NAMES = ("gelu", "gelu_new", "relu")


@dataclass(frozen=True, kw_only=True)
class BertConfig:
    """Sizes and constants of a BERT; the names in config.json are in REQUIRED and OPTIONAL."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    max_positions: int
    type_vocab_size: int = 2
    activation: str = "gelu"
    layer_norm_eps: float = 1e-12
    hidden_dropout: float = 0.1
    attention_dropout: float = 0.1
    initializer_range: float = 0.02
    pad_token_id: int = 0

    def __post_init__(self):
        if self.hidden_size % self.num_heads:
            raise BadInput(
                f"hidden_size {self.hidden_size} is not a multiple of {self.num_heads} heads; "
                "check config.json"
            )
        if self.activation not in ACTIVATION_NAMES:
            raise BadInput(
                f"activation {self.activation!r} is not known; expected one of "
                f"{', '.join(ACTIVATION_NAMES)} (hidden_act in config.json)"
            )
        for name in ("hidden_dropout", "attention_dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise BadInput(f"{name} is {getattr(self, name)}; expected a rate in [0, 1)")

    @classmethod
    def from_hf(cls, config: Mapping[str, Any], source: str = "config.json") -> BertConfig:
        """The config of a Hugging Face BERT; `source` is named in errors.

        Raises:
          BadInput: another architecture than BERT, a missing size, or a variant of BERT that this
            encoder does not compute (relative positions, decoders, unknown activations).
        """
        model_type = config.get("model_type", "bert")
        if model_type != "bert":
            raise BadInput(
                f"{source}: model_type is {model_type!r}; expected 'bert'. Give a BERT checkpoint "
                "(BERT, BioBERT, PubMedBERT, mBERT, MiniLM, SapBERT, CODER)"
            )
        missing = [name for name in REQUIRED.values() if name not in config]
        if missing:
            raise BadInput(
                f"{source}: {', '.join(missing)} missing; expected a BERT config.json with all of "
                f"{', '.join(REQUIRED.values())}"
            )
        positions = config.get("position_embedding_type") or "absolute"
        if positions != "absolute" or config.get("is_decoder"):
            raise BadInput(
                f"{source}: position_embedding_type={positions!r}, is_decoder="
                f"{bool(config.get('is_decoder'))}; expected an encoder with absolute positions"
            )
        values = {ours: config[theirs] for ours, theirs in REQUIRED.items()}
        values |= {o: config[t] for o, t in OPTIONAL.items() if config.get(t) is not None}
        return cls(**values)

    def to_hf(self) -> dict[str, Any]:
        """The same as a config.json dict that transformers opens as a BertModel."""
        sizes = {theirs: getattr(self, ours) for ours, theirs in (REQUIRED | OPTIONAL).items()}
        return {"architectures": ["BertModel"], "model_type": "bert"} | sizes
