"""Batches: equal to a slow twin, a pure function of the step, nothing lost, shapes static."""

import dataclasses
import itertools

import numpy as np
import pytest
from batch_twin import twin_batch, twin_has_synonym, twin_likeness
from tiny_dataset import tiny_dataset

from data_pipeline.batches.batch_maker import BatchMaker
from data_pipeline.batches.draws import Draw
from data_pipeline.batches.packing import rows_in_use
from data_pipeline.batches.spec import BatchSpec, StepCut
from data_pipeline.build_dataset.build import build_dataset
from data_pipeline.build_dataset.options import BuildOptions
from data_pipeline.dataset.store import open_dataset
from data_pipeline.process import BadInput

SPECS = {
    "paper": BatchSpec(groups=2, triplets=8, repeats=4),
    "concepts": BatchSpec(
        draw="concepts", names="distinct", groups=2, triplets=8, repeats=2, seed=5
    ),
    "concepts, terms with replacement": BatchSpec(draw="concepts", groups=2, triplets=8, repeats=3),
    "concepts, each once": BatchSpec(draw="concepts", groups=2, triplets=8, repeats=1),
    "synonyms": BatchSpec(
        draw="synonyms", names="distinct", groups=2, triplets=16, repeats=1, row_length=64
    ),
    "unlike names": BatchSpec(draw="concepts", names="unlike", groups=2, triplets=8, repeats=2),
    "synonyms, unlike names": BatchSpec(
        draw="synonyms", names="unlike", groups=2, triplets=8, repeats=1, row_length=64
    ),
    "relations, more unlike names than there are": BatchSpec(
        names="unlike", groups=2, triplets=8, repeats=9
    ),
    "corrupted tails": BatchSpec(
        groups=2, triplets=8, repeats=3, corrupted_tails=True, semantic_types=True
    ),
    "corrupted tails of concepts": BatchSpec(
        draw="concepts", groups=2, triplets=8, repeats=2, corrupted_tails=True
    ),
    "filled": BatchSpec(
        names="distinct",
        groups=2,
        fill_pairs=21,
        repeats=4,
        corrupted_tails=True,
        semantic_types=True,
    ),
    "filled with concepts": BatchSpec(
        draw="concepts", names="unlike", groups=2, fill_pairs=20, repeats=3, corrupted_tails=True
    ),
}


@pytest.fixture(scope="module")
def dataset():
    # Of few word pieces, so that names are alike.
    return tiny_dataset(concepts=60, triplets=150, vocabulary=7)


def assert_equal(got, want):
    assert got.keys() == want.keys()
    for name in want:
        np.testing.assert_array_equal(got[name], want[name], err_msg=name)


SLOW = pytest.mark.slow
ALIKE = (  # to these others say the same
    "concepts, terms with replacement",
    "concepts, each once",
    "synonyms, unlike names",
    "corrupted tails of concepts",
    "relations, more unlike names than there are",
)
CUTS = [pytest.param(name, 1, 2, marks=SLOW if name in ALIKE else ()) for name in SPECS] + [
    pytest.param(name, *cut, marks=() if (name, cut) == ("paper", (1, 1)) else SLOW)
    for name in SPECS
    for cut in ((1, 1), (2, 1))
]


@pytest.mark.parametrize(("name", "passes", "blocks"), CUTS)
def test_equals_the_twin(dataset, name, passes, blocks):
    spec = SPECS[name]
    maker = BatchMaker(dataset, spec, StepCut(passes=passes, blocks=blocks))
    # The first steps, and steps over several epochs later.
    for first in (0, 41):
        for step, batch in zip(
            range(first, first + 4), maker.batches(first, first + 4), strict=True
        ):
            assert_equal(batch, twin_batch(dataset, spec, step, maker.plan, passes, blocks))


