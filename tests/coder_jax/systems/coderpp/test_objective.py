"""CODER++: an index of the encoder of the moment, by hand; the same on any devices; bitwise again.

A tiny BERT on 60 concepts, three of which share a name with another.
"""

import dataclasses
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from naive_losses import naive
from short_run import assert_same_parameters, licensed_model
from tiny_run import dataset_for

import coder_jax.systems.coderpp.neighbours as neighbours
import coder_jax.training.step
from coder_jax.devices.mesh import make_mesh, step_cut
from coder_jax.encoding.readers.embed import place
from coder_jax.models.bert import merge_encoder, split_encoder
from coder_jax.runs.checkpoint_reader import saved_steps
from coder_jax.runs.files import RunFiles
from coder_jax.systems.coderpp.objective import CoderPlusPlusSystem
from coder_jax.systems.encoders.encoder_system import ModelConfig
from coder_jax.systems.finished_run import load_run
from coder_jax.systems.groups.group import Group
from coder_jax.systems.recipes import RECIPES
from coder_jax.training.config import Config, OptimizerConfig, RunConfig
from coder_jax.training.refresh import Refresh
from coder_jax.training.train import train
from data_pipeline.batches.draws.neighbour_spec import NEIGHBOURS, NeighbourSpec
from data_pipeline.batches.draws.neighbours import NeighbourDraw
from data_pipeline.batches.spec import RowPlan
from data_pipeline.batches.stream import BatchMaker
from data_pipeline.process.errors import BadInput

K = 3
SPEC = NeighbourSpec(
    groups=2, triplets=8, repeats=2, names="distinct", row_length=64, neighbours=K, mined_share=0.5
)
STEPS = 6  # neighbours are found before step 1, and after steps 2 and 4


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return licensed_model(tmp_path_factory.mktemp("model") / "bert")


@pytest.fixture(scope="module")
def data(model):
    """A dataset in memory, in which the first name of three concepts is that of the next, too."""
    data = dataset_for(model, model.parent / "dataset")
    tokens, start, term_start = data.tokens.copy(), data.token_start, data.term_start
    lengths = np.diff(start)
    copies = 0
    for concept in range(0, 40):
        for term in range(term_start[concept], term_start[concept + 1]):
            others = np.flatnonzero(lengths == lengths[term])
            others = others[others >= term_start[concept + 1]]
            if copies < 3 and len(others):
                tokens[start[others[0]] : start[others[0] + 1]] = tokens[
                    start[term] : start[term + 1]
                ]
                copies += 1
                break
    assert copies == 3
    return dataclasses.replace(data, tokens=tokens)


def config_of(model, out, spec=SPEC, **changes):
    system = CoderPlusPlusSystem(
        model=ModelConfig(init=str(model), dtype="float32", dropout=0.1),
        batch=spec,
        **{"refresh_steps": 2, "mu": 0.5 if spec.mined_share < 1 else 0.0} | changes,
    )
    # Adam divides by the size of a gradient: of one near 0 it would show the rounding.
    optimizer = OptimizerConfig(steps=STEPS, learning_rate=1e-2, warmup_steps=1, eps=1e-3)
    run = RunConfig(out=str(out), save_steps=100, log_steps=1, eval_steps=0)
    return Config(recipe="test", system=system, optimizer=optimizer, run=run)


@pytest.fixture
def run(data, model, monkeypatch):
    """Train: run(out, devices=1, spec, **changes of the system); the devices are all there are."""

    def run(out, *, devices=1, **changes):
        chosen = jax.devices()[:devices]
        mesh = lambda groups, _=None: make_mesh(groups, chosen)  # noqa: E731
        with monkeypatch.context() as patch:
            patch.setattr(coder_jax.training.step, "make_mesh", mesh)
            patch.setattr(jax, "local_devices", lambda: chosen)
            config = config_of(model, out, **changes)
            maker = BatchMaker(data, config.system.batch, step_cut(mesh(2), 1))
            maker.plan = RowPlan((maker.plan.ample,))  # compile one shape
            train(config, maker)

    return run


