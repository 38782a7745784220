"""Concepts that share a name: the pairs of a terminology."""

import dataclasses

import numpy as np
import pytest
from tiny_dataset import tiny_dataset

from data_pipeline.batches.draws import shared_names
from data_pipeline.batches.draws.shared_names import SharedNames, name_hashes

DATA = tiny_dataset(concepts=60, triplets=150)
CONCEPTS = len(DATA.term_start) - 1


@pytest.fixture(scope="module")
def pool():
    """(data, bool [60, 60]): names from few, so that many concepts have the same; by all pairs."""
    rng = np.random.default_rng(0)
    few = [rng.integers(5, 9, rng.integers(1, 4)).tolist() for _ in range(60)]
    terms = DATA.term_start[-1]
    chosen = [few[i] for i in rng.integers(0, len(few), terms)]
    data = dataclasses.replace(
        DATA,
        tokens=np.concatenate(chosen).astype(np.uint16),
        token_start=np.concatenate([[0], np.cumsum([len(one) for one in chosen])]),
    )
    owner = np.repeat(np.arange(CONCEPTS), np.diff(DATA.term_start))
    share = np.zeros((CONCEPTS, CONCEPTS), bool)
    for i, one in enumerate(chosen):
        for j, other in enumerate(chosen):
            share[owner[i], owner[j]] |= one == other and owner[i] != owner[j]
    assert 0.1 < share.mean() < 0.9
    return data, share


def test_concepts_that_share_a_name(pool):
    """Of equal tokens in another order, and of more, none."""
    data, share = pool
    everyone = np.arange(CONCEPTS)
    np.testing.assert_array_equal(SharedNames(data)(everyone[:, None], everyone[None]), share)
    assert not SharedNames(DATA)(everyone[:, None], everyone[None]).any()


def test_hashes_of_names_do_not_depend_on_the_chunk(monkeypatch):
    whole = name_hashes(DATA.tokens, DATA.token_start)
    monkeypatch.setattr(shared_names, "TERMS_AT_ONCE", 7)
    np.testing.assert_array_equal(name_hashes(DATA.tokens, DATA.token_start), whole)
