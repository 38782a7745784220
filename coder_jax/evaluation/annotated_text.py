"""Benchmarks of mentions in annotated text: NCBI disease and BC5CDR."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import numpy as np

from coder_jax.evaluation.benchmark import Found, Given, Options
from coder_jax.evaluation.name_pairs import (
    CANDIDATE_CONCEPTS,
    FORM,
    JACCARD,
    K1,
    SAME_WORDS,
    WMD,
    B,
    Baseline,
    Cosine,
    Measure,
    NamesByConcept,
    NameStrings,
    SameWords,
    WordJaccard,
    WordMovers,
    average_precision,
)
from coder_jax.evaluation.normalization import (
    ACCURACY_AT,
    NormalizationBenchmark,
    NormalizationFold,
    NormalizationOptions,
    normalization_record,
    with_answers,
)
from coder_jax.evaluation.published import MENTIONS_IN_TEXT, PublishedRow, rows_for
from coder_jax.evaluation.ranks import rank_values
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.results import Row, Table, intervals_of_means, missing_column, percent
from coder_jax.evaluation.vectors import Vectors, WordVectors
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.tables import CONCEPT_SEPARATOR
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput
from data_pipeline.sources.corpora import (
    MESH_AND_OMIM,
    NONE,
    PREFIX,
    is_pubtator,
    read_abstracts,
)
from data_pipeline.sources.text import abbreviations_of

if TYPE_CHECKING:
    from coder_jax.evaluation.normalization import NormalizationResult


# -------------------------------------------------------------------------------------------------
# The result table: encoders, baselines without an encoder and the paper's rows, by type of mention.

# Columns of scores and the names of these.
_SHOWN = {
    "acc@1": "acc@1",
    "acc@1 + XM": "acc@1 + XM",
    "MAP": "map",
    "MAP distinct": "map of distinct",
    "reached": "reached",
    "MAP reached": "map of reached",
}


def _table(records: Sequence[EvaluationRecord], published: Sequence[PublishedRow]) -> Table:
    """Scores in percent, with half the width of their intervals; the paper's are of another
    dictionary.
    """
    shown = {
        column: name
        for column, name in _SHOWN.items()
        if "XM" not in name or any(name in record.scores for record in records)
    }
    missing = missing_column(records)
    header = ["mentions in text", "pooling", "mentions", "distinct", "names", "concepts", *shown]
    header += ["tied", *missing]
    rows: list[Row] = []
    sets = dict.fromkeys((record.benchmark, name) for record in records for name in record.folds)
    for benchmark, kind in sets:
        label = f"{benchmark} {kind}"
        own = [one for one in records if one.benchmark == benchmark and kind in one.folds]
        for record in own:
            rows.append(Row(_cells(label, record, kind, shown, missing), record.encoder.model))
        baselines: dict[str, dict[str, float]] = {}
        for record in own:
            baselines |= record.folds[kind]["baselines"]
        for name, scores in baselines.items():
            start = [f"{label}: {name}", *[""] * 5]
            rows.append(Row([*start, *_percents(scores, shown), "", *[""] * len(missing)], name))
        rows += _of_papers(label, kind, shown, rows_for(benchmark, published), len(header))
    return header, rows


def _cells(
    label: str,
    record: EvaluationRecord,
    kind: str,
    shown: Mapping[str, str],
    missing: Sequence[str],
) -> list[str]:
    fold, dictionary = record.folds[kind], record.dictionary or {}
    counts: Mapping[str, Any] = fold["counts"]
    numbers = [counts["mentions"], counts["distinct"], dictionary["terms"], dictionary["concepts"]]
    return [
        *(label, record.encoder.pooling, *(f"{one:,}" for one in numbers)),
        *_percents(fold["scores"], shown, fold["intervals"]),
        f"{counts['tied']:,}",
        *(f"{record.counts[one]:,}" for one in missing),
    ]


def _percents(
    scores: Mapping[str, float],
    shown: Mapping[str, str],
    intervals: Mapping[str, Sequence[float]] | None = None,
) -> list[str]:
    sure = intervals or {}
    return [
        percent(scores[name], sure.get(name)) if name in scores else "" for name in shown.values()
    ]


def _of_papers(
    label: str,
    kind: str,
    shown: Mapping[str, str],
    published: Sequence[PublishedRow],
    width: int,
) -> list[Row]:
    """A row for each encoder of the paper, with all its scores."""
    merged: dict[tuple[str, str], dict[str, float]] = {}
    tables: dict[tuple[str, str], list[str]] = {}
    for row in published:
        own = {name: row.scores.get(f"{kind} {name}") for name in shown.values()}
        found = {name: score for name, score in own.items() if score is not None}
        if found:
            merged.setdefault((row.paper, row.encoder), {}).update(found)
            tables.setdefault((row.paper, row.encoder), []).append(row.table)
    rows = []
    for (paper, encoder), scores in merged.items():
        cells = [label, "", "", "", "", "", *_percents(scores, shown)]
        named = " and ".join(dict.fromkeys(tables[paper, encoder]))
        cells += [""] * (width - len(cells))
        rows.append(Row(cells, encoder, f"{paper}, table {named}"))
    return rows


# -------------------------------------------------------------------------------------------------
# The benchmark: mentions in annotated abstracts, scored by normalization and synonym retrieval.
#
# Phan et al. 2019 (BNE), sections 4.2 and 4.3. A fold is a type of mention: Disease, Chemical.


@dataclass(frozen=True, kw_only=True)
class TextOptions(Options):
    """Options of mentions in text."""

    exact_match: Annotated[
        tuple[str, ...],
        Flag(
            "annotated abstracts for training, of one benchmark or of all: mentions that stand "
            "there are answered as there (XM, a score of its own)",
            "[NAME=]FILE",
            heading="names",
        ),
    ] = ()
    training_names: Annotated[
        tuple[str, ...],
        Flag(
            "annotated abstracts for training, of one benchmark or of all: their mentions are "
            "further names of their concepts, as BioSyn has it",
            "[NAME=]FILE",
        ),
    ] = ()
    wmd: Annotated[
        bool,
        Flag("score mentions in text also by Word Mover's Distance; with --vectors-of words"),
    ] = False


@dataclass(frozen=True)
class AnnotatedText(NormalizationBenchmark):
    """Mentions by type; those whose concept the dictionary lacks are left out.

    Attributes:
      exact: of each fold the concepts that training annotations give each mention, or ""; no folds
        without such annotations.
      left_out: of each type, counts of what was left out and of what was done on the way.
    """

    exact: Mapping[str, list[str]] = field(default_factory=dict)
    left_out: Mapping[str, dict[str, int]] = field(default_factory=dict)

    kind: ClassVar[str] = "mentions in text"
    formats: ClassVar[str] = "PubTator: annotated abstracts in this format (NCBI disease, BC5CDR)"
    about: ClassVar[str] = """\
