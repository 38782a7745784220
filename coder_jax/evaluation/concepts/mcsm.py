"""MCSM, medical conceptual similarity measure: are a concept's nearest concepts of its type?

Choi et al. 2016, as both CODER papers use it (v1 section 4.3; CODER section 4.5): over a set V of
concepts, a semantic type T and k neighbours,

  MCSM(V, T, k) = 1 / |V(T)| * sum over v in V(T) of sum over i = 1..k of 1_T(v(i)) / log2(i + 1)

where V(T) are the concepts of type T and v(i) is the i-th nearest concept of V to v by cosine, v
itself left out. It lies between 0 and the sum of the weights, 11.09 for the papers' k = 40.
A concept is represented by its preferred term, or by its own vector where vectors are of concepts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coder_jax.encoding.rows import unit
from coder_jax.encoding.search import nearest_others
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.results.bootstrap import ABOUT, intervals_of_means
from coder_jax.evaluation.vectors.vectors import Vectors
from data_pipeline.process.errors import BadInput

if TYPE_CHECKING:
    from coder_jax.evaluation.concepts.concept_set import ConceptSet


@dataclass(frozen=True)
class ConceptSimilarity:
    """MCSM of one semantic type.

    Attributes:
      mcsm: the measure; None where no concept is of the type.
      deviation: standard deviation over concepts (v1, table 3).
      chance: what neighbours drawn at random from V would have.
      concepts: |V(T)|.
      scored: concepts that the mean is over: all of V(T), or a sample of it.
      interval: of the mean, over concepts of the type that are drawn anew; V and so the neighbours
        stay, as another V has other neighbours, and would be another benchmark.
    """

    mcsm: float | None
    deviation: float | None
    chance: float
    concepts: int
    scored: int
    interval: list[float] | None = None


def evaluate_concept_similarity(
    vectors: Vectors,
    benchmark: ConceptSet,
    *,
    k: int,
    only_these_types: bool = False,
    sample: int | None = None,
    seed: int = 0,
) -> tuple[dict[str, ConceptSimilarity], dict[str, int]]:
    """MCSM of every type, and counts: concepts; missing, without a vector; retired, with another's.

    Args:
      vectors: of terms or of concepts. Concepts without a vector are left out of V, as they have
        no neighbours, and counted.
      k: neighbours.
      only_these_types: V is the concepts of the evaluated types only, as in CODER's released code.
      sample: score at most so many concepts of each type, drawn at random; their neighbours still
        come from all of V.
      seed: of the sample.

    Raises:
      BadInput: k or fewer concepts have a vector.
    """
    keys = benchmark.looked_up(vectors.keyed_by, vectors.known)
    inside = np.ones(len(keys), bool)
    if only_these_types:
        inside = np.any(list(benchmark.of_type.values()), axis=0)
    known = inside & vectors.known(keys)
    chosen = np.flatnonzero(known)
    if len(chosen) <= k:
        raise BadInput(
            f"{benchmark.path}: found {len(chosen)} concepts with a vector, of {inside.sum()}; "
            f"expected more than the {k} neighbours of each"
        )
    of_type = {name: mask[chosen] for name, mask in benchmark.of_type.items()}
    encoded = unit(vectors.encode([keys[row] for row in chosen]))
    rng = np.random.default_rng(seed)
    scored = {name: sampled(np.flatnonzero(mask), sample, rng) for name, mask in of_type.items()}
    queries = np.unique(np.concatenate(list(scored.values())))
    neighbours = nearest_others(encoded, k, queries)[1]
    weights = 1 / np.log2(np.arange(1, k + 1) + 1)
    result = {}
    for name, mask in of_type.items():
        rows = np.searchsorted(queries, scored[name])
        scores = mask[neighbours[rows]] @ weights
        others = max(0, int(mask.sum()) - 1) / (len(chosen) - 1)
        result[name] = ConceptSimilarity(
            mcsm=float(scores.mean()) if len(scores) else None,
            deviation=float(scores.std()) if len(scores) else None,
            chance=others * float(weights.sum()),
            concepts=int(mask.sum()),
            scored=len(scores),
            interval=intervals_of_means([{"mcsm": scores}], seed)["mcsm"] if len(scores) else None,
        )
    counts = {"concepts": int(inside.sum()), "missing": int(inside.sum() - known.sum())}
    named = {*benchmark.concepts, *benchmark.terms}
    counts["retired"] = sum(keys[row] not in named for row in chosen)
    return result, counts


def sampled(rows: np.ndarray, sample: int | None, rng: np.random.Generator) -> np.ndarray:
    """At most `sample` of the rows, in order."""
    if sample is None or len(rows) <= sample:
        return rows
    return np.sort(rng.choice(rows, sample, replace=False))


def concept_similarity_record(
    benchmark: ConceptSet,
    result: Mapping[str, ConceptSimilarity],
    counts: Mapping[str, int],
    encoder: EncoderRecord,
    **settings: int | bool | None,
) -> EvaluationRecord:
    """The record of `evaluate_concept_similarity`, called with the same `settings`."""
    measured = [part.mcsm for part in result.values() if part.mcsm is not None]
    return EvaluationRecord(
        benchmark=benchmark.name,
        kind="concept similarity",
        path=benchmark.path,
        content_hash=benchmark.content_hash,
        scores={"mcsm": float(np.mean(measured)) if measured else None},
        counts=dict(counts),
        scoring={
            "similarity": "cosine",
            "measure": "MCSM, the concept itself left out; equal cosines in the order of the set",
            "neighbours from": "the whole set"
            if not settings.get("only_these_types")
            else "the concepts of these types",
            "mean": "unweighted over types",
            "intervals": f"{ABOUT}, concepts of a type drawn anew, among the same set; of the mean "
            "over types none: concepts of several types are in several means",
            "missing": "concepts without a vector are left out of the set",
            "retired_cuis": benchmark.retired_cuis and benchmark.retired_cuis.description,
            **settings,
        },
        folds={
            name: {
                "scores": {"mcsm": part.mcsm, "deviation": part.deviation, "chance": part.chance},
                "intervals": {"mcsm": part.interval} if part.interval else {},
                "counts": {"concepts": part.concepts, "scored": part.scored},
            }
            for name, part in result.items()
        },
        encoder=encoder,
    )
