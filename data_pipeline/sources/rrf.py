"""Reads the Rich Release Format of the UMLS and of RxNorm into a `Source` of lazy string columns.

RRF is pipe-separated with a trailing pipe, UTF-8, without quoting or escapes. Every line is checked
once (column count, UTF-8, row count against MRFILES) before polars scans the file, since a CSV
reader fills short lines with blanks without a word.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from data_pipeline.process import BadInput
from data_pipeline.sources.release_files import Release, unpack_beside, unpack_release, whole_lines
from data_pipeline.sources.source import Source, no_retired

COLUMNS = {
    "MRCONSO": "CUI LAT TS LUI STT SUI ISPREF AUI SAUI SCUI SDUI SAB TTY CODE STR SRL SUPPRESS CVF",
    "MRREL": "CUI1 AUI1 STYPE1 REL CUI2 AUI2 STYPE2 RELA RUI SRUI SAB SL RG DIR SUPPRESS CVF",
    "MRSTY": "CUI TUI STN STY ATUI CVF",
    "MRCUI": "CUI1 VER REL RELA MAPREASON CUI2 MAPIN",
    "MRFILES": "FIL DES FMT CLS RWS BTS",
}
# The allowed values of columns as (description, shortest, longest, letters), lengths in bytes.
# Other columns may have any string. If letters are given, a value is one of these bytes.
_Rule = tuple[str, int, int, bytes | None]
_CODE: _Rule = ("1 to 40 characters", 1, 40, None)
_LANGUAGE: _Rule = ("three letters", 3, 3, None)
_SUPPRESSED: _Rule = ("N, E, O, Y or nothing", 0, 1, b"NEOY")
_VALUES: dict[str, dict[str, _Rule]] = {
    "MRCONSO": {"CUI": _CODE, "LAT": _LANGUAGE, "SAB": _CODE, "SUPPRESS": _SUPPRESSED},
    "MRREL": {"CUI1": _CODE, "CUI2": _CODE, "SAB": _CODE, "SUPPRESS": _SUPPRESSED},
    "MRSTY": {"CUI": _CODE, "TUI": _CODE},
    "MRCUI": {"CUI1": _CODE, "REL": _CODE},
    "MRFILES": {},
}
# RxNorm's files have the same columns. A relation may be one of atoms, which has no concepts.
_NO_CODE_OR_ONE: _Rule = ("at most 40 characters", 0, 40, None)
for _name in ("CONSO", "REL", "STY"):
    COLUMNS[f"RXN{_name}"] = COLUMNS[f"MR{_name}"]
    _VALUES[f"RXN{_name}"] = dict(_VALUES[f"MR{_name}"])
_VALUES["RXNREL"] |= {"CUI1": _NO_CODE_OR_ONE, "CUI2": _NO_CODE_OR_ONE}
# What RxNorm itself calls a concept beside its name: synonyms, and a name for prescriptions.
_RXNORM, _RXNORM_SYNONYMS = "RXNORM", ("SY", "TMSY", "PSN", "ET")
_NO_CODE = "NOCODE"  # the UMLS writes it where a vocabulary has no codes
_NEWLINE, _PIPE = ord("\n"), ord("|")


def read_rrf(root: Path, scratch: Path, release: str | None = None) -> Source:
    """The release at `root` as a `Source`; packed files are unpacked into `scratch` first.

    `root` may be a folder, a .zip, an .nlm file or one MRCONSO.RRF; the last gives terms only. It
    may also be RxNorm's, with RXNCONSO, RXNREL and RXNSTY; its concepts are the RXCUIs.
    Raises BadInput for missing, cut off or malformed files, naming file and line.
    """
    found = unpack_release(root, scratch)
    of = "MR" if "MRCONSO" in found.files else "RXN"
    if not root.is_file() or len(found.files) > 1:
        _require(found, (f"{of}REL", f"{of}STY"))
    rows = {name: _check_lines(path, name) for name, path in found.files.items()}
    _check_row_counts(found, rows)
    tables = {name: _scan(path, name) for name, path in found.files.items()}
    only_terms = f"{of}REL" not in tables
    return Source(
        name="umls" if of == "MR" else "rxnorm",
        release=release or found.name,
        files=found.sources,
        atoms=_atoms(tables[f"{of}CONSO"]),
        relations=None if only_terms else _relations(tables[f"{of}REL"]),
        types=None if only_terms else _types(tables[f"{of}STY"]),
        retired=_retired(tables["MRCUI"]) if "MRCUI" in tables else no_retired(),
        warnings=(f"{of}CONSO.RRF was given alone: no relations, no semantic types",) * only_terms,
        licenses=_licenses(tables[f"{of}CONSO"]),
    )


def _scan(path: Path, name: str) -> pl.LazyFrame:
    """A lazy table of a checked RRF file, in which every column is a string, "" if empty.

    The part behind the trailing pipe is read as one more column and dropped.
    """
    names = COLUMNS[name].split()
    table = pl.scan_csv(
        path,
        has_header=False,
        separator="|",
        quote_char=None,
        schema={column: pl.String for column in [*names, "END"]},
        truncate_ragged_lines=False,
        glob=False,
    )
    return table.select(pl.col(names).fill_null(""))


def _check_lines(path: Path, name: str) -> int:
    """Reads an RRF file through once and returns its number of rows.

    Raises BadInput, with file and line, for a line that has not exactly one pipe per column, that
    does not end in a pipe, that holds bytes that are not UTF-8 or a value that its column cannot
    have (`_VALUES`); and if the file cannot be read to its end.
    """
    rows = 0
    for chunk, cut_off in whole_lines(path):
        rows += _check_chunk(chunk, path, rows, name, cut_off)
    if not rows:
        raise BadInput(f"{path} is empty; expected rows of {len(COLUMNS[name].split())} columns")
    return rows


def _check_chunk(
    chunk: bytes, path: Path, rows_before: int, name: str, cut_off: bool = False
) -> int:
    """The number of lines in `chunk`, which must end with a line break; raises as `_check_lines`
    does.
    """
    columns = len(COLUMNS[name].split())
    data = np.frombuffer(chunk, np.uint8)
    ends = np.flatnonzero(data == _NEWLINE)
    starts = np.concatenate([[0], ends[:-1] + 1])
    places = np.flatnonzero(data == _PIPE)
    pipes = np.diff(np.searchsorted(places, ends), prepend=0)
    last = np.maximum(ends - 1, starts)
    last = np.where((data[last] == ord("\r")) & (last > starts), last - 1, last)
    wrong = np.flatnonzero((pipes != columns) | (data[last] != _PIPE))
    if len(wrong):
        row = wrong[0]
        line = chunk[starts[row] : ends[row]]
        found = int(pipes[row]) + (not line.rstrip(b"\r").endswith(b"|"))
        text = line[:80].decode(errors="replace")
        why = " at its end: the file is cut off" if cut_off else ""
        raise BadInput(
            f"{path}, line {rows_before + row + 1:,}{why}: found {found} columns, expected "
            f"{columns}, each closed by '|': {text!r}. Fetch or unpack the file again."
        )
    if not chunk.isascii():
        try:
            chunk.decode("utf-8")
        except UnicodeDecodeError as error:
            row = int(np.searchsorted(ends, error.start))
            raise BadInput(
                f"{path}, line {rows_before + row + 1:,}: byte 0x{chunk[error.start]:02x} is not "
                "UTF-8; expected UTF-8 throughout. Was the file converted to another encoding? "
                "Fetch or unpack it again."
            ) from error
    _check_values(data, starts, places.reshape(-1, columns), path, rows_before, name)
    return len(ends)


def _check_values(
    data: np.ndarray, starts: np.ndarray, pipes: np.ndarray, path: Path, rows_before: int, name: str
) -> None:
    """Raise BadInput, with file and line, for a value that its column cannot have.

    Args:
        data: uint8, whole lines of the file `name`, `rows_before` lines after its beginning.
        starts: [rows], where the lines begin.
        pipes: [rows, columns], where their columns end.
    """
    names = COLUMNS[name].split()
    for column, (what, shortest, longest, letters) in _VALUES[name].items():
        number = names.index(column)
        begins = pipes[:, number - 1] + 1 if number else starts
        lengths = pipes[:, number] - begins
        is_wrong = (lengths < shortest) | (lengths > longest)
        if letters is not None:
            is_wrong |= (lengths == 1) & ~np.isin(data[begins], np.frombuffer(letters, np.uint8))
        if is_wrong.any():
            row = int(is_wrong.argmax())
            value = data[begins[row] : pipes[row, number]].tobytes().decode(errors="replace")
            raise BadInput(
                f"{path}, line {rows_before + row + 1:,}: {column} is {value[:80]!r}; expected "
                f"{what}. Mend the line, or fetch the file again."
            )


def _require(found: Release, names: tuple[str, ...]) -> None:
    for name in names:
        if name not in found.files:
            there = ", ".join(f"{n}.RRF" for n in found.files)
            raise BadInput(
                f"{found.root} has {there}, but no {name}.RRF. Add it, or, to build on synonyms "
                f"alone, give the {name[:-3]}CONSO.RRF file itself as the source."
            )


def _check_row_counts(found: Release, rows: dict[str, int]) -> None:
    if "MRFILES" not in found.files:
        return
    table = _scan(found.files["MRFILES"], "MRFILES").select("FIL", "RWS").collect()
    listed = {Path(file).name.removesuffix(".RRF"): count for file, count in table.iter_rows()}
    for name, count in rows.items():
        if name == "MRFILES" or name not in listed:
            continue
        if not listed[name].isdecimal():
            raise BadInput(
                f"{found.files['MRFILES']} lists {listed[name]!r} rows for {name}.RRF; expected a "
                "number. Fetch or unpack it again, or remove it: row counts are then not checked."
            )
        if int(listed[name]) != count:
            raise BadInput(
                f"{found.files[name]} has {count:,} rows, but MRFILES.RRF lists "
                f"{int(listed[name]):,}: the file is cut off, or comes from another release. Fetch "
                "or unpack it again; where the files were cut down on purpose, remove MRFILES.RRF."
            )


def _atoms(table: pl.LazyFrame) -> pl.LazyFrame:
    # 0 for the preferred name of the concept: preferred LUI, preferred form of it, preferred atom.
    rank = (
        4 * (pl.col("TS") != "P").cast(pl.UInt8)
        + 2 * (pl.col("STT") != "PF").cast(pl.UInt8)
        + (pl.col("ISPREF") != "Y").cast(pl.UInt8)
    )
    # RxNorm says none of it: its own name comes first, then its synonyms, then those of others.
    is_own, is_synonym = pl.col("SAB") == _RXNORM, pl.col("TTY").is_in(_RXNORM_SYNONYMS)
    of_rxnorm = (~is_own).cast(pl.UInt8) + (is_synonym | ~is_own).cast(pl.UInt8)
    rank = pl.when(pl.col("TS") == "").then(of_rxnorm).otherwise(rank)
    return table.select(
        cui="CUI",
        language="LAT",
        source="SAB",
        term_type="TTY",
        suppress="SUPPRESS",
        rank=rank,
        term="STR",
        code=pl.when(pl.col("CODE") != _NO_CODE).then("CODE").otherwise(pl.lit("")),
    )


def _licenses(table: pl.LazyFrame) -> pl.LazyFrame:
    """The source restriction level of each vocabulary, which the license of the UMLS explains."""
    levels = table.group_by(source="SAB").agg(pl.col("SRL").max()).filter(pl.col("SRL") != "")
    return levels.select("source", license="UMLS, restriction level " + pl.col("SRL"))


def _relations(table: pl.LazyFrame) -> pl.LazyFrame:
    return table.filter((pl.col("CUI1") != "") & (pl.col("CUI2") != "")).select(
        head="CUI1", rel="REL", rela="RELA", tail="CUI2", source="SAB", suppress="SUPPRESS"
    )


def _types(table: pl.LazyFrame) -> pl.LazyFrame:
    return table.select(cui="CUI", type=pl.col("TUI") + " " + pl.col("STY"))


def read_types(mrconso: Path, scratch: Path) -> pl.LazyFrame | None:
    """The semantic types in the MRSTY.RRF beside a MRCONSO.RRF, as in `Source`; None without one.

    Beside RXNCONSO.RRF it is RXNSTY.RRF. It may be a .gz file, which is unpacked into `scratch`.
    Raises BadInput for a malformed file.
    """
    name = "RXNSTY" if mrconso.name.upper().startswith("RXN") else "MRSTY"
    path = unpack_beside(mrconso, name, scratch)
    if path is None:
        return None
    _check_lines(path, name)
    return _types(_scan(path, name))


def read_retired(path: Path) -> pl.DataFrame:
    """The retired concepts of an MRCUI file, as in `Source`.

    Raises BadInput for a malformed file, naming file and line, and for RXNCUI.
    """
    if path.name.upper().startswith("RXNCUI"):
        raise BadInput(
            f"{path}: found RxNorm's RXNCUI; expected MRCUI, or lines of old<TAB>new: make them by "
            f"awk -F'|' '$1 != $5 {{print $1 \"\\t\" $5}}' {path} | sort -u > old_new.tsv, and "
            "give that"
        )
    _check_lines(path, "MRCUI")
    return _retired(_scan(path, "MRCUI"))


def _retired(table: pl.LazyFrame) -> pl.DataFrame:
    """Retired concepts. REL in MRCUI: DEL (no successor), SY (merged into CUI2), or
    broader/narrower/other.
    """
    return (
        table.select(retired="CUI1", relation="REL", cui="CUI2", merged=pl.col("REL") == "SY")
        .unique()
        .sort("retired", "relation", "cui")
        .collect()
    )
