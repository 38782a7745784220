import numpy as np
import pytest
from mention_files import bc5cdr, chip, ncbi_disease
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity

from coder_jax.evaluation.published import MULTIPLE_NAMES
from coder_jax.evaluation.several_concepts import (
    Share,
    _answers_of_nearest,
    _distinct,
    _intervals_of_shares,
    _nearest_by_edits,
    _nearest_by_tf_idf,
    _numbers_by_delimiter,
    accuracy,
    number_accuracy,
    recall_at_k,
)

GOLD = [{1}, {2}, {3, 4}, {5, 6, 7}, {8, -1}, {-1}]


def test_an_answer_is_right_if_it_is_the_whole_set_in_any_order():
    answers = [[1], [2, 9], [4, 3], [5, 6], [8], []]
    found = accuracy(answers, GOLD)
    # The second has one too many and is still of the uni group, as its gold has one.
    assert found == {"uni": Share(1, 3), "multi": Share(1, 3), "total": Share(2, 6)}
    assert found["total"].value == pytest.approx(1 / 3)


def test_a_mention_whose_gold_the_dictionary_lacks_is_wrong_whatever_is_said():
    assert accuracy([[8, -1], [-1]], [{8, -1}, {-1}])["total"] == Share(0, 2)
    assert recall_at_k([[8, -1]], [{8, -1}], [2]) == {2: Share(0, 1)}


def test_nothing_has_no_accuracy():
    assert accuracy([[1]], [{1}])["multi"] == Share(0, 0)
    assert accuracy([[1]], [{1}])["multi"].value is None


def test_recall_wants_all_gold_among_the_first():
    ranked = [[1, 2, 3], [9, 2, 1], [3, 9, 4], [5, 6, 7], [8, 1, 2], [1, 2, 3]]
    assert recall_at_k(ranked, GOLD, [1, 2, 3]) == {1: Share(1, 6), 2: Share(2, 6), 3: Share(4, 6)}


def test_recall_counts_concepts_and_not_their_names():
    concepts = np.array([0, 0, 0, 1, 2])
    ranked = _distinct(np.array([[2, 0, 1, 3, 4], [4, 0, 3, 1, 2]]), concepts)
    assert ranked == [[0, 1, 2], [2, 0, 1]]
    assert recall_at_k(ranked, [{1}, {2}], [1, 2]) == {1: Share(1, 2), 2: Share(2, 2)}


def test_the_number_of_more_than_three_is_never_right():
    found = number_accuracy([1, 1, 2, 2, 3, 3, 4], [1, 2, 2, 1, 3, 4, 3])
    assert found.uni == 1 / 2
    assert found.multi == (1 / 2 + 2 / 2) / 2
    assert found.total == 4 / 7


def test_where_no_mention_has_three_the_mean_is_that_of_two():
    assert number_accuracy([2, 1], [2, 2]).multi == 1 / 2
    assert number_accuracy([1], [1]).multi is None


def test_table_8_follows_from_its_counts():
    # 2,851 mentions of one name, 116 of two, 27 of three, 6 of more: the only whole counts that
    # give what is printed for MTCG.
    right = {1: 2839, 2: 91, 3: 17}
    gold = [1] * 2851 + [2] * 116 + [3] * 27 + [4] * 6
    predicted = []
    for number, count in {1: 2851, 2: 116, 3: 27}.items():
        predicted += [number] * right[number] + [number % 3 + 1] * (count - right[number])
    found = number_accuracy(predicted + [3] * 6, gold)
    printed = next(row for row in MULTIPLE_NAMES if (row.table, row.encoder) == ("8", "MTCG"))
    assert {
        "number uni": round(100 * found.uni, 2),
        "number multi": round(100 * found.multi, 2),
        "number total": round(100 * found.total, 2),
    } == printed.scores


def test_the_printed_accuracies_are_whole_counts_of_the_test_set():
    of = {"uni": 2851, "multi": 149, "total": 3000}
    # The row without fusion is none: 90.85 % of 3,000 are no whole mentions.
    rows = [row for row in MULTIPLE_NAMES if row.encoder in ("recall and rank", "without KAR")]
    assert len(rows) == 2
    for row in rows:
        counts = {name: round(score * of[name] / 100) for name, score in row.scores.items()}
        for name, score in row.scores.items():
            digits = len(str(score).partition(".")[2])
            assert round(100 * counts[name] / of[name], digits) == score
        assert counts["uni"] + counts["multi"] == counts["total"]


