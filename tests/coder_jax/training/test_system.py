"""The protocol by a system of the tests that uses all of it, in files of its own alone."""

import dataclasses
import os
import shutil
import signal

import jax
import numpy as np
import pytest
from short_run import Stops
from toy_system import TERMS, ToySystem, toy_config, toy_source, write_terms
from training_process import lines_of

import coder_jax.training.step
from coder_jax.devices.mesh import make_mesh
from coder_jax.runs.checkpoint_reader import best_step, read_item, read_json_item, saved_steps
from coder_jax.runs.folder import read_identity
from coder_jax.systems.recipes import system_of
from coder_jax.training.train import train
from data_pipeline.process.errors import BadInput
from data_pipeline.process.stopping import Stopped, poll, stop_when_asked


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_terms(tmp_path_factory.mktemp("toy") / "data")


@pytest.fixture
def run(data, monkeypatch):
    """Train the toy: run(out, devices=1, stop=None, **settings of toy_config)."""

    def run(out, *, devices=1, stop=None, **settings):
        mesh = lambda groups, _=None: make_mesh(groups, jax.devices()[:devices])  # noqa: E731
        monkeypatch.setattr(coder_jax.training.step, "make_mesh", mesh)
        config = toy_config(out, **settings)
        source = toy_source(config, data, devices)
        if stop is not None:
            source = Stops(source, stop)
        return train(config, source)

    return run


def state_of(out, step):
    folder = out / "checkpoints" / str(step)
    return {item: read_item(folder, item) for item in ("params", "rest")}


def assert_same(got, want):
    jax.tree.map(np.testing.assert_array_equal, got, want)


def test_it_trains_and_each_part_as_it_says(run, tmp_path):
    result = run(tmp_path / "run", eval_steps=2)
    assert result.steps == 6 and set(result.scores) == {"terms"}
    start, end = (state_of(tmp_path / "run", step) for step in (2, 6))
    for part, changes in (("encoder", True), ("decoder", True), ("prior", False), ("rows", True)):
        a, b = (jax.tree.leaves(state["params"][part]) for state in (start, end))
        assert any(not np.array_equal(x, y) for x, y in zip(a, b, strict=True)) == changes, part
    before, after = (state["params"]["rows"] for state in (start, end))
    np.testing.assert_array_equal(before[-10:], after[-10:])  # never drawn
    assert np.abs(before[:-10] - after[:-10]).max() > 1e-2
    names = [
        jax.tree_util.keystr(path)
        for path, leaf in jax.tree_util.tree_leaves_with_path(end["rest"]["opt_state"])
        if np.ndim(leaf)
    ]
    assert any("rows" in name for name in names) and not any("prior" in name for name in names)
    assert np.abs(end["rest"]["extra"]["mean"]).max() > 0  # the running mean has moved
    assert (tmp_path / "run" / "words" / "list.txt").exists()


def test_stop_and_go_on_is_bitwise_the_straight_run(run, tmp_path):
    """Stopped between two refreshes, and at one before its index was whole."""
    run(tmp_path / "straight", eval_steps=2)
    for stop in (3, 4):
        out = tmp_path / f"stopped-{stop}"
        with pytest.raises(ConnectionError):
            run(out, stop=stop, eval_steps=2, save_minutes=0.0)
        if stop == 4:  # killed while it wrote the index of step 4
            (out / "index" / "4").rename(out / "index" / ".4.partial")
        run(out, eval_steps=2, save_minutes=0.0)
        assert_same(state_of(out, 6), state_of(tmp_path / "straight", 6))
        assert not list((out / "index").glob(".*"))


def test_the_batches_after_a_refresh_depend_on_its_index_and_say_so(run, tmp_path):
    run(tmp_path / "run", steps=12)
    run(tmp_path / "once", steps=12, system=ToySystem(refresh_steps=100))
    assert not np.array_equal(
        *(state_of(tmp_path / name, 12)["params"]["rows"] for name in ("run", "once"))
    )
    folder = tmp_path / "run"
    assert saved_steps(folder) == [
        2,
        4,
        6,
        8,
        10,
        12,
    ]  # a checkpoint at each refresh, to make it again
    assert sorted(path.name for path in (folder / "index").iterdir()) == ["10", "8"]
    notes = read_json_item(folder / "checkpoints" / "12", "notes")
    assert notes["index"]["step"] == 10 and len(notes["index"]["hash"]) == 64


@pytest.mark.parametrize("damage", ["changed", "lost"])
def test_an_index_that_is_not_the_one_it_was_stopped_with_is_refused(run, tmp_path, damage):
    out = tmp_path / "run"
    with pytest.raises(ConnectionError):
        run(out, stop=3, save_minutes=0.0)
    if damage == "changed":
        np.save(out / "index" / "2" / "neighbours.npy", np.zeros(TERMS, np.int64))
    else:
        shutil.rmtree(out / "index" / "2")
    with pytest.raises(BadInput, match=r"index .*2, which the run's batches depend on, has"):
        run(out)
    # What the message says mends it.
    (out / "checkpoints" / "3").rename(tmp_path / "away")
    run(out)
    run(tmp_path / "straight")
    assert_same(state_of(out, 6), state_of(tmp_path / "straight", 6))