def test_a_filled_group_shows_as_many_different_terms_as_head_and_tail_have(dataset):
    """As CODER v1's code: min(terms of the head, terms of the tail, m) pairs of each triplet."""
    spec = SPECS["filled"]
    draw = Draw(dataset, spec)
    counts, triplets = np.diff(dataset.term_start), 0
    for step in range(20):
        drawn = draw(step, np.arange(2))
        for concepts, terms, labels in zip(
            drawn["concepts"], drawn["terms"], drawn["relations"], strict=True
        ):
            heads, tails, corrupted = concepts.reshape(3, spec.pairs)
            triplet = list(zip(heads, labels, tails, strict=True))
            occurring = [
                list(pairs)
                for _, pairs in itertools.groupby(range(spec.pairs), triplet.__getitem__)
            ]
            for pairs in occurring[:-1]:  # the last may be cut short
                head, tail = heads[pairs[0]], tails[pairs[0]]
                assert len(pairs) == min(counts[head], counts[tail], spec.repeats)
            for pairs in occurring:
                for side in (0, 1):
                    shown = terms[side * spec.pairs :][pairs]
                    assert len(set(shown.tolist())) == len(pairs)
            assert (corrupted != tails).all() and len(set(corrupted.tolist())) > spec.pairs // 2
            triplets += len(occurring)
    assert triplets > 20 * 2 * spec.pairs // spec.repeats


def test_a_filled_group_shows_no_term_twice_or_says_why_not(dataset):
    with pytest.raises(BadInput, match="--fill-pairs is 21 and --names is any"):
        dataclasses.replace(SPECS["filled"], names="any").validate()


def test_starts_at_any_step(dataset):
    maker = BatchMaker(dataset, SPECS["paper"])
    straight = list(maker.batches(0, 9))
    for batch, again in zip(straight[5:], maker.batches(5, 9), strict=True):
        assert_equal(again, batch)


def test_each_host_makes_its_own_blocks_in_the_same_shape(dataset):
    spec = dataclasses.replace(SPECS["concepts"], groups=8)
    cut = StepCut(passes=2, blocks=4)
    maker = BatchMaker(dataset, spec, cut)
    whole = next(maker.batches(3))
    for first in range(0, 4, 2):
        share = BatchMaker(dataset, spec, dataclasses.replace(cut, first=first, last=first + 2))
        assert share.plan == maker.plan
        mine = {name: array[:, first : first + 2] for name, array in whole.items()}
        assert_equal(next(share.batches(3)), mine)


def test_an_epoch_shows_every_triplet_once_and_no_group_twice(dataset):
    spec = BatchSpec(groups=1, triplets=10, repeats=2)
    maker = BatchMaker(dataset, spec)
    rows = {
        (h, r, t): i
        for i, (h, r, t) in enumerate(
            zip(
                dataset.heads.tolist(),
                dataset.relations.tolist(),
                dataset.tails.tolist(),
                strict=True,
            )
        )
    }
    assert maker.steps_per_epoch == 15
    for epoch in range(2):
        seen = []
        for batch in maker.batches(epoch * 15, (epoch + 1) * 15):
            concepts = batch["concepts"][0, 0, 0].reshape(2, 10, 2)[:, :, 0]
            group = list(zip(concepts[0], batch["relations"][0, 0, 0], concepts[1], strict=True))
            assert len(set(group)) == 10
            seen += [rows[tuple(int(x) for x in triplet)] for triplet in group]
        assert sorted(seen) == list(range(150))


def pairs_of_names(dataset, spec):
    """[(head's term, tail's term)] of the pairs of twenty steps of two groups."""
    draw = Draw(dataset, spec)
    terms = np.concatenate([draw(step, np.arange(2))["terms"] for step in range(20)])
    return list(zip(*(half.ravel().tolist() for half in np.split(terms, 2, axis=1)), strict=True))


@pytest.mark.parametrize("name", ["synonyms", "synonyms, unlike names"])
def test_the_two_names_of_a_concept_differ(dataset, name):
    assert all(first != second for first, second in pairs_of_names(dataset, SPECS[name]))


def test_unlike_names_share_few_pieces(dataset):
    def likeness(names):
        pairs = pairs_of_names(dataset, dataclasses.replace(SPECS["synonyms"], names=names))
        return np.mean([float(twin_likeness(dataset, *pair)) for pair in pairs])

    assert likeness("unlike") < 0.8 * likeness("distinct")


