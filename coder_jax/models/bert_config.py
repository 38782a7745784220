"""BertConfig: the sizes of a BERT, read from and written to Hugging Face's config.json.

RoBERTa and its kin (XLM-R, CamemBERT) are BERTs whose weights have the same names. What differs is
in the numbers: the first row of the position table that a term uses, the padding token, and a
single token type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NotRequired, Self, TypedDict

import numpy as np
from msgspec import Meta

from data_pipeline.files.identity import Vocabulary, Width, typed
from data_pipeline.process import BadInput

# The vector of [CLS]; the mean over all tokens; the mean over word pieces, without [CLS] and [SEP];
# [CLS] after the tanh pooler.
POOLINGS = ("cls", "mean", "pieces", "pooler")
# model_type in config.json -> the class of transformers that opens the same weights.
ARCHITECTURES = {
    "bert": "BertModel",
    "roberta": "RobertaModel",
    "xlm-roberta": "XLMRobertaModel",
    "camembert": "CamembertModel",
}
REQUIRED = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
}
# Config files leave out what equals BERT's original values, which are the defaults below.
_OPTIONAL = {
    "type_vocab_size": "type_vocab_size",
    "activation": "hidden_act",
    "layer_norm_eps": "layer_norm_eps",
    "hidden_dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "initializer_range": "initializer_range",
    "pad_token_id": "pad_token_id",
}
_ACTIVATION_NAMES = ("gelu", "gelu_new", "relu")
# Other names of transformers for the same functions.
_SAME_ACTIVATION = {
    "gelu_python": "gelu",
    "gelu_fast": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
}
Rate = Annotated[float, Meta(ge=0, lt=1)]


class HfSizes(TypedDict):
    """The keys that every architecture's config.json has; bounds are several times the largest in
    use.
    """

    vocab_size: Vocabulary
    hidden_size: Width
    num_hidden_layers: Annotated[int, Meta(ge=1, le=256)]
    num_attention_heads: Width
    max_position_embeddings: Width
    intermediate_size: Width
    initializer_range: NotRequired[Annotated[float, Meta(ge=0)] | None]
    pad_token_id: NotRequired[Annotated[int, Meta(ge=0, le=10_000_000)] | None]


class _HfConfig(HfSizes):
    """config.json of a BERT."""

    model_type: NotRequired[str]
    type_vocab_size: NotRequired[Width | None]
    hidden_act: NotRequired[str | None]
    layer_norm_eps: NotRequired[Rate | None]
    hidden_dropout_prob: NotRequired[Rate | None]
    attention_probs_dropout_prob: NotRequired[Rate | None]
    position_embedding_type: NotRequired[str | None]
    is_decoder: NotRequired[bool | None]


def read_values(
    config: Mapping[str, Any],
    content: Any,
    optional: Mapping[str, str],
    source: str,
    required: Mapping[str, str] = REQUIRED,
) -> dict[str, Any]:
    """The sizes and constants of a config.json under our names.

    Args:
      config: what it says.
      content: a type for `typed`.
      optional: Hugging Face's name of what may be left out, by ours.
      source: is named in errors.
      required: Hugging Face's name of what may not be left out, by ours.

    Raises:
      BadInput: a size is missing, or a value that none has.
    """
    missing = [name for name in required.values() if name not in config]
    if missing:
        raise BadInput(
            f"{source}: {', '.join(missing)} missing; expected a config.json with all of "
            f"{', '.join(required.values())}"
        )
    typed(config, content, source, "give the config.json that belongs to the weights")
    given = {ours: config[theirs] for ours, theirs in required.items()}
    given |= {o: config[t] for o, t in optional.items() if config.get(t) is not None}
    if "activation" in given:
        given["activation"] = _SAME_ACTIVATION.get(given["activation"], given["activation"])
    return given


@dataclass(frozen=True, kw_only=True)
class BertConfig:
    """Sizes and constants of a BERT; the names in config.json are in REQUIRED and OPTIONAL.

    Attributes:
      model_type: a key of ARCHITECTURES.
      max_positions: rows of the position table, of which RoBERTa leaves the first ones unused.
      type_vocab_size: token types; 0 for an architecture without them.
    """

    pooled: ClassVar[bool] = True
    """Whether the architecture has the tanh pooler; a file may lack it."""
    inner_matrices: ClassVar[int] = 2
    """Matrices of the feed-forward part, hidden_size by intermediate_size each."""
    layers_key: ClassVar[str] = REQUIRED["num_layers"]
    """What config.json calls the number of layers."""
    drops_attended: ClassVar[bool] = True
    """Whether dropout is applied to the output of attention."""

    model_type: str = "bert"
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
        if self.activation not in _ACTIVATION_NAMES:
            raise BadInput(
                f"activation {self.activation!r} is not known; expected one of "
                f"{', '.join(_ACTIVATION_NAMES)} (hidden_act, or hidden_activation, in config.json)"
            )
        if self.longest_term < 3:
            raise BadInput(
                f"max_position_embeddings is {self.max_positions} and pad_token_id is "
                f"{self.pad_token_id}, behind which positions begin; expected room for three "
                "tokens: check config.json"
            )
        for name in ("hidden_dropout", "attention_dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise BadInput(f"{name} is {getattr(self, name)}; expected a rate in [0, 1)")

    @classmethod
    def from_hf(cls, config: Mapping[str, Any], source: str = "config.json") -> BertConfig:
        """The config of a Hugging Face BERT; `source` is named in errors.

        Raises:
          BadInput: another architecture than BERT, a missing size or one that no BERT has, or a
            variant of BERT that this encoder does not compute (relative positions, decoders,
            unknown activations).
        """
        model_type = config.get("model_type", "bert")
        if model_type not in (*ARCHITECTURES,):
            raise BadInput(
                f"{source}: model_type is {model_type!r}; expected one of "
                f"{', '.join(ARCHITECTURES)}"
            )
        values = read_values(config, _HfConfig, _OPTIONAL, source)
        positions = config.get("position_embedding_type") or "absolute"
        if positions != "absolute" or config.get("is_decoder"):
            raise BadInput(
                f"{source}: position_embedding_type={positions!r}, is_decoder="
                f"{bool(config.get('is_decoder'))}; expected an encoder with absolute positions"
            )
        # The only value that equals RoBERTa's default, not BERT's, where a file leaves it out.
        values.setdefault("pad_token_id", 0 if model_type == "bert" else 1)
        return cls(model_type=model_type, **values)

    def with_dropout(self, rate: float) -> Self:
        """The same config with one dropout rate for hidden states and attention."""
        return replace(self, hidden_dropout=rate, attention_dropout=rate)

    @property
    def first_position(self) -> int:
        """The row of the position table for the first token of a term.

        RoBERTa numbers tokens from the padding token's number + 1, as fairseq did.
        """
        return 0 if self.model_type == "bert" else self.pad_token_id + 1

    @property
    def longest_term(self) -> int:
        """The number of tokens that have positions."""
        return self.max_positions - self.first_position

    def to_hf(self) -> dict[str, Any]:
        """The config as a config.json dict that transformers opens as the same model."""
        sizes = {theirs: getattr(self, ours) for ours, theirs in (REQUIRED | _OPTIONAL).items()}
        architecture = ARCHITECTURES[self.model_type]
        return {"architectures": [architecture], "model_type": self.model_type} | sizes


# -------------------------------------------------------------------------------------------------
# The floating-point operations that an encoder needs at least for terms of given lengths.


def encoder_flops(bert: BertConfig, lengths: np.ndarray) -> float:
    """Operations of the forward pass for tokens that are not padding.

    Two per multiply-add, matrix products alone: all linear layers for every token, attention of
    every token to those of its own term. A system that needs less, because only [CLS] leaves the
    last layer, gets the same count.

    Args:
        bert: the encoder's sizes.
        lengths: int, tokens of each term, special tokens included.
    """
    width, inner = bert.hidden_size, bert.intermediate_size
    tokens, pairs = float(lengths.sum()), float((lengths.astype(np.int64) ** 2).sum())
    dense = 4 * width**2 + bert.inner_matrices * width * inner
    layer = tokens * 2 * dense + pairs * 2 * 2 * width
    return bert.num_layers * layer
