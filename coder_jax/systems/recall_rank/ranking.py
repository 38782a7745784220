"""Ranking of candidates, and the combined answers of a generator and rankers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from coder_jax.mapping.coded_list import Answer, Candidate, Status
from coder_jax.mapping.confidence import ALL, BROADER, likeliest
from coder_jax.mapping.normalizer import LIKELY, Near, Rule, SameStringNormalizer
from coder_jax.models.bert import Bert, Probes, compiled, split_encoder
from coder_jax.models.hf_files import find_folder, read_settings
from coder_jax.models.hf_weights import load_bert
from coder_jax.systems.recall_rank.candidates import CANDIDATES, Generator
from data_pipeline import process
from data_pipeline.batches.mentions import Pairs, inputs_of, pairs_of, probe_tokens
from data_pipeline.batches.packing import joined, pack_rows
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.dataset.mentions import CandidateLists, candidate_rows, token_table
from data_pipeline.dataset.tokenizer import load_tokenizer
from data_pipeline.files.identity import read_json, typed
from data_pipeline.process import BadInput, progress_bar
from data_pipeline.terminology.keywords import KeywordVocabulary, read_keywords

# -------------------------------------------------------------------------------------------------
# From candidates to answers: recall and rank scores are combined, the number of concepts cuts.
#
# Liang, Xue, Ruan 2021, section 3.3. Shapes: M mentions, k candidates of each, nearest first, C
# classes of the number of concepts.

RecallForm = Literal["sum", "max"]
Fusion = Literal["mean", "recall", "rank"]
_THRESHOLD = 0.8  # theta (section 4.2): a fourth and further concepts score more (3.3)


def _recall_scores(distances_MK: np.ndarray, form: RecallForm = "sum") -> np.ndarray:
    """float64 [M, k]: 1 - d_i / sum_j d_j (section 3.3), or 1 - d_i / max_j d_j.

    The paper's form leaves all of ten candidates near .9, so that the ranker decides alone but
    where candidates are close; its table 5 has other values. The authors' code has the other form.
    Where all distances are 0 all score 1.
    """
    distances = distances_MK.astype(np.float64)
    over = distances.sum(axis=1) if form == "sum" else distances.max(axis=1)
    return 1.0 - distances / np.where(over == 0, 1.0, over)[:, None]


def fused_scores(
    distances_MK: np.ndarray,
    rank_MK: np.ndarray | None,
    *,
    fusion: Fusion = "mean",
    form: RecallForm = "sum",
) -> np.ndarray:
    """float64 [M, k]: (recall score + rank score) / 2 (section 3.3), or one of both.

    Args:
        distances_MK: of the candidates.
        rank_MK: their probabilities by a ranker, or None where there is none.
        fusion: which scores count; without a ranker those of the generator.
        form: of `_recall_scores`.
    """
    recall = _recall_scores(distances_MK, form)
    if rank_MK is None or fusion == "recall":
        return recall
    rank = rank_MK.astype(np.float64)
    return rank if fusion == "rank" else (recall + rank) / 2


def best_first(scores_MK: np.ndarray) -> np.ndarray:
    """int64 [M, k]: the order of candidates by score; ties go to the nearer one."""
    return np.argsort(-scores_MK, axis=1, kind="stable")


def _answer_counts(
    sorted_MK: np.ndarray, numbers_MC: np.ndarray, threshold: float = _THRESHOLD
) -> np.ndarray:
    """int64 [M]: how many candidates each mention's answer has (equation 14).

    As many as its most probable number says; of the last class, "so many or more", further ones
    whose score is above the threshold.

    Args:
        sorted_MK: scores, best first.
        numbers_MC: probabilities of one, two, ..., C or more concepts.
        threshold: theta.
    """
    numbers = 1 + numbers_MC.argmax(axis=1)
    classes, candidates = numbers_MC.shape[1], sorted_MK.shape[1]
    further = (sorted_MK[:, classes:] > threshold).sum(axis=1)
    many = (numbers == classes) & (classes > 1)
    return np.minimum(numbers + np.where(many, further, 0), candidates)


# -------------------------------------------------------------------------------------------------
# The forward pass of a ranker: the probability that a candidate is right.

_PAIRS_AT_ONCE = 512
_ROW_LENGTH = 128

Mask = Literal["after", "before"]


def answer_probabilities(
    bert: Bert,
    head: Mapping[str, jax.Array],
    rows: Mapping[str, jax.Array],
    *,
    pairs: int,
    probes: int,
    mask: Mask,
) -> jax.Array:
    """float32 [N, 1 + A]: the probabilities of the answers for each pair of some packed rows, that
    of "neither" first.

    Args:
        bert: the encoder.
        head: kernel [D, A] and bias [A].
        rows: tokens, positions, segments, kinds, types, [R, L] each.
        pairs: N.
        probes: K, the kinds of keywords.
        mask: where keyword masks apply (`Probes.after`).
    """
    led = Probes(kinds=rows["kinds"], types=rows["types"], number=probes, after=mask == "after")
    vector_ND = bert.pair_vectors(rows["tokens"], rows["positions"], rows["segments"], led, pairs)
    return jax.nn.softmax(answer_logits(vector_ND, head))


def answer_logits(vector_ND: jax.Array, head: Mapping[str, jax.Array]) -> jax.Array:
    """float32 [N, 1 + A]: a linear layer, after the 0 of "neither".

    With one output the softmax of both is the sigmoid of it.
    """
    product = jnp.dot(vector_ND, head["kernel"], precision=jax.lax.Precision.HIGHEST)
    return jnp.pad(product + head["bias"][None], ((0, 0), (1, 0)))


def place_ranker(
    bert: Bert, head: Mapping[str, Any], *, probes: int, mask: Mask
) -> Callable[..., jax.Array]:
    """What `probabilities` asks: `answer_probabilities`, compiled, with all parameters on a device.

    Args:
        bert, head, probes, mask: as for `answer_probabilities`; arrays on devices stay
            there.
    """
    structure, params = split_encoder(bert)
    given = jax.device_put((params, dict(head)))
    answers = compiled(answer_probabilities, structure, "pairs", "probes", "mask")
    return partial(answers, *given, probes=probes, mask=mask)


def probabilities(
    answers: Callable[..., jax.Array], pairs: Pairs, *, progress: bool = False
) -> np.ndarray:
    """float32 [n, A]: the probabilities of the answers for each pair, independent of the packing:
    that it is a name of the concept, and perhaps of a broader one.

    Equal pairs, such as of a mention that texts repeat, are computed once.

    Args:
        answers: of `place_ranker`.
        pairs: n of them.
        progress: show a progress bar.

    Raises:
        Stopped: a signal asked for it.
    """
    first_of, place = _distinct_pairs(pairs)
    lengths = np.diff(pairs.start)
    row_length = max(_ROW_LENGTH, int(lengths.max(initial=1)))
    # Pairs of similar length are packed together.
    order = np.argsort(-lengths[first_of], kind="stable")
    parts = range(0, len(first_of), _PAIRS_AT_ONCE)
    found: list[np.ndarray] = []
    under_way: jax.Array | None = None
    for first in progress_bar(parts, desc="ranking", unit="block", disable=not progress):
        process.poll()
        rows = packed(pairs, first_of[order[first : first + _PAIRS_AT_ONCE]], row_length)
        made = answers(jax.device_put(rows), pairs=_PAIRS_AT_ONCE)
        if under_way is not None:  # fetched one block late, so that the device never waits
            found.append(np.asarray(under_way))
        under_way = made
    found.append(np.asarray(under_way))
    return np.concatenate(found)[np.argsort(order)[place], 1:]


def _distinct_pairs(pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """(first, place): int64 [u] and [n].

    `first` numbers the pairs that are equal to none before them, and `place` says for each pair
    which of these it is equal to.
    """
    places: dict[tuple[bytes, ...], int] = {}
    first: list[int] = []
    place = np.empty(len(pairs.start) - 1, np.int64)
    bounds = pairs.start.tolist()
    for number, within in enumerate(map(slice, bounds[:-1], bounds[1:])):
        key = tuple(array[within].tobytes() for array in pairs[:3])
        place[number] = places.setdefault(key, len(places))
        if len(first) < len(places):
            first.append(number)
    return np.array(first, np.int64), place


def packed(pairs: Pairs, chosen: np.ndarray, row_length: int) -> dict[str, np.ndarray]:
    """Pairs in packed rows; their number is a power of two, so few shapes are compiled."""
    bounds, (tokens, kinds, types) = joined(
        pairs.start, chosen, pairs.tokens, pairs.kinds, pairs.types
    )
    rows = pack_rows(tokens, bounds, row_length, kinds=kinds, types=types)
    needed = len(rows["tokens"])
    padding = np.zeros(((1 << (needed - 1).bit_length()) - needed, row_length), np.int32)
    return {name: np.concatenate([array, padding]) for name, array in rows.items()}


# -------------------------------------------------------------------------------------------------
# `TermRanker`: a trained ranker for users.

RANKER, SCORE, KEYWORDS = "ranker.json", "ranker.safetensors", "keywords.tsv"  # of an export


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankerSettings:
    """ranker.json."""

    mask: Mask
    cleaning: str
    max_length: int
    pair_length: int
    keyword_kinds: list[str]


class TermRanker:
    """Scores candidates of mentions by reading both together.

    Args:
        bert: the encoder of pairs.
        tokenizer: its own.
        head: kernel [D, A] and bias [A]; A is 2 if it also knows broader concepts.
        keywords: that lead its attention; of as many kinds as it was trained with.
        mask: where their masks apply (`RankSystem.mask`).
        cleaning: rule set that strings go through first.
        max_length, pair_length: longest string and pair in tokens.
    """

    def __init__(
        self,
        bert: Bert,
        tokenizer: Tokenizer,
        head: Mapping[str, Any],
        keywords: KeywordVocabulary,
        *,
        mask: Mask = "after",
        cleaning: str = "none",
        max_length: int = 64,
        pair_length: int = 128,
    ):
        self.tokenizer, self.keywords = tokenizer, keywords
        self.head = {name: np.asarray(array, np.float32) for name, array in head.items()}
        self.mask, self.cleaning = mask, cleaning
        self.max_length, self.pair_length = max_length, pair_length
        self.probes = probe_tokens(tokenizer, len(keywords.kinds))
        self.answers = place_ranker(bert, self.head, probes=len(self.probes), mask=mask)

    @classmethod
    def from_pretrained(cls, path: str | Path) -> TermRanker:
        """The ranker of an export, by folder, address or hub id.

        Raises:
            BadInput: if there is none in `path`, or its files cannot be read.
        """
        folder = find_folder(path)
        settings = typed(read_json(folder / RANKER), RankerSettings, str(folder / RANKER))
        bert, _, _ = load_bert(folder, pooling=read_settings(folder).pooling)
        return cls(
            bert,
            load_tokenizer(folder),
            read_head(folder / SCORE),
            keywords_of(folder / KEYWORDS, settings.keyword_kinds),
            mask=settings.mask,
            cleaning=settings.cleaning,
            max_length=settings.max_length,
            pair_length=settings.pair_length,
        )

    @property
    def outputs(self) -> int:
        """A: 1, or 2 if it also tells what is broader."""
        return len(self.head["bias"])

    def score(self, mention: str, candidates: Sequence[str]) -> np.ndarray:
        """float32 [k]: the probability that each candidate is a name of what a mention means."""
        rows = np.stack([np.zeros(len(candidates), np.int64), np.arange(len(candidates))], axis=1)
        return self.score_pairs([mention], list(candidates), rows)[:, 0]

    def score_pairs(
        self,
        mentions: Sequence[str],
        names: Sequence[str],
        rows: np.ndarray,
        *,
        progress: bool = False,
    ) -> np.ndarray:
        """float32 [n, A]: the probabilities of each pair: that it is the concept, and perhaps that
        it is broader.

        Args:
            mentions, names: strings.
            rows: int [n, 2], the mention and the name of each pair.
            progress: show a progress bar.
        """
        if not len(rows):
            return np.zeros((0, self.outputs), np.float32)
        tables = [
            token_table(
                self.tokenizer,
                strings,
                cleaning=self.cleaning,
                max_length=self.max_length,
                keywords=self.keywords,
            )[0]
            for strings in (mentions, names)
        ]
        of_mentions, of_names = map(inputs_of, tables)
        pairs = pairs_of(of_mentions, of_names, rows, self.probes, self.pair_length)
        return probabilities(self.answers, pairs, progress=progress)


def keywords_of(path: Path, kinds: list[str]) -> KeywordVocabulary:
    """The keywords of a file; `kinds` of them even if some have no word."""
    words = read_keywords(path).words if path.is_file() and path.stat().st_size else {}
    if set(words) - set(kinds):
        raise BadInput(f"{path}: found keywords of {' '.join(words)}; expected {' '.join(kinds)}")
    return KeywordVocabulary({kind: words.get(kind, ()) for kind in kinds})


def read_head(path: Path) -> dict[str, np.ndarray]:
    """A dense layer, read from a file.

    Raises:
        BadInput: if it cannot be read.
    """
    try:
        found = load_file(path)
        return {name: found[name] for name in ("kernel", "bias")}
    except (OSError, KeyError, SafetensorError) as error:
        raise BadInput(f"{path} cannot be read: {error}; export the run again") from error


# -------------------------------------------------------------------------------------------------
# Recall and rank: all concepts that each mention means.
#
# Liang, Xue, Ruan 2021, sections 3.2 and 3.3.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranked:
    """The candidates of M mentions with their scores, best first, [M, k] each."""

    concepts: np.ndarray
    """int32, numbers of concepts."""
    names: np.ndarray
    """int32, the nearest name of each."""
    scores: np.ndarray
    """float64, by which they are ordered."""
    recall: np.ndarray
    """float64, by the generator."""
    rank: np.ndarray | None
    """float32 [M, k, A], the ranker's probabilities (`probabilities`); None without a ranker."""
    counts: np.ndarray
    """int64 [M]: so many of them are the answer."""

    def answers(self) -> list[list[int]]:
        """The concepts that each mention means."""
        return [
            concepts[:count].tolist()
            for concepts, count in zip(self.concepts, self.counts, strict=True)
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """How recall and rank become answers."""

    fusion: Fusion = "mean"
    form: RecallForm = "sum"
    threshold: float = _THRESHOLD

    @property
    def fused(self) -> str:
        """The score that orders candidates, in words."""
        of = {"mean": "recall and rank", "recall": "recall alone", "rank": "rank alone"}
        return of[self.fusion]

    def __str__(self) -> str:
        """The settings in words, for records."""
        return f"{self.fused} (1 - d / {self.form} d; a fourth above {self.threshold:g})"


def ranked(
    lists: CandidateLists,
    name_concepts: np.ndarray,
    probability_MKA: np.ndarray | None,
    choice: Choice | None = None,
) -> Ranked:
    """Candidates ordered by the scores of generator and ranker, cut by the number of concepts.

    By distances alone a mention of three concepts or more is answered with three.

    Args:
        lists: of the generator.
        name_concepts: int [N], the concept of each name.
        probability_MKA: of the ranker (`probabilities`); None where there is none.
        choice: how the two become one.
    """
    choice = choice or Choice()
    # theta is for scores with a ranker; distances alone leave all scores above it.
    alone = probability_MKA is None or choice.fusion == "recall"
    threshold = np.inf if alone else choice.threshold
    exact_MK = None if probability_MKA is None else probability_MKA[..., 0]
    scores = fused_scores(lists.distances, exact_MK, fusion=choice.fusion, form=choice.form)
    order = best_first(scores)

    def ordered(array: np.ndarray) -> np.ndarray:
        return np.take_along_axis(array, order, axis=1)

    scores, names = ordered(scores), ordered(lists.names)
    return Ranked(
        concepts=name_concepts[names],
        names=names,
        scores=scores,
        recall=ordered(_recall_scores(lists.distances, choice.form)),
        rank=None
        if probability_MKA is None
        else np.take_along_axis(probability_MKA, order[..., None], axis=1),
        counts=_answer_counts(scores, lists.numbers, threshold),
    )


class RecallAndRank:
    """A generator, rankers if there are any, and the dictionary whose concepts are the answers.

    Args:
        generator: finds candidates.
        rankers: their probabilities are averaged; none: the generator's order stands.
        names: N names of the dictionary.
        name_concepts: int [N], the concept of each.
        choice: how scores become answers.
        cache: keep the vectors of the names on this machine, and use those that are kept.
    """

    def __init__(
        self,
        generator: Generator,
        rankers: Sequence[TermRanker],
        names: Sequence[str],
        name_concepts: np.ndarray,
        choice: Choice | None = None,
        *,
        cache: bool = False,
    ):
        self.generator, self.rankers = generator, list(rankers)
        self.names, self.name_concepts = names, np.asarray(name_concepts)
        self.choice, self.cache = choice or Choice(), cache
        self.vectors: list[Any] | None = None

    def are_over(self, names: Sequence[str], name_concepts: np.ndarray) -> bool:
        """Whether this model answers from that dictionary."""
        return self.names == names and np.array_equal(self.name_concepts, name_concepts)

    def encode_names(self, *, progress: bool = False) -> list[Any]:
        """What the generator's `encode_names` gives of the dictionary, made once."""
        if self.vectors is None:
            self.vectors = self.generator.encode_names(
                self.names, progress=progress, cache=self.cache
            )
        return self.vectors

    def answer(
        self, mentions: Sequence[str], k: int = CANDIDATES, *, progress: bool = False
    ) -> Ranked:
        """The ordered candidates of mentions, and how many of them are the answer.

        Args:
            mentions: M strings.
            k: candidates of each.
            progress: show progress bars.
        """
        lists, found = self.scored(mentions, k, progress=progress)
        return ranked(lists, self.name_concepts, found, self.choice)

    def scored(
        self, mentions: Sequence[str], k: int = CANDIDATES, *, progress: bool = False
    ) -> tuple[CandidateLists, np.ndarray | None]:
        """The arguments of `ranked`: candidates of mentions, and the rankers' probabilities.

        Args:
            mentions, k, progress: as for `answer`.
        """
        vectors = self.encode_names(progress=progress)
        lists = self.generator.lists(mentions, vectors, self.name_concepts, k, progress=progress)
        return lists, mean_probabilities(
            self.rankers, self.names, mentions, lists, progress=progress
        )


def mean_probabilities(
    rankers: Sequence[TermRanker],
    names: Sequence[str],
    mentions: Sequence[str],
    lists: CandidateLists,
    *,
    progress: bool = False,
) -> np.ndarray | None:
    """float32 [M, k, A]: the rankers' mean probabilities of each candidate; None without a ranker.

    Args:
        rankers: any number.
        names: of the dictionary, [N].
        mentions: M strings.
        lists: their candidates.
        progress: show progress bars.

    Raises:
        BadInput: some of the rankers know what is broader, and others do not.
    """
    if not rankers:
        return None
    if len({one.outputs for one in rankers}) > 1:
        raise BadInput(
            "found rankers that tell broader concepts, and others that do not; expected one kind: "
            "their probabilities are averaged"
        )
    rows = candidate_rows(lists)
    shown, rows[:, 1] = np.unique(rows[:, 1], return_inverse=True)
    strings = [names[name] for name in shown.tolist()]
    found = [ranker.score_pairs(mentions, strings, rows, progress=progress) for ranker in rankers]
    return np.stack(found).mean(axis=0).reshape(*lists.names.shape, -1)


# -------------------------------------------------------------------------------------------------
# Recall and rank as a normalizer, for `normalize`.


_SAYING = {ALL: "the same concept", BROADER: "a broader one"}


class StagedNormalizer(SameStringNormalizer):
    """Maps mentions to one concept or several: strings of the dictionary first, then by stages.

    The similarity of a candidate is its score by recall and rank. By rules the answer is the first
    candidate, if the ranker is sure enough that it is the concept; else the one that is most
    probably broader, if the ranker is sure enough of that; else there is none.
    """

    def __init__(
        self,
        stages: RecallAndRank,
        concepts: Sequence[Sequence[str]],
        dictionary: Dictionary,
        *,
        threshold: float = 0.0,
        rules: Mapping[str, Rule] | None = None,
        abbreviations: Mapping[str, str] | None = None,
    ):
        """
        Args:
          stages: over the terms of the dictionary.
          concepts: what the numbers of its concepts stand for: one, or several codes of a name.
          dictionary: with its terms as the source writes them.
          threshold: no answer where the best score is less.
          rules: by ALL what makes the ranker sure enough that a candidate is the concept, and
            perhaps by BROADER that it is broader. None: a probability of a half, if the ranker
            tells what is broader; else all first candidates are answers.
          abbreviations: what they stand for; mentions are looked up with these written out.
        """
        super().__init__(dictionary, abbreviations)
        self.stages, self.concepts, self.threshold = stages, concepts, threshold
        tells_broader = any(one.outputs > 1 for one in stages.rankers)
        likely = dict.fromkeys(_SAYING, Rule(least_similarity=LIKELY)) if tells_broader else {}
        self.rules = likely if rules is None else rules
        self.others = {first: len(others) for first, *others in concepts if others}

    def near(self, strings: Sequence[str], k: int) -> list[Near]:
        if not strings:
            return []
        found = self.stages.answer(strings, CANDIDATES)
        by_ranker = found.rank if found.rank is not None else [None] * len(strings)
        rows = zip(found.concepts, found.names, found.scores, found.counts, by_ranker, strict=True)
        return [
            Near(
                [
                    Candidate(self.concepts[concept][0], self.stages.names[name], float(score))
                    for concept, name, score in zip(concepts, names, scores, strict=True)
                ],
                int(count),
                probabilities,
            )
            for concepts, names, scores, count, probabilities in rows
        ]

    def answer(self, mention: str, string: str, near: Near, k: int) -> Answer:
        best = near.candidates[0]
        shown = near.candidates[: max(k, near.number)]
        if best.similarity < self.threshold:
            reason = f"score {best.similarity:.2f} is less than {self.threshold:g}"
            return Answer(mention, Status.NO_ANSWER, shown, reason=reason, count=near.number)
        ties = self.others.get(best.concept, 0)
        status = Status.TIED if ties else Status.NEAR
        answer = Answer(mention, status, shown, ties=ties, count=near.number)
        return self._if_sure(answer, near, k) if self.rules else answer

    def _if_sure(self, answer: Answer, near: Near, k: int) -> Answer:
        """The answer, if the ranker is sure enough of it; else a broader concept, or none."""
        assert near.probabilities is not None, "there are rules only of a ranker"
        reasons: list[str] = []
        for what, (place, *likely) in zip(_SAYING, likeliest(near.probabilities), strict=False):
            if (rule := self.rules.get(what)) is None:
                continue
            confidence = rule.confidence(*likely)
            if not (why := rule.why_not(*likely)):
                if what == ALL:
                    return dataclasses.replace(answer, confidence=confidence)
                chosen = near.candidates[place]
                ranked = [chosen, *near.candidates[:place], *near.candidates[place + 1 :]][:k]
                return Answer(
                    answer.mention,
                    Status.BROADER,
                    ranked,
                    confidence=confidence,
                    reason="; ".join(["broader", *reasons]),  # seen where a context is the status
                )
            reasons.append(f"{_SAYING[what]}: {why.replace('similarity', 'probability')}")
        return dataclasses.replace(
            answer, status=Status.NO_ANSWER, ties=0, reason="; ".join(reasons)
        )
