"""Synonym retrieval: candidates by BM25, ranked by any measure, scored by average precision.

Phan et al. 2019 (BNE), section 4.2: BM25 compares a mention with all names; a concept is as good as
its best name; all names of the 20 best concepts are candidates, and those of the mention's concept
are what is to be found.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from coder_jax.evaluation.normalization.ranks import TIE_TOLERANCE
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.rows import split_concepts
from data_pipeline.process import stopping
from data_pipeline.sources.text.words import words_of

CANDIDATE_CONCEPTS = 20
# The paper has no parameters of BM25: these are the usual ones, in the form that Lucene has.
K1, B, FORM = 1.2, 0.75, "lucene"


class ConceptNames:
    """The names of a dictionary in the order of their concepts.

    Attributes:
      names: str [P], a name once for each concept that has it.
      concepts: int [P], rising.
      starts: int [C], where the names of each concept begin.
      number: of each concept.
      strings: int [P], equal for equal names.
    """

    def __init__(self, dictionary: Dictionary):
        self.number: dict[str, int] = {}
        names, concepts = [], []
        for _, term, concept in dictionary.pairs():
            names.append(term)
            concepts.append(self.number.setdefault(concept, len(self.number)))
        order = np.argsort(concepts, kind="stable")
        self.names = [names[row] for row in order]
        self.concepts = np.asarray(concepts)[order]
        self.starts = np.searchsorted(self.concepts, np.arange(len(self.number)))
        distinct: dict[str, int] = {}
        self.strings = np.array([distinct.setdefault(one, len(distinct)) for one in self.names])

    def numbers(self, joined: str) -> list[int]:
        """The numbers of the concepts that "|" joins, of those that there are."""
        return [self.number[one] for one in split_concepts(joined) if one in self.number]

    def rows_of(self, concepts: Sequence[int] | np.ndarray) -> np.ndarray:
        """Int: the rows of the names of some concepts."""
        ends = np.append(self.starts[1:], len(self.names))
        parts = [np.arange(self.starts[one], ends[one]) for one in concepts]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def best_of_concepts(self, similarity: np.ndarray) -> np.ndarray:
        """Of similarities to all names [..., P] the largest of each concept, [..., C]."""
        return np.maximum.reduceat(similarity, self.starts, axis=-1)

    @cached_property
    def _bm25(self):
        import bm25s  # not at the top: `--help` stays quick

        logging.getLogger(bm25s.__name__).setLevel(logging.WARNING)
        search = bm25s.BM25(k1=K1, b=B, method=FORM)
        search.index([words_of(name) for name in self.names], show_progress=False)
        return search

    def candidates(self, mention: str) -> np.ndarray:
        """Int: the concepts that share a word with a mention, best first, CANDIDATE_CONCEPTS at
        most; of equally good ones the first of the dictionary first.
        """
        stopping.poll()
        words = [word for word in words_of(mention) if word in self._bm25.vocab_dict]
        if not words:
            return np.zeros(0, np.int64)
        scores = self.best_of_concepts(self._bm25.get_scores(words))
        best = np.argsort(-scores, kind="stable")[:CANDIDATE_CONCEPTS]
        return best[scores[best] > 0]


def average_precision(similarity: np.ndarray, relevant: np.ndarray, expected: int) -> float:
    """Average precision, the mean over all orders of equally near candidates.

    Args:
      similarity: float [n], of the candidates.
      relevant: bool [n].
      expected: how many are relevant, whether or not they are candidates; 1 or more.

    References:
      McSherry and Najork, Computing information retrieval performance measures efficiently in the
      presence of tied scores, 2008, section 2.5.
    """
    order = np.argsort(-similarity, kind="stable")
    ranked, hits = similarity[order], relevant[order].astype(np.int64)
    ends = np.append(np.flatnonzero(ranked[:-1] - ranked[1:] > TIE_TOLERANCE) + 1, len(ranked))
    starts = np.append(0, ends[:-1])
    found = np.append(0, np.cumsum(hits))
    summed = 0.0
    for start, end in zip(starts, ends, strict=True):
        size, within = end - start, found[end] - found[start]
        if within:
            place = np.arange(size)
            before = place * (within - 1) / max(size - 1, 1)  # of the same group, on the mean
            precision = (found[start] + before + 1) / (start + place + 1)
            summed += within / size * precision.sum()
    return float(summed / expected)
