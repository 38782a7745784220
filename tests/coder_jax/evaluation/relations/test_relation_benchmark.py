"""Relation classification: which training which vectors get, and where a score stands."""

import numpy as np
import pytest
from evaluating import ENCODER

from coder_jax.evaluation.benchmarks import options_with, read_benchmark
from coder_jax.evaluation.relations import classification, fine_tuning
from coder_jax.evaluation.relations.relation_benchmark import RelationBenchmark
from coder_jax.evaluation.vectors.vectors import EncodedTerms
from coder_jax.evaluation.vectors.word2vec_files import VectorTable
from coder_jax.evaluation.vectors.words_and_concepts import ConceptVectors

ROWS = "head\ttail\tlabel\nC1\tC2\ta\nC2\tC3\tb\nC1\tC3\ta\n"


@pytest.fixture
def benchmark(write, tmp_path):
    for half in ("train", "test"):
        write(f"set/relations_{half}.tsv", ROWS)
    return read_benchmark("toy", tmp_path / "set")


def concept_vectors():
    table = np.eye(3, dtype=np.float32)
    rows = {f"C{i + 1}": i for i in range(3)}
    return ConceptVectors(VectorTable(rows, table, 3, "hash", "w.bin"))


def test_it_needs_features_and_no_relations():
    assert RelationBenchmark.takes_features and not RelationBenchmark.takes_relations


@pytest.mark.parametrize("features", ["frozen", "fine-tuned"])
@pytest.mark.parametrize("made", ["encoded", "of a file"])
def test_each_vectors_have_their_training(benchmark, monkeypatch, features, made):
    """Encoders 1e-3 or 2e-5 and 96 pairs, with a warm-up; files 1e-3 and 512 pairs without."""
    called = []
    result = classification.RelationResult({"accuracy": 0.5}, {}, {}, 0.1)

    def noted(name):
        def note(vectors, of, settings):
            called.append((name, settings))
            return result

        return note

    monkeypatch.setattr(classification, "evaluate_relations", noted("frozen"))
    monkeypatch.setattr(fine_tuning, "fine_tune", noted("encoder"))
    monkeypatch.setattr(fine_tuning, "fine_tune_table", noted("table"))
    vectors = EncodedTerms(None, [], None) if made == "encoded" else concept_vectors()
    options = options_with({"features": features, "epochs": 7, "seed": 3})
    record = benchmark.score(vectors, ENCODER, options)
    ((name, training),) = called
    kind = "encoder" if made == "encoded" else "table"
    assert name == ("frozen" if features == "frozen" else kind)
    assert (training.epochs, training.seed) == (7, 3)
    tuned_encoder = (features, made) == ("fine-tuned", "encoded")
    assert (training.batch_pairs, training.learning_rate) == (
        (96, 2e-5) if tuned_encoder else (512, 1e-3)
    )
    assert (training.warmup is None) == (made == "of a file")
    assert record.scoring["features"] == features and record.scores == {"accuracy": 0.5}


def test_vectors_that_cannot_be_trained_along(benchmark):
    class Fixed:
        keyed_by = "concepts"

    with pytest.raises(ValueError, match="expected an encoder or a file's to fine-tune"):
        benchmark.score(Fixed(), ENCODER, options_with({"features": "fine-tuned"}))


@pytest.mark.parametrize("features", ["frozen", "fine-tuned"])
def test_the_accuracy_stands_under_what_was_trained(benchmark, features):
    scores = {"accuracy": 0.25, "macro_f1": 0.5, "most_frequent": 0.75}
    counts = {"train": 3, "test": 3, "labels": 2, "missing": 1, "unnamed": 0, "unseen": 0}
    result = classification.RelationResult(scores, {}, counts, 0.1)
    training = classification.TABLE_TRAINING
    record = classification.relation_record(benchmark, result, features, training, ENCODER)
    header, (row,) = RelationBenchmark.table([record], {})
    shown = dict(zip(header, row.cells, strict=True))
    other = {"frozen": "fine-tuned", "fine-tuned": "frozen"}[features]
    assert (shown[features], shown[other], shown["macro F1"]) == ("25.00", "", "50.00")
    assert (shown["most frequent"], shown["missing"], shown["train"]) == ("75.00", "1", "3")
