"""Link prediction: which tail a head and a relation lead to, which head a relation comes from.

A triplet (head, relation, tail) has the score of CODER's term-relation-term similarity,
cos(M_r^T e_head, e_tail), or of its TransE-like one, -|e_head + r - e_tail|. The tail is ranked
among all concepts of the file with the head given, and the head with the tail given. Concepts that
are true in the same place in another triplet, of the file or of the dataset that names the
concepts, do not count (the filtered ranks of Bordes et al. 2013), nor does the given concept, which
is no relative of itself and by plain cosine always the nearest. The scores are the mean reciprocal
rank and Hits@k over both, beside those of the plain cosine of head and tail, which tell what the
relations add.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from coder_jax.encoding.rows import unit
from coder_jax.evaluation.normalization.ranks import (
    TIE_TOLERANCE,
    ahead_and_tied,
    rank_scores,
    rank_values,
)
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.relations.links import (
    Links,
    known_links,
    numbered_links,
    relation_numbers,
)
from coder_jax.evaluation.results.bootstrap import ABOUT, intervals_of_means
from coder_jax.evaluation.vectors.vectors import EncodedTerms, Vectors, known_features
from coder_jax.export.relations import ExportedRelations
from data_pipeline.process.stopping import poll

if TYPE_CHECKING:
    from coder_jax.evaluation.relations.link_benchmark import LinkBenchmark

KS = (1, 10)
PLACES = ("tail", "head")
Ranks = np.ndarray  # int [places, 2, T]: concepts ahead of the true one, and tied with it
BLOCK = 1024  # triplets that are ranked at a time, fewer where there are many concepts
BLOCK_SCORES = 2**26  # at most so many scores are held at a time (256 MB in float32)


def score_links(
    vectors: Vectors, benchmark: LinkBenchmark, encoder: EncoderRecord, seed: int = 0
) -> EvaluationRecord:
    """The record of a file of triplets, with the scores of each relation.

    `seed` is of the triplets that are drawn for the intervals. Concepts without a vector have
    zeros, and so the cosine 0 with all others.

    Raises:
      BadInput: no names for the concepts, none has a vector, or a label that may stand for several
        relations.
      Stopped: a signal asked for it.
    """
    relations = vectors.relations if isinstance(vectors, EncodedTerms) else None
    known, some = known_features(vectors, benchmark.keys(vectors.keyed_by), benchmark.path)
    features_CD = np.zeros((len(known), some.shape[1]), np.float32)
    features_CD[known] = some
    numbers = relation_numbers(benchmark, relations.labels if relations else ())
    links, others = numbered_links(benchmark, numbers), known_links(benchmark, numbers)
    ranks = rank_links(features_CD, links, relations, others)
    labels = np.array(benchmark.pairs.labels)
    folds = {
        str(label): {
            "scores": link_scores(ranks, labels == label),
            "counts": {"triplets": int((labels == label).sum())},
        }
        for label in np.unique(labels)
    }
    return EvaluationRecord(
        benchmark=benchmark.name,
        kind="link prediction",
        path=benchmark.path,
        content_hash=benchmark.content_hash,
        scores=dict(link_scores(ranks, np.ones(len(labels), bool))),
        intervals=intervals_of_means([link_values(ranks)], seed),
        counts={
            "triplets": len(labels),
            "relations": len(folds),
            "concepts": len(known),
            "known": len(others.heads),
            "without_relation": int((links.relations < 0).sum()),
            "missing": int((~known).sum()),
            "unnamed": benchmark.unnamed,
            "retired": benchmark.retired,
        },
        dictionary=benchmark.dictionary.description if benchmark.dictionary else None,
        scoring={
            "score": _score_name(relations),
            "candidates": "all concepts of the file but the given one",
            "filtered": "others true in the same place, in the file or the dictionary's dataset",
            "relations_hash": relations.content_hash if relations else None,
            "retired_cuis": benchmark.retired_cuis and benchmark.retired_cuis.description,
            "places": "tails and heads of the encoder's triplets, the mean over both",
            "tie_tolerance": TIE_TOLERANCE,
            "ties": "means over random orders of tied concepts",
            "intervals": f"{ABOUT}, triplets drawn anew, among the same concepts",
            "without_relation": "a relation that the encoder lacks leaves the head as it is",
        },
        folds=folds,
        encoder=encoder,
    )


def _score_name(relations: ExportedRelations | None) -> str:
    if relations is None:
        return "cos(e_head, e_tail): the encoder has no relations"
    return "cos(M_r^T e_head, e_tail)" if relations.bilinear else "-|e_head + r - e_tail|"


def rank_links(
    features_CD: np.ndarray, links: Links, relations: ExportedRelations | None, known: Links
) -> dict[str, Ranks]:
    """Filtered ranks among C concepts: of "_tails" and "_heads", and both by "_cosine" alone.

    Args:
      features_CD: float32, the vectors of the concepts, not normalized.
      links: the triplets.
      relations: of the encoder; None for an encoder without any.
      known: other triplets that are true.

    Raises:
      Stopped: a signal asked for it.
    """
    true = {of: true_concepts(links, known, of) for of in PLACES}
    tails, heads = (ranks_of(of, features_CD, links, relations, true[of]) for of in PLACES)
    cosine = [ranks_of(of, features_CD, links, None, true[of]) for of in PLACES]
    return {"_tails": tails[None], "_heads": heads[None], "_cosine": np.stack(cosine)}


def link_scores(ranks: Mapping[str, Ranks], chosen_T: np.ndarray) -> dict[str, float]:
    """The scores of some of the triplets.

    Returns:
      "mrr", "hits@1", "hits@10", over both places, ties broken at random; the same with "_tails"
      and "_heads" for one place; and with "_cosine" without relations.
    """
    found: dict[str, float] = {}
    for name, part in {"": both_places(ranks), **ranks}.items():
        ahead, tied = part[:, :, chosen_T].transpose(1, 0, 2).reshape(2, -1)
        ones = np.ones(len(ahead), int)
        scores = rank_scores(ahead, tied, ones, ones.astype(bool), KS)
        found |= {f"hits@{k}{name}": scores[f"acc@{k}"] for k in KS} | {f"mrr{name}": scores["mrr"]}
    return found


def both_places(ranks: Mapping[str, Ranks]) -> Ranks:
    """The ranks of tails and of heads."""
    return np.concatenate([ranks["_tails"], ranks["_heads"]])


def link_values(ranks: Mapping[str, Ranks]) -> dict[str, np.ndarray]:
    """What each triplet adds to the scores over both places, float [T], by the score's name."""
    found: dict[str, np.ndarray] = {}
    for name, part in {"": both_places(ranks), "_cosine": ranks["_cosine"]}.items():
        places, _, triplets = part.shape
        ahead, tied = part.transpose(1, 0, 2).reshape(2, -1)
        ones = np.ones(len(ahead), int)
        for score, values in rank_values(ahead, tied, ones, ones.astype(bool), KS).items():
            shown = score.replace("acc@", "hits@")
            found[f"{shown}{name}"] = values.reshape(places, triplets).mean(axis=0)
    return found


