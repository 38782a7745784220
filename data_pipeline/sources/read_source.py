"""Reads a terminology of any supported format as a `Source`; the format is recognized by its
files.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path, PurePosixPath

import polars as pl

from data_pipeline.files.identity import DATASET
from data_pipeline.files.tables import ZIP_ERRORS, is_empty, read_rows
from data_pipeline.process import BadInput, quiet, tell
from data_pipeline.sources import loinc, omop, snomed
from data_pipeline.sources.obo import read_obo
from data_pipeline.sources.release_files import (
    is_matching,
    is_rrf_terms,
    release_paths,
    unpack_beside,
    unpack_release,
)
from data_pipeline.sources.rrf import read_retired, read_rrf
from data_pipeline.sources.source import RETIRED, Source, checked, no_retired
from data_pipeline.sources.term_tables import is_terms, read_term_source, terms_paths

EXPECTED = (
    "a UMLS release (folder, .zip, .nlm or MRCONSO.RRF), RxNorm (the same, with RXNCONSO.RRF), an "
    "OBO ontology (.obo, .obo.gz), a table of terms (.tsv, .csv, .xlsx), a folder with ontologies "
    "and tables of further names, a release of SNOMED CT (Snapshot folder or .zip), of LOINC "
    "(folder, .zip or Loinc.csv), or OMOP's vocabularies from Athena (folder, .zip or CONCEPT.csv)"
)


_ONTOLOGY = (".obo", ".obo.gz")


class _Kind(StrEnum):
    """The formats of sources."""

    RRF = "UMLS release"
    OBO = "OBO ontology"
    TERMS = "table of terms"
    SNOMED = "SNOMED CT release"
    LOINC = "LOINC release"
    OMOP = "OMOP vocabularies"
    FOLDER = "folder of ontologies and tables"


def _kind_of(path: Path) -> _Kind:
    """The format of the source at a path, from its name or the file names in a folder or .zip.

    Raises:
      BadInput: if there is nothing.
    """
    if not path.exists():
        raise BadInput(f"{path} does not exist; expected {EXPECTED}")
    name = path.name.lower()
    if path.is_file() and name != "loinc.csv" and not name.endswith(".zip"):
        if omop.is_concepts(path):
            return _Kind.OMOP
        if loinc.is_loinc(path):
            return _Kind.LOINC
        if name.endswith(_ONTOLOGY):
            return _Kind.OBO
        if is_rrf_terms(path):
            return _Kind.RRF
        return _Kind.TERMS if is_terms(path) else _Kind.RRF
    return _kind_of_release(_names(path)) or (_Kind.FOLDER if _ontologies(path) else _Kind.RRF)


def _kind_of_release(names: Iterable[str]) -> _Kind | None:
    """The release that files of these names are; None for other files."""
    lower = [name.lower() for name in names]
    of_rrf = ("mrconso.rrf", "rxnconso.rrf")
    if any(name.startswith(of_rrf) or name.endswith(".nlm") for name in lower):
        return _Kind.RRF
    if any(name.removeprefix("x").startswith("sct2_concept_") for name in lower):
        return _Kind.SNOMED
    if "concept.csv" in lower:
        return _Kind.OMOP
    return _Kind.LOINC if "loinc.csv" in lower else None


def _names(path: Path) -> list[str]:
    """The names of the files in a folder or .zip; for any other file its own name."""
    if path.is_dir():
        return [file.name for file in path.rglob("*")]
    if path.suffix.lower() != ".zip":
        return [path.name]
    try:
        with zipfile.ZipFile(path) as archive:
            return [PurePosixPath(name).name for name in archive.namelist()]
    except ZIP_ERRORS:  # who reads it says so
        return []


def _ontologies(path: Path) -> list[Path]:
    """The ontologies in a folder, sorted; of a dataset's folder, and of other paths, none."""
    if (path / DATASET.file).is_file():
        return []
    return [file for file in _visible(path) if file.name.lower().endswith(_ONTOLOGY)]


