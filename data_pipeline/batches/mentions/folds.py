"""Folds of training mentions: K parts, one of which a run may leave out.

A generator finds nearly every concept of the mentions that it was trained on, so a ranker that
learns from their candidates never meets what is missed or confused later. With K generators, each
trained without one fold, every training mention has candidates of one that has not seen it (the
released code of Liang, Xue, Ruan 2021 trains five so, but makes the lists of seen mentions).
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from data_pipeline.batches.packed_groups import joined
from data_pipeline.dataset.mentions.store import (
    MentionDataset,
    MentionSplit,
    StoredStrings,
    TokenTable,
)
from data_pipeline.process.errors import BadInput


class Fold(NamedTuple):
    """One fold of several, "2/5" in words."""

    number: int
    """1 to `of`."""
    of: int
    """How many there are, at least 2."""

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def read_fold(text: str) -> Fold:
    """The fold that "2/5" names.

    Raises:
        BadInput: if it names none.
    """
    match = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
    fold = Fold(int(match[1]), int(match[2])) if match else Fold(0, 0)
    if fold.of < 2 or not 1 <= fold.number <= fold.of:
        raise BadInput(
            f"fold is {text!r}; expected NUMBER/FOLDS with two folds or more, such as 2/5 for a "
            "run without the second of five"
        )
    return fold


def folds_of(mentions: Iterable[str], folds: int, seed: int) -> np.ndarray:
    """int64 [M]: the fold of each mention, 1 to `folds`.

    It depends on the string and the seed alone: whatever other mentions there are, in whatever
    order, a mention stays in its fold. Upper and lower case are one, as they are to most encoders.

    Args:
        mentions: M strings.
        folds: how many.
        seed: another one divides otherwise.
    """
    return np.array([1 + _number(mention, seed) % folds for mention in mentions], np.int64)


def without_fold(data: MentionDataset, fold: Fold, seed: int) -> MentionDataset:
    """The same data with the training mentions of the other folds alone.

    Raises:
        BadInput: if the fold has none of the mentions, or all.
    """
    train = data.splits["train"]
    of_mention = folds_of(train.mentions.strings, fold.of, seed)
    kept = np.flatnonzero(of_mention != fold.number)
    if not 0 < len(kept) < len(of_mention):
        raise BadInput(
            f"{data.folder}: fold {fold} has {len(of_mention) - len(kept)} of the "
            f"{len(of_mention)} training mentions; expected some to leave out and some to train "
            "on: use fewer folds, or another seed"
        )
    return dataclasses.replace(data, splits={**data.splits, "train": mentions_of(train, kept)})


def mentions_of(split: MentionSplit, rows: np.ndarray) -> MentionSplit:
    """Some mentions of a split with their gold, in the order of `rows`, int [n]."""
    table = split.mentions
    start, (tokens, kinds) = joined(table.start, rows, table.tokens, table.kinds)
    gold_start, (gold,) = joined(split.gold_start, rows, split.gold)
    strings = StoredStrings.of(table.strings[row] for row in rows.tolist())
    return MentionSplit(TokenTable(strings, tokens, start, kinds), gold_start, gold)


def _number(mention: str, seed: int) -> int:
    digest = hashlib.sha256(f"{seed}\t{mention.casefold()}".encode()).digest()
    return int.from_bytes(digest[:8], "big")
