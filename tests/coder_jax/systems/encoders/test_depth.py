"""An encoder of any depth leaves its run as it is there: start, export and every reader of a run.

Names of layers are integers; as text "10" comes before "2", which only encoders of eleven layers or
more can show.
"""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny_bert
import tiny_modernbert
import tiny_roberta
import torch
from short_run import Stops, config, one_device
from tiny_bert import TERMS
from tiny_run import dataset_for
from transformers import AutoModel, AutoTokenizer

from coder_jax.devices.mesh import make_mesh
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.export.folder import transformers_vectors
from coder_jax.models.bert import merge_encoder, split_encoder
from coder_jax.models.hf_files import EncoderSettings
from coder_jax.models.hf_weights import load_bert, to_hf
from coder_jax.report.build import _load_subject
from coder_jax.systems.coder import CoderSystem
from coder_jax.systems.encoder_system import EncoderOfRun, _trained_settings, averaged, interpolated
from coder_jax.systems.trained_models import load_run
from coder_jax.training.checkpoints import read_params
from coder_jax.training.start import load_start
from coder_jax.training.state import _place_read
from coder_jax.training.system import StepKey
from coder_jax.training.train import train
from data_pipeline.batches.batch_maker import BatchMaker
from data_pipeline.batches.spec import BatchSpec, RowPlan
from data_pipeline.dataset.tokenizer import load_tokenizer
from data_pipeline.process import BadInput

# Depths that are used, of 11 layers and more; XLM-R has BERT's layers.
ENCODERS = (
    "bert-12",
    pytest.param("bert-24", marks=pytest.mark.slow),
    pytest.param("xlm-roberta-12", marks=pytest.mark.slow),
    pytest.param("modernbert-24", marks=pytest.mark.slow),
)
SPEC = BatchSpec(groups=1, triplets=2, repeats=2, row_length=32)
ARCHITECTURES = {
    "bert": tiny_bert.write_model,
    "xlm-roberta": tiny_roberta.write_model,
    "modernbert": tiny_modernbert.write_model,
}
STILL = 1e-12  # a learning rate by which no vector moves


class Trained(NamedTuple):
    """A run that has moved nothing, and what it began with."""

    model: Path
    out: Path
    source: Any
    start: np.ndarray
    """The vectors of TERMS before training."""


def settings_of(source) -> EncoderSettings:
    length = source.manifest.tokenizer.max_length
    return EncoderSettings(pooling="cls", cleaning=source.manifest.cleaning, max_length=length)


def still(model: Path, out: Path):
    """The configuration of two steps that move nothing."""
    plain = config(model, out, save_steps=1)
    encoder = dataclasses.replace(plain.system.model, dropout=0.0, dtype="float32")
    return dataclasses.replace(
        plain,
        system=dataclasses.replace(plain.system, batch=SPEC, model=encoder),
        optimizer=dataclasses.replace(
            plain.optimizer, steps=2, learning_rate=STILL, warmup_steps=1
        ),
    )


@contextlib.contextmanager
def quick_loss() -> Iterator[None]:
    """A loss that reads no terms: the gradients of many layers take minutes to compile."""

    def loss(system, about, mesh, *, dropout=True):
        def of_pass(params, extra, batch, step_key):
            return sum(jnp.sum(array) for array in jax.tree.leaves(params)), (extra, {})

        return of_pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CoderSystem, "loss", loss)
        yield


def source_of(model: Path) -> BatchMaker:
    maker = BatchMaker(dataset_for(model, model.parent / "dataset"), SPEC)
    maker.plan = RowPlan((maker.plan.ample,))
    return maker


@pytest.fixture(scope="module", params=ENCODERS)
def trained(request, tmp_path_factory):
    """A run of each architecture and depth, for all readers."""
    name, layers = request.param.rsplit("-", 1)
    model = tmp_path_factory.mktemp(request.param) / "model"
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    ARCHITECTURES[name](model, num_hidden_layers=int(layers), **sizes)
    source, out = source_of(model), model.parent / "run"
    bert, _, _ = load_bert(model)
    assert len(bert.layers) == int(layers)
    tokenizer, settings = load_tokenizer(model), settings_of(source)
    before = TermEncoder(bert, tokenizer, settings).encode(TERMS)
    structure, params = split_encoder(bert)
    as_text = sorted(params["layers"], key=str)
    other = {i: params["layers"][of] for i, of in enumerate(as_text)}
    scrambled = merge_encoder(structure, {**params, "layers": other})
    moved = TermEncoder(scrambled, tokenizer, settings).encode(TERMS) - before
    assert np.abs(moved).max() > 0.01, "the order of layers shows, or the tests could not fail"
    with one_device(), quick_loss():
        train(still(model, out), source)
    return Trained(model, out, source, before)


