"""An encoder between start and end, and the mean of checkpoints, as `export` makes them."""

import dataclasses
import shutil

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from short_run import config, one_device

from coder_jax.__main__ import main
from coder_jax.models.bert import split_encoder
from coder_jax.models.hf_weights import load_bert
from coder_jax.runs.checkpoint_reader import read_params, saved_steps
from coder_jax.systems.encoders.blend import averaged, interpolated
from coder_jax.systems.finished_run import load_run
from coder_jax.training.train import train
from data_pipeline.process.errors import BadInput


@pytest.fixture(scope="module")
def trained(model, source, tmp_path_factory):
    """The folder of a run of six steps with the checkpoints 2, 4 and 6."""
    out = tmp_path_factory.mktemp("runs") / "run"
    with one_device():
        train(config(model, out, save_steps=2), source)
    assert saved_steps(out) == [2, 4, 6]
    return out


def arrays(tree, name=""):
    """Each array by its name."""
    if not isinstance(tree, dict):
        return {name: np.asarray(tree)}
    return {k: v for part in tree for k, v in arrays(tree[part], f"{name}.{part}").items()}


def close(got, want):
    got, want = arrays(got), arrays(want)
    assert got.keys() == want.keys()
    for name in got:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("weight", [0.0, 0.25, 1.0])
def test_between_start_and_end(model, trained, weight):
    system, run = load_run(trained)
    start, end = arrays(split_encoder(load_bert(model)[0])[1]), arrays(run.params["encoder"])
    assert any((start[name] != end[name]).any() for name in end)
    mixed = interpolated(system, run, weight)
    found = arrays(mixed.params["encoder"])
    assert found.keys() == start.keys()
    for name, array in found.items():
        wanted = weight * end[name] + (1 - weight) * start[name]
        np.testing.assert_allclose(array, wanted, rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(mixed.params["relations"], run.params["relations"])
    rest = f"{1 - weight:g}"
    assert mixed.weights == f"{weight:g} x trained + {rest} x initial encoder"


@pytest.mark.parametrize("steps", [(4, 6), (2, 4, 6), (2, 4)])
def test_the_mean_of_checkpoints(trained, steps):
    system, run = load_run(trained, steps[-1])
    mean = averaged(trained, run, len(steps))
    encoders = [read_params(trained, step)["encoder"] for step in steps]
    close(mean.params["encoder"], jax.tree.map(lambda *a: np.mean(a, axis=0), *encoders))
    assert mean.weights == f"the mean of steps {', '.join(map(str, steps))}"
    np.testing.assert_array_equal(mean.params["relations"], run.params["relations"])
    both = interpolated(system, mean, 0.5)
    assert both.weights.endswith("; of that 0.5 x trained + 0.5 x initial encoder")


def test_export_has_it_and_tells_it(trained, tmp_path, capsys):
    out = tmp_path / "export"
    words = ["export", "--checkpoint", trained, "--out", out, "--average", 2, "--interpolate", 0.7]
    assert main(list(map(str, words))) == 0
    said = capsys.readouterr().out
    told = "the mean of steps 4, 6; of that 0.7 x trained + 0.3 x initial encoder"
    assert f"step 6 ({told}) exported" in said
    card = (out / "README.md").read_text()
    assert f"| weights | {told} |" in card
    assert "held-out terms, step" not in card, "the scores are those of the run's own encoder"
    system, run = load_run(trained)
    wanted = interpolated(system, averaged(trained, run, 2), 0.7).params["encoder"]
    close(split_encoder(load_bert(out)[0])[1], wanted)


@pytest.mark.parametrize("checkpoints", [1, 4])
def test_checkpoints_that_are_not_there(trained, checkpoints):
    with pytest.raises(BadInput, match=f"--average {checkpoints}: .* has the checkpoints 2, 4, 6;"):
        averaged(trained, load_run(trained)[1], checkpoints)


@pytest.mark.parametrize("weight", [-0.1, 1.5])
def test_a_weight_that_is_none(trained, weight):
    with pytest.raises(BadInput, match="expected the trained encoder's weight, 0 to 1"):
        interpolated(*load_run(trained), weight)


def test_a_start_that_has_changed_or_was_a_run(model, trained, tmp_path):
    system, run = load_run(trained)
    other = shutil.copytree(model, tmp_path / "bert")
    text = (other / "config.json").read_text()
    (other / "config.json").write_text(text.replace('"hidden_act": "gelu"', '"hidden_act": "relu"'))
    moved = dataclasses.replace(system.model, init=str(other))
    with pytest.raises(BadInput, match="another encoder than when the run began"):
        interpolated(dataclasses.replace(system, model=moved), run, 0.5)
    other = shutil.copytree(model, tmp_path / "of_other_weights")
    tensors = load_file(other / "model.safetensors")
    name = min(tensors)
    save_file({**tensors, name: tensors[name] + 1}, other / "model.safetensors")
    moved = dataclasses.replace(system.model, init=str(other))
    with pytest.raises(BadInput, match="has other weights than when the run began"):
        interpolated(dataclasses.replace(system, model=moved), run, 0.5)
    start = {**run.identity["start"], "from": {"folder": "runs/other", "step": 3}}
    begun = dataclasses.replace(run, identity={**run.identity, "start": start})
    with pytest.raises(BadInput, match="the run began with what another run had learnt"):
        interpolated(system, begun, 0.5)


def test_a_head_that_would_not_fit(trained):
    system, run = load_run(trained)
    headed = dataclasses.replace(run, params={**run.params, "classes": np.zeros((2, 3))})
    with pytest.raises(BadInput, match="--interpolate: the run trained classes for its own encod"):
        interpolated(system, headed, 0.5)
    with pytest.raises(BadInput, match="--average: the run trained classes for its own encoder"):
        averaged(trained, headed, 2)
