"""The configuration: the paper's values, flags, differences, messages."""

import dataclasses
import functools
import types

import pytest

from coder_jax.commands.train import open_source, parse
from coder_jax.systems.coder.objective import CoderSystem
from coder_jax.systems.coder_v1.objective import CoderV1System
from coder_jax.systems.recipes import RECIPES
from coder_jax.training.config import RunConfig, from_json, to_json
from data_pipeline.files.identity import differences
from data_pipeline.process.errors import BadInput


def test_coder_eng_is_the_paper():
    config = RECIPES["coder_eng"]()
    system, batch = config.system, config.system.batch
    assert (batch.groups, batch.triplets, batch.repeats) == (8, 16, 8)
    assert batch.pairs == 128 and batch.draw == "relations"
    assert dataclasses.astuple(system.term) == (2, 50, 0.5, 0.1)
    assert system.relation == system.term and system.mu == 1
    assert (config.optimizer.steps, config.optimizer.warmup_steps) == (100_000, 10_000)
    assert config.optimizer.learning_rate == 2e-5 and system.model.pooling == "cls"


def test_coder_all_differs_as_the_paper_says():
    lines = differences(to_json(RECIPES["coder_all"]()), to_json(RECIPES["coder_eng"]()))
    assert [line.split(":")[0] for line in lines] == [
        "optimizer.steps",
        "recipe",
        "system.model.init",
    ]


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_valid_and_knows_its_name(name):
    config = RECIPES[name]()
    config.validate()
    assert config.recipe == name


def test_flags_change_single_values():
    config = parse(["--recipe", "small", "--out", "runs/x", "--term.alpha", "3", "--names", "any"])
    changed = differences(to_json(config), to_json(RECIPES["small"]()))
    assert [line.split(":")[0] for line in changed] == [
        "run.out",
        "system.batch.names",
        "system.term.alpha",
    ]


def test_help_explains_every_flag(capsys):
    with pytest.raises(SystemExit) as stop:
        parse(["--recipe", "small", "--help"])
    text = capsys.readouterr().out
    assert stop.value.code == 0
    assert "Defaults below are those of --recipe small" in text
    words = " ".join(text.replace("│", " ").split())
    assert "Weight of the term-relation-term loss" in words and "(default: concepts)" in words


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--steps", "9", "--warmup-steps", "9"], "warmup_steps is 9 and steps is 9"),
        (["--dropout", "1"], "dropout is 1.0; it must be at least 0 and less than 1"),
        (["--draw", "synonyms"], "draw 'synonyms' takes no relations; use --mu 0"),
        (["--b2", "1"], "b2 is 1.0; it must be less than 1"),
        (["--mu", "nan"], "mu is nan; it must be a finite number"),
        (["--mu", "-3"], "mu is -3.0; it must be at least 0"),
        (["--relation.margin", "inf"], "margin is inf; it must be a finite number"),
        (["--passes", "0"], "passes is 0; it must be at least 1"),
        (["--rows", "-1"], "rows is -1; it must be at least 0"),
        (["--eval-steps", "-3"], "eval_steps is -3; it must be at least 0"),
        (["--learning-rate", "nan"], "learning_rate is nan; it must be a finite number"),
        (["--eps", "inf"], "eps is inf; it must be a finite number"),
        (["--seed", "-1"], "seed is -1; it must be at least 0"),
        (["--corrupted-tails"], "corrupted_tails is on, but only CODER v1 uses them"),
    ],
)
def test_messages(flags, message):
    with pytest.raises(BadInput, match=message):
        parse(["--recipe", "small", *flags]).validate()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--no-corrupted-tails"], "mu is 1.0, but the batches have no corrupted tails"),
        (["--type-weight", "0.1"], "type_weight is 0.1, but the batches tell no semantic types"),
    ],
)
def test_messages_of_coder_v1(flags, message):
    with pytest.raises(BadInput, match=message):
        parse(["--recipe", "small_v1", *flags]).validate()


def test_the_recipe_chooses_the_system():
    system = parse(["--recipe", "coder_v1_eng", "--transe-margin", "2"]).system
    assert isinstance(system, CoderV1System) and system.transe_margin == 2.0
    with pytest.raises(SystemExit):
        parse(["--recipe", "coder_eng", "--transe-margin", "2"])


