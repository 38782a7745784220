"""The metrics of a run: lines that go on, a warning of slow data, files for TensorBoard."""

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from coder_jax.runs import metrics as metrics_module
from coder_jax.runs.metrics import MetricsLog, keep_lines_until, read_metrics
from coder_jax.runs.tensorboard import Board
from data_pipeline.process import progress
from data_pipeline.process.errors import BadInput


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


def test_the_bar_moves_with_each_step_and_keeps_what_stands_beside_it(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
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
    log.warned -= metrics_module.SECONDS_BETWEEN_WARNINGS
    log.write(6, {"data_wait": 0.75})
    assert "waits for its data 75% of the time" in capsys.readouterr().out
    log.close()


def test_only_the_first_host_writes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(metrics_module, "is_first", lambda: False)
    log = MetricsLog(tmp_path / "absent", 0, 30)
    log.write(1, {"loss": 1.0})
    log.show(1, {"loss": 1.0})
    log.say("step 1")
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
        keep_lines_until(path, 4)


def test_a_broken_line_is_named_and_only_a_cut_off_last_one_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 2, "seconds": 1.5}\n{"step": 4, "se')
    assert read_metrics(path) == [{"step": 2, "seconds": 1.5}]
    path.write_text('{"step": 2}\n{"step"\n{"step": 4}\n')
    for read in (read_metrics, lambda path: keep_lines_until(path, 4)):
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
        "import sys; from pathlib import Path; from coder_jax.runs.metrics import MetricsLog\n"
        "log = MetricsLog(Path(sys.argv[1]), 0, 2); log.write(1, {'loss': 1.0}); log.close()\n"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=repo, check=True)
    assert list((tmp_path / "tensorboard").glob("events.*"))


def test_tensorboard_shows_the_curves_without_what_was_taken_again(tmp_path):
    """Read by TensorBoard itself: a run was killed after step 30 and went on from step 10."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for first, steps in ((0, (10, 20, 30)), (10, (20,))):
        board = Board(tmp_path, first)
        for step in steps:
            board.add_scalar("loss", step + first / 100, step)
        board.close()
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    points = [(event.step, pytest.approx(event.value)) for event in events.Scalars("loss")]
    assert points == [(10, 10.0), (20, 20.1)]


def test_lines_after_the_checkpoint_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"step": 2, "seconds": 1.5}\n{"step": 4, "seconds": 2.5}\n{"step": 6}\n{"step": 8, "lo'
    )
    assert keep_lines_until(path, 4) == 2.5
    assert path.read_text() == '{"step": 2, "seconds": 1.5}\n{"step": 4, "seconds": 2.5}\n'
