"""Coded lists: answers to mentions, their rows in a table, and people's decisions on them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.tables import read_rows
from data_pipeline.process import BadInput, did_you_mean

# -------------------------------------------------------------------------------------------------
# The answer to a mention: a status and candidate concepts.

# The sources of candidates.
KINDS = ("vectors", "characters", "both")


class Status(StrEnum):
    """The kind of answer that a mention got."""

    EXACT = "exact"  # the mention is a string of the dictionary, case and blanks aside
    MISSPELT = "misspelt"  # a string of the dictionary with one typing error
    NEAR = "near"  # the nearest term
    DOUBTFUL = "doubtful"  # the nearest term, by its confidence more likely wrong than right
    TIED = "tied"  # the first of several concepts that are equally near, or have the same string
    DIFFERS = "differs"  # the nearest term, which contradicts the mention: another side or strength
    CONTEXT = "in context"  # the nearest term of what is denied, suspected, of the family, past
    NO_ANSWER = "no answer"
    DECIDED = "decided"  # a person said so


class Candidate(NamedTuple):
    """A candidate concept, with its best term."""

    concept: str
    term: str  # as the dictionary writes it
    similarity: float  # of the mention and its terms, at most 1: see `candidates.Candidates`
    differs: tuple[str, ...] = ()  # kinds of values in which it contradicts the mention
    lost: tuple[str, ...] = ()  # kinds of values of the mention that it does not have


@dataclass(frozen=True)
class Answer:
    """What a mention is mapped to.

    Attributes:
      mention: as it was given.
      status: how it was answered.
      candidates: best first. The first one is the answer, unless the status is NO_ANSWER: then they
        are what was nearest, if anything was looked up.
      ties: how many other concepts are as good as the first.
      margin: by how much the similarity of the first is larger than the second's.
      confidence: how likely the nearest concept is the right one, in [0, 1], as measured on
        mentions whose concept is known; None where nothing was measured, or the string is the same.
      reason: why there is no answer, or what to check of one, in a few words; else "".
      count: so many of the candidates are the answer: a mention may mean several concepts.
      context: what the mention says of the name in it, such as ("negated",).
    """

    mention: str
    status: Status
    candidates: list[Candidate]
    ties: int = 0
    margin: float = 0.0
    confidence: float | None = None
    reason: str = ""
    count: int = 1
    context: tuple[str, ...] = ()

    @property
    def concept(self) -> str | None:
        """The concept that the mention is mapped to."""
        return None if self.status == Status.NO_ANSWER else self.candidates[0].concept


# -------------------------------------------------------------------------------------------------
# The columns of a coded list, which are written beside each mention.

CODED_COLUMNS = {
    "concept": "identifier; empty where there is no answer",
    "preferred_name": "of the concept",
    "code": "all codes of the concept, with | between them",
    "vocabulary": "of each of these codes",
    "semantic_type": "all of the concept, with | between them",
    "matched_term": "of the dictionary, as it writes it; without an answer what was nearest",
    "similarity": "of mention and term, at most 1",
    "confidence": "how likely the answer is right, where that was measured (cutoffs.json)",
    "rank": "1 for the answer; further ones where a mention means several; with -k 3 up to 3",
    "status": "exact, misspelt, near, doubtful, tied, differs, in context, no answer or decided",
    "ties": "how many other concepts are as good",
    "reason": "why there is no answer, or what to check: differs: strength, lost: side",
    "context": "negated, possible, hypothetical, family, history, with | between them",
}
CODED_NUMBERS = ("similarity", "confidence", "rank", "ties")  # of these columns
_BETWEEN = "|"


def coded_rows(
    answer: Answer,
    dictionary: Dictionary,
    k: int | None,
    vocabularies: Collection[str] | None = None,
) -> list[list[str]]:
    """The fields of COLUMNS for one mention, with a row for each of up to k concepts.

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


def coded_fields(
    answer: Answer,
    dictionary: Dictionary,
    k: int | None,
    vocabularies: Collection[str] | None = None,
) -> list[dict[str, str | int | float | None]]:
    """As `coded_rows`, for programs: column -> value, the mention first; numbers are numbers, or
    None."""
    found: list[dict[str, str | int | float | None]] = []
    for row in coded_rows(answer, dictionary, k, vocabularies):
        values: dict[str, str | int | float | None] = {"mention": answer.mention}
        values |= dict(zip(CODED_COLUMNS, row, strict=True))
        for name in CODED_NUMBERS:
            text = str(values[name])
            values[name] = (int(text) if text.isdigit() else float(text)) if text else None
        found.append(values)
    return found


