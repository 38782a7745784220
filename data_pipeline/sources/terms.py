"""Your own table of terms in, with a table of relations beside it if there is one; a `Source` out.

    concept <TAB> name          <TAB> language <TAB> vocabulary <TAB> type    <TAB> preferred
    C-LEFT  <TAB> Hemiplegia, l <TAB> en       <TAB> LOCAL      <TAB> Disease <TAB> Y

Columns are found by their names (`term_table.NAMES`), in any order; all but concept and name may be
missing. Relations stand in terms.relations.tsv beside terms.tsv (or .csv, .xlsx), with the columns
head, relation and tail, which read as a sentence: asthma, isa, lung disease.
"""

from pathlib import Path

import polars as pl

from data_pipeline.files.tables.table import read_table
from data_pipeline.process.errors import BadInput
from data_pipeline.sources.source import Source, both_directions
from data_pipeline.sources.term_table import UNDETERMINED, TermTable, read_term_table

ENDINGS = (".tsv", ".csv", ".txt", ".xlsx")
RELATION_COLUMNS = ("head", "relation", "tail")


def is_terms(path: Path) -> bool:
    """Whether a path has the ending of a table."""
    return path.name.lower().removesuffix(".gz").endswith(ENDINGS)


def terms_paths(path: Path) -> list[Path]:
    """The files that a table of terms is read from: itself, and its relations."""
    stem = _stem(path)
    names = (f"{stem}.relations{ending}{gz}" for ending in ENDINGS for gz in ("", ".gz"))
    beside = [path.with_name(name) for name in names if path.with_name(name).is_file()]
    if len(beside) > 1:
        both = " and ".join(file.name for file in beside)
        raise BadInput(
            f"{path.parent} has {both}; expected one file of relations: remove the other"
        )
    return [path, *beside]


def read_terms(path: Path, release: str | None = None) -> Source:
    """The table at `path`, and its relations, as a `Source`.

    A row without language has "UND"; one without vocabulary the name of the file. Of each concept
    the rows that say so are preferred; where the table has no such column, the first row is.

    Raises:
      BadInput: for a file that cannot be read, missing columns or values, with file and line.
    """
    path, *beside = terms_paths(path)
    table = read_term_table(path)
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
        atoms=term_atoms(table).lazy(),
        relations=_relations(beside[0], _stem(path)).lazy() if beside else None,
        types=types.unique().sort("cui", "type").lazy() if types.height else None,
    )


def term_atoms(table: TermTable) -> pl.DataFrame:
    """The rows of a table as those of `Source.atoms`."""
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
    table = read_table(path)
    names = [table.find_column(name, f"{path.name}: column") for name in RELATION_COLUMNS]
    frame = table.frame.select(
        pl.col(name).str.strip_chars().alias(role)
        for role, name in zip(RELATION_COLUMNS, names, strict=True)
    )
    for role in RELATION_COLUMNS:
        empty = frame.select((pl.col(role) == "").arg_true()).to_series()
        if len(empty):
            raise BadInput(
                f"{path}:{table.lines[empty[0]]}: found nothing in the column {role}; expected a "
                "concept, a relation and a concept: mend or remove the row"
            )
    return both_directions(frame.with_columns(source=pl.lit(vocabulary)))


def _stem(path: Path) -> str:
    """The name of a table without its ending."""
    name = path.name[: -len(".gz")] if path.name.lower().endswith(".gz") else path.name
    return Path(name).stem
