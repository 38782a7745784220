"""Normalization of mentions whose semantic group is given (QUAERO, MANTRA), scored as in MLNorm."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, Self

import numpy as np
import polars as pl

from coder_jax.encoding.vector_files import unit
from coder_jax.evaluation.benchmark import Benchmark, Found, Given, Options
from coder_jax.evaluation.normalization import (
    ANSWERS,
    MOST_RANKS,
    NormalizationOptions,
    TermRows,
    answer_columns,
    cleaned,
    distribution,
    write_prediction_table,
)
from coder_jax.evaluation.published import QUAERO, PublishedRow, rows_for
from coder_jax.evaluation.ranks import TIE_TOLERANCE, GoldCounts
from coder_jax.evaluation.record import (
    Answers,
    Distribution,
    EncoderRecord,
    EvaluationRecord,
    Unreachable,
)
from coder_jax.evaluation.results import (
    ABOUT,
    TOGETHER,
    Row,
    Table,
    first_same,
    missing_column,
    named,
    resampled,
    short_percent,
    summed,
)
from coder_jax.evaluation.vectors import Vectors, terms_only
from data_pipeline.dataset.dictionary import Dictionary, groups_of_concepts
from data_pipeline.files.tables import CONCEPT_SEPARATOR, content_hash, split_concepts
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput
from data_pipeline.sources.corpora import GROUPS, PARTS, QuaeroMention, is_quaero, read_quaero
from data_pipeline.terminology.cleaning import clean
from data_pipeline.terminology.retired_cuis import RetiredCuis
from data_pipeline.terminology.semantic_groups import ANY, group_number

# -------------------------------------------------------------------------------------------------
# A baseline from the training mentions: the CUI that a mention most often had.

_Key = tuple[str, str]  # semantic group, string


def _majority_cuis(
    groups: Sequence[str], texts: Sequence[str], gold: Sequence[Sequence[str]]
) -> dict[_Key, str]:
    """The most frequent CUI of each (group, string); ties go to the first.

    Args:
      groups, texts, gold: of the mentions to learn from. Strings are compared as MLNorm cleans
        them: case, accents and blanks around punctuation aside.
    """
    counts: dict[_Key, Counter[str]] = {}
    for key, cuis in zip(_keys_of(groups, texts), gold, strict=True):
        counts.setdefault(key, Counter()).update(cuis)
    return {key: counted.most_common(1)[0][0] for key, counted in counts.items() if counted}


def _keys_of(groups: Sequence[str], texts: Sequence[str]) -> list[_Key]:
    """The keys by which mentions are compared."""
    cleaned = clean(pl.Series(list(texts), dtype=pl.String), "mlnorm")
    return list(zip(groups, cleaned, strict=True))


# -------------------------------------------------------------------------------------------------
# The test sets of QUAERO as columns: mentions, gold, and the baseline's answers.

# Test set -> its year, and the sets that systems of that year could be trained on.
_TEST_SETS = {"dev": ("2015", ("train",)), "test": ("2016", ("train", "dev"))}

_Corpus = Mapping[tuple[str, str], Sequence[QuaeroMention]]


@dataclass(frozen=True)
class NotedMentions:
    """M mentions that have a note; `NotedMentions.without_note` others are left out, as papers do.

    Attributes:
      name: "EMEA 2015".
      documents, texts, groups: of each mention.
      noted, gold: its CUIs as noted, and as they are called today.
      without_note: how many mentions have none.
      majority: the CUI that the (group, string) mostly has in the training mentions, None where it
        is not among them; None for all where the corpus has no training set.
    """

    name: str
    documents: list[str]
    texts: list[str]
    groups: list[str]
    noted: list[tuple[str, ...]]
    gold: list[tuple[str, ...]]
    without_note: int
    majority: list[str | None] | None

    @property
    def same(self) -> np.ndarray:
        """Which mentions are the same, group and gold concepts included: `first_same`."""
        return first_same(self.texts, self.groups, self.gold)

    @property
    def mistyped(self) -> int:
        """How many gold values are not CUIs, such as C153057."""
        return sum(not _is_cui(cui) for cuis in self.noted for cui in cuis)

    def reachable(self, groups: Mapping[str, int]) -> list[tuple[str, ...]]:
        """The gold CUIs of each mention that can be answered.

        Args:
          groups: concept -> the groups that it is searched in, a bit set.
        """
        return [
            tuple(cui for cui in cuis if groups.get(cui, 0) >> group_number(group) & 1)
            for group, cuis in zip(self.groups, self.gold, strict=True)
        ]


def _is_cui(found: str) -> bool:
    return len(found) == 8 and found[0] == "C" and found[1:].isdecimal()


def _mention_sets(
    corpus: _Corpus, path: str, chosen: Sequence[str], successor: Mapping[str, str]
) -> list[NotedMentions]:
    """The test sets that a corpus has.

    Args:
      corpus: from `read_quaero`.
      path: of the corpus, for messages.
      chosen: groups whose mentions are taken; none: all.
      successor: retired CUI -> the one that stands for it.

    Raises:
      BadInput: neither dev nor test, or no mention of the chosen groups.
    """
    kept = {
        key: [one for one in mentions if not chosen or one.group in chosen]
        for key, mentions in corpus.items()
    }

    def columns(
        mentions: Sequence[QuaeroMention],
    ) -> tuple[list[str], list[str], list[tuple[str, ...]]]:
        noted = [one for one in mentions if one.note is not None]
        gold = [tuple(successor.get(cui, cui) for cui in one.cuis) for one in noted]
        return [one.group for one in noted], [one.text for one in noted], gold

    sets = []
    for test_set, (year, trained_on) in _TEST_SETS.items():
        training = [one for key in kept if key[0] in trained_on for one in kept[key]]
        known = _majority_cuis(*columns(training)) if training else None
        for part in PARTS:
            mentions = kept.get((test_set, part), [])
            groups, texts, gold = columns(mentions)
            if not gold:
                continue
            noted = [one for one in mentions if one.note is not None]
            sets.append(
                NotedMentions(
                    f"{part} {year}",
                    [one.document for one in noted],
                    texts,
                    groups,
                    [one.cuis for one in noted],
                    gold,
                    len(mentions) - len(noted),
                    None if known is None else [known.get(key) for key in _keys_of(groups, texts)],
                )
            )
    if not sets:
        asked = f" of the semantic groups {', '.join(chosen)}" if chosen else ""
        raise BadInput(
            f"{path}: found no mentions{asked} with a CUI in dev (2015) or test (2016), only in "
            f"{', '.join(sorted({key[0] for key in corpus}))}; expected one of these sets, as "
            "nothing is scored on training mentions"
        )
    return sets


# -------------------------------------------------------------------------------------------------
# The answers to mentions with given groups: as a record, and as a table.
#
# As in `normalization`, for any `GroupNormalizer`.

_NOTHING = Distribution(low=0.0, high=1.0, right=[0], wrong=[0])


@dataclass(frozen=True)
class _SetAnswers:
    """The answers to the mentions of a set.

    Attributes:
      answers: of each mention, distinct concepts with their scores, best first; maybe none.
      places: int [M], the place of the best gold CUI among them, from 1; 0 if none is there.
    """

    mentions: NotedMentions
    answers: list[list[tuple[str, float]]]
    places: np.ndarray

    @property
    def similarities(self) -> np.ndarray:
        """float [M], of the first answer; -inf for no answer."""
        return np.array([found[0][1] if found else -np.inf for found in self.answers])

    @property
    def ranks(self) -> GoldCounts:
        """The ranks of the gold, as `evaluate --compare` reads them."""
        none = np.zeros_like(self.places)
        return GoldCounts(np.maximum(self.places - 1, 0), none, none + 1, self.places > 0)


def _answers_of(scorer: _Scorer, mentions: NotedMentions) -> _SetAnswers:
    """The answers of a scorer's normalizer to the mentions of a set."""
    answers, places = [], []
    for text, group, gold in zip(mentions.texts, mentions.groups, mentions.gold, strict=True):
        row = scorer.place[text, group]
        best: dict[str, float] = {}
        for number, score in zip(scorer.numbers[row], scorer.similarities[row], strict=True):
            if number >= 0:
                best.setdefault(scorer.concepts[number], float(score))
        answers.append(list(best.items()))
        found = (place for place, concept in enumerate(best, 1) if concept in gold)
        places.append(next(found, 0))
    return _SetAnswers(mentions, answers, np.array(places))


