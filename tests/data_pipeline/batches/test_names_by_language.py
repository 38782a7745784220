"""Names of other languages: who has a turn, how often, and what a term is shown with."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
from tiny_dataset import tiny_dataset

from data_pipeline.batches.draws.names import Names
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.batches.stream import BatchMaker

SPEC = BatchSpec(names="languages", draw="synonyms", groups=2, triplets=8, repeats=1, row_length=64)
CONCEPTS = 60


@pytest.fixture(scope="module")
def data():
    """Terms of three languages, the first of which has most."""
    plain = tiny_dataset(concepts=CONCEPTS, triplets=150)
    chosen = np.random.default_rng(0).choice(3, plain.term_start[-1], p=[0.7, 0.2, 0.1])
    return dataclasses.replace(plain, term_language=chosen.astype(np.uint8))


def languages_of(data, concept):
    of_concept = slice(data.term_start[concept], data.term_start[concept + 1])
    return data.term_language[of_concept]


def drawn(data, number, draws=40):
    """int [60 concepts, draws, number]: terms."""
    names = Names(data, SPEC)
    concepts = np.repeat(np.arange(CONCEPTS), draws)
    terms = names("head term", tf.range(len(concepts), dtype=tf.int64), concepts, number)
    return terms.numpy().reshape(CONCEPTS, draws, number)


@pytest.mark.parametrize("number", [2, 5])
def test_all_languages_have_a_turn_before_one_has_another(data, number):
    for concept, rows in enumerate(drawn(data, number)):
        there = languages_of(data, concept)
        kinds = len(set(there))
        for terms in rows:
            assert np.all(terms >= data.term_start[concept])
            assert np.all(terms < data.term_start[concept + 1])
            for first in range(0, number, kinds):
                turn = data.term_language[terms[first : first + kinds]]
                assert len(set(turn)) == len(turn)
            shown = Counter(terms.tolist())
            for language in set(there):
                often = Counter(data.term_language[terms].tolist())[language]
                of_language = [
                    n for term, n in shown.items() if data.term_language[term] == language
                ]
                assert len(of_language) == min(often, (there == language).sum())


def test_languages_and_their_terms_come_equally_often(data):
    concept = int(
        np.argmax(
            [
                len(set(languages_of(data, one))) * 10 + len(languages_of(data, one))
                for one in range(CONCEPTS)
            ]
        )
    )
    there = languages_of(data, concept)
    assert len(set(there)) == 3 and len(there) > 4
    names = Names(data, SPEC)
    slots = tf.range(6_000, dtype=tf.int64)
    terms = names("head term", slots, np.full(6_000, concept), 1).numpy()[:, 0]
    often = Counter(data.term_language[terms].tolist())
    assert all(abs(often[language] - 2_000) < 150 for language in range(3))
    for language in range(3):
        mine = [term for term, one in enumerate(there, data.term_start[concept]) if one == language]
        counts = [(terms == term).sum() for term in mine]
        assert min(counts) > 0.7 * max(counts)


def test_a_term_is_shown_with_names_of_other_languages(data):
    names = Names(data, SPEC)
    owner = np.repeat(np.arange(CONCEPTS), np.diff(data.term_start))
    terms = np.arange(len(owner))
    others = names.others("tail term", tf.constant(terms), tf.constant(terms), owner, 3).numpy()
    for term, row in zip(terms, others, strict=True):
        there = languages_of(data, owner[term])
        assert np.all(owner[row] == owner[term])
        if len(set(there)) > 1:
            assert data.term_language[term] not in data.term_language[row]
            assert len(set(data.term_language[row[:2]])) == min(2, len(set(there)) - 1)
        else:
            assert len(there) == 1 or term not in row


def test_a_batch_pairs_languages(data):
    """And is the same again, from any step."""
    maker = BatchMaker(data, SPEC)
    drawn = maker.draw(tf.constant(5, tf.int64), np.arange(2))
    heads, tails = np.split(drawn["terms"].numpy(), 2, axis=1)
    concepts = np.split(drawn["concepts"].numpy(), 2, axis=1)[0]
    for head, tail, concept in zip(heads.flat, tails.flat, concepts.flat, strict=True):
        several = len(set(languages_of(data, concept))) > 1
        assert (data.term_language[head] != data.term_language[tail]) == several
        assert head != tail
    (straight,), (again,) = maker.batches(5, 6), list(maker.batches(4, 6))[1:]
    for name in straight:
        np.testing.assert_array_equal(again[name], straight[name])


def test_without_languages_it_is_as_distinct(data):
    """Of concepts in one language: no term twice while others are left."""
    one = dataclasses.replace(data, term_language=np.zeros_like(data.term_language))
    for concept, rows in enumerate(drawn(one, 3)):
        most = min(3, data.term_start[concept + 1] - data.term_start[concept])
        assert all(len(set(terms)) == most for terms in rows.tolist())
