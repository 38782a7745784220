"""Similarity of medical concepts (MCSM), on sets of concepts with semantic types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from coder_jax.encoding.vector_files import unit
from coder_jax.evaluation.benchmark import Benchmark, Found, Given, Options
from coder_jax.evaluation.published import MCSM, MCSM_TYPES, PublishedRow
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.results import (
    ABOUT,
    Row,
    Table,
    half,
    intervals_of_means,
    one_decimal,
    published_rows,
)
from coder_jax.evaluation.vectors import CONCEPTS, Vectors
from data_pipeline.dataset.store import open_dataset
from data_pipeline.files.tables import CONCEPT_SEPARATOR, content_hash, tab_separated
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput
from data_pipeline.terminology.retired_cuis import Known, RetiredCuis

# -------------------------------------------------------------------------------------------------
# The benchmark: a set of concepts with semantic types.
#
# It is read from a dataset folder as `data_pipeline.build` makes it, or from a TSV file with the
# header CUI, semantic types (joined with "|"), term.

_NEIGHBOURS = 40
_HEADER = ("cui", "semantic types", "term")


@dataclass(frozen=True, kw_only=True)
class ConceptOptions(Options):
    """Options of concepts and of case studies."""

    types: Annotated[
        tuple[str, ...],
        Flag(
            "semantic types to evaluate, such as Finding (default: the six of the CODER papers)",
            "TYPE",
            heading="concepts",
        ),
    ] = ()
    neighbours: Annotated[
        int | None,
        Flag(
            "nearest concepts that MCSM looks at (default: 40, as in the papers), or nearest terms "
            "that are listed for each term of case studies (default: 5)",
            least=1,
        ),
    ] = None
    only_these_types: Annotated[
        bool,
        Flag("neighbours come from the evaluated types only, as in CODER's released code"),
    ] = False
    sample: Annotated[
        int | None,
        Flag("score so many of each type, drawn at random (default: all)", "CONCEPTS", least=1),
    ] = None


@dataclass(frozen=True)
class ConceptSet(Benchmark):
    """A set of concepts with semantic types.

    Attributes:
      concepts, terms: C identifiers and the term that stands for each.
      of_type: for each type to evaluate, bool [C]: which concepts are of it. A concept may be of
        several types.
      retired_cuis: where a CUI without a vector is looked up under the one that it was merged into.
    """

    name: str
    path: str
    concepts: list[str]
    terms: list[str]
    of_type: Mapping[str, np.ndarray]
    content_hash: str
    retired_cuis: RetiredCuis | None = None

    kind: ClassVar[str] = "concept similarity"
    formats: ClassVar[str] = (
        "concepts: a dataset folder, or a TSV file with the header CUI, semantic types, term"
    )
    about: ClassVar[str] = """\
