"""Relation classification: training against PyTorch and scikit-learn."""

from dataclasses import replace

import jax
import numpy as np
import pytest
import sklearn.metrics
from flax import nnx
from softmax_twin import torch_training
from tiny_bert import write_model
from toy_relations import Table, toy

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.evaluation import relation_classifiers as relation_classification
from coder_jax.evaluation import relation_classifiers as relation_fine_tuning
from coder_jax.evaluation.relation_classifiers import (
    TABLE_TRAINING,
    ClassifierSettings,
    _drawn_scores,
    _fit,
    _initial_layer,
    _learning_rates,
    _numbered,
    _pad_tokens,
    _pair_logits,
    _predict,
    _relation_result,
    _term_vectors,
    evaluate_relations,
    fine_tune,
    fine_tune_table,
    relation_record,
)
from coder_jax.evaluation.relation_pairs import RelationPairs
from coder_jax.evaluation.relations import RelationBenchmark
from coder_jax.evaluation.vectors import EncodedTerms, VectorTable, WordVectors, _ConceptVectors
from data_pipeline.process import BadInput


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
    train, test, labels = _numbered(benchmark)
    predicted = np.random.default_rng(1).integers(3, size=len(test))
    predicted[predicted == 2] = 0  # a label that is never predicted
    known = np.arange(len(benchmark.concepts())) % 5 > 0
    result = _relation_result(benchmark, labels, train, test, predicted, known, 0.0)
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
    result = _relation_result(benchmark, ["x", "y", "z"], train, test, predicted, known, 0.0)
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

    monkeypatch.setattr(relation_classification, "_fit", only_look)
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
    for counts, found in zip(drawn, _drawn_scores(pairs, drawn), strict=True):
        gold, predicted = np.repeat(pairs, counts, axis=0).T
        macro = sklearn.metrics.f1_score(gold, predicted, average="macro", zero_division=0)
        assert found == pytest.approx([np.mean(gold == predicted), macro])


def test_intervals_are_about_the_scores():
    benchmark, vectors = toy()
    found = evaluate_relations(vectors, benchmark, ClassifierSettings(epochs=1))
    for name, (low, high) in found.intervals.items():
        assert 0 <= low <= found.scores[name] <= high <= 1
    assert list(found.intervals) == ["accuracy", "macro_f1"]


# -------------------------------------------------------------------------------------------------
# The linear softmax: its training against PyTorch, its schedule.


@pytest.mark.parity
@pytest.mark.parametrize("warmup", [0.1, None])
def test_training_equals_pytorch(warmup):
    torch = pytest.importorskip("torch")
    benchmark, table = toy()
    train, test, labels = _numbered(benchmark)
    features = table.features(benchmark.concepts())
    settings = ClassifierSettings(epochs=7, batch_pairs=96, learning_rate=0.02, warmup=warmup)
    start = _initial_layer(12, len(labels), 0)
    fixed = torch.tensor(features)
    kernel, bias, loss = torch_training(lambda numbers: fixed[numbers], [], train, start, settings)
    params, ours = _fit(start, jax.device_put(features), _pair_logits, train, settings)
    np.testing.assert_allclose(params["W"], kernel, atol=1e-5)
    np.testing.assert_allclose(params["b"], bias, atol=1e-5)
    assert ours == pytest.approx(loss, rel=1e-5)
    expected = (features[test[:, :2]].reshape(len(test), -1) @ kernel + bias).argmax(axis=1)
    predicted = _predict(params, jax.device_put(features), _pair_logits, test, block_pairs=7)
    assert predicted.tolist() == expected.tolist()


def test_the_schedule_rises_and_falls():
    rates = _learning_rates(ClassifierSettings(learning_rate=2.0), 40)
    assert [float(rates(step)) for step in (0, 2, 4, 22, 40)] == pytest.approx([0, 1, 2, 1, 0])


# -------------------------------------------------------------------------------------------------
# Relation classification with vectors trained along: encoders and tables, against PyTorch.