def _about(concept: str, dictionary: Dictionary, vocabularies: Collection[str] | None) -> list[str]:
    about = dictionary.about(concept)
    codes = [one for one in about.codes if vocabularies is None or one[0] in vocabularies]
    return [
        concept,
        about.preferred,
        _BETWEEN.join(code for _, code in codes) if any(code for _, code in codes) else "",
        _BETWEEN.join(vocabulary for vocabulary, _ in codes),
        _BETWEEN.join(about.types),
    ]


def _row(answer: Answer, candidate: Candidate | None, rank: int, about: list[str]) -> list[str]:
    is_first = rank == 1
    return [
        *about,
        candidate.term if candidate else "",
        # A concept chosen by a person that was not a candidate has no similarity.
        f"{candidate.similarity:.4f}" if candidate and not math.isnan(candidate.similarity) else "",
        f"{answer.confidence:.4f}" if is_first and answer.confidence is not None else "",
        str(rank),
        # Behind the answer, and those that are as good, are terms that are only near.
        str(answer.status if rank <= max(answer.count, 1 + answer.ties) else Status.NEAR),
        str(answer.ties),
        answer.reason,
        _BETWEEN.join(answer.context),
    ]


def in_words(answers: Sequence[Answer]) -> str:
    """Counts of answers by status, such as "812 exact, 900 near, 288 no answer"."""
    counts = {status: sum(answer.status == status for answer in answers) for status in Status}
    return ", ".join(f"{count:,} {status}" for status, count in counts.items() if count)


# -------------------------------------------------------------------------------------------------
# People's decisions on a coded list: read from the file of a review page, and applied.

_ACCEPTED, _REJECTED, _OPEN = "accepted", "rejected", "open"
CURATED, NO_TERM = "semapv:ManualMappingCuration", "sssom:NoTermFound"  # in SSSOM
WITHOUT_PREFIX = "concept"  # the prefix there of concepts that have none of their own
REJECTED_IN_REVIEW = "rejected in review"  # Answer.reason
_SHOWN = 5  # concepts that a message names
# The page puts ' before what a spreadsheet would compute, and before those that begin with ' and
# would then look like one that it put there (`csv.js`).
_GUARDED = re.compile(r"'+[=+\-@\t\r\n]")


class Decision(NamedTuple):
    """A person's decision on a mention."""

    concept: str | None  # None: no concept of the dictionary fits
    note: str = ""


def read_decisions(path: Path, encoding: str | None = None) -> dict[str, Decision]:
    """The decisions of a file: mention -> Decision.

    The file is a table as `read_rows` takes it, with the columns mention, concept, decision
    (accepted, rejected, or open: a note alone) and note, in any order and among others. A ' before
    one of = + - @ at the beginning of a field is taken off. Usagi's file is one, too, whose rows
    are decided if they are APPROVED, and so is SSSOM, where they are curated by hand. `encoding` is
    of a file that is not UTF-8, as Excel may save it.

    Raises:
      BadInput: for a file that cannot be read or lacks a column, a broken row, or two different
        decisions on one mention.
    """
    _, rows = read_rows(path, otherwise=encoding)
    filled = [(line, fields) for line, fields in rows if any(map(str.strip, fields))]
    header = filled[0][1] if filled else []
    names = [name.strip().casefold() for name in header]
    needed = next((one for one in _READERS if set(one) <= set(names)), ())
    if not needed or any(names.count(name) > 1 for name in (*needed, "note")):
        raise BadInput(
            f"{path}: found {', '.join(header) or 'no header'}; expected the columns mention, "
            "concept, decision, note, each once, as a review page saves them, or a file of Usagi "
            "or SSSOM"
        )
    decisions: dict[str, Decision] = {}
    line_of: dict[str, int] = {}
    for line, fields in filled[1:]:
        if len(fields) != len(header):
            raise BadInput(
                f"{path}:{line}: found {len(fields)} columns; expected {len(header)}, as in the "
                "header: put fields that hold a separator or a line end in double quotes"
            )
        row = dict(zip(names, map(_unguarded, fields), strict=True))
        mention = row[needed[0]]
        if not mention.strip():
            raise BadInput(f"{path}:{line}: found no mention; expected one: take the row out")
        found = _decision(*_READERS[needed](row), f"{path}:{line}")
        if found is None:
            continue
        earlier = decisions.setdefault(mention, found)
        line_of.setdefault(mention, line)
        if earlier.concept != found.concept:
            raise BadInput(
                f"{path}:{line}: found {_in_words(found)} for {mention!r}, and in line "
                f"{line_of[mention]} {_in_words(earlier)}; expected one decision for each mention: "
                "take one of the rows out"
            )
        decisions[mention] = Decision(found.concept, earlier.note or found.note)
    return decisions


