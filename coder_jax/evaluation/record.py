"""Records of evaluations, and their JSON file: what was measured, on what and how.

A score means little without its protocol: the same vectors give other numbers over a smaller
dictionary, with another pooling or with ties counted otherwise. So each record holds all of it.
"""

from __future__ import annotations

import functools
import importlib.metadata
import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from msgspec import UNSET, Meta, UnsetType

from coder_jax.encoding.vector_files import EncoderProtocol
from coder_jax.mapping.confidence import CutoffTable
from data_pipeline.files.identity import (
    EVALUATION,
    Cosine,
    Count,
    Hash,
    read_identity,
    typed,
    write_identity,
)
from data_pipeline.process import BadInput

_PACKAGES = ("jax", "jaxlib", "flax", "numpy", "scipy", "transformers", "tokenizers")


@dataclass(frozen=True, kw_only=True)
class VectorFileProtocol:
    """Which vectors of words or concepts were used, and how."""

    model: str  # the file
    weights_hash: str  # SHA-256 of the file
    keyed_by: str  # "words" or "concepts"
    pooling: str  # how a term or concept got its vector
    width: int
    vectors: int  # in the file
    used: int  # of them, those that a benchmark asked for
    look_up: str  # casing and cleaning of what is looked up


_Share = Annotated[float, Meta(ge=0, le=1)]
Interval = Annotated[list[float], Meta(min_length=2, max_length=2)]  # low, high
EncoderRecord = EncoderProtocol | VectorFileProtocol
E = TypeVar("E", bound=EncoderRecord)


@dataclass(frozen=True, kw_only=True)
class Unreachable:
    """Mentions whose gold concepts the dictionary lacks, and the scores of all others."""

    mentions: Count
    share: _Share
    scores_of_reachable: dict[str, _Share | None]
    intervals_of_reachable: dict[str, Interval] | UnsetType = UNSET


@dataclass(frozen=True, kw_only=True)
class _DescribedDictionary:
    """What each `Dictionary.description` has."""

    source: str
    content_hash: Hash
    terms: Count
    concepts: Count
    retired: Count


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """Histogram of similarities of right and wrong answers, in bins of equal width."""

    low: Cosine  # where the first bin begins
    high: Cosine  # where the last one ends
    right: list[Count]
    wrong: list[Count]


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The answers to mentions (`normalization`)."""

    # `GoldCounts.as_text` of each averaged fold; None for too many mentions.
    ranks: dict[str, str] | None
    order: Hash  # of the mentions, in the order of the ranks
    cutoffs: dict[str, CutoffTable]  # by language, and of all
    languages: str  # whose they are: those of mentions, or of the terms nearest to them
    similarities: Distribution  # of first answers
    predictions: dict[str, str]  # of each fold, a TSV file, named from this file's folder


@dataclass(frozen=True, kw_only=True)
class RatedPairs:
    """Pairs that people rated (`similarity`), in the order of their file."""

    cosines: list[Cosine]  # 0 for a pair without two vectors
    ratings: dict[str, list[float]]  # by the name of the score that compares them with the cosines


@dataclass(frozen=True, kw_only=True)
class EvaluationRecord(Generic[E]):
    """The result of one benchmark with one encoder."""

    benchmark: str
    kind: str  # "normalization", "similarity", "concept similarity", ...: a table each
    path: str
    content_hash: str  # of the mentions and gold concepts, or the pairs, whatever their order
    scores: dict[str, float | None]  # shares in [0, 1], or Spearman's rho; None: not defined
    counts: dict[str, Count]  # mentions, unreachable, tied, retired, folds; or pairs
    scoring: dict[str, Any]
    encoder: E
    unreachable: Unreachable | None = None
    dictionary: dict[str, Any] | None = None  # source, content_hash, terms, concepts, retired
    folds: dict[str, dict[str, Any]] = field(default_factory=dict)
    # 95 % intervals of scores (results.py), where the kind has them.
    intervals: dict[str, Interval] = field(default_factory=dict)
    answers: Answers | None = None  # of normalization
    pairs: RatedPairs | None = None  # of similarity
    mentions_per_s: float | None = None  # of mentions of several concepts, by a generator
    stage: str = ""  # "before" or "after" training, where whoever measured knows it
    versions: dict[str, str] = field(default_factory=lambda: installed_versions())
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))


@dataclass(frozen=True)
class _Records:
    """A file of results; a record is typed by what it was measured with."""

    records: list[dict[str, Any]]


def write_records(path: str | Path, records: Sequence[EvaluationRecord]) -> None:
    """Writes records as JSON, atomically. ValueError for a score that is NaN."""
    path = Path(path)
    try:
        write_identity(path, EVALUATION, {"records": list(records)})
    except OSError as error:
        raise BadInput(
            f"{path}: cannot be written ({error.strerror}); give another path"
        ) from error


def read_records(path: str | Path) -> list[EvaluationRecord]:
    """The records of a file that `write_records` wrote.

    BadInput for another file.
    """
    records = []
    for number, fields in enumerate(read_identity(Path(path), EVALUATION, _Records).records):
        again = f"make it again with `{EVALUATION.command}`"
        records.append(typed_record(fields, f"{path}: records[{number}]", again))
    return records


def typed_record(fields: dict[str, Any], where: str, again: str) -> EvaluationRecord:
    """A record as JSON has it.

    Args:
      fields: what JSON told.
      where: the place, for messages.
      again: what to do about a broken one.

    Raises:
      BadInput: it is no such record.
    """
    encoder = fields.get("encoder")
    by_file = isinstance(encoder, dict) and "keyed_by" in encoder
    kind: Any = VectorFileProtocol if by_file else EncoderProtocol
    record = typed(fields, EvaluationRecord[kind], where, again)
    if record.dictionary is not None:
        typed(record.dictionary, _DescribedDictionary, f"{where}.dictionary", again)
    return record


_version = functools.cache(importlib.metadata.version)  # kept: it opens files


def installed_versions() -> dict[str, str]:
    """The installed versions of Python and of the packages that scores depend on."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = _version(package)
    return versions
