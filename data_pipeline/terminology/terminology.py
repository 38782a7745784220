"""A terminology: numbered concepts, cleaned distinct terms, and integer triplets of relations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from data_pipeline import process
from data_pipeline.process import BadInput
from data_pipeline.sources.source import Source, check_labels
from data_pipeline.terminology.cleaning import clean
from data_pipeline.terminology.filters import (
    Filters,
    check_filter_values,
    chosen_labels,
    count_reasons,
    in_mirror,
    keep_mirror,
    mark_concepts,
    needs_mirror,
    relation_drop_reason,
    relation_label,
    term_drop_reason,
)
from data_pipeline.terminology.mentions import rows_of_mentions
from data_pipeline.terminology.retired_cuis import successors

# -------------------------------------------------------------------------------------------------
# Distinct integer triplets from the relation rows of a `Source`. Dropped rows are counted.

_SELF = -1  # in place of a triplet's key: its head is its tail


def _read_triplets(
    source: Source, filters: Filters, lookup: pl.LazyFrame, concepts: int, report: Counter[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    """Distinct triplets sorted by (head, relation, tail), and the labels that occur in them."""
    if source.relations is None:
        none = np.zeros(0, np.int32)
        return none, none, none, []
    counts = (
        source.relations.group_by("rel", "rela", "source", "suppress")
        .len()
        .collect(engine="streaming")
    )
    check_labels(counts.select(relation_label()).to_series(), f"{source.name}, relations")
    labels = chosen_labels(counts.select(label=relation_label())["label"], filters)
    reason = relation_drop_reason(filters, labels)
    counts = counts.with_columns(reason=reason)
    report["relations read"] = int(counts["len"].sum())
    count_reasons(counts, "relations", report)
    # One int64 per triplet sorts and compares far quicker, in less memory, than three columns;
    # it is null where the head or the tail is unknown, and SELF where they are the same.
    head, tail = pl.col("head_id").cast(pl.Int64), pl.col("tail_id")
    key = (
        pl.when(head == tail)
        .then(_SELF)
        .otherwise((head * len(labels) + pl.col("relation")) * concepts + tail)
    )
    numbers = pl.LazyFrame({"label": labels}, schema={"label": pl.String})
    keys = (
        source.relations.filter(reason.is_null())
        .select("head", "tail", label=relation_label())
        .join(numbers.with_row_index("relation"), on="label")
        .join(lookup.select(head_id="concept", head="cui"), on="head", how="left")
        .join(lookup.select(tail_id="concept", tail="cui"), on="tail", how="left")
        .select(key=key)
        .collect(engine="streaming")
        .to_series()
    )
    known = keys.filter(keys != _SELF)  # a null is not kept either
    report["relations dropped: unknown concept"] = keys.null_count()
    itself = len(keys) - keys.null_count() - len(known)
    report["relations dropped: relation of a concept to itself"] = itself
    del keys
    return _distinct_triplets(known.to_numpy(writable=True), labels, concepts, report)


def _distinct_triplets(
    key: np.ndarray, labels: list[str], concepts: int, report: Counter[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    """Sorts and splits keys (head * labels + relation) * concepts + tail; drops repeated ones."""
    found = len(key)
    key.sort()
    key = key[np.concatenate([[True], key[1:] != key[:-1]])] if found else key
    report["relations dropped: duplicate"] = found - len(key)
    report["triplets kept"] = len(key)
    tails = (key % concepts).astype(np.int32)
    key //= concepts
    relations = (key % max(len(labels), 1)).astype(np.int32)
    key //= max(len(labels), 1)
    heads = key.astype(np.int32)
    is_used = np.bincount(relations, minlength=len(labels)) > 0
    new_number = np.cumsum(is_used, dtype=np.int32) - 1
    used = [label for label, keep in zip(labels, is_used, strict=True) if keep]
    return heads, new_number[relations].astype(np.int32), tails, used


# -------------------------------------------------------------------------------------------------
# A `Source` turned into numbered concepts, cleaned distinct terms and integer triplets.
#
# Columns are scanned lazily and concepts become int32 numbers at once, so that a UMLS release (15.5
# M terms, 88 M relation rows) passes through in a few gigabytes. Whatever is dropped is counted.

_MARKS = ("needs_mirror", "is_mention")


@dataclass(frozen=True)
class Terminology:
    """Concepts, numbered 0..C-1 in the order of their identifiers, with their terms and relations.

    Attributes:
      cuis: string [C].
      terms: concept (int32), language (uint8, an index into `languages`), term (string),
        vocabularies (list of uint16, indices into `vocabularies`, sorted: those that have the
        string for the concept), strings and sources (lists of string and uint16: what the source
        writes in each of the rows that became the term, null where that is the term itself, and
        the vocabulary of the row; the preferred row first), more_languages and more_counts (lists
        of uint8 and int32, null for most: where the term occurs again, as `Occurrences` of
        `dataset.store` says); sorted by concept, then the most wanted language, then the preferred
        term first. Terms are distinct within a concept; every concept has one or more.
      codes: concept (int32), vocabulary (uint16, an index into `vocabularies`) and code (string):
        what the vocabularies call the concepts; distinct, sorted.
      heads, relations, tails: int32 [T], distinct, sorted by head, relation, tail; relations index
        `relation_labels`.
      successors: retired and cui (strings): identifiers that are no more and those that stand for
        them, from `retired_cuis.successors`.
      type_start: int64 [C + 1] and types int32: concept c has types[type_start[c]:type_start[c+1]],
        which index `semantic_types`.
      report: counts of what was read, kept and dropped, by reason.
    """

    source: Source
    successors: pl.DataFrame
    cuis: pl.Series
    terms: pl.DataFrame
    codes: pl.DataFrame
    languages: list[str]
    vocabularies: list[str]
    heads: np.ndarray
    relations: np.ndarray
    tails: np.ndarray
    relation_labels: list[str]
    type_start: np.ndarray
    types: np.ndarray
    semantic_types: list[str]
    report: dict[str, int]

    def term_start(self) -> np.ndarray:
        """int64 [C + 1]: the rows of `terms` of each concept."""
        return offsets(self.terms["concept"].to_numpy(), len(self.cuis))

    def concepts_of(self, cuis: pl.Series) -> np.ndarray:
        """int32: the distinct concepts with these identifiers, either current or retired by a
        merger.
        """
        wanted = pl.LazyFrame({"cui": cuis.unique()})
        found = wanted.join(_lookup(self.cuis, self.successors), on="cui").collect()
        return found["concept"].unique().to_numpy()


def offsets(sorted_ids: np.ndarray, count: int) -> np.ndarray:
    """int64 [count + 1]: CSR offsets for sorted ids in 0..count-1."""
    start = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(sorted_ids, minlength=count), out=start[1:])
    return start


def read_terminology(
    source: Source,
    filters: Filters,
    cleaning: str,
    excluded: pl.DataFrame | None = None,
    supervised: pl.DataFrame | None = None,
    listed: Sequence[str] | None = None,
) -> Terminology:
    """Filters, cleans and numbers the content of a source.

    Args:
      source: from `read_source`.
      filters: what to keep.
      cleaning: name of a rule set of `clean.CLEANING`.
      excluded: mention and CUI (strings) of terms to leave out; cleaned by the same rules, and
        retired CUIs replaced by their successors.
      supervised: mentions that join the terms, from `read_supervised`.
      listed: identifiers of the concepts to keep, as for `mark_concepts`; None: all.
    Raises BadInput if no concept is left, or a chain of retired CUIs leads back to itself.
    """
    report: Counter[str] = Counter()
    merged = _successors(source)
    source = mark_concepts(source, filters, merged, listed, report)
    added = rows_of_mentions(supervised, source, merged, filters, report)
    languages, vocabularies, reason = _count_terms(source, filters, report, added)
    process.poll()  # none of the steps can be stopped midway: polars gives no chance to
    rows = source.atoms.filter(reason.is_null()).with_columns(
        needs_mirror=needs_mirror(filters), is_mention=False
    )
    if added.height:
        rows = pl.concat([rows.select(added.columns), added.lazy()])
    frame = _clean_terms(rows, languages, vocabularies, cleaning, report)
    if excluded is not None:
        frame = _leave_out(frame, excluded, merged, cleaning, report)
    frame, mirror = keep_mirror(frame, filters, languages, report)
    if not frame.height:
        raise BadInput(
            "no concept is left: the filters and the cleaning dropped every term "
            f"({_listing(report)}). Loosen them."
        )
    cuis = frame["cui"].unique().sort()
    dropped = sum(count for what, count in report.items() if what.startswith("concepts dropped"))
    report["concepts dropped: no term left"] = report["concepts read"] - dropped - len(cuis)
    lookup = _lookup(cuis, merged)
    terms = _distinct_terms(frame, lookup, report)
    del frame
    process.poll()
    codes = _read_codes(in_mirror(rows, mirror), lookup, vocabularies)
    triplets = _read_triplets(source, filters, lookup, len(cuis), report)
    process.poll()
    types = _read_types(source, lookup, len(cuis))
    return Terminology(
        source, merged, cuis, terms, codes, languages, vocabularies, *triplets, *types, dict(report)
    )


def _count_terms(
    source: Source, filters: Filters, report: Counter[str], added: pl.DataFrame
) -> tuple[list[str], list[str], pl.Expr]:
    """Counts rows by drop reason. Returns the languages, in order of preference, the vocabularies,
    and the reason.
    """
    atoms = source.atoms
    counts, concepts = pl.collect_all(
        [
            atoms.group_by("language", "source", "term_type", "suppress", "outside").len(),
            atoms.group_by(reason="outside").agg(len=pl.col("cui").n_unique()),
        ],
        engine="streaming",
    )
    check_filter_values(counts, filters)
    reason = pl.coalesce(term_drop_reason(filters), "outside")
    counts = counts.with_columns(reason=reason)
    report["concepts read"] = int(concepts["len"].sum())
    count_reasons(concepts, "concepts", report)
    report["terms read"] = int(counts["len"].sum())
    count_reasons(counts, "terms", report)
    counts = counts.filter(pl.col("reason").is_null()).select("language", "source")
    counts = pl.concat([counts, added.select(counts.columns)])
    kept = counts["language"].unique().to_list()
    # Default order of preference: English first, like the UMLS's preferred names; then A to Z.
    wanted = list(filters.languages) or sorted(kept, key=lambda name: (name != "ENG", name))
    languages = [language for language in wanted if language in kept]
    return languages, counts["source"].unique().sort().to_list(), reason


def _clean_terms(
    rows: pl.LazyFrame,
    languages: list[str],
    vocabularies: list[str],
    cleaning: str,
    report: Counter[str],
) -> pl.DataFrame:
    if not languages:
        columns = {"cui": pl.String, "term": pl.String, "language": pl.UInt8}
        return pl.DataFrame(schema=columns | dict.fromkeys(_MARKS, pl.Boolean))
    frame = (
        rows.select(
            "cui",
            "rank",
            *_MARKS,
            _number("language", languages, pl.UInt8),
            _number("source", vocabularies, pl.UInt16),
            string="term",
            term=clean(pl.col("term"), cleaning),
        )
        .with_columns(string=pl.when(pl.col("string") != pl.col("term")).then("string"))
        .collect(engine="streaming")
    )
    kept = frame.filter(pl.col("term") != "")
    _count_dropped(frame, kept, "empty after cleaning", report)
    return kept


def _count_dropped(frame: pl.DataFrame, kept: pl.DataFrame, why: str, report: Counter[str]) -> None:
    """Counts the rows of names, and those of mentions apart, that are not kept."""
    mentions = int(frame["is_mention"].sum()) - int(kept["is_mention"].sum())
    report[f"terms dropped: {why}"] = frame.height - kept.height - mentions
    if mentions:
        report[f"supervised mentions dropped: {why}"] = mentions


def _number(column: str, values: list[str], dtype: type[pl.DataType]) -> pl.Expr:
    """The column's strings as indices into `values`."""
    places = dict(zip(values, range(len(values)), strict=True))
    return pl.col(column).replace_strict(places, return_dtype=dtype)