def _described(scorer: _Scorer, pooling: str, folder: Path | None) -> Answers:
    """The answers as recorded (`record._Answers`); also writes their tables.

    Args:
      scorer: of the benchmark.
      pooling: of the encoder, for the names of files.
      folder: of the tables; None: none.

    Raises:
      BadInput: a table cannot be written.
    """
    from coder_jax.mapping.confidence import measure_cutoffs

    benchmark = scorer.benchmark
    sets = [_answers_of(scorer, one) for one in benchmark.sets]
    similarities = np.concatenate([one.similarities for one in sets])
    right = np.concatenate([one.places == 1 for one in sets])
    there = np.isfinite(similarities)
    digest = hashlib.sha256()
    for mentions in benchmark.sets:
        for text, group in zip(mentions.texts, mentions.groups, strict=True):
            digest.update(f"{mentions.name}\t{group}\t{text}\n".encode())
    files = {}
    for one in sets if folder else []:
        assert folder is not None
        table = _prediction_table(one, benchmark.dictionary)
        name = one.mentions.name
        files[name] = write_prediction_table(folder, (benchmark.name, name, pooling), table)
    few = len(right) <= MOST_RANKS
    return Answers(
        ranks={one.mentions.name: one.ranks.as_text(one.mentions.same) for one in sets}
        if few
        else None,
        order=digest.hexdigest(),
        cutoffs=measure_cutoffs(similarities, right).tables,
        languages="not told",
        similarities=distribution(similarities[there], right[there]) if any(there) else _NOTHING,
        predictions=files,
    )


