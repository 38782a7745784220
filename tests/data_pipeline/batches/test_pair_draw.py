"""The draw of pairs: each pair of names once an epoch, at most 50 of a concept, any step alone."""

import itertools
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.batches.draws.pairs import MOST_PAIRS, PairDraw
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.process.errors import BadInput

NAMES = np.array([1, 2, 3, 5, 1, 11, 12, 40, 2, 10])  # of each concept


def draw_of(spec, names=NAMES):
    return PairDraw(SimpleNamespace(term_start=np.concatenate([[0], np.cumsum(names)])), spec)


def spec_of(**changes):
    return BatchSpec(**{"draw": "pairs", "groups": 2, "triplets": 8, "repeats": 1, **changes})


def pairs_of(draw, steps):
    """(concept, term, term) of each pair of some steps, the smaller term first."""
    found = []
    for step in steps:
        drawn = draw(tf.constant(step, tf.int64), np.arange(draw.spec.groups))
        for concepts, terms in zip(drawn["concepts"].numpy(), drawn["terms"].numpy(), strict=True):
            half = len(terms) // 2
            np.testing.assert_array_equal(concepts[:half], concepts[half:])
            for concept, one, other in zip(concepts, terms[:half], terms[half:], strict=False):
                found.append((int(concept), *sorted((int(one), int(other)))))
        assert (drawn["relations"].numpy() == -1).all()
        assert drawn["relations"].shape == (draw.spec.groups, draw.spec.triplets)
    return found


def possible(names=NAMES):
    start = np.concatenate([[0], np.cumsum(names)]).tolist()
    return {
        concept: set(itertools.combinations(range(start[concept], start[concept + 1]), 2))
        for concept in range(len(names))
    }


def test_an_epoch_has_each_pair_once_and_50_of_those_with_more():
    draw = draw_of(spec_of(groups=1, triplets=1))
    assert draw.size == sum(min(len(pairs), MOST_PAIRS) for pairs in possible().values())
    found = pairs_of(draw, range(draw.size))
    assert max(Counter(found).values()) == 1
    for concept, pairs in possible().items():
        mine = {(one, other) for c, one, other in found if c == concept}
        assert mine <= pairs and len(mine) == min(len(pairs), MOST_PAIRS)
    # Of 40 names they are not those of some names alone.
    many = Counter(term for c, *terms in found if c == 7 for term in terms)
    assert len(many) > 30
    # The next epoch has the same pairs in another order.
    again = pairs_of(draw, range(draw.size, 2 * draw.size))
    assert again != found and set(again) == set(found)


def test_another_seed_takes_other_pairs_of_many():
    of_many = [
        {pair for pair in pairs_of(draw, range(draw.size)) if pair[0] == 7}
        for draw in (draw_of(spec_of(groups=1, triplets=1, seed=seed)) for seed in (0, 1))
    ]
    assert of_many[0] != of_many[1]


def test_groups_and_steps_stand_alone():
    draw = draw_of(spec_of())
    whole = draw(tf.constant(5, tf.int64), np.arange(2))
    for group in (0, 1):
        alone = draw(tf.constant(5, tf.int64), np.array([group]))
        for name, values in alone.items():
            np.testing.assert_array_equal(values[0], whole[name][group])


def test_too_few_pairs():
    with pytest.raises(BadInput, match="the dataset has 2 pairs of two names of a concept, but a"):
        draw_of(spec_of(), np.array([2, 1, 2]))
