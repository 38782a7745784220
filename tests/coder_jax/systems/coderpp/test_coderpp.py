"""CODER++: an index of the encoder of the moment, by hand; the same on any devices; bitwise again.

A tiny BERT on 60 concepts, three of which share a name with another.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from naive_losses import naive
from neighbour_run import SPEC, K, config_of, files_in, index_of

from coder_jax.encoding.embed import place
from coder_jax.models.bert import merge_encoder, split_encoder
from coder_jax.systems import coderpp as neighbours
from coder_jax.systems.group_losses import Group
from coder_jax.systems.recipes import RECIPES
from coder_jax.systems.trained_models import load_run
from coder_jax.training.checkpoints import saved_steps
from data_pipeline.batches.draws import NeighbourDraw
from data_pipeline.batches.spec import NEIGHBOURS
from data_pipeline.process import BadInput


def encoder_of(out, step):
    """(system, encoder) of a run after a step."""
    system, saved = load_run(out, step)
    graph, _ = split_encoder(system.structure(saved.described(system.content).start))
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
        neighbours._write_neighbours(
            folder, draw, place(bert), pooling="cls", products=products, provenance="tiny"
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
        drawn = draw(step, np.arange(1))
        terms, concepts = drawn["terms"][0], drawn["concepts"][0]
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


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 8])
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
        assert system.resolved_for(None).refresh_steps == every


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"refresh_steps": -1}, "--refresh-steps is -1; expected 0 or more"),
        (
            {"mu": 1.0, "batch": dataclasses.replace(SPEC, mined_share=1.0)},
            "have no relations; give --mu 0",
        ),
        ({"batch": dataclasses.replace(SPEC, mined_share=2.0)}, "--mined-share is 2.0; expected"),
    ],
)
def test_settings_that_cannot_be(model, changes, words):
    config = config_of(model, "x")
    with pytest.raises(BadInput, match=words):
        dataclasses.replace(config, system=dataclasses.replace(config.system, **changes)).validate()


def test_the_recipes_are_as_they_say():
    """Blocks of 31 pairs, 4 of them a group; of the small one 2 of 8, 32 of 256 terms."""
    batch = RECIPES["coderpp"]().system.batch
    assert (batch.mined_pairs, batch.blocks, batch.terms) == (4 * 31, 4, 15_872)
    small = RECIPES["coderpp_small"]().system.batch
    assert (small.mined_pairs, small.blocks, small.pairs, small.terms) == (16, 2, 128, 256)
    for recipe, found in (("coderpp", "every 31,250 steps"), ("coderpp_small", "once")):
        assert RECIPES[recipe]().system.hyperparameters()["neighbours found"] == found
