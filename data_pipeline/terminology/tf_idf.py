"""Character TF-IDF: which names are spelled most like a string."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from data_pipeline import process
from data_pipeline.process import progress_bar

_SCORES_AT_ONCE = 1 << 24  # 128 MB


class CharacterTfIdf:
    """Cosine similarity of character TF-IDF vectors (smooth idf over the names); ties keep their
    order.

    Args:
      names: N strings.
      longest: of the n-grams that are counted, in characters; 1: single characters.
    """

    def __init__(self, names: Sequence[str], longest: int = 1):
        from sklearn.feature_extraction.text import TfidfVectorizer  # takes a second

        self._weigh = TfidfVectorizer(analyzer="char", ngram_range=(1, longest))
        self._names = self._weigh.fit_transform(names).T.tocsr()

    def similarity(self, strings: Sequence[str]) -> Iterator[np.ndarray]:
        """float64 [some, N], batch by batch of strings: their similarity with each name."""
        at_once = max(1, _SCORES_AT_ONCE // self._names.shape[1])
        for first in range(0, len(strings), at_once):
            process.poll()
            rows = self._weigh.transform(strings[first : first + at_once])
            yield (rows @ self._names).toarray()

    def between(self, strings: Sequence[str], rows: np.ndarray, names: np.ndarray) -> np.ndarray:
        """float64 [T]: the similarity of T pairs of a string and a name.

        Args:
          strings: S strings.
          rows: int [T], below S.
          names: int [T], below N.
        """
        first, second = self._weigh.transform(strings)[rows], self._names.T.tocsr()[names]
        return np.asarray(first.multiply(second).sum(axis=1)).ravel()

    def nearest(self, strings: Sequence[str], k: int, progress: str = "") -> np.ndarray:
        """int64 [strings, k]: the most similar names, best first; ties go to the earlier name.

        Args:
          strings: what is looked up.
          k: at most N.
          progress: what a progress bar says; "": there is none.
        """
        found = [np.zeros((0, k), np.int64)]
        with progress_bar(total=len(strings), desc=progress, disable=not progress) as bar:
            for scores in self.similarity(strings):
                found.append(np.stack([_largest(row, k) for row in scores]))
                bar.update(len(scores))
        return np.concatenate(found)


def _largest(scores: np.ndarray, k: int) -> np.ndarray:
    """The indices of the k largest numbers, largest first; ties go to the earlier one."""
    least = np.partition(scores, len(scores) - k)[len(scores) - k]
    candidates = np.flatnonzero(scores >= least)
    return candidates[np.argsort(-scores[candidates], kind="stable")[:k]]
