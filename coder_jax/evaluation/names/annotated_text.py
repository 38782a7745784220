"""Mentions in annotated abstracts, NCBI disease and BC5CDR: to be normalized, and to find synonyms.

Phan et al. 2019 (BNE), sections 4.2 and 4.3. A fold is a type of mention: Disease, Chemical.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from coder_jax.evaluation.benchmark import Flag, Found, Given, Options
from coder_jax.evaluation.names.published import MENTIONS_IN_TEXT
from coder_jax.evaluation.names.text_table import table
from coder_jax.evaluation.normalization.benchmark import (
    NormalizationBenchmark,
    NormalizationFold,
    normalization_record,
    with_answers,
)
from coder_jax.evaluation.normalization.ranks import rank_values
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.results.bootstrap import intervals_of_means
from coder_jax.evaluation.results.cells import Table
from coder_jax.evaluation.results.published import PublishedRow
from coder_jax.evaluation.vectors.vectors import Vectors
from data_pipeline.process.errors import BadInput
from data_pipeline.sources.corpora.pubtator import is_pubtator

if TYPE_CHECKING:
    from coder_jax.evaluation.names.measures import Baseline, Measure
    from coder_jax.evaluation.names.scores import Pair, SearchedNames
    from coder_jax.evaluation.normalization.accuracy import NormalizationResult

FLAGS = (
    Flag(
        "--exact-match",
        "annotated abstracts for training, of one benchmark or of all: mentions that stand there "
        "are answered as there (XM, a score of its own)",
        default=[],
        argparse={"nargs": "+", "metavar": "[NAME=]FILE"},
    ),
    Flag(
        "--wmd",
        "score mentions in text also by Word Mover's Distance; with --vectors-of words",
        default=False,
        argparse={"action": "store_true"},
    ),
)


@dataclass(frozen=True)
class AnnotatedText(NormalizationBenchmark):
    """Mentions by their type; those without a concept in the dictionary are left out.

    Attributes:
      exact: of each fold the concepts that training annotations give each mention, or ""; no folds
        without such annotations.
      left_out: of each type, counts of what was left out and of what was done on the way.
    """

    exact: Mapping[str, list[str]] = field(default_factory=dict)
    left_out: Mapping[str, dict[str, int]] = field(default_factory=dict)

    kind: ClassVar[str] = "mentions in text"
    formats: ClassVar[str] = (
        "text:     annotated abstracts in PubTator's format (NCBI disease, BC5CDR)"
    )
    about: ClassVar[str] = """\
text      annotated abstracts in PubTator's format (NCBI disease, BC5CDR), looked up in --dictionary
          whose concepts are, or have as codes, identifiers of MeSH and OMIM: MEDIC as
          id|other ids||name|synonym..., or a release or dataset. Scored for each type of mention:
          acc@1 with abbreviations written out, and MAP of the names of its concept among those of
          the 20 best concepts by BM25. Mentions whose concept the dictionary lacks are left out.\
