"""The leaderboard: lists of encoders and sets, a cell for each pair, and its tables.

A cell is what one encoder scores on one set. It lies in a file of its own, with a hash of all that
its score depends on, so that a board grows cell by cell and is never computed twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import msgspec
import polars as pl

from coder_jax.evaluation.comparison import ScoreDifference, differences_of, p_in_words
from coder_jax.evaluation.record import EvaluationRecord, typed_record
from data_pipeline.files.identity import (
    CELL,
    Hash,
    is_of_kind,
    read_identity,
    typed,
    write_identity,
)
from data_pipeline.files.tables import read_text
from data_pipeline.process import BadInput, did_you_mean
from data_pipeline.sources.read_source import is_release, source_paths

# -------------------------------------------------------------------------------------------------
# The lists: models.toml and sets.toml.

_SHIPPED = "coder_jax.evaluation"  # the package in which the lists of this project are


@dataclass(frozen=True, kw_only=True)
class BoardModel:
    """A row of the board, as models.toml has it."""

    name: str
    model: str  # a folder or a file below --data, a hub id, or what compares strings
    pooling: str | None = None
    prompt: str | None = None  # before each term, such as "query: "; None: as its folder says
    cleaning: str | None = None
    max_length: int | None = None
    attend_padding: bool = False
    # strings: no encoder; `model` is one of `name_pairs.STRINGS`.
    backend: Literal["jax", "onnx", "onnx-int8", "sentence-transformers", "strings"] = "jax"
    vectors_of: Literal["words", "names", "concepts"] | None = None
    licence: str = ""
    about: str = ""  # such as its paper


@dataclass(frozen=True, kw_only=True)
class BoardSet:
    """A column of the board, as sets.toml has it."""

    name: str
    path: str  # below --data
    dictionary: str = ""  # below --data; "": the set's own
    dictionary_languages: list[str] = field(default_factory=list)
    dictionary_sources: list[str] = field(default_factory=list)
    retired_cuis: str = ""  # below --data
    # Of its kind, such as given_groups; files in them are below --data.
    options: dict[str, Any] = field(default_factory=dict)
    score: str = ""  # the one that is shown; "": that of its kind
    language: str = ""  # of what is asked
    counts: dict[str, int] = field(default_factory=dict)  # published, by our names
    licence: str = ""
    source: str = ""  # where it is had
    needs: str = ""  # a licence or a release, and how it is had
    about: str = ""


Entry = TypeVar("Entry", BoardModel, BoardSet)


def read_list(paths: Sequence[Path], kind: type[Entry]) -> list[Entry]:
    """The entries of lists, [[model]] or [[set]]; of no path, those that this project knows.

    BadInput for a broken list, a key that no entry has, or a name that stands twice.
    """
    table = "model" if kind is BoardModel else "set"
    shipped = resources.files(_SHIPPED) / f"{table}s.toml"
    texts = {str(path): read_text(path) for path in paths}
    found: dict[str, Entry] = {}
    for path, text in (texts or {shipped.name: shipped.read_text(encoding="utf-8")}).items():
        try:
            entries = tomllib.loads(text).get(table)
        except tomllib.TOMLDecodeError as error:
            raise BadInput(f"{path}: {error}; expected TOML: mend the line") from error
        if not isinstance(entries, list) or not entries:
            raise BadInput(f"{path}: found no [[{table}]]; expected one for each {table}")
        known = [one.name for one in fields(kind)]
        for number, values in enumerate(entries, start=1):
            where = f"{path}, [[{table}]] {number}"
            for key in values:
                if key not in known:
                    raise BadInput(
                        f"{where}: found {key!r}{did_you_mean(key, known)}; expected "
                        f"{', '.join(known)}"
                    )
            entry = typed(values, kind, where, "mend the list")
            if entry.name in found:
                raise BadInput(f"{where}: found the name {entry.name!r} twice; expected one each")
            found[entry.name] = entry
    return list(found.values())


# -------------------------------------------------------------------------------------------------
# Cells, and the times beside them.

# Raise it when the score of a cell would be another by the same files: all cells are then redone.
_PROTOCOL = 3
_TIMES = "times.json"
# The score of a kind that is shown: the first of these that its record has.
_MAIN = ("acc@1", "f1", "spearman", "mcsm", "accuracy", "hits@10", "mrr")


@dataclass(frozen=True, kw_only=True)
class _CellFile:
    """A cell's file. `record` is what `evaluate --json` writes, without date and times."""

    key: Hash
    model: BoardModel
    set: BoardSet
    parameters: int | None
    record: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class BoardCell:
    """One encoder on one set."""

    key: str
    model: BoardModel
    set: BoardSet
    parameters: int | None
    record: EvaluationRecord

    @property
    def score(self) -> str:
        """The name of the score that is shown."""
        names = [self.set.score] if self.set.score else _MAIN
        found = next((name for name in names if name in self.record.scores), None)
        if found is None and self.set.score:
            raise BadInput(
                f"the set {self.set.name}: found the scores {', '.join(self.record.scores)}; "
                f"expected score = {self.set.score!r} to be one of them"
            )
        return found or next(iter(self.record.scores))

    @property
    def value(self) -> float | None:
        """The score, in percent; of rho, times 100."""
        value = self.record.scores[self.score]
        return None if value is None else 100 * value

    @property
    def prompt(self) -> str:
        """What stood before each term."""
        return getattr(self.record.encoder, "prompt", "") or ""

    @property
    def interval(self) -> list[float] | None:
        """Its 95 % interval, on the same scale."""
        found = self.record.intervals.get(self.score)
        return [100 * end for end in found] if found else None


