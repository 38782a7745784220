"""From candidates to answers: recall and rank scores together, cut by the number of concepts.

Liang, Xue, Ruan 2021, section 3.3. Shapes: M mentions, k candidates of each, nearest first, C
classes of the number of concepts.
"""

from typing import Literal

import numpy as np

RecallForm = Literal["sum", "max"]
Fusion = Literal["mean", "recall", "rank"]
THRESHOLD = 0.8  # theta: a fourth and further concepts score more (section 3.3)


def recall_scores(distances_MK: np.ndarray, form: RecallForm = "sum") -> np.ndarray:
    """float64 [M, k]: 1 - d_i / sum_j d_j (equation 12), or 1 - d_i / max_j d_j.

    The paper's form leaves all of ten candidates near .9, so that the ranker decides alone but
    where candidates are close; the authors' code has the other one. Where all distances are 0 all
    score 1.
    """
    distances = distances_MK.astype(np.float64)
    over = distances.sum(axis=1) if form == "sum" else distances.max(axis=1)
    return 1.0 - distances / np.where(over == 0, 1.0, over)[:, None]


def fused_scores(
    distances_MK: np.ndarray,
    rank_MK: np.ndarray | None,
    *,
    fusion: Fusion = "mean",
    form: RecallForm = "sum",
) -> np.ndarray:
    """float64 [M, k]: (recall score + rank score) / 2 (equations 12 and 13), or one of both.

    Args:
        distances_MK: of the candidates.
        rank_MK: their probabilities by a ranker, or None where there is none.
        fusion: which scores count; without a ranker those of the generator.
        form: of `recall_scores`.
    """
    recall = recall_scores(distances_MK, form)
    if rank_MK is None or fusion == "recall":
        return recall
    rank = rank_MK.astype(np.float64)
    return rank if fusion == "rank" else (recall + rank) / 2


def best_first(scores_MK: np.ndarray) -> np.ndarray:
    """int64 [M, k]: the places of candidates by their scores; of equal ones the nearer first."""
    return np.argsort(-scores_MK, axis=1, kind="stable")


def answer_counts(
    sorted_MK: np.ndarray, numbers_MC: np.ndarray, threshold: float = THRESHOLD
) -> np.ndarray:
    """int64 [M]: how many candidates of each mention are its answer (equation 14).

    As many as its most probable number says; of the last class, "so many or more", further ones
    whose score is above the threshold.

    Args:
        sorted_MK: scores, best first.
        numbers_MC: probabilities of one, two, ..., C or more concepts.
        threshold: theta.
    """
    numbers = 1 + numbers_MC.argmax(axis=1)
    classes, candidates = numbers_MC.shape[1], sorted_MK.shape[1]
    further = (sorted_MK[:, classes:] > threshold).sum(axis=1)
    many = (numbers == classes) & (classes > 1)
    return np.minimum(numbers + np.where(many, further, 0), candidates)
