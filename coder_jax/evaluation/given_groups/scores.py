"""Answers to the mentions whose group is given, and their scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from coder_jax.evaluation.given_groups.counts import (
    MEASURES,
    Counting,
    accuracy_at,
    mean_reciprocal_rank,
    measures,
    measures_drawn,
)
from coder_jax.evaluation.given_groups.mention_sets import MentionSet
from coder_jax.evaluation.normalization.ranks import TIE_TOLERANCE
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.results.bootstrap import ABOUT, named, resampled

if TYPE_CHECKING:
    from coder_jax.evaluation.benchmark import Options
    from coder_jax.evaluation.given_groups.benchmark import GroupedMentions
    from coder_jax.evaluation.normalization.group_normalizer import GroupNormalizer

RANKED = 100  # answers of each mention that MRR looks at
MEANT = (*MEASURES, "mrr", "acc@1", "acc@5")

Gold = Sequence[tuple[str, ...]]
Ranked = Sequence[Sequence[str]]


class Scorer:
    """Scores the answers of one normalizer on one benchmark."""

    def __init__(
        self,
        benchmark: GroupedMentions,
        normalizer: GroupNormalizer,
        counting: Counting,
        thresholds: Sequence[float],
    ):
        self.benchmark, self.counting, self.thresholds = benchmark, counting, list(thresholds)
        retired = benchmark.retired_cuis
        now = retired.successor if retired else {}
        # Of today, as the gold is; what two concepts became is in the groups of both.
        self.concepts = [now.get(one, one) for one in normalizer.concepts]
        self.reach: dict[str, int] = {}
        for concept, bits in zip(self.concepts, normalizer.groups.tolist(), strict=True):
            self.reach[concept] = self.reach.get(concept, 0) | bits
        pairs = [pair for one in benchmark.sets for pair in zip(one.texts, one.groups, strict=True)]
        self.place = {pair: row for row, pair in enumerate(dict.fromkeys(pairs))}
        texts, groups = zip(*self.place, strict=True)
        self.numbers, self.similarities = normalizer.nearest(texts, groups, RANKED)

    def record(
        self, encoder: EncoderRecord, options: Options, *, missing: int, similarity: str
    ) -> EvaluationRecord:
        """The record; its scores are means over the sets, which are its folds."""
        rng = np.random.default_rng(options["seed"])
        benchmark, sets = self.benchmark, self.benchmark.sets
        folds, drawn = {}, []
        for one in sets:
            folds[one.name], of_set = self.fold(one, rng)
            drawn.append(of_set)

        def mean(part: str) -> dict[str, float]:
            scores = [fold[part] for fold in folds.values() if fold[part]]
            return (
                {name: float(np.mean([one[name] for one in scores])) for name in MEANT}
                if scores
                else {}
            )

        names = next(iter(folds.values()))["counts"]
        counts = {name: sum(fold["counts"][name] for fold in folds.values()) for name in names}
        dictionary = benchmark.dictionary
        retired = benchmark.retired_cuis
        return EvaluationRecord(
            benchmark=benchmark.name,
            kind=benchmark.kind,
            path=benchmark.path,
            content_hash=benchmark.content_hash,
            scores=dict(mean("scores")),
            intervals=named(MEASURES, np.mean(drawn, axis=0)),
            counts={**counts, "retired": benchmark.retired, "missing": missing, "folds": len(sets)},
            unreachable={
                "mentions": counts["unreachable"],
                "share": counts["unreachable"] / counts["gold"],
                "scores_of_reachable": mean("reachable"),
            },
            dictionary=dictionary.description if dictionary else None,
            scoring={
                "similarity": similarity,
                "concept": "the best one of the mention's semantic group, which is given",
                "semantic_groups": list(benchmark.chosen) or "all",
                "count_as": options["count_as"],
                "threshold": "none; folds have those that were asked for",
                "mrr": f"over gold CUIs, 0 beyond {RANKED} answers; no threshold",
                "acc@k": "mentions one of whose gold CUIs is among k concepts; no threshold",
                "ties": "the concept that comes first in the dictionary",
                "unreachable": "gold CUIs that no concept of their group has count as wrong",
                "without_note": "mentions without a gold CUI are left out",
                "mistyped": "gold that is no CUI stays, and is wrong",
                "retired_cuis": retired and retired.description,
                "majority": "the CUI that the (group, string) mostly has in train (2016: and dev)",
                "folds": "unweighted mean over sets",
                "intervals": f"{ABOUT}, mentions drawn anew within their set",
            },
            folds=folds,
            encoder=encoder,
        )

    def fold(self, one: MentionSet, rng: np.random.Generator) -> tuple[dict[str, Any], np.ndarray]:
        """What a record says of a set, and MEASURES of resamples of its mentions."""
        rows = [self.place[pair] for pair in zip(one.texts, one.groups, strict=True)]
        numbers, similarities = self.numbers[rows], self.similarities[rows]
        ranked = [self.named(row) for row in numbers]
        can_be = one.reachable(self.reach)
        ends = np.cumsum([len(cuis) for cuis in one.gold])[:-1]
        kept = [
            tuple(cui for cui, is_kept in zip(cuis, part, strict=True) if is_kept)
            for cuis, part in zip(one.gold, np.split(can_be, ends), strict=True)
        ]
        counted = self.counting(one.gold, answers(ranked, similarities, None))
        first, second = similarities[:, 0], similarities[:, 1]
        tied = np.isfinite(first) & (second >= first - np.float32(TIE_TOLERANCE))
        fold: dict[str, Any] = {
            "scores": self.scores(one.gold, ranked, similarities),
            "reachable": self.scores(*reachable_only(kept, ranked, similarities)),
            "thresholds": {
                str(threshold): {
                    "scores": self.scores(one.gold, ranked, similarities, threshold),
                    "reachable": self.scores(
                        *reachable_only(kept, ranked, similarities), threshold
                    ),
                }
                for threshold in self.thresholds
            },
            "majority": self.majority(one, one.gold),
            "majority_of_reachable": self.majority(one, kept),
            "counts": {
                "mentions": len(one.gold),
                "gold": len(can_be),
                "unreachable": int((~can_be).sum()),
                "mistyped": one.mistyped,
                "without_note": one.without_note,
                "tied": int(tied.sum()),
            },
        }
        drawn = resampled(counted, measures_drawn, rng)
        fold["intervals"] = named(MEASURES, drawn)
        return fold, drawn

    def named(self, numbers: np.ndarray) -> list[str]:
        """The distinct concepts of a row of answers, as they are called today."""
        return list(dict.fromkeys(self.concepts[number] for number in numbers if number >= 0))

    def scores(
        self,
        gold: Gold,
        ranked: Ranked,
        similarities: np.ndarray,
        threshold: float | None = None,
    ) -> dict[str, float]:
        """MEANT of some mentions; none of no mentions. A threshold moves P, R and F1 alone."""
        if not gold:
            return {}
        counted = self.counting(gold, answers(ranked, similarities, threshold))
        found = dict(zip(MEASURES, measures(counted.sum(axis=0)).tolist(), strict=True))
        accuracies = {f"acc@{k}": accuracy_at(k, gold, ranked) for k in (1, 5)}
        return found | {"mrr": mean_reciprocal_rank(gold, ranked)} | accuracies

    def majority(self, one: MentionSet, gold: Gold) -> Mapping[str, float]:
        """MEASURES of the CUI that training mentions mostly have; none without these.

        Mentions that have no gold are left out.
        """
        rows = [row for row, cuis in enumerate(gold) if cuis]
        if one.majority is None or not rows:
            return {}
        answered = [one.majority[row] for row in rows]
        counted = self.counting([gold[row] for row in rows], answered)
        return dict(zip(MEASURES, measures(counted.sum(axis=0)).tolist(), strict=True))


def answers(ranked: Ranked, similarities: np.ndarray, threshold: float | None) -> list[str | None]:
    """The first answer to each mention, None where there is none or its score is too low."""
    least = -np.inf if threshold is None else threshold
    return [
        found[0] if found and score >= least else None
        for found, score in zip(ranked, similarities[:, 0], strict=True)
    ]


def reachable_only(
    kept: Gold, ranked: Ranked, similarities: np.ndarray
) -> tuple[list[tuple[str, ...]], list[Sequence[str]], np.ndarray]:
    """Gold, answers and their scores of the mentions that have any gold left."""
    rows = [row for row, cuis in enumerate(kept) if cuis]
    return [kept[row] for row in rows], [ranked[row] for row in rows], similarities[rows]
