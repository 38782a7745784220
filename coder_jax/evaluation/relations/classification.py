"""Relation classification (DDBRC): a linear softmax on the vectors of head and tail.

CODER paper, section 4.6 and appendix A.4 (v1, section 4.4): y = softmax(W [e_h, e_t] + b), trained
with cross-entropy for 50 epochs; the score is the accuracy on the test pairs. The vectors are fixed
features (learning rate 1e-3, batches of 512 pairs) or trained along (encoders: 2e-5, 96 pairs; word
and concept vectors: 1e-3, and 512 pairs as in the released code).

What else the training needs is in softmax_classifier.py.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import jax
import numpy as np

from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord, VectorFileProtocol
from coder_jax.evaluation.relations.classifier import (
    ClassifierSettings,
    fit,
    initial_layer,
    pair_logits,
    predict,
)
from coder_jax.evaluation.relations.files import FROZEN, RelationPairs
from coder_jax.evaluation.results.bootstrap import ABOUT, named, resampled
from coder_jax.evaluation.vectors.vectors import Vectors, known_features

if TYPE_CHECKING:
    from coder_jax.evaluation.relations.relation_benchmark import RelationBenchmark

FINE_TUNING = ClassifierSettings(batch_pairs=96, learning_rate=2e-5)
# Of word and concept vectors, fixed or trained along: the released code's rate is constant there.
TABLE_TRAINING = ClassifierSettings(warmup=None)


@dataclass(frozen=True)
class RelationResult:
    """Scores on the test pairs.

    Attributes:
      scores: "accuracy"; "macro_f1", the unweighted mean over the labels that a test pair has or
        was given, as scikit-learn's; "most_frequent", the accuracy of always answering the label
        that is most frequent in training; "accuracy_known", over the pairs whose two concepts have
        vectors, where some have not.
      labels: precision, recall, f1 and test pairs of each label.
      counts: pairs, labels, test pairs with a label unseen in training, concepts, and those
        missing (without a vector), unnamed, or retired (named after the concept that they were
        merged into).
      final_loss: the mean cross-entropy of the last epoch, in nats.
      intervals: of "accuracy" and "macro_f1", over test pairs that are drawn anew. The classifier
        stays as it was trained: another seed would move the scores, too.
    """

    scores: dict[str, float]
    labels: dict[str, dict[str, float]]
    counts: dict[str, int]
    final_loss: float
    intervals: dict[str, list[float]] = field(default_factory=dict)


def evaluate_relations(
    vectors: Vectors, benchmark: RelationBenchmark, settings: ClassifierSettings
) -> RelationResult:
    """Trains the classifier on fixed features and scores it.

    A concept without a vector gets the mean of all others, as in CODER's released code, and is
    counted.

    Raises:
      BadInput: no names for the concepts, or none has a vector.
      Stopped: a signal asked for it.
    """
    known, some = known_features(vectors, benchmark.keys(vectors.keyed_by), benchmark.path)
    features_CD = np.broadcast_to(some.mean(axis=0), (len(known), some.shape[1])).copy()
    features_CD[known] = some
    train, test, labels = numbered(benchmark)
    start = initial_layer(2 * some.shape[1], len(labels), settings.seed)
    features = jax.device_put(features_CD)
    params, final_loss = fit(start, features, pair_logits, train, settings)
    predicted = predict(params, features, pair_logits, test)
    return relation_result(benchmark, labels, train, test, predicted, known, final_loss)


def numbered(benchmark: RelationBenchmark) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Training and test pairs as int32 [n, 3] (head, tail, label), and the labels."""
    labels = benchmark.labels()
    number_of = {concept: number for number, concept in enumerate(benchmark.concepts())}
    label_of = {label: number for number, label in enumerate(labels)}

    def table(pairs: RelationPairs) -> np.ndarray:
        rows = zip(pairs.heads, pairs.tails, pairs.labels, strict=True)
        return np.array([(number_of[h], number_of[t], label_of[y]) for h, t, y in rows], np.int32)

    return table(benchmark.train), table(benchmark.test), labels


