"""`train` as it is called: which settings it takes, and what it says."""

import dataclasses
import inspect
import json
import re
import shlex
import sys
from types import SimpleNamespace

import pytest
from tiny_bert import write_model
from tiny_run import write_tiny_dataset

from coder_jax.__main__ import main
from coder_jax.commands import export
from coder_jax.commands.export import _commands
from coder_jax.commands.train import _PURPOSES, parse
from coder_jax.systems.recipes import RECIPES
from coder_jax.training.system import to_json
from data_pipeline import process
from data_pipeline.files.identity import differences
from data_pipeline.process import BadInput

SIZES = ["--groups", "1", "--triplets", "4", "--repeats", "2", "--row-length", "64"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a tiny BERT and a dataset."""
    folder = tmp_path_factory.mktemp("train")
    write_model(folder / "bert")
    write_tiny_dataset(folder / "data", folder / "bert")
    return folder


@pytest.fixture(scope="module")
def run(folder):
    """A run of four steps at a constant rate."""
    steps = ["--steps", "4", "--warmup-steps", "1", "--schedule", "constant"]
    assert main(words(folder, "run", "--init", folder / "bert", *SIZES, *steps)) == 0
    return folder / "run"


def words(folder, out, *flags):
    command = ["train", "--recipe", "coder_eng", "--data", folder / "data"]
    return [str(word) for word in [*command, "--out", folder / out, *flags]]


def test_without_a_recipe_all_are_listed_with_what_they_are_for():
    with pytest.raises(BadInput) as refused:
        parse(["--data", "x"])
    said = str(refused.value)
    assert all(f"--recipe {name} " in said for name in RECIPES)
    assert "your own terminology, on one machine" in said


def test_every_recipe_has_a_purpose():
    assert sorted(name for names in _PURPOSES.values() for name in names) == sorted(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_all_help_names_every_flag_that_is_taken(name, capsys):
    def values(part, prefix=""):
        """The flags of a configuration and their values, by a walk of its own."""
        found = {}
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            begins = f"{field.name}." if field.name in ("term", "relation") else ""
            if dataclasses.is_dataclass(value):
                found |= values(value, begins)
            else:
                flag = {"start": "from"}.get(field.name, field.name).replace("_", "-")
                found[f"--{prefix}{flag}"] = value
        return found

    config = RECIPES[name]()
    taken = values(config)
    del taken["--recipe"]
    for flag in ("--corrupted-tails", "--semantic-types"):  # follow from the weights of the losses
        taken.pop(flag, None)
    if name.startswith("mlnorm_classes"):  # its encoder is that of the run it starts from
        for flag in ("--init", "--layers", "--pooling", "--dropout", "--dtype"):
            del taken[flag]
    for flag, value in taken.items():
        if value is None or value in ("", ()):
            continue
        if flag == "--steps" and config.optimizer.epochs:  # it takes their place
            continue
        words = [flag, *map(str, value if isinstance(value, tuple) else [value])]
        if isinstance(value, bool):
            words = [flag if value else f"--no-{flag[2:]}"]
        assert parse(["--recipe", name, *words]) == config, flag
    with pytest.raises(SystemExit) as stop:
        parse(["--recipe", name, "--help-all"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    shown = set(re.findall(r"^  (--[a-z][\w.-]*)", text, re.MULTILINE))
    assert len(taken) > 30 and shown - {"--recipe", "--config"} == taken.keys()


def test_help_needs_no_recipe(capsys):
    with pytest.raises(SystemExit) as stop:
        parse(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "small_synonyms" in text and "--config" in text and "--learning-rate" in text


@pytest.mark.parametrize("name", ["mlnorm_small", "rank_small", "coder_eng"])
def test_help_of_a_recipe_is_what_its_author_wrote(name, capsys):
    """Commands stand in lines of their own, and no other recipe is in the way."""
    with pytest.raises(SystemExit):
        parse(["--recipe", name, "--help"])
    text = capsys.readouterr().out
    written = inspect.cleandoc(RECIPES[name].__doc__)
    lines = [line for line in written.splitlines() if line.startswith(("    ", "|"))]
    assert lines and all(line in text for line in lines)
    assert text.startswith(written)
    assert "--recipe small_v1" not in text and "--learning-rate" in text


def test_an_unknown_flag_gets_the_one_that_is_like_it():
    with pytest.raises(BadInput, match="there is no option --stepz; did you mean --steps?"):
        parse(["--recipe", "small", "--stepz", "3"])
    with pytest.raises(BadInput, match="--steps: invalid int value: 'few' .*--recipe small --help"):
        parse(["--recipe", "small", "--steps", "few"])


@pytest.mark.slow
def test_a_run_s_settings_come_back_and_flags_change_single_ones(run, tmp_path):
    ours = json.loads((run / "run.json").read_text())["config"]
    for given in (run, run / "run.json"):
        config = to_json(parse(["--config", str(given), "--out", "x"]))
        assert {name: config[name] for name in ours} == ours
    changed = to_json(parse(["--config", str(run), "--seed", "3", "--from", str(run)]))
    assert [line.split(":")[0] for line in differences(changed, config)] == [
        *("run.out", "start", "system.batch.seed"),
    ]
    told = json.loads((run / "run.json").read_text())
    told["config"]["start"] = "runs/other"
    (tmp_path / "run.json").write_text(json.dumps(told))
    assert parse(["--config", str(tmp_path)]).start == "runs/other"
    with pytest.raises(BadInput, match="found --recipe small and --config"):
        parse(["--config", str(run), "--recipe", "small"])


CHANGES = {  # flags that have several values, or none
    "small": ["--matryoshka", "384", "64", "--term.margin", "0.25"],
    "mlnorm": ["--no-within-group"],
}


@pytest.mark.parametrize("length", [[], ["--epochs", "0.5"], ["--steps", "20000"]])
@pytest.mark.parametrize("name", RECIPES)
def test_a_run_s_settings_are_told_as_a_command(name, length):
    """With the length that it had, as the recipe's may be in steps or in epochs."""
    flags = ["--seed", "7", "--learning-rate", "0.0033", *CHANGES.get(name, []), *length]
    settings = parse(["--recipe", name, *flags, "--data", "DATASET", "--out", "RUN"])
    source = SimpleNamespace(steps_per_epoch=1000)
    asked = dataclasses.replace(settings, optimizer=settings.optimizer.resolved_for(source))
    identity = {"config": to_json(asked), "start": {}}
    (command,) = _commands(SimpleNamespace(identity=identity))
    again = parse(shlex.split(command)[4:])
    optimizer = again.optimizer.resolved_for(source)
    assert dataclasses.replace(again, optimizer=optimizer) == asked
    assert not _commands(SimpleNamespace(identity={**identity, "extended": []}))


@pytest.mark.parametrize(
    ("encoder", "start", "told"),
    [
        ({"base_model": "org/bert"}, "", "--init org/bert "),
        ({"base_model": "./bert"}, "", "--init bert "),
        ({"base_model": "org/bert", "run": {"step": 3}}, "", "--init first "),
        ({"base_model": "org/bert"}, "/home/me/other", "--from other "),
    ],
)
def test_the_command_of_a_run_begins_as_it_did(encoder, start, told):
    config = to_json(parse(["--recipe", "small", "--init", "/home/me/first"]))
    config["start"] = start
    identity = {"config": config, "start": {"encoder": encoder}}
    (command,) = _commands(SimpleNamespace(identity=identity))
    assert told in command and "/home" not in command
    assert ("--init first" in command) == (start != "" or "run" in encoder)


def test_a_license_that_is_given_has_no_name_and_link_of_another(monkeypatch, tmp_path):
    card = {"license": "other", "license_name": "house", "license_link": "https://example.org"}
    system = SimpleNamespace(export=lambda run, out, card, **_: found.update(card) or {})
    run, found = SimpleNamespace(step=1, weights=""), dict(card)
    monkeypatch.setattr("coder_jax.systems.trained_models.load_run", lambda *_: (system, run))
    monkeypatch.setattr(export, "_commands", lambda run: [])
    export.run(export.ExportOptions(checkpoint=tmp_path, out=tmp_path / "x"))
    assert found.items() >= card.items()
    export.run(export.ExportOptions(checkpoint=tmp_path, out=tmp_path / "x", license="mit"))
    assert [found[name] for name in card] == ["mit", None, None]


@pytest.mark.slow
def test_a_run_of_another_run_s_settings_is_the_same(folder, run):
    again = ["train", "--config", run, "--data", folder / "data", "--out", folder / "again"]
    assert main([str(word) for word in again]) == 0
    losses = [
        [json.loads(line)["loss"] for line in (one / "metrics.jsonl").read_text().splitlines()]
        for one in (run, folder / "again")
    ]
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_a_line_says_what_begins_and_each_step_is_counted(folder, capsys, monkeypatch):
    monkeypatch.setattr(process, "_SECONDS_BETWEEN_LINES", 0.0)
    flags = ["--init", folder / "bert", *SIZES, "--steps", "2", "--warmup-steps", "1"]
    assert main(words(folder, "told", *flags)) == 0
    printed = capsys.readouterr()
    (begins,) = [line for line in printed.out.splitlines() if "compiling" in line]
    assert begins.startswith("recipe coder_eng: 2 steps of 16 terms on 8 x CPU, in float32")
    assert "\r" not in printed.err
    shown = re.findall(r"train: (\d)/2, \d+%.* (left|in all)", printed.err)
    assert shown == [("1", "left"), ("2", "left"), ("2", "in all")]


@pytest.mark.slow
def test_epochs_say_how_long_a_run_is(folder, capsys):
    def train(out, *flags):
        return main(words(folder, out, "--init", folder / "bert", *SIZES, *flags))

    def told(out, *names):
        optimizer = json.loads((folder / out / "run.json").read_text())["config"]["optimizer"]
        return [optimizer[name] for name in names]

    triplets = json.loads((folder / "data" / "manifest.json").read_text())["counts"]["triplets"]
    steps = round(0.4 * (triplets // 4))  # whole groups of four triplets, one a step
    assert train("epochs", "--epochs", "0.4") == 0
    assert f"recipe coder_eng: {steps:,} steps (0.4 epochs) of 16 terms" in capsys.readouterr().out
    # The recipe's warm-up is a tenth of its steps.
    wanted = [0.4, steps, round(steps / 10)]
    assert told("epochs", "epochs", "steps", "warmup_steps") == wanted
    # The same again; in steps; and longer.
    assert train("epochs", "--epochs", "0.4") == 0
    assert train("epochs", "--steps", str(steps), "--warmup-steps", str(wanted[2])) == 0
    longer = ["--epochs", "0.5", "--warmup-steps", str(wanted[2])]
    assert train("epochs", *longer) == 2
    said = capsys.readouterr().err
    assert f"a run of {steps} steps, and --epochs is 0.5, {round(0.5 * (triplets // 4))} s" in said
    assert train("epochs", *longer, "--extend") == 0
    assert told("epochs", "epochs") == [0.5]
    assert main(["export", "--checkpoint", str(folder / "epochs"), "--step", str(steps), "--out",
                 str(folder / "shorter")]) == 0  # fmt: skip
    assert train("long", "--epochs", "0.4", "--warmup-steps", "900") == 2
    assert f"--warmup-steps is 900 and --epochs is 0.4, {steps} steps" in capsys.readouterr().err


def test_steps_and_epochs_take_turns():
    with pytest.raises(BadInput, match="found --steps and --epochs; expected one of them"):
        parse(["--recipe", "small", "--steps", "9", "--epochs=1"])
    with pytest.raises(BadInput, match="found --steps and --epochs"):
        parse(["--recipe", "small", "--step", "9", "--epoch", "1"])  # argparse completes flags
    assert parse(["--recipe", "mlnorm", "--step=9"]).optimizer.epochs == 0
    of_paper = parse(["--recipe", "mlnorm"]).optimizer
    assert (of_paper.epochs, of_paper.warmup_steps) == (15, 0.1)
    assert parse(["--recipe", "mlnorm", "--steps", "9"]).optimizer.epochs == 0
    for flags, warmup in (([], 0.1), (["--warmup-steps", "7"], 7)):
        asked = parse(["--recipe", "small", "--epochs", "3", *flags]).optimizer
        assert (asked.epochs, asked.warmup_steps) == (3, warmup)


@pytest.mark.slow
def test_quiet_prints_nothing(folder, capfd):
    flags = ["--init", folder / "bert", *SIZES, "--steps", "2", "--warmup-steps", "1"]
    assert main(words(folder, "quiet", "--quiet", *flags)) == 0
    assert capfd.readouterr() == ("", "")
    assert (folder / "quiet" / "metrics.jsonl").exists()


@pytest.mark.slow
def test_a_finished_run_is_made_longer_if_asked_to(folder, run, capsys):
    longer = ["--init", folder / "bert", *SIZES, "--warmup-steps", "1", "--schedule", "constant"]
    capsys.readouterr()
    assert main(words(folder, "run", *longer, "--steps", "6")) == 2
    said = capsys.readouterr().err
    assert "holds a run of 4 steps, and --steps is 6" in said and "add --extend" in said
    assert main(words(folder, "run", *longer, "--steps", "6", "--extend")) == 0
    assert "now a run of 6 steps; it goes on from step 4" in capsys.readouterr().out


def test_a_missing_package_is_said_before_anything_is_made(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    flags = ["--init", folder / "bert", *SIZES, "--steps", "2", "--warmup-steps", "1"]
    assert main(words(folder, "tracked", "--track", "wandb", *flags)) == 2
    assert "the package wandb is not installed" in capsys.readouterr().err
    assert not (folder / "tracked").exists()
