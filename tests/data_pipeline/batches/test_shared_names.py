"""Concepts that share a name: the pairs of a terminology, and the bits of a batch."""

import dataclasses

import numpy as np
import pytest
from tiny_dataset import tiny_dataset

from data_pipeline.batches.draws import shared_names
from data_pipeline.batches.draws.shared_names import SharedNames, name_hashes
from data_pipeline.batches.files import BatchFiles, write_batches
from data_pipeline.batches.spec import SHARED_NAMES, BatchSpec, StepCut
from data_pipeline.batches.stream import BatchMaker

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


def shared_of(batch):
    """bool [groups, N, N], bit by bit, and the concepts [groups, N]."""
    concepts = batch["concepts"].reshape(-1, batch["concepts"].shape[-1])
    words = batch[SHARED_NAMES].reshape(*concepts.shape, -1).astype(np.uint32)
    terms = concepts.shape[1]
    assert words.shape[-1] == -(-terms // 32)
    told = [
        [[int(row[j // 32]) >> j % 32 & 1 for j in range(terms)] for row in group]
        for group in words
    ]
    return np.array(told, bool), concepts


@pytest.mark.parametrize(
    "spec",
    [
        BatchSpec(groups=4, triplets=4, repeats=4, row_length=64),  # 32 terms: one whole word
        BatchSpec(groups=4, draw="synonyms", triplets=17, repeats=1, row_length=64),
        BatchSpec(groups=4, draw="pairs", triplets=20, repeats=1, row_length=64),
        BatchSpec(groups=4, triplets=2, repeats=3, corrupted_tails=True, row_length=64),
    ],
    ids=["32 terms", "34", "40 pairs", "18 with corrupted tails"],
)
def test_the_bits_of_a_batch(pool, spec):
    data, share = pool
    spec = dataclasses.replace(spec, mask_shared_names=True)
    for cut in (StepCut(), StepCut(passes=2, blocks=2, first=1, last=2)):
        batch = next(BatchMaker(data, spec, cut).batches(3, 4))
        told, concepts = shared_of(batch)
        wanted = share[concepts[:, :, None], concepts[:, None, :]]
        np.testing.assert_array_equal(told, wanted)
        assert wanted.any()


def test_nothing_is_shared_where_no_name_is(pool):
    spec = BatchSpec(groups=2, triplets=4, repeats=2, row_length=64, mask_shared_names=True)
    assert not next(BatchMaker(DATA, spec).batches(0, 1))[SHARED_NAMES].any()
    without = dataclasses.replace(spec, mask_shared_names=False)
    assert SHARED_NAMES not in next(BatchMaker(pool[0], without).batches(0, 1))


def test_files_keep_them(pool, tmp_path):
    data, _ = pool
    (tmp_path / "dataset" / "tokenizer").mkdir(parents=True)
    data = dataclasses.replace(data, folder=tmp_path / "dataset")
    spec = BatchSpec(groups=2, triplets=4, repeats=2, row_length=64, mask_shared_names=True)
    maker = BatchMaker(data, spec)
    write_batches(maker, tmp_path / "batches", 0, 2)
    files = BatchFiles(tmp_path / "batches", spec)
    for made, again in zip(maker.batches(0, 2), files.batches(0, 2), strict=True):
        np.testing.assert_array_equal(again[SHARED_NAMES], made[SHARED_NAMES])
