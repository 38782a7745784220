"""The road as a user walks it, by command line: build, train, export, evaluate, normalize."""

import csv
import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from tiny_bert import write_model
from tiny_ontology import write_ontology

from coder_jax.__main__ import _VERBS, main
from data_pipeline.build_dataset import __main__ as build
from data_pipeline.build_dataset.__main__ import main as build_main
from data_pipeline.build_mentions.__main__ import main as mentions_main
from data_pipeline.derive_keywords import main as keywords_main
from data_pipeline.skip_gram.__main__ import main as skip_gram_main

SMALL = ["--groups", "1", "--triplets", "4", "--repeats", "2", "--row-length", "64"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a tiny BERT and a dataset of an ontology, tokenized with its tokenizer."""
    folder = tmp_path_factory.mktemp("road")
    write_model(folder / "bert")
    ontology = write_ontology(folder / "tiny.obo", classes=300)
    command = ["--source", ontology, "--tokenizer", folder / "bert", "--hold-out", "5"]
    assert build.main([*map(str, command), "--out", str(folder / "data")]) == 0
    return folder


def train_command(folder, data):
    command = ["train", "--recipe", "small", "--data", folder / data, "--out", folder / "run"]
    run = ["--steps", "3", "--warmup-steps", "1", "--eval-steps", "3", "--init", folder / "bert"]
    return [str(word) for word in [*command, *run, *SMALL]]


def test_the_whole_road(folder, capsys):
    def run(*words):
        assert main([str(word) for word in words]) == 0
        return capsys.readouterr().out

    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert main(train_command(folder, "data")) == 0
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    heldout = folder / "data" / "heldout"
    said = run(
        *("export", "--checkpoint", folder / "run", "--out", folder / "export", "--license", "mit"),
        *("--onnx", "--int8"),
    )
    assert "ONNX Runtime" in said and "int8: cosine" in said
    card = (folder / "export" / "README.md").read_text()
    assert "license: mit" in card and "held-out terms, step 3" in card
    assert "weights of eight bits" in card and "of the held-out names" in card
    assert re.search(r"\| time in steps \| 00:\d\d \|", card)

    table = run(
        *("evaluate", "--model", folder / "export", "--benchmark", f"heldout={heldout}"),
        *("--json", folder / "scores.json"),
    )
    assert "heldout" in table
    records = json.loads((folder / "scores.json").read_text())
    assert "acc@1" in json.dumps(records) and "content_hash" in json.dumps(records)

    printed = run(
        *("report", "--model", folder / "run", "--dictionary", folder / "data", "--terms", "60"),
        *("--compare", f"before={folder / 'bert'}", "--results", folder / "scores.json"),
    )
    assert "left out: Map of semantic types" in printed and printed.count("left out") == 1
    page = (folder / "run" / "report.html").read_text(encoding="utf-8")
    assert "<b>Loss</b>" in page and 'id="by-concept"' in page and 'id="heat"' in page
    assert ">3 of 3<" in page and "heldout" in page

    dictionary = (heldout / "dictionary.tsv").read_text().splitlines()[1:]
    terms, concepts = zip(*(line.split("\t") for line in dictionary), strict=True)
    (folder / "terms.txt").write_text("\n".join(terms[:7]) + "\n")
    run("encode", "--model", folder / "export", "--out", folder / "v.npy", folder / "terms.txt")
    vectors = np.load(folder / "v.npy")
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    command = ("encode", "--model", folder / "export", "--backend", "onnx")
    run(*command, "--out", folder / "onnx.npy", folder / "terms.txt")
    np.testing.assert_allclose(np.load(folder / "onnx.npy"), vectors, atol=1e-5)

    printed = run(
        *("normalize", "--model", folder / "export", folder / "terms.txt"),
        *("--dictionary", heldout / "dictionary.tsv"),
    )
    found = list(csv.DictReader(printed.splitlines(), delimiter="\t"))
    assert [row["mention"] for row in found] == list(terms[:7])
    assert all(row["status"] in ("exact", "tied") for row in found)
    owners = {
        term: {c for t, c in zip(terms, concepts, strict=True) if t == term} for term in terms
    }
    assert all(row["concept"] in owners[row["matched_term"]] for row in found)


@pytest.mark.slow
def test_trains_where_tensorflow_is_not_installed(folder):
    """The import is blocked in a process of its own."""
    words = train_command(folder, "data")
    words[words.index(str(folder / "run"))] = str(folder / "run_without_tensorflow")
    code = (
        "import sys; sys.modules['tensorflow'] = sys.modules['tensorflow_datasets'] = None\n"
        f"from coder_jax.__main__ import main; sys.exit(main({words!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "3 steps" in done.stdout


def test_bad_input_is_a_message_and_no_traceback(folder, capsys):
    cases = [
        (
            ["evaluate", "--model", "absent/model", "--benchmark", "x=y", "--json", "z.json"],
            "error",
        ),
        (["export", "--checkpoint", str(folder), "--out", "x"], "has no run.json"),
        (["train", *"--recipe small --data nothing --out x".split()], "build a dataset"),
        (["dance"], "there is no verb 'dance'"),
    ]
    for words, message in cases:
        assert main(words) == 2
        assert message in capsys.readouterr().err


def test_usage_names_every_verb(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {verb} " in text for verb in _VERBS)
    assert main([]) == 2
    capsys.readouterr()
    assert main(["--version"]) == 0
    assert re.fullmatch(r"coder_jax \d+\.\d+.*\n", capsys.readouterr().out)


@pytest.mark.parametrize("verb", _VERBS)
def test_help_of_every_verb_has_an_example(verb, capsys):
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    module = "data_pipeline.build" if verb == "build" else f"coder_jax {verb}"
    assert f"python -m {module} --" in capsys.readouterr().out


COMMANDS = {
    **{
        f"coder_jax {verb}": lambda words, verb=verb: main([verb, *words])
        for verb in _VERBS
        if verb != "demo"  # it has two, and those of train
    },
    "data_pipeline.build": build_main,
    "data_pipeline.build_mentions": mentions_main,
    "data_pipeline.skip_gram": skip_gram_main,
    "data_pipeline.derive_keywords": keywords_main,
}


def help_of(command, word, capsys):
    with pytest.raises(SystemExit) as stop:
        COMMANDS[command]([word])
    assert stop.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_one_screen_and_all_help_names_every_flag(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    text = help_of(command, "--help", capsys)
    lines = text.splitlines()
    assert len(lines) <= 45 and max(map(len, lines)) <= 100
    count = int(re.fullmatch(r"--help-all shows all (\d+) options", lines[-1])[1])
    options = text.partition("\nOptions")[2]
    flag = re.compile(r"^  (-[\w.-]+)", re.MULTILINE)
    assert 5 <= len(flag.findall(options)) <= 16
    all_help = help_of(command, "--help-all", capsys)
    named = set(flag.findall(all_help)) - {"-h", "--help-all"}
    assert len(named) == count and named >= set(flag.findall(options))
