"""Coded lists in the files of other programs: Usagi, OMOP's source_to_concept_map, SSSOM, FHIR."""

from __future__ import annotations

import csv
import io
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from coder_jax.mapping.coded_list import (
    CURATED,
    NO_TERM,
    REJECTED_IN_REVIEW,
    TOOL,
    WITHOUT_PREFIX,
    Answer,
    Decision,
    Status,
    frequency_of,
)
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.whole import written_whole
from data_pipeline.process import BadInput, tell

SOURCE_CODE = "sourceCode"  # the column that has the codes of a list, as Usagi calls it


@dataclass(frozen=True)
class LocalTerms:
    """The terms of a list, beside their answers.

    Attributes:
      name: what the local codes are called as a vocabulary.
      codes: [R], of each row; the term itself where the list has none.
      counts: [R], how often each is used.
      others: further columns by their names, each [R].
    """

    name: str
    codes: Sequence[str]
    counts: Sequence[int]
    others: Mapping[str, Sequence[str]]


def local_terms(
    name: str,
    terms: Sequence[str],
    columns: Mapping[str, Sequence[str]],
    code_column: str | None = None,
    frequency_column: str | None = None,
) -> LocalTerms:
    """The terms of a list.

    Args:
      name: what the local codes are called as a vocabulary.
      terms: [R], of each row.
      columns: the others, by name, each [R]; columns that Usagi fills in are left out.
      code_column: has the codes; None: a term is its own code, as where the column is empty.
      frequency_column: says how often each is used, once where it is no number; None: each once.
    """
    taken = (*_USAGI_MORE, _USAGI[3], code_column, frequency_column)
    others = {one: values for one, values in columns.items() if one not in taken}
    codes = terms if code_column is None else columns[code_column]
    codes = [code if code.strip() else term for code, term in zip(codes, terms, strict=True)]
    counts: list[int | None] = [None] * len(terms)
    if frequency_column is not None:
        counts = [frequency_of(one) for one in columns[frequency_column]]
    return LocalTerms(name, codes, [1 if one is None else one for one in counts], others)


@dataclass(frozen=True)
class _Pair:
    """A local term and a concept that it is mapped to, or none.

    Attributes:
      row: of the list, the first that has the term.
      code, term, count: of the list.
      answer: to the term.
      concept, name: "" where there is none.
      codes: (vocabulary, code there) of the concept.
      similarity: 0 to 1; 0 where it is not known.
      comment: a person's note, or what to look at.
      decision: of a person, where there is one.
    """

    row: int
    code: str
    term: str
    count: int
    answer: Answer
    concept: str
    name: str
    codes: tuple[tuple[str, str], ...]
    similarity: float
    comment: str
    decision: Decision | None

    @property
    def is_decided(self) -> bool:
        """Whether a person said so."""
        return self.answer.status == Status.DECIDED or self.answer.reason == REJECTED_IN_REVIEW

    @property
    def reviewer(self) -> str:
        """Who decided; "" where that is not known, or nobody did."""
        return self.decision.reviewer if self.decision else ""

    @property
    def date(self) -> str:
        """When that was decided, such as 2026-03-01; "" likewise."""
        return self.decision.date if self.decision else ""


@dataclass(frozen=True)
class _Mapped:
    """What a file is made of; `source` is that of the dictionary."""

    pairs: list[_Pair]
    terms: LocalTerms
    source: str
    now: datetime


