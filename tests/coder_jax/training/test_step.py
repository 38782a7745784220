"""The train step: devices and passes change nothing, packing and dropout neither."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_bert import TINY
from tiny_dataset import tiny_dataset

import coder_jax.devices.mesh
from coder_jax.devices.mesh import make_mesh, put_batch, step_cut
from coder_jax.models.hf_weights import random_bert
from coder_jax.systems.coder.objective import CoderLoss
from coder_jax.systems.coder_v1.objective import CoderV1Loss
from coder_jax.systems.groups.heads import head_shapes
from coder_jax.training.config import OptimizerConfig
from coder_jax.training.lazy_rows import MissedSteps, settle
from coder_jax.training.optimizer import make_optimizer
from coder_jax.training.state import abstract_state, new_state, split_encoder
from coder_jax.training.step import dropout_ids, make_train_step
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.batches.stream import BatchMaker

SPEC = BatchSpec(groups=8, triplets=4, repeats=2, row_length=32)
CODER = CoderLoss()
V1 = CoderV1Loss(type_weight=0.5)
V1_SPEC = dataclasses.replace(SPEC, corrupted_tails=True, semantic_types=True)
CONFIG = OptimizerConfig(steps=10, learning_rate=1e-3, warmup_steps=2, eps=1e-3)
OPTIMIZER = make_optimizer(CONFIG)


@pytest.fixture(scope="module")
def dataset():
    return tiny_dataset(concepts=60, triplets=150, vocabulary=TINY.vocab_size)


@functools.cache
def initial(dtype="float32"):
    """A random BERT no weight of which is 0 or 1, so that a relative difference says something."""
    graph, encoder = split_encoder(random_bert(TINY, seed=0, dtype=jnp.dtype(dtype)))
    rng = np.random.default_rng(0)
    return graph, jax.tree.map(
        lambda array: array + 0.1 * rng.standard_normal(array.shape, np.float32), encoder
    )


def run(
    dataset,
    *,
    devices=1,
    passes=1,
    dropout=True,
    steps=3,
    pooling="cls",
    loss=CODER,
    dtype="float32",
    spec=SPEC,
    shard_encoder=False,
    lazy=False,
):
    """(metrics of each step, parameters after them) of a run on some devices in some passes."""
    mesh = make_mesh(spec.groups // passes, jax.devices()[:devices])
    cut = step_cut(mesh, passes)
    graph, encoder = initial(dtype)
    like = abstract_state(
        encoder,
        head_shapes(loss, 5, 4, TINY.hidden_size),
        OPTIMIZER,
        mesh,
        shard_encoder=shard_encoder,
        lazy=lazy,
    )
    state = new_state(like, encoder, OPTIMIZER, noise=0.1, seed=0)
    maker = BatchMaker(dataset, spec, cut)
    step = make_train_step(
        graph,
        loss,
        OPTIMIZER,
        mesh,
        like,
        pairs=spec.pairs,
        pooling=pooling,
        seed=0,
        dropout=dropout,
        missed=None if like.relation_steps is None else MissedSteps(CONFIG),
    )
    history = []
    for batch in maker.batches(0, steps):  # all of their rows, so there is one shape to compile
        state, metrics = step(state, put_batch(mesh, cut, batch))
        history.append({name: float(value) for name, value in metrics.items()})
    for leaf, shape in zip(jax.tree.leaves(state), jax.tree.leaves(like), strict=True):
        assert leaf.sharding == shape.sharding
    if state.relation_steps is not None:
        assert int(state.relation_steps.max()) == steps
        state = settle(state, CONFIG)
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


@pytest.mark.parametrize(
    ("devices", "passes", "shard_encoder"),
    [(8, 1, False), (2, 4, False), (8, 4, False), (8, 2, True), (3, 1, True)],
)
def test_devices_and_passes_change_nothing(
    dataset, plain, devices, passes, shard_encoder, monkeypatch
):
    """8 devices in 4 passes: four share a block of two groups. 3 devices share the only block."""
    assert jax.device_count() == 8, "the tests need 8 devices: see conftest.py"
    monkeypatch.setattr(coder_jax.devices.mesh, "SMALLEST_TO_SHARD", 100)
    again = run(dataset, devices=devices, passes=passes, shard_encoder=shard_encoder)
    assert_same_run(again, plain)


@pytest.mark.parametrize(
    ("loss", "spec"), [(CoderLoss(score="translation"), SPEC), (V1, V1_SPEC)], ids=["transe", "v1"]
)
def test_nor_for_the_other_objectives(dataset, loss, spec):
    plain = run(dataset, loss=loss, spec=spec)
    again = run(dataset, loss=loss, spec=spec, devices=8, passes=4, lazy=True)
    assert_same_run(again, plain)
    assert plain[1]["relations"].shape == (5, TINY.hidden_size)


def test_types_are_learned(dataset):
    history, params = run(dataset, loss=V1, spec=V1_SPEC, steps=1)
    assert 0.5 < history[0]["loss_type"] / np.log(4) < 2
    assert params["types"]["kernel"].shape == (TINY.hidden_size, 4)
    assert params["types"]["bias"].all(), "it began at zero"
    without = run(dataset, loss=dataclasses.replace(V1, type_weight=0.0), spec=V1_SPEC, steps=1)
    assert "types" not in without[1] and "loss_type" not in without[0][0]


@pytest.mark.parametrize(("devices", "passes"), [(1, 1), (8, 1), (3, 2)])
def test_the_lazy_update_changes_nothing(dataset, devices, passes):
    """With few triplets, so that most steps lack most relations; devices and passes, too."""
    spec = dataclasses.replace(SPEC, groups=2, triplets=1)
    dense = run(dataset, spec=spec, steps=6)
    assert_same_run(
        run(dataset, spec=spec, steps=6, lazy=True, devices=devices, passes=passes), dense
    )


@pytest.mark.parametrize(("devices", "groups"), [(8, 8), (8, 2)])
def test_everything_is_spread_over_the_devices(dataset, monkeypatch, devices, groups):
    monkeypatch.setattr(coder_jax.devices.mesh, "SMALLEST_TO_SHARD", 100)
    mesh = make_mesh(groups, jax.devices()[:devices])
    cut = step_cut(mesh, 1)
    spec = dataclasses.replace(SPEC, groups=groups)
    made = next(BatchMaker(dataset, spec, cut).batches(0))
    batch = put_batch(mesh, cut, made)
    for name, array in batch.items():
        share = devices if name in ("tokens", "positions", "segments") else groups
        assert array.addressable_shards[0].data.size * share == array.size, name
        np.testing.assert_array_equal(array, made[name])
    _, encoder = initial()
    heads = head_shapes(CODER, 5, 4, 32)
    like = abstract_state(encoder, heads, OPTIMIZER, mesh, shard_encoder=True)
    state = new_state(like, encoder, OPTIMIZER, noise=0.1, seed=0)
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        if leaf.ndim == 3 or leaf.size >= 100:
            assert leaf.addressable_shards[0].data.size * 8 == leaf.size, path
    alone = abstract_state(encoder, heads, OPTIMIZER, make_mesh(1, jax.devices()[:1]))
    for a, b in zip(
        jax.tree.leaves(state),
        jax.tree.leaves(new_state(alone, encoder, OPTIMIZER, noise=0.1, seed=0)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_without_mu_no_relation_is_learned(dataset):
    history, params = run(dataset, loss=CoderLoss(mu=0.0), steps=1)
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
    segments = jnp.array([[[1, 1, 2, 2, 2]]])
    positions = jnp.array([[[0, 1, 0, 1, 2]]])

    def ids(seed, step, first, segments=segments, positions=positions):
        return np.asarray(
            dropout_ids(seed, jnp.int32(step), jnp.array([first]), segments, positions)
        )

    all_ids = [ids(seed, step, first) for seed in (0, 1) for step in (0, 1) for first in (0, 8)]
    assert len(np.unique(np.concatenate(all_ids))) == 40
    # A term keeps its numbers wherever it is packed, and in whatever pass or block.
    positions = jnp.array([[[0, 1, 2]]])
    moved = ids(0, 0, 8, jnp.full((1, 1, 3), 5), positions)
    np.testing.assert_array_equal(moved, ids(0, 0, 0, jnp.full((1, 1, 3), 13), positions))
