"""`export --interpolate auto`: which weight is taken, by numbers worked out by hand; its card."""

import dataclasses
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from short_run import config, one_device

from coder_jax.__main__ import main
from coder_jax.commands import train as train_command
from coder_jax.models.bert import split_encoder
from coder_jax.models.hf_weights import load_bert
from coder_jax.systems import best_weight
from coder_jax.systems.best_weight import choose_weight
from coder_jax.systems.encoder_system import has_start_to_keep, interpolated
from coder_jax.systems.recipes import RECIPES
from coder_jax.systems.trained_models import load_run
from coder_jax.training.train import RunResult, train
from data_pipeline.process import BadInput

CONCEPTS = 12


def write_heldout(folder, languages=None):
    """Concepts of one name each, and a held-out name of each, "unheard 3 problem"."""
    folder.mkdir(parents=True)
    terms = [f"concept number {n}\tC{n}" for n in range(CONCEPTS)]
    (folder / "dictionary.tsv").write_text("\n".join(["term\tCUI", *terms]) + "\n")
    mentions = [f"unheard {n} problem\tC{n}" for n in range(CONCEPTS)]
    head = "mention\tCUI"
    if languages:
        head += "\tlanguage"
        mentions = [f"{row}\t{code}" for row, code in zip(mentions, languages, strict=True)]
    (folder / "mentions.tsv").write_text("\n".join([head, *mentions]) + "\n")
    return folder


HEAD = f"weight; acc@1 among {CONCEPTS} terms"


class Encoder:
    """Finds the held-out names in `plain[weight]`, and the other mentions in `other[weight]`."""

    def __init__(self, weight, plain, other):
        self.plain, self.other = plain[weight], other[weight]

    def encode(self, strings):
        vectors = np.zeros((len(strings), CONCEPTS + 1), np.float32)
        for row, string in enumerate(strings):
            number = int(re.search(r"\d+", string)[0])
            known = self.plain if re.fullmatch(r"unheard \d+ problem", string) else self.other
            found = string.startswith("concept") or number in known
            vectors[row, number if found else (number + 1) % CONCEPTS] = 1
        return vectors


@pytest.fixture
def scored(monkeypatch, tmp_path):
    """A run in `tmp_path`, whose encoders find as many names as said: of each weight (held-out
    ones, other ones).
    """

    def install(numbers):
        by_weight = {w: numbers.get(w, (0, 0)) for w in best_weight._WEIGHTS}
        plain = {w: range(n) for w, (n, _) in by_weight.items()}
        other = {w: range(n) for w, (_, n) in by_weight.items()}
        run = SimpleNamespace(weights="", folder=tmp_path)

        def at(weight):
            return dataclasses.make_dataclass("Run", ["weights", "weight"])(f"{weight:g}", weight)

        monkeypatch.setattr(best_weight, "from_start_to_end", lambda system, run: at)
        monkeypatch.setattr(
            best_weight, "encoder_of", lambda run: Encoder(run.weight, plain, other)
        )
        return run

    return install


def own_set(folder):
    path = folder / "mine.tsv"
    path.write_text("".join(f"local word {n}\tC{n}\n" for n in range(CONCEPTS)))
    return path


def test_the_best_weight_that_loses_nothing(scored, tmp_path, capsys):
    write_heldout(tmp_path / "heldout")
    run = scored({0.0: (3, 6), 0.2: (6, 6), 0.4: (8, 7), 0.5: (8, 6), 0.7: (9, 5), 1.0: (12, 5)})
    choice = choose_weight(None, run, own_set(tmp_path))
    assert choice.weight == 0.4, (
        "1 finds most, but of the own set less than the start; 0.5 is no better"
    )
    assert choice.run.weight == 0.4
    assert choice.run.weights == "0.4, chosen by held-out names"
    rows = {row[HEAD]: row for row in choice.rows}
    assert rows[0.4] == {HEAD: 0.4, "held-out names (12)": 66.7, "mine.tsv (12)": 58.3}
    assert rows[1.0]["held-out names (12)"] == 100.0 and len(rows) == 12
    # The square root of 2/3 x 1/3 / 12, and of 7/12 x 5/12 / 12.
    last = {"held-out names (12)": "13.6", "mine.tsv (12)": "14.2"}
    assert choice.rows[-1] == {HEAD: "standard error at 0.4", **last}
    said = capsys.readouterr().out
    assert "To be high: held-out names (12). Not to be below the start: mine.tsv (12)" in said
    assert "weight 0.7: held-out names 75.0, mine.tsv 41.7" in said