def benchmark_of(names):
    """Every pair of concepts C0, C1, ... both for training and for the test; two labels."""
    count = len(names)
    numbers = [(h, t) for h in range(count) for t in range(count) if h != t]
    half = RelationPairs(
        [f"C{h}" for h, _ in numbers],
        [f"C{t}" for _, t in numbers],
        ["bone" if t >= count // 2 else "sign" for _, t in numbers],
    )
    concepts = {f"C{number}": name for number, name in enumerate(names)}
    return RelationBenchmark("toy", "toy", (half, half), "hash", concepts)


@pytest.fixture
def named():
    return benchmark_of(["asthma", "fever", "cough", "femur", "tibia", "skull"])


@pytest.fixture
def trained(monkeypatch):
    """Where fine-tuning began and where it ended: filled by it."""
    seen, fit = {}, relation_fine_tuning._fit

    def keep(start, *rest):
        params, loss = fit(start, *rest)
        seen.update(start=start, end=jax.device_get(params))
        return params, loss

    monkeypatch.setattr(relation_fine_tuning, "_fit", keep)
    return seen


def accuracy(vectors_of, kernel, bias, rows):
    """Of a linear softmax on [head, tail], by hand."""
    import torch

    with torch.no_grad():
        halves = [vectors_of(torch.tensor(rows[:, i], dtype=torch.long)) for i in (0, 1)]
    joined = np.concatenate([half.numpy() for half in halves], axis=1)
    return np.mean((joined @ kernel + bias).argmax(axis=1) == rows[:, 2])


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_features_are_the_encoder_s_vectors_before_they_are_made_unit(minilm_path, pooling):
    encoder = TermEncoder.from_pretrained(minilm_path, pooling=pooling)
    terms = ["asthma", "", "very long term of many words " * 4, "fever", "asthma"]
    features = EncodedTerms(encoder, [], np.zeros((0, 384))).features(terms)
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    np.testing.assert_allclose(features / lengths, encoder.encode(terms), atol=1e-5)
    assert lengths.min() > 1.5, "not of unit length"
    padded = _pad_tokens(encoder, terms)
    tuned = jax.jit(_term_vectors, static_argnums=3)(encoder.bert, *padded, pooling)
    np.testing.assert_allclose(tuned, features, atol=1e-5, err_msg="where fine-tuning begins")


@pytest.mark.slow
def test_fine_tuning_trains_a_copy_of_the_encoder(minilm_path, named):
    encoder = TermEncoder.from_pretrained(minilm_path)
    before = encoder.encode(list(named.names.values()))
    settings = ClassifierSettings(epochs=3, batch_pairs=10, learning_rate=1e-3)
    tuned = fine_tune(encoder, named, settings)
    vectors = EncodedTerms(encoder, [], np.zeros((0, 384)))
    frozen = evaluate_relations(vectors, named, settings)
    assert tuned.final_loss < 0.5 * frozen.final_loss, "more parameters learn more"
    assert tuned.scores["accuracy"] == 1.0
    np.testing.assert_array_equal(encoder.encode(list(named.names.values())), before)


@pytest.mark.slow
@pytest.mark.parity
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_fine_tuning_of_an_encoder_equals_pytorch(tmp_path, trained, pooling):
    """Pairs in the same order, no dropout; the terms are padded and masked by transformers."""
    torch = pytest.importorskip("torch")
    from transformers import AutoTokenizer

    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = write_model(tmp_path / "tiny", **still).train()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "tiny")
    benchmark = benchmark_of(
        ["heart attack", "acute pain", "limb", "chronic renal failure", "disease", "infarction (x)"]
    )
    settings = ClassifierSettings(epochs=4, batch_pairs=7, learning_rate=1e-3)
    encoder = TermEncoder.from_pretrained(tmp_path / "tiny", pooling=pooling)
    result = fine_tune(encoder, benchmark, settings)

    words = tokenizer(benchmark.keys("terms"), padding=True, return_tensors="pt")

    def vectors_of(numbers):
        chosen = {name: values[numbers] for name, values in words.items()}
        hidden = model(**chosen).last_hidden_state
        if pooling == "cls":
            return hidden[:, 0]
        mask = chosen["attention_mask"][..., None]
        return (hidden * mask).sum(dim=1) / mask.sum(dim=1)

    train, test, labels = _numbered(benchmark)
    kernel, bias, loss = torch_training(
        vectors_of, model.parameters(), train, trained["start"]["layer"], settings
    )
    assert result.final_loss == pytest.approx(loss, rel=1e-5)
    assert result.final_loss < 0.6, "it learns, from 0.69 by chance"
    np.testing.assert_allclose(trained["end"]["layer"]["W"], kernel, atol=1e-5)
    np.testing.assert_allclose(trained["end"]["layer"]["b"], bias, atol=1e-5)
    assert result.scores["accuracy"] == accuracy(vectors_of, kernel, bias, test)
    graph, _ = nnx.split(encoder.bert, nnx.Param)
    tuned = nnx.merge(graph, trained["end"]["encoder"])
    padded = _pad_tokens(encoder, benchmark.keys("terms"))
    ours = jax.jit(_term_vectors, static_argnums=3)(tuned, *padded, pooling)
    with torch.no_grad():
        theirs = vectors_of(torch.arange(len(benchmark.concepts()))).numpy()
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert np.abs(theirs - encoder.encode(benchmark.keys("terms"), unit=False)).max() > 0.05


def table_of(keys, width=5, seed=0):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(len(keys), width)).astype(np.float32)
    return VectorTable({key: row for row, key in enumerate(keys)}, vectors, 99, "hash", "file")


WORDS = ["unused", "renal", "failure", "Acute", "pain", "limb", "acute"]
NAMES = ["renal failure", "acute renal failure.", "pain", "pain in limb", "novel", "Acute, pain"]