def relation_result(
    benchmark: RelationBenchmark,
    labels: list[str],
    train: np.ndarray,
    test: np.ndarray,
    predicted: np.ndarray,
    known: np.ndarray,
    final_loss: float,
) -> RelationResult:
    """Scores of predictions for the test pairs."""
    gold = test[:, 2]
    by_label = {
        label: label_scores(gold == number, predicted == number)
        for number, label in enumerate(labels)
    }
    occurring = np.union1d(gold, predicted)
    most_frequent = np.bincount(train[:, 2]).argmax()
    scores = {
        "accuracy": float(np.mean(predicted == gold)),
        "macro_f1": float(np.mean([by_label[labels[number]]["f1"] for number in occurring])),
        "most_frequent": float(np.mean(gold == most_frequent)),
    }
    both = known[test[:, 0]] & known[test[:, 1]]
    if not both.all():
        hits = (predicted == gold)[both]
        scores["accuracy_known"] = float(hits.mean()) if len(hits) else 0.0
    counts = {
        "train": len(train),
        "test": len(test),
        "labels": len(labels),
        "unseen": benchmark.unseen,
        "concepts": len(known),
        "missing": int((~known).sum()),
        "test_with_missing": int((~both).sum()),
        "unnamed": benchmark.unnamed,
        "retired": benchmark.retired,
    }
    # The seed of training may be any; the same pairs are drawn for all.
    drawn = resampled(np.stack([gold, predicted], axis=1), drawn_scores, np.random.default_rng(0))
    intervals = named(("accuracy", "macro_f1"), drawn)
    return RelationResult(scores, by_label, counts, final_loss, intervals)


def drawn_scores(distinct_U2: np.ndarray, drawn_BU: np.ndarray) -> np.ndarray:
    """The `Statistic` of accuracy and macro F1, [B, 2], of pairs with gold and predicted label."""
    labels, numbers = np.unique(distinct_U2, return_inverse=True)
    is_gold_UL, is_predicted_UL = (
        side[:, None] == np.arange(len(labels)) for side in numbers.reshape(distinct_U2.shape).T
    )
    hits_BL = drawn_BU @ (is_gold_UL & is_predicted_UL)
    answers_BL = drawn_BU @ is_gold_UL + drawn_BU @ is_predicted_UL
    f1_BL = 2 * hits_BL / np.maximum(answers_BL, 1)
    macro_f1 = f1_BL.sum(axis=1) / (answers_BL > 0).sum(axis=1)
    return np.stack([hits_BL.sum(axis=1) / drawn_BU.sum(axis=1), macro_f1], axis=1)


def label_scores(gold: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Precision, recall and F1 of one label, and its test pairs; 0 where nothing is defined."""
    hits = int((gold & predicted).sum())
    precision, recall = hits / max(1, predicted.sum()), hits / max(1, gold.sum())
    f1 = 2 * hits / max(1, gold.sum() + predicted.sum())
    values = {"precision": precision, "recall": recall, "f1": f1, "pairs": gold.sum()}
    return {name: float(value) for name, value in values.items()}


def relation_record(
    benchmark: RelationBenchmark,
    result: RelationResult,
    features: str,
    settings: ClassifierSettings,
    encoder: EncoderRecord,
) -> EvaluationRecord:
    """The record of `evaluate_relations` (features FROZEN) or of fine-tuning (FINE_TUNED)."""
    return EvaluationRecord(
        benchmark=benchmark.name,
        kind="relation classification",
        path=benchmark.path,
        content_hash=benchmark.content_hash,
        scores=dict(result.scores),
        intervals=result.intervals,
        counts=result.counts,
        dictionary=benchmark.dictionary.description if benchmark.dictionary else None,
        scoring={
            "features": features,
            "trained": trained(features, encoder),
            "classifier": "softmax of W [e_h, e_t] + b, cross-entropy, Adam",
            "vectors": "as they are, not of unit length",
            "labels": "of training and test pairs; unseen: test pairs whose label no training pair "
            "has",
            "macro_f1": "mean over the labels that a test pair has or was given",
            "concept": "its first term in the dictionary, or its identifier where it has none",
            "retired_cuis": benchmark.retired_cuis and benchmark.retired_cuis.description,
            "missing": "concepts without a vector get the mean of the others, trained with them",
            "intervals": f"{ABOUT}, test pairs drawn anew, with the same classifier",
            "final_loss": result.final_loss,
            **asdict(settings),
        },
        folds={
            label: {
                "scores": {name: value for name, value in part.items() if name != "pairs"},
                "counts": {"pairs": int(part["pairs"])},
            }
            for label, part in result.labels.items()
        },
        encoder=encoder,
    )


def trained(features: str, encoder: EncoderRecord) -> str:
    """What the training changes, in words."""
    if features == FROZEN:
        return "W, b"
    if isinstance(encoder, VectorFileProtocol):
        return f"W, b and the vectors of {encoder.keyed_by}"
    return "W, b and the encoder"
