"""Dictionaries of terms and concepts: from tables, datasets, MEDIC or a UMLS release."""

from __future__ import annotations

import gzip
import re
import tempfile
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from data_pipeline.dataset.store import TripletDataset, open_dataset
from data_pipeline.files.buckets import local_file
from data_pipeline.files.tables import (
    CONCEPT_COLUMNS,
    CONCEPT_SEPARATOR,
    DOUBLE_PIPE,
    Rows,
    decoded,
    distinct_rows,
    double_piped,
    first_line,
    header_below,
    is_double_piped,
    is_empty,
    is_workbook,
    listed,
    names_columns,
    read_rows,
    read_text,
    split_concepts,
    tidy_concepts,
    two_columns,
    unpacked,
)
from data_pipeline.process import BadInput, did_you_mean, tell
from data_pipeline.sources.corpora import PREFIX, rows_of
from data_pipeline.sources.read_source import is_release, read_source
from data_pipeline.sources.release_files import is_rrf_terms
from data_pipeline.sources.rrf import read_types
from data_pipeline.sources.source import check_labels, plain_terms
from data_pipeline.sources.term_tables import (
    EXPECTED,
    SAVE_AS_UTF8,
    UNDETERMINED,
    TermTable,
    has_terms,
    header_of,
    term_table,
)
from data_pipeline.terminology.filters import Filters, some, term_drop_reason
from data_pipeline.terminology.mentions import Entry
from data_pipeline.terminology.retired_cuis import RetiredCuis
from data_pipeline.terminology.semantic_groups import ANY, GROUPS, group_bits, group_of
from data_pipeline.terminology.terminology import offsets

# -------------------------------------------------------------------------------------------------
# The part of a dictionary that is used: some languages, vocabularies or semantic types.


@dataclass(frozen=True)
class _Choice:
    """The terms to take from a release or a dataset; an empty field selects all."""

    languages: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    concepts_of: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    keep_suppressed: bool = False
    standard: bool = False
    strict: bool = False  # changes no term, so that `record` does not have it
    encoding: str | None = None  # of an ontology; likewise

    def options(self) -> dict[str, tuple[str, ...]]:
        """The values of each command-line option, for messages."""
        return {
            "--dictionary-languages": self.languages,
            "--dictionary-sources": self.sources,
            "--dictionary-concepts-of": self.concepts_of,
            "--semantic-types": self.types,
        }

    def check(self, languages: Sequence[str], vocabularies: Sequence[str], path: Path) -> None:
        """Raise BadInput for a value that no term has."""
        there = (languages, vocabularies, vocabularies)
        for (option, asked), known in zip(self.options().items(), there, strict=False):
            if missing := sorted(set(asked) - set(known)):
                raise BadInput(
                    f"{option} {' '.join(missing)}: no term of {path} has it; it has {some(known)}"
                    f"{did_you_mean(missing[0], known)}"
                )

    def types_among(self, known: Sequence[str], path: Path) -> list[int]:
        """The indices into `known` of the semantic types to use.

        A type may be asked for by its number (T047), its name, or both as they stand in `known`, in
        whatever case; several may stand in one string with commas between them, as names hold
        commas, too.

        Raises:
            BadInput: none of `known` is called so.
        """
        places: dict[str, list[int]] = {}
        for place, name in enumerate(known):
            number, _, bare = name.partition(" ")
            names = {name, number, bare} if _is_type_number(number) else {name}
            for one in names - {""}:
                places.setdefault(one.lower(), []).append(place)
        chosen: set[int] = set()
        for asked in self.types:
            parts = [asked] if asked.lower() in places else asked.split(",")
            for part in map(str.strip, parts):
                if part.lower() not in places:
                    raise BadInput(
                        f"--semantic-types {part}: no concept of {path} has it; it has "
                        f"{some(known)}{did_you_mean(part, places)}"
                    )
                chosen.update(places[part.lower()])
        return sorted(chosen)

    def check_left(self, terms: int, path: Path) -> None:
        """Raise BadInput if the choice leaves no term."""
        if not terms:
            asked = [option for option, values in self.options().items() if values]
            other = f"other values for {' and '.join(asked)}" if asked else "another dictionary"
            aside = "" if self.keep_suppressed else ", suppressed ones aside"
            raise BadInput(f"{path}: found no term of the choice{aside}; give {other}")

    def named(self, path: Path) -> str:
        """The path, followed by the values chosen."""
        return " ".join([str(path), *(one for asked in self.options().values() for one in asked)])

    def record(self) -> dict[str, Any]:
        """The choice, as it is recorded with results."""
        types = {"semantic_types": list(self.types)} if self.types else {}
        flags = {"keep_suppressed": self.keep_suppressed, "standard": self.standard}
        return {
            "languages": list(self.languages),
            "vocabularies": list(self.sources),
            "concepts_of": list(self.concepts_of),
            **types,
            **{name: True for name, given in flags.items() if given},
        }


def _is_type_number(word: str) -> bool:
    """Whether a word is the number of a UMLS semantic type, such as T047."""
    return len(word) == 4 and word[0] == "T" and word[1:].isdecimal()


# -------------------------------------------------------------------------------------------------
# The rows of a dictionary, and what its source knows of its concepts.

_Strings = Sequence[str] | pl.Series


class AboutConcept(NamedTuple):
    """What a dictionary says of one concept."""

    preferred: str  # its preferred name, as the source writes it
    codes: tuple[tuple[str, str], ...] = ()  # (vocabulary, code there)
    types: tuple[str, ...] = ()  # semantic types, such as "T047 Disease or Syndrome"


class _DictionaryRows(NamedTuple):
    """What a release, a dataset or a table contributes to a `Dictionary`, which explains the
    fields.
    """

    terms: list[str]
    concepts: list[str]
    languages: list[str] | None
    vocabularies: list[tuple[str, ...]] | None
    about_concepts: Mapping[str, AboutConcept]
    made_of: dict[str, Any]  # for the record, beside what was chosen