def test_the_smallest_weight_within_a_standard_error_of_the_best(scored, tmp_path):
    """At 1 it is 83.3, its error 10.8: so 9 of 12 are enough, and 8 are not."""
    write_heldout(tmp_path / "heldout")
    run = scored({0.0: (3, 6), 0.3: (8, 6), 0.5: (9, 5), 0.6: (9, 6), 1.0: (10, 6)})
    assert choose_weight(None, run, own_set(tmp_path)).weight == 0.6


def test_by_default_the_second_set_are_the_names_as_people_write_them(scored, tmp_path):
    write_heldout(tmp_path / "heldout")
    run = scored({0.0: (0, 6), 0.3: (0, 12), 0.9: (5, 0)})
    choice = choose_weight(None, run)
    assert choice.weight == 0.3
    columns = list(choice.rows[0])
    assert columns[:2] == [HEAD, "held-out names (12)"]
    assert columns[2] == "as people write them (12)"
    kinds = {name.split(" (")[0] for name in columns[3:]}
    assert kinds <= set(best_weight.KINDS) and len(kinds) > 2
    counts = [int(re.search(r"\((\d+)\)", name)[1]) for name in columns[3:]]
    assert sum(counts) == 12
    assert choose_weight(None, run).rows == choice.rows, "the same names each time"


def test_no_language_may_lose(scored, tmp_path):
    languages = ["ENG"] * 6 + ["GER"] * 6
    write_heldout(tmp_path / "heldout", languages)
    run = scored({0.0: (7, 0), 0.1: (6, 0), 0.2: (8, 1)})
    choice = choose_weight(None, run, own_set(tmp_path))
    assert choice.weight == 0.2
    row = choice.rows[0]
    assert row["held-out ENG (6)"] == 100.0 and row["held-out GER (6)"] == 16.7


def test_no_weight_is_as_good_as_the_start(scored, tmp_path):
    write_heldout(tmp_path / "heldout")
    run = scored({0.0: (6, 6), 0.1: (9, 3), 1.0: (12, 5)})
    with pytest.raises(BadInput, match=r"at each weight above 0 .* mine.tsv 50.0 to 25.0\. Train"):
        choose_weight(None, run, own_set(tmp_path))
    run = scored({0.0: (6, 6), 0.1: (5, 9)})
    with pytest.raises(BadInput, match="held-out names 50.0 to 41.7"):
        choose_weight(None, run, own_set(tmp_path))


def test_a_second_set_with_a_dictionary_of_its_own(scored, tmp_path):
    write_heldout(tmp_path / "heldout")
    second = write_heldout(tmp_path / "second")
    run = scored({0.0: (3, 0), 0.6: (4, 0)})
    choice = choose_weight(None, run, second)
    assert choice.weight == 0.6 and choice.rows[6]["second (12)"] == 33.3


