"""Batches stay as they are: hashes of some of an invented dataset, so that none changes unseen."""

import hashlib

import numpy as np
import pytest
from tiny_dataset import tiny_dataset

from data_pipeline.batches.batch_maker import BatchMaker
from data_pipeline.batches.spec import BatchSpec, NeighbourSpec, StepCut, TermSpec

GOLDEN = {
    "relations": (
        BatchSpec(groups=4, triplets=8, repeats=4, corrupted_tails=True),
        "ba6b14d67b4c089d",
    ),
    "concepts": (
        BatchSpec(draw="concepts", names="distinct", groups=4, triplets=8, repeats=3),
        "c87774796c48bf10",
    ),
    "unlike": (
        BatchSpec(draw="synonyms", names="unlike", groups=4, triplets=8, repeats=2),
        "9d533c1df69dc5a8",
    ),
    "languages": (
        BatchSpec(names="languages", groups=4, triplets=8, repeats=2),
        "533e39b9c460d871",
    ),
    "filled": (
        BatchSpec(names="distinct", groups=4, fill_pairs=21, semantic_types=True),
        "c2025e4a2509698c",
    ),
    "pairs": (BatchSpec(draw="pairs", groups=4, triplets=16, repeats=1), "14e40c5f06c95ce7"),
    "terms": (TermSpec(terms=64, groups=4), "cde7d57fafc0521e"),
    "neighbours": (
        NeighbourSpec(groups=4, triplets=8, repeats=4, neighbours=5, mined_share=0.5),
        "86c79eb84c31141d",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_batches_are_those_of_every_version(name):
    spec, expected = GOLDEN[name]
    dataset = tiny_dataset(concepts=60, triplets=150, vocabulary=7)
    maker = BatchMaker(dataset, spec, StepCut(passes=2, blocks=2))
    found = hashlib.sha256(repr(maker.plan.sizes).encode())
    for step in (0, 1, 1000, 2**33):
        for array_name, array in sorted(maker.batch(step).items()):
            assert array.dtype == np.int32
            found.update(f"{array_name} {array.shape}".encode())
            found.update(np.ascontiguousarray(array, "<i4").tobytes())
    assert found.hexdigest()[:16] == expected
