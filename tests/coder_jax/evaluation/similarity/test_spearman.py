"""Spearman's rank correlation of term pairs, and the pairs that are drawn to look at."""

import numpy as np
import pytest
import scipy.stats

from coder_jax.evaluation.record import VectorFileProtocol, write_records
from coder_jax.evaluation.results.tables import print_records
from coder_jax.evaluation.similarity.spearman import (
    evaluate_similarity,
    pair_cosines,
    score_similarity,
    similarity_record,
)
from coder_jax.evaluation.similarity.term_pairs import SimilarityBenchmark
from data_pipeline.process.errors import BadInput


def test_spearman_by_hand():
    # Ranks 1 2 3 4 against 2 1 4 3: rho = 1 - 6 * (1 + 1 + 1 + 1) / (4 * 15).
    result = score_similarity(np.array([0.1, 0.2, 0.3, 0.9]), np.array([20, 10, 1000, 50]))
    assert result.scores["spearman"] == pytest.approx(1 - 24 / 60)
    assert result.pairs == 4


def test_spearman_with_ties_equals_pearson_of_mean_ranks():
    generator = np.random.default_rng(0)
    cosines, human = generator.integers(5, size=(2, 30)).astype(float)

    def mean_ranks(values):
        return [np.sum(values < v) + (np.sum(values == v) + 1) / 2 for v in values]

    expected = np.corrcoef(mean_ranks(cosines), mean_ranks(human))[0, 1]
    rho = score_similarity(cosines, human).scores["spearman"]
    assert rho == pytest.approx(expected)
    assert rho == pytest.approx(scipy.stats.spearmanr(cosines, human).statistic)


def test_equal_values_have_no_correlation(tmp_path, capsys):
    assert score_similarity(np.full(3, 0.5), np.arange(3)).scores == {"spearman": None}
    assert score_similarity(np.arange(3), np.full(3, 0.5)).scores == {"spearman": None}
    # One group of raters may give the same score to every pair, where the other does not.
    benchmark = SimilarityBenchmark(
        *("toy", "toy", ["a", "b"], ["b", "c"], [2.5, 3], "hash"),
        groups={"physicians": [3, 3], "coders": [2, 3]},
    )
    vectors = {"a": [1, 0], "b": [1, 1], "c": [1, 1.1]}
    result = evaluate_similarity(lambda keys: np.array([vectors[k] for k in keys]), benchmark)
    rho = {"spearman": 1, "spearman_physicians": None, "spearman_coders": 1}
    assert result.scores == pytest.approx(rho)
    encoder = VectorFileProtocol(
        **{"model": "m", "weights_hash": "h", "keyed_by": "words", "pooling": "mean"},
        **{"width": 2, "vectors": 3, "used": 3},
    )
    record = similarity_record(benchmark, result, encoder)
    write_records(tmp_path / "out.json", [record])
    print_records([record], k=[1])
    assert "undefined (all values are equal)" in capsys.readouterr().out


def test_each_term_is_encoded_once_and_vectors_need_no_unit_length():
    vector_of = {"a": [2, 0], "b": [3, 3], "c": [0, 1], "d": [-1, 0]}
    calls = []

    def encode(strings):
        calls.append(strings)
        return np.array([vector_of[string] for string in strings], np.float32)

    benchmark = SimilarityBenchmark("toy", "toy", ["a", "a", "a"], ["b", "c", "d"], [3, 2, 1], "")
    assert evaluate_similarity(encode, benchmark).scores["spearman"] == pytest.approx(1)
    assert calls == [["a", "b", "c", "d"]]
    cosines = pair_cosines(encode, benchmark.first, benchmark.second)
    assert cosines == pytest.approx([np.sqrt(0.5), 0, -1])


def test_bad_values_are_refused():
    with pytest.raises(
        BadInput, match="1 similarities of 2 that are NaN or infinite; .*the weights"
    ):
        score_similarity(np.array([np.nan, 1]), np.arange(2))
    with pytest.raises(ValueError, match=r"shape \(2,\) and human scores of shape \(3,\)"):
        score_similarity(np.zeros(2), np.zeros(3))


def test_each_score_has_its_interval():
    rng = np.random.default_rng(0)
    terms = [f"t{n}" for n in range(60)]
    angles = dict(zip(terms, rng.uniform(0, np.pi, 60), strict=True))
    first, second = terms[:30], terms[30:]
    near = [-abs(angles[a] - angles[b]) for a, b in zip(first, second, strict=True)]
    groups = {"coders": list(rng.permutation(near)), "none": [1.0] * 30}
    benchmark = SimilarityBenchmark("n", "p", first, second, near, "hash", groups=groups)

    def encode(some):
        return np.array([[np.cos(angles[one]), np.sin(angles[one])] for one in some])

    found = evaluate_similarity(
        encode, benchmark, known=lambda some: np.array([one != "t0" for one in some])
    )
    assert list(found.scores) == ["spearman", "spearman_coders", "spearman_none", "spearman_known"]
    assert list(found.intervals) == ["spearman", "spearman_coders", "spearman_known"]
    low, high = found.intervals["spearman_coders"]
    assert low < found.scores["spearman_coders"] < high and high - low > 0.4
    assert found.intervals["spearman_known"] == pytest.approx([1, 1]), "as the angles say"
