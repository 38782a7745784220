"""A run that begins with the encoder of another run: `--init RUN`."""

import copy
import dataclasses
import importlib.util
import json
import shutil

import jax
import msgspec
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from short_run import Stops, config, one_device, source_for
from tiny_bert import write_model

from coder_jax.__main__ import main
from coder_jax.export import folder as folder_module
from coder_jax.models.bert import split_encoder
from coder_jax.models.hf_weights import load_bert
from coder_jax.systems import encoder_system
from coder_jax.systems.encoder_system import (
    _tell_of_pooling,
    averaged,
    interpolated,
    is_made,
    remove_rows,
    write_rows,
)
from coder_jax.systems.recipes import _SYSTEMS
from coder_jax.systems.trained_models import load_run
from coder_jax.training import checkpoints
from coder_jax.training import start as start_module
from coder_jax.training import train as train_module
from coder_jax.training.checkpoints import read_params, saved_steps
from coder_jax.training.run_folder import CarriedFrom, read_run_identity
from coder_jax.training.start import read_other_run
from coder_jax.training.system import System
from coder_jax.training.train import train
from data_pipeline.files.identity import RUN, write_identity
from data_pipeline.process import BadInput


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


@pytest.mark.slow
def test_it_has_the_encoder_and_what_belongs_to_it(first, source, tmp_path, capsys):
    system = with_pooling(config(first, tmp_path), "mean").system.resolved()
    about, params = system.load_initial(source)
    assert set(params) == {"encoder"}, "what was learnt beside it is new"
    trained = read_params(first, 6)["encoder"]
    jax.tree.map(np.testing.assert_array_equal, params["encoder"], trained)
    there = read_run_identity(first)["start"]["encoder"]
    assert there.pop("weights_hash"), "that is of the encoder with which the first run began"
    told = msgspec.to_builtins(about.encoder)
    assert {name: told[name] for name in there} == there
    assert "weights_hash" not in told
    assert told["license"] == "mit" and told["run"]["step"] == 6
    said = capsys.readouterr().out
    assert f"{first} has pooling cls, this run has mean" in said
    assert f"starting with the encoder of step 6 of {first}" in said


@pytest.mark.parametrize(
    ("stated", "made_from"),
    [("org/base", "org/base"), ("\n- org/base", "org/base"), ("[org/a, org/b]", None)],
)
def test_the_card_names_the_base_of_a_folder_that_was_made_from_one(
    stated, made_from, model, source, tmp_path
):
    folder = shutil.copytree(model, tmp_path / "extended")
    (folder / "README.md").write_text(f"---\nlicense: mit\nbase_model: {stated}\n---\n")
    about, _ = config(folder, tmp_path).system.resolved().load_initial(source)
    assert (about.encoder.made_from or None, about.encoder.base_model) == (made_from, "./extended")


@pytest.mark.slow
def test_a_run_with_it_is_trained_told_and_gone_on_with(first, source, tmp_path):
    out = tmp_path / "second"
    with one_device():
        with pytest.raises(ConnectionError):  # before its first checkpoint
            train(config(first, out), Stops(source, after=0))
        train(config(first, out), source)
    system, run = load_run(out)
    assert system.trained(run).card["base_model"] is None, "the base is that of the first run"
    assert read_run_identity(out)["config"]["system"]["model"]["init"] == str(first)


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
        start = read_run_identity(out)["start"]
        shorter = config(model, other, extend=True)
        nine_steps = dataclasses.replace(shorter.optimizer, steps=9)
        train(dataclasses.replace(shorter, optimizer=nine_steps), source)
        train(begun, source)
    told = start["encoder"]["run"] if flag == "--init" else start["from"]
    assert told["step"] == 6 and saved_steps(other)[-1] == 9
    assert read_run_identity(out)["start"] == start
    with pytest.raises(BadInput, match=f"{flag} .*begins with its checkpoint of step 4, which is"):
        read_other_run(flag, str(other), best=False, began=CarriedFrom(step=4, run=""))


def test_all_hosts_begin_with_the_step_that_the_first_one_sees(first, source, monkeypatch):
    monkeypatch.setattr(start_module, "first_decides", lambda own: 3 if own == 6 else own)
    about, params = config(first, "x").system.resolved().load_initial(source)
    assert about.encoder.run.step == 3
    trained = read_params(first, 3)["encoder"]
    jax.tree.map(np.testing.assert_array_equal, params["encoder"], trained)


