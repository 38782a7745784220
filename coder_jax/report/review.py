"""The review page, on which people check a coded list: one HTML file that works offline."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from coder_jax.mapping.coded_list import Answer, Candidate, Decision, Status
from coder_jax.report.page import fill, write_html
from data_pipeline.dataset.dictionary import Dictionary

# -------------------------------------------------------------------------------------------------
# The data of the review page: mentions with candidates, and the concepts that can be searched.

_MOST_TERMS = 150_000  # a page of some 4 MB, which a browser searches while one types


def _review_contents(
    answers: Sequence[Answer],
    dictionary: Dictionary,
    columns: Mapping[str, Sequence[str]],
    decisions: Sequence[Decision | None],
    codes: Sequence[str] | None = None,
    frequencies: Sequence[int] | None = None,
    most_terms: int = _MOST_TERMS,
) -> dict[str, Any]:
    """The data of the page, in the form that its script reads: lists, and indices into them.

    A mention that occurs several times with one code is one row, with the columns of the first; one
    of blanks alone is none. Concepts that are candidates or decided on come first, with all their
    terms. Of the others there are the preferred names and then other terms, both in the
    dictionary's order, while there are at most `most_terms` in all.

    Args:
      answers: what mapping answers.
      dictionary: has their concepts.
      columns: name -> value for each of the answers.
      decisions: on each of the answers; what the page begins with.
      codes: of each of the answers; None: the list has none.
      frequencies: how often each is used, likewise; those of a mention's rows are added.
      most_terms: names and other terms to search.
    """
    first: dict[tuple[str, str], int] = {}
    times: dict[tuple[str, str], int] = {}
    used: dict[tuple[str, str], int] = {}
    for number, answer in enumerate(answers):
        if answer.mention.strip():
            key = codes[number] if codes is not None else "", answer.mention
            first.setdefault(key, number)
            times[key] = times.get(key, 0) + 1
            if frequencies is not None:
                used[key] = used.get(key, 0) + frequencies[number]
    shown = [answers[number] for number in first.values()]
    candidates = dict.fromkeys(one.concept for answer in shown for one in answer.candidates)
    kept = [(row, decisions[number]) for row, number in enumerate(first.values())]
    made = [(row, decision) for row, decision in kept if decision is not None]
    candidates |= dict.fromkeys(concept for _, one in made for concept in one.concepts)
    terms, has_all = _terms_to_search(dictionary, list(candidates), most_terms)
    place = {concept: number for number, concept in enumerate(terms)}
    statuses = [status.value for status in Status]
    return {
        "columns": list(columns),
        "statuses": statuses,
        "rows": [
            [
                answer.mention,
                statuses.index(answer.status),
                answer.ties,
                answer.reason,
                [_candidate(one, place) for one in answer.candidates],
                [values[number] for values in columns.values()],
                times[key],
                key[0],
                None if answer.confidence is None else round(answer.confidence, 4),
                used.get(key),
            ]
            for (key, number), answer in zip(first.items(), shown, strict=True)
        ],
        "hasCodes": codes is not None,
        "decided": [
            [row, list(one.concepts), one.note, one.reviewer, one.date, one.is_open]
            for row, one in made
        ],
        "blank": len(answers) - sum(times.values()),
        "concepts": _concepts(dictionary, terms),
        "dictionary": {"concepts": len(dictionary.concept_set), "hasAllTerms": has_all},
    }


def _candidate(candidate: Candidate, place: Mapping[str, int]) -> list[Any]:
    similarity = float(candidate.similarity)
    rounded = None if math.isnan(similarity) else round(similarity, 4)
    return [place[candidate.concept], candidate.term, rounded]


def _terms_to_search(
    dictionary: Dictionary, first: Sequence[str], most: int
) -> tuple[dict[str, dict[str, None]], bool]:
    """The concepts of the page with their terms, `first` ones first; and whether all fitted."""
    found: dict[str, dict[str, None]] = {concept: {} for concept in first}
    others: dict[str, None] = {}
    for _, term, concept in dictionary.pairs():
        if concept in found:
            found[concept][term] = None
        else:
            others[concept] = None
    room = max(most - sum(map(len, found.values())), 0)
    names = {one: dictionary.about(one).preferred for one in islice(others, room)}
    found |= {concept: {name: None} for concept, name in names.items()}
    room -= len(names)
    for _, term, concept in dictionary.pairs():
        if concept in names and term not in found[concept]:
            if not room:
                return found, False
            found[concept][term] = None
            room -= 1
    return found, len(names) == len(others)


def _concepts(dictionary: Dictionary, terms: Mapping[str, Mapping[str, None]]) -> dict[str, Any]:
    """Each concept's id, name, other terms, (vocabulary, code, ...) and types, as indices."""
    vocabularies: dict[str, int] = {}
    types: dict[str, int] = {}
    about = [dictionary.about(concept) for concept in terms]
    return {
        "ids": list(terms),
        "names": [one.preferred for one in about],
        "terms": [
            [term for term in held if term != one.preferred]
            for one, held in zip(about, terms.values(), strict=True)
        ],
        "codes": [
            [
                part
                for vocabulary, code in one.codes
                for part in (vocabularies.setdefault(vocabulary, len(vocabularies)), code)
            ]
            for one in about
        ],
        "types": [[types.setdefault(kind, len(types)) for kind in one.types] for one in about],
        "vocabularies": list(vocabularies),
        "typeNames": list(types),
    }


