"""Counts of the concepts that are nearer to a mention than its gold concept, computed in blocks.

A concept is as near as its nearest term, so a block of terms is a run of the dictionary in order of
the concept: all but the last of its concepts are known when it ends, and of that one the largest
cosine so far is carried into the next block. A first pass over the terms of the gold concepts finds
how near these are, a second over all terms counts. Memory grows with the number of concepts and
rows by a few bytes each, and not with the vectors. Both passes multiply blocks of one shape, so
that equal vectors have equal cosines.

A dictionary in order of its concepts, as those of datasets and releases are, is read from front to
back; of another one rows are read one by one, which takes longer where the file is larger than
memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from coder_jax.encoding.search import block_size, dot_products, rows_from
from coder_jax.encoding.vector_files import Rows, unit
from coder_jax.evaluation.ranks import GoldCounts, ahead_and_tied
from data_pipeline import process
from data_pipeline.files.tables import split_concepts

# The numbers of terms and mentions compared at a time: 32 MB of float32 similarities.
_BLOCK_PAIRS, _BLOCK_MENTIONS = 16384, 512
_NO_GOLD = -2.0  # below all cosines


@dataclass(frozen=True)
class ConceptRows:
    """The rows of a dictionary, grouped by concept, and the source of their vectors.

    Attributes:
      vectors_of: int [n] row numbers -> float [n, D], of any length; it is asked for one block at a
        time, and for the rows of gold concepts twice.
      pair_rows_P, pair_concepts_P: int32, the (row, concept) pairs, in order of the concept.
      concept_ids: concept -> its number, 0, 1, ...
    """

    vectors_of: Callable[[np.ndarray], np.ndarray]
    pair_rows_P: np.ndarray
    pair_concepts_P: np.ndarray
    concept_ids: dict[str, int]


class _Block(NamedTuple):
    """A run of (row, concept) pairs, zero-padded to the common shape of all blocks."""

    vectors_PD: np.ndarray  # float32, unit length
    places_P: np.ndarray  # int32: which of the block's concepts, from 0 on; P for padding
    concepts_S: np.ndarray  # the block's concepts


def rows_by_concept(
    vectors_of: Callable[[np.ndarray], np.ndarray], concepts: Sequence[str]
) -> ConceptRows:
    """Prepares a dictionary for `count_ranks`.

    Args:
      vectors_of: see `ConceptRows`.
      concepts: of each row; several are joined with "|".
    """
    ids: dict[str, int] = {}
    rows, numbers = array("i"), array("i")
    for row, joined in enumerate(concepts):
        for concept in split_concepts(joined):
            rows.append(row)
            numbers.append(ids.setdefault(concept, len(ids)))
    rows_P, numbers_P = np.asarray(rows), np.asarray(numbers)
    order = np.argsort(numbers_P, kind="stable")
    return ConceptRows(vectors_of, rows_P[order], numbers_P[order], ids)


def _check_labels(vectors: Rows, labels: Sequence[str]) -> None:
    """ValueError if there is not one vector for each label, and at least one."""
    if len(np.shape(vectors)) != 2 or len(vectors) != len(labels) or not len(labels):
        raise ValueError(
            f"found mention vectors of shape {np.shape(vectors)} for {len(labels)} concepts; "
            "expected one row each, and at least one"
        )


def count_ranks(
    mention_vectors: np.ndarray, gold: Sequence[str], dictionary: ConceptRows, tie_tolerance: float
) -> GoldCounts:
    """Counts, for each mention, the concepts ahead of its gold concept and those tied with it.

    Args:
      mention_vectors: float [M, D], any length; cosines are taken here.
      gold: M concept identifiers; several are joined with "|".
      dictionary: from `rows_by_concept`.
      tie_tolerance: in units of cosine.

    Raises:
      ValueError: lengths or widths do not fit.
      BadInput: a vector is not finite.
      Stopped: a signal asked for it.
    """
    _check_labels(mention_vectors, gold)
    mentions_MD = unit(mention_vectors, "mention vectors")
    gold_MG = _gold_table(gold, dictionary.concept_ids)
    size = block_size(len(gold), _BLOCK_MENTIONS)
    starts = range(0, len(gold), size)
    columns = [np.ascontiguousarray(rows_from(mentions_MD, first, size).T) for first in starts]
    mentions = jax.device_put(columns)
    tolerance = np.float32(tie_tolerance)
    similarity_MG = _gold_similarities(mentions, gold_MG, dictionary)
    best_M = similarity_MG.max(axis=1)
    counted = _count(mentions, best_M, dictionary, tolerance)
    is_gold_tied_MG = (gold_MG >= 0) & (best_M[:, None] - similarity_MG <= tolerance)
    gold_tied = is_gold_tied_MG.sum(axis=1)
    ahead, within = (part[: len(gold)] for part in counted)
    reachable_M = np.any(gold_MG >= 0, axis=1)
    return GoldCounts(ahead, within - gold_tied, gold_tied, reachable_M)


def _gold_table(gold: Sequence[str], concept_ids: Mapping[str, int]) -> np.ndarray:
    """Indices of the gold concepts that the dictionary holds, int32 [n, G]; -1 fills up."""
    found = [
        [
            concept_ids[concept]
            for concept in dict.fromkeys(split_concepts(joined))
            if concept in concept_ids
        ]
        for joined in gold
    ]
    table = np.full((len(gold), max(1, *map(len, found)) if found else 1), -1, np.int32)
    for row, indices in enumerate(found):
        table[row, : len(indices)] = indices
    return table


def _blocks(
    dictionary: ConceptRows, rows_P: np.ndarray, concepts_P: np.ndarray, width: int
) -> Iterator[_Block]:
    """The blocks of some pairs of a dictionary, which are in order of the concept."""
    size = block_size(len(dictionary.pair_rows_P), _BLOCK_PAIRS)
    for first in range(0, len(rows_P), size):
        process.poll()
        rows, concepts = rows_P[first : first + size], concepts_P[first : first + size]
        vectors = unit(dictionary.vectors_of(rows), "dictionary vectors", numbers=rows)
        if vectors.shape[1] != width:
            raise ValueError(
                f"found mention vectors of width {width} and dictionary vectors of width "
                f"{vectors.shape[1]}; expected the same encoder for both"
            )
        is_first = np.append(True, concepts[1:] != concepts[:-1])
        places = np.full(size, size, np.int32)
        places[: len(rows)] = np.cumsum(is_first) - 1
        yield _Block(rows_from(vectors, 0, size), places, concepts[is_first])


def _gold_similarities(
    mentions: Sequence[jax.Array], gold_MG: np.ndarray, dictionary: ConceptRows
) -> np.ndarray:
    """The cosine of each mention and its gold concepts, float32 [M, G]; _NO_GOLD where none is."""
    width, size = mentions[0].shape
    best_MG = np.full(gold_MG.shape, _NO_GOLD, np.float32)
    is_gold_C = np.zeros(len(dictionary.concept_ids), bool)
    is_gold_C[gold_MG[gold_MG >= 0]] = True
    chosen_P = is_gold_C[dictionary.pair_concepts_P]
    pairs = dictionary.pair_rows_P[chosen_P], dictionary.pair_concepts_P[chosen_P]
    for block in _blocks(dictionary, *pairs, width):
        place_MG = np.searchsorted(block.concepts_S, gold_MG)
        found_MG = block.concepts_S[np.minimum(place_MG, len(block.concepts_S) - 1)]
        place_MG = np.where(found_MG == gold_MG, place_MG, -1).astype(np.int32)
        arrays = jax.device_put(block[:2])
        for number, mentions_DB in enumerate(mentions):
            part = slice(number * size, (number + 1) * size)
            place_BG = jax.device_put(_filled(place_MG[part], size, -1))
            found_BG = jax.device_get(_similarity_at(*arrays, mentions_DB, place_BG))
            best_MG[part] = np.maximum(best_MG[part], found_BG[: len(best_MG[part])])
    return best_MG


def _count(
    mentions: Sequence[jax.Array],
    best_M: np.ndarray,
    dictionary: ConceptRows,
    tolerance: np.float32,
) -> list[np.ndarray]:
    """Per mention, the concepts ahead of its best gold one, and those within the tolerance."""
    width, size = mentions[0].shape
    limits = [
        _filled(best_M[first * size :][:size], size, _NO_GOLD) for first in range(len(mentions))
    ]
    best, on_device = jax.device_put((limits, tolerance))
    nothing = np.zeros((2, size), np.int32), np.full(size, -np.inf, np.float32)
    totals = [jax.device_put(nothing) for _ in mentions]
    concepts_P = dictionary.pair_concepts_P
    last = 0
    for block in _blocks(dictionary, dictionary.pair_rows_P, concepts_P, width):
        last += int((block.places_P < len(block.places_P)).sum())
        is_open = last < len(concepts_P) and concepts_P[last] == block.concepts_S[-1]
        finished = np.int32(len(block.concepts_S) - is_open)
        arrays = jax.device_put((*block[:2], finished, np.bool_(is_open)))
        before = totals
        totals = [
            _count_block(*arrays, *of_mentions, on_device, *total)
            for *of_mentions, total in zip(mentions, best, totals, strict=True)
        ]
        jax.block_until_ready(before)  # or blocks would pile up in front of a busy device
    counts = [count for count, _ in jax.device_get(totals)]
    return [np.concatenate(part) for part in zip(*counts, strict=True)]


def _filled(rows: np.ndarray, size: int, value: float) -> np.ndarray:
    """`rows`, filled up to `size` of them."""
    more = np.full((size - len(rows), *rows.shape[1:]), value, rows.dtype)
    return np.concatenate([rows, more])


def _nearest(vectors_PD: jax.Array, places_P: jax.Array, mentions_DB: jax.Array) -> jax.Array:
    """The largest cosine of each concept of a block, [P, B]; minus infinity for an empty place."""
    cosine_PB = dot_products(vectors_PD, mentions_DB)
    return jax.ops.segment_max(cosine_PB, places_P, len(places_P), indices_are_sorted=True)


@jax.jit
def _similarity_at(
    vectors_PD: jax.Array, places_P: jax.Array, mentions_DB: jax.Array, place_BG: jax.Array
) -> jax.Array:
    """The cosine of mentions and concepts at these places of a block; _NO_GOLD where it is -1."""
    nearest_PB = _nearest(vectors_PD, places_P, mentions_DB)
    found_BG = jnp.take_along_axis(nearest_PB.T, jnp.maximum(place_BG, 0), axis=1)
    return jnp.where(place_BG >= 0, found_BG, _NO_GOLD)


@jax.jit
def _count_block(
    vectors_PD: jax.Array,
    places_P: jax.Array,
    finished: jax.Array,
    is_open: jax.Array,
    mentions_DB: jax.Array,
    best_B: jax.Array,
    tolerance: jax.Array,
    total_2B: jax.Array,
    carried_B: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """The counts with those of one block, and the cosine to carry over.

    Args:
      vectors_PD, places_P: see `_Block`.
      finished: how many concepts of the block have no terms in the next one.
      is_open: whether one more has.
      mentions_DB, best_B: mentions and the cosine of the best gold concept of each.
      total_2B: concepts ahead and within the tolerance so far.
      carried_B: the cosine of the block's first concept in the blocks before, or minus infinity.
    """
    nearest_PB = _nearest(vectors_PD, places_P, mentions_DB)
    nearest_PB = nearest_PB.at[0].max(carried_B)
    counts = jnp.arange(len(places_P)) < finished
    compared = ahead_and_tied(nearest_PB, best_B[None], tolerance)
    added = [(is_so_PB & counts[:, None]).sum(axis=0, dtype=jnp.int32) for is_so_PB in compared]
    carried_B = jnp.where(is_open, jnp.take(nearest_PB, finished, axis=0, mode="clip"), -jnp.inf)
    return total_2B + jnp.stack(added), carried_B
