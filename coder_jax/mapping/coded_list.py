"""Coded lists: answers to mentions, their rows in a table, and people's decisions on them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.tables import (
    CONCEPT_SEPARATOR,
    Rows,
    read_rows,
    split_concepts,
    unguarded,
)
from data_pipeline.process import BadInput, did_you_mean, tell

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
    BROADER = "broader"  # a concept that is broader than what is meant; none is the same
    CONTEXT = "in context"  # the nearest term of what is denied, suspected, of the family, past
    NO_ANSWER = "no answer"
    DECIDED = "decided"  # a person said so
    LEARNT = "learnt"  # as EXACT or MISSPELT, of a name that was learnt from people's decisions


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
    "status": "exact, misspelt, near, doubtful, tied, differs, broader, in context, learnt, no "
    "answer or decided",
    "ties": "how many other concepts are as good",
    "reason": "why there is no answer, or what to check: differs: strength, lost: side, learnt",
    "context": "negated, possible, hypothetical, family, history, with | between them",
}
CODED_NUMBERS = ("similarity", "confidence", "rank", "ties")  # of these columns
# Further ones, where people's decisions are known.
DECIDED_COLUMNS = {
    "decided_by": "with --decided: who decided",
    "decided_on": "with --decided: when, such as 2026-03-01",
    "decision_note": "with --decided: the note, also of what is still open",
}
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
      k: 1 or more; None: as many as the mention means. What a person decided has all its concepts.
      vocabularies: whose codes are wanted; None: of all.
    """
    if answer.status == Status.NO_ANSWER:
        nearest = answer.candidates[0] if answer.candidates else None
        return [_row(answer, nearest, 1, [""] * 5)]
    most = k or answer.count
    if answer.status == Status.DECIDED:
        most = max(most, answer.count)
    return [
        _row(answer, candidate, rank, _about(candidate.concept, dictionary, vocabularies))
        for rank, candidate in enumerate(answer.candidates[:most], start=1)
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


def decided_rows(answer: Answer, decision: Decision | None, rows: int) -> list[list[str]]:
    """The fields of DECIDED_COLUMNS for the rows of `coded_rows`: empty behind the answer."""
    said = [decision.reviewer, decision.date, decision.note] if decision else [""] * 3
    return [said if place < answer.count else [""] * 3 for place in range(rows)]


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


# How the column of a list is called that says how often a term is used, without case.
_FREQUENCIES = (
    *("sourcefrequency", "frequency", "freq", "count", "counts", "n", "anzahl", "häufigkeit"),
    *("haeufigkeit", "fallzahl", "nombre", "fréquence", "frequence", "frecuencia", "frequenza"),
)
_THOUSANDS = re.compile(r"([1-9]\d{0,2}(?:[.,'’ ]\d{3})+)(?:[.,]0{1,2})?")


def find_frequencies(columns: Mapping[str, Sequence[str]]) -> str | None:
    """The column that says how often each term is used: called so, and mostly numbers."""
    for name, values in columns.items():
        numbers = sum(frequency_of(one) is not None for one in values)
        others = sum(bool(one.strip()) for one in values) - numbers
        if name.strip().casefold() in _FREQUENCIES and numbers > others:
            return name
    return None


def frequency_of(text: str) -> int | None:
    """How often a term is used: 1250, 1.250 and 1,250.00 are the same; None for no number."""
    text = " ".join(text.split())  # with narrow blanks, too
    if found := _THOUSANDS.fullmatch(text):
        text = re.sub(r"\D", "", found[1])
    if re.fullmatch(r"\d+(?:[.,]0+)?", text):
        return int(re.split("[.,]", text)[0])
    return None


def in_words(answers: Sequence[Answer]) -> str:
    """Counts of answers by status, such as "812 exact, 900 near, 288 no answer"."""
    counts = {status: sum(answer.status == status for answer in answers) for status in Status}
    return ", ".join(f"{count:,} {status}" for status, count in counts.items() if count)


# -------------------------------------------------------------------------------------------------
# People's decisions on a coded list: read from the file of a review page, and applied.

_ACCEPTED, _REJECTED, _OPEN = "accepted", "rejected", "open"
CURATED, NO_TERM = "semapv:ManualMappingCuration", "sssom:NoTermFound"  # in SSSOM
CODED_PREFIX = "coded_"  # of the added columns, where a list has one of such a name itself
WITHOUT_PREFIX = "concept"  # the prefix there of concepts that have none of their own
TOOL = "coder_jax"  # stands in other programs' files for a reviewer who gave no name
REJECTED_IN_REVIEW = "rejected in review"  # Answer.reason
_SHOWN = 5  # concepts or decisions that a message names
_LAST = 10**14  # milliseconds since 1970, in which Usagi counts


class Decision(NamedTuple):
    """A person's decision on a local term, or a note on one that is open."""

    concepts: tuple[str, ...]  # that it means, mostly one; none: no concept of the dictionary fits
    note: str = ""
    reviewer: str = ""  # who decided
    date: str = ""  # when, such as 2026-03-01
    is_open: bool = False  # nothing is decided, and `concepts` is empty


@dataclass(frozen=True)
class Decisions:
    """People's decisions on the local terms of a list, and their notes on open ones.

    A local term is a code and a text, letter by letter: "AP" may be a laboratory test and a
    diagnosis. Where the list or the file has no codes, it is the text alone.

    Attributes:
      of: (code, mention) -> the decision; codes are "" where the file has none.
      source: the file.
    """

    of: Mapping[tuple[str, str], Decision]
    source: str | Path = ""

    def on(self, mention: str, code: str | None) -> Decision | None:
        """The decision on a local term, or the note on it; None where there is neither.

        Args:
          mention: the text.
          code: of the list; None where the list has no codes.

        Raises:
          BadInput: codes are needed to tell two decisions on one text apart.
        """
        if code is not None and self._has_codes:
            return self.of.get(self._key(mention, code))
        codes = self._codes_of.get(mention, [])
        codes = [one for one in codes if not self.of[one, mention].is_open] or codes
        found = [self.of[one, mention] for one in codes]
        for one, other in zip(codes[1:], found[1:], strict=True):
            if other.concepts != found[0].concepts:
                raise BadInput(
                    f"{self.source}: found {_in_words(found[0])} for {mention!r} of the code "
                    f"{codes[0]}, and {_in_words(other)} for that of {one}; expected a list with "
                    "codes: give --code-column"
                )
        return found[0] if found else None

    def tell_unused(self, terms: Iterable[tuple[str, str | None]]) -> None:
        """Says how many decisions are on none of these local terms (mention, code)."""
        unused = dict(made := self.made)
        if not made and self.source:
            tell(
                f"warning: {self.source}: found no decision; expected rows that are accepted or "
                "rejected (of Usagi APPROVED; of SSSOM semapv:ManualMappingCuration)"
            )
        for mention, code in terms:
            if code is not None and self._has_codes:
                unused.pop(self._key(mention, code), None)
            else:
                for one in self._codes_of.get(mention, []):
                    unused.pop((one, mention), None)
        if unused:
            shown = [_named(*key) for key in sorted(unused, key=lambda key: key[::-1])[:_SHOWN]]
            what = "codes and mentions" if self._has_codes else "mentions"
            tell(
                f"warning: {self.source}: {len(unused):,} of {len(made):,} decisions are on "
                f"{what} that the list does not have, letter by letter: {', '.join(shown)}"
                + (", ..." if len(unused) > _SHOWN else "")
            )

    def names(self, terms: Iterable[tuple[str, str | None]] = ()) -> list[tuple[str, str]]:
        """(mention, concept) of the texts that mean one concept, whatever their code.

        A text on which decisions differ, or that means several concepts, is none of them; nor is
        one that the list has with a code on which nobody decided.

        Args:
          terms: (mention, code) of the list; None where it has no codes.
        """
        undecided = {
            mention
            for mention, code in terms
            if code is not None and self._has_codes and self._key(mention, code) not in self.made
        }
        meant: dict[str, set[tuple[str, ...]]] = {}
        for (_, mention), decision in self.made.items():
            if mention not in undecided:
                meant.setdefault(mention, set()).add(decision.concepts)
        one = {mention: found.pop() for mention, found in meant.items() if len(found) == 1}
        return [(mention, concepts[0]) for mention, concepts in one.items() if len(concepts) == 1]

    def _key(self, mention: str, code: str) -> tuple[str, str]:
        """What `of` has it under: files of other programs have the mention for an empty code."""
        bare = not code.strip() and (code, mention) not in self.of
        return (mention if bare else code), mention

    @cached_property
    def made(self) -> dict[tuple[str, str], Decision]:
        """Without the notes on what is open."""
        return {key: one for key, one in self.of.items() if not one.is_open}

    @cached_property
    def _has_codes(self) -> bool:
        return any(code for code, _ in self.of)

    @cached_property
    def _codes_of(self) -> dict[str, list[str]]:
        """The codes with which a mention is decided on."""
        codes: dict[str, list[str]] = {}
        for code, mention in self.of:
            codes.setdefault(mention, []).append(code)
        return codes


class _Said(NamedTuple):
    """What a row of a file says."""

    code: str
    concept: str  # several with | between them
    decision: str
    note: str
    reviewer: str
    date: str


def read_decisions(
    path: Path,
    encoding: str | None = None,
    *,
    column: str = "mention",
    code_column: str | None = None,
    prefix: str = "",
) -> Decisions:
    """The decisions of a file.

    The file is a table as `read_rows` takes it, with the columns mention, concept (several with |
    between them) and decision (accepted, rejected, or open: a note alone). It may have code, note,
    reviewer and date, in any order and among others. The ' that keeps a spreadsheet from computing
    a field is taken off.

    In other files each concept of a term has a row: Usagi's, where what is APPROVED is decided (and
    what is FLAGGED may have a note); SSSOM, where what is curated by hand is; and a list that was
    coded with decisions, where the status or the reason says so.

    Args:
      path: the file.
      encoding: of a file that is not UTF-8, as Excel may save it.
      column, code_column, prefix: of a coded list: the column of its terms, that of its codes, and
        what stands before the names of the added ones ("": nothing, or CODED_PREFIX).

    Raises:
      BadInput: for a file that cannot be read or lacks a column, a broken row, or two different
        decisions on one local term.
    """
    _, rows = read_rows(path, otherwise=encoding)
    filled = [(line, fields) for line, fields in rows if any(map(str.strip, fields))]
    header = filled[0][1] if filled else []
    names = [name.strip().casefold() for name in header]
    forms = [
        _CodedColumns.of(column, code_column, one)
        for one in ((prefix,) if prefix else ("", CODED_PREFIX))
    ]
    coded = next((one for one in forms if set(one.all) <= set(names)), forms[0])
    readers = _READERS | {coded.all: coded.said}
    needed = next((one for one in readers if set(one) <= set(names)), ())
    once = (*needed, *(("code", "note", "reviewer", "date") if needed == _OF_REVIEW else ()))
    if not needed or any(names.count(name) > 1 for name in once):
        raise BadInput(
            f"{path}: found {', '.join(header) or 'no header'}; expected the columns mention, "
            "concept, decision, note, each once, as a review page saves them, or a file of Usagi "
            f"or SSSOM, or a coded list (with the columns {', '.join(coded.all)})"
        )
    decisions: dict[tuple[str, str], Decision] = {}
    line_of: dict[tuple[str, str], int] = {}
    undated: list[str] = []
    has_codes = needed == _OF_REVIEW
    is_coded, has_row_each = needed == coded.all, needed in _READERS and needed != _OF_REVIEW
    given = coded.answers(names, filled[1:], path) if is_coded else filled[1:]
    for line, fields in given:
        if len(fields) != len(header):
            raise BadInput(
                f"{path}:{line}: found {len(fields)} columns; expected {len(header)}, as in the "
                "header: put fields that hold a separator or a line end in double quotes"
            )
        fields = fields if has_row_each else list(map(unguarded, fields))
        row = dict(zip(names, fields, strict=True))
        mention = row[needed[0]]
        if not mention.strip() and is_coded:
            continue
        if not mention.strip():
            raise BadInput(f"{path}:{line}: found no mention; expected one: take the row out")
        said = readers[needed](row)
        has_codes |= said.code != mention
        found = _decision(said, f"{path}:{line}")
        if found is None:
            continue
        if said.date.strip() and not (found.date or found.is_open):
            undated.append(said.date)
        key = said.code, mention
        earlier = decisions.get(key)
        if earlier is None or (earlier.is_open and not found.is_open):
            note = found.note or (earlier.note if earlier else "")
            decisions[key], line_of[key] = found._replace(note=note), line
            continue
        concepts = earlier.concepts
        if found.is_open:
            pass
        elif has_row_each and concepts and found.concepts:
            concepts = tuple(dict.fromkeys(concepts + found.concepts))
        elif concepts != found.concepts:
            raise BadInput(
                f"{path}:{line}: found {_in_words(found)} for {_named(*key)}, and in line "
                f"{line_of[key]} {_in_words(earlier)}; expected one decision for each mention: "
                "take one of the rows out, or write both concepts in one with | between them"
            )
        decisions[key] = earlier._replace(concepts=concepts, note=earlier.note or found.note)
    if undated:
        tell(
            f"warning: {path}: dates left out: {len(undated):,}, such as {undated[0]!r}; expected "
            "2026-03-01"
        )
    if not has_codes:  # the list had none, and its terms stand in their place
        decisions = {("", mention): decision for (_, mention), decision in decisions.items()}
    return Decisions(decisions, path)


def check_decisions(decisions: Decisions, dictionary: Dictionary) -> None:
    """Raise BadInput if an accepted concept is not in the dictionary."""
    known = dictionary.concept_set
    missing = {
        concept: mention
        for (_, mention), decision in decisions.of.items()
        for concept in decision.concepts
        if concept not in known
    }
    if missing:
        shown = [f"{concept} for {mention!r}" for concept, mention in missing.items()][:_SHOWN]
        more = f" and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""
        bare = {one.lstrip("0"): one for one in known if one.startswith("0")}
        if whole := next((bare[one] for one in missing if one in bare), None):
            more += f" (it has {whole}: a spreadsheet took the zeros, so keep codes as text)"
        raise BadInput(
            f"{decisions.source}: found {', '.join(shown)}{more}, which {dictionary.source} does "
            "not have; expected concepts of the dictionary: give the one that was reviewed with; "
            "if this is a newer release, let `coder-jax diff OLD NEW --decided` say what became of "
            "them, and change them or take these rows out"
        )


def decided(
    answers: Iterable[Answer], decisions: Iterable[Decision | None], dictionary: Dictionary
) -> list[Answer]:
    """The answers after people's decisions; open ones are unchanged.

    Accepted concepts are the first candidates, before the others, with their terms and similarities
    where they were among them. Where one was not, its term is the preferred name and its similarity
    is not a number. Of a rejected one the candidates stay as what was nearest.

    Args:
      answers: what mapping answers.
      decisions: on each, or None; `check_decisions` has passed them.
      dictionary: has the accepted concepts.
    """
    return [
        answer if decision is None or decision.is_open else _decided(answer, decision, dictionary)
        for answer, decision in zip(answers, decisions, strict=True)
    ]


def _decided(answer: Answer, decision: Decision, dictionary: Dictionary) -> Answer:
    if not decision.concepts:
        return replace(answer, status=Status.NO_ANSWER, ties=0, reason=REJECTED_IN_REVIEW)
    seen = {one.concept: one for one in answer.candidates}
    chosen = [
        seen.get(one) or Candidate(one, dictionary.about(one).preferred, math.nan)
        for one in decision.concepts
    ]
    others = [one for one in answer.candidates if one.concept not in decision.concepts]
    return Answer(
        answer.mention,
        Status.DECIDED,
        [*chosen, *others],
        count=len(chosen),
        context=answer.context,
    )


def _of_review(row: Mapping[str, str]) -> _Said:
    others = (row.get(name, "") for name in ("note", "reviewer", "date"))
    return _Said(row.get("code", ""), row["concept"], row["decision"], *others)


def _of_usagi(row: Mapping[str, str]) -> _Said:
    """Usagi's own file: what is APPROVED as the concept of a term, where the concept 0 is none.

    What is IGNORED has none, either. Of other rows, those that are FLAGGED may have a note;
    comments on the rest say what was found.
    """
    concept = row["conceptid"].strip()
    concept = "" if concept == "0" else concept
    decision = _ACCEPTED if concept else _REJECTED
    # MAPS_TO_VALUE and MAPS_TO_UNIT name what belongs to the concept of the term.
    maps_to = row.get("mappingtype", "").strip().upper() in ("", "MAPS_TO")
    status = row["mappingstatus"].strip().upper()
    if status == "IGNORED":
        concept, decision = "", _REJECTED
    elif status != "APPROVED" or not maps_to:
        concept, decision = "", _OPEN
    reviewer, since = row.get("statussetby", ""), row.get("statusseton", "").strip()
    date = ""
    if reviewer == TOOL:  # nobody gave a name, and the time is that of writing
        reviewer = ""
    elif since.isdecimal() and 0 < int(since) < _LAST:
        date = f"{datetime.fromtimestamp(int(since) / 1000, UTC):%Y-%m-%d}"
    note = row.get("comment", "") if decision != _OPEN or status == "FLAGGED" else ""
    return _Said(row.get("sourcecode", ""), concept, decision, note, reviewer, date)


def _of_sssom(row: Mapping[str, str]) -> _Said:
    """SSSOM: what was curated by hand, and is not denied."""
    concept, decision = row["object_id"].strip().removeprefix(f"{WITHOUT_PREFIX}:"), _ACCEPTED
    same = ("Match", "equivalentClass", "sameAs")
    is_match = row["predicate_id"].strip().endswith(same) and not row.get("predicate_modifier")
    if row["mapping_justification"].strip() != CURATED or not is_match:
        concept, decision = "", _OPEN
    elif concept == NO_TERM:
        concept, decision = "", _REJECTED
    code = row.get("subject_id", "").partition(":")[2]
    reviewer = row.get("reviewer_label") or row.get("author_label", "")
    date = row.get("mapping_date", "")
    note = row.get("comment", "") if decision != _OPEN else ""
    return _Said(code, concept, decision, note, reviewer, date)


class _CodedColumns(NamedTuple):
    """Columns of a list that was coded with decisions, in lower case; `codes` is "" for none."""

    terms: str
    codes: str
    concept: str
    rank: str
    status: str
    reason: str
    decided: tuple[str, ...]

    @classmethod
    def of(cls, column: str, code_column: str | None, prefix: str) -> _CodedColumns:
        names = ("concept", "rank", "status", "reason")
        added = [(prefix + name).casefold() for name in (*names, *DECIDED_COLUMNS)]
        own = [(one or "").strip().casefold() for one in (column, code_column)]
        concept, rank, status, reason, *decided = added
        return cls(own[0], own[1], concept, rank, status, reason, tuple(decided))

    @property
    def all(self) -> tuple[str, ...]:
        """Those that a file must have, the mention first."""
        return (*filter(None, self[:-1]), *self.decided)

    def answers(self, names: Sequence[str], rows: Rows, path: Path) -> Rows:
        """The rows without those of further ranks, whose concepts go to the answer of their term,
        wherever a spreadsheet has sorted them to.

        Raises:
          BadInput: there is none.
        """
        concept, rank, status = (names.index(one) for one in (self.concept, self.rank, self.status))
        of_term = [names.index(one) for one in (self.terms, self.codes) if one]
        found: Rows = []
        firsts: dict[tuple[str, ...], list[list[str]]] = {}  # decided answers to each term
        further: list[tuple[str, int, list[str]]] = []
        for line, fields in rows:
            is_whole = len(fields) == len(names)
            is_decided = is_whole and fields[status].strip() == Status.DECIDED
            if not is_whole or fields[rank].strip() in ("", "1"):
                found.append((line, [*fields]))
                if is_decided:
                    key = tuple(fields[one] for one in of_term)
                    firsts.setdefault(key, []).append(found[-1][1])
            elif is_decided:
                further.append((fields[rank].strip().zfill(9), line, fields))
        for _, line, fields in sorted(further):
            answers = firsts.get(tuple(fields[one] for one in of_term), [])
            # Of a term that the list has twice, each answer takes a concept once.
            lack = [one for one in answers if fields[concept] not in split_concepts(one[concept])]
            if not lack:
                raise BadInput(
                    f"{path}:{line}: found {fields[concept]}, {Status.DECIDED} for "
                    f"{fields[of_term[0]]!r}, and no row of rank 1 with another decided concept "
                    "for it; expected one: take this row out, or make its rank 1"
                )
            lack[0][concept] += CONCEPT_SEPARATOR + fields[concept]
        return found

    def said(self, row: Mapping[str, str]) -> _Said:
        """What a row says; a reader of `_READERS`."""
        reviewer, date, note = (row[one] for one in self.decided)
        concept, decision = row[self.concept], _ACCEPTED
        if row[self.status].strip() != Status.DECIDED:
            is_rejected = row[self.reason].strip() == REJECTED_IN_REVIEW
            concept, decision = "", _REJECTED if is_rejected else _OPEN
        return _Said(row.get(self.codes, ""), concept, decision, note, reviewer, date)


_OF_REVIEW = ("mention", "concept", "decision")
# How a row with these columns, the mention first, tells what was decided.
_READERS: dict[tuple[str, ...], Callable[[Mapping[str, str]], _Said]] = {
    ("sourcename", "conceptid", "mappingstatus"): _of_usagi,
    ("subject_label", "object_id", "predicate_id", "mapping_justification"): _of_sssom,
    _OF_REVIEW: _of_review,
}


def _decision(said: _Said, place: str) -> Decision | None:
    """The decision in a row; None if it leaves its mention open."""
    concepts = [one.strip() for one in split_concepts(said.concept) if one.strip()]
    decision = said.decision.strip().casefold()
    if decision not in (_ACCEPTED, _REJECTED, _OPEN):
        known = [_ACCEPTED, _REJECTED, _OPEN]
        raise BadInput(
            f"{place}: found the decision {said.decision!r}; expected {_ACCEPTED}, {_REJECTED} or "
            f"{_OPEN}{did_you_mean(decision, known)}"
        )
    if (decision == _ACCEPTED) != bool(concepts):
        found = f"the concept {', '.join(concepts)}" if concepts else "no concept"
        other = f"none for {decision}: leave it empty, or write {_ACCEPTED}"
        if decision == _ACCEPTED:
            other = f"one for {_ACCEPTED}: give it, or write {_REJECTED} if none fits"
        raise BadInput(f"{place}: found {found}; expected {other}")
    if decision == _OPEN:
        return Decision((), said.note, is_open=True) if said.note.strip() else None
    return Decision(tuple(concepts), said.note, said.reviewer.strip(), _iso(said.date.strip()))


def _iso(text: str) -> str:
    """A date such as 2026-03-01; "" for what is none. Excel's German way of writing is known."""
    for form in ("%Y-%m-%d", "%d.%m.%Y"):
        try:
            return f"{datetime.strptime(text[:10], form):%Y-%m-%d}"
        except ValueError:
            continue
    return ""


def _in_words(decision: Decision) -> str:
    return f"{', '.join(decision.concepts)} {_ACCEPTED}" if decision.concepts else _REJECTED


def _named(code: str, mention: str) -> str:
    return f"{mention!r} of the code {code}" if code else repr(mention)