def _tables_beside(path: Path) -> list[Path]:
    """The tables in a folder with further names of its ontologies' concepts, sorted.

    They are named after an ontology, as hp-fr.babelon.tsv is after hp.obo, so that lists and
    results which lie there are not read. Empty files are left out.
    """
    stems = tuple(f"{file.name.lower().partition('.obo')[0]}-" for file in _ontologies(path))
    named = [
        file
        for file in _visible(path)
        if file.name.lower().startswith(stems)
        and file.name.lower().removesuffix(".gz").endswith((".tsv", ".csv", ".xlsx"))
    ]
    relations = {file for table in named for file in terms_paths(table)[1:]}
    return [file for file in named if file not in relations and file.stat().st_size]


def _visible(folder: Path) -> list[Path]:
    """The files in a folder, sorted, without hidden ones and those that Excel has open."""
    files = sorted(folder.glob("*"))
    return [file for file in files if file.is_file() and not file.name.startswith((".", "~$"))]


def is_release(path: Path) -> bool:
    """Whether a path is an ontology, a release or an archive: a source that is no table."""
    is_file = path.name.lower().endswith((*_ONTOLOGY, ".zip"))
    tells = (omop.is_concepts, loinc.is_loinc, is_rrf_terms)
    is_table = path.is_file() and any(one(path) for one in tells)
    is_folder = _kind_of_release(_names(path)) is not None or bool(_ontologies(path))
    return is_file or is_table or is_folder


def source_paths(path: Path) -> list[Path]:
    """The files that a source is read from, sorted.

    Raises:
      BadInput: if there is nothing.
    """
    kind = _kind_of(path)
    if kind == _Kind.TERMS:
        return terms_paths(path)
    if kind == _Kind.FOLDER:
        tables = _tables_beside(path)
        return [*_ontologies(path), *(file for table in tables for file in terms_paths(table))]
    wanted = {_Kind.SNOMED: snomed.FILE, _Kind.LOINC: loinc.FILE, _Kind.OMOP: omop.FILE}.get(kind)
    if wanted is not None and (path.is_dir() or path.suffix.lower() != ".zip"):
        folder = path if path.is_dir() else path.parent
        near = path.rglob("*") if path.is_dir() else folder.iterdir()
        found = {one for one in near if is_matching(one.relative_to(folder), wanted)}
        return sorted(found if path.is_dir() else found | {path})
    return [path] if kind != _Kind.RRF else release_paths(path)


def read_source(
    path: Path,
    scratch: Path,
    synonym_scopes: Iterable[str] = ("EXACT",),
    release: str | None = None,
    *,
    standard: bool = False,
    strict: bool = False,
    encoding: str | None = None,
) -> Source:
    """The source at `path`; what is packed is unpacked into `scratch`, which need not exist.

    Args:
      path: one of `EXPECTED`.
      scratch: a folder that the caller removes.
      synonym_scopes: synonyms of an OBO ontology; with RELATED, LOINC's related names.
      release: name of the release; None: from the files.
      standard: of OMOP's vocabularies, standard concepts alone, as `read_omop` takes them.
      strict: refuse an OBO ontology with lines that are not valid; else they are left out.
      encoding: of an OBO ontology that is not UTF-8.

    Raises:
      BadInput: for missing or malformed files, and for identifiers with control characters.
    """
    scopes = tuple(scope.upper() for scope in synonym_scopes)
    kind = _kind_of(path)
    if strict and kind not in (_Kind.OBO, _Kind.FOLDER):
        raise BadInput(f"{path} is a {kind.value}; expected an ontology (.obo): leave --strict out")
    if standard and kind != _Kind.OMOP:
        raise BadInput(
            f"{path} is a {kind.value}, which has no standard concepts; expected OMOP's "
            "vocabularies (folder, .zip or CONCEPT.csv): leave the flag for standard concepts out"
        )
    if kind == _Kind.OMOP:
        source = omop.read_omop(path, scratch, release, standard=standard)
    elif kind == _Kind.FOLDER:
        source = _read_folder(path, scopes, release, strict=strict, encoding=encoding)
    elif kind == _Kind.OBO:
        source = read_obo(path, scopes, release, strict=strict, encoding=encoding)
    elif kind == _Kind.TERMS:
        source = read_term_source(path, release)
    elif kind == _Kind.SNOMED:
        source = snomed.read_snomed(path, scratch, release)
    elif kind == _Kind.LOINC:
        source = loinc.read_loinc(path, scratch, scopes, release)
    else:
        source = read_rrf(path, scratch, release)
    return checked(source, path)


