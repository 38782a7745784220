"""The benchmark that CONTRIBUTING.md writes out: read, scored, shown and written by `evaluate`."""

import importlib.util
import re
import sys

import pytest
from evaluating import records_in, run, write_toy

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.evaluation import benchmarks
from coder_jax.evaluation.record import read_records
from coder_jax.report.results import read_results, result_tables
from data_pipeline.process import BadInput

ROWS = ["heart attack\tmyocardial infarction\tkidney stone", "fever\tpyrexia\thand"]
ROWS += ["hypertension\tfracture of arm\thigh blood pressure"]


@pytest.fixture
def triplets(repo, tmp_path, monkeypatch):
    """The class of the document, with its line among all kinds."""
    text = (repo / "CONTRIBUTING.md").read_text()
    (tmp_path / "triplets.py").write_text(re.findall(r"```python\n(.*?)```", text, re.S)[1])
    spec = importlib.util.spec_from_file_location("triplets", tmp_path / "triplets.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "triplets", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(benchmarks, "BENCHMARKS", (*benchmarks.BENCHMARKS, module.Triplets))
    return module.Triplets


@pytest.fixture
def files(tmp_path):
    files = write_toy(tmp_path)
    (files / "three.tsv").write_text("\n".join(["anchor\tnear\tfar", *ROWS]) + "\n")
    return files


def test_it_is_read_scored_shown_and_written(triplets, files, minilm_path, capsys):
    out = files / "out.json"
    of_files = ("--benchmark", f"mine={files / 'three.tsv'}", f"pairs={files / 'pairs.tsv'}")
    run("--model", minilm_path, "--json", out, "--pooling", "mean", *of_files)
    mine, pairs = read_records(out)
    assert (mine.kind, pairs.kind) == ("triplets", "similarity"), "three columns, and a header"
    assert mine.scores == {"accuracy": pytest.approx(2 / 3)}
    assert mine.counts == {"triplets": 3, "missing": 0}
    tables = capsys.readouterr().out.split("\n\n")
    assert [table.split()[0] for table in tables[:2]] == ["similarity", "triplets"]
    shown = tables[1].splitlines()[2].split()
    assert shown == ["mine", "mean", "3", "0", "66.67", str(minilm_path)]
    reported = result_tables(read_results([("ours", str(out))]))
    assert reported[1][1][0].cells == ["mine", "mean", "3", "0", "66.67"]

    encoder = TermEncoder.from_pretrained(minilm_path, pooling="mean")
    leads = []
    for anchor, near, far in (row.split("\t") for row in ROWS):
        a, b, c = encoder.encode([anchor, near, far])
        leads.append(a @ b - a @ c)
    margin = sum(sorted(leads)[1:]) / 2  # between the two that are right
    run("--model", minilm_path, "--json", out, "--pooling", "mean", "--margin", margin, *of_files)
    (mine, _) = records_in(out)
    assert mine.scores == {"accuracy": pytest.approx(1 / 3)}
    assert mine.scoring["margin"] == pytest.approx(margin)


def test_word_vectors_and_messages(triplets, files):
    (files / "w.txt").write_text("heart 1 0\nattack 1 0\ninfarction 2 0\nstone 0 1\nfever 0 1\n")
    vectors = ("--model", files / "w.txt", "--vectors-of", "words", "--json", files / "o.json")
    run(*vectors, "--benchmark", f"mine={files / 'three.tsv'}")
    (mine,) = records_in(files / "o.json")
    assert mine.scores["accuracy"] == pytest.approx(1 / 3), "what has no vector ties: wrong"
    assert mine.counts == {"triplets": 3, "missing": 5, "partly_known": 2}
    (files / "three.tsv").write_text("anchor\tnear\tfar\na\tb\n")
    with pytest.raises(BadInput, match=r"three.tsv:2: found \['a', 'b'\]; expected three terms"):
        benchmarks.read_benchmark("mine", files / "three.tsv")
    with pytest.raises(BadInput, match="(?s)found a folder .*triplets: a TSV file with the header"):
        benchmarks.read_benchmark("mine", files)
