"""A table with a header, in whatever file a hospital keeps it, as strings; and back into a file."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from data_pipeline.files.streams import is_stream
from data_pipeline.files.tables.delimited import (
    GIVE_ENCODING,
    Dialect,
    Rows,
    read_delimited,
    write_delimited,
)
from data_pipeline.files.whole_files import written_whole
from data_pipeline.process.errors import BadInput
from data_pipeline.process.suggestions import did_you_mean

WORKBOOK = (".xlsx", ".xlsm")
OLD_WORKBOOK = (".xls", ".ods", ".xlsb")
WRITTEN = (".csv", ".tsv", ".txt", ".xlsx")
STDOUT = Path("/dev/stdout")


@dataclass(frozen=True)
class Table:
    """Rows under a header.

    Attributes:
      path: the file, for messages.
      frame: a string column for each of the header's names, which are as they stand there; what is
        empty is "".
      lines: of each row the number of the line in which it begins, or of its row in the workbook.
      dialect: how the file writes its rows.
    """

    path: Path
    frame: pl.DataFrame
    lines: list[int]
    dialect: Dialect

    def find_column(self, name: str, option: str) -> str:
        """The column of that name, case and blanks aside.

        Args:
          name: what a user calls it.
          option: the option that it was given for, for the message, such as "--column".

        Raises:
          BadInput: if there is none, or several that differ in case or blanks alone.
        """
        columns = self.frame.columns
        if name in columns:
            return name
        found = [column for column in columns if folded(column) == folded(name)]
        if len(found) == 1:
            return found[0]
        why = f"could be {' or '.join(map(repr, found))}" if found else "no column has that name"
        raise BadInput(
            f"{option} {name}: {why}; {self.path} has the columns {listed(columns)}"
            f"{did_you_mean(name, columns)}"
        )


def folded(name: str) -> str:
    """A column's name without case and blanks: "Local Term" is "localterm", as local_term is."""
    return re.sub(r"[\s_-]+", "", name).casefold()


def listed(columns: Iterable[str]) -> str:
    """The names of columns, for a message."""
    return ", ".join(column or "(no name)" for column in columns)


def read_table(
    path: Path,
    *,
    separator: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
) -> Table:
    """The table in a .csv, .tsv, .txt (each also as .gz) or .xlsx file.

    Empty lines are no rows, unless the table has one column; those at the end never are. Columns at
    the end that are empty, header and all, are left out.

    Args:
      path: the file. A name with another ending is read as text.
      separator: one character, of text; None: found out from header and rows.
      encoding: of text, as Python names it; None: UTF-8.
      sheet: name of the sheet of a workbook; None: the first.

    Raises:
      BadInput: if it cannot be read, has no rows, two columns of one name, or a row with other
        columns than its header, with file and line.
    """
    dialect, rows = read_rows(path, separator=separator, encoding=encoding, sheet=sheet)
    return table_of(path, dialect, rows)


def read_rows(
    path: Path,
    *,
    separator: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
    remedy: str = GIVE_ENCODING,
) -> tuple[Dialect, Rows]:
    """As `read_table`: the rows as they stand, the header the first of them.

    `remedy` says what to do about bytes that are not UTF-8, where no encoding was given.
    """
    if path.name.lower().endswith(OLD_WORKBOOK):
        raise BadInput(f"{path}: found {path.suffix}; expected .xlsx, .csv or .tsv: save it as one")
    if is_workbook(path):
        from data_pipeline.files.tables.workbook import read_workbook  # openpyxl takes a while

        return Dialect(), read_workbook(path, sheet)
    if separator is not None and len(separator) != 1:
        raise BadInput(f"--separator: found {separator!r}; expected one character, such as ';'")
    return read_delimited(path, separator, encoding, remedy)


def is_workbook(path: Path) -> bool:
    return path.name.lower().endswith(WORKBOOK)


def table_of(path: Path, dialect: Dialect, rows: Rows) -> Table:
    """The table of rows, the first that is not empty its header."""
    filled = [place for place, (_, fields) in enumerate(rows) if not is_empty(fields)]
    if len(filled) < 2:
        what = "a header and no rows" if filled else "no rows"
        raise BadInput(f"{path}: found {what}; expected a header and the rows below it")
    first, last = filled[0], filled[-1]
    (_, header), rows = rows[first], rows[first + 1 : last + 1]
    if len(header) > 1:
        rows = [row for row in rows if not is_empty(row[1])]
    for number, fields in rows:
        if len(fields) < len(header) > 1 or any(fields[len(header) :]):
            raise BadInput(
                f"{path}:{number}: found {len(fields)} columns; expected the {len(header)} of the "
                f"header ({listed(header)}): mend the row, quote a field with the separator in it, "
                "or save the table as .xlsx"
            )
    width = len(header)
    while not header[width - 1] and not any(
        "".join(fields[width - 1 : width]) for _, fields in rows
    ):
        width -= 1
    names = header[:width]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise BadInput(
            f"{path}: found more than one column {twice[0] or '(no name)'!r}; expected names that "
            "differ: rename one in the header"
        )
    columns = {
        name: [fields[place] if fields else "" for _, fields in rows]
        for place, name in enumerate(names)
    }
    frame = pl.DataFrame(columns, schema=dict.fromkeys(names, pl.String))
    return Table(path, frame, [number for number, _ in rows], dialect)


def is_empty(fields: list[str]) -> bool:
    return not any(field.strip() for field in fields)


def check_table_name(path: Path, option: str) -> None:
    """BadInput if `write_table` does not know the ending of a name; streams may have any.

    Args:
      path: what the user gave.
      option: the option that it was given for, for the message, such as "--out".
    """
    if path.suffix.lower() not in WRITTEN and not is_stream(path):
        raise BadInput(
            f"{option}: found {path}; expected a name that ends in {', '.join(WRITTEN[:-1])} or "
            f"{WRITTEN[-1]}, by which it is written"
        )


def write_table(path: Path, frame: pl.DataFrame, dialect: Dialect | None = None) -> None:
    """Writes a table, whole or not at all; streams, such as `STDOUT`, as tab-separated text.

    .csv has the separator of the dialect if that is another than a tab, else commas; .tsv and .txt
    have tabs; .xlsx is a workbook of text cells. Text is UTF-8.

    Args:
      path: the file to write.
      frame: its columns in their order; they are written as strings, null as "".
      dialect: of the input, to write it alike: separator, quotes, byte order mark, line ends.

    Raises:
      BadInput: for a name of another ending, or what Excel has no room for.
    """
    check_table_name(path, "write_table")
    dialect = dialect or Dialect()
    ending = path.suffix.lower()
    frame = frame.select(pl.all().cast(pl.String).fill_null(""))
    if is_stream(path):
        dialect = replace(dialect, separator="\t", bom=False, line_end="\n")
    elif ending != ".csv":
        dialect = replace(dialect, separator="\t")
    elif dialect.separator == "\t":
        dialect = replace(dialect, separator=",", quoted=True)
    with written_whole(path) as unfinished:
        if ending == ".xlsx" and not is_stream(path):
            from data_pipeline.files.tables.workbook import write_workbook

            write_workbook(unfinished, frame)
        else:
            write_delimited(unfinished, frame, dialect)
