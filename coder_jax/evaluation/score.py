"""A benchmark of any kind and vectors in, the record of its scores out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from coder_jax.evaluation.benchmark import (
    Benchmark,
    CaseStudy,
    ConceptSet,
    LinkBenchmark,
    NormalizationBenchmark,
    RelationBenchmark,
    SimilarityBenchmark,
)
from coder_jax.evaluation.concepts.case_studies import NEAREST, case_study_record, nearest_terms
from coder_jax.evaluation.concepts.mcsm import (
    NEIGHBOURS,
    concept_similarity_record,
    evaluate_concept_similarity,
)
from coder_jax.evaluation.normalization.accuracy import evaluate_normalization
from coder_jax.evaluation.normalization.mantra import mantra_record
from coder_jax.evaluation.normalization.mantra_files import FORMAT as MANTRA
from coder_jax.evaluation.record import (
    EncoderRecord,
    EvaluationRecord,
    normalization_record,
    similarity_record,
)
from coder_jax.evaluation.relations.classification import (
    FINE_TUNED,
    FINE_TUNING,
    FROZEN,
    TABLE_TRAINING,
    evaluate_relations,
    relation_record,
)
from coder_jax.evaluation.relations.classifier import ClassifierSettings
from coder_jax.evaluation.relations.fine_tuning import fine_tune, fine_tune_table
from coder_jax.evaluation.relations.link_prediction import score_links
from coder_jax.evaluation.similarity.spearman import evaluate_similarity
from coder_jax.evaluation.vectors.vectors import TERMS, EncodedTerms, Vectors
from coder_jax.evaluation.vectors.words_and_concepts import TableVectors, WordVectors


@dataclass(frozen=True, kw_only=True)
class ScoreSettings:
    """What is asked of the benchmarks; each takes what concerns it.

    Attributes:
      ks: normalization: the k of acc@k.
      neighbours, only_these_types, sample: concepts, see `evaluate_concept_similarity`.
      features, epochs: relations: FROZEN or FINE_TUNED, and the epochs of training.
      nearest: terms to look up: how many of the dictionary's are listed.
      seed: of all that is drawn at random.
    """

    ks: Sequence[int] = (1, 3, 5)
    neighbours: int = NEIGHBOURS
    only_these_types: bool = False
    sample: int | None = None
    features: str = FROZEN
    epochs: int = 50
    nearest: int = NEAREST
    seed: int = 0


def score(
    benchmark: Benchmark, vectors: Vectors, encoder: EncoderRecord, settings: ScoreSettings
) -> EvaluationRecord:
    """Scores one benchmark; of word vectors, counts the terms that have some of their words only.

    Raises:
      BadInput: concept vectors for a benchmark that has only terms, or vectors that cannot be used.
      Stopped: a signal asked for it.
    """
    record = _score(benchmark, vectors, encoder, settings)
    if not isinstance(vectors, WordVectors):
        return record
    partly = vectors.partly_known(benchmark.keys(TERMS))
    how = "distinct terms of which a word has no vector: the mean is over the other words"
    return replace(
        record,
        counts={**record.counts, "partly_known": partly},
        scoring={**record.scoring, "partly_known": how},
    )


def _score(
    benchmark: Benchmark, vectors: Vectors, encoder: EncoderRecord, settings: ScoreSettings
) -> EvaluationRecord:
    if isinstance(benchmark, SimilarityBenchmark):
        result = evaluate_similarity(
            vectors.encode, benchmark, known=vectors.known, by=vectors.keyed_by
        )
        return similarity_record(benchmark, result, encoder)
    if isinstance(benchmark, ConceptSet):
        return _score_concepts(benchmark, vectors, encoder, settings)
    if isinstance(benchmark, RelationBenchmark):
        return _score_relations(benchmark, vectors, encoder, settings)
    if isinstance(benchmark, LinkBenchmark):
        return score_links(vectors, benchmark, encoder)
    if isinstance(benchmark, CaseStudy):
        listing = nearest_terms(vectors, benchmark, settings.nearest)
        return case_study_record(benchmark, listing, encoder)
    return _score_normalization(benchmark, vectors, encoder, settings)


def _score_normalization(
    benchmark: NormalizationBenchmark,
    vectors: Vectors,
    encoder: EncoderRecord,
    settings: ScoreSettings,
) -> EvaluationRecord:
    missing = int((~vectors.known(benchmark.keys(vectors.keyed_by))).sum())
    if benchmark.format == MANTRA:
        result = evaluate_normalization(vectors.encode, benchmark, ks=[1])
        return mantra_record(benchmark, result, encoder, missing)
    result = evaluate_normalization(vectors.encode, benchmark, ks=settings.ks)
    return normalization_record(benchmark, result, encoder, missing=missing)


def _score_concepts(
    benchmark: ConceptSet, vectors: Vectors, encoder: EncoderRecord, settings: ScoreSettings
) -> EvaluationRecord:
    chosen: dict[str, Any] = {
        "k": settings.neighbours,
        "only_these_types": settings.only_these_types,
        "sample": settings.sample,
        "seed": settings.seed,
    }
    result, counts = evaluate_concept_similarity(vectors, benchmark, **chosen)
    return concept_similarity_record(benchmark, result, counts, encoder, **chosen)


def _score_relations(
    benchmark: RelationBenchmark,
    vectors: Vectors,
    encoder: EncoderRecord,
    settings: ScoreSettings,
) -> EvaluationRecord:
    encoded = isinstance(vectors, EncodedTerms)
    tuned = settings.features == FINE_TUNED
    defaults = (FINE_TUNING if tuned else ClassifierSettings()) if encoded else TABLE_TRAINING
    training = replace(defaults, epochs=settings.epochs, seed=settings.seed)
    if not tuned:
        result = evaluate_relations(vectors, benchmark, training)
    elif isinstance(vectors, EncodedTerms):
        result = fine_tune(vectors.encoder, benchmark, training)
    elif isinstance(vectors, TableVectors):
        result = fine_tune_table(vectors, benchmark, training)
    else:
        raise ValueError(f"found {type(vectors)}; expected an encoder or a file's to fine-tune")
    return relation_record(benchmark, result, settings.features, training, encoder)
