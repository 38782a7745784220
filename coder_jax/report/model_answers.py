"""Answers of trained models in a report: of generators and rankers, and of classifiers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.encoding.search import search
from coder_jax.report.dictionary import Entries, shuffled
from coder_jax.systems.mlnorm.classifier import ConceptClassifier
from coder_jax.systems.recall_rank.candidates import CANDIDATES, Generator
from coder_jax.systems.recall_rank.ranking import (
    TermRanker,
    best_first,
    fused_scores,
    mean_probabilities,
    ranked,
)
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.dataset.mentions import (
    UNREACHABLE,
    CandidateLists,
    MentionDataset,
    MentionSplit,
    open_mentions,
    read_lists,
)
from data_pipeline.files.identity import MENTIONS, is_of_kind
from data_pipeline.files.tables import split_concepts, tab_separated
from data_pipeline.sources.corpora import mention_rows
from data_pipeline.terminology.semantic_groups import ANY, GROUPS

# -------------------------------------------------------------------------------------------------
# Recall and rank: the generator's candidates for mentions, and their ranking.

_MOST_MENTIONS, _MOST_OF_SEVERAL = 40, 15  # shown; and of these, most that mean several concepts
_SPLITS = ("dev", "test", "train")  # whoever looks at single mentions of test chooses by them


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
    """The folder of mentions, if the path is one."""
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
    name = next(split for split in _SPLITS if split in data.splits)
    split = data.splits[name]
    rows = _chosen_rows(split, seed)
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
        rows=_shown_mentions(data, mentions, gold, lists, probability),
    )


def _chosen_rows(split: MentionSplit, seed: int) -> np.ndarray:
    """int64: mentions of different strings, those of several concepts first, in a random order."""
    of_string = {string: row for row, string in enumerate(split.mentions.strings)}
    numbers = split.numbers()
    order = [of_string[string] for string in shuffled(list(of_string), seed)]
    several = [row for row in order if numbers[row] > 1][:_MOST_OF_SEVERAL]
    single = [row for row in order if numbers[row] == 1]
    return np.array([*several, *single[: _MOST_MENTIONS - len(several)]], np.int64)


def _shown_mentions(
    data: MentionDataset,
    mentions: Sequence[str],
    gold: Sequence[frozenset[int]],
    lists: CandidateLists,
    probability_MKA: np.ndarray | None,
) -> list[MentionWithCandidates]:
    """Candidates for display, in the order of distances and of combined scores."""
    probability_MK = None if probability_MKA is None else probability_MKA[..., 0]
    scores = fused_scores(lists.distances, probability_MK)
    counts = ranked(lists, data.name_concepts, probability_MKA).counts
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


# -------------------------------------------------------------------------------------------------
# A classifier's answers, beside the nearest terms of the same encoder.

_MOST_CLASS_MENTIONS = 40
_GUESSES = 3  # of each mention, by classes and by terms


@dataclass(frozen=True)
class Guess:
    """One of the answers to a mention.

    Attributes:
      concept: its identifier; of a term of several, joined.
      name: preferred name of the concept, or the term.
      score: probability of the class, or cosine of the term.
      right: whether it is a concept of the mention.
    """

    concept: str
    name: str
    score: float
    right: bool


@dataclass(frozen=True)
class AnsweredMention:
    """A mention and its answers, best first.

    Attributes:
      mention: the string.
      gold: names of its concepts; [] where they are not told.
      group: the semantic group that was given, or "".
      by_classes, by_terms: up to GUESSES each.
    """

    mention: str
    gold: list[str]
    group: str
    by_classes: list[Guess]
    by_terms: list[Guess]


@dataclass(frozen=True)
class ClassAnswers:
    """The answers to some mentions.

    Attributes:
      source: the file that they are of.
      total: the distinct mentions in it.
      classes: how many concepts the model has.
      terms: how many terms the nearest ones are of.
      rows: the mentions that are shown.
    """

    source: str
    total: int
    classes: int
    terms: int
    rows: list[AnsweredMention]

    def right(self) -> tuple[int, int] | None:
        """How often the first class and the first term are right; None without gold."""
        if not any(row.gold for row in self.rows):
            return None
        by_class = sum(one.right for row in self.rows for one in row.by_classes[:1])
        return by_class, sum(one.right for row in self.rows for one in row.by_terms[:1])


def find_mentions(given: str | None, dictionary: Dictionary) -> Path | None:
    """The file of mentions: the given one, or a dataset's held-out ones, or none."""
    if given is not None:
        return Path(given)
    held_out = dictionary.dataset and dictionary.dataset / "heldout" / "mentions.tsv"
    return held_out if held_out and held_out.is_file() else None


