"""Scores of answers that a run is chosen by, as the paper counts (Liang, Xue, Ruan 2021, 4.2)."""

from collections.abc import Sequence

from coder_jax.evaluation.multiple_names.scores import accuracy, number_accuracy, recall
from coder_jax.systems.recall_rank.prediction.recall_and_rank import Ranked

RECALL_AT = (1, 2, 5, 10)


def dev_scores(found: Ranked, gold: Sequence[frozenset[int]]) -> dict[str, float]:
    """accuracy of all mentions, of those of one concept and of several; recall@k; number.

    What no mention counts for is left out.

    Args:
        found: the candidates of M mentions, best first, and the counts of their answers.
        gold: what each means.
    """
    answers = found.answers()
    right = accuracy(answers, gold)
    candidates = found.concepts.tolist()
    at = [k for k in RECALL_AT if k <= found.concepts.shape[1]]
    scores = {
        "accuracy": right["total"].value,
        "uni": right["uni"].value,
        "multi": right["multi"].value,
        "number": number_accuracy(list(map(len, answers)), list(map(len, gold))).total,
        **{f"recall@{k}": share.value for k, share in recall(candidates, gold, at).items()},
    }
    return {name: round(value, 4) for name, value in scores.items() if value is not None}
