"""Anchors of CHIP-2019 to the last digit, where it is at hand; the same code on English corpora."""

import numpy as np
import pytest
from mention_files import bc5cdr, chip, ncbi_disease
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity

from coder_jax.evaluation.multiple_names.baselines import (
    answers_of_nearest,
    nearest_by_edits,
    nearest_by_tf_idf,
    numbers_by_delimiter,
)
from coder_jax.evaluation.multiple_names.scores import (
    accuracy,
    distinct,
    number_accuracy,
    recall,
)

KS = (1, 2, 5, 7, 10, 20, 50)
BOTH = ("dev", "test")  # as the paper's test set is


@pytest.fixture(scope="module")
def chip_2019(chip_path):
    return chip(chip_path)


def in_percent(shares):
    return [round(100 * share.value, 2) for share in shares]


def test_sizes_of_chip_2019(chip_2019):
    found, names = chip_2019, chip_2019.dictionary
    gold = {"train": found.gold("train"), "test": found.gold(*BOTH)}
    assert {split: len(sets) for split, sets in gold.items()} == {"train": 4000, "test": 3000}
    assert {split: sum(map(len, sets)) for split, sets in gold.items()} == {
        "train": 4270,
        "test": 3189,
    }
    numbers = np.bincount([min(len(one), 3) for one in gold["test"]])
    assert numbers.tolist() == [0, 2851, 116, 33]
    assert sum(len(one) == 3 for one in gold["test"]) == 27
    assert sum(map(len, names.codes)) == 9867
    assert len(names.names) == len(names.concepts) == 9468
    assert sum(len(codes) > 1 for codes in names.codes) == 395
    assert all(-1 not in one for sets in gold.values() for one in sets)
    assert not any(one.odd for one in found.sets.values())


def test_of_chip_2019_most_gold_was_seen_in_training(chip_2019):
    seen = frozenset().union(*chip_2019.gold("train"))
    gold = chip_2019.gold(*BOTH)
    known = [one <= seen for one in gold]
    assert round(100 * np.mean(known), 1) == 89.2
    multi = [is_known for is_known, one in zip(known, gold, strict=True) if len(one) > 1]
    assert round(100 * np.mean(multi), 1) == 72.5
    names = chip_2019.dictionary.names
    equal = [
        {mention} == {names[concept] for concept in one}
        for mention, one in zip(chip_2019.mentions(*BOTH), gold, strict=True)
    ]
    assert sum(equal) == 147


@pytest.mark.slow
@pytest.mark.parametrize(
    ("longest", "right", "recalls"),
    [
        (1, [49.32, 0, 46.87], [46.87, 55.07, 68.10, 73.13, 76.43, 83.57, 90.03]),
        (2, [47.56, 0, 45.20], [45.20, 56.67, 68.03, 71.97, 75.87, 84.10, 89.90]),
    ],
)
def test_tf_idf_of_chip_2019(chip_2019, longest, right, recalls):
    gold = chip_2019.gold(*BOTH)
    near = nearest_by_tf_idf(
        chip_2019.mentions(*BOTH), chip_2019.dictionary.names, max(KS), longest
    )
    ranked = distinct(near, chip_2019.dictionary.name_concepts)
    assert in_percent(accuracy([one[:1] for one in ranked], gold).values()) == right
    assert in_percent(recall(ranked, gold, KS).values()) == recalls


@pytest.mark.slow
def test_the_nearest_training_mention_of_chip_2019(chip_2019):
    names = chip_2019.dictionary
    training = chip_2019.mentions("train"), chip_2019.gold("train")
    mentions, gold = chip_2019.mentions(*BOTH), chip_2019.gold(*BOTH)
    answers = answers_of_nearest(mentions, names.names, names.name_concepts, *training)
    assert in_percent(accuracy(answers, gold).values()) == [76.50, 11.41, 73.27]