@dataclass(frozen=True)
class _Columns:
    """What is known of concepts, column by column.

    Attributes:
      concepts, preferred: [C], identifiers in their order, and preferred names.
      code_start, code_vocabularies, codes: the codes of concept c are at the places
        code_start[c] .. code_start[c + 1] - 1; the vocabulary of each indexes `vocabularies`.
      type_start, types: likewise; types index `semantic_types`.
    """

    concepts: _Strings
    preferred: _Strings
    code_start: np.ndarray
    code_vocabularies: np.ndarray
    codes: _Strings
    vocabularies: Sequence[str]
    type_start: np.ndarray
    types: np.ndarray
    semantic_types: Sequence[str]


class _ConceptTable(Mapping[str, AboutConcept]):
    """What a source knows of its concepts: read at the first look-up, one object per look-up."""

    def __init__(self, read: Callable[[], _Columns], sources: Sequence[str] = ()):
        """
        Args:
          read: gives the columns.
          sources: the vocabularies whose codes are told; none: all.
        """
        self.read, self.sources = read, frozenset(sources)

    @cached_property
    def columns(self) -> _Columns:
        return self.read()

    def __getitem__(self, concept: str) -> AboutConcept:
        this = self.columns
        place = bisect_left(this.concepts, concept)
        if place == len(this.concepts) or this.concepts[place] != concept:
            raise KeyError(concept)
        coded = [
            (this.vocabularies[this.code_vocabularies[code]], this.codes[code])
            for code in range(this.code_start[place], this.code_start[place + 1])
        ]
        types = this.types[this.type_start[place] : this.type_start[place + 1]]
        return AboutConcept(
            this.preferred[place],
            tuple(pair for pair in coded if not self.sources or pair[0] in self.sources),
            tuple(this.semantic_types[one] for one in types),
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns.concepts)

    def __len__(self) -> int:
        return len(self.columns.concepts)


def _shared(sets: Iterable[Iterable[str]]) -> list[tuple[str, ...]]:
    """The sets as tuples, equal ones shared: few of a UMLS's millions of sets differ."""
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    return [known.setdefault(one, one) for one in map(tuple, sets)]


# -------------------------------------------------------------------------------------------------
# The rows of a dataset folder.

# The keys of a dataset's manifest that are recorded with its terms.
_DATASET = ("name", "release", "filters", "cleaning", "content_hash")


def _rows_of_dataset(path: Path, choice: _Choice, *, raw: bool) -> _DictionaryRows:
    """Terms as cleaned for training or, with `raw`, as their source writes them.

    Of each concept the preferred one comes first.
    """
    dataset = open_dataset(path, strings=True, source=raw)
    languages, vocabularies = dataset.manifest.languages, dataset.manifest.vocabularies
    choice.check(languages, vocabularies, path)
    types = choice.types_among(dataset.manifest.semantic_types, path)
    cuis, strings = dataset.cuis or [], dataset.terms or []
    term_of_row = np.arange(len(strings))
    start, source_of = dataset.vocabulary_start, dataset.term_vocabularies
    if dataset.source is not None:
        term_of_row = np.repeat(term_of_row, np.diff(dataset.source.string_start))
        strings, source_of = dataset.source.strings, dataset.source.vocabularies
        start = dataset.source.vocabulary_start
    assert start is not None and source_of is not None, "they come with the strings"
    concept_of_row = _concept_of_term(dataset)[term_of_row]
    row_of_source = np.repeat(np.arange(len(strings)), np.diff(start))

    def among(values: np.ndarray, known: list[str], asked: tuple[str, ...]) -> np.ndarray:
        return np.isin(values, [known.index(one) for one in asked or known])

    is_asked = among(source_of, vocabularies, choice.sources)
    of_concept = row_of_source[among(source_of, vocabularies, choice.concepts_of)]
    language_of_row = dataset.language_among(choice.languages)[term_of_row]
    is_chosen = language_of_row >= 0
    is_chosen &= np.isin(np.arange(len(strings)), row_of_source[is_asked])
    is_chosen &= np.isin(concept_of_row, concept_of_row[of_concept])
    if choice.types:
        of_type = np.repeat(np.arange(len(cuis)), np.diff(dataset.type_start))
        is_chosen &= np.isin(concept_of_row, of_type[np.isin(dataset.types, types)])
    chosen = np.flatnonzero(is_chosen)
    choice.check_left(len(chosen), path)
    names = [vocabularies[one] for one in source_of[is_asked]]
    ends = np.cumsum(np.bincount(row_of_source[is_asked], minlength=len(strings)))
    begins = np.concatenate([[0], ends[:-1]])
    now = _columns_of_dataset(dataset, choice.languages) if raw else None

    def read() -> _Columns:
        return now or _columns_of_dataset(open_dataset(path, source=True), choice.languages)

    made_of = {f"dataset_{name}": getattr(dataset.manifest, name) for name in _DATASET}
    made_of["languages"] = list(choice.languages or languages)
    return _DictionaryRows(
        [strings[row] for row in chosen],
        [cuis[concept] for concept in concept_of_row[chosen]],
        [languages[one] for one in language_of_row[chosen]],
        _shared(names[begins[row] : ends[row]] for row in chosen),
        _ConceptTable(read, choice.sources),
        made_of | ({"raw": True} if raw else {}),
    )


def _concept_of_term(dataset: TripletDataset) -> np.ndarray:
    return np.repeat(np.arange(len(dataset.term_start) - 1), np.diff(dataset.term_start))


def _columns_of_dataset(dataset: TripletDataset, chosen: Sequence[str]) -> _Columns:
    """What a dataset knows of its concepts; names are in the chosen languages where there are
    any.
    """
    source, cuis = dataset.source, dataset.cuis
    assert source is not None and cuis is not None, "they were asked for"
    named = dataset.term_start[:-1].copy()
    terms = np.flatnonzero(dataset.in_languages(chosen))[::-1]
    named[_concept_of_term(dataset)[terms]] = terms  # of a concept the first one, written last
    return _Columns(
        concepts=cuis,
        preferred=[source.strings[one] for one in source.string_start[named]],
        code_start=source.code_start,
        code_vocabularies=source.code_vocabularies,
        codes=source.codes,
        vocabularies=dataset.manifest.vocabularies,
        type_start=dataset.type_start,
        types=dataset.types,
        semantic_types=dataset.manifest.semantic_types,
    )