# What readers look at beside a file: the dictionary of mentions; of a release the semantic types.
_BESIDE = re.compile(r"dictionary\.tsv|(MR|RXN)STY\.RRF(\.gz)?")


def hash_of_files(path: Path) -> str:
    """SHA-256 of a file and of what is read beside it, or of the names and files of a folder; of
    the name of what is neither.

    Descriptions (README.md and the like) and hidden files do not count.
    """
    digest = hashlib.sha256()
    if not path.exists():
        digest.update(str(path).encode())
    files = sorted(path.rglob("*"))
    if path.is_file():
        beside = {one for one in path.parent.iterdir() if _BESIDE.fullmatch(one.name)}
        of_release = source_paths(path) if is_release(path) else []
        files = [path, *sorted({*beside, *of_release} - {path})]
    for file in files:
        name = os.path.relpath(file, path)
        hidden = any(part.startswith(".") and part != ".." for part in Path(name).parts)
        if hidden or file.suffix.lower() == ".md" or not file.is_file():
            continue
        with file.open("rb") as content:
            own = hashlib.file_digest(content, "sha256").hexdigest()
        digest.update(f"{name} {own}\n".encode())
    return digest.hexdigest()


# What tells people of an entry, and changes no score.
_TOLD = ("licence", "about", "source", "needs", "counts", "language", "score")


def key_of(model: BoardModel, files_of_model: str, one: BoardSet, files_of_set: str) -> str:
    """The hash of all that a cell depends on: files, settings and protocol."""
    files = [files_of_model, files_of_set]
    whole = {"protocol": _PROTOCOL, "settings": [_counted(model), _counted(one)], "files": files}
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def _counted(entry: BoardModel | BoardSet) -> dict[str, Any]:
    """The settings of an entry on which scores depend."""
    return {name: value for name, value in asdict(entry).items() if name not in ("name", *_TOLD)}


def cell_file(out: Path, model: str, one: str) -> Path:
    """Where the cell of a model and a set lies, by their names."""
    return out / "cells" / quote(model, safe=" +@=,") / f"{quote(one, safe=' +@=,')}.json"


