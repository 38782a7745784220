"""Order without state: a Python twin with plain integers, exact permutations, fair draws."""

import collections

import numpy as np
import pytest
from batch_twin import twin_below, twin_key, twin_mix, twin_permute, twin_sample

from data_pipeline.batches.order import below, distinct_draws, key, mix, permute, uint64


def test_mix_and_key_equal_the_twin():
    values = [0, 1, 2, 12345, 2**63, 2**64 - 1]
    assert mix(np.array(values, np.uint64)).tolist() == [twin_mix(v) for v in values]
    for seed in (0, 1, 2**40):
        got = key(seed, "head term", np.array([5, 6]), np.array([0, 9]))
        assert got.tolist() == [
            twin_key(seed, "head term", 5, 0),
            twin_key(seed, "head term", 6, 9),
        ]


def test_streams_and_seeds_differ():
    slots = np.arange(1000)
    streams = [key(seed, name, slots) for seed in (0, 1) for name in ("head term", "tail term")]
    for i, first in enumerate(streams):
        for second in streams[i + 1 :]:
            assert not np.intersect1d(first, second).size


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 16, 97, 1000, 4099])
def test_permute_is_a_permutation_and_equals_the_twin(size):
    keys = [twin_mix(1), twin_mix(2)]
    results = []
    for k in keys:
        got = permute(np.arange(size), size, uint64(k))
        assert sorted(got) == list(range(size))
        assert got.tolist() == [twin_permute(i, size, k) for i in range(size)]
        results.append(got)
    if size > 16:
        # A random permutation has one fixed point on average, and agrees with another in one.
        assert (results[0] == np.arange(size)).sum() < 8 and (results[0] == results[1]).sum() < 8


def test_permute_spreads_neighbours():
    """Neighbours land independently: the mean distance of successive places is a third."""
    size = 100_000
    places = permute(np.arange(size), size, uint64(7))
    assert np.abs(np.diff(places)).mean() / size == pytest.approx(1 / 3, abs=0.005)


def test_below_is_uniform_and_equals_the_twin():
    random = key(0, "relation", np.arange(60_000))
    drawn = below(random, 6)
    assert drawn.tolist()[:100] == [twin_below(int(r), 6) for r in random[:100]]
    assert np.abs(np.bincount(drawn.astype(int)) - 10_000).max() < 400  # four standard deviations


def test_distinct_draws_exhaust_before_they_repeat():
    random = key(3, "head term", np.arange(2000)[:, None], np.arange(8))
    size = np.tile([1, 2, 3, 5, 8], 400)
    drawn = distinct_draws(random, size)
    for row, n in zip(drawn, size, strict=True):
        for first in range(0, 8, n):
            one_round = row[first : first + n]
            assert len(set(one_round)) == len(one_round) and one_round.max() < n
    for row, randoms, n in list(zip(drawn, random, size, strict=True))[:50]:
        assert row.tolist() == twin_sample(randoms.tolist(), int(n), distinct=True)


def test_distinct_draws_are_fair():
    """Each ordered pair out of 4 comes equally often."""
    random = key(5, "tail term", np.arange(24_000)[:, None], np.arange(2))
    pairs = collections.Counter(map(tuple, distinct_draws(random, np.full(24_000, 4)).tolist()))
    assert len(pairs) == 12
    assert all(abs(count - 2000) < 200 for count in pairs.values())
