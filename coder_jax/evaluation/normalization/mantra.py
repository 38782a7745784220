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
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from coder_jax.evaluation.benchmark import Benchmark, Flag, Found, Given, Options
from coder_jax.evaluation.normalization.benchmark import (
    NormalizationBenchmark,
    NormalizationFold,
    normalization_record,
    with_answers,
)
from coder_jax.evaluation.normalization.mantra_files import is_mantra, read_mantra
from coder_jax.evaluation.normalization.ranks import rank_values
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.results.bootstrap import named, resampled
from coder_jax.evaluation.results.cells import (
    Row,
    Table,
    missing_column,
    published_rows,
    short_percent,
)
from coder_jax.evaluation.results.published import MANTRA, PublishedRow
from coder_jax.evaluation.vectors.vectors import Vectors
from data_pipeline.files.rows import CONCEPT_SEPARATOR

if TYPE_CHECKING:
    from coder_jax.evaluation.normalization.accuracy import NormalizationResult

MEASURES = ("precision", "recall", "f1")


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
    flags: ClassVar[tuple[Flag, ...]] = (
        Flag(
            "--given-groups",
            "give the semantic group of each mention of MANTRA GSC, and search in it alone: scored "
            "and shown as QUAERO is",
            default=False,
            argparse={"action": "store_true"},
        ),
    )
    flags_under: ClassVar[str] = "mentions with semantic groups"
    published: ClassVar[tuple[PublishedRow, ...]] = MANTRA

    @classmethod
    def claims(cls, found: Found) -> bool:
        return not found.is_folder and is_mantra(found.path)

    @classmethod
    def would_take(cls, found: Found) -> bool:
        return found.is_folder and is_mantra(found.path)

    @classmethod
    def read(cls, given: Given) -> Benchmark:
        if given.options.get("given_groups"):
            from coder_jax.evaluation.given_groups.mantra import GroupedMantra

            return GroupedMantra.read(given)
        return cls.of_folds(given, read_mantra(given.path, given.dictionary))

    def averaged(self) -> list[str]:
        """The sub-corpora that are not English, as the papers have none of those; or all."""
        names = super().averaged()
        return [name for name in names if not name.endswith(" en")] or names

    def score(self, vectors: Vectors, encoder: EncoderRecord, options: Options) -> EvaluationRecord:
        from coder_jax.evaluation.normalization.accuracy import evaluate_normalization

        missing = int((~vectors.known(self.keys(vectors.keyed_by))).sum())
        result = evaluate_normalization(vectors.encode, self, ks=[1])
        record = mantra_record(self, result, encoder, missing, options["seed"])
        return with_answers(record, self, result, vectors, options)

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
            sure = [record.folds.get(name, {}).get("intervals", {}) for name in corpora]
            cells = [*label, *(f"{count:,}" for count in counts)]
            cells += [
                short_percent(scores.get("f1"), interval.get("f1"))
                for scores, interval in zip(of_corpora, sure, strict=True)
            ]
            cells += [
                short_percent(record.scores[name], record.intervals.get(name)) for name in MEASURES
            ]
            rows.append(Row(cells, record.encoder.model))
            label[0] += ", hits per pair (released code)"
            cells = [
                *label,
                *[""] * len(counts),
                *(
                    short_percent(scores.get("recall"), interval.get("recall"))
                    for scores, interval in zip(of_corpora, sure, strict=True)
                ),
            ]
            recall = short_percent(record.scores["recall"], record.intervals.get("recall"))
            cells += ["", "", recall]
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
    return int(pairs_of_mentions(fold).sum())


def pairs_of_mentions(fold: NormalizationFold) -> np.ndarray:
    """How many CUIs each mention has, int [n]."""
    return np.array([len(set(gold.split(CONCEPT_SEPARATOR))) for gold in fold.gold])


def measures_drawn(distinct_U2: np.ndarray, drawn_BU: np.ndarray) -> np.ndarray:
    """The `Statistic` of MEASURES [B, 3], of mentions with their hit and their gold pairs."""
    hits_B, pairs_B = (drawn_BU @ distinct_U2).T
    mentions_B = drawn_BU.sum(axis=1)
    columns = hits_B / mentions_B, hits_B / pairs_B, 2 * hits_B / (mentions_B + pairs_B)
    return np.stack(columns, axis=1)


def drawn_measures(
    fold: NormalizationFold, result: NormalizationResult, rng: np.random.Generator
) -> np.ndarray:
    """MEASURES of a sub-corpus in resamples of its mentions, [RESAMPLES, 3]."""
    assert result.ranks is not None, "of a single fold"
    hits = rank_values(*result.ranks, ks=[1])["acc@1"]
    return resampled(np.stack([hits, pairs_of_mentions(fold)], axis=1), measures_drawn, rng)


def mantra_record(
    benchmark: Mantra,
    result: NormalizationResult,
    encoder: EncoderRecord,
    missing: int = 0,
    seed: int = 0,
) -> EvaluationRecord:
    """The record of `evaluate_normalization`, with acc@1, turned into precision, recall and F1.

    The scores of the whole are means over the sub-corpora that are not English, as the papers have
    none of those (over all, if all are).
    """
    record = normalization_record(benchmark, result, encoder, missing=missing)
    parts = result.folds or {benchmark.folds[0].name: result}
    annotations = {fold.name: gold_pairs(fold) for fold in benchmark.folds}
    rng = np.random.default_rng(seed)
    drawn = {fold.name: drawn_measures(fold, parts[fold.name], rng) for fold in benchmark.folds}
    of_part = {
        name: mantra_scores(parts[name].scores["acc@1"], parts[name].mentions, pairs)
        for name, pairs in annotations.items()
    }
    meant = benchmark.averaged()
    folds = {
        name: {
            "scores": scores,
            "intervals": named(MEASURES, drawn[name]),
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
            score: sum(of_part[name][score] for name in meant) / len(meant) for score in MEASURES
        },
        intervals=named(MEASURES, np.mean([drawn[name] for name in meant], axis=0)),
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
