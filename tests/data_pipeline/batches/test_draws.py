"""The draw of terms: equal to a slow twin, each row once an epoch, whatever the cut."""

import dataclasses
import itertools
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from batch_twin import twin_key, twin_permute
from tiny_dataset import tiny_dataset

from data_pipeline.batches import draws as shared_names
from data_pipeline.batches.batch_maker import BatchMaker
from data_pipeline.batches.candidates import (
    Classes,
    _languages_of,
    read_classes,
    write_classes,
)
from data_pipeline.batches.draws import (
    _MOST_PAIRS,
    Draw,
    Names,
    NeighbourDraw,
    PairDraw,
    SharedNames,
    TermDraw,
    _has_unlike_name,
    _least_alike,
    _likeness,
    _name_hashes,
    _term_rows,
)
from data_pipeline.batches.spec import NEIGHBOURS, BatchSpec, NeighbourSpec, StepCut, TermSpec
from data_pipeline.dataset.store import Occurrences, groups_of
from data_pipeline.process import BadInput
from data_pipeline.terminology.semantic_groups import ANY, GROUPS

ANAT, DISO, PROC = (GROUPS.index(name) for name in ("ANAT", "DISO", "PROC"))
TYPES = ["T017 Anatomical Structure", "T047 Disease or Syndrome", "T061 Procedure", "T184 Sign"]
OF_TYPE = [ANAT, DISO, PROC, DISO]
SPEC = TermSpec(terms=12, groups=4, row_length=32, seed=3)


def make(*, semantic_groups=None, **changes):
    dataset = tiny_dataset(concepts=30, triplets=10, **changes)
    manifest = dataclasses.replace(
        dataset.manifest,
        semantic_types=TYPES,
        filters={"semantic_groups": semantic_groups},
    )
    return dataclasses.replace(dataset, manifest=manifest)


def twin_rows(dataset, kept=range(ANY)):
    rows = []
    for concept in range(len(dataset.term_start) - 1):
        start, stop = dataset.type_start[concept : concept + 2]
        groups = sorted({OF_TYPE[t] for t in dataset.types[start:stop]} & set(kept)) or [ANY]
        for term in range(*dataset.term_start[concept : concept + 2]):
            rows += [(term, group, concept) for group in groups]
    return rows


def test_rows_are_each_term_with_each_group_of_its_concept():
    dataset = make()
    terms, groups = _term_rows(dataset)
    expected = twin_rows(dataset)
    assert list(zip(terms, groups, strict=True)) == [row[:2] for row in expected]
    assert {ANAT, DISO, PROC, ANY} == set(groups.tolist())
    assert len(expected) > dataset.term_start[-1]  # some are of two groups


def test_rows_are_of_the_groups_that_the_dataset_was_built_with():
    terms, groups = _term_rows(make(semantic_groups=["DISO"]))
    expected = twin_rows(make(), [DISO])
    assert list(zip(terms, groups, strict=True)) == [row[:2] for row in expected]


def two_languages():
    """Every third term is French."""
    dataset = make()
    manifest = dataclasses.replace(dataset.manifest, languages=["ENG", "FRE"])
    french = np.arange(dataset.term_start[-1]) % 3 == 0
    return dataclasses.replace(dataset, manifest=manifest, term_language=french.astype(np.uint8))


def test_rows_of_a_language_are_those_of_its_terms():
    dataset = two_languages()
    expected = [row[:2] for row in twin_rows(dataset) if row[0] % 3 == 0]
    terms, groups = _term_rows(dataset, ["FRE"])
    assert list(zip(terms, groups, strict=True)) == expected
    both = _term_rows(dataset, ["FRE", "ENG"])
    np.testing.assert_array_equal(both, _term_rows(dataset))
    draw = TermDraw(dataset, dataclasses.replace(SPEC, languages=("FRE",)))
    assert draw.size == len(expected)
    assert not (draw(7, np.arange(4))["terms"] % 3).any()
    assert set(draw.concepts) == set(range(30))  # classes are those of all terms