def test_going_back_past_several_refreshes_makes_them_again(run, tmp_path):
    """Indexes of later steps, which are taken again, are not mistaken for newer ones."""
    out = tmp_path / "run"
    with pytest.raises(ConnectionError):
        run(out, steps=8, stop=7, save_minutes=0.0)
    assert saved_steps(out) == [2, 4, 6, 7]
    for step in (4, 6, 7):
        shutil.rmtree(out / "checkpoints" / str(step))
    run(out, steps=8)
    run(tmp_path / "straight", steps=8)
    assert_same(state_of(out, 8), state_of(tmp_path / "straight", 8))


def test_stopped_at_its_last_scores_it_is_scored_and_the_best_is_known(run, tmp_path, monkeypatch):
    out, real, looks = tmp_path / "run", ToySystem.scorer, []

    def scorer(system, source, settings):
        score = real(system, source, settings)

        def asked(view):
            looks.append(view.step)
            if looks.count(5) == 1 and view.step == 5:
                os.kill(os.getpid(), signal.SIGTERM)
            poll()
            return score(view)

        return asked

    monkeypatch.setattr(ToySystem, "scorer", scorer)
    with stop_when_asked("stopping"), pytest.raises(Stopped):
        run(out, steps=5, eval_steps=2)
    result = run(out, steps=5, eval_steps=2)
    assert result.scores and looks.count(5) == 2
    run(tmp_path / "straight", steps=5, eval_steps=2)
    assert best_step(out) == best_step(tmp_path / "straight")
    assert_same(state_of(out, 5), state_of(tmp_path / "straight", 5))


@pytest.mark.parametrize(
    ("normal", "devices", "passes"), [(True, 8, 1), (False, 8, 1), (False, 1, 4), (False, 2, 2)]
)
def test_devices_and_passes_change_nothing(run, tmp_path, normal, devices, passes):
    """Statistics of the batch are those of all devices together."""
    system = ToySystem(normal=normal)
    run(tmp_path / "one", system=system)
    run(tmp_path / "many", system=system, devices=devices, passes=passes)
    got, want = (state_of(tmp_path / name, 6) for name in ("many", "one"))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.linalg.norm(a - b) <= 1e-6 * np.linalg.norm(b)


def test_a_loss_that_needs_the_whole_batch_has_one_pass(run, tmp_path):
    with pytest.raises(BadInput, match="passes is 2, but the loss of toy needs the whole batch"):
        run(tmp_path / "run", passes=2)
    assert not (tmp_path / "run").exists()


def test_the_best_checkpoint_stays_and_is_the_one_that_is_read(run, tmp_path):
    out = tmp_path / "run"
    run(out, steps=12, eval_steps=1, system=ToySystem(refresh_steps=100))
    scores = {
        line["step"]: line["eval"]["terms"]["found"]
        for line in lines_of(out)
        if "eval" in line and line["step"]
    }
    best = max(scores, key=scores.__getitem__)
    assert 1 < best < 11, "a best score at the end would show nothing"
    assert best_step(out) == best and best in saved_steps(out)


def test_a_run_starts_from_another_one(run, tmp_path):
    run(tmp_path / "first", eval_steps=3)
    run(tmp_path / "second", start=str(tmp_path / "first"), eval_steps=3, steps=1)
    best = best_step(tmp_path / "first")
    told = read_identity(tmp_path / "second")["start"]
    assert told["from"]["step"] == best and told["width"] == 8
    first, second = (
        state_of(tmp_path / name, step)["params"]["prior"]
        for name, step in (("first", best), ("second", 1))
    )
    np.testing.assert_array_equal(first, second)
    with pytest.raises(BadInput, match="has no checkpoint yet"):
        shutil.rmtree(tmp_path / "first" / "checkpoints")
        (tmp_path / "first" / "checkpoints").mkdir()
        run(tmp_path / "third", start=str(tmp_path / "first"))


def test_what_run_json_says_makes_the_system_again(run, tmp_path):
    run(tmp_path / "run", steps=1, system=ToySystem(size=4))
    identity = read_identity(tmp_path / "run")
    assert system_of(identity, {"toy": ToySystem}) == ToySystem(size=4)
    with pytest.raises(
        BadInput, match="the run is of the system 'toy'; this version .* knows coder"
    ):
        system_of(identity)


def test_the_parts_of_a_system_are_frozen_values():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ToySystem().parts()["prior"].rate = 1.0
