"""Tables of mentions with codes, as corpora and shared tasks are given: a line for each mention.

What is read is recognized by the names of the columns, or of the files of a folder:

- DisTEMIST, SympTEMIST and MedProcNER (their "linking" tables): filename, span or text, code;
  several codes together are joined with "+", NO_CODE is none;
- COMETA: Term, General SNOMED ID, Specific SNOMED ID;
- lists of local terms: term or subject_label, concept or object_id, predicate (exactMatch or
  broadMatch, also with skos: before it), a fold for each predicate;
- AskAPatient and TwADR-L: a folder of files such as AskAPatient.fold-0.test.txt, without a header:
  concept, its name, mention; the names of all files are the dictionary if none is given;
- MedMentions (full or st21pv): a folder with corpus_pubtator.txt or .txt.gz and
  corpus_pubtator_pmids_test.txt, the abstracts whose mentions are asked;
- NCBI disease and BC5CDR as BioSyn processes them: a folder with processed_test/ of .concept files,
  PMID||span||type||mention||identifiers, and test_dictionary.txt, identifiers||name, which has the
  mentions of training and development too. As in BioSyn an answer is right if it shares an
  identifier with the mention. Parts of a composite mention are asked one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

from coder_jax.evaluation.benchmark import Found, Given, Options
from coder_jax.evaluation.normalization import NormalizationBenchmark, NormalizationFold
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.vectors import Vectors
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.tables import CONCEPT_SEPARATOR, DOUBLE_PIPE, read_text, tab_separated
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput
from data_pipeline.sources.corpora import NONE, read_abstracts

_NO_CODE, _TOGETHER = "NO_CODE", "+"
_SPECIFIC, _GENERAL = "specific snomed id", "general snomed id"
_PREDICATES = {name.lower(): name for name in ("exactMatch", "broadMatch")}
_FOLD_FILES = "*.fold-*.test.txt"
_OF_MEDMENTIONS = ("corpus_pubtator.txt", "corpus_pubtator.txt.gz")
_TEST_PMIDS = "corpus_pubtator_pmids_test.txt"
_BIOSYN_COLUMNS = 5
_BIOSYN_DICTIONARY, _BIOSYN_FILES = "test_dictionary.txt", "processed_test/*.concept"
_FOLD_COLUMNS = "concept<TAB>name<TAB>mention"
_OLD_ENCODING = "latin-1"  # of AskAPatient as it is distributed


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
        "column predicate; or a folder of AskAPatient, MedMentions or BioSyn"
    )
    about: ClassVar[str] = """\
