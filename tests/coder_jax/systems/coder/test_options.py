"""Relations that begin by ridge regression, and the pull to the encoder that a run began with."""

import dataclasses

import jax
import numpy as np
import pytest
from short_run import SPEC, Stops, assert_same_parameters, config, lines_of, one_device

from coder_jax.encoding.readers.embed import embed_tokens, place
from coder_jax.models.bert import merge_encoder, split_encoder
from coder_jax.systems.coder.objective import CoderSystem
from coder_jax.systems.coder.relation_start import labelled_pairs, ridge_matrix
from coder_jax.systems.coder_v1.objective import CoderV1System
from coder_jax.systems.finished_run import load_run
from coder_jax.training.config import OptimizerConfig
from coder_jax.training.train import train
from data_pipeline.batches.files import write_batches
from data_pipeline.process.errors import BadInput

MOST = 8  # triplets of a label
RIDGE = {"relation_start": "ridge", "ridge_penalty": 0.5, "ridge_triplets": MOST}


def changed(settings, **changes):
    return dataclasses.replace(settings, system=dataclasses.replace(settings.system, **changes))


@pytest.fixture(scope="module")
def begun(model, source, tmp_path_factory):
    """(system, about, initial, what `prepare` adds, its folder)."""
    system = changed(config(model, "unused"), **RIDGE).system.decided()
    about, initial = system.start(source)
    folder = tmp_path_factory.mktemp("run")
    with one_device():
        return system, about, initial, system.prepare(source, about, initial, folder), folder


# ---- Ridge regression ----


def test_pairs_are_drawn_of_each_label(source):
    data, rows = source.dataset, 0
    pairs = labelled_pairs(data, MOST, seed=0)
    there = set(zip(data.heads.tolist(), data.relations.tolist(), data.tails.tolist(), strict=True))
    owner = np.repeat(np.arange(len(data.term_start) - 1), np.diff(data.term_start))
    assert np.all(np.diff(pairs.terms) > 0)
    for label in range(len(data.manifest["relations"])):
        of_label = slice(pairs.start[label], pairs.start[label + 1])
        heads, tails = (owner[pairs.terms[side[of_label]]] for side in (pairs.heads, pairs.tails))
        found = {(head, label, tail) for head, tail in zip(heads, tails, strict=True)}
        assert len(found) == len(heads) == min(MOST, (data.relations == label).sum())
        assert found <= there
        rows += len(heads)
    assert rows == len(pairs.heads) < len(data.heads)
    others = labelled_pairs(data, MOST, seed=1)
    assert not np.array_equal(others.terms, pairs.terms)
    every = labelled_pairs(data, 10**6, seed=0)
    assert len(every.heads) == len(data.heads)


def test_a_matrix_is_the_smallest_of_its_sum_of_squares():
    """As least squares on X and Y with the rows of sqrt(penalty) I below each."""
    rng = np.random.default_rng(0)
    heads, tails = rng.normal(size=(2, 20, 6))
    below = 0.7**0.5 * np.eye(6)
    wanted, *_ = np.linalg.lstsq(np.vstack([heads, below]), np.vstack([tails, below]), rcond=None)
    np.testing.assert_allclose(ridge_matrix(heads, tails, 0.7), wanted, atol=1e-12)
    np.testing.assert_array_equal(ridge_matrix(heads[:0], tails[:0], 0.7), np.eye(6))
    few = ridge_matrix(heads[:1], tails[:1], 1e4)
    np.testing.assert_allclose(few, np.eye(6), atol=1e-2)


def test_matrices_begin_there(begun, source):
    """Each label's queries are nearer to its tails than the heads are, by the encoder's vectors."""
    system, about, initial, prepared, folder = begun
    assert list(prepared) == ["relations"] and not list(folder.iterdir())
    data = source.dataset
    graph, _ = split_encoder(system.structure(about))
    placed = place(merge_encoder(graph, initial["encoder"]))
    vectors = embed_tokens(
        placed, data.tokens.astype(np.int32), data.token_start, pooling=system.model.pooling
    )
    pairs = labelled_pairs(data, MOST, seed=system.batch.seed)
    for label, matrix in enumerate(prepared["relations"]):
        of_label = slice(pairs.start[label], pairs.start[label + 1])
        heads, tails = (vectors[pairs.terms[side[of_label]]] for side in (pairs.heads, pairs.tails))
        np.testing.assert_allclose(matrix, ridge_matrix(heads, tails, 0.5), atol=1e-5)
        assert np.square(heads @ matrix - tails).sum() < 0.9 * np.square(heads - tails).sum()