def is_done(path: Path, key: str) -> bool:
    """Whether a cell is there, of these files and settings."""
    return is_of_kind(path, CELL) and read_identity(path, CELL, _CellFile).key == key


def write_cell(path: Path, cell: BoardCell) -> None:
    """Writes a cell, atomically; without date and times, and without what only a report shows."""
    record = replace(cell.record, date="", mentions_per_s=None)
    if record.answers is not None:
        record = replace(record, answers=replace(record.answers, cutoffs={}, predictions={}))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_identity(
        path,
        CELL,
        _CellFile(
            key=cell.key,
            model=cell.model,
            set=cell.set,
            parameters=cell.parameters,
            record=msgspec.to_builtins(record),
        ),
    )


def _as_told_now(entry: Entry, current: Mapping[str, Entry]) -> Entry:
    """An entry with what the current list tells people of it."""
    now = current.get(entry.name, entry)
    return replace(entry, **{name: getattr(now, name) for name in _TOLD if hasattr(now, name)})


def read_cells(
    out: Path, models: Sequence[BoardModel] = (), sets: Sequence[BoardSet] = ()
) -> list[BoardCell]:
    """All cells of a board; what only tells people is as the lists have it now."""
    cells = []
    rows, columns = {one.name: one for one in models}, {one.name: one for one in sets}
    for path in sorted((out / "cells").glob("*/[!.]*.json")):  # hidden: vectors that still grow
        one = read_identity(path, CELL, _CellFile)
        record = typed_record(one.record, str(path), f"remove it and run `{CELL.command}` again")
        given = {name: getattr(one, name) for name in ("key", "model", "set", "parameters")}
        given["model"] = _as_told_now(one.model, rows)
        given["set"] = _as_told_now(one.set, columns)
        cells.append(BoardCell(**given, record=record))
    return cells


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How fast an encoder is: terms a second, on which machine, measured on which terms."""

    key: str
    terms_per_s: float
    machine: str
    date: str
    terms: str = ""  # such as "1,024 of Cadec"


def read_times(out: Path) -> dict[str, Speed]:
    """The speed of each encoder, by its name; all times of a board are in this file."""
    path = out / _TIMES
    if not path.is_file():
        return {}
    return typed(json.loads(read_text(path)), dict[str, Speed], str(path), "remove it")


def write_times(out: Path, times: Mapping[str, Speed]) -> None:
    """Writes times.json, atomically."""
    from data_pipeline.files.whole import write_json

    write_json(out / _TIMES, {name: asdict(times[name]) for name in sorted(times)})


# -------------------------------------------------------------------------------------------------
# The board: all cells in rows and columns.


@dataclass(frozen=True, kw_only=True)
class BoardRow:
    """An encoder on all sets.

    Attributes:
      cells: by the name of the set.
      mean: of the scores, if it has one of each set, all of the same encoder.
      differences: from the row that all are compared with, of the score that is shown; by the set.
      speed: of the encoder, where it was measured.
    """

    model: BoardModel
    parameters: int | None
    cells: dict[str, BoardCell]
    mean: float | None
    differences: dict[str, ScoreDifference]
    speed: Speed | None


@dataclass(frozen=True, kw_only=True)
class Board:
    """A whole board; rows from the best mean to the worst, then those without one.

    Attributes:
      compared_to: the name of the row that all others are compared with, or "".
      best: the highest score of each set.
      notes: what a reader must know, such as counts that are not the published ones.
      missing: models and sets of the lists that are not at hand.
    """

    rows: list[BoardRow]
    sets: list[BoardSet]
    compared_to: str
    best: dict[str, float]
    notes: list[str]
    missing: list[BoardModel | BoardSet]


def board_of(
    cells: Iterable[BoardCell],
    times: Mapping[str, Speed],
    order: Sequence[str],
    compared_to: str = "",
    missing: Sequence[BoardModel | BoardSet] = (),
) -> Board:
    """The board of some cells.

    Args:
      order: names of sets, as their columns stand; others come behind them by name.
      compared_to: the name of a row; "": none.
    """
    by_model: dict[str, dict[str, BoardCell]] = {}
    sets: dict[str, BoardSet] = {}
    for cell in cells:
        by_model.setdefault(cell.model.name, {})[cell.set.name] = cell
        sets.setdefault(cell.set.name, cell.set)
    place = {name: number for number, name in enumerate(order)}
    names = sorted(sets, key=lambda name: (place.get(name, len(place)), name))
    rows = []
    for row in by_model.values():
        first = next(iter(row.values()))
        values = [row[name].value for name in names if name in row]
        numbers = [value for value in values if value is not None]
        whole = len(numbers) == len(names) and _is_of_one_encoder(row)
        base = by_model.get(compared_to, {}) if first.model.name != compared_to else {}
        rows.append(
            BoardRow(
                model=first.model,
                parameters=first.parameters,
                cells={name: row[name] for name in names if name in row},
                mean=sum(numbers) / len(numbers) if whole else None,
                differences=_differences(base, row),
                speed=times.get(first.model.name),
            )
        )
    rows.sort(key=lambda one: (one.mean is None, -(one.mean or 0), one.model.name))
    shown = [sets[name] for name in names]
    of_all = [(name, cell.value) for row in rows for name, cell in row.cells.items()]
    scored = sorted((name, value) for name, value in of_all if value is not None)
    return Board(
        rows=rows,
        sets=shown,
        compared_to=compared_to,
        best=dict(scored),  # of each the last, which is the highest
        notes=[*_notes(rows, shown), *_not_tested(rows, shown, compared_to)],
        missing=list(missing),
    )


def _differences(
    base: Mapping[str, BoardCell], row: Mapping[str, BoardCell]
) -> dict[str, ScoreDifference]:
    """The paired tests of a row, of the sets of which both have the same mentions or pairs."""
    found = {}
    for name, cell in row.items():
        other = base.get(name)
        if other is None or _asked(other) != _asked(cell):
            continue
        a, b = other.record, cell.record
        kept = all((one.answers and one.answers.ranks) or one.pairs for one in (a, b))
        if kept:
            of_all = differences_of(a, b, other.model.name, cell.model.name, 0)
            for one in of_all:
                if one.score == cell.score:
                    found[name] = one
    return found


def _asked(cell: BoardCell) -> tuple[str, ...]:
    """What two cells must share to be comparable: what is asked, in its order, and searched."""
    record = cell.record
    order = record.answers.order if record.answers else ""
    ratings = json.dumps(record.pairs.ratings) if record.pairs else ""
    searched = str((record.dictionary or {}).get("content_hash"))
    return record.kind, record.content_hash, searched, order, ratings


def _is_of_one_encoder(row: Mapping[str, BoardCell]) -> bool:
    """Whether all cells of a row are of the same weights and settings."""
    first, *others = (
        (_counted(one.model), one.record.encoder.weights_hash) for one in row.values()
    )
    return all(other == first for other in others)


def _notes(rows: Sequence[BoardRow], sets: Sequence[BoardSet]) -> Iterable[str]:
    """Counts that are not as published, rows of several encoders, columns of several files, speeds
    that do not compare.
    """
    measured = {
        f"{row.speed.terms or 'unknown terms'} on {row.speed.machine}" for row in rows if row.speed
    }
    if len(measured) > 1:
        yield (
            f"terms/s are of {'; '.join(sorted(measured))}, so they do not compare; remove "
            f"{_TIMES} and score all rows in one command"
        )
    for row in rows:
        if not _is_of_one_encoder(row.cells):
            yield (
                f"{row.model.name}: its scores are of different weights or settings; score it on "
                "all sets in one command"
            )
    for one in sets:
        cells = [row.cells[one.name] for row in rows if one.name in row.cells]
        for name, published in one.counts.items():
            counted = {cell.record.counts.get(name) for cell in cells}
            for found in sorted(counted - {published, None}, key=str):
                yield f"{one.name}: found {found:,} {name}; published are {published:,}"
        if len({_asked(cell) for cell in cells}) > 1:
            yield (
                f"{one.name}: its rows are of different files, so they do not compare; score "
                "all of them in one command"
            )


def _not_tested(
    rows: Sequence[BoardRow], sets: Sequence[BoardSet], compared_to: str
) -> Iterable[str]:
    """The columns without arrows because no answers are kept that a paired test could compare."""
    tested = {name for row in rows for name in row.differences}
    without = [one.name for one in sets if one.name not in tested]
    if compared_to and without and len(rows) > 1:
        yield (
            f"no test compares the rows with {compared_to} on {', '.join(without)}: the answers to "
            "this score are not kept one by one, or are of different files"
        )


# -------------------------------------------------------------------------------------------------
# The board as CSV, JSON and LaTeX.


def csv_of(board: Board) -> str:
    """A line for each cell; the only time is the last column."""
    lines = []
    for row in board.rows:
        for name, cell in row.cells.items():
            low, high = cell.interval or (None, None)
            test = row.differences.get(name)
            ends = [100 * end for end in test.interval] if test else [None, None]
            counts = cell.record.counts
            lines.append(
                {
                    "model": row.model.name,
                    "id": row.model.model,
                    "pooling": cell.record.encoder.pooling,
                    "prompt": cell.prompt,
                    "licence": row.model.licence,
                    "parameters": row.parameters,
                    "set": name,
                    "language": cell.set.language,
                    "score": cell.score,
                    "value": _rounded(cell.value),
                    "low": _rounded(low),
                    "high": _rounded(high),
                    "asked": counts.get("mentions", counts.get("pairs")),
                    "unreachable": counts.get("unreachable"),
                    "compared_to": board.compared_to if test else None,
                    "difference": _rounded(100 * (test.b - test.a)) if test else None,
                    "difference_low": _rounded(ends[0]),
                    "difference_high": _rounded(ends[1]),
                    "p": test.p if test else None,
                    "won": test.won if test else None,
                    "lost": test.lost if test else None,
                    "hash": cell.key,
                    "terms_per_s": _rounded(row.speed.terms_per_s, 1) if row.speed else None,
                }
            )
    return pl.DataFrame(lines, infer_schema_length=None).write_csv()


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)


def json_of(board: Board) -> str:
    """All of the board, with the protocol of each cell; the times are in one place, at the end."""
    rows = [
        {
            "model": asdict(row.model),
            "parameters": row.parameters,
            "mean": row.mean,
            "cells": {
                name: {
                    "hash": cell.key,
                    "score": cell.score,
                    "value": cell.value,
                    "interval": cell.interval,
                    "scores": cell.record.scores,
                    "counts": cell.record.counts,
                    "difference": asdict(row.differences[name])
                    if name in row.differences
                    else None,
                    "protocol": {
                        "benchmark": cell.record.content_hash,
                        "dictionary": cell.record.dictionary,
                        "scoring": cell.record.scoring,
                        "encoder": msgspec.to_builtins(cell.record.encoder),
                        "versions": cell.record.versions,
                    },
                }
                for name, cell in row.cells.items()
            },
        }
        for row in board.rows
    ]
    whole = {
        "compared_to": board.compared_to,
        "notes": board.notes,
        "sets": [asdict(one) for one in board.sets],
        "rows": rows,
        "missing": [asdict(one) for one in board.missing],
        "times": {row.model.name: asdict(row.speed) for row in board.rows if row.speed},
    }
    return json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _rows_of_table(
    board: Board, bold: str, width: str, better: str, worse: str, none: str
) -> list[list[str]]:
    """The rows of a table as text: name, million parameters, a cell for each set, mean, terms/s.

    A cell is a score with half its interval, bold if it is the best, and the outcome of its test.

    Args:
      bold, width: format strings of the best score of a set, and of half an interval.
      better, worse: what stands behind a cell by its test.
      none: the text where nothing is.
    """
    marks = {"better": better, "worse": worse, "": ""}

    def shown(row: BoardRow, name: str, cell: BoardCell) -> str:
        value = f"{cell.value:.1f}"
        low, high = cell.interval or (0, 0)
        half = width.format((high - low) / 2) if cell.interval else ""
        text = bold.format(value) if cell.value == board.best[name] else value
        return text + half + marks[side_of(row.differences.get(name))]

    rows = []
    for row in board.rows:
        found = [(one.name, row.cells.get(one.name)) for one in board.sets]
        cells = [
            none if cell is None or cell.value is None else shown(row, name, cell)
            for name, cell in found
        ]
        mean = none if row.mean is None else f"{row.mean:.1f}"
        speed = f"{row.speed.terms_per_s:,.0f}" if row.speed else none
        rows.append([row.model.name, millions(row.parameters), *cells, mean, speed])
    return rows


def markdown_of(board: Board) -> str:
    """A table for a page of documentation, with the best of each set in bold.

    The outcome of a test is an arrow, as in `latex_of`; times are in the last column. Below it are
    the notes.
    """
    heads = ["encoder", "million parameters", *(one.name for one in board.sets), "mean", "terms/s"]
    rows = _rows_of_table(board, "**{}**", " ±{:.1f}", " ↑", " ↓", "-")
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    table = "".join(
        f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines
    )
    return table + "".join(["\n"] * bool(board.notes) + [f"- {note}\n" for note in board.notes])


_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_TEX |= {character: f"\\{character}" for character in "&%$#_{}"}
_SURE = 0.05  # below this p a difference is marked


def latex_of(board: Board) -> str:
    """A table for booktabs: a row for each encoder, its times in the last column."""
    heads = ["Encoder", "M", *(one.name for one in board.sets), "Mean", "terms/s"]
    arrows = r" $\uparrow$", r" $\downarrow$"
    rows = _rows_of_table(board, r"\textbf{{{}}}", r" {{\scriptsize$\pm${:.1f}}}", *arrows, "--")
    tests = (
        f"$\\uparrow$, $\\downarrow$: better or worse than {_tex(board.compared_to)} by a paired "
        f"test, $p < {_SURE}$. "
        if board.compared_to
        else ""
    )
    return "\n".join(
        [
            *(
                f"% {row.model.name} on {name}: {cell.score}, {cell.key[:16]}"
                for row in board.rows
                for name, cell in row.cells.items()
            ),
            r"\begin{tabular}{l" + "r" * (len(heads) - 1) + "}",
            r"\toprule",
            " & ".join(map(_tex, heads)) + r" \\",
            r"\midrule",
            *(" & ".join([_tex(name), *cells]) + r" \\" for name, *cells in rows),
            r"\bottomrule",
            r"\end{tabular}",
            f"% {tests}Behind $\\pm$: half the width of the 95 % interval. M: million parameters.",
            *(f"% {note}" for note in board.notes),
            "",
        ]
    )


def _tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text)


def millions(parameters: int | None) -> str:
    """A number of parameters in millions: "22.7"; "-" for none."""
    return "-" if parameters is None else f"{parameters / 1e6:,.1f}"


def side_of(test: ScoreDifference | None) -> str:
    """ "better" or "worse" where a paired test is sure of it, else "".

    Scores that are shown alike get neither: a test is also sure of a thousandth of a point.
    """
    if test is None or test.p >= _SURE or round(100 * test.a, 1) == round(100 * test.b, 1):
        return ""
    return "better" if test.b > test.a else "worse"


def difference_in_words(found: ScoreDifference) -> str:
    """A paired test for people: "+2.1 (p 0.012)"."""
    p = p_in_words(found.p)
    return f"{100 * (found.b - found.a):+.1f} (p {p})"