concepts  a dataset folder, or a TSV file with the header CUI, semantic types, term. Scored by
          MCSM: how many of a concept's nearest concepts are of its semantic type. (A dataset built
          with --hold-out-concepts is scored by coverage.)"""
    options: ClassVar[type[Options]] = ConceptOptions
    published: ClassVar[tuple[PublishedRow, ...]] = MCSM

    @classmethod
    def claims(cls, found: Found) -> bool:
        return found.holds("manifest.json") or tuple(found.header) == _HEADER

    @classmethod
    def read(cls, given: Given) -> ConceptSet:
        read = _read_dataset_concepts if given.path.is_dir() else _read_concept_list
        found = read(given.name, given.path, given.options.of(ConceptOptions).types)
        return replace(found, retired_cuis=given.retired_cuis)

    def keys(self, keyed_by: str) -> list[str]:
        """The keys that may be looked up: terms; or concepts, and successors of retired ones."""
        if keyed_by != CONCEPTS:
            return self.terms
        merged = self.retired_cuis
        new = [] if merged is None else [merged.now(concept) for concept in self.concepts]
        return list(dict.fromkeys([*self.concepts, *new]))

    def looked_up(self, keyed_by: str, known: Known) -> list[str]:
        """The key of each concept: its term, itself, or its successor.

        A concept that was merged into one of the set, or into the same as another, stays as it is:
        the set holds each once.
        """
        if keyed_by != CONCEPTS or self.retired_cuis is None:
            return self.concepts if keyed_by == CONCEPTS else self.terms
        keys, held = [], set(self.concepts)
        new = self.retired_cuis.looked_up(self.concepts, known)
        for concept, successor in zip(self.concepts, new, strict=True):
            keys.append(concept if successor in held else successor)
            held.add(successor)
        return keys

    def score(self, vectors: Vectors, encoder: EncoderRecord, options: Options) -> EvaluationRecord:
        own = options.of(ConceptOptions)
        k = own.neighbours or _NEIGHBOURS
        folds, counts = _mcsm_of_types(vectors, self, k, own)
        measured = [one["scores"]["mcsm"] for one in folds.values()]
        measured = [one for one in measured if one is not None]
        return EvaluationRecord(
            benchmark=self.name,
            kind=self.kind,
            path=self.path,
            content_hash=self.content_hash,
            scores={"mcsm": float(np.mean(measured)) if measured else None},
            counts=counts,
            scoring={
                "similarity": "cosine",
                "measure": "MCSM, the concept itself left out; equal cosines in the order of the "
                "set",
                "neighbours from": "the concepts of these types"
                if own.only_these_types
                else "the whole set",
                "mean": "unweighted over types",
                "intervals": f"{ABOUT}, concepts of a type drawn anew, among the same set; of the "
                "mean over types none: concepts of several types are in several means",
                "missing": "concepts without a vector are left out of the set",
                "retired_cuis": self.retired_cuis and self.retired_cuis.description,
                "k": k,
                "only_these_types": own.only_these_types,
                "sample": own.sample,
                "seed": own.seed,
            },
            folds=folds,
            encoder=encoder,
        )

    @classmethod
    def table(cls, records: Sequence[EvaluationRecord], options: Options) -> Table:
        """MCSM of each semantic type, and what random neighbours would have."""
        types = list(dict.fromkeys(name for record in records for name in record.folds))
        header = ["MCSM", "pooling", "concepts", "missing", *(MCSM_TYPES.get(t, t) for t in types)]
        rows = []
        for record in records:
            counts = [f"{record.counts[name]:,}" for name in ("concepts", "missing")]
            scores = [record.folds.get(t, {}).get("scores", {}) for t in types]
            sure = [record.folds.get(t, {}).get("intervals", {}).get("mcsm") for t in types]
            mcsm = [
                one_decimal(score.get("mcsm")) + half(interval, 1, 2)
                for score, interval in zip(scores, sure, strict=True)
            ]
            chance = [one_decimal(score.get("chance")) for score in scores]
            cells = [record.benchmark, record.encoder.pooling, *counts, *mcsm]
            rows.append(Row(cells, record.encoder.model))
            rows.append(Row([f"{record.benchmark}, by chance", "", "", "", *chance], ""))
        return header, rows + published_rows(
            records, cls.published, types, len(header), before=4, digits=1
        )


def _read_dataset_concepts(name: str, path: Path, types: Sequence[str]) -> ConceptSet:
    """The concepts of a dataset folder as `data_pipeline.build` makes it: each by its first term.

    BadInput for a dataset without semantic types, or for a type that it does not have.
    """
    dataset = open_dataset(path, strings=True)
    known = [bare_type(one) for one in dataset.manifest.semantic_types]
    if not known:
        raise BadInput(
            f"{path}: found no semantic types; build the dataset from a release with MRSTY"
        )
    cuis, terms = dataset.cuis or [], dataset.terms or []
    concept_of_type = np.repeat(np.arange(len(cuis)), np.diff(dataset.type_start))
    of_type = {}
    for wanted in _check_types(types, known, path):
        of_type[wanted] = np.zeros(len(cuis), bool)
        if wanted in known:
            of_type[wanted][concept_of_type[dataset.types == known.index(wanted)]] = True
    preferred = [terms[first] for first in dataset.term_start[:-1]]
    return ConceptSet(name, str(path), cuis, preferred, of_type, dataset.manifest.content_hash)


def _read_concept_list(name: str, path: Path, types: Sequence[str]) -> ConceptSet:
    """A TSV file with the header CUI, semantic types (joined with "|"), term; a concept a row."""
    rows = tab_separated(path)[1:]
    expected = "CUI<TAB>semantic types, joined with |<TAB>term"
    seen: dict[str, int] = {}
    held = []
    for number, fields in rows:
        if len(fields) != 3 or not all(fields):
            raise BadInput(f"{path}:{number}: found {fields!r}; expected 3 columns: {expected}")
        if fields[0] in seen:
            raise BadInput(
                f"{path}:{number}: found {fields[0]} again, as in line {seen[fields[0]]}; expected "
                "one row for each concept, with all its types"
            )
        seen[fields[0]] = number
        held.append({bare_type(one.strip()) for one in fields[1].split(CONCEPT_SEPARATOR)})
    known = sorted(set().union(*held))
    of_type = {
        wanted: np.array([wanted in one for one in held])
        for wanted in _check_types(types, known, path)
    }
    fields_of = [fields for _, fields in rows]
    concepts, terms = [f[0] for f in fields_of], [f[2] for f in fields_of]
    return ConceptSet(name, str(path), concepts, terms, of_type, content_hash(fields_of))


def bare_type(name: str) -> str:
    """'Disease or Syndrome' from 'T047 Disease or Syndrome' or from itself."""
    tui, blank, rest = name.partition(" ")
    is_tui = len(tui) == 4 and tui[0] == "T" and tui[1:].isdecimal()
    return rest if blank and is_tui else name


def _check_types(types: Sequence[str], known: Sequence[str], path: Path) -> list[str]:
    """The types to evaluate; the papers' by default, of which some may be missing."""
    wanted = [bare_type(one) for one in types] or list(MCSM_TYPES)
    missing = [one for one in wanted if one not in known]
    if len(missing) == len(wanted) or (types and missing):
        some = ", ".join(known[:40]) + (" and more" if len(known) > 40 else "")
        raise BadInput(
            f"{path}: found no concept of the type {missing[0]!r}; give --types of these: {some}"
        )
    return wanted


