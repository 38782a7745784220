"""The memory plan: the state counted exactly, the whole near the compiler's, refusal in words."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from tiny_bert import TINY

from coder_jax.devices.memory_plan import bytes_per_device, check_memory, plan_memory
from coder_jax.devices.mesh import BATCH, make_mesh, step_cut
from coder_jax.models.bert import abstract_bert
from coder_jax.models.hf_weights import random_bert
from coder_jax.systems.coder.objective import CoderLoss
from coder_jax.systems.groups.heads import head_shapes
from coder_jax.training.config import OptimizerConfig
from coder_jax.training.lazy_rows import MissedSteps
from coder_jax.training.optimizer import make_optimizer
from coder_jax.training.state import abstract_state, new_state, split_encoder
from coder_jax.training.step import make_train_step
from data_pipeline.batches.spec import BatchSpec, RowPlan
from data_pipeline.process.errors import BadInput

OPTIMIZER = make_optimizer(OptimizerConfig())
SPEC = BatchSpec(groups=8, triplets=16, repeats=4)
WIDER = dataclasses.replace(TINY, hidden_size=128, intermediate_size=512, num_layers=3)


def shapes_of(mesh, *, relations, shard_encoder=False, config=WIDER, lazy=False):
    structure = abstract_bert(config, jnp.float32)
    encoder = split_encoder(structure)[1]
    width = config.hidden_size
    heads = head_shapes(CoderLoss(), relations, 0, width)
    return structure, abstract_state(
        encoder, heads, OPTIMIZER, mesh, shard_encoder=shard_encoder, lazy=lazy
    )


@pytest.mark.parametrize("shard_encoder", [False, True])
def test_the_state_is_counted_as_it_lies_on_the_devices(shard_encoder, monkeypatch):
    monkeypatch.setattr("coder_jax.devices.mesh.SMALLEST_TO_SHARD", 100)
    mesh = make_mesh(8)
    _, like = shapes_of(mesh, relations=7, shard_encoder=shard_encoder, config=TINY)
    encoder = split_encoder(random_bert(TINY, 0))[1]
    state = new_state(like, encoder, OPTIMIZER, noise=0.01, seed=0)
    here = jax.devices()[0]
    lying = sum(
        shard.data.nbytes
        for leaf in jax.tree.leaves((state.params, state.opt_state))
        for shard in leaf.addressable_shards
        if shard.device == here
    )
    assert bytes_per_device(like.params) + bytes_per_device(like.opt_state) == lying


def test_the_relation_table_is_an_eighth_on_each_of_eight_devices():
    one = shapes_of(make_mesh(1, jax.devices()[:1]), relations=40)[1]
    eight = shapes_of(make_mesh(8), relations=40)[1]
    whole = 40 * 128 * 128 * 4
    assert bytes_per_device(one.params) - bytes_per_device(eight.params) == whole * 7 // 8
    assert bytes_per_device(one.opt_state) - bytes_per_device(eight.opt_state) == 2 * whole * 7 // 8


def compiled_bytes(like, structure, mesh, cut, rows):
    """Arguments and temporaries of the compiled step, on one device."""
    step = make_train_step(
        split_encoder(structure)[0],
        CoderLoss(),
        OPTIMIZER,
        mesh,
        like,
        pairs=SPEC.pairs,
        pooling="cls",
        seed=0,
        dropout=True,
        missed=None if like.relation_steps is None else MissedSteps(OptimizerConfig()),
    )
    groups = cut.groups_per_block(SPEC)
    shapes = {name: (rows, SPEC.row_length) for name in ("tokens", "positions", "segments")}
    shapes |= {"concepts": (groups, 2 * SPEC.pairs), "relations": (groups, SPEC.triplets)}
    batch = {
        name: jax.ShapeDtypeStruct(
            (cut.passes, cut.blocks, *shape), np.int32, sharding=NamedSharding(mesh, BATCH[name])
        )
        for name, shape in shapes.items()
    }
    memory = step.lower(like, batch).compile().memory_analysis()
    return memory.argument_size_in_bytes + memory.temp_size_in_bytes


@pytest.mark.parametrize(
    ("devices", "passes", "relations", "lazy"),
    [
        (1, 1, 50, False),
        (1, 4, 50, False),
        (8, 1, 1000, False),
        (1, 1, 2000, True),
        (1, 4, 2000, True),
    ],
)
def test_the_plan_is_near_what_the_compiler_says(devices, passes, relations, lazy):
    """In float32 on the CPU, the program that can be compiled here: within a third."""
    mesh = make_mesh(SPEC.groups // passes, jax.devices()[:devices])
    cut = step_cut(mesh, passes)
    structure, like = shapes_of(mesh, relations=relations, lazy=lazy)
    rows = 64 // cut.passes // cut.blocks
    plan = plan_memory(like, structure, SPEC, cut, RowPlan((rows,)))
    found = compiled_bytes(like, structure, mesh, cut, rows)
    assert 2 / 3 < plan.total / found < 3 / 2, (plan.parts, found)


@pytest.mark.parametrize(
    ("relations", "rows", "most", "advice"),
    [
        (2000, 1, "moments", "--shard-encoder"),
        (10, 4000, "activations", "--passes 2"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused_with_what_helps(relations, rows, most, advice):
    mesh = make_mesh(8)
    cut = step_cut(mesh, 1)
    structure, like = shapes_of(mesh, relations=relations)
    plan = plan_memory(like, structure, SPEC, cut, RowPlan((rows,)))
    assert "warning" not in check_memory(dataclasses.replace(plan, limit=plan.total))
    tight = check_memory(dataclasses.replace(plan, limit=plan.total - 1))
    assert "may not fit" in tight and advice in tight
    with pytest.raises(BadInput, match=f"does not fit. Most are {most}; use .*{advice}"):
        check_memory(dataclasses.replace(plan, limit=plan.least - 1))
