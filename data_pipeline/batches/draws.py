"""The draws: which triplets, terms, pairs or neighbours a step takes, as a TensorFlow graph."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from data_pipeline.batches.epochs import mix_array
from data_pipeline.batches.order import below, distinct_draws, key, mix, permute, uint64
from data_pipeline.batches.spec import NEIGHBOURS, BatchSpec, NeighbourSpec, TermSpec
from data_pipeline.dataset.store import TripletDataset, as_tensor, tf
from data_pipeline.files.whole import aligned, map_array
from data_pipeline.process import BadInput
from data_pipeline.terminology.semantic_groups import ANY, groups_of

# -------------------------------------------------------------------------------------------------
# How alike names are, by the word pieces that they share.

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


# -------------------------------------------------------------------------------------------------
# Which of its terms a concept shows: the rule `BatchSpec.names`, by stateless random numbers.

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


# -------------------------------------------------------------------------------------------------
# The draw: which triplets and which of their terms make up a step.
#
# A dataset and a BatchSpec in, the term ids, concept labels and relation ids of any step out. No
# state: triplets come from a stateless permutation, terms from stateless random numbers.


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


# -------------------------------------------------------------------------------------------------
# The draw of pairs: two names of a concept, each pair once an epoch (SapBERT).
#
# A concept with n names has n (n - 1) / 2 pairs, of which at most 50 are taken, as in SapBERT's
# released code, so that few concepts with very many names do not fill the epoch.

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


# -------------------------------------------------------------------------------------------------
# The draw of terms: every term of a dataset once an epoch, in an order of each epoch's own.
#
# No state: the order is a stateless permutation, as in `draws.py`.


class TermDraw:
    """The terms of any step, all of them or those of one host.

    A row is a term with a semantic group of its concept: a term whose concept is of two groups has
    two rows, one whose concept is of none has one with the group `ANY`.

    Args:
        dataset: the opened dataset.
        spec: what a batch is made of.

    Raises:
        BadInput: if the dataset has fewer rows than a step takes.
    """

    def __init__(self, dataset: TripletDataset, spec: TermSpec):
        spec.validate()
        self.spec = spec
        terms, groups = term_rows(dataset, spec.languages)
        self.size = int(terms.size)
        if self.size < spec.terms:
            of = f" in {' '.join(spec.languages)}" if spec.languages else ""
            raise BadInput(
                f"the dataset has {self.size} terms{of} with a semantic group, but a step takes "
                f"{spec.terms} different ones; use fewer (--terms), or build with fewer filters"
            )
        self.row_terms, self.row_groups = tf.constant(terms), tf.constant(groups)
        concepts = np.repeat(
            np.arange(dataset.term_start.size - 1, dtype=np.int32), np.diff(dataset.term_start)
        )
        self.concepts = as_tensor(concepts)

    def rows(self, step: tf.Tensor, groups: np.ndarray) -> tf.Tensor:
        """int64 [G, N]: the rows that parts of a step take, numbered as in `term_rows`."""
        spec = self.spec
        step = tf.cast(step, tf.int64)
        # An epoch is a whole number of steps, so that no step mixes two permutations; the few rows
        # at the end of its order are left out, others in each epoch.
        steps_per_epoch = self.size // spec.terms
        epoch, within = step // steps_per_epoch, step % steps_per_epoch
        share = spec.terms // spec.groups
        place = tf.constant(groups, tf.int64)[:, None] * share + tf.range(share, dtype=tf.int64)
        index = within * spec.terms + place
        keys = tf.broadcast_to(key(spec.seed, "permutation", epoch), tf.shape(index))
        return tf.cast(permute(index, self.size, keys), tf.int64)

    def __call__(self, step: tf.Tensor, groups: np.ndarray) -> dict[str, tf.Tensor]:
        """The draw of G parts of a step, each of N terms.

        Args:
            step: int64 scalar.
            groups: int [G], the numbers of the parts within the step.

        Returns:
            `terms` int64, `concepts` and `semantic_groups` int32, [G, N] each.
        """
        rows = self.rows(step, groups)
        terms = tf.gather(self.row_terms, rows)
        return {
            "terms": terms,
            "concepts": tf.gather(self.concepts, terms),
            "semantic_groups": tf.cast(tf.gather(self.row_groups, rows), tf.int32),
        }


def term_rows(
    dataset: TripletDataset, languages: Sequence[str] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a dataset: each term with each semantic group of its concept.

    Of the groups that the dataset was built with (--semantic-groups), or of all.

    Args:
        dataset: the opened dataset.
        languages: of the terms that are wanted; none: all.

    Returns:
        (terms, groups): int64 and uint8 [rows], sorted by term, then by group.

    Raises:
        BadInput: if the dataset has no term in a language.
    """
    wanted_N = dataset.in_languages(languages)
    bits_C = groups_of(dataset)
    no_group = np.uint16(1 << ANY)
    bits_C = np.where(bits_C == no_group, no_group, bits_C & ~no_group)
    bits_N = np.where(wanted_N, np.repeat(bits_C, np.diff(dataset.term_start)), np.uint16(0))
    parts = [np.flatnonzero(bits_N >> group & 1) for group in range(ANY + 1)]
    terms = np.concatenate(parts)
    groups = np.repeat(np.arange(ANY + 1, dtype=np.uint8), [part.size for part in parts])
    order = np.lexsort((groups, terms))
    return terms[order], groups[order]


