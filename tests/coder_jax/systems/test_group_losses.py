"""MS-loss: hand-computed values, a naive loop, and pytorch-metric-learning as the oracle."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from naive_losses import naive

from coder_jax.devices.mesh import make_mesh
from coder_jax.systems import group_losses
from coder_jax.systems.group_losses import (
    MultiSimilarity,
    _init_relations,
    _log_one_plus_sum_exp,
    _multi_similarity_loss,
    _relation_matrices,
)
from coder_jax.systems.group_losses import _relation_queries as queries_of_matrices

PAPER = {"alpha": 2.0, "beta": 50.0, "base": 0.5, "margin": 0.1}
CONSTANTS = MultiSimilarity(**PAPER)


def masks(labels):
    same = labels[:, None] == labels[None, :]
    return same & ~np.eye(len(labels), dtype=bool), ~same


def cosine(vectors):
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit @ unit.T


@pytest.mark.parametrize("seed", range(5))
def test_equals_the_naive_loop_on_a_rectangle_with_masked_anchors_and_pairs(seed):
    rng = np.random.default_rng(seed)
    similarity = rng.uniform(-1, 1, (7, 11))
    positive = rng.random((7, 11)) < 0.3
    negative = ~positive & (rng.random((7, 11)) < 0.8)  # some pairs are in neither mask
    anchors = rng.random(7) < 0.7
    with jax.enable_x64(True):
        loss, pairs = _multi_similarity_loss(similarity, positive, negative, CONSTANTS, anchors)
    want = naive(similarity, positive, negative, anchors, **PAPER)
    np.testing.assert_allclose((loss, pairs["positives"], pairs["negatives"]), want, rtol=1e-12)


def test_by_hand():
    # Anchor 0: positive at 0.6, negatives at 0.55 and 0.1; kept: 0.6 (< 0.65) and 0.55 (> 0.5).
    similarity = jnp.array([[0.6, 0.55, 0.1]])
    positive = jnp.array([[True, False, False]])
    loss, pairs = _multi_similarity_loss(similarity, positive, ~positive, CONSTANTS)
    want = math.log1p(math.exp(-2 * 0.1)) / 2 + math.log1p(math.exp(50 * 0.05)) / 50
    assert float(loss) == pytest.approx(want, rel=1e-6)
    assert (int(pairs["positives"]), int(pairs["negatives"])) == (1, 1)


def oracle(vectors, labels):
    """Loss and gradient of pytorch-metric-learning's miner and loss, in float64."""
    torch = pytest.importorskip("torch")
    metric_learning = pytest.importorskip("pytorch_metric_learning")
    from pytorch_metric_learning import losses, miners

    del metric_learning
    embeddings = torch.tensor(vectors, dtype=torch.float64, requires_grad=True)
    torch_labels = torch.tensor(labels)
    mined = miners.MultiSimilarityMiner(epsilon=0.1)(embeddings, torch_labels)
    loss = losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5)(embeddings, torch_labels, mined)
    loss.backward()
    return loss.item(), embeddings.grad.numpy()


def ours(vectors, labels):
    def loss(vectors):
        unit = vectors / jnp.linalg.norm(vectors, axis=1, keepdims=True)
        return _multi_similarity_loss(unit @ unit.T, *masks(labels), CONSTANTS)[0]

    with jax.enable_x64(True):
        value, gradient = jax.jit(jax.value_and_grad(loss))(jnp.asarray(vectors, jnp.float64))
        assert value.dtype == jnp.float64
        return float(value), np.asarray(gradient)


RNG = np.random.default_rng(3)
EDGE_CASES = {
    "random": (RNG.normal(size=(24, 8)), RNG.integers(0, 6, 24)),
    "large": (RNG.normal(size=(64, 16)), RNG.integers(0, 9, 64)),
    "some without positives": (RNG.normal(size=(10, 4)), np.array([0, 0, 0, 1, 1, 2, 3, 4, 5, 6])),
    "no positives at all": (RNG.normal(size=(6, 4)), np.arange(6)),
    "no negatives": (RNG.normal(size=(6, 4)), np.zeros(6, int)),
    "duplicate strings": (
        np.repeat(RNG.normal(size=(5, 4)), 4, axis=0),
        np.array([0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0, 3, 3, 3, 3]),
    ),
    "all vectors equal": (np.ones((8, 4)), np.array([0, 0, 1, 1, 2, 2, 3, 3])),
    "opposite vectors": (
        np.array([[1.0, 0], [-1, 0], [1, 0], [-1, 0], [0, 1], [0, -1]]),
        np.array([0, 0, 1, 1, 2, 2]),
    ),
    "tiny vectors": (1e-6 * RNG.normal(size=(12, 4)), RNG.integers(0, 3, 12)),
    "huge vectors": (1e6 * RNG.normal(size=(12, 4)), RNG.integers(0, 3, 12)),
}


@pytest.mark.parity
@pytest.mark.parametrize("case", EDGE_CASES)
def test_equals_pytorch_metric_learning(case):
    vectors, labels = EDGE_CASES[case]
    loss, gradient = ours(vectors, labels)
    want_loss, want_gradient = oracle(vectors, labels)
    assert loss == pytest.approx(want_loss, rel=1e-6, abs=1e-12)
    scale = max(np.abs(want_gradient).max(), 1e-12)
    np.testing.assert_allclose(gradient / scale, want_gradient / scale, atol=1e-6)


