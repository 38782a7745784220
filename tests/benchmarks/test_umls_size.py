"""The benchmark of UMLS size: one command from an invented release to a table with limits."""

import json

import pytest

from benchmarks import umls_size
from benchmarks.machine import machine, one_line


def figures(**changes):
    found = {
        "scale": 1.0,
        "machine": machine(),
        "build_minutes": 9.0,
        "build_gb": 5.6,
        "release_gb": 10.0,
        "counts": {"concepts": 4_000_000, "terms": 14_000_000, "triplets": 82_000_000},
        "start_s": 21.0,
        "terms_per_s": 700_000.0,
        "stream_gb": 2.6,
        "fill": 0.95,
    }
    return found | changes


def test_figures_stand_beside_their_limits():
    text = umls_size.table(figures())
    assert "| build, minutes | 9.0 | at most 30 |" in text
    assert "| stream, terms/s | 700,000 | at least 500,000 |" in text
    assert "14,000,000 distinct terms" in text and "MISSED" not in text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("build_minutes", 30.5),
        ("build_gb", 12.5),
        ("start_s", 61.0),
        ("terms_per_s", 499_000.0),
        ("stream_gb", 3.1),
    ],
)
def test_a_limit_that_is_missed_is_said(name, value):
    assert umls_size.table(figures(**{name: value})).count("MISSED") == 1


def test_the_machine_is_written_down():
    found = machine()
    assert found["cores"] >= 1 and found["memory_gib"] > 0.5 and found["versions"]["polars"]
    assert f"polars {found['versions']['polars']}" in one_line(found)


def test_without_a_folder_to_work_in(capsys):
    assert umls_size.main([]) == 2
    assert "--work is missing" in capsys.readouterr().err


@pytest.mark.slow
def test_a_small_run(tmp_path, minilm_path, repo, monkeypatch, capsys):
    monkeypatch.chdir(repo)  # its processes import the packages from where they start
    report = tmp_path / "report.json"
    arguments = ["--work", str(tmp_path / "work"), "--scale", "0.001", "--repeats", "2"]
    arguments += ["--seconds", "1", "--json", str(report), "--tokenizer", str(minilm_path)]
    assert umls_size.main(arguments) == 0
    found = json.loads(report.read_text())
    assert found["counts"]["concepts"] > 4_000 and found["counts"]["triplets"] > 70_000
    assert found["build_gb"] > 0.3 and found["stream_gb"] > 0.3 and found["terms_per_s"] > 0
    assert 0.5 < found["fill"] <= 1 and len(found["stream_runs"]) == 2
    assert 0 < found["stream_runs"][0]["start_import_s"] < found["stream_runs"][0]["start_s"]
    assert "| start to first batch, s |" in capsys.readouterr().out
    assert not list((tmp_path / "work").iterdir())
