"""The linear softmax: its training against PyTorch, its schedule."""

import jax
import numpy as np
import pytest
from softmax_twin import torch_training

from coder_jax.evaluation.relations.classification import (
    numbered,
)
from coder_jax.evaluation.relations.classifier import (
    ClassifierSettings,
    fit,
    initial_layer,
    learning_rates,
    pair_logits,
    predict,
)
from coder_jax.evaluation.relations.files import RelationPairs
from coder_jax.evaluation.relations.relation_benchmark import RelationBenchmark


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


def test_the_schedule_rises_and_falls():
    rates = learning_rates(ClassifierSettings(learning_rate=2.0), 40)
    assert [float(rates(step)) for step in (0, 2, 4, 22, 40)] == pytest.approx([0, 1, 2, 1, 0])
