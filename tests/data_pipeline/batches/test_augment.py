"""Batches in which a share of the names is shown as people write them."""

import dataclasses

import numpy as np
import pytest
from tiny_bert import TINY, write_tokenizer
from tiny_dataset import tiny_dataset

from data_pipeline.batches.batch_maker import BatchMaker
from data_pipeline.batches.spec import BatchSpec, NeighbourSpec, StepCut
from data_pipeline.dataset.tokenizer import load_tokenizer, tokenize
from data_pipeline.process import BadInput

SPEC = BatchSpec(draw="synonyms", groups=4, triplets=8, repeats=2, augment=0.3, row_length=64)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Names such as "chronic heart disease 17", of a tiny tokenizer."""
    folder = tmp_path_factory.mktemp("dataset")
    (folder / "tokenizer").mkdir()
    write_tokenizer(folder / "tokenizer")
    dataset = tiny_dataset(concepts=60, triplets=150, vocabulary=TINY.vocab_size)
    kinds = ("chronic heart disease", "pain in the limb", "acute attack", "renal failure")
    terms = [f"{kinds[n % 4]} {n}" for n in range(int(dataset.term_start[-1]))]
    tokenizer = load_tokenizer(folder / "tokenizer")
    of_data = dataclasses.replace(dataset.manifest.tokenizer, max_length=24)
    tokens, start = tokenize(tokenizer, terms, 24)
    manifest = dataclasses.replace(dataset.manifest, tokenizer=of_data)
    return dataclasses.replace(
        dataset, folder=folder, manifest=manifest, terms=terms, tokens=tokens, token_start=start
    )


def names(dataset, maker, step):
    """The strings of a step's names, group by group, as an encoder reads them."""
    tokenizer = load_tokenizer(dataset.folder / "tokenizer")
    made = maker.unpacked(step)
    bounds = np.concatenate([[0], np.cumsum(made["lengths"].ravel())])
    pieces = [made["tokens"][a:b].tolist() for a, b in zip(bounds, bounds[1:], strict=False)]
    return [tokenizer.decode(ids) for ids in pieces]


@pytest.mark.parametrize("changes", [{}, {"draw": "pairs", "repeats": 1}])
def test_a_share_is_rewritten_and_the_rest_is_as_it_was(dataset, changes):
    spec = dataclasses.replace(SPEC, **changes)
    plain = BatchMaker(dataset, dataclasses.replace(spec, augment=0.0))
    maker = BatchMaker(dataset, spec)
    changed = total = 0
    for step in range(10):
        drawn = plain.draw(step, np.arange(spec.groups))
        written, as_is = names(dataset, maker, step), names(dataset, plain, step)
        for name, other, term in zip(written, as_is, drawn["terms"].ravel(), strict=True):
            assert other.replace(" ", "") == dataset.terms[term].replace(" ", "")
            changed += name != other
            total += 1
    assert 0.25 < changed / total < 0.35


@pytest.mark.slow
def test_all_names_may_be_rewritten(dataset):
    maker = BatchMaker(dataset, dataclasses.replace(SPEC, augment=1.0))
    plain = BatchMaker(dataset, dataclasses.replace(SPEC, augment=0.0))
    pairs = zip(names(dataset, maker, 3), names(dataset, plain, 3), strict=True)
    assert np.mean([one != other for one, other in pairs]) > 0.95


@pytest.mark.slow
def test_a_batch_is_a_function_of_its_step_and_of_no_cut(dataset):
    whole = BatchMaker(dataset, SPEC)
    straight = list(whole.batches(0, 6))
    for step in (5, 2):
        again = BatchMaker(dataset, SPEC).batch(step)  # as after a stop
        for name, array in straight[step].items():
            np.testing.assert_array_equal(array, again[name], err_msg=name)
    for cut in (StepCut(passes=2), StepCut(blocks=2), StepCut(blocks=2, first=1, last=2)):
        part = BatchMaker(dataset, SPEC, cut)
        made = part.batch(2)
        wanted = whole.unpacked(2)
        groups = part.groups.ravel()
        bounds = np.concatenate([[0], np.cumsum(wanted["lengths"].ravel())])
        per_group = wanted["lengths"].shape[1]
        first = groups[0] * per_group
        expected = wanted["tokens"][bounds[first] : bounds[(groups[-1] + 1) * per_group]]
        segments = made["segments"].ravel()
        found = made["tokens"].ravel()[segments > 0]
        np.testing.assert_array_equal(np.sort(found), np.sort(expected))
    other = BatchMaker(dataset, dataclasses.replace(SPEC, seed=1)).batch(2)
    assert not np.array_equal(other["tokens"], straight[2]["tokens"])


def test_with_neighbours_too(dataset):
    fields = {field.name: getattr(SPEC, field.name) for field in dataclasses.fields(SPEC)}
    spec = NeighbourSpec(**fields, mined_share=0.5, neighbours=3)
    plain = BatchMaker(dataset, dataclasses.replace(spec, augment=0.0))
    written, as_is = (names(dataset, maker, 1) for maker in (BatchMaker(dataset, spec), plain))
    share = np.mean([one != other for one, other in zip(written, as_is, strict=True)])
    assert 0.15 < share < 0.45


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_that_is_none(share):
    with pytest.raises(BadInput, match=rf"--augment is {share}; expected a share of the names"):
        dataclasses.replace(SPEC, augment=share).validate()
