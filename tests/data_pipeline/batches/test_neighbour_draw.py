"""Blocks of neighbours: what each place of a group holds, the share of them, the start of a run."""

import numpy as np
import pytest
import tensorflow as tf
from tiny_dataset import tiny_dataset

from data_pipeline.batches.draws.groups import Draw
from data_pipeline.batches.draws.neighbour_spec import NEIGHBOURS, NeighbourSpec
from data_pipeline.batches.draws.neighbours import NeighbourDraw
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.batches.stream import BatchMaker
from data_pipeline.process.errors import BadInput

DATA = tiny_dataset(concepts=60, triplets=150)
OWNER = np.repeat(np.arange(60), np.diff(DATA.term_start))
K = 3  # neighbours


def spec_of(**changes):
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


def groups_of(draw, step):
    drawn = draw(tf.constant(step, tf.int64), np.arange(draw.spec.groups))
    return {name: array.numpy() for name, array in drawn.items()}


def pairs_of(drawn, group, spec):
    """[(concept, term), (concept, term)] of each pair of a group that shows neighbours."""
    half = spec.pairs - spec.mined_pairs
    sides = np.stack([drawn["concepts"][group], drawn["terms"][group]], axis=1)
    return list(zip(sides[half : spec.pairs], sides[spec.pairs + half :], strict=True))


@pytest.mark.parametrize("positives", ["anchor", "each"])
@pytest.mark.parametrize("draw", ["relations", "synonyms"])
@pytest.mark.parametrize("of", ["terms", "concepts"])
def test_a_block_is_an_anchor_its_neighbours_and_positives(of, draw, positives, tmp_path):
    spec = spec_of(neighbours_of=of, draw=draw, positives=positives)
    made, lists = with_lists(spec, tmp_path)
    row_of = {anchor: row for row, anchor in enumerate(made.anchors.tolist())}
    shown = OWNER if of == "concepts" else np.arange(len(OWNER))  # what the index says of a term
    several = np.diff(DATA.term_start)
    assert (several[OWNER[made.anchors] if of == "terms" else made.anchors] >= 2).all() == (
        draw == "synonyms"
    )
    for step in (0, 7):
        drawn = groups_of(made, step)
        np.testing.assert_array_equal(drawn["concepts"], OWNER[drawn["terms"]])
        assert (drawn["relations"] == -1).all() and drawn["relations"].shape == (2, 8)
        for group in range(2):
            pairs = pairs_of(drawn, group, spec)
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
    spec = spec_of(mined_share=share)
    made, _ = with_lists(spec, tmp_path)
    mined = round(share * 8)
    alone = Draw(DATA, BatchSpec(groups=2, triplets=8 - mined, repeats=2, names="distinct"))
    for step in (0, 5):
        drawn, rest = groups_of(made, step), groups_of(alone, step)
        np.testing.assert_array_equal(drawn["relations"][:, : 8 - mined], rest["relations"])
        assert (drawn["relations"][:, 8 - mined :] == -1).all()
        k, few = spec.pairs, 2 * (8 - mined)
        for name in ("concepts", "terms"):
            np.testing.assert_array_equal(drawn[name][:, :few], rest[name][:, :few])
            np.testing.assert_array_equal(drawn[name][:, k : k + few], rest[name][:, few:])
        for group in range(2):
            assert len(pairs_of(drawn, group, spec)) == 2 * mined


def test_no_share_is_the_other_draw_to_the_bit():
    spec = spec_of(mined_share=0.0)
    ours, plain = NeighbourDraw(DATA, spec), Draw(DATA, spec.drawn())
    assert spec.drawn() == BatchSpec(groups=2, triplets=8, repeats=2, names="distinct")
    for step in (0, 5):
        drawn, rest = groups_of(ours, step), groups_of(plain, step)
        assert drawn.keys() == rest.keys()
        for name, array in drawn.items():
            np.testing.assert_array_equal(array, rest[name])


def test_a_block_without_so_many_neighbours_shows_its_anchor_again(tmp_path):
    spec = spec_of()
    lists = np.tile([5, -1, -1], (len(NeighbourDraw(DATA, spec).anchors), 1))
    made, _ = with_lists(spec, tmp_path, lists)
    for first in range(0, 16, 1 + K):
        heads = [int(head[1]) for head, _ in pairs_of(groups_of(made, 2), 0, spec)]
        anchor = heads[first]
        assert heads[first : first + 1 + K] == [anchor, 5, anchor, anchor]