# -------------------------------------------------------------------------------------------------
# MEDIC, the disease dictionary of CTD, as distributed with NCBI disease, or by CTD itself.
#
#     C567755|613097||Tooth Agenesis, Selective, 6|STHAG6       a line for each disease
#
# or CTD_diseases.tsv, whose header is a comment that names the columns. The identifiers are of MeSH
# or OMIM. The first one names the concept, the others mean the same.

# MeSH descriptors and supplementary concepts, and OMIM; a CUI of UMLS has seven digits.
_IDENTIFIER = r"(?:MESH:|OMIM:)?(?:[CD]\d{6}|[CD]\d{9}|\d{6})"
_FIRST_FIELD = re.compile(rf"{_IDENTIFIER}(?:\|{_IDENTIFIER})*", re.IGNORECASE)
_MESH, _OMIM = "MSH", "OMIM"  # as UMLS calls the vocabularies
_CTD_HEADER = re.compile(r"^#[ \t]*(DiseaseName\tDiseaseID\t.*)$", re.MULTILINE)
_CTD_COLUMNS = ("DiseaseName", "DiseaseID", "AltDiseaseIDs", "Synonyms")


def _read_medic(path: Path) -> list[Entry] | None:
    """The diseases of MEDIC with all their identifiers and names; None for another file.

    Raises:
      BadInput: a broken line.
    """
    if not path.is_file() or is_workbook(path):
        return None
    if (text := _ctd_text(path)) is not None:
        return _plain(_diseases_of_ctd(text, path), path)
    if not is_double_piped(path):
        return None
    first = "\t".join(_first_fields(path))
    is_medic = _FIRST_FIELD.fullmatch(first.partition(DOUBLE_PIPE)[0].strip())
    return _plain(_piped_entries(path), path) if is_medic else None


def _plain(entries: Iterable[Entry], path: Path) -> list[Entry]:
    """Entries whose names have no odd characters (`source.plain_terms`); BadInput for codes with
    some.
    """
    found = list(entries)
    check_labels((code for entry in found for code in entry.codes), str(path))
    names = iter(plain_terms([name for entry in found for name in entry.names], str(path)))
    return [Entry(one.codes, tuple(islice(names, len(one.names)))) for one in found]


def _piped_entries(path: Path) -> list[Entry]:
    """The entries of a file whose lines are ids||names, each joined with |."""
    pairs = double_piped(path, "id|other ids||name|synonym|...")
    entries = [Entry(_divided(ids, codes=True), _divided(names)) for ids, names in pairs]
    for entry, pair in zip(entries, pairs, strict=True):
        if not (entry.codes and entry.names):
            raise BadInput(
                f"{path}: found {DOUBLE_PIPE.join(pair)!r}; expected an identifier and a name: "
                "mend the line, or fetch the file again"
            )
    return entries


def _ctd_text(path: Path) -> str | None:
    """The text of CTD_diseases.tsv, perhaps packed; None for a file that is another."""
    is_packed = path.suffix.lower() == ".gz"
    try:
        with gzip.open(path) if is_packed else path.open("rb") as file:
            if file.read(1) != b"#":
                return None
    except (OSError, EOFError, zlib.error):  # who reads it as another file says so
        return None
    text = decoded(unpacked(path), str(path)) if is_packed else read_text(path)
    return text if _CTD_HEADER.search(text) else None


def _diseases_of_ctd(text: str, path: Path) -> Iterator[Entry]:
    header = _CTD_HEADER.search(text)
    columns = header[1].strip().split("\t") if header else []
    if missing := [name for name in _CTD_COLUMNS if name not in columns]:
        raise BadInput(
            f"{path}: found the columns {', '.join(columns)}; expected {missing[0]}, too: fetch "
            "CTD_diseases.tsv again"
        )
    places = [columns.index(name) for name in _CTD_COLUMNS]
    for number, line in enumerate(text.split("\n"), start=1):
        fields = [field.strip() for field in line.split("\t")]
        if line.startswith("#") or is_empty(fields):
            continue
        fields += [""] * (len(columns) - len(fields))
        if len(fields) > len(columns) or not all(fields[place] for place in places[:2]):
            raise BadInput(
                f"{path}:{number}: found {line[:80]!r}; expected the {len(columns)} columns of its "
                "header, with a name and an identifier: fetch the file again"
            )
        name, identifier, others, synonyms = (fields[place] for place in places)
        # Others may be of vocabularies such as DO.
        same = [one for one in others.split(CONCEPT_SEPARATOR) if PREFIX.match(one.strip())]
        codes = _divided(CONCEPT_SEPARATOR.join([identifier, *same]), codes=True)
        yield Entry(codes, tuple(dict.fromkeys((name, *_divided(synonyms)))))


def _rows_of_medic(diseases: Iterable[Entry]) -> _DictionaryRows:
    """The names of MEDIC, with a row for each concept that has the name."""
    names: dict[str, dict[str, None]] = {}
    codes: dict[str, dict[tuple[str, str], None]] = {}
    for disease in diseases:
        concept = disease.codes[0]
        for one in disease.codes:
            codes.setdefault(concept, {})[_OMIM if one.isdigit() else _MESH, one] = None
        names.setdefault(concept, {}).update(dict.fromkeys(disease.names))
    pairs = [(name, concept) for concept, held in names.items() for name in held]
    return _DictionaryRows(
        terms=[name for name, _ in pairs],
        concepts=[concept for _, concept in pairs],
        languages=None,
        vocabularies=None,
        about_concepts={
            concept: AboutConcept(next(iter(held)), tuple(codes[concept]))
            for concept, held in names.items()
        },
        made_of={},
    )


# -------------------------------------------------------------------------------------------------
# The dictionary of a release or an ontology that was not built.


@contextmanager
def _tables(path: Path, choice: _Choice) -> Iterator[tuple[pl.LazyFrame, pl.LazyFrame | None]]:
    """Terms of a source, perhaps without suppressed ones, and semantic types, as in `Source`."""
    with tempfile.TemporaryDirectory() as scratch:
        source = read_source(
            path,
            Path(scratch),
            standard=choice.standard,
            strict=choice.strict,
            encoding=choice.encoding,
        )
        types = None
        if is_rrf_terms(path):
            types = read_types(path, Path(scratch))
        kept = term_drop_reason(Filters(keep_suppressed=choice.keep_suppressed)).is_null()
        terms = source.atoms.filter(kept)
        yield terms, source.types if types is None else types


