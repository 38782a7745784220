"""The head: PyTorch's layers in the paper's order, its running statistics too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from coder_jax.systems.mlnorm.head import (
    apply_head,
    head_shapes,
    new_head,
    new_statistics,
    train_head,
)

W, D = 12, 7


@pytest.fixture
def pair():
    """Our head with its statistics, and the layers of PyTorch with the same parameters."""
    shapes, of_statistics = head_shapes(W, D)
    head, statistics = new_head(shapes, jax.random.key(0)), new_statistics(of_statistics)
    rng = np.random.default_rng(0)
    head["scale"] = jnp.float32(rng.uniform(0.5, 2, D))
    head["shift"] = jnp.float32(rng.normal(size=D))
    linear, norm = torch.nn.Linear(W, D), torch.nn.BatchNorm1d(D)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor(np.array(head["kernel"]).T))
        for layer, name, ours in (
            (linear, "bias", "bias"), (norm, "weight", "scale"), (norm, "bias", "shift"),
        ):  # fmt: skip
            getattr(layer, name).copy_(torch.tensor(np.array(head[ours])))

    def theirs(pooled):
        return torch.nn.functional.normalize(norm(torch.relu(linear(pooled))), dim=1)

    return head, statistics, norm, theirs


@pytest.mark.parity
def test_in_training_and_after_it_gives_what_pytorch_does(pair):
    head, statistics, norm, theirs = pair
    rng = np.random.default_rng(1)
    for _ in range(3):
        pooled = rng.normal(size=(9, W)).astype(np.float32)
        found, statistics = train_head(head, statistics, jnp.asarray(pooled))
        np.testing.assert_allclose(found, theirs(torch.tensor(pooled)).detach(), atol=1e-5)
    np.testing.assert_allclose(statistics["mean"], norm.running_mean, rtol=1e-5)
    np.testing.assert_allclose(statistics["variance"], norm.running_var, rtol=1e-5)
    norm.eval()
    pooled = rng.normal(size=(1, W)).astype(np.float32)
    found = apply_head(head, statistics, jnp.asarray(pooled))
    np.testing.assert_allclose(found, theirs(torch.tensor(pooled)).detach(), atol=1e-5)


@pytest.mark.parity
def test_gradients_are_those_of_pytorch(pair):
    head, statistics, _, theirs = pair
    pooled = np.random.default_rng(2).normal(size=(9, W)).astype(np.float32)
    way = np.random.default_rng(3).normal(size=(9, D)).astype(np.float32)

    def along(pooled):
        return (train_head(head, statistics, pooled)[0] * way).sum()

    given = torch.tensor(pooled, requires_grad=True)
    (theirs(given) * torch.tensor(way)).sum().backward()
    np.testing.assert_allclose(jax.grad(along)(jnp.asarray(pooled)), given.grad, atol=1e-5)


def test_it_begins_as_pytorch_does():
    shapes, _ = head_shapes(384, 350)
    head = new_head(shapes, jax.random.key(0))
    bound = 384**-0.5
    for name in ("kernel", "bias"):
        values = np.abs(np.asarray(head[name]))
        assert values.max() <= bound
        assert values.mean() == pytest.approx(bound / 2, rel=0.1)
