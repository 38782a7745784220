"""What people decided on a coded list: read from the file that a review page saves, and applied."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from coder_jax.mapping.answers import Answer, Candidate, Status
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.tables.table import read_rows
from data_pipeline.process.errors import BadInput
from data_pipeline.process.suggestions import did_you_mean

ACCEPTED, REJECTED, OPEN = "accepted", "rejected", "open"
COLUMNS = ("mention", "concept", "decision", "note")  # the last one may be absent
REJECTED_IN_REVIEW = "rejected in review"  # Answer.reason
SHOWN = 5  # concepts that a message names
# The page puts ' before what a spreadsheet would compute, and before those that begin with ' and
# would then look like one that it put there (`csv.js`).
GUARDED = re.compile(r"'+[=+\-@\t\r\n]")


class Decision(NamedTuple):
    """What a person decided on a mention."""

    concept: str | None  # None: no concept of the dictionary fits
    note: str = ""


def read_decisions(path: Path) -> dict[str, Decision]:
    """The decisions of a file: mention -> Decision.

    The file is a table as `read_rows` takes it, with the columns mention, concept, decision
    (accepted, rejected, or open: a note alone) and note, in any order and among others. A ' before
    one of = + - @ at the beginning of a field is taken off.

    Raises:
      BadInput: for a file that cannot be read or lacks a column, a broken row, or two different
        decisions on one mention.
    """
    _, rows = read_rows(path)
    filled = [(line, fields) for line, fields in rows if any(map(str.strip, fields))]
    header = filled[0][1] if filled else []
    place = _places(path, header)
    decisions: dict[str, Decision] = {}
    line_of: dict[str, int] = {}
    for line, fields in filled[1:]:
        if len(fields) != len(header):
            raise BadInput(
                f"{path}:{line}: found {len(fields)} columns; expected {len(header)}, as in the "
                "header: put fields that hold a separator or a line end in double quotes"
            )
        mention, concept, decision, note = (
            "" if at is None else _unguarded(fields[at]) for at in place
        )
        if not mention.strip():
            raise BadInput(f"{path}:{line}: found no mention; expected one: take the row out")
        found = _decision(concept, decision, note, f"{path}:{line}")
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
    """BadInput if concepts that were accepted are not in the dictionary; `path` had them."""
    known = dictionary.concept_set
    missing = {
        decision.concept: mention
        for mention, decision in decisions.items()
        if decision.concept is not None and decision.concept not in known
    }
    if missing:
        shown = [f"{concept} for {mention!r}" for concept, mention in missing.items()][:SHOWN]
        more = f" and {len(missing) - SHOWN:,} more" if len(missing) > SHOWN else ""
        raise BadInput(
            f"{path}: found {', '.join(shown)}{more}, which {dictionary.source} does not have; "
            "expected concepts of the dictionary: give the one that was reviewed with, or take "
            "these rows out"
        )


def decided(
    answers: Iterable[Answer], decisions: Mapping[str, Decision], dictionary: Dictionary
) -> list[Answer]:
    """The answers with what people decided; open ones as they are.

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
    return Answer(answer.mention, Status.DECIDED, [chosen, *others])


def _places(path: Path, header: Sequence[str]) -> list[int | None]:
    """Where in a row each of COLUMNS stands."""
    names = [name.strip().casefold() for name in header]
    for name in COLUMNS:
        if names.count(name) > (1 if name in names else 0) or (
            name not in names and name != "note"
        ):
            found = ", ".join(header) or "no header"
            raise BadInput(
                f"{path}: found {found}; expected the columns {', '.join(COLUMNS)}, each once, as "
                "a review page saves them"
            )
    return [names.index(name) if name in names else None for name in COLUMNS]


def _unguarded(field: str) -> str:
    return field[1:] if GUARDED.match(field) else field


def _decision(concept: str, decision: str, note: str, place: str) -> Decision | None:
    """What a row says; None where it leaves its mention open."""
    concept, said = concept.strip(), decision.strip().casefold()
    if said not in (ACCEPTED, REJECTED, OPEN):
        known = [ACCEPTED, REJECTED, OPEN]
        raise BadInput(
            f"{place}: found the decision {decision!r}; expected {ACCEPTED}, {REJECTED} or {OPEN}"
            f"{did_you_mean(said, known)}"
        )
    if (said == ACCEPTED) != bool(concept):
        found = f"the concept {concept}" if concept else "no concept"
        other = f"one for {ACCEPTED}" if said == ACCEPTED else f"none for {said}"
        raise BadInput(f"{place}: found {found}; expected {other}: mend the row, or take it out")
    if said == OPEN:
        return None
    return Decision(concept or None, note)


def _in_words(decision: Decision) -> str:
    return REJECTED if decision.concept is None else f"{decision.concept} {ACCEPTED}"