def _rows_of_release(path: Path, choice: _Choice, *, raw: bool) -> _DictionaryRows:
    """The terms of a release, uncleaned; the preferred term of each concept comes first.

    With `raw`, what is known of the concepts is read at once: what is wrong with it is then said
    before the terms are used.
    """
    # Below, `_tables` has dropped what is suppressed.
    filters = Filters(languages=choice.languages, sources=choice.sources, keep_suppressed=True)
    with _tables(path, choice) as (atoms, types):
        columns = ("language", "source")
        values = atoms.select(columns).unique().collect()
        there = [values[one].unique().sort().to_list() for one in columns]
        choice.check(there[0], there[1], path)
        whole = Filters(sources=choice.concepts_of, keep_suppressed=True)
        concepts = atoms.filter(term_drop_reason(whole).is_null()).select("cui").unique()
        if choice.types:
            concepts = concepts.join(_of_types(types, choice, path), on="cui", how="semi")
        kept = (
            atoms.filter(term_drop_reason(filters).is_null())
            .join(concepts, on="cui", how="semi", maintain_order="left")
            .sort("cui", "rank", maintain_order=True)
            .group_by("cui", "term", maintain_order=True)
            .agg(pl.first("language"), pl.col("source").unique().sort())
            .collect()
        )
        choice.check_left(kept.height, path)
        cuis = kept["cui"].unique().sort()
        now = _columns_of_release(atoms, types, cuis, choice) if raw else None

    def read() -> _Columns:
        if now is not None:
            return now
        with _tables(path, choice) as tables:
            return _columns_of_release(*tables, cuis, choice)

    return _DictionaryRows(
        kept["term"].to_list(),
        kept["cui"].to_list(),
        kept["language"].to_list(),
        _shared(one for part in kept.iter_slices() for one in part["source"].to_list()),
        _ConceptTable(read, choice.sources),
        {},
    )


def _of_types(types: pl.LazyFrame | None, choice: _Choice, path: Path) -> pl.LazyFrame:
    """The identifiers of concepts with one of the chosen semantic types."""
    if types is None:
        raise BadInput(
            f"--semantic-types {' '.join(choice.types)}: found no semantic types in {path}, nor a "
            "MRSTY.RRF beside it; expected a source that says the types of concepts"
        )
    known = types.select(pl.col("type").unique().sort()).collect()["type"].to_list()
    asked = [known[place] for place in choice.types_among(known, path)]
    return types.filter(pl.col("type").is_in(asked)).select("cui").unique()


def _columns_of_release(
    atoms: pl.LazyFrame, types: pl.LazyFrame | None, cuis: pl.Series, choice: _Choice
) -> _Columns:
    """What a release knows of some concepts; names are in the chosen languages."""
    numbers = pl.DataFrame({"cui": cuis}).with_row_index("concept").lazy()
    filters = Filters(languages=choice.languages, keep_suppressed=True)
    in_language = term_drop_reason(filters).is_null()
    names = (
        atoms.filter(in_language)
        .join(numbers, on="cui", maintain_order="left")
        .group_by("concept")
        .agg(pl.col("term").get(pl.col("rank").arg_min()))
        .sort("concept")
    )
    coded = (
        atoms.filter(pl.col("code") != "")
        .join(numbers, on="cui")
        .select("concept", "source", "code")
        .unique()
        .sort("concept", "source", "code")
    )
    no_types = pl.LazyFrame(schema={"cui": pl.String, "type": pl.String})
    typed = (
        (no_types if types is None else types)
        .join(numbers, on="cui")
        .select("concept", "type")
        .unique()
        .sort("concept", "type")
    )
    preferred, codes, of_type = pl.collect_all([names, coded, typed])
    vocabularies = codes["source"].unique().sort().to_list()
    semantic_types = of_type["type"].unique().sort().to_list()
    return _Columns(
        concepts=cuis,
        preferred=preferred["term"],
        code_start=offsets(codes["concept"].to_numpy(), len(cuis)),
        code_vocabularies=_places(codes["source"], vocabularies),
        codes=codes["code"],
        vocabularies=vocabularies,
        type_start=offsets(of_type["concept"].to_numpy(), len(cuis)),
        types=_places(of_type["type"], semantic_types),
        semantic_types=semantic_types,
    )


def _places(column: pl.Series, known: list[str]) -> np.ndarray:
    """int32: the index of each value in `known`."""
    places = dict(zip(known, range(len(known)), strict=True))
    return column.replace_strict(places, return_dtype=pl.Int32).to_numpy()


# -------------------------------------------------------------------------------------------------
# Dictionaries in tables: with a header that names the columns, or as term<TAB>concept without one.

_LOOKED_AT = 1000  # rows, to tell which column has the codes
_MOST = 0.9  # of these look like it
_CODE = re.compile(r"(?=\S*\d)\S{1,24}")  # no blanks, with a digit
_WORD = re.compile(r"[^\W\d_]{3}")  # three letters in a row
_OF_MRCONSO = 17  # pipes between its columns, where the last has none
_PIPES = 4  # in a row of a release's file, at least, which also ends with one
# Other formats by their first signs (of a line without tabs, unless these are no text), and what
# to give in their place.
_OTHERS = {
    "<": "XML, such as an ontology in OWL: give the ontology in OBO format (.obo; `robot convert "
    "--input hp.owl --output hp.obo` makes it), or a table",
    "{": "JSON: give the ontology in OBO format (.obo), or a table",
    "@prefix": "Turtle (RDF): give the ontology in OBO format (.obo), or a table",
    "%PDF": "a PDF: give a table",
    **dict.fromkeys(
        ("\ufffd\x02", "\ufffd\x03", "\ufffd\x04", "\ufffd\x05"),  # pickles
        "no text, as MedCAT's cdb.dat is: give the table that it was made from (with the columns "
        "cui, name, ...)",
    ),
}
_LETTERS = 6  # a code has no more, unless all are capitals
_NOT_UTF8 = f"{SAVE_AS_UTF8}, or give `normalize` its --encoding, such as cp1252 (Excel's)"