def test_the_plus_signs_of_chip_2019(chip_2019):
    gold = [len(one) for one in chip_2019.gold(*BOTH)]
    found = number_accuracy(numbers_by_delimiter(chip_2019.mentions(*BOTH)), gold)
    assert [round(100 * share, 2) for share in found] == [96.70, 51.84, 94.70]


@pytest.mark.parametrize(
    ("read", "mentions", "multi", "outside"),
    [
        (ncbi_disease, (5145, 787, 960), (108, 30, 15), 0),
        (bc5cdr, (4150, 4228, 4363), (94, 97, 63), 144),
    ],
)
def test_diseases_in_english_text(shared_data, read, mentions, multi, outside):
    corpus = read(shared_data / "benchmarks")
    names = corpus.dictionary
    gold = {split: corpus.gold(split) for split in ("train", "dev", "test")}
    assert tuple(map(len, gold.values())) == mentions
    assert tuple(sum(len(one) > 1 for one in some) for some in gold.values()) == multi
    assert sum((found.gold == -1).sum() for found in corpus.sets.values()) == outside
    assert (len(names.concepts), len(names.names)) == (11915, 76237)
    some = corpus.mentions("test")[:30]
    first = names.names[:8000]  # the rest takes seconds
    near = nearest_by_tf_idf(some, first, 10, 2)
    weigh = TfidfVectorizer(analyzer="char", ngram_range=(1, 2))
    cosines = cosine_similarity(weigh.fit_transform(first), weigh.transform(some)).T
    best = -np.sort(-cosines, axis=1)[:, :10]
    np.testing.assert_allclose(np.take_along_axis(cosines, near, axis=1), best, rtol=1e-12)
    ranked = distinct(near, names.name_concepts)
    found = recall(ranked, gold["test"][:30], [1, 2, 10])
    assert 0 < found[1].right <= found[2].right <= found[10].right


def test_the_nearest_by_letters():
    names = ["heart attack", "renal failure", "attack heart", "heart disease"]
    mentions = ["heart attacks", "failure, renal", "attack heart"]
    assert nearest_by_tf_idf(mentions, names, 2).tolist()[0][0] == 0
    # Single characters do not know their order: of equal ones the first comes first.
    assert nearest_by_tf_idf(["attack heart"], names, 2).tolist() == [[0, 2]]
    assert nearest_by_tf_idf(["attack heart"], names, 2, longest=2).tolist() == [[2, 0]]
    assert nearest_by_edits(mentions, names, 1)[[0, 2], 0].tolist() == [0, 2]
    assert nearest_by_edits(["xxxx"], ["bbbb", "aaaa"], 2).tolist() == [[0, 1]]


def test_edits_count_by_the_length_of_the_longer_string():
    # One edit of two characters is more than two edits of twelve.
    assert nearest_by_edits(["ab"], ["ax", "abcdefghijkl"], 2).tolist() == [[0, 1]]
    assert nearest_by_edits(["heart attack"], ["heart attick s", "heart"], 1).tolist() == [[0]]
    assert nearest_by_edits(["abc"], ["x", "abcdefg"], 2).tolist() == [[1, 0]]


def test_the_nearest_training_mention_gives_its_whole_set():
    answers = answers_of_nearest(
        ["heart attack and limb pain", "renal failure"],
        ["heart attack", "limb pain", "renal failure"],
        np.arange(3),
        ["heart attack, limb pain", "failure"],
        [{0, 1}, {2}],
    )
    assert answers == [{0, 1}, {2}]


def test_a_training_mention_comes_before_a_name_that_is_as_near():
    assert answers_of_nearest(["pain"], ["pain"], np.array([3]), ["pain"], [{1, 2}]) == [{1, 2}]


def test_plus_signs_of_both_widths_are_delimiters():
    assert numbers_by_delimiter(["a", "a+b", "a\uff0bb+c", "a+b+c+d"]) == [1, 2, 3, 3]
