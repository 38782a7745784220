"""Mentions, each with one of its candidates, as packed batches of pairs.

For the ranker of recall and rank (Liang, Xue, Ruan 2021, section 3.2). NumPy alone.
"""

import dataclasses
from typing import Any

import numpy as np

from data_pipeline.batches.checks import check_divides, check_least
from data_pipeline.batches.draws.negatives import GoldNames
from data_pipeline.batches.mentions.pairs import Pairs, inputs_of, pairs_of, probe_tokens
from data_pipeline.batches.mentions.source import MentionBatches
from data_pipeline.batches.packed_groups import PackedGroups, joined, packed_blocks
from data_pipeline.dataset.mentions.candidates import candidate_rows, read_lists
from data_pipeline.dataset.mentions.store import UNREACHABLE, WORDS, TokenTable
from data_pipeline.dataset.tokenize_terms import load_tokenizer
from data_pipeline.process.errors import BadInput


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RankSpec:
    """The batch of a step are some training mentions, each with one of its candidates.

    Each (mention, candidate) comes once an epoch.
    """

    pairs: int = 64
    """(mention, candidate) pairs in a step."""
    pair_length: int = 128
    """Longest pair in tokens; longer ones are cut."""
    groups: int = 8
    """Parts of a step that may lie on different devices; changes no result but for rounding."""
    row_length: int = 128
    """Tokens in a packed row."""
    seed: int = 0
    """Of the order of the pairs and the dropout."""

    @property
    def terms(self) -> int:
        """The pairs of a step."""
        return self.pairs

    @property
    def arrays(self) -> dict[str, tuple[int, ...]]:
        """The arrays of a batch beside its packed rows, and the shape of each in one group."""
        return dict.fromkeys(("concepts", "labels"), (self.pairs // self.groups,))

    def told(self) -> dict[str, Any]:
        """What a step is made of, for the model card."""
        return {"draw": "each candidate of each mention once an epoch"}

    def validate(self) -> None:
        """Raise BadInput where a value cannot be used."""
        check_least(self, 1, "pairs", "groups")
        check_least(self, 8, "pair_length")
        check_least(self, 0, "seed")
        if self.row_length < self.pair_length:
            raise BadInput(
                f"row_length is {self.row_length}, but pairs have up to {self.pair_length} tokens; "
                f"use a row_length of at least {self.pair_length}"
            )
        check_divides(self, "pairs")


class RankBatches(MentionBatches):
    """The batches of a run of the ranker.

    A batch has packed rows (`PackedGroups`; and `kinds`, `types` of each token, see
    `pairs.py`), a segment for each pair; and int32, [P, B, groups, N] each: `labels`, 1 where
    the candidate is a concept of the mention, and `concepts`, the candidate's.

    Args:
        folder: of mentions and candidates (`python -m coder_jax candidates`).
        spec: what a step is made of.
        cut, rows, run_steps, shapes: as for `BatchMaker`.

    Raises:
        BadInput: if there are fewer pairs than a step takes, or no tokens for the probes.
    """

    packed: tuple[str, ...] = (*PackedGroups.packed, "kinds", "types")
    kept: tuple[str, ...] = ("tokenizer", WORDS)
    spec: RankSpec

    def read(self) -> tuple[int, str]:
        train, names = self.dataset.splits["train"], self.dataset.names
        self.lists = {  # a run is chosen by those of dev
            split: read_lists(self.folder, split, len(found.mentions), len(names))
            for split, found in self.dataset.splits.items()
            if split != "test"
        }
        rows = candidate_rows(self.lists["train"])
        labels = self.labels_of(rows)
        self.rows, self.labels = rows[labels >= 0], labels[labels >= 0]
        self.concepts = self.dataset.name_concepts[self.rows[:, 1]]
        tokenizer = load_tokenizer(self.folder / "tokenizer")
        self.probes = probe_tokens(tokenizer, len(self.manifest["keyword_kinds"]))
        self.pairs = self.pairs_of(train.mentions, self.rows)
        return len(self.rows), "pairs of a training mention and a candidate"

    def labels_of(self, rows: np.ndarray) -> np.ndarray:
        """int32 [n]: 1 for a concept that the mention means, 0 for another; -1 for neither.

        Nothing is learnt of a mention with gold that the dictionary lacks, as one of its candidates
        may be right; nor of a name of another concept that has the tokens of a gold name.

        Args:
            rows: int [n, 2], training mentions and names of the dictionary.
        """
        gold_names = GoldNames(self.dataset, "train")
        gold, concepts = gold_names.gold, self.dataset.name_concepts
        keys: dict[int, set[bytes]] = {}
        labels = np.zeros(len(rows), np.int32)
        for number, (mention, name) in enumerate(rows.tolist()):
            if mention not in keys:
                keys[mention] = gold_names.keys(mention)
            if UNREACHABLE in gold[mention]:
                labels[number] = -1
            elif int(concepts[name]) in gold[mention]:
                labels[number] = 1
            elif gold_names.key(name) in keys[mention]:
                labels[number] = -1
        return labels

    @property
    def identity(self) -> dict[str, Any]:
        """As of any mentions; and the candidates, which other generators find otherwise."""
        hashes = {split: lists.content_hash for split, lists in self.lists.items()}
        return {**super().identity, "candidates": hashes}

    def lengths(self, step: int, groups: np.ndarray) -> np.ndarray:
        return np.diff(self.pairs.start)[self.drawn(step, groups)]

    def pairs_of(self, mentions: TokenTable, rows: np.ndarray) -> Pairs:
        """Pairs of some mentions and names of the dictionary, as in the batches.

        Args:
            mentions: of any split.
            rows: int [n, 2], the mention and the name of each pair.
        """
        return pairs_of(
            inputs_of(mentions),
            inputs_of(self.dataset.names),
            rows,
            self.probes,
            self.spec.pair_length,
        )

    def batch(self, step: int) -> dict[str, np.ndarray]:
        """The batch of a step."""
        shape = self.groups.shape
        drawn = self.drawn(step, self.groups.ravel())
        pairs = self.pairs
        bounds, (tokens, kinds, types) = joined(
            pairs.start, drawn.ravel(), pairs.tokens, pairs.kinds, pairs.types
        )
        rows = self.spec.row_length, self.plan.ample
        return {
            **packed_blocks(tokens, bounds, shape[:2], *rows, kinds=kinds, types=types),
            "concepts": self.concepts[drawn].reshape(*shape, -1),
            "labels": self.labels[drawn].reshape(*shape, -1),
        }
