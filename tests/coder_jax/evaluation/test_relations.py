"""Relation classification: which training which vectors get, and where a score stands."""

import numpy as np
import pytest
from evaluating import ENCODER

from coder_jax.evaluation import relation_classifiers
from coder_jax.evaluation.benchmark import Options
from coder_jax.evaluation.benchmarks import options_with, read_benchmark
from coder_jax.evaluation.relation_classifiers import (
    ClassifierSettings,
    _numbered,
    _relation_result,
    relation_record,
)
from coder_jax.evaluation.relation_pairs import RelationPairs
from coder_jax.evaluation.relations import RelationBenchmark
from coder_jax.evaluation.vectors import EncodedTerms, VectorTable, _ConceptVectors
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process import BadInput
from data_pipeline.terminology.retired_cuis import RetiredCuis

ROWS = "head\ttail\tlabel\nC1\tC2\ta\nC2\tC3\tb\nC1\tC3\ta\n"


@pytest.fixture
def benchmark(write, tmp_path):
    for half in ("train", "test"):
        write(f"set/relations_{half}.tsv", ROWS)
    return read_benchmark("toy", tmp_path / "set")


def concept_vectors():
    table = np.eye(3, dtype=np.float32)
    rows = {f"C{i + 1}": i for i in range(3)}
    return _ConceptVectors(VectorTable(rows, table, 3, "hash", "w.bin"))


def test_it_needs_features_and_no_relations():
    assert RelationBenchmark.takes_features and not RelationBenchmark.takes_relations


@pytest.mark.parametrize("features", ["frozen", "fine-tuned"])
@pytest.mark.parametrize("made", ["encoded", "of a file"])
def test_each_vectors_have_their_training(benchmark, monkeypatch, features, made):
    """Encoders 1e-3 or 2e-5 and 96 pairs, with a warm-up; files 1e-3 and 512 pairs without."""
    called = []
    result = relation_classifiers.RelationResult({"accuracy": 0.5}, {}, {}, 0.1)

    def noted(name):
        def note(vectors, of, settings):
            called.append((name, settings))
            return result

        return note

    monkeypatch.setattr(relation_classifiers, "evaluate_relations", noted("frozen"))
    monkeypatch.setattr(relation_classifiers, "fine_tune", noted("encoder"))
    monkeypatch.setattr(relation_classifiers, "fine_tune_table", noted("table"))
    vectors = EncodedTerms(None, [], None) if made == "encoded" else concept_vectors()
    options = options_with(features=features, epochs=7, seed=3)
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
        benchmark.score(Fixed(), ENCODER, options_with(features="fine-tuned"))


@pytest.mark.parametrize("features", ["frozen", "fine-tuned"])
def test_the_accuracy_stands_under_what_was_trained(benchmark, features):
    scores = {"accuracy": 0.25, "macro_f1": 0.5, "most_frequent": 0.75}
    counts = {"train": 3, "test": 3, "labels": 2, "missing": 1, "unnamed": 0, "unseen": 0}
    result = relation_classifiers.RelationResult(scores, {}, counts, 0.1)
    training = relation_classifiers.TABLE_TRAINING
    record = relation_classifiers.relation_record(benchmark, result, features, training, ENCODER)
    header, (row,) = RelationBenchmark.table([record], Options())
    shown = dict(zip(header, row.cells, strict=True))
    other = {"frozen": "fine-tuned", "fine-tuned": "frozen"}[features]
    assert (shown[features], shown[other], shown["macro F1"]) == ("25.00", "", "50.00")
    assert (shown["most frequent"], shown["missing"], shown["train"]) == ("75.00", "1", "3")


# -------------------------------------------------------------------------------------------------
# Files of relation classification: what is read from each format, names, labels and messages.


def ddbrc(folder, **changed):
    files = {
        "x_train.txt": "C1\tC2\nC2\tC3\n",
        "y_train.txt": "may cause\nis a risk factor for\n",
        "x_test.txt": "C3\tC4\n",
        "y_test.txt": "may cause\n",
    }
    for name, content in (files | changed).items():
        (folder / name).write_text(content)
    return folder


def test_ddbrc_files(tmp_path):
    dictionary = Dictionary(["pain", "ache", "cough"], ["C1", "C1", "C2|C3"], "toy.tsv")
    benchmark = read_benchmark("ddbrc", ddbrc(tmp_path), dictionary=dictionary)
    assert benchmark.train.heads == ["C1", "C2"] and benchmark.train.tails == ["C2", "C3"]
    assert benchmark.test == RelationPairs(["C3"], ["C4"], ["may cause"])
    assert benchmark.labels() == ["is a risk factor for", "may cause"]
    assert benchmark.keys("terms") == ["pain", "cough", "cough", "C4"], "without a name: itself"
    assert benchmark.keys("concepts") == ["C1", "C2", "C3", "C4"]
    with pytest.raises(BadInput, match="found relations between CUIs and no names for them"):
        read_benchmark("ddbrc", tmp_path).keys("terms")


