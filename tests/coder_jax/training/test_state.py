"""The state: counted as it lies on the devices, told by part, made anew where it was not read."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny_bert import TINY

from coder_jax.models.bert import split_encoder
from coder_jax.models.hf_weights import random_bert
from coder_jax.systems.coder import CoderSystem
from coder_jax.systems.encoder_system import EncoderOfRun, ModelConfig
from coder_jax.systems.group_losses import StartOfGroups
from coder_jax.training.state import (
    bytes_per_device,
    check_parts,
    learning_rate,
    make_optimizer,
    new_state,
    overview,
    trained,
)
from coder_jax.training.step import make_step
from coder_jax.training.system import Config, OptimizerConfig, Part, RunConfig
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.process import BadInput

SYSTEM = CoderSystem(model=ModelConfig(dtype="float32"), batch=BatchSpec(groups=8))


def step_of(relations, devices=8, shard_encoder=False):
    encoder = EncoderOfRun(config=TINY.to_hf(), pooler=True, license=None)
    about = StartOfGroups(encoder=encoder, relations=relations, types=0)
    config = Config(recipe="test", system=SYSTEM, run=RunConfig(shard_encoder=shard_encoder))
    return make_step(config, about, (), devices=jax.devices()[:devices])


@pytest.mark.parametrize("shard_encoder", [False, True])
def test_the_state_is_counted_as_it_lies_on_the_devices(shard_encoder, monkeypatch):
    monkeypatch.setattr("coder_jax.devices.mesh._SMALLEST_TO_SHARD", 100)
    step = step_of(relations=7, shard_encoder=shard_encoder)
    encoder = split_encoder(random_bert(TINY, 0))[1]
    state = new_state(step.like, SYSTEM, {"encoder": encoder}, step.parts, step.optimizer)
    here = jax.devices()[0]
    lying = sum(
        shard.data.nbytes
        for leaf in jax.tree.leaves((state.params, state.opt_state))
        for shard in leaf.addressable_shards
        if shard.device == here
    )
    assert bytes_per_device(step.like.params) + bytes_per_device(step.like.opt_state) == lying


def test_a_table_that_is_spread_is_an_eighth_on_each_of_eight_devices():
    one, eight = step_of(relations=40, devices=1).like, step_of(relations=40).like
    whole = 40 * TINY.hidden_size**2 * 4
    assert bytes_per_device(one.params) - bytes_per_device(eight.params) == whole * 7 // 8
    moments = bytes_per_device(one.opt_state) - bytes_per_device(eight.opt_state)
    assert moments == 2 * whole * 7 // 8


def test_the_overview_tells_each_part_its_size_its_rate_and_where_it_lies():
    step = step_of(relations=1000)
    encoder, relations = overview(step.like, step.parts).splitlines()[1:]
    weights = sum(leaf.size for leaf in jax.tree.leaves(step.like.params["encoder"]))
    assert f"{weights:,}" in encoder and encoder.endswith("whole on each of 8 devices")
    assert "1,024,000        4.1 MB" in relations
    assert "the rows of relations that a step uses; spread over 8 devices, 0.5 MB" in relations
    fixed = {**step.parts, "encoder": Part(rate=None)}
    assert "held fixed" in overview(step.like, fixed).splitlines()[1]


@pytest.mark.parametrize("devices", [1, 4, 7])
def test_it_warns_of_an_encoder_that_cannot_be_spread(devices, monkeypatch):
    """Seven devices divide no width of a BERT: an axis of one device is no place to spread over."""
    monkeypatch.setattr("coder_jax.devices.mesh._SMALLEST_TO_SHARD", 100)
    step = step_of(relations=7, devices=devices, shard_encoder=True)
    for leaf in jax.tree.leaves(step.like.params["encoder"]) if devices == 7 else ():
        assert leaf.sharding.is_fully_replicated and not leaf.sharding.spec
    said = overview(step.like, step.parts, spread_largest=True)
    assert ("warning: --shard-encoder spreads nothing" in said) == (devices == 7)


def test_what_was_read_is_taken_and_the_rest_is_made():
    """Matrices of another run are carried on; none are drawn in their place."""
    step = step_of(relations=3, devices=1)
    encoder = split_encoder(random_bert(TINY, 0))[1]
    table = np.full((3, TINY.hidden_size, TINY.hidden_size), 2.0, np.float32)
    carried = new_state(
        step.like, SYSTEM, {"encoder": encoder, "relations": table}, step.parts, step.optimizer
    )
    np.testing.assert_array_equal(carried.params["relations"], table)
    drawn = new_state(step.like, SYSTEM, {"encoder": encoder}, step.parts, step.optimizer)
    off = np.asarray(drawn.params["relations"]) - np.eye(TINY.hidden_size)
    assert np.std(off) == pytest.approx(SYSTEM.relation_noise, rel=0.1)


def test_parts_must_be_declared_and_one_of_them_trained():
    params = {"encoder": jnp.zeros(2), "head": jnp.zeros(2)}
    with pytest.raises(ValueError, match=r"parts \['head'\] of the parameters are not in"):
        check_parts({"encoder": Part()}, params)
    fixed = Part(rate=None)
    with pytest.raises(BadInput, match="all parts .encoder, head. are held fixed"):
        check_parts({"encoder": fixed, "head": fixed}, params)
    lazy = dataclasses.replace(fixed, touched="ids")
    with pytest.raises(ValueError, match="part head: rows that are updated alone"):
        check_parts({"encoder": Part(), "head": lazy}, params)


# -------------------------------------------------------------------------------------------------
# The optimizer: its schedule by hand, its mask, and one step of AdamW written out.

CONFIG = OptimizerConfig(
    steps=100, learning_rate=1e-2, warmup_steps=10, weight_decay=0.1, clip_norm=0.0
)

PARTS = {"encoder": Part(decay=True, undecayed=("pooler",)), "relations": Part()}


def params():
    return {
        "encoder": {
            "layers": {0: {"kernel": jnp.full((2, 2), 2.0), "bias": jnp.full(2, 2.0)}},
            "pooler": {"kernel": jnp.full((2, 2), 2.0)},
        },
        "relations": jnp.full((3, 2, 2), 2.0),
    }


def one_step(config, gradient, parts=PARTS):
    optimizer, start = make_optimizer(config, parts), trained(params(), parts)
    tree = {
        "encoder": {
            "layers": {0: {"kernel": jnp.full((2, 2), gradient), "bias": jnp.full(2, gradient)}},
            "pooler": {"kernel": jnp.zeros((2, 2))},
        },
        "relations": jnp.full((3, 2, 2), gradient),
    }
    updates, _ = optimizer.update(trained(tree, parts), optimizer.init(start), start)
    return optax.apply_updates(start, updates)


def test_schedule():
    schedule = learning_rate(CONFIG)
    assert float(schedule(0)) == pytest.approx(1e-2 / 11)
    assert float(schedule(10)) == pytest.approx(1e-2)
    assert float(schedule(55)) == pytest.approx(0.5e-2)
    assert float(schedule(99)) == pytest.approx(1e-2 / 90, rel=1e-4)
    assert float(schedule(100)) == 0.0


def test_a_schedule_without_warm_up_starts_at_the_peak():
    assert float(learning_rate(dataclasses.replace(CONFIG, warmup_steps=0))(0)) == pytest.approx(
        1e-2
    )


def test_first_step_is_adamw_with_decay_on_kernels_alone():
    rate = 1e-2 / 11
    after = one_step(CONFIG, 0.3)
    moved = rate * 0.3 / (0.3 + 1e-8)  # Adam's first step has the size of the rate
    layer = after["encoder"]["layers"][0]
    np.testing.assert_allclose(layer["kernel"], 2 - moved - rate * 0.1 * 2, rtol=1e-6)
    np.testing.assert_allclose(layer["bias"], 2 - moved, rtol=1e-6)
    np.testing.assert_allclose(after["relations"], 2 - moved, rtol=1e-6)
    np.testing.assert_array_equal(after["encoder"]["pooler"]["kernel"], 2.0)


def test_a_constant_schedule_stays_at_the_peak_after_the_warm_up():
    schedule = learning_rate(dataclasses.replace(CONFIG, schedule="constant"))
    assert float(schedule(0)) == pytest.approx(1e-2 / 11)
    assert float(schedule(10)) == float(schedule(99)) == pytest.approx(1e-2)


def test_a_part_that_is_held_fixed_has_no_moments():
    parts = {**PARTS, "encoder": Part(rate=None)}
    assert "encoder" not in one_step(CONFIG, 0.3, parts)
    state = make_optimizer(CONFIG, parts).init(trained(params(), parts))
    assert {leaf.shape for leaf in jax.tree.leaves(state) if leaf.ndim} == {(3, 2, 2)}


def test_a_part_has_its_own_rate():
    after = one_step(CONFIG, 0.3, {**PARTS, "relations": Part(rate=20.0)})
    np.testing.assert_allclose(after["relations"], 2 - 20 * 1e-2 / 11, rtol=1e-5)


def test_clipping_bounds_the_global_norm():
    """With an eps of their size Adam's step shows how large the gradients are."""
    config = dataclasses.replace(CONFIG, eps=1.0, weight_decay=0.0)
    norm = 5.0 * np.sqrt(18)  # of 18 gradients of 5
    scaled = 5.0 / norm
    after = one_step(dataclasses.replace(config, clip_norm=1.0), 5.0)
    want = 2 - 1e-2 / 11 * scaled / (scaled + 1.0)
    np.testing.assert_allclose(after["relations"], want, rtol=1e-6)
