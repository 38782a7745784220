"""Relation classification with an encoder that is trained along with the linear softmax on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import numpy as np
from flax import nnx

from coder_jax.evaluation.relation_classification import (
    FINE_TUNING,
    RelationResult,
    numbered,
    relation_result,
)
from coder_jax.evaluation.relation_files import RelationBenchmark
from coder_jax.evaluation.softmax_classifier import (
    ClassifierSettings,
    fit,
    initial_layer,
    logits,
    predict,
)
from coder_jax.evaluation.term_features import pad_tokens, term_vectors
from coder_jax.evaluation.vectors import TERMS

if TYPE_CHECKING:
    from coder_jax.encoder import TermEncoder


def fine_tune(
    encoder: TermEncoder, benchmark: RelationBenchmark, settings: ClassifierSettings = FINE_TUNING
) -> RelationResult:
    """Trains a copy of the encoder and the classifier on the training pairs, and scores both.

    Dropout is the encoder's own while it trains. The encoder that was given stays as it was.

    Raises:
      BadInput: no names for the concepts.
      Stopped: a signal asked for it.
    """
    train, test, labels = numbered(benchmark)
    graph, weights = nnx.split(encoder.bert, nnx.Param)
    pooling = encoder.settings.pooling
    terms = jax.device_put(pad_tokens(encoder, benchmark.keys(TERMS)))

    def scorer(params, terms, pairs_B2, dropout_seed):
        numbers_N = pairs_B2.reshape(-1)
        bert = nnx.merge(graph, params["encoder"])
        tokens_NL, lengths_N = terms.tokens[numbers_N], terms.lengths[numbers_N]
        vectors_ND = term_vectors(bert, tokens_NL, lengths_N, pooling, dropout_seed)
        return logits(params["layer"], vectors_ND.reshape(len(pairs_B2), 2, -1))

    width = 2 * encoder.bert.config.hidden_size
    start = {"encoder": weights, "layer": initial_layer(width, len(labels), settings.seed)}
    params, final_loss = fit(start, terms, scorer, train, settings)
    predicted = predict(params, terms, scorer, test, settings.batch_pairs)
    known = np.ones(len(benchmark.concepts()), bool)
    return relation_result(benchmark, labels, train, test, predicted, known, final_loss)
