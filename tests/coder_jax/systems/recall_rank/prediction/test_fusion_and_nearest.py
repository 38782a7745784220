"""Losses, distances and fusion against what the paper's equations say, pair by pair."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coder_jax.systems.recall_rank.losses import number_loss, triplet_margin_loss
from coder_jax.systems.recall_rank.prediction import nearest as nearest_module
from coder_jax.systems.recall_rank.prediction.candidates import nearest_others
from coder_jax.systems.recall_rank.prediction.fusion import (
    answer_counts,
    best_first,
    fused_scores,
    recall_scores,
)
from coder_jax.systems.recall_rank.prediction.nearest import (
    nearest,
    nearest_by_mean,
    nearest_concepts,
)
from coder_jax.systems.recall_rank.prediction.recall_and_rank import Choice, ranked
from data_pipeline.dataset.mentions.candidates import CandidateLists
from data_pipeline.process.errors import BadInput

RNG = np.random.default_rng(0)


def test_the_triplet_loss_is_that_of_each_triplet():
    mention, name = RNG.normal(size=(2, 5, 7))
    others = RNG.normal(size=(5, 3, 7))
    expected = [
        max(0.0, np.linalg.norm(m - p) + 0.4 - np.linalg.norm(m - n))
        for m, p, of_mention in zip(mention, name, others, strict=True)
        for n in of_mention
    ]
    assert 0 < np.count_nonzero(expected) < 15
    as_jax = (jnp.asarray(array, jnp.float32) for array in (mention, name, others))
    loss, metrics = triplet_margin_loss(*as_jax, 0.4)
    assert float(loss) == pytest.approx(np.mean(expected), rel=1e-6)
    assert float(metrics["within_margin"]) == pytest.approx(np.count_nonzero(expected) / 15)


def test_a_mention_that_is_its_name_has_a_finite_gradient():
    same = jnp.ones((1, 4))
    others = jnp.full((1, 2, 4), 1.1)
    gradient = jax.grad(lambda m: triplet_margin_loss(m, same, others, 1.0)[0])(same)
    assert jnp.isfinite(gradient).all() and (gradient != 0).any()


def test_the_number_loss_is_a_cross_entropy():
    logits, numbers = RNG.normal(size=(6, 3)), np.array([0, 2, 1, 1, 0, 2])
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    loss, metrics = number_loss(jnp.asarray(logits, jnp.float32), jnp.asarray(numbers))
    expected = -np.log(shares[np.arange(6), numbers]).mean()
    assert float(loss) == pytest.approx(expected, rel=1e-6)
    assert float(metrics["number_accuracy"]) == pytest.approx((logits.argmax(1) == numbers).mean())


# ---- Nearest names and concepts ----


@pytest.mark.parametrize(("offset", "at_once"), [(0.0, 1 << 24), (300.0, 1 << 24), (300.0, 100)])
def test_nearest_is_brute_force_wherever_the_vectors_lie(offset, at_once, monkeypatch):
    monkeypatch.setattr(nearest_module, "NUMBERS_AT_ONCE", at_once)
    keys = (RNG.normal(size=(400, 9)) + offset).astype(np.float32)
    queries = (RNG.normal(size=(30, 9)) + offset).astype(np.float32)
    keys[7] = keys[5]  # equal ones: the lower index first
    queries[0] = keys[5]
    distance, index = nearest(queries, keys, 6)
    exact = np.linalg.norm(queries[:, None].astype(float) - keys[None], axis=2)
    order = np.argsort(exact, axis=1, kind="stable")[:, :6]
    np.testing.assert_array_equal(index, order)
    np.testing.assert_allclose(distance, np.take_along_axis(exact, order, axis=1), rtol=1e-6)
    assert index[0, :2].tolist() == [5, 7] and distance[0, 0] == 0


def test_of_keys_that_are_as_far_the_lower_index_comes_first():
    """Whatever rounding says: each key and the next lie on opposite sides of the query."""
    half = RNG.normal(size=(50, 9)).astype(np.float32) * np.float32(100)
    keys = np.stack([half, -half], axis=1).reshape(100, 9)
    keys = np.concatenate([keys, np.full((7, 9), 1e3, np.float32)])  # their mean is not the query
    _, index = nearest(np.zeros((1, 9), np.float32), keys, 100)
    assert (index[0, 1::2] == index[0, ::2] + 1).all() and not (index[0, ::2] % 2).any()


def test_a_concept_is_as_near_as_its_nearest_name():
    names, concepts = RNG.normal(size=(60, 4)).astype(np.float32), np.repeat(np.arange(6), 10)
    queries = RNG.normal(size=(8, 4)).astype(np.float32)
    distance, found = nearest_concepts([queries], [names], concepts, 5)
    exact = np.linalg.norm(queries[:, None].astype(float) - names[None], axis=2)
    by_concept = exact.reshape(8, 6, 10)
    order = np.argsort(by_concept.min(2), axis=1)[:, :5]
    np.testing.assert_array_equal(concepts[found], order)
    np.testing.assert_allclose(distance, np.sort(by_concept.min(2), axis=1)[:, :5], rtol=1e-6)
    np.testing.assert_array_equal(
        found, np.take_along_axis(by_concept.argmin(2) + 10 * np.arange(6), order, axis=1)
    )
    assert nearest_concepts([queries], [names], concepts, 50)[1].shape == (8, 6)


@pytest.mark.parametrize("noise", [0.01, 3.0])  # encoders that agree, or hardly do
def test_by_the_mean_of_distances_is_brute_force(noise, monkeypatch):
    """Also of encoders of another width and scale; of keys at one place the lower index first."""
    keys = [RNG.normal(size=(500, 6)).astype(np.float32)]
    keys.append(np.pad(keys[0], ((0, 0), (0, 2))) * 4 + noise * RNG.normal(size=(500, 8)))
    rows = RNG.choice(500, 40)
    queries = [one[rows] + noise * RNG.normal(size=(40, one.shape[1])) for one in keys]
    for one in (*keys, *queries):
        one[7] = one[5]
    asked = []

    def counted(queries, keys, k):
        asked.append((len(queries), k))
        return nearest(queries, keys, k)

    monkeypatch.setattr(nearest_module, "nearest", counted)
    distance, index = nearest_by_mean(queries, keys, 5)
    exact = np.mean(
        [
            np.linalg.norm(query[:, None].astype(float) - key[None], axis=2)
            for query, key in zip(queries, keys, strict=True)
        ],
        axis=0,
    )
    order = np.argsort(exact, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(index, order)
    np.testing.assert_allclose(distance, np.take_along_axis(exact, order, axis=1), rtol=1e-6)
    assert asked[0] == (40, 20)  # few keys of each, and more where these leave it open
    assert (len(asked) > 2) == (noise > 1)
    assert nearest_by_mean(queries, keys, 500)[1].shape == (40, 500)


def test_a_mention_s_own_names_are_never_its_others():
    names, mentions = (RNG.normal(size=(n, 3)).astype(np.float32) for n in (40, 12))
    own = [RNG.choice(40, number % 4, replace=False) for number in range(12)]
    found = nearest_others(mentions, names, own, 5)
    exact = np.linalg.norm(mentions[:, None].astype(float) - names[None], axis=2)
    for mention, row in enumerate(found):
        others = [one for one in np.argsort(exact[mention]) if one not in own[mention]]
        assert row.tolist() == others[:5]
    with pytest.raises(BadInput, match="has 40 names, of which a mention may mean 3; expected 38"):
        nearest_others(mentions, names, own, 38)


# ---- Fusion ----

DISTANCES = np.array([[1.0, 2.0, 5.0, 8.0], [0.0, 0.0, 0.0, 0.0]])


def test_recall_scores_are_equation_12_or_the_code_s():
    np.testing.assert_allclose(
        recall_scores(DISTANCES), [[15 / 16, 14 / 16, 11 / 16, 8 / 16], [1, 1, 1, 1]]
    )
    np.testing.assert_allclose(
        recall_scores(DISTANCES, "max"), [[7 / 8, 6 / 8, 3 / 8, 0], [1, 1, 1, 1]]
    )


def test_scores_are_the_mean_of_both_or_one_of_them():
    rank = np.array([[0.1, 0.9, 0.5, 0.0], [0.2, 0.1, 0.2, 0.3]])
    fused = fused_scores(DISTANCES, rank)
    np.testing.assert_allclose(fused[0], [(15 / 16 + 0.1) / 2, (14 / 16 + 0.9) / 2, *fused[0, 2:]])
    assert best_first(fused).tolist() == [[1, 2, 0, 3], [3, 0, 2, 1]]  # equal: the nearer first
    np.testing.assert_array_equal(fused_scores(DISTANCES, rank, fusion="rank"), rank)
    many = best_first(np.tile([0.5, 0.7], (1, 30)))[0]
    assert many.tolist() == [*range(1, 60, 2), *range(0, 60, 2)]
    for alone in (fused_scores(DISTANCES, None), fused_scores(DISTANCES, rank, fusion="recall")):
        np.testing.assert_array_equal(alone, recall_scores(DISTANCES))


@pytest.mark.parametrize(
    "numbers, scores, count",
    [
        ([0.8, 0.1, 0.1], [0.9, 0.9, 0.9, 0.9, 0.9], 1),
        ([0.1, 0.8, 0.1], [0.9, 0.1, 0.1, 0.1, 0.1], 2),
        ([0.1, 0.1, 0.8], [0.9, 0.9, 0.1, 0.1, 0.1], 3),  # three at least, whatever they score
        ([0.1, 0.1, 0.8], [0.9, 0.9, 0.9, 0.81, 0.8], 4),  # above .8, not at it
        ([0.1, 0.1, 0.8], [0.9, 0.9], 2),  # no more than there are
        ([1.0], [0.9, 0.9, 0.9], 1),  # a generator that tells no number
    ],
)
def test_the_answer_is_cut_by_the_number(numbers, scores, count):
    assert answer_counts(np.array([scores]), np.array([numbers])).tolist() == [count]


def test_by_distances_alone_three_or_more_concepts_are_three():
    """All ten score about .9 then, above the threshold, which is one of both stages."""
    lists = CandidateLists(
        names=np.arange(10, dtype=np.int32)[None],
        distances=np.linspace(5, 11, 10, dtype=np.float32)[None],
        numbers=np.array([[0.1, 0.2, 0.7]], np.float32),
    )
    concepts, sure = np.arange(10), np.full((1, 10), 0.99, np.float32)
    assert ranked(lists, concepts, None).counts.tolist() == [3]
    assert ranked(lists, concepts, sure, Choice(fusion="recall")).counts.tolist() == [3]
    assert ranked(lists, concepts, sure).counts.tolist() == [10]
    assert ranked(lists, concepts, sure, Choice(threshold=1.0)).counts.tolist() == [3]
