"""Relation classification: files, and training against PyTorch and scikit-learn."""

import jax
import numpy as np
import pytest
import sklearn.metrics
from evaluating import ENCODER
from softmax_twin import torch_training

from coder_jax.evaluation import relation_classification
from coder_jax.evaluation.benchmarks import RelationBenchmark, read_benchmark
from coder_jax.evaluation.dictionary import Dictionary
from coder_jax.evaluation.relation_classification import (
    evaluate_relations,
    numbered,
    relation_record,
    relation_result,
)
from coder_jax.evaluation.relation_files import RelationPairs
from coder_jax.evaluation.retired_cuis import RetiredCuis
from coder_jax.evaluation.softmax_classifier import (
    ClassifierSettings,
    fit,
    initial_layer,
    learning_rates,
    pair_logits,
    predict,
)
from coder_jax.evaluation.table import relation_table
from data_pipeline.errors import BadInput


class Table:
    keyed_by = "concepts"

    def __init__(self, vectors):
        self.table = vectors

    def known(self, keys):
        return np.array([key in self.table for key in keys])

    def features(self, keys):
        return np.array([self.table[key] for key in keys], np.float32)


def toy(pairs=400, labels=3, seed=0):
    """Pairs whose label a linear map of the vectors of head and tail decides; all learnable."""
    rng = np.random.default_rng(seed)
    vectors = {f"C{i}": rng.normal(size=6) for i in range(60)}
    heads, tails = (rng.choice(list(vectors), pairs).tolist() for _ in range(2))
    kernel = rng.normal(size=(12, labels))
    joined = [np.concatenate([vectors[h], vectors[t]]) for h, t in zip(heads, tails, strict=True)]
    gold = [f"r{label}" for label in (joined @ kernel).argmax(axis=1)]
    cut = pairs * 4 // 5
    halves = [
        RelationPairs(heads[part], tails[part], gold[part])
        for part in (slice(None, cut), slice(cut, None))
    ]
    return RelationBenchmark("toy", "toy", tuple(halves), "hash"), Table(vectors)


@pytest.mark.parity
@pytest.mark.parametrize("warmup", [0.1, None])
def test_training_equals_pytorch(warmup):
    torch = pytest.importorskip("torch")
    benchmark, table = toy()
    train, test, labels = numbered(benchmark)
    features = table.features(benchmark.concepts())
    settings = ClassifierSettings(epochs=7, batch_pairs=96, learning_rate=0.02, warmup=warmup)
    start = initial_layer(12, len(labels), 0)
    fixed = torch.tensor(features)
    kernel, bias, loss = torch_training(lambda numbers: fixed[numbers], [], train, start, settings)
    params, ours = fit(start, jax.device_put(features), pair_logits, train, settings)
    np.testing.assert_allclose(params["W"], kernel, atol=1e-5)
    np.testing.assert_allclose(params["b"], bias, atol=1e-5)
    assert ours == pytest.approx(loss, rel=1e-5)
    expected = (features[test[:, :2]].reshape(len(test), -1) @ kernel + bias).argmax(axis=1)
    predicted = predict(params, jax.device_put(features), pair_logits, test, block_pairs=7)
    assert predicted.tolist() == expected.tolist()


def test_it_learns_what_is_linear():
    benchmark, table = toy(2000)
    settings = ClassifierSettings(learning_rate=0.05, batch_pairs=128)
    result = evaluate_relations(table, benchmark, settings)
    assert result.scores["accuracy"] > 0.95 > 2 * result.scores["most_frequent"]
    assert result == evaluate_relations(table, benchmark, settings), (
        "the same seed, the same result"
    )
    assert result.counts == {
        **{"train": 1600, "test": 400, "labels": 3, "unseen": 0, "concepts": 60},
        **{"missing": 0, "test_with_missing": 0, "unnamed": 0, "retired": 0},
    }
    record = relation_record(benchmark, result, "frozen", settings, None)
    assert record.scoring["batch_pairs"] == 128 and record.scoring["features"] == "frozen"
    assert sum(part["counts"]["pairs"] for part in record.folds.values()) == 400