def assert_start(trained: Trained, encoder: TermEncoder) -> None:
    np.testing.assert_allclose(encoder.encode(TERMS), trained.start, rtol=0, atol=1e-6)


def test_export(trained, tmp_path):
    system, run = load_run(trained.out)
    assert max(system.export(run, tmp_path / "export").values()) < 1e-5
    assert_start(trained, TermEncoder.from_pretrained(tmp_path / "export"))
    start, end = to_hf(load_bert(trained.model)[0]), to_hf(load_bert(tmp_path / "export")[0])
    assert start.keys() == end.keys()
    for name, array in start.items():
        np.testing.assert_allclose(end[name], array, rtol=0, atol=1e-8, err_msg=name)


def test_report_and_what_reads_a_run(trained):
    assert_start(trained, _load_subject("run", str(trained.out)).encoder)


@pytest.mark.slow
def test_mixtures_of_checkpoints(trained):
    system, run = load_run(trained.out)
    mixed = [interpolated(system, run, weight) for weight in (0.0, 0.5, 1.0)]
    for one in (*mixed, averaged(trained.out, run, 2)):
        assert_start(trained, system.trained(one).encoder)


@pytest.mark.parametrize("how", ["from", "init"])
def test_another_run_begins_with_it(trained, how):
    """What training is given, and what it makes of it."""
    other = still(trained.out if how == "init" else trained.model, trained.out.parent / "other")
    if how == "from":
        other = dataclasses.replace(other, start=str(trained.out))
    about, initial = load_start(other, trained.source)
    structure, like = split_encoder(other.system.structure(about))
    placed = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=jax.sharding.SingleDeviceSharding(jax.devices()[0])
        ),
        like,
    )
    for encoder in (initial["encoder"], _place_read(initial["encoder"], placed)):
        bert = merge_encoder(structure, encoder)
        tokenizer = load_tokenizer(trained.model)
        assert_start(trained, TermEncoder(bert, tokenizer, settings_of(trained.source)))


@pytest.mark.slow
def test_parameters_are_read_as_they_were_saved(trained):
    system, run = load_run(trained.out)
    shapes = system.shapes(run.described(system.content).start)[0]
    assert jax.tree.structure(run.params) == jax.tree.structure(shapes)
    layers = range(len(load_bert(trained.model)[0].layers))
    assert list(read_params(trained.out, 1)["encoder"]["layers"]) == list(layers)


# -------------------------------------------------------------------------------------------------
# A run with the first layers of an encoder: `--layers N`.


def with_layers(whole, layers):
    model = dataclasses.replace(whole.system.model, layers=layers)
    return dataclasses.replace(whole, system=dataclasses.replace(whole.system, model=model))


