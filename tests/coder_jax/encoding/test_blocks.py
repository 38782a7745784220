"""Blocks of packed rows: each term once and whole, few shapes, full rows, short windows."""

import numpy as np
import pytest

from coder_jax.encoding import blocks
from coder_jax.encoding.blocks import (
    TOKENS_PER_TERM,
    batches_by_length,
    batches_of_blocks,
    pad_terms,
)


def test_blocks_hold_each_term_once_whole_and_within_their_slots():
    rng = np.random.default_rng(0)
    # Mostly the shortest terms there are: a block has fewer slots than they would fill.
    lengths = np.where(rng.random(3400) < 0.99, 3, rng.integers(3, 33, 3400))
    start = np.concatenate([[0], np.cumsum(lengths)])
    tokens = rng.integers(1, 9, start[-1]).astype(np.int32)
    seen = np.zeros(3400, int)
    for batch in batches_of_blocks(tokens, start, 8, 4):
        assert len(batch) == 4
        for block in batch:
            assert block.tokens.shape == block.positions.shape == block.segments.shape == (8, 128)
            assert len(block.terms) <= 8 * 128 // TOKENS_PER_TERM
            assert block.segments.max(initial=0) == len(block.terms)
            for slot, term in enumerate(block.terms, start=1):
                inside = block.segments == slot
                expected = tokens[start[term] : start[term + 1]]
                np.testing.assert_array_equal(block.tokens[inside], expected)
                np.testing.assert_array_equal(block.positions[inside], np.arange(len(expected)))
                assert inside.any(axis=1).sum() == 1
            seen[block.terms] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize(("longest", "row_length"), [(5, 128), (128, 128), (129, 256), (300, 384)])
def test_rows_are_as_long_as_the_longest_term_needs(longest, row_length):
    tokens = np.ones(longest + 3, np.int32)
    ((block,),) = batches_of_blocks(tokens, np.array([0, longest, longest + 3]), 4, 1)
    assert block.tokens.shape == (2, row_length)  # the small shape has two rows here


def test_rows_are_full():
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.gamma(4, 2.3, 20000).astype(int), 3, 32)
    start = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.ones(start[-1], np.int32)
    blocks = [block for batch in batches_of_blocks(tokens, start, 16, 1) for block in batch]
    places = len(blocks) * 16 * 128
    assert start[-1] / places > 0.97


def test_padding_terms_that_attend_to_it():
    tokens, start = pad_terms(np.array([2, 7, 3, 2, 3], np.int32), np.array([0, 3, 5]), 4, 0)
    assert tokens.tolist() == [2, 7, 3, 0, 2, 3, 0, 0]
    assert start.tolist() == [0, 4, 8]


@pytest.mark.parametrize(("longest", "window"), [(64, 64), (65, 128), (129, 256)])
def test_no_term_crosses_a_window(longest, window):
    rng = np.random.default_rng(0)
    lengths = np.append(rng.integers(3, 20, 500), longest)
    start = np.concatenate([[0], np.cumsum(lengths)])
    for (block,) in batches_of_blocks(np.ones(start[-1], np.int32), start, 8, 1):
        assert block.window == window and block.tokens.shape[1] % window == 0
        rows, columns = np.nonzero(block.segments)
        windows = rows * 1000 + columns // window
        for slot in range(1, len(block.terms) + 1):
            inside = block.segments[rows, columns] == slot
            assert len(np.unique(windows[inside])) == 1


def test_terms_longer_than_a_window_come_after_many_short_ones(monkeypatch):
    monkeypatch.setattr(blocks, "BATCHES_WORTH_A_SHAPE", 2)
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 20, 700)
    lengths[[5, 300]] = 70, 150
    start = np.concatenate([[0], np.cumsum(lengths)])
    tokens = rng.integers(1, 9, start[-1]).astype(np.int32)
    shapes, seen = [], np.zeros(700, int)
    for batch in batches_by_length(tokens, start, 8, 2):
        shapes.append({(block.window, block.tokens.shape) for block in batch})
        for block in batch:
            for slot, term in enumerate(block.terms, start=1):
                expected = tokens[start[term] : start[term + 1]]
                np.testing.assert_array_equal(block.tokens[block.segments == slot], expected)
            seen[block.terms] += 1
    assert (seen == 1).all()
    assert shapes[-1] == {(256, (2, 256))} and len(shapes) > 2
    assert all(shape == {(64, (8, 128))} for shape in shapes[:-1])
    # Too few to be worth another shape: all together.
    monkeypatch.setattr(blocks, "BATCHES_WORTH_A_SHAPE", 100)
    assert {
        block.window for batch in batches_by_length(tokens, start, 8, 2) for block in batch
    } == {256}
