"""Names that are alike: the bound, empty names, and what is least alike of several."""

import numpy as np
import tensorflow as tf

from data_pipeline.batches.draws.likeness import has_unlike_name, least_alike, likeness

ONE_OF_FOUR, FOUR, FIVE, SIX = 0b000001, 0b001111, 0b011111, 0b111111


def sets(*bits):
    return np.array(bits, np.uint64)


def test_likeness_is_the_jaccard_index():
    got = likeness(tf.constant(sets(FOUR, FOUR, FOUR, 0, 0)), sets(FOUR, SIX, SIX - FOUR, FOUR, 0))
    np.testing.assert_array_equal(got, np.float32([1, 4 / 6, 0, 0, 1]))


def test_names_that_share_more_than_three_of_five_pieces_are_alike():
    three = 0b000111
    #        the first, its other names
    names = [[FIVE, three], [SIX, FOUR], [FOUR], [SIX, FIVE, ONE_OF_FOUR], [0, 0], [0, FOUR]]
    start = np.cumsum([0] + [len(concept) for concept in names])
    got = has_unlike_name(sets(*[bits for concept in names for bits in concept]), start)
    assert got.tolist() == [True, False, False, True, False, True]


def test_least_alike_looks_at_all_that_was_taken():
    # Like the first are, in order: 4/5, 1/5, 1/5, all. The second of a fifth is the third's copy.
    rows = sets(FIVE, FOUR, ONE_OF_FOUR, ONE_OF_FOUR, FIVE)[None]
    assert least_alike(tf.constant(rows), 5).numpy().tolist() == [[0, 2, 1, 3, 4]]
