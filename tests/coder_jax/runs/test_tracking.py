"""Metrics on Weights & Biases and MLflow: modules that keep each call stand for both.

What they were told was also seen with the real ones, offline (wandb 0.31, mlflow-skinny 3.17).
"""

import json
import sys
import types

import pytest

from coder_jax.runs import tracking as tracking_module
from coder_jax.runs.metrics import MetricsLog
from coder_jax.runs.tracking import check_installed, tracking
from data_pipeline.process.errors import BadInput
from data_pipeline.process.stopping import Stopped

CONFIG = {"recipe": "small", "optimizer": {"steps": 6}}


class Calls(types.ModuleType):
    """A module, or an object of it, whose functions keep what they were called with."""

    def __init__(self, name):
        super().__init__(name)
        self.calls = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *words, **named: self.calls.append((name, *words, named))


@pytest.fixture
def wandb(monkeypatch):
    module = Calls("wandb")
    run = Calls("run")
    run.id = "w1"

    def init(**named):
        module.calls.append(("init", named))
        return run

    module.init, module.run = init, run
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return module


@pytest.fixture
def mlflow(monkeypatch):
    module = Calls("mlflow")
    info = types.SimpleNamespace(run_id="m1")
    module.active_run = lambda: types.SimpleNamespace(info=info)
    monkeypatch.setitem(sys.modules, "mlflow", module)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    return module


def a_run(kind, tmp_path):
    """One that writes a line of metrics and one of scores."""
    with tracking(kind, tmp_path, "runs/x", CONFIG) as tracker:
        log = MetricsLog(tmp_path, 0, 6, tracker)
        log.write(2, {"loss": 0.5})
        log.write(2, {"eval": {"heldout": {"acc@1": 0.25}}})
        log.close()


def without_seconds(values):
    return {name: value for name, value in values.items() if name != "seconds"}


def test_wandb_gets_the_metrics_and_the_same_run_goes_on(wandb, tmp_path):
    a_run("wandb", tmp_path)
    a_run("wandb", tmp_path)
    begun = {"project": "coder_jax", "resume": "allow", "name": "runs/x", "config": CONFIG}
    assert wandb.calls == [("init", begun | {"id": None}), ("init", begun | {"id": "w1"})]
    sent = [without_seconds(call[1]) for call in wandb.run.calls if call[0] == "log"]
    assert sent[:2] == [{"step": 2, "loss": 0.5}, {"step": 2, "eval/heldout/acc@1": 0.25}]
    assert ("define_metric", "*", {"step_metric": "step"}) in wandb.run.calls
    assert wandb.run.calls[-1] == ("finish", {"exit_code": 0})


def test_mlflow_gets_the_metrics_and_the_same_run_goes_on(mlflow, tmp_path):
    a_run("mlflow", tmp_path)
    assert mlflow.calls[:3] == [
        ("set_experiment", "coder_jax", {}),
        ("start_run", {"run_name": "runs/x"}),
        ("log_params", {"recipe": "small", "optimizer.steps": 6}, {}),
    ]
    sent = [
        (without_seconds(call[1]), call[2]) for call in mlflow.calls if call[0] == "log_metrics"
    ]
    options = {"step": 2, "synchronous": False}
    assert sent == [({"loss": 0.5}, options), ({"eval/heldout/acc_at_1": 0.25}, options)]
    assert mlflow.calls[-1] == ("end_run", "FINISHED", {})
    mlflow.calls.clear()
    a_run("mlflow", tmp_path)
    assert mlflow.calls[0] == ("start_run", {"run_id": "m1"})


def test_both_know_the_run_by_its_id(wandb, mlflow, tmp_path):
    for kind in ("wandb", "mlflow"):
        a_run(kind, tmp_path)
    assert json.loads((tmp_path / "tracking.json").read_text()) == {"wandb": "w1", "mlflow": "m1"}


@pytest.mark.parametrize(("error", "status"), [(Stopped(), "KILLED"), (ValueError("x"), "FAILED")])
def test_a_run_that_does_not_end_well_is_told_so(error, status, wandb, mlflow, tmp_path):
    for kind in ("wandb", "mlflow"):
        with pytest.raises(type(error)), tracking(kind, tmp_path, "x", CONFIG):
            raise error
    assert mlflow.calls[-1] == ("end_run", status, {})
    *_, before, last = wandb.run.calls
    assert last == ("finish", {"exit_code": 1})
    # With a status that is not 0 this makes it preempted there, not failed.
    assert (before == ("mark_preempting", {})) == isinstance(error, Stopped)


def test_a_service_that_fails_ends_no_training_and_is_said_once(wandb, tmp_path, capsys):
    def fails(*_, **__):
        raise ConnectionError("gone")

    wandb.run.log = wandb.run.finish = fails
    a_run("wandb", tmp_path)
    said = capsys.readouterr().err
    assert said.count("could not be sent (ConnectionError: gone); training goes on") == 1
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("kind", ["wandb", "mlflow"])
def test_what_is_not_installed_is_named(kind, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, kind, None)
    with pytest.raises(BadInput, match=rf"--track {kind}: the package {kind} is .* install {kind}"):
        a_run(kind, tmp_path)
    assert not (tmp_path / "tracking.json").exists()
    with pytest.raises(BadInput, match=rf"--track {kind}: the package {kind} is .* install {kind}"):
        check_installed(kind)
    check_installed("none")


@pytest.mark.parametrize("kind", ["wandb", "mlflow"])
def test_a_run_goes_on_without_a_service_that_it_was_tracked_by(
    kind, wandb, mlflow, tmp_path, capsys, monkeypatch
):
    a_run(kind, tmp_path)
    ids = (tmp_path / "tracking.json").read_text()

    def refuses(**_):
        raise ConnectionError("run was deleted, or no network")

    monkeypatch.setattr(*{"wandb": (wandb, "init"), "mlflow": (mlflow, "start_run")}[kind], refuses)
    capsys.readouterr()
    a_run(kind, tmp_path)
    said = capsys.readouterr().err
    run = json.loads(ids)[kind]
    assert f"the run {run} cannot go on there (ConnectionError: run was deleted, or no" in said
    assert "training goes on" in said and "delete tracking.json in runs/x" in said
    assert (tmp_path / "tracking.json").read_text() == ids, "it goes on there when it can"


def test_a_start_that_fails_says_what_to_do(wandb, tmp_path):
    def init(**_):
        raise RuntimeError("no API key")

    wandb.init = init
    with pytest.raises(BadInput, match="RuntimeError: no API key.*WANDB_MODE=offline"):
        a_run("wandb", tmp_path)
    (tmp_path / "tracking.json").write_text('{"wandb": 3}')
    with pytest.raises(BadInput, match="expected str.*delete the file, and a new"):
        a_run("wandb", tmp_path)


def test_nothing_is_imported_unasked_nor_on_other_hosts(tmp_path, monkeypatch):
    for kind in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, kind, None)
    a_run("none", tmp_path)
    monkeypatch.setattr(tracking_module, "is_first", lambda: False)
    a_run("wandb", tmp_path)
    assert not (tmp_path / "tracking.json").exists()
