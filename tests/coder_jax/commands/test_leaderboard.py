"""`python -m coder_jax leaderboard`: cells that are computed once, and the files of the board."""

import csv
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from evaluating import write_toy
from tiny_bert import write_model
from tiny_rrf import write_release

from coder_jax.commands import leaderboard
from coder_jax.encoding import vector_files
from coder_jax.evaluation import benchmarks
from coder_jax.evaluation.leaderboard import BoardModel, BoardSet, read_list
from coder_jax.evaluation.name_pairs import STRINGS
from data_pipeline.flags import parsed
from data_pipeline.process import BadInput, Stopped

FILES = ("board.csv", "board.html", "board.json", "board.md", "board.tex")
MODELS = """
[[model]]
name = "one & only"
model = "one"
pooling = "mean"
licence = "MIT"

[[model]]
name = "prompted"
model = "one"
pooling = "mean"
prompt = "pain of "

[[model]]
name = "words"
model = "words.txt"
vectors_of = "words"

[[model]]
name = "letters"
model = "edit distance"
backend = "strings"

[[model]]
name = "absent"
model = "nobody/absent"
"""
SETS = """
[[set]]
name = "toy"
path = "heldout"
language = "ENG"
counts = { mentions = 5 }

[[set]]
name = "pairs"
path = "pairs.tsv"

[[set]]
name = "licensed"
path = "licensed"
source = "https://example.org/licensed"
needs = "a licence"
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Encoders, vectors, sets and lists."""
    folder = tmp_path_factory.mktemp("board")
    write_toy(folder)
    write_model(folder / "one", seed=1)
    words = ["pain 1 0 0", "attack 0 1 0", "infarction 0 1 0.5", "kidney 0 0 1", "renal 0 0.1 1"]
    (folder / "words.txt").write_text("\n".join([f"{len(words)} 3", *words]) + "\n")
    (folder / "models.toml").write_text(MODELS)
    (folder / "sets.toml").write_text(SETS)
    return folder


@pytest.fixture
def data(made, tmp_path, monkeypatch):
    """A copy that a test may change."""
    monkeypatch.setattr(leaderboard, "_TIMED_TERMS", 4)
    return shutil.copytree(made, tmp_path / "data")


def board(data, *more, out="out"):
    words = ["--models", data / "models.toml", "--sets", data / "sets.toml"]
    words += ["--data", data, "--out", data / out, *more]
    return leaderboard.run(parsed(leaderboard.OPTIONS, [str(word) for word in words])[0])


def scored(monkeypatch, stop_at=None):
    """The names of what is scored from now on, (set, prompt or file); it stops at one of them."""
    seen, score = [], benchmarks.score

    def noted(benchmark, vectors, encoder, options=None):
        if len(seen) == stop_at:
            raise Stopped
        seen.append((benchmark.name, getattr(encoder, "prompt", None) or ""))
        return score(benchmark, vectors, encoder, options)

    monkeypatch.setattr(benchmarks, "score", noted)
    return seen


def test_every_encoder_on_every_set(data, capsys):
    assert board(data, "--compare-to", "one & only") == 0
    told = capsys.readouterr().err
    assert "model absent: left out: nobody/absent is no folder here" in told
    assert "set licensed: left out, there is no" in told
    assert "; get it from https://example.org/licensed; it needs a licence" in told
    assert "note: toy: found 4 mentions; published are 5" in told
    lines = (data / "out" / "board.csv").read_text(encoding="utf-8").splitlines()
    rows = list(csv.DictReader(lines))
    assert {(row["model"], row["set"]) for row in rows} == {
        (model, one)
        for model in ("one & only", "prompted", "words", "letters")
        for one in ("toy", "pairs")
    }
    by_cell = {(row["model"], row["set"]): row for row in rows}
    toy = by_cell["one & only", "toy"]
    assert (toy["score"], toy["asked"], toy["unreachable"], toy["id"]) == ("acc@1", "4", "1", "one")
    assert float(toy["low"]) <= float(toy["value"]) <= float(toy["high"])
    assert toy["p"] == "" and by_cell["prompted", "toy"]["compared_to"] == "one & only"
    assert 0 < float(by_cell["prompted", "pairs"]["p"]) <= 1
    assert by_cell["prompted", "toy"]["hash"] != toy["hash"]
    assert float(toy["terms_per_s"]) > 0 and by_cell["words", "toy"]["terms_per_s"] == ""
    assert by_cell["words", "toy"]["parameters"] == "15"
    letters = by_cell["letters", "toy"]
    assert (letters["pooling"], letters["parameters"], letters["terms_per_s"]) == (
        *("1 - edits / characters of the longer string", "", ""),
    )
    assert 0 < float(letters["p"]) <= 1 and letters["unreachable"] == "1"
    whole = json.loads((data / "out" / "board.json").read_text())
    protocols = {
        row["model"]["name"]: row["cells"]["toy"]["protocol"]["encoder"] for row in whole["rows"]
    }
    assert protocols["prompted"]["prompt"] == "pain of " and "prompt" not in protocols["one & only"]
    assert protocols["words"]["keyed_by"] == "words"
    assert [one["name"] for one in whole["missing"]] == ["licensed", "absent"]
    assert set(whole["times"]) == {"one & only", "prompted"} and "date" not in whole["rows"][0]
    tex = (data / "out" / "board.tex").read_text()
    assert r"\toprule" in tex and r"one \& only & 0.0 &" in tex and r"$\pm$" in tex
    assert tex.count(r" \\") == 5


