"""`Source`, which every terminology reader returns: lazy columns of strings for all file formats.

`rrf.py`, `obo.py`, `term_tables.py`, `snomed.py` and `loinc.py` make a `Source`; `terminology.py`
filters, cleans and numbers it. Nothing has been dropped at this stage, so that each drop is counted
in one place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

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
