"""`python -m coder_jax report`: from models to a page, what is left out, messages."""

import base64
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from evaluating import write_toy
from safetensors.numpy import save_file
from tiny_bert import WORDS, write_model
from toy_report import LEARNING

from coder_jax.__main__ import main
from coder_jax.commands.report import _named, _short_name
from coder_jax.encoding import vector_files
from coder_jax.models.hf_files import EncoderSettings, write_settings
from coder_jax.report.build import _load_subject
from coder_jax.report.curves import write_panels


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two tiny models, one of them with relation matrices, and a dictionary."""
    folder = tmp_path_factory.mktemp("report")
    for seed, name in enumerate(("one", "two")):
        write_model(folder / name, seed)
    matrices = np.eye(32, dtype=np.float32) + np.random.default_rng(0).normal(size=(3, 32, 32))
    save_file(
        {"relation_matrices": matrices.astype(np.float32)}, folder / "one/relations.safetensors"
    )
    labels = ["CHD|isa", "RO|", "PAR|inverse_isa"]
    (folder / "one" / "relations.json").write_text(json.dumps({"labels": labels}))
    words = WORDS.split()
    rows = [f"{words[i]} {word}\tC{i}" for i in range(4) for word in words[5:8]]
    (folder / "terms.tsv").write_text("\n".join(["term\tCUI", *rows]) + "\n")
    return folder


def report(*words):
    return main(["report", *map(str, words)])


def test_models_and_a_dictionary(folder, tmp_path, capsys):
    out = tmp_path / "page.html"
    words = ["--model", folder / "one", "--dictionary", folder / "terms.tsv", "--neighbours", "2"]
    more = ["--compare", f"other={folder / 'two'}", "--out", out, "--pooling", "mean"]
    assert report(*words, *more) == 0
    printed = capsys.readouterr().out
    assert "left out: Results (no --results were given)" in printed
    assert "left out: Training (the model is not the folder of a run)" in printed
    assert "left out: Map of semantic types" in printed and printed.count("left out") == 4
    assert "left out: Before and after (no scores of both were given)" in printed
    assert f"{out}: 0." in printed and " MB; open it in a browser" in printed
    html = out.read_text(encoding="utf-8")
    assert "<figcaption><b>other</b></figcaption>" in html and "<dd>mean</dd>" in html
    name = f"{folder.name}/one"
    assert f"<title>{name} · coder_jax report</title>" in html
    data = json.loads(re.search(r'id="explorer-data">(.*?)</script>', html)[1])
    assert len(data["terms"]) == 12 and data["k"] == 2
    assert len(base64.b64decode(data["neighbours"]["base64"])) == 2 * 24
    assert html.count("<g data-row=") == 3, "the relations of the export"
    again = tmp_path / "again.html"
    assert report(*words, *more[:2], "--out", again, "--pooling", "mean") == 0
    assert again.read_text(encoding="utf-8") == html


def test_the_terms_are_encoded_once(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CODER_JAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(vector_files, "LEAST_TERMS", 12)
    words = ["--model", folder / "one", "--dictionary", folder / "terms.tsv", "--neighbours", "2"]
    pages = []
    for more, said in (
        ([], "vectors of 12 terms: kept in"),
        ([], "vectors of 12 terms: read from the cache"),
        (["--no-cache"], ""),
    ):
        assert report(*words, "--out", tmp_path / "page.html", *more) == 0
        err = capsys.readouterr().err
        assert said in err and ("vectors of" in err) == bool(said)
        pages.append((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert pages[0] == pages[1] == pages[2]


def test_a_model_alone(folder, tmp_path, capsys):
    assert report("--model", folder / "two", "--out", tmp_path / "page.html") == 0
    assert capsys.readouterr().out.count("left out") == 7


def test_learning_curves_of_an_experiment(folder, tmp_path, capsys):
    write_panels([LEARNING], tmp_path / "curves.json")
    out = tmp_path / "page.html"
    words = ["--model", folder / "two", "--out", out]
    assert report(*words, "--curves", tmp_path / "curves.json") == 0
    assert 'id="learning-0"' in out.read_text(encoding="utf-8")
    out.unlink()
    assert report(*words, "--curves", tmp_path / "absent.json") == 2
    assert "absent.json" in capsys.readouterr().err and not out.exists()


def test_results_of_before_and_after(folder, tmp_path, capsys):
    """Two files of `evaluate --json`: the page begins with the one beside the other."""
    write_toy(tmp_path)
    for name in ("one", "two"):
        words = ["--model", folder / name, "--benchmark", f"own={tmp_path / 'heldout'}"]
        evaluate = ["evaluate", *words, "--json", tmp_path / f"{name}.json"]
        assert main([str(word) for word in evaluate]) == 0
    results = [f"before={tmp_path / 'one.json'}", f"after={tmp_path / 'two.json'}"]
    words = ["--model", folder / "two", "--results", *results, "--out", tmp_path / "page.html"]
    assert report(*words) == 0
    assert "Before and after" not in capsys.readouterr().out
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    first = html.split('<main id="main" tabindex="-1">')[1].split("</section>")[0]
    assert 'id="answer"' in first and ">before</th>" in first and ">after</th>" in first
    assert f"after: {folder / 'two'}, pooling cls" in first
    assert f"<td>before: {folder / 'one'}</td>" in html, "and in the table of results"


def test_the_page_on_stdout_is_alone_there(folder, capfd):
    assert report("--model", folder / "two", "--out", "/dev/stdout") == 0
    captured = capfd.readouterr()
    assert captured.out.startswith("<!") and captured.out.rstrip().endswith("</html>")
    assert captured.err.count("left out") == 7 and "/dev/stdout: 0." in captured.err


def test_bad_input_writes_nothing(folder, tmp_path, capsys):
    out = tmp_path / "page.html"
    model = ["--model", folder / "one"]
    (tmp_path / "other.json").write_text("{}")
    cases = [
        (model, "--out: found none, and .*/one is no folder of a run here"),
        ([*model, "--out", tmp_path / "no" / "p.html"], "--out: there is no folder .*/no; make it"),
        ([*model, "--out", tmp_path], "--out: .* is a folder; expected a file"),
        ([*model, "--out", "s3://b/p.html"], "--out: found s3:.*; expected a file on this machine"),
        ([*model, "--out", out, "--terms", "1"], "--terms: found 1; expected 2 or more"),
        ([*model, "--out", out, "--neighbours", "0"], "--neighbours: found 0; expected 1 or more"),
        ([*model, "--out", out, "--seed", "-1"], "--seed: found -1; expected 0 or more"),
        (["--model", "=x", "--out", out], "found '=x'; expected NAME=PATH or PATH"),
        (
            ["--model", "a=x", "--compare", "a=y", "--dictionary", "terms", "--out", out],
            "found the encoder 'a' twice; expected different names: say NAME=PATH",
        ),
        (
            [*model, "--out", out, "--results", tmp_path / "other.json"],
            "has the format None, ex",
        ),
        ([*model, "--out", out, "--dictionary", tmp_path / "no"], "cannot be read"),
        (["--model", tmp_path / "no", "--out", out], "is not a folder; expected a model folder"),
    ]
    for words, message in cases:
        assert report(*words) == 2, words
        assert re.search(message, capsys.readouterr().err), message
    assert [path.name for path in tmp_path.iterdir()] == ["other.json"]


def test_names_and_paths():
    assert _named("a=b/c") == ("a", "b/c") and _named("b/c") == (None, "b/c")
    assert _named("runs/lr=3e-5/run") == (None, "runs/lr=3e-5/run")
    assert _short_name("org/model") == "org/model"
    assert _short_name(".") == "/".join(Path.cwd().parts[-2:])


def test_what_only_a_dictionary_uses_is_not_ignored(folder, tmp_path, capsys):
    words = ["--model", folder / "one", "--out", tmp_path / "page.html"]
    for more in (
        ["--compare", "a=b"],
        ["--dictionary-languages", "ENG"],
        ["--semantic-types", "T047"],
        ["--dictionary-keep-suppressed"],
    ):
        assert report(*words, *more) == 2
        assert "expected --dictionary with it" in capsys.readouterr().err


def test_a_model_that_says_little_of_itself(folder, tmp_path):
    model = tmp_path / "bare"
    shutil.copytree(folder / "two", model)
    write_settings(model, EncoderSettings(pooling="mean"))
    assert _load_subject("bare", str(model)).facts == [("model", str(model))]


def test_one_host_alone(folder, tmp_path, capsys, monkeypatch):
    for name, value in {
        "JAX_COORDINATOR_ADDRESS": "localhost:1", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    for verb, given in (("report", "--model"), ("export", "--checkpoint")):
        assert main([verb, given, str(folder / "one"), "--out", str(tmp_path / "out")]) == 2
        said = f"found 2 processes, of which this is number 1; {verb} runs on one host"
        assert said in capsys.readouterr().err
