"""The state: counted as it lies on the devices, told by part, made anew where it was not read."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_bert import TINY

from coder_jax.models.bert import split_encoder
from coder_jax.models.hf_weights import random_bert
from coder_jax.systems.coder.objective import CoderSystem
from coder_jax.systems.encoders.encoder_system import ModelConfig
from coder_jax.training.config import Config, RunConfig
from coder_jax.training.state import bytes_per_device, check_parts, new_state, overview
from coder_jax.training.step import make_step
from coder_jax.training.system import Part
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.process.errors import BadInput

SYSTEM = CoderSystem(model=ModelConfig(dtype="float32"), batch=BatchSpec(groups=8))


def step_of(relations, devices=8, shard_encoder=False):
    about = {
        "encoder": {"config": TINY.to_hf(), "pooler": True},
        "relations": relations,
        "types": 0,
    }
    config = Config(recipe="test", system=SYSTEM, run=RunConfig(shard_encoder=shard_encoder))
    return make_step(config, about, (), devices=jax.devices()[:devices])


@pytest.mark.parametrize("shard_encoder", [False, True])
def test_the_state_is_counted_as_it_lies_on_the_devices(shard_encoder, monkeypatch):
    monkeypatch.setattr("coder_jax.devices.mesh.SMALLEST_TO_SHARD", 100)
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
