"""The metrics of a run: lines that go on, a warning of slow data, files for TensorBoard."""

import json
import re
import subprocess
import sys
import types
from datetime import UTC, datetime, timedelta

import pytest

from coder_jax.training import metrics as metrics_module
from coder_jax.training import metrics as tracking_module
from coder_jax.training.metrics import (
    MetricsLog,
    Profile,
    _Board,
    _keep_lines_until,
    check_installed,
    read_metrics,
    tracking,
)
from data_pipeline import process
from data_pipeline.process import BadInput, Stopped


def test_lines_go_on_where_the_run_stopped(tmp_path, capsys):
    for first, steps in ((0, [10, 20]), (10, [20, 30])):
        log = MetricsLog(tmp_path, first, 30)
        for step in steps:
            log.write(step, {"loss": float(step + first)})
            log.show(step, {"loss": 1.0})
        log.write(steps[-1], {"eval": {"heldout": {"acc@1": 0.5}}})
        log.close()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line.get("loss")) for line in lines] == [
        (10, 10.0),
        (20, 30.0),
        (30, 40.0),
        (30, None),
    ]
    seconds = [line["seconds"] for line in lines]
    assert seconds == sorted(seconds)
    assert "30/30" in capsys.readouterr().err
    for line in lines:
        age = datetime.now(UTC) - datetime.fromisoformat(line["time"])
        assert timedelta(0) <= age < timedelta(minutes=5), "the time is that of the day, in UTC"


def test_a_profile_that_cannot_be_written_ends_no_run(tmp_path, monkeypatch):
    profile = Profile(tmp_path, range(2, 4))

    def full_disk() -> None:
        raise RuntimeError("No space left on device")

    monkeypatch.setattr(metrics_module.jax.profiler, "start_trace", lambda *_, **__: None)
    monkeypatch.setattr(metrics_module.jax.profiler, "stop_trace", full_disk)
    with pytest.raises(Stopped), profile:
        profile.start()
        assert profile.stop() == "the profile could not be written: No space left on device"
        profile.start()
        raise Stopped


def test_goodput_is_the_share_of_steps_in_all_the_time_since_the_run_began(tmp_path, monkeypatch):
    """30 s of steps in 50; a stop, lost steps and a start take 50 more; then 20 s of steps in 20.

    The second process takes step 20 again: its line counts in place of the first one's.
    """
    now = [1000.0]
    monkeypatch.setattr(metrics_module.time, "time", lambda: now[0])
    monkeypatch.setattr(metrics_module, "datetime", _Clock(now))

    def write(log, step, at, seconds):
        now[0] = at
        log.write(step, {"step_seconds": seconds})

    log = MetricsLog(tmp_path, 0, 30, began=1000.0)
    write(log, 10, 1050.0, 30.0)
    write(log, 20, 1070.0, 15.0)
    log.close()
    now[0] = 1100.0
    log = MetricsLog(tmp_path, 10, 30, began=1090.0)
    write(log, 20, 1120.0, 20.0)
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["step_seconds"]) for line in lines] == [(10, 30.0), (20, 50.0)]
    assert [line["goodput"] for line in lines] == pytest.approx([30 / 50, 50 / 120])


class _Clock:
    """`datetime` whose now is that of a list."""

    fromisoformat = staticmethod(datetime.fromisoformat)

    def __init__(self, now):
        self.time = now

    def now(self, zone):
        return datetime.fromtimestamp(self.time[0], zone)


def test_the_bar_moves_with_each_step_and_keeps_what_stands_beside_it(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(process, "_SECONDS_BETWEEN_LINES", 0.0)
    log = MetricsLog(tmp_path, 1, 4)
    log.show(2)
    log.show(3, {"loss": 0.25})
    log.show(4)
    shown = re.findall(r"train: (\d)/4.*left(.*)", capsys.readouterr().err)
    assert shown == [("2", ""), ("3", ", loss=0.25"), ("4", ", loss=0.25")]
    log.close()


def test_what_comes_before_the_first_step_does_not_count_in_the_time_that_is_left(tmp_path):
    log = MetricsLog(tmp_path, 10, 30)
    for clock in ("start_t", "last_print_t"):  # the scores of step 10 took an hour
        setattr(log.bar, clock, getattr(log.bar, clock) - 3600)
    log.show(11)
    assert 0 <= log.bar.format_dict["elapsed"] < 60
    log.bar.start_t -= 100
    log.show(12)
    assert 100 < log.bar.format_dict["elapsed"] < 160
    log.close()


def test_slow_data_is_said_once_from_the_second_line_in_a_row_on(tmp_path, capsys):
    log = MetricsLog(tmp_path, 0, 30)
    for step, share in enumerate([0.9, 0.1, 0.8, 0.7, 0.9], 1):
        log.write(step, {"data_wait": share})
        said = capsys.readouterr().out.count("the run waits for its data")
        assert said == (step == 4), step  # the first line is the start of the pipeline
    log.warned -= metrics_module._SECONDS_BETWEEN_WARNINGS
    log.write(6, {"data_wait": 0.75})
    assert "waits for its data 75% of the time" in capsys.readouterr().out
    log.close()


def test_only_the_first_host_writes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(metrics_module, "is_first", lambda: False)
    log = MetricsLog(tmp_path / "absent", 0, 30)
    log.write(1, {"loss": 1.0})
    log.show(1, {"loss": 1.0})
    log.log("step 1")
    assert log.seconds >= 0
    log.close()
    assert not (tmp_path / "absent").exists()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"step": "10"}, 'metrics.jsonl:1: step is "10"; expected int; delete the line'),
        ({"seconds": 3.0}, "metrics.jsonl:1: step is missing"),
        ({"step": 1, "seconds": None}, "metrics.jsonl:1: seconds is null; expected float"),
        ({"step": 1, "seconds": -1}, "metrics.jsonl:1: seconds is -1; expected float >= 0"),
        ({"step": 1, "eval": {"heldout": 3}}, "a value in eval is int; expected object"),
    ],
)
def test_a_line_with_a_value_of_another_type_is_named(tmp_path, line, message):
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps(line) + "\n" + '{"step": 5}\n')
    with pytest.raises(BadInput, match=message):
        _keep_lines_until(path, 4)