def test_a_language_that_is_not_there_is_refused():
    with pytest.raises(BadInput, match=r"GER: tiny has no term in it; expected some of ENG FRE"):
        _term_rows(two_languages(), ["FRE", "GER"])


def test_a_step_is_what_a_slow_twin_draws():
    dataset = make()
    rows, draw = twin_rows(dataset), TermDraw(dataset, SPEC)
    per_epoch = len(rows) // SPEC.terms
    for step in (0, 1, per_epoch - 1, per_epoch, 5 * per_epoch + 2):
        epoch, within = divmod(step, per_epoch)
        key = twin_key(SPEC.seed, "permutation", epoch)
        places = [twin_permute(within * SPEC.terms + i, len(rows), key) for i in range(SPEC.terms)]
        drawn = draw(step, np.arange(SPEC.groups))
        for name, column in (("terms", 0), ("semantic_groups", 1), ("concepts", 2)):
            expected = np.reshape([rows[place][column] for place in places], (SPEC.groups, -1))
            np.testing.assert_array_equal(drawn[name], expected)


def test_an_epoch_shows_no_row_twice_and_the_next_has_another_order():
    dataset = make()
    draw = TermDraw(dataset, SPEC)
    per_epoch = draw.groups_per_epoch // SPEC.groups

    def epoch(number):
        steps = range(number * per_epoch, (number + 1) * per_epoch)
        return np.concatenate([draw.rows(s, np.arange(4)) for s in steps])

    first, second = epoch(0).ravel(), epoch(1).ravel()
    assert len(set(first.tolist())) == first.size > draw.size - SPEC.terms
    assert (first != second).mean() > 0.8


def with_mentions(dataset):
    """Of term 0 two more, of term 19 three in the second language; term 4 is a name in both."""
    again = np.array([0, 4, 19], np.int32), np.array([0, 1, 1], np.uint8), np.array([2, 0, 3])
    return dataclasses.replace(dataset, occurrences=Occurrences(*again))


def test_an_epoch_shows_a_term_as_often_as_it_has_mentions():
    dataset = with_mentions(two_languages())
    one_at_once = dataclasses.replace(SPEC, terms=1, groups=1)  # so that no epoch leaves any out
    for languages, counts in (((), {0: 3, 4: 1, 19: 4}), (("FRE",), {0: 1, 4: 1, 19: 4})):
        draw = TermDraw(dataset, dataclasses.replace(one_at_once, languages=languages))
        terms = [term for term, _, _ in twin_rows(dataset)]
        wanted = [term for term in terms if not languages or term % 3 == 0 or term in (4, 19)]
        expected = {term: wanted.count(term) * counts.get(term, 1) for term in wanted}
        assert draw.size == sum(expected.values())
        for first in (0, draw.size):
            steps = range(first, first + draw.size)
            shown = [draw(step, np.arange(1))["terms"].item() for step in steps]
            assert Counter(shown) == expected


def test_concepts_have_the_other_languages_of_their_terms():
    dataset = with_mentions(two_languages())
    expected = np.zeros(30, int)
    for term, _, concept in twin_rows(dataset):
        english = term % 3 > 0 or term == 0
        french = term % 3 == 0 or term in (4, 19)
        expected[concept] |= english + 2 * french
    np.testing.assert_array_equal(_languages_of(dataset), expected)
    assert (_languages_of(dataset) != _languages_of(two_languages())).any()


def test_batches_hold_the_tokens_of_their_terms_however_they_are_cut(tmp_path):
    dataset = make()
    whole = next(BatchMaker(dataset, SPEC).batches(7, 8))
    assert whole["concepts"].shape == whole["semantic_groups"].shape == (1, 1, 4, 3)
    terms = TermDraw(dataset, SPEC)(7, np.arange(4))["terms"].ravel()
    for place, term in enumerate(terms):
        tokens = whole["tokens"][whole["segments"] == place + 1]
        start, stop = dataset.token_start[term : term + 2]
        assert tokens.tolist() == dataset.tokens[start:stop].tolist()
    halves = [
        next(BatchMaker(dataset, SPEC, StepCut(blocks=2, first=i, last=i + 1)).batches(7, 8))
        for i in (0, 1)
    ]
    for name in ("concepts", "semantic_groups"):
        joined = np.concatenate([half[name] for half in halves], axis=1)
        np.testing.assert_array_equal(joined.ravel(), whole[name].ravel())


