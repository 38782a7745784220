"""Concept sets: lists and datasets that they are read from."""

from types import SimpleNamespace

import numpy as np
import pytest
from tiny_dataset import tiny_dataset

from coder_jax.evaluation.benchmarks import options_with, read_benchmark
from coder_jax.evaluation.concepts import (
    ConceptSet,
    _read_dataset_concepts,
    bare_type,
)
from coder_jax.evaluation.published import MCSM_TYPES
from data_pipeline.process import BadInput

LIST = (
    "CUI\tSemantic types\tterm\n"
    "C1\tT033 Finding|T184 Sign or Symptom\tpain\nC2\tFinding\tcough\n"
    "C3\tSign or Symptom\tfever\nC4\tCell\tneuron\n"
)


@pytest.mark.parametrize(
    "content, types, message",
    [
        (LIST + "C5\tCell\n", (), r"c.tsv:6: found \['C5', 'Cell'\]; expected 3 columns: CUI"),
        (LIST + "C2\tCell\tx\n", (), r"c.tsv:6: found C2 again, as in line 3; expected one row"),
        (LIST, ["Cell", "Gene"], r"c.tsv: found no concept of the type 'Gene'; give --types of"),
        (LIST.replace("Finding", "Cell"), (), r"no concept of the type 'Pharmacologic.*: Cell, "),
    ],
)
def test_lists_that_cannot_be_used(tmp_path, content, types, message):
    path = tmp_path / "c.tsv"
    path.write_text(content)
    with pytest.raises(BadInput, match=message):
        read_benchmark("toy", path, options=options_with(types=types))


def test_a_dataset_gives_the_first_term_of_each_concept(tmp_path, monkeypatch):
    import dataclasses

    from coder_jax.evaluation import concepts

    tiny = tiny_dataset(concepts=3, triplets=2)
    terms = [f"term {i}" for i in range(tiny.term_start[-1])]
    made = dataclasses.replace(
        tiny,
        manifest=dataclasses.replace(tiny.manifest, semantic_types=["T025 Cell", "T033 Finding"]),
        type_start=np.array([0, 1, 1, 3]),
        types=np.array([1, 0, 1]),
        cuis=["C1", "C2", "C3"],
        terms=terms,
    )
    monkeypatch.setattr(concepts, "open_dataset", lambda path, strings: made)
    benchmark = _read_dataset_concepts("toy", tmp_path, ["Finding", "T025 Cell"])
    assert benchmark.terms == [terms[i] for i in tiny.term_start[:-1]]
    assert benchmark.of_type["Finding"].tolist() == [True, False, True]
    assert benchmark.of_type["Cell"].tolist() == [False, False, True]
    assert benchmark.content_hash == tiny.manifest.content_hash


def test_names_of_types():
    assert bare_type("T047 Disease or Syndrome") == "Disease or Syndrome"
    assert bare_type("Disease or Syndrome") == "Disease or Syndrome"
    assert bare_type("Tick bite") == "Tick bite" and bare_type("T047") == "T047"


# -------------------------------------------------------------------------------------------------
# MCSM: the measure against its formula written out, and the concept sets it reads.


def scored(vectors, benchmark, **options):
    """What the record says of each type, and its counts."""
    record = benchmark.score(vectors, None, options_with(**options))
    of_type = {
        name: SimpleNamespace(
            **fold["scores"], **fold["counts"], interval=fold["intervals"].get("mcsm")
        )
        for name, fold in record.folds.items()
    }
    return of_type, record.counts


class Table:
    """Vectors by key; what is not in it is missing."""

    def __init__(self, vectors, keyed_by="terms"):
        self.table, self.keyed_by = vectors, keyed_by

    def encode(self, keys):
        return np.array([self.table[key] for key in keys], np.float32)

    def known(self, keys):
        return np.array([key in self.table for key in keys])


def naive_mcsm(vectors, of_type, k):
    """The formula of the papers, one concept and one neighbour at a time."""
    total = 0.0
    for v in np.flatnonzero(of_type):
        cosines = {
            w: vectors[v] @ vectors[w] / np.linalg.norm(vectors[v]) / np.linalg.norm(vectors[w])
            for w in range(len(vectors))
            if w != v
        }
        nearest = sorted(cosines, key=lambda w: -cosines[w])[:k]
        total += sum(of_type[w] / np.log2(i + 1) for i, w in enumerate(nearest, start=1))
    return total / of_type.sum()


@pytest.fixture
def concepts():
    rng = np.random.default_rng(0)
    names = [f"C{i}" for i in range(300)]
    of_type = {"Finding": rng.random(300) < 0.3, "Cell": rng.random(300) < 0.1}
    benchmark = ConceptSet("toy", "toy", names, [f"term {n}" for n in names], of_type, "hash")
    return benchmark, rng.normal(size=(300, 5)) * rng.uniform(0.1, 9, (300, 1))


@pytest.mark.parametrize("k", [1, 7, 40])
def test_the_formula(concepts, k):
    benchmark, vectors = concepts
    table = Table(dict(zip(benchmark.terms, vectors, strict=True)))
    result, counts = scored(table, benchmark, neighbours=k)
    for name, mask in benchmark.of_type.items():
        assert result[name].mcsm == pytest.approx(naive_mcsm(vectors, mask, k), rel=1e-6)
        assert result[name].concepts == result[name].scored == mask.sum()
    assert counts == {"concepts": 300, "missing": 0, "retired": 0}


