"""An Excel workbook (.xlsx) -> rows of strings with their row numbers, and back."""

import datetime
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import polars as pl
from openpyxl.cell import WriteOnlyCell

from data_pipeline.files.bounds import check_unpacked
from data_pipeline.files.rows import unreadable
from data_pipeline.files.tables.delimited import Rows
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import tell

MOST_ROWS, MOST_CHARACTERS = 1_048_576, 32_767  # of a sheet, of a cell
EXACT = 10**15  # Excel keeps 15 digits of a number
ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")  # how a workbook writes what XML cannot hold
TO_ESCAPE = re.compile(r"[\x00-\x08\x0b-\x1f\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")
DIGITS = re.compile(r"(0+)(?:\.(0+))?")  # a number format that shows so many digits


def read_workbook(path: Path, sheet: str | None = None) -> Rows:
    """The rows of a sheet as strings, all as long as the longest is filled.

    Numbers are as they are shown where zeros say so (a cell 123 in the format 0000 is "0123"), and
    else as short as they can be: 123, not 123.0. Dates are 2024-01-31, with a time if they have
    one. Of a formula it is what was last computed.

    Args:
      path: the workbook.
      sheet: name of the sheet; None: the first, which is said if there are more.

    Raises:
      BadInput: if it cannot be read, or has no such sheet.
    """
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles and checks of input that are not read
            with zipfile.ZipFile(file) as archive:
                for part in archive.infolist():
                    check_unpacked(f"{part.filename} in {path}", part.compress_size, part.file_size)
            workbook = openpyxl.load_workbook(file, read_only=True, data_only=True)
            return _rows(_sheet(workbook, path, sheet), path)
    except BadInput:
        raise
    except OSError as error:
        raise unreadable(path, error) from error
    except Exception as error:  # what openpyxl raises for a damaged file is any of Python's errors
        raise BadInput(
            f"{path}: cannot be read as an Excel workbook ({type(error).__name__}: {error}); "
            "expected .xlsx: open it in Excel and save it again, without a password, or as .csv"
        ) from error


def _sheet(workbook: Any, path: Path, name: str | None) -> Any:
    names = [one.title for one in workbook.worksheets]
    if name is not None and name not in names or not names:
        raise BadInput(f"{path}: there is no sheet {name!r}; it has {', '.join(names) or 'none'}")
    if name is None and len(names) > 1:
        tell(f"{path}: reading the sheet {names[0]!r}, the first of {', '.join(names)}")
    return workbook[name or names[0]]


def _rows(sheet: Any, path: Path) -> Rows:
    sheet.reset_dimensions()  # what a file says of its size may be wrong
    rows: Rows = []
    is_told = False
    for number, cells in enumerate(sheet.iter_rows(), start=1):
        fields = [_shown(cell.value, cell.number_format) for cell in cells]
        if not is_told and any(_has_lost_digits(cell.value) for cell in cells):
            is_told = True
            tell(
                f"warning: {path}:{number}: a number of more than 15 digits, of which Excel has "
                "lost the last ones; if it is a code, keep such columns as text"
            )
        while fields and not fields[-1]:
            fields.pop()
        rows.append((number, fields))
    width = max((len(fields) for _, fields in rows), default=0)
    return [(number, fields + [""] * (width - len(fields))) for number, fields in rows]


def _shown(value: Any, number_format: str) -> str:
    """A cell's value as a string."""
    if value is None:
        return ""
    if isinstance(value, str):
        return ESCAPED.sub(lambda match: chr(int(match[1], 16)), value)
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int | float):
        if zeros := DIGITS.fullmatch(number_format):
            decimals = len(zeros[2] or "")
            width = len(zeros[1]) + (decimals and decimals + 1) + (value < 0)
            return f"{value:0{width}.{decimals}f}"
        return str(int(value)) if value == int(value) else f"{value:.15g}"
    if isinstance(value, datetime.datetime):
        return str(value if value.time() != datetime.time() else value.date())
    return str(value)


def _has_lost_digits(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) >= EXACT


def write_workbook(path: Path, frame: pl.DataFrame) -> None:
    """Writes a table of strings as the only sheet of a workbook, its header first.

    All cells are text: one that begins with "=" is no formula, and 0123 keeps its zero.

    Raises:
      BadInput: for more rows or characters than Excel has room for; nothing is written then.
    """
    if frame.height >= MOST_ROWS:
        raise BadInput(
            f"{frame.height:,} rows; an Excel sheet has room for {MOST_ROWS - 1:,} and their "
            "header: write .csv or .tsv"
        )
    rows = [
        [_escaped(field or "", number) for field in fields]
        for number, fields in enumerate([tuple(frame.columns), *frame.iter_rows()], start=1)
    ]
    workbook = openpyxl.Workbook(write_only=True)
    sheet = workbook.create_sheet("Sheet1")
    for row in rows:
        cells = [WriteOnlyCell(sheet, field) for field in row]
        for cell in cells:
            cell.data_type = "s"  # else "=1+1" would be a formula
        sheet.append(cells)
    workbook.save(path)


def _escaped(text: str, row: int) -> str:
    """The text as a cell holds it; BadInput if it is too long."""
    escaped = TO_ESCAPE.sub(lambda match: f"_x{ord(match[0]):04X}_", text)
    if len(escaped) > MOST_CHARACTERS:
        raise BadInput(
            f"row {row:,}: {text[:40]!r}... has {len(text):,} characters; a cell of Excel has room "
            f"for {MOST_CHARACTERS:,}: write .csv or .tsv"
        )
    return escaped