def test_intervals_of_shares_are_those_of_their_mentions():
    """Half the width of 95 % is about two standard errors; none of nothing."""
    of_each = [
        {"uni": Share(number < 750, 1), "multi": Share(0, 0), "all": Share(number < 4, number < 4)}
        for number in range(1000)
    ]
    found = _intervals_of_shares(of_each, np.arange(1000))
    assert found.keys() == {"uni", "all"} and found["all"] == [1.0, 1.0]
    of_forty = _intervals_of_shares(of_each, np.arange(1000) // 25)["uni"]
    assert of_forty[1] - of_forty[0] > 4 * (found["uni"][1] - found["uni"][0]), (
        "40 distinct mentions"
    )
    low, high = found["uni"]
    assert low < 0.75 < high
    assert (high - low) / 2 == pytest.approx(1.96 * (0.75 * 0.25 / 1000) ** 0.5, rel=0.1)


# -------------------------------------------------------------------------------------------------
# Anchors of CHIP-2019 to the last digit, where it is at hand; the same code on English corpora.

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
    near = _nearest_by_tf_idf(
        chip_2019.mentions(*BOTH), chip_2019.dictionary.names, max(KS), longest
    )
    ranked = _distinct(near, chip_2019.dictionary.name_concepts)
    assert in_percent(accuracy([one[:1] for one in ranked], gold).values()) == right
    assert in_percent(recall_at_k(ranked, gold, KS).values()) == recalls


@pytest.mark.slow
def test_the_nearest_training_mention_of_chip_2019(chip_2019):
    names = chip_2019.dictionary
    training = chip_2019.mentions("train"), chip_2019.gold("train")
    mentions, gold = chip_2019.mentions(*BOTH), chip_2019.gold(*BOTH)
    answers = _answers_of_nearest(mentions, names.names, names.name_concepts, *training)
    assert in_percent(accuracy(answers, gold).values()) == [76.50, 11.41, 73.27]


def test_the_plus_signs_of_chip_2019(chip_2019):
    gold = [len(one) for one in chip_2019.gold(*BOTH)]
    found = number_accuracy(_numbers_by_delimiter(chip_2019.mentions(*BOTH)), gold)
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
    near = _nearest_by_tf_idf(some, first, 10, 2)
    weigh = TfidfVectorizer(analyzer="char", ngram_range=(1, 2))
    cosines = cosine_similarity(weigh.fit_transform(first), weigh.transform(some)).T
    best = -np.sort(-cosines, axis=1)[:, :10]
    np.testing.assert_allclose(np.take_along_axis(cosines, near, axis=1), best, rtol=1e-12)
    ranked = _distinct(near, names.name_concepts)
    found = recall_at_k(ranked, gold["test"][:30], [1, 2, 10])
    assert 0 < found[1].right <= found[2].right <= found[10].right


def test_the_nearest_by_letters():
    names = ["heart attack", "renal failure", "attack heart", "heart disease"]
    mentions = ["heart attacks", "failure, renal", "attack heart"]
    assert _nearest_by_tf_idf(mentions, names, 2).tolist()[0][0] == 0
    # Single characters do not know their order: of equal ones the first comes first.
    assert _nearest_by_tf_idf(["attack heart"], names, 2).tolist() == [[0, 2]]
    assert _nearest_by_tf_idf(["attack heart"], names, 2, longest=2).tolist() == [[2, 0]]
    assert _nearest_by_edits(mentions, names, 1)[[0, 2], 0].tolist() == [0, 2]
    assert _nearest_by_edits(["xxxx"], ["bbbb", "aaaa"], 2).tolist() == [[0, 1]]


def test_edits_count_by_the_length_of_the_longer_string():
    # One edit of two characters is more than two edits of twelve.
    assert _nearest_by_edits(["ab"], ["ax", "abcdefghijkl"], 2).tolist() == [[0, 1]]
    assert _nearest_by_edits(["heart attack"], ["heart attick s", "heart"], 1).tolist() == [[0]]
    assert _nearest_by_edits(["abc"], ["x", "abcdefg"], 2).tolist() == [[1, 0]]


def test_the_nearest_training_mention_gives_its_whole_set():
    answers = _answers_of_nearest(
        ["heart attack and limb pain", "renal failure"],
        ["heart attack", "limb pain", "renal failure"],
        np.arange(3),
        ["heart attack, limb pain", "failure"],
        [{0, 1}, {2}],
    )
    assert answers == [{0, 1}, {2}]


def test_a_training_mention_comes_before_a_name_that_is_as_near():
    assert _answers_of_nearest(["pain"], ["pain"], np.array([3]), ["pain"], [{1, 2}]) == [{1, 2}]


def test_plus_signs_of_both_widths_are_delimiters():
    assert _numbers_by_delimiter(["a", "a+b", "a\uff0bb+c", "a+b+c+d"]) == [1, 2, 3, 3]