def test_concepts_without_a_vector_are_counted_and_are_no_neighbours(concepts):
    benchmark, vectors = concepts
    some = np.arange(300) % 4 > 0
    known = {c: v for c, v, held in zip(benchmark.concepts, vectors, some, strict=True) if held}
    result, counts = scored(Table(known, "concepts"), benchmark, neighbours=5)
    assert counts == {"concepts": 300, "missing": 75, "retired": 0}
    for name, mask in benchmark.of_type.items():
        expected = naive_mcsm(vectors[some], mask[some], 5)
        assert result[name].mcsm == pytest.approx(expected, rel=1e-6)


def test_neighbours_of_the_evaluated_types_only(concepts):
    benchmark, vectors = concepts
    inside = benchmark.of_type["Finding"] | benchmark.of_type["Cell"]
    table = Table(dict(zip(benchmark.terms, vectors, strict=True)))
    result, counts = scored(table, benchmark, neighbours=5, only_these_types=True)
    expected = naive_mcsm(vectors[inside], benchmark.of_type["Cell"][inside], 5)
    assert result["Cell"].mcsm == pytest.approx(expected, rel=1e-6)
    assert counts["concepts"] == inside.sum()


def test_a_sample_is_scored_against_all(concepts):
    benchmark, vectors = concepts
    table = Table(dict(zip(benchmark.terms, vectors, strict=True)))
    whole = scored(table, benchmark, neighbours=5)[0]["Finding"]
    first, again, other = (
        scored(table, benchmark, neighbours=5, sample=20, seed=seed)[0]["Finding"]
        for seed in (0, 0, 1)
    )
    assert first == again != other
    assert first.scored == 20 and first.concepts == whole.concepts
    many = [
        scored(table, benchmark, neighbours=5, sample=20, seed=seed)[0]["Finding"].mcsm
        for seed in range(30)
    ]
    error = whole.deviation / np.sqrt(20 * 30)
    assert abs(np.mean(many) - whole.mcsm) < 4 * error


def test_equal_vectors_never_count_the_concept_itself():
    names = [f"C{i}" for i in range(6)]
    alone = {"Finding": np.arange(6) == 5, "Cell": np.arange(6) < 5}
    benchmark = ConceptSet("toy", "toy", names, ["same"] * 6, alone, "hash")
    result, _ = scored(Table({"same": [1.0, 0]}), benchmark, neighbours=3)
    assert result["Finding"].mcsm == 0
    assert result["Finding"].chance == 0
    with pytest.raises(BadInput, match="found 6 concepts with a vector, of 6; expected more than"):
        scored(Table({"same": [1.0, 0]}), benchmark, neighbours=6)


def test_perfect_clusters_have_the_sum_of_the_weights_and_chance_is_what_noise_gives():
    rng = np.random.default_rng(0)
    names = [f"C{i}" for i in range(600)]
    of_type = {"Finding": np.arange(600) < 200, "Cell": np.arange(600) >= 200}
    benchmark = ConceptSet("toy", "toy", names, names, of_type, "hash")
    noise = rng.normal(size=(600, 400))
    clusters = {n: v + 100 * (i < 200) for i, (n, v) in enumerate(zip(names, noise, strict=True))}
    result, _ = scored(Table(clusters), benchmark, neighbours=40)
    assert result["Finding"].mcsm == pytest.approx(sum(1 / np.log2(i + 1) for i in range(1, 41)))
    random, _ = scored(Table(dict(zip(names, noise, strict=True))), benchmark, neighbours=40)
    assert random["Finding"].mcsm == pytest.approx(random["Finding"].chance, rel=0.1)


LIST_MCSM = (
    "CUI\tSemantic types\tterm\n"
    "C1\tT033 Finding|T184 Sign or Symptom\tpain\nC2\tFinding\tcough\n"
    "C3\tSign or Symptom\tfever\nC4\tCell\tneuron\n"
)


def test_concept_list(tmp_path):
    path = tmp_path / "concepts.tsv"
    path.write_text(LIST_MCSM)
    benchmark = read_benchmark("toy", path)
    assert benchmark.concepts == ["C1", "C2", "C3", "C4"]
    assert benchmark.keys("terms") == ["pain", "cough", "fever", "neuron"]
    assert list(benchmark.of_type) == list(MCSM_TYPES), "the papers' six"
    assert benchmark.of_type["Finding"].tolist() == [True, True, False, False]
    chosen = read_benchmark("toy", path, options=options_with(types=["T184 Sign or Symptom"]))
    assert {name: mask.tolist() for name, mask in chosen.of_type.items()} == {
        "Sign or Symptom": [True, False, True, False]
    }
    unit = np.eye(4)[[0, 0, 0, 1]] + 0.1 * np.eye(4)
    vectors = Table(dict(zip(benchmark.concepts, unit, strict=True)), "concepts")
    record = benchmark.score(vectors, None, options_with(neighbours=2))
    assert record.folds["Clinical Drug"]["scores"]["mcsm"] is None
    assert record.scores["mcsm"] == record.folds["Finding"]["scores"]["mcsm"] > 0
    assert record.scoring["k"] == 2


def test_the_interval_is_that_of_the_mean_over_concepts():
    rng = np.random.default_rng(0)
    names = [f"C{n}" for n in range(200)]
    of_type = {"Finding": np.arange(200) < 120}
    benchmark = ConceptSet("n", "p", names, names, of_type, "hash")
    vectors = Table(dict(zip(names, rng.normal(size=(200, 3)), strict=True)))
    found = scored(vectors, benchmark, neighbours=5)[0]["Finding"]
    half = 1.96 * found.deviation / np.sqrt(120)
    assert found.interval == pytest.approx([found.mcsm - half, found.mcsm + half], abs=0.03)
