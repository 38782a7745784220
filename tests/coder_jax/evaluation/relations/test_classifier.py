"""The linear softmax: its training against PyTorch, its schedule."""

import jax
import numpy as np
import pytest
from softmax_twin import torch_training
from toy_relations import toy

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
