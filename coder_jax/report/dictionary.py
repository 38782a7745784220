"""Dictionary terms in a report: the choice of terms, their neighbours, their maps."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import orthogonal_procrustes

from coder_jax.encoding.search import nearest_others
from coder_jax.evaluation.concepts import bare_type
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process import BadInput

# -------------------------------------------------------------------------------------------------
# The terms and concepts of a dictionary that a report shows, chosen by a seed.
#
# Concepts are taken in the order of a hash of their identifier, whole: so the choice does not
# depend on the order of the dictionary's rows, and a term keeps its synonyms beside it.

# The semantic types of the CODER paper's figure 3.
_FIGURE_TYPES = (
    "Sign or Symptom",
    "Disease or Syndrome",
    "Neoplastic Process",
    "Finding",
    "Injury or Poisoning",
)
_CONCEPTS, _TERMS_EACH = 24, 12  # in the map of concepts
_TYPES, _CONCEPTS_EACH = 6, 120  # in the map of semantic types
_LEAST_CONCEPTS, _LEAST_OF_TYPE = 3, 10  # for a map to be worth a look


@dataclass(frozen=True)
class MapGroup:
    """The points of one colour on a map: a concept's terms, or a type's concepts."""

    name: str
    terms: list[str]


@dataclass(frozen=True)
class ShownTerms:
    """A dictionary and its part that a report shows.

    Attributes:
      types: semantic types of its concepts, as far as they are known.
      by_concept, by_type: the groups of the two maps; [] where there are too few terms for one.
      concepts: those in the explorer.
      total: distinct terms of the dictionary.
    """

    dictionary: Dictionary
    types: dict[str, list[str]]
    by_concept: list[MapGroup]
    by_type: list[MapGroup]
    concepts: list[str]
    total: int

    def note(self, terms: int) -> str:
        """The number of terms in the explorer, in words."""
        source = self.dictionary.source
        if terms == self.total:
            return f"All {terms:,} distinct terms of {source}."
        return (
            f"{terms:,} of the {self.total:,} distinct terms of {source}: all terms of "
            f"{len(self.concepts):,} concepts drawn at random. Other terms cannot be found here, "
            "and neighbours are only those among these; --terms says how many the report holds."
        )


def choose_shown_terms(dictionary: Dictionary, *, most_terms: int, seed: int) -> ShownTerms:
    """Chooses the part of a dictionary to show.

    Args:
      dictionary: with all its terms.
      most_terms: in the explorer.
      seed: of the choice.

    Raises:
      BadInput: a dictionary of a single term.
    """
    total = len(set(dictionary.terms))
    if total < 2:
        raise BadInput(
            f"{dictionary.source}: found a single term; expected two or more, to compare them"
        )
    terms = _terms_by_concept(dictionary)
    held = _semantic_types(dictionary)
    return ShownTerms(
        dictionary,
        held,
        _concept_groups(terms, seed),
        _type_groups(terms, held, seed),
        _whole_concepts(terms, most_terms, seed),
        total,
    )


def _terms_by_concept(dictionary: Dictionary) -> dict[str, list[str]]:
    """The distinct terms of each concept, in the dictionary's order."""
    held: dict[str, dict[str, None]] = {}
    for _, term, concept in dictionary.pairs():
        held.setdefault(concept, {})[term] = None
    return {concept: list(terms) for concept, terms in held.items()}


def shuffled(concepts: Sequence[str], seed: int) -> list[str]:
    """Identifiers, ordered by their hash with a seed."""
    return sorted(concepts, key=lambda cui: hashlib.sha256(f"{seed}\t{cui}".encode()).digest())


def _whole_concepts(terms: Mapping[str, list[str]], most_terms: int, seed: int) -> list[str]:
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


def _concept_groups(terms: Mapping[str, list[str]], seed: int) -> list[MapGroup]:
    """Concepts with many terms each, for figure 2 of the CODER papers; [] if there are too few."""
    for least in (6, 5, 4, 3, 2):
        rich = [concept for concept, held in terms.items() if len(held) >= least]
        if len(rich) >= _CONCEPTS or (least == 2 and len(rich) >= _LEAST_CONCEPTS):
            chosen = shuffled(rich, seed)[:_CONCEPTS]
            return [MapGroup(terms[concept][0], terms[concept][:_TERMS_EACH]) for concept in chosen]
    return []