def _prediction_table(answers: _SetAnswers, dictionary: Dictionary | None) -> pl.DataFrame:
    """A row for each mention: document, group, gold, its place, the first score, and all answers.

    `rank` is the place of the best gold CUI, empty if it is not among the answers that are looked
    at. Concepts are named by their preferred terms, where there is a dictionary.
    """

    def name(concept: str) -> str:
        known = dictionary is not None and concept in dictionary.concept_set
        return dictionary.about(concept).preferred if dictionary and known else ""

    def names(gold: Sequence[str]) -> str:
        return CONCEPT_SEPARATOR.join(filter(None, map(name, gold)))

    one = answers.mentions
    first = [found[0][1] if found else None for found in answers.answers]
    columns: dict[str, Any] = {
        "document": one.documents,
        "mention": one.texts,
        "semantic_group": one.groups,
        "gold": [CONCEPT_SEPARATOR.join(gold) for gold in one.gold],
        "gold_name": [names(gold) for gold in one.gold],
        "rank": answers.places,
        "right": np.where(answers.places == 1, "yes", "no"),
        "similarity": pl.Series(first, dtype=pl.Float32),
    }
    shown = [
        [(concept, name(concept), score) for concept, score in found[:ANSWERS]]
        for found in answers.answers
    ]
    table = cleaned(pl.DataFrame(columns | answer_columns(shown)))
    return table.with_columns(pl.when(pl.col("rank") > 0).then(pl.col("rank")))


# -------------------------------------------------------------------------------------------------
# Precision, recall and F1 of one answer per mention, counted as by MLNorm's code or as by BRATEval.
#
# Mentions may have several gold CUIs, and an answer may be missing, below a threshold. A counting
# gives each mention three numbers: right answers, answers and gold CUIs; scores are ratios of sums.
# Gold CUIs that the normalizer does not know are never right and stay in the gold.

MEASURES = ("precision", "recall", "f1")
_Counting = Callable[[Sequence[Sequence[str]], Sequence[str | None]], np.ndarray]


def _count_items(gold: Sequence[Sequence[str]], answers: Sequence[str | None]) -> np.ndarray:
    """Counts as MLNorm's code: each gold CUI of a mention counts as a mention with the same answer.

    So of a mention with two gold CUIs, an answer that is one of them is right once and wrong once.

    Args:
      gold: of M mentions, one CUI or more; mentions without any are to be left out before.
      answers: None for no answer.

    Returns:
      int [M, 3]: items that are right, items that are answered, items.
    """
    rows = [
        (list(cuis).count(str(answer)), 0 if answer is None else len(cuis), len(cuis))
        for cuis, answer in zip(gold, answers, strict=True)
    ]
    return np.array(rows, np.int64).reshape(-1, 3)


def _count_brateval(gold: Sequence[Sequence[str]], answers: Sequence[str | None]) -> np.ndarray:
    """Counts as BRATEval for CLEF eHealth 2015 (CompareNotesEHealth) with exact_match true.

    Per CUI: a right answer is one true positive, a wrong one one false positive, each gold CUI that
    is not the answer one false negative; but all of a mention without an answer are one. The
    reference is its first argument.

    Args, Returns:
      as `_count_items`: true positives, with false positives, with false negatives.
    """
    rows = []
    for cuis, answer in zip(gold, answers, strict=True):
        if answer is None:
            rows.append((0, 0, 1))
            continue
        right = int(answer in cuis)
        rows.append((right, 1, right + sum(cui != answer for cui in cuis)))
    return np.array(rows, np.int64).reshape(-1, 3)


def _count_brateval_any(gold: Sequence[Sequence[str]], answers: Sequence[str | None]) -> np.ndarray:
    """Counts as BRATEval with exact_match false: one gold CUI in common counts as all."""
    rows = [
        (int(answer in cuis), int(answer is not None), 1)
        for cuis, answer in zip(gold, answers, strict=True)
    ]
    return np.array(rows, np.int64).reshape(-1, 3)


_COUNTINGS: dict[str, _Counting] = {
    "mlnorm": _count_items,
    "brateval": _count_brateval,
    "brateval-any": _count_brateval_any,
}


def measures(totals: np.ndarray) -> np.ndarray:
    """MEASURES [..., 3] of sums [..., 3] of right answers, answers and gold.

    What has nothing to divide by is 0; all three are 1 where there are neither answers nor gold.
    """
    right, answered, gold = np.moveaxis(np.asarray(totals, float), -1, 0)
    nothing = (answered == 0) & (gold == 0)
    precision = np.where(nothing, 1.0, right / np.maximum(answered, 1))
    recall = np.where(nothing, 1.0, right / np.maximum(gold, 1))
    f1 = np.where(nothing, 1.0, 2 * right / np.maximum(answered + gold, 1))
    return np.stack([precision, recall, f1], axis=-1)


def _measures_drawn(distinct_U4: np.ndarray, drawn_BU: np.ndarray) -> np.ndarray:
    """The `results.Statistic` of MEASURES [B, 3], of mentions with their counts (`summed`)."""
    return measures((drawn_BU @ distinct_U4)[:, :3])


