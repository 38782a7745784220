"""What a model with classes answers to mentions, beside the nearest terms of the same encoder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.encoding.search import search
from coder_jax.report.dictionary.neighbours import Entries
from coder_jax.report.dictionary.terms import shuffled
from coder_jax.systems.mlnorm.prediction.classifier import ConceptClassifier
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.rows import split_concepts, tab_separated
from data_pipeline.sources.mentions import mention_rows
from data_pipeline.terminology.semantic_groups import ANY, GROUPS

MOST_MENTIONS = 40
GUESSES = 3  # of each mention, by classes and by terms


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
        """For how many the first class, and the first term, is right; None without any gold."""
        if not any(row.gold for row in self.rows):
            return None
        by_class = sum(one.right for row in self.rows for one in row.by_classes[:1])
        return by_class, sum(one.right for row in self.rows for one in row.by_terms[:1])


def find_mentions(given: str | None, dictionary: Dictionary) -> Path | None:
    """The file of mentions: the one that was given, or the held-out ones of a dataset, or none."""
    if given is not None:
        return Path(given)
    held_out = dictionary.dataset and dictionary.dataset / "heldout" / "mentions.tsv"
    return held_out if held_out and held_out.is_file() else None


def read_some(path: Path, seed: int) -> tuple[list[tuple[str, list[str]]], int]:
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
    chosen = shuffled(list(gold), seed)[:MOST_MENTIONS]
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
      path, seed: of `read_some`.
    """
    mentions, total = read_some(path, seed)
    strings = [mention for mention, _ in mentions]
    number = {concept: row for row, concept in enumerate(classifier.concepts)}
    bits = [
        next((int(classifier.groups[number[one]]) for one in gold if one in number), 0)
        for _, gold in mentions
    ]
    groups = [first_group(one) for one in bits]
    index, probability = classifier.nearest(strings, groups, min(GUESSES, len(number)))
    cosine, near = search(encoder.encode(strings), vectors, min(GUESSES, len(vectors)))
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
            term_guess(entries, int(i), float(c), gold)
            for i, c in zip(near[place], cosine[place], strict=True)
        ]
        told = names_of(names, gold)
        rows.append(AnsweredMention(mention, told, groups[place] or "", classes, terms))
    return ClassAnswers(str(path), total, len(number), len(vectors), rows)


def first_group(bits: int) -> str | None:
    """The first of the semantic groups in a bit set; None for none."""
    return next((GROUPS[number] for number in range(ANY) if bits >> number & 1), None)


def names_of(dictionary: Dictionary, concepts: Iterable[str]) -> list[str]:
    """The preferred names of concepts, with their identifiers."""
    known = dictionary.knowing(concepts)
    return [f"{known.about(one).preferred} {one}".strip() for one in concepts]


def term_guess(entries: Entries, place: int, cosine: float, gold: Sequence[str]) -> Guess:
    """A term as an answer."""
    concepts = [entries.concepts[one] for one in entries.concepts_of[place]]
    right = any(concept in gold for concept in concepts)
    return Guess(" ".join(concepts), entries.terms[place], cosine, right)