def test_masked_rows_change_nothing():
    """Padding a batch with anchors and candidates that are masked out keeps loss and gradient."""
    rng = np.random.default_rng(0)
    vectors, labels = rng.normal(size=(12, 6)).astype(np.float32), rng.integers(0, 4, 12)

    def loss(vectors, labels, valid):
        unit = vectors / jnp.linalg.norm(vectors, axis=1, keepdims=True)
        positive, negative = masks(labels)
        both = valid[:, None] & valid[None, :]
        return _multi_similarity_loss(
            unit @ unit.T, positive & both, negative & both, CONSTANTS, valid
        )[0]

    plain = jax.value_and_grad(loss)(jnp.asarray(vectors), labels, np.ones(12, bool))
    padded_vectors = np.concatenate([vectors, rng.normal(size=(5, 6)).astype(np.float32)])
    padded_labels = np.concatenate([labels, [0, 1, 2, 3, 9]])
    padded = jax.value_and_grad(loss)(
        jnp.asarray(padded_vectors), padded_labels, np.arange(17) < 12
    )
    np.testing.assert_allclose(plain[0], padded[0], rtol=1e-6)
    np.testing.assert_allclose(plain[1], padded[1][:12], atol=1e-6)
    assert not np.asarray(padded[1][12:]).any()


def test_no_anchor_counts():
    same = jnp.eye(3, dtype=bool)
    none = jnp.zeros(3, bool)
    loss, pairs = _multi_similarity_loss(jnp.ones((3, 3)), same, ~same, CONSTANTS, none)
    assert float(loss) == 0 and float(pairs["positives"]) == 0


@pytest.mark.parametrize("value", [-1e30, -1e4, -1.0, 0.0, 1.0, 1e4, 1e30])
def test_stable_for_extreme_similarities(value):
    """Float32, with values far outside of [-1, 1]: finite loss, finite gradient."""
    similarity = jnp.array([[value, -value, 0.3], [0.2, value, value]], jnp.float32)
    positive = jnp.array([[True, False, False], [False, True, False]])
    loss, gradient = jax.value_and_grad(
        lambda s: _multi_similarity_loss(s, positive, ~positive, CONSTANTS)[0]
    )(similarity)
    assert np.isfinite(loss) and np.isfinite(gradient).all()


def test_log_one_plus_sum_exp():
    x = jnp.array([[0.0, 1000.0], [-1000.0, -1000.0], [5.0, 5.0]], jnp.float32)
    include = jnp.array([[True, True], [True, True], [False, False]])
    value, gradient = jax.value_and_grad(lambda x: _log_one_plus_sum_exp(x, include).sum())(x)
    np.testing.assert_allclose(_log_one_plus_sum_exp(x, include), [1000.0, 0.0, 0.0])
    np.testing.assert_allclose(gradient, [[0, 1], [0, 0], [0, 0]], atol=1e-30)
    assert np.isfinite(value)


def test_order_of_the_batch_does_not_matter():
    rng = np.random.default_rng(1)
    vectors, labels = rng.normal(size=(20, 5)), rng.integers(0, 5, 20)
    order = rng.permutation(20)
    assert ours(vectors, labels)[0] == pytest.approx(ours(vectors[order], labels[order])[0])


# -------------------------------------------------------------------------------------------------
# The relation table: values against a loop, gradients only where a group touches.


def relation_queries(table, relations, heads):
    return queries_of_matrices(_relation_matrices(table, relations), relations, heads)


def test_starts_at_the_identity_plus_noise():
    table = _init_relations((50, 16, 16), noise=0.01, seed=1)
    assert table.dtype == np.float32
    noise = np.asarray(table) - np.eye(16, dtype=np.float32)
    assert abs(noise.mean()) < 1e-3 and abs(noise.std() - 0.01) < 1e-3
    np.testing.assert_array_equal(table, _init_relations((50, 16, 16), noise=0.01, seed=1))
    assert not np.array_equal(table, _init_relations((50, 16, 16), noise=0.01, seed=2))


def test_query_is_the_transposed_matrix_times_the_head():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(7, 4, 4)).astype(np.float32)
    heads = rng.normal(size=(3, 2, 4)).astype(np.float32)
    relations = np.array([5, -1, 0])
    queries = relation_queries(jnp.asarray(table), jnp.asarray(relations), jnp.asarray(heads))
    for u, relation in enumerate(relations):
        for j in range(2):
            matrix = np.eye(4) if relation < 0 else table[relation]
            np.testing.assert_allclose(queries[u, j], matrix.T @ heads[u, j], rtol=1e-5, atol=1e-6)


def test_gradient_reaches_touched_matrices_only():
    table = jnp.asarray(_init_relations((6, 4, 4), noise=0.1, seed=0))
    heads = jnp.ones((3, 2, 4))
    gradient = jax.grad(lambda t: jnp.sum(relation_queries(t, jnp.array([4, 4, -1]), heads) ** 2))(
        table
    )
    touched = np.abs(np.asarray(gradient)).sum(axis=(1, 2)) > 0
    assert touched.tolist() == [False, False, False, False, True, False]


@pytest.mark.parametrize("most", [7, 3])
def test_only_so_many_matrices_of_a_group_are_copied_at_a_time(monkeypatch, most):
    """7 triplets of two heads each, among 5 relations of width 8."""
    monkeypatch.setattr(group_losses, "_MOST_MATRICES", most)
    queries = partial(group_losses._all_queries, make_mesh(1, jax.devices()[:1]))
    given = jnp.ones((5, 8, 8)), jnp.zeros((1, 1, 7), jnp.int32), jnp.ones((1, 1, 14, 8))
    gradient = jax.grad(lambda *given: queries(*given).sum())
    program = str(jax.make_jaxpr(gradient)(*given))
    assert any(f"[{shape}8,8]" in program for shape in (f"1,1,{most},", f"{most},1,1,1,"))
    assert ("[1,1,7,8,8]" in program) == (most == 7)
    assert "[7,1,1,1,8,8]" not in program