def _leave_out(
    frame: pl.DataFrame,
    excluded: pl.DataFrame,
    merged: pl.DataFrame,
    cleaning: str,
    report: Counter[str],
) -> pl.DataFrame:
    now = merged.select(CUI="retired", now="cui")
    out = excluded.join(now, on="CUI", how="left").select(
        cui=pl.coalesce("now", "CUI"), term=clean(pl.col("mention"), cleaning)
    )
    kept = frame.join(out.unique(), on=["cui", "term"], how="anti", maintain_order="left")
    _count_dropped(frame, kept, "excluded by file", report)
    return kept


def _successors(source: Source) -> pl.DataFrame:
    """The `Terminology.successors` of a source."""
    found = successors(source.retired, f"{source.name} {source.release}, retired concepts")
    columns = {"retired": list(found), "cui": list(found.values())}
    return pl.DataFrame(columns, schema={"retired": pl.String, "cui": pl.String})


def _lookup(cuis: pl.Series, merged: pl.DataFrame) -> pl.LazyFrame:
    """cui -> concept (int32); merged identifiers map to their successor."""
    numbers = pl.DataFrame({"cui": cuis}).with_row_index("concept").cast({"concept": pl.Int32})
    retired = (
        merged.join(numbers, on="cui")
        .select("concept", cui="retired")
        .join(numbers, on="cui", how="anti")  # one that has terms all the same is itself
    )
    return pl.concat([numbers, retired.select("concept", "cui")]).lazy()


