"""Negative names of mentions that stay the same while an encoder is trained.

Four strategies of Liang, Xue and Ruan (arXiv 2101.09101, section 4.5); the fifth, online, depends
on the encoder. A negative is never a gold of its mention: no name of one of its gold concepts, and
no name of another concept that has the tokens of one, which no encoder could tell from it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import polars as pl

from data_pipeline.dataset.mentions.store import MentionDataset, TokenTable
from data_pipeline.dataset.mentions.write import token_table
from data_pipeline.dataset.tokenize_terms import load_tokenizer
from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import progress_bar, tell
from data_pipeline.terminology.cleaning.rules import clean
from data_pipeline.terminology.keywords.vocabulary import KeywordVocabulary
from data_pipeline.terminology.tf_idf import CharacterTfIdf

Strategy = Literal["random", "tf-idf", "tree", "keywords"]
NEEDED: dict[Strategy, str] = {
    "random": "names of other concepts",
    "tf-idf": "names of other concepts",
    "tree": "codes that say where in the dictionary's tree they are, before a dot, as 01.1 does",
    "keywords": "preferred names with a keyword, and other keywords of its kind",
}
TRIES = 20  # at a string that is new, for each that is wanted


@dataclass(frozen=True)
class Negatives:
    """The negatives of P pairs of `MentionSplit.pairs`.

    Attributes:
      rows: int32 [P, kn]; below N a name of the dictionary, from N on a string of `extra`.
      extra: strings outside the dictionary; only keyword replacing has any.
      filled: how many were drawn at random, because the strategy had no more for their pair.
    """

    rows: np.ndarray
    extra: TokenTable
    filled: int


def fixed_negatives(
    dataset: MentionDataset, strategy: Strategy, number: int, seed: int, *, split: str = "train"
) -> Negatives:
    """The negatives of each (mention, reachable gold concept) of a split.

    Args:
      dataset: with mentions of that split.
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
    return _Drawing(dataset, number, seed, split).negatives(strategy)


class GoldNames:
    """Which names may not be negatives of which mention."""

    def __init__(self, dataset: MentionDataset, split: str):
        self.names, self.name_start = dataset.names, dataset.name_start()
        self.gold = dataset.splits[split].gold_sets()

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
        """The tokens of all names of its gold concepts."""
        concepts = (one for one in self.gold[mention] if one >= 0)
        return {self.key(row) for one in concepts for row in self.names_of(one)}

    def rows(self, mention: int) -> set[int]:
        """The names with these tokens, of whatever concept."""
        return {row for key in self.keys(mention) for row in self._rows[key]}

    @cached_property
    def most(self) -> int:
        """The most names that a mention excludes."""
        return max(len(self.rows(mention)) for mention in range(len(self.gold)))


class _Drawing:
    def __init__(self, dataset: MentionDataset, number: int, seed: int, split: str):
        self.dataset, self.number = dataset, number
        self.split = dataset.splits[split]
        self.gold = GoldNames(dataset, split)
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
                stopping.poll()
                forbidden = self.gold.rows(mention)
                drawn.append(self._filled(of_pair(mention, concept, forbidden), forbidden))
                bar.update()
        extra = self._extra_tokens()
        self._without_gold(drawn, mentions, extra)
        self._check_filled(strategy, len(drawn) * self.number)
        rows = np.array(drawn, np.int32).reshape(len(mentions), self.number)
        return Negatives(rows, extra, self.filled)

    def _check_filled(self, strategy: Strategy, wanted: int) -> None:
        """Say how many are not of the strategy; BadInput if none is."""
        if self.filled and self.filled == wanted:
            raise BadInput(
                f"negatives {strategy!r}: found none in {self.dataset.folder} for any mention; "
                f"expected {NEEDED[strategy]}: take other negatives"
            )
        if self.filled:
            tell(f"{self.filled:,} of {wanted:,} negatives are any names: there were no others")

    def _by_strategy(
        self, strategy: Strategy, mentions: np.ndarray
    ) -> Callable[[int, int, set[int]], list[int]]:
        """What gives the negatives of (mention, concept, names that it may not have), or fewer."""
        if strategy == "random":
            return lambda mention, concept, forbidden: self._drawn(self.size, forbidden, set())
        if strategy == "tree":
            return self._on_branches()
        if strategy == "keywords":
            return self._with_keywords()
        asked, place = np.unique(mentions, return_inverse=True)
        strings = [self.split.mentions.strings[int(row)] for row in asked]
        near = CharacterTfIdf(list(self.dataset.names.strings)).nearest(
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
        """Up to `number` distinct rows of a pool, any order; none of these two sets."""
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
        """As many as are wanted: others drawn at random, twice where there are too few names."""
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
        rules = self.dataset.manifest["cleaning"]
        names = clean(pl.Series(list(self.dataset.names.strings), dtype=pl.String), rules).to_list()
        row_of = {name: row for row, name in reversed(list(enumerate(names)))}

        def replaced(mention: int, concept: int, forbidden: set[int]) -> list[int]:
            name = names[self.gold.names_of(concept)[0]]
            matches = keywords.matches(name)
            found: dict[int, None] = {}
            for _ in range(TRIES * self.number if matches else 0):
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
            cleaning=manifest["cleaning"],
            max_length=manifest["tokenizer"]["max_length"],
            keywords=KeywordVocabulary(self.dataset.words),
        )[0]

    def _without_gold(
        self, drawn: list[list[int]], mentions: np.ndarray, extra: TokenTable
    ) -> None:
        """Takes out new strings that a tokenizer cannot tell from a gold name, such as in case."""
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