def test_a_row_is_what_evaluate_scores(data, tmp_path):
    """By another road: the same encoder with the prompt written into the terms."""
    board(data)
    whole = json.loads((data / "out" / "board.json").read_text())
    (prompted,) = (row for row in whole["rows"] if row["model"]["name"] == "prompted")
    for name in ("mentions", "dictionary"):
        path = data / "heldout" / f"{name}.tsv"
        head, *lines = path.read_text().splitlines()
        path.write_text("\n".join([head, *(f"pain of {line}" for line in lines)]) + "\n")
    (data / "pairs.tsv").write_text(
        re.sub(r"^(.*?)\t", r"pain of \1\tpain of ", (data / "pairs.tsv").read_text(), flags=re.M)
    )
    board(data, out="by hand")
    by_hand = json.loads((data / "by hand" / "board.json").read_text())
    (plain,) = (row for row in by_hand["rows"] if row["model"]["name"] == "one & only")
    for one in ("toy", "pairs"):
        assert prompted["cells"][one]["scores"] == pytest.approx(plain["cells"][one]["scores"])


def test_a_run_that_was_stopped_goes_on_to_the_same_files(data, monkeypatch):
    board(data, out="straight")
    seen = scored(monkeypatch, stop_at=3)
    with pytest.raises(Stopped):
        board(data, out="stopped")
    cells = list((data / "stopped" / "cells").glob("*/*.json"))
    done = [path for path in cells if not path.name.startswith(".")]
    assert len(seen) == len(done) == 3 < len(cells), "vectors of the fourth are kept for it"
    monkeypatch.undo()
    monkeypatch.setattr(leaderboard, "_TIMED_TERMS", 4)
    seen = scored(monkeypatch)
    board(data, out="stopped")
    assert len(seen) == 5, "the three that were there are not scored again"
    shutil.copy(data / "straight" / "times.json", data / "stopped" / "times.json")
    board(data, out="stopped")
    assert len(seen) == 5
    for name in FILES:
        assert (data / "stopped" / name).read_bytes() == (data / "straight" / name).read_bytes()
    cells = sorted(path.relative_to(data / "straight") for path in data.glob("straight/cells/*/*"))
    assert len(cells) == 8, "nothing half-written is left"
    for cell in cells:
        assert (data / "stopped" / cell).read_bytes() == (data / "straight" / cell).read_bytes()


def test_only_what_changed_is_scored_again(data, monkeypatch):
    board(data)
    seen = scored(monkeypatch)
    models = data / "models.toml"
    models.write_text(models.read_text().replace('"MIT"', '"Apache-2.0"'))
    board(data)
    assert seen == [], "a licence changes no score"
    whole = json.loads((data / "out" / "board.json").read_text())
    shown = {row["model"]["name"]: row["model"]["licence"] for row in whole["rows"]}
    assert shown["one & only"] == "Apache-2.0"
    models.write_text(models.read_text().replace("pain of ", "no pain of "))
    board(data)
    assert seen == [("toy", "no pain of "), ("pairs", "no pain of ")]
    seen.clear()
    (data / "pairs.tsv").write_text("pain\tache\t9\npain\tkidney\t3\nfever\tasthma\t2\n")
    board(data)
    assert [name for name, _ in seen] == ["pairs"] * 4
    seen.clear()
    write_model(data / "one", seed=2)
    board(data)
    assert len(seen) == 4, "both rows of that folder, on both sets"


