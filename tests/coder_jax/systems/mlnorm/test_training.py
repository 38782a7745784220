"""Step 1 of MLNorm: the same on any devices; it learns, goes on bitwise, exports and answers."""

import dataclasses
import hashlib
import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from class_run import ADAM, FIRST, config_of_first, source_of
from short_run import Stops, assert_same_parameters, lines_of
from tiny_bert import TINY
from tiny_dataset import tiny_dataset

from coder_jax.devices.mesh import make_mesh, put_batch
from coder_jax.models.bert import split_encoder
from coder_jax.models.hf_weights import random_bert
from coder_jax.systems.encoder_system import PACKED, EncoderOfRun, _dropout_ids, token_ids
from coder_jax.systems.mlnorm import training
from coder_jax.systems.mlnorm.softmax import padded_rows
from coder_jax.systems.mlnorm.training import StartOfClasses, _jitter, _jittered
from coder_jax.systems.trained_models import load_classifier, load_run
from coder_jax.training.state import new_state
from coder_jax.training.step import make_step
from coder_jax.training.system import Config, RunConfig, StepKey, check_proof
from coder_jax.training.train import train
from data_pipeline.batches.batch_maker import BatchMaker
from data_pipeline.batches.packing import pack_rows
from data_pipeline.batches.spec import StepCut
from data_pipeline.dataset.store import groups_of
from data_pipeline.process import BadInput
from data_pipeline.terminology.semantic_groups import ANY

CONCEPTS = 60
ABOUT = StartOfClasses(
    encoder=EncoderOfRun(config=TINY.to_hf(), pooler=True, license=None), concepts=CONCEPTS
)
TYPES = ["T017 Anatomy", "T047 Disease", "T061 Procedure", "T184 Sign"]


@pytest.fixture(scope="module")
def dataset():
    made = tiny_dataset(concepts=CONCEPTS, triplets=10, vocabulary=TINY.vocab_size)
    return dataclasses.replace(
        made, manifest=dataclasses.replace(made.manifest, semantic_types=TYPES)
    )


def unlike_encoder():
    """A random BERT whose terms lie far apart: batch norm of features that hardly vary would make
    rounding large."""
    _, encoder = split_encoder(random_bert(TINY, seed=0, dtype=jnp.float32))
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda leaf: np.asarray(leaf) + rng.normal(0, 0.2, leaf.shape).astype(np.float32), encoder
    )


def steps_on(dataset, devices, *, system=FIRST, steps=3, **how):
    """(metrics of each step, parameters, statistics) of a run on some devices."""
    config = Config(recipe="test", system=system, optimizer=ADAM, run=RunConfig(**how))
    step = make_step(config, ABOUT, BatchMaker.packed, devices=jax.devices()[:devices])
    groups = np.zeros(padded_rows(CONCEPTS), np.uint16)
    groups[:CONCEPTS] = groups_of(dataset)
    initial = {"encoder": unlike_encoder(), "class_groups": groups}
    state = new_state(step.like, system, initial, step.parts, step.optimizer)
    maker = BatchMaker(dataset, system.batch, step.cut)
    rows = maker.plan.ample
    step.compile(maker, rows)
    history = []
    for batch in maker.batches(0, steps):
        placed = put_batch(step.mesh, step.cut, batch, maker.packed)
        state, metrics = step(state, placed, rows)
        history.append({name: float(value) for name, value in metrics.items()})
    return history, jax.device_get(state.params), jax.device_get(state.extra)


# At 20 x the cosine and 8e-3 a step moves a row by more than its length; and of few terms some
# features hardly vary, which batch norm makes large. Both make rounding large.
CALM = dataclasses.replace(
    FIRST,
    batch=dataclasses.replace(FIRST.batch, terms=128),
    scale=4.0,
    head_learning_rate_factor=1.0,
    jitter_noise=0.5,
    jitter_drop=0.3,
)


