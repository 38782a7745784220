"""Encoding of many terms or names on all local devices, in blocks of packed rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tokenizers import Tokenizer

from coder_jax.devices.hosts import host_count, host_index
from coder_jax.devices.mesh import local_mesh, replicated
from coder_jax.models.bert import Bert, compiled, split_encoder
from coder_jax.models.bert_config import BertConfig
from coder_jax.models.names import (
    DIRECTIONS,
    NameEncoderConfig,
    gate_inputs,
    vectors_of_gates,
    word_representations,
)
from data_pipeline import process
from data_pipeline.batches.bne import Alphabet, WordTable, numbered
from data_pipeline.batches.packing import pack_rows
from data_pipeline.dataset.tokenizer import tokenize
from data_pipeline.files.whole import aligned
from data_pipeline.process import BadInput, Progress, progress_bar
from data_pipeline.skip_gram.store import StringVectors
from data_pipeline.sources.text import words_of

# -------------------------------------------------------------------------------------------------
# Blocks of packed rows, made from tokenized terms: what one device encodes at a time.
#
# All blocks of a call have one static shape, or few where some terms are much longer than most.

_ROW_LENGTH = 128
# With 128 tokens in a row, attention is mostly to other terms and then masked. If all terms of a
# block fit into windows of 64, the encoder gets each window as a row.
_WINDOW = 64
# A further shape takes as long to compile as this many batches take to encode.
_BATCHES_WORTH_A_SHAPE = 16
_SMALL_FRACTION = 8  # the smaller shape has this part of the rows
# Terms of so many tokens in all get one row of that length: a single term, as servers are asked
# for, would else cost a whole block.
_FEW = 32
_TOKENS_PER_TERM = 4  # slots for terms in a block: one per so many tokens
_Arrays = Mapping[str, Any]


class _Block(NamedTuple):
    """The rows that one device encodes at a time."""

    tokens: np.ndarray  # int32 [R, L]
    positions: np.ndarray
    segments: np.ndarray  # 1 + slot of the term within the block
    terms: np.ndarray  # int64 [terms in the block]: the number of the term in each slot
    window: int  # no term crosses a multiple of it, counted along its row


def _batches_by_length(
    tokens: np.ndarray, start: np.ndarray, rows: int, devices: int
) -> Iterator[list[_Block]]:
    """As `_batches_of_blocks`, but terms that fit into a window come first where there are many."""
    lengths = np.diff(start)
    is_short = lengths <= _WINDOW
    enough = _BATCHES_WORTH_A_SHAPE * rows * _ROW_LENGTH * devices
    if is_short.all() or lengths[is_short].sum() < enough:
        yield from _batches_of_blocks(tokens, start, rows, devices)
        return
    for chosen in (is_short, ~is_short):
        numbers = np.flatnonzero(chosen)
        part = tokens[start[0] : start[-1]][np.repeat(chosen, lengths)]
        part_start = np.concatenate([[0], np.cumsum(lengths[numbers])])
        for batch in _batches_of_blocks(part, part_start, rows, devices):
            yield [block._replace(terms=numbers[block.terms]) for block in batch]


def _batches_of_blocks(
    tokens: np.ndarray, start: np.ndarray, rows: int, devices: int
) -> Iterator[list[_Block]]:
    """Packs terms and yields one block per device at a time, all of one shape.

    Rows are dealt out in turn: packing puts long terms first, and blocks of equal work have equal
    numbers of terms, which keeps the static number of slots small.
    """
    if len(start) < 2:
        return
    longest = int(np.diff(start).max())
    row_length = -(-longest // _ROW_LENGTH) * _ROW_LENGTH  # few shapes for long terms, too
    window = _WINDOW if longest <= _WINDOW else row_length
    are_few = start[-1] - start[0] <= _FEW
    if are_few:
        row_length = window = _FEW
    per_row = row_length // window
    packed = {
        name: _padded_rows(array, -(-len(array) // per_row) * per_row).reshape(-1, row_length)
        for name, array in pack_rows(tokens, start, window).items()
    }
    is_first = (packed["positions"] == 0) & (packed["segments"] > 0)
    terms_per_row = is_first.sum(axis=1)
    needed = len(terms_per_row)
    small = 1 if are_few else max(2, rows // _SMALL_FRACTION)
    rows = small if needed <= small * devices else rows
    slots = rows * row_length // _TOKENS_PER_TERM
    blocks = -(-needed // (rows * devices)) * devices
    while np.bincount(np.arange(needed) % blocks, terms_per_row).max() > slots:
        blocks += devices
    block_of_term = np.empty(len(start) - 1, np.int64)
    row_of_first, column_of_first = np.nonzero(is_first)
    block_of_term[packed["segments"][row_of_first, column_of_first] - 1] = row_of_first % blocks
    slot_of_term = np.zeros(len(start), np.int32)  # 0: padding
    dealt = []
    for number in range(blocks):
        terms = np.flatnonzero(block_of_term == number)
        slot_of_term[terms + 1] = 1 + np.arange(len(terms))
        dealt.append(terms)
    packed["segments"] = slot_of_term[packed["segments"]]

    def block(number: int) -> _Block:
        tokens, positions, segments = (
            _padded_rows(packed[name][number::blocks], rows)
            for name in ("tokens", "positions", "segments")
        )
        return _Block(tokens, positions, segments, dealt[number], window)

    for first in range(0, blocks, devices):
        yield [block(number) for number in range(first, first + devices)]


def _padded_rows(array: np.ndarray, rows: int) -> np.ndarray:
    """Rows of padding added up to `rows`."""
    return np.pad(array, ((0, rows - len(array)), (0, 0)))


def _pad_terms(
    tokens: np.ndarray, start: np.ndarray, length: int, pad_token: int
) -> tuple[np.ndarray, np.ndarray]:
    """Every term padded to `length` tokens with the padding token, which is not masked."""
    lengths = np.diff(start)
    padded = np.full((len(lengths), length), pad_token, np.int32)
    padded[np.arange(length) < lengths[:, None]] = tokens
    return padded.reshape(-1), np.arange(len(lengths) + 1, dtype=np.int64) * length


def _in_blocks(
    placed: Placed | PlacedNames,
    tokens: np.ndarray,
    start: np.ndarray,
    encode: Callable[[_Arrays, int, int], Any],
    beside: Callable[[_Block, int], _Arrays] | None = None,
) -> Iterator[tuple[np.ndarray, Any]]:
    """(numbers of sequences, result of `encode`) of each block of packed rows.

    Args:
        placed: whose devices have one block each.
        tokens, start: sequence i is tokens[start[i] : start[i + 1]].
        encode: of arrays [devices, ...], `tokens`, `segments` and what is beside; of the window, as
            in `_Block`; and of the slots for sequences in a block.
        beside: further arrays of a block with so many slots.
    """
    under_way: tuple[list[_Block], Any] | None = None
    for batch in _batches_by_length(tokens, start, placed.rows, placed.mesh.size):
        process.poll()
        slots = batch[0].tokens.size // _TOKENS_PER_TERM
        of_each = [
            {
                "tokens": block.tokens,
                "segments": block.segments,
                **(beside(block, slots) if beside else {}),
            }
            for block in batch
        ]
        arrays = {name: np.stack([one[name] for one in of_each]) for name in of_each[0]}
        on_devices = jax.device_put(arrays, NamedSharding(placed.mesh, PartitionSpec("data")))
        encoded = encode(on_devices, batch[0].window, slots)
        if under_way is not None:  # fetched one batch late, so that the devices never wait
            yield from _fetched(*under_way)
        under_way = batch, encoded
    if under_way is not None:
        yield from _fetched(*under_way)


def _fetched(batch: list[_Block], encoded: Any) -> Iterator[tuple[np.ndarray, Any]]:
    made = jax.device_get(encoded)
    for place, block in enumerate(batch):
        yield block.terms, jax.tree.map(lambda array, place=place: array[place], made)


# -------------------------------------------------------------------------------------------------
# Encoding of many terms: each distinct term once, in packed rows, on all local devices.
#
# Terms are tokenized in chunks (the next one while the devices work on this one), packed into rows
# of 128 tokens, and the rows dealt out into blocks of one static shape, one block per
# device at a time. A call compiles one shape, and a second, smaller one for what fits in it; a term
# or two have a third, one short row. The few long terms among many short ones are encoded apart, in
# shapes of their own. All may be stopped between two batches (`data_pipeline.process`).

_CHUNK_TERMS = 1 << 17
# Rows per device and batch: enough to use the machine, few enough to stay in a CPU's caches.
_ROWS_CPU, _ROWS_ACCELERATOR = 16, 512


def embed_terms(
    placed: Placed,
    tokenizer: Tokenizer,
    terms: Sequence[str],
    *,
    pooling: str,
    max_length: int,
    attend_padding: bool = False,
    unit: bool = True,
    progress: bool = False,
) -> np.ndarray:
    """Encodes terms; float32 [n, D], in the order of `terms`, aligned for `search`.

    Args:
      placed: the encoder, from `place`; its dtype is the compute dtype.
      tokenizer: the encoder's own, without padding and truncation.
      terms: n strings; equal strings are encoded once. An empty one is [CLS] [SEP].
      pooling: 'cls', 'mean' or 'pooler'.
      max_length: longest term in tokens, special tokens included; longer terms are cut.
      attend_padding: pad each term to `max_length` and let it attend to the padding, as the
        published CODER checkpoints were trained and evaluated. Slower; only for those.
      unit: vectors of length 1; else as they come out of the pooling.
      progress: show a progress bar on stderr.

    Raises:
      BadInput: `max_length` is more than the positions that the encoder has.
      Stopped: a signal asked for it.
    """

    def encode(chunks: Iterable[Sequence[str]], bar: Progress) -> Iterator[np.ndarray]:
        return embed_chunks(
            placed,
            tokenizer,
            chunks,
            pooling=pooling,
            max_length=max_length,
            attend_padding=attend_padding,
            unit=unit,
            bar=bar,
        )

    return embed_distinct(terms, placed.config.hidden_size, _CHUNK_TERMS, encode, progress=progress)


def embed_distinct(
    terms: Sequence[str],
    width: int,
    chunk: int,
    encode: Callable[[Iterable[Sequence[str]], Progress], Iterator[np.ndarray]],
    *,
    progress: bool,
) -> np.ndarray:
    """float32 [n, D]: the vectors of terms in their order, each distinct term encoded once.

    Args:
      terms: n strings.
      width: D.
      chunk: distinct terms that are encoded together.
      encode: from chunks of terms, and a bar that it moves, to the vectors of each chunk.
      progress: show a progress bar on stderr.
    """
    slot = {term: i for i, term in enumerate(dict.fromkeys(terms))}
    distinct = list(slot)
    starts = range(0, len(distinct), chunk)
    vectors = aligned((len(distinct), width), np.float32)
    bar = progress_bar(total=len(distinct), unit=" terms", desc="encoding", disable=not progress)
    with bar:
        encoded = encode((distinct[first : first + chunk] for first in starts), bar)
        for first, part in zip(starts, encoded, strict=True):
            vectors[first : first + len(part)] = part
    if len(distinct) == len(terms):
        return vectors
    places = np.fromiter((slot[term] for term in terms), np.int64, len(terms))
    repeated = aligned((len(terms), width), np.float32)
    return np.take(vectors, places, axis=0, out=repeated, mode="clip")  # "raise" would copy


def embed_on_all_hosts(encode: Callable[[list[str]], np.ndarray], strings: list[str]) -> np.ndarray:
    """float32 [n, D]: the vectors of strings, of which each host of a run encodes its share.

    All hosts call it with the same strings and an encoder of the same parameters. A vector depends
    on the other strings of its host by rounding alone.

    Raises:
        Stopped: on all hosts, if one of them was asked to stop meanwhile.
    """
    hosts = host_count()
    if hosts == 1 or not strings:
        return encode(strings)
    mine: np.ndarray | None = None
    with suppress(process.Stopped):
        # The last ones again where they do not divide: all have as many.
        share = range(host_index(), -(-len(strings) // hosts) * hosts, hosts)
        mine = encode([strings[min(number, len(strings) - 1)] for number in share])
    if multihost_utils.process_allgather(np.int32(mine is None)).any():
        raise process.Stopped
    by_host = multihost_utils.process_allgather(mine)
    vectors = aligned((len(strings), by_host.shape[2]), np.float32)
    for host, part in enumerate(by_host):
        vectors[host::hosts] = part[: len(range(host, len(strings), hosts))]
    return vectors


def embed_chunks(
    placed: Placed,
    tokenizer: Tokenizer,
    chunks: Iterable[Sequence[str]],
    *,
    pooling: str,
    max_length: int,
    attend_padding: bool = False,
    unit: bool = True,
    bar: Progress | None = None,
) -> Iterator[np.ndarray]:
    """As `embed_terms`, for each of many lists of terms in turn.

    A list's vectors depend on nothing outside it; its equal strings are encoded once.

    Args:
      chunks: lists of terms; read one ahead, in another thread.
      bar: a progress bar that counts terms.
    """
    longest = placed.config.longest_term
    if max_length > longest:
        raise BadInput(
            f"max_length (--max-length) is {max_length}, but the encoder has {longest} positions; "
            f"give {longest} or less"
        )
    pad = placed.config.pad_token_id if attend_padding else None

    waiting = iter(chunks)

    def tokenize_next() -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        terms = next(waiting, None)
        if terms is None:
            return None
        slot = {term: i for i, term in enumerate(dict.fromkeys(terms))}
        slots = np.fromiter((slot[term] for term in terms), np.int64, len(terms))
        tokens, start = tokenize(tokenizer, list(slot), max_length)
        if pad is not None:
            tokens, start = _pad_terms(tokens, start, max_length, pad)
        return tokens, start, slots

    with ThreadPoolExecutor(1) as background:
        upcoming = background.submit(tokenize_next)
        while (tokenized := upcoming.result()) is not None:
            upcoming = background.submit(tokenize_next)
            tokens, start, slots = tokenized
            vectors = embed_tokens(placed, tokens, start, pooling=pooling, unit=unit, bar=bar)
            if bar is not None:
                bar.update(len(slots) - len(vectors))
            yield vectors if len(vectors) == len(slots) else vectors[slots]


class Placed(NamedTuple):
    """An encoder whose parameters are on every local device."""

    mesh: Mesh
    config: BertConfig
    params: Any
    vectors: Any
    """`_block_vectors`, compiled, of the parameters."""

    @property
    def rows(self) -> int:
        """Packed rows per device and batch, for this machine."""
        return _ROWS_CPU if self.mesh.devices[0].platform == "cpu" else _ROWS_ACCELERATOR


def place(bert: Bert) -> Placed:
    """Copies the parameters of an encoder to every local device."""
    mesh = local_mesh()
    structure, params = split_encoder(bert)
    vectors = compiled(_block_vectors, structure, "num_terms", "pooling", "unit", "window")
    return Placed(mesh, bert.config, jax.device_put(params, replicated(mesh)), vectors)


def embed_tokens(
    placed: Placed,
    tokens: np.ndarray,
    start: np.ndarray,
    *,
    pooling: str,
    unit: bool = True,
    bar: Progress | None = None,
) -> np.ndarray:
    """As `embed_terms`, for terms that are already tokenized.

    Args:
      placed: the encoder, from `place`.
      tokens: int32 [sum of lengths], special tokens included.
      start: int64 [n + 1]; term i is tokens[start[i]:start[i + 1]].
      bar: a progress bar that counts terms.
    """
    vectors = np.empty((len(start) - 1, placed.config.hidden_size), np.float32)

    def encode(arrays: _Arrays, window: int, slots: int) -> jax.Array:
        how = {"num_terms": slots, "pooling": pooling, "unit": unit, "window": window}
        return placed.vectors(placed.params, arrays, **how)

    def beside(block: _Block, slots: int) -> _Arrays:
        return {"positions": block.positions}

    for numbers, made in _in_blocks(placed, tokens, start, encode, beside):
        vectors[numbers] = made[: len(numbers)]
        if bar is not None:
            bar.update(len(numbers))
    return vectors


def _block_vectors(
    bert: Bert, arrays: _Arrays, *, num_terms: int, pooling: str, unit: bool, window: int
) -> jax.Array:
    """Vectors of the terms in each block, float32 [B, N, D]; zeros in empty slots."""

    def one_block(block: _Arrays) -> jax.Array:
        tokens_RL, positions_RL, segments_RL = (
            block[name].reshape(-1, window) for name in ("tokens", "positions", "segments")
        )
        vectors_ND = bert.term_vectors(tokens_RL, positions_RL, segments_RL, num_terms, pooling)
        if not unit:
            return vectors_ND
        norm_N1 = jnp.linalg.norm(vectors_ND, axis=-1, keepdims=True)
        return vectors_ND / jnp.maximum(norm_N1, 1e-12)

    return jax.vmap(one_block)(arrays)


# -------------------------------------------------------------------------------------------------
# Encoding of many names by an encoder of names, in packed rows.
#
# The input to the gates of the LSTM over words is computed once for each distinct word of a
# chunk; for each name only the recurrence is left.

# Packed rows per device and batch; many, as an LSTM goes token by token.
_NAME_ROWS_CPU, _NAME_ROWS_ACCELERATOR = 64, 1024
_LEAST_WORDS = 1 << 10  # the table of a chunk has a power of two of rows: few shapes to compile


class PlacedNames(NamedTuple):
    """An encoder of names whose parameters are on every local device."""

    mesh: Mesh
    config: NameEncoderConfig
    params: Any

    @property
    def rows(self) -> int:
        """Packed rows per device and batch, for this machine."""
        return _NAME_ROWS_CPU if self.mesh.devices[0].platform == "cpu" else _NAME_ROWS_ACCELERATOR


def place_names(config: NameEncoderConfig, params: Any) -> PlacedNames:
    """Copies the parameters of an encoder to every local device."""
    mesh = local_mesh()
    return PlacedNames(mesh, config, jax.device_put(params, replicated(mesh)))


def embed_names(
    placed: PlacedNames,
    alphabet: Alphabet,
    vectors: StringVectors,
    names: Sequence[str],
    *,
    most_words: int,
    unit: bool = True,
    bar: Progress | None = None,
) -> np.ndarray:
    """Vectors of names, float32 [n, D], in their order.

    Args:
        placed: the encoder, of `place`.
        alphabet: its characters.
        vectors: of words; a word that it lacks has its characters alone.
        names: n strings.
        most_words: of a longer name so many count.
        unit: vectors of length 1; else as they are.
        bar: a progress bar that counts names.

    Raises:
        Stopped: a signal asked for it.
    """
    words, tokens, start = numbered([words_of(name)[:most_words] for name in names])
    gates = _gates_of_words(placed, WordTable.of(words, alphabet, vectors))
    found = np.empty((len(names), placed.config.width), np.float32)

    def encode(arrays: _Arrays, window: int, slots: int) -> jax.Array:
        how = {"config": placed.config, "window": window, "slots": slots, "unit": unit}
        return _vectors_of_block(placed.params, gates, arrays, **how)

    for numbers, made in _in_blocks(placed, tokens, start, encode):
        found[numbers] = made[: len(numbers)]
        if bar is not None:
            bar.update(len(numbers))
    return found


def _gates_of_words(placed: PlacedNames, table: WordTable) -> dict[str, jax.Array]:
    """For each of DIRECTIONS: the gate inputs of each word of a table, [words, rounded up, G]."""
    size = max(_LEAST_WORDS, 1 << (len(table.kinds) - 1).bit_length())
    width = placed.params["name"]["forward"]["bias"].shape[0]
    found = {name: np.zeros((size, width), np.float32) for name in DIRECTIONS}

    def encode(arrays: _Arrays, window: int, slots: int) -> Any:
        return _gates_of_block(placed.params, arrays, config=placed.config, window=window)

    def beside(block: _Block, slots: int) -> _Arrays:
        kinds = np.zeros(slots, np.int32)
        vectors = np.zeros((slots, placed.config.width), np.float32)
        kinds[: len(block.terms)] = table.kinds[block.terms]
        vectors[: len(block.terms)] = table.vectors_of(block.terms)
        return {"word_kinds": kinds, "word_vectors": vectors}

    spelled = table.characters, table.start
    for numbers, made in _in_blocks(placed, *spelled, encode, beside):
        for name in DIRECTIONS:
            found[name][numbers] = made[name][: len(numbers)]
    return jax.device_put(found, replicated(placed.mesh))


@partial(jax.jit, static_argnames=("config", "window"))
def _gates_of_block(
    params: Any, arrays: _Arrays, *, config: NameEncoderConfig, window: int
) -> dict[str, jax.Array]:
    """For each of DIRECTIONS: the gate inputs of each block's words, float32 [devices, slots,
    G].
    """

    def of_one(block: _Arrays) -> dict[str, jax.Array]:
        spelled = {"characters": block["tokens"], "spelled": block["segments"]}
        rows = {name: array.reshape(-1, window) for name, array in spelled.items()}
        words = word_representations(config, params, {**block, **rows})
        return gate_inputs(params["name"], words, config.cell)

    return jax.vmap(of_one)(arrays)


@partial(jax.jit, static_argnames=("config", "window", "slots", "unit"))
def _vectors_of_block(
    params: Any,
    gates: Mapping[str, jax.Array],
    arrays: _Arrays,
    *,
    config: NameEncoderConfig,
    window: int,
    slots: int,
    unit: bool,
) -> jax.Array:
    """Vectors of the names of each block, float32 [devices, slots, D]."""

    def of_one(block: _Arrays) -> jax.Array:
        words, segments = (block[name].reshape(-1, window) for name in ("tokens", "segments"))
        into = {name: table[words] for name, table in gates.items()}
        vectors = vectors_of_gates(config, params, into, segments, slots)
        if not unit:
            return vectors
        norm = jnp.linalg.norm(vectors, axis=-1, keepdims=True)
        return vectors / jnp.maximum(norm, 1e-12)

    return jax.vmap(of_one)(arrays)
