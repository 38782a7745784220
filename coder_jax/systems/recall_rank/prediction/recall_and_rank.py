"""Recall and rank: mentions in; for each the concepts that it means out, as many as it has.

Liang, Xue, Ruan 2021, sections 3.2 and 3.3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from coder_jax.systems.recall_rank.prediction.candidates import CANDIDATES, Generator
from coder_jax.systems.recall_rank.prediction.fusion import (
    THRESHOLD,
    Fusion,
    RecallForm,
    answer_counts,
    best_first,
    fused_scores,
    recall_scores,
)
from coder_jax.systems.recall_rank.prediction.term_ranker import TermRanker
from data_pipeline.dataset.mentions.candidates import CandidateLists, candidate_rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranked:
    """The candidates of M mentions by their scores, best first, [M, k] each."""

    concepts: np.ndarray
    """int32, numbers of concepts."""
    names: np.ndarray
    """int32, the nearest name of each."""
    scores: np.ndarray
    """float64, by which they are ordered."""
    recall: np.ndarray
    """float64, by the generator."""
    rank: np.ndarray | None
    """float32, the ranker's probability; None without a ranker."""
    counts: np.ndarray
    """int64 [M]: so many of them are the answer."""

    def answers(self) -> list[list[int]]:
        """The concepts that each mention means."""
        return [
            concepts[:count].tolist()
            for concepts, count in zip(self.concepts, self.counts, strict=True)
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """How recall and rank become answers."""

    fusion: Fusion = "mean"
    form: RecallForm = "sum"
    threshold: float = THRESHOLD

    @property
    def fused(self) -> str:
        """What orders candidates, in words."""
        of = {"mean": "recall and rank", "recall": "recall alone", "rank": "rank alone"}
        return of[self.fusion]

    def __str__(self) -> str:
        """In words, for records."""
        return f"{self.fused} (1 - d / {self.form} d; a fourth above {self.threshold:g})"


def ranked(
    lists: CandidateLists,
    name_concepts: np.ndarray,
    probability_MK: np.ndarray | None,
    choice: Choice | None = None,
) -> Ranked:
    """Candidates ordered by the scores of generator and ranker, and cut by their numbers.

    By distances alone a mention of three concepts or more is answered with three.

    Args:
        lists: of the generator.
        name_concepts: int [N], the concept of each name.
        probability_MK: of the ranker; None where there is none.
        choice: how the two become one.
    """
    choice = choice or Choice()
    # theta was set for scores that a ranker takes part in; distances alone leave all above it.
    alone = probability_MK is None or choice.fusion == "recall"
    threshold = np.inf if alone else choice.threshold
    scores = fused_scores(lists.distances, probability_MK, fusion=choice.fusion, form=choice.form)
    order = best_first(scores)

    def ordered(array: np.ndarray) -> np.ndarray:
        return np.take_along_axis(array, order, axis=1)

    scores, names = ordered(scores), ordered(lists.names)
    return Ranked(
        concepts=name_concepts[names],
        names=names,
        scores=scores,
        recall=ordered(recall_scores(lists.distances, choice.form)),
        rank=None if probability_MK is None else ordered(probability_MK),
        counts=answer_counts(scores, lists.numbers, threshold),
    )


class RecallAndRank:
    """A generator, rankers if there are any, and the dictionary whose concepts are the answers.

    Args:
        generator: finds candidates.
        rankers: their probabilities are averaged; none: the generator's order stands.
        names: N names of the dictionary.
        name_concepts: int [N], the concept of each.
        choice: how scores become answers.
        cache: keep the vectors of the names on this machine, and use those that are kept.
    """

    def __init__(
        self,
        generator: Generator,
        rankers: Sequence[TermRanker],
        names: Sequence[str],
        name_concepts: np.ndarray,
        choice: Choice | None = None,
        *,
        cache: bool = False,
    ):
        self.generator, self.rankers = generator, list(rankers)
        self.names, self.name_concepts = names, np.asarray(name_concepts)
        self.choice, self.cache = choice or Choice(), cache
        self.vectors: list[np.ndarray] | None = None

    def are_over(self, names: Sequence[str], name_concepts: np.ndarray) -> bool:
        """Whether this is the dictionary."""
        return self.names == names and np.array_equal(self.name_concepts, name_concepts)

    def encode_names(self, *, progress: bool = False) -> list[np.ndarray]:
        """float32 [N, D] of each encoder: the vectors of the dictionary, made once."""
        if self.vectors is None:
            self.vectors = self.generator.encode_names(
                self.names, progress=progress, cache=self.cache
            )
        return self.vectors

    def answer(
        self, mentions: Sequence[str], k: int = CANDIDATES, *, progress: bool = False
    ) -> Ranked:
        """The candidates of mentions by their scores, and how many of them are the answer.

        Args:
            mentions: M strings.
            k: candidates of each.
            progress: show progress bars.
        """
        lists, found = self.scored(mentions, k, progress=progress)
        return ranked(lists, self.name_concepts, found, self.choice)

    def scored(
        self, mentions: Sequence[str], k: int = CANDIDATES, *, progress: bool = False
    ) -> tuple[CandidateLists, np.ndarray | None]:
        """What `ranked` takes: the candidates of mentions, and what rankers think of them.

        Args:
            mentions, k, progress: as for `answer`.
        """
        vectors = self.encode_names(progress=progress)
        lists = self.generator.lists(mentions, vectors, self.name_concepts, k, progress=progress)
        return lists, mean_probabilities(
            self.rankers, self.names, mentions, lists, progress=progress
        )


def mean_probabilities(
    rankers: Sequence[TermRanker],
    names: Sequence[str],
    mentions: Sequence[str],
    lists: CandidateLists,
    *,
    progress: bool = False,
) -> np.ndarray | None:
    """float32 [M, k]: the rankers' mean probability of each candidate; None without a ranker.

    Args:
        rankers: any number.
        names: of the dictionary, [N].
        mentions: M strings.
        lists: their candidates.
        progress: show progress bars.
    """
    if not rankers:
        return None
    rows = candidate_rows(lists)
    shown, rows[:, 1] = np.unique(rows[:, 1], return_inverse=True)
    strings = [names[name] for name in shown.tolist()]
    found = [ranker.score_pairs(mentions, strings, rows, progress=progress) for ranker in rankers]
    return np.stack(found).mean(axis=0).reshape(lists.names.shape)
