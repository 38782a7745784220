"""Which column of a table of terms says what, by its header; its rows, checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from data_pipeline.files.rows import CONCEPT_SEPARATOR
from data_pipeline.files.tables.delimited import Dialect, Rows
from data_pipeline.files.tables.table import Table, folded, is_empty, listed, read_rows, table_of
from data_pipeline.process.errors import BadInput

# What columns are called, without case, blanks, "_" and "-". The names of a later group count only
# where none of an earlier one is there.
NAMES: dict[str, tuple[tuple[str, ...], ...]] = {
    "concept": (
        ("concept", "conceptid", "conceptcode", "conceptidentifier", "cui", "cuis", "sctid"),
        ("code", "id", "identifier"),
    ),
    "term": (
        ("term", "name", "string", "str", "label", "synonym", "mention", "display", "title"),
        ("description", "text"),
    ),
    "language": (("language", "lang", "lat", "languagecode"),),
    "vocabulary": (("vocabulary", "sab"), ("source", "system", "codesystem", "terminology")),
    "preferred": (("preferred", "ispref", "ispreferred", "pref"),),
    "type": (("semantictype", "semantictypes", "sty", "semtype"), ("type",), ("semanticgroup",)),
}
EXPECTED = (
    "a header with a column for the term (term, name, label, description, ...) and one for the "
    "concept (concept, cui, code, id, ...)"
)
SAVE_AS_UTF8 = "save it as UTF-8, or as .xlsx"
YES = ("y", "yes", "1", "true", "t", "x", "p", "pt", "preferred")
NO = ("", "n", "no", "0", "false", "f", "s", "sy", "synonym")
UNDETERMINED = "UND"  # ISO 639-2 for a language that nobody said
# The UMLS's three letters by those of ISO 639-1, and by ISO 639-3's where these are others.
LANGUAGES = {
    **{"ar": "ARA", "cs": "CZE", "da": "DAN", "de": "GER", "el": "GRE", "en": "ENG", "es": "SPA"},
    **{"et": "EST", "eu": "BAQ", "fi": "FIN", "fr": "FRE", "he": "HEB", "hr": "SCR", "hu": "HUN"},
    **{"it": "ITA", "ja": "JPN", "ko": "KOR", "lt": "LIT", "lv": "LAV", "nb": "NOR", "nl": "DUT"},
    **{"nn": "NOR", "no": "NOR", "pl": "POL", "pt": "POR", "ro": "RUM", "ru": "RUS", "sk": "SLO"},
    **{"sv": "SWE", "tr": "TUR", "uk": "UKR", "zh": "CHI"},
    **{"ces": "CZE", "deu": "GER", "ell": "GRE", "eus": "BAQ", "fra": "FRE", "hrv": "SCR"},
    **{"nld": "DUT", "ron": "RUM", "slk": "SLO", "zho": "CHI"},
}


@dataclass(frozen=True)
class TermTable:
    """The rows of a table of terms.

    Attributes:
      path: the file.
      frame: one row per term of a concept, strings, without blanks around them: concept, term,
        language as the UMLS writes it, vocabulary, code in that, type (several joined with "|"),
        and preferred (bool). What the table does not say is "", or false.
      columns: what of these it has a column for.
    """

    path: Path
    frame: pl.DataFrame
    columns: frozenset[str]


def roles(header: Sequence[str], path: Path) -> dict[str, int]:
    """Role (a key of `NAMES`, or "code") -> place of its column in a header.

    Raises:
      BadInput: two columns could have the same role.
    """
    names = [folded(name) for name in header]
    found: dict[str, int] = {}
    for role, groups in NAMES.items():
        places = next(
            filter(None, ([i for i, n in enumerate(names) if n in g] for g in groups)), []
        )
        if len(places) > 1:
            both = " and ".join(header[place] for place in places)
            raise BadInput(
                f"{path}: found the columns {both}, each of which could be the {role}; expected "
                f"one: name the right one {role!r}, and the other something else"
            )
        if places:
            found[role] = places[0]
    code = names.index("code") if "code" in names else None
    if code is not None and (code != found.get("concept") or "vocabulary" in found):
        found["code"] = code  # alone it is the concept, and with a vocabulary both
    return found


def has_terms(header: Sequence[str], path: Path) -> bool:
    """Whether a header names a column of terms and one of concepts."""
    return {"term", "concept"} <= roles(header, path).keys()


def header_of(rows: Rows) -> tuple[int, list[str]]:
    """The first row that is not empty, and its number; of an empty table (1, [])."""
    return next((row for row in rows if not is_empty(row[1])), (1, []))


def read_term_table(path: Path) -> TermTable:
    """The terms of a .tsv, .csv, .txt (each also as .gz) or .xlsx file.

    Raises:
      BadInput: if it cannot be read, its header names no term or concept, or a row has none.
    """
    return term_table(path, *read_rows(path, remedy=SAVE_AS_UTF8))


def term_table(path: Path, dialect: Dialect, rows: Rows) -> TermTable:
    """As `read_term_table`, of rows that were read."""
    _, header = header_of(rows)
    found = roles(header, path)
    if not {"term", "concept"} <= found.keys():
        raise BadInput(f"{path}: found the columns {listed(header)}; expected {EXPECTED}")
    table = table_of(path, dialect, rows)
    columns = {role: table.frame.columns[place] for role, place in found.items()}
    frame = table.frame.select(
        pl.col(columns[role]).str.strip_chars().alias(role)
        if role in columns
        else pl.lit("").alias(role)
        for role in (*NAMES, "code")
    )
    _check(table, frame, columns)
    frame = frame.with_columns(
        pl.col("concept").str.split(CONCEPT_SEPARATOR),
        language=umls_language(pl.col("language")),
        preferred=pl.col("preferred").str.to_lowercase().is_in(YES),
    )
    frame = frame.explode("concept").with_columns(pl.col("concept").str.strip_chars())
    return TermTable(path, frame.filter(pl.col("concept") != ""), frozenset(columns))


def _check(table: Table, frame: pl.DataFrame, columns: dict[str, str]) -> None:
    """BadInput, with file and line, for a row without term or concept, or another preferred."""
    is_known = pl.col("preferred").str.to_lowercase().is_in((*YES, *NO))
    for role, is_right, expected in (
        ("term", pl.col("term") != "", "a term in every row"),
        ("concept", pl.col("concept").str.strip_chars("| ") != "", "a concept in every row"),
        ("preferred", is_known, "Y, 1 or true, or N, 0, false or nothing"),
    ):
        wrong = frame.select((~is_right).arg_true()).to_series()
        if len(wrong):
            value = frame[role][wrong[0]]
            raise BadInput(
                f"{table.path}:{table.lines[wrong[0]]}: found {value!r} in the column "
                f"{columns[role]}; expected {expected}: mend or remove the row"
            )


def umls_language(codes: pl.Expr) -> pl.Expr:
    """Languages as the UMLS writes them: "en" and "en-US" are "ENG"; others in capitals."""
    first = codes.str.to_lowercase().str.extract(r"^([a-z]{2,3})(?:[-_].*)?$")
    return pl.coalesce(first.replace_strict(LANGUAGES, default=None), codes.str.to_uppercase())
