"""Terms with their vectors in; the nearest other terms of each out, as data for the explorer."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coder_jax.encoding.search import nearest_others
from data_pipeline.dataset.dictionary import Dictionary


@dataclass(frozen=True)
class Entries:
    """What the explorer knows: distinct terms, each with its concepts.

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
    `packed` numbers: of 40,000 terms they take half the space that digits would.
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
        # A single type, as an ontology without types has for all, tells nothing.
        "types": [
            [type_number[one] for one in held] if len(type_names) > 1 else []
            for held in entries.types
        ],
        "languages": coded(languages),
        "vocabularies": coded(entries.vocabularies),
        "k": index.shape[1],
        "neighbours": packed(index, np.uint16 if len(index) <= 1 << 16 else np.uint32),
        "cosines": packed(np.rint(1000 * cosine), np.int16),
    }


def packed(numbers: np.ndarray, kind: type[np.integer]) -> dict[str, str]:
    """Whole numbers for JSON: their bytes in base64, the lowest first, and JavaScript's array."""
    least = np.dtype(kind).newbyteorder("<")
    name = f"{np.dtype(kind).name.capitalize()}Array"  # such as Uint16Array
    return {"array": name, "base64": base64.b64encode(numbers.astype(least).tobytes()).decode()}


def coded(values: Sequence[tuple[str, ...]] | None) -> dict[str, Any] | None:
    """Tuples of strings that repeat as distinct names, sorted, and the places of each tuple.

    None where there is a single name: there is nothing to choose.
    """
    names = sorted({one for held in values or () for one in held})
    if values is None or len(names) < 2:
        return None
    place = {name: number for number, name in enumerate(names)}
    return {"names": names, "of": [[place[one] for one in held] for held in values]}
