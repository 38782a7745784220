"""Ancestors in groups, and which concepts of a group are kin: by hand on a small hierarchy."""

import dataclasses
import itertools

import numpy as np
import pytest
from tiny_dataset import tiny_dataset

from data_pipeline.batches.batch_maker import BatchMaker
from data_pipeline.batches.kinship import _GRANDPARENT, _OTHERWISE, _PARENT, Ancestors, Kin
from data_pipeline.batches.order import key
from data_pipeline.batches.spec import BatchSpec, NeighbourSpec, StepCut
from data_pipeline.process import BadInput

# 0 is the root; 1 and 2 are below it, 3 below 1 and 2, 4 below 3, 5 alone.
ROWS = [  # head, relation, tail
    (0, "CHD|isa", 1),
    (1, "PAR|inverse_isa", 0),
    (2, "PAR|", 0),  # the other direction is not there
    (1, "CHD|isa", 3),
    (3, "PAR|inverse_isa", 2),
    (4, "PAR|inverse_isa", 3),
    (4, "PAR|inverse_isa", 4),  # as no concept is its own parent
    (4, "RO|finding_site_of", 5),
    (1, "RO|part_of", 2),
]
LABELS = sorted({row[1] for row in ROWS})
PARENTS = {0: set(), 1: {0}, 2: {0}, 3: {1, 2}, 4: {3}, 5: set()}
GRANDPARENTS = {0: set(), 1: set(), 2: set(), 3: {0}, 4: {1, 2}, 5: set()}


def family(rows=ROWS, concepts=6):
    dataset = tiny_dataset(concepts=concepts, triplets=1)
    heads, labels, tails = zip(*sorted(rows), strict=True)
    return dataclasses.replace(
        dataset,
        manifest=dataclasses.replace(dataset.manifest, relations=LABELS),
        heads=np.array(heads, np.int32),
        relations=np.array([LABELS.index(label) for label in labels], np.int32),
        tails=np.array(tails, np.int32),
    )


def large(labels):
    """A larger dataset, whose relations are called so."""
    dataset = tiny_dataset(concepts=60, triplets=150, relations=len(labels))
    manifest = dataclasses.replace(dataset.manifest, relations=labels)
    return dataclasses.replace(dataset, manifest=manifest)


def test_ancestors_are_parents_and_grandparents():
    ancestors = Ancestors(family())
    tries = 400
    for concept in range(6):
        random = key(0, "permutation", np.arange(tries), concept)
        found = ancestors(random, np.full(tries, concept))
        allowed = (PARENTS[concept] | GRANDPARENTS[concept]) or {concept}
        assert set(found.tolist()) == allowed
    found = ancestors(key(0, "permutation", np.arange(4000)), np.full(4000, 4))
    assert 0.45 < np.mean(found == 3) < 0.55, "the parent, half of the time"
    assert 0.2 < np.mean(found == 1) < 0.3


def expected_kin(one, other, mode):
    if one == other:
        return 0
    for kind, table in ((_PARENT, PARENTS), (_GRANDPARENT, GRANDPARENTS)):
        if mode == "hierarchy" and (one in table[other] or other in table[one]):
            return kind
    joined = {(head, tail) for head, _, tail in ROWS}
    if mode == "any" and {(one, other), (other, one)} & joined:
        return _OTHERWISE
    return 0


@pytest.mark.parametrize("mode", ["hierarchy", "any"])
def test_kin_of_a_group(mode):
    groups = np.array([[4, 0, 5, 3, 1, 2, 4, 4], [5, 5, 2, 1, 2, 0, 4, 5]], np.int32)
    found = Kin(family(), BatchSpec(mask_related=mode))(groups).reshape(2, 8, 8)
    assert found.dtype == np.int32
    for group, kin in zip(groups.tolist(), found, strict=True):
        for i, j in itertools.product(range(8), range(8)):
            assert kin[i, j] == expected_kin(group[i], group[j], mode), (group[i], group[j])


def test_kin_by_any_relation_says_who_is_an_ancestor_where_these_count():
    spec = BatchSpec(mask_related="any", ancestors=2)
    kin = Kin(family(), spec)(np.array([[3, 1, 0, 4, 5, 2]])).reshape(6, 6)
    assert kin[0].tolist() == [0, _PARENT, _GRANDPARENT, _PARENT, 0, _PARENT]
    assert kin[3, 4] == _OTHERWISE and kin[1, 5] == _OTHERWISE