def test_classes_that_are_written_are_read(tmp_path):
    classes = Classes([f"C{number}" for number in range(30)], groups_of(make()))
    write_classes(tmp_path, classes)
    kept = read_classes(tmp_path)
    assert kept.concepts == classes.concepts
    np.testing.assert_array_equal(kept.groups, classes.groups)


@pytest.mark.parametrize(
    "spec, words",
    [
        (TermSpec(terms=10, groups=4), "--terms is 10 and --groups is 4: .* a multiple of 4"),
        (TermSpec(terms=0), "--terms is 0; expected 1 or more"),
        (TermSpec(terms=4096), "but a step takes 4096"),
    ],
)
def test_numbers_that_cannot_be(spec, words):
    with pytest.raises(BadInput, match=words):
        TermDraw(make(), spec)


# -------------------------------------------------------------------------------------------------
# The draw of pairs: each pair of names once an epoch, at most 50 of a concept, any step alone.

NAMES = np.array([1, 2, 3, 5, 1, 11, 12, 40, 2, 10])  # of each concept


def draw_of(spec, names=NAMES):
    return PairDraw(SimpleNamespace(term_start=np.concatenate([[0], np.cumsum(names)])), spec)


def spec_of(**changes):
    return BatchSpec(**{"draw": "pairs", "groups": 2, "triplets": 8, "repeats": 1, **changes})


def pairs_of(draw, steps):
    """(concept, term, term) of each pair of some steps, the smaller term first."""
    found = []
    for step in steps:
        drawn = draw(step, np.arange(draw.spec.groups))
        for concepts, terms in zip(drawn["concepts"], drawn["terms"], strict=True):
            half = len(terms) // 2
            np.testing.assert_array_equal(concepts[:half], concepts[half:])
            for concept, one, other in zip(concepts, terms[:half], terms[half:], strict=False):
                found.append((int(concept), *sorted((int(one), int(other)))))
        assert (drawn["relations"] == -1).all()
        assert drawn["relations"].shape == (draw.spec.groups, draw.spec.triplets)
    return found


def possible(names=NAMES):
    start = np.concatenate([[0], np.cumsum(names)]).tolist()
    return {
        concept: set(itertools.combinations(range(start[concept], start[concept + 1]), 2))
        for concept in range(len(names))
    }


def test_an_epoch_has_each_pair_once_and_50_of_those_with_more():
    draw = draw_of(spec_of(groups=1, triplets=1))
    assert draw.size == sum(min(len(pairs), _MOST_PAIRS) for pairs in possible().values())
    found = pairs_of(draw, range(draw.groups_per_epoch))
    assert len(found) == draw.size and max(Counter(found).values()) == 1
    for concept, pairs in possible().items():
        mine = {(one, other) for c, one, other in found if c == concept}
        assert mine <= pairs and len(mine) == min(len(pairs), _MOST_PAIRS)
    # Of 40 names they are not those of some names alone.
    many = Counter(term for c, *terms in found if c == 7 for term in terms)
    assert len(many) > 30
    # The next epoch has the same pairs in another order.
    again = pairs_of(draw, range(draw.size, 2 * draw.size))
    assert again != found and set(again) == set(found)


def test_another_seed_takes_other_pairs_of_many():
    of_many = [
        {pair for pair in pairs_of(draw, range(draw.size)) if pair[0] == 7}
        for draw in (draw_of(spec_of(groups=1, triplets=1, seed=seed)) for seed in (0, 1))
    ]
    assert of_many[0] != of_many[1]


