"""Users' own tables of terms: the meaning of their columns, and the `Source` made of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from data_pipeline.files.tables import (
    CONCEPT_SEPARATOR,
    NOTHING,
    SPREADSHEET_ERRORS,
    Dialect,
    Rows,
    Table,
    folded,
    is_empty,
    listed,
    read_rows,
    table_of,
)
from data_pipeline.process import BadInput, did_you_mean, tell
from data_pipeline.sources.source import Source, both_directions, check_labels

# -------------------------------------------------------------------------------------------------
# The columns of a table of terms, found by its header, and its checked rows.

# A table for MedCAT has it: P is the name of a concept, A is another name of it, and N one that may
# mean something else. Its columns cui, name, ontologies and type_ids may each have several values.
_NAME_STATUS = "namestatus"
# Column names, compared without case, blanks, "_" and "-". The names of a later group are used only
# if none of an earlier group is there.
_NAMES: dict[str, tuple[tuple[str, ...], ...]] = {
    "concept": (
        ("concept", "conceptid", "conceptidentifier", "cui", "cuis", "sctid"),
        ("conceptcode", "loincnum"),
        ("code", "id", "identifier"),
    ),
    "term": (
        ("term", "name", "string", "str", "label", "synonym", "mention", "display", "title"),
        ("conceptname", "longcommonname"),
        ("description", "text"),
    ),
    "language": (("language", "lang", "lat", "languagecode"),),
    "vocabulary": (
        ("vocabulary", "vocabularyid", "sab"),
        ("source", "system", "codesystem", "terminology", "ontologies", "vocab"),
    ),
    "preferred": (("preferred", "ispref", "ispreferred", "pref", _NAME_STATUS),),
    "type": (
        ("semantictype", "semantictypes", "sty", "semtype", "typeids"),
        ("type",),
        ("semanticgroup", "domainid"),
    ),
}
# A file of Athena's search: its Concept says "Standard", and its Id is the concept.
_OF_ATHENA = {"id", "code", "name", "concept", "validity", "vocab"}
# A file of translations (Babelon), or of synonyms in another language (a template of ROBOT), as the
# Human Phenotype Ontology publishes them; its `source` and `type` say how a name was translated.
_OF_BABELON = {"subjectid", "translationvalue"}
_IN_BABELON = {"subjectid": "conceptid", "translationvalue": "term", "translationlanguage": "lang"}
_LABELS, _SYNONYMS = ("label", "prefLabel"), ("hasExactSynonym", "altLabel")
_TEMPLATE = "ID"  # the concept of ROBOT's second line, which says what the columns are
EXPECTED = (
    "a header with a column for the term (term, name, label, description, ...) and one for the "
    "concept (concept, cui, code, id, ...)"
)
SAVE_AS_UTF8 = "save it as UTF-8, or as .xlsx"
_YES = ("1", "1.0", "t", "true", "y", "yes", "ja", "oui", "si", "sí")
_NO = ("0", "0.0", "f", "false", "n", "no", "nein", "non")
# Of a column that says which term is preferred.
_PREFERRED = (*_YES, "x", "p", "pt", "preferred")
_NOT_PREFERRED = (*_NO, "", "s", "sy", "synonym", "a")
UNDETERMINED = "UND"  # ISO 639-2 for a language that nobody said
# The UMLS's three-letter codes, by ISO 639-1 codes, and by ISO 639-3 codes that differ from them.
# fmt: off
_LANGUAGES = {
    "ar": "ARA", "cs": "CZE", "da": "DAN", "de": "GER", "el": "GRE", "en": "ENG", "es": "SPA",
    "et": "EST", "eu": "BAQ", "fi": "FIN", "fr": "FRE", "he": "HEB", "hr": "SCR", "hu": "HUN",
    "it": "ITA", "ja": "JPN", "ko": "KOR", "lt": "LIT", "lv": "LAV", "nb": "NOR", "nl": "DUT",
    "nn": "NOR", "no": "NOR", "pl": "POL", "pt": "POR", "ro": "RUM", "ru": "RUS", "sk": "SLO",
    "sv": "SWE", "tr": "TUR", "uk": "UKR", "zh": "CHI",
    "ces": "CZE", "deu": "GER", "ell": "GRE", "eus": "BAQ", "fra": "FRE", "hrv": "SCR",
    "nld": "DUT", "ron": "RUM", "slk": "SLO", "zho": "CHI",
}
# fmt: on


@dataclass(frozen=True)
class TermTable:
    """The rows of a table of terms.

    Attributes:
      path: the file.
      frame: one row per term of a concept, strings, without blanks around them: concept, term,
        language as the UMLS writes it, vocabulary, code in that, type (several joined with "|"),
        and preferred (bool). What the table does not say is "", or false.
      columns: what of these it has a column for.
      left_out: how many rows of the file are none of these: not active, or no names.
    """

    path: Path
    frame: pl.DataFrame
    columns: frozenset[str]
    left_out: int


def _roles(
    header: Sequence[str], path: Path, columns: Mapping[str, str] | None = None
) -> dict[str, int]:
    """Role (a key of `_NAMES`, or "code") -> place of its column in a header.

    Args:
      header: the names.
      path: for messages.
      columns: the names of the columns of some roles, where they are told.

    Raises:
      BadInput: two columns could have the same role, or none has a name that was told.
    """
    names = [folded(name) for name in header]
    if _OF_ATHENA <= set(names):
        names[names.index("concept")], names[names.index("id")] = "standard", "conceptid"
    if _is_of_translations(header) and not columns:
        names = [_IN_BABELON.get(name, "") for name in names]
    found: dict[str, int] = {}
    for role, name in (columns or {}).items():
        if folded(name) not in names:
            raise BadInput(
                f"--{role}-column {name}: no column has that name; {path} has the columns "
                f"{listed(header)}{did_you_mean(name, header)}"
            )
        found[role] = names.index(folded(name))
    told = set(found.values())
    for role, groups in _NAMES.items():
        if role in found:
            continue
        places = next(
            filter(
                None,
                ([i for i, n in enumerate(names) if n in g and i not in told] for g in groups),
            ),
            [],
        )
        if len(places) > 1:
            both = " and ".join(header[place] for place in places)
            raise BadInput(
                f"{path}: found the columns {both}, each of which could be the {role}; expected "
                f"one: name the right one {role!r}, and the other something else"
                + (f", or give --{role}-column" if role in ("term", "concept") else "")
            )
        if places:
            found[role] = places[0]
    code = next((names.index(one) for one in ("code", "conceptcode") if one in names), None)
    if code is not None and (code != found.get("concept") or "vocabulary" in found):
        found["code"] = code  # alone it is the concept, and with a vocabulary both
    return found


def has_terms(header: Sequence[str], path: Path, columns: Mapping[str, str] | None = None) -> bool:
    """Whether a header names a column of terms and a column of concepts; `columns` as `_roles`."""
    return {"term", "concept"} <= _roles(header, path, columns).keys()


def header_of(rows: Rows) -> tuple[int, list[str]]:
    """The number of the first row that is not empty, and the row; (1, []) for an empty table."""
    return next((row for row in rows if not is_empty(row[1])), (1, []))


# SapBERT's training files have a concept and two of its names in a line, and no header.
_FROM_PAIRS = (
    ". A file of pairs, concept || name || name, becomes such a table by: (printf "
    r"'concept\tterm\n'; awk -F ' *[|][|] *' -v OFS='\t' '{{print $1, $2; print $1, $3}}' "
    "{} | sort -u) > terms.tsv"
)


def read_term_table(path: Path, encoding: str | None = None) -> TermTable:
    """The terms in a .tsv, .csv, .txt (each also as .gz) or .xlsx file.

    Args:
      path: the file.
      encoding: of a text that is not UTF-8.

    Raises:
      BadInput: if it cannot be read, its header names no term or concept, a row has none, or an
        identifier has control characters.
    """
    return term_table(path, *read_rows(path, remedy=SAVE_AS_UTF8, otherwise=encoding))


def term_table(
    path: Path, dialect: Dialect, rows: Rows, names: Mapping[str, str] | None = None
) -> TermTable:
    """As `read_term_table`, from rows already read; `names` are columns, as of `_roles`."""
    _, header = header_of(rows)
    found = _roles(header, path, names)
    if not {"term", "concept"} <= found.keys():
        pairs = _FROM_PAIRS.format(path) if any("||" in name for name in header) else ""
        raise BadInput(f"{path}: found the columns {listed(header)}; expected {EXPECTED}{pairs}")
    is_for_medcat = _NAME_STATUS in {folded(name) for name in header}
    table = table_of(path, dialect, rows)
    columns = {role: header[place] for role, place in found.items()}
    looked_at = (columns[role] for role in ("term", "concept", "code") if role in columns)
    table.tell_of_dates(*dict.fromkeys(looked_at))
    frame = table.frame.select(
        pl.col(columns[role]).str.strip_chars().alias(role)
        if role in columns
        else pl.lit("").alias(role)
        for role in (*_NAMES, "code")
    )
    in_use = _in_use(table)
    is_translated = _is_of_translations(header) and not names
    if is_translated:
        frame, is_name = _translations(table, frame)
        in_use &= is_name
        columns["preferred"] = "predicate_id"
    _check(table, frame, columns, in_use)
    frame = frame.filter(in_use)
    frame = frame.with_columns(
        language=umls_language(pl.col("language")),
        preferred=pl.col("preferred").str.to_lowercase().is_in(_PREFERRED),
    )
    has_lists = is_for_medcat or is_translated
    for role in ("concept", "term", "vocabulary") if has_lists else ("concept",):
        frame = _divided_rows(frame, role)
    for role in ("concept", "language", "vocabulary", "code", "type"):
        check_labels(frame[role].unique(), f"{path}, column {columns.get(role, role)}")
    frame = frame.filter(pl.col("concept") != "", pl.col("term") != "")
    if "vocabulary" in found and found.get("code") == found["concept"]:
        _tell_of_equal_codes(path, frame)
    return TermTable(path, frame, frozenset(columns), int((~in_use).sum()))


def _tell_of_equal_codes(path: Path, frame: pl.DataFrame) -> None:
    """Warns of codes, read as concepts, that are of several vocabularies with different terms."""
    first = frame.unique(["concept", "vocabulary"], keep="first", maintain_order=True)
    equal = first.filter(pl.col("term").str.to_lowercase().n_unique().over("concept") > 1)
    if equal.height:
        code = equal["concept"][0]
        named = equal.filter(pl.col("concept") == code).select("vocabulary", "term").iter_rows()
        both = " and ".join(f"{term!r} ({vocabulary})" for vocabulary, term in named)
        tell(
            f"warning: {path}: {equal['concept'].n_unique():,} codes are of several vocabularies, "
            f"with other terms, such as {code}: {both}; equal codes are read as one concept: if "
            "they are not, add a column concept that tells them apart"
        )


def _is_of_translations(header: Sequence[str]) -> bool:
    """Whether a file has translations of an ontology: Babelon, or a template of ROBOT."""
    return {folded(name) for name in header} >= _OF_BABELON


def _translations(table: Table, frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """The rows of such a file, and which of them are names.

    Returns:
      (frame, is_name): the rows with their language (a template has it in its second line, as in
        "AL oboInOwl:hasExactSynonym@fr"), with several synonyms in a cell still joined with |, and
        with labels as the preferred terms; bool of each.
    """
    template = frame["concept"] == _TEMPLATE
    language = frame.filter(template)["term"].str.extract(r"@([\w-]+)").drop_nulls()
    frame = frame.with_columns(pl.col("language").replace("", next(iter(language), "")))
    relation = next((one for one in table.frame.columns if folded(one) == "predicateid"), None)
    what = pl.Series([""] * frame.height) if relation is None else table.frame[relation]
    what = what.str.extract(r"(\w+)\W*$").fill_null("")
    is_other = (what != "") & ~what.is_in((*_LABELS, *_SYNONYMS))
    if others := int(is_other.sum()):
        tell(f"{table.path}: {others:,} rows left out, which are no names ({relation})")
    is_empty = frame["term"] == ""
    if empty := int((is_empty & ~is_other).sum()):
        tell(f"{table.path}: {empty:,} rows left out, which have no translation yet")
    preferred = pl.when(what.is_in(_LABELS)).then(pl.lit("Y")).otherwise(pl.lit(""))
    return frame.with_columns(preferred=preferred), ~(template | is_other | is_empty)


def _divided_rows(frame: pl.DataFrame, role: str) -> pl.DataFrame:
    """A row for each value of a column whose values are joined with |."""
    parts = frame.with_columns(pl.col(role).str.split(CONCEPT_SEPARATOR)).explode(role)
    return parts.with_columns(pl.col(role).str.strip_chars())


# Columns that say which rows are withdrawn, by their names (as of `_NAMES`): the values of these
# rows, and those of the others, in lower case. Rows with further values are kept, which is said; of
# a status (None) any are others.
_WITHDRAWN: dict[str, tuple[tuple[str, ...], tuple[str, ...] | None]] = {
    **dict.fromkeys(
        ("active", "isactive", "aktiv", "actif"),
        ((*_NO, "inactive"), (*_YES, "active")),
    ),
    **dict.fromkeys(
        (
            *("inactive", "isinactive", "obsolete", "isobsolete", "deprecated", "isdeprecated"),
            *("retired", "isretired", "suppressed"),
        ),
        ((*_YES, "inactive"), (*_NO, "active", *NOTHING)),
    ),
    "suppress": (("o", "e", "y"), ("n", *NOTHING)),  # of MRCONSO
    "invalidreason": (("d", "u", "r"), NOTHING),  # of OMOP's CONCEPT
    "validity": (("invalid",), ("valid",)),  # of Athena's search
    "status": (
        ("inactive", "deprecated", "obsolete", "retired", "withdrawn", "deleted", "not_translated"),
        None,
    ),
    # Of a file of translations; templates have it as a comment.
    **dict.fromkeys(("translationstatus", "comment"), (("not_translated",), None)),
}
_OF_RF2 = {"id", "effectivetime", "active"}  # columns of SNOMED CT's files
_DEFINITION = "900000000000550004"  # there, the type of a description that is no name


def _in_use(table: Table) -> pl.Series:
    """bool: the rows that are in use, which no column of the table withdraws.

    Of SNOMED CT's descriptions, older versions and definitions are left out, too, and of OMOP's
    concepts those without a name.
    """
    columns = {folded(one): table.frame[one].str.strip_chars() for one in table.frame.columns}
    kept = pl.Series([True] * table.frame.height)
    if columns.keys() >= _OF_RF2:
        versions = pl.DataFrame({name: columns[name] for name in _OF_RF2})
        newest = pl.col("effectivetime") == pl.col("effectivetime").max().over("id")
        kept &= versions.select(newest).to_series()
        if older := int((~kept).sum()):
            tell(f"{table.path}: {older:,} rows left out, of which there are newer versions")
        if "typeid" in columns:
            kept &= columns["typeid"] != _DEFINITION
        if "conceptid" in columns:
            tell(
                f"warning: {table.path}: these are descriptions of SNOMED CT without their "
                "concepts, some of which may be inactive: give the Snapshot folder of the release"
            )
    if {"conceptid", "conceptname"} <= columns.keys():  # CPT4, before its program was run
        is_nameless = columns["conceptname"] == ""
        if count := int((kept & is_nameless).sum()):
            tell(f"{table.path}: {count:,} concepts without a name were left out")
        kept &= ~is_nameless
    for name, (withdrawn, others) in _WITHDRAWN.items():
        values = columns.get(name, pl.Series(dtype=pl.String)).str.to_lowercase()
        unknown = values.filter(~values.is_in([*withdrawn, *(others or ())]))
        if others is not None and len(unknown):
            tell(
                f"warning: {table.path}: {len(unknown):,} rows are kept whose column {name} has "
                f"another value than expected, the first {unknown[0]!r}; expected {withdrawn[0]} "
                f"for rows to leave out, or {others[0] or 'nothing'}"
            )
        if len(values):
            is_out = values.is_in(list(withdrawn))
            if count := int((kept & is_out).sum()):
                found = ", ".join(sorted(set(values.filter(kept & is_out))))
                tell(
                    f"{table.path}: {count:,} rows left out, which are not active ({name}: {found})"
                )
            kept &= ~is_out
    return kept


def _check(table: Table, frame: pl.DataFrame, columns: dict[str, str], in_use: pl.Series) -> None:
    """Raise BadInput, with file and line, for a row in use without term or concept or with a wrong
    preferred value.
    """

    def is_filled(role: str) -> pl.Expr:
        text = pl.col(role).str.to_lowercase()
        return (text.str.strip_chars("| ") != "") & ~text.is_in(SPREADSHEET_ERRORS)

    is_known = pl.col("preferred").str.to_lowercase().is_in((*_PREFERRED, *_NOT_PREFERRED))
    for role, is_right, expected in (
        ("term", is_filled("term"), "a term in every row"),
        ("concept", is_filled("concept"), "a concept in every row"),
        ("preferred", is_known, "Y, 1 or true, or N, 0, false or nothing"),
    ):
        wrong = frame.select((~is_right & in_use).arg_true()).to_series()
        if len(wrong):
            value = frame[role][wrong[0]]
            raise BadInput(
                f"{table.path}:{table.lines[wrong[0]]}: found {value!r} in the column "
                f"{columns[role]}; expected {expected}: mend or remove the row"
            )


def umls_language(codes: pl.Expr) -> pl.Expr:
    """Language codes as in the UMLS: "en" and "en-US" become "ENG"; unknown ones are in
    capitals.
    """
    first = codes.str.to_lowercase().str.extract(r"^([a-z]{2,3})(?:[-_].*)?$")
    return pl.coalesce(first.replace_strict(_LANGUAGES, default=None), codes.str.to_uppercase())


# -------------------------------------------------------------------------------------------------
# A user's table of terms, and an optional table of relations, as a `Source`.
#
#     concept <TAB> name          <TAB> language <TAB> vocabulary <TAB> type    <TAB> preferred
#     C-LEFT  <TAB> Hemiplegia, l <TAB> en       <TAB> LOCAL      <TAB> Disease <TAB> Y
#
# Columns are found by their names (`_NAMES`), in any order; all but concept and name may be
# missing. Relations stand in terms.relations.tsv beside terms.tsv (or .csv, .xlsx), with the
# columns head, relation and tail, which read as a sentence: asthma, isa, lung disease.

_ENDINGS = (".tsv", ".csv", ".txt", ".xlsx")
_RELATION_COLUMNS = ("head", "relation", "tail")


def is_terms(path: Path) -> bool:
    """Whether a path has the ending of a table's file."""
    return path.name.lower().removesuffix(".gz").endswith(_ENDINGS)