def _rows_of_table(
    path: Path, choice: _Choice, columns: Mapping[str, str], encoding: str | None
) -> _DictionaryRows | None:
    """The chosen rows of a table whose header names its columns (`term_tables._NAMES`).

    Concepts come in the order of the table, of each the preferred terms first.

    Returns:
      the rows, or None for a file of term<TAB>CUI, with or without that header, or of CUI||name.

    Raises:
      BadInput: neither of these, a row without term or concept, or a choice that the table has no
        column for, or no row.
    """
    if not path.is_file():  # said by who reads it, as it is of an empty one
        return None
    if not (columns or is_workbook(path)):
        fields = _first_fields(path)
        if not fields:
            return None
        _check_format(path, fields)
        is_double = len(fields) == 1 and DOUBLE_PIPE in fields[0]
        if is_double or len(fields) == 2 and (names_columns(fields) or not has_terms(fields, path)):
            return None
    dialect, rows = read_rows(path, remedy=_NOT_UTF8, otherwise=encoding)
    if not columns:
        first = header_below(rows, dialect.separator, lambda names: has_terms(names, path))
        if first > 1:
            tell(f"{path}: the header is row {first}; what stands above it is left aside")
            dialect, rows = read_rows(path, remedy=_NOT_UTF8, otherwise=encoding, header_row=first)
    line, header = header_of(rows)
    if not has_terms(header, path, columns):
        raise BadInput(
            f"{path}:{line}: found the columns {listed(header)}; expected term<TAB>CUI, or "
            f"{EXPECTED}: name yours with --term-column and --concept-column"
        )
    table = term_table(path, dialect, rows, columns)
    terms = plain_terms(table.frame["term"].to_list(), str(path))
    return _chosen(replace(table, frame=table.frame.with_columns(term=pl.Series(terms))), choice)


def _first_fields(path: Path) -> list[str]:
    """The fields of the first line that is not empty, without quotes; none of an empty file."""
    line = first_line(path)
    return [field.strip(' "') for field in line.split("\t")] if line else []


def _check_format(path: Path, fields: Sequence[str]) -> None:
    """Raise BadInput for the first line of a file that is known to be no table of terms."""
    line = "\t".join(fields)
    what = next((said for begin, said in _OTHERS.items() if line.startswith(begin)), None)
    if what is not None and (len(fields) == 1 or line.startswith("\ufffd")):
        raise BadInput(f"{path}: found {what}")
    pipes = line.count("|")
    if len(fields) == 1 and pipes >= _PIPES and (line.endswith("|") or pipes == _OF_MRCONSO):
        raise BadInput(
            f"{path}: found {line[:60]!r}..., which looks like a file of the UMLS or RxNorm "
            "without terms, or like MRCONSO.RRF in another form; expected MRCONSO.RRF or "
            "RXNCONSO.RRF as it is released, of 18 columns, each closed by |, without a header: "
            "give that"
        )


def _chosen(table: TermTable, choice: _Choice) -> _DictionaryRows:
    """The rows of a table that a choice selects."""
    frame, path = table.frame.with_row_index("row"), table.path
    needed = ("language", "vocabulary", "vocabulary", "type")
    for (option, asked), role in zip(choice.options().items(), needed, strict=True):
        if asked and role not in table.columns:
            raise BadInput(
                f"{path}: found {option} {' '.join(asked)}; expected a table with a column {role}, "
                f"as nothing else says it: add one, or give no {option}"
            )
    choice.check(_values(frame["language"]), _values(frame["vocabulary"]), path)
    types = _values(frame["type"].str.split(CONCEPT_SEPARATOR).explode().str.strip_chars())
    wanted = [types[place] for place in choice.types_among(types, path)]
    has_type = (
        pl.col("type")
        .str.split(CONCEPT_SEPARATOR)
        .list.eval(pl.element().str.strip_chars().is_in(wanted))
    )
    is_kept = [
        (pl.col("language").is_in(choice.languages), choice.languages),
        (pl.col("vocabulary").is_in(choice.sources), choice.sources),
        (pl.col("vocabulary").is_in(choice.concepts_of).any().over("concept"), choice.concepts_of),
        (has_type.list.any().any().over("concept"), choice.types),
    ]
    kept = frame.filter(*(condition for condition, asked in is_kept if asked))
    choice.check_left(kept.height, path)
    rows = (
        kept.sort(pl.col("row").min().over("concept"), ~pl.col("preferred"), maintain_order=True)
        .group_by("concept", "term", maintain_order=True)
        .agg(pl.first("language"), pl.col("vocabulary").unique().sort())
    )
    return _DictionaryRows(
        terms=rows["term"].to_list(),
        concepts=rows["concept"].to_list(),
        languages=rows["language"].replace("", UNDETERMINED).to_list()
        if "language" in table.columns
        else None,
        vocabularies=_shared(filter(None, one) for one in rows["vocabulary"].to_list())
        if "vocabulary" in table.columns
        else None,
        about_concepts=_about(frame, rows, choice),
        made_of={},
    )


def _about(frame: pl.DataFrame, rows: pl.DataFrame, choice: _Choice) -> dict[str, AboutConcept]:
    """The first term of each concept, its codes in the chosen vocabularies, and its semantic
    types. A vocabulary without a code, as in a table without such a column, has the code "".
    """
    coded = frame.filter((pl.col("code") != "") | (pl.col("vocabulary") != ""))
    if choice.sources:
        coded = coded.filter(pl.col("vocabulary").is_in(choice.sources))
    codes: dict[str, dict[tuple[str, str], None]] = {}
    for concept, vocabulary, code in coded.select("concept", "vocabulary", "code").iter_rows():
        codes.setdefault(concept, {})[vocabulary, code] = None
    for held in codes.values():
        coded_in = {vocabulary for vocabulary, code in held if code}
        for vocabulary in coded_in:
            held.pop((vocabulary, ""), None)
    types: dict[str, dict[str, None]] = {}
    for concept, joined in frame.filter(pl.col("type") != "").select("concept", "type").iter_rows():
        for one in filter(None, map(str.strip, joined.split(CONCEPT_SEPARATOR))):
            types.setdefault(concept, {})[one] = None
    first = rows.unique("concept", keep="first", maintain_order=True)
    return {
        concept: AboutConcept(term, tuple(codes.get(concept, ())), tuple(types.get(concept, ())))
        for concept, term in first.select("concept", "term").iter_rows()
    }


