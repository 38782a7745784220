"""Mentions with one or several gold concepts: the benchmark, its scores and baselines."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist

from coder_jax.evaluation.benchmark import Benchmark, Found, Given, Options
from coder_jax.evaluation.published import MULTIPLE_NAMES, PublishedRow
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.results import (
    ABOUT,
    TOGETHER,
    Row,
    Table,
    first_same,
    intervals_of_means,
    one_decimal,
    percent,
    published_rows,
)
from coder_jax.evaluation.vectors import Vectors, terms_only
from coder_jax.mapping.confidence import likeliest
from data_pipeline import process
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.dataset.mentions import MentionDataset, MentionSplit, open_mentions
from data_pipeline.files.identity import MENTIONS, is_of_kind
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput, progress_bar

# -------------------------------------------------------------------------------------------------
# Scores of answers that are sets: accuracy, recall of candidates, accuracy of the set's size.
#
# As Liang, Xue and Ruan count them (arXiv 2101.09101, section 4.2 and tables 2, 7 and 8), M
# mentions of which each has a set of gold concepts. A gold concept that the dictionary lacks is -1
# in it: no answer has that, so its mention counts as wrong.

_UNI, _MULTI, _TOTAL = "uni", "multi", "total"
_MOST = 3  # names that a class of their number tells apart: 3 stands for 3 or more


class Share(NamedTuple):
    """A number of right cases, out of a total."""

    right: int
    of: int

    @property
    def value(self) -> float | None:
        """The share, in [0, 1]; None if the total is 0."""
        return self.right / self.of if self.of else None


def accuracy(
    answers: Sequence[Collection[int]], gold: Sequence[Collection[int]]
) -> dict[str, Share]:
    """How many mentions have exactly their gold as answer, whatever its order.

    Args:
      answers: concepts, [M].
      gold: [M]; it decides the group of a mention, not the answer.

    Returns:
      "uni" of mentions with one gold concept, "multi" of the others, "total" of all.
    """
    right = _are_right(answers, gold)
    is_uni = np.array([len(one) == 1 for one in gold], bool)
    groups = {_UNI: is_uni, _MULTI: ~is_uni, _TOTAL: np.ones(len(gold), bool)}
    return {name: Share(int(right[of].sum()), int(of.sum())) for name, of in groups.items()}


def _are_right(answers: Iterable[Collection[int]], gold: Iterable[Collection[int]]) -> np.ndarray:
    pairs = zip(answers, gold, strict=True)
    return np.array([-1 not in one and set(given) == set(one) for given, one in pairs], bool)


def recall_at_k(
    ranked: Sequence[Sequence[int]], gold: Sequence[Collection[int]], ks: Iterable[int]
) -> dict[int, Share]:
    """For each k, how many mentions have *all* their gold among their first k candidates.

    Args:
      ranked: the candidates of each mention, concepts, best first, each once (`distinct`), [M].
      gold: [M].
      ks: numbers of candidates.
    """
    found = {}
    for k in ks:
        pairs = zip(ranked, gold, strict=True)
        right = sum(-1 not in one and set(one) <= set(candidates[:k]) for candidates, one in pairs)
        found[k] = Share(right, len(gold))
    return found


def _shares(
    rows: Sequence[Sequence[int]], counts: Sequence[int], gold: Sequence[Collection[int]]
) -> dict[str, Share]:
    """`accuracy` of the first `counts` candidates of each row, and `recall_at_k` as "recall@k"."""
    answers = [row[:count] for row, count in zip(rows, counts, strict=True)]
    most = min(map(len, rows), default=0)
    found = recall_at_k(rows, gold, [k for k in _RECALL_AT if k <= most])
    return accuracy(answers, gold) | {f"recall@{k}": share for k, share in found.items()}


def _intervals_of_shares(
    of_each: Sequence[Mapping[str, Share]], same: np.ndarray
) -> dict[str, list[float]]:
    """The bootstrap interval of each share that is of some mentions, [low, high].

    Those that a share is of are drawn anew; shares of other mentions, such as uni, are of theirs.

    Args:
      of_each: the shares of each mention alone.
      same: which mentions are the same (`first_same`), and drawn together.
    """
    found: dict[str, list[float]] = {}
    for name in of_each[0] if of_each else ():
        counted = np.array([one[name].of > 0 for one in of_each])
        right = np.array([one[name].right for one in of_each])[counted]
        if len(right):
            found |= intervals_of_means([{name: right}], same=[same[counted]])
    return found


def _distinct(names_MK: np.ndarray, name_concepts: np.ndarray) -> list[list[int]]:
    """The distinct concepts of ranked names, best first, each by its best name.

    Args:
      names_MK: int [M, K], rows of names.
      name_concepts: int [N], the concept of each name.
    """
    return [list(dict.fromkeys(row)) for row in name_concepts[names_MK].tolist()]


class NumberAccuracy(NamedTuple):
    """How often the predicted number of concepts is right.

    Attributes:
      uni: of the mentions with one gold concept.
      multi: the unweighted mean of the shares of those with exactly two and with exactly three.
      total: of all mentions; with four or more none is right, as no class says that number.
    """

    uni: float | None
    multi: float | None
    total: float | None


def number_accuracy(numbers: Sequence[int], gold_numbers: Sequence[int]) -> NumberAccuracy:
    """The accuracy of predicted numbers of names (table 8; what it counts, its values imply).

    Args:
      numbers: predicted, 1, 2 or 3, which stands for 3 or more, [M].
      gold_numbers: how many gold concepts each mention has, [M].
    """
    predicted = np.minimum(np.array(numbers, np.int64), _MOST)
    actual = np.array(gold_numbers, np.int64)
    right = predicted == actual

    def share(of: np.ndarray) -> float | None:
        return Share(int(right[of].sum()), int(of.sum())).value

    several = [share(actual == number) for number in range(2, _MOST + 1)]
    known = [one for one in several if one is not None]
    return NumberAccuracy(
        uni=share(actual == 1),
        multi=sum(known) / len(known) if known else None,
        total=share(np.ones(len(actual), bool)),
    )


# -------------------------------------------------------------------------------------------------
# Baselines without an encoder: by letters, and by the training mentions.

_DISTANCES_AT_ONCE = 1 << 24
_PLUS = ("+", "\uff0b")  # also as wide as a Chinese character


def _nearest_by_tf_idf(
    mentions: Sequence[str], names: Sequence[str], k: int, longest: int = 1
) -> np.ndarray:
    """int64 [M, k]: the names most like each mention by TF-IDF of their characters, best first.

    With `longest` 1 it is the paper's TF-IDF (table 2: 49.3, 46.8); 2 counts pairs, too.
    """
    from data_pipeline.terminology.tf_idf import CharacterTfIdf

    return CharacterTfIdf(names, ngram_range=(1, longest)).nearest(mentions, k)[1]


def _nearest_by_edits(mentions: Sequence[str], names: Sequence[str], k: int) -> np.ndarray:
    """int64 [M, k]: the names with the fewest edits per character of the longer string.

    Of equally near ones the first comes first.
    """
    found, at_once = [np.zeros((0, k), np.int64)], max(1, _DISTANCES_AT_ONCE // len(names))
    parts = range(0, len(mentions), at_once)
    for first in progress_bar(parts, desc="edit distances", unit="block"):
        process.poll()
        some = mentions[first : first + at_once]
        distances = cdist(
            some, names, scorer=Levenshtein.normalized_distance, dtype=np.float64, workers=-1
        )
        found.append(np.argsort(distances, axis=1, kind="stable")[:, :k])
    return np.concatenate(found)


def _answers_of_nearest(
    mentions: Sequence[str],
    names: Sequence[str],
    name_concepts: np.ndarray,
    training_mentions: Sequence[str],
    training_gold: Sequence[Collection[int]],
) -> list[frozenset[int]]:
    """The gold set of the most similar training mention, or the concept of the most similar name.

    By TF-IDF of characters and pairs of them; of equal ones a training mention is taken.

    Args:
      mentions: [M].
      names, name_concepts: of the dictionary, [N].
      training_mentions, training_gold: [T].
    """
    nearest = _nearest_by_tf_idf(mentions, [*training_mentions, *names], 1, longest=2)[:, 0]
    of_names = [frozenset([concept]) for concept in name_concepts.tolist()]
    answers = [*map(frozenset, training_gold), *of_names]
    return [answers[row] for row in nearest.tolist()]


def _numbers_by_delimiter(mentions: Sequence[str]) -> list[int]:
    """[M]: the number of names, estimated as one more than the + signs of a mention, at most
    MOST.
    """
    return [min(1 + sum(map(one.count, _PLUS)), _MOST) for one in mentions]


# -------------------------------------------------------------------------------------------------
# Three answers: the concept of a mention is among the candidates, or a broader one, or neither.
#
# Each mention of one concept is a case; if the concept is among its candidates, it is another one
# without that concept. So any mentions test what is broader and what is neither, if it is known
# which concepts are broader than others.

_KINDS = ("exact", "broader", "neither")
_LEAST = 0.5  # probability of an answer, where no cut-offs were measured


@dataclass(frozen=True)
class ThreeAnswers:
    """What a ranker says of n cases.

    Attributes:
      truth: int [n], a place in _KINDS: the best answer that the candidates have.
      cases: float [n, A, 3]; of each answer the probability and the lead (`likeliest`), and 1 if it
        is right, else 0. A broader concept is wrong where the concept itself is a candidate.
    """

    truth: np.ndarray
    cases: np.ndarray

    @classmethod
    def of(
        cls,
        concepts_MK: np.ndarray,
        probability_MKA: np.ndarray,
        broader_of: Callable[[Iterable[int]], Collection[int]],
        gold: Sequence[Collection[int]],
    ) -> Self:
        """The cases of M mentions with K candidates.

        Args:
          concepts_MK: candidates, best first.
          probability_MKA: the ranker's probabilities.
          broader_of: the concepts that are broader than some.
          gold: of each mention; those of one concept are cases.
        """
        truth, cases = [], []
        for row, concepts in enumerate(gold):
            if len(concepts) != 1 or -1 in concepts:
                continue
            kinds = (concepts, broader_of(concepts))
            right = np.stack([np.isin(concepts_MK[row], list(some)) for some in kinds], axis=1)
            others = ~right[:, 0]
            for kept in (others,) if others.all() else (np.ones_like(others), others):
                if kept.any():
                    said, is_right = likeliest(probability_MKA[row][kept]), right[kept]
                    best = int(np.append(is_right.any(axis=0), True).argmax())
                    truth.append(best)
                    cases.append(
                        [
                            (p, lead, a == best and is_right[at, a])
                            for a, (at, p, lead) in enumerate(said)
                        ]
                    )
        shape = (-1, probability_MKA.shape[2], 3)
        return cls(np.array(truth, int), np.array(cases, np.float64).reshape(shape))

    @property
    def said(self) -> np.ndarray:
        """int [n]: the kind of each answer: the first with a probability of a half."""
        likely = self.cases[:, :, 0] >= _LEAST
        return np.where(likely.any(axis=1), likely.argmax(axis=1), 2)

    @property
    def counts(self) -> dict[str, int]:
        """How many cases of each kind were answered with each."""
        return {
            f"{of} answered {kind}": int(((self.truth == one) & (self.said == other)).sum())
            for one, of in enumerate(_KINDS)
            for other, kind in enumerate(_KINDS)
        }

    @property
    def scores(self) -> dict[str, float | None]:
        """Shares right (kind and concept) of all cases, and of those of each kind."""
        exact, broader = self.cases[:, :, 2].T > 0
        right = np.choose(self.said, [exact, broader, self.truth == 2])
        groups = {"three answers": self.truth >= 0}
        groups |= {f"three answers: {kind}": self.truth == one for one, kind in enumerate(_KINDS)}
        return {
            name: Share(int(right[of].sum()), int(of.sum())).value for name, of in groups.items()
        }


# -------------------------------------------------------------------------------------------------
# The benchmark: each mention is answered with a set of concepts.
#
# Liang, Xue and Ruan (arXiv 2101.09101), section 4. Whatever gives candidates and says how many of
# them are the answer is scored: `score` takes the nearest name of an encoder, always one;
# `score_answers` any other, such as recall and rank.

_CANDIDATES = 10
_RECALL_AT = (1, 2, 5, 7, 10)
_SCORES = ("uni", "multi", "total", *(f"recall@{k}" for k in _RECALL_AT))
_NUMBERS = ("number uni", "number multi", "number total")
_TF_IDF, _EDITS = "TF-IDF of characters", "edit distance"
_TRAINING, _SIGNS = "nearest training mention or name", "number by the signs +"


@dataclass(frozen=True, kw_only=True)
class _SplitOptions(Options):
    """Options of mentions of several concepts."""

    split: Annotated[
        Literal["train", "dev", "test"],
        Flag("the mentions of a folder to score", heading="mentions of several concepts"),
    ] = "test"


@dataclass(frozen=True)
class MultipleNames(Benchmark):
    """The mentions of one split of a folder of mentions, and its dictionary."""

    name: str
    path: str
    data: MentionDataset
    chosen: str

    kind: ClassVar[str] = "several concepts"
    published: ClassVar[tuple[PublishedRow, ...]] = MULTIPLE_NAMES
    formats: ClassVar[str] = "several:  a folder of `python -m data_pipeline.build_mentions`"
    about: ClassVar[str] = """\