# -------------------------------------------------------------------------------------------------
# Writes the review page.
#
# Mentions, candidates and terms are in the file as JSON, packed by gzip, in base64: browsers unpack
# it themselves, and nothing in it can be taken for HTML.

_HERE = "review"  # the folder of the template, the style and the scripts
_SCRIPTS = [
    f"{part}.js"
    for part in ("decisions", "csv", "terms", "list", "search", "filters", "detail", "review")
]


def write_review(
    out: Path,
    answers: Sequence[Answer],
    dictionary: Dictionary,
    *,
    title: str,
    encoder_line: str,
    columns: Mapping[str, Sequence[str]] | None = None,
    codes: Sequence[str] | None = None,
    frequencies: Sequence[int] | None = None,
    decisions: Sequence[Decision | None] | None = None,
    most_terms: int = _MOST_TERMS,
) -> tuple[int, int]:
    """Writes the review page of a coded list, atomically.

    What is decided stays in the browser under a hash of all that the page holds: the same list
    coded alike and written again goes on where it was.

    Args:
      out: the HTML file.
      answers: in the order of the list, each with all candidates that are to be seen.
      dictionary: in which they were found.
      title: such as the name of the list.
      encoder_line: what they were found with, for the foot of the page.
      columns: of the list, to show beside a mention: name -> value for each of the answers.
      codes: of the list, for each of the answers; None: it has none, and a mention is decided once.
      frequencies: how often each is used; the page begins with the most frequent.
      decisions: what is decided already, for each of the answers; the page begins with it.
      most_terms: of the dictionary, to search in; those of candidates count and are there.

    Returns:
      bytes of the page, and mentions on it.

    Raises:
      BadInput: if it cannot be written.
    """
    made: Sequence[Decision | None] = decisions or [None] * len(answers)
    contents = _review_contents(
        answers, dictionary, columns or {}, made, codes, frequencies, most_terms
    )
    text = json.dumps(contents, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    data = text.encode()
    page = fill(
        _HERE,
        "review.html",
        "review.css",
        _SCRIPTS,
        title=title,
        encoder_line=encoder_line,
        dictionary=dictionary.source,
        key=hashlib.sha256(data).hexdigest()[:16],
        contents=base64.b64encode(gzip.compress(data, compresslevel=6, mtime=0)).decode(),
    )
    return write_html(page, out, "--review"), len(contents["rows"])
