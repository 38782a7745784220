"""An encoder that remembers: each term is encoded once, however often and by whom it is asked for.

For a few tens of thousands of terms that several parts of one program look at, such as scores,
plots and a report: it keeps the vectors of all terms in memory.
"""

from __future__ import annotations

import numpy as np

from coder_jax.encoding.encoder import TermEncoder


class RememberingEncoder(TermEncoder):
    """As the encoder that it is made of; `encode` encodes only what it has not encoded before."""

    def __init__(self, encoder: TermEncoder):
        super().__init__(encoder.reader, None, encoder.settings, encoder.report)
        self.name, self.languages = encoder.name, encoder.languages
        self.held: dict[str, np.ndarray] = {}  # term -> float32 [D], of unit length

    def encode_list(
        self, terms: list[str], *, unit: bool, rows: int | None, progress: bool
    ) -> np.ndarray:
        """As `TermEncoder.encode_list`; vectors that are not of unit length are not remembered."""
        if not unit:
            return super().encode_list(terms, unit=False, rows=rows, progress=progress)
        new = [term for term in dict.fromkeys(terms) if term not in self.held]
        if new:
            vectors = super().encode_list(new, unit=True, rows=rows, progress=progress)
            self.held.update(zip(new, vectors, strict=True))
        held = [self.held[term] for term in terms]
        return np.array(held, np.float32).reshape(len(held), self.width)
