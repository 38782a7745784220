"""TermRanker: a trained ranker in; a mention and candidates to probabilities out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from coder_jax.models.bert import Bert
from coder_jax.systems.recall_rank.prediction.score_pairs import Mask, probabilities
from data_pipeline.batches.mentions.pairs import inputs_of, pairs_of, probe_tokens
from data_pipeline.dataset.mentions.write import token_table
from data_pipeline.terminology.keywords.vocabulary import KeywordVocabulary


class TermRanker:
    """Scores candidates of mentions by reading both together.

    Args:
        bert: the encoder of pairs.
        tokenizer: its own.
        head: kernel [D, 1] and bias [1].
        keywords: that lead its attention; of as many kinds as it was trained with.
        mask: where their masks apply (`RankSystem.mask`).
        cleaning: rule set that strings go through first.
        max_length, pair_length: longest string and pair in tokens.
    """

    def __init__(
        self,
        bert: Bert,
        tokenizer: Tokenizer,
        head: Mapping[str, Any],
        keywords: KeywordVocabulary,
        *,
        mask: Mask = "after",
        cleaning: str = "none",
        max_length: int = 64,
        pair_length: int = 128,
    ):
        self.bert, self.tokenizer, self.keywords = bert, tokenizer, keywords
        self.head = {name: np.asarray(array, np.float32) for name, array in head.items()}
        self.mask, self.cleaning = mask, cleaning
        self.max_length, self.pair_length = max_length, pair_length
        self.probes = probe_tokens(tokenizer, len(keywords.kinds))

    def score(self, mention: str, candidates: Sequence[str]) -> np.ndarray:
        """float32 [k]: the probability that each candidate is a name of what a mention means."""
        rows = np.stack([np.zeros(len(candidates), np.int64), np.arange(len(candidates))], axis=1)
        return self.score_pairs([mention], list(candidates), rows)

    def score_pairs(
        self,
        mentions: Sequence[str],
        names: Sequence[str],
        rows: np.ndarray,
        *,
        progress: bool = False,
    ) -> np.ndarray:
        """float32 [n]: the probability of each pair.

        Args:
            mentions, names: strings.
            rows: int [n, 2], the mention and the name of each pair.
            progress: show a progress bar.
        """
        if not len(rows):
            return np.zeros(0, np.float32)
        tables = [
            token_table(
                self.tokenizer,
                strings,
                cleaning=self.cleaning,
                max_length=self.max_length,
                keywords=self.keywords,
            )[0]
            for strings in (mentions, names)
        ]
        of_mentions, of_names = map(inputs_of, tables)
        pairs = pairs_of(of_mentions, of_names, rows, self.probes, self.pair_length)
        return probabilities(
            self.bert,
            self.head,
            pairs,
            probes=len(self.probes),
            mask=self.mask,
            progress=progress,
        )
