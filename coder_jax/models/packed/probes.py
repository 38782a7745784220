"""Sequences of two parts whose attention is led by keywords."""

from __future__ import annotations

import dataclasses

import jax


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Probes:
    """Sequences of two parts that begin with [CLS] and K probes, which see words of a kind alone.

    Liang, Xue, Ruan 2021, section 3.2 (keyword-attentive ranker).
    """

    kinds: jax.Array
    """int32 [R, L], a bit set for each token: bit 0 of text, [CLS] and [SEP]; bit k of probe k
    (from 1) and of words of its kind. Tokens see each other where they have a bit in common."""
    types: jax.Array
    """int32 [R, L], the part of the sequence, 0 or 1: BERT's token types."""
    number: int = dataclasses.field(metadata={"static": True})
    """K. [CLS] and the probes have position 0, the next token position 1."""
    after: bool = dataclasses.field(default=True, metadata={"static": True})
    """The mask is applied to the softmax's result, which is not normalized again (equation 9);
    else before the softmax, as in the authors' code."""

    def sees(self) -> jax.Array:
        """bool [R, L, L]: whether a token sees another, but for segments."""
        return (self.kinds[:, :, None] & self.kinds[:, None, :]) != 0