def _mean_reciprocal_rank(gold: Sequence[Sequence[str]], ranked: Sequence[Sequence[str]]) -> float:
    """The mean, over all gold CUIs of all mentions, of 1 / its place among the answers.

    It is 0 for a gold CUI that is not among them.

    Args:
      gold: of M mentions.
      ranked: the distinct answers to each, best first.
    """
    found = [
        1 / (answers.index(cui) + 1) if cui in answers else 0.0
        for cuis, answers in zip(gold, map(list, ranked), strict=True)
        for cui in cuis
    ]
    return float(np.mean(found)) if found else 0.0


def _accuracy_at(k: int, gold: Sequence[Sequence[str]], ranked: Sequence[Sequence[str]]) -> float:
    """The share of mentions with a gold CUI among the first k answers."""
    hits = [
        not set(cuis).isdisjoint(answers[:k]) for cuis, answers in zip(gold, ranked, strict=True)
    ]
    return float(np.mean(hits)) if hits else 0.0


# -------------------------------------------------------------------------------------------------
# The benchmark: mentions with a given semantic group are normalized to one CUI each.
#
# The task of MLNorm (Wajsbürt et al. 2021): places and groups of mentions are given, the CUI is
# asked for. The corpora are `Quaero` and, with --given-groups, `mantra._GroupedMantra`. Answers are
# searched among the concepts of the mention's group alone. Whatever is a `GroupNormalizer` is
# scored: `score` makes one of an encoder, by nearest terms; `score_normalizer` takes any other.


@dataclass(frozen=True, kw_only=True)
class _GroupOptions(Options):
    """Options of mentions whose semantic group is given."""

    threshold: Annotated[
        tuple[float, ...],
        Flag(
            "also score with no answer below these cosines (or probabilities, of a classifier)",
            "SCORE",
            heading="mentions with semantic groups",
        ),
    ] = ()
    semantic_groups: Annotated[
        tuple[str, ...],
        Flag(
            f"score mentions of these groups alone, and search theirs ({', '.join(GROUPS)})",
            "GROUP",
            choices=GROUPS,
        ),
    ] = ()
    count_as: Annotated[
        str,
        Flag(
            "how mentions with several gold CUIs count: mlnorm (its code: each CUI is a mention), "
            "brateval (CLEF's tool), brateval-any (the tool, one CUI in common is enough) "
            "(default: mlnorm)",
            choices=tuple(_COUNTINGS),
        ),
    ] = "mlnorm"