# -------------------------------------------------------------------------------------------------
# Which concepts share a name: strings that an encoder cannot tell apart, of two concepts.

NAMES_AT_ONCE = 1 << 20


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


def name_hashes(tokens: np.ndarray, start: np.ndarray) -> np.ndarray:
    """uint64 [N]: a hash of each term's tokens, none of which is empty."""
    hashes = np.empty(len(start) - 1, np.uint64)
    for first in range(0, len(hashes), NAMES_AT_ONCE):
        bounds = start[first : first + NAMES_AT_ONCE + 1]
        within = np.arange(bounds[0], bounds[-1]) - np.repeat(bounds[:-1], np.diff(bounds))
        token = np.asarray(tokens[bounds[0] : bounds[-1]], np.uint64)
        mixed = mix_array(token << np.uint64(32) | within.astype(np.uint64))
        hashes[first : first + NAMES_AT_ONCE] = np.add.reduceat(mixed, bounds[:-1] - bounds[0])
    return hashes


# -------------------------------------------------------------------------------------------------
# The draw of nearest neighbours: blocks of an anchor and its neighbours, mixed with another draw.
#
# Zeng, Yuan and Yu, Automatic Biomedical Term Clustering by Learning Fine-grained Term
# Representations (CODER++), BioNLP 2022. A group of a step is a pure function of dataset, spec,
# index and step.

AGAIN = (
    "it is damaged, or of other data: move the checkpoints after its step away and give the same "
    "command again, which makes it anew"
)
BLOCKS = 1  # a part of the keys of blocks of neighbours, which those of triplets do not have