@pytest.mark.parity
@pytest.mark.parametrize("warmup", [0.1, None])
def test_fine_tuning_of_word_vectors_equals_pytorch(trained, warmup):
    torch = pytest.importorskip("torch")
    benchmark, vectors = benchmark_of(NAMES), WordVectors(table_of(WORDS))
    settings = replace(TABLE_TRAINING, epochs=20, batch_pairs=7, learning_rate=0.02, warmup=warmup)
    before = vectors.table.vectors.copy()
    result = fine_tune_table(vectors, benchmark, settings)

    keys = benchmark.keys("terms")
    words = [["renal", "failure"], ["acute", "renal", "failure"], ["pain"], ["pain", "limb"], []]
    parts = {**dict(zip(NAMES, words, strict=False)), "Acute, pain": ["Acute", "pain"]}
    others = [before[[WORDS.index(w) for w in parts[k]]].mean(axis=0) for k in keys if parts[k]]
    start_of_missing = np.mean(others, axis=0, keepdims=True)
    table = torch.nn.Parameter(torch.tensor(np.concatenate([before, start_of_missing])))

    def one(number):
        of_words = [WORDS.index(word) for word in parts[keys[number]]] or [len(WORDS)]
        return table[of_words].mean(dim=0)

    def vectors_of(numbers):
        return torch.stack([one(number) for number in numbers])

    train, test, labels = _numbered(benchmark)
    start = _initial_layer(10, len(labels), settings.seed)
    kernel, bias, loss = torch_training(vectors_of, [table], train, start, settings)
    ours = trained["end"]
    assert result.final_loss == pytest.approx(loss, rel=1e-5) and loss < 0.5
    np.testing.assert_allclose(ours["layer"]["W"], kernel, atol=1e-5)
    np.testing.assert_allclose(ours["layer"]["b"], bias, atol=1e-5)
    np.testing.assert_allclose(ours["table"], table.detach().numpy()[1:], atol=1e-5)
    assert np.abs(ours["table"][:-1] - before[1:]).max() > 0.1, "they were trained"
    assert result.scores["accuracy"] == accuracy(vectors_of, kernel, bias, test)
    assert result.counts["missing"] == 1 and "accuracy_known" in result.scores
    np.testing.assert_array_equal(vectors.table.vectors, before, "a copy was trained")


@pytest.mark.parity
def test_fine_tuning_of_concept_vectors_equals_pytorch(trained):
    torch = pytest.importorskip("torch")
    benchmark, vectors = benchmark_of(NAMES), _ConceptVectors(table_of(["C9", "C5", "C1", "C0"]))
    settings = replace(TABLE_TRAINING, epochs=20, batch_pairs=7, learning_rate=0.02)
    result = fine_tune_table(vectors, benchmark, settings)
    held = vectors.table.vectors
    missing = held[[3, 2, 1]].mean(axis=0)  # of C0, C1 and C5: C9 is in no pair
    table = torch.nn.Parameter(torch.tensor(np.stack([held[3], held[2], held[1], missing])))
    row_of = {"C0": 0, "C1": 1, "C5": 2}
    rows = torch.tensor([row_of.get(concept, 3) for concept in benchmark.concepts()])

    train, test, labels = _numbered(benchmark)
    start = _initial_layer(10, len(labels), settings.seed)
    kernel, bias, loss = torch_training(lambda n: table[rows[n]], [table], train, start, settings)
    assert result.final_loss == pytest.approx(loss, rel=1e-5)
    ours = trained["end"]
    np.testing.assert_allclose(ours["layer"]["W"], kernel, atol=1e-5)
    np.testing.assert_allclose(ours["table"][[2, 1, 0, 3]], table.detach().numpy(), atol=1e-5)
    assert result.scores["accuracy"] == accuracy(lambda n: table[rows[n]], kernel, bias, test)
    assert result.counts["missing"] == 3


@pytest.mark.slow
def test_fine_tuning_of_a_table_begins_where_frozen_features_are():
    benchmark, vectors = benchmark_of(NAMES), WordVectors(table_of(WORDS))
    settings = replace(TABLE_TRAINING, epochs=30, batch_pairs=7, learning_rate=0.02)
    frozen = evaluate_relations(vectors, benchmark, settings)
    tuned = fine_tune_table(vectors, benchmark, settings)
    assert tuned.final_loss < 0.8 * frozen.final_loss, "more parameters learn more"
    assert tuned == fine_tune_table(vectors, benchmark, settings), "the same seed, the same result"
    still = replace(settings, epochs=1, learning_rate=1e-12)
    same = [run(vectors, benchmark, still) for run in (evaluate_relations, fine_tune_table)]
    assert same[0].final_loss == pytest.approx(same[1].final_loss, rel=1e-6)
    with pytest.raises(BadInput, match="found a vector for none of its 6 concepts"):
        fine_tune_table(_ConceptVectors(table_of(["C9"])), benchmark)