@dataclass(frozen=True)
class GroupedMentions(Benchmark):
    """Sets of mentions, each with a semantic group and gold CUIs.

    Attributes:
      sets: their mentions and gold CUIs, in the CUIs of today where a list of retired ones is
        given, of which `retired` stand in for a retired one.
      dictionary: the terms of concepts that have a group of some mention; None: no dictionary.
      whole: the dictionary with all its terms.
      groups: concept -> its semantic groups as a bit set; of the dictionary.
      chosen: the groups whose mentions are scored; none: all.
    """

    name: str
    path: str
    sets: list[NotedMentions]
    content_hash: str
    dictionary: Dictionary | None = None
    whole: Dictionary | None = None
    groups: dict[str, int] | None = None
    chosen: tuple[str, ...] = ()
    retired: int = 0
    retired_cuis: RetiredCuis | None = None

    kind: ClassVar[str] = "semantic group given"
    published: ClassVar[tuple[PublishedRow, ...]] = QUAERO

    @classmethod
    def of_sets(cls, given: Given, sets: list[NotedMentions]) -> Self:
        """The benchmark of some sets, with gold in current CUIs.

        BadInput for a dictionary that does not fit, see `searching`.
        """
        retired = given.retired_cuis
        successor = retired.successor if retired else {}
        rows = (
            (one.name, *row, " ".join(cuis))
            for one in sets
            for *row, cuis in zip(one.documents, one.groups, one.texts, one.noted, strict=True)
        )
        benchmark = cls(
            given.name,
            str(given.path),
            sets,
            content_hash(rows),
            chosen=chosen_groups(given),
            retired=sum(cui in successor for one in sets for cuis in one.noted for cui in cuis),
            retired_cuis=retired,
        )
        return benchmark if given.dictionary is None else benchmark.searching(given.dictionary)

    def searching(self, dictionary: Dictionary) -> Self:
        """The benchmark with its search space: the dictionary's terms of the mentions' groups.

        BadInput for a dictionary without semantic groups, or that holds no gold CUI in its group.
        """
        if self.retired_cuis is not None:
            dictionary = dictionary.with_successors(self.retired_cuis)
        asked = 0
        for group in {group for one in self.sets for group in one.groups}:
            asked |= 1 << group_number(group)
        bits = {c: b for c, b in groups_of_concepts(dictionary).items() if b & asked}
        kept = [
            row
            for row, joined in enumerate(dictionary.concepts)
            if not bits.keys().isdisjoint(split_concepts(joined))
        ]
        narrowed = replace(
            dictionary,
            terms=[dictionary.terms[row] for row in kept],
            concepts=[
                "|".join(c for c in split_concepts(dictionary.concepts[row]) if c in bits)
                for row in kept
            ],
            languages=dictionary.languages and [dictionary.languages[row] for row in kept],
            vocabularies=dictionary.vocabularies and [dictionary.vocabularies[row] for row in kept],
        )
        if not any(any(one.reachable(bits)) for one in self.sets):
            example = self.sets[0]
            raise BadInput(
                f"{self.path}: found none of its gold CUIs (such as {example.gold[0][0]!r} of "
                f"{example.texts[0]!r}, {example.groups[0]}) in the dictionary {dictionary.source} "
                f"(such as {dictionary.concepts[0]!r}); expected UMLS CUIs, and concepts of the "
                "mentions' semantic groups"
            )
        return replace(self, dictionary=narrowed, whole=dictionary, groups=bits)

    def keys(self, keyed_by: str) -> list[str]:
        """The distinct strings of mentions and terms; BadInput for none, or concept vectors."""
        terms_only(keyed_by, self.path)
        sides = [*(one.texts for one in self.sets), self._searched().terms]
        return list(dict.fromkeys(chain.from_iterable(sides)))

    def dictionaries(self) -> list[Dictionary]:
        searched, whole = self._searched(), self.whole
        # Where most of a dictionary is searched, all its vectors are made: other sets share them.
        return [whole if whole and len(whole.terms) < 2 * len(searched.terms) else searched]

    def _searched(self) -> Dictionary:
        if self.dictionary is None:
            raise BadInput(
                f"{self.path}: found mentions with semantic groups and no dictionary to search; "
                "give --dictionary with a dataset folder, the MRCONSO.RRF of a release with "
                "MRSTY.RRF beside it, or a table with the columns term, concept and semantic_type"
            )
        return self.dictionary

    def score(self, vectors: Vectors, encoder: EncoderRecord, options: Options) -> EvaluationRecord:
        missing = int((~vectors.known(self.keys(vectors.keyed_by))).sum())
        nearest = _NearestTerms(vectors.encode, self._searched(), self.groups or {})
        return self.score_normalizer(nearest, encoder, options, missing=missing)

    def score_normalizer(
        self,
        normalizer: GroupNormalizer,
        encoder: EncoderRecord,
        options: Options,
        *,
        missing: int = 0,
        similarity: str = "cosine of the nearest term",
    ) -> EvaluationRecord:
        """The record of any normalizer's answers, for instance a classifier's.

        Args:
          normalizer: asked once for each distinct mention and group.
          encoder: for the record.
          options: threshold, count_as, seed, predictions.
          missing: strings that have no vector.
          similarity: what its scores are.
        """
        chosen = options.of(_GroupOptions)
        scorer = _Scorer(self, normalizer, _COUNTINGS[chosen.count_as], chosen.threshold)
        record = scorer.record(encoder, options, missing=missing, similarity=similarity)
        answers = _described(scorer, encoder.pooling, options.of(NormalizationOptions).predictions)
        return replace(record, answers=answers)

    @classmethod
    def table(cls, records: Sequence[EvaluationRecord], options: Options) -> Table:
        """A row for each set and threshold, and the notes of `about` below."""
        return _table(records, cls.published)


def chosen_groups(given: Given) -> tuple[str, ...]:
    """The groups whose mentions are evaluated; all if none is given."""
    return tuple(dict.fromkeys(given.options.of(_GroupOptions).semantic_groups))


# -------------------------------------------------------------------------------------------------
# The QUAERO benchmark: French drug leaflets and titles, the test sets of CLEF eHealth 2015 and
# 2016.


@dataclass(frozen=True)
class Quaero(GroupedMentions):
    """The test sets that are there, EMEA and MEDLINE apart."""

    formats: ClassVar[str] = (
        "QUAERO:   the folder QUAERO_FrenchMed with its BRAT files, or a .tar.gz or .zip of it"
    )
    about: ClassVar[str] = """\
QUAERO    the folder QUAERO_FrenchMed with its BRAT files, or a .tar.gz or .zip of it; searched in
          the terms of --dictionary whose concepts have the mention's semantic group, which is
          given. Precision, recall and F1 of one CUI per mention, MRR and acc@1, on EMEA and MEDLINE
          of 2015 (dev) and 2016 (test). Rows beside them: gold that the dictionary holds alone, and
          the majority CUI of the training mentions.\
"""
    options: ClassVar[type[Options]] = _GroupOptions

    @classmethod
    def claims(cls, found: Found) -> bool:
        return is_quaero(found.path)

    @classmethod
    def read(cls, given: Given) -> Self:
        successor = given.retired_cuis.successor if given.retired_cuis else {}
        corpus = read_quaero(given.path)
        sets = _mention_sets(corpus, str(given.path), chosen_groups(given), successor)
        return cls.of_sets(given, sets)