@pytest.fixture(scope="module")
def straight(data, model, tmp_path_factory):
    """The folder of a whole run on one device."""
    out = tmp_path_factory.mktemp("straight") / "run"
    with pytest.MonkeyPatch.context() as patch:
        run.__wrapped__(data, model, patch)(out)
    return out


def index_of(out, step):
    return np.load(out / "index" / str(step) / NEIGHBOURS)


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


def encoder_of(out, step):
    """(system, encoder) of a run after a step."""
    system, saved = load_run(out, step)
    graph, _ = split_encoder(system.structure(saved.identity["start"]))
    return system, merge_encoder(graph, saved.params["encoder"])


@pytest.fixture(scope="module")
def by_hand(straight, data):
    """float64 [terms, D], of unit length, after step 4: a term in each row, without dropout."""
    lengths = np.diff(data.token_start)
    shape = (len(lengths), lengths.max())
    column = np.arange(shape[1])[None]
    here = column < lengths[:, None]
    tokens = np.zeros(shape, np.int32)
    tokens[here] = data.tokens
    segments = np.where(here, np.arange(shape[0])[:, None] + 1, 0)
    _, bert = encoder_of(straight, 4)
    vectors = bert.term_vectors(tokens, np.where(here, column, 0), segments, shape[0], "cls")
    vectors = np.asarray(vectors, np.float64)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def lists_by_hand(vectors, owner, anchors, share):
    """The K nearest of each anchor, one after the other."""
    lists = []
    for anchor in anchors:
        order = np.argsort(-(vectors @ vectors[anchor]), kind="stable")
        allowed = [j for j in order if j != anchor and not share[owner[anchor], owner[j]]]
        lists.append(allowed[:K])
    return np.array(lists)


def sharing(data):
    """bool [C, C]: by all pairs of strings."""
    strings = np.split(data.tokens, data.token_start[1:-1])
    owner = np.repeat(np.arange(60), np.diff(data.term_start))
    share = np.zeros((60, 60), bool)
    for i, one in enumerate(strings):
        for j, other in enumerate(strings):
            share[owner[i], owner[j]] |= owner[i] != owner[j] and np.array_equal(one, other)
    return share, owner


def test_neighbours_are_the_nearest_terms_by_the_encoder_of_the_step(straight, data, by_hand):
    share, owner = sharing(data)
    assert share.any()
    found = index_of(straight, 4)
    assert found.dtype == np.int32 and found.shape == (len(owner), K)
    anchors = np.arange(len(owner))
    np.testing.assert_array_equal(found, lists_by_hand(by_hand, owner, anchors, share))
    # The rule of shared names matters here: without it the same string would be the nearest.
    free = lists_by_hand(by_hand, owner, anchors, np.zeros_like(share))
    assert (found != free).any(axis=1).sum() >= 6
    # And the encoder has moved.
    assert (index_of(straight, 2) != found).any()
    assert sorted(path.name for path in (straight / "index").iterdir()) == ["2", "4"]
    assert files_in(straight / "index" / "4") == [NEIGHBOURS, f"{NEIGHBOURS}.about"]
    assert saved_steps(straight) == [2, 4, 6]


