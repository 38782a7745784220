"""A run of BNE: it learns, goes on bitwise, is the same on any devices; what it cannot use."""

import dataclasses

import jax
import numpy as np
import pytest
from name_run import STEPS, config_of, source_of
from short_run import Stops, assert_same_parameters, lines_of
from tiny_names import tiny_vectors

from coder_jax.devices.mesh import put_batch
from coder_jax.systems.bne.objective import BneSystem, NameModel
from coder_jax.systems.bne.recipes import bne, bne_released
from coder_jax.systems.finished_run import load_run
from coder_jax.training.state import new_state
from coder_jax.training.step import make_step
from coder_jax.training.train import train
from data_pipeline.batches.names.source import NameBatches
from data_pipeline.batches.spec import StepCut
from data_pipeline.process.errors import BadInput


def test_it_learns_and_is_scored(trained):
    out, result = trained
    losses = [line["loss"] for line in lines_of(out / "metrics.jsonl") if "loss" in line]
    assert losses[-1] < losses[0]
    assert {"acc@1", "acc@5", "mrr", "terms"} == result.scores["heldout"].keys()


@pytest.mark.parametrize("at", [3, 6])  # before the first checkpoint, and after one
def test_stopped_and_gone_on_with_it_is_bitwise_the_straight_run(
    names, trained, tmp_path, on_one_device, at
):
    config = config_of(names, tmp_path / "run")
    with pytest.raises(ConnectionError):
        train(config, Stops(source_of(config, names), at))
    train(config, source_of(config, names))
    (_, ours), (_, theirs) = load_run(tmp_path / "run"), load_run(trained[0])
    assert ours.step == theirs.step == STEPS
    assert_same_parameters(ours.params, theirs.params)


def steps_on(names, devices, **changes):
    """(losses, parameters) of three steps on some devices."""
    config = config_of(names, "x", **changes)
    # Adam divides by the size of a gradient: of one near 0 it would show the rounding.
    config = dataclasses.replace(config, optimizer=dataclasses.replace(config.optimizer, eps=1e-3))
    system = config.system
    about = system.start(source_of(config, names))[0]
    step = make_step(config, about, NameBatches.packed, devices=jax.devices()[:devices])
    state = new_state(step.like, system, {}, step.parts, step.optimizer)
    source = system.open(names, step.cut, rows=0, steps=3)
    step.compile(source, source.plan.ample)
    losses = []
    for batch in source.batches(0, 3):
        placed = put_batch(step.mesh, step.cut, batch, source.packed)
        state, metrics = step(state, placed, source.plan.ample)
        losses.append(float(metrics["loss"]))
    return losses, jax.device_get(state.params)


@pytest.mark.parametrize(
    "changes",
    [
        {"negatives": "hardest"},
        pytest.param(
            {
                "learned_scale": True,
                "model": {"cell": "coupled", "projection": "tanh"},
                "batch": {"groups": 4},
            },
            marks=pytest.mark.slow,
        ),
    ],
    ids=["paper", "released, devices share blocks"],
)
def test_devices_change_nothing(names, changes):
    losses, params = steps_on(names, 1, **changes)
    again, others = steps_on(names, 8, **changes)
    assert again == pytest.approx(losses, rel=1e-6)
    for ours, theirs in zip(jax.tree.leaves(others), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-6)


def test_the_released_recipe_trains_as_many_numbers_as_its_checkpoint():
    system = bne_released().system
    params, _ = system.shapes({"alphabet": "x" * 81, "width": 200})
    assert sum(shape.size for shape in jax.tree.leaves(params)) == 1_350_002


def test_the_recipe_has_three_losses_and_the_model_of_the_paper():
    assert tuple(bne().system.weights.values()) == (1, 1, 1)
    assert bne().system.model == NameModel()


def test_what_the_vectors_decide_is_written_down(names, trained):
    _, run = load_run(trained[0])
    assert run.identity["config"]["system"]["batch"]["targets"] == "tokens"
    manifest = source_of(config_of(names, "x"), names).grams.manifest
    assert run.identity["vectors"]["content_hash"] == manifest["content_hash"]
    assert "tokenizer" not in run.identity


def test_another_run_s_encoder_is_a_start_for_vectors_of_its_width(
    names, trained, tmp_path, on_one_device
):
    config = dataclasses.replace(config_of(names, tmp_path / "on"), start=str(trained[0]))
    result = train(config, source_of(config, names))
    assert result.steps == STEPS
    tiny_vectors(tmp_path / "wide", width=13)
    wide = config_of(names, tmp_path / "no", model={"init": str(tmp_path / "wide")})
    wide = dataclasses.replace(wide, start=str(trained[0]))
    with pytest.raises(
        BadInput, match="found vectors of width 13, but the run to start from has 12"
    ):
        train(wide, source_of(wide, names))


def test_other_vectors_are_another_run(names, trained, tmp_path, on_one_device):
    tiny_vectors(tmp_path / "words", "words")
    other = config_of(names, trained[0], model={"init": str(tmp_path / "words")})
    with pytest.raises(BadInput, match="content_hash"):
        train(other, source_of(other, names))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": NameModel(init="x", dropout=1.0)}, "dropout is 1.0; it must be"),
        ({"model": NameModel(init="x", hidden=0)}, "hidden is 0; it must be at least 1"),
        ({"synonym_weight": -1.0}, "none may be below 0"),
        (dict.fromkeys(("synonym_weight", "concept_weight", "context_weight"), 0.0), "one must be"),
    ],
)
def test_values_that_cannot_be_used_are_said(changes, message):
    system = BneSystem(**({"model": NameModel(init="x")} | changes))
    with pytest.raises(BadInput, match=message):
        system.validate(bne().optimizer)


def test_without_vectors_of_words_nothing_begins(tmp_path):
    with pytest.raises(BadInput, match="found no --init; expected the folder of vectors of words"):
        BneSystem(model=NameModel()).open(tmp_path, StepCut(), rows=0, steps=1)