def test_groups_and_steps_stand_alone():
    draw = draw_of(spec_of())
    whole = draw(5, np.arange(2))
    for group in (0, 1):
        alone = draw(5, np.array([group]))
        for name, values in alone.items():
            np.testing.assert_array_equal(values[0], whole[name][group])


def test_too_few_pairs():
    with pytest.raises(BadInput, match="the dataset has 2 pairs of two names of a concept, but a"):
        draw_of(spec_of(), np.array([2, 1, 2]))


# -------------------------------------------------------------------------------------------------
# Blocks of neighbours: what each place of a group holds, the share of them, the start of a run.

DATA = tiny_dataset(concepts=60, triplets=150)
OWNER = np.repeat(np.arange(60), np.diff(DATA.term_start))
K = 3  # neighbours


def spec_of_of_neighbour_draw(**changes):
    base = {"groups": 2, "triplets": 8, "repeats": 2, "names": "distinct", "neighbours": K}
    return NeighbourSpec(**{**base, **changes})


def with_lists(spec, folder, lists=None):
    """A draw with an index of random neighbours, and these."""
    draw = NeighbourDraw(DATA, spec)
    most = len(OWNER) if spec.neighbours_of == "terms" else 60
    if lists is None:
        lists = np.random.default_rng(1).integers(0, most, (len(draw.anchors), spec.neighbours))
    folder.mkdir(exist_ok=True)
    np.save(folder / NEIGHBOURS, lists.astype(np.int32))
    return draw.with_index(folder), lists


def groups_of_of_neighbour_draw(draw, step):
    drawn = draw(step, np.arange(draw.spec.groups))
    return drawn


def pairs_of_of_neighbour_draw(drawn, group, spec):
    """[(concept, term), (concept, term)] of each pair of a group that shows neighbours."""
    half = spec.pairs - spec.mined_pairs
    sides = np.stack([drawn["concepts"][group], drawn["terms"][group]], axis=1)
    return list(zip(sides[half : spec.pairs], sides[spec.pairs + half :], strict=True))


@pytest.mark.parametrize("positives", ["anchor", "each"])
@pytest.mark.parametrize("draw", ["relations", "synonyms"])
@pytest.mark.parametrize("of", ["terms", "concepts"])
def test_a_block_is_an_anchor_its_neighbours_and_positives(of, draw, positives, tmp_path):
    spec = spec_of_of_neighbour_draw(neighbours_of=of, draw=draw, positives=positives)
    made, lists = with_lists(spec, tmp_path)
    row_of = {anchor: row for row, anchor in enumerate(made.anchors.tolist())}
    shown = OWNER if of == "concepts" else np.arange(len(OWNER))  # what the index says of a term
    several = np.diff(DATA.term_start)
    assert (several[OWNER[made.anchors] if of == "terms" else made.anchors] >= 2).all() == (
        draw == "synonyms"
    )
    for step in (0, 7):
        drawn = groups_of_of_neighbour_draw(made, step)
        np.testing.assert_array_equal(drawn["concepts"], OWNER[drawn["terms"]])
        assert (drawn["relations"] == -1).all() and drawn["relations"].shape == (2, 8)
        for group in range(2):
            pairs = pairs_of_of_neighbour_draw(drawn, group, spec)
            assert len(pairs) == 16
            blocks = [pairs[first : first + 1 + K] for first in range(0, 16, 1 + K)]
            anchors = [int(shown[block[0][0][1]]) for block in blocks]
            assert len(set(anchors)) == 4, "no anchor twice in a group"
            for block, anchor in zip(blocks, anchors, strict=True):
                heads = [int(shown[head[1]]) for head, _ in block]
                assert heads == [anchor, *lists[row_of[anchor]]]
                for head, tail in block:
                    owner = block[0][0][0] if positives == "anchor" else head[0]
                    assert tail[0] == owner
                    other = block[0][0][1] if positives == "anchor" else head[1]
                    assert (tail[1] != other) == (several[owner] > 1)
            if positives == "anchor":  # no name twice while there are others
                tails = [int(tail[1]) for _, tail in blocks[0]]
                assert len(set(tails)) == min(1 + K, max(1, several[blocks[0][0][0][0]] - 1))


