"""Link prediction: which tail a head and a relation lead to, which head a relation comes from.

A triplet (head, relation, tail) has the score of CODER's term-relation-term similarity,
cos(M_r^T e_head, e_tail), or of its TransE-like one, -|e_head + r - e_tail|. The tail is ranked
among all concepts with the head given, and the head with the tail given; concepts that are true in
the same place in another triplet of the file do not count (the filtered ranks of Bordes et al.
2013). The scores are the mean reciprocal rank and Hits@k over both, beside those of the plain
cosine of head and tail, which tell what the relations add.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from coder_jax.evaluation.normalization import TIE_TOLERANCE
from coder_jax.evaluation.protocol import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.ranks import rank_scores
from coder_jax.evaluation.relation_files import LinkBenchmark
from coder_jax.evaluation.vectors import EncodedTerms, Vectors
from coder_jax.exported_relations import ExportedRelations
from data_pipeline.errors import BadInput
from data_pipeline.stopping import poll

KS = (1, 10)
PLACES = ("tail", "head")
BLOCK = 1024  # triplets that are ranked at a time


@dataclass(frozen=True)
class Links:
    """T triplets of C concepts.

    Attributes:
      heads, tails: int [T], concepts.
      relations: int [T], relations of the encoder; -1 for one that it does not know, for which the
        head itself stands for where the relation leads, as it does for two synonyms in training.
    """

    heads: np.ndarray
    relations: np.ndarray
    tails: np.ndarray


def score_links(
    vectors: Vectors, benchmark: LinkBenchmark, encoder: EncoderRecord
) -> EvaluationRecord:
    """The record of a file of triplets, with the scores of each relation.

    Concepts without a vector have zeros, and so the cosine 0 with all others.

    Raises:
      BadInput: no names for the concepts, or a label that may stand for several relations.
      Stopped: a signal asked for it.
    """
    relations = vectors.relations if isinstance(vectors, EncodedTerms) else None
    keys = benchmark.keys(vectors.keyed_by)
    known = vectors.known(keys)
    some = vectors.features([key for key, held in zip(keys, known, strict=True) if held])
    features_CD = np.zeros((len(keys), some.shape[1]), np.float32)
    features_CD[known] = some
    links = numbered_links(benchmark, relations.labels if relations else ())
    labels = np.array(benchmark.pairs.labels)
    folds = {}
    for label in np.unique(labels):
        here = labels == label
        part = Links(links.heads[here], links.relations[here], links.tails[here])
        folds[str(label)] = {
            "scores": evaluate_links(features_CD, part, relations),
            "counts": {"triplets": int(here.sum())},
        }
    named = benchmark.names or {}
    return EvaluationRecord(
        benchmark=benchmark.name,
        kind="link prediction",
        path=benchmark.path,
        content_hash=benchmark.content_hash,
        scores=dict(evaluate_links(features_CD, links, relations)),
        counts={
            "triplets": len(labels),
            "relations": len(folds),
            "concepts": len(keys),
            "without_relation": int((links.relations < 0).sum()),
            "missing": int((~known).sum()),
            "unnamed": sum(c not in named for c in benchmark.concepts()) if named else 0,
            "retired": benchmark.retired,
        },
        dictionary=benchmark.dictionary.description if benchmark.dictionary else None,
        scoring={
            "score": _score_name(relations),
            "candidates": "all concepts of the file",
            "filtered": "other true concepts in the same place do not count",
            "places": "tails and heads of the encoder's triplets, the mean over both",
            "tie_tolerance": TIE_TOLERANCE,
            "ties": "means over random orders of tied concepts",
            "without_relation": "a relation that the encoder lacks leaves the head as it is",
        },
        folds=folds,
        encoder=encoder,
    )


def _score_name(relations: ExportedRelations | None) -> str:
    if relations is None:
        return "cos(e_head, e_tail): the encoder has no relations"
    return "cos(M_r^T e_head, e_tail)" if relations.bilinear else "-|e_head + r - e_tail|"


def numbered_links(benchmark: LinkBenchmark, labels: Sequence[str]) -> Links:
    """The triplets of a file by number, in the direction of the encoder's relations.

    Args:
      benchmark: its labels are REL|RELA, from CUI1 to CUI2 as in the dataset; or RELA alone, read
        as the sentence "head RELA tail": so the head is CUI2.
      labels: REL|RELA, of the encoder's relations.

    Raises:
      BadInput: a RELA that several relations have.
    """
    number_of = {label: number for number, label in enumerate(labels)}
    by_name: dict[str, list[int]] = {}
    for label, number in number_of.items():
        by_name.setdefault(label.partition("|")[2], []).append(number)
    concept_of = {concept: number for number, concept in enumerate(benchmark.concepts())}
    rows = []
    pairs = benchmark.pairs
    for head, tail, label in zip(pairs.heads, pairs.tails, pairs.labels, strict=True):
        first, second = concept_of[head], concept_of[tail]
        if "|" in label:
            rows.append((first, number_of.get(label, -1), second))
            continue
        numbers = by_name.get(label, [-1])
        if len(numbers) > 1:
            meant = " or ".join(labels[number] for number in numbers)
            raise BadInput(
                f"{benchmark.path}: found the label {label!r}, which may be {meant}; expected one "
                "of these in full (and then CUI1 as head, CUI2 as tail)"
            )
        rows.append((second, numbers[0], first))
    return Links(*np.array(rows).T)


def evaluate_links(
    features_CD: np.ndarray, links: Links, relations: ExportedRelations | None
) -> dict[str, float]:
    """Filtered ranks of heads and tails among C concepts.

    Args:
      features_CD: float32, the vectors of the concepts, not normalized.
      links: the triplets.
      relations: of the encoder; None for an encoder without any.

    Returns:
      "mrr", "hits@1", "hits@10", over both places, ties broken at random; the same with "_tails"
      and "_heads" for one place; and "mrr_cosine", "hits@1_cosine", "hits@10_cosine" without
      relations.

    Raises:
      Stopped: a signal asked for it.
    """
    tails, heads = (list(ranks(features_CD, links, relations, of=of)) for of in PLACES)
    cosine = [part for of in PLACES for part in ranks(features_CD, links, None, of=of)]
    found: dict[str, float] = {}
    parts_of = {"": tails + heads, "_tails": tails, "_heads": heads, "_cosine": cosine}
    for name, parts in parts_of.items():
        ahead, tied = (np.concatenate(counts) for counts in zip(*parts, strict=True))
        ones = np.ones(len(ahead), int)
        scores = rank_scores(ahead, tied, ones, ones.astype(bool), KS)
        found |= {f"hits@{k}{name}": scores[f"acc@{k}"] for k in KS} | {f"mrr{name}": scores["mrr"]}
    return found


def ranks(
    features_CD: np.ndarray, links: Links, relations: ExportedRelations | None, *, of: str
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Concepts ahead of the true one and tied with it, (int [n], int [n]) for some triplets each.

    Args:
      features_CD, links: see `evaluate_links`.
      relations: likewise; None for the cosine of head and tail.
      of: "tail" or "head", the place that is looked for.
    """
    true = true_concepts(links, of)
    for relation in np.unique(links.relations):
        here = np.flatnonzero(links.relations == relation)
        queries_CD, tails_CD, by_distance = features_CD, features_CD, False
        if relations is not None and relation >= 0:
            queries_CD = relations.queries(features_CD, int(relation))
            by_distance = not relations.bilinear
        if not by_distance:
            queries_CD, tails_CD = _unit(queries_CD), _unit(features_CD)
        for first in range(0, len(here), BLOCK):
            poll()
            rows = here[first : first + BLOCK]
            if of == "tail":
                given, wanted, among = queries_CD[links.heads[rows]], links.tails[rows], tails_CD
            else:
                given, wanted, among = tails_CD[links.tails[rows]], links.heads[rows], queries_CD
            score_nC = _minus_distance(given, among) if by_distance else given @ among.T
            yield _counts(score_nC, wanted, [true[row] for row in rows])


