"""What a benchmark asks of an encoder: keys in; vectors, and which keys have one, out.

A key is a term, or, for concept vectors, a concept. Benchmarks take any `Vectors`; a benchmark that
has concepts as well as terms gives the one that the vectors are keyed by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from coder_jax.encoder import TermEncoder

TERMS, CONCEPTS = "terms", "concepts"


class Vectors(Protocol):
    """Vectors of the keys of all benchmarks of an evaluation.

    Attributes:
      keyed_by: TERMS or CONCEPTS.
    """

    keyed_by: str

    def encode(self, keys: Sequence[str]) -> np.ndarray:
        """Vectors for cosines, float32 [n, D]; zeros for a key that has none."""

    def known(self, keys: Sequence[str]) -> np.ndarray:
        """Which keys have a vector, bool [n]."""

    def features(self, keys: Sequence[str]) -> np.ndarray:
        """Vectors as features of a classifier, float32 [n, D]: as they are, of any length."""


class EncodedTerms:
    """The vectors of a `TermEncoder`: every term has one."""

    keyed_by = TERMS

    def __init__(self, encoder: TermEncoder, terms: Sequence[str], vectors: np.ndarray):
        """From terms that are encoded already: unit vectors, float [n, D], may be a mapped file."""
        self.encoder, self.vectors = encoder, vectors
        self.row_of = {term: row for row, term in enumerate(terms)}

    def encode(self, keys: Sequence[str]) -> np.ndarray:
        return self.vectors[[self.row_of[key] for key in keys]]

    def known(self, keys: Sequence[str]) -> np.ndarray:
        return np.ones(len(keys), bool)

    def features(self, keys: Sequence[str]) -> np.ndarray:
        # Imported here: it brings the optimizer along.
        from coder_jax.evaluation.term_features import term_features

        return term_features(self.encoder, keys)
