"""The protocol by a system of the tests that uses all of it, in files of its own alone."""

import dataclasses
import functools
import os
import shutil
import signal

import jax
import numpy as np
import pytest
from short_run import Stops
from toy_system import TERMS, ToySystem, toy_config, toy_source, write_terms
from training_process import lines_of

import coder_jax.training.step
from coder_jax.commands.train import open_source, parse
from coder_jax.devices.mesh import make_mesh
from coder_jax.systems.coder import CoderSystem
from coder_jax.systems.coder_v1 import CoderV1System
from coder_jax.systems.recipes import RECIPES, system_of
from coder_jax.training.checkpoints import _read_item, _read_json_item, best_step, saved_steps
from coder_jax.training.run_folder import read_run_identity
from coder_jax.training.system import OptimizerConfig, RunConfig, from_json, to_json
from coder_jax.training.train import train
from data_pipeline.files.identity import differences
from data_pipeline.process import BadInput, Stopped, _stop_when_asked, poll


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_terms(tmp_path_factory.mktemp("toy") / "data")


@pytest.fixture
def run(data, monkeypatch):
    """Train the toy: run(out, devices=1, stop=None, **settings of toy_config)."""

    def run(out, *, devices=1, stop=None, **settings):
        mesh = lambda groups, _=None: make_mesh(groups, jax.devices()[:devices])  # noqa: E731
        monkeypatch.setattr(coder_jax.training.step, "make_mesh", mesh)
        config = toy_config(out, **settings)
        source = toy_source(config, data, devices)
        if stop is not None:
            source = Stops(source, stop)
        return train(config, source)

    return run


def state_of(out, step):
    folder = out / "checkpoints" / str(step)
    return {item: _read_item(folder, item) for item in ("params", "rest")}


def assert_same(got, want):
    jax.tree.map(np.testing.assert_array_equal, got, want)


@pytest.mark.slow
def test_it_trains_and_each_part_as_it_says(run, tmp_path):
    result = run(tmp_path / "run", eval_steps=2)
    assert result.steps == 6 and set(result.scores) == {"terms"}
    start, end = (state_of(tmp_path / "run", step) for step in (2, 6))
    for part, changes in (("encoder", True), ("decoder", True), ("prior", False), ("rows", True)):
        a, b = (jax.tree.leaves(state["params"][part]) for state in (start, end))
        assert any(not np.array_equal(x, y) for x, y in zip(a, b, strict=True)) == changes, part
    before, after = (state["params"]["rows"] for state in (start, end))
    np.testing.assert_array_equal(before[-10:], after[-10:])  # never drawn
    assert np.abs(before[:-10] - after[:-10]).max() > 1e-2
    names = [
        jax.tree_util.keystr(path)
        for path, leaf in jax.tree_util.tree_leaves_with_path(end["rest"]["opt_state"])
        if np.ndim(leaf)
    ]
    assert any("rows" in name for name in names) and not any("prior" in name for name in names)
    assert np.abs(end["rest"]["extra"]["mean"]).max() > 0  # the running mean has moved
    assert (tmp_path / "run" / "words" / "list.txt").exists()


def test_stop_and_go_on_is_bitwise_the_straight_run(run, tmp_path):
    """Stopped between two refreshes, and at one before its index was whole."""
    run(tmp_path / "straight", eval_steps=2)
    for stop in (3, 4):
        out = tmp_path / f"stopped-{stop}"
        with pytest.raises(ConnectionError):
            run(out, stop=stop, eval_steps=2, save_minutes=0.0)
        if stop == 4:  # killed while it wrote the index of step 4
            (out / "index" / "4").rename(out / "index" / ".4.partial")
        run(out, eval_steps=2, save_minutes=0.0)
        assert_same(state_of(out, 6), state_of(tmp_path / "straight", 6))
        assert not list((out / "index").glob(".*"))


def test_the_batches_after_a_refresh_depend_on_its_index_and_say_so(run, tmp_path):
    run(tmp_path / "run", steps=12)
    run(tmp_path / "once", steps=12, system=ToySystem(refresh_steps=100))
    assert not np.array_equal(
        *(state_of(tmp_path / name, 12)["params"]["rows"] for name in ("run", "once"))
    )
    folder = tmp_path / "run"
    assert saved_steps(folder) == [
        2,
        4,
        6,
        8,
        10,
        12,
    ]  # a checkpoint at each refresh, to make it again
    assert sorted(path.name for path in (folder / "index").iterdir()) == ["10", "8"]
    notes = _read_json_item(folder / "checkpoints" / "12", "notes")
    assert notes["index"]["step"] == 10 and len(notes["index"]["hash"]) == 64


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["changed", "lost"])
def test_an_index_that_is_not_the_one_it_was_stopped_with_is_refused(run, tmp_path, damage):
    out = tmp_path / "run"
    with pytest.raises(ConnectionError):
        run(out, stop=3, save_minutes=0.0)
    if damage == "changed":
        np.save(out / "index" / "2" / "neighbours.npy", np.zeros(TERMS, np.int64))
    else:
        shutil.rmtree(out / "index" / "2")
    with pytest.raises(BadInput, match=r"index .*2, which the run's batches depend on, has"):
        run(out)
    # What the message says mends it.
    (out / "checkpoints" / "3").rename(tmp_path / "away")
    run(out)
    run(tmp_path / "straight")
    assert_same(state_of(out, 6), state_of(tmp_path / "straight", 6))