# What each ablation changes of its recipe.
NO_RELATIONS = {"system.mu": 0.0}
TYPES = {"system.batch.semantic_types": True, "system.type_weight": 0.1}
STEPS = "optimizer.steps", "optimizer.warmup_steps"
ABLATIONS = {
    "CODER, no relations": ("coder_eng", NO_RELATIONS),
    "CODER, TransE-like": (  # A.5; the base is negative, as the similarity is
        "coder_eng",
        {
            **{"system.score": "translation", "system.mu": 0.1, "system.relation.alpha": 0.2},
            **{"system.relation.beta": 5.0, "system.relation.base": -28.0},
        },
    ),
    "CODER v1, types too": ("coder_v1_eng", TYPES),
    "CODER v1, types, no relations": ("coder_v1_eng", TYPES | NO_RELATIONS),
    "CODER v1, no relations": ("coder_v1_eng", NO_RELATIONS),
    "MLNorm, French alone": (
        "mlnorm",
        {"system.batch.languages": ["FRE"], **dict(zip(STEPS, (42_200, 4_220), strict=True))},
    ),
    "MLNorm, English alone": (
        "mlnorm",
        {"system.batch.languages": ["ENG"], **dict(zip(STEPS, (85_100, 8_510), strict=True))},
    ),
    "MLNorm, both steps in one, on the data of `mlnorm_classes`": (
        "mlnorm",
        dict(zip(STEPS, (354_300, 35_430), strict=True)),
    ),
    "BNE, words as targets": ("bne", {"system.batch.targets": "words"}),
    "BNE, synonyms alone": (
        "bne",
        {"system.concept_weight": 0.0, "system.context_weight": 0.0},
    ),
    "BNE, no synonyms": ("bne", {"system.synonym_weight": 0.0}),
    "BNE, no concepts": ("bne", {"system.concept_weight": 0.0}),
    "BNE, no contexts": ("bne", {"system.context_weight": 0.0}),
    "BNE, random negatives": ("bne", {"system.negatives": "random"}),
}


def test_flags_make_the_ablations(repo):
    """Each row of the table in launch/README.md, and no other setting changes."""
    text = (repo / "launch" / "README.md").read_text(encoding="utf-8")
    _, table = text.split("| ablation |")
    rows = [row.split(" | ") for row in table.split("\n\n")[0].splitlines()[2:]]
    flags = {row[0].removeprefix("| "): row[1].strip("`").split() for row in rows}
    assert flags.keys() == ABLATIONS.keys()
    for name, (recipe, changes) in ABLATIONS.items():
        wanted = to_json(RECIPES[recipe]())
        for path, value in changes.items():
            *parts, setting = path.split(".")
            values = functools.reduce(lambda inside, part: inside[part], parts, wanted)
            assert values[setting] != value
            values[setting] = value
        assert to_json(parse(["--recipe", *flags[name]])) == wanted


@pytest.mark.parametrize("name", RECIPES)
def test_a_configuration_comes_back_from_json(name):
    config = RECIPES[name]()
    values = to_json(config)["system"]
    assert values.pop("name") == config.system.name
    assert from_json(type(config.system), values, "run.json") == config.system


def test_json_with_a_setting_of_another_version_is_refused():
    values = to_json(RECIPES["small"]())["system"] | {"temperature": 0.05}
    values.pop("name")
    with pytest.raises(BadInput, match="run.json: CoderSystem has the unknown temperature"):
        from_json(CoderSystem, values, "run.json")
    del values["temperature"], values["batch"]["seed"]
    with pytest.raises(BadInput, match="run.json: CoderSystem has no seed; expected the settings"):
        from_json(CoderSystem, values, "run.json")


def test_settings_that_are_gone_do_no_harm_where_they_were_not_used():
    now = to_json(RECIPES["small"]())["system"]
    of_system = {"keep_similarities": 0.0, "relation_start": "identity", "ridge_penalty": 0.3}
    batch = now["batch"] | {"mask_shared_names": False}
    before = now | of_system | {"ridge_triplets": 2_000, "batch": batch}
    assert differences(before, now) == []
    before.pop("name")
    assert from_json(CoderSystem, before, "run.json") == RECIPES["small"]().system
    used = before | {"relation_start": "ridge", "batch": batch | {"mask_shared_names": True}}
    assert len(differences(used | {"name": "coder"}, now)) == 2
    with pytest.raises(BadInput, match="has the unknown"):
        from_json(CoderSystem, used, "run.json")


@pytest.mark.parametrize("mark", ["manifest.json", "batches.json"])
def test_the_length_of_the_run_plans_its_rows(tmp_path, monkeypatch, mark):
    (tmp_path / mark).write_text("{}")
    asked = []

    def source(*_, rows, run_steps, shapes):
        asked.append((rows, run_steps, shapes))
        return types.SimpleNamespace(last_step=10)

    monkeypatch.setattr("data_pipeline.batches.stream.BatchMaker", source)
    monkeypatch.setattr("data_pipeline.batches.files.BatchFiles", source)
    monkeypatch.setattr("data_pipeline.dataset.store.open_dataset", lambda folder: None)
    data = ["--data", str(tmp_path), "--out", "x", "--rows", "7"]
    open_source(parse(["--recipe", "small", *data, "--steps", "9", "--warmup-steps", "1"]))
    assert asked == [(7, 9, 8)]
    # Where a compilation takes minutes: the usual number of rows, and one that is always enough.
    monkeypatch.setattr("jax.default_backend", lambda: "tpu")
    open_source(parse(["--recipe", "small", *data, "--steps", "9", "--warmup-steps", "1"]))
    assert asked[1:] == [(7, 9, 2)]


def test_data_and_out_are_needed(tmp_path):
    with pytest.raises(BadInput, match="give --data"):
        open_source(RECIPES["small"]())
    run = RunConfig(data=str(tmp_path / "nothing"), out=str(tmp_path / "run"))
    with pytest.raises(BadInput, match="nothing is not there; build a dataset"):
        open_source(dataclasses.replace(RECIPES["small"](), run=run))