def terms_paths(path: Path) -> list[Path]:
    """The files that a table of terms is read from: itself, and its relations."""
    stem = _stem(path)
    names = (f"{stem}.relations{ending}{gz}" for ending in _ENDINGS for gz in ("", ".gz"))
    beside = [path.with_name(name) for name in names if path.with_name(name).is_file()]
    if len(beside) > 1:
        both = " and ".join(file.name for file in beside)
        raise BadInput(
            f"{path.parent} has {both}; expected one file of relations: remove the other"
        )
    return [path, *beside]


def read_term_source(path: Path, release: str | None = None, encoding: str | None = None) -> Source:
    """The table at `path`, and its relations, as a `Source`.

    A row without language has "UND"; one without vocabulary the name of the file. Of each concept
    the rows that say so are preferred; where the table has no such column, the first row is.

    Raises:
      BadInput: for a file that cannot be read, missing columns or values, with file and line.
    """
    path, *beside = terms_paths(path)
    table = read_term_table(path, encoding)
    types = (
        table.frame.select(cui="concept", type=pl.col("type").str.split("|"))
        .explode("type")
        .with_columns(pl.col("type").str.strip_chars())
        .filter(pl.col("type") != "")
    )
    return Source(
        name=_stem(path),
        release=release or "unknown",
        files=[{"file": file.name, "bytes": file.stat().st_size} for file in (path, *beside)],
        atoms=_term_atoms(table).lazy(),
        relations=_relations(beside[0], _stem(path)).lazy() if beside else None,
        types=types.unique().sort("cui", "type").lazy() if types.height else None,
        warnings=(f"{path.name}: {table.left_out:,} rows left out, not active or no names",)
        * bool(table.left_out),
    )


