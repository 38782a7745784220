"""`Source`, which every terminology reader returns: lazy columns of strings for all file formats.

`rrf.py`, `obo.py`, `term_tables.py`, `snomed.py` and `loinc.py` make a `Source`; `terminology.py`
filters, cleans and numbers it. Nothing has been dropped at this stage, so that each drop is counted
in one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import polars as pl

from data_pipeline.process import BadInput, tell

ATOMS = ("cui", "language", "source", "term_type", "suppress", "rank", "term", "code")
RELATIONS = ("head", "rel", "rela", "tail", "source", "suppress")
RETIRED = ("retired", "relation", "cui", "merged")


def no_retired() -> pl.DataFrame:
    """An empty table of retired concepts."""
    return pl.DataFrame(schema={name: pl.String for name in RETIRED[:3]} | {"merged": pl.Boolean})


@dataclass(frozen=True)
class Source:
    """One terminology as written in its files.

    Attributes:
      name, release: for the manifest.
      files: {"file", "bytes"} of each input file.
      atoms: one row per term of a source vocabulary. cui, language, source, term_type, suppress,
        term and code are strings; rank (uint8) is 0 for the preferred term and grows from there;
        code is what the source vocabulary calls the concept, "" where it has no code.
      relations: head, rel, rela, tail, source, suppress (strings), or None where the source has
        none. As in MRREL, rel and rela say what the tail is to the head.
      types: cui and type (strings), or None.
      retired: identifiers that are no more: retired, relation, cui (a successor, or ""), merged
        (true where the file says that the successor is the same concept under a new identifier).
        What follows from several rows, `terminology.retired_cuis` says.
      xrefs: cui and xref, the cross-references to other vocabularies ("UMLS:C0000001").
      licenses: source and license, what the files say of a vocabulary's license; None where they
        say nothing.
    """

    name: str
    release: str
    files: list[dict]
    atoms: pl.LazyFrame
    relations: pl.LazyFrame | None
    types: pl.LazyFrame | None
    retired: pl.DataFrame = field(default_factory=no_retired)
    xrefs: pl.DataFrame = field(
        default_factory=lambda: pl.DataFrame(schema={"cui": pl.String, "xref": pl.String})
    )
    warnings: tuple[str, ...] = ()
    licenses: pl.LazyFrame | None = None


# -------------------------------------------------------------------------------------------------
# Characters that no name and no identifier has: control characters (tabs and line ends among them),
# Unicode's line and paragraph separators, byte order marks. They would divide the lines of a table,
# or make two identifiers of what looks the same.

Strings = TypeVar("Strings", pl.Expr, pl.Series)
_MARK = "\ufeff"
_ODD = rf"[\p{{Cc}}\p{{Zl}}\p{{Zp}}{_MARK}]"
_EXPECTED = (
    "text without control characters, line separators and byte order marks: take them out, or "
    "fetch the file again"
)


def checked(source: Source, path: Path) -> Source:
    """A source whose identifiers have no odd characters, and whose names have lost theirs.

    Labels of relations are not looked at, as they are counted later (`terminology.py`), nor the
    concepts that relations and types are of, which are looked up among those of the terms.

    Args:
      source: as a reader made it.
      path: where it was read, for messages.

    Returns:
      it, with blanks in place of odd characters in `term`; a warning says in how many.

    Raises:
      BadInput: an identifier, a code, the name of a vocabulary or type or suchlike has one.
    """
    columns = [name for name in ATOMS if name not in ("rank", "term")]
    found = source.atoms.select(
        pl.col("term").str.contains(_ODD).sum(),
        *(pl.col(name).filter(pl.col(name).str.contains(_ODD)).first() for name in columns),
    ).collect(engine="streaming")
    check_labels(filter(None, found.select(columns).row(0)), str(path))
    check_labels((source.name, source.release), str(path))
    if source.types is not None:
        check_labels(source.types.select("type").unique().collect()["type"], str(path))
    for table in (source.retired, source.xrefs):
        for column in table.select(pl.col(pl.String)).get_columns():
            check_labels(column.filter(column.str.contains(_ODD)), str(path))
    names = found["term"][0]
    if not names:
        return source
    atoms = source.atoms.with_columns(term=without_odd(pl.col("term")))
    return replace(source, atoms=atoms, warnings=(*source.warnings, _told(names)))


def without_odd(names: Strings) -> Strings:
    """Names with blanks in place of odd characters; a byte order mark, which has no width, goes."""
    return names.str.replace_all(_MARK, "", literal=True).str.replace_all(_ODD, " ")


def plain_terms(terms: Sequence[str], where: str) -> list[str]:
    """The terms of a dictionary without odd characters; how many had some is said in a line.

    Raises:
      BadInput: one has nothing else.
    """
    series = pl.Series(terms, dtype=pl.String)
    odd = int(series.str.contains(_ODD).sum())
    if not odd:
        return list(terms)
    plain = without_odd(series).str.strip_chars()
    for term in series.filter(plain == ""):
        raise BadInput(f"{where}: found the term {term[:80]!r}; expected {_EXPECTED}")
    tell(f"{where}: {_told(odd)}")
    return plain.to_list()


def _told(names: int) -> str:
    return (
        "control characters, line separators and byte order marks became blanks; names that had "
        f"some: {names:,}"
    )


def check_labels(labels: Iterable[str], where: str) -> None:
    """Raise BadInput for an identifier or another label with an odd character.

    Args:
      labels: distinct ones suffice.
      where: they were read, for the message.
    """
    series = pl.Series(labels, dtype=pl.String)
    for label in series.filter(series.str.contains(_ODD)):
        raise BadInput(f"{where}: found {label[:80]!r}; expected {_EXPECTED}")


def both_directions(triples: pl.DataFrame) -> pl.DataFrame:
    """`Source.relations` rows for triples that read as a sentence, such as asthma, isa, disease.

    Args:
      triples: head, relation, tail and source, strings. "is_a" and "Is a" are "isa".

    Returns:
      two rows for each. "child isa parent" gives (parent, CHD|isa, child) and (child,
      PAR|inverse_isa, parent); "a part_of b" gives (b, RO|part_of, a) and
      (a, RO|inverse_part_of, b).
    """
    relation = pl.col("relation").str.to_lowercase().str.replace_all(r"[\s_-]+", "_")
    named = triples.with_columns(
        relation=pl.when(relation.is_in(["is_a", "isa"])).then(pl.lit("isa")).otherwise(relation)
    )
    is_isa = pl.col("relation") == "isa"
    suppress = pl.lit("N").alias("suppress")
    forward = named.select(
        pl.col("tail").alias("head"),
        pl.when(is_isa).then(pl.lit("CHD")).otherwise(pl.lit("RO")).alias("rel"),
        pl.col("relation").alias("rela"),
        pl.col("head").alias("tail"),
        "source",
        suppress,
    )
    backward = named.select(
        "head",
        pl.when(is_isa).then(pl.lit("PAR")).otherwise(pl.lit("RO")).alias("rel"),
        ("inverse_" + pl.col("relation")).alias("rela"),
        "tail",
        "source",
        suppress,
    )
    return pl.concat([forward, backward])
