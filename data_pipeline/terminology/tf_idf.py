"""Character TF-IDF: which names are spelled most like a string."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from data_pipeline import process
from data_pipeline.process import progress_bar

TF_IDF = "tf-idf"  # as a --model of commands that find candidates of mentions
_SCORES_AT_ONCE = 1 << 24  # 128 MB


class CharacterTfIdf:
    """Cosine similarity of character TF-IDF vectors (smooth idf over the names).

    With trigrams it holds about 250 bytes for each name.

    Args:
      names: N strings.
      counted: what is counted, as for scikit-learn's TfidfVectorizer; else single characters.
    """

    def __init__(self, names: Sequence[str], **counted: Any):
        from sklearn.feature_extraction.text import TfidfVectorizer  # takes a second

        self.names, self._weigh = names, TfidfVectorizer(**{"analyzer": "char", **counted})
        self._names_by_piece = self._weigh.fit_transform(names).T.tocsr()

    def similarity(self, strings: Sequence[str]) -> Iterator[np.ndarray]:
        """float64 [some, N], batch by batch of strings: their similarity with each name."""
        at_once = max(1, _SCORES_AT_ONCE // self._names_by_piece.shape[1])
        for first in range(0, len(strings), at_once):
            process.poll()
            rows = self._weigh.transform(strings[first : first + at_once])
            yield (rows @ self._names_by_piece).toarray()

    def between(self, strings: Sequence[str], rows: np.ndarray, names: np.ndarray) -> np.ndarray:
        """float64 [T]: the similarity of T pairs of a string and a name.

        Args:
          strings: S strings.
          rows: int [T], below S.
          names: int [T], below N.
        """
        if not len(names):  # scikit-learn takes no empty list
            return np.zeros(0)
        distinct, place = np.unique(names, return_inverse=True)
        named = self._weigh.transform([self.names[name] for name in distinct])[place]
        asked = self._weigh.transform(strings)[rows]
        return np.asarray(asked.multiply(named).sum(axis=1)).ravel()

    def most_alike(self, strings: Sequence[str], k: int) -> list[np.ndarray]:
        """For each string up to k most similar names that share a piece with it, best first.

        It is for many names: `nearest` compares each string with all of them.
        """
        from sparse_dot_topn import sp_matmul_topn

        if not strings:
            return []
        found = sp_matmul_topn(
            self._weigh.transform(strings),
            self._names_by_piece,
            top_n=min(k, len(self.names)),
            sort=True,
            n_threads=os.cpu_count() or 1,
        )
        return np.split(found.indices.astype(np.int64), found.indptr[1:-1])

    def nearest(
        self, strings: Sequence[str], k: int, progress: str = ""
    ) -> tuple[np.ndarray, np.ndarray]:
        """The most similar names, best first; ties go to the earlier name.

        Args:
          strings: what is looked up.
          k: at most N.
          progress: what a progress bar says; "": there is none.

        Returns:
          (similarity float64 [strings, k], name int64 [strings, k]).
        """
        similarity, found = [np.zeros((0, k))], [np.zeros((0, k), np.int64)]
        with progress_bar(total=len(strings), desc=progress, disable=not progress) as bar:
            for scores in self.similarity(strings):
                found.append(np.stack([_largest(row, k) for row in scores]))
                similarity.append(np.take_along_axis(scores, found[-1], axis=1))
                bar.update(len(scores))
        return np.concatenate(similarity), np.concatenate(found)


def _largest(scores: np.ndarray, k: int) -> np.ndarray:
    """The indices of the k largest numbers, largest first; ties go to the earlier one."""
    least = np.partition(scores, len(scores) - k)[len(scores) - k]
    candidates = np.flatnonzero(scores >= least)
    return candidates[np.argsort(-scores[candidates], kind="stable")[:k]]
