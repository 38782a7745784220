"""Batches of mentions: with names of their concepts and negatives, or with candidates to rank."""

from __future__ import annotations

import abc
import dataclasses
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

import numpy as np
import polars as pl
from tokenizers import Tokenizer

from data_pipeline import process
from data_pipeline.batches.epochs import ORDER, EpochBatches
from data_pipeline.batches.order import random_below
from data_pipeline.batches.packing import (
    LONG_RUN,
    MOST_SHAPES,
    PackedGroups,
    joined,
    packed_blocks,
    plan_rows,
    spread,
)
from data_pipeline.batches.spec import StepCut, StepSpec, check_divides, check_least
from data_pipeline.dataset.mentions import (
    UNREACHABLE,
    WORDS,
    MentionDataset,
    MentionSplit,
    StoredStrings,
    TokenTable,
    candidate_rows,
    open_mentions,
    read_lists,
    token_table,
)
from data_pipeline.dataset.tokenizer import load_tokenizer
from data_pipeline.files.whole import map_array
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput, progress_bar, tell
from data_pipeline.terminology.cleaning import clean
from data_pipeline.terminology.keywords import KeywordVocabulary
from data_pipeline.terminology.tf_idf import CharacterTfIdf

# -------------------------------------------------------------------------------------------------
# Batches of pairs that contain a mention. Each pair comes once an epoch. NumPy alone.

_PLANNING_STEPS, _PLANNING_GROUPS = 200, 1600


