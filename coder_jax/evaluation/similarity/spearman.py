"""Term pairs in, their cosines and Spearman's rank correlation with human scores out.

For benchmarks such as UMNSRS and MayoSRS; and pairs of synonyms and of random terms to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import scipy.stats

from coder_jax.encoding.rows import unit
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.results.bootstrap import ABOUT, spearman_interval
from coder_jax.evaluation.vectors.vectors import TERMS
from data_pipeline.process.errors import BadInput

if TYPE_CHECKING:
    from coder_jax.evaluation.similarity.term_pairs import SimilarityBenchmark

Encode = Callable[[list[str]], np.ndarray]
Known = Callable[[Sequence[str]], np.ndarray]


@dataclass(frozen=True)
class SimilarityResult:
    """Spearman's rho between cosines and human scores, tied values at their mean rank.

    `scores` has "spearman"; "spearman_GROUP" for each group of raters that the file has apart; and,
    where a term or concept has no vector, "spearman_known" over the other pairs. In "spearman" a
    pair of which one has no vector has the cosine 0. A rho is None where all cosines, or all human
    scores, are equal: there are no ranks. `retired` concepts have the vector of the one that they
    were merged into.
    """

    pairs: int
    scores: dict[str, float | None]
    missing: int = 0
    retired: int = 0
    intervals: dict[str, list[float]] = field(default_factory=dict)


def score_similarity(
    cosines: np.ndarray, human_scores: Sequence[float] | np.ndarray
) -> SimilarityResult:
    """Spearman's rank correlation of float [n] and float [n]; BadInput for a cosine not finite."""
    cosines, human_scores = np.asarray(cosines), np.asarray(human_scores)
    if cosines.shape != human_scores.shape or cosines.ndim != 1 or len(cosines) < 2:
        raise ValueError(
            f"found cosines of shape {cosines.shape} and human scores of shape "
            f"{human_scores.shape}; expected two lists of the same length, 2 or more"
        )
    if not np.isfinite(cosines).all():
        raise BadInput(
            f"found {int((~np.isfinite(cosines)).sum())} similarities of {len(cosines)} that are "
            "NaN or infinite; expected finite numbers: check the weights"
        )
    if any((values == values[0]).all() for values in (cosines, human_scores)):
        return SimilarityResult(len(cosines), {"spearman": None})
    rho = scipy.stats.spearmanr(cosines, human_scores).statistic
    return SimilarityResult(len(cosines), {"spearman": float(rho)})


def evaluate_similarity(
    encode: Encode,
    benchmark: SimilarityBenchmark,
    *,
    known: Known | None = None,
    by: str = TERMS,
    seed: int = 0,
) -> SimilarityResult:
    """Scores an encoder on term pairs; each distinct string is encoded once.

    Args:
      encode: strings -> float32 [n, D], for instance `TermEncoder.encode`.
      benchmark: from `benchmarks.read_benchmark`.
      known: strings -> bool [n], which have a vector; all if None.
      by: what is encoded: TERMS, or the CONCEPTS of the pairs.
      seed: of the pairs that are drawn for the intervals.
    """
    first, second = benchmark.sides(by)
    retired = 0
    if by != TERMS and known is not None and (merged := benchmark.retired_cuis) is not None:
        looked_up = [merged.looked_up(side, known) for side in (first, second)]
        became = dict(zip([*first, *second], [*looked_up[0], *looked_up[1]], strict=True))
        retired = sum(old != new for old, new in became.items() if known([new])[0])
        first, second = looked_up
    cosines, human = pair_cosines(encode, first, second), np.array(benchmark.scores)
    both = np.ones(len(first), bool) if known is None else known(first) & known(second)
    cosines = np.where(both, cosines, 0)
    sides = {"spearman": (cosines, human)}
    for group, ratings in benchmark.groups.items():
        sides[f"spearman_{group}"] = cosines, np.asarray(ratings)
    if not both.all():
        sides["spearman_known"] = cosines[both], human[both]
    scores: dict[str, float | None] = {}
    intervals = {}
    for name, pairs in sides.items():
        enough = len(pairs[0]) > 1
        scores[name] = score_similarity(*pairs).scores["spearman"] if enough else None
        if scores[name] is not None and (found := spearman_interval(*pairs, seed)) is not None:
            intervals[name] = found
    return SimilarityResult(len(first), scores, int((~both).sum()), retired, intervals)


def pair_cosines(encode: Encode, first: Sequence[str], second: Sequence[str]) -> np.ndarray:
    """Cosine of first[i] and second[i], float64 [n]; each distinct string is encoded once."""
    strings = list(dict.fromkeys([*first, *second]))
    row_of = {string: row for row, string in enumerate(strings)}
    vectors = unit(encode(strings), dtype=np.float64)
    first_rows, second_rows = ([row_of[term] for term in side] for side in (first, second))
    return np.sum(vectors[first_rows] * vectors[second_rows], axis=1)


def similarity_record(
    benchmark: SimilarityBenchmark, result: SimilarityResult, encoder: EncoderRecord
) -> EvaluationRecord:
    """The record of `evaluate_similarity`."""
    return EvaluationRecord(
        benchmark=benchmark.name,
        kind="similarity",
        path=benchmark.path,
        content_hash=benchmark.content_hash,
        scores=dict(result.scores),
        intervals=result.intervals,
        counts={"pairs": result.pairs, "missing": result.missing, "retired": result.retired},
        scoring={
            "similarity": "cosine; 0 for a pair without two vectors",
            "correlation": "Spearman, ties at their mean rank",
            "intervals": f"{ABOUT}, pairs drawn anew",
            "retired_cuis": benchmark.retired_cuis and benchmark.retired_cuis.description,
        },
        encoder=encoder,
    )
