"""A finished run, and one that was stopped, made longer."""

import dataclasses
import json

import numpy as np
import pytest
from short_run import (
    Stops,
    assert_same_parameters,
    config,
    lines_of,
)

from coder_jax.systems.trained_models import load_run
from coder_jax.training.checkpoints import Checkpoints, read_params, saved_steps
from coder_jax.training.metrics import Tracker
from coder_jax.training.run_folder import read_run_identity
from coder_jax.training.state import learning_rate
from coder_jax.training.step import Step
from coder_jax.training.train import train
from data_pipeline.files.identity import RUN, write_identity
from data_pipeline.process import BadInput

pytestmark = pytest.mark.usefixtures("on_one_device")


def run_of(model, out, steps, schedule, *, mu=0.0, update="lazy", **run):
    """A run without relations unless `mu`: the end of a run brings all of their rows up to date."""
    whole = config(model, out, **run)
    optimizer = dataclasses.replace(whole.optimizer, steps=steps, schedule=schedule)
    system = dataclasses.replace(whole.system, mu=mu, relation_update=update)
    return dataclasses.replace(whole, system=system, optimizer=optimizer)


@pytest.fixture(scope="module")
def straight(model, source, tmp_path_factory):
    """The folder of a run of seven steps at a constant rate."""
    out = tmp_path_factory.mktemp("runs") / "straight"
    train(run_of(model, out, 7, "constant"), source)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [False, True])
def test_at_a_constant_rate_it_is_bitwise_the_longer_run(
    model, source, straight, tmp_path, stopped
):
    out = tmp_path / "run"
    if stopped:  # with a checkpoint of step 3
        with pytest.raises(ConnectionError):
            train(run_of(model, out, 6, "constant"), Stops(source, after=4))
        with pytest.raises(ConnectionError):  # extended, and stopped before another checkpoint
            train(run_of(model, out, 7, "constant", extend=True), Stops(source, after=4))
        assert saved_steps(out) == [3]
        train(run_of(model, out, 7, "constant"), source)
    else:
        train(run_of(model, out, 6, "constant"), source)
        train(run_of(model, out, 7, "constant", extend=True), source)
    assert_same_parameters(read_params(out, 7), read_params(straight, 7))
    told = read_run_identity(out)
    assert told["config"]["optimizer"]["steps"] == 7
    assert told["extended"] == [{"step": 3 if stopped else 6, "from": 6, "to": 7}]
    assert load_run(out)[1].step == 7


@pytest.mark.slow
def test_a_linear_rate_is_that_of_the_longer_run_from_there_on(model, source, tmp_path):
    out = tmp_path / "run"
    before = run_of(model, out, 6, "linear", mu=1.0, log_steps=1)
    longer = run_of(model, out, 9, "linear", mu=1.0, log_steps=1, extend=True)
    train(before, source)
    train(longer, source)
    rates = [line["learning_rate"] for line in lines_of(out / "metrics.jsonl")]
    of_six, of_nine = (learning_rate(one.optimizer) for one in (before, longer))
    wanted = [*map(of_six, range(6)), *map(of_nine, range(6, 9))]
    assert rates == [float(rate) for rate in wanted] and rates[5] < rates[6] > rates[8]
    for step in (6, 9):  # a checkpoint of before it was longer is read, too
        assert load_run(out, step)[1].step == step
    told = json.loads((out / "run.json").read_text())
    told["config"]["system"]["batch"]["seed"] = 7
    (out / "run.json").write_text(json.dumps(told))
    with pytest.raises(BadInput, match="was changed since checkpoint 9 was saved: config.system.b"):
        load_run(out)


@pytest.mark.slow
def test_relations_are_those_of_dense_adam_where_a_stopped_run_is_made_longer(
    model, source, tmp_path
):
    tables = []
    for update in ("lazy", "dense"):
        settings = {"mu": 1.0, "update": update, "save_minutes": 0.0}
        out = tmp_path / update
        with pytest.raises(ConnectionError):
            train(run_of(model, out, 6, "linear", **settings), Stops(source, after=5))
        assert saved_steps(out)[-1] == 5
        train(run_of(model, out, 9, "linear", extend=True, **settings), source)
        tables.append(read_params(out, 9)["relations"])
    off = np.linalg.norm(tables[0] - tables[1], axis=(1, 2))
    assert off.max() < 1e-5


@pytest.mark.slow
def test_run_json_says_so_once_nothing_is_left_that_could_fail_before_a_step(
    model, source, tmp_path, monkeypatch
):
    out = tmp_path / "run"
    with pytest.raises(ConnectionError):  # with a checkpoint of step 3
        train(run_of(model, out, 6, "linear"), Stops(source, after=4))
    before = (out / "run.json").read_bytes()
    longer = run_of(model, out, 9000, "linear", extend=True)

    def too_large(*_):
        raise BadInput("it does not fit")

    with monkeypatch.context() as patch:
        patch.setattr(Step, "compile", too_large)
        with pytest.raises(BadInput, match="it does not fit"):
            train(longer, source)
    assert (out / "run.json").read_bytes() == before
    with pytest.raises(ConnectionError):
        train(longer, Stops(source, after=4))
    assert read_run_identity(out)["extended"] == [{"step": 3, "from": 6, "to": 9000}]
    train(run_of(model, out, 6, "linear"), source)  # no checkpoint has it: it is taken back
    assert (out / "run.json").read_bytes() == before
    assert load_run(out)[1].step == 6


@pytest.mark.slow
def test_a_warm_up_that_is_a_share_stays_as_long_as_it_was(model, source, tmp_path):
    out = tmp_path / "run"

    def run_with(share, steps):
        run = run_of(model, out, steps, "constant", extend=steps > 2)
        return dataclasses.replace(
            run, optimizer=dataclasses.replace(run.optimizer, warmup_steps=share)
        )

    for steps in (2, 4, 6):  # it is made longer twice
        train(run_with(0.5, steps), source)
        told = read_run_identity(out)["config"]["optimizer"]
        assert (told["warmup_steps"], told["steps"]) == (1, steps)
    with pytest.raises(BadInput, match="optimizer.warmup_steps: 1 there, 2 here"):
        train(run_with(0.25, 8), source)


def test_extending_what_is_not_there_is_refused(model, source, tmp_path):
    with pytest.raises(BadInput, match="--extend: there is no run in .*mistyped; see to --out"):
        train(run_of(model, tmp_path / "mistyped", 9, "linear", extend=True), source)
    assert not (tmp_path / "mistyped").exists()


def test_a_run_of_another_system_is_told_as_one_that_differs(model, source, tmp_path):
    config = {"recipe": "toy", "system": {"name": "toy"}, "start": ""}
    config["optimizer"] = {"steps": 6, "learning_rate": 0.1}
    write_identity(tmp_path / RUN.file, RUN, {"config": config, "start": {}})
    with pytest.raises(BadInput, match=r"(?s)holds a run that differs.*system.name: 'toy' there"):
        train(run_of(model, tmp_path, 6, "linear"), source)


@pytest.mark.slow
def test_checkpoints_are_whole_before_a_service_is_told_of_the_end(
    model, source, straight, monkeypatch
):
    closed = []
    for kind in (Checkpoints, Tracker):
        close = kind.close
        monkeypatch.setattr(
            kind, "close", lambda *of, close=close, kind=kind: (closed.append(kind), close(*of))
        )
    train(run_of(model, straight, 7, "constant"), source)
    assert closed == [Checkpoints, Tracker]
