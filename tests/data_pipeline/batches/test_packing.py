"""Packing: the textbook algorithm as twin, nothing lost, nothing split."""

import itertools

import numpy as np
import pytest
from tiny_dataset import tiny_dataset

from data_pipeline.batches.batch_maker import BatchMaker
from data_pipeline.batches.packing import (
    MOST_SHAPES,
    _choose_sizes,
    batch_shapes,
    first_fit_decreasing,
    pack_rows,
    packed_lengths,
    plan_rows,
)
from data_pipeline.batches.spec import BatchSpec, StepCut
from data_pipeline.process import BadInput


def naive_first_fit_decreasing(lengths, row_length):
    used, row, offset = [], {}, {}
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        for r in range(len(used) + 1):
            if r == len(used):
                used.append(0)
            if used[r] + lengths[i] <= row_length:
                row[i], offset[i] = r, used[r]
                used[r] += lengths[i]
                break
    order = range(len(lengths))
    return np.array([row[i] for i in order]), np.array([offset[i] for i in order])


@pytest.mark.parametrize("seed", range(20))
def test_equals_the_textbook_algorithm(seed):
    rng = np.random.default_rng(seed)
    row_length = int(rng.integers(8, 130))
    lengths = rng.integers(1, row_length + 1, size=int(rng.integers(1, 300)))
    for got, want in zip(
        first_fit_decreasing(lengths, row_length),
        naive_first_fit_decreasing(lengths, row_length),
        strict=True,
    ):
        np.testing.assert_array_equal(got, want)


def test_rows_hold_every_sequence_whole():
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 33, size=500)
    start = np.concatenate([[0], np.cumsum(lengths)])
    tokens = rng.integers(1, 1000, size=start[-1]).astype(np.int32)
    packed = pack_rows(tokens, start, 128)
    for i in range(500):
        row, column = np.nonzero(packed["segments"] == i + 1)
        assert (row == row[0]).all()
        np.testing.assert_array_equal(
            packed["tokens"][row, column], tokens[start[i] : start[i + 1]]
        )
        np.testing.assert_array_equal(packed["positions"][row, column], np.arange(lengths[i]))
    padding = packed["segments"] == 0
    assert (packed["tokens"][padding] == 0).all() and (packed["positions"][padding] == 0).all()
    assert 1 - padding.mean() > 0.98


def test_padded_rows_and_a_slice_of_a_longer_token_array():
    tokens = np.arange(100, 110, dtype=np.int32)
    packed = pack_rows(tokens, np.array([2, 5, 7]), 8, rows=3)
    assert packed["tokens"].shape == (3, 8)
    np.testing.assert_array_equal(packed["tokens"][0], [102, 103, 104, 105, 106, 0, 0, 0])
    assert packed["segments"].max() == 2 and not packed["segments"][1:].any()


def test_nothing_to_pack():
    assert pack_rows(np.zeros(0, np.int32), np.array([0]), 8)["tokens"].shape == (0, 8)


def test_messages():
    with pytest.raises(BadInput, match="sequence of 9 tokens into rows of 8"):
        first_fit_decreasing(np.array([3, 9]), 8)
    with pytest.raises(BadInput, match="sequence of 0 tokens"):
        first_fit_decreasing(np.array([3, 0]), 8)
    with pytest.raises(BadInput, match="need 2 rows of 8 tokens, but only 1"):
        pack_rows(np.ones(10, np.int32), np.array([0, 5, 10]), 8, rows=1)


def rows_computed(needed, sizes):
    return sum(min(size for size in sizes if size >= rows) for rows in needed)