def _type_groups(
    terms: Mapping[str, list[str]], types: Mapping[str, Sequence[str]], seed: int
) -> list[MapGroup]:
    """Concepts of several semantic types, each by its first term, for the papers' figure 3.

    The types of the paper come first, then the most frequent ones. A concept of several of the
    chosen types is left out. [] if there are fewer than two types with enough concepts.
    """
    counts = Counter(one for concept in terms for one in types.get(concept, ()))
    frequent = [one for one, count in counts.most_common() if count >= _LEAST_OF_TYPE]
    chosen = [one for one in _FIGURE_TYPES if one in frequent]
    chosen = [*chosen, *(one for one in frequent if one not in chosen)][:_TYPES]
    members: dict[str, list[str]] = {one: [] for one in chosen}
    for concept in terms:
        own = [one for one in types.get(concept, ()) if one in members]
        if len(own) == 1:
            members[own[0]].append(concept)
    groups = [
        MapGroup(one, [terms[concept][0] for concept in shuffled(held, seed)[:_CONCEPTS_EACH]])
        for one, held in members.items()
        if len(held) >= _LEAST_OF_TYPE
    ]
    return groups if len(groups) > 1 else []


def _semantic_types(dictionary: Dictionary) -> dict[str, list[str]]:
    """The semantic types of each concept, as far as the dictionary says them."""
    held = {one: dictionary.about(one).types for one in dictionary.concept_set}
    return {concept: [bare_type(one) for one in types] for concept, types in held.items() if types}


# -------------------------------------------------------------------------------------------------
# Data of the explorer: the nearest other terms of each term.


@dataclass(frozen=True)
class Entries:
    """The explorer's distinct terms, each with its concepts.

    Attributes:
      terms: N distinct strings.
      concepts_of: for each term the indices of its concepts.
      concepts: C identifiers.
      types: semantic types of each concept; an empty list where there are none.
      languages, vocabularies: of each term its first language, and those that have it for any of
        its concepts, where the dictionary tells.
    """

    terms: list[str]
    concepts_of: list[list[int]]
    concepts: list[str]
    types: list[list[str]]
    languages: list[str] | None
    vocabularies: list[tuple[str, ...]] | None


def gather_entries(
    dictionary: Dictionary, chosen: Sequence[str], types: Mapping[str, Sequence[str]]
) -> Entries:
    """The terms of the chosen concepts; a term of several concepts or languages is there once.

    Args:
      dictionary: rows of terms and concepts.
      chosen: concepts.
      types: semantic types of concepts, as far as they are known.
    """
    number = {concept: place for place, concept in enumerate(chosen)}
    concepts_of: dict[str, list[int]] = {}
    rows_of: dict[str, list[int]] = {}
    for row, term, concept in dictionary.pairs():
        if concept not in number:
            continue
        held = concepts_of.setdefault(term, [])
        if number[concept] not in held:
            held.append(number[concept])
        rows_of.setdefault(term, []).append(row)
    languages, vocabularies = dictionary.languages, dictionary.vocabularies
    return Entries(
        list(concepts_of),
        list(concepts_of.values()),
        list(chosen),
        [list(types.get(concept, ())) for concept in chosen],
        languages and [languages[rows[0]] for rows in rows_of.values()],
        vocabularies
        and [
            tuple({one: None for row in rows for one in vocabularies[row]})
            for rows in rows_of.values()
        ],
    )


def explorer_data(entries: Entries, vectors_ND: np.ndarray, k: int) -> dict[str, Any]:
    """The explorer's data as the page reads it (`page/report.js`).

    Lists by term; neighbours and cosines, in thousandths, one after the other, k for each term, as
    `_packed` numbers: of 40,000 terms they take half the space that digits would.
    """
    cosine, index = nearest_others(vectors_ND, k)
    type_names = list(dict.fromkeys(one for held in entries.types for one in held))
    type_number = {one: place for place, one in enumerate(type_names)}
    languages = None if entries.languages is None else [(one,) for one in entries.languages]
    return {
        "terms": entries.terms,
        "conceptsOf": entries.concepts_of,
        "concepts": entries.concepts,
        "typeNames": type_names,
        # A single type, as in an ontology without types, is not shown.
        "types": [
            [type_number[one] for one in held] if len(type_names) > 1 else []
            for held in entries.types
        ],
        "languages": _coded(languages),
        "vocabularies": _coded(entries.vocabularies),
        "k": index.shape[1],
        "neighbours": _packed(index, np.uint16 if len(index) <= 1 << 16 else np.uint32),
        "cosines": _packed(np.rint(1000 * cosine), np.int16),
    }