def _distinct_terms(
    frame: pl.DataFrame, lookup: pl.LazyFrame, report: Counter[str]
) -> pl.DataFrame:
    rows = (
        frame.lazy()
        .join(lookup, on="cui", how="left", maintain_order="left")
        .select("concept", "language", "rank", "term", "source", "string", "is_mention")
        .collect()
        .sort("concept", "language", "rank", maintain_order=True)
    )
    terms = (
        rows.group_by("concept", "term", maintain_order=True)
        .agg(
            pl.first("language"),
            pl.last("language").alias("last"),
            pl.len(),
            mentions=pl.col("is_mention").sum(),
            vocabularies=pl.col("source").unique().sort(),
            strings=pl.col("string"),
            sources=pl.col("source"),
        )
        .with_row_index("row")
    )
    names = int((terms["len"] > terms["mentions"]).sum())
    mentions = int(frame["is_mention"].sum())
    report["terms dropped: same string in the concept"] = frame.height - mentions - names
    if mentions:
        report["supervised mentions kept"] = mentions
        report["terms added: supervised mentions"] = terms.height - names
    report["terms kept"] = terms.height
    return terms.join(_again(rows, terms), on="row", how="left", maintain_order="left").select(
        *("concept", "language", "term", "vocabularies", "strings", "sources"),
        *("more_languages", "more_counts"),
    )