def _values(column: pl.Series) -> list[str]:
    """The distinct values of a column, without the empty string."""
    return sorted(set(column.to_list()) - {""})


def _terms_first(rows: Sequence[tuple[str, str]], path: Path) -> Sequence[tuple[str, str]]:
    """Rows as (term, concept): swapped where a file without a header looks like code<TAB>name."""
    if names_columns(_first_fields(path)):
        return rows
    looked_at = rows[:_LOOKED_AT]
    codes = sum(_is_code(first) for first, _ in looked_at)
    names = sum(bool(_WORD.search(second)) and not _is_code(second) for _, second in looked_at)
    if min(codes, names) < _MOST * len(looked_at):
        return rows
    first, second = looked_at[0]
    tell(
        f"{path}: read as concept<TAB>term, as its first column looks like codes ({first!r}, "
        f"{second!r}); if it is not, write the header term<TAB>concept above it"
    )
    return [(term, concept) for concept, term in rows]


def _is_code(text: str) -> bool:
    """Whether a string looks like a code: no blanks, a digit, and few letters or only capitals."""
    is_short = sum(character.isalpha() for character in text) <= _LETTERS
    return _CODE.fullmatch(text) is not None and (is_short or text.isupper())


# -------------------------------------------------------------------------------------------------
# A dictionary of terms and concepts, read from a table, a dataset folder or MRCONSO.RRF.


@dataclass(frozen=True)
class Dictionary:
    """Terms and the concept of each; a string occurs once for each concept that has it.

    `retired` of the terms have a concept that stands in for a retired one. `languages` has one and
    `vocabularies` one or more for each term, where the source tells. `chosen` is for the record:
    how the terms were chosen from a release or a dataset, and of a dataset what it was made of.
    `dataset` is the folder of that. `further` of the terms, the last ones, are not in its file.
    `about_concepts` is what the source tells of the concepts, and
    `formerly` under which identifier it does of those that stand in for a retired one.
    """

    terms: list[str]
    concepts: list[str]
    source: str
    retired: int = 0
    languages: list[str] | None = None
    vocabularies: list[tuple[str, ...]] | None = None
    chosen: dict[str, Any] = field(default_factory=dict)
    dataset: Path | None = None
    further: int = 0
    about_concepts: Mapping[str, AboutConcept] = field(default_factory=dict)
    formerly: Mapping[str, str] = field(default_factory=dict)

    def about(self, concept: str) -> AboutConcept:
        """What is known of a concept; its preferred name defaults to its first term."""
        about = self.about_concepts
        found = about.get(concept) or about.get(self.formerly.get(concept, concept))
        return found or AboutConcept(self._first_terms[concept])

    @cached_property
    def _first_terms(self) -> dict[str, str]:
        first: dict[str, str] = {}
        for _, term, concept in self.pairs():
            first.setdefault(concept, term)
        return first

    def knowing(self, concepts: Iterable[str]) -> Dictionary:
        """The same dictionary, extended by these concepts, if only by their identifiers."""
        unknown = dict.fromkeys(set(concepts) - self.concept_set, AboutConcept(""))
        return replace(self, about_concepts={**unknown, **self.about_concepts})

    def with_names(self, names: Sequence[tuple[str, str]]) -> Dictionary:
        """The same dictionary, with further (name, concept) behind its own; not in its file.

        Nothing is said of the languages and vocabularies then.
        """
        return replace(
            self,
            terms=[*self.terms, *(name for name, _ in names)],
            concepts=[*self.concepts, *(concept for _, concept in names)],
            further=self.further + len(names),
            languages=None,
            vocabularies=None,
        )

    def pairs(self) -> Iterator[tuple[int, str, str]]:
        """(row, term, concept); a row with joined concepts gives one for each."""
        for row, (term, joined) in enumerate(zip(self.terms, self.concepts, strict=True)):
            for concept in split_concepts(joined):
                yield row, term, concept

    @cached_property
    def concept_set(self) -> frozenset[str]:
        return frozenset(concept for _, _, concept in self.pairs())

    @property
    def code_vocabularies(self) -> list[str]:
        """The vocabularies of all codes, sorted."""
        about = self.about_concepts
        if isinstance(about, _ConceptTable):
            known = set(about.sources) or set(about.columns.vocabularies)
        else:
            known = {vocabulary for one in about.values() for vocabulary, _ in one.codes}
        return sorted(known - {""})

    @cached_property
    def description(self) -> dict[str, Any]:
        """The dictionary as it is recorded with results; the hash ignores duplicates and order."""
        rows_hash, rows = distinct_rows(zip(self.terms, self.concepts, strict=True))
        return {
            "source": self.source,
            "content_hash": rows_hash,
            "terms": rows,
            "concepts": len(self.concept_set),
            "retired": self.retired,
            **self.chosen,
        }

    def concepts_of_terms(self) -> dict[str, str]:
        """Each distinct term and its distinct concepts, joined."""
        held: dict[str, str] = {}
        for term, joined in zip(self.terms, self.concepts, strict=True):
            if term in held:
                both = f"{held[term]}{CONCEPT_SEPARATOR}{joined}".split(CONCEPT_SEPARATOR)
                joined = CONCEPT_SEPARATOR.join(dict.fromkeys(both))
            held[term] = joined
        return held

    def with_successors(self, retired_cuis: RetiredCuis) -> Dictionary:
        """The same terms with current CUIs: retired CUIs are replaced by those that they were
        merged into.
        """
        now = [retired_cuis.now(joined) for joined in self.concepts]
        retired = [concept for concept in self.concept_set if retired_cuis.has(concept)]
        return replace(
            self,
            concepts=now,
            retired=sum(map(retired_cuis.has, self.concepts)),
            formerly={retired_cuis.now(concept): concept for concept in sorted(retired)},
        )