def _packed(numbers: np.ndarray, kind: type[np.integer]) -> dict[str, str]:
    """Whole numbers for JSON: their bytes in base64, the lowest first, and JavaScript's array."""
    least = np.dtype(kind).newbyteorder("<")
    name = f"{np.dtype(kind).name.capitalize()}Array"  # such as Uint16Array
    return {"array": name, "base64": base64.b64encode(numbers.astype(least).tobytes()).decode()}


def _coded(values: Sequence[tuple[str, ...]] | None) -> dict[str, Any] | None:
    """Tuples of strings that repeat as distinct names, sorted, and the places of each tuple.

    None where there is a single name: there is nothing to choose.
    """
    names = sorted({one for held in values or () for one in held})
    if values is None or len(names) < 2:
        return None
    place = {name: number for number, name in enumerate(names)}
    return {"names": names, "of": [[place[one] for one in held] for held in values]}


# -------------------------------------------------------------------------------------------------
# Maps: t-SNE of groups of terms in two dimensions, encoders side by side.
#
# Figures 2 and 3 of the CODER papers (section 5.2), whose groups are concepts and semantic types.
# The number below each map is measured on the vectors themselves, which a map only hints at.

_PERPLEXITY = 30.0
LEAST_POINTS = 8


@dataclass(frozen=True)
class Map:
    """One encoder's map.

    Attributes:
      encoder: its name in the report.
      places: float64 [N, 2], the largest distance from the middle is 1.
      near: share of the N terms whose nearest other term, by cosine, is of their group.
    """

    encoder: str
    places: np.ndarray
    near: float


@dataclass(frozen=True)
class MapFigure:
    """The same terms on the map of each encoder."""

    groups: list[MapGroup]
    maps: list[Map]

    @property
    def terms(self) -> list[str]:
        """The N terms, group by group."""
        return [term for group in self.groups for term in group.terms]

    @property
    def group_of(self) -> np.ndarray:
        """int64 [N], the group of each term."""
        return np.repeat(np.arange(len(self.groups)), [len(group.terms) for group in self.groups])


def draw_maps(groups: list[MapGroup], vectors: Sequence[tuple[str, np.ndarray]]) -> MapFigure:
    """The maps of all encoders; each is rotated to match the first as well as possible.

    Args:
      groups: with N terms in all.
      vectors: (name of an encoder, its vectors float [N, D] of unit length).
    """
    figure = MapFigure(groups, [])
    for name, vectors_ND in vectors:
        places = _project(vectors_ND)
        if figure.maps:
            places = places @ orthogonal_procrustes(places, figure.maps[0].places)[0]
        figure.maps.append(Map(name, places, _same_group_nearest(vectors_ND, figure.group_of)))
    return figure


def _project(vectors_ND: np.ndarray) -> np.ndarray:
    """t-SNE (van der Maaten and Hinton 2008) of vectors float [N, D]: float64 [N, 2].

    The middle is 0, the largest distance from it 1. The same vectors give the same picture: it
    begins with principal components and runs on one thread, as sums over threads may differ in
    their last bits, which t-SNE makes into other pictures.
    """
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    if np.allclose(vectors_ND, vectors_ND[0]):  # no direction to begin with
        return np.zeros((len(vectors_ND), 2))
    perplexity = min(_PERPLEXITY, (len(vectors_ND) - 1) / 3)
    tsne = TSNE(perplexity=perplexity, init="pca", random_state=0)
    with threadpool_limits(1):
        places = tsne.fit_transform(vectors_ND.astype(np.float64)).astype(np.float64)
    places -= (places.min(axis=0) + places.max(axis=0)) / 2
    return places / max(float(np.linalg.norm(places, axis=1).max()), 1e-12)


def _same_group_nearest(vectors_ND: np.ndarray, group_of: np.ndarray) -> float:
    """Share of the N vectors whose nearest other one, by cosine, is of their group.

    Of equally near ones the first counts.
    """
    other = nearest_others(vectors_ND, 1)[1][:, 0]
    return float((group_of[other] == group_of).mean())