class NeighbourDraw:
    """The groups of any step, all of them or those of one host.

    Args:
        dataset: the opened dataset.
        spec: what a batch is made of.

    Attributes:
        anchors: int [A], NumPy: the terms, or the concepts, that blocks are made of; row a of an
            index holds the neighbours of anchors[a], likewise terms or concepts, the nearest first,
            and -1 where there are no more.

    Raises:
        BadInput: if the dataset has too few triplets, concepts or terms for a group.
    """

    def __init__(self, dataset: TripletDataset, spec: NeighbourSpec):
        spec.validate()
        self.dataset, self.spec = dataset, spec
        self.names = Names(dataset, spec)
        self.drawn = None
        if spec.mined_triplets < spec.triplets:
            self.drawn = Draw(dataset, spec.drawn(), self.names)
        taken = self.names.has_synonym
        if spec.draw == "relations":
            taken = np.ones(taken.size, bool)
        if spec.neighbours_of == "terms":
            taken = np.repeat(taken, np.diff(dataset.term_start))
        self.anchors = np.flatnonzero(taken)
        self.size = self.anchors.size
        if self.size < spec.blocks:
            raise BadInput(
                f"the dataset has {self.size} {spec.neighbours_of} to find neighbours of, "
                f"but a group takes {spec.blocks} distinct ones (draw {spec.draw!r}); use fewer "
                "triplets per group, more neighbours, or build with fewer filters"
            )
        self.items = tf.constant(self.anchors)
        self.lists: tf.Tensor | None = None

    def with_index(self, index: Path) -> Self:
        """The same draw with the neighbours of an index.

        Raises:
            BadInput: if they are not those of the anchors.
        """
        path = index / NEIGHBOURS
        mapped = map_array(path, AGAIN)
        expected = (self.size, self.spec.neighbours)
        if mapped.shape != expected or mapped.dtype != np.int32:
            raise BadInput(
                f"{path} holds {mapped.dtype} {mapped.shape}; expected int32 {expected}: {AGAIN}"
            )
        lists = aligned(expected, np.int32)
        lists[:] = mapped
        counts = self.dataset.term_start
        most = (counts[-1] if self.spec.neighbours_of == "terms" else counts.size - 1) - 1
        if lists.min() < -1 or lists.max() > most:
            raise BadInput(
                f"{path} holds numbers from {lists.min()} to {lists.max()}; expected -1 to {most}: "
                f"{AGAIN}"
            )
        other = copy.copy(self)
        other.lists = as_tensor(lists)
        return other

    def __call__(self, step: tf.Tensor, groups: np.ndarray) -> dict[str, tf.Tensor]:
        """The draw of G groups of a step, each of k pairs; as of `Draw`.

        The drawn triplets come first, then the blocks, whose relation is -1. Before there is an
        index each anchor stands for its neighbours, too: for a plan of rows that holds, as no real
        neighbours make groups differ more in length.
        """
        spec = self.spec
        parts = [] if self.drawn is None else [self.drawn(step, groups)]
        if spec.mined_triplets:
            parts.append(self._blocks(step, groups))

        def sides(name: str) -> tf.Tensor:
            halves = [tf.split(part[name], 2, axis=1) for part in parts]
            return tf.concat([half[side] for side in (0, 1) for half in halves], axis=1)

        relations = tf.concat([part["relations"] for part in parts], axis=1)
        return {"concepts": sides("concepts"), "terms": sides("terms"), "relations": relations}

    def _blocks(self, step: tf.Tensor, groups: np.ndarray) -> dict[str, tf.Tensor]:
        """As `Draw.__call__`, of the pairs that show neighbours."""
        spec, width = self.spec, 1 + self.spec.neighbours
        group = tf.cast(step, tf.int64) * spec.groups + tf.constant(groups, tf.int64)
        groups_per_epoch = self.size // spec.blocks
        within = tf.range(spec.blocks, dtype=tf.int64)[None, :]
        index = (group % groups_per_epoch)[:, None] * spec.blocks + within
        keys = key(spec.seed, "permutation", group // groups_per_epoch, BLOCKS)[:, None]
        place = tf.reshape(tf.cast(permute(index, self.size, keys), tf.int64), [-1])
        anchor = tf.gather(self.items, place)[:, None]
        lists = tf.repeat(anchor, spec.neighbours, axis=1)
        if self.lists is not None:
            found = tf.cast(tf.gather(self.lists, place), tf.int64)
            lists = tf.where(found < 0, lists, found)
        # Negative, so that no triplet has the same slot.
        slot = ~tf.reshape(group[:, None] * spec.blocks + within, [-1])
        slots = tf.reshape(slot[:, None] * width - tf.range(width, dtype=tf.int64), [-1])
        heads = self._terms_of(tf.reshape(tf.concat([anchor, lists], axis=1), [-1]), slots)
        concepts = self._concept_of(heads)
        if spec.positives == "each":
            tails = self.names.others("tail term", slots, heads, concepts, 1)
        else:
            firsts = heads[::width], concepts[::width]
            tails = self.names.others("tail term", slot, *firsts, width)
        tails = tf.reshape(tails, [-1])

        def by_group(*sides: tf.Tensor) -> tf.Tensor:
            shape = [len(groups), spec.blocks * width]
            return tf.concat([tf.reshape(x, shape)[:, : spec.mined_pairs] for x in sides], axis=1)

        of_tails = self._concept_of(tails)
        return {
            "concepts": tf.cast(by_group(concepts, of_tails), tf.int32),
            "terms": by_group(heads, tails),
            "relations": tf.fill([len(groups), spec.mined_triplets], np.int32(-1)),
        }

    def _terms_of(self, found: tf.Tensor, slots: tf.Tensor) -> tf.Tensor:
        """int64: what shows an anchor or a neighbour; the term itself, or one of the concept's."""
        if self.spec.neighbours_of == "terms":
            return found
        return self.names("head term", slots, found, 1)[:, 0]

    def _concept_of(self, terms: tf.Tensor) -> tf.Tensor:
        """int64: the concepts that terms belong to."""
        return tf.searchsorted(self.names.term_start, terms, side="right", out_type=tf.int64) - 1