def ranks_of(
    of: str,
    features_CD: np.ndarray,
    links: Links,
    relations: ExportedRelations | None,
    true: Sequence[np.ndarray],
) -> np.ndarray:
    """int [2, T]: the concepts ahead of the true one, and those tied with it.

    Args:
      of: "tail" or "head", the place that is looked for.
      features_CD, links: see `rank_links`.
      relations: likewise; None for the cosine of head and tail.
      true: from `true_concepts`.
    """
    found = np.zeros((2, len(links.heads)), int)
    given, wanted = (links.heads, links.tails) if of == "tail" else (links.tails, links.heads)
    unit_CD = unit(features_CD)
    block = max(1, min(BLOCK, BLOCK_SCORES // len(features_CD)))
    scored_as = np.maximum(links.relations, -1) if relations else np.full(len(given), -1)
    for relation in np.unique(scored_as):
        here = np.flatnonzero(scored_as == relation)
        queries_CD, tails_CD, by_distance = unit_CD, unit_CD, False
        if relations is not None and relation >= 0:
            queries_CD = relations.queries(features_CD, int(relation))
            by_distance = not relations.bilinear
            if by_distance:
                tails_CD = features_CD
            else:
                queries_CD = unit(queries_CD)
        from_CD, among_CD = (queries_CD, tails_CD) if of == "tail" else (tails_CD, queries_CD)
        for first in range(0, len(here), block):
            poll()
            rows = here[first : first + block]
            given_nD = from_CD[given[rows]]
            score_nC = _minus_distance(given_nD, among_CD) if by_distance else given_nD @ among_CD.T
            no_rivals = [np.append(true[row], given[row]) for row in rows]
            found[:, rows] = _counts(score_nC, wanted[rows], no_rivals)
    return found


def true_concepts(links: Links, known: Links, of: str) -> list[np.ndarray]:
    """For each triplet, all concepts that are true in its place, its own among them.

    Args:
      links, known: see `rank_links`.
      of: "tail" or "head", the place.
    """
    true: dict[tuple[int, int], list[int]] = {}
    for some in (links, known):
        given, wanted = (some.heads, some.tails) if of == "tail" else (some.tails, some.heads)
        rows = zip(given.tolist(), some.relations.tolist(), wanted.tolist(), strict=True)
        for concept, relation, other in rows:
            true.setdefault((concept, relation), []).append(other)
    given = links.heads if of == "tail" else links.tails
    keys = zip(given.tolist(), links.relations.tolist(), strict=True)
    return [np.array(true[key]) for key in keys]


def _counts(
    score_nC: np.ndarray, wanted: np.ndarray, no_rivals: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    own_n1 = score_nC[np.arange(len(wanted)), wanted][:, None]
    others_nC = np.ones(score_nC.shape, bool)
    for row, concepts in enumerate(no_rivals):
        others_nC[row, concepts] = False
    ahead_nC, tied_nC = ahead_and_tied(score_nC, own_n1)
    return (ahead_nC & others_nC).sum(axis=1), (tied_nC & others_nC).sum(axis=1)


def _minus_distance(a_AD: np.ndarray, b_CD: np.ndarray) -> np.ndarray:
    """In float64: in float32 the differences of squares would blur what is tied."""
    a_AD, b_CD = a_AD.astype(np.float64), b_CD.astype(np.float64)
    square_AC = (a_AD**2).sum(1)[:, None] + (b_CD**2).sum(1)[None, :] - 2 * a_AD @ b_CD.T
    return -np.sqrt(np.maximum(square_AC, 0))
