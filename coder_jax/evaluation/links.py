"""Link prediction: the benchmark, its triplets, and the ranks of the true tails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from coder_jax.encoding.vector_files import unit
from coder_jax.evaluation.benchmark import Found, Given, Options
from coder_jax.evaluation.ranks import (
    TIE_TOLERANCE,
    GoldCounts,
    ahead_and_tied,
    rank_scores,
    rank_values,
)
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.relation_pairs import HEADER, RelationFile, RelationPairs, read_tsv
from coder_jax.evaluation.results import (
    ABOUT,
    Row,
    Table,
    intervals_of_means,
    missing_column,
    percent,
)
from coder_jax.evaluation.vectors import EncodedTerms, Vectors, known_features
from coder_jax.export.relations import ExportedRelations
from data_pipeline.dataset.store import open_dataset
from data_pipeline.files.tables import content_hash
from data_pipeline.process import BadInput, poll

# -------------------------------------------------------------------------------------------------
# The benchmark: for each triplet, its head and its tail are to be found among all concepts.
#
# Read from a TSV file with the header head, tail, label.


@dataclass(frozen=True)
class LinkBenchmark(RelationFile):
    """Triplets; the head and the tail of each are to be found among all concepts of the file."""

    kind: ClassVar[str] = "link prediction"
    formats: ClassVar[str] = "links:    a TSV file with the header head, tail, label"
    about: ClassVar[str] = """\
