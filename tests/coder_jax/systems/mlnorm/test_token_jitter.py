"""Token jitter: against a slow twin; how often it moves and leaves out; free of how terms lie."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from coder_jax.systems.encoders.packed_encoder import PACKED, dropout_ids
from coder_jax.systems.mlnorm.token_jitter import jitter, jittered
from data_pipeline.batches.packing import pack_rows

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
    found = jax.jit(partial(jitter, noise=noise, drop=drop))(*arrays)
    expected = {}
    for number, tokens in enumerate(terms):
        at = rows["segments"] == number + 1
        expected[number] = twin_of_term(tokens, normals[at], uniforms[at], noise, drop)
    assert terms_in(dict(zip(PACKED, found, strict=True))) == expected
    changed = sum(expected[number] != tokens for number, tokens in enumerate(terms))
    assert changed > 10


on_device = jax.jit(jittered, static_argnames=("noise", "drop"))


def jittered_terms(terms, row_length, *, noise, drop, step=3, first_term=0, order=None):
    """The tokens of terms that were jittered in rows; `order` is theirs in the pack."""
    order = range(len(terms)) if order is None else order
    rows = packed([terms[number] for number in order], row_length)
    segments = rows["segments"]
    numbered = np.concatenate([[0], np.array(order) + 1])[segments]
    ids = dropout_ids(
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


def test_without_noise_and_drop_all_stays():
    terms = some_terms([1, 5, 9, 0])
    found = jittered_terms(terms, 16, noise=0.0, drop=0.0)
    assert found == dict(enumerate(terms))
