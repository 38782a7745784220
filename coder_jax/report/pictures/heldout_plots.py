"""Pictures of what training gave on held-out terms, for a run that has none of its own to draw."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.evaluation.benchmark import Given
from coder_jax.evaluation.normalization.mentions import Mentions
from coder_jax.evaluation.record import EvaluationRecord
from coder_jax.evaluation.similarity.spearman import pair_cosines
from coder_jax.report.pictures.plots import plot_scores, plot_similarities

Scored = tuple[TermEncoder, EvaluationRecord]


def plot_heldout(
    folder: Path, mentions: Path, before: Scored, after: Scored, metrics: Sequence[str]
) -> None:
    """Draws scores.png, and similarities.png: cosines of held-out terms with a synonym of theirs.

    Args:
      folder: of the pictures.
      mentions: the held-out terms and their concepts; the dictionary lies beside them.
      before, after: encoders with their records on these terms.
      metrics: scores to draw.
    """
    first, last = (
        {record.benchmark: {name: record.scores[name] or 0.0 for name in metrics}}
        for _, record in (before, after)
    )
    plot_scores(first, last, folder / "scores.png", metrics=metrics)
    terms, synonyms = heldout_pairs(mentions)
    others = synonyms[1:] + synonyms[:1]  # each term beside a synonym of another

    def cosines(encoder: TermEncoder) -> tuple[np.ndarray, np.ndarray]:
        near, far = (pair_cosines(encoder.encode, terms, side) for side in (synonyms, others))
        return near, far

    plot_similarities(cosines(before[0]), cosines(after[0]), folder / "similarities.png")


def heldout_pairs(mentions: Path) -> tuple[list[str], list[str]]:
    """The held-out terms, and for each the first term that its concept still has."""
    (fold,) = Mentions.read(Given("heldout", mentions)).folds
    first_term: dict[str, str] = {}
    for term, concept in zip(fold.dictionary.terms, fold.dictionary.concepts, strict=True):
        first_term.setdefault(concept, term)
    return fold.mentions, [first_term[concept] for concept in fold.gold]
