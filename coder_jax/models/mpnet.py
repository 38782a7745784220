"""MPNet and DistilBERT on packed rows: their configurations, and the network of MPNet.

DistilBERT (Sanh et al. 2019) is a BERT of few layers without token types and pooler, whose output
of attention is not dropped. MPNet (Song et al. 2020) has RoBERTa's positions, no token types, and a
bias of attention that all layers share: a number for each head and each class of distances.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NotRequired, Self, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from msgspec import Meta

from coder_jax.models.bert import AttentionMask, Bert, Probes
from coder_jax.models.bert_config import REQUIRED, BertConfig, HfSizes, Rate, read_values
from data_pipeline.files.identity import Vocabulary, Width
from data_pipeline.process import BadInput

# -------------------------------------------------------------------------------------------------
# Their sizes, read from and written to config.json.

MPNET, DISTILBERT = "mpnet", "distilbert"
# Config files leave out what equals the original values, which are BERT's.
_MPNET_OPTIONAL = {
    "activation": "hidden_act",
    "layer_norm_eps": "layer_norm_eps",
    "hidden_dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "initializer_range": "initializer_range",
    "pad_token_id": "pad_token_id",
}
# DistilBERT has names of its own.
_DISTILBERT_NAMES = {
    "vocab_size": "vocab_size",
    "hidden_size": "dim",
    "num_layers": "n_layers",
    "num_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "max_positions": "max_position_embeddings",
}
_DISTILBERT_OPTIONAL = {
    "activation": "activation",
    "hidden_dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "initializer_range": "initializer_range",
    "pad_token_id": "pad_token_id",
}
# MPNet's classes of distances: so many on both sides together, the last from so far on.
_BUCKETS, _FARTHEST = 32, 128
_PADDING = 1  # the row of MPNet's position table before the first, whatever pad_token_id is


class _HfMpNet(HfSizes):
    """config.json of an MPNet."""

    hidden_act: NotRequired[str | None]
    layer_norm_eps: NotRequired[Rate | None]
    hidden_dropout_prob: NotRequired[Rate | None]
    attention_probs_dropout_prob: NotRequired[Rate | None]
    relative_attention_num_buckets: NotRequired[int | None]


class _HfDistilBert(TypedDict):
    """config.json of a DistilBERT."""

    vocab_size: Vocabulary
    dim: Width
    n_layers: Annotated[int, Meta(ge=1, le=256)]
    n_heads: Width
    hidden_dim: Width
    max_position_embeddings: Width
    activation: NotRequired[str | None]
    dropout: NotRequired[Rate | None]
    attention_dropout: NotRequired[Rate | None]
    initializer_range: NotRequired[Annotated[float, Meta(ge=0)] | None]
    pad_token_id: NotRequired[Annotated[int, Meta(ge=0, le=10_000_000)] | None]


@dataclass(frozen=True, kw_only=True)
class MpNetConfig(BertConfig):
    """Sizes and constants of an MPNet."""

    model_type: str = MPNET
    type_vocab_size: int = 0
    pad_token_id: int = 1

    @classmethod
    def from_hf(cls, config: Mapping[str, Any], source: str = "config.json") -> Self:
        """The config of a Hugging Face MPNet; `source` is named in errors.

        Raises:
          BadInput: a size that is missing or that none has, or another number of distances.
        """
        values = read_values(config, _HfMpNet, _MPNET_OPTIONAL, source)
        buckets = config.get("relative_attention_num_buckets") or _BUCKETS
        if buckets != _BUCKETS:
            raise BadInput(
                f"{source}: relative_attention_num_buckets is {buckets}; expected {_BUCKETS}, as "
                "the published MPNets have and transformers computes: give one of these"
            )
        return cls(**values)

    @property
    def first_position(self) -> int:
        return _PADDING + 1

    def to_hf(self) -> dict[str, Any]:
        names = REQUIRED | _MPNET_OPTIONAL
        sizes = {theirs: getattr(self, ours) for ours, theirs in names.items()}
        sizes["relative_attention_num_buckets"] = _BUCKETS
        return {"architectures": ["MPNetModel"], "model_type": MPNET} | sizes


@dataclass(frozen=True, kw_only=True)
class DistilBertConfig(BertConfig):
    """Sizes and constants of a DistilBERT."""

    pooled: ClassVar[bool] = False
    layers_key: ClassVar[str] = _DISTILBERT_NAMES["num_layers"]
    drops_attended: ClassVar[bool] = False

    model_type: str = DISTILBERT
    type_vocab_size: int = 0

    @classmethod
    def from_hf(cls, config: Mapping[str, Any], source: str = "config.json") -> Self:
        """The config of a Hugging Face DistilBERT; `source` is named in errors.

        Raises:
          BadInput: a size that is missing or that none has.
        """
        given = (config, _HfDistilBert, _DISTILBERT_OPTIONAL, source, _DISTILBERT_NAMES)
        return cls(**read_values(*given))

    @property
    def first_position(self) -> int:
        return 0

    def to_hf(self) -> dict[str, Any]:
        names = _DISTILBERT_NAMES | _DISTILBERT_OPTIONAL
        sizes = {theirs: getattr(self, ours) for ours, theirs in names.items()}
        sizes["sinusoidal_pos_embds"] = False  # how the table began; it is in the weights
        return {"architectures": ["DistilBertModel"], "model_type": DISTILBERT} | sizes


# -------------------------------------------------------------------------------------------------
# MPNet's attention: to the logits comes a bias for each head and class of distances.


class MpNet(Bert):
    """MPNet encoder over packed rows; parameters float32, computing in `dtype`."""

    config: MpNetConfig

    def __init__(
        self,
        config: MpNetConfig,
        *,
        dtype: Any = jnp.float32,
        pooler: bool = True,
        rngs: nnx.Rngs,
    ):
        super().__init__(config, dtype=dtype, pooler=pooler, rngs=rngs)
        init = nnx.initializers.normal(config.initializer_range)
        self.distance = nnx.Embed(_BUCKETS, config.num_heads, embedding_init=init, rngs=rngs)

    def _mask(
        self, positions_RL: jax.Array, segments_RL: jax.Array, probes: Probes | None
    ) -> AttentionMask:
        """The mask of the segments, with the bias: so no kernel that knows segments alone fits."""
        mask = super()._mask(positions_RL, segments_RL, probes)
        distances_RLL = positions_RL[:, None, :] - positions_RL[:, :, None]
        farthest = positions_RL.shape[1] - 1
        classes = jnp.asarray(_distance_classes(farthest))
        class_RLL = classes[jnp.clip(distances_RLL, -farthest, farthest) + farthest]
        bias_RHLL = jnp.moveaxis(self.distance(class_RLL), -1, 1)
        return dataclasses.replace(mask, added_R1LL=mask.added_R1LL + bias_RHLL, segments_RL=None)


def _distance_classes(farthest: int) -> np.ndarray:
    """int32 [2 * farthest + 1]: the class of each distance of a key from its query.

    From -farthest to farthest. Near distances have a class of their own, the others share
    logarithmic ones, as T5 has them: Raffel et al. 2020, section 2.1.
    """
    distance = np.arange(-farthest, farthest + 1)
    side = _BUCKETS // 2
    exact = side // 2
    size = np.abs(distance)
    ratio = np.log(np.maximum(size, 1).astype(np.float32) / np.float32(exact))
    scaled = ratio / np.float32(np.log(_FARTHEST / exact)) * np.float32(side - exact)
    far = np.minimum(exact + scaled.astype(np.int32), side - 1)
    return (np.where(size < exact, size, far) + side * (distance > 0)).astype(np.int32)