@pytest.mark.parametrize("share", [0.25, 0.5, 0.8])
def test_the_share_of_neighbours_beside_the_triplets_of_the_other_draw(share, tmp_path):
    spec = spec_of_of_neighbour_draw(mined_share=share)
    made, _ = with_lists(spec, tmp_path)
    mined = round(share * 8)
    alone = Draw(DATA, BatchSpec(groups=2, triplets=8 - mined, repeats=2, names="distinct"))
    for step in (0, 5):
        drawn, rest = (
            groups_of_of_neighbour_draw(made, step),
            groups_of_of_neighbour_draw(alone, step),
        )
        np.testing.assert_array_equal(drawn["relations"][:, : 8 - mined], rest["relations"])
        assert (drawn["relations"][:, 8 - mined :] == -1).all()
        k, few = spec.pairs, 2 * (8 - mined)
        for name in ("concepts", "terms"):
            np.testing.assert_array_equal(drawn[name][:, :few], rest[name][:, :few])
            np.testing.assert_array_equal(drawn[name][:, k : k + few], rest[name][:, few:])
        for group in range(2):
            assert len(pairs_of_of_neighbour_draw(drawn, group, spec)) == 2 * mined


def test_no_share_is_the_other_draw_to_the_bit():
    spec = spec_of_of_neighbour_draw(mined_share=0.0)
    ours, plain = NeighbourDraw(DATA, spec), Draw(DATA, spec.drawn())
    assert spec.drawn() == BatchSpec(groups=2, triplets=8, repeats=2, names="distinct")
    for step in (0, 5):
        drawn, rest = (
            groups_of_of_neighbour_draw(ours, step),
            groups_of_of_neighbour_draw(plain, step),
        )
        assert drawn.keys() == rest.keys()
        for name, array in drawn.items():
            np.testing.assert_array_equal(array, rest[name])


def test_a_block_without_so_many_neighbours_shows_its_anchor_again(tmp_path):
    spec = spec_of_of_neighbour_draw()
    lists = np.tile([5, -1, -1], (len(NeighbourDraw(DATA, spec).anchors), 1))
    made, _ = with_lists(spec, tmp_path, lists)
    for first in range(0, 16, 1 + K):
        heads = [
            int(head[1])
            for head, _ in pairs_of_of_neighbour_draw(groups_of_of_neighbour_draw(made, 2), 0, spec)
        ]
        anchor = heads[first]
        assert heads[first : first + 1 + K] == [anchor, 5, anchor, anchor]


@pytest.mark.parametrize(("of", "number"), [("terms", len(OWNER)), ("concepts", 60)])
def test_an_epoch_has_each_anchor_once_and_groups_stand_alone(of, number, tmp_path):
    spec = spec_of_of_neighbour_draw(
        groups=number, triplets=2, neighbours_of=of
    )  # one block a group
    made, _ = with_lists(spec, tmp_path)
    assert made.groups_per_epoch == number  # of one step
    shown = OWNER if of == "concepts" else np.arange(len(OWNER))
    orders = [
        shown[groups_of_of_neighbour_draw(made, step)["terms"][:, 0]].tolist() for step in (0, 1)
    ]
    assert orders[0] != orders[1]
    for order in orders:
        assert sorted(order) == made.anchors.tolist() and order != sorted(order)
    whole = groups_of_of_neighbour_draw(made, 4)
    alone = made(4, np.array([3, 8]))
    for name, values in alone.items():
        np.testing.assert_array_equal(values, whole[name][[3, 8]])