# -------------------------------------------------------------------------------------------------
# Answers to mentions with given groups, and their scores.

_RANKED = 100  # answers of each mention that MRR looks at
_MEANT = (*MEASURES, "mrr", "acc@1", "acc@5")

_Gold = Sequence[tuple[str, ...]]
_Ranked = Sequence[Sequence[str]]


class _Scorer:
    """Scores the answers of one normalizer on one benchmark."""

    def __init__(
        self,
        benchmark: GroupedMentions,
        normalizer: GroupNormalizer,
        counting: _Counting,
        thresholds: Sequence[float],
    ):
        self.benchmark, self.counting, self.thresholds = benchmark, counting, list(thresholds)
        retired = benchmark.retired_cuis
        now = retired.successor if retired else {}
        # In current CUIs, as the gold is; a concept merged from two has the groups of both.
        self.concepts = [now.get(one, one) for one in normalizer.concepts]
        self.reach: dict[str, int] = {}
        for concept, bits in zip(self.concepts, normalizer.groups.tolist(), strict=True):
            self.reach[concept] = self.reach.get(concept, 0) | bits
        pairs = [pair for one in benchmark.sets for pair in zip(one.texts, one.groups, strict=True)]
        self.place = {pair: row for row, pair in enumerate(dict.fromkeys(pairs))}
        texts, groups = zip(*self.place, strict=True)
        self.numbers, self.similarities = normalizer.nearest(texts, groups, _RANKED)

    def record(
        self, encoder: EncoderRecord, options: Options, *, missing: int, similarity: str
    ) -> EvaluationRecord:
        """The record; its scores are means over the sets, which are its folds."""
        rng = np.random.default_rng(options.seed)
        benchmark, sets = self.benchmark, self.benchmark.sets
        folds, drawn = {}, []
        for one in sets:
            folds[one.name], of_set = self.fold(one, rng)
            drawn.append(of_set)

        def mean(part: str) -> dict[str, float]:
            scores = [fold[part] for fold in folds.values() if fold[part]]
            return (
                {name: float(np.mean([one[name] for one in scores])) for name in _MEANT}
                if scores
                else {}
            )

        names = next(iter(folds.values()))["counts"]
        counts = {name: sum(fold["counts"][name] for fold in folds.values()) for name in names}
        dictionary = benchmark.dictionary
        retired = benchmark.retired_cuis
        return EvaluationRecord(
            benchmark=benchmark.name,
            kind=benchmark.kind,
            path=benchmark.path,
            content_hash=benchmark.content_hash,
            scores=dict(mean("scores")),
            intervals=named(MEASURES, np.mean(drawn, axis=0)),
            counts={**counts, "retired": benchmark.retired, "missing": missing, "folds": len(sets)},
            unreachable=Unreachable(
                mentions=counts["unreachable"],
                share=counts["unreachable"] / counts["gold"],
                scores_of_reachable={**mean("reachable")},
            ),
            dictionary=dictionary.description if dictionary else None,
            scoring={
                "similarity": similarity,
                "concept": "the best one of the mention's semantic group, which is given",
                "semantic_groups": list(benchmark.chosen) or "all",
                "count_as": options.of(_GroupOptions).count_as,
                "threshold": "none; folds have those that were asked for",
                "mrr": f"over gold CUIs, 0 beyond {_RANKED} answers; no threshold",
                "acc@k": "mentions one of whose gold CUIs is among k concepts; no threshold",
                "ties": "the concept that comes first in the dictionary",
                "unreachable": "gold CUIs that no concept of their group has count as wrong",
                "without_note": "mentions without a gold CUI are left out",
                "mistyped": "gold that is no CUI stays, and is wrong",
                "retired_cuis": retired and retired.description,
                "majority": "the CUI that the (group, string) mostly has in train (2016: and dev)",
                "folds": "unweighted mean over sets",
                "intervals": f"{ABOUT}, mentions with their groups drawn anew within their set; "
                + TOGETHER,
            },
            folds=folds,
            encoder=encoder,
        )

    def fold(
        self, one: NotedMentions, rng: np.random.Generator
    ) -> tuple[dict[str, Any], np.ndarray]:
        """The entry of a set in the record, and MEASURES of resamples of its mentions."""
        rows = [self.place[pair] for pair in zip(one.texts, one.groups, strict=True)]
        numbers, similarities = self.numbers[rows], self.similarities[rows]
        ranked = [self.named(row) for row in numbers]
        kept = one.reachable(self.reach)
        left = [row for row, cuis in enumerate(kept) if cuis]
        of_left = ([kept[row] for row in left], [ranked[row] for row in left])

        def scored(threshold: float = -np.inf) -> dict[str, dict[str, float]]:
            return {
                "scores": self.scores(one.gold, ranked, similarities, threshold),
                "reachable": self.scores(*of_left, similarities[left], threshold),
            }

        gold = sum(map(len, one.gold))
        counted = self.counting(one.gold, _answers(ranked, similarities))
        first, second = similarities[:, 0], similarities[:, 1]
        tied = np.isfinite(first) & (second >= first - np.float32(TIE_TOLERANCE))
        fold: dict[str, Any] = {
            **scored(),
            "thresholds": {str(threshold): scored(threshold) for threshold in self.thresholds},
            "majority": self.majority(one, one.gold),
            "majority_of_reachable": self.majority(one, kept),
            "counts": {
                "mentions": len(one.gold),
                "gold": gold,
                "unreachable": gold - sum(map(len, kept)),
                "mistyped": one.mistyped,
                "without_note": one.without_note,
                "tied": int(tied.sum()),
            },
        }
        drawn = resampled(summed(counted, one.same), _measures_drawn, rng)
        fold["intervals"] = named(MEASURES, drawn)
        return fold, drawn

    def named(self, numbers: np.ndarray) -> list[str]:
        """The distinct concepts of a row of answers, in current CUIs."""
        return list(dict.fromkeys(self.concepts[number] for number in numbers if number >= 0))

    def scores(
        self,
        gold: _Gold,
        ranked: _Ranked,
        similarities: np.ndarray,
        threshold: float,
    ) -> dict[str, float]:
        """MEANT of some mentions (none for no mentions). A threshold changes only P, R and F1."""
        if not gold:
            return {}
        counted = self.counting(gold, _answers(ranked, similarities, threshold))
        found = dict(zip(MEASURES, measures(counted.sum(axis=0)).tolist(), strict=True))
        accuracies = {f"acc@{k}": _accuracy_at(k, gold, ranked) for k in (1, 5)}
        return found | {"mrr": _mean_reciprocal_rank(gold, ranked)} | accuracies

    def majority(self, one: NotedMentions, gold: _Gold) -> Mapping[str, float]:
        """MEASURES of the majority-CUI baseline; none without training mentions.

        Mentions that have no gold are left out.
        """
        rows = [row for row, cuis in enumerate(gold) if cuis]
        if one.majority is None or not rows:
            return {}
        answered = [one.majority[row] for row in rows]
        counted = self.counting([gold[row] for row in rows], answered)
        return dict(zip(MEASURES, measures(counted.sum(axis=0)).tolist(), strict=True))


