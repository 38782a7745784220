"""`extend-vocabulary` as it is called: what it says, what comes out, and that it can be trained."""

import json
import re

import pytest
from tiny_bert import VOCABULARY, write_model
from tiny_mentions import tiny_mentions

from coder_jax.__main__ import main
from data_pipeline.build_dataset import __main__ as build
from data_pipeline.dataset.tokenizer import load_tokenizer

FRENCH = ["rein", "douleur du rein", "douleur du bras", "bras et rein", "douleur"]
CHINESE = ["心肌梗死", "心肌炎", "肾炎", "心"]
SIZES = ["--groups", "1", "--triplets", "4", "--repeats", "2", "--row-length", "64"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a tiny BERT and lists of terms."""
    folder = tmp_path_factory.mktemp("extend")
    write_model(folder / "bert")
    (folder / "chinese.txt").write_text("\n".join(CHINESE), encoding="utf-8")
    (folder / "empty.txt").write_text("\n\n")
    (folder / "english.txt").write_text("heart attack\nacute pain\n")
    rows = [("CHI", term) for term in CHINESE] + [("FRE", term) for term in FRENCH]
    rows += [("ENG", "heart attack"), ("ENG", "attacks of pain")]
    lines = [f"C{number}\t{term}\t{language}" for number, (language, term) in enumerate(rows)]
    table = "\n".join(["concept\tterm\tlanguage", *lines])
    (folder / "table.tsv").write_text(table, encoding="utf-8")
    return folder


def extend(folder, terms, out, *flags):
    words = ["extend-vocabulary", "--model", folder / "bert", "--terms", folder / terms]
    return main([str(word) for word in [*words, "--out", out, *flags]])


def test_coverage_by_language_before_and_after(folder, tmp_path, capsys):
    assert (
        extend(folder, "table.tsv", tmp_path / "out", "--pieces", "9", "--min-frequency", "1") == 0
    )
    printed = capsys.readouterr()
    rows = [re.split(r"\s{2,}", line) for line in printed.out.splitlines()[2:10]]
    assert [row[:2] for row in rows] == [
        [language, when]
        for language in ("CHI", "ENG", "FRE", "all")
        for when in ("before", "after")
    ]
    assert rows[0][2:] == ["4", "100.00%", "1.00", "2.50"]
    assert rows[1][3] == "0.00%"
    assert float(rows[5][4]) < float(rows[4][4]), "French words have fewer pieces"
    assert "douleur: d ##o ##u ##l ##e ##u ##r ->" in printed.out
    assert "9 new pieces, 6 of them single characters" in printed.out
    size = len(VOCABULARY)
    assert f"{size} -> {size + 9} entries" in printed.out
    assert "6 new rows begin at random" in printed.out
    assert re.search(r"largest difference of their vectors: transformers 0\.0e\+00", printed.out)
    recorded = json.loads((tmp_path / "out" / "coder_jax.json").read_text())["vocabulary"]
    assert recorded["learnt from"] == "table.tsv" and recorded["distinct terms"] == 11


def test_languages_and_characters_alone(folder, tmp_path, capsys):
    flags = ("--languages", "FRE,CHI", "--characters")
    assert extend(folder, "table.tsv", tmp_path / "out", *flags) == 0
    assert "ENG" not in capsys.readouterr().out
    tokenizer = load_tokenizer(tmp_path / "out")
    new = sorted(tokenizer.get_vocab(), key=tokenizer.token_to_id)[len(VOCABULARY) :]
    assert new == ["心", "炎", "肌"], "those that occur twice"
    flags = ("--characters", "--min-frequency", "1")
    assert extend(folder, "chinese.txt", tmp_path / "out", *flags) == 0, "it is written again"
    assert load_tokenizer(tmp_path / "out").get_vocab_size() == len(VOCABULARY) + 6


def test_fewer_pieces_than_were_asked_for_are_said(folder, tmp_path, capsys):
    assert extend(folder, "chinese.txt", tmp_path / "out", "--pieces", "500") == 0
    assert "the terms have 3 pieces to add; 500 were asked for" in capsys.readouterr().err


@pytest.fixture(scope="module")
def built(folder):
    """A folder with an encoder of more pieces, "extended", and a dataset made with it, "data"."""
    data = tiny_mentions(folder)
    terms = ["--terms", data.folder, folder / "table.tsv", "--out", folder / "extended"]
    command = ["extend-vocabulary", "--model", folder / "bert", *terms, "--min-frequency", "1"]
    assert main([str(word) for word in command]) == 0
    pairs = [f"{a} {b}" for a in (*FRENCH, *CHINESE) for b in FRENCH]
    rows = [f"C{number % 12}\t{term}" for number, term in enumerate(pairs)]
    (folder / "terms.tsv").write_text("\n".join(["concept\tterm", *rows]), encoding="utf-8")
    command = ["--source", folder / "terms.tsv", "--tokenizer", folder / "extended"]
    assert build.main([*map(str, command), "--out", str(folder / "data")]) == 0
    return folder


def test_datasets_are_built_with_it(built):
    size = load_tokenizer(built / "extended").get_vocab_size()
    assert size > len(VOCABULARY) + 10
    manifest = json.loads((built / "data" / "manifest.json").read_text())
    assert manifest["tokenizer"]["vocab_size"] == size
    assert manifest["counts"]["unknown_terms"] == 0


@pytest.mark.slow
def test_it_can_be_trained_at_once(built, capsys):
    steps = ["--steps", "4", "--warmup-steps", "1", "--draw", "synonyms", "--mu", "0", *SIZES]
    words = ["train", "--recipe", "coder_eng", "--data", built / "data", *steps]
    words += ["--init", built / "extended", "--out", built / "run"]
    assert main([str(word) for word in words]) == 0
    assert "4 steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("terms", "flags", "message"),
    [
        ("empty.txt", [], "found no term"),
        ("english.txt", ["--characters"], "found no character that"),
        ("english.txt", ["--min-frequency", "50"], "nothing to add"),
        ("english.txt", ["--pieces", "0"], "--pieces is 0; expected 1 to 1,000,000"),
        ("english.txt", ["--min-frequency", "0"], "--min-frequency: found 0; expected 1 or more"),
        ("english.txt", ["--languages", "FRE"], "expected a source that names languages"),
        ("table.tsv", ["--languages", "GER"], "GER"),
        ("absent.txt", [], "absent.txt"),
    ],
)
def test_what_is_refused(folder, tmp_path, capsys, terms, flags, message):
    assert extend(folder, terms, tmp_path / "out", *flags) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_out_that_is_something_else_is_refused_before_the_work(folder, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert extend(folder, "absent.txt", tmp_path) == 2
    assert "is no earlier export" in capsys.readouterr().err
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_only_what_terms_use(folder, tmp_path, capsys):
    assert extend(folder, "english.txt", tmp_path / "out", "--only-used") == 0
    printed = capsys.readouterr().out
    found = re.search(r"out: (\d+) of (\d+) pieces, a word table of (\d+) -> (\d+) rows", printed)
    kept, pieces, before, after = map(int, found.groups())
    assert kept == after < before == pieces == len(VOCABULARY)
    assert "all 2 terms have the pieces that they had" in printed
    assert load_tokenizer(tmp_path / "out").get_vocab_size() == kept
    assert extend(folder, "english.txt", tmp_path / "no", "--only-used", "--pieces", "3") == 2
    assert "found --pieces and --only-used; expected one of them" in capsys.readouterr().err