def test_concepts_whose_names_are_all_alike_are_not_drawn(dataset):
    drawn = {
        concept
        for batch in BatchMaker(dataset, SPECS["synonyms, unlike names"]).batches(0, 30)
        for concept in batch["concepts"].ravel().tolist()
    }
    several = np.flatnonzero(np.diff(dataset.term_start) >= 2).tolist()
    alike = [c for c in several if not twin_has_synonym(dataset, SPECS["unlike names"], c)]
    assert len(alike) >= 2 and drawn == set(several) - set(alike)


def test_rows_are_planned(dataset):
    maker = BatchMaker(dataset, SPECS["paper"], StepCut(row_multiple=4))
    usual, ample = maker.plan.sizes[-2:]
    assert usual % 4 == ample % 4 == 0 and usual <= ample
    in_use = np.array([rows_in_use(batch["segments"]) for batch in maker.batches(0, 100)])
    assert np.mean(in_use <= usual) > 0.6 and in_use.max() <= ample
    assert in_use.max() > usual - 4, "fewer rows would do"


def test_rows_in_use_are_those_of_the_fullest_block():
    segments = np.zeros((2, 3, 5, 4), int)
    assert rows_in_use(segments) == 0
    segments[0, 0, :2, 0] = 1
    segments[1, 2, :4, 0] = 1
    assert rows_in_use(segments) == 4


@pytest.mark.slow
def test_rows_are_full_on_a_real_ontology(tmp_path, hpo_path, minilm_path):
    """The paper's step of 2,048 terms: at least 93 % of the tokens are no padding."""
    options = BuildOptions(source=hpo_path, out=tmp_path / "hpo", tokenizer=minilm_path)
    maker = BatchMaker(open_dataset(build_dataset(options)), BatchSpec())
    fill = []
    for batch in maker.batches(0, 50):
        segments = batch["segments"]
        rows = maker.plan.rows(rows_in_use(segments))
        fill.append(np.mean(segments[:, :, :rows] > 0))
    assert np.mean(fill) >= 0.93


def test_too_few_rows_are_an_error_and_never_drop_a_term(dataset):
    maker = BatchMaker(dataset, SPECS["paper"], rows=2)
    with pytest.raises(BadInput, match="(?s)planned 2 rows.*Set --rows to a larger number"):
        next(maker.batches(0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": 3, "passes": 2}, "--passes is 2 and --groups is 3: .* that divides 3"),
        (
            {"groups": 4, "passes": 4, "blocks": 2},
            "--passes is 4 and --groups is .* on 2 blocks of devices; give --passes that divides 2",
        ),
        ({"row_length": 8}, "up to 12 tokens, but rows have 8; give --row-length 12 or more"),
        ({"triplets": 500}, "has 150 triplets, but a group takes 500 distinct"),
        (
            {"triplets": 70, "draw": "concepts"},
            "concepts that have a synonym, but a group takes 70",
        ),
        (
            {"triplets": 70, "draw": "synonyms", "names": "unlike"},
            "unlike their first name, but a group takes 70 .*smaller --triplets, --names any, ano",
        ),
        (
            {"fill_pairs": 70, "draw": "synonyms", "names": "unlike"},
            "a group takes 70 .*smaller --fill-pairs, --names distinct, another --draw",
        ),
        ({"repeats": 1}, "--repeats is 1: with --draw relations"),
        ({"groups": 0}, "--groups is 0; expected 1 or more"),
    ],
)
def test_messages(dataset, change, message):
    cut = StepCut(**{name: change[name] for name in ("passes", "blocks") if name in change})
    changed = {name: value for name, value in change.items() if name not in ("passes", "blocks")}
    with pytest.raises(BadInput, match=message):
        BatchMaker(dataset, dataclasses.replace(SPECS["paper"], **changed), cut)


def test_the_step_that_needs_more_rows_than_planned_is_named(dataset):
    """Several steps are made together, but one of them is too large."""
    spec = SPECS["paper"]
    maker = BatchMaker(dataset, spec)
    needed = [maker.rows_in_use(batch) for batch in maker.batches(0, 40)]
    step = int(np.argmax(needed))
    assert needed[step] > max(needed[:step]), "the first of all that are as large"
    few = BatchMaker(dataset, spec, rows=needed[step] - 1)
    assert few.plan.ample == needed[step] - 1
    with pytest.raises(BadInput, match=rf"needed by the batch of step {step}\. Set --rows"):
        list(few.batches(0, 40))
