"""Case studies: the nearest dictionary terms of some terms, for reading; there is no score.

The papers' case studies (CODER, tables 6 and 7) look terms of one concept in many languages, and
two English ones, up among the English terms of all concepts that ICD-9-CM has:
`paper:cross-lingual` and `paper:knowledge`. Any other terms come from a file with one term a line,
or language<TAB>term, below a header that says so: "term" or "language<TAB>term".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from coder_jax.encoding.vector_files import unit
from coder_jax.evaluation.benchmark import Benchmark, Found, Given, Options
from coder_jax.evaluation.concepts import ConceptOptions
from coder_jax.evaluation.normalization import TermRows
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.results import Row, Table
from coder_jax.evaluation.vectors import Vectors, terms_only
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.tables import content_hash, tab_separated
from data_pipeline.process import BadInput, did_you_mean
from data_pipeline.terminology.retired_cuis import RetiredCuis

_NEAREST = 5
_HEADERS = (["term"], ["language", "term"])
_PAPER = "paper:"
# CODER, table 6: language, term, CODER_ALL's nearest ICD-9-CM term; all are of C0004604, dorsalgia.
_CROSS_LINGUAL = (
    ("Spanish", "dolor de espalda", "dorsalgia"),
    ("Hungarian", "Hátfájás", "dorsalgia"),
    ("Japanese", "背部痛", "dorsalgia"),
    ("Japanese", "はいぶつう", "puberty"),
    ("Czech", "bolesti zad", "dorsalgia"),
    ("German", "Rückenschmerzen", "dorsalgia"),
    ("Italian", "Dolore dorsale", "dorsalgia"),
    ("Korean", "배통", "benign neoplasm of ureter"),
    ("Finnish", "Selkäkipu", "dorsalgia"),
    ("French", "Dorsalgie", "dorsalgia"),
    ("Dutch", "Pijn, rug-", "dorsalgia"),
    ("Norwegian", "Ryggsmerter", "dorsalgia"),
    ("Croatian", "BOL U LEÐIMA", "dorsalgia"),
    ("Swedish", "Ryggsmärta", "dorsalgia"),
    ("Chinese", "背痛", "dorsalgia"),
)
# CODER, table 7: CODER_ENG's nearest ICD-9-CM terms, the nearest first.
_KNOWLEDGE = {
    "pufferfish poisoning": (
        "toxic eff fish/shellfish",
        "poisoning by saluretics",
        "toxic effect of fusel oil",
        "poisoning by paraldehyde",
        "poisoning by succinimides",
    ),
    "angina": (
        "angina pectoris",
        "chest pain",
        "prinzmetal angina",
        "vincent's angina",
        "angina decubitus",
    ),
}


@dataclass(frozen=True)
class CaseTerm:
    """A term to look up, and the nearest terms that a paper prints for it."""

    term: str
    language: str = ""
    published: tuple[str, ...] = ()


_PAPER_CASES = {
    "cross-lingual": [CaseTerm(term, lang, (found,)) for lang, term, found in _CROSS_LINGUAL],
    "knowledge": [CaseTerm(term, "", found) for term, found in _KNOWLEDGE.items()],
}


@dataclass(frozen=True)
class CaseStudy(Benchmark):
    """Terms to look up in a dictionary."""

    name: str
    path: str
    cases: list[CaseTerm]
    dictionary: Dictionary
    content_hash: str
    retired_cuis: RetiredCuis | None = None

    kind: ClassVar[str] = "nearest terms"
    formats: ClassVar[str] = """\
nearest:  a TSV file with the header term, or language and term; or paper:cross-lingual,
          paper:knowledge, the case studies of the CODER paper"""
    about: ClassVar[str] = """\