codes     the linking tables of DisTEMIST, SympTEMIST and MedProcNER, a split of COMETA, the
          folder of AskAPatient or TwADR-L, or a table of local terms with the columns term,
          concept and predicate (exactMatch, broadMatch; the score is the mean over both); the
          folder of MedMentions (corpus_pubtator.txt.gz and corpus_pubtator_pmids_test.txt), or of
          BioSyn (processed_test/ and test_dictionary.txt, which has the names of training mentions
          and is searched). Searched in --dictionary. Mentions without a code, or with several
          together, are left out and counted."""
    options: ClassVar[type[Options]] = _CodedTermOptions

    @classmethod
    def claims(cls, found: Found) -> bool:
        if found.is_folder:
            is_biosyn = any(found.path.glob(_BIOSYN_FILES))
            has_folds = any(found.path.glob(_FOLD_FILES))
            return has_folds or is_biosyn or found.holds(*_OF_MEDMENTIONS)
        return any(layout.columns(found.header) for layout in _LAYOUTS)

    @classmethod
    def brings_dictionary(cls, path: Path) -> bool:
        return (path / _BIOSYN_DICTIONARY).is_file()

    @classmethod
    def read(cls, given: Given) -> Self:
        left_out: Counter[str] = Counter()
        if Found(given.path).holds(*_OF_MEDMENTIONS):
            folds = [_read_medmentions(given, left_out)]
        elif any(given.path.glob(_BIOSYN_FILES)):
            folds = [_read_biosyn(given.path, left_out)]
        elif given.path.is_dir():
            folds = _read_fold_files(given.path, given.dictionary)
        else:
            folds = list(_read_table(given, left_out))
        if not any(fold.mentions for fold in folds):
            raise BadInput(
                f"{given.path}: found no mention with one code; expected some: give the table or "
                "folder of the task that links mentions to codes"
            )
        return replace(cls.of_folds(given, folds), left_out=dict(left_out))

    def score(self, vectors: Vectors, encoder: EncoderRecord, options: Options) -> EvaluationRecord:
        record = super().score(vectors, encoder, options)
        return replace(record, counts={**record.counts, **self.left_out})


def _searched(given: Given) -> Dictionary:
    """The dictionary that was given; BadInput if there is none."""
    if given.dictionary is None:
        raise BadInput(
            f"{given.path}: found mentions with codes and no dictionary to search; expected "
            "--dictionary with the names of these codes, such as the gazetteer of the task as a "
            "table with the columns term and concept, or a dataset of the UMLS"
        )
    return given.dictionary


def _read_table(given: Given, left_out: Counter[str]) -> Iterator[NormalizationFold]:
    """A fold for each predicate, or one; BadInput for broken rows or no dictionary."""
    path, dictionary = given.path, _searched(given)
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
    for number, fields in tab_separated(path, _OLD_ENCODING):
        values = [one.strip() for one in fields]
        if len(values) != 3 or not all(values):
            raise BadInput(f"{path}:{number}: found {fields!r}; expected {_FOLD_COLUMNS}")
        yield values[0], values[1], values[2]


def _read_medmentions(given: Given, left_out: Counter[str]) -> NormalizationFold:
    """The mentions of the test abstracts, as they stand in the text."""
    dictionary, corpus = _searched(given), given.path / _OF_MEDMENTIONS[0]
    if not corpus.is_file():
        corpus = given.path / _OF_MEDMENTIONS[1]
    listed = given.path / _TEST_PMIDS
    if not listed.is_file():
        raise BadInput(
            f"{given.path}: found {corpus.name} without {_TEST_PMIDS}; expected the list of the "
            "test abstracts beside it, which is in the folder full/data of MedMentions"
        )
    wanted = {line.strip() for line in read_text(listed).split()}
    abstracts = [one for one in read_abstracts(corpus) if one.pmid in wanted]
    if len(abstracts) < len(wanted):
        raise BadInput(
            f"{corpus}: found {len(abstracts):,} of the {len(wanted):,} abstracts that {listed} "
            "names; expected all: fetch both again"
        )
    mentions, gold = [], []
    for mention in (one for abstract in abstracts for one in abstract.mentions):
        cui = mention.identifiers.removeprefix("UMLS:")
        if not cui or cui == NONE:
            left_out["no code"] += 1
            continue
        mentions.append(mention.text)
        gold.append(cui)
    return NormalizationFold("", mentions, gold, dictionary)


def _read_biosyn(path: Path, left_out: Counter[str]) -> NormalizationFold:
    """BioSyn's queries, and its dictionary, of which each distinct field is a concept."""
    file = path / _BIOSYN_DICTIONARY
    if not file.is_file():
        raise BadInput(
            f"{path}: found {_BIOSYN_FILES} without {file.name}; expected it: fetch the folder "
            "again"
        )
    # An answer is right by any of its identifiers, so that those of one field are one concept.
    pairs = (line.partition(DOUBLE_PIPE)[::2] for line in read_text(file).split("\n"))
    rows = [(one.strip(), name.strip()) for one, name in pairs if one.strip() and name.strip()]
    names = [name for _, name in rows]
    concepts = [joined.replace(CONCEPT_SEPARATOR, _TOGETHER) for joined, _ in rows]
    concepts_of: dict[str, dict[str, None]] = {}
    for concept in dict.fromkeys(concepts):
        for identifier in concept.split(_TOGETHER):
            concepts_of.setdefault(identifier.strip(), {})[concept] = None
    mentions, gold = [], []
    for queries in sorted(path.glob(_BIOSYN_FILES)):
        for number, line in enumerate(read_text(queries).split("\n"), start=1):
            fields = [one.strip() for one in line.split(DOUBLE_PIPE)]
            if not line.strip():
                continue
            if len(fields) != _BIOSYN_COLUMNS or not fields[3]:
                raise BadInput(
                    f"{queries}:{number}: found {line[:80]!r}; expected "
                    "PMID||span||type||mention||identifiers: fetch the file again"
                )
            identifiers = fields[4].replace(CONCEPT_SEPARATOR, _TOGETHER).split(_TOGETHER)
            found = (concepts_of.get(one.strip(), {one.strip(): None}) for one in identifiers)
            right = dict.fromkeys(chain.from_iterable(found))
            parts = [one.strip() for one in fields[3].split(CONCEPT_SEPARATOR) if one.strip()]
            left_out["queries"] += 1
            left_out["parts of composite mentions"] += len(parts) if len(parts) > 1 else 0
            mentions += parts
            gold += [CONCEPT_SEPARATOR.join(right)] * len(parts)
    return NormalizationFold("", mentions, gold, Dictionary(names, concepts, str(file)))
