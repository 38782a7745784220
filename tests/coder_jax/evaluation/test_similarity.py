"""Spearman's rank correlation of term pairs, and the pairs that are drawn to look at."""

import numpy as np
import pytest
import scipy.stats

from coder_jax.evaluation.benchmarks import print_records, read_benchmark
from coder_jax.evaluation.normalization import NormalizationOptions
from coder_jax.evaluation.record import VectorFileProtocol, write_records
from coder_jax.evaluation.similarity import (
    SimilarityBenchmark,
    _spearman,
    pair_cosines,
)
from data_pipeline.process import BadInput


class Vectors:
    keyed_by = "terms"

    def __init__(self, encode, missing=()):
        self.encode, self.missing = encode, missing

    def known(self, keys):
        return np.array([key not in self.missing for key in keys])


def test_spearman_by_hand():
    # Ranks 1 2 3 4 against 2 1 4 3: rho = 1 - 6 * (1 + 1 + 1 + 1) / (4 * 15).
    rho = _spearman(np.array([0.1, 0.2, 0.3, 0.9]), np.array([20, 10, 1000, 50]))
    assert rho == pytest.approx(1 - 24 / 60)


def test_spearman_with_ties_equals_pearson_of_mean_ranks():
    generator = np.random.default_rng(0)
    cosines, human = generator.integers(5, size=(2, 30)).astype(float)

    def mean_ranks(values):
        return [np.sum(values < v) + (np.sum(values == v) + 1) / 2 for v in values]

    expected = np.corrcoef(mean_ranks(cosines), mean_ranks(human))[0, 1]
    rho = _spearman(cosines, human)
    assert rho == pytest.approx(expected)
    assert rho == pytest.approx(scipy.stats.spearmanr(cosines, human).statistic)


def test_equal_values_have_no_correlation(tmp_path, capsys):
    assert _spearman(np.full(3, 0.5), np.arange(3)) is None
    assert _spearman(np.arange(3), np.full(3, 0.5)) is None
    assert _spearman(np.arange(1), np.arange(1)) is None
    # One group of raters may give the same score to every pair, where the other does not.
    benchmark = SimilarityBenchmark(
        *("toy", "toy", ["a", "b"], ["b", "c"], [2.5, 3], "hash"),
        groups={"physicians": [3, 3], "coders": [2, 3]},
    )
    vectors = {"a": [1, 0], "b": [1, 1], "c": [1, 1.1]}
    encoder = VectorFileProtocol(
        **{"model": "m", "weights_hash": "h", "keyed_by": "words", "pooling": "mean"},
        **{"width": 2, "vectors": 3, "used": 3, "look_up": "as they stand"},
    )
    encode = Vectors(lambda keys: np.array([vectors[k] for k in keys]))
    record = benchmark.score(encode, encoder, NormalizationOptions())
    rho = {"spearman": 1, "spearman_physicians": None, "spearman_coders": 1}
    assert record.scores == pytest.approx(rho)
    write_records(tmp_path / "out.json", [record])
    print_records([record], NormalizationOptions(k=(1,)))
    assert "undefined (all values are equal)" in capsys.readouterr().out


def test_each_term_is_encoded_once_and_vectors_need_no_unit_length():
    vector_of = {"a": [2, 0], "b": [3, 3], "c": [0, 1], "d": [-1, 0]}
    calls = []

    def encode(strings):
        calls.append(strings)
        return np.array([vector_of[string] for string in strings], np.float32)

    benchmark = SimilarityBenchmark("toy", "toy", ["a", "a", "a"], ["b", "c", "d"], [3, 2, 1], "")
    record = benchmark.score(Vectors(encode), None, NormalizationOptions())
    assert record.scores["spearman"] == pytest.approx(1)
    assert calls == [["a", "b", "c", "d"]]
    cosines = pair_cosines(encode, benchmark.first, benchmark.second)
    assert cosines == pytest.approx([np.sqrt(0.5), 0, -1])


def test_bad_values_are_refused():
    with pytest.raises(
        BadInput, match="1 similarities of 2 that are NaN or infinite; .*the weights"
    ):
        _spearman(np.array([np.nan, 1]), np.arange(2))


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

    found = benchmark.score(Vectors(encode, ["t0"]), None, NormalizationOptions())
    assert list(found.scores) == ["spearman", "spearman_coders", "spearman_none", "spearman_known"]
    assert list(found.intervals) == ["spearman", "spearman_coders", "spearman_known"]
    low, high = found.intervals["spearman_coders"]
    assert low < found.scores["spearman_coders"] < high and high - low > 0.4
    assert found.intervals["spearman_known"] == pytest.approx([1, 1]), "as the angles say"


# -------------------------------------------------------------------------------------------------
# Pairs of terms with human scores: the formats of their files.


@pytest.mark.parametrize(
    "name, content",
    [
        ("p.txt", "glaucoma\tfibrillation\t279\r\nherpes\tzona\t800.5\r\n"),
        ("p.tsv", "term1\tterm2\tscore\nglaucoma\tfibrillation\t279\nherpes\tzona\t800.5\n"),
        ("p.csv", 'Mean,Stdev,Term1,Term2\n279,1,glaucoma,fibrillation\n800.5,2,"herpes",zona\n'),
        ("p.csv", 'TERM1,"TERM2","Mean"\nglaucoma,fibrillation,279\nherpes,zona,800.5\n'),
    ],
)
def test_pairs(write, name, content):
    benchmark = read_benchmark("toy", write(name, content))
    assert benchmark.first == ["glaucoma", "herpes"]
    assert benchmark.second == ["fibrillation", "zona"]
    assert benchmark.scores == [279, 800.5]


def test_pairs_of_the_authors(write):
    mayo = read_benchmark(
        "mayo",
        write(
            "MayoSRS.csv",
            '"Mean","CUI1","CUI2","TERM1","TERM2"\r\n6.5,"C1","C2","gait, antalgic","limp"\r\n'
            '1,"C3","C4","rheumatoid nodule","nevus"\r\n',
        ),
    )
    assert mayo.first == ["gait, antalgic", "rheumatoid nodule"]
    assert mayo.keys("concepts") == ["C1", "C3", "C2", "C4"]
    assert (mayo.scores, mayo.concepts) == ([6.5, 1], (["C1", "C3"], ["C2", "C4"]))
    assert mayo.sides("concepts") == mayo.concepts and mayo.sides("terms")[1] == ["limp", "nevus"]
    rows = ["Physicians,Coders,CUI1,CUI2,TERM1,TERM2", "4,3,C1,C1,Heart,Cor", "1,2,C2,C3,Skin,Toe"]
    mini = read_benchmark("mini", write("MiniMayoSRS.csv", "\n".join(rows)))
    assert mini.scores == [3.5, 1.5]
    assert mini.groups == {"physicians": [4, 1], "coders": [3, 2]}
    plain = read_benchmark("toy", write("p.tsv", "a\tb\t1\nc\td\t2\n"))
    with pytest.raises(BadInput, match="p.tsv: found no CUIs, and concept vectors to compare"):
        plain.keys("concepts")
    with pytest.raises(BadInput, match=r"MiniMayoSRS.csv:3: found 'Skin', 'Toe', '1', ''; expect"):
        read_benchmark("mini", write("MiniMayoSRS.csv", "\n".join(rows).replace("1,2", "1,")))