def test_another_index_changes_the_neighbours_alone(tmp_path):
    spec = spec_of_of_neighbour_draw(mined_share=0.5)
    one, _ = with_lists(spec, tmp_path / "one")
    lists = np.zeros((len(one.anchors), K))
    other, _ = with_lists(spec, tmp_path / "other", lists)
    assert one.lists is not other.lists
    first, second = groups_of_of_neighbour_draw(one, 6), groups_of_of_neighbour_draw(other, 6)
    for group in range(2):
        ours, theirs = (
            pairs_of_of_neighbour_draw(first, group, spec),
            pairs_of_of_neighbour_draw(second, group, spec),
        )
        for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            if place % (1 + K) == 0:
                np.testing.assert_array_equal(a[0], b[0])
            np.testing.assert_array_equal(a[1], b[1])  # positives are the anchor's
        assert {int(pair[0][1]) for pair in theirs[1 : 1 + K]} == {0}
        assert {int(pair[0][1]) for pair in ours[1 : 1 + K]} != {0}


def test_unlike_names_are_shown_beside_a_neighbour(tmp_path):
    """Of the other names of its concept the one that shares fewest word pieces."""
    spec = spec_of_of_neighbour_draw(names="unlike", draw="synonyms", positives="each")
    made, _ = with_lists(spec, tmp_path)
    tokens = [
        set(DATA.tokens[a + 1 : b - 1].tolist())
        for a, b in zip(DATA.token_start[:-1], DATA.token_start[1:], strict=True)
    ]

    def alike(one, other):
        either = tokens[one] | tokens[other]
        return len(tokens[one] & tokens[other]) / len(either) if either else 1.0

    least = 0
    for head, tail in pairs_of_of_neighbour_draw(groups_of_of_neighbour_draw(made, 1), 0, spec):
        own = [t for t in np.flatnonzero(OWNER == head[0]).tolist() if t != head[1]]
        if own:
            least += alike(int(head[1]), int(tail[1])) <= min(alike(int(head[1]), t) for t in own)
            assert int(tail[1]) in own
    assert least >= 10  # of 16; others by two pieces in one class of 64, or not among 8 tries


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        (np.zeros((5, K)), r"holds int32 \(5, 3\); expected int32 \(\d+, 3\)"),
        (np.full((len(OWNER), K), len(OWNER)), r"holds numbers from \d+ to \d+; expected -1 to"),
        (np.full((len(OWNER), K), -2), r"holds numbers from -2 to -2; expected -1"),
    ],
)
def test_an_index_of_other_data_is_refused(lists, words, tmp_path):
    with pytest.raises(BadInput, match=words):
        with_lists(spec_of_of_neighbour_draw(), tmp_path, lists)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mined_share": 1.5}, "--mined-share is 1.5; expected 0 to 1"),
        ({"mined_share": -0.1}, "--mined-share is -0.1; expected 0 to 1"),
        ({"mined_share": 0.01}, "--triplets is 8: that is no triplet; give --mined-share 0.125 or"),
        ({"neighbours": 0}, "--neighbours is 0; expected 1 or more"),
        (
            {"neighbours": 16},
            r"--neighbours is 16, but a group has room for 16 pairs .* give fewer",
        ),
        (
            {"draw": "pairs", "repeats": 1, "names": "any"},
            "cannot be mixed with neighbours; give --draw syn",
        ),
        ({"fill_pairs": 4}, "--fill-pairs is for CODER v1, and groups with neighbours are"),
    ],
)
def test_settings_that_cannot_be(changes, words):
    with pytest.raises(BadInput, match=words):
        spec_of_of_neighbour_draw(**changes).validate()


def test_too_few_anchors():
    few = tiny_dataset(concepts=3, triplets=2)
    with pytest.raises(BadInput, match=r"the dataset has 3 concepts to find neighbours of, but a"):
        NeighbourDraw(few, spec_of_of_neighbour_draw(neighbours_of="concepts"))


def test_batches_without_neighbours_have_no_index(tmp_path):
    maker = BatchMaker(DATA, BatchSpec(groups=2, triplets=4, repeats=2, row_length=64))
    with pytest.raises(BadInput, match="these batches .* use none"):
        maker.with_index(tmp_path)


# -------------------------------------------------------------------------------------------------
# Names that are alike: the bound, empty names, and what is least alike of several.