@pytest.mark.parametrize(("of", "number"), [("terms", len(OWNER)), ("concepts", 60)])
def test_an_epoch_has_each_anchor_once_and_groups_stand_alone(of, number, tmp_path):
    spec = spec_of(groups=number, triplets=2, neighbours_of=of)  # one block a group
    made, _ = with_lists(spec, tmp_path)
    shown = OWNER if of == "concepts" else np.arange(len(OWNER))
    orders = [shown[groups_of(made, step)["terms"][:, 0]].tolist() for step in (0, 1)]
    assert orders[0] != orders[1]
    for order in orders:
        assert sorted(order) == made.anchors.tolist() and order != sorted(order)
    whole = groups_of(made, 4)
    alone = made(tf.constant(4, tf.int64), np.array([3, 8]))
    for name, values in alone.items():
        np.testing.assert_array_equal(values, whole[name][[3, 8]])


def test_another_index_changes_the_neighbours_alone(tmp_path):
    spec = spec_of(mined_share=0.5)
    one, _ = with_lists(spec, tmp_path / "one")
    lists = np.zeros((len(one.anchors), K))
    other, _ = with_lists(spec, tmp_path / "other", lists)
    assert one.lists is not other.lists
    first, second = groups_of(one, 6), groups_of(other, 6)
    for group in range(2):
        ours, theirs = pairs_of(first, group, spec), pairs_of(second, group, spec)
        for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            if place % (1 + K) == 0:
                np.testing.assert_array_equal(a[0], b[0])
            np.testing.assert_array_equal(a[1], b[1])  # positives are the anchor's
        assert {int(pair[0][1]) for pair in theirs[1 : 1 + K]} == {0}
        assert {int(pair[0][1]) for pair in ours[1 : 1 + K]} != {0}


def test_unlike_names_are_shown_beside_a_neighbour(tmp_path):
    """Of the other names of its concept the one that shares fewest word pieces."""
    spec = spec_of(names="unlike", draw="synonyms", positives="each")
    made, _ = with_lists(spec, tmp_path)
    tokens = [
        set(DATA.tokens[a + 1 : b - 1].tolist())
        for a, b in zip(DATA.token_start[:-1], DATA.token_start[1:], strict=True)
    ]

    def alike(one, other):
        either = tokens[one] | tokens[other]
        return len(tokens[one] & tokens[other]) / len(either) if either else 1.0

    least = 0
    for head, tail in pairs_of(groups_of(made, 1), 0, spec):
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
        with_lists(spec_of(), tmp_path, lists)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mined_share": 1.5}, "mined_share is 1.5; it must be from 0 to 1"),
        ({"mined_share": -0.1}, "mined_share is -0.1; it must be from 0 to 1"),
        ({"mined_share": 0.01}, "of 8 triplets that is none; use at least 0.125, or 0"),
        ({"neighbours": 0}, "neighbours is 0; it must be at least 1"),
        ({"neighbours": 16}, r"neighbours is 16, but a group has room for 16 pairs .* use fewer"),
        ({"draw": "pairs", "repeats": 1, "names": "any"}, "not mixed with; use --draw synonyms"),
        ({"corrupted_tails": True}, "corrupted_tails is True, but groups with neighbours have"),
        ({"semantic_types": True}, "semantic_types is True, but groups with neighbours have"),
        ({"fill_pairs": 4}, "fill_pairs is 4, but groups with neighbours have"),
    ],
)
def test_settings_that_cannot_be(changes, words):
    with pytest.raises(BadInput, match=words):
        spec_of(**changes).validate()


def test_too_few_anchors():
    few = tiny_dataset(concepts=3, triplets=2)
    with pytest.raises(BadInput, match=r"the dataset has 3 concepts to find neighbours of, but a"):
        NeighbourDraw(few, spec_of(neighbours_of="concepts"))


def test_batches_without_neighbours_have_no_index(tmp_path):
    maker = BatchMaker(DATA, BatchSpec(groups=2, triplets=4, repeats=2, row_length=64))
    with pytest.raises(BadInput, match="these batches .* use none"):
        maker.with_index(tmp_path)
