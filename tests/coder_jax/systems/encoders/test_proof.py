"""A run proves what leaves it: what is read otherwise than it was trained is refused."""

import dataclasses

import msgspec
import numpy as np
import pytest
from short_run import assert_same_parameters, config, one_device
from tiny_run import SPEC, write_tiny_dataset

import coder_jax.systems.trained_models
import coder_jax.training.checkpoints
from coder_jax.__main__ import main
from coder_jax.devices.mesh import make_mesh, step_cut
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.models.hf_weights import load_bert
from coder_jax.systems.coder import CoderSystem
from coder_jax.systems.encoder_system import _trained_settings, interpolated
from coder_jax.systems.trained_models import load_run
from coder_jax.training.checkpoints import read_notes, read_params
from coder_jax.training.start import load_start
from coder_jax.training.system import Notes
from coder_jax.training.train import train
from data_pipeline.batches.batch_maker import BatchMaker
from data_pipeline.dataset.store import open_dataset
from data_pipeline.dataset.tokenizer import load_tokenizer
from data_pipeline.process import BadInput

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(model, source, tmp_path_factory):
    """The folder of a run of six steps."""
    out = tmp_path_factory.mktemp("runs") / "run"
    with one_device():
        train(config(model, out), source)
    return out


def swapped(out, step):
    """As `read_params`, with the layers in another order."""
    params = read_params(out, step)
    layers = params["encoder"]["layers"]
    turned = dict(zip(layers, [*layers.values()][::-1], strict=True))
    return {**params, "encoder": {**params["encoder"], "layers": turned}}


def test_a_run_keeps_what_training_gives(model, trained):
    notes = read_notes(trained, 6)
    assert len(notes.proof.terms) == 16 and notes.proof_of_start.terms == notes.proof.terms
    _, run = load_run(trained)
    bert, tokenizer = load_bert(model)[0], load_tokenizer(model)
    start = TermEncoder(bert, tokenizer, _trained_settings(run)).encode(notes.proof_of_start.terms)
    np.testing.assert_allclose(notes.proof_of_start.outputs["vectors"], start, rtol=0, atol=1e-6)
    moved = np.array(notes.proof.outputs["vectors"]) - start
    assert np.abs(moved).max() > 1e-3, "or nothing was proved of training"


def test_layers_in_another_order_are_refused_by_who_reads_a_run(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(coder_jax.systems.trained_models, "read_params", swapped)
    with pytest.raises(BadInput, match="step 6 of .* gives other vectors than training gave"):
        load_run(trained)
    words = ["export", "--checkpoint", trained, "--out", tmp_path / "export"]
    assert main(list(map(str, words))) == 2
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize("how", ["from", "init"])
def test_and_by_who_begins_with_it(model, source, trained, tmp_path, monkeypatch, how):
    other = config(trained if how == "init" else model, tmp_path / "other")
    other = dataclasses.replace(
        other, system=other.system.resolved(), start=str(trained) if how == "from" else ""
    )
    assert load_start(other, source)[1]
    monkeypatch.setattr(coder_jax.training.checkpoints, "read_params", swapped)
    with pytest.raises(BadInput, match="the run to start from gives other vectors than training"):
        load_start(other, source)


def test_both_ends_of_an_interpolation(trained):
    system, run = load_run(trained)
    interpolated(system, run, 0.5)
    notes = msgspec.structs.replace(run.notes, proof_of_start=run.notes.proof)
    with pytest.raises(BadInput, match="--interpolate: .* gives other vectors than training gave"):
        interpolated(system, dataclasses.replace(run, notes=notes), 0.5)


def test_an_export_is_compared_with_training_and_not_only_with_itself(trained, tmp_path):
    system, run = load_run(trained)
    proof = run.notes.proof
    other = np.roll(proof.outputs["vectors"], 1, axis=0).tolist()
    notes = Notes(proof=dataclasses.replace(proof, outputs={"vectors": other}))
    with pytest.raises(RuntimeError, match="differ from the trained one's by"):
        system.export(dataclasses.replace(run, notes=notes), tmp_path / "export")
    assert not (tmp_path / "export").exists()


def test_nothing_of_training_changes_and_runs_without_a_proof_are_read(
    model, source, trained, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(CoderSystem, "proof", lambda *_: None)
    out = tmp_path / "run"
    with one_device():
        train(config(model, out), source)
    for step in (3, 6):
        assert_same_parameters(read_params(out, step), read_params(trained, step))
    capsys.readouterr()
    words = ["export", "--checkpoint", out, "--out", tmp_path / "export"]
    assert main(list(map(str, words))) == 0
    assert "was saved by a version that kept no proof" in capsys.readouterr().err


def test_over_all_devices(model, tmp_path):
    """The encoder is spread over eight devices; float32, whatever training computes in."""
    write_tiny_dataset(tmp_path / "data", model)
    plain = config(model, tmp_path / "run", shard_encoder=True, save_steps=1)
    batch = dataclasses.replace(plain.system.batch, groups=SPEC.groups)
    encoder = dataclasses.replace(plain.system.model, dtype="bfloat16")
    short = dataclasses.replace(
        plain,
        system=dataclasses.replace(plain.system, batch=batch, model=encoder),
        optimizer=dataclasses.replace(plain.optimizer, steps=2, warmup_steps=1),
    )
    source = BatchMaker(
        open_dataset(tmp_path / "data"), batch, step_cut(make_mesh(batch.groups), 1), run_steps=2
    )
    train(short, source)
    _, run = load_run(tmp_path / "run")
    assert len(run.notes.proof.terms) == 16
