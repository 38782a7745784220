"""A run that begins with the encoder of another run: `--init RUN`."""

import copy
import dataclasses
import shutil

import jax
import numpy as np
import pytest
from short_run import Stops, config, one_device

from coder_jax.runs.checkpoint_reader import read_params, saved_steps
from coder_jax.runs.folder import read_identity
from coder_jax.systems.finished_run import load_run
from coder_jax.training import start as start_module
from coder_jax.training.start import read_other_run
from coder_jax.training.train import train
from data_pipeline.files.identity import RUN, write_identity
from data_pipeline.process.errors import BadInput


@pytest.fixture(scope="module")
def first(model, source, tmp_path_factory):
    """The folder of a run of six steps."""
    out = tmp_path_factory.mktemp("runs") / "first"
    with one_device():
        train(config(model, out), source)
    return out


def with_pooling(whole, pooling):
    model = dataclasses.replace(whole.system.model, pooling=pooling)
    return dataclasses.replace(whole, system=dataclasses.replace(whole.system, model=model))


def test_it_has_the_encoder_and_what_belongs_to_it(first, source, tmp_path, capsys):
    system = with_pooling(config(first, tmp_path), "mean").system.decided()
    about, params = system.start(source)
    assert set(params) == {"encoder"}, "what was learnt beside it is new"
    trained = read_params(first, 6)["encoder"]
    jax.tree.map(np.testing.assert_array_equal, params["encoder"], trained)
    there = read_identity(first)["start"]["encoder"]
    assert there.pop("weights_hash"), "that is of the encoder with which the first run began"
    assert {name: about["encoder"][name] for name in there} == there
    assert "weights_hash" not in about["encoder"]
    assert about["encoder"]["license"] == "mit" and about["encoder"]["run"]["step"] == 6
    said = capsys.readouterr().out
    assert f"{first} has pooling cls, this run has mean" in said
    assert f"starting with the encoder of step 6 of {first}" in said


def test_a_run_with_it_is_trained_told_and_gone_on_with(first, source, tmp_path):
    out = tmp_path / "second"
    with one_device():
        with pytest.raises(ConnectionError):  # before its first checkpoint
            train(config(first, out), Stops(source, after=0))
        train(config(first, out), source)
    system, run = load_run(out)
    assert system.trained(run).card["base_model"] is None, "the base is that of the first run"
    assert read_identity(out)["config"]["system"]["model"]["init"] == str(first)


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--init", "--from"])
def test_a_run_stopped_before_its_first_checkpoint_begins_with_the_same_step_again(
    flag, first, model, source, tmp_path
):
    """Also when the other run has saved meanwhile, and was made longer for it."""
    other, out = tmp_path / "other", tmp_path / "second"
    shutil.copytree(first, other)
    begun = config(other if flag == "--init" else model, out)
    begun = dataclasses.replace(begun, start="" if flag == "--init" else str(other))
    with one_device():
        with pytest.raises(ConnectionError):
            train(begun, Stops(source, after=0))
        start = read_identity(out)["start"]
        shorter = config(model, other, extend=True)
        nine_steps = dataclasses.replace(shorter.optimizer, steps=9)
        train(dataclasses.replace(shorter, optimizer=nine_steps), source)
        train(begun, source)
    told = start["encoder"]["run"] if flag == "--init" else start["from"]
    assert told["step"] == 6 and saved_steps(other)[-1] == 9
    assert read_identity(out)["start"] == start
    with pytest.raises(BadInput, match=f"{flag} .*begins with its checkpoint of step 4, which is"):
        read_other_run(flag, str(other), best=False, noted={"step": 4})


def test_all_hosts_begin_with_the_step_that_the_first_one_sees(first, source, monkeypatch):
    monkeypatch.setattr(start_module, "first_decides", lambda own: 3 if own == 6 else own)
    about, params = config(first, "x").system.decided().start(source)
    assert about["encoder"]["run"]["step"] == 3
    trained = read_params(first, 3)["encoder"]
    jax.tree.map(np.testing.assert_array_equal, params["encoder"], trained)


def test_what_cannot_be_begun_with_is_refused(first, source, tmp_path):
    system = config(first, tmp_path).system.decided()
    other = Stops(source, after=99)
    tokenizer = source.manifest["tokenizer"] | {"hash": "f" * 64}
    other.manifest = source.manifest | {"tokenizer": tokenizer}
    with pytest.raises(BadInput, match="build the dataset with that run's tokenizer"):
        system.start(other)
    identity = read_identity(first)
    for name, parts, message in (
        ("no checkpoint", {}, "has no checkpoint yet; train it first"),
        ("no encoder", {"start": {"width": 8}}, "which trains no BERT; expected a model folder"),
    ):
        (tmp_path / name).mkdir()
        write_identity(tmp_path / name / RUN.file, RUN, {**identity, **parts})
        with pytest.raises(BadInput, match=message):
            config(tmp_path / name, tmp_path / "x").system.decided().start(source)
    spoiled = copy.deepcopy(identity)
    spoiled["config"]["system"]["model"] = None
    shutil.copytree(first, tmp_path / "spoiled")
    write_identity(tmp_path / "spoiled" / RUN.file, RUN, spoiled)
    with pytest.raises(BadInput, match="config.system.model is null; expected"):
        config(tmp_path / "spoiled", tmp_path / "x").system.decided().start(source)
