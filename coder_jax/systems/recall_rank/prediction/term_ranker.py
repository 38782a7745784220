"""TermRanker: a trained ranker in; a mention and candidates to probabilities out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from coder_jax.models.bert import Bert
from coder_jax.models.encoder_settings import read_settings
from coder_jax.models.hf_files import find_folder, here_or_fetched
from coder_jax.models.hf_weights import load_bert
from coder_jax.systems.recall_rank.prediction.score_pairs import Mask, probabilities
from data_pipeline.batches.mentions.pairs import inputs_of, pairs_of, probe_tokens
from data_pipeline.dataset.mentions.write import token_table
from data_pipeline.dataset.tokenize_terms import load_tokenizer
from data_pipeline.files.json_files import read_json, typed
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.keywords.vocabulary import KeywordVocabulary, read_keywords

RANKER, SCORE, KEYWORDS = "ranker.json", "ranker.safetensors", "keywords.tsv"  # of an export


class RankerSettings(TypedDict):
    """What ranker.json must have."""

    mask: Mask
    cleaning: str
    max_length: int
    pair_length: int
    keyword_kinds: list[str]


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

    @classmethod
    def from_pretrained(cls, path: str | Path) -> TermRanker:
        """The ranker of an export, by folder, address or hub id.

        Raises:
            BadInput: if there is none in `path`, or its files cannot be read.
        """
        folder = find_folder(path)
        settings = typed(read_json(folder / RANKER), RankerSettings, str(folder / RANKER))
        bert, _, _ = load_bert(folder, pooling=read_settings(folder).pooling)
        return cls(
            bert,
            load_tokenizer(folder),
            read_head(folder / SCORE),
            keywords_of(folder / KEYWORDS, settings["keyword_kinds"]),
            mask=settings["mask"],
            cleaning=settings["cleaning"],
            max_length=settings["max_length"],
            pair_length=settings["pair_length"],
        )

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


def is_ranker(path: str | Path) -> bool:
    """Whether a model, by folder, address or hub id, is the export of a ranker."""
    return (here_or_fetched(path) / RANKER).is_file()


def keywords_of(path: Path, kinds: list[str]) -> KeywordVocabulary:
    """The keywords of a file, of so many kinds though some may have no word."""
    words = read_keywords(path).words if path.is_file() and path.stat().st_size else {}
    if set(words) - set(kinds):
        raise BadInput(f"{path}: found keywords of {' '.join(words)}; expected {' '.join(kinds)}")
    return KeywordVocabulary({kind: words.get(kind, ()) for kind in kinds})


def read_head(path: Path) -> dict[str, np.ndarray]:
    """A dense layer of a file.

    Raises:
        BadInput: if it cannot be read.
    """
    try:
        found = load_file(path)
        return {name: found[name] for name in ("kernel", "bias")}
    except (OSError, KeyError, SafetensorError) as error:
        raise BadInput(f"{path} cannot be read: {error}; export the run again") from error
