"""What every terminology reader returns: lazy columns of strings, whatever the file format.

`rrf.py` and `obo.py` make a `Source`; `terminology.py` filters, cleans and numbers it. Nothing has
been dropped at this stage, so that each drop is counted in one place.
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
    """One terminology as its files have it.

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