@pytest.fixture(scope="module")
def on_one(dataset):
    return steps_on(dataset, 1, system=CALM)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "chunks"),
    [
        (2, 1),
        (8, 1),
        (1, 4),
        (2, 2),
    ],
)
def test_neither_devices_nor_chunks_change_anything(dataset, on_one, devices, chunks):
    """Neither losses nor parameters nor the statistics of the batches, which are of all terms; nor
    which word pieces are moved and left out."""
    again = steps_on(dataset, devices, system=CALM, cache_chunks=chunks)
    for ours, theirs in zip(again[0], on_one[0], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-7)
    for ours, theirs in zip(jax.tree.leaves(again[1:]), jax.tree.leaves(on_one[1:]), strict=True):
        if ours.dtype == np.float32:
            assert np.linalg.norm(ours - theirs) <= 1e-6 * np.linalg.norm(theirs)


@pytest.mark.slow
@pytest.mark.parametrize("within_group", [True, False])
def test_the_softmax_is_over_the_concepts_of_the_group_or_over_all(dataset, within_group):
    """At a scale of almost 0 all concepts are as likely: the loss tells how many there are."""
    flat = dataclasses.replace(FIRST, scale=1e-4, within_group=within_group)
    history, *_ = steps_on(dataset, 1, system=flat, steps=1)
    bits = groups_of(dataset)
    batch = next(BatchMaker(dataset, FIRST.batch, StepCut()).batches(0, 1))
    sizes = [(bits >> group & 1).sum() for group in batch["semantic_groups"].ravel()]
    assert min(sizes) < CONCEPTS
    expected = np.log(sizes).mean() if within_group else np.log(CONCEPTS)
    assert history[0]["loss"] == pytest.approx(expected, abs=1e-3)


def test_groups_stay_and_rows_of_no_concept_do(on_one):
    params = on_one[1]
    assert params["class_groups"].dtype == np.uint16
    assert not params["class_groups"][CONCEPTS:].any()
    assert (params["class_groups"][:CONCEPTS] >> ANY & 1).all()


@pytest.mark.slow
def test_dropout_comes_with_the_step_and_not_without(dataset, on_one):
    still = dataclasses.replace(CALM, model=dataclasses.replace(CALM.model, dropout=0.0))
    without = steps_on(dataset, 1, system=still)
    assert without[0][0]["loss"] != pytest.approx(on_one[0][0]["loss"], rel=1e-4)


class Encoded(Exception):
    """In place of encoding: its argument is the batch."""


@pytest.mark.slow
def test_jitter_comes_with_the_step_and_not_without(dataset, monkeypatch):
    """What is encoded: jittered rows in a step, the batch's own where the system has no jitter."""

    def stops(bert, batch, *more):
        raise Encoded(batch)

    monkeypatch.setattr(training, "term_vectors", stops)
    batch = next(BatchMaker(dataset, CALM.batch, StepCut()).batches(0, 1))
    batch = {name: jnp.asarray(array[0]) for name, array in batch.items()}
    step_key = StepKey(jnp.int32(5), jnp.int32(0))
    mesh = make_mesh(8, jax.devices()[:1])

    def encoded(system):
        with pytest.raises(Encoded) as found:
            system.loss(ABOUT, mesh)({"encoder": unlike_encoder()}, {}, batch, step_key)
        return found.value.args[0]

    still = dataclasses.replace(CALM, jitter_noise=0.0, jitter_drop=0.0)
    expected = _jittered(batch, token_ids(batch, step_key, CALM.batch.seed), noise=0.5, drop=0.3)
    assert (expected["tokens"] != batch["tokens"]).any()
    assert_same_parameters(encoded(CALM), expected)
    assert_same_parameters(encoded(still), batch)


# ---- A whole run, on a dataset that was built ----


def test_it_learns_and_is_scored_by_terms_and_by_classes(first):
    out, result = first
    lines = lines_of(out / "metrics.jsonl")
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < losses[0]
    assert {"heldout", "classes"} == result.scores.keys()
    assert result.scores["classes"]["classes"] > 100


@pytest.mark.slow
def test_stopped_and_gone_on_with_it_is_bitwise_the_straight_run(
    built, first, tmp_path, on_one_device
):
    given = config_of_first(built, tmp_path / "run")
    source = source_of(built[0], given.system)
    with pytest.raises(ConnectionError):
        train(given, Stops(source, after=8))
    train(given, source)
    ours, theirs = load_run(tmp_path / "run")[1], load_run(first[0])[1]
    assert_same_parameters(ours.params, theirs.params)
    assert_same_parameters(ours.extra, theirs.extra)
    assert np.abs(ours.extra["mean"]).max() > 0, "statistics were kept"


