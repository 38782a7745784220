"""The train step: devices and passes change nothing, packing and dropout neither."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_bert import TINY
from tiny_dataset import tiny_dataset

from coder_jax.config import OptimizerConfig
from coder_jax.hf_weights import random_bert
from coder_jax.mesh import make_mesh, put_batch, replicated
from coder_jax.optimizer import make_optimizer
from coder_jax.relations import init_relations
from coder_jax.state import new_state, split_encoder
from coder_jax.step import dropout_ids, make_train_step
from coder_jax.systems.coder import CoderLoss
from data_pipeline.batch_spec import BatchSpec
from data_pipeline.batches import BatchMaker

SPEC = BatchSpec(groups=8, triplets=4, repeats=2, row_length=32)
OPTIMIZER = make_optimizer(OptimizerConfig(steps=10, learning_rate=1e-3, warmup_steps=2, eps=1e-3))


@pytest.fixture(scope="module")
def dataset():
    return tiny_dataset(concepts=60, triplets=150, vocabulary=TINY.vocab_size)


def initial(dtype="float32"):
    """A random BERT no weight of which is 0 or 1, so that a relative difference says something."""
    graph, encoder = split_encoder(random_bert(TINY, seed=0, dtype=jnp.dtype(dtype)))
    rng = np.random.default_rng(0)
    return graph, jax.tree.map(
        lambda array: array + 0.1 * rng.standard_normal(array.shape, np.float32), encoder
    )


def run(
    dataset, *, devices=1, passes=1, dropout=True, steps=3, pooling="cls", mu=1.0, dtype="float32"
):
    """(metrics of each step, parameters after them) of a run on some devices in some passes."""
    mesh = make_mesh(devices)
    graph, encoder = initial(dtype)
    table = init_relations(5, TINY.hidden_size, noise=0.1, seed=0) if mu else None
    state = new_state(encoder, table, OPTIMIZER, replicated(mesh))
    # As many rows as ever needed, so that there is one shape to compile.
    maker = BatchMaker(dataset, SPEC, passes=passes, row_multiple=devices)
    maker.plan = dataclasses.replace(maker.plan, usual=maker.plan.ample)
    step = make_train_step(
        graph, CoderLoss(mu=mu), OPTIMIZER, mesh, pooling=pooling, seed=0, dropout=dropout
    )
    history = []
    for batch in maker.batches(0, steps):
        state, metrics = step(state, put_batch(mesh, batch))
        history.append({name: float(value) for name, value in metrics.items()})
    return history, jax.device_get(state.params)


def assert_same_run(got, want):
    """Losses and parameters to 1e-6 relative, in float32."""
    for a, b in zip(got[0], want[0], strict=True):
        assert a == pytest.approx(b, rel=1e-6, abs=1e-7)
    for a, b in zip(jax.tree.leaves(got[1]), jax.tree.leaves(want[1]), strict=True):
        assert np.linalg.norm(a - b) <= 1e-6 * np.linalg.norm(b)


@pytest.fixture(scope="module")
def plain(dataset):
    return run(dataset)


@pytest.mark.parametrize(("devices", "passes"), [(8, 1), (2, 4)])
def test_devices_and_passes_change_nothing(dataset, plain, devices, passes):
    assert jax.device_count() == 8, "the tests need 8 devices: see conftest.py"
    assert_same_run(run(dataset, devices=devices, passes=passes), plain)


def test_rows_and_groups_are_spread_over_the_devices(dataset):
    mesh = make_mesh(8)
    batch = put_batch(mesh, next(BatchMaker(dataset, SPEC, row_multiple=8).batches(0)))
    for name, array in batch.items():
        part = array.addressable_shards[0].data.shape
        assert part[1] * 8 == array.shape[1], name


def test_without_mu_no_relation_is_learned(dataset):
    history, params = run(dataset, mu=0.0, steps=1)
    assert "relations" not in params and "loss_relation" not in history[0]


def test_the_pooler_learns_where_it_is_used_and_only_there(dataset, plain):
    before = initial()[1]["pooler"]["kernel"]
    np.testing.assert_array_equal(before, plain[1]["encoder"]["pooler"]["kernel"])
    _, params = run(dataset, steps=1, pooling="pooler")
    assert not np.array_equal(before, params["encoder"]["pooler"]["kernel"])


def test_bfloat16_is_the_encoder_alone(dataset, plain):
    """The loss is near the one in float32 and not the same; what is learned stays in float32."""
    history, params = run(dataset, steps=1, dtype="bfloat16")
    assert history[0]["loss"] == pytest.approx(plain[0][0]["loss"], rel=0.02)
    assert history[0]["loss"] != plain[0][0]["loss"]
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype("float32")}


def test_dropout_is_on(dataset, plain):
    assert run(dataset, dropout=False, steps=1)[0][0]["loss"] != plain[0][0]["loss"]


def test_dropout_ids_differ_between_steps_terms_positions_and_seeds():
    segments = jnp.array([[1, 1, 2, 2, 2]])
    positions = jnp.array([[0, 1, 0, 1, 2]])
    batch = {"segments": segments, "positions": positions}
    ids = [
        np.asarray(dropout_ids(seed, jnp.int32(step), jnp.int32(first), batch)).ravel()
        for seed in (0, 1)
        for step in (0, 1)
        for first in (0, 8)
    ]
    assert len(np.unique(np.concatenate(ids))) == 40
    # A term keeps its numbers wherever it is packed, and in whatever pass.
    moved = {"segments": jnp.array([[5, 5, 5]]), "positions": jnp.array([[0, 1, 2]])}
    again = dropout_ids(0, jnp.int32(0), jnp.int32(8), moved)
    here = dropout_ids(0, jnp.int32(0), jnp.int32(0), moved | {"segments": jnp.full((1, 3), 13)})
    np.testing.assert_array_equal(again, here)