ONE_OF_FOUR, FOUR, FIVE, SIX = 0b000001, 0b001111, 0b011111, 0b111111


def sets(*bits):
    return np.array(bits, np.uint64)


def test_likeness_is_the_jaccard_index():
    got = _likeness(sets(FOUR, FOUR, FOUR, 0, 0), sets(FOUR, SIX, SIX - FOUR, FOUR, 0))
    np.testing.assert_array_equal(got, np.float32([1, 4 / 6, 0, 0, 1]))


def test_names_that_share_more_than_three_of_five_pieces_are_alike():
    three = 0b000111
    #        the first, its other names
    names = [[FIVE, three], [SIX, FOUR], [FOUR], [SIX, FIVE, ONE_OF_FOUR], [0, 0], [0, FOUR]]
    start = np.cumsum([0] + [len(concept) for concept in names])
    got = _has_unlike_name(sets(*[bits for concept in names for bits in concept]), start)
    assert got.tolist() == [True, False, False, True, False, True]


def test_least_alike_looks_at_all_that_was_taken():
    # Like the first are, in order: 4/5, 1/5, 1/5, all. The second of a fifth is the third's copy.
    rows = sets(FIVE, FOUR, ONE_OF_FOUR, ONE_OF_FOUR, FIVE)[None]
    assert _least_alike(rows, 5).tolist() == [[0, 2, 1, 3, 4]]


# -------------------------------------------------------------------------------------------------
# Concepts that share a name: the pairs of a terminology.

DATA_SHARED_NAMES = tiny_dataset(concepts=60, triplets=150)
CONCEPTS = len(DATA_SHARED_NAMES.term_start) - 1


@pytest.fixture(scope="module")
def pool():
    """(data, bool [60, 60]): names from few, so that many concepts have the same; by all pairs."""
    rng = np.random.default_rng(0)
    few = [rng.integers(5, 9, rng.integers(1, 4)).tolist() for _ in range(60)]
    terms = DATA_SHARED_NAMES.term_start[-1]
    chosen = [few[i] for i in rng.integers(0, len(few), terms)]
    data = dataclasses.replace(
        DATA_SHARED_NAMES,
        tokens=np.concatenate(chosen).astype(np.uint16),
        token_start=np.concatenate([[0], np.cumsum([len(one) for one in chosen])]),
    )
    owner = np.repeat(np.arange(CONCEPTS), np.diff(DATA_SHARED_NAMES.term_start))
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
    assert not SharedNames(DATA_SHARED_NAMES)(everyone[:, None], everyone[None]).any()


def test_hashes_of_names_do_not_depend_on_the_chunk(monkeypatch):
    whole = _name_hashes(DATA_SHARED_NAMES.tokens, DATA_SHARED_NAMES.token_start)
    monkeypatch.setattr(shared_names, "_NAMES_AT_ONCE", 7)
    np.testing.assert_array_equal(
        _name_hashes(DATA_SHARED_NAMES.tokens, DATA_SHARED_NAMES.token_start), whole
    )


# -------------------------------------------------------------------------------------------------
# Names of other languages: who has a turn, how often, and what a term is shown with.

SPEC_NAMES_BY_LANGUAGE = BatchSpec(
    names="languages", draw="synonyms", groups=2, triplets=8, repeats=1, row_length=64
)
CONCEPTS_NAMES_BY_LANGUAGE = 60


@pytest.fixture(scope="module")
def data():
    """Terms of three languages, the first of which has most."""
    plain = tiny_dataset(concepts=CONCEPTS_NAMES_BY_LANGUAGE, triplets=150)
    chosen = np.random.default_rng(0).choice(3, plain.term_start[-1], p=[0.7, 0.2, 0.1])
    return dataclasses.replace(plain, term_language=chosen.astype(np.uint8))


def languages_of(data, concept):
    of_concept = slice(data.term_start[concept], data.term_start[concept + 1])
    return data.term_language[of_concept]