def test_a_broken_line_is_named_and_only_a_cut_off_last_one_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 2, "seconds": 1.5}\n{"step": 4, "se')
    assert read_metrics(path) == [{"step": 2, "seconds": 1.5}]
    path.write_text('{"step": 2}\n{"step"\n{"step": 4}\n')
    for read in (read_metrics, lambda path: _keep_lines_until(path, 4)):
        with pytest.raises(
            BadInput, match=r"metrics.jsonl:2 is not JSON .*; delete the line, or move the f"
        ):
            read(path)
    assert path.read_text().count("\n") == 3  # nothing was dropped
    path.write_bytes(b'{"step": 2}\n\xff\xfe\n')
    with pytest.raises(BadInput, match="cannot be read"):
        read_metrics(path)


def test_a_start_does_not_pay_for_torch(tmp_path, repo):
    code = (
        "import sys; from pathlib import Path; from coder_jax.training.metrics import MetricsLog\n"
        "log = MetricsLog(Path(sys.argv[1]), 0, 2); log.write(1, {'loss': 1.0}); log.close()\n"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=repo, check=True)
    assert list((tmp_path / "tensorboard").glob("events.*"))


def test_tensorboard_shows_the_curves_without_what_was_taken_again(tmp_path):
    """Read by TensorBoard itself: a run was killed after step 30 and went on from step 10."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for first, steps in ((0, (10, 20, 30)), (10, (20,))):
        board = _Board(tmp_path, first)
        for step in steps:
            board.add_scalar("loss", step + first / 100, step)
        board.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    points = [(event.step, pytest.approx(event.value)) for event in events.Scalars("loss")]
    assert points == [(10, 10.0), (20, 20.1)]


def test_lines_after_the_checkpoint_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"step": 2, "seconds": 1.5}\n{"step": 4, "seconds": 2.5}\n{"step": 6}\n{"step": 8, "lo'
    )
    assert _keep_lines_until(path, 4)[-1]["seconds"] == 2.5
    assert path.read_text() == '{"step": 2, "seconds": 1.5}\n{"step": 4, "seconds": 2.5}\n'


# -------------------------------------------------------------------------------------------------
# Metrics on Weights & Biases and MLflow: modules that keep each call stand for both.
#
# What they were told was also seen with the real ones, offline (wandb 0.31, mlflow-skinny 3.17).

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
    for name in ("WANDB_PROJECT", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    return module


@pytest.fixture
def mlflow(monkeypatch):
    module = Calls("mlflow")
    info = types.SimpleNamespace(run_id="m1")
    module.active_run = lambda: types.SimpleNamespace(info=info)
    monkeypatch.setitem(sys.modules, "mlflow", module)
    for name in ("MLFLOW_EXPERIMENT_NAME", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
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
    begun |= {"dir": str(tmp_path)}
    assert wandb.calls == [("init", begun | {"id": None}), ("init", begun | {"id": "w1"})]
    sent = [without_seconds(call[1]) for call in wandb.run.calls if call[0] == "log"]
    assert sent[:2] == [{"step": 2, "loss": 0.5}, {"step": 2, "eval/heldout/acc@1": 0.25}]
    assert ("define_metric", "*", {"step_metric": "step"}) in wandb.run.calls
    assert wandb.run.calls[-1] == ("finish", {"exit_code": 0})


def test_mlflow_gets_the_metrics_and_the_same_run_goes_on(mlflow, tmp_path, monkeypatch):
    a_run("mlflow", tmp_path)
    assert mlflow.calls[:4] == [
        ("set_tracking_uri", f"sqlite:///{tmp_path}/mlflow.db", {}),
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
    assert mlflow.calls[0] == ("start_run", {"run_id": "m1"}), "it began in no file of the run"
    (tmp_path / "mlflow.db").touch()
    a_run("mlflow", tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://elsewhere")
    a_run("mlflow", tmp_path)
    places = [call[1] for call in mlflow.calls if call[0] == "set_tracking_uri"]
    assert places == [f"sqlite:///{tmp_path}/mlflow.db"]


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
