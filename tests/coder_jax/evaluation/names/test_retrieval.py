"""Candidates by BM25, against its formula; average precision, against every order of ties."""

import itertools
import math

import numpy as np
import pytest

from coder_jax.evaluation.names.retrieval import ConceptNames, average_precision
from coder_jax.evaluation.names.scores import Pair, SearchedNames, with_exact_matches
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.sources.text.words import words_of


def precision_of_order(relevant, expected):
    hits, summed = 0, 0.0
    for place, one in enumerate(relevant, start=1):
        hits += one
        summed += one * hits / place
    return summed / expected


def naive(similarity, relevant, expected):
    """The mean over all orders that fall with the similarity."""
    orders = [
        order
        for order in itertools.permutations(range(len(relevant)))
        if all(similarity[a] >= similarity[b] for a, b in itertools.pairwise(order))
    ]
    found = [precision_of_order([relevant[one] for one in order], expected) for order in orders]
    return np.mean(found)


def test_average_precision_is_the_mean_over_orders_of_ties():
    rng = np.random.default_rng(0)
    for _ in range(40):
        similarity = rng.choice([0.0, 0.5, 1.0], 6)
        relevant = rng.random(6) < 0.5
        found = average_precision(similarity, relevant, 4)
        assert found == pytest.approx(naive(similarity, relevant, 4), abs=1e-12)
    assert average_precision(np.array([0.9, 0.8, 0.7]), np.array([True, False, True]), 2) == (
        pytest.approx((1 + 2 / 3) / 2)
    )


NAMES = [
    *("heart attack", "acute infarct of the heart", "kidney stone", "renal calculus"),
    *("heart pain", "stone heart", "cold"),
]
CONCEPTS = ["C2", "C2", "C1", "C1", "C3", "C4", "C2|C5"]
DICTIONARY = Dictionary(NAMES, CONCEPTS, "toy")


def bm25(query, names):
    """Robertson's formula with Lucene's weight of words, k1 1.2 and b 0.75."""
    bags = [words_of(name) for name in names]
    mean = sum(map(len, bags)) / len(bags)
    scores = []
    for bag in bags:
        score = 0.0
        for word in words_of(query):
            has = sum(word in one for one in bags)
            weight = math.log(1 + (len(bags) - has + 0.5) / (has + 0.5))
            often = bag.count(word)
            score += weight * often / (often + 1.2 * (1 - 0.75 + 0.75 * len(bag) / mean))
        scores.append(score)
    return scores


def test_candidates_are_the_concepts_of_the_best_names():
    found = ConceptNames(DICTIONARY)
    assert [found.names[row] for row in found.rows_of([found.number["C2"]])] == [
        *("heart attack", "acute infarct of the heart", "cold")
    ]
    assert found.names.count("cold") == 2 and len(set(found.strings.tolist())) == 7
    for query in ("stone heart", "kidney heart heart", "acute cold", "renal"):
        scores = bm25(query, found.names)
        theirs = found._bm25.get_scores(words_of(query))
        np.testing.assert_allclose(theirs, scores, rtol=1e-5)
        best = {}
        for number, score in zip(found.concepts.tolist(), scores, strict=True):
            best[number] = max(score, best.get(number, 0))
        expected = sorted((one for one in best if best[one] > 0), key=lambda one: -best[one])
        assert found.candidates(query).tolist() == expected, query
    assert found.candidates("nothing known").tolist() == []


def test_at_most_twenty_concepts():
    many = Dictionary([f"pain {n}" for n in range(30)], [f"C{n}" for n in range(30)], "toy")
    assert ConceptNames(many).candidates("pain").tolist() == list(range(20))


class ByLength:
    """A measure by hand: the shorter, the nearer; nearest is the first name alone."""

    def __init__(self, names):
        self.names = names

    def similarities(self, queries, rows):
        return -np.array([[len(self.names[row]) for row in rows] for _ in queries], float)

    def nearest(self, query):
        return np.array([0, 5])


def test_precision_of_mentions_and_who_is_reached():
    searched = SearchedNames(DICTIONARY, ["heart", "renal", "unknown"])
    measure = ByLength(searched.names.names)
    pairs = [
        Pair("heart", "C2"),
        Pair("heart", "C3|C9"),
        Pair("renal", "C2"),
        Pair("heart", "C2|C1"),
        Pair("unknown", "C1"),
    ]
    assert searched.reached(pairs).tolist() == [True, True, False, True, False]
    # Candidates of "heart", by length: cold, heart pain, stone heart, heart attack, acute infarct.
    # C1 has two more names, which are no candidates.
    heart = (1 + 2 / 4 + 3 / 5) / 3
    expected = [heart, 1 / 2, 0, heart * 3 / 5, 0]
    np.testing.assert_allclose(searched.precisions(measure, pairs), expected)
    # The two nearest names are of C2 and C3: each is taken half of the time.
    names = searched.names
    assert {names.concepts[0], names.concepts[5]} == {names.number["C2"], names.number["C3"]}
    np.testing.assert_allclose(searched.right(measure, pairs), [0.5, 0.5, 0.5, 0.5, 0])


def test_exact_matches_take_the_place_of_answers():
    right = np.array([1.0, 0.0, 0.5, 0.25])
    found = with_exact_matches(right, ["C1", "C1|C2", "C3", "C4"], ["C9", "C2|C7", "", "C4"])
    assert found.tolist() == [0, 1, 0.5, 1]
