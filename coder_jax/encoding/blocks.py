"""Tokenized terms in, blocks of packed rows out: what one device encodes at a time.

All blocks of a call have one static shape, or few where some terms are much longer than most.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from data_pipeline.batches.packing import pack_rows

ROW_LENGTH = 128
# Attention over 128 tokens is mostly to other terms, which it then leaves out: where all terms of a
# block fit into windows of 64, each window is a row of its own to the encoder.
WINDOW = 64
# Another shape takes as long to compile as so many batches to encode.
BATCHES_WORTH_A_SHAPE = 16
SMALL_FRACTION = 8  # the smaller shape has this part of the rows
TOKENS_PER_TERM = 4  # slots for terms in a block: one per so many tokens


class Block(NamedTuple):
    """What one device encodes at a time."""

    tokens: np.ndarray  # int32 [R, L]
    positions: np.ndarray
    segments: np.ndarray  # 1 + slot of the term within the block
    terms: np.ndarray  # int64 [terms in the block]: the number of the term in each slot
    window: int  # no term crosses a multiple of it, counted along its row


def batches_by_length(
    tokens: np.ndarray, start: np.ndarray, rows: int, devices: int
) -> Iterator[list[Block]]:
    """As `batches_of_blocks`; many terms that fit into a window first, longer ones after them."""
    lengths = np.diff(start)
    is_short = lengths <= WINDOW
    enough = BATCHES_WORTH_A_SHAPE * rows * ROW_LENGTH * devices
    if is_short.all() or lengths[is_short].sum() < enough:
        yield from batches_of_blocks(tokens, start, rows, devices)
        return
    for chosen in (is_short, ~is_short):
        numbers = np.flatnonzero(chosen)
        part = tokens[start[0] : start[-1]][np.repeat(chosen, lengths)]
        part_start = np.concatenate([[0], np.cumsum(lengths[numbers])])
        for batch in batches_of_blocks(part, part_start, rows, devices):
            yield [block._replace(terms=numbers[block.terms]) for block in batch]


def batches_of_blocks(
    tokens: np.ndarray, start: np.ndarray, rows: int, devices: int
) -> Iterator[list[Block]]:
    """Packs terms and yields one block per device at a time, all of one shape.

    Rows are dealt out in turn: packing puts long terms first, and blocks of equal work have equal
    numbers of terms, which keeps the static number of slots small.
    """
    if len(start) < 2:
        return
    longest = int(np.diff(start).max())
    row_length = -(-longest // ROW_LENGTH) * ROW_LENGTH  # few shapes for long terms, too
    window = WINDOW if longest <= WINDOW else row_length
    per_row = row_length // window
    packed = {
        name: padded_rows(array, -(-len(array) // per_row) * per_row).reshape(-1, row_length)
        for name, array in pack_rows(tokens, start, window).items()
    }
    is_first = (packed["positions"] == 0) & (packed["segments"] > 0)
    terms_per_row = is_first.sum(axis=1)
    needed = len(terms_per_row)
    small = max(2, rows // SMALL_FRACTION)
    rows = small if needed <= small * devices else rows
    slots = rows * row_length // TOKENS_PER_TERM
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

    def block(number: int) -> Block:
        tokens, positions, segments = (
            padded_rows(packed[name][number::blocks], rows)
            for name in ("tokens", "positions", "segments")
        )
        return Block(tokens, positions, segments, dealt[number], window)

    for first in range(0, blocks, devices):
        yield [block(number) for number in range(first, first + devices)]


def padded_rows(array: np.ndarray, rows: int) -> np.ndarray:
    """Rows of padding added up to `rows`."""
    return np.pad(array, ((0, rows - len(array)), (0, 0)))


def pad_terms(
    tokens: np.ndarray, start: np.ndarray, length: int, pad_token: int
) -> tuple[np.ndarray, np.ndarray]:
    """Every term filled up to `length` tokens with the padding token, which it then attends to."""
    lengths = np.diff(start)
    padded = np.full((len(lengths), length), pad_token, np.int32)
    padded[np.arange(length) < lengths[:, None]] = tokens
    return padded.reshape(-1), np.arange(len(lengths) + 1, dtype=np.int64) * length
