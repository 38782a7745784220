"""How fast batches come: what is counted of them."""

import itertools
import types

import numpy as np

from benchmarks.stream import MADE_AHEAD, stream
from data_pipeline.batches.spec import BatchSpec, RowPlan


def test_places_are_those_that_training_computes():
    """Batches of three rows of four places: one row or two are in use; training takes two."""
    small, large = (np.zeros((1, 1, 3, 4), int) for _ in range(2))
    small[..., :1, :3] = 1
    large[..., :2, :] = 1
    maker = types.SimpleNamespace(spec=BatchSpec(groups=1), plan=RowPlan((2, 3)))
    batches = itertools.chain([{"segments": large}] * MADE_AHEAD, [{"segments": small}] * 10**6)
    found = stream(batches, maker, 0.01)
    assert found["batches"] > 0 and found["fill"] == 3 / 8
    rates = found["terms_per_s"] / found["tokens_per_s"]
    np.testing.assert_allclose(rates, BatchSpec(groups=1).terms / 3)