@pytest.fixture(scope="module")
def trained(model, source, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "trained"
    with one_device():
        train(config(model, out), source)
    return out


@pytest.mark.slow
def test_export_takes_it_and_the_card_tells_all(trained, source, tmp_path, capsys):
    checkpoint, out = shutil.copytree(trained, tmp_path / "run"), tmp_path / "export"
    heldout = checkpoint / "heldout"
    given = source.folder / "heldout" / "mentions.tsv"
    assert (heldout / "mentions.tsv").read_text() == given.read_text(), "the run keeps them"
    # Names that any encoder finds, so that no weight is below the start.
    names = ("heart attack", "pain in limb", "renal failure")
    pairs = "".join(f"{name}\tC{n}\n" for n, name in enumerate(names))
    (heldout / "dictionary.tsv").write_text(f"term\tCUI\n{pairs}")
    (heldout / "mentions.tsv").write_text(f"mention\tCUI\n{pairs}")
    (tmp_path / "mine.tsv").write_text("heart attack\tC0\nlimb pain in\tC1\n")
    words = ["export", "--checkpoint", checkpoint, "--out", out, "--interpolate", "auto"]
    words += ["--not-below", tmp_path / "mine.tsv"]
    assert main(list(map(str, words))) == 0
    said = capsys.readouterr().out
    told = "0.1 x trained + 0.9 x initial encoder, chosen by held-out names"
    assert f"step 6 ({told}) exported" in said, "of equal weights the smallest"
    card = (out / "README.md").read_text()
    assert f"| weights | {told} |" in card
    assert "- entity-linking\n- coder\n---\n" in card, "the dataset is none of the UMLS"
    assert "| weight; acc@1 among 3 terms | held-out names (3) | mine.tsv (2) |" in card
    assert "| 0.3 | 100 |" in card and card.count("| 100 |") >= 11
    system, run = load_run(trained)
    found, wanted = (
        split_encoder(load_bert(out)[0])[1],
        interpolated(system, run, 0.1).params["encoder"],
    )
    np.testing.assert_allclose(
        found["layers"][0]["qkv"]["kernel"], wanted["layers"][0]["qkv"]["kernel"], rtol=1e-6
    )


@pytest.mark.slow
def test_a_run_without_held_out_names(trained, model, source, tmp_path, capsys):
    """As a copy left it that was cut off; an earlier version's has no folder. Going on mends it."""
    run = shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("mentions.tsv"))
    assert (run / "heldout" / "dictionary.tsv").is_file(), "a copy that was cut off"
    words = ["export", "--checkpoint", run, "--out", tmp_path / "x", "--interpolate", "auto"]
    assert main(list(map(str, words))) == 2
    assert "auto: found no held-out names in the run" in capsys.readouterr().err
    with one_device():
        train(config(model, run), source)
    heldout = [folder / "heldout" / "mentions.tsv" for folder in (run, source.folder)]
    assert len({file.read_text() for file in heldout}) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--interpolate", "0.5", "--not-below", "x.tsv"], "--not-below needs --interpolate auto"),
        (["--interpolate", "most"], "--interpolate most: expected the trained .* 0 to 1, or auto"),
    ],
)
def test_flags_that_lack_another(words, message, trained, tmp_path, capsys):
    assert main(["export", "--checkpoint", str(trained), "--out", str(tmp_path / "x"), *words]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("recipe", "mixable"),
    [("small_synonyms", True), ("small_v1", True), ("mlnorm_classes", False), ("bne_small", False)],
)
def test_train_says_how_to_export(recipe, mixable, trained, monkeypatch, capsys):
    """With the weight chosen, where the run can be mixed and names were held out."""
    made = RECIPES[recipe]()
    assert has_start_to_keep(made.system) == mixable
    source = SimpleNamespace(kept=("tokenizer",))
    result = RunResult("runs/x", 6, 1.0, {})
    monkeypatch.setattr(train_command, "open_source", lambda _: source)
    monkeypatch.setattr("coder_jax.training.train.train", lambda *_: result)
    advice = "export --checkpoint runs/x --out FOLDER"

    def said(made):
        train_command.run(made)
        return capsys.readouterr().out

    assert said(made).endswith(f"{advice}\n"), "no names were held out"
    source.kept = ("tokenizer", "heldout")
    auto = " --interpolate auto" if mixable else ""
    assert said(made).endswith(f"{advice}{auto}\n")
    if mixable:
        begun = dataclasses.replace(made.system.model, init=str(trained))
        other = dataclasses.replace(made, system=dataclasses.replace(made.system, model=begun))
        assert said(other).endswith(f"{advice}\n"), "the start was another run"