@pytest.mark.slow
def test_going_back_past_several_refreshes_makes_them_again(run, tmp_path):
    """Indexes of later steps, which are taken again, are not mistaken for newer ones."""
    out = tmp_path / "run"
    with pytest.raises(ConnectionError):
        run(out, steps=8, stop=7, save_minutes=0.0)
    assert saved_steps(out) == [2, 4, 6, 7]
    for step in (4, 6, 7):
        shutil.rmtree(out / "checkpoints" / str(step))
    run(out, steps=8)
    run(tmp_path / "straight", steps=8)
    assert_same(state_of(out, 8), state_of(tmp_path / "straight", 8))


@pytest.mark.slow
def test_stopped_at_its_last_scores_it_is_scored_and_the_best_is_known(run, tmp_path, monkeypatch):
    out, real, looks = tmp_path / "run", ToySystem.scorer, []

    def scorer(system, source, settings):
        score = real(system, source, settings)

        def asked(view):
            looks.append(view.step)
            if looks.count(5) == 1 and view.step == 5:
                os.kill(os.getpid(), signal.SIGTERM)
            poll()
            return score(view)

        return asked

    monkeypatch.setattr(ToySystem, "scorer", scorer)
    with _stop_when_asked("stopping"), pytest.raises(Stopped):
        run(out, steps=5, eval_steps=2)
    result = run(out, steps=5, eval_steps=2)
    assert result.scores and looks.count(5) == 2
    run(tmp_path / "straight", steps=5, eval_steps=2)
    assert best_step(out) == best_step(tmp_path / "straight")
    assert_same(state_of(out, 5), state_of(tmp_path / "straight", 5))


@pytest.mark.parametrize(
    ("normal", "devices", "passes"), [(True, 8, 1), (False, 8, 1), (False, 1, 4), (False, 2, 2)]
)
def test_devices_and_passes_change_nothing(run, tmp_path, normal, devices, passes):
    """Statistics of the batch are those of all devices together."""
    system = ToySystem(normal=normal)
    run(tmp_path / "one", system=system)
    run(tmp_path / "many", system=system, devices=devices, passes=passes)
    got, want = (state_of(tmp_path / name, 6) for name in ("many", "one"))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.linalg.norm(a - b) <= 1e-6 * np.linalg.norm(b)


def test_a_loss_that_needs_the_whole_batch_has_one_pass(run, tmp_path):
    with pytest.raises(BadInput, match="--passes is 2, but the loss of toy needs the whole batch"):
        run(tmp_path / "run", passes=2)
    assert not (tmp_path / "run").exists()


def test_the_best_checkpoint_stays_and_is_the_one_that_is_read(run, tmp_path):
    out = tmp_path / "run"
    run(out, steps=12, eval_steps=1, system=ToySystem(refresh_steps=100))
    scores = {
        line["step"]: line["eval"]["terms"]["found"]
        for line in lines_of(out)
        if "eval" in line and line["step"]
    }
    best = max(scores, key=scores.__getitem__)
    assert 1 < best < 11, "a best score at the end would show nothing"
    assert best_step(out) == best and best in saved_steps(out)


def test_a_run_starts_from_another_one(run, tmp_path):
    run(tmp_path / "first", eval_steps=3)
    run(tmp_path / "second", start=str(tmp_path / "first"), eval_steps=3, steps=1)
    best = best_step(tmp_path / "first")
    told = read_run_identity(tmp_path / "second")["start"]
    assert told["from"]["step"] == best and told["width"] == 8
    first, second = (
        state_of(tmp_path / name, step)["params"]["prior"]
        for name, step in (("first", best), ("second", 1))
    )
    np.testing.assert_array_equal(first, second)
    with pytest.raises(BadInput, match="has no checkpoint yet"):
        shutil.rmtree(tmp_path / "first" / "checkpoints")
        (tmp_path / "first" / "checkpoints").mkdir()
        run(tmp_path / "third", start=str(tmp_path / "first"))


