"""Which of its terms a concept shows: the rule `BatchSpec.names`, by stateless random numbers."""

import numpy as np

from data_pipeline.batches.draws.likeness import has_unlike_name, least_alike, word_piece_sets
from data_pipeline.batches.order import below, distinct_draws, key
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.dataset.quiet_tensorflow import tf
from data_pipeline.dataset.store import TripletDataset, as_tensor

CANDIDATES = 8  # names of a concept among which the unlike ones are looked for


class Names:
    """The names of the concepts of a dataset.

    Args:
        dataset: the opened dataset.
        spec: with the rule and the seed.

    Attributes:
        has_synonym: bool [C], NumPy: the concepts with two names that the rule tells apart.
    """

    def __init__(self, dataset: TripletDataset, spec: BatchSpec):
        self.rule, self.seed = spec.names, spec.seed
        # Eager tensors that a tf.data function captures are passed by reference, not copied into
        # its graph.
        self.term_start = as_tensor(dataset.term_start)
        self.has_synonym = np.diff(dataset.term_start) >= 2
        if self.rule == "unlike":
            pieces = word_piece_sets(dataset)
            self.has_synonym = has_unlike_name(pieces, dataset.term_start)
            self.pieces = tf.constant(pieces)

    def __call__(self, stream: str, slot: tf.Tensor, concept: tf.Tensor, number: int) -> tf.Tensor:
        """int64 [T, number]: terms of each concept; `slot` numbers its place in the whole run."""
        start = tf.gather(self.term_start, concept)
        count = tf.gather(self.term_start, concept + 1) - start
        terms = start[:, None] + self._drawn(stream, slot, count, number)
        if self.rule == "unlike":
            places = least_alike(tf.gather(self.pieces, terms), number)
            terms = tf.gather(terms, places, axis=1, batch_dims=1)
        return terms

    def others(
        self, stream: str, slot: tf.Tensor, term: tf.Tensor, concept: tf.Tensor, number: int
    ) -> tf.Tensor:
        """int64 [T, number]: terms of each concept that are not `term`, which is one of its own.

        Of a concept with one term this is the term itself.
        """
        start = tf.gather(self.term_start, concept)
        count = tf.gather(self.term_start, concept + 1) - start
        terms = start[:, None] + self._drawn(stream, slot, tf.maximum(count - 1, 1), number)
        terms += tf.cast(terms >= term[:, None], tf.int64)  # they rise: to step over it is fair
        terms = tf.where(count[:, None] > 1, terms, term[:, None])
        if self.rule == "unlike":
            both = tf.concat([term[:, None], terms], axis=1)
            places = least_alike(tf.gather(self.pieces, both), number + 1)
            terms = tf.gather(both, places[:, 1:], axis=1, batch_dims=1)  # the first is `term`
        return terms

    def _drawn(self, stream: str, slot: tf.Tensor, count: tf.Tensor, number: int) -> tf.Tensor:
        """int64 [T, number or more]: places in [0, count); more where some will be chosen of."""
        drawn = tf.range(
            max(number, CANDIDATES) if self.rule == "unlike" else number, dtype=tf.int64
        )
        random = key(self.seed, stream, slot[:, None], drawn[None, :])
        if self.rule == "any":
            return tf.cast(below(random, count[:, None]), tf.int64)
        return tf.cast(distinct_draws(random, count), tf.int64)
