"""Which of its terms a concept shows: the rule `BatchSpec.names`, by stateless random numbers."""

import numpy as np

from data_pipeline.batches.draws.likeness import has_unlike_name, least_alike, word_piece_sets
from data_pipeline.batches.order import below, distinct_draws, key, mix, uint64
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.dataset.quiet_tensorflow import as_tensor, tf
from data_pipeline.dataset.store import TripletDataset

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
        if self.rule == "languages":
            self.by_language = ByLanguage(dataset)

    def __call__(self, stream: str, slot: tf.Tensor, concept: tf.Tensor, number: int) -> tf.Tensor:
        """int64 [T, number]: terms of each concept; `slot` numbers its place in the whole run."""
        if self.rule == "languages":
            return self.by_language(self._random(stream, slot, number), concept)
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
        if self.rule == "languages":
            shown = self.by_language.of_term(term)
            abroad = self.by_language(self._random(stream, slot, number), concept, shown)
            terms = tf.where((self.by_language.count(concept) > 1)[:, None], abroad, terms)
        return terms

    def _random(self, stream: str, slot: tf.Tensor, number: int) -> tf.Tensor:
        drawn = tf.range(number, dtype=tf.int64)
        return key(self.seed, stream, slot[:, None], drawn[None, :])

    def _drawn(self, stream: str, slot: tf.Tensor, count: tf.Tensor, number: int) -> tf.Tensor:
        """int64 [T, number or more]: places in [0, count); more where some will be chosen of."""
        number = max(number, CANDIDATES) if self.rule == "unlike" else number
        random = self._random(stream, slot, number)
        if self.rule == "any":
            return tf.cast(below(random, count[:, None]), tf.int64)
        return tf.cast(distinct_draws(random, count), tf.int64)


class ByLanguage:
    """The names of each concept in runs of one language; languages have turns.

    Args:
        dataset: the opened dataset.
    """

    def __init__(self, dataset: TripletDataset):
        owner = np.repeat(np.arange(dataset.term_start.size - 1), np.diff(dataset.term_start))
        language = np.asarray(dataset.term_language, np.int64)
        order = np.lexsort((language, owner))
        many = int(language.max(initial=0)) + 1
        kind = owner[order] * many + language[order]
        first = np.flatnonzero(np.diff(kind, prepend=-1))
        run_of = np.empty(order.size, np.int64)
        run_of[order] = np.repeat(np.arange(first.size), np.diff(first, append=order.size))
        self.terms = tf.constant(order)
        self.run_start = tf.constant(np.append(first, order.size))
        self.run_of_term = tf.constant(run_of)
        of_concept = np.bincount(owner[order[first]], minlength=dataset.term_start.size - 1)
        self.runs_start = tf.constant(np.concatenate([[0], np.cumsum(of_concept)]))

    def count(self, concept: tf.Tensor) -> tf.Tensor:
        """int64 [T]: the languages of each concept."""
        return tf.gather(self.runs_start, concept + 1) - tf.gather(self.runs_start, concept)

    def of_term(self, term: tf.Tensor) -> tf.Tensor:
        """int64 [T]: the run of each term."""
        return tf.gather(self.run_of_term, term)

    def __call__(
        self, random: tf.Tensor, concept: tf.Tensor, shown: tf.Tensor | None = None
    ) -> tf.Tensor:
        """int64 [T, n]: terms of each concept.

        All its languages have had a turn before one has another, and all terms of a language have
        before one of them comes again.

        Args:
            random: uint64 [T, n].
            concept: int64 [T].
            shown: int64 [T], a run of each concept that has no turn; its concept has others.
        """
        first = tf.gather(self.runs_start, concept)
        count = self.count(concept) - (0 if shown is None else 1)
        count = tf.maximum(count, 1)
        run = first[:, None] + tf.cast(distinct_draws(random, count), tf.int64)
        if shown is not None:  # runs rise: to step over it is fair
            run += tf.cast(run >= shown[:, None], tf.int64)
            run = tf.minimum(run, tf.size(self.run_start, tf.int64) - 2)  # where there is no other
        start = tf.gather(self.run_start, run)
        size = tf.gather(self.run_start, run + 1) - start
        # Each turn of a run goes on where its last one was; the first is anywhere.
        begin = tf.cast(
            below(mix(tf.bitwise.bitwise_xor(random[:, :1], uint64(run))), uint64(size)), tf.int64
        )
        turn = tf.range(random.shape[1], dtype=tf.int64)[None, :] // count[:, None]
        return tf.gather(self.terms, start + (begin + turn) % size)
