"""The optimizer: its schedule by hand, its mask, and one step of AdamW written out."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from coder_jax.training.config import OptimizerConfig
from coder_jax.training.optimizer import learning_rate, make_optimizer, trained
from coder_jax.training.system import Part

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
