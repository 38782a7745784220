"""What each mention with a given group was answered: for the record, and as a table.

As `normalization.answers`, for whatever is a `GroupNormalizer`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from coder_jax.evaluation.given_groups.mention_sets import MentionSet
from coder_jax.evaluation.normalization.answers import (
    ANSWERS,
    MOST_RANKS,
    answer_columns,
    cleaned,
    distribution,
    write_table,
)
from coder_jax.evaluation.normalization.ranks import GoldCounts
from coder_jax.mapping.cutoffs import measure_cutoffs
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.rows import CONCEPT_SEPARATOR

if TYPE_CHECKING:
    from coder_jax.evaluation.given_groups.scores import Scorer

NOTHING: dict[str, Any] = {"low": 0.0, "high": 1.0, "right": [0], "wrong": [0]}


@dataclass(frozen=True)
class SetAnswers:
    """The answers to the mentions of a set.

    Attributes:
      answers: of each mention, distinct concepts with their scores, best first; maybe none.
      places: int [M], the place of the best gold CUI among them, from 1; 0 if none is there.
    """

    mentions: MentionSet
    answers: list[list[tuple[str, float]]]
    places: np.ndarray

    @property
    def similarities(self) -> np.ndarray:
        """float [M], of the first answer; -inf where there is none."""
        return np.array([found[0][1] if found else -np.inf for found in self.answers])

    @property
    def ranks(self) -> GoldCounts:
        """The places as `evaluate --compare` reads them."""
        none = np.zeros_like(self.places)
        return GoldCounts(np.maximum(self.places - 1, 0), none, none + 1, self.places > 0)


def answers_of(scorer: Scorer, mentions: MentionSet) -> SetAnswers:
    """What a scorer's normalizer answers to the mentions of a set."""
    answers, places = [], []
    for text, group, gold in zip(mentions.texts, mentions.groups, mentions.gold, strict=True):
        row = scorer.place[text, group]
        best: dict[str, float] = {}
        for number, score in zip(scorer.numbers[row], scorer.similarities[row], strict=True):
            if number >= 0:
                best.setdefault(scorer.concepts[number], float(score))
        answers.append(list(best.items()))
        found = (place for place, concept in enumerate(best, 1) if concept in gold)
        places.append(next(found, 0))
    return SetAnswers(mentions, answers, np.array(places))


def described(scorer: Scorer, pooling: str, folder: Path | None) -> dict[str, Any]:
    """What a record says of the answers, as `record.Answers`; tables of them are written.

    Args:
      scorer: of the benchmark.
      pooling: of the encoder, for the names of files.
      folder: of the tables; None: none.

    Raises:
      BadInput: a table cannot be written.
    """
    benchmark = scorer.benchmark
    sets = [answers_of(scorer, one) for one in benchmark.sets]
    similarities = np.concatenate([one.similarities for one in sets])
    right = np.concatenate([one.places == 1 for one in sets])
    there = np.isfinite(similarities)
    digest = hashlib.sha256()
    for mentions in benchmark.sets:
        for text, group in zip(mentions.texts, mentions.groups, strict=True):
            digest.update(f"{mentions.name}\t{group}\t{text}\n".encode())
    files = {}
    for one in sets if folder else []:
        assert folder is not None
        table = prediction_table(one, benchmark.dictionary)
        name = one.mentions.name
        files[name] = write_table(folder, (benchmark.name, name, pooling), table)
    few = len(right) <= MOST_RANKS
    return {
        "ranks": {one.mentions.name: one.ranks.as_text() for one in sets} if few else None,
        "order": digest.hexdigest(),
        "cutoffs": measure_cutoffs(similarities, right).described()["tables"],
        "languages": "not told",
        "similarities": distribution(similarities[there], right[there]) if any(there) else NOTHING,
        "predictions": files,
    }


def prediction_table(answers: SetAnswers, dictionary: Dictionary | None) -> pl.DataFrame:
    """A row for each mention: document, group, gold, its place, the first score, and all answers.

    `rank` is the place of the best gold CUI, empty if it is not among the answers that are looked
    at. Concepts are named by their preferred terms, where there is a dictionary.
    """

    def name(concept: str) -> str:
        known = dictionary is not None and concept in dictionary.concept_set
        return dictionary.about(concept).preferred if dictionary and known else ""

    def names(gold: Sequence[str]) -> str:
        return CONCEPT_SEPARATOR.join(filter(None, map(name, gold)))

    one = answers.mentions
    first = [found[0][1] if found else None for found in answers.answers]
    columns: dict[str, Any] = {
        "document": one.documents,
        "mention": one.texts,
        "semantic_group": one.groups,
        "gold": [CONCEPT_SEPARATOR.join(gold) for gold in one.gold],
        "gold_name": [names(gold) for gold in one.gold],
        "rank": answers.places,
        "right": np.where(answers.places == 1, "yes", "no"),
        "similarity": pl.Series(first, dtype=pl.Float32),
    }
    shown = [
        [(concept, name(concept), score) for concept, score in found[:ANSWERS]]
        for found in answers.answers
    ]
    table = cleaned(pl.DataFrame(columns | answer_columns(shown)))
    return table.with_columns(pl.when(pl.col("rank") > 0).then(pl.col("rank")))
