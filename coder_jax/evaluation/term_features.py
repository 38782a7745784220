"""Terms in, their vectors as features out: of any length, and differentiable for fine-tuning.

Terms are padded, not packed: a classifier is fine-tuned on whole batches of pairs, and its frozen
features must be what it starts from.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from flax import nnx

from coder_jax.bert import Bert
from data_pipeline import stopping
from data_pipeline.clean import clean
from data_pipeline.tokenize_terms import tokenize

if TYPE_CHECKING:
    from coder_jax.encoder import TermEncoder

BATCH_TERMS = 256
LENGTH_STEP = 8  # few shapes compile: lengths are rounded up to multiples of it


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


@partial(jax.jit, static_argnames=("graph", "pooling"))
def _vectors(params, tokens_NL, lengths_N, *, graph, pooling):
    return term_vectors(nnx.merge(graph, params), tokens_NL, lengths_N, pooling)


def term_features(encoder: TermEncoder, terms: Sequence[str]) -> np.ndarray:
    """Vectors of terms as they come out of the encoder, float32 [n, D], not of unit length.

    Raises:
      Stopped: a signal asked for it.
    """
    distinct = list(dict.fromkeys(terms))
    padded = pad_tokens(encoder, distinct)
    graph, params = nnx.split(encoder.bert, nnx.Param)
    features = np.empty((len(distinct), encoder.bert.config.hidden_size), np.float32)
    by_length = np.argsort(padded.lengths, kind="stable")
    for first in range(0, len(distinct), BATCH_TERMS):
        stopping.poll()
        rows = by_length[first : first + BATCH_TERMS]
        width = -(-int(padded.lengths[rows].max()) // LENGTH_STEP) * LENGTH_STEP
        filled = np.resize(rows, BATCH_TERMS)  # the last batch repeats rows, for the one shape
        part = jax.device_put((padded.tokens[filled, :width], padded.lengths[filled]))
        encoded = _vectors(params, *part, graph=graph, pooling=encoder.settings.pooling)
        features[rows] = jax.device_get(encoded)[: len(rows)]
    row_of = {term: row for row, term in enumerate(distinct)}
    return features[[row_of[term] for term in terms]]