def true_concepts(links: Links, of: str) -> list[np.ndarray]:
    """For each triplet, all concepts that are true in its place, its own among them."""
    given, wanted = (links.heads, links.tails) if of == "tail" else (links.tails, links.heads)
    keys = list(zip(given.tolist(), links.relations.tolist(), strict=True))
    true: dict[tuple[int, int], list[int]] = {}
    for key, concept in zip(keys, wanted.tolist(), strict=True):
        true.setdefault(key, []).append(concept)
    return [np.array(true[key]) for key in keys]


def _counts(
    score_nC: np.ndarray, wanted: np.ndarray, true: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    own_n1 = score_nC[np.arange(len(wanted)), wanted][:, None]
    others_nC = np.ones(score_nC.shape, bool)
    for row, concepts in enumerate(true):
        others_nC[row, concepts] = False
    ahead_nC = score_nC > own_n1 + TIE_TOLERANCE
    tied_nC = ~ahead_nC & (score_nC >= own_n1 - TIE_TOLERANCE)
    return (ahead_nC & others_nC).sum(axis=1), (tied_nC & others_nC).sum(axis=1)


def _minus_distance(a_AD: np.ndarray, b_CD: np.ndarray) -> np.ndarray:
    """In float64: in float32 the differences of squares would blur what is tied."""
    a_AD, b_CD = a_AD.astype(np.float64), b_CD.astype(np.float64)
    square_AC = (a_AD**2).sum(1)[:, None] + (b_CD**2).sum(1)[None, :] - 2 * a_AD @ b_CD.T
    return -np.sqrt(np.maximum(square_AC, 0))


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