@pytest.mark.parametrize("of", ["terms", "concepts"])
def test_neighbours_by_bfloat16_and_of_concepts_by_the_means_of_their_terms(
    straight, data, by_hand, of, tmp_path
):
    """Of concepts that have a synonym, or of their terms."""
    system, bert = encoder_of(straight, 4)
    spec = dataclasses.replace(SPEC, neighbours_of=of, draw="synonyms", positives="each")
    several = np.diff(data.term_start) >= 2
    (share, owner), vectors, anchors = sharing(data), by_hand, np.flatnonzero(several)
    if of == "concepts":
        owner = np.arange(60)
        vectors = np.add.reduceat(by_hand, data.term_start[:-1])
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    else:
        anchors = np.flatnonzero(several[owner])
    expected = lists_by_hand(vectors, owner, anchors, share)
    for products in ("exact", "bfloat16"):
        folder = tmp_path / products
        folder.mkdir()
        draw = NeighbourDraw(data, spec)
        neighbours.write_neighbours(
            folder, draw, place(bert), pooling="cls", products=products, about="tiny"
        )
        found = np.load(folder / NEIGHBOURS)
        if products == "exact":
            np.testing.assert_array_equal(found, expected)
        held = [np.isin(one, other).mean() for one, other in zip(expected, found, strict=True)]
        assert np.mean(held) > 0.99
        assert files_in(folder) == [NEIGHBOURS, f"{NEIGHBOURS}.about"]
        draw.with_index(folder)


def test_terms_of_the_own_concept_are_positives_and_never_negatives(straight, data):
    """Of the first group that has such neighbours, by the formulas pair by pair."""
    system = dataclasses.replace(load_run(straight)[0], mu=0.0)
    draw = NeighbourDraw(data, SPEC).with_index(straight / "index" / "4")
    share, owner = sharing(data)
    first = SPEC.pairs - SPEC.mined_pairs
    for step in range(100):
        drawn = draw(tf.constant(step, tf.int64), np.arange(1))
        terms, concepts = drawn["terms"].numpy()[0], drawn["concepts"].numpy()[0]
        np.testing.assert_array_equal(concepts, owner[terms])
        blocks = np.split(concepts[first : SPEC.pairs], SPEC.blocks)
        assert not any(share[block[0], block[1:]].any() for block in blocks)
        if any((block[1:] == block[0]).any() for block in blocks):
            break
    else:
        pytest.fail("no anchor has a neighbour of its own concept")
    vectors = np.random.default_rng(1).normal(size=(len(terms), 8))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    same = concepts[:, None] == concepts[None]
    positive = same & ~np.eye(len(terms), dtype=bool)
    want, *_ = naive(unit @ unit.T, positive, ~same, **dataclasses.asdict(system.term))
    group = Group(
        vectors=jnp.asarray(vectors, jnp.float32),
        concepts=jnp.asarray(concepts),
        relations=-jnp.ones(SPEC.triplets, int),
    )
    assert float(system.group_loss(group)[0]) == pytest.approx(want, rel=1e-4)