def union(dictionaries: Sequence[Dictionary]) -> Dictionary:
    """Several dictionaries as one; a dictionary that several folds share counts once."""
    first, *more = {id(one): one for one in dictionaries}.values()
    if not more:
        return first
    sources = len({one.source for one in (first, *more)})
    return Dictionary(
        [term for one in (first, *more) for term in one.terms],
        [concept for one in (first, *more) for concept in one.concepts],
        first.source + (f" and {sources - 1} more" if sources > 1 else ""),
        sum(one.retired for one in (first, *more)),
        chosen=first.chosen,
    )


def read_dictionary(
    path: str | Path,
    languages: Sequence[str] | None = None,
    sources: Sequence[str] | None = None,
    concepts_of: Sequence[str] | None = None,
    types: Sequence[str] | None = None,
    *,
    keep_suppressed: bool = False,
    standard: bool = False,
    strict: bool = False,
    raw: bool = False,
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
) -> Dictionary:
    """Reads a dictionary.

    Args:
      path: a TSV file of term<TAB>CUI; a table (.csv, .tsv, .xlsx) whose header names the columns
        of terms, of concepts, and more (`term_tables._NAMES`), in any order; a file of CUI||name;
        MEDIC, as id|other ids||name|synonym|... or as CTD_diseases.tsv (or .gz); a dataset folder
        as `data_pipeline.build` makes it; an OBO ontology (.obo, .obo.gz), or a folder with one
        and tables of further names; the MRCONSO.RRF of a UMLS release, or .gz, or a whole release
        of the UMLS, SNOMED CT or LOINC (folder or .zip); or the https:// address of such a file,
        which is fetched once.
      languages: of a dataset, a release, or a table with such a column, keep the terms in these
        only, such as ["ENG"].
      sources: of these, keep the terms of these vocabularies only, such as ["MSH"]. A term of a
        dataset has one language, the most wanted, and the vocabularies of its string in all.
      concepts_of: of these, keep the concepts that these vocabularies have, with all their terms
        of the languages and sources above.
      types: of these, keep the concepts of these semantic types, such as ["T047"], ["Disease or
        Syndrome"] or both in one string, in whatever case.
      keep_suppressed: of a release, keep terms that are obsolete or suppressed, too. A dataset has
        them or not, as it was built.
      standard: of OMOP's vocabularies, standard concepts alone, as `read_omop` takes them.
      strict: refuse an OBO ontology with lines that are not valid.
      raw: of a dataset, the strings as its source writes them, in place of the terms that they
        became when they were cleaned. A release and a file have no others. Use it to look terms up.
      columns: of a table, the names of its columns "term" and "concept"; one that is not given is
        found.
      encoding: of a table or an ontology that is not UTF-8.

    Returns:
      the dictionary. For a dataset, a release and a table, `about` says the preferred name of a
      concept (in the languages above, where it has one in these), its codes in the sources above,
      and its semantic types; of a release those in the MRSTY.RRF beside it.

    Raises:
      BadInput: none of these, a broken row, a language, source or type that is not there, or a
        choice that leaves no term.
    """
    path = local_file(path)
    choice = _Choice(
        tuple(languages or ()),
        tuple(sources or ()),
        tuple(concepts_of or ()),
        tuple(types or ()),
        keep_suppressed,
        standard,
        strict,
        encoding,
    )
    from_source = is_release(path)
    if strict and not from_source:
        raise BadInput(f"{path}: found --strict; expected an ontology (.obo): leave it out")
    if standard and not from_source:
        raise BadInput(
            f"{path}: found --dictionary-standard; expected OMOP's vocabularies (folder, .zip or "
            "CONCEPT.csv): leave it out. A dataset has standard concepts alone if it is built with "
            "--standard"
        )
    if keep_suppressed and not from_source:
        raise BadInput(
            f"{path}: found --dictionary-keep-suppressed; expected a release or an ontology, whose "
            "rows say whether they are suppressed: leave it out. A dataset has suppressed terms if "
            "it is built with --keep-suppressed"
        )
    if path.is_dir() and not from_source and not (path / "manifest.json").is_file():
        raise BadInput(
            f"{path}: found a folder without manifest.json; expected a dictionary: a TSV file of "
            "term<TAB>CUI, a dataset folder made by `python -m data_pipeline.build`, an ontology "
            "(.obo), also in a folder with tables of further names, a release of the UMLS, SNOMED "
            "CT or LOINC, or OMOP's vocabularies"
        )
    medic = None
    if columns and (from_source or path.is_dir()):
        raise BadInput(
            f"{path}: found --{next(iter(columns))}-column; expected a table: leave it out"
        )
    if from_source or path.is_dir():
        of = _rows_of_release if from_source else _rows_of_dataset
        read: _DictionaryRows | None = of(path, choice, raw=raw)
    else:
        medic = _read_medic(path)
        read = _rows_of_table(path, choice, columns or {}, encoding) if medic is None else None
    if read is not None:
        return Dictionary(
            read.terms,
            read.concepts,
            choice.named(path),
            languages=read.languages,
            vocabularies=read.vocabularies,
            chosen=choice.record() | read.made_of,
            dataset=path if path.is_dir() and not from_source else None,
            about_concepts=read.about_concepts,
        )
    for option, values in choice.options().items():
        if values:
            raise BadInput(
                f"{path}: found {option} {' '.join(values)}; expected a dataset folder, "
                "a release or an ontology, or a table whose header names such a column (language, "
                f"vocabulary, semantic_type): give one of them, or no {option}"
            )
    about: Mapping[str, AboutConcept] = {}
    if medic is not None:
        of_medic = _rows_of_medic(medic)
        terms, concepts, about = of_medic.terms, of_medic.concepts, of_medic.about_concepts
    elif is_double_piped(path):
        rows = double_piped(path, "CUI||name", encoding)
        concepts, terms = [cui for cui, _ in rows], [name for _, name in rows]
    else:
        pairs = _terms_first(two_columns(path, "term<TAB>CUI", encoding, quoted=True), path)
        terms, concepts = [term for term, _ in pairs], [cui for _, cui in pairs]
    for row, concept in enumerate(concepts):
        if CONCEPT_SEPARATOR in concept:
            concepts[row] = tidy_concepts(concept)
            if not concepts[row]:
                raise BadInput(
                    f"{path}: found the term {terms[row]!r} with the concepts {concept!r}; "
                    "expected one or more: mend or remove the row"
                )
    check_labels(concepts, str(path))
    return Dictionary(plain_terms(terms, str(path)), concepts, str(path), about_concepts=about)


