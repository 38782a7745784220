"""Term pairs in, their cosines and Spearman's rank correlation with human scores out.

For benchmarks such as UMNSRS and MayoSRS; and pairs of synonyms and of random terms to look at.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.stats

from coder_jax.evaluation.benchmarks import SimilarityBenchmark
from data_pipeline.errors import BadInput


@dataclass(frozen=True)
class SimilarityResult:
    """Spearman's rho between cosines and human scores, tied values at their mean rank.

    `scores` is {"spearman": rho}; rho is None where all cosines are equal: there are no ranks.
    """

    pairs: int
    scores: dict[str, float | None]


def score_similarity(cosines: np.ndarray, human_scores: np.ndarray) -> SimilarityResult:
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
    if (cosines == cosines[0]).all():
        return SimilarityResult(len(cosines), {"spearman": None})
    rho = scipy.stats.spearmanr(cosines, human_scores).statistic
    return SimilarityResult(len(cosines), {"spearman": float(rho)})


def evaluate_similarity(
    encode: Callable[[list[str]], np.ndarray], benchmark: SimilarityBenchmark
) -> SimilarityResult:
    """Scores an encoder on term pairs; each distinct string is encoded once.

    Args:
      encode: strings -> float32 [n, D], for instance `TermEncoder.encode`.
      benchmark: from `benchmarks.read_benchmark`.
    """
    cosines = pair_cosines(encode, benchmark.first, benchmark.second)
    return score_similarity(cosines, np.array(benchmark.scores))


def pair_cosines(
    encode: Callable[[list[str]], np.ndarray], first: Sequence[str], second: Sequence[str]
) -> np.ndarray:
    """Cosine of first[i] and second[i], float64 [n]; each distinct string is encoded once."""
    strings = list(dict.fromkeys([*first, *second]))
    row_of = {string: row for row, string in enumerate(strings)}
    vectors = np.asarray(encode(strings), dtype=np.float64)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors / np.where(lengths > 0, lengths, 1)
    first_rows, second_rows = ([row_of[term] for term in side] for side in (first, second))
    return np.sum(vectors[first_rows] * vectors[second_rows], axis=1)
