"""Coverage at k of each of many names, by any measure of how near they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coder_jax.evaluation.names.measures import Measure, blocks
from coder_jax.evaluation.normalization.ranks import ahead_and_tied


def coverage_of_names(
    measure: Measure, names: Sequence[str], concepts: np.ndarray, ks: Sequence[int]
) -> np.ndarray:
    """The share of each name's other synonyms that are among its k nearest other names.

    Names that are as near as the k-th one are taken in random order, and the mean over all orders
    counts.

    Args:
      measure: of these names.
      names: [N], each once.
      concepts: int [N]; each concept has two names or more.
      ks: each 1 or more; there are never more than N - 1 others.

    Returns:
      float [N, len(ks)].
    """
    found = np.zeros((len(names), len(ks)))
    everything = np.arange(len(names))
    others = np.bincount(concepts)[concepts] - 1
    for part in blocks(names, len(names)):
        similarity = measure.similarities(names[part], everything)
        here = everything[part]
        similarity[np.arange(len(here)), here] = -np.inf
        is_synonym = concepts[here][:, None] == concepts
        is_synonym[np.arange(len(here)), here] = False
        for column, k in enumerate(ks):
            places = min(k, len(names) - 1)
            last = np.partition(similarity, -places, axis=1)[:, -places][:, None]
            ahead, tied = ahead_and_tied(similarity, last)
            free = (places - ahead.sum(axis=1)) / tied.sum(axis=1)
            synonyms = (ahead & is_synonym).sum(axis=1) + free * (tied & is_synonym).sum(axis=1)
            found[here, column] = synonyms / others[here]
    return found