"""
    flags: ClassVar[tuple[Flag, ...]] = FLAGS
    flags_under: ClassVar[str] = "names"
    published: ClassVar[tuple[PublishedRow, ...]] = MENTIONS_IN_TEXT

    @classmethod
    def claims(cls, found: Found) -> bool:
        return found.is_text and is_pubtator(found.path)

    @classmethod
    def read(cls, given: Given) -> AnnotatedText:
        from coder_jax.evaluation.names.text_mentions import read_folds

        read = read_folds(given)
        benchmark = cls.of_folds(given, read.folds)
        return replace(benchmark, exact=read.exact, left_out=read.counts)

    @cached_property
    def searched(self) -> SearchedNames:
        """The names of the dictionary, and their candidates for the mentions."""
        from coder_jax.evaluation.names.scores import SearchedNames

        mentions = chain.from_iterable(fold.mentions for fold in self.folds)
        return SearchedNames(self.folds[0].dictionary, list(mentions))

    @cached_property
    def baselines(self) -> dict[str, Baseline]:
        """What needs no encoder, by its name."""
        from coder_jax.evaluation.names.measures import (
            JACCARD,
            SAME_WORDS,
            SameWords,
            WordJaccard,
        )

        jaccard = WordJaccard(self.searched.names.names)
        return {SAME_WORDS: SameWords(jaccard), JACCARD: jaccard}

    @cached_property
    def without_encoder(self) -> dict[str, dict[str, dict[str, float]]]:
        """The scores of the baselines, by fold and baseline."""
        return {
            fold.name: {label: self.scores_of(one, fold) for label, one in self.baselines.items()}
            for fold in self.folds
        }

    def scores_of(self, baseline: Baseline, fold: NormalizationFold) -> dict[str, float]:
        """Means over the mentions of a fold."""
        from coder_jax.evaluation.names.scores import ACCURACY

        pairs, place = pairs_of(fold)
        right = self.searched.right(baseline, pairs)[place]
        values, alone = self.values_of(baseline, fold, right)
        return {**means(values), ACCURACY: float(right.mean()), **alone}

    def values_of(
        self, measure: Measure, fold: NormalizationFold, right: np.ndarray
    ) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """What each mention adds to scores, and scores that are no means over mentions.

        Args:
          measure: of the candidates.
          fold: whose mentions.
          right: float [n], the chance that each is answered rightly.
        """
        from coder_jax.evaluation.names.scores import (
            EXACT,
            MAP,
            MAP_DISTINCT,
            MAP_REACHED,
            REACHED,
            with_exact_matches,
        )

        pairs, place = pairs_of(fold)
        precision, reached = self.searched.precisions(measure, pairs), self.searched.reached(pairs)
        values = {MAP: precision[place], REACHED: reached[place].astype(np.float64)}
        if self.exact:
            values[EXACT] = with_exact_matches(right, fold.gold, self.exact[fold.name])
        of_reached = float(precision[place][reached[place]].mean()) if reached.any() else 0.0
        return values, {MAP_REACHED: of_reached, MAP_DISTINCT: float(precision.mean())}

    def score(self, vectors: Vectors, encoder: EncoderRecord, options: Options) -> EvaluationRecord:
        from coder_jax.evaluation.names.measures import Cosine
        from coder_jax.evaluation.normalization.accuracy import evaluate_normalization

        missing = int((~vectors.known(self.keys(vectors.keyed_by))).sum())
        result = evaluate_normalization(vectors.encode, self, ks=options["k"])
        record = normalization_record(self, result, encoder, missing=missing, seed=options["seed"])
        baselines = {name: dict(scores) for name, scores in self.without_encoder.items()}
        if options["wmd"]:
            for name, scores in self.by_word_movers(vectors).items():
                baselines[name] |= scores
        cosine = Cosine(vectors, self.searched.names.names, self.searched.rows)
        record = self.completed(record, result, cosine, baselines, options["seed"])
        return with_answers(record, self, result, vectors, options)

    def by_word_movers(self, vectors: Vectors) -> dict[str, dict[str, dict[str, float]]]:
        """The scores of Word Mover's Distance, by fold; BadInput for what has no words."""
        from coder_jax.evaluation.names.word_movers import WMD, WordMovers
        from coder_jax.evaluation.vectors.words_and_concepts import WordVectors

        if not isinstance(vectors, WordVectors) or vectors.vectors_of != "words":
            raise BadInput("--wmd: found no vectors of words; expected --vectors-of words")
        movers = WordMovers(vectors, self.searched.names.names)
        return {fold.name: {WMD: self.scores_of(movers, fold)} for fold in self.folds}

    def completed(
        self,
        record: EvaluationRecord,
        result: NormalizationResult,
        cosine: Measure,
        baselines: Mapping[str, dict[str, dict[str, float]]],
        seed: int,
    ) -> EvaluationRecord:
        """The record of normalization with retrieval, exact matches and baselines beside it."""
        from coder_jax.evaluation.names.retrieval import CANDIDATE_CONCEPTS, FORM, K1, B

        results = result.folds or {self.folds[0].name: result}
        folds: dict[str, dict[str, Any]] = {}
        groups = []
        for fold in self.folds:
            one = results[fold.name]
            assert one.ranks is not None, "of a single fold"
            right = rank_values(*one.ranks, ks=[1])["acc@1"]
            values, alone = self.values_of(cosine, fold, right)
            groups.append(values)
            kept = record.folds.get(fold.name, {"scores": record.scores})
            folds[fold.name] = {
                **kept,
                "scores": {**kept["scores"], **means(values), **alone},
                "intervals": {
                    **kept.get("intervals", record.intervals),
                    **intervals_of_means([values], seed),
                },
                "counts": {
                    **{"mentions": one.mentions, "unreachable": 0, "tied": one.tied},
                    "distinct": len(pairs_of(fold)[0]),
                    **self.left_out[fold.name],
                },
                "baselines": baselines[fold.name],
            }
        added = [name for name in folds[self.folds[0].name]["scores"] if name not in record.scores]
        scores = {
            name: float(np.mean([one["scores"][name] for one in folds.values()])) for name in added
        }
        bm25 = f"BM25 ({FORM}, k1 {K1}, b {B}) of a concept's best name, by the words of both"
        return replace(
            record,
            kind=self.kind,
            scores={**record.scores, **scores},
            intervals={**record.intervals, **intervals_of_means(groups, seed)},
            folds=folds,
            scoring={
                **record.scoring,
                "abbreviations": "written out as their own document explains them",
                "composite": "divided where the file has the parts; else any identifier is right",
                "left_out": {name: dict(counts) for name, counts in self.left_out.items()},
                "candidates": f"all names of the {CANDIDATE_CONCEPTS} best concepts by {bm25}",
                "map": "relevant are all names of the gold concepts; 0 where none is a candidate; "
                "mean over orders of equally near names; every mention counts",
                "XM": "a mention of the training annotations, in small letters and with its "
                "abbreviations written out, is answered with its most frequent concept there",
            },
        )

    @classmethod
    def table(cls, records: Sequence[EvaluationRecord], options: Options) -> Table:
        return table(records, cls.published)


def pairs_of(fold: NormalizationFold) -> tuple[list[Pair], np.ndarray]:
    """The distinct pairs of mention and gold of a fold, and which of them each mention is."""
    from coder_jax.evaluation.names.scores import Pair

    place_of: dict[Pair, int] = {}
    places = [
        place_of.setdefault(Pair(*pair), len(place_of))
        for pair in zip(fold.mentions, fold.gold, strict=True)
    ]
    return list(place_of), np.array(places)


def means(values: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The mean of each score over mentions."""
    return {name: float(one.mean()) for name, one in values.items()}
