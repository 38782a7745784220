"""Draws in NumPy: which triplets, terms, pairs or neighbours make up a step."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from data_pipeline.batches.order import below, distinct_draws, key, mix, permute, uint64
from data_pipeline.batches.spec import NEIGHBOURS, BatchSpec, NeighbourSpec, TermSpec
from data_pipeline.dataset.store import TripletDataset, groups_of
from data_pipeline.files.whole import map_array
from data_pipeline.process import BadInput
from data_pipeline.terminology.semantic_groups import ANY

# -------------------------------------------------------------------------------------------------
# Similarity of names, measured by the word pieces that they share.

_ALIKE = 0.6  # names that share more of their word pieces teach little about synonyms
_TERMS_AT_ONCE = 1 << 20  # a word of memory for each token of so many terms


def _word_piece_sets(dataset: TripletDataset) -> np.ndarray:
    """uint64 [N]: the set of each term's word pieces, hashed to 64 bits."""
    pieces = np.arange(dataset.manifest.tokenizer.vocab_size)
    bit_of = np.left_shift(np.uint64(1), mix(pieces) >> np.uint64(58))
    sets = np.empty(dataset.token_start.size - 1, np.uint64)
    for first in range(0, sets.size, _TERMS_AT_ONCE):
        start = dataset.token_start[first : first + _TERMS_AT_ONCE + 1]
        bits = bit_of[dataset.tokens[start[0] : start[-1]]]
        start = start - start[0]
        bits[start[:-1]] = bits[start[1:] - 1] = 0  # [CLS] and [SEP], which every term has
        sets[first : first + _TERMS_AT_ONCE] = np.bitwise_or.reduceat(bits, start[:-1])
    return sets


def _likeness(pieces: np.ndarray, others: np.ndarray) -> np.ndarray:
    """float32: the Jaccard index of word-piece sets (`_word_piece_sets`), 1 for two empty sets. The
    arguments broadcast.
    """
    either = np.bitwise_count(pieces | others)
    both = np.bitwise_count(pieces & others)
    index = both / np.maximum(either, 1).astype(np.float32)
    return np.where(either == 0, np.float32(1), index)


def _has_unlike_name(pieces: np.ndarray, term_start: np.ndarray) -> np.ndarray:
    """bool [C]: whether a concept has a name that differs enough from its first (`_ALIKE`)."""
    first = np.repeat(pieces[term_start[:-1]], np.diff(term_start))
    return np.logical_or.reduceat(_likeness(pieces, first) <= _ALIKE, term_start[:-1])


def _least_alike(pieces: np.ndarray, number: int) -> np.ndarray:
    """int64 [T, number], places in [0, c): the names of each row that differ most from each other.

    The first; then, each time, the one least like those taken before: as like as the one of them
    that it is most like. Of equal ones the first is taken.

    Args:
        pieces: uint64 [T, c], sets of `_word_piece_sets`.
        number: at most c.
    """
    alike = np.zeros(pieces.shape, np.float32)
    row = np.arange(len(pieces))
    places = np.empty((len(pieces), number), np.int64)
    for nth in range(number):
        place = places[:, nth] = np.argmin(alike, axis=1)
        np.maximum(alike, _likeness(pieces, pieces[row, place][:, None]), out=alike)
        alike[row, place] += 2  # more than any copy of it, which comes after all else
    return places


# -------------------------------------------------------------------------------------------------
# The choice of a concept's terms by the rule `BatchSpec.names`, with stateless random numbers.

_CANDIDATES = 8  # names of a concept among which the unlike ones are looked for


