"""Reads LOINC (Loinc.csv), with each term under all its names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from data_pipeline.files.tables import Table, bounded_lines, listed, read_table
from data_pipeline.process import BadInput
from data_pipeline.sources.release_files import unpack_matching
from data_pipeline.sources.source import RETIRED, Source, no_retired

_VOCABULARY = "LNC"  # as the UMLS calls it
FILE = re.compile(r"(?:Loinc|MapTo)\.csv", re.IGNORECASE)
_PARTS = ("COMPONENT", "PROPERTY", "TIME_ASPCT", "SYSTEM", "SCALE_TYP", "METHOD_TYP")
# Columns of names, the preferred one first, and the term types that the UMLS has for them.
_NAMES = {"LONG_COMMON_NAME": "LC", "DisplayName": "DN", "SHORTNAME": "OSN"}
_FULL, _RELATED = "LN", "RELATEDNAMES2"
_NEEDED = ("LOINC_NUM", *_PARTS, "CLASS", "STATUS", "SHORTNAME", "LONG_COMMON_NAME")
_STATUSES = ("ACTIVE", "TRIAL", "DISCOURAGED", "DEPRECATED")


def is_loinc(path: Path) -> bool:
    """Whether a file has the columns of Loinc.csv, whatever its name."""
    try:
        with path.open("rb") as file:
            header = next(bounded_lines(file, str(path)), b"").decode("utf-8-sig", errors="replace")
    except OSError:  # who reads it says so
        return False
    return set(_NEEDED) <= set(re.findall(r"\w+", header))


def read_loinc(
    root: Path, scratch: Path, scopes: Iterable[str] = (), release: str | None = None
) -> Source:
    """Reads Loinc.csv, by whatever name, or the folder or .zip that contains it, as a `Source`.

    Term types are LC, DN and OSN (long common, display and short name) and LN (the six parts with
    colons between them). Deprecated terms are obsolete (SUPPRESS=O); where MapTo.csv lies beside
    the table, they are retired into what it maps them to. The semantic type is the class. There
    are no relations.

    Args:
      root: the file, folder or .zip; a .zip is unpacked into `scratch`.
      scratch: a folder that need not exist.
      scopes: with "RELATED" among them, the words of RELATEDNAMES2 are terms, too (type RN): they
        are mostly words that occur in some name, which many terms share.
      release: its name; None: the version in the path, such as 2.78.

    Raises:
      BadInput: missing files or columns, or a malformed row, with file and line.
    """
    files = {
        file["file"].lower(): (path, file) for path, file in unpack_matching(root, FILE, scratch)
    }
    if root.is_file() and root.suffix.lower() != ".zip":  # it may have another name
        files["loinc.csv"] = (root, {"file": root.name, "bytes": root.stat().st_size})
    if "loinc.csv" not in files:
        raise BadInput(f"{root} has no Loinc.csv; expected a release of LOINC: give its folder")
    table = read_table(files["loinc.csv"][0])
    if missing := [name for name in _NEEDED if name not in table.frame.columns]:
        raise BadInput(
            f"{table.path} has no column {missing[0]}; expected LOINC's own table, with "
            f"{listed(_NEEDED)}"
        )
    _check(table)
    frame = table.frame.with_columns(pl.all().str.strip_chars())
    with_related = "RELATED" in scopes and _RELATED in frame.columns
    atoms = _atoms(frame, with_related)
    left_out = 0 if with_related or _RELATED not in frame.columns else _related(frame).height
    retired = no_retired()
    if "mapto.csv" in files:
        retired = _retired(read_table(files["mapto.csv"][0], separator=","), frame)
    version = re.search(r"\d\.\d+", str(root))
    return Source(
        name="loinc",
        release=release or (version[0] if version else "unknown"),
        files=[file for _, file in files.values()],
        atoms=atoms.lazy(),
        relations=None,
        types=frame.select(cui="LOINC_NUM", type="CLASS").filter(pl.col("type") != "").lazy(),
        retired=retired,
        warnings=(f"{left_out:,} RELATED names left out (add them with --synonym-scopes RELATED)",)
        * bool(left_out),
    )


def _check(table: Table) -> None:
    """Raise BadInput, with file and line, for a row without number or name or with an unknown
    status.
    """
    for column, is_wrong, expected in (
        ("LOINC_NUM", ~pl.col("LOINC_NUM").str.contains(r"^\d+-\d$"), "a number such as 4548-4"),
        ("LONG_COMMON_NAME", pl.col("LONG_COMMON_NAME").str.strip_chars() == "", "a name"),
        ("STATUS", ~pl.col("STATUS").is_in(_STATUSES), f"one of {', '.join(_STATUSES)}"),
    ):
        wrong = table.frame.select(is_wrong.arg_true()).to_series()
        if len(wrong):
            raise BadInput(
                f"{table.path}:{table.lines[wrong[0]]}: {column} is "
                f"{table.frame[column][wrong[0]]!r}; expected {expected}: fetch the file again"
            )


def _atoms(frame: pl.DataFrame, with_related: bool) -> pl.DataFrame:
    parts = [pl.when(pl.col(part) != "").then(part) for part in _PARTS]
    columns = {**{name: name for name in _NAMES if name in frame.columns}, _FULL: _FULL}
    types = {**_NAMES, _FULL: _FULL}
    full = pl.concat_str(*parts, separator=":", ignore_nulls=True).alias(_FULL)
    rows = [
        frame.with_columns(full).select(
            "LOINC_NUM", "STATUS", term=name, term_type=pl.lit(types[name])
        )
        for name in columns
    ]
    if with_related:
        rows.append(_related(frame))
    ranks = {name: rank for rank, name in enumerate([*types.values(), "RN"])}
    return (
        pl.concat(rows)
        .filter(pl.col("term") != "")
        .select(
            cui="LOINC_NUM",
            language=pl.lit("ENG"),
            source=pl.lit(_VOCABULARY),
            term_type="term_type",
            suppress=pl.when(pl.col("STATUS") == "DEPRECATED")
            .then(pl.lit("O"))
            .otherwise(pl.lit("N")),
            rank=pl.col("term_type").replace_strict(ranks, return_dtype=pl.UInt8),
            term="term",
            code="LOINC_NUM",
        )
    )


def _related(frame: pl.DataFrame) -> pl.DataFrame:
    """The names in RELATEDNAMES2, which are separated by semicolons."""
    words = frame.select("LOINC_NUM", "STATUS", term=pl.col(_RELATED).str.split(";")).explode(
        "term"
    )
    return words.with_columns(pl.col("term").str.strip_chars(), term_type=pl.lit("RN")).filter(
        pl.col("term") != ""
    )


def _retired(table: Table, frame: pl.DataFrame) -> pl.DataFrame:
    """Deprecated terms, and the terms that MapTo.csv maps them to."""
    old, new = (table.find_column(name, "column") for name in ("LOINC", "MAP_TO"))
    deprecated = frame.filter(pl.col("STATUS") == "DEPRECATED").select(retired="LOINC_NUM")
    mapped = table.frame.select(
        retired=pl.col(old).str.strip_chars(), cui=pl.col(new).str.strip_chars()
    )
    return (
        deprecated.join(mapped, on="retired", how="left")
        .with_columns(pl.col("cui").fill_null(""))
        .with_columns(
            relation=pl.when(pl.col("cui") != "")
            .then(pl.lit("MAP_TO"))
            .otherwise(pl.lit("DEPRECATED")),
            merged=pl.col("cui") != "",
        )
        .select(RETIRED)
        .unique()
        .sort("retired", "relation", "cui")
    )
