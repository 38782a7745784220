"""Terms in, word-piece ids out, each distinct word tokenized once.

A terminology says the same words again and again: the million terms of a release have some hundred
thousand words. BERT's tokenizer splits at every blank before all else, so a term's ids are those of
its words, one after the other. Where a tokenizer works otherwise, terms are tokenized whole.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import polars as pl
from tokenizers import Tokenizer

from data_pipeline.dataset.tokenize_terms import tokenize_uncut

WORDS_KEPT = 2_000_000  # some 300 MB; more than a release of the UMLS has in English


class WordPieces:
    """A tokenizer that keeps the ids of the words that it has seen.

    Args:
        tokenizer: from `tokenize_terms.load_tokenizer`.
    """

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.splits_at_blanks = splits_at_blanks(tokenizer)
        self._forget()

    def _forget(self) -> None:
        self.known: dict[str, int] = {}  # the number of a word
        self.ids = np.zeros(0, np.int32)
        self.start = np.zeros(1, np.int64)  # of a word's ids, by its number

    def __call__(self, terms: Sequence[str] | pl.Series) -> tuple[np.ndarray, np.ndarray]:
        """Ids of whole terms with their special tokens: (ids int32 [sum], start int64 [n + 1])."""
        if not self.splits_at_blanks:
            return tokenize_uncut(self.tokenizer, list(terms))
        split = pl.Series(terms, dtype=pl.String).str.split(" ")
        flat = split.explode()
        distinct = flat.unique()
        numbers = self._numbers(distinct.to_list())
        places = pl.DataFrame({"word": distinct, "number": numbers})
        words = (
            flat.to_frame("word")
            .join(places, on="word", how="left", maintain_order="left")["number"]
            .to_numpy()
        )
        return self._joined(words, split.list.len().to_numpy().astype(np.int64))

    def _numbers(self, words: list[str]) -> np.ndarray:
        """The numbers of distinct words; new ones are tokenized, all at once."""
        if len(self.known) > WORDS_KEPT:
            self._forget()
        new = [word for word in words if word not in self.known]
        ids, start = tokenize_uncut(self.tokenizer, new, special=False)
        first = len(self.known)
        self.known.update(zip(new, range(first, first + len(new)), strict=True))
        self.start = np.concatenate([self.start, start[1:] + len(self.ids)])
        self.ids = np.concatenate([self.ids, ids])
        return np.fromiter(map(self.known.__getitem__, words), np.int64, len(words))

    def _joined(self, words: np.ndarray, n_words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ids of terms of n_words[i] words each, given the numbers of all the words."""
        opening, closing = self.tokenizer.encode("").ids
        lengths = self.start[words + 1] - self.start[words]
        before = np.concatenate([[0], np.cumsum(lengths)])  # ids before each word
        word_start = np.concatenate([[0], np.cumsum(n_words)])
        start = before[word_start] + 2 * np.arange(len(word_start))
        # Where the ids of each word go: behind those of all words before it, and behind two special
        # tokens of each earlier term and one of its own.
        shift = 2 * np.repeat(np.arange(len(n_words)), n_words) + 1
        ids = np.empty(int(start[-1]), np.int32)
        within = np.arange(before[-1]) - np.repeat(before[:-1], lengths)
        target = np.repeat(before[:-1] + shift, lengths) + within
        ids[target] = self.ids[np.repeat(self.start[words], lengths) + within]
        ids[start[:-1]] = opening
        ids[start[1:] - 1] = closing
        return ids, start


def splits_at_blanks(tokenizer: Tokenizer) -> bool:
    """Whether the ids of "a b" are those of "a", then those of "b", between two special tokens.

    So it is for BERT's normalizer (it looks at single characters and their accents) and BERT's
    splitting at white space and punctuation, unless an added token holds white space (which the
    normalizer makes blanks of) or takes blanks beside it away, or ids are cut off or filled up.
    """
    parts = json.loads(tokenizer.to_str())
    kinds = [(parts[part] or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model")]
    if kinds != ["BertNormalizer", "BertPreTokenizer", "WordPiece"]:
        return False
    if parts["truncation"] or parts["padding"]:
        return False
    for token in parts["added_tokens"]:
        if token["lstrip"] or token["rstrip"] or any(map(str.isspace, token["content"])):
            return False
    special, word = tokenizer.encode("").ids, tokenizer.encode("a", add_special_tokens=False).ids
    return len(special) == 2 and tokenizer.encode("a").ids == [special[0], *word, special[1]]