class Names:
    """The names of the concepts of a dataset.

    Args:
        dataset: the opened dataset.
        spec: with the rule and the seed.

    Attributes:
        has_synonym: bool [C], the concepts with two names that the rule tells apart.
    """

    def __init__(self, dataset: TripletDataset, spec: BatchSpec):
        self.rule, self.seed = spec.names, spec.seed
        self.term_start = dataset.term_start
        self.has_synonym = np.diff(dataset.term_start) >= 2
        if self.rule == "unlike":
            pieces = _word_piece_sets(dataset)
            self.has_synonym = _has_unlike_name(pieces, dataset.term_start)
            self.pieces = pieces
        if self.rule == "languages":
            self.by_language = _ByLanguage(dataset)

    def __call__(
        self, stream: str, slot: np.ndarray, concept: np.ndarray, number: int
    ) -> np.ndarray:
        """int64 [T, number]: terms of each concept; `slot` is a number that is unique in the whole
        run.
        """
        if self.rule == "languages":
            return self.by_language(self._random(stream, slot, number), concept)
        start = self.term_start[concept]
        count = self.term_start[concept + 1] - start
        terms = start[:, None] + self._drawn(stream, slot, count, number)
        if self.rule == "unlike":
            places = _least_alike(self.pieces[terms], number)
            terms = np.take_along_axis(terms, places, axis=1)
        return terms

    def others(
        self, stream: str, slot: np.ndarray, term: np.ndarray, concept: np.ndarray, number: int
    ) -> np.ndarray:
        """int64 [T, number]: terms of each concept other than `term`, which is one of its own.

        Of a concept with one term this is the term itself.
        """
        start = self.term_start[concept]
        count = self.term_start[concept + 1] - start
        terms = start[:, None] + self._drawn(stream, slot, np.maximum(count - 1, 1), number)
        terms += terms >= term[:, None]  # they rise: to step over it is fair
        terms = np.where(count[:, None] > 1, terms, term[:, None])
        if self.rule == "unlike":
            both = np.concatenate([term[:, None], terms], axis=1)
            places = _least_alike(self.pieces[both], number + 1)
            terms = np.take_along_axis(both, places[:, 1:], axis=1)  # the first is `term`
        if self.rule == "languages":
            shown = self.by_language.of_term(term)
            abroad = self.by_language(self._random(stream, slot, number), concept, shown)
            terms = np.where((self.by_language.count(concept) > 1)[:, None], abroad, terms)
        return terms

    def _random(self, stream: str, slot: np.ndarray, number: int) -> np.ndarray:
        return key(self.seed, stream, slot[:, None], np.arange(number))

    def _drawn(self, stream: str, slot: np.ndarray, count: np.ndarray, number: int) -> np.ndarray:
        """int64 [T, number or more]: places in [0, count); more than `number` where names are then
        chosen among them.
        """
        number = max(number, _CANDIDATES) if self.rule == "unlike" else number
        random = self._random(stream, slot, number)
        if self.rule == "any":
            return below(random, count[:, None])
        return distinct_draws(random, count)