def test_what_cannot_be_begun_with_is_refused(first, source, tmp_path):
    system = config(first, tmp_path).system.resolved()
    other = Stops(source, after=99)
    tokenizer = dataclasses.replace(source.manifest.tokenizer, hash="f" * 64)
    other.manifest = dataclasses.replace(source.manifest, tokenizer=tokenizer)
    with pytest.raises(BadInput, match="build the dataset with that run's tokenizer"):
        system.load_initial(other)
    identity = read_run_identity(first)
    for name, parts, message in (
        ("no checkpoint", {}, "has no checkpoint yet; train it first"),
        ("no encoder", {"start": {"width": 8}}, "which trains no BERT; expected a model folder"),
    ):
        (tmp_path / name).mkdir()
        write_identity(tmp_path / name / RUN.file, RUN, {**identity, **parts})
        with pytest.raises(BadInput, match=message):
            config(tmp_path / name, tmp_path / "x").system.resolved().load_initial(source)
    spoiled = copy.deepcopy(identity)
    spoiled["config"]["system"]["model"] = None
    shutil.copytree(first, tmp_path / "spoiled")
    write_identity(tmp_path / "spoiled" / RUN.file, RUN, spoiled)
    with pytest.raises(BadInput, match="config.system.model is null; expected"):
        config(tmp_path / "spoiled", tmp_path / "x").system.resolved().load_initial(source)


# -------------------------------------------------------------------------------------------------
# The trial of an export, before the first step of a new run.


def broken(error):
    """What opens a folder and fails."""

    def opened(*_, **__):
        raise error

    return opened


def test_what_could_not_be_exported_is_not_trained(model, source, tmp_path, monkeypatch):
    def wrong(folder, terms, settings):
        return np.zeros((len(terms), 32), np.float32)

    for opens, message in (
        (wrong, "could not be exported: RuntimeError: the export opened by transformers gives"),
        (
            broken(TypeError("no such\nkey")),
            "could not be exported: TypeError: no such. This was tried",
        ),
    ):
        monkeypatch.setattr(folder_module, "transformers_vectors", opens)
        with one_device(), pytest.raises(BadInput, match=message):
            train(config(model, tmp_path / "run"), source)
        assert not (tmp_path / "run" / RUN.file).exists()


@pytest.mark.slow
def test_a_run_that_goes_on_was_tried_when_it_began(model, source, tmp_path, monkeypatch):
    opened = []
    real = folder_module.transformers_vectors

    def counted(folder, terms, settings):
        opened.append(len(terms))
        return real(folder, terms, settings)

    monkeypatch.setattr(folder_module, "transformers_vectors", counted)
    with one_device():
        for after in (0, 4):  # before its first checkpoint, and after that
            with pytest.raises(ConnectionError):
                train(config(model, tmp_path / "run"), Stops(source, after=after))
        train(config(model, tmp_path / "run"), source)
    assert len(opened) == 1 and opened[0] < 10


def test_hosts_but_the_first_try_no_export(model, source, tmp_path, monkeypatch):
    monkeypatch.setattr(folder_module, "transformers_vectors", broken(TypeError))
    monkeypatch.setattr(train_module, "is_first", lambda: False)
    monkeypatch.setattr(checkpoints, "_SEEN_WITHIN_SECONDS", 0.1)
    monkeypatch.setattr(checkpoints, "_RELOAD_SECONDS", 0.01)
    with one_device(), pytest.raises(BadInput, match="this host sees no run in"):
        train(config(model, tmp_path / "run"), source)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ImportError("no _lzma"), "not be tried here (ImportError: no _lzma): training goes on"),
        (OSError(28, "No space left on device"), "could not be tried here (OSError: [Errno 28]"),
    ],
)
def test_what_this_machine_lacks_stops_no_training(
    error, said, model, source, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(folder_module, "transformers_vectors", broken(error))
    with one_device(), pytest.raises(ConnectionError):
        train(config(model, tmp_path / "run"), Stops(source, after=0))
    assert said in capsys.readouterr().out


def test_without_pytorch_the_files_are_written_all_the_same(
    model, source, tmp_path, monkeypatch, capsys
):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "torch" else find_spec(name, *rest),
    )
    monkeypatch.setattr(folder_module, "_verify_export", broken(TypeError))
    with one_device(), pytest.raises(ConnectionError):
        train(config(model, tmp_path / "run"), Stops(source, after=0))
    assert "export" not in capsys.readouterr().out
    monkeypatch.setattr(folder_module, "write_model", broken(ValueError("not to be written")))
    with one_device(), pytest.raises(BadInput, match="not to be written. This was tried"):
        train(config(model, tmp_path / "other"), source)


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--init", "--from"])
def test_a_run_to_begin_with_is_tried(flag, first, model, source, tmp_path, monkeypatch):
    begun = config(first if flag == "--init" else model, tmp_path / "run")
    begun = dataclasses.replace(begun, start="" if flag == "--init" else str(first))
    with one_device(), pytest.raises(ConnectionError):
        train(begun, Stops(source, after=0))
    shutil.rmtree(tmp_path / "run")
    monkeypatch.setattr(folder_module, "transformers_vectors", broken(TypeError("tried")))
    with one_device(), pytest.raises(BadInput, match="could not be exported: TypeError: tried"):
        train(begun, source)


