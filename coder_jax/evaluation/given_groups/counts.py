"""Precision, recall and F1 of one answer for each mention, as MLNorm's code counts or as BRATEval.

Mentions may have several gold CUIs, and an answer may be missing, below a threshold. A counting
gives each mention three numbers: right answers, answers and gold CUIs; scores are ratios of sums.
Gold CUIs that the normalizer does not know are never right and stay in the gold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

MEASURES = ("precision", "recall", "f1")
Counting = Callable[[Sequence[Sequence[str]], Sequence[str | None]], np.ndarray]


def count_items(gold: Sequence[Sequence[str]], answers: Sequence[str | None]) -> np.ndarray:
    """As the code of MLNorm: each gold CUI of a mention is a mention with a copy of the answer.

    So of a mention with two gold CUIs, an answer that is one of them is right once and wrong once.

    Args:
      gold: of M mentions, one CUI or more; mentions without any are to be left out before.
      answers: None for no answer.

    Returns:
      int [M, 3]: items that are right, items that are answered, items.
    """
    rows = [
        (list(cuis).count(str(answer)), 0 if answer is None else len(cuis), len(cuis))
        for cuis, answer in zip(gold, answers, strict=True)
    ]
    return np.array(rows, np.int64).reshape(-1, 3)


def count_brateval(gold: Sequence[Sequence[str]], answers: Sequence[str | None]) -> np.ndarray:
    """As BRATEval for CLEF eHealth 2015 (CompareNotesEHealth), with exact_match true.

    Per CUI: a right answer is one true positive, a wrong one one false positive, each gold CUI that
    is not the answer one false negative; but all of a mention without an answer are one. The
    reference is its first argument.

    Args, Returns:
      as `count_items`: true positives, with false positives, with false negatives.
    """
    rows = []
    for cuis, answer in zip(gold, answers, strict=True):
        if answer is None:
            rows.append((0, 0, 1))
            continue
        right = int(answer in cuis)
        rows.append((right, 1, right + sum(cui != answer for cui in cuis)))
    return np.array(rows, np.int64).reshape(-1, 3)


def count_brateval_any(gold: Sequence[Sequence[str]], answers: Sequence[str | None]) -> np.ndarray:
    """As `count_brateval` with exact_match false: one gold CUI in common is all of them."""
    rows = [
        (int(answer in cuis), int(answer is not None), 1)
        for cuis, answer in zip(gold, answers, strict=True)
    ]
    return np.array(rows, np.int64).reshape(-1, 3)


COUNTINGS: dict[str, Counting] = {
    "mlnorm": count_items,
    "brateval": count_brateval,
    "brateval-any": count_brateval_any,
}


def measures(totals: np.ndarray) -> np.ndarray:
    """MEASURES [..., 3] of sums [..., 3] of right answers, answers and gold.

    What has nothing to divide by is 0; all three are 1 where there are neither answers nor gold.
    """
    right, answered, gold = np.moveaxis(np.asarray(totals, float), -1, 0)
    nothing = (answered == 0) & (gold == 0)
    precision = np.where(nothing, 1.0, right / np.maximum(answered, 1))
    recall = np.where(nothing, 1.0, right / np.maximum(gold, 1))
    f1 = np.where(nothing, 1.0, 2 * right / np.maximum(answered + gold, 1))
    return np.stack([precision, recall, f1], axis=-1)


def measures_drawn(distinct_U3: np.ndarray, drawn_BU: np.ndarray) -> np.ndarray:
    """The `bootstrap.Statistic` of MEASURES [B, 3], of mentions with their counts."""
    return measures(drawn_BU @ distinct_U3)


def mean_reciprocal_rank(gold: Sequence[Sequence[str]], ranked: Sequence[Sequence[str]]) -> float:
    """The mean, over all gold CUIs of all mentions, of 1 / its place among the answers.

    It is 0 for a gold CUI that is not among them.

    Args:
      gold: of M mentions.
      ranked: the distinct answers to each, best first.
    """
    found = [
        1 / (answers.index(cui) + 1) if cui in answers else 0.0
        for cuis, answers in zip(gold, map(list, ranked), strict=True)
        for cui in cuis
    ]
    return float(np.mean(found)) if found else 0.0


def accuracy_at(k: int, gold: Sequence[Sequence[str]], ranked: Sequence[Sequence[str]]) -> float:
    """The share of the mentions one of whose gold CUIs is among the first k answers."""
    hits = [
        not set(cuis).isdisjoint(answers[:k]) for cuis, answers in zip(gold, ranked, strict=True)
    ]
    return float(np.mean(hits)) if hits else 0.0
