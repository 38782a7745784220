"""What was measured, on what and how: results and settings in, records in a JSON file out.

A score means little without its protocol: the same vectors give other numbers over a smaller
dictionary, with another pooling or with ties counted otherwise. So each record holds all of it.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from coder_jax.evaluation.normalization.accuracy import TIE_TOLERANCE, NormalizationResult
from coder_jax.evaluation.normalization.files import XL_BEL, NormalizationBenchmark
from coder_jax.evaluation.similarity.files import SimilarityBenchmark
from coder_jax.evaluation.similarity.spearman import SimilarityResult
from data_pipeline.dataset.dictionary import union
from data_pipeline.dataset.tokenize_terms import tokenizer_hash
from data_pipeline.files.identity import EVALUATION, read_identity, write_identity
from data_pipeline.process.errors import BadInput

if TYPE_CHECKING:
    from coder_jax.encoding.encoder import TermEncoder

XL_BEL_NAMES = (
    "; SapBERT's evaluation of XL-BEL takes k names, of which one concept may have several, so its "
    "acc@5 is mostly lower"
)
PACKAGES = ("jax", "jaxlib", "flax", "numpy", "scipy", "transformers", "tokenizers")


@dataclass(frozen=True, kw_only=True)
class EncoderProtocol:
    """How strings became vectors."""

    model: str  # folder or hub id
    weights_hash: str | None  # SHA-256 of the weight file, where it is known
    tokenizer_hash: str  # SHA-256 of its definition
    pooling: str
    max_length: int  # tokens, [CLS] and [SEP] included
    attend_padding: bool
    lowercases: bool  # whether the tokenizer does
    cleaning: str  # rule set of data_pipeline.terminology.clean, applied to mentions and dictionary
    dtype: str  # of the encoder's arithmetic


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
    # Casing and cleaning of what is looked up; empty in records of before it was kept.
    look_up: str = ""


EncoderRecord = EncoderProtocol | VectorFileProtocol


@dataclass(frozen=True, kw_only=True)
class EvaluationRecord:
    """One benchmark scored with one encoder."""

    benchmark: str
    kind: str  # "normalization", "similarity", "concept similarity", ...: a table each
    path: str
    content_hash: str  # of the mentions and gold concepts, or the pairs, whatever their order
    scores: dict[str, float | None]  # shares in [0, 1], or Spearman's rho; None: not defined
    counts: dict[str, int]  # mentions, unreachable, tied, retired, folds; or pairs
    scoring: dict[str, Any]
    encoder: EncoderRecord
    unreachable: dict[str, Any] | None = None  # share of the mentions, and scores of all others
    dictionary: dict[str, Any] | None = None  # source, content_hash, terms, concepts, retired
    folds: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=lambda: installed_versions())
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))


def encoder_protocol(
    encoder: TermEncoder, model: str, weights_hash: str | None = None
) -> EncoderProtocol:
    """The protocol of an encoder; `model` names it (folder, hub id, or step of a run)."""
    normalizer = encoder.tokenizer.normalizer
    return EncoderProtocol(
        model=model,
        weights_hash=weights_hash,
        tokenizer_hash=tokenizer_hash(encoder.tokenizer),
        lowercases=normalizer is not None and normalizer.normalize_str("A") == "a",
        dtype=jnp.dtype(encoder.bert.dtype).name,
        **asdict(encoder.settings),
    )


def hash_weights(folder: Path) -> str:
    """SHA-256 of the weight files of a Hugging Face folder, one after the other by name."""
    files = sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()


def normalization_record(
    benchmark: NormalizationBenchmark,
    result: NormalizationResult,
    encoder: EncoderRecord,
    *,
    missing: int = 0,
    tie_tolerance: float = TIE_TOLERANCE,
) -> EvaluationRecord:
    """The record of `evaluate_normalization`; `missing` strings have no vector."""
    of_fold = {fold.name: fold for fold in benchmark.folds}
    retired = benchmark.retired_cuis
    return EvaluationRecord(
        benchmark=benchmark.name,
        kind="normalization",
        path=benchmark.path,
        content_hash=benchmark.content_hash,
        scores=dict(result.scores),
        counts={
            **_counts(result),
            "retired": benchmark.retired,
            "quoted": benchmark.quoted,
            "missing": missing,
            "folds": len(result.folds) or 1,
        },
        unreachable=_unreachable(result),
        dictionary=union([fold.dictionary for fold in benchmark.folds]).description,
        scoring={
            "similarity": "cosine",
            "concept": "nearest of its terms",
            "acc@k": "k concepts" + (XL_BEL_NAMES if benchmark.format == XL_BEL else ""),
            "tie_tolerance": tie_tolerance,
            "ties": "acc@k and mrr are means over random orders of tied concepts",
            "several_gold": "the best of them counts",
            "unreachable": "gold concepts without a term in the dictionary count as wrong",
            "retired_cuis": retired and retired.description,
            "folds": "unweighted mean over folds" if result.folds else "none",
            "quotes": "those around a CSV field are taken off mentions of Cadec and PsyTar",
            "missing": "strings without a vector have the cosine 0 with all others",
        },
        folds={
            name: {
                "scores": dict(part.scores),
                "counts": _counts(part),
                "unreachable": _unreachable(part),
                "dictionary": of_fold[name].dictionary.description,
            }
            for name, part in result.folds.items()
        },
        encoder=encoder,
    )


def similarity_record(
    benchmark: SimilarityBenchmark, result: SimilarityResult, encoder: EncoderRecord
) -> EvaluationRecord:
    """The record of `evaluate_similarity`."""
    return EvaluationRecord(
        benchmark=benchmark.name,
        kind="similarity",
        path=benchmark.path,
        content_hash=benchmark.content_hash,
        scores=dict(result.scores),
        counts={"pairs": result.pairs, "missing": result.missing, "retired": result.retired},
        scoring={
            "similarity": "cosine; 0 for a pair without two vectors",
            "correlation": "Spearman, ties at their mean rank",
            "retired_cuis": benchmark.retired_cuis and benchmark.retired_cuis.description,
        },
        encoder=encoder,
    )


def write_records(path: str | Path, records: Sequence[EvaluationRecord]) -> None:
    """Writes records as JSON, whole or not at all. ValueError for a score that is NaN."""
    path = Path(path)
    try:
        write_identity(path, EVALUATION, {"records": [asdict(record) for record in records]})
    except OSError as error:
        raise BadInput(
            f"{path}: cannot be written ({error.strerror}); give another path"
        ) from error


def read_records(path: str | Path) -> list[EvaluationRecord]:
    """The records of a file that `write_records` wrote.

    BadInput for another file.
    """
    path = Path(path)
    content = read_identity(path, EVALUATION)
    records = []
    try:
        for fields in content["records"]:
            kind = VectorFileProtocol if "keyed_by" in fields["encoder"] else EncoderProtocol
            records.append(EvaluationRecord(**fields | {"encoder": kind(**fields["encoder"])}))
    except (TypeError, KeyError) as error:
        raise BadInput(
            f"{path}: found a record that is not whole ({error}); expected the JSON file that "
            f"`{EVALUATION.command}` writes"
        ) from error
    return records


def installed_versions() -> dict[str, str]:
    """Versions of Python and of the packages that scores depend on, where installed."""
    versions = {"python": platform.python_version()}
    installed = {name.lower() for name in importlib.metadata.packages_distributions()}
    for package in PACKAGES:
        if package in installed:
            versions[package] = importlib.metadata.version(package)
    return versions


def _counts(result: NormalizationResult) -> dict[str, int]:
    return {
        "mentions": result.mentions,
        "unreachable": result.unreachable,
        "tied": result.tied,
    }


def _unreachable(result: NormalizationResult) -> dict[str, Any]:
    return {
        "mentions": result.unreachable,
        "share": result.unreachable / result.mentions,
        "scores_of_reachable": dict(result.reachable_scores),
    }
