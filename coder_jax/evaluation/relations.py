"""Relation classification: a benchmark with training pairs and test pairs of concepts.

Read from the folder of DDBRC, as distributed with CODER, or from one with relations_train.tsv and
relations_test.tsv; see `files`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Self

from coder_jax.evaluation.benchmark import Found, Given, Options
from coder_jax.evaluation.published import RELATIONS, PublishedRow
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.relation_pairs import (
    FINE_TUNED,
    FROZEN,
    HALVES,
    RelationHalves,
    RelationPairs,
    read_ddbrc,
    read_tsv,
)
from coder_jax.evaluation.results import Row, Table, percent, published_rows
from coder_jax.evaluation.vectors import EncodedTerms, TableVectors, Vectors
from data_pipeline.files.tables import content_hash
from data_pipeline.flags import Flag


@dataclass(frozen=True, kw_only=True)
class _RelationOptions(Options):
    """Options of relations."""

    features: Annotated[
        str,
        Flag(
            "classify fixed vectors, or train them along: the encoder, or the vectors of words or "
            "concepts",
            choices=(FROZEN, FINE_TUNED),
            heading="relations",
        ),
    ] = FROZEN
    epochs: Annotated[int, Flag("of training (default: 50, the papers')", least=1)] = 50


@dataclass(frozen=True)
class RelationBenchmark(RelationHalves):
    """Training pairs and test pairs of relation classification."""

    kind: ClassVar[str] = "relation classification"
    formats: ClassVar[str] = """\
relations: a folder with x_train.txt, y_train.txt, x_test.txt, y_test.txt (DDBRC), or with
          relations_train.tsv and relations_test.tsv of head, tail, label"""
    about: ClassVar[str] = """\
relations a folder of DDBRC (x_train.txt, y_train.txt, x_test.txt, y_test.txt), or with
          relations_train.tsv and relations_test.tsv of head, tail, label. --dictionary names the
          concepts. Scored by the accuracy of a linear classifier of [head, tail]."""
    options: ClassVar[type[Options]] = _RelationOptions
    published: ClassVar[tuple[PublishedRow, ...]] = RELATIONS

    @classmethod
    def claims(cls, found: Found) -> bool:
        return found.holds("x_train.txt", "relations_train.tsv")

    @classmethod
    def read(cls, given: Given) -> Self:
        train, test = _read_halves(given.path)
        rows = (
            (half, *row)
            for half, pairs in zip(HALVES, (train, test), strict=True)
            for row in zip(pairs.heads, pairs.tails, pairs.labels, strict=True)
        )
        return cls(given.name, str(given.path), (train, test), content_hash(rows)).named(given)

    def score(self, vectors: Vectors, encoder: EncoderRecord, options: Options) -> EvaluationRecord:
        from coder_jax.evaluation import relation_classifiers
        from coder_jax.evaluation.relation_classifiers import ClassifierSettings

        encoded = isinstance(vectors, EncodedTerms)
        tuned = options.of(_RelationOptions).features == FINE_TUNED
        of_encoder = relation_classifiers.FINE_TUNING if tuned else ClassifierSettings()
        defaults = of_encoder if encoded else relation_classifiers.TABLE_TRAINING
        training = replace(defaults, epochs=options.of(_RelationOptions).epochs, seed=options.seed)
        if not tuned:
            result = relation_classifiers.evaluate_relations(vectors, self, training)
        elif isinstance(vectors, EncodedTerms):
            result = relation_classifiers.fine_tune(vectors.encoder, self, training)
        elif isinstance(vectors, TableVectors):
            result = relation_classifiers.fine_tune_table(vectors, self, training)
        else:
            raise ValueError(f"found {type(vectors)}; expected an encoder or a file's to fine-tune")
        features = options.of(_RelationOptions).features
        return relation_classifiers.relation_record(self, result, features, training, encoder)

    @classmethod
    def table(cls, records: Sequence[EvaluationRecord], options: Options) -> Table:
        """Accuracy on the test pairs in percent, beside that of the most frequent label."""
        header = ["relation classification", "pooling", "train", "test", "unseen", "labels"]
        header += ["missing", "unnamed", "frozen", "fine-tuned", "macro F1", "most frequent"]
        rows = []
        for record in records:
            counts = [f"{record.counts[name]:,}" for name in header[2:8]]
            accuracy, macro_f1 = (
                percent(record.scores[name], record.intervals.get(name))
                for name in ("accuracy", "macro_f1")
            )
            by_features = [
                accuracy if record.scoring["features"] == f else "" for f in header[8:10]
            ]
            rest = [macro_f1, percent(record.scores["most_frequent"])]
            cells = [record.benchmark, record.encoder.pooling, *counts, *by_features, *rest]
            rows.append(Row(cells, record.encoder.model))
        return header, rows + published_rows(
            records, cls.published, header[8:10], len(header), before=8, digits=2
        )


def _read_halves(path: Path) -> tuple[RelationPairs, RelationPairs]:
    """The training and the test pairs of a folder of either format.

    Test pairs may have a label that no training pair has, as in the sample that CODER's repository
    has of DDBRC: the labels are those of both halves, as in its code.

    BadInput for broken rows or halves of unequal length.
    """
    if (path / "x_train.txt").is_file():
        train, test = (read_ddbrc(path, half) for half in HALVES)
    else:
        train, test = (read_tsv(path / f"relations_{half}.tsv") for half in HALVES)
    return train, test
