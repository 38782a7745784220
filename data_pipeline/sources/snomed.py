"""Reads the snapshot of a SNOMED CT release in Release Format 2 (RF2) into a `Source`.

RF2 is tab-separated UTF-8 with a header and without quotes; of the Full, Delta and Snapshot files
of a release the Snapshot ones are read, in which each component stands once, as it is now. Active
rows count alone. What the columns and the identifiers below mean is in SNOMED's Release File
Specifications.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import polars as pl

from data_pipeline import process
from data_pipeline.files.tables import bounded_lines
from data_pipeline.process import BadInput
from data_pipeline.sources.release_files import unpack_matching
from data_pipeline.sources.source import ATOMS, Source, both_directions
from data_pipeline.sources.term_tables import umls_language

_VOCABULARY = "SNOMEDCT"
FILE = re.compile(
    r"x?(sct2_Concept|sct2_Description|sct2_Relationship|der2_cRefset_Language"
    r"|der2_cRefset_Association)(?:Reference)?_?[A-Za-z]*?Snapshot(?:-[A-Za-z-]+)?_\w+_(\d{8})\.txt"
)
_NEEDED = ("sct2_Concept", "sct2_Description", "sct2_Relationship")
_HEAD = ["id", "effectiveTime", "active", "moduleId"]
_COLUMNS = {
    "sct2_Concept": [*_HEAD, "definitionStatusId"],
    "sct2_Description": [
        *(*_HEAD, "conceptId", "languageCode", "typeId", "term", "caseSignificanceId"),
    ],
    "sct2_Relationship": [
        *(*_HEAD, "sourceId", "destinationId", "relationshipGroup", "typeId"),
        *("characteristicTypeId", "modifierId"),
    ],
    "der2_cRefset_Language": [*_HEAD, "refsetId", "referencedComponentId", "acceptabilityId"],
    "der2_cRefset_Association": [*_HEAD, "refsetId", "referencedComponentId", "targetComponentId"],
}
_FULLY_SPECIFIED_NAME, _SYNONYM = "900000000000003001", "900000000000013009"
_PREFERRED = "900000000000548007"
# Associations of inactive concepts: how the target is related to them.
_SAME = {"900000000000527005": "same_as", "900000000000526001": "replaced_by"}
_OTHER = {
    "900000000000523009": "possibly_equivalent_to",
    "900000000000528000": "was_a",
    "900000000000530003": "alternative",
}
_TAG = r"\s*\(([^()]+)\)$"  # of a fully specified name: "Asthma (disorder)"


def read_snomed(root: Path, scratch: Path, release: str | None = None) -> Source:
    """The snapshot in a folder or .zip as a `Source`; a .zip is unpacked into `scratch`.

    Term types are FN (the fully specified name), PT (preferred by one of the language reference
    sets) and SY; the first PT is the preferred term. Semantic types are the tags of the fully
    specified names. Relations have the names of their types, as `source.both_directions` writes
    them. Inactive concepts are retired: into what they are the same as, or replaced by, where that
    is active. Files of several editions may lie together, such as those of a country and the
    International Edition.

    Raises:
      BadInput: for missing or malformed files, with file and line.
    """
    paths, files, dates = defaultdict(list), [], []
    for path, file in unpack_matching(root, FILE, scratch):
        match = FILE.fullmatch(file["file"])
        assert match is not None, "it was found by it"
        paths[match[1]].append(path)
        files.append(file)
        dates.append(match[2])
    if missing := [kind for kind in _NEEDED if kind not in paths]:
        raise BadInput(
            f"{root} has no {missing[0]}_Snapshot_..._YYYYMMDD.txt; expected a release of SNOMED "
            "CT in Release Format 2: give its Snapshot folder, or the .zip as it was downloaded"
        )
    tables = {kind: _active_or_not(kind, paths[kind]) for kind in _COLUMNS}
    concepts = tables["sct2_Concept"]
    active = concepts.filter("active").select(cui="id")
    names = _names(tables["sct2_Description"].filter("active"), tables["der2_cRefset_Language"])
    atoms = names.join(active, on="cui", maintain_order="left", how="semi")
    known = names.join(concepts.select(cui="id"), on="cui", how="semi")
    warnings = []
    if lost := names.height - known.height:
        warnings.append(
            f"{lost:,} descriptions of concepts that no Concept file has were left out; the files "
            "of an extension need those of the International Edition beside them"
        )
    return Source(
        name="snomedct",
        release=release or max(dates),
        files=files,
        atoms=atoms.select(ATOMS).lazy(),
        relations=_relations(tables["sct2_Relationship"].filter("active"), names).lazy(),
        types=_types(atoms).lazy(),
        retired=_retired(concepts, tables["der2_cRefset_Association"].filter("active")),
        warnings=tuple(warnings),
    )


def _active_or_not(kind: str, paths: list[Path]) -> pl.DataFrame:
    """The rows of files of one kind, active as a bool; the newest row of each component."""
    columns = _COLUMNS[kind]
    tables = [_read(path, columns) for path in paths]
    if not tables:
        return pl.DataFrame(schema=dict.fromkeys(columns, pl.String) | {"active": pl.Boolean})
    rows = pl.concat(tables)
    if len(tables) > 1:
        rows = rows.sort("effectiveTime", maintain_order=True)
        rows = rows.unique("id", keep="last", maintain_order=True)
    return rows.with_columns(pl.col("active") == "1")


def _read(path: Path, columns: list[str]) -> pl.DataFrame:
    _check_lines(path, columns)
    return pl.read_csv(
        path,
        separator="\t",
        quote_char=None,
        schema=dict.fromkeys(columns, pl.String),
        glob=False,
    ).fill_null("")


def _check_lines(path: Path, columns: list[str]) -> None:
    """Raise BadInput, with file and line, for a wrong header, a broken line, or bytes that are not
    UTF-8.
    """
    again = "fetch or unpack the file again"
    if not path.stat().st_size:
        raise BadInput(f"{path} is empty; expected {' '.join(columns)} and rows below: {again}")
    with path.open("rb") as file:
        for number, line in enumerate(bounded_lines(file, str(path)), start=1):
            found = line.count(b"\t") + 1
            if number == 1 and line.decode(errors="replace").strip().split("\t") != columns:
                raise BadInput(
                    f"{path}:1: found the header {line[:200].decode(errors='replace').strip()!r}; "
                    f"expected {' '.join(columns)}, with tabs between: {again}"
                )
            if found != len(columns) or not line.endswith(b"\n"):
                raise BadInput(
                    f"{path}:{number}: found {found} columns; expected {len(columns)} and a line "
                    f"break, so it is cut off or damaged: {again}"
                )
            if not line.isascii():
                try:
                    line.decode()
                except UnicodeDecodeError as error:
                    byte = line[error.start]
                    raise BadInput(
                        f"{path}:{number}: found byte 0x{byte:02x}, which is not UTF-8: {again}"
                    ) from error
            if not number % 100_000:
                process.poll()


def _names(descriptions: pl.DataFrame, language: pl.DataFrame) -> pl.DataFrame:
    """Active names in the format of `Source.atoms`, and the ids of their descriptions."""
    preferred = language.filter("active", pl.col("acceptabilityId") == _PREFERRED)
    is_preferred = pl.col("id").is_in(preferred["referencedComponentId"].implode())
    kind = (
        pl.when(pl.col("typeId") == _FULLY_SPECIFIED_NAME)
        .then(pl.lit("FN"))
        .when(is_preferred)
        .then(pl.lit("PT"))
        .otherwise(pl.lit("SY"))
    )
    return (
        descriptions.filter(pl.col("typeId").is_in([_FULLY_SPECIFIED_NAME, _SYNONYM]))
        .with_columns(term_type=kind)
        .select(
            "term_type",
            "term",
            cui="conceptId",
            language=umls_language(pl.col("languageCode")),
            source=pl.lit(_VOCABULARY),
            suppress=pl.lit("N"),
            rank=pl.col("term_type").replace_strict(
                {"PT": 0, "FN": 1, "SY": 2}, return_dtype=pl.UInt8
            ),
            code="conceptId",
        )
    )


def _types(names: pl.DataFrame) -> pl.DataFrame:
    """The semantic tags of fully specified names; English ones for concepts that have any."""
    tagged = names.filter(pl.col("term_type") == "FN").select(
        "cui", is_english=pl.col("language") == "ENG", type=pl.col("term").str.extract(_TAG)
    )
    is_right = pl.col("is_english") | ~pl.col("is_english").any().over("cui")
    return (
        tagged.filter(pl.col("type").is_not_null(), is_right)
        .select("cui", "type")
        .unique()
        .sort("cui", "type")
    )


def _relations(relationships: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """Relationships, each named by the preferred English term of its type."""
    called = (
        names.sort(pl.col("language") != "ENG", "rank", maintain_order=True)
        .unique("cui", keep="first", maintain_order=True)
        .select(typeId="cui", relation=pl.col("term").str.replace(_TAG, ""))
    )
    return both_directions(
        relationships.join(called, on="typeId", how="left", maintain_order="left").select(
            head="sourceId",
            relation=pl.coalesce("relation", "typeId"),
            tail="destinationId",
            source=pl.lit(_VOCABULARY),
        )
    )


def _retired(concepts: pl.DataFrame, associations: pl.DataFrame) -> pl.DataFrame:
    """Inactive concepts, and the concepts that their associations lead to."""
    known = {**_SAME, **_OTHER}
    led = associations.filter(pl.col("refsetId").is_in(list(known))).select(
        id="referencedComponentId",
        relation=pl.col("refsetId").replace_strict(known, return_dtype=pl.String),
        cui="targetComponentId",
    )
    alive = concepts.filter("active")["id"].implode()
    return (
        concepts.filter(~pl.col("active"))
        .join(led, on="id", how="left")
        .select(
            retired="id",
            relation=pl.col("relation").fill_null("inactive"),
            cui=pl.col("cui").fill_null(""),
            merged=(
                pl.col("relation").is_in(list(_SAME.values())) & pl.col("cui").is_in(alive)
            ).fill_null(False),
        )
        .unique()
        .sort("retired", "relation", "cui")
    )
