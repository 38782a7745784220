"""Relation classification with vectors that are trained along with the linear softmax on them.

Those of an encoder: terms are padded, not packed, as each step takes a whole batch of pairs, drawn
anew. Or those of a file. Of word vectors each word's is trained, and concepts that share a word
share it: a concept is the mean of its words at every step, as in CODER's released code, whose table
is one of words. Of concept vectors each concept's is trained. The papers say only that both kinds
are trained, and at which rate.

Beware of the papers' fine-tuned column for them: the released code makes its table with PyTorch's
`Embedding.from_pretrained`, which keeps it fixed unless asked not to, and it is not asked. So both
of its settings train the same classifier on the same vectors, and the columns hardly differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from flax import nnx

from coder_jax.evaluation.relations.classification import (
    FINE_TUNING,
    TABLE_TRAINING,
    RelationResult,
    numbered,
    relation_result,
)
from coder_jax.evaluation.relations.classifier import (
    ClassifierSettings,
    fit,
    initial_layer,
    logits,
    predict,
)
from coder_jax.evaluation.vectors.vectors import TERMS, known_features
from coder_jax.evaluation.vectors.words_and_concepts import TableVectors
from coder_jax.models.bert import Bert
from data_pipeline.dataset.tokenize_terms import tokenize
from data_pipeline.terminology.cleaning.rules import clean

if TYPE_CHECKING:
    from coder_jax.encoding.encoder import TermEncoder
    from coder_jax.evaluation.relations.relation_benchmark import RelationBenchmark


LENGTH_STEP = 8  # few shapes compile: lengths are rounded up to a multiple of it


class PaddedTerms(NamedTuple):
    """Word pieces of N terms, one row each; length[i] of row i count."""

    tokens: np.ndarray  # int32 [N, L]
    lengths: np.ndarray  # int32 [N]


def pad_tokens(encoder: TermEncoder, terms: Sequence[str]) -> PaddedTerms:
    """Tokenizes terms, cleaned and cut as the encoder's settings say."""
    settings = encoder.settings
    cleaned = clean(pl.Series(list(terms), dtype=pl.String), settings.cleaning).to_list()
    tokens, start = tokenize(encoder.tokenizer, cleaned, settings.max_length)
    lengths = np.diff(start).astype(np.int32)
    longest = settings.max_length if settings.attend_padding else int(lengths.max())
    width = -(-longest // LENGTH_STEP) * LENGTH_STEP
    padded = np.full((len(lengths), width), encoder.bert.config.pad_token_id, np.int32)
    padded[np.arange(width) < lengths[:, None]] = tokens
    if settings.attend_padding:  # the padding counts as the term's own tokens
        lengths = np.full_like(lengths, settings.max_length)
    return PaddedTerms(padded, lengths)


def term_vectors(
    bert: Bert,
    tokens_NL: jax.Array,
    lengths_N: jax.Array,
    pooling: str,
    dropout_seed: jax.Array | None = None,
) -> jax.Array:
    """Vectors of padded terms, float32 [N, D], not normalized.

    Args:
      dropout_seed: uint32, another one in each step; no dropout if None.
    """
    count, length = tokens_NL.shape
    places_NL = jnp.broadcast_to(jnp.arange(length, dtype=jnp.int32)[None], (count, length))
    rows_N1 = jnp.arange(count, dtype=jnp.int32)[:, None]
    segments_NL = jnp.where(places_NL < lengths_N[:, None], rows_N1 + 1, 0)
    ids_NL = None
    if dropout_seed is not None:
        number_NL = rows_N1.astype(jnp.uint32) * length + places_NL.astype(jnp.uint32)
        ids_NL = dropout_seed * jnp.uint32(count * length) + number_NL
    return bert.term_vectors(tokens_NL, places_NL, segments_NL, count, pooling, ids_NL)


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


class ConceptRows(NamedTuple):
    """The rows of a table that make up C concepts, and what each counts; W at most per concept."""

    rows: np.ndarray  # int32 [C, W]
    shares: np.ndarray  # float32 [C, W], 1 in all; 0 where a concept has fewer rows


def trainable_table(
    vectors: TableVectors, benchmark: RelationBenchmark
) -> tuple[np.ndarray, ConceptRows, np.ndarray]:
    """The vectors to train, how concepts are made of them, and which concepts have any.

    The first are float32 [V, D]; the last of them is that of all concepts without a vector, and
    begins as the mean of the others. Which have any: bool [C].
    """
    keys = benchmark.keys(vectors.keyed_by)
    known, some = known_features(vectors, keys, benchmark.path)
    of_key = [vectors.rows(key) for key in keys]
    used = sorted({row for rows in of_key for row in rows})
    number_of = {row: number for number, row in enumerate(used)}
    numbers = [[number_of[row] for row in rows] or [len(used)] for rows in of_key]
    counts = np.array([len(of_concept) for of_concept in numbers])
    present = np.arange(counts.max()) < counts[:, None]
    rows = np.zeros(present.shape, np.int32)
    rows[present] = [number for of_concept in numbers for number in of_concept]
    shares = (present / counts[:, None]).astype(np.float32)
    table = np.concatenate([vectors.table.vectors[used], some.mean(axis=0, keepdims=True)])
    return table.astype(np.float32), ConceptRows(rows, shares), known


def row_logits(params, concepts: ConceptRows, pairs_B2: jax.Array, _: object) -> jax.Array:
    """Logits of pairs of concepts, each the mean of its rows of a trained table: a `Scorer`."""
    vectors_B2WD = params["table"][concepts.rows[pairs_B2]]
    shares_B2W1 = concepts.shares[pairs_B2][..., None]
    return logits(params["layer"], jnp.sum(vectors_B2WD * shares_B2W1, axis=2))


def fine_tune_table(
    vectors: TableVectors,
    benchmark: RelationBenchmark,
    settings: ClassifierSettings = TABLE_TRAINING,
) -> RelationResult:
    """Trains a copy of the vectors of words or concepts and the classifier, and scores both.

    Concepts without a vector share one, which is trained too.

    Raises:
      BadInput: no names for the concepts, or none has a vector.
      Stopped: a signal asked for it.
    """
    train, test, labels = numbered(benchmark)
    table, concepts, known = trainable_table(vectors, benchmark)
    layer = initial_layer(2 * table.shape[1], len(labels), settings.seed)
    start = {"table": jax.device_put(table), "layer": layer}
    concepts = jax.device_put(concepts)
    params, final_loss = fit(start, concepts, row_logits, train, settings)
    predicted = predict(params, concepts, row_logits, test, settings.batch_pairs)
    return relation_result(benchmark, labels, train, test, predicted, known, final_loss)