def drawn(data, number, draws=40):
    """int [60 concepts, draws, number]: terms."""
    names = Names(data, SPEC_NAMES_BY_LANGUAGE)
    concepts = np.repeat(np.arange(CONCEPTS_NAMES_BY_LANGUAGE), draws)
    terms = names("head term", np.arange(len(concepts)), concepts, number)
    return terms.reshape(CONCEPTS_NAMES_BY_LANGUAGE, draws, number)


@pytest.mark.parametrize("number", [2, 5])
def test_all_languages_have_a_turn_before_one_has_another(data, number):
    for concept, rows in enumerate(drawn(data, number)):
        there = languages_of(data, concept)
        kinds = len(set(there))
        for terms in rows:
            assert np.all(terms >= data.term_start[concept])
            assert np.all(terms < data.term_start[concept + 1])
            for first in range(0, number, kinds):
                turn = data.term_language[terms[first : first + kinds]]
                assert len(set(turn)) == len(turn)
            shown = Counter(terms.tolist())
            for language in set(there):
                often = Counter(data.term_language[terms].tolist())[language]
                of_language = [
                    n for term, n in shown.items() if data.term_language[term] == language
                ]
                assert len(of_language) == min(often, (there == language).sum())


def test_languages_and_their_terms_come_equally_often(data):
    concept = int(
        np.argmax(
            [
                len(set(languages_of(data, one))) * 10 + len(languages_of(data, one))
                for one in range(CONCEPTS_NAMES_BY_LANGUAGE)
            ]
        )
    )
    there = languages_of(data, concept)
    assert len(set(there)) == 3 and len(there) > 4
    names = Names(data, SPEC_NAMES_BY_LANGUAGE)
    slots = np.arange(6_000)
    terms = names("head term", slots, np.full(6_000, concept), 1)[:, 0]
    often = Counter(data.term_language[terms].tolist())
    assert all(abs(often[language] - 2_000) < 150 for language in range(3))
    for language in range(3):
        mine = [term for term, one in enumerate(there, data.term_start[concept]) if one == language]
        counts = [(terms == term).sum() for term in mine]
        assert min(counts) > 0.7 * max(counts)


def test_a_term_is_shown_with_names_of_other_languages(data):
    names = Names(data, SPEC_NAMES_BY_LANGUAGE)
    owner = np.repeat(np.arange(CONCEPTS_NAMES_BY_LANGUAGE), np.diff(data.term_start))
    terms = np.arange(len(owner))
    others = names.others("tail term", terms, terms, owner, 3)
    for term, row in zip(terms, others, strict=True):
        there = languages_of(data, owner[term])
        assert np.all(owner[row] == owner[term])
        if len(set(there)) > 1:
            assert data.term_language[term] not in data.term_language[row]
            assert len(set(data.term_language[row[:2]])) == min(2, len(set(there)) - 1)
        else:
            assert len(there) == 1 or term not in row


def test_a_batch_pairs_languages(data):
    """And is the same again, from any step."""
    maker = BatchMaker(data, SPEC_NAMES_BY_LANGUAGE)
    drawn = maker.draw(5, np.arange(2))
    heads, tails = np.split(drawn["terms"], 2, axis=1)
    concepts = np.split(drawn["concepts"], 2, axis=1)[0]
    for head, tail, concept in zip(heads.flat, tails.flat, concepts.flat, strict=True):
        several = len(set(languages_of(data, concept))) > 1
        assert (data.term_language[head] != data.term_language[tail]) == several
        assert head != tail
    (straight,), (again,) = maker.batches(5, 6), list(maker.batches(4, 6))[1:]
    for name in straight:
        np.testing.assert_array_equal(again[name], straight[name])


def test_without_languages_it_is_as_distinct(data):
    """Of concepts in one language: no term twice while others are left."""
    one = dataclasses.replace(data, term_language=np.zeros_like(data.term_language))
    for concept, rows in enumerate(drawn(one, 3)):
        most = min(3, data.term_start[concept + 1] - data.term_start[concept])
        assert all(len(set(terms)) == most for terms in rows.tolist())
