"""Files of mentions and their concepts: what a build leaves out, what an evaluation looks up."""

from collections.abc import Sequence
from pathlib import Path

from data_pipeline.files.rows import CONCEPT_SEPARATOR, tab_separated, two_columns
from data_pipeline.process.errors import BadInput

COLUMNS = ("mention", "cui")  # of a header, lower-cased
LANGUAGE = "language"


def names_mentions(header: Sequence[str]) -> bool:
    """Whether a first line, lower-cased, names the columns of mentions among others."""
    return set(COLUMNS) <= set(header) and len(header) > len(COLUMNS)


def mention_languages(path: Path) -> list[str] | None:
    """The language of each mention of a file, "" where it is not told; None without the column.

    Args:
        path: of a file that `mention_rows` can read; there are as many rows, in the same order.
    """
    (_, names), *rows = tab_separated(path)
    header = [name.lower() for name in names]
    if not names_mentions(header) or LANGUAGE not in header:
        return None
    return [fields[header.index(LANGUAGE)] for _, fields in rows]


def mention_rows(path: Path) -> list[tuple[str, str]]:
    """(mention, CUIs joined with "|") of each row of a tab-separated file.

    It has the two columns, with or without a header; or a header that names the columns mention and
    CUI among others, in any order.

    Raises:
        BadInput: if the file cannot be read, or a row has other columns or an empty one.
    """
    (_, names), *rows = tab_separated(path)
    header = [name.lower() for name in names]
    if not set(COLUMNS) <= set(header) or len(header) == len(COLUMNS) and header[0] == COLUMNS[0]:
        pairs = two_columns(path, "mention<TAB>CUI")
    else:
        if not rows:
            raise BadInput(f"{path}: found a header and no rows; expected mentions and their CUIs")
        for number, fields in rows:
            if len(fields) != len(header):
                raise BadInput(
                    f"{path}:{number}: found {len(fields)} columns; expected the {len(header)} of "
                    "its header: mend the line, or write the file again"
                )
        at, cui_at = (header.index(name) for name in COLUMNS)
        pairs = [(fields[at], fields[cui_at]) for _, fields in rows]
    found = []
    for mentioned, joined in pairs:
        cuis = [cui.strip() for cui in joined.split(CONCEPT_SEPARATOR)]
        cuis = [cui for cui in cuis if cui]
        if not mentioned or not cuis:
            raise BadInput(
                f"{path}: found the mention {mentioned!r} with the CUIs {joined!r}; expected a "
                "mention and one CUI or more: mend or remove the row"
            )
        found.append((mentioned, CONCEPT_SEPARATOR.join(cuis)))
    return found
