"""How alike names are, by the word pieces that they share."""

import numpy as np

from data_pipeline.batches.order import mix, uint64
from data_pipeline.dataset.quiet_tensorflow import tf
from data_pipeline.dataset.store import TripletDataset

ALIKE = 0.6  # names that share more of their word pieces teach little about synonyms
TERMS_AT_ONCE = 1 << 20  # a word of memory for each token of so many terms


def word_piece_sets(dataset: TripletDataset) -> np.ndarray:
    """uint64 [N]: the set of each term's word pieces, a bit for each of 64 classes of pieces."""
    pieces = uint64(tf.range(dataset.manifest["tokenizer"]["vocab_size"]))
    bit_of = np.left_shift(np.uint64(1), mix(pieces).numpy() >> np.uint64(58))
    sets = np.empty(dataset.token_start.size - 1, np.uint64)
    for first in range(0, sets.size, TERMS_AT_ONCE):
        start = dataset.token_start[first : first + TERMS_AT_ONCE + 1]
        bits = bit_of[dataset.tokens[start[0] : start[-1]]]
        start = start - start[0]
        bits[start[:-1]] = bits[start[1:] - 1] = 0  # [CLS] and [SEP], which every term has
        sets[first : first + TERMS_AT_ONCE] = np.bitwise_or.reduceat(bits, start[:-1])
    return sets


def likeness(pieces: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """float32: the Jaccard index of sets of `word_piece_sets`, which broadcast; of empty ones 1."""

    def size(bits: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.raw_ops.PopulationCount(x=bits), tf.float32)

    either = size(tf.bitwise.bitwise_or(pieces, others))
    both = size(tf.bitwise.bitwise_and(pieces, others))
    return tf.math.divide_no_nan(both, either) + tf.cast(either == 0, tf.float32)


def has_unlike_name(pieces: np.ndarray, term_start: np.ndarray) -> np.ndarray:
    """bool [C]: whether a concept has a name that is not like its first."""
    first = np.repeat(term_start[:-1], np.diff(term_start))
    unlike = likeness(tf.constant(pieces), tf.constant(pieces[first])).numpy() <= ALIKE
    return np.logical_or.reduceat(unlike, term_start[:-1])


def least_alike(pieces: tf.Tensor, number: int) -> tf.Tensor:
    """int32 [T, number], places in [0, c): names of each row that are least alike.

    The first; then, each time, the one least like those taken before: as like as the one of them
    that it is most like. Of equal ones the first is taken.

    Args:
        pieces: uint64 [T, c], sets of `word_piece_sets`.
        number: at most c.
    """
    alike = tf.zeros(tf.shape(pieces), tf.float32)
    places = []
    for _ in range(number):
        places.append(tf.argmin(alike, axis=1, output_type=tf.int32))
        taken = tf.gather(pieces, places[-1], axis=1, batch_dims=1)[:, None]
        alike = tf.maximum(alike, likeness(pieces, taken))
        # More than any copy of it, which comes after all else.
        alike += 2 * tf.one_hot(places[-1], pieces.shape[1])
    return tf.stack(places, axis=1)
