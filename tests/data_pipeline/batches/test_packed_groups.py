"""The shapes that are told of batches, beside those of batches that are made."""

import pytest
from tiny_dataset import tiny_dataset

from data_pipeline.batches.packed_groups import batch_shapes
from data_pipeline.batches.spec import BatchSpec, StepCut
from data_pipeline.batches.stream import BatchMaker

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
