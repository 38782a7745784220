"""MANTRA GSC: precision, recall and F1 of the CUI that is returned for each mention.

The score is that of the CODER papers (4.4.2; v1 4.2): one CUI, that of the nearest term, is
returned for each mention, so with `hits` mentions whose CUI is among their gold ones,
precision = hits / mentions, recall = hits / pairs of mention and CUI. CODER's released code takes
each pair for a mention, so that its precision, recall and F1 are all hits / pairs, the recall here;
tables have a row of it for whoever compares with the papers' rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

from coder_jax.evaluation.benchmark import Flag, Found, Given, Options
from coder_jax.evaluation.cells import (
    Row,
    Table,
    missing_column,
    published_rows,
    short_percent,
)
from coder_jax.evaluation.normalization.benchmark import (
    NormalizationBenchmark,
    NormalizationFold,
    normalization_record,
)
from coder_jax.evaluation.normalization.mantra_files import is_mantra, read_mantra
from coder_jax.evaluation.published import MANTRA, PublishedRow
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.vectors.vectors import Vectors
from data_pipeline.files.rows import CONCEPT_SEPARATOR

if TYPE_CHECKING:
    from coder_jax.evaluation.normalization.accuracy import NormalizationResult


@dataclass(frozen=True)
class Mantra(NormalizationBenchmark):
    """MANTRA GSC: a fold for each language and corpus."""

    kind: ClassVar[str] = "MANTRA GSC"
    formats: ClassVar[str] = (
        "MANTRA:   a .zip or folder of MANTRA GSC, as XML or brat files, or one of its XML files"
    )
    about: ClassVar[str] = """\
MANTRA    MANTRA GSC as a .zip, a folder or an XML file; searched in --dictionary. Scored by
          precision, recall and F1 of one CUI per mention. What CODER's released code calls F1,
          hits per pair of mention and CUI, is the recall; a second row has it."""
    flags: ClassVar[tuple[Flag, ...]] = ()
    published: ClassVar[tuple[PublishedRow, ...]] = MANTRA

    @classmethod
    def claims(cls, found: Found) -> bool:
        return not found.is_folder and is_mantra(found.path)

    @classmethod
    def would_take(cls, found: Found) -> bool:
        return found.is_folder and is_mantra(found.path)

    @classmethod
    def read(cls, given: Given) -> Self:
        return cls.of_folds(given, read_mantra(given.path, given.dictionary))

    def score(self, vectors: Vectors, encoder: EncoderRecord, options: Options) -> EvaluationRecord:
        from coder_jax.evaluation.normalization.accuracy import evaluate_normalization

        missing = int((~vectors.known(self.keys(vectors.keyed_by))).sum())
        result = evaluate_normalization(vectors.encode, self, ks=[1])
        return mantra_record(self, result, encoder, missing)

    @classmethod
    def table(cls, records: Sequence[EvaluationRecord], options: Options) -> Table:
        """F1 of each sub-corpus, in percent; mean precision, recall and F1.

        A second row has in their place what CODER's released code calls F1: hits per pair of
        mention and CUI, the recall.
        """
        corpora = list(dict.fromkeys(name for record in records for name in record.folds))
        missing = missing_column(records)
        header = [cls.kind, "pooling", "mentions", "CUIs", "unreachable", *missing]
        before = len(header)
        header += [*corpora, "precision", "recall", "F1"]
        rows = []
        for record in records:
            names = ("mentions", "annotations", "unreachable", *missing)
            counts = [record.counts.get(name, 0) for name in names]
            label = [record.benchmark, record.encoder.pooling]
            of_corpora = [record.folds.get(name, {}).get("scores", {}) for name in corpora]
            means = [record.scores[name] for name in ("precision", "recall", "f1")]
            cells = [*label, *(f"{count:,}" for count in counts)]
            cells += [short_percent(scores.get("f1")) for scores in of_corpora]
            rows.append(Row([*cells, *map(short_percent, means)], record.encoder.model))
            label[0] += ", hits per pair (released code)"
            cells = [
                *label,
                *[""] * len(counts),
                *(short_percent(s.get("recall")) for s in of_corpora),
            ]
            cells += ["", "", short_percent(record.scores["recall"])]
            rows.append(Row(cells, record.encoder.model))
        papers = published_rows(
            records, cls.published, corpora, len(header), before=before, digits=1
        )
        return header, rows + papers


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
        kind=benchmark.kind,
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
