"""MANTRA GSC: mentions and the answers to them in, precision, recall and F1 out.

The score is that of the CODER papers (4.4.2; v1 4.2): one CUI, that of the nearest term, is
returned for each mention, so with `hits` mentions whose CUI is among their gold ones,
precision = hits / mentions, recall = hits / pairs of mention and CUI. CODER's released code takes
each pair for a mention, so that its precision, recall and F1 are all hits / pairs, the recall here;
tables have a row of it for whoever compares with the papers' rows.
"""

from __future__ import annotations

from dataclasses import replace

from coder_jax.evaluation.normalization.accuracy import NormalizationResult
from coder_jax.evaluation.normalization.files import NormalizationBenchmark, NormalizationFold
from coder_jax.evaluation.normalization.mantra_files import FORMAT
from coder_jax.evaluation.record import (
    EncoderRecord,
    EvaluationRecord,
    normalization_record,
)
from data_pipeline.files.rows import CONCEPT_SEPARATOR


def mantra_scores(accuracy: float, mentions: int, annotations: int) -> dict[str, float]:
    """Precision, recall and F1 of one CUI per mention.

    Args:
      accuracy: share of the mentions whose CUI is among their gold ones; of a mention with tied
        terms, the chance of it.
      mentions: how many there are.
      annotations: gold pairs of mention and CUI.
    """
    hits = accuracy * mentions
    return {
        "precision": hits / mentions,
        "recall": hits / annotations,
        "f1": 2 * hits / (mentions + annotations),
    }


def gold_pairs(fold: NormalizationFold) -> int:
    """Gold pairs of mention and CUI."""
    return sum(len(set(gold.split(CONCEPT_SEPARATOR))) for gold in fold.gold)


def mantra_record(
    benchmark: NormalizationBenchmark,
    result: NormalizationResult,
    encoder: EncoderRecord,
    missing: int = 0,
) -> EvaluationRecord:
    """The record of `evaluate_normalization`, with acc@1, turned into precision, recall and F1.

    The scores of the whole are means over the sub-corpora that are not English, as the papers have
    none of those (over all, if all are).
    """
    record = normalization_record(benchmark, result, encoder, missing=missing)
    parts = result.folds or {benchmark.folds[0].name: result}
    annotations = {fold.name: gold_pairs(fold) for fold in benchmark.folds}
    of_part = {
        name: mantra_scores(parts[name].scores["acc@1"], parts[name].mentions, pairs)
        for name, pairs in annotations.items()
    }
    meant = [name for name in of_part if not name.endswith(" en")] or list(of_part)
    folds = {
        name: {
            "scores": scores,
            "counts": {
                "mentions": parts[name].mentions,
                "annotations": annotations[name],
                "unreachable": parts[name].unreachable,
            },
        }
        for name, scores in of_part.items()
    }
    return replace(
        record,
        kind=FORMAT,
        scores={
            score: sum(of_part[name][score] for name in meant) / len(meant)
            for score in ("precision", "recall", "f1")
        },
        unreachable=None,
        counts={
            **record.counts,
            "annotations": sum(annotations.values()),
            "folds": len(meant),
        },
        folds=folds,
        scoring={
            **record.scoring,
            "folds": f"mean over {', '.join(meant)}",
            "answers": "one CUI",
            "recall": "hits per pair of mention and CUI; the released code of CODER calls it F1",
        },
    )