def test_scores_equal_those_of_scikit_learn():
    benchmark, _ = toy()
    train, test, labels = numbered(benchmark)
    predicted = np.random.default_rng(1).integers(3, size=len(test))
    predicted[predicted == 2] = 0  # a label that is never predicted
    known = np.arange(len(benchmark.concepts())) % 5 > 0
    result = relation_result(benchmark, labels, train, test, predicted, known, 0.0)
    gold = test[:, 2]
    assert result.scores["accuracy"] == sklearn.metrics.accuracy_score(gold, predicted)
    expected = sklearn.metrics.precision_recall_fscore_support(gold, predicted, zero_division=0)
    for number, label in enumerate(labels):
        ours = result.labels[label]
        assert [ours[name] for name in ("precision", "recall", "f1", "pairs")] == pytest.approx(
            [column[number] for column in expected]
        )
    f1 = sklearn.metrics.f1_score(gold, predicted, average="macro", zero_division=0)
    assert result.scores["macro_f1"] == pytest.approx(f1)
    both = known[test[:, 0]] & known[test[:, 1]]
    assert 0 < result.counts["test_with_missing"] == (~both).sum()
    assert result.scores["accuracy_known"] == np.mean(predicted[both] == gold[both])


def test_concepts_without_a_vector_get_the_mean_and_are_counted(monkeypatch):
    benchmark, table = toy()
    concepts = benchmark.concepts()
    gone = concepts[3]
    rest = {key: vector for key, vector in table.table.items() if key != gone and key in concepts}
    seen = {}

    def only_look(start, features, *rest):
        seen["features"] = np.asarray(features)
        return start, 0.0

    monkeypatch.setattr(relation_classification, "fit", only_look)
    result = evaluate_relations(Table(rest), benchmark, ClassifierSettings())
    assert result.counts["missing"] == 1 and "accuracy_known" in result.scores
    mean = np.mean([rest[c] for c in concepts if c != gone], axis=0)
    np.testing.assert_allclose(seen["features"][3], mean, atol=1e-6)
    np.testing.assert_allclose(seen["features"][4], rest[concepts[4]], atol=1e-6)
    with pytest.raises(BadInput, match="found a vector for none of its 60 concepts"):
        evaluate_relations(Table({}), benchmark, ClassifierSettings())


def test_the_schedule_rises_and_falls():
    rates = learning_rates(ClassifierSettings(learning_rate=2.0), 40)
    assert [float(rates(step)) for step in (0, 2, 4, 22, 40)] == pytest.approx([0, 1, 2, 1, 0])


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
    result = relation_result(
        benchmark, ["x"], *[np.zeros((1, 3), int)] * 2, np.zeros(1), np.ones(4, bool), 0.0
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
    train, test, labels = numbered(benchmark)
    right, wrong = [0, 2], [1, 2]
    for predicted, accuracy in ((right, 1), (wrong, 0.5)):
        known = np.ones(4, bool)
        rest = (np.array(predicted), known, 0.0)
        result = relation_result(benchmark, labels, train, test, *rest)
        assert result.scores["accuracy"] == accuracy
    record = relation_record(benchmark, result, "frozen", ClassifierSettings(), ENCODER)
    assert (record.counts["unseen"], record.counts["labels"]) == (1, 3)
    header, (row, *_) = relation_table([record])
    assert row.cells[header.index("unseen")] == "1" and row.cells[header.index("frozen")] == "50.00"


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
    ],
)
def test_files_that_cannot_be_used(tmp_path, changed, message):
    with pytest.raises(BadInput, match=message):
        read_benchmark("ddbrc", ddbrc(tmp_path, **changed))
    with pytest.raises(BadInput, match="found none of its 4 concepts .*; expected concepts of one"):
        read_benchmark("x", ddbrc(tmp_path), dictionary=Dictionary(["a"], ["D1"], "toy.tsv"))


def test_openmeta(shared_data):
    benchmark = read_benchmark("relations", shared_data / "openmeta/eval")
    assert (len(benchmark.train.labels), len(benchmark.test.labels)) == (7640, 955)
    assert len(benchmark.labels()) == 14
