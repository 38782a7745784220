"""Candidate generation: the concepts with the nearest names, by one generator or several."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from coder_jax.encoding.encoder import TermEncoder, dictionary_vectors
from coder_jax.encoding.search import KeptRows, search
from data_pipeline.dataset.mentions import CandidateLists
from data_pipeline.files.whole import aligned
from data_pipeline.process import BadInput
from data_pipeline.terminology.tf_idf import CharacterTfIdf

# -------------------------------------------------------------------------------------------------
# Nearest vectors and concepts by Euclidean distance, on top of the exact search by dot products.

_MORE = 8  # keys beyond k that are found, as rounding may order close ones otherwise
_NUMBERS_AT_ONCE = 1 << 24  # of float64 arrays, 128 MB each, whatever k and the dictionary's size
_PAIRS_AT_ONCE = 16384  # whose mean distances are computed at a time


class NameVectors:
    """Vectors of names, made ready once for searches by Euclidean distance.

    |q - v|^2 = |q|^2 - 2 (q.v - |v|^2 / 2): keys with one more number, -|v|^2 / 2, are searched by
    the dot product. The distances of what was found are computed from differences.

    Args:
        vectors: float [n, D]; they must not change.
    """

    def __init__(self, vectors: np.ndarray):
        self.vectors, width = vectors, vectors.shape[1]
        # Centred on their mean: distances stay the same, and squares lose fewer digits.
        self._middle = vectors.mean(axis=0, dtype=np.float64)
        longer = aligned((len(vectors), width + 1), np.float32)
        at_once = max(1, _NUMBERS_AT_ONCE // width)
        for first in range(0, len(vectors), at_once):
            part = longer[first : first + at_once]
            part[:, :width] = vectors[first : first + at_once] - self._middle
            part[:, width] = -0.5 * np.square(part[:, :width], dtype=np.float64).sum(axis=1)
        self._keys = KeptRows(longer)

    def nearest(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k vectors with the smallest distance to each query, nearest first.

        Args:
            queries: float [q, D].
            k: 1 <= k <= n.

        Returns:
            (distance float32 [q, k], index int64 [q, k]); of equal ones the lower index first.

        Raises:
            ValueError, BadInput, Stopped: as `search`.
        """
        count, width = self.vectors.shape
        longer = aligned((len(queries), width + 1), np.float32)
        longer[:, :width] = queries - self._middle
        longer[:, width] = 1.0
        _, found = search(longer, self._keys, min(k + _MORE, count))
        found.sort(axis=1)  # so that a stable order puts the lower index first
        distance = np.empty(found.shape, np.float32)
        at_once = max(1, _NUMBERS_AT_ONCE // (found.shape[1] * width))
        for first in range(0, len(queries), at_once):
            some = slice(first, first + at_once)
            difference = queries[some, None].astype(np.float64) - self.vectors[found[some]]
            distance[some] = np.sqrt(np.square(difference).sum(axis=-1))
        order = np.argsort(distance, axis=1, kind="stable")[:, :k]
        nearest = np.take_along_axis(distance, order, axis=1)
        return nearest, np.take_along_axis(found, order, axis=1)


def _nearest_by_mean(
    queries: Sequence[np.ndarray], keys: Sequence[NameVectors], k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The k keys with the smallest mean distance over several encoders to each query; exact.

    By the threshold algorithm: what none of the encoders has among its nearest is in each at least
    as far as the last of these, so in the mean as far as these last ones are. Where k keys are
    nearer than that, no other can be; where not, more are looked at.

    Args:
        queries: float [q, D] of each encoder, whose widths may differ.
        keys: the n vectors of each.
        k: 1 <= k <= n.

    Returns:
        (mean distance float32 [q, k], index int64 [q, k]); of equal ones the lower index first.

    Raises:
        ValueError, BadInput, Stopped: as `search`.

    References:
        Fagin, Lotem, Naor, Optimal aggregation algorithms for middleware, 2003, section 4.
    """
    if len(keys) == 1:
        return keys[0].nearest(queries[0], k)
    count = len(keys[0].vectors)
    distance, found = (np.empty((len(queries[0]), k), kind) for kind in (np.float32, np.int64))
    left, wanted = np.arange(len(queries[0])), min(4 * k, count)
    while left.size:
        some = [vectors[left] for vectors in queries]
        lists = [key.nearest(one, wanted) for one, key in zip(some, keys, strict=True)]
        least = np.mean([distances[:, -1] for distances, _ in lists], axis=0)
        index = np.sort(np.concatenate([name for _, name in lists], axis=1), axis=1)
        new = np.ones(index.shape, bool)  # not found by another encoder, too
        new[:, 1:] = index[:, 1:] != index[:, :-1]
        mean = np.full(index.shape, np.inf)
        vectors_of_keys = [key.vectors for key in keys]
        mean[new] = mean_distances(some, vectors_of_keys, np.nonzero(new)[0], index[new])
        order = np.argsort(mean, axis=1, kind="stable")[:, :k]
        mean, index = (np.take_along_axis(one, order, axis=1) for one in (mean, index))
        sure = (mean[:, -1] < least) | (wanted == count)
        distance[left[sure]], found[left[sure]] = mean[sure], index[sure]
        left, wanted = left[~sure], min(4 * wanted, count)
    return distance, found


def mean_distances(
    queries: Sequence[np.ndarray], keys: Sequence[np.ndarray], rows: np.ndarray, index: np.ndarray
) -> np.ndarray:
    """float64 [p]: the mean distance of pairs of a query and a key, int [p] each."""
    total = np.zeros(len(rows))
    for first in range(0, len(rows), _PAIRS_AT_ONCE):
        part = slice(first, first + _PAIRS_AT_ONCE)
        for query, key in zip(queries, keys, strict=True):
            difference = query[rows[part]].astype(np.float64) - key[index[part]]
            total[part] += np.sqrt(np.square(difference).sum(axis=-1))
    return total / len(keys)


# From some queries, int [r], and a number of names to (distance, name), [r, number] each, nearest
# first.
_Finder = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]


def _nearest_concepts(
    nearest: _Finder,
    queries: int,
    name_concepts: np.ndarray,
    k: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The k concepts nearest to each query, each represented by its nearest name.

    Args:
        nearest: finds the names nearest to queries.
        queries: how many there are, q.
        name_concepts: int [n], the concept of each name.
        k: at least 1.

    Returns:
        (distance float32 [q, c], name int64 [q, c]): the distance of a concept and its nearest
        name, nearest first; c is k, or the number of concepts if that is less.

    Raises:
        BadInput, Stopped: as `nearest`.
    """
    k = min(k, len(np.unique(name_concepts)))
    distance, found = np.empty((queries, k), np.float32), np.empty((queries, k), np.int64)
    left, wanted = np.arange(queries), k
    while left.size:
        wanted = min(wanted, len(name_concepts))
        distances, name = nearest(left, wanted)
        first = _is_first_of_row(name_concepts[name])
        enough = first.sum(axis=1) >= k
        # The first k new concepts of a row; the stable sort puts them first.
        place = np.argsort(~first[enough], axis=1, kind="stable")[:, :k]
        distance[left[enough]] = np.take_along_axis(distances[enough], place, axis=1)
        found[left[enough]] = np.take_along_axis(name[enough], place, axis=1)
        left, wanted = left[~enough], 4 * wanted
    return distance, found


def _is_first_of_row(values: np.ndarray) -> np.ndarray:
    """bool [q, n]: whether a value is the first of its kind in its row."""
    order = np.argsort(values, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    new = np.ones(values.shape, bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.empty_like(new)
    np.put_along_axis(first, order, new, axis=1)
    return first


# -------------------------------------------------------------------------------------------------
# Candidate generators: the nearest concepts of each mention, and the number of its concepts.
#
# Liang, Xue, Ruan 2021, sections 3.1 and 3.2. Any encoder can be the generator: one that was not
# trained for it compares vectors of length one, and takes each mention to have one concept. So does
# TF-IDF, the paper's baseline, which a ranker can follow, too (table 3, without MTCG).

CANDIDATES = 10  # kc (section 4.2)


class Generator(abc.ABC):
    """The protocol of a candidate generator, which also predicts the number of concepts."""

    @abc.abstractmethod
    def encode_names(
        self, names: Sequence[str], *, progress: bool = False, cache: bool = False
    ) -> list[Any]:
        """The names of a dictionary, as mentions are compared with them: for each encoder their
        `NameVectors`.

        Args:
            names: N strings.
            progress: show a progress bar.
            cache: read the vectors where this machine has them, and keep them for the next time;
                they are equal to the bit to those that are made anew.
        """

    @abc.abstractmethod
    def numbers(self, mentions: Sequence[str]) -> np.ndarray:
        """float32 [M, C]: the probability of each number of concepts; [M, 1] of ones if unknown."""

    @abc.abstractmethod
    def _finder(self, mentions: Sequence[str], names: Sequence[Any], progress: bool) -> _Finder:
        """What finds the names nearest to some mentions; the arguments are those of `nearest`."""

    def nearest(
        self,
        mentions: Sequence[str],
        names: Sequence[Any],
        name_concepts: np.ndarray,
        k: int = CANDIDATES,
        *,
        progress: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The concepts with the nearest names: what `_nearest_concepts` returns.

        Args:
            mentions: M strings.
            names: what `encode_names` gives of N names.
            name_concepts: int [N], the concept of each name.
            k: candidates of a mention.
            progress: show a progress bar.
        """
        find = self._finder(mentions, names, progress)
        return _nearest_concepts(find, len(mentions), name_concepts, k)

    def lists(
        self,
        mentions: Sequence[str],
        names: Sequence[Any],
        name_concepts: np.ndarray,
        k: int = CANDIDATES,
        *,
        progress: bool = False,
    ) -> CandidateLists:
        """The candidates of mentions; the arguments are those of `nearest`."""
        distances, found = self.nearest(mentions, names, name_concepts, k, progress=progress)
        return CandidateLists(
            names=found.astype(np.int32),
            distances=distances,
            numbers=self.numbers(mentions),
        )


class TfIdfGenerator(Generator):
    """The names most alike by TF-IDF of their characters; each mention has one concept.

    Distances are those of vectors of length one.
    """

    def encode_names(
        self, names: Sequence[str], *, progress: bool = False, cache: bool = False
    ) -> list[Any]:
        return [CharacterTfIdf(list(names))]

    def numbers(self, mentions: Sequence[str]) -> np.ndarray:
        return np.ones((len(mentions), 1), np.float32)

    def _finder(self, mentions: Sequence[str], names: Sequence[Any], progress: bool) -> _Finder:
        (by_characters,), shown = names, "TF-IDF" if progress else ""

        def most_alike(rows: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
            strings = [mentions[row] for row in rows.tolist()]
            similarity, found = by_characters.nearest(strings, number, shown)
            return np.sqrt(np.maximum(2 - 2 * similarity, 0)), found

        return most_alike


class _EncodingGenerator(Generator):
    """A generator that compares vectors of encoders."""

    @abc.abstractmethod
    def encode(self, strings: Sequence[str], *, progress: bool = False) -> list[np.ndarray]:
        """float32 [n, D] for each encoder: vectors that are compared by distance."""

    def _finder(self, mentions: Sequence[str], names: Sequence[Any], progress: bool) -> _Finder:
        vectors = self.encode(mentions, progress=progress)

        def by_distance(rows: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
            return _nearest_by_mean([one[rows] for one in vectors], names, number)

        return by_distance


class CandidateGenerator(_EncodingGenerator):
    """An encoder whose distances order candidates, with a head for the number of concepts.

    Args:
        encoder: of mentions and names.
        number: kernel [W, C] and bias [C] of a generator that was trained; None for any other
            encoder.
    """

    def __init__(self, encoder: TermEncoder, number: Mapping[str, Any] | None = None):
        self.encoder, self.number = encoder, number

    def encode(self, strings: Sequence[str], *, progress: bool = False) -> list[np.ndarray]:
        return [self.encoder.encode(strings, unit=self.number is None, progress=progress)]

    def encode_names(
        self, names: Sequence[str], *, progress: bool = False, cache: bool = False
    ) -> list[NameVectors]:
        unit, how = self.number is None, {"cache": cache, "progress": progress}
        found = dictionary_vectors(self.encoder, names, unit=unit, of_run=True, **how)
        return [NameVectors(found if isinstance(found, np.ndarray) else np.array(found))]

    def numbers(self, mentions: Sequence[str]) -> np.ndarray:
        if self.number is None:
            return np.ones((len(mentions), 1), np.float32)
        reads = "cls" if self.encoder.bert.pooler is None else "pooler"
        settings = dataclasses.replace(self.encoder.settings, pooling=reads)
        reader = TermEncoder(self.encoder.reader, None, settings)
        first = reader.encode(mentions, unit=False).astype(np.float64)
        logits = first @ np.asarray(self.number["kernel"], np.float64)
        logits += np.asarray(self.number["bias"], np.float64)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        return (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)


class GeneratorEnsemble(_EncodingGenerator):
    """Several generators as one, whose distances and probabilities are averaged.

    The released code combines five so, and the paper's figures are very likely of them.

    Args:
        members: in any order; they may have different encoders.

    Raises:
        BadInput: if some tell the number of concepts and others do not; the distances of these are
            of unit vectors, and no mean can be taken.
    """

    def __init__(self, members: Sequence[CandidateGenerator]):
        self.members = list(members)
        if len({one.number is None for one in self.members}) > 1:
            raise BadInput(
                "found generators and other encoders together, whose distances have no common "
                "measure; expected generators of the recipe recall alone, or other encoders alone"
            )

    def encode(self, strings: Sequence[str], *, progress: bool = False) -> list[np.ndarray]:
        return [array for one in self.members for array in one.encode(strings, progress=progress)]

    def encode_names(
        self, names: Sequence[str], *, progress: bool = False, cache: bool = False
    ) -> list[NameVectors]:
        each = (one.encode_names(names, progress=progress, cache=cache) for one in self.members)
        return [name_vectors for some in each for name_vectors in some]

    def numbers(self, mentions: Sequence[str]) -> np.ndarray:
        shares = [one.numbers(mentions) for one in self.members]
        return np.asarray(np.mean(shares, axis=0, dtype=np.float64), np.float32)

    def lists_by(
        self,
        member: np.ndarray,
        mentions: Sequence[str],
        names: Sequence[NameVectors],
        name_concepts: np.ndarray,
        k: int = CANDIDATES,
    ) -> CandidateLists:
        """The candidates of mentions, each from one chosen member.

        Args:
            member: int [M], which one.
            mentions, names, name_concepts, k: as for `lists`.
        """
        rows = [np.flatnonzero(member == number) for number in range(len(self.members))]
        parts = [
            one.lists(
                [mentions[row] for row in some.tolist()], [vectors], name_concepts, k, progress=True
            )
            for one, some, vectors in zip(self.members, rows, names, strict=True)
        ]
        back = np.argsort(np.concatenate(rows))
        joined = {
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in dataclasses.fields(CandidateLists)
        }
        return CandidateLists(**joined).of(back)


def nearest_wrong_names(
    mentions: np.ndarray, names: np.ndarray, own: Sequence[np.ndarray], k: int
) -> np.ndarray:
    """int32 [M, k]: the names nearest to each mention that are not its own.

    Args:
        mentions, names: float [M, D] and [N, D], vectors.
        own: int, for each mention the names that it may mean.
        k: names for each mention.

    Raises:
        BadInput: if a mention has fewer than k names that are not its own.
    """
    counts = np.array([len(one) for one in own], np.int64)
    if len(names) - counts.max(initial=0) < k:
        raise BadInput(
            f"the dictionary has {len(names)} names, of which a mention may mean "
            f"{counts.max()}; expected {k} others: use fewer (--negatives-per-pair)"
        )
    _, found = NameVectors(names).nearest(mentions, k + int(counts.max(initial=0)))
    rows = np.repeat(np.arange(len(mentions)), counts)
    taken = rows * len(names) + np.concatenate([np.zeros(0, np.int64), *own])
    is_own = np.isin(np.arange(len(mentions))[:, None] * len(names) + found, taken)
    place = np.argsort(is_own, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(found, place, axis=1).astype(np.int32)
