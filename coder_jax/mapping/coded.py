"""Answers in, the rows of a coded list out: what is written beside each mention."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from coder_jax.mapping.answers import Answer, Candidate, Status
from data_pipeline.dataset.dictionary import Dictionary

COLUMNS = {
    "concept": "identifier; empty where there is no answer",
    "preferred_name": "of the concept",
    "code": "all codes of the concept, with | between them",
    "vocabulary": "of each of these codes",
    "semantic_type": "all of the concept, with | between them",
    "matched_term": "of the dictionary, as it writes it; without an answer what was nearest",
    "similarity": "of mention and term, at most 1",
    "confidence": "how likely the answer is right, where that was measured (cutoffs.json)",
    "rank": "1 for the answer; further ones where a mention means several; with -k 3 up to 3",
    "status": "exact, near, tied, no answer or decided",
    "ties": "how many other concepts are as good",
    "reason": "why there is no answer",
}
BETWEEN = "|"


def coded_rows(
    answer: Answer,
    dictionary: Dictionary,
    k: int | None,
    vocabularies: Collection[str] | None = None,
) -> list[list[str]]:
    """The fields of COLUMNS of one mention: a row for each of up to k concepts.

    Without an answer it is one row, of what was nearest.

    Args:
      answer: with its candidates.
      dictionary: that it was found in.
      k: 1 or more; None: as many as the mention means.
      vocabularies: whose codes are wanted; None: of all.
    """
    if answer.status == Status.NO_ANSWER:
        nearest = answer.candidates[0] if answer.candidates else None
        return [_row(answer, nearest, 1, [""] * 5)]
    return [
        _row(answer, candidate, rank, _about(candidate.concept, dictionary, vocabularies))
        for rank, candidate in enumerate(answer.candidates[: k or answer.count], start=1)
    ]


def _about(concept: str, dictionary: Dictionary, vocabularies: Collection[str] | None) -> list[str]:
    about = dictionary.about(concept)
    codes = [one for one in about.codes if vocabularies is None or one[0] in vocabularies]
    return [
        concept,
        about.preferred,
        BETWEEN.join(code for _, code in codes),
        BETWEEN.join(vocabulary for vocabulary, _ in codes),
        BETWEEN.join(about.types),
    ]


def _row(answer: Answer, candidate: Candidate | None, rank: int, about: list[str]) -> list[str]:
    is_first = rank == 1
    return [
        *about,
        candidate.term if candidate else "",
        # A concept that a person chose, which was no candidate, has none.
        f"{candidate.similarity:.4f}" if candidate and not math.isnan(candidate.similarity) else "",
        f"{answer.confidence:.4f}" if is_first and answer.confidence is not None else "",
        str(rank),
        str(answer.status),
        str(answer.ties),
        answer.reason,
    ]


def in_words(answers: Sequence[Answer]) -> str:
    """How many mentions were answered how, such as "812 exact, 900 near, 288 no answer"."""
    counts = {status: sum(answer.status == status for answer in answers) for status in Status}
    return ", ".join(f"{count:,} {status}" for status, count in counts.items() if count)