def test_what_run_json_says_makes_the_system_again(run, tmp_path):
    run(tmp_path / "run", steps=1, system=ToySystem(size=4))
    identity = read_run_identity(tmp_path / "run")
    assert system_of(identity, {"toy": ToySystem}) == ToySystem(size=4)
    with pytest.raises(
        BadInput, match="the run is of the system 'toy'; this version .* knows coder"
    ):
        system_of(identity)


def test_the_parts_of_a_system_are_frozen_values():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ToySystem().parts()["prior"].rate = 1.0


# -------------------------------------------------------------------------------------------------
# The configuration: the paper's values, flags, differences, messages.


def test_coder_eng_is_the_paper():
    config = RECIPES["coder_eng"]()
    system, batch = config.system, config.system.batch
    assert (batch.groups, batch.triplets, batch.repeats) == (8, 16, 8)
    assert batch.pairs == 128 and batch.draw == "relations"
    assert dataclasses.astuple(system.term) == (2, 50, 0.5, 0.1)
    assert system.relation == system.term and system.mu == 1
    assert (config.optimizer.steps, config.optimizer.warmup_steps) == (12_500, 1_250)
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
        parse(["--recipe", "small", "--help-all"])
    text = capsys.readouterr().out
    assert stop.value.code == 0
    assert "Defaults below are those of --recipe small" in text
    words = " ".join(text.split())
    assert "Weight of the term-relation-term loss" in words and "(default: concepts)" in words


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--steps", "9", "--warmup-steps", "9"],
            "--warmup-steps is 9 and --steps is 9: .* give --warmup-steps 0 or more --steps",
        ),
        (["--dropout", "1"], "--dropout is 1.0; expected 0 or more, and less than 1"),
        (["--draw", "synonyms"], "--draw is synonyms, which takes no relations; give --mu 0"),
        (["--b2", "1"], "--b2 is 1.0; expected less than 1"),
        (["--mu", "nan"], "--mu is nan; expected a finite number"),
        (["--mu", "-3"], "--mu is -3.0; expected 0 or more"),
        (["--relation.margin", "inf"], "--relation.margin is inf; expected a finite number"),
        (["--passes", "0"], "--passes is 0; expected 1 or more"),
        (["--cache-chunks", "0"], "--cache-chunks is 0; expected 1 or more"),
        (["--rows", "-1"], "--rows is -1; expected 0 or more"),
        (["--profile", "10"], "--profile is '10'; expected FIRST:LAST, two steps such as 10:15"),
        (["--profile", "9:7"], "--profile is '9:7'; expected FIRST:LAST"),
        (["--profile", "0:7"], "--profile is '0:7'; expected FIRST:LAST"),
        (["--steps", "30", "--profile", "9:31"], "is 9:31 and --steps is 30: the run ends before"),
        (["--peak-tflops", "-1"], "--peak-tflops is -1.0; expected 0 or more"),
        (["--eval-steps", "-3"], "--eval-steps is -3; expected 0 or more"),
        (["--learning-rate", "nan"], "--learning-rate is nan; expected a finite number"),
        (["--eps", "inf"], "--eps is inf; expected a finite number"),
        (["--seed", "-1"], "--seed is -1; expected 0 or more"),
    ],
)
def test_messages(flags, message):
    with pytest.raises(BadInput, match=message):
        parse(["--recipe", "small", *flags]).validate()


@pytest.mark.parametrize("recipe", ["bne", "mlnorm_classes"])
@pytest.mark.parametrize(
    ("flags", "found"),
    [(["--cache-chunks", "2"], "--cache-chunks is 2"), (["--remat", "dots"], "--remat is dots")],
)
def test_without_a_bert_nothing_is_computed_twice(recipe, flags, found):
    with pytest.raises(BadInput, match=f"{found}, but .* trains no BERT"):
        parse(["--recipe", recipe, *flags]).validate()


@pytest.mark.parametrize(
    ("flags", "types"), [([], False), (["--mu", "0"], False), (["--type-weight", "0.1"], True)]
)
def test_batches_of_coder_v1_have_what_its_losses_read(flags, types):
    batch = parse(["--recipe", "small_v1", *flags]).system.batch
    assert (batch.corrupted_tails, batch.semantic_types, batch.terms) == (True, types, 255)


def test_messages_of_coder_v1():
    flags = ["--mu", "0", "--draw", "pairs", "--repeats", "1", "--names", "any"]
    with pytest.raises(BadInput, match="--draw is pairs, .* expects --draw relations, concepts or"):
        parse(["--recipe", "small_v1", *flags, "--fill-pairs", "0"]).validate()


