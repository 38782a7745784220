"""Which terms and concepts of a dictionary a report shows: a choice that a seed decides.

Concepts are taken in the order of a hash of their identifier, whole: so the choice does not depend
on the order of the dictionary's rows, and a term keeps its synonyms beside it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coder_jax.evaluation.concepts.concept_set import bare_type
from data_pipeline.dataset.dictionary import Dictionary, read_dictionary
from data_pipeline.process.errors import BadInput

# The semantic types of the CODER paper's figure 3.
FIGURE_TYPES = (
    "Sign or Symptom",
    "Disease or Syndrome",
    "Neoplastic Process",
    "Finding",
    "Injury or Poisoning",
)
CONCEPTS, TERMS_EACH = 24, 12  # in the map of concepts
TYPES, CONCEPTS_EACH = 6, 120  # in the map of semantic types
LEAST_CONCEPTS, LEAST_OF_TYPE = 3, 10  # for a map to be worth a look


@dataclass(frozen=True)
class Group:
    """What a map draws in one colour: a concept and its terms, or a type and its concepts."""

    name: str
    terms: list[str]


@dataclass(frozen=True)
class ShownTerms:
    """A dictionary, and what of it a report shows.

    Attributes:
      types: semantic types of its concepts, as far as they are known.
      by_concept, by_type: the groups of the two maps; [] where there are too few terms for one.
      concepts: those in the explorer.
      total: distinct terms of the dictionary.
    """

    dictionary: Dictionary
    types: dict[str, list[str]]
    by_concept: list[Group]
    by_type: list[Group]
    concepts: list[str]
    total: int

    def note(self, terms: int) -> str:
        """Which `terms` terms the explorer has, in words."""
        source = self.dictionary.source
        if terms == self.total:
            return f"All {terms:,} distinct terms of {source}."
        return (
            f"{terms:,} of the {self.total:,} distinct terms of {source}: all terms of "
            f"{len(self.concepts):,} concepts drawn at random. Other terms cannot be found here, "
            "and neighbours are only those among these; --terms says how many the report holds."
        )


def read_terms(
    path: str,
    languages: Sequence[str] | None,
    sources: Sequence[str] | None,
    types: Sequence[str] | None = None,
    *,
    most_terms: int,
    seed: int,
) -> ShownTerms:
    """Reads a dictionary and chooses what is shown of it.

    Args:
      path, languages, sources, types: as in `read_dictionary`.
      most_terms: in the explorer.
      seed: of the choice.

    Raises:
      BadInput: as `read_dictionary`; or a dictionary of a single term.
    """
    dictionary = read_dictionary(path, languages, sources, types=types)
    total = len(set(dictionary.terms))
    if total < 2:
        raise BadInput(f"{path}: found a single term; expected two or more, to compare them")
    terms = terms_by_concept(dictionary)
    held = read_semantic_types(path)
    return ShownTerms(
        dictionary,
        held,
        concept_groups(terms, seed),
        type_groups(terms, held, seed),
        whole_concepts(terms, most_terms, seed),
        total,
    )


def terms_by_concept(dictionary: Dictionary) -> dict[str, list[str]]:
    """The distinct terms of each concept, in the dictionary's order."""
    held: dict[str, dict[str, None]] = {}
    for _, term, concept in dictionary.pairs():
        held.setdefault(concept, {})[term] = None
    return {concept: list(terms) for concept, terms in held.items()}


def shuffled(concepts: Sequence[str], seed: int) -> list[str]:
    """Identifiers in the order of their hash with a seed."""
    return sorted(concepts, key=lambda cui: hashlib.sha256(f"{seed}\t{cui}".encode()).digest())


def whole_concepts(terms: Mapping[str, list[str]], most_terms: int, seed: int) -> list[str]:
    """Concepts with `most_terms` terms in all, or as many fewer as the last one would exceed it.

    They come back in the order of `terms`; at least one of them.
    """
    chosen: set[str] = set()
    count = 0
    for concept in shuffled(list(terms), seed):
        count += len(terms[concept])
        if count > most_terms and chosen:
            break
        chosen.add(concept)
    return [concept for concept in terms if concept in chosen]


def concept_groups(terms: Mapping[str, list[str]], seed: int) -> list[Group]:
    """Concepts with many terms each, for figure 2 of the CODER papers; [] if there are too few."""
    for least in (6, 5, 4, 3, 2):
        rich = [concept for concept, held in terms.items() if len(held) >= least]
        if len(rich) >= CONCEPTS or (least == 2 and len(rich) >= LEAST_CONCEPTS):
            chosen = shuffled(rich, seed)[:CONCEPTS]
            return [Group(terms[concept][0], terms[concept][:TERMS_EACH]) for concept in chosen]
    return []


def type_groups(
    terms: Mapping[str, list[str]], types: Mapping[str, Sequence[str]], seed: int
) -> list[Group]:
    """Concepts of several semantic types, each by its first term, for the papers' figure 3.

    The types of the paper come first, then the most frequent ones. A concept of several of the
    chosen types is left out. [] if there are fewer than two types with enough concepts.
    """
    counts = Counter(one for concept in terms for one in types.get(concept, ()))
    frequent = [one for one, count in counts.most_common() if count >= LEAST_OF_TYPE]
    chosen = [one for one in FIGURE_TYPES if one in frequent]
    chosen = [*chosen, *(one for one in frequent if one not in chosen)][:TYPES]
    members: dict[str, list[str]] = {one: [] for one in chosen}
    for concept in terms:
        own = [one for one in types.get(concept, ()) if one in members]
        if len(own) == 1:
            members[own[0]].append(concept)
    groups = [
        Group(one, [terms[concept][0] for concept in shuffled(held, seed)[:CONCEPTS_EACH]])
        for one, held in members.items()
        if len(held) >= LEAST_OF_TYPE
    ]
    return groups if len(groups) > 1 else []


def read_semantic_types(path: str | Path) -> dict[str, list[str]]:
    """The semantic types of each concept of a dataset folder; {} for any other dictionary."""
    path = Path(path)
    if not (path / "manifest.json").is_file():
        return {}
    from data_pipeline.dataset.store import open_dataset  # it imports TensorFlow

    dataset = open_dataset(path, strings=True)
    names = [bare_type(one) for one in dataset.manifest["semantic_types"]]
    held = np.split(dataset.types, dataset.type_start[1:-1])
    return {
        cui: [names[one] for one in numbers]
        for cui, numbers in zip(dataset.cuis or [], held, strict=True)
        if len(numbers)
    }