def test_its_export_answers_as_the_run_does_and_as_pytorch_does(first, tmp_path):
    system, run = load_run(first[0])
    differences = system.export(run, tmp_path / "export")
    assert differences.keys() == {"transformers", "probabilities in PyTorch"}
    assert max(differences.values()) <= 1e-5
    ours, theirs = load_classifier(first[0]), load_classifier(tmp_path / "export")
    weights = hashlib.sha256((tmp_path / "export" / "model.safetensors").read_bytes()).hexdigest()
    assert theirs.encoder.weights_hash == weights and ours.encoder.weights_hash is None
    mentions, groups = ["pain in limb", "Œdème d'Á 12a", ""], ["DISO", None, "CHEM"]
    for found, expected in zip(
        theirs.nearest(mentions, groups, 3), ours.nearest(mentions, groups, 3), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    index, probability = ours.nearest(mentions, groups, len(ours.concepts))
    np.testing.assert_allclose(probability.sum(1), 1, atol=1e-5)
    of_group = ours.groups[index[0][index[0] >= 0]] >> 5 & 1
    assert of_group.all() and of_group.size < len(ours.concepts)


def test_what_is_no_class_model_is_named(built, tmp_path):
    with pytest.raises(BadInput, match="has no classes; expected a run of the recipe mlnorm"):
        load_classifier(built[1])


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"width": 0}, "--width is 0; expected 1 or more"),
        ({"jitter_noise": -0.5}, "--jitter-noise is -0.5; expected 0 or more"),
        ({"jitter_drop": 1.0}, "--jitter-drop is 1.0; expected 0 or more, and less than 1"),
        ({"scale": 50.0}, "--scale is 50.0; expected more than 0 and at most 40"),
    ],
)
def test_numbers_that_cannot_be(changes, words):
    with pytest.raises(BadInput, match=words):
        dataclasses.replace(FIRST, **changes).validate(ADAM)


def test_a_run_proves_its_classes(first):
    """What the head with the classes answers is compared with what training gave."""
    system, run = load_run(first[0])
    terms = run.notes.proof.terms
    assert len(terms) > 1 and check_proof(
        lambda terms: system.saved_outputs(run, terms), run, "the run"
    )
    classes = run.params["classes"]
    changed = np.roll(classes, 1, axis=0)
    other = dataclasses.replace(run, params={**run.params, "classes": changed})
    with pytest.raises(BadInput, match="the run gives other cosines than training gave"):
        check_proof(lambda terms: system.saved_outputs(other, terms), other, "the run")


# -------------------------------------------------------------------------------------------------
# Token jitter: against a slow twin; how often it moves and leaves out; free of how terms lie.

CLS, SEP = 101, 102


def some_terms(lengths):
    """The tokens of terms with so many word pieces each; all pieces differ."""
    number = itertools.count(200)
    return [[CLS, *(next(number) for _ in range(length)), SEP] for length in lengths]


def packed(terms, row_length):
    start = np.cumsum([0, *map(len, terms)])
    return pack_rows(np.concatenate(terms).astype(np.int32), start, row_length)


def terms_in(rows):
    """The tokens of each term, by its number; they are one run of its row, and places count."""
    found = {}
    arrays = (np.asarray(rows[name]) for name in PACKED)
    for tokens, positions, segments in zip(*arrays, strict=True):
        assert not (tokens[segments == 0].any() or positions[segments == 0].any())
        for segment in set(segments[segments > 0].tolist()):
            slots = np.flatnonzero(segments == segment)
            assert np.array_equal(np.diff(slots), np.ones(len(slots) - 1))
            assert positions[slots].tolist() == list(range(len(slots)))
            found[segment - 1] = tokens[slots].tolist()
    return found


def twin_of_term(tokens, normals, uniforms, noise, drop):
    """The tokens of a term after it, as the released code has it, piece by piece."""
    pieces = list(range(1, len(tokens) - 1))
    spared = sorted(pieces, key=lambda place: uniforms[place])[:2]
    kept = [place for place in pieces if place in spared or uniforms[place] >= drop]
    kept.sort(key=lambda place: place + noise * normals[place])
    return [tokens[0], *(tokens[place] for place in kept), tokens[-1]]