@pytest.mark.parametrize("draw", ["synonyms", "concepts", "relations", "pairs"])
def test_a_group_with_ancestors(draw):
    dataset = large(["PAR|inverse_isa", "RO|x"])
    repeats = 1 if draw == "pairs" else 2
    plain = BatchSpec(draw=draw, groups=2, triplets=8, repeats=repeats, row_length=64)
    spec = dataclasses.replace(plain, ancestors=5)
    maker, as_it_was = BatchMaker(dataset, spec), BatchMaker(dataset, plain)
    parents = {concept: set() for concept in range(60)}
    for head, relation, tail in zip(dataset.heads, dataset.relations, dataset.tails, strict=True):
        if relation == 0 and head != tail:
            parents[head].add(tail)
    kinds = set()
    for step in range(12):
        drawn, before = maker.draw(step, np.arange(2)), as_it_was.draw(step, np.arange(2))
        for name in ("concepts", "terms"):
            np.testing.assert_array_equal(drawn[name][:, :-5], before[name])
        made = maker.unpacked(step)
        assert made["kin"].shape == (2, spec.terms // 2 * (spec.terms // 2))
        for concepts, terms in zip(drawn["concepts"], drawn["terms"], strict=True):
            heads = concepts[: 5 * repeats : repeats]
            owners = np.searchsorted(dataset.term_start, terms, side="right") - 1
            np.testing.assert_array_equal(owners, concepts)
            for head, other in zip(heads.tolist(), concepts[-5:].tolist(), strict=True):
                above = parents[head]
                further = set().union(*(parents[one] for one in above)) if above else set()
                kinds.add(1 if other in above else 2 if other in further else 0)
                assert other in above | further or (other == head and not above)
    assert kinds == {0, 1, 2}


def test_batches_have_kin_whatever_the_cut():
    dataset = large(["PAR|inverse_isa", "RO|x"])
    spec = BatchSpec(groups=4, triplets=4, repeats=2, row_length=64, ancestors=3)
    whole = BatchMaker(dataset, spec).unpacked(3)
    assert whole["kin"].any() and whole["concepts"].shape == (4, 19)
    cut = BatchMaker(dataset, spec, StepCut(passes=2, blocks=2))
    made = list(cut.batches(3, 4))[0]
    for name in ("kin", "concepts"):
        assert made[name].shape[:3] == (2, 2, 1)
        np.testing.assert_array_equal(made[name].reshape(whole[name].shape), whole[name])
    assert made.keys() == cut.shapes(1).keys()


def test_neighbours_know_their_kin_too():
    spec = NeighbourSpec(
        draw="synonyms",
        groups=1,
        triplets=8,
        repeats=2,
        row_length=64,
        mined_share=0.5,
        neighbours=3,
        mask_related="hierarchy",
    )
    made = BatchMaker(large(["PAR|inverse_isa", "RO|x"]), spec).unpacked(0)
    assert made["kin"].shape == (1, 32 * 32)
    with pytest.raises(BadInput, match="--ancestors is for groups without neighbours"):
        dataclasses.replace(spec, ancestors=1).validate()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ancestors": 17}, "--ancestors is 17, but a group has 16 concepts"),
        ({"ancestors": -1}, "--ancestors is -1; expected 0 or more"),
        ({"ancestor_weight": 0.0}, "--ancestor-weight is 0.0; expected more than 0"),
        ({"ancestor_weight": 1.5}, "--ancestor-weight is 1.5; expected more than 0, and 1 at most"),
        ({"ancestors": 1, "corrupted_tails": True}, "--ancestors cannot be mixed with corrupted"),
    ],
)
def test_settings_that_do_not_fit(changes, message):
    with pytest.raises(BadInput, match=message):
        BatchSpec(**changes).validate()


def test_data_without_what_is_asked_for():
    flat = large(["RO|x"])
    for spec, flag in (
        (BatchSpec(ancestors=2), "--ancestors"),
        (BatchSpec(mask_related="hierarchy"), "--mask-related hierarchy"),
    ):
        with pytest.raises(BadInput, match=f"{flag} needs a hierarchy, and tiny has no relation"):
            BatchMaker(flat, spec)
    none = dataclasses.replace(
        flat, heads=flat.heads[:0], relations=flat.relations[:0], tails=flat.tails[:0]
    )
    with pytest.raises(BadInput, match="--mask-related is any, but tiny has no relations"):
        BatchMaker(none, BatchSpec(draw="synonyms", triplets=4, mask_related="any"))