def test_the_recipe_chooses_the_system():
    system = parse(["--recipe", "coder_v1_eng", "--transe-margin", "2"]).system
    assert isinstance(system, CoderV1System) and system.transe_margin == 2.0
    with pytest.raises(BadInput, match="there is no option --transe-margin"):
        parse(["--recipe", "coder_eng", "--transe-margin", "2"])


# What each ablation changes of its recipe.
NO_RELATIONS = {"system.mu": 0.0}
TYPES = {"system.batch.semantic_types": True, "system.type_weight": 0.1}
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
        {"system.batch.languages": ["FRE"], "optimizer.epochs": 30.0},
    ),
    "MLNorm, English alone": (
        "mlnorm",
        {"system.batch.languages": ["ENG"], "optimizer.epochs": 20.0},
    ),
    "MLNorm, both steps in one": ("mlnorm", {}),
    "MLNorm, CamemBERT": ("mlnorm", {"system.model.init": "camembert-base"}),
    "MLNorm, English BERT": ("mlnorm", {"system.model.init": "bert-base-uncased"}),
    "MLNorm, on data of UMLS 2019AB": ("mlnorm", {}),
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
    """Each row of the tables of ablations in docs/systems/, and no other setting changes."""
    texts = [path.read_text(encoding="utf-8") for path in (repo / "docs" / "systems").glob("*.md")]
    tables = [table for text in texts for table in text.split("| ablation |")[1:]]
    rows = [row.split(" | ") for table in tables for row in table.split("\n\n")[0].splitlines()[2:]]
    assert len(rows) == len(ABLATIONS)
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


def test_a_run_from_before_a_setting_is_read_with_what_was_done_then():
    now = to_json(RECIPES["small"]())
    before = now | {"optimizer": {k: v for k, v in now["optimizer"].items() if k != "epochs"}}
    assert differences(before, now) == differences(now, before) == []
    assert from_json(OptimizerConfig, before["optimizer"], "run.json").epochs == 0
    asked = now | {"optimizer": now["optimizer"] | {"epochs": 2.0}}
    assert differences(before, asked) == ["optimizer.epochs: 'absent' there, 2.0 here"]


def test_settings_that_are_gone_do_no_harm_where_they_were_not_used():
    now = to_json(RECIPES["small"]())["system"]
    of_system = {"keep_similarities": 0.0, "relation_start": "identity", "ridge_penalty": 0.3}
    batch = now["batch"] | {"mask_shared_names": False, "ancestors": 0, "ancestor_weight": 0.5}
    batch |= {"mask_related": "none"}
    before = now | of_system | {"ridge_triplets": 2_000, "batch": batch}
    assert differences(before, now) == []
    before.pop("name")
    assert from_json(CoderSystem, before, "run.json") == RECIPES["small"]().system
    used = before | {"relation_start": "ridge", "batch": batch | {"mask_shared_names": True}}
    assert len(differences(used | {"name": "coder"}, now)) == 2
    with pytest.raises(BadInput, match="has the unknown"):
        from_json(CoderSystem, used, "run.json")


@pytest.mark.parametrize(
    ("recipe", "part", "setting", "neutral", "other"),
    [
        ("recall", "", "triplet_weight", 1.0, 0.5),
        ("small", "model", "layers", 0, 2),
        ("small", "", "relation_rank", 0, 16),
        ("rank", "batch", "fold", "", "1/5"),
        ("rank", "batch", "broader", False, True),
    ],
)
def test_a_run_from_before_a_setting_is_the_one_with_its_neutral_value(
    recipe, part, setting, neutral, other
):
    def changed(change):
        values = to_json(RECIPES[recipe]())["system"]
        change(values[part] if part else values)
        return values

    now, before = changed(lambda _: None), changed(lambda values: values.pop(setting))
    assert before != now and differences(before, now) == differences(now, before) == []
    used, name = changed(lambda values: values.update({setting: other})), f"{part}.{setting}"
    name = name.removeprefix(".")
    assert differences(before, used) == [f"{name}: 'absent' there, {other!r} here"]
    assert differences(now, used) == [f"{name}: {neutral!r} there, {other!r} here"]
    before.pop("name")
    system = RECIPES[recipe]().system
    assert from_json(type(system), before, "run.json") == system


def test_the_length_of_the_run_plans_its_rows(tmp_path, monkeypatch):
    asked = []

    def source(*_, rows, run_steps, shapes, teacher):
        assert teacher is None
        asked.append((rows, run_steps, shapes))

    monkeypatch.setattr("coder_jax.systems.encoder_system.BatchMaker", source)
    monkeypatch.setattr(
        "coder_jax.systems.encoder_system.open_dataset", lambda folder, strings: None
    )
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
