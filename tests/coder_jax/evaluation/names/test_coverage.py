"""Coverage at k: against every order of what is tied, by hand, and what cannot be read."""

import itertools

import numpy as np
import pytest
from evaluating import ENCODER

from coder_jax.evaluation.benchmarks import read_benchmark, score
from coder_jax.evaluation.names.covered import coverage_of_names
from coder_jax.evaluation.names.measures import Cosine
from coder_jax.evaluation.results.tables import tables_of
from coder_jax.evaluation.vectors.vectors import EncodedTerms
from data_pipeline.process.errors import BadInput

NAMES = ["heart attack", "attack of the heart", "heart infarct", "kidney stone", "renal stone"]
CONCEPTS = ["C1", "C1", "C1", "C2", "C2"]


def vectors_of(names, rows):
    return EncodedTerms(None, names, np.asarray(rows, np.float32))


def naive(similarity, concepts, k):
    """The mean over all orders of the other names that fall with their similarity."""
    shares = []
    for row, values in enumerate(similarity):
        others = [one for one in range(len(values)) if one != row]
        synonyms = {one for one in others if concepts[one] == concepts[row]}
        found = [
            len(synonyms.intersection(order[:k])) / len(synonyms)
            for order in itertools.permutations(others)
            if all(values[a] >= values[b] for a, b in itertools.pairwise(order))
        ]
        shares.append(np.mean(found))
    return shares


def test_coverage_is_the_mean_over_orders_of_equally_near_names():
    """Vectors of few values: many are equally near."""
    rng = np.random.default_rng(0)
    names = [f"name {number}" for number in range(7)]
    concepts = np.array([0, 0, 0, 1, 1, 2, 2])
    for _ in range(5):
        rows = rng.choice([-1.0, 1.0], (7, 3))
        similarity = np.round(rows @ rows.T / 3, 6)
        measure = Cosine(vectors_of(names, rows), names)
        found = coverage_of_names(measure, names, concepts, [1, 2, 3, 99])
        for column, k in enumerate((1, 2, 3, 99)):
            expected = naive(similarity, concepts, k)
            np.testing.assert_allclose(found[:, column], expected, atol=1e-9)
    assert np.all(found[:, 3] == 1)


def write(folder, text):
    path = folder / "heldout" / "concepts.tsv"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return folder


def rows_of(names, concepts):
    rows = zip(names, concepts, strict=True)
    return "term\tCUI\n" + "".join(f"{one}\t{cui}\n" for one, cui in rows)


def test_the_record_and_its_table_by_hand(tmp_path):
    """Of five names on a line the nearest is a synonym for three, both others for two of three."""
    benchmark = read_benchmark("mine", write(tmp_path, rows_of(NAMES, CONCEPTS)))
    angles = np.deg2rad([0, 10, 25, 32, 60])
    vectors = vectors_of(NAMES, np.stack([np.cos(angles), np.sin(angles)], axis=1))
    record = score(benchmark, vectors, ENCODER, coverage_k=[2, 1])
    # k = 1: 1/2, 1/2, 0 (the kidney stone is nearer), 0, 1. k = 2: 1, 1, 1/2 (one of the two), 0, 1
    assert record.scores == pytest.approx({"coverage@1": 2 / 5, "coverage@2": 3.5 / 5})
    # Words: "of the" are none, so the two first are one; each shares a word with the third.
    words = record.folds["word Jaccard"]["scores"]
    assert words == pytest.approx({"coverage@1": (0.5 + 0.5 + 0.5 + 1 + 1) / 5, "coverage@2": 1})
    low, high = record.intervals["coverage@2"]
    # Concepts are drawn whole: two of the first, two of the second, or one of each.
    assert (low, high) == pytest.approx((0.5, 2.5 / 3))
    ((header, rows),) = tables_of([record])
    assert header == ["coverage", "pooling", "names", "concepts", "coverage@1", "coverage@2"]
    assert rows[0].cells[:4] == ["mine", "cls", "5", "2"]
    assert rows[0].cells[5].startswith("70.00 ±")
    assert rows[1].cells == ["mine: word Jaccard", "", "", "", "70.00", "100.00"]


def test_names_without_a_vector_are_counted(tmp_path):
    from coder_jax.evaluation.vectors.word2vec_files import VectorTable
    from coder_jax.evaluation.vectors.words_and_concepts import WordVectors

    benchmark = read_benchmark("mine", write(tmp_path, rows_of(NAMES, CONCEPTS)))
    table = VectorTable({"heart": 0}, np.ones((1, 2), np.float32), 1, "hash", "w.txt")
    record = score(benchmark, WordVectors(table), ENCODER)
    assert record.counts == {"names": 5, "concepts": 2, "missing": 2, "partly_known": 3}
    # Those three are equally near; the stones have the cosine 0 with all four others.
    assert record.scores["coverage@1"] == pytest.approx((3 * 0.5 + 2 * 0.25) / 5)


@pytest.mark.parametrize(
    "text, message",
    [
        ("term\tCUI\na\tC1\nb\tC1\na\tC2\n", "found 'a' twice; expected each name once"),
        ("term\tCUI\na\tC1\nb\tC1\nc\tC2\n", "found one name of C2; expected two or more"),
        ("term\tCUI\n", "found a header and no rows"),
    ],
)
def test_what_cannot_be_scored(tmp_path, text, message):
    with pytest.raises(BadInput, match=message):
        read_benchmark("mine", write(tmp_path, text))