def read_successions(path: Path, scratch: Path, concepts: Sequence[str]) -> pl.DataFrame:
    """What a source says of concepts that are no more, in the format of `Source.retired`.

    Of a UMLS release only MRCUI is read; of OMOP's vocabularies also what is not standard, and what
    it maps to.

    Args:
      path, scratch: as in `read_source`.
      concepts: that are asked about.
    """
    kind, table = _kind_of(path), no_retired()
    if kind == _Kind.RRF:
        found = unpack_beside(path, "MRCUI", scratch) if path.is_file() else None
        if path.is_dir() or path.suffix.lower() in (".zip", ".nlm"):
            found = unpack_release(path, scratch).files.get("MRCUI")
        table = table if found is None else read_retired(found)
    else:
        table = read_source(path, scratch).retired
    table = table.filter(pl.col("retired").is_in(concepts))
    if kind == _Kind.OMOP:
        table = pl.concat([table, omop.read_not_standard(path, scratch / "again", concepts)])
    return table


def _read_folder(
    path: Path, scopes: tuple[str, ...], release: str | None, *, strict: bool, encoding: str | None
) -> Source:
    """The ontologies in a folder, and the tables with further names of their concepts.

    Equal identifiers are the same concept. Names of a concept that an ontology has merged into
    another go to that one; names of other withdrawn concepts are suppressed. A table may have
    concepts of its own.
    """
    ontologies = [
        read_obo(one, scopes, release, strict=strict, encoding=encoding)
        for one in _ontologies(path)
    ]
    names = [one.name for one in ontologies]
    if len(set(names)) < len(names):
        raise BadInput(
            f"{path}: found two ontologies with the name {max(names, key=names.count)}; expected "
            "one release of each: take the other out of the folder"
        )
    files = _tables_beside(path)
    further = ", ".join(file.name for file in files) or f"none (no table {names[0]}-....tsv)"
    tell(f"{path}: ontologies: {', '.join(names)}; further names: {further}")
    tables = [read_term_source(one, encoding=encoding) for one in files if not _is_blank(one)]
    atoms = pl.concat([one.atoms for one in ontologies])
    living = atoms.select(retired="cui").unique().collect()
    retired = pl.concat([one.retired for one in ontologies]).join(living, on="retired", how="anti")
    has_one = pl.col("merged").all() & (pl.col("cui").n_unique() == 1)
    merged = retired.group_by("retired").agg(pl.first("cui"), has_one=has_one).filter("has_one")
    now = pl.col("cui").replace(dict(merged.select("retired", "cui").iter_rows()))
    is_withdrawn = pl.col("cui").is_in(retired["retired"].implode())
    added = [
        one.atoms.with_columns(cui=now).with_columns(
            suppress=pl.when(is_withdrawn).then(pl.lit("O")).otherwise("suppress")
        )
        for one in tables
    ]
    parts = [*ontologies, *tables]
    relations = [one.relations for one in parts if one.relations is not None]
    types = [one.types for one in parts if one.types is not None]
    licenses = [one.licenses for one in parts if one.licenses is not None]
    return Source(
        name="+".join(names),
        release=", ".join(dict.fromkeys(one.release for one in ontologies)),
        files=[file for one in parts for file in one.files],
        atoms=pl.concat([atoms, *added]),
        relations=pl.concat(relations) if relations else None,
        types=pl.concat(types) if types else None,
        retired=retired.unique().sort(RETIRED),
        xrefs=pl.concat([one.xrefs for one in ontologies]).unique().sort("cui", "xref"),
        warnings=tuple(line for one in parts for line in one.warnings),
        licenses=pl.concat(licenses) if licenses else None,
    )


def _is_blank(path: Path) -> bool:
    """Whether a table has nothing below its header, as some translations that are to be begun."""
    with quiet(warnings=False):  # what is to be said of it is said when it is read
        _, rows = read_rows(path, otherwise="latin-1")
    return sum(not is_empty(fields) for _, fields in rows) < 2