nearest   a TSV file with the header term, or language and term, or paper:cross-lingual or
          paper:knowledge, the CODER paper's case studies: lists the nearest terms of
          --dictionary (the paper's: --dictionary-languages ENG --dictionary-concepts-of ICD9CM)."""

    @classmethod
    def claims(cls, found: Found) -> bool:
        return str(found.path).startswith(_PAPER) or found.header in _HEADERS

    @classmethod
    def read(cls, given: Given) -> CaseStudy:
        study = _read_case_study(given.name, given.path, given.dictionary)
        if given.retired_cuis is None:
            return study
        today = study.dictionary.with_successors(given.retired_cuis)
        return replace(study, dictionary=today, retired_cuis=given.retired_cuis)

    def keys(self, keyed_by: str) -> list[str]:
        """The distinct strings of terms and dictionary; BadInput for concept vectors."""
        terms_only(keyed_by, self.path)
        return list(dict.fromkeys([*(case.term for case in self.cases), *self.dictionary.terms]))

    def dictionaries(self) -> list[Dictionary]:
        return [self.dictionary]

    def score(self, vectors: Vectors, encoder: EncoderRecord, options: Options) -> EvaluationRecord:
        k = options.of(ConceptOptions).neighbours or _NEAREST
        listing = _nearest_terms(vectors, self, k)
        return EvaluationRecord(
            benchmark=self.name,
            kind=self.kind,
            path=self.path,
            content_hash=self.content_hash,
            scores={},
            counts={"terms": len(listing), "missing": sum(case["missing"] for case in listing)},
            dictionary=self.dictionary.description,
            scoring={
                "similarity": "cosine",
                "equal cosines": "in the order of the dictionary",
                "retired_cuis": self.retired_cuis and self.retired_cuis.description,
            },
            folds={str(number): case for number, case in enumerate(listing)},
            encoder=encoder,
        )

    @classmethod
    def table(cls, records: Sequence[EvaluationRecord], options: Options) -> Table:
        """The nearest terms of each, one per row, beside those that the paper prints."""
        header = ["nearest terms of", "nearest", "cosine", "concept", "pooling", "published"]
        rows = []
        for record in records:
            for case in record.folds.values():
                label = f"{case['term']} ({case['language']})" if case["language"] else case["term"]
                found, published = case["nearest"], case["published"]
                shown = [[one["term"], f"{one['cosine']:.3f}", one["concept"]] for one in found]
                for place, cells in enumerate(shown or [["(no vector)", "", ""]]):
                    paper = published[place] if place < len(published) else ""
                    cells = [label if not place else "", *cells, record.encoder.pooling, paper]
                    rows.append(Row(cells, record.encoder.model))
        return header, rows


def _read_case_study(name: str, path: str | Path, dictionary: Dictionary | None) -> CaseStudy:
    """A file of terms, or one of the papers' case studies. BadInput: broken, or no dictionary."""
    wanted = str(path).removeprefix(_PAPER)
    if str(path).startswith(_PAPER) and wanted not in _PAPER_CASES:
        known = ", ".join(f"{_PAPER}{case}" for case in _PAPER_CASES)
        meant = did_you_mean(wanted, _PAPER_CASES)
        raise BadInput(f"found the case study {path}; expected one of {known}{meant}")
    if dictionary is None:
        raise BadInput(
            f"{path}: found terms to look up and no dictionary; give --dictionary with the "
            "MRCONSO.RRF of a release (the papers': with --dictionary-languages ENG "
            "--dictionary-concepts-of ICD9CM), a dataset folder or a TSV file of term<TAB>CUI"
        )
    if str(path).startswith(_PAPER):
        cases = _PAPER_CASES[wanted]
    else:
        cases = _cases_of_file(Path(path))
    rows = ((case.language, case.term) for case in cases)
    return CaseStudy(name, str(path), cases, dictionary, content_hash(rows))


def _cases_of_file(path: Path) -> list[CaseTerm]:
    (_, header), *rows = tab_separated(path)
    cases = []
    for number, fields in rows:
        if len(fields) != len(header) or not fields[-1]:
            raise BadInput(f"{path}:{number}: found {fields!r}; expected {'<TAB>'.join(header)}")
        cases.append(CaseTerm(fields[-1], fields[0] if len(header) > 1 else ""))
    if not cases:
        raise BadInput(f"{path}: found a header and no terms; expected a term in each line")
    return cases


def _nearest_terms(vectors: Vectors, study: CaseStudy, k: int) -> list[dict[str, Any]]:
    """For each case its term, language, and "nearest": term, concepts and cosine of k of them.

    A string that several concepts share comes once.
    """
    from coder_jax.encoding.search import search  # it imports jax

    concepts_of = study.dictionary.concepts_of_terms()
    terms = list(concepts_of)
    asked = [case.term for case in study.cases]
    queries = unit(vectors.encode(asked))
    keys = TermRows(vectors.encode, terms, queries.shape[1])
    found = search(queries, keys, min(k, len(terms)))
    known = vectors.known(asked)
    listing = []
    for case, has_vector, cosines, rows in zip(study.cases, known, *found, strict=True):
        nearest = [
            {
                "term": terms[row],
                "concept": concepts_of[terms[row]],
                "cosine": round(float(cosine), 6),
            }
            for cosine, row in zip(cosines, rows, strict=True)
        ]
        listing.append(
            {
                "term": case.term,
                "language": case.language,
                "missing": not has_vector,
                "published": list(case.published),
                "nearest": nearest if has_vector else [],
            }
        )
    return listing