def _read_some(path: Path, seed: int) -> tuple[list[tuple[str, list[str]]], int]:
    """Some mentions with their concepts, and how many distinct ones there are.

    Args:
      path: a line for each mention, which may have its CUIs behind a tab (`mention_rows`).
      seed: of the choice.

    Raises:
      BadInput: if the file cannot be read.
    """
    plain = tab_separated(path)
    if all(len(fields) == 1 for _, fields in plain):
        gold = {fields[0]: list[str]() for _, fields in plain}
    else:
        gold = {}
        for mention, joined in mention_rows(path):
            held = gold.setdefault(mention, [])
            held += [concept for concept in split_concepts(joined) if concept not in held]
    chosen = shuffled(list(gold), seed)[:_MOST_CLASS_MENTIONS]
    return [(mention, gold[mention]) for mention in chosen], len(gold)


def class_answers(
    classifier: ConceptClassifier,
    dictionary: Dictionary,
    encoder: TermEncoder,
    entries: Entries,
    vectors: np.ndarray,
    path: Path,
    seed: int,
) -> ClassAnswers:
    """The answers to some mentions of a file; the group of a mention is one of its concept's.

    Args:
      classifier: what answers by classes.
      dictionary: that has the names of concepts.
      encoder: what answers by terms.
      entries, vectors: the terms that it searches, and float32 [terms, D] of unit length.
      path, seed: of `_read_some`.
    """
    mentions, total = _read_some(path, seed)
    strings = [mention for mention, _ in mentions]
    number = {concept: row for row, concept in enumerate(classifier.concepts)}
    bits = [
        next((int(classifier.groups[number[one]]) for one in gold if one in number), 0)
        for _, gold in mentions
    ]
    groups = [_first_group(one) for one in bits]
    index, probability = classifier.nearest(strings, groups, min(_GUESSES, len(number)))
    cosine, near = search(encoder.encode(strings), vectors, min(_GUESSES, len(vectors)))
    names = dictionary.knowing(classifier.concepts)
    rows = []
    for place, (mention, gold) in enumerate(mentions):
        classes = [
            Guess(concept, names.about(concept).preferred or concept, float(p), concept in gold)
            for concept, p in (
                (classifier.concepts[i], p)
                for i, p in zip(index[place], probability[place], strict=True)
                if i >= 0
            )
        ]
        terms = [
            _term_guess(entries, int(i), float(c), gold)
            for i, c in zip(near[place], cosine[place], strict=True)
        ]
        told = _names_of(names, gold)
        rows.append(AnsweredMention(mention, told, groups[place] or "", classes, terms))
    return ClassAnswers(str(path), total, len(number), len(vectors), rows)


def _first_group(bits: int) -> str | None:
    """The first of the semantic groups in a bit set; None for none."""
    return next((GROUPS[number] for number in range(ANY) if bits >> number & 1), None)


def _names_of(dictionary: Dictionary, concepts: Iterable[str]) -> list[str]:
    """The preferred names of concepts, with their identifiers."""
    known = dictionary.knowing(concepts)
    return [f"{known.about(one).preferred} {one}".strip() for one in concepts]


def _term_guess(entries: Entries, place: int, cosine: float, gold: Sequence[str]) -> Guess:
    """A term as an answer."""
    concepts = [entries.concepts[one] for one in entries.concepts_of[place]]
    right = any(concept in gold for concept in concepts)
    return Guess(" ".join(concepts), entries.terms[place], cosine, right)
