"""What recall and rank answers to mentions: the generator's candidates, and how they are ranked."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coder_jax.report.dictionary.terms import shuffled
from coder_jax.systems.recall_rank.prediction.candidates import CANDIDATES, Generator
from coder_jax.systems.recall_rank.prediction.fusion import best_first, fused_scores
from coder_jax.systems.recall_rank.prediction.recall_and_rank import mean_probabilities, ranked
from coder_jax.systems.recall_rank.prediction.term_ranker import TermRanker
from data_pipeline.dataset.mentions.candidates import CandidateLists, read_lists
from data_pipeline.dataset.mentions.store import (
    UNREACHABLE,
    MentionDataset,
    MentionSplit,
    open_mentions,
)
from data_pipeline.files.identity import MENTIONS, is_of_kind

MOST_MENTIONS, MOST_OF_SEVERAL = 40, 15  # shown; and of these, most that mean several concepts
SPLITS = ("dev", "test", "train")  # whoever looks at single mentions of test chooses by them


@dataclass(frozen=True)
class ShownCandidate:
    """One candidate of a mention.

    Attributes:
      concept: its identifier, "" where a concept is its name.
      name: the nearest of its names.
      distance: of this name from the mention.
      probability: by the rankers; None where there is none.
      score: of both together, by which candidates are ordered.
      right: whether it is a concept of the mention.
      answer: whether it is among as many of the best as the mention is said to mean.
    """

    concept: str
    name: str
    distance: float
    probability: float | None
    score: float
    right: bool
    answer: bool


@dataclass(frozen=True)
class MentionWithCandidates:
    """A mention and its candidates.

    Attributes:
      mention: the string.
      gold: names of its concepts, with their identifiers.
      missing: how many of these are not among the candidates.
      number: how many concepts the generator says it means, the last class being "or more".
      probability: of that number.
      or_more: whether the number is the last class.
      by_distance, by_score: the candidates in both orders.
    """

    mention: str
    gold: list[str]
    missing: int
    number: int
    probability: float
    or_more: bool
    by_distance: list[ShownCandidate]
    by_score: list[ShownCandidate]


@dataclass(frozen=True)
class CandidateAnswers:
    """The answers to some mentions.

    Attributes:
      source: the folder that they are of.
      split: train, dev or test.
      total: the mentions of that split.
      concepts, names: of the dictionary.
      rankers: how many there are.
      right: for how many all is right by distance alone, and with the rankers.
      rows: the mentions that are shown.
    """

    source: str
    split: str
    total: int
    concepts: int
    names: int
    rankers: int
    right: tuple[int, int]
    rows: list[MentionWithCandidates]


def mentions_folder(mentions: str | None) -> Path | None:
    """The folder of mentions, if that is what was given."""
    is_one = mentions is not None and is_of_kind(Path(mentions) / MENTIONS.file, MENTIONS)
    return Path(mentions) if mentions is not None and is_one else None


def candidate_answers(
    folder: Path,
    seed: int,
    generator: Generator | None,
    rankers: Sequence[TermRanker],
    *,
    cache: bool = False,
) -> CandidateAnswers:
    """The candidates of some mentions of a folder.

    Args:
      folder: of mentions (`python -m data_pipeline.build_mentions`).
      seed: of the choice of mentions.
      generator: finds candidates; None: those that lie in the folder (`coder_jax candidates`).
      rankers: their probabilities are averaged; none: the order by distance stands.
      cache: keep the vectors of the names on this machine, and use those that are kept.

    Raises:
      BadInput: if there are no such mentions, or no candidates where there is no generator.
    """
    data = open_mentions(folder)
    name = next(split for split in SPLITS if split in data.splits)
    split = data.splits[name]
    rows = chosen_rows(split, seed)
    mentions = [split.mentions.strings[row] for row in rows.tolist()]
    if generator is None:
        stored = read_lists(folder, name, len(split.mentions), len(data.names))
        fields = [field.name for field in dataclasses.fields(stored)]
        lists = CandidateLists(**{field: getattr(stored, field)[rows] for field in fields})
    else:
        names = generator.encode_names(data.names.strings, progress=True, cache=cache)
        lists = generator.lists(mentions, names, data.name_concepts, CANDIDATES)
    probability = mean_probabilities(rankers, data.names.strings, mentions, lists)
    gold = [split.gold_sets()[row] for row in rows.tolist()]
    alone, both = (ranked(lists, data.name_concepts, one).answers() for one in (None, probability))
    right = tuple(
        sum(set(one) == of for one, of in zip(answers, gold, strict=True))
        for answers in (alone, both)
    )
    return CandidateAnswers(
        source=str(folder),
        split=name,
        total=len(split.mentions),
        concepts=len(data.concepts),
        names=len(data.names),
        rankers=len(rankers),
        right=(right[0], right[1]),
        rows=shown_mentions(data, mentions, gold, lists, probability),
    )


def chosen_rows(split: MentionSplit, seed: int) -> np.ndarray:
    """int64: mentions of different strings, those of several concepts first, in a random order."""
    of_string = {string: row for row, string in enumerate(split.mentions.strings)}
    numbers = split.numbers()
    order = [of_string[string] for string in shuffled(list(of_string), seed)]
    several = [row for row in order if numbers[row] > 1][:MOST_OF_SEVERAL]
    single = [row for row in order if numbers[row] == 1]
    return np.array([*several, *single[: MOST_MENTIONS - len(several)]], np.int64)


def shown_mentions(
    data: MentionDataset,
    mentions: Sequence[str],
    gold: Sequence[frozenset[int]],
    lists: CandidateLists,
    probability_MK: np.ndarray | None,
) -> list[MentionWithCandidates]:
    """Candidates for people, in the order of their distances and in that of both scores."""
    scores = fused_scores(lists.distances, probability_MK)
    counts = ranked(lists, data.name_concepts, probability_MK).counts
    first_name, shown = data.name_start(), []
    for row, (mention, of, order) in enumerate(
        zip(mentions, gold, best_first(scores).tolist(), strict=True)
    ):
        candidates = []
        for place, name in enumerate(lists.names[row].tolist()):
            concept, string = int(data.name_concepts[name]), data.names.strings[name]
            identifier = data.concepts[concept]
            candidates.append(
                ShownCandidate(
                    concept="" if identifier == string else identifier,
                    name=string,
                    distance=float(lists.distances[row, place]),
                    probability=None if probability_MK is None else probability_MK[row, place],
                    score=float(scores[row, place]),
                    right=concept in of,
                    answer=place in order[: counts[row]],
                )
            )
        told = [
            "a concept that the dictionary lacks"
            if one == UNREACHABLE
            else " ".join(dict.fromkeys((data.names.strings[first_name[one]], data.concepts[one])))
            for one in sorted(of)
        ]
        number = int(lists.numbers[row].argmax())
        shown.append(
            MentionWithCandidates(
                mention=mention,
                gold=told,
                missing=len(of) - sum(one.right for one in candidates),
                number=1 + number,
                probability=float(lists.numbers[row, number]),
                or_more=number + 1 == lists.numbers.shape[1] > 1,
                by_distance=candidates,
                by_score=[candidates[place] for place in order],
            )
        )
    return shown