def write_map(
    form: str,
    path: Path,
    answers: Sequence[Answer],
    dictionary: Dictionary,
    terms: LocalTerms,
    decisions: Sequence[Decision | None],
    now: datetime | None = None,
    codes_of: Sequence[str] = (),
) -> None:
    """Writes the answers to a list as another program reads them.

    Rows of one code and term are one, with their counts added. A term that means several concepts
    has a row for each.

    Args:
      form: a key of FORMS.
      path: the file.
      answers: [R], of each row of the list.
      dictionary: that has the concepts.
      terms: the list.
      decisions: [R], of people, whose notes are comments.
      now: when it is written; None: the present.
      codes_of: vocabularies whose codes are preferred, the first most.

    Raises:
      BadInput: a concept that is no number, where the program knows OMOP's concept_id alone.
    """
    pairs = list(_pairs(answers, dictionary, terms, decisions, codes_of))
    text = FORMS[form](_Mapped(pairs, terms, dictionary.source, now or datetime.now(UTC)))
    with written_whole(path) as whole:
        # "": the text has its own line ends.
        with whole.open("w", encoding="utf-8", newline="") as file:
            file.write(text)


def _pairs(
    answers: Sequence[Answer],
    dictionary: Dictionary,
    terms: LocalTerms,
    decisions: Sequence[Decision | None],
    codes_of: Sequence[str],
) -> Iterator[_Pair]:
    """The distinct terms of a list with their concepts, in the order of the list."""
    place = {vocabulary: number for number, vocabulary in enumerate(codes_of)}
    counts: dict[tuple[str, str], int] = {}
    first: dict[tuple[str, str], int] = {}
    for row, answer in enumerate(answers):
        key = terms.codes[row], answer.mention
        counts[key] = counts.get(key, 0) + terms.counts[row]
        first.setdefault(key, row)
    for (code, term), row in first.items():
        answer = answers[row]
        if not term.strip():
            continue
        decision = decisions[row]
        comment = decision.note if decision else ""
        if decision is None or decision.is_open:
            context = [kind for kind in answer.context if kind not in answer.reason]
            comment = comment or "; ".join(filter(None, (answer.reason, *context)))
        count = counts[code, term]
        pair = _Pair(row, code, term, count, answer, "", "", (), 0.0, comment, decision)
        if answer.concept is None:
            yield pair
            continue
        for one in answer.candidates[: answer.count]:
            about = dictionary.about(one.concept)
            codes = sorted(about.codes, key=lambda code: place.get(code[0], len(place)))
            # A concept that was no candidate has no similarity (not a number).
            similarity = min(max(0.0, one.similarity), 1.0)
            yield replace(
                pair,
                concept=one.concept,
                name=about.preferred,
                codes=tuple(codes),
                similarity=similarity,
            )


_LOOKED_AT = 1000  # concepts, to see whether they are called as their codes
_MOST_ID = 2**31 - 1  # of OMOP's whole numbers
_GIVE = (
    "give OMOP's vocabularies from Athena as --dictionary, or a dataset or table of them, or write "
    "sssom or fhir"
)