@pytest.mark.parametrize(("noise", "drop"), [(0.5, 0.1), (1.5, 0.6), (0.0, 0.5), (2.0, 0.0)])
def test_it_is_what_a_slow_twin_does(noise, drop):
    rng = np.random.default_rng(0)
    terms = some_terms([0, 1, 2, 3, *rng.integers(1, 14, 40)])
    rows = packed(terms, 24)
    normals = rng.normal(size=rows["tokens"].shape).astype(np.float32)
    uniforms = rng.uniform(size=rows["tokens"].shape).astype(np.float32)
    arrays = (*(rows[name] for name in PACKED), normals, uniforms)
    found = jax.jit(partial(_jitter, noise=noise, drop=drop))(*arrays)
    expected = {}
    for number, tokens in enumerate(terms):
        at = rows["segments"] == number + 1
        expected[number] = twin_of_term(tokens, normals[at], uniforms[at], noise, drop)
    assert terms_in(dict(zip(PACKED, found, strict=True))) == expected
    changed = sum(expected[number] != tokens for number, tokens in enumerate(terms))
    assert changed > 10


on_device = jax.jit(_jittered, static_argnames=("noise", "drop"))


def jittered_terms(terms, row_length, *, noise, drop, step=3, first_term=0, order=None):
    """The tokens of terms that were jittered in rows; `order` is theirs in the pack."""
    order = range(len(terms)) if order is None else order
    rows = packed([terms[number] for number in order], row_length)
    segments = rows["segments"]
    numbered = np.concatenate([[0], np.array(order) + 1])[segments]
    ids = _dropout_ids(
        7,
        jnp.int32(step),
        jnp.array([first_term]),
        jnp.asarray(numbered)[None],
        jnp.asarray(rows["positions"])[None],
    )
    batch = {name: jnp.asarray(array)[None] for name, array in rows.items()}
    found = on_device(batch, ids, noise=noise, drop=drop)
    by_pack = terms_in({name: array[0] for name, array in found.items()})
    return {order[number]: tokens for number, tokens in by_pack.items()}


def test_neighbours_change_places_as_often_as_the_noise_says():
    terms = some_terms([10] * 2000)
    found = jittered_terms(terms, 24, noise=0.5, drop=0.0)
    place = np.array([np.argsort(found[number]) for number in range(2000)])[:, 2:]
    # Argsort of distinct tokens: the places of the ten pieces in their first order.
    swapped = (np.diff(place) < 0).mean()
    assert swapped == pytest.approx(scipy.stats.norm.sf(2**0.5), abs=0.008)
    assert all(sorted(found[number]) == sorted(terms[number]) for number in range(2000))


@pytest.mark.parametrize("pieces", [1, 2, 3, 10])
def test_as_many_pieces_are_left_out_as_draws_are_low_but_two(pieces):
    terms = some_terms([pieces] * 2000)
    found = jittered_terms(terms, 24, noise=0.0, drop=0.3)
    left_out = np.array([len(terms[0]) - len(found[number]) for number in range(2000)])
    low = np.arange(pieces + 1)
    chances = scipy.stats.binom.pmf(low, pieces, 0.3)
    assert left_out.mean() == pytest.approx(np.maximum(low - 2, 0) @ chances, abs=0.05)
    assert left_out.max() <= max(pieces - 2, 0)


def test_how_terms_are_packed_and_cut_changes_nothing():
    """And steps differ."""
    terms = some_terms(np.random.default_rng(1).integers(1, 12, 60))
    how = {"noise": 0.5, "drop": 0.3}
    straight = jittered_terms(terms, 64, **how)
    shuffled = np.random.default_rng(2).permutation(60).tolist()
    assert jittered_terms(terms, 15, order=shuffled, **how) == straight
    assert jittered_terms(terms, 64, step=4, **how) != straight
    # A block that begins with term 30 of the step.
    later = jittered_terms(terms[30:], 64, first_term=30, **how)
    assert {number + 30: tokens for number, tokens in later.items()} == {
        number: straight[number] for number in range(30, 60)
    }


@pytest.mark.slow
def test_without_noise_and_drop_all_stays():
    terms = some_terms([1, 5, 9, 0])
    found = jittered_terms(terms, 16, noise=0.0, drop=0.0)
    assert found == dict(enumerate(terms))
