"""Tables of mentions with codes, as corpora and shared tasks are given: a line for each mention.

What is read is recognized by the names of the columns:

- DisTEMIST, SympTEMIST and MedProcNER (their "linking" tables): filename, span or text, code;
  several codes together are joined with "+", NO_CODE is none;
- COMETA: Term, General SNOMED ID, Specific SNOMED ID;
- lists of local terms: term or subject_label, concept or object_id, predicate (exactMatch or
  broadMatch, also with skos: before it), a fold for each predicate;
- AskAPatient and TwADR-L: a folder of files such as AskAPatient.fold-0.test.txt, without a header:
  concept, its name, mention; the names of all files are the dictionary if none is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

from coder_jax.evaluation.benchmark import Found, Given, Options
from coder_jax.evaluation.normalization import NormalizationBenchmark, NormalizationFold
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.vectors import Vectors
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.tables import tab_separated
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput

_NO_CODE, _TOGETHER = "NO_CODE", "+"
_SPECIFIC, _GENERAL = "specific snomed id", "general snomed id"
_PREDICATES = {name.lower(): name for name in ("exactMatch", "broadMatch")}
_FOLD_FILES = "*.fold-*.test.txt"
_FOLD_COLUMNS = "concept<TAB>name<TAB>mention"


class _Layout(NamedTuple):
    """The columns of a kind of table: any of the names of each."""

    mention: tuple[str, ...]
    code: tuple[str, ...]
    also: tuple[str, ...] = ()  # what tells it from other tables

    def columns(self, header: Sequence[str]) -> tuple[int, int] | None:
        """The places of mention and code; None for another table."""
        places = {name: place for place, name in enumerate(header)}
        mention = next((places[name] for name in self.mention if name in places), None)
        code = next((places[name] for name in self.code if name in places), None)
        if mention is None or code is None or any(name not in places for name in self.also):
            return None
        return mention, code


_TEMIST = _Layout(("span", "text"), ("code",), ("filename", "label"))
_COMETA = _Layout(("term",), (_SPECIFIC, _GENERAL), (_SPECIFIC, _GENERAL))
_LOCAL = _Layout(("term", "subject_label"), ("concept", "object_id", "code", "cui"), ("predicate",))
_LOCAL_SSSOM = _LOCAL._replace(also=("predicate_id",))
_LAYOUTS = (_TEMIST, _COMETA, _LOCAL, _LOCAL_SSSOM)


@dataclass(frozen=True, kw_only=True)
class _CodedTermOptions(Options):
    """Options of tables of mentions with codes."""

    cometa: Annotated[
        Literal["specific", "general"],
        Flag("which SNOMED CT codes of COMETA are right", heading="mentions and terms"),
    ] = "specific"


@dataclass(frozen=True)
class CodedTerms(NormalizationBenchmark):
    """Tables of mentions with codes; `left_out` counts what is not asked, by the reason."""

    left_out: dict[str, int] = field(default_factory=dict)

    formats: ClassVar[str] = (
        "codes:    a table of DisTEMIST, SympTEMIST, MedProcNER, COMETA, or of local terms with a "
        "column predicate; or a folder of AskAPatient"
    )
    about: ClassVar[str] = """\