def _again(rows: pl.DataFrame, terms: pl.DataFrame) -> pl.DataFrame:
    """The row, more_languages and more_counts of the terms that occur again."""
    several = terms.filter((pl.col("last") != pl.col("language")) | (pl.col("mentions") > 0))
    first = pl.col("language") == pl.col("language_right")
    # Of a term that only mentions have, one of them is the term itself.
    is_itself = first & (pl.col("len") == pl.col("mentions"))
    return (
        rows.select("concept", "term", "language", "is_mention")
        .join(several, on=["concept", "term"])
        .group_by("row", "language", "language_right", "len", "mentions")
        .agg(count=pl.col("is_mention").sum().cast(pl.Int32))
        .with_columns(count=pl.col("count") - is_itself.cast(pl.Int32))
        .filter(~first | (pl.col("count") > 0))
        .sort("row", "language")
        .group_by("row", maintain_order=True)
        .agg(more_languages="language", more_counts="count")
    )


def _read_codes(rows: pl.LazyFrame, lookup: pl.LazyFrame, vocabularies: list[str]) -> pl.DataFrame:
    """`Terminology.codes`, from all rows that the filters keep, even if their terms were
    dropped.
    """
    return (
        rows.filter(pl.col("code") != "")
        .select("cui", "code", vocabulary=_number("source", vocabularies, pl.UInt16))
        .join(lookup, on="cui")
        .select("concept", "vocabulary", "code")
        .unique()
        .sort("concept", "vocabulary", "code")
        .collect(engine="streaming")
    )


def _read_types(
    source: Source, lookup: pl.LazyFrame, concepts: int
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    if source.types is None:
        return np.zeros(concepts + 1, np.int64), np.zeros(0, np.int32), []
    table = (
        source.types.join(lookup, on="cui")
        .select("concept", "type")
        .unique()
        .sort("concept", "type")
        .collect(engine="streaming")
    )
    names = table["type"].unique().sort()
    numbers = pl.DataFrame({"type": names}).with_row_index("number")
    table = table.join(numbers, on="type", maintain_order="left")
    start = offsets(table["concept"].to_numpy(), concepts)
    return start, table["number"].to_numpy().astype(np.int32), names.to_list()


def _listing(report: Counter[str]) -> str:
    return "; ".join(f"{what}: {count:,}" for what, count in report.items() if count)