links     a TSV file with the header head, tail, label: link prediction. --dictionary names the
          concepts. Each head, and each tail, is looked for among all other concepts of the file,
          through the relations that were learned with the encoder; scored by MRR and Hits@1/10
          beside those of the plain cosine. Filtered: what is true by another line of the file, or
          by the dictionary where that is a dataset, is no wrong answer. A label as the dataset
          has it (RO|has_part) is read in the dataset's direction, from CUI1 to CUI2; a name alone
          (has_part) as the sentence "head label tail", which is what RELA says of CUI2 and CUI1."""
    takes_relations: ClassVar[bool] = True

    @classmethod
    def claims(cls, found: Found) -> bool:
        return found.header == HEADER

    @classmethod
    def read(cls, given: Given) -> Self:
        pairs = read_tsv(given.path)
        rows = zip(pairs.heads, pairs.tails, pairs.labels, strict=True)
        return cls(given.name, str(given.path), (pairs,), content_hash(rows)).named(given)

    @property
    def pairs(self) -> RelationPairs:
        """The only part."""
        return self.parts[0]

    def score(self, vectors: Vectors, encoder: EncoderRecord, options: Options) -> EvaluationRecord:
        return _score_links(vectors, self, encoder, options.seed)

    @classmethod
    def table(cls, records: Sequence[EvaluationRecord], options: Options) -> Table:
        """Filtered MRR and Hits@k, in percent, through the relations and by the plain cosine."""
        missing = missing_column(records)
        header = ["link prediction", "pooling", "triplets", "relations", "concepts", *missing]
        header += ["no relation"]
        names = ("triplets", "relations", "concepts", *missing, "without_relation")
        shown = {"MRR": "mrr", "Hits@1": "hits@1", "Hits@10": "hits@10"}
        header += [*shown, *(f"cosine {name}" for name in shown)]
        rows = []
        for record in records:
            counts = [f"{record.counts.get(name, 0):,}" for name in names]
            found = [name + of for of in ("", "_cosine") for name in shown.values()]
            scores = [percent(record.scores[one], record.intervals.get(one)) for one in found]
            label = [record.benchmark, record.encoder.pooling]
            rows.append(Row([*label, *counts, *scores], record.encoder.model))
        return header, rows


# -------------------------------------------------------------------------------------------------
# The triplets of a file with numbered concepts and relations, and other known triplets.


@dataclass(frozen=True)
class _Links:
    """T triplets of C concepts.

    Attributes:
      heads, tails: int [T], concepts.
      relations: int [T], relations of the encoder; each that it does not know has a negative number
        of its own, and leads to the head itself, as it does for two synonyms in training.
    """

    heads: np.ndarray
    relations: np.ndarray
    tails: np.ndarray


def _relation_numbers(benchmark: LinkBenchmark, labels: Sequence[str]) -> dict[str, int]:
    """The number of each label of the file among the encoder's relations.

    A label that they lack has a negative number of its own.

    Args:
      benchmark: its labels are REL|RELA, or RELA alone.
      labels: REL|RELA, of the encoder's relations.

    Raises:
      BadInput: a RELA that several relations have.
    """
    by_name: dict[str, list[str]] = {}
    for label in labels:
        by_name.setdefault(label.partition("|")[2], []).append(label)
    number_of = {label: number for number, label in enumerate(labels)}
    numbers = {}
    for place, label in enumerate(dict.fromkeys(benchmark.pairs.labels)):
        meant = [label] if "|" in label else by_name.get(label, [label])
        if len(meant) > 1:
            raise BadInput(
                f"{benchmark.path}: found the label {label!r}, which may be {' or '.join(meant)}; "
                "expected one of these in full (and then CUI1 as head, CUI2 as tail)"
            )
        numbers[label] = number_of.get(meant[0], -1 - place)  # apart, or true concepts would mix
    return numbers


def _numbered_links(benchmark: LinkBenchmark, numbers: Mapping[str, int]) -> _Links:
    """The triplets of a file by number, in the direction of the encoder's relations.

    A label REL|RELA is read as in the dataset, from CUI1 to CUI2; RELA alone as the sentence "head
    RELA tail": so the head is CUI2.
    """
    concept_of = {concept: number for number, concept in enumerate(benchmark.concepts())}
    rows, pairs = [], benchmark.pairs
    for head, tail, label in zip(pairs.heads, pairs.tails, pairs.labels, strict=True):
        first, second = (head, tail) if "|" in label else (tail, head)
        rows.append((concept_of[first], numbers[label], concept_of[second]))
    return _Links(*np.array(rows).T)


def _known_links(benchmark: LinkBenchmark, numbers: Mapping[str, int]) -> _Links:
    """The triplets of the dictionary's dataset between concepts of the file, of its relations.

    None where the dictionary is no dataset. `numbers` is as in `_numbered_links`.
    """
    dictionary = benchmark.dictionary
    if dictionary is None or dictionary.dataset is None:
        return _Links(*np.zeros((3, 0), int))
    dataset = open_dataset(dictionary.dataset, strings=True)
    here = {concept: number for number, concept in enumerate(benchmark.concepts())}
    number_of = np.array([here.get(cui, -1) for cui in dataset.cuis or []])
    either = [(label, label.partition("|")[2]) for label in dataset.manifest.relations]
    named = [next((name for name in names if name in numbers), None) for names in either]
    is_asked = np.array([name is not None for name in named])
    relation_of = np.array([numbers[name] if name is not None else 0 for name in named])
    rows = np.flatnonzero(
        is_asked[dataset.relations]
        & (number_of[dataset.heads] >= 0)
        & (number_of[dataset.tails] >= 0)
    )
    return _Links(
        number_of[dataset.heads[rows]],
        relation_of[dataset.relations[rows]],
        number_of[dataset.tails[rows]],
    )


# -------------------------------------------------------------------------------------------------
# Ranks of the true tail for a given head and relation, and of the true head for a given tail.
#
# A triplet (head, relation, tail) has the score of CODER's term-relation-term similarity, cos(M_r^T
# e_head, e_tail), or of its TransE-like one, -|e_head + r - e_tail|. The tail is ranked among all
# concepts of the file with the head given, and the head with the tail given. Concepts that are true
# in the same place in another triplet, of the file or of the dataset that names the concepts, do
# not count (the filtered ranks of Bordes et al. 2013), nor does the given concept, which is no
# relative of itself and by plain cosine always the nearest. The scores are the mean reciprocal rank
# and Hits@k over both, beside those of the plain cosine of head and tail, which tell what the
# relations add.

_KS = (1, 10)
_PLACES = ("tail", "head")
_Ranks = np.ndarray  # int [places, 2, T]: concepts ahead of the true one, and tied with it
_BLOCK = 1024  # triplets that are ranked at a time, fewer where there are many concepts
_BLOCK_SCORES = 2**26  # at most so many scores are held at a time (256 MB in float32)


def _score_links(
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
    numbers = _relation_numbers(benchmark, relations.labels if relations else ())
    links, others = _numbered_links(benchmark, numbers), _known_links(benchmark, numbers)
    ranks = _rank_links(features_CD, links, relations, others)
    labels = np.array(benchmark.pairs.labels)
    folds = {
        str(label): {
            "scores": _link_scores(ranks, labels == label),
            "counts": {"triplets": int((labels == label).sum())},
        }
        for label in np.unique(labels)
    }
    return EvaluationRecord(
        benchmark=benchmark.name,
        kind="link prediction",
        path=benchmark.path,
        content_hash=benchmark.content_hash,
        scores=dict(_link_scores(ranks, np.ones(len(labels), bool))),
        intervals=intervals_of_means([_link_values(ranks)], seed),
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


def _rank_links(
    features_CD: np.ndarray, links: _Links, relations: ExportedRelations | None, known: _Links
) -> dict[str, _Ranks]:
    """Filtered ranks among C concepts: of "_tails" and "_heads", and both by "_cosine" alone.

    Args:
      features_CD: float32, the vectors of the concepts, not normalized.
      links: the triplets.
      relations: of the encoder; None for an encoder without any.
      known: other triplets that are true.

    Raises:
      Stopped: a signal asked for it.
    """
    true = {of: _true_concepts(links, known, of) for of in _PLACES}
    tails, heads = (_ranks_of(of, features_CD, links, relations, true[of]) for of in _PLACES)
    cosine = [_ranks_of(of, features_CD, links, None, true[of]) for of in _PLACES]
    return {"_tails": tails[None], "_heads": heads[None], "_cosine": np.stack(cosine)}


def _link_scores(ranks: Mapping[str, _Ranks], chosen_T: np.ndarray) -> dict[str, float]:
    """The scores of some triplets.

    Returns:
      "mrr", "hits@1", "hits@10", over both places, ties broken at random; the same with "_tails"
      and "_heads" for one place; and with "_cosine" without relations.
    """
    found: dict[str, float] = {}
    for name, part in {"": _both_places(ranks), **ranks}.items():
        scores = rank_scores(_in_one_row(part[:, :, chosen_T]), _KS)
        found |= {f"hits@{k}{name}": scores[f"acc@{k}"] for k in _KS} | {
            f"mrr{name}": scores["mrr"]
        }
    return found


def _both_places(ranks: Mapping[str, _Ranks]) -> _Ranks:
    """The ranks of tails and of heads."""
    return np.concatenate([ranks["_tails"], ranks["_heads"]])


def _in_one_row(ranks: _Ranks) -> GoldCounts:
    """The counts of all places, one behind the other."""
    ahead, tied = ranks.transpose(1, 0, 2).reshape(2, -1)
    return GoldCounts(ahead, tied, np.ones_like(ahead), np.ones(len(ahead), bool))


def _link_values(ranks: Mapping[str, _Ranks]) -> dict[str, np.ndarray]:
    """The contribution of each triplet to the scores over both places, float [T], by score."""
    found: dict[str, np.ndarray] = {}
    for name, part in {"": _both_places(ranks), "_cosine": ranks["_cosine"]}.items():
        for score, values in rank_values(_in_one_row(part), _KS).items():
            shown = score.replace("acc@", "hits@")
            found[f"{shown}{name}"] = values.reshape(len(part), -1).mean(axis=0)
    return found


def _ranks_of(
    of: str,
    features_CD: np.ndarray,
    links: _Links,
    relations: ExportedRelations | None,
    true: Sequence[np.ndarray],
) -> np.ndarray:
    """int [2, T]: the concepts ahead of the true one, and those tied with it.

    Args:
      of: "tail" or "head", the place that is looked for.
      features_CD, links: see `_rank_links`.
      relations: likewise; None for the cosine of head and tail.
      true: from `_true_concepts`.
    """
    found = np.zeros((2, len(links.heads)), int)
    given, wanted = (links.heads, links.tails) if of == "tail" else (links.tails, links.heads)
    unit_CD = unit(features_CD)
    block = max(1, min(_BLOCK, _BLOCK_SCORES // len(features_CD)))
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


def _true_concepts(links: _Links, known: _Links, of: str) -> list[np.ndarray]:
    """For each triplet, all concepts that are true in its place, its own included.

    Args:
      links, known: see `_rank_links`.
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