def first_by_transformers(model: Path, export: Path, layers: int) -> np.ndarray:
    """[CLS] of the first layers of a model, for TERMS as the tokenizer of an export has them."""
    whole = AutoModel.from_pretrained(model).eval()
    owner, name = (whole.encoder, "layer") if hasattr(whole, "encoder") else (whole, "layers")
    setattr(owner, name, getattr(owner, name)[:layers])
    tokenizer = AutoTokenizer.from_pretrained(export)
    batch = tokenizer(TERMS, padding=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        cls = whole(**batch).last_hidden_state[:, 0].numpy()
    return cls / np.linalg.norm(cls, axis=1, keepdims=True)


@pytest.mark.slow
def test_the_first_layers_are_trained_proved_and_exported(trained, tmp_path):
    """Seven: the last of them is a global one of ModernBERT's; it stops after its first step."""
    out, export = tmp_path / "run", tmp_path / "export"
    begun = with_layers(still(trained.model, out), 7)
    with one_device(), quick_loss():
        with pytest.raises(ConnectionError):
            train(begun, Stops(trained.source, after=1))
        train(begun, trained.source)
    system, run = load_run(out)
    assert system.model.layers == run.identity["config"]["system"]["model"]["layers"] == 7
    assert list(run.params["encoder"]["layers"]) == list(range(7))
    assert max(system.export(run, export).values()) < 1e-5
    assert json.loads((export / "config.json").read_text())["num_hidden_layers"] == 7
    assert "| layers | 7, the first ones of the start |" in (export / "README.md").read_text()
    wanted = first_by_transformers(trained.model, export, 7)
    for found in (
        transformers_vectors(export, TERMS, settings_of(trained.source)),
        TermEncoder.from_pretrained(export).encode(TERMS),
        system.trained(run).encoder.encode(TERMS),
        system.trained(interpolated(system, run, 0.5)).encoder.encode(TERMS),
    ):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    assert np.abs(wanted - trained.start).max() > 0.01, "the other layers matter"


@pytest.mark.parametrize("how", ["from", "init"])
def test_the_first_layers_of_another_run(trained, how):
    other = still(trained.out if how == "init" else trained.model, trained.out.parent / "other")
    other = dataclasses.replace(other, start=str(trained.out) if how == "from" else "")
    about, initial = load_start(with_layers(other, 3), trained.source)
    assert about.encoder.config["num_hidden_layers"] == 3
    structure, like = split_encoder(other.system.structure(about))
    assert jax.tree.structure(like) == jax.tree.structure(initial["encoder"])
    found = TermEncoder(
        merge_encoder(structure, initial["encoder"]),
        load_tokenizer(trained.model),
        settings_of(trained.source),
    )
    bert, _, report = load_bert(trained.model, layers=3)
    assert report.source == f"{trained.model}, layers 1 to 3" and not report.only_in_file
    wanted = TermEncoder(bert, load_tokenizer(trained.model), settings_of(trained.source))
    np.testing.assert_allclose(found.encode(TERMS), wanted.encode(TERMS), rtol=0, atol=1e-6)


@pytest.mark.parametrize("how", ["from", "init", "file"])
def test_more_layers_than_there_are_are_refused(trained, how):
    there = len(load_bert(trained.model)[0].layers)
    other = still(trained.out if how == "init" else trained.model, trained.out.parent / "other")
    other = dataclasses.replace(other, start=str(trained.out) if how == "from" else "")
    with pytest.raises(BadInput, match=f"--layers 99: .* has {there} layers; expected at most so"):
        load_start(with_layers(other, 99), trained.source)
    fewer = with_layers(other, -1)
    with pytest.raises(BadInput, match="--layers is -1; expected 0 or more"):
        fewer.system.validate(fewer.optimizer)


@pytest.mark.slow
def test_twelve_layers_as_by_hand(tmp_path):
    """Three steps of a run, and the same in plain JAX from the weights of the file."""
    model = tmp_path / "model"
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    tiny_modernbert.write_model(model, num_hidden_layers=12, **sizes)
    source = source_of(model)
    plain = still(model, tmp_path / "run")
    optimizer = dataclasses.replace(
        plain.optimizer, steps=3, learning_rate=1e-3, schedule="constant", clip_norm=0.0
    )
    short = dataclasses.replace(plain, optimizer=optimizer)
    with one_device():
        train(short, source)

    bert, hf_config, _ = load_bert(model)
    structure, encoder = split_encoder(bert)
    system = short.system
    about = system.content.start_of(
        EncoderOfRun(config=hf_config, pooler=False, license=None), source.manifest
    )
    shapes, _ = system.shapes(about)
    begun = system.init_params({name: shapes[name] for name in shapes if name != "encoder"}, {})[0]
    assert begun.keys() == {"relations"}
    params = {"encoder": encoder, **begun}
    loss = system.loss(about, make_mesh(1, jax.devices()[:1]))
    # Rises over one step, then stays; the relations do not decay.
    rate = optax.join_schedules([lambda _: 5e-4, lambda _: 1e-3], [1])
    gradient = jax.jit(
        jax.grad(lambda params, batch, step_key: loss(params, {}, batch, step_key)[0])
    )
    by_hand = optax.adamw(
        rate,
        weight_decay=optimizer.weight_decay,
        mask=lambda tree: {
            "encoder": jax.tree.map(lambda array: array.ndim >= 2, tree["encoder"]),
            "relations": False,
        },
    )
    state = by_hand.init(params)
    for step, batch in enumerate(source.batches(0, 3)):
        one_pass = {name: array[0] for name, array in batch.items()}
        updates, state = by_hand.update(gradient(params, one_pass, StepKey(step, 0)), state, params)
        params = optax.apply_updates(params, updates)
    trained_system, run = load_run(tmp_path / "run")
    settings = _trained_settings(run)
    wanted = TermEncoder(
        merge_encoder(structure, params["encoder"]), load_tokenizer(model), settings
    )
    found = trained_system.trained(run).encoder.encode(TERMS)
    np.testing.assert_allclose(found, wanted.encode(TERMS), rtol=0, atol=1e-5)
    before = TermEncoder(bert, load_tokenizer(model), settings).encode(TERMS)
    assert np.abs(found - before).max() > 1e-3