codes     the linking tables of DisTEMIST, SympTEMIST and MedProcNER, a split of COMETA, the
          folder of AskAPatient or TwADR-L, or a table of local terms with the columns term,
          concept and predicate (exactMatch, broadMatch; the score is the mean over both). Searched
          in --dictionary. Mentions without a code, or with several together, are left out and
          counted."""
    options: ClassVar[type[Options]] = _CodedTermOptions

    @classmethod
    def claims(cls, found: Found) -> bool:
        if found.is_folder:
            return any(found.path.glob(_FOLD_FILES))
        return any(layout.columns(found.header) for layout in _LAYOUTS)

    @classmethod
    def read(cls, given: Given) -> Self:
        left_out: Counter[str] = Counter()
        if given.path.is_dir():
            folds = _read_fold_files(given.path, given.dictionary)
        else:
            folds = list(_read_table(given, left_out))
        return replace(cls.of_folds(given, folds), left_out=dict(left_out))

    def score(self, vectors: Vectors, encoder: EncoderRecord, options: Options) -> EvaluationRecord:
        record = super().score(vectors, encoder, options)
        return replace(record, counts={**record.counts, **self.left_out})


def _read_table(given: Given, left_out: Counter[str]) -> Iterator[NormalizationFold]:
    """A fold for each predicate, or one; BadInput for broken rows or no dictionary."""
    path, dictionary = given.path, given.dictionary
    if dictionary is None:
        raise BadInput(
            f"{path}: found mentions with codes and no dictionary to search; expected --dictionary "
            "with the names of these codes, such as the gazetteer of the task as a table with the "
            "columns term and concept"
        )
    (_, first), *rows = tab_separated(path)
    header = [name.strip().lower() for name in first]
    layout = next(one for one in _LAYOUTS if one.columns(header))
    mention, code = layout.columns(header) or (0, 0)
    if layout is _COMETA:
        wanted = given.options.of(_CodedTermOptions).cometa
        code = header.index(_SPECIFIC if wanted == "specific" else _GENERAL)
    predicate = header.index(layout.also[0]) if layout in (_LOCAL, _LOCAL_SSSOM) else None
    asked: dict[str, list[tuple[str, str]]] = {}
    for number, fields in rows:
        if len(fields) <= max(mention, code, predicate or 0) or not fields[mention].strip():
            raise BadInput(
                f"{path}:{number}: found {len(fields)} columns; expected {len(header)}, with a "
                f"mention in {first[mention]} and a code in {first[code]}: mend the line"
            )
        gold = fields[code].strip()
        fold = ""
        if predicate is not None:
            written = fields[predicate].strip()
            fold = _PREDICATES.get(written.rpartition(":")[2].lower(), "")
            if not fold:
                left_out[f"predicate {written or 'empty'}"] += 1
                continue
        if not gold or gold == _NO_CODE:
            left_out["no code"] += 1
        elif _TOGETHER in gold:
            left_out["several codes at once"] += 1
        else:
            asked.setdefault(fold, []).append((fields[mention].strip(), gold))
    if not asked:
        raise BadInput(
            f"{path}: found no mention with one code among {len(rows)} lines; expected some: give "
            "the table of the task that links mentions to codes"
        )
    for fold in sorted(asked, reverse=True):
        mentions, codes = ([*side] for side in zip(*asked[fold], strict=True))
        yield NormalizationFold(fold, mentions, codes, dictionary)


def _read_fold_files(path: Path, dictionary: Dictionary | None) -> list[NormalizationFold]:
    """The folds of AskAPatient; their own names are searched if no dictionary is given."""
    tests = sorted(path.glob(_FOLD_FILES))
    if dictionary is None:
        named: dict[tuple[str, str], None] = {}
        for file in sorted(path.glob("*.fold-*.txt")):
            named |= {(name, concept): None for concept, name, _ in _rows_of_fold(file)}
        names, concepts = ([*side] for side in zip(*named, strict=True))
        dictionary = Dictionary(names, concepts, str(path))
    folds = []
    for file in tests:
        rows = list(_rows_of_fold(file))
        fold = file.name.removesuffix(".test.txt").rpartition(".")[2]
        mentions, gold = [row[2] for row in rows], [row[0] for row in rows]
        folds.append(NormalizationFold(fold, mentions, gold, dictionary))
    return folds


def _rows_of_fold(path: Path) -> Iterator[tuple[str, str, str]]:
    """(concept, its name, mention) of each line; BadInput for another line."""
    for number, fields in tab_separated(path):
        values = [one.strip() for one in fields]
        if len(values) != 3 or not all(values):
            raise BadInput(f"{path}:{number}: found {fields!r}; expected {_FOLD_COLUMNS}")
        yield values[0], values[1], values[2]
