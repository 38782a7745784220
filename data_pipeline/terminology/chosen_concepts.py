"""Filters of whole concepts: of some semantic groups, or with a term of some language.

What they drop is counted. `filters.py` has the filters of single rows.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

import polars as pl

from data_pipeline.process.errors import BadInput
from data_pipeline.sources.source import Source
from data_pipeline.terminology.filters import Filters, some
from data_pipeline.terminology.semantic_groups import GROUPS, group_number, group_of


def mark_groups(source: Source, filters: Filters, merged: pl.DataFrame) -> Source:
    """The source, its atoms with the column in_group (bool) where semantic groups are asked for.

    Args:
      source: from `read_source`.
      filters: `semantic_groups` is used.
      merged: retired and cui (strings), from `Terminology.successors`; the types of a retired
        concept are those of its successor, too.

    Raises:
      BadInput: an unknown group, or a source without semantic types of the Semantic Network.
    """
    if not filters.semantic_groups:
        return source
    asked = {GROUPS[group_number(name)] for name in filters.semantic_groups}
    types = pl.LazyFrame(schema={"cui": pl.String, "type": pl.String})
    types = types if source.types is None else source.types
    names = types.select(pl.col("type").unique().sort()).collect()["type"].to_list()
    if not any(map(group_of, names)):
        has = f"has {some(names, 5)}" if names else "has no semantic types"
        raise BadInput(
            f"--semantic-groups {' '.join(filters.semantic_groups)}: {source.name} {has}; expected "
            "types of the UMLS, such as 'T047 Disease or Syndrome' (MRSTY.RRF beside MRCONSO.RRF), "
            "or the groups themselves (DISO) as types. Add them, or leave the option out."
        )
    wanted = [name for name in names if group_of(name) in asked]
    typed = types.filter(pl.col("type").is_in(wanted)).select("cui")
    retired = typed.join(merged.lazy(), left_on="cui", right_on="retired").select(cui="cui_right")
    chosen = pl.concat([typed, retired]).unique().with_columns(in_group=True)
    marked = source.atoms.join(chosen, on="cui", how="left", maintain_order="left")
    return dataclasses.replace(
        source, atoms=marked.with_columns(pl.col("in_group").fill_null(False))
    )


def keep_mirror(
    frame: pl.DataFrame, filters: Filters, languages: Sequence[str], report: Counter[str]
) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Drops what only a mirror would keep, of the concepts that are not in it.

    Args:
      frame: a row per term; its columns cui, language (a place in `languages`) and needs_mirror.
      filters: `mirror` is used.
      languages: those that are kept.
      report: where dropped terms are counted.

    Returns:
      the frame without the column needs_mirror, and the mirror: cui of the concepts that have a
      term of its language; None without a mirror.
    """
    if filters.mirror is None:
        return frame.drop("needs_mirror"), None
    number = languages.index(filters.mirror) if filters.mirror in languages else len(languages)
    mirror = frame.filter(pl.col("language") == number).select("cui").unique()
    kept = in_mirror(frame.lazy(), mirror).collect()
    dropped = frame["cui"].n_unique() - kept["cui"].n_unique()
    why = f"dropped: concept without a term in {filters.mirror}"
    report[f"concepts {why}"], report[f"terms {why}"] = dropped, frame.height - kept.height
    return kept.drop("needs_mirror"), mirror


def in_mirror(rows: pl.LazyFrame, mirror: pl.DataFrame | None) -> pl.LazyFrame:
    """The rows whose needs_mirror is false, or whose cui is in the mirror, in their order."""
    if mirror is None:
        return rows
    marked = mirror.lazy().with_columns(is_mirrored=True)
    return (
        rows.join(marked, on="cui", how="left", maintain_order="left")
        .filter(~pl.col("needs_mirror") | pl.col("is_mirrored").is_not_null())
        .drop("is_mirrored")
    )
