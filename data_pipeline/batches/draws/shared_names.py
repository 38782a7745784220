"""Which concepts share a name: strings that an encoder cannot tell apart, of two concepts."""

import numpy as np

from data_pipeline.batches.draws.shuffles import mix
from data_pipeline.batches.spec import words_of_bits
from data_pipeline.dataset.quiet_tensorflow import as_tensor, tf
from data_pipeline.dataset.store import TripletDataset

TERMS_AT_ONCE = 1 << 20


class SharedNames:
    """The pairs of concepts that have a name in common, by its word pieces.

    Args:
        dataset: the opened dataset.
    """

    def __init__(self, dataset: TripletDataset):
        self.concepts = dataset.term_start.size - 1
        names = name_hashes(dataset.tokens, dataset.token_start)
        owner = np.repeat(np.arange(self.concepts), np.diff(dataset.term_start))
        order = np.lexsort((owner, names))
        names, owner = names[order], owner[order]
        pairs = [np.zeros(0, np.int64)]
        # Each name's owners are neighbours now: pairs of one a place after the other, two, ...
        places = np.arange(len(names))
        for distance in range(1, len(names)):
            places = places[places + distance < len(names)]
            places = places[names[places] == names[places + distance]]
            if not places.size:
                break
            one, other = owner[places], owner[places + distance]
            one, other = one[one != other], other[one != other]
            pairs += [one * self.concepts + other, other * self.concepts + one]
        self.pairs = np.unique(np.concatenate(pairs))

    def __call__(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """bool: whether two different concepts share a name; the arguments broadcast."""
        asked = np.asarray(one, np.int64) * self.concepts + other
        if not self.pairs.size:
            return np.zeros(asked.shape, bool)
        place = np.minimum(np.searchsorted(self.pairs, asked), self.pairs.size - 1)
        return self.pairs[place] == asked

    def bits(self, concepts_GN: tf.Tensor) -> tf.Tensor:
        """int32 [G, N * W]: for each term N bits, whether its concept shares a name with another's.

        Bit j % 32 of word j // 32 of term i, W = N / 32 words each, says it of terms i and j, two
        of one concept not counted.

        Args:
            concepts_GN: int32, of the terms of G groups.
        """
        groups, terms = concepts_GN.shape
        one = tf.cast(concepts_GN, tf.int64)
        asked = one[:, :, None] * self.concepts + one[:, None, :]
        words = words_of_bits(terms)
        if not self.pairs.size:
            return tf.zeros([groups, terms * words], tf.int32)
        pairs = as_tensor(self.pairs)
        place = tf.minimum(tf.searchsorted(pairs, tf.reshape(asked, [-1])), self.pairs.size - 1)
        shared = tf.reshape(tf.gather(pairs, place), asked.shape) == asked
        padded = tf.pad(tf.cast(shared, tf.int32), [[0, 0], [0, 0], [0, words * 32 - terms]])
        in_words = tf.reshape(padded, [groups, terms * words, 32])
        return tf.reduce_sum(tf.bitwise.left_shift(in_words, tf.range(32)), axis=-1)


def name_hashes(tokens: np.ndarray, start: np.ndarray) -> np.ndarray:
    """uint64 [N]: a hash of each term's tokens, none of which is empty."""
    hashes = np.empty(len(start) - 1, np.uint64)
    for first in range(0, len(hashes), TERMS_AT_ONCE):
        bounds = start[first : first + TERMS_AT_ONCE + 1]
        within = np.arange(bounds[0], bounds[-1]) - np.repeat(bounds[:-1], np.diff(bounds))
        token = np.asarray(tokens[bounds[0] : bounds[-1]], np.uint64)
        mixed = mix(token << np.uint64(32) | within.astype(np.uint64))
        hashes[first : first + TERMS_AT_ONCE] = np.add.reduceat(mixed, bounds[:-1] - bounds[0])
    return hashes
