"""Mentions in, concepts by recall and rank out, for `normalize`: as many as a mention means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coder_jax.mapping.answers import Answer, Candidate, Status
from coder_jax.mapping.normalizer import Near, SameStringNormalizer
from coder_jax.systems.recall_rank.prediction.candidates import CANDIDATES
from coder_jax.systems.recall_rank.prediction.recall_and_rank import RecallAndRank
from data_pipeline.dataset.dictionary import Dictionary


class StagedNormalizer(SameStringNormalizer):
    """Maps mentions to one concept or several: strings of the dictionary first, then by stages.

    The similarity of a candidate is its score by recall and rank.
    """

    def __init__(
        self,
        stages: RecallAndRank,
        concepts: Sequence[Sequence[str]],
        dictionary: Dictionary,
        *,
        threshold: float = 0.0,
        abbreviations: Mapping[str, str] | None = None,
    ):
        """
        Args:
          stages: over the terms of the dictionary.
          concepts: what the numbers of its concepts stand for: one, or several codes of a name.
          dictionary: with its terms as the source writes them.
          threshold: no answer where the best score is less.
          abbreviations: what they stand for; mentions are looked up with these written out.
        """
        super().__init__(dictionary, abbreviations)
        self.stages, self.concepts, self.threshold = stages, concepts, threshold
        self.others = {first: len(others) for first, *others in concepts if others}

    def near(self, strings: Sequence[str], k: int) -> list[Near]:
        if not strings:
            return []
        found = self.stages.answer(strings, CANDIDATES)
        rows = zip(found.concepts, found.names, found.scores, found.counts, strict=True)
        return [
            Near(
                [
                    Candidate(self.concepts[concept][0], self.stages.names[name], float(score))
                    for concept, name, score in zip(concepts, names, scores, strict=True)
                ],
                int(count),
            )
            for concepts, names, scores, count in rows
        ]

    def answer(self, mention: str, string: str, near: Near, k: int) -> Answer:
        best = near.candidates[0]
        shown = near.candidates[: max(k, near.number)]
        if best.similarity < self.threshold:
            reason = f"score {best.similarity:.2f} is less than {self.threshold:g}"
            return Answer(mention, Status.NO_ANSWER, shown, reason=reason, count=near.number)
        ties = self.others.get(best.concept, 0)
        status = Status.TIED if ties else Status.NEAR
        return Answer(mention, status, shown, ties=ties, count=near.number)