# -------------------------------------------------------------------------------------------------
# MCSM, the medical conceptual similarity measure: do a concept's nearest concepts share its type?
#
# Choi et al. 2016, as both CODER papers use it (v1 section 4.3; CODER section 4.5): over a set V of
# concepts, a semantic type T and k neighbours,
#
#   MCSM(V, T, k) = 1 / |V(T)| * sum over v in V(T) of sum over i = 1..k of 1_T(v(i)) / log2(i + 1)
#
# where V(T) are the concepts of type T and v(i) is the i-th nearest concept of V to v by cosine, v
# itself left out. It lies between 0 and the sum of the weights, 11.09 for the papers' k = 40. A
# concept is represented by its preferred term, or by its own vector where vectors are of concepts.


def _mcsm_of_types(
    vectors: Vectors, benchmark: ConceptSet, k: int, options: ConceptOptions
) -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
    """MCSM of every type, as a record has it; and the numbers of concepts, of those without a
    vector, and of retired ones.

    Of a type: "mcsm", None where no concept is of it; its standard deviation over concepts (v1,
    table 3); "chance", what neighbours drawn at random from V would have; |V(T)|, and how many of
    these are scored. The interval is of the mean, over concepts of the type that are drawn anew; V
    and so the neighbours stay, as another V has other neighbours, and would be another benchmark.

    Args:
      vectors: of terms or of concepts. Concepts without a vector are left out of V, as they have
        no neighbours, and counted.
      k: neighbours.
      options: with only_these_types V is the concepts of the evaluated types only, as in CODER's
        released code. Neighbours of a sample still come from all of V.

    Raises:
      BadInput: k or fewer concepts have a vector.
    """
    from coder_jax.encoding.search import nearest_others

    keys = benchmark.looked_up(vectors.keyed_by, vectors.known)
    inside = np.ones(len(keys), bool)
    if options.only_these_types:
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
    rng = np.random.default_rng(options.seed)
    scored = {
        name: _sampled(np.flatnonzero(mask), options.sample, rng) for name, mask in of_type.items()
    }
    queries = np.unique(np.concatenate(list(scored.values())))
    neighbours = nearest_others(encoded, k, queries)[1]
    weights = 1 / np.log2(np.arange(1, k + 1) + 1)
    folds = {}
    for name, mask in of_type.items():
        rows = np.searchsorted(queries, scored[name])
        scores = mask[neighbours[rows]] @ weights
        others = max(0, int(mask.sum()) - 1) / (len(chosen) - 1)
        found: dict[str, float | None] = {"mcsm": None, "deviation": None}
        intervals = {}
        if len(scores):
            found = {"mcsm": float(scores.mean()), "deviation": float(scores.std())}
            intervals = intervals_of_means([{"mcsm": scores}], options.seed)
        folds[name] = {
            "scores": {**found, "chance": others * float(weights.sum())},
            "intervals": intervals,
            "counts": {"concepts": int(mask.sum()), "scored": len(scores)},
        }
    counts = {"concepts": int(inside.sum()), "missing": int(inside.sum() - known.sum())}
    named = {*benchmark.concepts, *benchmark.terms}
    counts["retired"] = sum(keys[row] not in named for row in chosen)
    return folds, counts


def _sampled(rows: np.ndarray, sample: int | None, rng: np.random.Generator) -> np.ndarray:
    """At most `sample` of the rows, in order."""
    if sample is None or len(rows) <= sample:
        return rows
    return np.sort(rng.choice(rows, sample, replace=False))
