"""Pairs of strings as a ranker reads them: [CLS] probes mention [SEP] candidate [SEP].

Liang, Xue, Ruan 2021, section 3.2. A probe stands for a kind of keyword, such as site or type; by
its kinds a token says which probes see it.
"""

from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from data_pipeline.dataset.mentions.store import TokenTable
from data_pipeline.process.errors import BadInput

TEXT = 1  # the bit of text, [CLS] and [SEP]; bit k + 1 is that of keywords of kind k and its probe


Inputs = tuple[np.ndarray, np.ndarray, np.ndarray]
"""(tokens, start, kinds) of strings: int32 [T], int64 [n + 1], uint8 [T]."""


class Pairs(NamedTuple):
    """n pairs, one after the other; all arrays but `start` have one number for each token."""

    tokens: np.ndarray
    """int32 [T]."""
    kinds: np.ndarray
    """int32 [T], bits: see `TEXT`."""
    types: np.ndarray
    """int32 [T], 0 up to the first [SEP], then 1."""
    start: np.ndarray
    """int64 [n + 1], where each pair begins."""


def pairs_of(
    mentions: Inputs,
    names: Inputs,
    rows: np.ndarray,
    probes: np.ndarray,
    max_length: int,
) -> Pairs:
    """Put mentions and names together.

    Args:
        mentions, names: (tokens int32 [T], start int64 [n + 1], kinds uint8 [T]) each, with [CLS]
            first and [SEP] last in each string, which are of no kind.
        rows: int [n, 2], the mention and the name of each pair.
        probes: int32 [K], the tokens that stand for probes, in the order of the kinds.
        max_length: longest pair in tokens, special tokens and probes included. Of a longer one the
            longer string loses tokens at its end, then both in turn.
    """
    tokens, kinds, types = [], [], []
    first = np.concatenate([mentions[0][:1], probes]).astype(np.int32)
    of_probes = TEXT | np.concatenate([[0], 2 << np.arange(len(probes))])
    of_probes[1:] -= TEXT  # a probe sees itself and its keywords, not the text
    free = max_length - len(first) - 2
    for mention, name in rows.tolist():
        (mention_tokens, mention_kinds), (name_tokens, name_kinds) = (
            inner(table, row) for table, row in ((mentions, mention), (names, name))
        )
        kept_mention, kept_name = share(len(mention_tokens), len(name_tokens), free)
        end = names[0][names[1][name + 1] - 1 : names[1][name + 1]]  # [SEP]
        tokens += [first, mention_tokens[:kept_mention], end, name_tokens[:kept_name], end]
        none = np.zeros(1, np.uint8)
        text = [mention_kinds[:kept_mention], none, name_kinds[:kept_name], none]
        of_text = np.concatenate(text).astype(np.int32)
        kinds += [of_probes, TEXT | of_text << 1]
        types += [np.zeros(len(first) + kept_mention + 1), np.ones(kept_name + 1)]
    lengths = [len(first) + len(kind) for kind in kinds[1::2]]
    return Pairs(
        np.concatenate(tokens).astype(np.int32),
        np.concatenate(kinds).astype(np.int32),
        np.concatenate(types).astype(np.int32),
        np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
    )


def inputs_of(table: TokenTable) -> Inputs:
    """What a ranker reads of strings."""
    return np.asarray(table.tokens), np.asarray(table.start), np.asarray(table.kinds)


def probe_tokens(tokenizer: Tokenizer, kinds: int) -> np.ndarray:
    """int32 [K]: the tokens that stand for probes, [unused1] and following of BERT's vocabularies.

    Raises:
        BadInput: if the tokenizer has none.
    """
    names = [f"[unused{number}]" for number in range(1, kinds + 1)]
    numbers = [tokenizer.token_to_id(name) for name in names]
    missing = [name for name, number in zip(names, numbers, strict=True) if number is None]
    if missing:
        raise BadInput(
            f"the vocabulary has no {' '.join(missing)}, which stand for the kinds of keywords; "
            "use an encoder with the vocabulary of a BERT, or build the mentions without --keywords"
        )
    return np.array(numbers, np.int32)


def inner(table: Inputs, row: int) -> tuple[np.ndarray, np.ndarray]:
    """(tokens, kinds) of a string without [CLS] and [SEP]."""
    tokens, start, kinds = table
    within = slice(start[row] + 1, start[row + 1] - 1)
    return tokens[within], kinds[within]


def share(a: int, b: int, free: int) -> tuple[int, int]:
    """How many tokens two strings keep of `free`: the shorter one all that fit in its half."""
    if a + b <= free:
        return a, b
    half = free // 2
    if a <= half:
        return a, free - a
    if b <= half:
        return free - b, b
    return free - half, half
