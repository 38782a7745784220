"""Relation rows of a `Source` and numbers of its concepts in, distinct integer triplets out.

Whatever is dropped is counted.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl

from data_pipeline.sources.source import Source
from data_pipeline.terminology.filters import (
    Filters,
    chosen_labels,
    count_reasons,
    relation_drop_reason,
    relation_label,
)

SELF = -1  # in place of a triplet's key: its head is its tail


def read_triplets(
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
        .then(SELF)
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
    known = keys.filter(keys != SELF)  # a null is not kept either
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