def test_what_is_read_beside_a_file_counts(data, monkeypatch):
    """The dictionary of mentions, semantic types of a release, files that options name."""
    write_release(data / "META")
    train = data / "train.txt"
    train.write_text("2|t|x\n2\t0\t1\tsore\tDisease\tC0000003\n")
    (data / "text.txt").write_text("1|t|x\n1\t0\t1\trenal stone\tDisease\tC0000001\n")
    (data / "sets.toml").write_text(
        '[[set]]\nname = "toy"\npath = "heldout/mentions.tsv"\n'
        '[[set]]\nname = "text"\npath = "text.txt"\ndictionary = "META/MRCONSO.RRF"\n'
        'options = { training_names = ["train.txt"] }\n'
    )
    board(data)
    seen = scored(monkeypatch)
    board(data)
    assert seen == []
    dictionary = data / "heldout" / "dictionary.tsv"
    dictionary.write_text(dictionary.read_text() + "novelty\tC9\n")
    board(data)
    assert [name for name, _ in seen] == ["toy"] * 4
    for path in (data / "META" / "MRSTY.RRF", train):
        seen.clear()
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]) or "3|t|y\n")
        board(data)
        assert [name for name, _ in seen] == ["text"] * 4, path
    train.unlink()
    seen.clear()
    board(data)
    assert seen == [], "a set whose training file is not there is left out"


def test_speeds_of_other_terms_are_told(data, capsys):
    board(data)
    assert "terms/s are of" not in capsys.readouterr().err
    times = json.loads((data / "out" / "times.json").read_text())
    assert times["prompted"]["terms"] == "4 of toy"
    times["prompted"]["terms"] = "4 of pairs"
    (data / "out" / "times.json").write_text(json.dumps(times))
    board(data)
    told = capsys.readouterr().err
    assert re.search("note: terms/s are of 4 of pairs on .*; 4 of toy on .*do not compare", told)


def test_the_speed_is_of_the_first_set_that_has_terms():
    def refuse(_):
        raise BadInput("relations of concepts have no terms")

    concepts = SimpleNamespace(benchmark=SimpleNamespace(keys=refuse))
    toy = SimpleNamespace(
        benchmark=SimpleNamespace(keys=lambda _: ["pain"]), entry=SimpleNamespace(name="toy")
    )
    scorer = leaderboard._Scorer(None, None, encoder=SimpleNamespace(encode=list))
    assert scorer.speed([concepts, toy], "key").terms == "1 of toy"
    assert scorer.speed([concepts], "key") is None


def test_vectors_of_other_settings_do_not_stand_in_the_way(data, monkeypatch):
    write_chunks = vector_files._write_chunks

    def stopped(encoder, *rest, **options):
        if encoder.settings.prompt:
            raise Stopped
        write_chunks(encoder, *rest, **options)

    monkeypatch.setattr(vector_files, "_write_chunks", stopped)
    with pytest.raises(Stopped):
        board(data)
    monkeypatch.setattr(vector_files, "_write_chunks", write_chunks)
    seen = scored(monkeypatch)
    models = data / "models.toml"
    models.write_text(models.read_text().replace("pain of ", "no pain of "))
    board(data)
    prompts = [prompt for _, prompt in seen if prompt]
    assert prompts == ["no pain of "] * 2, "both sets: what was begun with another prompt is left"


def test_scores_of_two_encoders_have_no_mean(data, capsys):
    def means():
        rows = json.loads((data / "out" / "board.json").read_text())["rows"]
        return [row["mean"] for row in rows if row["model"]["name"] in ("one & only", "prompted")]

    board(data)
    assert None not in means()
    write_model(data / "one", seed=2)
    whole = SETS.partition('[[set]]\nname = "pairs"')[0]
    (data / "sets.toml").write_text(whole)
    capsys.readouterr()
    board(data)
    said = capsys.readouterr().err
    assert "note: one & only: its scores are of different weights or settings; score it on" in said
    assert means() == [None, None]


def test_an_extra_that_is_missing_leaves_its_row_out(data, monkeypatch, capsys):
    load = leaderboard.load_encoder

    def loaded(model, pooling, options):
        if options.prompt:
            raise ModuleNotFoundError("No module named 'onnxruntime'", name="onnxruntime")
        return load(model, pooling, options)

    monkeypatch.setattr(leaderboard, "load_encoder", loaded)
    assert board(data) == 0
    assert re.search(r"model prompted: left out: .*onnxruntime", capsys.readouterr().err)
    rows = json.loads((data / "out" / "board.json").read_text())["rows"]
    assert {row["model"]["name"] for row in rows} == {"one & only", "words", "letters"}


def test_other_lists_add_rows_and_columns(data, monkeypatch):
    board(data)
    (data / "more.toml").write_text('[[model]]\nname = "cls"\nmodel = "one"\npooling = "cls"\n')
    seen = scored(monkeypatch)
    words = ["--models", data / "more.toml", "--sets", data / "sets.toml", "--data", data]
    options = parsed(leaderboard.OPTIONS, [str(one) for one in [*words, "--out", data / "out"]])[0]
    leaderboard.run(options)
    assert len(seen) == 2
    whole = json.loads((data / "out" / "board.json").read_text())
    assert {row["model"]["name"] for row in whole["rows"]} == {
        *("one & only", "prompted", "words", "letters", "cls")
    }


