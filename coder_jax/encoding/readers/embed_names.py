"""Many names in, vectors out, by an encoder of names: words of a chunk read once, packed rows.

What a word gives to the gates of the LSTM over words is made once for each distinct word of a
chunk; of a name only the recurrence is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from coder_jax.devices.mesh import local_mesh, replicated
from coder_jax.encoding.blocks import TOKENS_PER_TERM, Block, batches_by_length
from coder_jax.models.names.lstm import DIRECTIONS, gate_inputs
from coder_jax.models.names.name_encoder import (
    NameEncoderConfig,
    vectors_of_gates,
    word_representations,
)
from data_pipeline.batches.names.alphabet import Alphabet
from data_pipeline.batches.names.word_table import WordTable, numbered
from data_pipeline.process import stopping
from data_pipeline.process.progress import Progress
from data_pipeline.skip_gram.store import VectorTable
from data_pipeline.sources.text.words import words_of

# Packed rows per device and batch: an LSTM goes token by token, so that many rows go together.
ROWS_CPU, ROWS_ACCELERATOR = 64, 1024
LEAST_WORDS = 1 << 10  # the table of a chunk has a power of two of rows: few shapes to compile
Arrays = Mapping[str, Any]


class Placed(NamedTuple):
    """An encoder with its parameters on every local device."""

    mesh: Mesh
    config: NameEncoderConfig
    params: Any

    @property
    def rows(self) -> int:
        """Packed rows per device and batch, for this machine."""
        return ROWS_CPU if self.mesh.devices[0].platform == "cpu" else ROWS_ACCELERATOR


def place(config: NameEncoderConfig, params: Any) -> Placed:
    """Copies the parameters of an encoder to every local device."""
    mesh = local_mesh()
    return Placed(mesh, config, jax.device_put(params, replicated(mesh)))


def embed_names(
    placed: Placed,
    alphabet: Alphabet,
    vectors: VectorTable,
    names: Sequence[str],
    *,
    most_words: int,
    unit: bool = True,
    rows: int | None = None,
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
        rows: packed rows per device and batch; chosen for the machine if None.
        bar: a progress bar that counts names.

    Raises:
        Stopped: a signal asked for it.
    """
    rows = rows or placed.rows
    words, tokens, start = numbered([words_of(name)[:most_words] for name in names])
    gates = _gates_of_words(placed, WordTable.of(words, alphabet, vectors), rows)
    found = np.empty((len(names), placed.config.width), np.float32)

    def encode(arrays: Arrays, window: int, slots: int) -> jax.Array:
        how = {"config": placed.config, "window": window, "slots": slots, "unit": unit}
        return vectors_of_block(placed.params, gates, arrays, **how)

    for numbers, made in _in_blocks(placed, tokens, start, rows, encode):
        found[numbers] = made[: len(numbers)]
        if bar is not None:
            bar.update(len(numbers))
    return found


def _gates_of_words(placed: Placed, table: WordTable, rows: int) -> dict[str, jax.Array]:
    """Of DIRECTIONS what each word of a table gives to the gates, [words, rounded up, G] each."""
    size = max(LEAST_WORDS, 1 << (len(table.kinds) - 1).bit_length())
    width = placed.params["name"]["forward"]["bias"].shape[0]
    found = {name: np.zeros((size, width), np.float32) for name in DIRECTIONS}

    def encode(arrays: Arrays, window: int, slots: int) -> Any:
        return gates_of_block(placed.params, arrays, config=placed.config, window=window)

    def beside(block: Block, slots: int) -> Arrays:
        kinds = np.zeros(slots, np.int32)
        vectors = np.zeros((slots, placed.config.width), np.float32)
        kinds[: len(block.terms)] = table.kinds[block.terms]
        vectors[: len(block.terms)] = table.vectors_of(block.terms)
        return {"word_kinds": kinds, "word_vectors": vectors}

    spelled = table.characters, table.start
    for numbers, made in _in_blocks(placed, *spelled, rows, encode, beside):
        for name in DIRECTIONS:
            found[name][numbers] = made[name][: len(numbers)]
    return jax.device_put(found, replicated(placed.mesh))


def _in_blocks(
    placed: Placed,
    tokens: np.ndarray,
    start: np.ndarray,
    rows: int,
    encode: Callable[[Arrays, int, int], Any],
    beside: Callable[[Block, int], Arrays] | None = None,
) -> Iterator[tuple[np.ndarray, Any]]:
    """(numbers of sequences, what `encode` makes of them) of each block of packed rows.

    Args:
        placed: whose devices have one block each.
        tokens, start: sequence i is tokens[start[i] : start[i + 1]].
        rows: packed rows per device and batch.
        encode: of arrays [devices, ...], `tokens`, `segments` and what is beside; of the window, as
            in `blocks.Block`; and of the slots for sequences in a block.
        beside: further arrays of a block with so many slots.
    """
    under_way: tuple[list[Block], Any] | None = None
    for batch in batches_by_length(tokens, start, rows, placed.mesh.size):
        stopping.poll()
        slots = batch[0].tokens.size // TOKENS_PER_TERM
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


def _fetched(batch: list[Block], encoded: Any) -> Iterator[tuple[np.ndarray, Any]]:
    made = jax.device_get(encoded)
    for place, block in enumerate(batch):
        yield block.terms, jax.tree.map(lambda array, place=place: array[place], made)


@partial(jax.jit, static_argnames=("config", "window"))
def gates_of_block(
    params: Any, arrays: Arrays, *, config: NameEncoderConfig, window: int
) -> dict[str, jax.Array]:
    """Of DIRECTIONS float32 [devices, slots, G]: what the words of each block give to the gates."""

    def of_one(block: Arrays) -> dict[str, jax.Array]:
        spelled = {"characters": block["tokens"], "spelled": block["segments"]}
        rows = {name: array.reshape(-1, window) for name, array in spelled.items()}
        words = word_representations(config, params, {**block, **rows})
        return gate_inputs(params["name"], words, config.cell)

    return jax.vmap(of_one)(arrays)


@partial(jax.jit, static_argnames=("config", "window", "slots", "unit"))
def vectors_of_block(
    params: Any,
    gates: Mapping[str, jax.Array],
    arrays: Arrays,
    *,
    config: NameEncoderConfig,
    window: int,
    slots: int,
    unit: bool,
) -> jax.Array:
    """Vectors of the names of each block, float32 [devices, slots, D]."""

    def of_one(block: Arrays) -> jax.Array:
        words, segments = (block[name].reshape(-1, window) for name in ("tokens", "segments"))
        into = {name: table[words] for name, table in gates.items()}
        vectors = vectors_of_gates(config, params, into, segments, slots)
        if not unit:
            return vectors
        norm = jnp.linalg.norm(vectors, axis=-1, keepdims=True)
        return vectors / jnp.maximum(norm, 1e-12)

    return jax.vmap(of_one)(arrays)
