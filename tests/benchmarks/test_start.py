"""The benchmark of starts: what it runs, and what it says of a limit."""

import json

import pytest

from benchmarks import start
from data_pipeline.process import BadInput


@pytest.mark.slow
def test_starts_are_measured_and_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(start, "_COMMANDS", {"coder_jax --help": 60.0})
    assert start.main(["--tries", "1", "--json", str(tmp_path / "start.json")]) == 0
    (row,) = json.loads((tmp_path / "start.json").read_text())["rows"]
    assert row["command"] == "coder_jax --help" and 0 < row["cpu_seconds"] and 0 < row["seconds"]
    assert "| `coder_jax --help` |" in capsys.readouterr().out


def test_a_limit_that_is_missed_is_said():
    row = {"command": "coder_jax --help", "seconds": 0.4, "cpu_seconds": 0.3, "limit_s": 0.5}
    assert start.table([row]).endswith("| `coder_jax --help` | 0.40 | 0.30 | at most 0.5 |")
    assert "at most 0.5: MISSED" in start.table([row | {"seconds": 0.51}])


def test_a_command_that_fails_is_no_figure():
    with pytest.raises(BadInput, match="python -m coder_jax dance failed: .*no verb 'dance'"):
        start._start(["coder_jax", "dance"])
