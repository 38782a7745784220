"""Relation classification: training against PyTorch and scikit-learn."""

import numpy as np
import pytest
import sklearn.metrics
from toy_relations import Table, toy

from coder_jax.evaluation.relations import classification as relation_classification
from coder_jax.evaluation.relations.classification import (
    drawn_scores,
    evaluate_relations,
    numbered,
    relation_record,
    relation_result,
)
from coder_jax.evaluation.relations.classifier import (
    ClassifierSettings,
)
from data_pipeline.process.errors import BadInput


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


@pytest.mark.parametrize("predicted, macro_f1", [([0, 1], 1), ([0, 0], 1 / 3), ([0, 2], 1 / 3)])
def test_macro_f1_is_over_labels_that_a_test_pair_has_or_was_given(predicted, macro_f1):
    """Three labels in training, the first two in the test."""
    train = np.array([(0, 1, 0), (0, 1, 1), (0, 1, 2)], np.int32)
    test, predicted = train[:2], np.array(predicted)
    benchmark, _ = toy()
    known = np.ones(2, bool)
    result = relation_result(benchmark, ["x", "y", "z"], train, test, predicted, known, 0.0)
    f1 = sklearn.metrics.f1_score(test[:, 2], predicted, average="macro", zero_division=0)
    assert result.scores["macro_f1"] == pytest.approx(f1) == pytest.approx(macro_f1)


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


def test_what_is_drawn_is_scored_as_scikit_learn_does():
    rng = np.random.default_rng(0)
    pairs = np.array([(0, 0), (0, 1), (1, 1), (2, 0), (3, 3)])
    drawn = rng.integers(0, 4, (20, len(pairs))) + [1, 0, 0, 0, 0]
    for counts, found in zip(drawn, drawn_scores(pairs, drawn), strict=True):
        gold, predicted = np.repeat(pairs, counts, axis=0).T
        macro = sklearn.metrics.f1_score(gold, predicted, average="macro", zero_division=0)
        assert found == pytest.approx([np.mean(gold == predicted), macro])


def test_intervals_are_about_the_scores():
    benchmark, vectors = toy()
    found = evaluate_relations(vectors, benchmark, ClassifierSettings(epochs=1))
    for name, (low, high) in found.intervals.items():
        assert 0 <= low <= found.scores[name] <= high <= 1
    assert list(found.intervals) == ["accuracy", "macro_f1"]
