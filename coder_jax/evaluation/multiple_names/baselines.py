"""What mentions are answered without an encoder: letters alone, and what training mentions mean."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist

from coder_jax.evaluation.multiple_names.scores import MOST
from data_pipeline.process import stopping
from data_pipeline.process.progress import progress_bar
from data_pipeline.terminology.tf_idf import CharacterTfIdf

DISTANCES_AT_ONCE = 1 << 24
PLUS = ("+", "\uff0b")  # also as wide as a Chinese character


def nearest_by_tf_idf(
    mentions: Sequence[str], names: Sequence[str], k: int, longest: int = 1
) -> np.ndarray:
    """int64 [M, k]: the names most like each mention by TF-IDF of their characters, best first.

    With `longest` 1 it is the paper's TF-IDF (table 2: 49.3, 46.8); 2 counts pairs, too.
    """
    return CharacterTfIdf(names, longest).nearest(mentions, k)


def nearest_by_edits(mentions: Sequence[str], names: Sequence[str], k: int) -> np.ndarray:
    """int64 [M, k]: the names with the fewest edits per character of the longer string.

    Of equally near ones the first comes first.
    """
    found, at_once = [np.zeros((0, k), np.int64)], max(1, DISTANCES_AT_ONCE // len(names))
    parts = range(0, len(mentions), at_once)
    for first in progress_bar(parts, desc="edit distances", unit="block"):
        stopping.poll()
        some = mentions[first : first + at_once]
        distances = cdist(
            some, names, scorer=Levenshtein.normalized_distance, dtype=np.float64, workers=-1
        )
        found.append(np.argsort(distances, axis=1, kind="stable")[:, :k])
    return np.concatenate(found)


def answers_of_nearest(
    mentions: Sequence[str],
    names: Sequence[str],
    name_concepts: np.ndarray,
    training_mentions: Sequence[str],
    training_gold: Sequence[Collection[int]],
) -> list[frozenset[int]]:
    """The gold set of the training mention or the concept of the name that is most alike.

    By TF-IDF of characters and pairs of them; of equal ones a training mention is taken.

    Args:
      mentions: [M].
      names, name_concepts: of the dictionary, [N].
      training_mentions, training_gold: [T].
    """
    nearest = nearest_by_tf_idf(mentions, [*training_mentions, *names], 1, longest=2)[:, 0]
    of_names = [frozenset([concept]) for concept in name_concepts.tolist()]
    answers = [*map(frozenset, training_gold), *of_names]
    return [answers[row] for row in nearest.tolist()]


def numbers_by_delimiter(mentions: Sequence[str]) -> list[int]:
    """The number of names by the signs + in a mention, [M]: one more than these, at most MOST."""
    return [min(1 + sum(map(one.count, PLUS)), MOST) for one in mentions]