PubTator  annotated abstracts in this format (NCBI disease, BC5CDR), looked up in --dictionary
          whose concepts are, or have as codes, identifiers of MeSH and OMIM: MEDIC
          (CTD_diseases.tsv, or id|other ids||name|synonym...), or a release or dataset. Scored for
          each type of mention: acc@1 with abbreviations written out, and MAP of the names of its
          concept among those of the 20 best concepts by BM25. Mentions whose concept the dictionary
          lacks are left out.\
"""
    options: ClassVar[type[Options]] = TextOptions
    published: ClassVar[tuple[PublishedRow, ...]] = MENTIONS_IN_TEXT

    @classmethod
    def claims(cls, found: Found) -> bool:
        return found.is_text and is_pubtator(found.path)

    @classmethod
    def read(cls, given: Given) -> AnnotatedText:
        read = _read_folds(given)
        benchmark = cls.of_folds(given, read.folds)
        return replace(benchmark, exact=read.exact, left_out=read.counts)

    @cached_property
    def searched(self) -> SearchedNames:
        """The names of the dictionary, and their candidates for the mentions."""
        mentions = chain.from_iterable(fold.mentions for fold in self.folds)
        return SearchedNames(self.folds[0].dictionary, list(mentions))

    @cached_property
    def baselines(self) -> dict[str, Baseline]:
        """The baselines, which need no encoder, by name."""
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
        pairs, place = _pairs_of(fold)
        right = self.searched.right(baseline, pairs)[place]
        values, alone = self.values_of(baseline, fold, right)
        return {**_means(values), _ACCURACY: float(right.mean()), **alone}

    def values_of(
        self, measure: Measure, fold: NormalizationFold, right: np.ndarray
    ) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """The contribution of each mention to scores, and scores that are not means over mentions.

        Args:
          measure: of the candidates.
          fold: whose mentions.
          right: float [n], the chance that each is answered rightly.
        """
        pairs, place = _pairs_of(fold)
        precision, reached = self.searched.precisions(measure, pairs), self.searched.reached(pairs)
        values = {_MAP: precision[place], _REACHED: reached[place].astype(np.float64)}
        if self.exact:
            values[_EXACT] = _with_exact_matches(right, fold.gold, self.exact[fold.name])
        of_reached = float(precision[place][reached[place]].mean()) if reached.any() else 0.0
        return values, {_MAP_REACHED: of_reached, _MAP_DISTINCT: float(precision.mean())}

    def score(self, vectors: Vectors, encoder: EncoderRecord, options: Options) -> EvaluationRecord:

        missing = int((~vectors.known(self.keys(vectors.keyed_by))).sum())
        result = self.result(vectors, options.of(NormalizationOptions).k or ACCURACY_AT)
        record = normalization_record(self, result, encoder, missing=missing, seed=options.seed)
        baselines = {name: dict(scores) for name, scores in self.without_encoder.items()}
        if options.of(TextOptions).wmd:
            for name, scores in self.by_word_movers(vectors).items():
                baselines[name] |= scores
        names = self.searched.names.names
        if isinstance(vectors, NameStrings):
            measure: Measure = vectors.measure(names)
        else:
            measure = Cosine(vectors, names, self.searched.rows)
        record = self.completed(record, result, measure, baselines, options.seed)
        return with_answers(record, self, result, vectors, options)

    def by_word_movers(self, vectors: Vectors) -> dict[str, dict[str, dict[str, float]]]:
        """The scores of Word Mover's Distance, by fold; BadInput for what has no words."""
        if not isinstance(vectors, WordVectors) or vectors.vectors_of != "words":
            raise BadInput("--wmd: found no vectors of words; expected --vectors-of words")
        movers = WordMovers(vectors, self.searched.names.names)
        return {fold.name: {WMD: self.scores_of(movers, fold)} for fold in self.folds}

    def completed(
        self,
        record: EvaluationRecord,
        result: NormalizationResult,
        measure: Measure,
        baselines: Mapping[str, dict[str, dict[str, float]]],
        seed: int,
    ) -> EvaluationRecord:
        """The normalization record, extended by retrieval, exact matches and baselines."""
        folds: dict[str, dict[str, Any]] = {}
        groups, same = [], [fold.same for fold in self.folds]
        for fold in self.folds:
            ranks = result.ranks[fold.name]
            right = rank_values(ranks, [1])["acc@1"]
            values, alone = self.values_of(measure, fold, right)
            groups.append(values)
            kept = record.folds.get(fold.name, {"scores": record.scores})
            folds[fold.name] = {
                **kept,
                "scores": {**kept["scores"], **_means(values), **alone},
                "intervals": {
                    **kept.get("intervals", record.intervals),
                    **intervals_of_means([values], seed, [fold.same]),
                },
                "counts": {
                    "mentions": len(fold.mentions),
                    "unreachable": 0,
                    "tied": int((ranks.reachable & (ranks.tied > 0)).sum()),
                    "distinct": len(_pairs_of(fold)[0]),
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
            intervals={**record.intervals, **intervals_of_means(groups, seed, same)},
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
        return _table(records, cls.published)


def _pairs_of(fold: NormalizationFold) -> tuple[list[Pair], np.ndarray]:
    """The distinct (mention, gold) pairs of a fold, and the pair of each mention."""
    place_of: dict[Pair, int] = {}
    places = [
        place_of.setdefault(Pair(*pair), len(place_of))
        for pair in zip(fold.mentions, fold.gold, strict=True)
    ]
    return list(place_of), np.array(places)


def _means(values: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The mean of each score over mentions."""
    return {name: float(one.mean()) for name, one in values.items()}


# -------------------------------------------------------------------------------------------------
# Mentions of annotated abstracts, with their concepts in the dictionary.
#
# As Phan et al. 2019 (BNE), section 4.3, read NCBI disease and BC5CDR: abbreviations are written
# out as their own document explains them; a composite mention ("ocular and auditory toxicity") is
# divided where the file says into which parts; and only what has its concept in the dictionary
# counts.

# What NCBI disease divides diseases into.
_DISEASES = frozenset(("SpecificDisease", "DiseaseClass", "Modifier", "CompositeMention"))
_TOGETHER = "+"  # between identifiers that only together are what is meant


@dataclass
class _TextMentions:
    """The mentions of one type, such as Disease, in the order of the file.

    Attributes:
      strings: with abbreviations written out.
      gold: of each the identifiers, any of which is right.
      counts: what was done on the way, and left out.
    """

    strings: list[str] = field(default_factory=list)
    gold: list[tuple[str, ...]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, string: str, identifiers: str) -> None:
        """One mention, and its field of identifiers."""
        if _TOGETHER in identifiers:
            self.counts["several concepts at once"] += 1
            return
        named = (PREFIX.sub("", one.strip()) for one in identifiers.split(CONCEPT_SEPARATOR))
        gold = tuple(dict.fromkeys(one for one in named if one and one != NONE))
        if not gold:
            self.counts["no identifier"] += 1
            return
        self.strings.append(string)
        self.gold.append(gold)

    @cached_property
    def answers(self) -> dict[str, tuple[str, ...]]:
        """The most frequent gold of each lower-cased string; ties go to the first."""
        seen: dict[str, Counter[tuple[str, ...]]] = {}
        for string, gold in zip(self.strings, self.gold, strict=True):
            seen.setdefault(string.lower(), Counter())[gold] += 1
        return {string: counts.most_common(1)[0][0] for string, counts in seen.items()}


def _mentions_by_type(path: Path) -> dict[str, _TextMentions]:
    """The mentions of an annotated file, by their type; those of NCBI disease are Disease.

    BadInput if it cannot be read.
    """
    from coder_jax.mapping.normalizer import writer_out

    found: dict[str, _TextMentions] = {}
    for abstract in read_abstracts(path):
        written_out = writer_out(abbreviations_of(abstract.text))
        for mention in abstract.mentions:
            kind = "Disease" if mention.type in _DISEASES else mention.type
            of_type = found.setdefault(kind, _TextMentions())
            identifiers = mention.identifiers.split(CONCEPT_SEPARATOR)
            pairs = [(mention.text, mention.identifiers)]
            if len(mention.parts) == len(identifiers) > 1:
                pairs = list(zip(mention.parts, identifiers, strict=True))
                of_type.counts["composite mentions divided"] += 1
            for string, field_of_one in pairs:
                expanded = written_out(string)
                of_type.counts["abbreviations written out"] += expanded != string
                of_type.add(expanded, field_of_one)
    return found


class _TextFolds(NamedTuple):
    """The content of an `AnnotatedText`."""

    folds: list[NormalizationFold]
    exact: dict[str, list[str]]
    counts: dict[str, dict[str, int]]


def _read_folds(given: Given) -> _TextFolds:
    """The folds of an annotated file, one for each type of mention that the dictionary has.

    BadInput for a broken file, no dictionary, or one that has no concept of a mention.
    """
    dictionary = given.dictionary
    if dictionary is None:
        raise BadInput(
            f"{given.path}: found mentions in text and no dictionary to search; give --dictionary, "
            "such as MEDIC for diseases"
        )
    found = _mentions_by_type(given.path)
    asked = given.options.of(TextOptions)
    trained = [_mentions_by_type(path) for path in _files_for(given, asked.exact_match)]
    naming = [_mentions_by_type(path) for path in _files_for(given, asked.training_names)]
    every = [one for some in (found, *trained, *naming) for one in some.values()]
    identifiers = sorted({one for some in every for gold in some.gold for one in gold})
    concepts = _concepts_of_identifiers(dictionary, identifiers)

    def joined(gold: Sequence[str]) -> str:
        return CONCEPT_SEPARATOR.join(concepts[one] for one in gold if one in concepts)

    if naming:
        named = {
            (string, joined(gold)): None
            for some in naming
            for one in some.values()
            for string, gold in zip(one.strings, one.gold, strict=True)
        }
        own = set(zip(dictionary.terms, dictionary.concepts, strict=True))
        new = [pair for pair in named if pair[1] and pair not in own]
        source = f"{dictionary.source} and {len(new):,} names of training mentions"
        dictionary = replace(dictionary.with_names(new), source=source)
    read = _TextFolds([], {}, {})
    now = given.retired_cuis.now if given.retired_cuis else str
    for kind, mentions in found.items():
        pairs = list(zip(mentions.strings, map(joined, mentions.gold), strict=True))
        kept = [(string, gold) for string, gold in pairs if gold]
        read.counts[kind] = {**mentions.counts, "not in the dictionary": len(pairs) - len(kept)}
        if not kept:
            continue
        strings, gold = (list(column) for column in zip(*kept, strict=True))
        read.folds.append(NormalizationFold(kind, strings, gold, dictionary))
        if trained:
            answers: dict[str, tuple[str, ...]] = {}
            for some in reversed(trained):  # the first file counts, where two have a mention
                answers |= some[kind].answers if kind in some else {}
            read.exact[kind] = [now(joined(answers.get(one.lower(), ()))) for one in strings]
    if not read.folds:
        example = f"such as {identifiers[0]!r}" if identifiers else "there is no identifier"
        raise BadInput(
            f"{given.path}: found no mention whose concept ({example}) is in the dictionary "
            f"{dictionary.source} (such as {dictionary.concepts[0]!r}); expected one whose "
            "concepts are identifiers of MeSH or OMIM, or have them as codes, such as MEDIC"
        )
    return read


def _files_for(given: Given, arguments: Sequence[str]) -> list[Path]:
    """The files among [NAME=]FILE that belong to a benchmark."""
    files = []
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals or Path(argument).exists():
            files.append(Path(argument))
        elif name == given.name:
            files.append(Path(path))
    return files


def _concepts_of_identifiers(
    dictionary: Dictionary, identifiers: Sequence[str]
) -> Mapping[str, str]:
    """The concepts of a dictionary that identifiers of MeSH and OMIM mean, joined with "|".

    An identifier means the concept that is called so, or else those that have it as their code.
    """
    held = dictionary.concept_set
    found = {one: one for one in identifiers if one in held}
    missing = set(identifiers) - found.keys()
    if not missing:
        return found
    coded: dict[str, list[str]] = {}
    for concept in sorted(held):
        for vocabulary, code in dictionary.about(concept).codes:
            code = PREFIX.sub("", code)
            if code in missing and vocabulary.upper() in MESH_AND_OMIM:
                coded.setdefault(code, []).append(concept)
    return found | {
        code: CONCEPT_SEPARATOR.join(dict.fromkeys(some)) for code, some in coded.items()
    }


# -------------------------------------------------------------------------------------------------
# The contribution of each mention to the scores, for any measure of similarity.

_ACCURACY, _EXACT, _MAP = "acc@1", "acc@1 + XM", "map"
_REACHED, _MAP_REACHED, _MAP_DISTINCT = "reached", "map of reached", "map of distinct"


class Pair(NamedTuple):
    """A mention, and the concepts, joined with "|", any of which is right."""

    mention: str
    gold: str


class SearchedNames:
    """The names of a dictionary, and BM25's candidates for each distinct mention."""

    def __init__(self, dictionary: Dictionary, mentions: Sequence[str]):
        self.names = NamesByConcept(dictionary)
        self.mentions = list(dict.fromkeys(mentions))

    @cached_property
    def candidates(self) -> dict[str, np.ndarray]:
        """The concepts of each mention, best first."""
        return {mention: self.names.candidates(mention) for mention in self.mentions}

    @cached_property
    def rows(self) -> np.ndarray:
        """The rows of all names that are candidates."""
        concepts = [one for found in self.candidates.values() for one in found.tolist()]
        return self.names.rows_of(sorted(set(concepts)))

    def precisions(self, measure: Measure, pairs: Sequence[Pair]) -> np.ndarray:
        """The average precision of each pair, float [U]; 0 where no gold concept is reached.

        Equal names are one candidate, which is right if a gold concept has it.
        """
        found = np.zeros(len(pairs))
        for place, (mention, gold) in enumerate(pairs):
            numbers = self.names.numbers(gold)
            if not set(numbers) & set(self.candidates[mention].tolist()):
                continue
            rows = self.names.rows_of(self.candidates[mention])
            strings, first = np.unique(self.names.strings[rows], return_index=True)
            wanted = np.unique(self.names.strings[self.names.rows_of(numbers)])
            (similarity,) = measure.similarities([mention], rows[first])
            found[place] = average_precision(similarity, np.isin(strings, wanted), len(wanted))
        return found

    def reached(self, pairs: Sequence[Pair]) -> np.ndarray:
        """Whether a gold concept of each pair is among the candidates, bool [U]."""
        return np.array(
            [
                bool(set(self.names.numbers(gold)) & set(self.candidates[mention].tolist()))
                for mention, gold in pairs
            ]
        )

    def right(self, baseline: Baseline, pairs: Sequence[Pair]) -> np.ndarray:
        """The chance that the nearest concept of each pair is a gold one, float [U].

        Of equally near concepts one is taken at random.
        """
        nearest: dict[str, set[int]] = {}
        found = np.zeros(len(pairs))
        for place, (mention, gold) in enumerate(pairs):
            if mention not in nearest:
                nearest[mention] = set(self.names.concepts[baseline.nearest(mention)].tolist())
            best = nearest[mention]
            found[place] = len(best.intersection(self.names.numbers(gold))) / max(1, len(best))
        return found


def _with_exact_matches(right: np.ndarray, gold: Sequence[str], exact: Sequence[str]) -> np.ndarray:
    """XM's answers, float [n]: the concept of a mention that is in the training data, else the
    given one.

    Args:
      right: float [n], of each mention the chance that its answer is right.
      gold: [n], concepts joined with "|".
      exact: [n], likewise, those that training annotations give the mention; "" for none.
    """
    taken = [
        float(bool(set(one.split("|")) & set(other.split("|")))) if other else value
        for value, one, other in zip(right.tolist(), gold, exact, strict=True)
    ]
    return np.array(taken)