def test_sets_share_the_vectors_of_a_dictionary(data, monkeypatch, capsys):
    monkeypatch.setattr(vector_files, "LEAST_TERMS", 1)
    shutil.copy(data / "heldout" / "dictionary.tsv", data / "terms.tsv")
    sets = []
    for name, mention in (("a", "heart attack"), ("b", "kidney stone")):
        (data / f"{name}.tsv").write_text(f"{mention}\tC1\n")
        sets.append(f'[[set]]\nname = "{name}"\npath = "{name}.tsv"\ndictionary = "terms.tsv"\n')
    (data / "sets.toml").write_text("\n".join(sets))
    (data / "models.toml").write_text(MODELS.partition('[[model]]\nname = "prompted"')[0])
    board(data)
    told = capsys.readouterr().err
    assert told.count("vectors of 8 terms: kept in the cache") == 1
    assert told.count("vectors of 8 terms: read from the cache") == 1


def test_names_of_training_mentions_leave_the_vectors_of_the_dictionary(data, monkeypatch, capsys):
    monkeypatch.setattr(vector_files, "LEAST_TERMS", 1)
    (data / "medic.txt").write_text("D000001||renal stone|kidney stone\nD000002||ache|pain\n")
    (data / "text.txt").write_text("1|t|x\n1\t0\t1\tsore\tDisease\tD000002\n")
    (data / "train.txt").write_text("2|t|x\n2\t0\t1\tsoreness\tDisease\tD000002\n")
    one = '[[set]]\nname = "{}"\npath = "text.txt"\ndictionary = "medic.txt"\n'
    more = 'options = { training_names = ["train.txt"] }\n'
    (data / "sets.toml").write_text(one.format("a") + one.format("b") + more)
    (data / "models.toml").write_text(MODELS.partition('[[model]]\nname = "prompted"')[0])
    board(data)
    told = capsys.readouterr().err
    assert told.count("vectors of 4 terms: kept in the cache") == 1
    assert told.count("vectors of 4 terms: read from the cache") == 1
    whole = json.loads((data / "out" / "board.json").read_text())
    terms = [one["protocol"]["dictionary"]["terms"] for one in whole["rows"][0]["cells"].values()]
    assert terms == [4, 5]


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("models.toml", ("prompt =", "promt ="), "2: found 'promt'; did you mean prompt.*expected"),
        ("models.toml", ('"prompted"', '"one & only"'), "found the name 'one & only' twice"),
        ("models.toml", ("[[model]]", "[[row]]"), r"found no \[\[model\]\]"),
        ("models.toml", ('"mean"', "mean"), "models.toml: .*expected TOML: mend the line"),
        ("sets.toml", ("counts = {", "options = {"), "set toy: options has 'mentions'"),
        ("sets.toml", ("counts = { m", "options = { predictions = 'd', m"), "has 'predictions'"),
        (
            "models.toml",
            ("edit distance", "edits"),
            "letters: left out: found 'edits'; expected ex",
        ),
    ],
)
def test_lists_that_cannot_be_used(data, capsys, file, change, message):
    path = data / file
    path.write_text(path.read_text().replace(*change))
    if file == "sets.toml" or "left out" in message:  # of one alone: the others are scored
        board(data)
        assert re.search(message, capsys.readouterr().err)
        return
    with pytest.raises(BadInput, match=message):
        board(data)


def test_a_row_to_compare_with_that_is_none_and_no_set_at_hand(data, tmp_path):
    with pytest.raises(BadInput, match="--compare-to: found 'promted'; did you mean prompted"):
        board(data, "--compare-to", "promted")
    with pytest.raises(BadInput, match="found none of the 3 sets below"):
        words = ["--models", data / "models.toml", "--sets", data / "sets.toml"]
        words += ["--data", tmp_path / "empty", "--out", tmp_path / "out"]
        leaderboard.run(parsed(leaderboard.OPTIONS, [str(word) for word in words])[0])


def test_the_lists_of_this_project():
    models, sets = read_list([], BoardModel), read_list([], BoardSet)
    assert {"CODER", "SapBERT", "BioLORD-2023", "KRISSBERT", "MiniLM"} <= {m.name for m in models}
    assert {one.model for one in models if one.backend == "strings"} == {*STRINGS}
    for one in sets:  # options and scores that are known
        leaderboard._options_of(one, Path())
    prompts = {one.name: one.prompt for one in models if one.prompt}
    assert all("E5" in name and prompt == "query: " for name, prompt in prompts.items())
    assert all(one.licence for one in models) and all(one.source for one in sets)
    assert {"Cadec", "PsyTar", "MayoSRS", "NCBI disease", "XL-BEL"} <= {one.name for one in sets}