def _answers(
    ranked: _Ranked, similarities: np.ndarray, threshold: float = -np.inf
) -> list[str | None]:
    """The first answer to each mention, None where there is none or its score is too low."""
    return [
        found[0] if found and score >= threshold else None
        for found, score in zip(ranked, similarities[:, 0], strict=True)
    ]


# -------------------------------------------------------------------------------------------------
# The result table: encoders, baseline and papers' rows for each set.

_SHOWN = (*MEASURES, "mrr", "acc@1")
_RESTRICTED = "restricted to reachable gold"


def _table(records: Sequence[EvaluationRecord], published: Sequence[PublishedRow]) -> Table:
    """Scores in percent, with half the width of their intervals.

    The papers' rows stand beside results on all groups: they are of the whole UMLS of 2014, and a
    smaller dictionary cannot reach them.
    """
    missing = missing_column(records)
    header = [
        "semantic group given",
        "pooling",
        "gold",
        "unreachable",
        "threshold",
        "precision",
        "recall",
        "F1",
    ]
    header += ["MRR", "acc@1", "tied", *missing]
    rows = []
    sets = dict.fromkeys((r.benchmark, name) for r in records for name in r.folds)
    for benchmark, name in sets:
        own = [r for r in records if r.benchmark == benchmark and name in r.folds]
        for record in own:
            rows += [
                Row(_filled(cells, len(header)), record.encoder.model)
                for cells in _cells(record, name, missing)
            ]
        rows += list(_majority(own[0], name, len(header)))
        if own[0].scoring["semantic_groups"] == "all":
            rows += list(_of_papers(benchmark, name, published, len(header)))
    return header, rows


def _cells(record: EvaluationRecord, name: str, missing: Sequence[str]) -> Iterator[list[str]]:
    """The rows of a set: without a threshold, then for each; with all gold, then with reachable
    gold.
    """
    fold = record.folds[name]
    counts = fold["counts"]
    label, pooling = _label(record, name), record.encoder.pooling
    for threshold, found in {"": fold, **fold["thresholds"]}.items():
        sure = {} if threshold else fold["intervals"]
        scores = [short_percent(found["scores"][one], sure.get(one)) for one in _SHOWN]
        rest = [f"{counts['tied']:,}", *(f"{record.counts[one]:,}" for one in missing)]
        out = counts["unreachable"]
        yield [
            label,
            pooling,
            f"{counts['gold']:,}",
            f"{out:,}",
            threshold or "none",
            *scores,
            *rest,
        ]
        if out and found["reachable"]:
            scores = [short_percent(found["reachable"][one]) for one in _SHOWN]
            left = f"{counts['gold'] - out:,}"
            yield [
                f"{label}, {_RESTRICTED}",
                pooling,
                left,
                "0",
                threshold or "none",
                *scores,
            ]


