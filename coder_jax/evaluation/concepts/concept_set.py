"""A set of concepts with semantic types, to be scored by MCSM (`mcsm`).

It is read from a dataset folder as `data_pipeline.build` makes it, or from a TSV file with the
header CUI, semantic types (joined with "|"), term.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from coder_jax.evaluation.benchmark import Benchmark, Flag, Found, Given, Options
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.results.cells import Row, Table, half, one_decimal, published_rows
from coder_jax.evaluation.results.published import MCSM, MCSM_TYPES, PublishedRow
from coder_jax.evaluation.vectors.vectors import CONCEPTS, Vectors
from data_pipeline.files.rows import CONCEPT_SEPARATOR, content_hash, tab_separated
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.retired_cuis import Known, RetiredCuis

NEIGHBOURS = 40
HEADER = ("cui", "semantic types", "term")
FLAGS = (
    Flag(
        "--types",
        "semantic types to evaluate, such as Finding (default: the six of the CODER papers)",
        default=[],
        argparse={"nargs": "+", "metavar": "TYPE"},
    ),
    Flag(
        "--neighbours",
        "how many are looked at around each (default: 40, the papers')",
        default=NEIGHBOURS,
        least=1,
        argparse={"type": int},
    ),
    Flag(
        "--only-these-types",
        "neighbours come from the evaluated types only, as in CODER's released code",
        default=False,
        argparse={"action": "store_true"},
    ),
    Flag(
        "--sample",
        "score so many of each type, drawn at random (default: all)",
        least=1,
        argparse={"type": int, "metavar": "CONCEPTS"},
    ),
)


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
    flags: ClassVar[tuple[Flag, ...]] = FLAGS
    flags_under: ClassVar[str] = "concepts"
    published: ClassVar[tuple[PublishedRow, ...]] = MCSM

    @classmethod
    def claims(cls, found: Found) -> bool:
        return found.holds("manifest.json") or tuple(found.header) == HEADER

    @classmethod
    def read(cls, given: Given) -> ConceptSet:
        read = read_dataset_concepts if given.path.is_dir() else read_concept_list
        found = read(given.name, given.path, given.options["types"])
        return replace(found, retired_cuis=given.retired_cuis)

    def keys(self, keyed_by: str) -> list[str]:
        """What may be looked up: terms; or concepts, and what retired ones were merged into."""
        if keyed_by != CONCEPTS:
            return self.terms
        merged = self.retired_cuis
        new = [] if merged is None else [merged.now(concept) for concept in self.concepts]
        return list(dict.fromkeys([*self.concepts, *new]))

    def looked_up(self, keyed_by: str, known: Known) -> list[str]:
        """What stands for each concept: its term, or itself, or what it was merged into.

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
        from coder_jax.evaluation.concepts.mcsm import (
            concept_similarity_record,
            evaluate_concept_similarity,
        )

        chosen = {name: options[name] for name in ("only_these_types", "sample", "seed")}
        chosen = {"k": options["neighbours"], **chosen}
        result, counts = evaluate_concept_similarity(vectors, self, **chosen)
        return concept_similarity_record(self, result, counts, encoder, **chosen)

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


def read_dataset_concepts(name: str, path: Path, types: Sequence[str]) -> ConceptSet:
    """The concepts of a dataset folder as `data_pipeline.build` makes it: each by its first term.

    BadInput for a dataset without semantic types, or for a type that it does not have.
    """
    from data_pipeline.dataset.store import open_dataset  # it imports TensorFlow

    dataset = open_dataset(path, strings=True)
    known = [bare_type(one) for one in dataset.manifest["semantic_types"]]
    if not known:
        raise BadInput(
            f"{path}: found no semantic types; build the dataset from a release with MRSTY"
        )
    cuis, terms = dataset.cuis or [], dataset.terms or []
    concept_of_type = np.repeat(np.arange(len(cuis)), np.diff(dataset.type_start))
    of_type = {}
    for wanted in check_types(types, known, path):
        of_type[wanted] = np.zeros(len(cuis), bool)
        if wanted in known:
            of_type[wanted][concept_of_type[dataset.types == known.index(wanted)]] = True
    preferred = [terms[first] for first in dataset.term_start[:-1]]
    return ConceptSet(name, str(path), cuis, preferred, of_type, dataset.manifest["content_hash"])


def read_concept_list(name: str, path: Path, types: Sequence[str]) -> ConceptSet:
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
        for wanted in check_types(types, known, path)
    }
    fields_of = [fields for _, fields in rows]
    concepts, terms = [f[0] for f in fields_of], [f[2] for f in fields_of]
    return ConceptSet(name, str(path), concepts, terms, of_type, content_hash(fields_of))


def bare_type(name: str) -> str:
    """'Disease or Syndrome' from 'T047 Disease or Syndrome' or from itself."""
    tui, blank, rest = name.partition(" ")
    is_tui = len(tui) == 4 and tui[0] == "T" and tui[1:].isdecimal()
    return rest if blank and is_tui else name


def check_types(types: Sequence[str], known: Sequence[str], path: Path) -> list[str]:
    """The types to evaluate; the papers' by default, of which some may be missing."""
    wanted = [bare_type(one) for one in types] or list(MCSM_TYPES)
    missing = [one for one in wanted if one not in known]
    if len(missing) == len(wanted) or (types and missing):
        some = ", ".join(known[:40]) + (" and more" if len(known) > 40 else "")
        raise BadInput(
            f"{path}: found no concept of the type {missing[0]!r}; give --types of these: {some}"
        )
    return wanted
