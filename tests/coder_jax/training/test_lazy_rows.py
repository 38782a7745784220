"""The lazy update of relation matrices: the result of dense Adam, step for step."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from coder_jax.devices.mesh import make_mesh
from coder_jax.training.config import Config, OptimizerConfig
from coder_jax.training.lazy_rows import MissedSteps, borrow, put_back, settle
from coder_jax.training.optimizer import make_optimizer, relation_learning_rate
from coder_jax.training.state import TrainState
from data_pipeline.process.errors import BadInput

RELATIONS, WIDTH = 6, 4
CONFIG = OptimizerConfig(
    steps=400, warmup_steps=20, learning_rate=1e-2, relation_learning_rate_factor=3.0, clip_norm=0.0
)


def new_state(lazy: bool, config: OptimizerConfig = CONFIG) -> TrainState:
    rng = np.random.default_rng(0)
    params = {
        "encoder": {"kernel": jnp.asarray(rng.standard_normal((3, 3)), jnp.float32)},
        "relations": jnp.asarray(rng.standard_normal((RELATIONS, WIDTH, WIDTH)), jnp.float32),
    }
    steps = jnp.zeros(RELATIONS, jnp.int32) if lazy else None
    return TrainState(jnp.int32(0), params, make_optimizer(config).init(params), steps)


def gradient(params, relations):
    """Of a loss that looks at some matrices, quadratically, so that errors would add up."""

    def loss(params):
        return (params["relations"][relations] ** 2).sum() + (
            params["encoder"]["kernel"] ** 2
        ).sum()

    return jax.grad(loss)(params)


def take_step(state, relations, config=CONFIG):
    """One step that uses `relations`, lazily if the state says so."""
    relations, whole, borrowed = jnp.asarray(relations, jnp.int32), state, None
    if state.relation_steps is not None:
        batch = {"relations": relations[None, None, None]}
        mesh = make_mesh(1, jax.devices()[:1])
        state, batch, borrowed = borrow(state, batch, MissedSteps(config), mesh)
        relations = batch["relations"].reshape(-1)
    grads = gradient(state.params, relations[relations >= 0])
    updates, opt_state = make_optimizer(config).update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    state = TrainState(state.step + 1, params, opt_state)
    return state if borrowed is None else put_back(whole, state, borrowed)


def steps_of(number, seed=0):
    """Ids of each step: few of the matrices, one rarely, one never, some without relation."""
    rng = np.random.default_rng(seed)
    for step in range(number):
        ids = rng.integers(0, RELATIONS - 2, size=2)
        yield [*ids, -1, RELATIONS - 2 if step in (3, 90) else ids[0]]


@pytest.mark.parametrize("number", [1, 2, 30, 200])
def test_lazy_is_dense(number):
    dense, lazy = new_state(lazy=False), new_state(lazy=True)
    for relations in steps_of(number):
        dense, lazy = take_step(dense, relations), take_step(lazy, relations)
    behind = np.asarray(lazy.relation_steps)
    assert behind.max() == number and behind[-1] == 0
    lazy = settle(lazy, CONFIG)
    assert (np.asarray(lazy.relation_steps) == number).all()
    lazy = dataclasses.replace(lazy, relation_steps=None)
    start = new_state(lazy=False)
    moved = np.linalg.norm(dense.params["relations"] - start.params["relations"], axis=(1, 2))
    assert moved.max() > 1e-3 and moved[-1] == 0
    for (path, a), b, before in zip(
        jax.tree_util.tree_leaves_with_path(dense),
        jax.tree.leaves(lazy),
        jax.tree.leaves(start),
        strict=True,
    ):
        rounding = 1e-7 * np.linalg.norm(a)
        assert np.linalg.norm(a - b) <= 1e-5 * np.linalg.norm(a - before) + rounding, path


@pytest.mark.parametrize(("eps", "close"), [(1e-8, 2e-4), (1e-3, 1e-2), (10.0, 1e-2)])
@pytest.mark.parametrize(("since", "missed"), [(1, 1), (1, 5), (7, 300), (200, 60)])
def test_missed_steps_are_those_of_adam(since, missed, eps, close):
    """Also where eps rules: an eps of 10 is a thousand times the gradient."""
    config = dataclasses.replace(CONFIG, eps=eps)
    adam = optax.adam(relation_learning_rate(config), config.b1, config.b2, eps)
    rng = np.random.default_rng(1)
    table = jnp.zeros((1, WIDTH, WIDTH))  # or rounding would hide the smallest movements
    inner = adam.init(table)
    for _ in range(since):
        grad = jnp.asarray(rng.normal(0, 1e-2, table.shape), jnp.float32)
        updates, inner = adam.update(grad, inner)
        table = table + updates
    table = jnp.zeros_like(table)
    state = TrainState(
        jnp.int32(since + missed),
        {"relations": table},
        {"relations": inner},
        jnp.full(1, since, jnp.int32),
    )
    got = settle(jax.tree.map(jnp.array, state), config)
    for _ in range(missed):
        updates, inner = adam.update(jnp.zeros_like(table), inner)
        table = table + updates
    moved = np.asarray(table)
    assert np.abs(moved).max() > 0
    np.testing.assert_allclose(
        got.params["relations"],
        moved,
        rtol=close,
        atol=np.abs(moved).max() * 2e-4,
    )
    np.testing.assert_allclose(got.opt_state["relations"][0].mu, inner[0].mu, rtol=1e-4, atol=1e-12)
    np.testing.assert_allclose(got.opt_state["relations"][0].nu, inner[0].nu, rtol=1e-4)


def test_nothing_is_missed_by_an_up_to_date_matrix():
    for weights, _ in MissedSteps(CONFIG).nodes(jnp.array([4, 5]), jnp.int32(5)):
        assert weights[0] > 0 and weights[1] == 0


def test_b1_must_be_smaller_than_the_root_of_b2():
    optimizer = OptimizerConfig(b1=0.99, b2=0.9)
    with pytest.raises(BadInput, match="--relation-update dense"):
        Config(optimizer=optimizer).validate()
    Config(optimizer=dataclasses.replace(optimizer, relation_update="dense")).validate()