@pytest.mark.parametrize(
    "where", ["embed_tokens", pytest.param("nearest_others", marks=pytest.mark.slow)]
)
def test_killed_inside_a_refresh_it_goes_on_to_the_bit(run, straight, tmp_path, where, monkeypatch):
    monkeypatch.setattr(neighbours, "TERMS_AT_ONCE", 50)
    monkeypatch.setattr(neighbours, "QUERIES_CPU", 60)
    out, whole, calls = tmp_path / "run", getattr(neighbours, where), []
    chunks = -(-len(index_of(straight, 2)) // (50 if where == "embed_tokens" else 60))

    def breaks(*args, **kwargs):
        calls.append(1)
        if len(calls) == chunks + 3:  # in the third chunk of the refresh after step 2
            raise ConnectionError("the machine is gone")
        return whole(*args, **kwargs)

    with monkeypatch.context() as patch, pytest.raises(ConnectionError):
        patch.setattr(neighbours, where, breaks)
        run(out)
    assert (out / "index" / ".2.partial").is_dir() and saved_steps(out) == [2]
    again = []
    monkeypatch.setattr(neighbours, where, lambda *a, **k: (again.append(1), whole(*a, **k))[1])
    run(out)
    assert len(again) == 2 * chunks - 2, "what was finished is not made again"
    for step in (2, 4):
        np.testing.assert_array_equal(index_of(out, step), index_of(straight, step))
    ours, theirs = load_run(out)[1], load_run(straight)[1]
    assert ours.step == STEPS
    assert_same_parameters(ours.params, theirs.params)
    assert not list((out / "index").glob(".*"))


def test_killed_when_an_index_is_whole_it_is_not_made_again(run, straight, tmp_path, monkeypatch):
    """No checkpoint after the refresh of step 2 tells of it; vectors of a kill amid it are gone."""
    out, whole, publish = tmp_path / "run", neighbours.embed_tokens, RunFiles.publish
    made = out / "index" / "2"

    def killed(files):
        if made.exists():
            raise ConnectionError("the machine is gone")
        publish(files)

    with monkeypatch.context() as patch, pytest.raises(ConnectionError):
        patch.setattr(RunFiles, "publish", killed)
        run(out)
    assert saved_steps(out) == [2]
    (made / "vectors.npy").touch()
    calls = []
    patched = lambda *a, **k: (calls.append(1), whole(*a, **k))[1]  # noqa: E731
    monkeypatch.setattr(neighbours, "embed_tokens", patched)
    run(out)
    assert len(calls) == 1, "of the refresh after step 4"
    assert files_in(made) == files_in(straight / "index" / "2")
    assert_same_parameters(load_run(out)[1].params, load_run(straight)[1].params)


def test_an_index_of_another_encoder_is_made_again(run, straight, tmp_path, monkeypatch):
    """As where a run goes another way to the same step: with other rates, on other devices."""
    out, make = tmp_path / "run", Refresh._make

    def make_beside_another(refresh, step, *rest):
        if step == 2:
            shutil.copytree(straight / "index" / "4", out / "index" / ".2.partial")
        return make(refresh, step, *rest)

    monkeypatch.setattr(Refresh, "_make", make_beside_another)
    run(out)
    np.testing.assert_array_equal(index_of(out, 2), index_of(straight, 2))


@pytest.mark.parametrize("devices", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_several_devices_find_and_learn_what_one_does(run, straight, tmp_path, devices):
    out = tmp_path / "run"
    run(out, devices=devices)
    for step in (2, 4):
        np.testing.assert_array_equal(index_of(out, step), index_of(straight, step))
    ours, theirs = load_run(out)[1], load_run(straight)[1]
    for one, other in zip(
        jax.tree.leaves(ours.params), jax.tree.leaves(theirs.params), strict=True
    ):
        assert np.linalg.norm(one - other) <= 1e-6 * np.linalg.norm(other)


def test_without_a_share_neighbours_are_never_looked_for(model):
    for share, every in ((0.0, 0), (0.5, 2)):
        system = config_of(model, "x", dataclasses.replace(SPEC, mined_share=share)).system
        assert system.fitted(None).refresh_steps == every


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"refresh_steps": 0}, "refresh_steps is 0; it must be at least 1"),
        (
            {"mu": 1.0, "batch": dataclasses.replace(SPEC, mined_share=1.0)},
            "have no relations; use",
        ),
        ({"batch": dataclasses.replace(SPEC, mined_share=2.0)}, "mined_share is 2.0; it must be"),
    ],
)
def test_settings_that_cannot_be(model, changes, words):
    config = config_of(model, "x")
    with pytest.raises(BadInput, match=words):
        dataclasses.replace(config, system=dataclasses.replace(config.system, **changes)).validate()


def test_batches_in_files_are_refused(model, tmp_path):
    (tmp_path / "batches.json").write_text("{}")
    with pytest.raises(BadInput, match="found batches in files, .*; expected a built dataset"):
        RECIPES["coderpp_small"]().system.open(tmp_path, None, rows=0, steps=1)


def test_the_recipes_are_as_they_say():
    """Blocks of 31 pairs, 4 of them a group; of the small one 2 of 8, 32 of 256 terms."""
    batch = RECIPES["coderpp"]().system.batch
    assert (batch.mined_pairs, batch.blocks, batch.terms) == (4 * 31, 4, 15_872)
    small = RECIPES["coderpp_small"]().system.batch
    assert (small.mined_pairs, small.blocks, small.pairs, small.terms) == (16, 2, 128, 256)