def check_decisions(decisions: Mapping[str, Decision], dictionary: Dictionary, path: Path) -> None:
    """Raise BadInput if an accepted concept is not in the dictionary; `path` is the file."""
    known = dictionary.concept_set
    missing = {
        decision.concept: mention
        for mention, decision in decisions.items()
        if decision.concept is not None and decision.concept not in known
    }
    if missing:
        shown = [f"{concept} for {mention!r}" for concept, mention in missing.items()][:_SHOWN]
        more = f" and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""
        raise BadInput(
            f"{path}: found {', '.join(shown)}{more}, which {dictionary.source} does not have; "
            "expected concepts of the dictionary: give the one that was reviewed with, or take "
            "these rows out"
        )


def decided(
    answers: Iterable[Answer], decisions: Mapping[str, Decision], dictionary: Dictionary
) -> list[Answer]:
    """The answers after people's decisions; open ones are unchanged.

    An accepted concept is the first candidate, before the others, with its term and similarity
    where it was among them. Where it was not, its term is the preferred name and its similarity is
    not a number. Of a rejected one the candidates stay as what was nearest.

    Args:
      answers: what mapping answers.
      decisions: by mention, letter by letter; `check_decisions` has passed them.
      dictionary: has the accepted concepts.
    """
    return [
        _decided(answer, decisions[answer.mention], dictionary)
        if answer.mention in decisions
        else answer
        for answer in answers
    ]


def _decided(answer: Answer, decision: Decision, dictionary: Dictionary) -> Answer:
    concept = decision.concept
    if concept is None:
        return replace(answer, status=Status.NO_ANSWER, ties=0, reason=REJECTED_IN_REVIEW)
    unseen = Candidate(concept, dictionary.about(concept).preferred, math.nan)
    chosen = next((one for one in answer.candidates if one.concept == concept), unseen)
    others = [one for one in answer.candidates if one.concept != concept]
    return Answer(answer.mention, Status.DECIDED, [chosen, *others], context=answer.context)


def _of_review(row: Mapping[str, str]) -> tuple[str, str, str]:
    return row["concept"], row["decision"], row.get("note", "")


def _of_usagi(row: Mapping[str, str]) -> tuple[str, str, str]:
    """Usagi's own file: what is APPROVED, where the concept 0 is none."""
    note = row.get("comment", "")
    if row["mappingstatus"].strip().upper() != "APPROVED":
        return "", _OPEN, note
    concept = row["conceptid"].strip()
    return ("", _REJECTED, note) if concept in ("", "0") else (concept, _ACCEPTED, note)


def _of_sssom(row: Mapping[str, str]) -> tuple[str, str, str]:
    """SSSOM: what was curated by hand, and is not denied."""
    note, target = row.get("comment", ""), row["object_id"].strip()
    is_match = row["predicate_id"].strip().endswith("Match") and not row.get("predicate_modifier")
    if row["mapping_justification"].strip() != CURATED or not is_match:
        return "", _OPEN, note
    if target == NO_TERM:
        return "", _REJECTED, note
    return target.removeprefix(f"{WITHOUT_PREFIX}:"), _ACCEPTED, note


# How a row with these columns, the mention first, tells its concept, decision and note.
_READERS: dict[tuple[str, ...], Callable[[Mapping[str, str]], tuple[str, str, str]]] = {
    ("sourcename", "conceptid", "mappingstatus"): _of_usagi,
    ("subject_label", "object_id", "predicate_id", "mapping_justification"): _of_sssom,
    ("mention", "concept", "decision"): _of_review,
}


def _unguarded(field: str) -> str:
    return field[1:] if _GUARDED.match(field) else field


def _decision(concept: str, decision: str, note: str, place: str) -> Decision | None:
    """The decision in a row; None if it leaves its mention open."""
    concept, said = concept.strip(), decision.strip().casefold()
    if said not in (_ACCEPTED, _REJECTED, _OPEN):
        known = [_ACCEPTED, _REJECTED, _OPEN]
        raise BadInput(
            f"{place}: found the decision {decision!r}; expected {_ACCEPTED}, {_REJECTED} or "
            f"{_OPEN}{did_you_mean(said, known)}"
        )
    if (said == _ACCEPTED) != bool(concept):
        found = f"the concept {concept}" if concept else "no concept"
        other = f"one for {_ACCEPTED}" if said == _ACCEPTED else f"none for {said}"
        raise BadInput(f"{place}: found {found}; expected {other}: mend the row, or take it out")
    if said == _OPEN:
        return None
    return Decision(concept or None, note)


def _in_words(decision: Decision) -> str:
    return _REJECTED if decision.concept is None else f"{decision.concept} {_ACCEPTED}"
