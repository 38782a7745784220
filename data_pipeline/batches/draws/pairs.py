"""The draw of pairs: two names of a concept, each pair once an epoch (SapBERT).

A concept with n names has n (n - 1) / 2 pairs, of which at most 50 are taken, as in SapBERT's
released code, so that few concepts with very many names do not fill the epoch.
"""

import numpy as np

from data_pipeline.batches.order import below, key, permute
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.dataset.quiet_tensorflow import as_tensor, tf
from data_pipeline.dataset.store import TripletDataset
from data_pipeline.process.errors import BadInput

MOST_PAIRS = 50  # of one concept


class PairDraw:
    """The groups of any step, all of them or those of one host; a pure function of the step.

    Args:
        dataset: the opened dataset.
        spec: with the draw `pairs`.

    Raises:
        BadInput: if the dataset has too few pairs for a group.
    """

    def __init__(self, dataset: TripletDataset, spec: BatchSpec):
        spec.validate()
        self.spec = spec
        names = np.diff(dataset.term_start).astype(np.int64)
        self.possible = tf.constant(names * (names - 1) // 2)
        taken = np.minimum(names * (names - 1) // 2, MOST_PAIRS)
        pair_start = np.concatenate([[0], np.cumsum(taken)])
        self.size = int(pair_start[-1])
        if self.size < spec.pairs:
            raise BadInput(
                f"the dataset has {self.size} pairs of two names of a concept, but a group takes "
                f"{spec.pairs} (draw 'pairs'); use fewer triplets per group, or build with fewer "
                "filters"
            )
        self.pair_start, self.term_start = tf.constant(pair_start), as_tensor(dataset.term_start)

    def __call__(self, step: tf.Tensor, groups: np.ndarray) -> dict[str, tf.Tensor]:
        """The draw of G groups of a step, each of k pairs.

        Args:
            step: int64 scalar.
            groups: int [G], the numbers of the groups within the step.

        Returns:
            `concepts` int32 and `terms` int64 [G, 2k]: the first names of the k pairs, then the
            second ones; `relations` int32 [G, k], -1: there are none.
        """
        spec = self.spec
        group = tf.cast(step, tf.int64) * spec.groups + tf.constant(groups, tf.int64)
        groups_per_epoch = self.size // spec.pairs
        epoch, group_in_epoch = group // groups_per_epoch, group % groups_per_epoch
        within = tf.range(spec.pairs, dtype=tf.int64)[None, :]
        index = group_in_epoch[:, None] * spec.pairs + within
        keys = key(spec.seed, "permutation", epoch)[:, None]
        place = tf.cast(permute(index, self.size, keys), tf.int64)
        concept = tf.searchsorted(self.pair_start, tf.reshape(place, [-1]), side="right") - 1
        concept = tf.reshape(tf.cast(concept, tf.int64), tf.shape(place))
        first, second = self.names(concept, place - tf.gather(self.pair_start, concept))
        start = tf.gather(self.term_start, concept)
        return {
            "concepts": tf.cast(tf.concat([concept, concept], axis=1), tf.int32),
            "terms": tf.concat([start + first, start + second], axis=1),
            "relations": tf.fill(tf.shape(place), np.int32(-1)),
        }

    def names(self, concept: tf.Tensor, nth: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """int64 each: which two of its concept's names the n-th of its pairs has.

        Of more than 50 pairs these are evenly spaced, from a random one on.
        """
        possible = tf.gather(self.possible, concept)
        spacing = tf.maximum(possible // MOST_PAIRS, 1)
        random = key(self.spec.seed, "head term", concept)
        begin = tf.where(possible > MOST_PAIRS, tf.cast(below(random, possible), tf.int64), 0)
        pair = (begin + nth * spacing) % possible
        # Pair j (j - 1) / 2 + i is of the names i < j; the root may be off by one.
        second = tf.cast((1 + tf.sqrt(1 + 8 * tf.cast(pair, tf.float64))) / 2, tf.int64)
        second -= tf.cast(second * (second - 1) // 2 > pair, tf.int64)
        second += tf.cast(second * (second + 1) // 2 <= pair, tf.int64)
        return pair - second * (second - 1) // 2, second
