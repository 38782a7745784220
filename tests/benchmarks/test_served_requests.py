"""The benchmark of `serve`: latencies of a real server, one table."""

import json

import pytest
from tiny_bert import write_model
from tiny_ontology import write_ontology

from benchmarks import served_requests

ROW = {
    **{"route": "/normalize", "clients": 32, "requests_per_second": 1234.5, "p50_ms": 20.04},
    "p99_ms": 1100.06,
}


def test_the_table():
    text = served_requests.table([ROW])
    assert text.splitlines()[2] == "| `/normalize` | 32 | 1,234 | 20.0 | 1,100.1 |"


@pytest.mark.slow
def test_the_command(tmp_path, monkeypatch, capsys):
    pytest.importorskip("fastapi", reason="fastapi is not installed (see requirements-test.txt)")
    monkeypatch.setattr(served_requests, "_WARM", 0.2)
    monkeypatch.setattr("benchmarks.command.in_a_process", lambda call, *words: call(*words))
    write_model(tmp_path / "bert")
    write_ontology(tmp_path / "tiny.obo", classes=30)
    report = tmp_path / "served.json"
    words = ["--model", tmp_path / "bert", "--dictionary", tmp_path / "tiny.obo", "--json", report]
    words += ["--clients", 1, 3, "--seconds", 1]
    assert served_requests.main([*map(str, words)]) == 0
    rows = json.loads(report.read_text())["rows"]
    assert [(row["route"], row["clients"]) for row in rows] == [
        *[("/v1/embeddings", 1), ("/v1/embeddings", 3), ("/normalize", 1), ("/normalize", 3)]
    ]
    assert all(0 < row["p50_ms"] <= row["p99_ms"] for row in rows)
    assert "| `/normalize` | 3 |" in capsys.readouterr().out


@pytest.mark.slow
def test_a_server_that_does_not_start(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("benchmarks.command.in_a_process", lambda call, *words: call(*words))
    (tmp_path / "t.txt").write_text("pain\n")
    words = ["--model", str(tmp_path / "none"), "--dictionary", str(tmp_path / "t.txt")]
    assert served_requests.main(words) == 2
    assert "the server ended: error: " in capsys.readouterr().err