# -------------------------------------------------------------------------------------------------
# An encoder between start and end, and the mean of checkpoints, as `export` makes them.


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
    start = {**run.identity["start"], "from": {"run": "0" * 64, "step": 3}}
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


# -------------------------------------------------------------------------------------------------
# Rows made in chunks: stopped, gone on with, and by a device that makes another number at once.


class Fails(Exception):
    """In the middle of the work."""


def rows_of(path, chunk, *, fail_at=None, provenance="these"):
    """The array that is written, and the bounds of the chunks that were made."""
    made = []

    def make(first, last):
        if first == fail_at:
            raise Fails
        made.append((first, last))
        return np.arange(2 * first, 2 * last).reshape(-1, 2)

    try:
        write_rows(path, 10, make, chunk=chunk, provenance=provenance, what="rows")
    except Fails:
        return None, made
    return np.load(path), made


@pytest.mark.parametrize(
    ("chunk", "about", "made"),
    [
        (4, "these", [(8, 10)]),
        (4, "others", [(0, 4), (4, 8), (8, 10)]),
        (5, "these", [(0, 5), (5, 10)]),
        (3, "these", [(0, 3), (3, 6), (6, 9), (9, 10)]),
    ],
)
def test_it_goes_on_with_what_is_of_the_same(tmp_path, chunk, about, made):
    path = tmp_path / "rows.npy"
    assert rows_of(path, 4, fail_at=8) == (None, [(0, 4), (4, 8)])
    rows, again = rows_of(path, chunk, provenance=about)
    assert again == made
    np.testing.assert_array_equal(rows, np.arange(20).reshape(10, 2))
    assert set(tmp_path.iterdir()) == {path, tmp_path / "rows.npy.about"}, "chunks are gone"
    assert rows_of(path, chunk, provenance=about)[1] == [], "what is there is not made again"
    assert len(rows_of(path, chunk, provenance="still others")[1]) == -(-10 // chunk)
    remove_rows(path, tmp_path / "never_made.npy")
    assert not list(tmp_path.iterdir())


def test_what_is_left_of_chunks_goes(tmp_path):
    """A kill while they are removed."""
    path = tmp_path / "rows.npy"
    rows_of(path, 10)
    left = tmp_path / ".rows.npy.chunks"
    left.mkdir()
    assert not is_made(path, "others", 10) and left.exists()
    assert is_made(path, "these", 10) and not left.exists()


def test_a_host_that_does_not_see_the_folder_stops(tmp_path, monkeypatch):
    """As the second of two with an --out in a bucket, of which each has a copy."""
    monkeypatch.setattr(encoder_system, "is_first", lambda: False)
    with pytest.raises(BadInput, match="this host does not see .* not in a bucket"):
        rows_of(tmp_path / "rows.npy", 10)


def test_a_whole_file_is_known_by_its_note_alone(tmp_path):
    """A kill before the note is written, or the file of an older version: it is made anew."""
    path = tmp_path / "rows.npy"
    rows_of(path, 10)
    (tmp_path / "rows.npy.about").unlink()
    assert rows_of(path, 10)[1] == [(0, 10)]


def test_no_system_is_more_than_three_classes_deep():
    for system in _SYSTEMS.values():
        chain = [one for one in system.__mro__ if issubclass(one, System)]
        assert len(chain) <= 3, " > ".join(one.__name__ for one in reversed(chain))


def test_capitals_that_are_made_small_are_told_by_the_first_host(tmp_path, capsys, monkeypatch):
    write_model(tmp_path / "bert", more=["Heart"])
    source = source_for(tmp_path / "bert")
    system = config(tmp_path / "bert", tmp_path / "run").system.resolved()
    for times in (1, 0):
        system.load_initial(source)
        assert capsys.readouterr().err.count("have capitals (such as Heart)") == times
        monkeypatch.setattr(encoder_system, "is_first", lambda: False)


def test_an_encoder_that_makes_vectors_otherwise_is_told(tmp_path, capsys):
    folder = tmp_path / "bert"
    (folder / "1_Pooling").mkdir(parents=True)

    def told(*types):
        modules = [
            {"type": f"sentence_transformers.models.{name}", "path": path}
            for name, path in zip(types, ("", "1_Pooling", "2_Dense"), strict=False)
        ]
        (folder / "modules.json").write_text(json.dumps(modules))
        _tell_of_pooling(folder, "cls")
        return capsys.readouterr().out

    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    line = "bert has pooling mean, this run has pooling cls (--pooling)"
    assert line in told("Transformer", "Pooling")
    assert "Dense" in told("Transformer", "Pooling", "Dense")
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "cls"}')
    assert told("Transformer", "Pooling") == ""
