"""The draw: which triplets and which of their terms make up a step.

A dataset and a BatchSpec in, the term ids, concept labels and relation ids of any step out. No
state: triplets come from a stateless permutation, terms from stateless random numbers.
"""

import numpy as np

from data_pipeline.batches.draws.names import Names
from data_pipeline.batches.order import below, key, permute
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.dataset.quiet_tensorflow import as_tensor, tf
from data_pipeline.dataset.store import TripletDataset
from data_pipeline.process.errors import BadInput


class Draw:
    """The groups of any step, all of them or those of one host.

    Args:
        dataset: the opened dataset.
        spec: what a batch is made of; `spec.draw` is explained in BatchSpec.
        names: of the dataset, if they are there already.

    Raises:
        BadInput: if the dataset has too few items for the distinct triplets of a group.
    """

    def __init__(self, dataset: TripletDataset, spec: BatchSpec, names: Names | None = None):
        spec.validate()
        self.spec, self.names = spec, names or Names(dataset, spec)
        self.heads, self.relations, self.tails = map(
            as_tensor, (dataset.heads, dataset.relations, dataset.tails)
        )
        self.term_start = self.names.term_start
        self.related_start = self.related = None
        has_synonym = self.names.has_synonym
        if spec.draw == "relations":
            self.size = int(dataset.heads.size)  # the items to permute: triplets
            if spec.corrupted_tails:
                self.items = tf.range(dataset.term_start.size - 1, dtype=tf.int64)
        else:
            items = np.flatnonzero(has_synonym)
            self.size, self.items = int(items.size), tf.constant(items)  # or concepts
            if spec.draw == "concepts":
                self._index_relations(dataset, items, has_synonym)
        if self.size < spec.labels:
            unlike = " unlike their first name" if spec.names == "unlike" else ""
            concepts = f"concepts that have a synonym{unlike}"
            what = "triplets" if spec.draw == "relations" else concepts
            raise BadInput(
                f"the dataset has {self.size} {what}, but a group takes {spec.labels} "
                f"distinct ones (draw {spec.draw!r}); use fewer triplets per group, another draw, "
                "or build with fewer filters"
            )
        if spec.semantic_types:
            self.types = tf.constant(first_types(dataset))

    def _index_relations(
        self, dataset: TripletDataset, items: np.ndarray, has_synonym: np.ndarray
    ) -> None:
        """For each concept to draw, the triplets that it heads and whose tail has a synonym too.

        A tail with one name would only fill the batch with copies of one string.
        """
        useful = np.flatnonzero(has_synonym[dataset.heads] & has_synonym[dataset.tails])
        if useful.size == 0:
            return  # nothing but synonyms can be drawn
        useful = useful.astype(np.int32 if dataset.heads.size < 2**31 else np.int64)
        heads = dataset.heads[useful]
        # They are sorted by head, as the triplets of a dataset are.
        first, last = (np.searchsorted(heads, items, side=side) for side in ("left", "right"))
        self.related = tf.constant(useful)
        self.related_start = tf.constant(first.astype(np.int64))
        self.related_count = tf.constant((last - first).astype(np.int64))

    def triplets(self, step: tf.Tensor, groups: np.ndarray) -> tuple[tf.Tensor, ...]:
        """int64 [G * U] each: slot, head, relation, tail of the triplets of some of the groups.

        With `fill_pairs` these are the k triplets of which the first fill the group.
        A slot numbers a triplet's place in the whole run. Where a concept is drawn that heads no
        triplet, the relation is -1 and the tail is the head itself: two synonyms.
        """
        spec = self.spec
        group = tf.cast(step, tf.int64) * spec.groups + tf.constant(groups, tf.int64)
        # An epoch is a whole number of groups, so that no group mixes two permutations and holds a
        # triplet twice.
        groups_per_epoch = self.size // spec.labels
        epoch, group_in_epoch = group // groups_per_epoch, group % groups_per_epoch
        within = tf.range(spec.labels, dtype=tf.int64)[None, :]
        slot = tf.reshape(group[:, None] * spec.labels + within, [-1])
        index = tf.reshape(group_in_epoch[:, None] * spec.labels + within, [-1])
        keys = tf.repeat(key(spec.seed, "permutation", epoch), spec.labels)
        place = tf.cast(permute(index, self.size, keys), tf.int64)
        if spec.draw == "relations":
            return slot, *self._triplet(place)
        item = tf.gather(self.items, place)
        if self.related is None:
            return slot, item, tf.fill(tf.shape(item), np.int64(-1)), item
        count = tf.gather(self.related_count, place)
        nth = tf.cast(below(key(spec.seed, "relation", slot), tf.maximum(count, 1)), tf.int64)
        # Where a concept heads no triplet any other is read, and nothing of it is kept.
        nearest = tf.minimum(
            tf.gather(self.related_start, place) + nth, tf.size(self.related, tf.int64) - 1
        )
        _, relation, tail = self._triplet(tf.gather(self.related, nearest))
        return slot, item, tf.where(count > 0, relation, -1), tf.where(count > 0, tail, item)

    def _triplet(self, row: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return tuple(
            tf.cast(tf.gather(column, row), tf.int64)
            for column in (self.heads, self.relations, self.tails)
        )

    def corrupted(self, slot: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """int64 [T]: for each pair a concept that is not its tail, all others equally often.

        `slot` numbers the pairs of the whole run.

        From all concepts with the draw `relations`, else from those that are drawn. That it is no
        true tail of the relation is not looked up: among many concepts it hardly ever is one.
        """
        random = key(self.spec.seed, "corrupted tail", slot)
        place = tf.cast(below(random, self.items.shape[0] - 1), tf.int64)
        # The concepts rise: to step over the tail makes the others equally likely.
        return tf.gather(
            self.items, place + tf.cast(tf.gather(self.items, place) >= tail, tf.int64)
        )

    def __call__(self, step: tf.Tensor, groups: np.ndarray) -> dict[str, tf.Tensor]:
        """The draw of G groups of a step, each of k pairs.

        Args:
            step: int64 scalar.
            groups: int [G], the numbers of the groups within the step.

        Returns:
            `concepts` int32 and `terms` int64 [G, N], N = 2k: the k heads come first, then the k
            tails, then (N = 3k) the k corrupted tails if the spec asks for them. `relations` int32
            [G, U], -1 where a synonym stands for the tail; pair u * m + j is the j-th occurrence of
            triplet u, or with `fill_pairs` U = k and pair u has relation u. With
            `spec.semantic_types` also `types` int32 [G, N], of each term's concept, -1 where it has
            none.
        """
        spec = self.spec
        slot, head, relation, tail = self.triplets(step, groups)
        fill = self._filled if spec.fill_pairs else self._repeated
        pairs = fill(slot, head, relation, tail)
        concepts, terms = [pairs["head"], pairs["tail"]], [pairs["head term"], pairs["tail term"]]
        if spec.corrupted_tails:
            group = tf.cast(step, tf.int64) * spec.groups + tf.constant(groups, tf.int64)
            within = tf.range(spec.pairs, dtype=tf.int64)[None, :]
            slot = tf.reshape(group[:, None] * spec.pairs + within, [-1])
            concepts.append(self.corrupted(slot, pairs["tail"]))
            terms.append(self.names("corrupted tail term", slot, concepts[-1], 1)[:, 0])

        def by_group(parts: list[tf.Tensor]) -> tf.Tensor:
            return tf.concat([tf.reshape(x, [len(groups), spec.pairs]) for x in parts], axis=1)

        relations = tf.reshape(tf.cast(pairs["relation"], tf.int32), [len(groups), spec.labels])
        drawn = {
            "concepts": by_group([tf.cast(concept, tf.int32) for concept in concepts]),
            "terms": by_group(terms),
            "relations": relations,
        }
        if spec.semantic_types:
            drawn["types"] = by_group([tf.gather(self.types, concept) for concept in concepts])
        return drawn

    def _occurrences(
        self, slot: tf.Tensor, head: tf.Tensor, relation: tf.Tensor, tail: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """int64 [T, m] each: terms of the heads and tails, as often as a triplet may occur."""
        repeats, spec = self.spec.repeats, self.spec
        # A head that is its own tail goes on with its own draws, so that the pair shows two
        # different terms.
        both = repeats if spec.draw == "relations" else 2 * repeats
        head_terms = self.names("head term", slot, head, both)
        tail_terms = self.names("tail term", slot, tail, repeats)
        if spec.draw == "relations":
            return head_terms, tail_terms
        alone = (relation < 0)[:, None]
        if spec.fill_pairs:  # it has terms for half as many pairs, the first half for the heads
            half = self._fillable(head, relation, tail)[:, None]
            place = tf.minimum(half + tf.range(repeats, dtype=tf.int64)[None, :], both - 1)
            of_tail = tf.gather(head_terms, place, axis=1, batch_dims=1)
        else:
            of_tail = head_terms[:, repeats:]
        return head_terms[:, :repeats], tf.where(alone, of_tail, tail_terms)

    def _repeated(
        self, slot: tf.Tensor, head: tf.Tensor, relation: tf.Tensor, tail: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The pairs of groups in which each triplet occurs m times."""
        head_terms, tail_terms = self._occurrences(slot, head, relation, tail)
        return {
            "head": tf.repeat(head, self.spec.repeats),
            "tail": tf.repeat(tail, self.spec.repeats),
            "relation": relation,
            "head term": tf.reshape(head_terms, [-1]),
            "tail term": tf.reshape(tail_terms, [-1]),
        }

    def _fillable(self, head: tf.Tensor, relation: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """int64 [T]: the pairs that a triplet has different terms for, at most m."""
        count_head, count_tail = (
            tf.gather(self.term_start, concept + 1) - tf.gather(self.term_start, concept)
            for concept in (head, tail)
        )
        both = tf.where(relation < 0, count_head // 2, tf.minimum(count_head, count_tail))
        return tf.minimum(tf.cast(both, tf.int64), self.spec.repeats)

    def _filled(
        self, slot: tf.Tensor, head: tf.Tensor, relation: tf.Tensor, tail: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The pairs of groups that are filled with triplets, one after the other.

        The last triplet of a group may be cut short; those that found no room are passed over.
        """
        pairs = self.spec.pairs
        end = tf.cumsum(tf.reshape(self._fillable(head, relation, tail), [-1, pairs]), axis=1)
        place = tf.broadcast_to(tf.range(pairs, dtype=tf.int64), tf.shape(end))
        # Of which triplet of its group a pair is, and which of its occurrences.
        nth_GK = tf.searchsorted(end, place, side="right")
        first = tf.pad(end, [[0, 0], [1, 0]])
        nth = tf.cast(tf.reshape(place - tf.gather(first, nth_GK, batch_dims=1), [-1]), tf.int32)
        group = tf.range(tf.shape(end)[0])[:, None] * pairs
        triplet = tf.reshape(group + nth_GK, [-1])
        head_terms, tail_terms = self._occurrences(slot, head, relation, tail)
        which = tf.stack([triplet, nth], axis=1)
        return {
            "head": tf.gather(head, triplet),
            "tail": tf.gather(tail, triplet),
            "relation": tf.gather(relation, triplet),
            "head term": tf.gather_nd(head_terms, which),
            "tail term": tf.gather_nd(tail_terms, which),
        }


def first_types(dataset: TripletDataset) -> np.ndarray:
    """int32 [C]: the first semantic type of each concept, -1 where it has none.

    CODER v1 takes each concept to have one; some have more.
    """
    has_one = np.diff(dataset.type_start) > 0
    types = np.full(has_one.size, -1, np.int32)
    types[has_one] = dataset.types[dataset.type_start[:-1][has_one]]
    return types