# -------------------------------------------------------------------------------------------------
# A dictionary as entries: the identifiers and names of each concept, from any file.

_DICTIONARY_FORMS = (
    "code<TAB>name without a header; a table whose header names a column of terms and one of "
    "concepts; MEDIC, as id|other ids||name|synonym|... or as CTD_diseases.tsv; a dataset folder; "
    "or MRCONSO.RRF"
)


def read_entries(path: Path) -> list[Entry]:
    """The entries of a dictionary, in order.

    Args:
      path: EXPECTED says what it may be.

    Raises:
      BadInput: another thing, or a broken row.
    """
    if path.is_dir() or is_release(path):
        dictionary = read_dictionary(path, raw=True)
        rows = [(concept, term) for _, term, concept in dictionary.pairs()]
        preferred = [
            (code, dictionary.about(code).preferred) for code in {row[0]: 0 for row in rows}
        ]
        return _grouped([*preferred, *rows])
    medic = _read_medic(path)
    return _plain(_entries_of_table(path), path) if medic is None else medic


def _entries_of_table(path: Path) -> list[Entry]:
    if is_double_piped(path):
        return _piped_entries(path)
    rows = rows_of(path)
    _, header = header_of(rows)
    if len(header) > 1 and has_terms(header, path):
        frame = term_table(path, *read_rows(path, remedy=SAVE_AS_UTF8)).frame
        frame = frame.sort("preferred", descending=True, maintain_order=True)
        return _grouped(frame.select("concept", "term").iter_rows())
    return _coded(path, rows)


def read_identifiers(path: Path) -> list[str]:
    """The identifiers in a list of concepts, each once.

    Args:
      path: an identifier a line; a table with tabs and a header, one of whose columns is called CUI
        or concept; or MEDIC, all of whose identifiers are taken.

    Raises:
      BadInput: a table without such a column, or a file without lines.
    """
    if (medic := _read_medic(path)) is not None:
        return list(dict.fromkeys(code for disease in medic for code in disease.codes))
    rows = [line.split("\t") for line in read_text(path).split("\n") if line.strip()]
    if not rows:
        raise BadInput(f"{path}: found no lines; expected a concept in each")
    header = [field.strip().lower() for field in rows[0]]
    named = [place for place, field in enumerate(header) if field in CONCEPT_COLUMNS]
    if len(header) > 1 and not named:
        raise BadInput(
            f"{path}: found the columns {', '.join(header)}; expected one that is called CUI or "
            "concept, or a concept in each line"
        )
    place = named[0] if named else 0
    found = [row[place].strip() for row in rows[bool(named) :] if len(row) > place]
    return list(dict.fromkeys(one for one in found if one))


def _divided(field: str, *, codes: bool = False) -> tuple[str, ...]:
    """The parts of a field joined by "|"; codes lose the name of their vocabulary."""
    parts = [part.strip() for part in field.split(CONCEPT_SEPARATOR)]
    return tuple(dict.fromkeys(PREFIX.sub("", part) if codes else part for part in parts if part))


def _grouped(rows: Iterable[tuple[str, str]]) -> list[Entry]:
    """Entries made of (code, name) rows, one for each code."""
    names: dict[str, dict[str, None]] = {}
    for code, name in rows:
        names.setdefault(code, {})[name] = None
    return [Entry((code,), tuple(some)) for code, some in names.items()]


def _coded(path: Path, rows: Rows) -> list[Entry]:
    """Rows of (code, name) without a header; swapped where they look like (name, code)."""
    pairs = []
    for number, fields in rows:
        if is_empty(fields):
            continue
        filled = [field.strip() for field in fields]
        if len(filled) < 2 or not all(map(_divided, filled[:2])) or any(filled[2:]):
            raise BadInput(
                f"{path}:{number}: found {fields}; expected {_DICTIONARY_FORMS}: mend the line"
            )
        pairs.append((filled[0], filled[1]))
    if not pairs:
        raise BadInput(f"{path}: found no rows; expected {_DICTIONARY_FORMS}")
    first, second = (sum(map(_is_code, column)) for column in zip(*pairs[:_LOOKED_AT], strict=True))
    if second > first:
        tell(f"{path}: the second column looks like codes: read as name<TAB>code")
        pairs = [(code, name) for name, code in pairs]
    return _grouped((one, name) for codes, name in pairs for one in _divided(codes))


# -------------------------------------------------------------------------------------------------
# The semantic groups of a dictionary's concepts, from the semantic types that its source gives.


def groups_of_concepts(dictionary: Dictionary) -> dict[str, int]:
    """Concept -> bit set of its semantic groups: bit i for group i of `GROUPS`, bit `ANY` always.

    BadInput for a dictionary that says no semantic group of any concept.
    """
    about = dictionary.about_concepts
    if isinstance(about, _ConceptTable):
        columns = about.columns
        bits = group_bits(columns.semantic_types, columns.type_start, columns.types)
        known = dict(zip(columns.concepts, bits.tolist(), strict=True))
    else:
        known = {concept: _bits_of(one.types) for concept, one in about.items()}
    formerly = dictionary.formerly
    found = {
        concept: known.get(concept) or known.get(formerly.get(concept, concept), 1 << ANY)
        for concept in dictionary.concept_set
    }
    if not any(bits != 1 << ANY for bits in found.values()):
        raise BadInput(
            f"{dictionary.source}: found no semantic types of its concepts (such as "
            f"{dictionary.concepts[0]!r}); expected them, as they say which semantic group a "
            "concept is of: give a dataset folder, the MRCONSO.RRF of a release with MRSTY.RRF "
            "beside it, or a table with a column semantic_type of types such as T047, or of groups "
            "such as DISO"
        )
    return found


def _bits_of(types: tuple[str, ...]) -> int:
    bits = 1 << ANY
    for group in map(group_of, types):
        bits |= 1 << GROUPS.index(group) if group else 0
    return bits
