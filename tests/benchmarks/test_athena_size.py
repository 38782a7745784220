"""The benchmark of Athena's size: one command from an invented download to a table."""

import json

import pytest

from benchmarks import athena_size


def test_a_disk_that_is_too_small(tmp_path, capsys):
    assert athena_size.main(["--work", str(tmp_path), "--scale", "1000000"]) == 2
    assert "11,000,000.0 GB are needed" in capsys.readouterr().err


@pytest.mark.slow
def test_a_small_run(tmp_path, minilm_path, repo, monkeypatch, capsys):
    monkeypatch.chdir(repo)  # its processes import the packages from where they start
    report = tmp_path / "report.json"
    arguments = ["--work", str(tmp_path / "work"), "--scale", "0.0005", "--mentions", "90"]
    assert athena_size.main([*arguments, "--model", str(minilm_path), "--json", str(report)]) == 0
    found = json.loads(report.read_text())
    assert found["names"] == 5_500 and found["read"]["concepts"] == 1_800
    mapped = found["normalize"]
    assert mapped["mentions"] == 90 and mapped["same_found"] == 1.0
    assert mapped["misspelt_found"] > 0.4 and mapped["peak_gb"] > 0.3
    printed = capsys.readouterr().out
    assert "| `normalize`, from start to end |" in printed and "Found: 100.0% of names" in printed
    assert not list((tmp_path / "work").iterdir())
