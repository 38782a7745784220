"""How alike strings are in their letters: TF-IDF of three-letter pieces, and the most alike terms.

What vectors of word pieces are bad at, this is good at: typing errors, and names of another
language that share a root with the dictionary's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfVectorizer
from sparse_dot_topn import sp_matmul_topn

LETTERS = 3  # in a piece


class Characters:
    """The terms of a dictionary by their three-letter pieces, the ends of words included.

    Case and accents do not count. It holds about 250 bytes for each term.

    Attributes:
      terms: the strings, [n].
    """

    def __init__(self, terms: Sequence[str]):
        self.terms = terms
        self._weigh = TfidfVectorizer(
            analyzer="char_wb",  # pieces do not go over the ends of words
            ngram_range=(LETTERS, LETTERS),
            strip_accents="unicode",
            sublinear_tf=True,
            dtype=np.float32,
        )
        self._terms_by_piece: csr_matrix = self._weigh.fit_transform(terms).T.tocsr()

    def most_alike(self, strings: Sequence[str], k: int) -> list[np.ndarray]:
        """For each string the rows of up to k terms, those most like it; none share no piece."""
        if not strings:
            return []
        found = sp_matmul_topn(
            self._weigh.transform(strings),
            self._terms_by_piece,
            top_n=min(k, len(self.terms)),
            sort=True,
            n_threads=os.cpu_count() or 1,
        )
        return np.split(found.indices.astype(np.int64), found.indptr[1:-1])

    def similarity(self, strings: Sequence[str], rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """For each string its similarity with some terms, float32 in [0, 1] as a cosine is.

        Args:
          strings: q strings.
          rows: of each the rows of terms, int [m].
        """
        number = np.concatenate([np.zeros(0, np.int64), *rows])
        if not len(number):  # scikit-learn takes no empty list
            return [np.zeros(0, np.float32) for _ in strings]
        distinct, place = np.unique(number, return_inverse=True)
        terms = self._weigh.transform([self.terms[row] for row in distinct])
        counts = [len(some) for some in rows]
        asked = self._weigh.transform(strings)[np.repeat(np.arange(len(strings)), counts)]
        cosines = np.asarray(asked.multiply(terms[place]).sum(axis=1)).ravel()
        return np.split(cosines.astype(np.float32), np.cumsum(counts)[:-1])
