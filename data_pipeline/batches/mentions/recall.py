"""Mentions, each with a name of its concept and names of others, as packed batches.

For the candidate generator of recall and rank (Liang, Xue, Ruan 2021, section 3.1). NumPy alone.

OUT/index/N/negatives.npy   int32 [pairs, kn]: for each (mention, gold concept) of the training
                            mentions the names of other concepts, numbers of `MentionDataset.names`
OUT/index/N/names.npy       int32 [pairs]: the name that stands for the concept
"""

import dataclasses
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from data_pipeline.batches.checks import check_divides, check_least
from data_pipeline.batches.draws.epochs import ORDER
from data_pipeline.batches.draws.negatives import GoldNames, fixed_negatives
from data_pipeline.batches.draws.shuffles import random_below
from data_pipeline.batches.mentions.folds import read_fold, without_fold
from data_pipeline.batches.mentions.own_names import OwnNames
from data_pipeline.batches.mentions.source import MentionBatches
from data_pipeline.batches.packed_groups import joined, packed_blocks
from data_pipeline.files.array_files import map_array
from data_pipeline.process.errors import BadInput

NEGATIVES, NAMES = "negatives.npy", "names.npy"
AGAIN = "it is damaged: begin another run"
MOST_NUMBERS = 3  # a mention has 1, 2, or 3 and more concepts (Liang et al., section 3.1.1)
NAME = ORDER + 1  # a stream of random numbers


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
    """kn, names of other concepts beside each mention."""
    fold: str = ""
    """NUMBER/FOLDS, such as 2/5: train without the mentions of the second of five folds, so that
    `candidates --folds` can ask this run for theirs. A mention's fold depends on its string and the
    seed alone. None: train on all."""
    groups: int = 8
    """Parts of a step that may lie on different devices; changes no result but for rounding."""
    row_length: int = 128
    """Tokens in a packed row."""
    seed: int = 0
    """Of the order of the mentions, the choice of names and the dropout."""

    @property
    def terms(self) -> int:
        """The strings of a step: mentions, their names, and the names of others."""
        return self.pairs * (2 + self.negatives_per_pair)

    @property
    def arrays(self) -> dict[str, tuple[int, ...]]:
        """The arrays of a batch beside its packed rows, and the shape of each in one group."""
        return {"concepts": (self.terms // self.groups,), "numbers": (self.pairs // self.groups,)}

    def told(self) -> dict[str, Any]:
        """What a step is made of, for the model card."""
        told = {
            "negatives": f"{self.negatives_per_pair} per mention, {self.negatives}",
            "own names": self.own_names,
        }
        return {**told, "without the fold": self.fold} if self.fold else told

    def validate(self) -> None:
        """Raise BadInput where a value cannot be used."""
        check_least(self, 1, "pairs", "negatives_per_pair", "groups", "row_length")
        check_least(self, 0, "seed")
        if self.fold:
            read_fold(self.fold)
        check_divides(self, "pairs")


class RecallBatches(MentionBatches):
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
            fold = read_fold(self.spec.fold)
            self.dataset = without_fold(self.dataset, fold, self.spec.seed)
        train = self.dataset.splits["train"]
        self.mention_of, self.concept_of = train.pairs()
        self.number_of = np.clip(train.numbers() - 1, 0, MOST_NUMBERS - 1).astype(np.int32)
        # All strings that batches are made of, mentions first.
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
        self.start = joined_starts([table.start for table in tables])
        self.concepts = np.concatenate(concepts)
        self.first_name = self.dataset.name_start()
        self.own = OwnNames.of(self.mention_of, self.concept_of, self.first_name)
        nearest = self.spec.own_names == "nearest"
        self.names = self.own.most_alike(self.dataset) if nearest else None
        return len(self.mention_of), "training mentions with a concept of the dictionary"

    @cached_property
    def gold_names(self) -> list[np.ndarray]:
        """int64: for each training mention the names that may be no negative of it."""
        gold = GoldNames(self.dataset, "train")
        return [np.array([*gold.rows(row)], np.int64) for row in range(len(gold.gold))]

    def lengths(self, step: int, groups: np.ndarray) -> np.ndarray:
        """Negatives that are not known yet count as the names of the pairs."""
        negatives = self.negatives
        if negatives is None:
            names = self.first_name[self.concept_of]
            negatives = np.repeat(names[:, None], self.spec.negatives_per_pair, axis=1)
        return np.diff(self.start)[self.strings(step, groups, negatives)[0]]

    def strings(
        self, step: int, groups: np.ndarray, negatives: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """What parts of a step are made of.

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
            names = first + random_below(last - first, pairs, self.spec.seed, NAME, epoch)
        mentions = self.mention_of[pairs]
        beside = len(self.number_of)  # names come after the mentions
        others = negatives[pairs].reshape(len(groups), -1)
        return np.concatenate([mentions, beside + names, beside + others], axis=1), pairs

    def with_index(self, index: Path) -> Self:
        """These batches with the negatives of an index, and the nearest own names.

        Raises:
            BadInput: if they are of other mentions.
        """
        if self.spec.negatives != "online":
            return super().with_index(index)
        pairs = len(self.mention_of)
        self.negatives = numbers_of(index / NEGATIVES, (pairs, self.spec.negatives_per_pair))
        if self.names is not None:
            self.names = numbers_of(index / NAMES, (pairs,))
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


def numbers_of(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """int32 of this shape, from a file of an index; BadInput for any other."""
    found = map_array(path, AGAIN)
    if found.shape != shape or found.dtype != np.int32:
        raise BadInput(f"{path} holds {found.dtype} {found.shape}; expected int32 {shape}: {AGAIN}")
    return found


def joined_starts(starts: list[np.ndarray]) -> np.ndarray:
    """int64: the bounds of the sequences of several tables whose tokens are joined."""
    lengths = np.concatenate([np.diff(start) for start in starts])
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