class _ByLanguage:
    """The names of each concept, grouped by language; a draw takes the languages in turn.

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
        self.terms = order
        self.run_start = np.append(first, order.size)
        self.run_of_term = run_of
        of_concept = np.bincount(owner[order[first]], minlength=dataset.term_start.size - 1)
        self.runs_start = np.concatenate([[0], np.cumsum(of_concept)])

    def count(self, concept: np.ndarray) -> np.ndarray:
        """int64 [T]: the number of languages of each concept."""
        return self.runs_start[concept + 1] - self.runs_start[concept]

    def of_term(self, term: np.ndarray) -> np.ndarray:
        """int64 [T]: the language run that each term is in."""
        return self.run_of_term[term]

    def __call__(
        self, random: np.ndarray, concept: np.ndarray, shown: np.ndarray | None = None
    ) -> np.ndarray:
        """int64 [T, n]: terms of each concept.

        All its languages have had a turn before one has another, and all terms of a language have
        before one of them comes again.

        Args:
            random: uint64 [T, n].
            concept: int64 [T].
            shown: int64 [T], a run of each concept that has no turn; its concept has others.
        """
        first = self.runs_start[concept]
        count = np.maximum(self.count(concept) - (shown is not None), 1)
        run = first[:, None] + distinct_draws(random, count)
        if shown is not None:  # runs rise: to step over it is fair
            run += run >= shown[:, None]
            run = np.minimum(run, self.run_start.size - 2)  # where there is no other
        start = self.run_start[run]
        size = self.run_start[run + 1] - start
        # In each language the names follow each other from turn to turn; the first one is random.
        begin = below(mix(random[:, :1] ^ uint64(run)), size)
        turn = np.arange(random.shape[1]) // count[:, None]
        return self.terms[start + (begin + turn) % size]


# -------------------------------------------------------------------------------------------------
# The draw of triplets or concepts, and of their terms.


class Draw:
    """The draw of triplets and terms for the groups of any step (of all hosts, or of one).

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
        self.heads, self.relations, self.tails = dataset.heads, dataset.relations, dataset.tails
        self.term_start = self.names.term_start
        self.related: np.ndarray | None = None
        has_synonym = self.names.has_synonym
        if spec.draw == "relations":
            self.size = int(dataset.heads.size)  # the items to permute: triplets
            if spec.corrupted_tails:
                self.items = np.arange(dataset.term_start.size - 1)
        else:
            items = np.flatnonzero(has_synonym)
            self.size, self.items = int(items.size), items  # or concepts
            if spec.draw == "concepts":
                self._index_relations(dataset, items, has_synonym)
        if self.size < spec.labels:
            unlike = " unlike their first name" if spec.names == "unlike" else ""
            concepts = f"concepts that have a synonym{unlike}"
            what = "triplets" if spec.draw == "relations" else concepts
            fewer = "--fill-pairs" if spec.fill_pairs else "--triplets"
            alike = "distinct" if spec.fill_pairs else "any"
            other = f"--names {alike}, " if unlike else ""
            raise BadInput(
                f"the dataset has {self.size} {what}, but a group takes {spec.labels} "
                f"distinct ones (--draw {spec.draw}); give a smaller {fewer}, "
                f"{other}another --draw, or build with fewer filters"
            )
        self.groups_per_epoch = self.size // spec.labels  # whole ones
        if spec.semantic_types:
            self.types = _first_types(dataset)

    def _index_relations(
        self, dataset: TripletDataset, items: np.ndarray, has_synonym: np.ndarray
    ) -> None:
        """For each concept to draw, the triplets of which it is the head and whose tail has a
        synonym too.

        A tail with one name would only fill the batch with copies of one string.
        """
        useful = np.flatnonzero(has_synonym[dataset.heads] & has_synonym[dataset.tails])
        if useful.size == 0:
            return  # nothing but synonyms can be drawn
        useful = useful.astype(np.int32 if dataset.heads.size < 2**31 else np.int64)
        heads = dataset.heads[useful]
        # They are sorted by head, as the triplets of a dataset are.
        first, last = (np.searchsorted(heads, items, side=side) for side in ("left", "right"))
        self.related, self.related_start, self.related_count = useful, first, last - first

    def triplets(self, step: int, groups: np.ndarray) -> tuple[np.ndarray, ...]:
        """int64 [G * U] each: slot, head, relation and tail of the triplets of some groups.

        With `fill_pairs` these are the k triplets of which the first fill the group.
        A slot numbers a triplet's place in the whole run. Where a concept is drawn that heads no
        triplet, the relation is -1 and the tail is the head itself: two synonyms.
        """
        spec = self.spec
        group = step * spec.groups + np.asarray(groups)
        # An epoch is a whole number of groups, so that no group mixes two permutations and holds a
        # triplet twice.
        epoch, group_in_epoch = np.divmod(group, self.groups_per_epoch)
        within = np.arange(spec.labels)
        slot = (group[:, None] * spec.labels + within).ravel()
        index = group_in_epoch[:, None] * spec.labels + within
        keys = key(spec.seed, "permutation", epoch)[:, None]
        place = permute(index, self.size, keys).ravel()
        if spec.draw == "relations":
            return slot, *self._triplet(place)
        item = self.items[place]
        if self.related is None:
            return slot, item, np.full(item.shape, -1), item
        count = self.related_count[place]
        nth = below(key(spec.seed, "relation", slot), np.maximum(count, 1))
        # A concept that is no head gets an arbitrary triplet, which is then not used.
        nearest = np.minimum(self.related_start[place] + nth, self.related.size - 1)
        _, relation, tail = self._triplet(self.related[nearest])
        return slot, item, np.where(count > 0, relation, -1), np.where(count > 0, tail, item)

    def _triplet(self, row: np.ndarray) -> tuple[np.ndarray, ...]:
        columns = self.heads, self.relations, self.tails
        return tuple(column[row].astype(np.int64) for column in columns)

    def corrupted(self, slot: np.ndarray, tail: np.ndarray) -> np.ndarray:
        """int64 [T]: for each pair a random concept other than its tail, all equally likely.

        `slot` numbers the pairs of the whole run.

        From all concepts with the draw `relations`, else from those that are drawn. That it is no
        true tail of the relation is not looked up: among many concepts it hardly ever is one.
        """
        place = below(key(self.spec.seed, "corrupted tail", slot), self.items.size - 1)
        # Skipping the tail leaves all other concepts equally likely.
        return self.items[place + (self.items[place] >= tail)]

    def __call__(self, step: int, groups: np.ndarray) -> dict[str, np.ndarray]:
        """The draw of G groups of a step, with k pairs in each.

        Args:
            step: its number.
            groups: int [G], their numbers from the step's first group on; later steps' follow.

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
            group = step * spec.groups + np.asarray(groups)
            slot = (group[:, None] * spec.pairs + np.arange(spec.pairs)).ravel()
            concepts.append(self.corrupted(slot, pairs["tail"]))
            terms.append(self.names("corrupted tail term", slot, concepts[-1], 1)[:, 0])

        def by_group(parts: list[np.ndarray]) -> np.ndarray:
            return np.concatenate([x.reshape(len(groups), spec.pairs) for x in parts], axis=1)

        relations = pairs["relation"].astype(np.int32).reshape(len(groups), spec.labels)
        drawn = {
            "concepts": by_group(concepts).astype(np.int32),
            "terms": by_group(terms),
            "relations": relations,
        }
        if spec.semantic_types:
            drawn["types"] = self.types[drawn["concepts"]]
        return drawn

    def _occurrences(
        self, slot: np.ndarray, head: np.ndarray, relation: np.ndarray, tail: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """int64 [T, m] each: terms of the heads and tails for the m possible occurrences of a
        triplet.
        """
        repeats, spec = self.spec.repeats, self.spec
        # Where a triplet's head is also its tail, the head's draws are continued, so that the pair
        # shows two different terms.
        both = repeats if spec.draw == "relations" else 2 * repeats
        head_terms = self.names("head term", slot, head, both)
        if spec.draw == "relations":
            return head_terms, self.names("tail term", slot, tail, repeats)
        if spec.fill_pairs:  # it has terms for half as many pairs, the first half for the heads
            half = self._fillable(head, relation, tail)[:, None]
            place = np.minimum(half + np.arange(repeats), both - 1)
            of_tail = np.take_along_axis(head_terms, place, axis=1)
        else:
            of_tail = head_terms[:, repeats:]
        other = np.flatnonzero(relation >= 0)
        tail_terms = of_tail.copy()
        if other.size:
            tail_terms[other] = self.names("tail term", slot[other], tail[other], repeats)
        return head_terms[:, :repeats], tail_terms

    def _repeated(
        self, slot: np.ndarray, head: np.ndarray, relation: np.ndarray, tail: np.ndarray
    ) -> dict[str, np.ndarray]:
        """The pairs of groups in which each triplet occurs m times."""
        head_terms, tail_terms = self._occurrences(slot, head, relation, tail)
        return {
            "head": np.repeat(head, self.spec.repeats),
            "tail": np.repeat(tail, self.spec.repeats),
            "relation": relation,
            "head term": head_terms.ravel(),
            "tail term": tail_terms.ravel(),
        }

    def _fillable(self, head: np.ndarray, relation: np.ndarray, tail: np.ndarray) -> np.ndarray:
        """int64 [T]: for how many pairs, at most m, a triplet has different terms."""
        count_head, count_tail = (
            self.term_start[concept + 1] - self.term_start[concept] for concept in (head, tail)
        )
        both = np.where(relation < 0, count_head // 2, np.minimum(count_head, count_tail))
        return np.minimum(both, self.spec.repeats)

    def _filled(
        self, slot: np.ndarray, head: np.ndarray, relation: np.ndarray, tail: np.ndarray
    ) -> dict[str, np.ndarray]:
        """The pairs of groups that are filled with one triplet after the other.

        The last triplet of a group may be cut short; those that found no room are passed over.
        """
        pairs = self.spec.pairs
        times = self._fillable(head, relation, tail).reshape(-1, pairs)
        first = np.cumsum(times, axis=1) - times
        times = np.clip(pairs - first, 0, times)
        # The triplet of each pair, and its occurrence of that triplet; each group has k pairs now.
        triplet = np.repeat(np.arange(times.size), times.ravel())
        nth = np.arange(triplet.size) % pairs - first.ravel()[triplet]
        head_terms, tail_terms = self._occurrences(slot, head, relation, tail)
        return {
            "head": head[triplet],
            "tail": tail[triplet],
            "relation": relation[triplet],
            "head term": head_terms[triplet, nth],
            "tail term": tail_terms[triplet, nth],
        }


def _first_types(dataset: TripletDataset) -> np.ndarray:
    """int32 [C]: the first semantic type of each concept, -1 for none.

    CODER v1 takes each concept to have one; some have more.
    """
    has_one = np.diff(dataset.type_start) > 0
    types = np.full(has_one.size, -1, np.int32)
    types[has_one] = dataset.types[dataset.type_start[:-1][has_one]]
    return types


# -------------------------------------------------------------------------------------------------
# The draw of pairs: two names of one concept; each pair comes once an epoch (SapBERT).
#
# A concept with n names has n (n - 1) / 2 pairs, of which at most 50 are taken, as in SapBERT's
# released code, so that few concepts with very many names do not fill the epoch.

_MOST_PAIRS = 50  # of one concept


class PairDraw:
    """The draw of synonym pairs for the groups of any step (of all hosts, or of one).

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
        self.possible = names * (names - 1) // 2
        taken = np.minimum(self.possible, _MOST_PAIRS)
        pair_start = np.concatenate([[0], np.cumsum(taken)])
        self.size = int(pair_start[-1])
        if self.size < spec.pairs:
            raise BadInput(
                f"the dataset has {self.size} pairs of two names of a concept, but a group takes "
                f"{spec.pairs} (--draw pairs); give a smaller --triplets, or build with fewer "
                "filters"
            )
        self.groups_per_epoch = self.size // spec.pairs
        self.pair_start, self.term_start = pair_start, dataset.term_start

    def __call__(self, step: int, groups: np.ndarray) -> dict[str, np.ndarray]:
        """The draw of G groups of a step, with k pairs in each.

        Args:
            step: its number.
            groups: int [G], their numbers from the step's first group on; later steps' follow.

        Returns:
            `concepts` int32 and `terms` int64 [G, 2k]: the first names of the k pairs, then the
            second ones; `relations` int32 [G, k], -1: there are none.
        """
        spec = self.spec
        group = step * spec.groups + np.asarray(groups)
        epoch, group_in_epoch = np.divmod(group, self.groups_per_epoch)
        index = group_in_epoch[:, None] * spec.pairs + np.arange(spec.pairs)
        keys = key(spec.seed, "permutation", epoch)[:, None]
        place = permute(index, self.size, keys)
        concept = np.searchsorted(self.pair_start, place, side="right") - 1
        first, second = self.names(concept, place - self.pair_start[concept])
        start = self.term_start[concept]
        return {
            "concepts": np.concatenate(
                [concept, concept], axis=1, dtype=np.int32, casting="unsafe"
            ),
            "terms": np.concatenate([start + first, start + second], axis=1),
            "relations": np.full(place.shape, -1, np.int32),
        }

    def names(self, concept: np.ndarray, nth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """int64 each: the two names, within their concept, that make its n-th pair.

        Of more than 50 pairs these are evenly spaced, from a random one on.
        """
        possible = self.possible[concept]
        spacing = np.maximum(possible // _MOST_PAIRS, 1)
        random = key(self.spec.seed, "head term", concept)
        begin = np.where(possible > _MOST_PAIRS, below(random, possible), 0)
        pair = (begin + nth * spacing) % possible
        # Pair j (j - 1) / 2 + i consists of names i < j; rounding may put the root off by one.
        second = ((1 + np.sqrt(1 + 8 * pair)) / 2).astype(np.int64)
        second -= second * (second - 1) // 2 > pair
        second += second * (second + 1) // 2 <= pair
        return pair - second * (second - 1) // 2, second


# -------------------------------------------------------------------------------------------------
# The draw of terms: each comes once an epoch and once more for each of its training mentions, in an
# order that changes with the epoch.


class TermDraw:
    """The draw of terms for the parts of any step (of all hosts, or of one).

    A row is a term with a semantic group of its concept: a term whose concept is of two groups has
    two rows, one whose concept is of none has one with the group `ANY`. A row comes as often in an
    epoch as `TripletDataset.term_counts` says of its term: MLNorm's `_sup` learns from repeated
    mentions (paper, sections 4.5 and 6; the released code appends a row for each).

    Args:
        dataset: the opened dataset.
        spec: what a batch is made of.

    Attributes:
        size: the items of an epoch, which are permuted: rows, each as often as it comes.
        row_terms, row_groups: [rows], of each row its term and its semantic group.

    Raises:
        BadInput: if an epoch has fewer items than a step takes.
    """

    def __init__(self, dataset: TripletDataset, spec: TermSpec):
        spec.validate()
        self.spec = spec
        terms, groups = _term_rows(dataset, spec.languages)
        counts = dataset.term_counts(spec.languages)[terms]
        self.row_of_item = np.repeat(np.arange(terms.size), counts)
        self.size = int(self.row_of_item.size)
        if self.size < spec.terms:
            of = f" in {' '.join(spec.languages)}" if spec.languages else ""
            raise BadInput(
                f"the dataset has {self.size} terms{of} with a semantic group, but a step takes "
                f"{spec.terms}; use fewer (--terms), or build with fewer filters"
            )
        self.row_terms, self.row_groups = terms, groups
        # An epoch is a whole number of steps, so that no step mixes two permutations. The few rows
        # at the end of its order are left out; they are others in each epoch.
        self.groups_per_epoch = self.size // spec.terms * spec.groups
        self.concepts = np.repeat(
            np.arange(dataset.term_start.size - 1, dtype=np.int32), np.diff(dataset.term_start)
        )

    def rows(self, step: int, groups: np.ndarray) -> np.ndarray:
        """int64 [G, N]: the rows in some parts of a step, numbered as in `_term_rows`."""
        spec = self.spec
        group = step * spec.groups + np.asarray(groups)
        epoch, group_in_epoch = np.divmod(group, self.groups_per_epoch)
        share = spec.terms // spec.groups
        index = group_in_epoch[:, None] * share + np.arange(share)
        item = permute(index, self.size, key(spec.seed, "permutation", epoch)[:, None])
        return self.row_of_item[item]

    def __call__(self, step: int, groups: np.ndarray) -> dict[str, np.ndarray]:
        """The draw of G parts of a step, with N terms in each.

        Args:
            step: its number.
            groups: int [G], their numbers from the step's first part on; later steps' follow.

        Returns:
            `terms` int64, `concepts` and `semantic_groups` int32, [G, N] each.
        """
        rows = self.rows(step, groups)
        terms = self.row_terms[rows]
        return {
            "terms": terms,
            "concepts": self.concepts[terms],
            "semantic_groups": self.row_groups[rows].astype(np.int32),
        }


def _term_rows(
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
# Concepts that share a name: an encoder cannot tell the two strings apart.

_NAMES_AT_ONCE = 1 << 20


class SharedNames:
    """The pairs of concepts that have a name in common, compared by word pieces.

    Args:
        dataset: the opened dataset.
    """

    def __init__(self, dataset: TripletDataset):
        self.concepts = dataset.term_start.size - 1
        names = _name_hashes(dataset.tokens, dataset.token_start)
        owner = np.repeat(np.arange(self.concepts), np.diff(dataset.term_start))
        order = np.lexsort((owner, names))
        names, owner = names[order], owner[order]
        pairs = [np.zeros(0, np.int64)]
        # The owners of a name are now adjacent: pair those at distance 1, then at distance 2, ...
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


def _name_hashes(tokens: np.ndarray, start: np.ndarray) -> np.ndarray:
    """uint64 [N]: a hash of each term's tokens; no term may be empty."""
    hashes = np.empty(len(start) - 1, np.uint64)
    for first in range(0, len(hashes), _NAMES_AT_ONCE):
        bounds = start[first : first + _NAMES_AT_ONCE + 1]
        within = np.arange(bounds[0], bounds[-1]) - np.repeat(bounds[:-1], np.diff(bounds))
        token = np.asarray(tokens[bounds[0] : bounds[-1]], np.uint64)
        mixed = mix(token << np.uint64(32) | within.astype(np.uint64))
        hashes[first : first + _NAMES_AT_ONCE] = np.add.reduceat(mixed, bounds[:-1] - bounds[0])
    return hashes


# -------------------------------------------------------------------------------------------------
# The draw of nearest neighbours: anchors with their neighbours, mixed with another draw.
#
# Zeng, Yuan and Yu, Automatic Biomedical Term Clustering by Learning Fine-grained Term
# Representations (CODER++), BioNLP 2022. A group of a step is a pure function of dataset, spec,
# index and step.

_AGAIN = (
    "it is damaged, or of other data: move the checkpoints after its step away and give the same "
    "command again, which makes it anew"
)
_BLOCKS = 1  # a part of the keys of blocks of neighbours, which those of triplets do not have


class NeighbourDraw:
    """The draw of nearest neighbours for the groups of any step (of all hosts, or of one).

    Args:
        dataset: the opened dataset.
        spec: what a batch is made of.

    Attributes:
        anchors: int [A], the terms, or the concepts, that blocks are made of; row a of an
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
                f"but a group takes {spec.blocks} distinct ones (--draw {spec.draw}); give a "
                "smaller --triplets or a larger --neighbours, or build with fewer filters"
            )
        if spec.blocks:
            self.groups_per_epoch = self.size // spec.blocks
        else:
            assert self.drawn is not None, "a group without neighbours has triplets"
            self.groups_per_epoch = self.drawn.groups_per_epoch
        self.lists: np.ndarray | None = None

    def with_index(self, index: Path) -> Self:
        """The same draw with the neighbours of an index.

        Raises:
            BadInput: if they are not those of the anchors.
        """
        path = index / NEIGHBOURS
        lists = np.array(map_array(path, _AGAIN, (self.size, self.spec.neighbours)))
        counts = self.dataset.term_start
        most = (counts[-1] if self.spec.neighbours_of == "terms" else counts.size - 1) - 1
        if lists.min() < -1 or lists.max() > most:
            raise BadInput(
                f"{path} holds numbers from {lists.min()} to {lists.max()}; expected -1 to {most}: "
                f"{_AGAIN}"
            )
        other = copy.copy(self)
        other.lists = lists
        return other

    def __call__(self, step: int, groups: np.ndarray) -> dict[str, np.ndarray]:
        """The draw of G groups of a step, with k pairs in each, as in `Draw`.

        The drawn triplets come first, then the blocks, whose relation is -1. Before there is an
        index each anchor stands for its neighbours, too: for a plan of rows that holds, as no real
        neighbours make groups differ more in length.
        """
        spec = self.spec
        parts = [] if self.drawn is None else [self.drawn(step, groups)]
        if spec.mined_triplets:
            parts.append(self._blocks(step, groups))

        def sides(name: str) -> np.ndarray:
            halves = [np.split(part[name], 2, axis=1) for part in parts]
            return np.concatenate([half[side] for side in (0, 1) for half in halves], axis=1)

        relations = np.concatenate([part["relations"] for part in parts], axis=1)
        return {"concepts": sides("concepts"), "terms": sides("terms"), "relations": relations}

    def _blocks(self, step: int, groups: np.ndarray) -> dict[str, np.ndarray]:
        """The pairs of anchors and their neighbours, in the format of `Draw.__call__`."""
        spec, width = self.spec, 1 + self.spec.neighbours
        group = step * spec.groups + np.asarray(groups)
        within = np.arange(spec.blocks)
        epoch, group_in_epoch = np.divmod(group, self.groups_per_epoch)
        index = group_in_epoch[:, None] * spec.blocks + within
        keys = key(spec.seed, "permutation", epoch, _BLOCKS)[:, None]
        place = permute(index, self.size, keys).ravel()
        anchor = self.anchors[place][:, None]
        lists = np.repeat(anchor, spec.neighbours, axis=1)
        if self.lists is not None:
            found = self.lists[place]
            lists = np.where(found < 0, lists, found)
        # Negative, so that no triplet has the same slot number.
        slot = ~(group[:, None] * spec.blocks + within).ravel()
        slots = (slot[:, None] * width - np.arange(width)).ravel()
        heads = self._terms_of(np.concatenate([anchor, lists], axis=1).ravel(), slots)
        concepts = self._concept_of(heads)
        if spec.positives == "each":
            tails = self.names.others("tail term", slots, heads, concepts, 1)
        else:
            firsts = heads[::width], concepts[::width]
            tails = self.names.others("tail term", slot, *firsts, width)
        tails = tails.ravel()

        def by_group(*sides: np.ndarray) -> np.ndarray:
            shape = len(groups), spec.blocks * width
            return np.concatenate([x.reshape(shape)[:, : spec.mined_pairs] for x in sides], axis=1)

        of_tails = self._concept_of(tails)
        return {
            "concepts": by_group(concepts, of_tails).astype(np.int32),
            "terms": by_group(heads, tails),
            "relations": np.full((len(groups), spec.mined_triplets), -1, np.int32),
        }

    def _terms_of(self, found: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """int64: the term that stands for an anchor or a neighbour: itself, or a term of the
        concept.
        """
        if self.spec.neighbours_of == "terms":
            return found
        return self.names("head term", slots, found, 1)[:, 0]

    def _concept_of(self, terms: np.ndarray) -> np.ndarray:
        """int64: the concept of each term."""
        return np.searchsorted(self.names.term_start, terms, side="right") - 1
