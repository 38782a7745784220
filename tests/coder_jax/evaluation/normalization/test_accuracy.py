"""Normalization scores against hand-computed cases and a naive loop over all orders of ties."""

import jax
import numpy as np
import pytest
from naive_ranks import benchmark_of, naive_scores, score

from coder_jax.evaluation.normalization import accuracy, counts
from coder_jax.evaluation.normalization.accuracy import evaluate_normalization
from coder_jax.evaluation.normalization.benchmark import NormalizationFold
from coder_jax.evaluation.normalization.counts import count_ranks, rows_by_concept
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput

KS = (1, 3, 5)


def at_angles(*degrees):
    """Unit vectors in the plane: the cosine of two is the cosine of the angle between them."""
    radians = np.radians(degrees)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)


def test_nearest_term_decides_and_unreachable_mentions_count_as_wrong():
    # The mention at 0 degrees: B's second term is nearest, then A, then C.
    dictionary = at_angles(10, 80, 5, 60)
    result = score(at_angles(0, 0, 0, 0), ["B", "A", "C", "X"], dictionary, ["A", "B", "B", "C"])
    assert (result.mentions, result.unreachable, result.tied, result.concepts) == (4, 1, 0, 3)
    assert result.scores["acc@1"] == 1 / 4
    assert result.scores["acc@3"] == 3 / 4
    assert result.scores["acc@5"] == 3 / 4, "k beyond the number of concepts"
    assert result.scores["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 4)
    reachable = result.reachable_scores
    assert (reachable["acc@1"], reachable["acc@3"]) == (pytest.approx(1 / 3), 1)
    assert reachable["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)


def test_ties_by_hand():
    # One concept is nearer, gold A is tied with B and C: ranks 2, 3, 4, each with chance 1/3.
    dictionary = at_angles(30, 30, 30, 10, 90)
    result = score(at_angles(0), ["A"], dictionary, list("ABCDE"), ks=(1, 2, 3, 4))
    scores = result.scores
    assert result.tied == 1
    assert [scores[f"acc@{k}"] for k in (1, 2, 3, 4)] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert [scores[f"acc@{k}_optimistic"] for k in (1, 2, 3, 4)] == [0, 1, 1, 1]
    assert [scores[f"acc@{k}_pessimistic"] for k in (1, 2, 3, 4)] == [0, 0, 0, 1]
    assert scores["mrr"] == pytest.approx((1 / 2 + 1 / 3 + 1 / 4) / 3)
    assert scores["mrr_optimistic"] == 1 / 2
    assert scores["mrr_pessimistic"] == 1 / 4


def test_several_golds_by_hand():
    # Gold A and B tie with C: a gold comes first with chance 2/3, and is never behind place 2.
    dictionary = at_angles(30, 30, 30)
    scores = score(at_angles(0), ["A|B|X"], dictionary, list("ABC"), ks=(1, 2)).scores
    assert scores["acc@1"] == pytest.approx(2 / 3)
    assert scores["acc@2"] == 1
    assert scores["mrr"] == pytest.approx(2 / 3 + 1 / 3 / 2)
    # A better gold hides a worse one, and golds are no competitors: A at rank 1, B behind C.
    result = score(at_angles(0), ["B|A"], at_angles(5, 40, 20), list("ABC"))
    assert result.scores["mrr"] == 1
    assert result.tied == 0


@pytest.mark.parametrize("seed", range(5))
def test_equals_naive_loop(seed):
    generator = np.random.default_rng(seed)
    # Few distinct directions, so that many concepts tie.
    directions = generator.normal(size=(7, 3)).astype(np.float32)
    dictionary = directions[generator.integers(7, size=16)] * generator.uniform(0.5, 2, (16, 1))
    concepts = ["|".join(generator.choice(list("ABCDEF"), 1 + i % 2, False)) for i in range(16)]
    mentions = np.concatenate([directions, generator.normal(size=(6, 3))]).astype(np.float32)
    gold = ["|".join(generator.choice(list("ABCDEFXYZ"), 1 + i % 3, False)) for i in range(13)]
    expected, unreachable, tied = naive_scores(mentions, gold, dictionary, concepts, KS)
    result = score(mentions, gold, dictionary.astype(np.float32), concepts, KS)
    assert result.scores == pytest.approx(expected, abs=1e-12)
    assert (result.unreachable, result.tied) == (unreachable, tied)
    assert result.tied > 0
    here = [row for row, joined in enumerate(gold) if set(joined.split("|")) & set("ABCDEF")]
    expected, missing, _ = naive_scores(
        mentions[here], [gold[row] for row in here], dictionary, concepts, KS
    )
    assert missing == 0 < unreachable
    assert result.reachable_scores == pytest.approx(expected, abs=1e-12)


def test_no_gold_concept_is_reachable():
    result = score(at_angles(0, 5), ["X", "Y"], at_angles(0, 9), ["A", "B"])
    assert result.scores["acc@1"] == 0 and result.unreachable == 2
    assert result.reachable_scores == {}


def test_it_stops_when_asked(monkeypatch):
    monkeypatch.setattr(stopping, "_asked", [15])
    with pytest.raises(stopping.Stopped):
        score(at_angles(0), ["A"], at_angles(0, 9), ["A", "B"])


def test_blocks_and_order_of_the_dictionary_change_nothing(monkeypatch):
    generator = np.random.default_rng(0)
    mentions, dictionary = generator.normal(size=(11, 4)), generator.normal(size=(20, 4))
    gold, concepts = list("ABCDEABCDEX"), list("ABCDEFGHIJ" * 2)
    whole = score(mentions, gold, dictionary, concepts)
    order = generator.permutation(20)
    shuffled = [concepts[row] for row in order]
    assert score(mentions, gold, dictionary[order], shuffled) == whole
    monkeypatch.setattr(counts, "BLOCK_MENTIONS", 3)
    assert score(mentions, gold, dictionary, concepts) == whole


def test_pairs_are_in_order_of_the_concept():
    # Accelerators take the order for granted (indices_are_sorted).
    found = rows_by_concept(lambda rows: np.zeros((len(rows), 2)), ["B|A", "A", "B", "C"])
    assert found.concept_ids == {"B": 0, "A": 1, "C": 2}
    assert found.pair_concepts_P.tolist() == [0, 0, 1, 1, 2]
    assert found.pair_rows_P.tolist() == [0, 2, 0, 1, 3]


def test_tie_tolerance():
    dictionary = np.array([[1, 0], [1, 1e-4], [1, 0.1]])  # cosines 1, 1 - 5e-9, 0.995
    arguments = (np.array([[1.0, 0]]), ["B"], dictionary, list("ABC"))
    assert score(*arguments).scores["acc@1"] == 0.5
    assert score(*arguments, tie_tolerance=0.01).scores["acc@1"] == pytest.approx(1 / 3)


def test_large_ties_have_exact_expectations():
    # A collapsed encoder: all vectors equal. The gold concept is at each of 2,000 places alike.
    count = 2000
    result = score(
        np.ones((2, 2)), ["C0", "C7"], np.ones((count, 2)), [f"C{i}" for i in range(count)]
    )
    assert result.scores["acc@5"] == pytest.approx(5 / count)
    assert result.scores["mrr"] == pytest.approx(np.mean(1 / np.arange(1, count + 1)))
    assert result.scores["acc@1_optimistic"] == 1
    assert result.tied == 2


def test_runs_under_strict_jax():
    with jax.transfer_guard("disallow"), jax.debug_nans(True):
        result = score(at_angles(0, 10), ["A", "X"], at_angles(0, 20), ["A", "B"])
    assert result.scores["acc@1"] == 0.5


def test_equal_strings_tie_exactly_and_are_encoded_once():
    vector_of = {"cold": at_angles(0)[0], "chill": at_angles(50)[0], "a cold": at_angles(3)[0]}
    calls = []

    def encode(strings):
        calls.append(strings)
        return np.stack([vector_of[string] for string in strings])

    dictionary = Dictionary(["cold", "chill", "cold"], ["disease", "feeling", "feeling"], "toy")
    fold = NormalizationFold("", ["a cold", "cold"], ["disease", "feeling"], dictionary)
    result = evaluate_normalization(encode, benchmark_of(fold), tie_tolerance=0)
    assert calls == [["a cold", "cold", "chill"]]
    assert result.tied == 2
    assert result.scores["acc@1"] == 0.5
    assert result.scores["acc@1_optimistic"] == 1
    assert result.folds == {}


def test_folds_are_averaged_without_weights():
    vector_of = dict(zip("abxy", at_angles(0, 90, 10, 80), strict=True))
    dictionary = Dictionary(["a", "b"], ["A", "B"], "toy")
    folds = (
        NormalizationFold("one", ["x"], ["A"], dictionary),
        NormalizationFold("two", ["x", "y", "y"], ["A", "A", "Q"], dictionary),
    )
    result = evaluate_normalization(
        lambda strings: np.stack([vector_of[string] for string in strings]), benchmark_of(*folds)
    )
    assert result.folds["one"].scores["acc@1"] == 1
    assert result.folds["two"].scores["acc@1"] == pytest.approx(1 / 3)
    assert result.scores["acc@1"] == pytest.approx((1 + 1 / 3) / 2)
    assert (result.mentions, result.unreachable) == (4, 1)
    assert result.reachable_scores["acc@1"] == pytest.approx((1 + 1 / 2) / 2)


def test_folds_that_share_a_dictionary_go_through_it_once(monkeypatch):
    gone_through = []

    def listen(vectors_of, concepts):
        gone_through.append(concepts)
        return rows_by_concept(vectors_of, concepts)

    monkeypatch.setattr(accuracy, "rows_by_concept", listen)
    one, other = Dictionary(["a", "b"], ["A", "B"], "one"), Dictionary(["a"], ["C"], "other")
    folds = [
        NormalizationFold(str(number), ["x"], ["A"], dictionary)
        for number, dictionary in enumerate([one, one, other, one])
    ]
    vectors = at_angles(0, 10, 80)
    result = evaluate_normalization(
        lambda strings: vectors[["abx".index(string) for string in strings]], benchmark_of(*folds)
    )
    assert gone_through == [["A", "B"], ["C"]]
    assert list(result.folds) == ["0", "1", "2", "3"]
    assert [part.unreachable for part in result.folds.values()] == [0, 0, 1, 0]


def test_bad_vectors_are_refused():
    good = at_angles(0, 10)
    with pytest.raises(
        BadInput, match=r"1 dictionary vectors of 2 with NaN .*row 1.*check the wei"
    ):
        score(good, ["A", "B"], good * [[1], [np.nan]], ["A", "B"])
    with pytest.raises(ValueError, match=r"mention vectors of shape \(2, 2\) for 1 concepts"):
        count_ranks(good, ["A"], rows_by_concept(good.__getitem__, ["A", "B"]), 0)
    with pytest.raises(ValueError, match="width 2 and dictionary vectors of width 3"):
        count_ranks(good, ["A", "B"], rows_by_concept(np.ones((1, 3)).__getitem__, ["A"]), 0)
    with pytest.raises(ValueError, match=r"found ks=\(0, 1\)"):
        score(good, ["A", "B"], good, ["A", "B"], ks=(0, 1))
    fold = NormalizationFold("", ["x"], ["A"], Dictionary(["a"], ["A"], "toy"))
    with pytest.raises(ValueError, match="encode gave 1 vectors for 2 strings"):
        evaluate_normalization(lambda strings: good[:1], benchmark_of(fold))
