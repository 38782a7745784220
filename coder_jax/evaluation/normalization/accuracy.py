"""Scores of zero-shot term normalization, acc@k and MRR.

The task is the one of the CODER paper, section 3.1: the dictionary holds all terms of all
concepts, and the predicted concept of a mention is the concept of the term that is nearest by
cosine. Nothing is trained on the benchmark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from coder_jax.evaluation.normalization.counts import (
    count_ranks,
    rows_by_concept,
)
from coder_jax.evaluation.normalization.ranks import TIE_TOLERANCE, GoldCounts, rank_scores
from coder_jax.evaluation.vectors.vectors import TERMS

if TYPE_CHECKING:
    from coder_jax.evaluation.normalization.benchmark import (
        NormalizationBenchmark,
        NormalizationFold,
    )

# So many strings are encoded in one call, each once (0.8 GB at width 768); those of larger
# dictionaries block by block, as they are compared.
ENCODED_AT_ONCE = 1 << 18

Encode = Callable[[list[str]], np.ndarray]


@dataclass(frozen=True)
class NormalizationResult:
    """Scores of one set of mentions, or the mean over the folds of a benchmark.

    Attributes:
      mentions: how many mentions were scored.
      unreachable: mentions none of whose gold concepts has a term in the dictionary. In `scores`
        they count as wrong.
      tied: mentions whose gold concept is as near as some other concept.
      concepts: concepts in the dictionary (the largest fold's, for several folds).
      scores: "acc@k" and "mrr" are the mean over random orders of tied concepts;
        "..._optimistic" puts the gold concept before all that it is tied with, "..._pessimistic"
        behind them. All in [0, 1].
      reachable_scores: the same over the other mentions only; empty if there are none.
      folds: the result of each fold, by its name; empty for a single set of mentions.
      ranks: the places of the gold concepts, of each mention; None for several folds.
    """

    mentions: int
    unreachable: int
    tied: int
    concepts: int
    scores: dict[str, float]
    reachable_scores: dict[str, float]
    folds: Mapping[str, NormalizationResult] = field(default_factory=dict)
    ranks: GoldCounts | None = field(default=None, compare=False, repr=False)


def _check_ks(ks: Sequence[int]) -> None:
    if not ks or min(ks) < 1:
        raise ValueError(f"found ks={tuple(ks)}; expected at least one k, each 1 or more")


def _result(counts: GoldCounts, concepts: int, ks: Sequence[int]) -> NormalizationResult:
    reachable = counts.reachable
    of_reachable = GoldCounts(*(part[reachable] for part in counts))
    return NormalizationResult(
        mentions=len(reachable),
        unreachable=int((~reachable).sum()),
        tied=int((of_reachable.tied > 0).sum()),
        concepts=concepts,
        scores=rank_scores(*counts, ks),
        reachable_scores=rank_scores(*of_reachable, ks) if reachable.any() else {},
        ranks=counts,
    )


def evaluate_normalization(
    encode: Encode,
    benchmark: NormalizationBenchmark,
    *,
    ks: Sequence[int] = (1, 3, 5),
    tie_tolerance: float = TIE_TOLERANCE,
) -> NormalizationResult:
    """Scores an encoder on a normalization benchmark; several folds give the mean over folds.

    The similarity of a mention and a concept is the largest cosine over the concept's terms. A
    mention with several gold concepts is scored by the best of them; the others never count as
    competitors. Concepts whose similarity is within `tie_tolerance` of the gold one's are tied.

    Up to ENCODED_AT_ONCE distinct strings of all mentions and dictionaries are encoded once. Of
    more, the vectors of mentions are held and those of a dictionary asked for block by block, its
    gold concepts' terms twice: with `EncodedTerms` a file of vectors may be larger than memory.

    Args:
      encode: strings -> float32 [n, D], for instance `TermEncoder.encode`.
      benchmark: from `benchmarks.read_benchmark`; its folds hold the dictionaries.
      ks: the k of acc@k. A k larger than the number of concepts is allowed.
      tie_tolerance: in units of cosine.

    Raises:
      BadInput: the encoder gives a vector that is not finite.
    """
    _check_ks(ks)
    folds_of: dict[int, list[NormalizationFold]] = {}
    for fold in benchmark.folds:  # those that share a dictionary go through it together
        folds_of.setdefault(id(fold.dictionary), []).append(fold)
    strings = sum(len(fold.mentions) for fold in benchmark.folds)
    strings += sum(len(folds[0].dictionary.terms) for folds in folds_of.values())
    encode = _checked(encode)
    if strings <= ENCODED_AT_ONCE:
        encode = _encoded_at_once(encode, benchmark.keys(TERMS))
    results: dict[str, NormalizationResult] = {}
    for folds in folds_of.values():
        results |= _results_of_folds(encode, folds, ks, tie_tolerance)
    results = {fold.name: results[fold.name] for fold in benchmark.folds}
    return next(iter(results.values())) if len(results) == 1 else mean_over_folds(results)


def _checked(encode: Encode) -> Encode:
    """`encode`, after a look whether it gives a vector for each string."""

    def checked(strings: list[str]) -> np.ndarray:
        vectors = encode(strings)
        if len(vectors) != len(strings):
            raise ValueError(f"encode gave {len(vectors)} vectors for {len(strings)} strings")
        return vectors

    return checked


def _encoded_at_once(encode: Encode, strings: list[str]) -> Encode:
    """`encode` of some of these strings, all of which are encoded now."""
    vectors = encode(strings)
    row_of = {string: row for row, string in enumerate(strings)}
    return lambda some: vectors[[row_of[string] for string in some]]


def _results_of_folds(
    encode: Encode, folds: Sequence[NormalizationFold], ks: Sequence[int], tie_tolerance: float
) -> dict[str, NormalizationResult]:
    """The result of each of some folds that have one dictionary."""
    terms = folds[0].dictionary.terms
    dictionary = rows_by_concept(
        lambda rows: encode([terms[row] for row in rows]), folds[0].dictionary.concepts
    )
    mentions = [mention for fold in folds for mention in fold.mentions]
    gold = [concepts for fold in folds for concepts in fold.gold]
    counts = count_ranks(encode(mentions), gold, dictionary, tie_tolerance)
    ends = np.cumsum([len(fold.mentions) for fold in folds])[:-1]
    parts = zip(*(np.split(part, ends) for part in counts), strict=True)
    return {
        fold.name: _result(GoldCounts(*part), len(dictionary.concept_ids), ks)
        for fold, part in zip(folds, parts, strict=True)
    }


def mean_over_folds(results: Mapping[str, NormalizationResult]) -> NormalizationResult:
    """The unweighted mean of the folds' scores, as the papers report it; counts are summed."""
    parts = list(results.values())

    def mean(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
        names = scores[0] if scores else ()
        return {name: float(np.mean([part[name] for part in scores])) for name in names}

    return NormalizationResult(
        mentions=sum(part.mentions for part in parts),
        unreachable=sum(part.unreachable for part in parts),
        tied=sum(part.tied for part in parts),
        concepts=max(part.concepts for part in parts),
        scores=mean([part.scores for part in parts]),
        reachable_scores=mean([p.reachable_scores for p in parts if p.reachable_scores]),
        folds=dict(results),
    )
