"""The demo, shortened to a few steps: every promise but the score. Slow: real data and weights.

What it says and writes at its end is tested quickly, too.
"""

import csv
import json
import os
import re
import shlex
import subprocess
import sys
import types
from pathlib import Path

import pytest
from evaluating import write_toy
from tiny_bert import write_model

from coder_jax.__main__ import main
from coder_jax.commands import demo
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.evaluation.record import read_records, write_records
from data_pipeline.dataset.dictionary import read_dictionary
from data_pipeline.flags import MINILM


def explorer_of(page):
    return json.loads(re.search(r'id="explorer-data">(.*?)</script>', page, re.DOTALL)[1])


@pytest.mark.slow
def test_demo(repo, tmp_path, hpo_path, minilm_path):
    command = [sys.executable, "-m", "coder_jax", "demo", "--out", "demo", "--steps", "4"]
    flags = ["--warmup-steps", "1", "--save-steps", "2", "--eval-steps", "0", "--triplets", "8"]
    environment = os.environ | {"PYTHONPATH": str(repo)}

    def run(words):
        return subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)

    done = run([*command, *flags])
    assert done.returncode == 0, done.stderr
    out = tmp_path / "demo"

    # results.json is what `evaluate` writes, and says which is before.
    before, after = read_records(out / "results.json")
    assert (before.stage, after.stage) == ("before", "after")
    for record in (before, after):
        assert 0.3 < record.scores["acc@1"] < record.scores["acc@5"] < 1
        assert record.counts["mentions"] == 1149 and record.dictionary["terms"] == 37_756
        assert len(record.encoder.weights_hash) == 64
        assert f"{100 * record.scores['acc@1']:.1f}" in done.stdout
    assert before.encoder.model == MINILM
    about = json.loads((out / "demo.json").read_text())
    assert before.scores["acc@1"] == max(row["acc@1"] for row in about["before_by_pooling"])
    assert {row["pooling"] for row in about["before_by_pooling"]} == {"cls", "mean"}
    assert about["train_seconds"] > 0 and about["machine"]["cores"] and about["versions"]

    export = tmp_path / about["export"]
    assert (export / "model.safetensors").exists() and (export / "relations.json").exists()
    assert f"{after.scores['acc@1']:.4f}"[:5] in (export / "README.md").read_text()
    plots = {path.name for path in Path(tmp_path / about["plots"]).iterdir()}
    assert plots == {"training.png", "scores.png", "similarities.png"}

    # The report: the answer, both maps, all terms.
    assert "report   demo/report.html" in done.stdout
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "<h1>all-MiniLM-L6-v2, trained on hp.obo</h1>" in page
    for record in (before, after):
        assert f"<td>{100 * record.scores['acc@1']:.1f}</td>" in page.split("</section>")[0]
    for name in ("before training", "after training"):
        assert f"<figcaption><b>{name}</b></figcaption>" in page
    terms = explorer_of(page)["terms"]
    every = read_dictionary(out / "dataset" / "heldout" / "dictionary.tsv").terms
    assert len(every) == 37_756 and set(terms) == set(every) and len(terms) == len(set(terms))
    assert "heart attack" in terms and len(page) < 6e6

    # The last line is to be copied and works as it stands.
    line = done.stdout.rstrip().rpartition("\n")[2].strip()
    found = run(shlex.split(line))
    assert found.returncode == 0, found.stderr
    listed = list(csv.DictReader(demo._LIST.read_text().splitlines()))
    with (out / "coded.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [{name: row[name] for name in ("id", "local_term")} for row in rows] == listed
    assert all(re.fullmatch(r"HP:\d{7}", row["concept"]) for row in rows[:-1])
    assert (rows[6]["status"], rows[6]["preferred_name"]) == ("exact", "Microcephaly")
    assert (rows[-1]["status"], rows[-1]["concept"]) == ("no answer", "")
    assert 0 < float(rows[0]["confidence"]) < 1, "measured on the held-out synonyms"
    assert (out / "review.html").stat().st_size > 100_000

    # And the command that makes such a report of files.
    words = ["report", "--model", "demo/run", "--results", "demo/results.json", "--out", "r.html"]
    again = run([sys.executable, "-m", "coder_jax", *words])
    assert again.returncode == 0, again.stderr
    assert 'id="answer"' in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_its_results_are_what_the_report_reads(tmp_path):
    """Of a tiny encoder, by the demo's own functions."""
    pytest.importorskip("torch")
    write_model(tmp_path / "model")
    mentions = write_toy(tmp_path) / "heldout" / "mentions.tsv"
    initial, records = demo._score_initial(str(tmp_path / "model"), mentions)
    best, other = records
    assert best.scores["acc@1"] >= other.scores["acc@1"]
    assert initial.settings.pooling == best.encoder.pooling != other.encoder.pooling
    encoder = TermEncoder.from_pretrained(tmp_path / "model")
    after = demo._score(encoder, mentions, "a run, step 4", "after")
    write_records(tmp_path / "results.json", [best, after])
    out = tmp_path / "r.html"
    words = ["--model", str(tmp_path / "model"), "--results", str(tmp_path / "results.json")]
    assert main(["report", *words, "--out", str(out)]) == 0
    answer = out.read_text(encoding="utf-8").split('id="answer"')[1].split("</section>")[0]
    assert "4 mentions, each looked up among 8 terms of 5 concepts" in answer
    assert ">before</th>" in answer and ">after</th>" in answer
    assert "after: a run, step 4, pooling cls" in answer


@pytest.mark.parametrize("shares, first", [((0.3, 0.4), "mean"), ((0.4, 0.3), "cls")])
def test_before_is_the_better_pooling(shares, first, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    write_model(tmp_path / "model")
    of = dict(zip(("cls", "mean"), shares, strict=True))

    def score(encoder, mentions, model, stage, weights):
        assert stage == "before" and len(weights) == 64
        return types.SimpleNamespace(scores={"acc@1": of[encoder.settings.pooling]})

    monkeypatch.setattr(demo, "_score", score)
    initial, records = demo._score_initial(str(tmp_path / "model"), tmp_path)
    assert initial.settings.pooling == first
    assert [record.scores["acc@1"] for record in records] == sorted(shares, reverse=True)


FOUND = {
    "scores": [
        {"encoder": "before", "pooling": "mean", "acc@1": 0.4526, "acc@5": 0.678},
        {"encoder": "after", "pooling": "cls", "acc@1": 0.6493, "acc@5": 0.8427},
    ],
    "export_largest_difference": {"a": 2.4e-7, "b": 1e-9},
    "steps": 240,
    "train_seconds": 328.4,
    **{name: f"my runs/{name}" for name in ("dataset", "run", "plots", "export")},
    **{"results": "my runs/results.json", "report": "my runs/report.html"},
}


def test_the_end_names_the_report_and_a_line_to_copy():
    lines = demo._table(FOUND, "python").splitlines()
    assert "  before                45.3    67.8   mean" in lines
    assert "  after                 64.9    84.3   cls" in lines
    assert any(line.startswith("report   my runs/report.html") for line in lines)
    words = ["python", "-m", "coder_jax", "normalize", "--model", "my runs/export", "--dictionary"]
    words += ["my runs/dataset", "--column", "local_term", "--out", "my runs/coded.csv"]
    words += ["--review", "my runs/review.html", "my runs/list.csv"]
    assert shlex.split(lines[-1]) == words


@pytest.mark.parametrize("active", [True, False])
def test_which_python_to_type(active, tmp_path, monkeypatch):
    """`python` where the environment is active; else its path, short from the folder it is in."""
    for name in (".venv", "other"):
        folder = tmp_path / name / "bin"
        folder.mkdir(parents=True)
        (folder / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv/bin/python"))
    monkeypatch.setenv("PATH", str(tmp_path / (".venv" if active else "other") / "bin"))
    monkeypatch.chdir(tmp_path)
    assert demo._python_to_type() == ("python" if active else ".venv/bin/python")
    monkeypatch.chdir(tmp_path / "other")
    assert demo._python_to_type() == ("python" if active else str(tmp_path / ".venv/bin/python"))
