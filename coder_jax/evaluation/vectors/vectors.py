"""What a benchmark asks of an encoder: keys in; vectors, and which keys have one, out.

A key is a term, or, for concept vectors, a concept. Benchmarks take any `Vectors`; a benchmark that
has concepts as well as terms gives the one that the vectors are keyed by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from data_pipeline.process.errors import BadInput

if TYPE_CHECKING:
    from coder_jax.encoding.encoder import TermEncoder
    from coder_jax.encoding.rows import Rows
    from coder_jax.export.relations import ExportedRelations

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

    def __init__(
        self,
        encoder: TermEncoder,
        terms: Sequence[str],
        vectors: Rows,
        relations: ExportedRelations | None = None,
    ):
        """From terms that are encoded already: unit vectors, float [n, D], may be a file's rows.

        `relations` are those that were learned with the encoder.
        """
        self.encoder, self.vectors, self.relations = encoder, vectors, relations
        self.row_of = {term: row for row, term in enumerate(terms)}

    def encode(self, keys: Sequence[str]) -> np.ndarray:
        return self.vectors[np.fromiter(map(self.row_of.__getitem__, keys), np.int64, len(keys))]

    def known(self, keys: Sequence[str]) -> np.ndarray:
        return np.ones(len(keys), bool)

    def features(self, keys: Sequence[str]) -> np.ndarray:
        return self.encoder.encode(keys, unit=False)


def known_features(
    vectors: Vectors, keys: Sequence[str], path: str
) -> tuple[np.ndarray, np.ndarray]:
    """Which keys have a vector, bool [n], and the features of these, float32 [known, D].

    BadInput if none has.
    """
    known = vectors.known(keys)
    if not known.any():
        raise BadInput(
            f"{path}: found a vector for none of its {len(keys):,} concepts (such as {keys[0]!r}); "
            "expected vectors of the same vocabulary"
        )
    return known, vectors.features([key for key, held in zip(keys, known, strict=True) if held])


def terms_only(keyed_by: str, path: str) -> None:
    """BadInput for vectors of concepts where a benchmark has only terms."""
    if keyed_by != TERMS:
        raise BadInput(
            f"{path}: found terms to look up, and concept vectors, which have none for a term; "
            "give such vectors with benchmarks of concepts, relations or pairs with CUIs"
        )