def _term_atoms(table: TermTable) -> pl.DataFrame:
    """The rows of a table in the format of `Source.atoms`."""
    is_preferred = (
        pl.col("preferred")
        if "preferred" in table.columns
        else pl.col("concept").is_first_distinct()
    )
    vocabulary = pl.col("vocabulary")
    return table.frame.select(
        cui="concept",
        language=pl.col("language").replace("", UNDETERMINED),
        source=vocabulary.replace("", _stem(table.path)),
        term_type=pl.when(is_preferred).then(pl.lit("PT")).otherwise(pl.lit("SY")),
        suppress=pl.lit("N"),
        rank=(~is_preferred).cast(pl.UInt8),
        term="term",
        code="code",
    )


def _relations(path: Path, vocabulary: str) -> pl.DataFrame:
    table = table_of(path, *read_rows(path, remedy=SAVE_AS_UTF8))
    names = [table.find_column(name, f"{path.name}: column") for name in _RELATION_COLUMNS]
    frame = table.frame.select(
        pl.col(name).str.strip_chars().alias(role)
        for role, name in zip(_RELATION_COLUMNS, names, strict=True)
    )
    for role in _RELATION_COLUMNS:
        empty = frame.select((pl.col(role) == "").arg_true()).to_series()
        if len(empty):
            raise BadInput(
                f"{path}:{table.lines[empty[0]]}: found nothing in the column {role}; expected a "
                "concept, a relation and a concept: mend or remove the row"
            )
    return both_directions(frame.with_columns(source=pl.lit(vocabulary)))


def _stem(path: Path) -> str:
    """The file name of a table without its ending."""
    name = path.name[: -len(".gz")] if path.name.lower().endswith(".gz") else path.name
    return Path(name).stem