several   a folder of `python -m data_pipeline.build_mentions`, whose mentions mean one concept or
          several: how many are answered with exactly their concepts, how many have all of them
          among k candidates, and how often their number is right. --ranker adds a ranker, and
          `--fusion mean recall rank` a row for both and for each alone; without a ranker, and
          without a generator of the recipe recall, the nearest name is the answer. `--model tf-idf`
          finds candidates by their characters, without a model. mentions/s counts the distinct
          mentions that a generator finds candidates for in a second: it encodes and searches them,
          with the names' vectors and the compiled encoder at hand, without the ranker. Of a ranker
          trained with --broader the JSON also says how often the right one of three answers is
          given (the concept, a broader one, neither). Each mention of one concept counts with its
          candidates and, if its concept is among them, once more without it.\
"""
    options: ClassVar[type[Options]] = _SplitOptions

    @classmethod
    def claims(cls, found: Found) -> bool:
        return found.is_folder and is_of_kind(found.path / MENTIONS.file, MENTIONS)

    @classmethod
    def brings_dictionary(cls, path: Any) -> bool:
        return True

    @classmethod
    def read(cls, given: Given) -> Self:
        data, split = open_mentions(given.path), given.options.of(_SplitOptions).split
        if split not in data.splits:
            raise BadInput(
                f"--split {split}: {given.path} has the mentions of {', '.join(data.splits)}; "
                f"choose one of these, or build it with --{split}"
            )
        return cls(given.name, str(given.path), data, split)

    @property
    def split(self) -> MentionSplit:
        """The split that is scored."""
        return self.data.splits[self.chosen]

    @cached_property
    def mentions(self) -> list[str]:
        """The strings of the mentions."""
        return list(self.split.mentions.strings)

    @cached_property
    def dictionary(self) -> Dictionary:
        """The names that are searched."""
        concepts = list(self.data.concepts)
        of_name = [concepts[number] for number in self.data.name_concepts.tolist()]
        return Dictionary(list(self.data.names.strings), of_name, self.path)

    def keys(self, keyed_by: str) -> list[str]:
        """The distinct strings of mentions and names; BadInput for concept vectors."""
        terms_only(keyed_by, self.path)
        return list(dict.fromkeys(chain(self.mentions, self.dictionary.terms)))

    def dictionaries(self) -> list[Dictionary]:
        return [self.dictionary]

    def score(self, vectors: Vectors, encoder: EncoderRecord, options: Options) -> EvaluationRecord:
        from coder_jax.encoding.search import search

        names = vectors.encode(self.dictionary.terms)
        _, found = search(vectors.encode(self.mentions), names, self.names_needed)
        candidates, counts = self.first_concepts(found), np.ones(len(found), np.int64)
        return self.score_answers(candidates, counts, encoder, "the concept of the nearest name")

    def score_answers(
        self,
        candidates: np.ndarray,
        counts: np.ndarray,
        encoder: EncoderRecord,
        answers: str,
        ordered_by: str = "",
        mentions_per_s: float | None = None,
        three: ThreeAnswers | None = None,
    ) -> EvaluationRecord:
        """The record of any model's answers, which are sets of concepts.

        Args:
          candidates, counts: as for `scores_of`.
          encoder: for the record.
          answers: what is answered, in words.
          ordered_by: what orders the candidates, where several things can.
          mentions_per_s: how many mentions got candidates in a second, where that was measured.
          three: of a ranker that also tells what is broader.
        """
        numbers, gold = self.split.numbers(), self.split.gold_sets()
        each = zip(candidates.tolist(), counts.tolist(), gold, strict=True)
        of_each = [_shares([row], [count], [one]) for row, count, one in each]
        same = first_same(self.mentions, map(frozenset, gold))
        return EvaluationRecord(
            benchmark=self.name,
            kind=self.kind,
            path=self.path,
            content_hash=self.data.manifest.content_hash,
            scores=self.scores_of(candidates, counts) | (three.scores if three else {}),
            intervals=_intervals_of_shares(of_each, same),
            counts={
                "mentions": len(self.mentions),
                "uni": int((numbers == 1).sum()),
                "multi": int((numbers > 1).sum()),
                "unreachable": sum(-1 in one for one in gold),
                **(three.counts if three else {}),
            },
            scoring={
                "split": self.chosen,
                "answers": answers,
                **({"ordered by": ordered_by} if ordered_by else {}),
                "right": "all concepts of a mention and no other; recall@k: all among k candidates",
                "intervals": f"{ABOUT}, mentions drawn anew; {TOGETHER}; none of the number of "
                "concepts, a mean over classes of few mentions",
            },
            encoder=encoder,
            dictionary=self.dictionary.description,
            folds={name: {"scores": scores} for name, scores in self.baselines.items()},
            mentions_per_s=mentions_per_s,
        )

    def scores_of(self, candidates: np.ndarray, counts: np.ndarray) -> dict[str, float | None]:
        """uni, multi, total, recall@k and number ..., in [0, 1]; None where no mention counts.

        Args:
          candidates: concepts of each mention, best first, int [M, K].
          counts: how many of them are its answer, int [M].
        """
        shares = _shares(candidates.tolist(), counts.tolist(), self.split.gold_sets())
        numbers = number_accuracy(counts.tolist(), self.split.numbers().tolist())
        return {
            **{name: share.value for name, share in shares.items()},
            **{f"number {name}": value for name, value in numbers._asdict().items()},
        }

    @property
    def names_needed(self) -> int:
        """As many ranked names as contain _CANDIDATES concepts in any case."""
        names_of_one = int(np.bincount(self.data.name_concepts).max())
        return min(_CANDIDATES * names_of_one, len(self.data.names))

    def first_concepts(self, names: np.ndarray) -> np.ndarray:
        """int [M, c]: the first concepts of ranked names [M, K]; c is _CANDIDATES, or what all rows
        have.
        """
        rows = _distinct(names, self.data.name_concepts)
        most = min(_CANDIDATES, *map(len, rows))
        return np.array([row[:most] for row in rows])

    @cached_property
    def baselines(self) -> dict[str, dict[str, float | None]]:
        """The scores of the baselines."""
        names, concepts = self.dictionary.terms, self.data.name_concepts
        distinct, of = np.unique(self.mentions, return_inverse=True)
        mentions, found = distinct.tolist(), {}
        always_one = np.ones(len(self.mentions), np.int64)
        for name, nearest in ((_TF_IDF, _nearest_by_tf_idf), (_EDITS, _nearest_by_edits)):
            near = nearest(mentions, names, self.names_needed)
            found[name] = self.scores_of(self.first_concepts(near)[of], always_one)
        if self.chosen != "train":
            train = self.data.splits["train"]
            training = list(train.mentions.strings), train.gold_sets()
            copied = _answers_of_nearest(mentions, names, concepts, *training)
            counts = np.array([len(one) for one in copied])
            padded = np.full((len(copied), int(counts.max())), -1)
            for row, one in enumerate(copied):
                padded[row, : len(one)] = sorted(one)
            found[_TRAINING] = _only(
                self.scores_of(padded[of], counts[of]), *_SCORES[:3], *_NUMBERS
            )
        signs = np.array(_numbers_by_delimiter(self.mentions))
        if (signs > 1).any():
            no_names = np.full((len(signs), int(signs.max())), -1)
            found[_SIGNS] = _only(self.scores_of(no_names, signs), *_NUMBERS)
        return found

    @classmethod
    def table(cls, records: Sequence[EvaluationRecord], options: Options) -> Table:
        """A row for each encoder, the baselines, and the paper's rows."""
        header = ["several concepts", "pooling", "mentions", *_SCORES, *_NUMBERS, "mentions/s"]
        rows = []
        for record in records:
            shown = [
                _two_decimals(record.scores.get(name), record.intervals.get(name))
                for name in (*_SCORES, *_NUMBERS)
            ]
            label = f"{record.benchmark} {record.scoring['split']}"
            if ordered_by := record.scoring.get("ordered by"):
                label += f": {ordered_by}"
            start = [label, record.encoder.pooling, f"{record.counts['mentions']:,}"]
            speed = one_decimal(record.mentions_per_s)
            rows.append(Row([*start, *shown, speed], record.encoder.model))
        for record in {record.benchmark: record for record in records}.values():
            for name, fold in record.folds.items():
                shown = [_two_decimals(fold["scores"].get(one)) for one in (*_SCORES, *_NUMBERS)]
                label = f"{record.benchmark} {record.scoring['split']}: {name}"
                rows.append(Row([label, "", f"{record.counts['mentions']:,}", *shown, ""], name))
        width = len(header)
        columns = (*_SCORES, *_NUMBERS)
        rows += published_rows(records, cls.published, columns, width, before=3, digits=2)
        return header, rows


def _only(scores: Mapping[str, float | None], *names: str) -> dict[str, float | None]:
    """Some of the scores."""
    return {name: scores[name] for name in names}


def _two_decimals(share: float | None, interval: Sequence[float] | None = None) -> str:
    """A share in percent, as the paper prints it: "91.47", "91.47 ±1.0"; a dash for none."""
    return "-" if share is None else percent(share, interval)
