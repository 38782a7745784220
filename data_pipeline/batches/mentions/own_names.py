"""Which of its names stands for the concept of a mention, where the concept has several."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from data_pipeline.dataset.mentions.store import MentionDataset
from data_pipeline.terminology.tf_idf import CharacterTfIdf


class OwnNames(NamedTuple):
    """All names of the concept of each of P (mention, concept) pairs, pair after pair.

    Attributes:
      mentions: int64 [T], the mention of each name's pair.
      names: int64 [T], numbers of `MentionDataset.names`.
      counts: int64 [P], how many names each pair has; at least one.
    """

    mentions: np.ndarray
    names: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, mentions: np.ndarray, concepts: np.ndarray, first_name: np.ndarray) -> OwnNames:
        """The names of some pairs.

        Args:
          mentions, concepts: int [P].
          first_name: int64 [C + 1]; the names of concept c are first_name[c] to
            first_name[c + 1] - 1.
        """
        counts = first_name[concepts + 1] - first_name[concepts]
        place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        names = np.repeat(first_name[concepts], counts) + place
        return cls(np.repeat(mentions, counts), names, counts)

    def best(self, scores: np.ndarray) -> np.ndarray:
        """int32 [P]: of each pair the name with the largest score, float [T], or the first such."""
        pair = np.repeat(np.arange(len(self.counts)), self.counts)
        order = np.lexsort((-scores, pair))
        return self.names[order[np.cumsum(self.counts) - self.counts]].astype(np.int32)

    def most_alike(self, dataset: MentionDataset, split: str = "train") -> np.ndarray:
        """int32 [P]: of each pair the name most like the mention, by TF-IDF of characters."""
        if (self.counts == 1).all():
            return self.names.astype(np.int32)
        by_characters = CharacterTfIdf(list(dataset.names.strings))
        strings = list(dataset.splits[split].mentions.strings)
        return self.best(by_characters.between(strings, self.mentions, self.names))