def check_concepts(forms: Iterable[str], dictionary: Dictionary) -> None:
    """Raise BadInput where a program knows OMOP's numbers alone, and the dictionary has others.

    SNOMED CT and RxNorm have numbers of their own, which are what their concepts are called there.
    """
    if {"usagi", "stcm"}.isdisjoint(forms):
        return
    concepts = list(dict.fromkeys(concept for _, _, concept in dictionary.pairs()))
    if strange := [concept for concept in concepts if not _is_concept_id(concept)]:
        count = f"{len(strange):,} of {len(concepts):,} concepts of {dictionary.source}"
        raise _no_concept_id(strange[0], f", one of {count} that are none: take them out, or ")
    coded, own = 0, []
    for concept in concepts[:: len(concepts) // _LOOKED_AT + 1]:
        codes = [one for one in dictionary.about(concept).codes if one[1]]
        coded += bool(codes)
        own += [(concept, vocabulary) for vocabulary, code in codes if code == concept][:1]
    if 10 * len(own) > coded:
        raise BadInput(
            f"found the concept {own[0][0]}, which is its code in {own[0][1]}; expected OMOP's "
            f"concept_id in a file for Usagi or source_to_concept_map: {_GIVE}"
        )
    if concepts and not coded:
        tell(
            f"warning: {dictionary.source} has no codes, so nothing says that its concepts, such "
            f"as {concepts[0]}, are OMOP's concept_ids, as Usagi and source_to_concept_map take "
            "them: look whether they are"
        )


def _is_concept_id(concept: str) -> bool:
    return concept.isascii() and concept.isdigit() and int(concept) <= _MOST_ID


def _concept_id(concept: str) -> str:
    """OMOP's number of a concept, 0 for none."""
    if concept and not _is_concept_id(concept):
        raise _no_concept_id(concept, ": ")
    return concept or "0"


def _no_concept_id(concept: str, more: str) -> BadInput:
    return BadInput(
        f"found the concept {concept}; expected OMOP's concept_id, a number of at most {_MOST_ID}, "
        f"in a file for Usagi or source_to_concept_map{more}{_GIVE}"
    )


def _csv(rows: list[dict[str, str]], columns: Sequence[str], separator: str = ",") -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, delimiter=separator, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


# -------------------------------------------------------------------------------------------------
# Usagi's own file ("Save mapping"): every row, with what people decided.

_USAGI = (SOURCE_CODE, "sourceName", "sourceFrequency", "sourceAutoAssignedConceptIds")
_USAGI_MORE = (
    *("matchScore", "mappingStatus", "equivalence", "statusSetBy", "statusSetOn", "conceptId"),
    *("conceptName", "domainId", "mappingType", "comment", "createdBy", "createdOn"),
    "assignedReviewer",
)
_INFO = "ADD_INFO:"


def _usagi(mapped: _Mapped) -> str:
    stamp = str(round(mapped.now.timestamp() * 1000))  # milliseconds since 1970
    others = {
        name if name.startswith(_INFO) else _INFO + name: values
        for name, values in mapped.terms.others.items()
    }
    rows = []
    for pair in mapped.pairs:
        approved, is_noted = pair.is_decided, pair.decision is not None
        rows.append(
            {
                SOURCE_CODE: pair.code,
                "sourceName": pair.term,
                "sourceFrequency": str(pair.count),
                "sourceAutoAssignedConceptIds": "",
                **{name: values[pair.row] for name, values in others.items()},
                "matchScore": f"{pair.similarity:.4f}",
                # A note on what is open is to be looked at.
                "mappingStatus": "APPROVED"
                if approved
                else ("FLAGGED" if is_noted else "UNCHECKED"),
                # People are not asked whether the concept is wider or narrower.
                "equivalence": "UNMATCHED" if approved and not pair.concept else "UNREVIEWED",
                "statusSetBy": (pair.reviewer or TOOL) if approved else "",
                "statusSetOn": (_milliseconds(pair.date) or stamp) if approved else "0",
                "conceptId": _concept_id(pair.concept),
                "conceptName": pair.name or "Unmapped",
                "domainId": "",
                "mappingType": "MAPS_TO",
                "comment": pair.comment,
                "createdBy": TOOL,
                "createdOn": stamp,
                "assignedReviewer": "",
            }
        )
    return _csv(rows, [*_USAGI, *others, *_USAGI_MORE])


def _milliseconds(date: str) -> str:
    """The beginning of a day, in milliseconds since 1970."""
    return date and str(round(datetime.fromisoformat(f"{date}T00:00Z").timestamp() * 1000))


# -------------------------------------------------------------------------------------------------
# OMOP's table source_to_concept_map (Common Data Model 5.4).

_STCM = (
    *("source_code", "source_concept_id", "source_vocabulary_id", "source_code_description"),
    *("target_concept_id", "target_vocabulary_id", "valid_start_date", "valid_end_date"),
    "invalid_reason",
)

# The characters for which its columns have room, and what to do where there are more.
_ROOM = {
    "source_code": (50, "give short codes with --code-column"),
    "source_vocabulary_id": (20, "give the list's file a shorter name"),
    "source_code_description": (255, "shorten these terms"),
}

# Nobody looks at the table again: what is to be looked at is not mapped in it.
_TO_CHECK = (Status.TIED, Status.DOUBTFUL, Status.DIFFERS, Status.BROADER, Status.CONTEXT)


def _stcm(mapped: _Mapped) -> str:
    pairs = [
        replace(one, concept="", codes=()) if one.answer.status in _TO_CHECK else one
        for one in mapped.pairs
    ]
    rows = [
        {
            "source_code": pair.code,
            "source_concept_id": "0",
            "source_vocabulary_id": mapped.terms.name,
            "source_code_description": pair.term,
            "target_concept_id": _concept_id(pair.concept),
            "target_vocabulary_id": pair.codes[0][0] if pair.codes else "None",
            "valid_start_date": "1970-01-01",
            "valid_end_date": "2099-12-31",
            "invalid_reason": "",
        }
        for pair in pairs
    ]
    for column, (most, helps) in _ROOM.items():
        if long := list(dict.fromkeys(row[column] for row in rows if len(row[column]) > most)):
            tell(
                f"warning: source_to_concept_map: {len(long):,} of {column} have more than the "
                f"{most} characters for which OMOP's table has room, first {long[0][:60]!r}; "
                f"{helps}, or make the table's column wider"
            )
    return _csv(rows, _STCM)


# -------------------------------------------------------------------------------------------------
# SSSOM, the Simple Standard for Sharing Ontological Mappings (Matentzoglu et al. 2022), as TSV.

_SSSOM = (
    *("subject_id", "subject_label", "predicate_id", "object_id", "object_label"),
    *("mapping_justification", "confidence", "similarity_score", "reviewer_label"),
    *("mapping_date", "comment"),
)
_JUSTIFIED = dict.fromkeys((Status.EXACT, Status.LEARNT), "semapv:LexicalMatching")
_JUSTIFIED[Status.DECIDED] = CURATED
_BY_VECTORS = "semapv:SemanticSimilarityThresholdMatching"
_PREFIXES = {
    "HP": "http://purl.obolibrary.org/obo/HP_",
    "sssom": "https://w3id.org/sssom/",
    "semapv": "https://w3id.org/semapv/vocab/",
    "skos": "http://www.w3.org/2004/02/skos/core#",
}


def _sssom(mapped: _Mapped) -> str:
    local = "".join(letter if letter.isalnum() else "_" for letter in mapped.terms.name) or "local"
    if local in _PREFIXES or any(one.concept.startswith(f"{local}:") for one in mapped.pairs):
        local += "_list"  # a list called HP.csv is not HPO
    used = {local, "skos", "semapv"}
    rows = []
    for pair in mapped.pairs:
        target = pair.concept if ":" in pair.concept else f"{WITHOUT_PREFIX}:{pair.concept}"
        target = target if pair.concept else NO_TERM
        used.add(target.partition(":")[0])
        is_same = pair.answer.status in (Status.EXACT, Status.DECIDED) or not pair.concept
        other = "relatedMatch" if pair.answer.status in _TO_CHECK else "closeMatch"
        if pair.answer.status == Status.BROADER:
            other = "broadMatch"
        confidence = pair.answer.confidence
        rows.append(
            {
                "subject_id": f"{local}:{pair.code}",
                "subject_label": pair.term,
                "predicate_id": "skos:exactMatch" if is_same else f"skos:{other}",
                "object_id": target,
                "object_label": pair.name,
                "mapping_justification": CURATED
                if pair.is_decided
                else _JUSTIFIED.get(pair.answer.status, _BY_VECTORS),
                "confidence": "" if confidence is None else f"{confidence:.4f}",
                "similarity_score": f"{pair.similarity:.4f}" if pair.concept else "",
                "reviewer_label": pair.reviewer,
                "mapping_date": pair.date,
                "comment": pair.comment,
            }
        )
    identity = uuid.uuid5(uuid.NAMESPACE_URL, f"{TOOL}/{mapped.terms.name}/{mapped.source}")
    head = ["#curie_map:"]
    head += [
        f"#  {one}: {json.dumps(_PREFIXES.get(one, f'urn:{quote(one)}:'))}" for one in sorted(used)
    ]
    head += [
        f'#mapping_set_id: "https://w3id.org/sssom/mappings/{identity}"',
        '#license: "https://w3id.org/sssom/license/unspecified"',
        f'#mapping_tool: "{TOOL}"',
        f'#mapping_date: "{mapped.now:%Y-%m-%d}"',
        f"#object_source: {json.dumps(mapped.source)}",
    ]
    return "\n".join(head) + "\n" + _csv(rows, _SSSOM, "\t")


# -------------------------------------------------------------------------------------------------
# FHIR R4, ConceptMap.

_SYSTEMS = {
    "SNOMED": "http://snomed.info/sct",
    "SNOMEDCT": "http://snomed.info/sct",
    "SNOMEDCT_US": "http://snomed.info/sct",
    "LOINC": "http://loinc.org",
    "LNC": "http://loinc.org",
    "RxNorm": "http://www.nlm.nih.gov/research/umls/rxnorm",
    "RXNORM": "http://www.nlm.nih.gov/research/umls/rxnorm",
    "ICD10": "http://hl7.org/fhir/sid/icd-10",
    "ICD10CM": "http://hl7.org/fhir/sid/icd-10-cm",
    "HP": "http://human-phenotype-ontology.org",
    "HPO": "http://human-phenotype-ontology.org",
}


def _fhir(mapped: _Mapped) -> str:
    groups: dict[str, dict[tuple[str, str], dict[str, object]]] = {}
    for pair in mapped.pairs:
        prefix, colon, _ = pair.concept.partition(":")
        by_itself = (prefix if colon else "", pair.concept)  # where its vocabulary has none
        vocabulary, code = next((one for one in pair.codes if one[1]), by_itself)
        target: dict[str, object] = {"equivalence": "unmatched"}
        if pair.concept:
            # What R4 calls "relatedto" is to be looked at; people are not asked for more.
            same = {Status.EXACT: "equal", Status.DECIDED: "equivalent", Status.BROADER: "wider"}
            target = {
                "code": code,
                "display": pair.name,
                "equivalence": same.get(pair.answer.status, "relatedto"),
            }
        # R4 has no fields for who and when.
        said = [f"by {pair.reviewer}"] if pair.reviewer else []
        said += [f"on {pair.date}"] if pair.date else []
        decided = " ".join(["decided", *said]) if said else ""
        if comment := "; ".join(filter(None, (pair.comment, decided))):
            target["comment"] = comment
        elements = groups.setdefault(vocabulary, {})
        element = elements.setdefault(
            (pair.code, pair.term),
            {"code": " ".join(pair.code.split()), "display": pair.term, "target": []},
        )
        listed = element["target"]
        assert isinstance(listed, list)
        listed.append(target)
    group = []
    for vocabulary, elements in groups.items():
        system = _SYSTEMS.get(vocabulary, f"urn:{quote(vocabulary)}") if vocabulary else None
        to = {"target": system} if system else {}
        group.append(
            {"source": f"urn:{quote(mapped.terms.name)}", **to, "element": list(elements.values())}
        )
    resource = {
        "resourceType": "ConceptMap",
        "name": mapped.terms.name,
        "status": "draft",
        "date": f"{mapped.now:%Y-%m-%d}",
        "group": group,
    }
    return json.dumps(resource, indent=1, ensure_ascii=False) + "\n"


FORMS: dict[str, Callable[[_Mapped], str]] = {
    "usagi": _usagi,
    "stcm": _stcm,
    "sssom": _sssom,
    "fhir": _fhir,
}
