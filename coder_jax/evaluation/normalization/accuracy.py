"""Zero-shot term normalization: term vectors and gold concepts in, acc@k and MRR out.

The task is the one of the CODER paper, section 3.1: the dictionary holds all terms of all
concepts, and the predicted concept of a mention is the concept of the term that is nearest by
cosine. Nothing is trained on the benchmark.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from coder_jax.evaluation.normalization.benchmark import NormalizationBenchmark
from coder_jax.evaluation.normalization.ranks import rank_scores
from coder_jax.evaluation.vectors.vectors import TERMS, unit
from data_pipeline.files.rows import CONCEPT_SEPARATOR
from data_pipeline.process import stopping

# Similarities closer than this are ties. Float32 rounding, and the place that a term had in a
# packed batch, move a cosine by about 1e-7; distances that carry meaning are far larger.
TIE_TOLERANCE = 1e-6

# At most this many similarities are held at a time (256 MB in float32).
BLOCK_SIMILARITIES = 2**26
BLOCK_MENTIONS = 256

Encode = Callable[[list[str]], np.ndarray]


@dataclass(frozen=True)
class NormalizationResult:
    """Scores of one set of mentions, or the mean over the folds of a benchmark.

    Attributes:
      mentions: how many mentions were scored.
      unreachable: mentions none of whose gold concepts has a term in the dictionary. In `scores`
        they count as wrong.
      tied: mentions whose gold concept is as near as some other concept.
      concepts: concepts in the dictionary (the largest fold's, for several folds).
      scores: "acc@k" and "mrr" are the mean over random orders of tied concepts;
        "..._optimistic" puts the gold concept before all that it is tied with, "..._pessimistic"
        behind them. All in [0, 1].
      reachable_scores: the same over the other mentions only; empty if there are none.
      folds: the result of each fold, by its name; empty for a single set of mentions.
    """

    mentions: int
    unreachable: int
    tied: int
    concepts: int
    scores: dict[str, float]
    reachable_scores: dict[str, float]
    folds: Mapping[str, "NormalizationResult"] = field(default_factory=dict)


class PlacedDictionary(NamedTuple):
    """A dictionary as it is searched: on the devices, its concepts numbered."""

    vectors_ND: jax.Array  # float32, unit length
    pair_rows_P: jax.Array  # the (row, concept) pairs, in order of the concept
    pair_concepts_P: jax.Array
    concept_ids: dict[str, int]


def place_dictionary(vectors: np.ndarray, concepts: Sequence[str]) -> PlacedDictionary:
    """Makes a dictionary ready for `score_normalization`.

    Args:
      vectors: float [N, D], one per distinct string, any length.
      concepts: N concept identifiers; the concepts that share a string are joined with "|", so that
        they tie exactly.

    Raises:
      ValueError: lengths do not fit.
      BadInput: a vector is not finite.
    """
    unit_ND = _rows_of_labels("dictionary", vectors, concepts)
    concept_ids, rows, numbers = _pairs_by_concept(concepts)
    placed_ND, rows_P, numbers_P = jax.device_put((unit_ND, rows, numbers))
    return PlacedDictionary(placed_ND, rows_P, numbers_P, concept_ids)


def score_normalization(
    mention_vectors: np.ndarray,
    gold: Sequence[str],
    dictionary: PlacedDictionary,
    ks: Sequence[int] = (1, 3, 5),
    *,
    tie_tolerance: float = TIE_TOLERANCE,
) -> NormalizationResult:
    """Ranks the concepts of a dictionary for each mention and scores the rank of the gold one.

    The similarity of a mention and a concept is the largest cosine over the concept's terms. A
    mention with several gold concepts is scored by the best of them; the others never count as
    competitors. Concepts whose similarity is within `tie_tolerance` of the gold one's are tied.

    Args:
      mention_vectors: float [n, D], any length; cosines are taken here.
      gold: n concept identifiers; several are joined with "|".
      dictionary: from `place_dictionary`.
      ks: the k of acc@k. A k larger than the number of concepts is allowed.
      tie_tolerance: in units of cosine.

    Returns:
      A NormalizationResult without folds.

    Raises:
      ValueError: lengths, widths or ks do not fit.
      BadInput: a vector is not finite.
      Stopped: a signal asked for it.
    """
    if not ks or min(ks) < 1:
        raise ValueError(f"found ks={tuple(ks)}; expected at least one k, each 1 or more")
    mentions_BD = _rows_of_labels("mention", mention_vectors, gold)
    terms, width = dictionary.vectors_ND.shape
    if mentions_BD.shape[1] != width:
        raise ValueError(
            f"found mention vectors of width {mentions_BD.shape[1]} and dictionary vectors of "
            f"width {width}; expected the same encoder for both"
        )
    concept_ids = dictionary.concept_ids
    gold_BG = _gold_table(gold, concept_ids)
    tolerance = jax.device_put(np.float32(tie_tolerance))
    block = max(1, min(BLOCK_MENTIONS, BLOCK_SIMILARITIES // terms))
    counts = []
    for first in range(0, len(gold), block):
        stopping.poll()
        part = slice(first, first + block)
        arrays = jax.device_put((mentions_BD[part], gold_BG[part]))
        ranked = _count_ahead(*arrays, *dictionary[:3], tolerance, len(concept_ids))
        counts.append(jax.device_get(ranked))
    ahead, tied, gold_tied = (np.concatenate(part) for part in zip(*counts, strict=True))
    reachable = np.any(gold_BG >= 0, axis=1)
    return NormalizationResult(
        mentions=len(gold),
        unreachable=int((~reachable).sum()),
        tied=int((reachable & (tied > 0)).sum()),
        concepts=len(concept_ids),
        scores=rank_scores(ahead, tied, gold_tied, reachable, ks),
        reachable_scores=_scores_of(reachable, ahead, tied, gold_tied, ks),
    )


def _scores_of(
    reachable: np.ndarray,
    ahead: np.ndarray,
    tied: np.ndarray,
    gold_tied: np.ndarray,
    ks: Sequence[int],
) -> dict[str, float]:
    if not reachable.any():
        return {}
    ahead, tied, gold_tied = ahead[reachable], tied[reachable], gold_tied[reachable]
    return rank_scores(ahead, tied, gold_tied, np.ones(len(ahead), bool), ks)


def evaluate_normalization(
    encode: Encode,
    benchmark: NormalizationBenchmark,
    *,
    ks: Sequence[int] = (1, 3, 5),
    tie_tolerance: float = TIE_TOLERANCE,
) -> NormalizationResult:
    """Scores an encoder on a normalization benchmark; several folds give the mean over folds.

    Each distinct string of all mentions and dictionaries is encoded once.

    Args:
      encode: strings -> float32 [n, D], for instance `TermEncoder.encode`.
      benchmark: from `benchmarks.read_benchmark`; its folds hold the dictionaries.
      ks: the k of acc@k.
      tie_tolerance: see `score_normalization`.

    Raises:
      BadInput: the encoder gives a vector that is not finite.
    """
    strings = benchmark.keys(TERMS)
    row_of = {string: row for row, string in enumerate(strings)}
    vectors = np.asarray(encode(strings), dtype=np.float32)
    if len(vectors) != len(strings):
        raise ValueError(f"encode gave {len(vectors)} vectors for {len(strings)} strings")
    results = {}
    placed, last = None, None
    for fold in benchmark.folds:
        if placed is None or fold.dictionary is not last:  # folds may share it
            placed, last = None, fold.dictionary
            concepts_of = last.concepts_of_terms()
            of_terms = vectors[[row_of[term] for term in concepts_of]]
            placed = place_dictionary(of_terms, list(concepts_of.values()))
        of_mentions = vectors[[row_of[mention] for mention in fold.mentions]]
        results[fold.name] = score_normalization(
            of_mentions, fold.gold, placed, ks, tie_tolerance=tie_tolerance
        )
    return next(iter(results.values())) if len(results) == 1 else mean_over_folds(results)


def mean_over_folds(results: Mapping[str, NormalizationResult]) -> NormalizationResult:
    """The unweighted mean of the folds' scores, as the papers report it; counts are summed."""
    parts = list(results.values())

    def mean(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
        names = scores[0] if scores else ()
        return {name: float(np.mean([part[name] for part in scores])) for name in names}

    return NormalizationResult(
        mentions=sum(part.mentions for part in parts),
        unreachable=sum(part.unreachable for part in parts),
        tied=sum(part.tied for part in parts),
        concepts=max(part.concepts for part in parts),
        scores=mean([part.scores for part in parts]),
        reachable_scores=mean([p.reachable_scores for p in parts if p.reachable_scores]),
        folds=dict(results),
    )


def _rows_of_labels(name: str, vectors: np.ndarray, labels: Sequence[str]) -> np.ndarray:
    """Unit vectors, after a look whether there is one for each label."""
    if np.ndim(vectors) != 2 or len(vectors) != len(labels) or not len(labels):
        raise ValueError(
            f"found {name} vectors of shape {np.shape(vectors)} for {len(labels)} concepts; "
            "expected one row each, and at least one"
        )
    return unit(vectors, f"{name} vectors")


def _pairs_by_concept(
    dictionary_concepts: Sequence[str],
) -> tuple[dict[str, int], np.ndarray, np.ndarray]:
    """Concept -> index, and the (row, concept) pairs of the dictionary in order of the concept."""
    ids: dict[str, int] = {}
    rows, concepts = [], []
    for row, joined in enumerate(dictionary_concepts):
        for concept in joined.split(CONCEPT_SEPARATOR):
            rows.append(row)
            concepts.append(ids.setdefault(concept, len(ids)))
    order = np.argsort(concepts, kind="stable")
    return ids, np.array(rows, np.int32)[order], np.array(concepts, np.int32)[order]


def _gold_table(gold: Sequence[str], concept_ids: Mapping[str, int]) -> np.ndarray:
    """Indices of the gold concepts that the dictionary holds, int32 [n, G]; -1 fills up."""
    found = [
        [
            concept_ids[concept]
            for concept in dict.fromkeys(joined.split(CONCEPT_SEPARATOR))
            if concept in concept_ids
        ]
        for joined in gold
    ]
    table = np.full((len(gold), max(1, *map(len, found)) if found else 1), -1, np.int32)
    for row, indices in enumerate(found):
        table[row, : len(indices)] = indices
    return table


@partial(jax.jit, static_argnames="num_concepts")
def _count_ahead(
    mentions_BD: jax.Array,
    gold_BG: jax.Array,
    dictionary_ND: jax.Array,
    pair_rows_P: jax.Array,
    pair_concepts_P: jax.Array,
    tolerance: jax.Array,
    num_concepts: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Per mention: other concepts before the gold one, tied with it, and gold ones in the tie."""
    cosine_NB = jnp.matmul(dictionary_ND, mentions_BD.T, precision=jax.lax.Precision.HIGHEST)
    nearest_CB = jax.ops.segment_max(
        cosine_NB[pair_rows_P], pair_concepts_P, num_concepts, indices_are_sorted=True
    )
    reachable_BG = gold_BG >= 0
    gold_similarity_BG = jnp.take_along_axis(nearest_CB.T, jnp.maximum(gold_BG, 0), axis=1)
    best_B = jnp.where(reachable_BG, gold_similarity_BG, -2).max(axis=1)
    lead_CB = nearest_CB - best_B[None, :]
    ahead_B = (lead_CB > tolerance).sum(axis=0)
    within_B = (jnp.abs(lead_CB) <= tolerance).sum(axis=0)
    gold_tied_B = (reachable_BG & (best_B[:, None] - gold_similarity_BG <= tolerance)).sum(axis=1)
    return ahead_B, within_B - gold_tied_B, gold_tied_B
