"""The floor of what is trained on mentions: the CUI that a mention mostly had in training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import polars as pl

from data_pipeline.terminology.cleaning.rules import clean

Key = tuple[str, str]  # semantic group, string


def majority_cuis(
    groups: Sequence[str], texts: Sequence[str], gold: Sequence[Sequence[str]]
) -> dict[Key, str]:
    """The most frequent CUI of each (group, string); of equally frequent ones the first.

    Args:
      groups, texts, gold: of the mentions to learn from. Strings are compared as MLNorm cleans
        them: case, accents and blanks around punctuation aside.
    """
    counts: dict[Key, Counter[str]] = {}
    for key, cuis in zip(keys_of(groups, texts), gold, strict=True):
        counts.setdefault(key, Counter()).update(cuis)
    return {key: counted.most_common(1)[0][0] for key, counted in counts.items() if counted}


def majority_answers(
    known: dict[Key, str], groups: Sequence[str], texts: Sequence[str]
) -> list[str | None]:
    """The CUI of each mention, None where its string was not seen with its group."""
    return [known.get(key) for key in keys_of(groups, texts)]


def keys_of(groups: Sequence[str], texts: Sequence[str]) -> list[Key]:
    """What mentions are compared by."""
    cleaned = clean(pl.Series(list(texts), dtype=pl.String), "mlnorm")
    return list(zip(groups, cleaned, strict=True))