def test_a_retired_concept_is_named_after_its_successor(tmp_path):
    dictionary = Dictionary(["pain", "cough"], ["C7", "C3"], "toy.tsv")
    retired = RetiredCuis({"C1": "C8", "C7": "C8", "C9": "C3"}, "merged.tsv")
    benchmark = read_benchmark(
        "ddbrc", ddbrc(tmp_path), dictionary=dictionary, retired_cuis=retired
    )
    assert benchmark.names == {"C1": "pain", "C3": "cough"} and benchmark.retired == 1
    assert benchmark.keys("concepts") == ["C1", "C2", "C3", "C4"], "as old as files of vectors"
    result = _relation_result(
        benchmark, ["x"], *[np.zeros((1, 3), int)] * 2, np.zeros(1, int), np.ones(4, bool), 0.0
    )
    record = relation_record(benchmark, result, "frozen", ClassifierSettings(), None)
    assert record.counts["retired"] == 1 and record.counts["unnamed"] == 2
    assert record.dictionary["retired"] == 1
    assert record.scoring["retired_cuis"]["source"] == "merged.tsv"


def test_relation_tsv_files(tmp_path):
    (tmp_path / "relations_train.tsv").write_text("head\ttail\tlabel\nC1\tC2\tisa\nC1\tC3\tx\n")
    (tmp_path / "relations_test.tsv").write_text("C2\tC3\tisa\n")
    benchmark = read_benchmark("toy", tmp_path)
    assert benchmark.train == RelationPairs(["C1", "C1"], ["C2", "C3"], ["isa", "x"])
    assert benchmark.test == RelationPairs(["C2"], ["C3"], ["isa"])


def test_a_label_that_no_training_pair_has_counts_as_wrong_unless_predicted(tmp_path):
    """Of the sample in CODER's repository 2 of 10 test pairs have such a label."""
    pairs = {"x_test.txt": "C3\tC4\nC1\tC3\n", "y_test.txt": "cures\nmay cause\n"}
    benchmark = read_benchmark("ddbrc", ddbrc(tmp_path, **pairs))
    assert benchmark.labels() == ["cures", "is a risk factor for", "may cause"]
    train, test, labels = _numbered(benchmark)
    right, wrong = [0, 2], [1, 2]
    for predicted, accuracy in ((right, 1), (wrong, 0.5)):
        known = np.ones(4, bool)
        rest = (np.array(predicted), known, 0.0)
        result = _relation_result(benchmark, labels, train, test, *rest)
        assert result.scores["accuracy"] == accuracy
    record = relation_record(benchmark, result, "frozen", ClassifierSettings(), ENCODER)
    assert (record.counts["unseen"], record.counts["labels"]) == (1, 3)
    header, (row, *_) = RelationBenchmark.table([record], Options())
    assert row.cells[header.index("unseen")] == "1"
    assert row.cells[header.index("frozen")] == "50.00 ±50.0", "one of two pairs"


@pytest.mark.parametrize(
    "changed, message",
    [
        (
            {"x_train.txt": "C1\tC2\nC3\n"},
            r"x_train.txt:2: found \['C3'\]; expected .*: mend the line",
        ),
        (
            {"y_test.txt": "may cause\nx\n"},
            r"y_test.txt: found 2 relations for 1 pairs in .*x_test.*: fetch both files again",
        ),
        (
            {"x_test.txt": "C3\tC4\n\nC1\tC3\n", "y_test.txt": "\nmay cause\nx\n"},
            r"y_test.txt: found 2 relations for 2 pairs in .*, and only one of the two in line 1;",
        ),
    ],
)
def test_files_that_cannot_be_used(tmp_path, changed, message):
    with pytest.raises(BadInput, match=message):
        read_benchmark("ddbrc", ddbrc(tmp_path, **changed))
    with pytest.raises(BadInput, match="found none of its 4 concepts .*; expected concepts of one"):
        read_benchmark("x", ddbrc(tmp_path), dictionary=Dictionary(["a"], ["D1"], "toy.tsv"))


def test_empty_lines_at_the_same_places_are_left_out(tmp_path):
    pairs = {"x_test.txt": "C3\tC4\n\nC1\tC3", "y_test.txt": "may cause\n\nis\n\n"}
    benchmark = read_benchmark("ddbrc", ddbrc(tmp_path, **pairs))
    assert benchmark.test == RelationPairs(["C3", "C1"], ["C4", "C3"], ["may cause", "is"])


def test_openmeta(shared_data):
    benchmark = read_benchmark("relations", shared_data / "openmeta/eval")
    assert (len(benchmark.train.labels), len(benchmark.test.labels)) == (7640, 955)
    assert len(benchmark.labels()) == 14
