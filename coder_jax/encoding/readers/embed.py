"""Many terms in, vectors out: each distinct term once, packed rows, all local devices.

Terms are tokenized in chunks (the next one while the devices work on this one), packed into rows
of 128 tokens, and the rows dealt out into blocks of one static shape (`blocks.py`), one block per
device at a time. A call compiles one shape, and a second, smaller one for what fits in it; the few
long terms among many short ones are encoded apart, in shapes of their own. All may be stopped
between two batches (`data_pipeline.process.stopping`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tokenizers import Tokenizer

from coder_jax.devices.mesh import local_mesh, replicated
from coder_jax.encoding.blocks import TOKENS_PER_TERM, Block, batches_by_length, pad_terms
from coder_jax.models.bert import Bert
from data_pipeline.dataset.aligned import aligned
from data_pipeline.dataset.tokenize_terms import tokenize
from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import Progress, progress_bar

CHUNK_TERMS = 1 << 17
# Rows per device and batch: enough to fill the machine, little enough to stay in the CPU's caches.
ROWS_CPU, ROWS_ACCELERATOR = 16, 512


def embed_terms(
    bert: Bert,
    tokenizer: Tokenizer,
    terms: Sequence[str],
    *,
    pooling: str,
    max_length: int,
    attend_padding: bool = False,
    unit: bool = True,
    rows: int | None = None,
    progress: bool = False,
) -> np.ndarray:
    """Encodes terms; float32 [n, D], in the order of `terms`, aligned for `search`.

    Args:
      bert: the encoder; its dtype is the compute dtype.
      tokenizer: the encoder's own, without padding and truncation.
      terms: n strings; equal strings are encoded once. An empty one is [CLS] [SEP].
      pooling: 'cls', 'mean' or 'pooler'.
      max_length: longest term in tokens, special tokens included; longer terms are cut.
      attend_padding: pad each term to `max_length` and let it attend to the padding, as the
        published CODER checkpoints were trained and evaluated. Slower; only for those.
      unit: vectors of length 1; else as they come out of the pooling.
      rows: packed rows per device and batch; chosen for the machine if None.
      progress: show a progress bar on stderr.

    Raises:
      BadInput: `max_length` is more than the positions that the encoder has.
      Stopped: a signal asked for it.
    """
    slot = {term: i for i, term in enumerate(dict.fromkeys(terms))}
    distinct = list(slot)
    vectors = aligned((len(distinct), bert.config.hidden_size), np.float32)
    bar = progress_bar(total=len(distinct), unit=" terms", desc="encoding", disable=not progress)
    with bar:
        encoded = embed_chunks(
            bert,
            tokenizer,
            (distinct[first : first + CHUNK_TERMS] for first in range(0, len(slot), CHUNK_TERMS)),
            pooling=pooling,
            max_length=max_length,
            attend_padding=attend_padding,
            unit=unit,
            rows=rows,
            bar=bar,
        )
        for first, chunk in zip(range(0, len(slot), CHUNK_TERMS), encoded, strict=True):
            vectors[first : first + len(chunk)] = chunk
    if len(distinct) == len(terms):
        return vectors
    places = np.fromiter((slot[term] for term in terms), np.int64, len(terms))
    repeated = aligned((len(terms), vectors.shape[1]), np.float32)
    return np.take(vectors, places, axis=0, out=repeated, mode="clip")  # "raise" would copy


def embed_chunks(
    bert: Bert,
    tokenizer: Tokenizer,
    chunks: Iterable[Sequence[str]],
    *,
    pooling: str,
    max_length: int,
    attend_padding: bool = False,
    unit: bool = True,
    rows: int | None = None,
    bar: Progress | None = None,
) -> Iterator[np.ndarray]:
    """As `embed_terms` for each of many lists of terms, one after the other.

    A list's vectors depend on nothing outside it; its equal strings are encoded once.

    Args:
      chunks: lists of terms; read one ahead, in another thread.
      bar: a progress bar that counts terms.
    """
    longest = bert.config.longest_term
    if max_length > longest:
        raise BadInput(
            f"max_length is {max_length}, but the encoder has {longest} positions; give a "
            f"max_length of at most {longest}"
        )
    placed = place(bert)
    pad = bert.config.pad_token_id if attend_padding else None

    waiting = iter(chunks)

    def tokenize_next() -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        terms = next(waiting, None)
        if terms is None:
            return None
        slot = {term: i for i, term in enumerate(dict.fromkeys(terms))}
        slots = np.fromiter((slot[term] for term in terms), np.int64, len(terms))
        tokens, start = tokenize(tokenizer, list(slot), max_length)
        if pad is not None:
            tokens, start = pad_terms(tokens, start, max_length, pad)
        return tokens, start, slots

    with ThreadPoolExecutor(1) as background:
        upcoming = background.submit(tokenize_next)
        while (tokenized := upcoming.result()) is not None:
            upcoming = background.submit(tokenize_next)
            tokens, start, slots = tokenized
            vectors = embed_tokens(
                placed, tokens, start, pooling=pooling, unit=unit, rows=rows, bar=bar
            )
            if bar is not None:
                bar.update(len(slots) - len(vectors))
            yield vectors if len(vectors) == len(slots) else vectors[slots]


class Placed(NamedTuple):
    """An encoder with its parameters on every local device."""

    mesh: Mesh
    graph: nnx.GraphDef
    params: nnx.State
    width: int


def place(bert: Bert) -> Placed:
    """Copies the parameters of an encoder to every local device."""
    mesh = local_mesh()
    graph, params = nnx.split(bert, nnx.Param)
    params = jax.device_put(params, replicated(mesh))
    return Placed(mesh, graph, params, bert.config.hidden_size)


def embed_tokens(
    placed: Placed,
    tokens: np.ndarray,
    start: np.ndarray,
    *,
    pooling: str,
    unit: bool = True,
    rows: int | None = None,
    bar: Progress | None = None,
) -> np.ndarray:
    """As `embed_terms`, for terms that are already tokenized.

    Args:
      placed: the encoder, from `place`.
      tokens: int32 [sum of lengths], special tokens included.
      start: int64 [n + 1]; term i is tokens[start[i]:start[i + 1]].
      bar: a progress bar that counts terms.
    """
    mesh, graph, params, width = placed
    if rows is None:
        rows = ROWS_CPU if mesh.devices[0].platform == "cpu" else ROWS_ACCELERATOR
    vectors = np.empty((len(start) - 1, width), np.float32)

    def fetch(terms: list[np.ndarray], encoded: jax.Array) -> None:
        for numbers, part in zip(terms, jax.device_get(encoded), strict=True):
            vectors[numbers] = part[: len(numbers)]
        if bar is not None:
            bar.update(sum(map(len, terms)))

    under_way = None
    for batch in batches_by_length(tokens, start, max(rows, 2), mesh.size):
        stopping.poll()
        arrays = [np.stack([getattr(block, name) for block in batch]) for name in Block._fields[:3]]
        on_devices = jax.device_put(arrays, NamedSharding(mesh, PartitionSpec("data")))
        num_terms = batch[0].tokens.size // TOKENS_PER_TERM
        encoded = block_vectors(
            params,
            *on_devices,
            graph=graph,
            num_terms=num_terms,
            pooling=pooling,
            unit=unit,
            window=batch[0].window,
        )
        if under_way is not None:  # fetched one batch late, so that the devices never wait
            fetch(*under_way)
        under_way = [block.terms for block in batch], encoded
    if under_way is not None:
        fetch(*under_way)
    return vectors


@partial(jax.jit, static_argnames=("graph", "num_terms", "pooling", "unit", "window"))
def block_vectors(
    params, tokens_BRL, positions_BRL, segments_BRL, *, graph, num_terms, pooling, unit, window
):
    """Vectors of the terms in each block, float32 [B, N, D]; zeros in empty slots."""

    def one_block(*block_RL):
        bert = nnx.merge(graph, params)
        windows = (array_RL.reshape(-1, window) for array_RL in block_RL)
        vectors_ND = bert.term_vectors(*windows, num_terms, pooling)
        if not unit:
            return vectors_ND
        norm_N1 = jnp.linalg.norm(vectors_ND, axis=-1, keepdims=True)
        return vectors_ND / jnp.maximum(norm_N1, 1e-12)

    return jax.vmap(one_block)(tokens_BRL, positions_BRL, segments_BRL)
