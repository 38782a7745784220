"""Which architectures of Hugging Face import, and the config and the encoder of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from flax import nnx

from coder_jax.models.bert import Bert
from coder_jax.models.bert_config import ARCHITECTURES, BertConfig
from coder_jax.models.modernbert.config import MODERNBERT, ModernBertConfig
from coder_jax.models.modernbert.modernbert import ModernBert
from data_pipeline.process.errors import BadInput

# model_type in config.json -> what reads the rest of it.
CONFIGS: dict[str, type[BertConfig]] = {
    **dict.fromkeys(ARCHITECTURES, BertConfig),
    MODERNBERT: ModernBertConfig,
}


def read_config(config: Mapping[str, Any], source: str = "config.json") -> BertConfig:
    """The sizes of an encoder, from its config.json; `source` is named in errors.

    Raises:
      BadInput: another architecture, a size that is missing or that none has, or a variant that is
        not computed here.
    """
    model_type = config.get("model_type", "bert")
    if model_type not in (*CONFIGS,):
        raise BadInput(
            f"{source}: model_type is {model_type!r}; expected one of {', '.join(CONFIGS)}. Give a "
            "checkpoint of BERT (BioBERT, PubMedBERT, mBERT, MiniLM, SapBERT, CODER), of RoBERTa "
            "(XLM-R, CamemBERT) or of ModernBERT (BioClinical ModernBERT)"
        )
    return CONFIGS[model_type].from_hf(config, source)


def encoder_class(config: BertConfig) -> type[Bert]:
    """The network with these sizes."""
    return ModernBert if isinstance(config, ModernBertConfig) else Bert


def abstract_bert(
    config: BertConfig, dtype: Any = jnp.float32, *, pooler: bool | None = None
) -> Bert:
    """An encoder whose parameters are shapes only: its structure, at no cost.

    Args:
      config: of any architecture.
      dtype: of its arithmetic.
      pooler: whether it has the tanh pooler; if None, as its architecture has it.
    """
    made, pooler = encoder_class(config), config.pooled if pooler is None else pooler
    return nnx.eval_shape(lambda: made(config, dtype=dtype, pooler=pooler, rngs=nnx.Rngs(0)))
