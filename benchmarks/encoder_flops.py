"""The floating-point operations that an encoder needs at least for terms of given lengths."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from coder_jax.models.bert_config import BertConfig


def encoder_flops(bert: "BertConfig", lengths: np.ndarray) -> float:
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