def _label(record: EvaluationRecord, name: str) -> str:
    groups = record.scoring["semantic_groups"]
    return f"{record.benchmark} {name}" + ("" if groups == "all" else f", {' '.join(groups)}")


def _majority(record: EvaluationRecord, name: str, width: int) -> Iterator[Row]:
    fold = record.folds[name]
    counts = fold["counts"]
    label = f"{_label(record, name)}, majority CUI of training mentions"
    rows = [(label, counts["gold"], fold["majority"])]
    if counts["unreachable"]:
        left = counts["gold"] - counts["unreachable"]
        rows.append((f"{label}, {_RESTRICTED}", left, fold["majority_of_reachable"]))
    for label, gold, found in rows:
        if found:
            scores = [short_percent(found[one]) for one in MEASURES]
            yield Row(_filled([label, "", f"{gold:,}", "", "", *scores], width), "majority CUI")


def _of_papers(
    benchmark: str, name: str, published: Sequence[PublishedRow], width: int
) -> Iterator[Row]:
    for row in rows_for(benchmark, published):
        values = [row.scores.get(f"{name} {one}") for one in MEASURES]
        if any(value is not None for value in values):
            shown = ["" if value is None else f"{value:.1f}" for value in values]
            cells = [f"{benchmark} {name}", row.pooling, "", "", "", *shown]
            yield Row(_filled(cells, width), row.encoder, f"{row.paper}, table {row.table}")


def _filled(cells: list[str], width: int) -> list[str]:
    return cells + [""] * (width - len(cells))


# -------------------------------------------------------------------------------------------------
# The protocol of what answers mentions with given groups, and its version by nearest term.
#
# A classifier over concepts and a plain encoder are scored alike: each gives the best concepts of
# the group, and how good each is.


class GroupNormalizer(Protocol):
    """Answers mentions with concepts of their semantic group.

    Attributes:
      concepts: identifiers of the concepts, such as CUIs.
      groups: uint16 [C], the semantic groups of each as `store.groups_of` has them.
    """

    @property
    def concepts(self) -> Sequence[str]: ...
    @property
    def groups(self) -> np.ndarray: ...

    def nearest(
        self, mentions: Sequence[str], groups: Sequence[str | None], k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k best concepts for each mention among those of its group.

        Args:
          mentions: M strings.
          groups: of each mention, such as "DISO"; None: all concepts.
          k: at least 1.

        Returns:
          (int64 [M, k], numbers of distinct concepts, best first, -1 where there are fewer;
          float32 [M, k], how good each is: a probability or a cosine, -inf where there is none).

        Raises:
          BadInput: an unknown group.
        """


class _NearestTerms:
    """The concepts with the nearest terms, exact; ties go to the dictionary's first.

    Attributes:
      concepts, groups: see `GroupNormalizer`; concepts are in the order of their first terms.
    """

    def __init__(
        self,
        encode: Callable[[Sequence[str]], np.ndarray],
        dictionary: Dictionary,
        groups: Mapping[str, int],
    ):
        """
        Args:
          encode: strings -> float [n, D], for instance `TermEncoder.encode`; it is asked for the
            terms of a group one block at a time.
          dictionary: its terms, each of one concept or more.
          groups: the semantic groups of concepts as bit sets, from `groups_of_concepts`.
        """
        self.encode = encode
        pairs = [(term, concept) for _, term, concept in dictionary.pairs()]
        number_of: dict[str, int] = {}
        numbers = [number_of.setdefault(concept, len(number_of)) for _, concept in pairs]
        self.terms = [term for term, _ in pairs]
        self.concepts = list(number_of)
        self.groups = np.array([groups.get(one, 1 << ANY) for one in self.concepts], np.uint16)
        self.concept_of_pair, self.number_of = np.array(numbers, np.int64), number_of

    def nearest(
        self, mentions: Sequence[str], groups: Sequence[str | None], k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        from coder_jax.encoding.encoder import EncodedDictionary, nearest_concepts

        numbers = np.full((len(mentions), k), -1, np.int64)
        scores = np.full((len(mentions), k), -np.inf, np.float32)
        group_of = np.array([ANY if one is None else group_number(one) for one in groups], int)
        for group in np.unique(group_of).tolist():
            is_in = (self.groups >> group & 1).astype(bool)
            pairs = np.flatnonzero(is_in[self.concept_of_pair])
            if not len(pairs):
                continue
            asked = np.flatnonzero(group_of == group).tolist()
            queries = unit(self.encode([mentions[row] for row in asked]), "mention vectors")
            terms = [self.terms[pair] for pair in pairs]
            concepts = [self.concepts[number] for number in self.concept_of_pair[pairs]]
            vectors = TermRows(self.encode, terms, queries.shape[1])
            searched = EncodedDictionary(terms, concepts, vectors)
            most = min(k, int(is_in.sum()))
            found = nearest_concepts(queries, searched, most)
            for row, matches in zip(asked, found, strict=True):
                numbers[row, :most] = [self.number_of[match.concept] for match in matches]
                scores[row, :most] = [match.similarity for match in matches]
        return numbers, scores
