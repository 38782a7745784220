"""Nearest vectors and concepts by Euclidean distance, on the exact search by dot products."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coder_jax.encoding.search import search
from data_pipeline.dataset.aligned import aligned

MORE = 8  # keys beyond k that are found, as rounding may order close ones otherwise
NUMBERS_AT_ONCE = 1 << 24  # of float64 arrays, 128 MB each, whatever k and the dictionary's size
PAIRS_AT_ONCE = 16384  # whose mean distances are computed at a time


def nearest(queries: np.ndarray, keys: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k keys with the smallest Euclidean distance to each query, nearest first.

    |q - v|^2 = |q|^2 - 2 (q.v - |v|^2 / 2): keys with one more number, -|v|^2 / 2, are searched by
    the dot product. The distances of what was found are computed from differences.

    Args:
        queries: float [q, D].
        keys: float [n, D].
        k: 1 <= k <= n.

    Returns:
        (distance float32 [q, k], index int64 [q, k]); of equal ones the lower index first.

    Raises:
        ValueError, BadInput, Stopped: as `search`.
    """
    width = keys.shape[1]
    # Around their mean: distances stay, and squares lose fewer digits.
    middle = keys.mean(axis=0, dtype=np.float64)
    longer_keys = aligned((len(keys), width + 1), np.float32)
    at_once = max(1, NUMBERS_AT_ONCE // width)
    for first in range(0, len(keys), at_once):
        part = longer_keys[first : first + at_once]
        part[:, :width] = keys[first : first + at_once] - middle
        part[:, width] = -0.5 * np.square(part[:, :width], dtype=np.float64).sum(axis=1)
    longer_queries = aligned((len(queries), width + 1), np.float32)
    longer_queries[:, :width] = queries - middle
    longer_queries[:, width] = 1.0
    _, found = search(longer_queries, longer_keys, min(k + MORE, len(keys)))
    found.sort(axis=1)  # so that a stable order puts the lower index first
    distance = np.empty(found.shape, np.float32)
    at_once = max(1, NUMBERS_AT_ONCE // (found.shape[1] * width))
    for first in range(0, len(queries), at_once):
        some = slice(first, first + at_once)
        difference = queries[some, None].astype(np.float64) - keys[found[some]]
        distance[some] = np.sqrt(np.square(difference).sum(axis=-1))
    order = np.argsort(distance, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distance, order, axis=1), np.take_along_axis(found, order, axis=1)


def nearest_by_mean(
    queries: Sequence[np.ndarray], keys: Sequence[np.ndarray], k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The k keys with the smallest mean distance to each query over several encoders; exact.

    By the threshold algorithm: what none of the encoders has among its nearest is in each at least
    as far as the last of these, so in the mean as far as these last ones are. Where k keys are
    nearer than that, no other can be; where not, more are looked at.

    Args:
        queries: float [q, D] of each encoder, whose widths may differ.
        keys: float [n, D] of each.
        k: 1 <= k <= n.

    Returns:
        (mean distance float32 [q, k], index int64 [q, k]); of equal ones the lower index first.

    Raises:
        ValueError, BadInput, Stopped: as `search`.

    References:
        Fagin, Lotem, Naor, Optimal aggregation algorithms for middleware, 2003, section 4.
    """
    if len(keys) == 1:
        return nearest(queries[0], keys[0], k)
    count = len(keys[0])
    distance, found = (np.empty((len(queries[0]), k), kind) for kind in (np.float32, np.int64))
    left, wanted = np.arange(len(queries[0])), min(4 * k, count)
    while left.size:
        some = [vectors[left] for vectors in queries]
        lists = [nearest(one, key, wanted) for one, key in zip(some, keys, strict=True)]
        least = np.mean([there[:, -1] for there, _ in lists], axis=0)
        index = np.sort(np.concatenate([name for _, name in lists], axis=1), axis=1)
        new = np.ones(index.shape, bool)  # not found by another encoder, too
        new[:, 1:] = index[:, 1:] != index[:, :-1]
        mean = np.full(index.shape, np.inf)
        mean[new] = mean_distances(some, keys, np.nonzero(new)[0], index[new])
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
    for first in range(0, len(rows), PAIRS_AT_ONCE):
        part = slice(first, first + PAIRS_AT_ONCE)
        for query, key in zip(queries, keys, strict=True):
            difference = query[rows[part]].astype(np.float64) - key[index[part]]
            total[part] += np.sqrt(np.square(difference).sum(axis=-1))
    return total / len(keys)


def nearest_concepts(
    queries: Sequence[np.ndarray],
    names: Sequence[np.ndarray],
    name_concepts: np.ndarray,
    k: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The k concepts that are nearest to each query, each by its nearest name.

    Args:
        queries: float [q, D] of each encoder, whose mean distance counts.
        names: float [n, D] of each, of the names.
        name_concepts: int [n], the concept of each.
        k: at least 1.

    Returns:
        (distance float32 [q, c], name int64 [q, c]): the distance of a concept and its nearest
        name, nearest first; c is k, or the number of concepts if that is less.

    Raises:
        BadInput, Stopped: as `nearest`.
    """
    k = min(k, len(np.unique(name_concepts)))
    shape = len(queries[0]), k
    distance, found = np.empty(shape, np.float32), np.empty(shape, np.int64)
    left, wanted = np.arange(len(queries[0])), k
    while left.size:
        wanted = min(wanted, len(names[0]))
        there, name = nearest_by_mean([one[left] for one in queries], names, wanted)
        first = is_first_of_row(name_concepts[name])
        enough = first.sum(axis=1) >= k
        # The first k of a row's new concepts: a stable order puts them in front.
        place = np.argsort(~first[enough], axis=1, kind="stable")[:, :k]
        distance[left[enough]] = np.take_along_axis(there[enough], place, axis=1)
        found[left[enough]] = np.take_along_axis(name[enough], place, axis=1)
        left, wanted = left[~enough], 4 * wanted
    return distance, found


def is_first_of_row(values: np.ndarray) -> np.ndarray:
    """bool [q, n]: whether a value is the first of its kind in its row."""
    order = np.argsort(values, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    new = np.ones(values.shape, bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.empty_like(new)
    np.put_along_axis(first, order, new, axis=1)
    return first