def test_matrices_of_another_run_go_on_and_do_not_begin_anew(model, source, tmp_path):
    settings = config(model, tmp_path / "first")
    with one_device():
        train(settings, source)
    _, saved = load_run(tmp_path / "first")
    assert settings.system.decided().carry(saved, source)[1].keys() == {"encoder", "relations"}
    ridge = changed(settings, **RIDGE).system.decided()
    with pytest.raises(BadInput, match=r"'ridge', but the relation matrices .* --init RUN in"):
        ridge.carry(saved, source)
    of_run = dataclasses.replace(ridge.model, init=str(tmp_path / "first"))
    _, initial = dataclasses.replace(ridge, model=of_run).start(source)
    assert initial.keys() == {"encoder"}


def test_a_run_that_stops_goes_on_to_the_bit(model, source, tmp_path, on_one_device):
    options = RIDGE | {"keep_similarities": 3.0}
    whole, cut = (changed(config(model, tmp_path / name), **options) for name in ("a", "b"))
    train(whole, source)
    for after in (0, 4):
        with pytest.raises(ConnectionError):
            train(cut, Stops(source, after))
    train(cut, source)
    (_, saved), (_, again) = (load_run(tmp_path / name) for name in ("a", "b"))
    assert_same_parameters(again.params, saved.params)


@pytest.mark.parametrize(
    ("system", "changes", "message"),
    [
        (CoderSystem(), RIDGE | {"ridge_penalty": 0.0}, "ridge_penalty is 0.0; it must be more"),
        (CoderSystem(), RIDGE | {"ridge_triplets": 0}, "ridge_triplets is 0; it must be at least"),
        (CoderSystem(), RIDGE | {"score": "translation"}, "'translation', which has no matrices"),
        (CoderSystem(), {"keep_similarities": -1.0}, "keep_similarities is -1.0; it must be"),
    ],
)
def test_messages(system, changes, message):
    with pytest.raises(BadInput, match=message):
        dataclasses.replace(system, **changes).validate(OptimizerConfig(steps=10, warmup_steps=1))


def test_batches_in_files_have_no_triplets_to_begin_with(model, source, tmp_path):
    write_batches(source, tmp_path / "batches", 0, 1)
    system = changed(config(model, tmp_path / "run"), **RIDGE).system
    with pytest.raises(BadInput, match=r"found batches in files, .*; or use --relation-start id"):
        system.open(tmp_path / "batches", source.cut, rows=0, steps=1)


# ---- The pull ----


@pytest.mark.parametrize("kind", [CoderSystem, CoderV1System])
def test_the_encoder_of_the_start_stays(model, source, tmp_path, on_one_device, kind):
    """The first step has nothing to pull back without dropout; the start is held fixed."""
    settings = config(model, tmp_path / "run", log_steps=1)
    still = dataclasses.replace(settings.system.model, dropout=0.0)
    system = kind(model=still, batch=SPEC, mu=0.0, keep_similarities=5.0)
    train(dataclasses.replace(settings, system=system), source)
    lines = [line for line in lines_of(tmp_path / "run" / "metrics.jsonl") if "loss_kept" in line]
    assert lines[0]["loss_kept"] < 1e-12 < 1e-6 < lines[-1]["loss_kept"]
    total = lines[-1]["loss_term"] + 5 * lines[-1]["loss_kept"]
    assert lines[-1]["loss"] == pytest.approx(total, rel=1e-5)
    system, saved = load_run(tmp_path / "run")
    _, initial = system.start(source)
    flat = lambda tree: {  # noqa: E731
        jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
    start, kept, now = map(
        flat, (initial["encoder"], saved.params["initial"], saved.params["encoder"])
    )
    assert start.keys() == kept.keys()
    for name in start:
        np.testing.assert_array_equal(kept[name], start[name])
    assert any(not np.array_equal(now[name], start[name]) for name in start)


@pytest.mark.slow
def test_the_pull_keeps_similarities(model, source, tmp_path, on_one_device):
    drift = {}
    for weight in (1e-6, 100.0):
        settings = changed(
            config(model, tmp_path / str(weight), log_steps=1), keep_similarities=weight, mu=0.0
        )
        train(settings, source)
        lines = lines_of(tmp_path / str(weight) / "metrics.jsonl")
        drift[weight] = [line["loss_kept"] for line in lines if "loss_kept" in line][-1]
    assert drift[100.0] < 0.5 * drift[1e-6]
