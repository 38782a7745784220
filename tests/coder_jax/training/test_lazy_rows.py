"""The update of the rows that a step uses: dense Adam's result, or SparseAdam's, step for step."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from coder_jax.commands.train import parse
from coder_jax.devices.mesh import make_mesh
from coder_jax.training.lazy_rows import LazyRows, MissedSteps, lazy_parts
from coder_jax.training.state import TrainState, make_optimizer, rate_of_part
from coder_jax.training.system import OptimizerConfig, Part
from data_pipeline.process import BadInput

ROWS, WIDTH = 6, 4
CONFIG = OptimizerConfig(steps=400, warmup_steps=20, learning_rate=1e-2, clip_norm=0.0)
TABLE = Part(rate=3.0, touched="relations")
PARTS = {"encoder": Part(decay=True), "relations": TABLE}


def rows_of(parts, config=CONFIG):
    return LazyRows(lazy_parts(parts), config, make_mesh(1, jax.devices()[:1]), ())


def new_state(parts, config: OptimizerConfig = CONFIG) -> TrainState:
    rng = np.random.default_rng(0)
    params = {
        "encoder": {"kernel": jnp.asarray(rng.standard_normal((3, 3)), jnp.float32)},
        "relations": jnp.asarray(rng.standard_normal((ROWS, WIDTH, WIDTH)), jnp.float32),
    }
    catches_up = parts["relations"].touched and parts["relations"].untouched == "catch up"
    row_steps = {"relations": jnp.zeros(ROWS, jnp.int32)} if catches_up else {}
    opt_state = make_optimizer(config, parts).init(params)
    return TrainState(jnp.int32(0), params, {}, opt_state, row_steps)


def gradient(params, relations):
    """Of a loss that looks at some matrices, quadratically, so that errors would add up."""

    def loss(params):
        return (params["relations"][relations] ** 2).sum() + (
            params["encoder"]["kernel"] ** 2
        ).sum()

    return jax.grad(loss)(params)


def take_step(state, relations, parts, config=CONFIG):
    """One step that uses some rows: on these alone, if the part says so."""
    lazy, whole = rows_of(parts, config), state
    batch = {"relations": jnp.asarray(relations, jnp.int32)[None, None, None]}
    state, batch, gathered = lazy.gather_rows(state, batch)
    numbers = batch["relations"].reshape(-1)
    grads = gradient(state.params, numbers[numbers >= 0])
    updates, opt_state = make_optimizer(config, parts).update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    after = TrainState(state.step + 1, params, {}, opt_state, state.row_steps)
    return lazy.scatter_rows(whole, after, gathered)


def steps_of(number, seed=0):
    """Ids of each step: few of the matrices, one rarely, one never, some without relation."""
    rng = np.random.default_rng(seed)
    for step in range(number):
        ids = rng.integers(0, ROWS - 2, size=2)
        yield [*ids, -1, ROWS - 2 if step in (3, 90) else ids[0]]


@pytest.mark.parametrize(
    ("number", "b1"),
    [(1, 0.9), (2, 0.9), (30, 0.9), (30, 0.0), pytest.param(200, 0.9, marks=pytest.mark.slow)],
)
def test_lazy_is_dense(number, b1):
    config = dataclasses.replace(CONFIG, b1=b1)
    every_row = {**PARTS, "relations": dataclasses.replace(TABLE, touched=None)}
    dense, lazy = new_state(every_row, config), new_state(PARTS, config)
    for relations in steps_of(number):
        dense = take_step(dense, relations, every_row, config)
        lazy = take_step(lazy, relations, PARTS, config)
    behind = np.asarray(lazy.row_steps["relations"])
    assert behind.max() == number and behind[-1] == 0
    lazy = rows_of(PARTS, config).settled(lazy)
    assert (np.asarray(lazy.row_steps["relations"]) == number).all()
    lazy = dataclasses.replace(lazy, row_steps={})
    start = new_state(every_row, config)
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


@pytest.mark.slow
def test_a_first_moment_in_bfloat16_catches_up_but_for_its_rounding():
    """A value has 8 binary digits; dense Adam rounds after each of the 30 steps, lazy once."""
    states = []
    for moment in ("float32", "bfloat16"):
        config = dataclasses.replace(CONFIG, first_moment=moment)
        state = new_state(PARTS, config)
        for relations in steps_of(30):
            state = take_step(state, relations, PARTS, config)
        states.append(rows_of(PARTS, config).settled(state))
    for (path, a), b in zip(
        jax.tree_util.tree_leaves_with_path(states[0]), jax.tree.leaves(states[1]), strict=True
    ):
        is_first = any(getattr(key, "name", "") == "mu" for key in path)
        assert b.dtype == (jnp.bfloat16 if is_first else a.dtype), path
        assert np.linalg.norm(a - b.astype(a.dtype)) <= 0.02 * np.linalg.norm(a), path


@pytest.mark.slow
def test_lazy_is_dense_where_a_run_is_made_longer():
    """At step 50 of 60 a run becomes one of 400 steps: what was missed before has the old rates."""
    every_row = {**PARTS, "relations": dataclasses.replace(TABLE, touched=None)}
    short = dataclasses.replace(CONFIG, steps=60)
    dense, lazy = new_state(every_row), new_state(PARTS)
    start = np.asarray(dense.params["relations"])

    def error(state):
        end = np.asarray(dense.params["relations"])
        off = np.linalg.norm(state.params["relations"] - end)
        return off / np.linalg.norm(end - start)

    for step, relations in enumerate(steps_of(100)):
        if step == 50:
            unsettled = rows_of(PARTS).settled(jax.tree.map(jnp.array, lazy))
            lazy = rows_of(PARTS).settled_until(lazy, 60)
            assert error(lazy) <= 1e-5 and error(unsettled) > 1e-3, "at the rates of 400 steps"
        config = CONFIG if step >= 50 else short
        dense = take_step(dense, relations, every_row, config)
        lazy = take_step(lazy, relations, PARTS, config)
    assert error(rows_of(PARTS).settled(lazy)) <= 1e-5


def test_nothing_is_made_up_for_early_where_the_rates_stay():
    state = new_state(PARTS)
    assert rows_of(PARTS).settled_until(state, CONFIG.steps) is state
    constant = dataclasses.replace(CONFIG, schedule="constant")
    assert rows_of(PARTS, constant).settled_until(state, 60) is state


@pytest.mark.parametrize(("eps", "close"), [(1e-8, 2e-4), (1e-3, 1e-2), (10.0, 1e-2)])
@pytest.mark.parametrize(("since", "missed"), [(1, 1), (1, 5), (7, 300), (200, 60)])
def test_missed_steps_are_those_of_adam(since, missed, eps, close):
    """Also where eps rules: an eps of 10 is a thousand times the gradient."""
    config = dataclasses.replace(CONFIG, eps=eps)
    adam = optax.adam(rate_of_part(config, TABLE), config.b1, config.b2, eps)
    rng = np.random.default_rng(1)
    table = jnp.zeros((1, WIDTH, WIDTH))  # or rounding would hide the smallest movements
    table = {"relations": table}
    inner = adam.init(table)
    for _ in range(since):
        grad = jnp.asarray(rng.normal(0, 1e-2, (1, WIDTH, WIDTH)), jnp.float32)
        _, inner = adam.update({"relations": grad}, inner)
    state = TrainState(
        jnp.int32(since + missed),
        table,
        {},
        {"relations": inner},
        {"relations": jnp.full(1, since, jnp.int32)},
    )
    got = rows_of(PARTS, config).settled(jax.tree.map(jnp.array, state))
    for _ in range(missed):
        updates, inner = adam.update(jax.tree.map(jnp.zeros_like, table), inner)
        table = optax.apply_updates(table, updates)
    moved = np.asarray(table["relations"])
    assert np.abs(moved).max() > 0
    np.testing.assert_allclose(
        got.params["relations"],
        moved,
        rtol=close,
        atol=np.abs(moved).max() * 2e-4,
    )
    for name, atol in (("mu", 1e-12), ("nu", 0)):
        left, right = (getattr(adam[0], name) for adam in (got.opt_state["relations"], inner))
        np.testing.assert_allclose(left["relations"], right["relations"], rtol=1e-4, atol=atol)


def test_nothing_is_missed_by_an_up_to_date_matrix():
    for weights, _ in MissedSteps(CONFIG, "relations", TABLE).nodes(
        jnp.array([4, 5]), jnp.int32(5)
    ):
        assert weights[0] > 0 and weights[1] == 0


def test_rows_that_stay_are_those_of_sparse_adam():
    """Rows without a gradient and their moments keep their bits; the others take Adam's step."""
    torch = pytest.importorskip("torch")
    parts = {**PARTS, "relations": dataclasses.replace(TABLE, untouched="stay")}
    config = dataclasses.replace(CONFIG, warmup_steps=0, schedule="constant")
    state = new_state(parts, config)
    start = np.asarray(state.params["relations"])
    assert state.row_steps == {}
    table = torch.nn.Parameter(torch.from_numpy(start.reshape(ROWS, -1).copy()))
    sparse = torch.optim.SparseAdam([table], lr=3.0 * 1e-2, betas=(0.9, 0.999), eps=1e-8)
    for relations in steps_of(40):
        state = take_step(state, relations, parts, config)
        used = torch.tensor([row for row in relations if row >= 0])
        sparse.zero_grad()
        (torch.nn.functional.embedding(used, table, sparse=True) ** 2).sum().backward()
        sparse.step()
    got = np.asarray(state.params["relations"]).reshape(ROWS, -1)
    np.testing.assert_allclose(got, table.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(got[-1], start.reshape(ROWS, -1)[-1])


def test_several_arrays_of_a_part_are_its_rows_together():
    """A table with a bias: rows of both are gathered, updated and scattered."""
    parts = {"classes": Part(touched="ids")}
    params = {"classes": {"rows": jnp.ones((5, 3)), "bias": jnp.zeros(5)}}
    opt_state = make_optimizer(CONFIG, parts).init(params)
    steps = {"classes": jnp.zeros(5, jnp.int32)}
    state = TrainState(jnp.int32(0), params, {}, opt_state, steps)
    batch = {"ids": jnp.array([[[4, 1, 4, -1]]], jnp.int32)}
    few, local, gathered = rows_of(parts).gather_rows(state, batch)
    assert few.params["classes"]["rows"].shape == (4, 3)
    np.testing.assert_array_equal(gathered["classes"], [1, 4, 5, 5])
    np.testing.assert_array_equal(local["ids"], [[[1, 0, 1, -1]]])
    changed = jax.tree.map(lambda leaf: leaf + 1 if leaf.ndim else leaf, few)
    after = rows_of(parts).scatter_rows(state, changed, gathered)
    np.testing.assert_array_equal(after.params["classes"]["bias"], [0, 1, 0, 0, 1])


def test_b1_must_be_smaller_than_the_root_of_b2():
    flags = ["--recipe", "small", "--b1", "0.99", "--b2", "0.9"]
    with pytest.raises(BadInput, match="--relation-update dense"):
        parse(flags).validate()
    parse([*flags, "--relation-update", "dense"]).validate()
    with pytest.raises(BadInput, match="rows of relations that make up for missed steps"):
        MissedSteps(OptimizerConfig(b1=0.99, b2=0.9), "relations", TABLE)