class _MentionBatches(EpochBatches):
    """A source of batches of such pairs; subclasses say what is drawn for a pair.

    Args:
        folder: of the mentions.
        spec: what a step is made of.
        cut, rows, run_steps, shapes: as for `BatchMaker`.

    Raises:
        BadInput: if there are fewer pairs than a step takes.
    """

    def __init__(
        self,
        folder: Path,
        spec: StepSpec,
        cut: StepCut | None = None,
        *,
        rows: int = 0,
        run_steps: int = LONG_RUN,
        shapes: int = MOST_SHAPES,
    ):
        spec.validate()
        self.folder, self.spec, self.cut = folder, spec, cut or StepCut()
        self.dataset: MentionDataset = open_mentions(folder)
        self.manifest = self.dataset.manifest
        self.groups = self.cut.groups(spec)
        self.size, what = self.read()
        self.check_size(what)
        # The number of rows is planned from what most steps need.
        steps = range(min(_PLANNING_STEPS, max(8, _PLANNING_GROUPS // spec.groups)))
        groups = np.arange(spec.groups)
        sample = np.stack([self.lengths(step, groups) for step in steps])
        self.plan = plan_rows(sample, spec, self.cut, rows, run_steps, shapes)

    def some_terms(self) -> list[str]:
        """A few names spread over the dictionary, the same in every run."""
        names = self.dataset.names.strings
        return [names[i] for i in spread(len(names))]

    @abc.abstractmethod
    def read(self) -> tuple[int, str]:
        """Read all that batches need; returns the number of pairs, and what they are in words."""

    @abc.abstractmethod
    def lengths(self, step: int, groups: np.ndarray) -> np.ndarray:
        """int [G, N]: the number of tokens of each sequence in some parts of a step."""


# -------------------------------------------------------------------------------------------------
# Folds of training mentions: K parts, one of which a run may leave out.
#
# A generator finds nearly every concept of the mentions that it was trained on, so a ranker that
# learns from their candidates never meets what is missed or confused later. With K generators, each
# trained without one fold, every training mention has candidates of one that has not seen it (the
# released code of Liang, Xue, Ruan 2021 trains five so, but makes the lists of seen mentions). The
# mentions that are left out choose the run's best checkpoint, unless there are others to choose by.


class Fold(NamedTuple):
    """One of several folds, written as "2/5"."""

    number: int
    """1 to `of`."""
    of: int
    """How many there are, at least 2."""

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def read_fold(text: str) -> Fold:
    """The fold that a string such as "2/5" names.

    Raises:
        BadInput: if it names none.
    """
    match = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
    fold = Fold(int(match[1]), int(match[2])) if match else Fold(0, 0)
    if fold.of < 2 or not 1 <= fold.number <= fold.of:
        raise BadInput(
            f"fold is {text!r}; expected NUMBER/FOLDS with two folds or more, such as 2/5 for a "
            "run without the second of five"
        )
    return fold


def folds_of(mentions: Iterable[str], folds: int, seed: int) -> np.ndarray:
    """int64 [M]: the fold of each mention, 1 to `folds`.

    It depends on the string and the seed alone: whatever other mentions there are, in whatever
    order, a mention stays in its fold. Upper and lower case are one, as they are to most encoders.

    Args:
        mentions: M strings.
        folds: how many.
        seed: another one divides otherwise.
    """
    return np.array([1 + _number(mention, seed) % folds for mention in mentions], np.int64)


def _in_fold(data: MentionDataset, fold: Fold, seed: int) -> np.ndarray:
    """bool [M]: whether each training mention is in a fold.

    Raises:
        BadInput: if the fold has none of the mentions, or all.
    """
    found = folds_of(data.splits["train"].mentions.strings, fold.of, seed) == fold.number
    if found.all() or not found.any():
        raise BadInput(
            f"{data.folder}: fold {fold} has {found.sum()} of the {len(found)} training mentions; "
            "expected some to leave out and some to train on: use fewer folds, or another seed"
        )
    return found


def _without(data: MentionDataset, left_out: np.ndarray) -> MentionDataset:
    """The same data without some training mentions, bool [M].

    Where it has no mentions to choose by ("dev"), these become that.
    """
    train = data.splits["train"]
    chosen, kept = (_mentions_of(train, np.flatnonzero(one)) for one in (left_out, ~left_out))
    return dataclasses.replace(data, splits={"dev": chosen, **data.splits, "train": kept})


def _mentions_of(split: MentionSplit, rows: np.ndarray) -> MentionSplit:
    """The mentions of a split at the places `rows`, int [n], with their gold."""
    table = split.mentions
    start, (tokens, kinds) = joined(table.start, rows, table.tokens, table.kinds)
    gold_start, (gold,) = joined(split.gold_start, rows, split.gold)
    strings = StoredStrings.of(table.strings[row] for row in rows.tolist())
    return MentionSplit(TokenTable(strings, tokens, start, kinds), gold_start, gold)


def _number(mention: str, seed: int) -> int:
    digest = hashlib.sha256(f"{seed}\t{mention.casefold()}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


# -------------------------------------------------------------------------------------------------
# The name that stands for a mention's concept, where the concept has several.


class _OwnNames(NamedTuple):
    """All names of the concept of each of P (mention, concept) pairs, pair after pair.

    Attributes:
      mentions: int64 [T], the mention of each name's pair.
      names: int64 [T], numbers of `MentionDataset.names`.
      counts: int64 [P], how many names each pair has; at least one.
    """

    mentions: np.ndarray
    names: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, mentions: np.ndarray, concepts: np.ndarray, first_name: np.ndarray) -> _OwnNames:
        """The names of some pairs.

        Args:
          mentions, concepts: int [P].
          first_name: int64 [C + 1]; the names of concept c are first_name[c] to
            first_name[c + 1] - 1.
        """
        counts = first_name[concepts + 1] - first_name[concepts]
        place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        names = np.repeat(first_name[concepts], counts) + place
        return cls(np.repeat(mentions, counts), names, counts)

    def best(self, scores: np.ndarray) -> np.ndarray:
        """int32 [P]: for each pair the name with the highest score, float [T]; the first one in a
        tie.
        """
        pair = np.repeat(np.arange(len(self.counts)), self.counts)
        order = np.lexsort((-scores, pair))
        return self.names[order[np.cumsum(self.counts) - self.counts]].astype(np.int32)

    def most_alike(self, dataset: MentionDataset) -> np.ndarray:
        """int32 [P]: for each pair the name most similar to the mention, by TF-IDF of
        characters.
        """
        if (self.counts == 1).all():
            return self.names.astype(np.int32)
        by_characters = CharacterTfIdf(list(dataset.names.strings))
        strings = list(dataset.splits["train"].mentions.strings)
        return self.best(by_characters.between(strings, self.mentions, self.names))


# -------------------------------------------------------------------------------------------------
# Negative names of mentions that stay fixed during training.
#
# Four strategies of Liang, Xue and Ruan (arXiv 2101.09101, section 3.1.2); the fifth, online,
# depends on the encoder. A negative is never a gold of its mention: no name of one of its gold
# concepts, and no name of another concept that has the tokens of one, which no encoder could tell
# from it.

Strategy = Literal["random", "tf-idf", "tree", "keywords"]
_NEEDED: dict[Strategy, str] = {
    "random": "names of other concepts",
    "tf-idf": "names of other concepts",
    "tree": "codes that say where in the dictionary's tree they are, before a dot, as 01.1 does",
    "keywords": "preferred names with a keyword, and other keywords of its kind",
}
_TRIES = 20  # at a string that is new, for each that is wanted


@dataclass(frozen=True)
class Negatives:
    """The negatives of each of the P pairs of `MentionSplit.pairs`.

    Attributes:
      rows: int32 [P, kn]; below N a name of the dictionary, from N on a string of `extra`.
      extra: strings outside the dictionary; only keyword replacing has any.
      filled: how many were drawn at random, because the strategy had no more for their pair.
    """

    rows: np.ndarray
    extra: TokenTable
    filled: int


def fixed_negatives(
    dataset: MentionDataset, strategy: Strategy, number: int, seed: int
) -> Negatives:
    """The negatives of each (mention, reachable gold concept) of the training mentions.

    Args:
      dataset: with mentions to train on.
      strategy: random: any names. tf-idf: those most like the mention in its characters. tree:
        any names on the gold's branch (its chapter: its code up to the dot). keywords: the gold's
        preferred name with one keyword replaced by another of its kind.
      number: kn, of each pair.
      seed: of all that is drawn.

    Raises:
      BadInput: another strategy, no keywords, or a mention whose gold are all names there are.
    """
    if strategy not in get_args(Strategy):
        raise BadInput(f"negatives {strategy!r}: expected one of {', '.join(get_args(Strategy))}")
    if strategy == "keywords" and not any(dataset.words.values()):
        raise BadInput(
            f"{dataset.folder} has no keywords to replace; build it with --keywords, for which "
            "`python -m data_pipeline.derive_keywords` makes a file, or take other negatives"
        )
    return _Drawing(dataset, number, seed).negatives(strategy)


class _GoldNames:
    """The names that may not be negatives of each training mention."""

    def __init__(self, dataset: MentionDataset):
        self.names, self.name_start = dataset.names, dataset.name_start()
        self.gold = dataset.splits["train"].gold_sets()

    @cached_property
    def _rows(self) -> dict[bytes, list[int]]:
        rows = defaultdict(list)
        for row in range(len(self.names)):
            rows[self.key(row)].append(row)
        return rows

    def key(self, name: int) -> bytes:
        """The tokens of a name."""
        return self.names.of(name).tobytes()

    def names_of(self, concept: int) -> range:
        return range(*map(int, self.name_start[concept : concept + 2]))

    def keys(self, mention: int) -> set[bytes]:
        """The token strings of all names of a mention's gold concepts."""
        concepts = (one for one in self.gold[mention] if one >= 0)
        return {self.key(row) for one in concepts for row in self.names_of(one)}

    def rows(self, mention: int) -> set[int]:
        """All names, of any concept, whose tokens are those of a gold name."""
        return {row for key in self.keys(mention) for row in self._rows[key]}

    @cached_property
    def most(self) -> int:
        """The largest number of names that any mention excludes."""
        return max(len(self.rows(mention)) for mention in range(len(self.gold)))


class _Drawing:
    def __init__(self, dataset: MentionDataset, number: int, seed: int):
        self.dataset, self.number = dataset, number
        self.split = dataset.splits["train"]
        self.gold = _GoldNames(dataset)
        self.size = len(dataset.names)
        self.random = np.random.default_rng(seed)
        self.filled = 0
        self.extra: dict[str, int] = {}

    def negatives(self, strategy: Strategy) -> Negatives:
        mentions, concepts = self.split.pairs()
        drawn: list[list[int]] = []
        of_pair = self._by_strategy(strategy, mentions)
        bar = progress_bar(total=len(mentions), desc=f"{strategy} negatives", disable=False)
        with bar:
            for mention, concept in zip(mentions.tolist(), concepts.tolist(), strict=True):
                process.poll()
                forbidden = self.gold.rows(mention)
                drawn.append(self._filled(of_pair(mention, concept, forbidden), forbidden))
                bar.update()
        extra = self._extra_tokens()
        self._without_gold(drawn, mentions, extra)
        self._check_filled(strategy, len(drawn) * self.number)
        rows = np.array(drawn, np.int32).reshape(len(mentions), self.number)
        return Negatives(rows, extra, self.filled)

    def _check_filled(self, strategy: Strategy, wanted: int) -> None:
        """Log how many negatives were filled in at random; BadInput if all were."""
        if self.filled and self.filled == wanted:
            raise BadInput(
                f"negatives {strategy!r}: found none in {self.dataset.folder} for any mention; "
                f"expected {_NEEDED[strategy]}: take other negatives"
            )
        if self.filled:
            tell(f"{self.filled:,} of {wanted:,} negatives are any names: there were no others")

    def _by_strategy(
        self, strategy: Strategy, mentions: np.ndarray
    ) -> Callable[[int, int, set[int]], list[int]]:
        """A function from (mention, concept, excluded names) to at most `number` negatives."""
        if strategy == "random":
            return lambda mention, concept, forbidden: self._drawn(self.size, forbidden, set())
        if strategy == "tree":
            return self._on_branches()
        if strategy == "keywords":
            return self._with_keywords()
        asked, place = np.unique(mentions, return_inverse=True)
        strings = [self.split.mentions.strings[int(row)] for row in asked]
        _, near = CharacterTfIdf(list(self.dataset.names.strings)).nearest(
            strings, min(self.size, self.number + self.gold.most), "most like mentions"
        )
        of_mention = dict(zip(asked.tolist(), near, strict=True))

        def most_like(mention: int, concept: int, forbidden: set[int]) -> list[int]:
            found = [row for row in of_mention[mention].tolist() if row not in forbidden]
            return found[: self.number]

        return most_like

    def _drawn(
        self, pool: int | Sequence[int], forbidden: set[int], taken: Iterable[int]
    ) -> list[int]:
        """Up to `number` distinct rows of a pool, in random order, that are in neither of the two
        sets.
        """
        left_out = forbidden.union(taken)
        if not isinstance(pool, int) or len(left_out) > self.size // 2:
            rows = range(pool) if isinstance(pool, int) else pool
            allowed = np.array([row for row in rows if row not in left_out], np.int64)
            return self.random.permutation(allowed)[: self.number].tolist()
        found: list[int] = []
        while len(found) < min(self.number, pool - len(left_out)):
            row = int(self.random.integers(pool))
            if row not in left_out:
                left_out.add(row)
                found.append(row)
        return found

    def _filled(self, found: list[int], forbidden: set[int]) -> list[int]:
        """`found`, filled up to `number` with random names (repeated where there are too few
        names).
        """
        missing = self.number - len(found)
        self.filled += missing
        while missing > 0:
            more = self._drawn(self.size, forbidden, found) or self._drawn(self.size, forbidden, ())
            if not more:
                raise BadInput(
                    f"{self.dataset.folder}: a mention's gold has all {self.size:,} names of the "
                    "dictionary, and none is left to be a negative; give a larger dictionary"
                )
            found = found + more[:missing]
            missing = self.number - len(found)
        return found

    def _on_branches(self) -> Callable[[int, int, set[int]], list[int]]:
        start, branches = self.dataset.branch_start, self.dataset.branches
        concepts = np.repeat(np.arange(len(start) - 1), np.diff(start))
        members: defaultdict[int, list[int]] = defaultdict(list)
        for concept, branch in zip(concepts.tolist(), branches.tolist(), strict=True):
            members[branch].extend(self.gold.names_of(concept))

        def beside(mention: int, concept: int, forbidden: set[int]) -> list[int]:
            own = branches[start[concept] : start[concept + 1]].tolist()
            pool = dict.fromkeys(row for branch in own for row in members[branch])
            return self._drawn(list(pool), forbidden, ())

        return beside

    def _with_keywords(self) -> Callable[[int, int, set[int]], list[int]]:
        keywords = KeywordVocabulary(self.dataset.words)
        words = [list(some) for some in self.dataset.words.values()]
        rules = self.dataset.manifest.cleaning
        names = clean(pl.Series(list(self.dataset.names.strings), dtype=pl.String), rules).to_list()
        row_of = {name: row for row, name in reversed(list(enumerate(names)))}

        def replaced(mention: int, concept: int, forbidden: set[int]) -> list[int]:
            name = names[self.gold.names_of(concept)[0]]
            matches = keywords.matches(name)
            found: dict[int, None] = {}
            for _ in range(_TRIES * self.number if matches else 0):
                match = matches[self.random.integers(len(matches))]
                others = words[match.kind]
                word = others[self.random.integers(len(others))]
                string = name[: match.first] + word + name[match.last :]
                row = row_of.get(string)
                if row is None:
                    row = self.size + self.extra.setdefault(string, len(self.extra))
                if row not in forbidden:
                    found[row] = None
                if len(found) == self.number:
                    break
            return list(found)

        return replaced

    def _extra_tokens(self) -> TokenTable:
        if not self.extra:
            return TokenTable(
                [], np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.uint8)
            )
        manifest = self.dataset.manifest
        return token_table(
            load_tokenizer(self.dataset.folder / "tokenizer"),
            list(self.extra),
            cleaning=manifest.cleaning,
            max_length=manifest.tokenizer.max_length,
            keywords=KeywordVocabulary(self.dataset.words),
        )[0]

    def _without_gold(
        self, drawn: list[list[int]], mentions: np.ndarray, extra: TokenTable
    ) -> None:
        """Replaces new strings whose tokens are those of a gold name (they may differ in case,
        say).
        """
        if not len(extra):
            return
        for pair, mention in enumerate(mentions.tolist()):
            keys = self.gold.keys(mention)
            kept = [
                row
                for row in drawn[pair]
                if row < self.size or extra.of(row - self.size).tobytes() not in keys
            ]
            drawn[pair] = self._filled(kept, self.gold.rows(mention))


# -------------------------------------------------------------------------------------------------
# Batches of the candidate generator: mentions, names of their concepts, and negatives.
#
# Recall and rank (Liang, Xue, Ruan 2021, section 3.1). NumPy alone.
#
# OUT/index/N/negatives.npy   int32 [pairs, kn]: for each (mention, gold concept) of the training
#                             mentions the names of other concepts, numbers of
#                             `MentionDataset.names`
# OUT/index/N/names.npy       int32 [pairs]: the name that stands for the concept

NEGATIVES, NAMES = "negatives.npy", "names.npy"
_AGAIN = "it is damaged: begin another run"
MOST_NUMBERS = 3  # a mention has 1, 2, or 3 and more concepts (Liang et al., section 3.1.1)
_NAME, _SIBLING = ORDER + 1, ORDER + 2  # streams of random numbers


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RecallSpec:
    """The batch of a step are some training mentions, each with one of its concepts.

    Each (mention, concept) comes once an epoch, with a name of the concept and some names of other
    concepts.
    """

    pairs: int = 16
    """Mentions in a step, each with one of its concepts; one of several concepts comes with each
    of them."""
    negatives: Literal["online", "tf-idf", "tree", "keywords", "random"] = "online"
    """Where the names of other concepts come from (section 3.1.2): the nearest ones by the encoder
    of the moment, found anew in each epoch; or chosen once: similar strings, concepts with the same
    beginning of the code, names with a keyword replaced, or any."""
    own_names: Literal["nearest", "any"] = "nearest"
    """Which name stands for a concept that has several: the one nearest to the mention, by the
    encoder of the moment where the negatives are, too, else by its characters; or any, drawn anew
    in each epoch, which are often farther than the nearest names of others."""
    negatives_per_pair: int = 4
    """Names of other concepts beside each mention (the paper's kn)."""
    fold: Annotated[str, Flag(metavar="NUMBER/FOLDS")] = ""
    """Train without one fold of the mentions: 2/5 leaves out the second of five. These choose the
    best checkpoint, as in cross-validation, unless the data has others for it (built with --dev or
    --hold-out); and `candidates --folds` can ask this run for theirs. A mention's fold depends on
    its string and the seed alone."""
    groups: int = 8
    """Parts of a step that may lie on different devices; changes no result but for rounding."""
    row_length: int = 128
    """Tokens in a row; short strings share one, for speed."""
    seed: int = 0
    """For the order of the mentions, the choice of names and the dropout."""

    @property
    def terms(self) -> int:
        """The strings of a step: mentions, their names, and the names of others."""
        return self.pairs * (2 + self.negatives_per_pair)

    @property
    def arrays(self) -> dict[str, tuple[int, ...]]:
        """The arrays of a batch beside its packed rows, and the shape of each in one group."""
        return {"concepts": (self.terms // self.groups,), "numbers": (self.pairs // self.groups,)}

    def hyperparameters(self) -> dict[str, Any]:
        """What a step is made of, for the model card."""
        values = {
            "negatives": f"{self.negatives_per_pair} per mention, {self.negatives}",
            "own names": self.own_names,
        }
        return {**values, "without the fold": self.fold} if self.fold else values

    def validate(self) -> None:
        """Raise BadInput where a value cannot be used."""
        check_least(self, 1, "pairs", "negatives_per_pair", "groups", "row_length")
        check_least(self, 0, "seed")
        if self.fold:
            read_fold(self.fold)
        check_divides(self, "pairs")


class RecallBatches(_MentionBatches):
    """The batches of a run of the candidate generator.

    A batch has packed rows (`PackedGroups`), in each group first its mentions, then a name of the
    concept of each, then the names of other concepts, kn of a mention after kn of the one before;
    and int32, [P, B, groups, ...] each: `concepts`, of all these strings (-1 for strings that no
    concept has, of `keywords`), and `numbers` of the mentions, how many concepts each has: 0 for
    one, 1 for two, 2 for more.

    Args:
        folder: of the mentions (`python -m data_pipeline.build_mentions`).
        spec: what a step is made of.
        cut, rows, run_steps, shapes: as for `BatchMaker`.

    Raises:
        BadInput: if there are fewer mentions than a step takes.
    """

    spec: RecallSpec

    def read(self) -> tuple[int, str]:
        if self.spec.fold:
            left_out = _in_fold(self.dataset, read_fold(self.spec.fold), self.spec.seed)
            self.dataset = _without(self.dataset, left_out)
        train = self.dataset.splits["train"]
        self.mention_of, self.concept_of = train.pairs()
        self.number_of = np.clip(train.numbers() - 1, 0, MOST_NUMBERS - 1).astype(np.int32)
        # All strings that batches are made of; mentions come first.
        tables = [train.mentions, self.dataset.names]
        concepts = [np.full(len(train.mentions), -1, np.int32), self.dataset.name_concepts]
        self.negatives: np.ndarray | None = None
        if self.spec.negatives != "online":
            chosen = fixed_negatives(
                self.dataset, self.spec.negatives, self.spec.negatives_per_pair, self.spec.seed
            )
            self.negatives = chosen.rows
            tables.append(chosen.extra)
            concepts.append(np.full(len(chosen.extra), -1, np.int32))
        self.tokens = np.concatenate([table.tokens for table in tables])
        self.start = _joined_starts([table.start for table in tables])
        self.concepts = np.concatenate(concepts)
        self.first_name = self.dataset.name_start()
        self.own = _OwnNames.of(self.mention_of, self.concept_of, self.first_name)
        nearest = self.spec.own_names == "nearest"
        self.names = self.own.most_alike(self.dataset) if nearest else None
        return len(self.mention_of), "training mentions with a concept of the dictionary"

    @cached_property
    def gold_names(self) -> list[np.ndarray]:
        """int64: for each training mention the names that may not be its negatives."""
        gold = _GoldNames(self.dataset)
        return [np.array([*gold.rows(row)], np.int64) for row in range(len(gold.gold))]

    def lengths(self, step: int, groups: np.ndarray) -> np.ndarray:
        """The length of each string; where negatives are not known yet, the pairs' names count
        instead.
        """
        negatives = self.negatives
        if negatives is None:
            names = self.first_name[self.concept_of]
            negatives = np.repeat(names[:, None], self.spec.negatives_per_pair, axis=1)
        return np.diff(self.start)[self.strings(step, groups, negatives)[0]]

    def strings(
        self, step: int, groups: np.ndarray, negatives: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The strings and pairs in some parts of a step.

        Args:
            step: its number, from 0.
            groups: int [G], the numbers of the parts.
            negatives: int [pairs, kn].

        Returns:
            (strings, pairs): int64 [G, N] and [G, N / (2 + kn)], numbers of strings and of pairs.
        """
        pairs, epoch = self.drawn(step, groups), step // self.steps_per_epoch
        if self.names is not None:
            names = self.names[pairs]
        else:
            concept = self.concept_of[pairs]
            first, last = self.first_name[concept], self.first_name[concept + 1]
            names = first + random_below(last - first, pairs, self.spec.seed, _NAME, epoch)
        mentions = self.mention_of[pairs]
        beside = len(self.number_of)  # names come after the mentions
        others = negatives[pairs].reshape(len(groups), -1)
        return np.concatenate([mentions, beside + names, beside + others], axis=1), pairs

    def with_index(self, index: Path) -> Self:
        """These batches with the negatives of an index and, if wanted, the nearest own names.

        Raises:
            BadInput: if they are of other mentions.
        """
        if self.spec.negatives != "online":
            return super().with_index(index)
        pairs = len(self.mention_of)
        self.negatives = map_array(index / NEGATIVES, _AGAIN, (pairs, self.spec.negatives_per_pair))
        if self.names is not None:
            self.names = map_array(index / NAMES, _AGAIN, (pairs,))
        return self

    def batch(self, step: int) -> dict[str, np.ndarray]:
        """The batch of a step."""
        assert self.negatives is not None, "negatives come with the first refresh"
        shape = self.groups.shape
        strings, pairs = self.strings(step, self.groups.ravel(), self.negatives)
        bounds, (tokens,) = joined(self.start, strings.ravel(), self.tokens)
        rows = self.spec.row_length, self.plan.ample
        concepts = self.concepts[strings]
        concepts[:, : pairs.shape[1]] = self.concept_of[pairs]
        return {
            **packed_blocks(tokens, bounds, shape[:2], *rows),
            "concepts": concepts.reshape(*shape, -1),
            "numbers": self.number_of[self.mention_of[pairs]].reshape(*shape, -1),
        }


def _joined_starts(starts: list[np.ndarray]) -> np.ndarray:
    """int64: sequence bounds after the token arrays of several tables are concatenated."""
    lengths = np.concatenate([np.diff(start) for start in starts])
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


# -------------------------------------------------------------------------------------------------
# Input of the ranker: [CLS] probes mention [SEP] candidate [SEP].
#
# Liang, Xue, Ruan 2021, section 3.2. A probe token stands for a kind of keyword, such as site or
# type. The kinds of a token decide which probes attend to it.

_TEXT = 1  # the bit of text, [CLS] and [SEP]; bit k + 1 is that of keywords of kind k and its probe


Inputs = tuple[np.ndarray, np.ndarray, np.ndarray]
"""(tokens, start, kinds) of strings: int32 [T], int64 [n + 1], uint8 [T]."""


class Pairs(NamedTuple):
    """n pairs, concatenated; all arrays but `start` have one entry per token."""

    tokens: np.ndarray
    """int32 [T]."""
    kinds: np.ndarray
    """int32 [T], bits: see `_TEXT`."""
    types: np.ndarray
    """int32 [T], 0 up to the first [SEP], then 1."""
    start: np.ndarray
    """int64 [n + 1], where each pair begins."""


def pairs_of(
    mentions: Inputs,
    names: Inputs,
    rows: np.ndarray,
    probes: np.ndarray,
    max_length: int,
) -> Pairs:
    """The pairs of mentions and names as ranker input.

    Args:
        mentions, names: (tokens int32 [T], start int64 [n + 1], kinds uint8 [T]) each, with [CLS]
            first and [SEP] last in each string, which are of no kind.
        rows: int [n, 2], the mention and the name of each pair.
        probes: int32 [K], the tokens that stand for probes, in the order of the kinds.
        max_length: longest pair in tokens, special tokens and probes included. Of a longer one the
            longer string loses tokens at its end, then both in turn.
    """
    tokens, kinds, types = [], [], []
    first = np.concatenate([mentions[0][:1], probes]).astype(np.int32)
    of_probes = _TEXT | np.concatenate([[0], 2 << np.arange(len(probes))])
    of_probes[1:] -= _TEXT  # a probe sees itself and its keywords, not the text
    free = max_length - len(first) - 2
    for mention, name in rows.tolist():
        (mention_tokens, mention_kinds), (name_tokens, name_kinds) = (
            _inner(table, row) for table, row in ((mentions, mention), (names, name))
        )
        kept_mention, kept_name = _share(len(mention_tokens), len(name_tokens), free)
        end = names[0][names[1][name + 1] - 1 : names[1][name + 1]]  # [SEP]
        tokens += [first, mention_tokens[:kept_mention], end, name_tokens[:kept_name], end]
        none = np.zeros(1, np.uint8)
        text = [mention_kinds[:kept_mention], none, name_kinds[:kept_name], none]
        of_text = np.concatenate(text).astype(np.int32)
        kinds += [of_probes, _TEXT | of_text << 1]
        types += [np.zeros(len(first) + kept_mention + 1), np.ones(kept_name + 1)]
    lengths = [len(first) + len(kind) for kind in kinds[1::2]]
    return Pairs(
        np.concatenate(tokens).astype(np.int32),
        np.concatenate(kinds).astype(np.int32),
        np.concatenate(types).astype(np.int32),
        np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
    )


def inputs_of(table: TokenTable) -> Inputs:
    """A table's tokens, bounds and keyword kinds, as the ranker takes them."""
    return np.asarray(table.tokens), np.asarray(table.start), np.asarray(table.kinds)


def probe_tokens(tokenizer: Tokenizer, kinds: int) -> np.ndarray:
    """int32 [K]: the tokens used as probes: [unused1], [unused2], ... of BERT's vocabulary.

    Raises:
        BadInput: if the tokenizer has none.
    """
    names = [f"[unused{number}]" for number in range(1, kinds + 1)]
    numbers = [tokenizer.token_to_id(name) for name in names]
    missing = [name for name, number in zip(names, numbers, strict=True) if number is None]
    if missing:
        raise BadInput(
            f"the vocabulary has no {' '.join(missing)}, which stand for the kinds of keywords; "
            "use an encoder with the vocabulary of a BERT, or build the mentions without --keywords"
        )
    return np.array(numbers, np.int32)


def _inner(table: Inputs, row: int) -> tuple[np.ndarray, np.ndarray]:
    """(tokens, kinds) of a string, without [CLS] and [SEP]."""
    tokens, start, kinds = table
    within = slice(start[row] + 1, start[row + 1] - 1)
    return tokens[within], kinds[within]


def _share(a: int, b: int, free: int) -> tuple[int, int]:
    """How many of `free` tokens each of two strings keeps; the shorter one has a right to half."""
    if a + b <= free:
        return a, b
    half = free // 2
    if a <= half:
        return a, free - a
    if b <= half:
        return free - b, b
    return free - half, half


# -------------------------------------------------------------------------------------------------
# Batches of the ranker: pairs of a mention and one of its candidates.
#
# Recall and rank (Liang, Xue, Ruan 2021, section 3.2). NumPy alone.


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RankSpec:
    """The batch of a step are some training mentions, each with one of its candidates.

    Each (mention, candidate) comes once an epoch. With `broader` there are pairs from the
    hierarchy, too, and those of a rare answer come several times.
    """

    broader: bool = False
    """Learn three answers about equally often: the concept itself, a broader one, or neither. Needs
    mentions whose dictionary is a dataset with relations."""
    pairs: int = 64
    """Pairs of a mention and a candidate in a step."""
    pair_length: int = 128
    """Longest pair in tokens; longer ones are cut."""
    fold: Annotated[str, Flag(metavar="NUMBER/FOLDS")] = ""
    """Train without one fold of the mentions: 2/5 leaves out the second of five, as a generator
    with the same --fold and --seed does. These choose the best checkpoint, unless the data has
    others for it."""
    groups: int = 8
    """Parts of a step that may lie on different devices; changes no result but for rounding."""
    row_length: int = 128
    """Tokens in a row; short pairs share one, for speed."""
    seed: int = 0
    """For the order of the pairs and the dropout."""

    @property
    def terms(self) -> int:
        """The pairs of a step."""
        return self.pairs

    @property
    def arrays(self) -> dict[str, tuple[int, ...]]:
        """The arrays of a batch beside its packed rows, and the shape of each in one group."""
        return dict.fromkeys(("concepts", "labels"), (self.pairs // self.groups,))

    def hyperparameters(self) -> dict[str, Any]:
        """What a step is made of, for the model card."""
        values = {"draw": "each candidate of each mention once an epoch"}
        if self.broader:
            values["draw"] = "candidates, and concepts above and beside; rare answers repeated"
            values["answers"] = "the same, broader or neither"
        return {**values, "without the fold": self.fold} if self.fold else values

    def validate(self) -> None:
        """Raise BadInput where a value cannot be used."""
        check_least(self, 1, "pairs", "groups")
        if self.fold:
            read_fold(self.fold)
        check_least(self, 8, "pair_length")
        check_least(self, 0, "seed")
        if self.row_length < self.pair_length:
            raise BadInput(
                f"--row-length is {self.row_length} and --pair-length is {self.pair_length}: a "
                f"pair must fit into a row; give --row-length {self.pair_length} or more"
            )
        check_divides(self, "pairs")


class RankBatches(_MentionBatches):
    """The batches of a run of the ranker.

    A batch has packed rows (`PackedGroups`; and `kinds`, `types` of each token, see
    `mentions.py`), a segment for each pair; and int32, [P, B, groups, N] each: `labels`, 1 where
    the candidate is a concept of the mention, 2 (`broader`) where it is broader than one, and
    `concepts`, the candidate's.

    Args:
        folder: of mentions and candidates (`python -m coder_jax candidates`).
        spec: what a step is made of.
        cut, rows, run_steps, shapes: as for `BatchMaker`.

    Raises:
        BadInput: if there are fewer pairs than a step takes, or no tokens for the probes.
    """

    packed: tuple[str, ...] = (*PackedGroups.packed, "kinds", "types")
    kept: tuple[str, ...] = ("tokenizer", WORDS)
    spec: RankSpec

    def read(self) -> tuple[int, str]:
        names = self.dataset.names
        self.lists = {  # a run is chosen by those of dev
            split: read_lists(self.folder, split, len(found.mentions), len(names))
            for split, found in self.dataset.splits.items()
            if split != "test"
        }
        if self.spec.fold:
            left_out = _in_fold(self.dataset, read_fold(self.spec.fold), self.spec.seed)
            chosen, kept = (self.lists["train"].of(rows) for rows in (left_out, ~left_out))
            self.lists = {"dev": chosen, **self.lists, "train": kept}
            self.dataset = _without(self.dataset, left_out)
        if self.spec.broader and not len(self.dataset.parents):
            raise BadInput(
                f"--broader: found no broader concepts in {self.folder}; build it with a dataset "
                "that has relations as --dictionary, and --gold codes"
            )
        train = self.dataset.splits["train"]
        rows = candidate_rows(self.lists["train"])
        if self.spec.broader:
            rows = np.concatenate([rows, self._rows_of_hierarchy()])
        labels = self.labels_of(rows)
        rows, labels = rows[labels >= 0], labels[labels >= 0]
        if not len(rows):
            raise BadInput(
                f"{self.folder} has no mention to learn from: the dictionary lacks the gold of all"
            )
        if self.spec.broader:
            # Else one pair in ten is of the concept itself: pairs of a rare answer come repeatedly.
            counts = np.bincount(labels)
            times = np.rint(counts.max() / np.maximum(counts, 1)).astype(int)[labels]
            rows, labels = np.repeat(rows, times, axis=0), np.repeat(labels, times)
        self.rows, self.labels = rows, labels
        self.concepts = self.dataset.name_concepts[self.rows[:, 1]]
        tokenizer = load_tokenizer(self.folder / "tokenizer")
        self.probes = probe_tokens(tokenizer, len(self.manifest.keyword_kinds))
        self.pairs = self.pairs_of(train.mentions, self.rows)
        return len(self.rows), "pairs of a training mention and a candidate"

    def _rows_of_hierarchy(self) -> np.ndarray:
        """int64 [n, 2]: each training mention with a name of each concept that is a step broader
        than its own, and with a name of a concept below that, often a sibling.
        """
        data, seed = self.dataset, self.spec.seed
        order, concepts = np.argsort(data.parents, kind="stable"), np.arange(len(data.concepts))
        children = np.repeat(concepts, np.diff(data.parent_start))[order]
        child_start = np.searchsorted(data.parents[order], np.arange(len(concepts) + 1))
        mentions, own = data.splits["train"].pairs()
        bounds, (parents,) = joined(data.parent_start, own, data.parents)

        def any_of(start: np.ndarray, rows: np.ndarray, stream: int) -> np.ndarray:
            sizes = np.diff(start)[rows]
            return start[rows] + random_below(sizes, np.arange(len(rows)), seed, stream)

        siblings = children[any_of(child_start, parents, _SIBLING)]
        names = any_of(data.name_start(), np.concatenate([parents, siblings]), _NAME)
        return np.stack([np.tile(np.repeat(mentions, np.diff(bounds)), 2), names], axis=1)

    def labels_of(self, rows: np.ndarray) -> np.ndarray:
        """int32 [n]: 1 for a gold concept of the mention, 2 for one that is broader (if that is
        learnt), 0 for another one, -1 for pairs to ignore.

        Nothing is learnt of a mention with gold that the dictionary lacks, as one of its candidates
        may be right; nor of a name of another concept that has the tokens of a gold name.

        Args:
            rows: int [n, 2], training mentions and names of the dictionary.
        """
        gold_names = _GoldNames(self.dataset)
        gold, concepts = gold_names.gold, self.dataset.name_concepts
        broader: dict[int, set[int]] = {}
        keys: dict[int, set[bytes]] = {}
        labels = np.zeros(len(rows), np.int32)
        for number, (mention, name) in enumerate(rows.tolist()):
            if mention not in keys:
                keys[mention] = gold_names.keys(mention)
                known = gold[mention] - {UNREACHABLE}
                broader[mention] = self.dataset.broader(known) if self.spec.broader else set()
            if UNREACHABLE in gold[mention]:
                labels[number] = -1
            elif int(concepts[name]) in gold[mention]:
                labels[number] = 1
            elif gold_names.key(name) in keys[mention]:
                labels[number] = -1
            elif int(concepts[name]) in broader[mention]:
                labels[number] = 2
        return labels

    @property
    def identity(self) -> dict[str, Any]:
        """As in the base class, plus a hash of the candidates, which depend on the generator."""
        hashes = {split: lists.content_hash for split, lists in self.lists.items()}
        return {**super().identity, "candidates": hashes}

    def lengths(self, step: int, groups: np.ndarray) -> np.ndarray:
        return np.diff(self.pairs.start)[self.drawn(step, groups)]

    def pairs_of(self, mentions: TokenTable, rows: np.ndarray) -> Pairs:
        """Pairs of some mentions and names of the dictionary, as they appear in batches.

        Args:
            mentions: of any split.
            rows: int [n, 2], the mention and the name of each pair.
        """
        return pairs_of(
            inputs_of(mentions),
            inputs_of(self.dataset.names),
            rows,
            self.probes,
            self.spec.pair_length,
        )

    def batch(self, step: int) -> dict[str, np.ndarray]:
        """The batch of a step."""
        shape = self.groups.shape
        drawn = self.drawn(step, self.groups.ravel())
        pairs = self.pairs
        bounds, (tokens, kinds, types) = joined(
            pairs.start, drawn.ravel(), pairs.tokens, pairs.kinds, pairs.types
        )
        rows = self.spec.row_length, self.plan.ample
        return {
            **packed_blocks(tokens, bounds, shape[:2], *rows, kinds=kinds, types=types),
            "concepts": self.concepts[drawn].reshape(*shape, -1),
            "labels": self.labels[drawn].reshape(*shape, -1),
        }
