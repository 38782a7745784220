"""The softmax over classes: equal to a dense one in float64, on any number of devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from coder_jax.devices.mesh import make_mesh
from coder_jax.systems.mlnorm import softmax

N, C, D, SCALE = 24, 512, 10, 20.0


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(softmax, "_BLOCK", 32)


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(N, D))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    table = rng.normal(size=(C, D)) * rng.uniform(0.01, 3, (C, 1))
    groups = rng.integers(1, 2**15, C).astype(np.uint16) | 1 << 15
    table[-20:], groups[-20:] = 0, 0  # rows of no concept
    group = rng.integers(0, 16, N)
    classes = [rng.choice(np.flatnonzero(groups >> g & 1)) for g in group]
    # Terms that are as near to their concept, or as far from it, as can be.
    vectors[0] = table[classes[0]] / np.linalg.norm(table[classes[0]])
    vectors[1] = -table[classes[1]] / np.linalg.norm(table[classes[1]])
    return vectors, table, groups, np.array(classes), group


def dense(vectors, table, groups, classes, group):
    """Loss, its gradients by hand, log-sum and share of right ones, in float64."""
    norm = np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    unit = table / norm
    score = SCALE * vectors @ unit.T
    allowed = groups[None, :] >> group[:, None] & 1 > 0
    score = np.where(allowed, score, -np.inf)
    log_sum = np.log(np.exp(score - SCALE).sum(1)) + SCALE
    gold = score[np.arange(N), classes]
    slope = np.exp(score - log_sum[:, None])
    slope[np.arange(N), classes] -= 1
    slope *= SCALE / N
    of_unit = slope.T @ vectors
    of_table = (of_unit - (of_unit * unit).sum(1, keepdims=True) * unit) / norm
    right = (gold >= score.max(1) - 1e-12).mean()
    return (log_sum - gold).mean(), slope @ unit, of_table, log_sum, right


def sharded(case, devices, groups=8, dtype=jnp.float32):
    vectors, table, bits, classes, group = case
    mesh = make_mesh(groups, jax.devices()[:devices])
    axes = ("groups", "within") if C % devices == 0 else None
    table = jax.device_put(jnp.asarray(table, dtype), NamedSharding(mesh, PartitionSpec(axes)))

    def loss(vectors, table):
        scores = softmax.class_scores(
            vectors, table, jnp.asarray(bits), jnp.int32(classes), jnp.int32(group),
            scale=SCALE, mesh=mesh,
        )  # fmt: skip
        loss, metrics = softmax.class_softmax_loss(scores)
        return loss, (scores.log_sum, metrics["acc@1"])

    gradient = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))
    (value, (log_sum, right)), grads = gradient(jnp.asarray(vectors, dtype), table)
    return value, *grads, log_sum, right


@pytest.mark.parametrize(("devices", "groups"), [(1, 8), (2, 8), (8, 8), (8, 2), (3, 1)])
def test_it_is_the_dense_softmax(case, devices, groups):
    """Eight devices as eight blocks, and as two of four; three, over which rows do not divide.

    In float64 it is the twin's to twelve digits, but for the share of right ones, which is float32.
    In float32 a cosine near 1 is known to half of `eps`, so a score of SCALE x cosine, and with it
    a probability and the slope, to 1.2e-6.
    """
    with jax.enable_x64(True):
        exact = [np.asarray(one) for one in sharded(case, devices, groups, jnp.float64)]
    rounded = sharded(case, devices, groups)
    for close, found, expected in zip(exact, rounded, dense(*case), strict=True):
        scale = np.abs(expected).max()
        digits = 1e-12 if close.dtype == np.float64 else 1e-7
        np.testing.assert_allclose(close, expected, rtol=0, atol=digits * scale)
        known = SCALE / 2 * np.finfo(np.float32).eps
        np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=known * scale)


def test_the_gradient_by_hand_is_that_of_the_loss(case):
    """The twin above is right: its gradients are differences of its loss."""
    vectors, table, *rest = case
    rng = np.random.default_rng(1)
    step = 1e-6
    for number, array in enumerate((vectors, table[:-20])):
        way = rng.normal(size=array.shape)
        way = way if number == 0 else np.concatenate([way, np.zeros((20, D))])
        ends = []
        for sign in (-1, 1):
            moved = [vectors, table]
            moved[number] = moved[number] + sign * step * way
            ends.append(dense(*moved, *rest)[0])
        slope = (dense(*case)[1 + number] * way).sum()
        assert (ends[1] - ends[0]) / (2 * step) == pytest.approx(slope, rel=1e-6)


def test_rows_of_other_groups_and_of_no_concept_get_no_gradient(case):
    vectors, table, bits, classes, group = case
    only = bits.copy()
    only[100:] &= 0x8000  # of no group but ANY
    case = vectors, table, only, np.full(N, 3), np.full(N, int(np.log2(int(bits[3]) & 0x7FFF)))
    gradient = np.asarray(sharded(case, 8)[2])
    assert np.abs(gradient[:100]).max() > 0
    assert not gradient[100:].any()
    assert not np.asarray(sharded((vectors, table, bits, classes, group), 8)[2])[-20:].any()


def test_all_scores_are_never_there_at_once(case):
    """Neither forward nor backward has an array of N x C numbers, or memory for it."""
    vectors, _, _, classes, group = case
    mesh = make_mesh(1, jax.devices()[:1])
    rows = 1 << 16

    def loss(vectors, table):
        bits = jnp.full(rows, 0x8001, jnp.uint16)
        scores = softmax.class_scores(
            vectors, table, bits, jnp.int32(classes), jnp.zeros(N, jnp.int32),
            scale=SCALE, mesh=mesh,
        )  # fmt: skip
        return softmax.class_softmax_loss(scores)[0]

    shapes = jax.ShapeDtypeStruct((N, D), jnp.float32), jax.ShapeDtypeStruct((rows, D), jnp.float32)
    compiled = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(*shapes).compile()
    memory = compiled.memory_analysis()
    table = 4 * rows * D
    # The gradient of the table is given back; beside it there is no second copy and no N x C.
    assert memory.temp_size_in_bytes < 0.5 * 4 * N * rows
    assert memory.output_size_in_bytes < 1.1 * table
    assert f"f32[{N},{rows}]" not in compiled.as_text()


def test_rows_for_any_number_of_devices():
    assert softmax.padded_rows(13_255) == 14_336
    assert softmax.padded_rows(4_270_000) % 32_768 == 0
    assert all(softmax.padded_rows(n) >= n for n in (1, 2048, 2049, 32_768, 32_769))