@pytest.mark.parametrize("worth", [0.03, 0.1])
@pytest.mark.parametrize("seed", range(5))
def test_the_sizes_are_the_best_of_all_choices(seed, worth):
    """Also of those of a step more: each size saves its part, and one more would not."""
    rng = np.random.default_rng(seed)
    needed = np.round(rng.normal(40, rng.choice([1, 2, 4]), 40)).clip(30).astype(int)
    ample = needed.max() + int(rng.integers(0, 40))
    sizes = _choose_sizes(needed, ample, worth)
    assert list(sizes) == sorted(set(sizes)) and sizes[-1] == ample and len(sizes) <= MOST_SHAPES

    def best(more):
        choices = itertools.combinations(np.unique(needed), more)
        return min(rows_computed(needed, (*choice, ample)) for choice in choices)

    found = rows_computed(needed, sizes)
    more = len(set(sizes) - {ample})
    assert found == best(more)
    if more:
        assert found <= (1 - worth) * best(more - 1)
    if len(sizes) < MOST_SHAPES and ample not in needed and more < len(np.unique(needed)):
        assert best(more + 1) > (1 - worth) * found


def test_steps_that_all_need_the_same_have_one_size_and_the_ample_one():
    assert _choose_sizes(np.full(50, 30), 40, 0.1) == (30, 40)
    assert _choose_sizes(np.full(50, 40), 40, 0.1) == (40,)


def test_there_are_never_too_many_sizes():
    assert len(_choose_sizes(np.arange(20, 60), 80, 1e-6)) == MOST_SHAPES
    usual, ample = _choose_sizes(np.arange(20, 60), 80, 1e-6, shapes=2)
    assert ample == 80 and rows_computed(range(20, 60), (usual, 80)) == min(
        rows_computed(range(20, 60), (size, 80)) for size in range(20, 60)
    )


def test_a_short_run_compiles_less():
    rng = np.random.default_rng(0)
    spec = BatchSpec(groups=1, triplets=64, repeats=2, row_length=32)
    lengths = rng.integers(3, 20, (60, 1, 256)) + rng.integers(0, 3, (60, 1, 1))
    counts = [
        len(plan_rows(lengths, spec, StepCut(), run_steps=steps).sizes)
        for steps in (10, 240, 100_000)
    ]
    assert counts[0] == 1 < counts[1] < counts[2] <= MOST_SHAPES


# -------------------------------------------------------------------------------------------------
# The shapes that are told of batches, beside those of batches that are made.

SPEC = BatchSpec(groups=8, triplets=4, repeats=2, row_length=32)
V1 = BatchSpec(
    groups=8, triplets=4, repeats=2, row_length=32, corrupted_tails=True, semantic_types=True
)


@pytest.mark.parametrize("spec", [SPEC, V1], ids=["coder", "v1"])
def test_batches_have_the_shapes_that_are_told(spec):
    maker = BatchMaker(tiny_dataset(concepts=60, triplets=150), spec)
    shapes = batch_shapes(spec, StepCut(), maker.plan.ample)
    assert {name: array.shape for name, array in next(maker.batches(0, 1)).items()} == shapes


def test_shapes_of_a_batch():
    shapes = batch_shapes(SPEC, StepCut(passes=2, blocks=4), 5)
    assert shapes["tokens"] == (2, 4, 5, 32)
    assert shapes["concepts"] == (2, 4, 1, 16) and shapes["relations"] == (2, 4, 1, 4)


def test_a_host_s_batch_has_its_own_blocks():
    shapes = batch_shapes(SPEC, StepCut(passes=2, blocks=4, first=1, last=3), 5)
    assert shapes["tokens"] == (2, 2, 5, 32)
    assert shapes["concepts"] == (2, 2, 1, 16) and shapes["relations"] == (2, 2, 1, 4)


def test_the_lengths_of_packed_terms():
    """Blocks [2, 1, R, L] with terms of 3, 2 | 4 and 1, 2 | none tokens; a row may be full."""
    segments = np.array([[[[1, 1, 1, 2, 2], [3, 3, 3, 3, 0]]], [[[1, 2, 2, 0, 0], [0] * 5]]])
    positions = np.array([[[[0, 1, 2, 0, 1], [0, 1, 2, 3, 0]]], [[[0, 0, 1, 0, 0], [0] * 5]]])
    found = packed_lengths({"segments": segments, "positions": positions})
    np.testing.assert_array_equal(found, [3, 2, 4, 1, 2])
    assert packed_lengths({"classes": segments}).size == 0
