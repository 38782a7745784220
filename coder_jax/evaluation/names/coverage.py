"""Coverage: how many of a name's synonyms are among the k names that are nearest to it.

Phan et al. 2019 (BNE), section 4.1: the names are all those of concepts that training has not seen.
Each name is looked up among all others; coverage at k is the share of its other synonyms that are
among the k nearest, so less than 1 where it has more than k; the score is the mean over all names.
The paper shows curves (figure 4) and prints no numbers, so no row of it stands beside ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from coder_jax.evaluation.benchmark import Benchmark, Flag, Found, Given, Options
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.results.bootstrap import ABOUT, named, resampled
from coder_jax.evaluation.results.cells import Row, Table, missing_column, percent
from coder_jax.evaluation.vectors.vectors import Vectors, terms_only
from data_pipeline.files.rows import content_hash, two_columns
from data_pipeline.process.errors import BadInput

FILE = "concepts.tsv"
HELD_OUT = f"heldout/{FILE}"


@dataclass(frozen=True)
class Coverage(Benchmark):
    """Names, each once, and the concept of each; a concept has two names or more."""

    name: str
    path: str
    names: list[str]
    concepts: list[str]
    content_hash: str

    kind: ClassVar[str] = "coverage"
    formats: ClassVar[str] = (
        "coverage: a dataset built with --hold-out-concepts, or its heldout/concepts.tsv"
    )
    about: ClassVar[str] = """\
coverage  a dataset built with --hold-out-concepts, or its heldout/concepts.tsv. Scored by coverage
          at k: the share of a name's synonyms among the k names nearest to it, of all names of the
          concepts that training has not seen.\
"""
    flags: ClassVar[tuple[Flag, ...]] = (
        Flag(
            "--coverage-k",
            "the k of coverage at k (default: 1 5 10 20 50)",
            default=[1, 5, 10, 20, 50],
            least=1,
            argparse={"nargs": "+", "type": int, "metavar": "K"},
        ),
    )
    flags_under: ClassVar[str] = "names"

    @classmethod
    def claims(cls, found: Found) -> bool:
        return found.holds(HELD_OUT, FILE) or (
            found.path.name == FILE and found.header == ["term", "cui"]
        )

    @classmethod
    def brings_dictionary(cls, path: object) -> bool:
        return True

    @classmethod
    def read(cls, given: Given) -> Coverage:
        inside = (given.path / HELD_OUT, given.path / FILE)
        path = next((path for path in inside if path.is_file()), given.path)
        rows = two_columns(path, "term<TAB>CUI")
        names, concepts = [term for term, _ in rows], [cui for _, cui in rows]
        if len(set(names)) < len(names):
            again = next(name for place, name in enumerate(names) if name in names[:place])
            raise BadInput(
                f"{path}: found {again!r} twice; expected each name once: take one of its rows out"
            )
        found = cls(given.name, str(path), names, concepts, content_hash(rows))
        if alone := [cui for cui, names in found.sizes.items() if names < 2]:
            raise BadInput(
                f"{path}: found one name of {alone[0]}; expected two or more of each concept, as "
                "`python -m data_pipeline.build --hold-out-concepts` writes them: take it out"
            )
        return found

    @cached_property
    def sizes(self) -> dict[str, int]:
        """How many names each concept has."""
        sizes: dict[str, int] = {}
        for concept in self.concepts:
            sizes[concept] = sizes.get(concept, 0) + 1
        return sizes

    def keys(self, keyed_by: str) -> list[str]:
        terms_only(keyed_by, self.path)
        return self.names

    def score(self, vectors: Vectors, encoder: EncoderRecord, options: Options) -> EvaluationRecord:
        from coder_jax.evaluation.names.covered import coverage_of_names
        from coder_jax.evaluation.names.measures import JACCARD, Cosine, WordJaccard

        ks = sorted(set(options["coverage_k"]))
        number = {concept: place for place, concept in enumerate(self.sizes)}
        concepts = np.array([number[concept] for concept in self.concepts])
        found = coverage_of_names(Cosine(vectors, self.names), self.names, concepts, ks)
        by_words = coverage_of_names(WordJaccard(self.names), self.names, concepts, ks)
        columns = [f"coverage@{k}" for k in ks]
        # The names of a concept stand or fall together, so whole concepts are drawn.
        summed = np.zeros((len(number), len(ks) + 1))
        np.add.at(summed, concepts, np.column_stack([found, np.ones(len(found))]))
        drawn = resampled(summed, ratios, np.random.default_rng(options["seed"]))
        return EvaluationRecord(
            benchmark=self.name,
            kind=self.kind,
            path=self.path,
            content_hash=self.content_hash,
            scores=dict(zip(columns, found.mean(axis=0).tolist(), strict=True)),
            intervals=named(columns, drawn),
            counts={
                "names": len(self.names),
                "concepts": len(number),
                "missing": int((~vectors.known(self.names)).sum()),
            },
            scoring={
                "similarity": "cosine",
                "score": "share of a name's other synonyms among its k nearest; mean over names",
                "ties": "mean over random orders of names that are equally near",
                "missing": "names without a vector have the cosine 0 with all others",
                "intervals": f"{ABOUT}, whole concepts drawn anew",
            },
            encoder=encoder,
            folds={
                JACCARD: {"scores": dict(zip(columns, by_words.mean(axis=0).tolist(), strict=True))}
            },
        )

    @classmethod
    def table(cls, records: Sequence[EvaluationRecord], options: Options) -> Table:
        """Coverage at each k, in percent, of the encoders and, for each benchmark, by words."""
        columns = list(dict.fromkeys(name for record in records for name in record.scores))
        missing = missing_column(records)
        header = ["coverage", "pooling", "names", "concepts", *missing, *columns]
        rows = []
        for benchmark in dict.fromkeys(record.benchmark for record in records):
            own = [record for record in records if record.benchmark == benchmark]
            for record in own:
                counts = [record.counts[name] for name in ("names", "concepts", *missing)]
                cells = [benchmark, record.encoder.pooling, *(f"{one:,}" for one in counts)]
                cells += [
                    percent(record.scores[one], record.intervals.get(one))
                    if one in record.scores
                    else ""
                    for one in columns
                ]
                rows.append(Row(cells, record.encoder.model))
            for label, fold in own[0].folds.items():
                cells = [f"{benchmark}: {label}", *[""] * (len(header) - len(columns) - 1)]
                scores = fold["scores"]
                cells += [percent(scores[one]) if one in scores else "" for one in columns]
                rows.append(Row(cells, label))
        return header, rows


def ratios(distinct_US: np.ndarray, drawn_BU: np.ndarray) -> np.ndarray:
    """The `Statistic` of sums by the last column, which counts."""
    summed_BS = drawn_BU @ distinct_US
    return summed_BS[:, :-1] / summed_BS[:, -1:]
