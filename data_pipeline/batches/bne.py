"""Batches of names as words and characters, with word vectors and targets, in NumPy."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from data_pipeline.batches.epochs import ORDER, EpochBatches
from data_pipeline.batches.order import random_below
from data_pipeline.batches.packing import (
    LONG_RUN,
    MOST_SHAPES,
    first_fit_decreasing,
    joined,
    pack_rows,
    plan_sizes,
    spread,
)
from data_pipeline.batches.spec import StepCut, check_divides, check_least
from data_pipeline.dataset.store import Manifest, TripletDataset, open_dataset
from data_pipeline.files.buckets import local_folder
from data_pipeline.files.identity import SKIP_GRAMS
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput
from data_pipeline.skip_gram.store import SkipGrams, StringVectors, open_vectors
from data_pipeline.sources.text import rules_hash, words_of
from data_pipeline.terminology.cleaning import IN_WORDS

# -------------------------------------------------------------------------------------------------
# The alphabet: words as numbers of characters.
#
# The marks are those of the encoder of Phan et al. (its released checkpoint, minhcp/BNE, has a
# trained row for each, among the characters and among the words).

_WORD, _END_OF_WORD, _NAME, _END_OF_NAME, _OLD_END, _UNKNOWN, _RAQUO = range(1, 8)
MARKS = ("<w>", "</w>", "<s>", "</s>", "</dsw>", "</unk>", "»")
"""What the numbers from 1 are; 0 is no character. The fifth and the last occur nowhere: they are in
the released shape."""
MOST_CHARACTERS = 32
_SPELLING = MOST_CHARACTERS + 2
"""The longest spelling, with the marks of a word."""


@dataclass(frozen=True)
class Alphabet:
    """The characters that an encoder of names knows.

    Attributes:
        characters: each once; the first has the number after those of the marks.
    """

    characters: str

    @classmethod
    def of(cls, words: Iterable[str]) -> Alphabet:
        """The alphabet of all characters in the spellings of some words, sorted."""
        return cls("".join(sorted({one for word in words for one in word[:MOST_CHARACTERS]})))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {one: number for number, one in enumerate(self.characters, len(MARKS) + 1)}

    @property
    def size(self) -> int:
        """The largest number: marks and characters are numbered from 1."""
        return len(MARKS) + len(self.characters)

    def spell(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The spellings of words, `<w>` c1 .. cm `</w>` with m of at most 32.

        A character that is not in the alphabet is `</unk>`.

        Returns:
            (start, characters): int64 [n + 1] and int32; word i is spelled
            characters[start[i] : start[i + 1]].
        """
        number = self._numbers.get
        spelled = [
            [_WORD, *(number(one, _UNKNOWN) for one in word[:MOST_CHARACTERS]), _END_OF_WORD]
            for word in words
        ]
        start = np.cumsum([0, *map(len, spelled)], dtype=np.int64)
        return start, np.array([one for word in spelled for one in word], np.int32)


# -------------------------------------------------------------------------------------------------
# The table of words: the spelling of each, and the row of its vector.
#
# The first two numbers are the marks around a name, which are words with characters of their own.

_FIRST, _LAST = 0, 1  # the numbers of the marks around a name
_WORDS_FROM = 2
HAS_VECTOR = 1  # a kind; 1 + m is that of words whose vector is the trained one of mark m


@dataclass(frozen=True)
class WordTable:
    """Words with their spellings and vectors.

    Attributes:
        start, characters: int64 [V + 1] and int32, the spellings (`Alphabet.spell`).
        rows: int64 [V], of `vectors`; -1 for a word that has none.
        kinds: int32 [V], HAS_VECTOR, or 1 + the mark whose trained vector stands for it.
        vectors: float32 [n, width].
    """

    start: np.ndarray
    characters: np.ndarray
    rows: np.ndarray
    kinds: np.ndarray
    vectors: np.ndarray

    @classmethod
    def of(cls, words: Sequence[str], alphabet: Alphabet, vectors: StringVectors) -> WordTable:
        """The table of words; word i has the number _WORDS_FROM + i."""
        start, characters = alphabet.spell(words)
        marks = [_WORD, _NAME, _END_OF_WORD, _WORD, _END_OF_NAME, _END_OF_WORD]
        found = vectors.rows(words)
        rows = np.concatenate([[-1, -1], found])
        kinds = np.where(rows < 0, 1 + _UNKNOWN, HAS_VECTOR)
        kinds[[_FIRST, _LAST]] = 1 + _NAME, 1 + _END_OF_NAME
        return cls(
            start=np.concatenate([[0, 3], 6 + start]),
            characters=np.concatenate([np.array(marks, np.int32), characters]),
            rows=rows,
            kinds=kinds.astype(np.int32),
            vectors=vectors.vectors,
        )

    def spelled(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(bounds, characters) of some words, concatenated as by `packing.joined`."""
        bounds, (characters,) = joined(self.start, words, self.characters)
        return bounds, characters

    def vectors_of(self, words: np.ndarray) -> np.ndarray:
        """float32 [len(words), width]; 0 for words without a vector."""
        rows = self.rows[words]
        return np.where((rows >= 0)[:, None], self.vectors[np.maximum(rows, 0)], np.float32(0))


def numbered(names: Sequence[Sequence[str]]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names as numbers of words, with the marks around each name.

    Args:
        names: of each its words.

    Returns:
        (words, tokens, start): the distinct words, in the order in which they come; int32, name i
        is tokens[start[i] : start[i + 1]], FIRST .. LAST.
    """
    numbers: dict[str, int] = {}
    tokens: list[int] = []
    start = [0]
    for words in names:
        tokens.append(_FIRST)
        tokens += [numbers.setdefault(word, len(numbers) + _WORDS_FROM) for word in words]
        tokens.append(_LAST)
        start.append(len(tokens))
    return list(numbers), np.array(tokens, np.int32), np.array(start, np.int64)


# -------------------------------------------------------------------------------------------------
# Blocks of names as packed rows. Each distinct word is spelled once and has its vector once.
#
# All arrays of a block have as many rows, so that they are cut and placed as packed rows are. A row
# has L places for words of names, K short rows of spellings, and V distinct words.

PACKED = (
    *("words", "positions", "segments"),
    *("characters", "spelled", "word_kinds", "word_vectors"),
)
_NUMBERS = tuple(name for name in PACKED if name != "word_vectors")


class RowSize(NamedTuple):
    """The capacity of a row."""

    length: int
    """L, words of names with their marks."""
    spellings: int
    """K, rows of 34 characters."""
    words: int
    """V, distinct words."""

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """The shape of each packed array in one row; word vectors have `width` numbers."""
        spelled = (self.spellings, _SPELLING)
        return {
            **dict.fromkeys(("words", "positions", "segments"), (self.length,)),
            **dict.fromkeys(("characters", "spelled"), spelled),
            "word_kinds": (self.words,),
            "word_vectors": (self.words, width),
        }

    def rows(self, needs: np.ndarray) -> np.ndarray:
        """int [...]: the rows needed for `needs` [..., 3], which come from `needs_of`."""
        return (-(-needs // np.array([1, self.spellings, self.words]))).max(axis=-1)


def needs_of(table: WordTable, tokens: np.ndarray, bounds: np.ndarray, length: int) -> np.ndarray:
    """int64 [3]: the rows of words, rows of spellings and distinct words that a block needs.

    Args:
        table: of the words.
        tokens: int [sum of lengths], the words of its names.
        bounds: int64 [N + 1], where names begin.
        length: L.
    """
    distinct = np.unique(tokens)
    rows, _ = first_fit_decreasing(np.diff(bounds), length)
    spelling_bounds, _ = table.spelled(distinct)
    spellings, _ = first_fit_decreasing(np.diff(spelling_bounds), _SPELLING)
    return np.array([rows.max() + 1, spellings.max() + 1, len(distinct)])


def pack_names(
    table: WordTable, tokens: np.ndarray, bounds: np.ndarray, row: RowSize, rows: int
) -> dict[str, np.ndarray]:
    """The packed arrays of a block: int32 [R, ...] with `RowSize.shapes`; `word_vectors` is
    float32.

    - `words`: 1 + the place of a word among the distinct ones of the block; 0 for none.
    - `positions`, `segments`: as in `pack_rows`.
    - `characters`: of the spellings; `spelled`: 1 + the place of the word that they spell.
    - `word_kinds`: of the distinct words, place after place over the rows; 0 for none.
    - `word_vectors`: float32.

    Args:
        table, tokens, bounds: as for `needs_of`.
        row: what a row has room for.
        rows: R.

    Raises:
        BadInput: if the names need more than `rows` rows, or a spelling does.
    """
    distinct, places = np.unique(tokens, return_inverse=True)
    packed = pack_rows(places.astype(np.int32) + 1, bounds, row.length, rows)
    spelling_bounds, characters = table.spelled(distinct)
    spelled = pack_rows(characters, spelling_bounds, _SPELLING, rows * row.spellings)
    width = table.vectors.shape[1]
    kinds = np.zeros(rows * row.words, np.int32)
    vectors = np.zeros((rows * row.words, width), np.float32)
    kinds[: len(distinct)] = table.kinds[distinct]
    vectors[: len(distinct)] = table.vectors_of(distinct)
    made = {
        "words": packed["tokens"],
        "positions": packed["positions"],
        "segments": packed["segments"],
        "characters": spelled["tokens"],
        "spelled": spelled["segments"],
        "word_kinds": kinds,
        "word_vectors": vectors,
    }
    return {name: made[name].reshape(rows, *shape) for name, shape in row.shapes(width).items()}


def _rows_in_use(batch: dict[str, np.ndarray]) -> int:
    """The number of rows up to the last one that any block of a batch [P, B, R, ...] uses."""
    used = np.zeros(batch["words"].shape[2], bool)
    for name in _NUMBERS:
        array = np.moveaxis(batch[name], 2, 0)
        used |= array.reshape(len(array), -1).any(axis=1)
    return int(np.flatnonzero(used)[-1]) + 1 if used.any() else 0


# -------------------------------------------------------------------------------------------------
# Sets of synonyms: the names of a dataset's concepts that have two or more.

_WHOLE_WORDS = ("none", "lookup")  # rules that delete no word inside a name, and split none


def check_cleaning(manifest: Manifest, folder: str | Path) -> None:
    """Raise BadInput if the names of a dataset lost words that text has.

    Args:
        manifest: of the dataset.
        folder: where it is, for the message.
    """
    if manifest.cleaning not in _WHOLE_WORDS:
        raise BadInput(
            f"{folder}: its names were cleaned by the rules {manifest.cleaning!r} "
            f"({IN_WORDS[manifest.cleaning]}), so they have other words than the names in text; "
            "the names of chemicals even become alike. Build it again with --cleaning none"
        )


@dataclass(frozen=True)
class _NameSets:
    """Names as words, grouped by concept and distinct within it.

    Attributes:
        concepts: of each set its identifier in the dataset, [S].
        start: int64 [S + 1]; the names of set s are start[s] .. start[s + 1] - 1, two or more.
        words: the distinct words of all names.
        tokens, token_start: int32 and int64 [N + 1]; the numbers of a name's words with the marks
            around them, as of `numbered`.
        wordings: int32 [N], equal for names of equal words, whatever their sets.
    """

    concepts: Sequence[str]
    start: np.ndarray
    words: list[str]
    tokens: np.ndarray
    token_start: np.ndarray
    wordings: np.ndarray

    @cached_property
    def set_of_names(self) -> np.ndarray:
        """int64 [N]: the set of each name."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))


def _sets_of(dataset: TripletDataset, most_words: int, languages: Sequence[str] = ()) -> _NameSets:
    """The synonym sets of a dataset; names with the same words count once.

    Args:
        dataset: opened with its strings.
        most_words: of a longer name so many count.
        languages: of the terms that are names; none: all.

    Raises:
        BadInput: if there is no concept of two names, or no term in a language.
    """
    assert dataset.terms is not None and dataset.cuis is not None, "open it with its strings"
    wanted = dataset.in_languages(languages)
    concepts, names, start = [], [], [0]
    for concept, (first, last) in enumerate(
        zip(dataset.term_start[:-1].tolist(), dataset.term_start[1:].tolist(), strict=True)
    ):
        found = {
            tuple(words_of(dataset.terms[n])[:most_words]) for n in range(first, last) if wanted[n]
        }
        found.discard(())
        if len(found) > 1:
            concepts.append(dataset.cuis[concept])
            names += sorted(found)
            start.append(len(names))
    if not concepts:
        of = f" in {' '.join(languages)}" if languages else ""
        raise BadInput(
            f"{dataset.folder}: found {len(dataset.term_start) - 1:,} concepts, none with two names"
            f"{of} of different words; expected concepts with synonyms: build it from a "
            "terminology that has some, or with fewer filters"
        )
    words, tokens, token_start = numbered(names)
    wording: dict[tuple[str, ...], int] = {}
    wordings = np.array([wording.setdefault(name, len(wording)) for name in names], np.int32)
    return _NameSets(concepts, np.array(start, np.int64), words, tokens, token_start, wordings)


# -------------------------------------------------------------------------------------------------
# Targets of name vectors: the constants q(s) of a name and g(c) of a concept.
#
# Phan, Sun, Tay 2019, section 3.2, "Choices". Option 1: the vectors of the tokens of the name and
# of the concept, which skip-grams have of what was found in text (`--variant names_concepts`).
# Option 2: the mean of the vectors of the name's words, and the mean of these over the concept's
# names. A name or a concept without a token has the mean of option 2, in the space of option 1.


class _Targets:
    """The targets q of names and g of sets of names.

    Args:
        sets: the names.
        table: their words.
        grams: the vectors.
        tokens: whether option 1 is taken, where there are tokens.

    Attributes:
        counts: how many names and concepts have a token, words with vectors alone, or nothing.
    """

    def __init__(self, sets: _NameSets, table: WordTable, grams: SkipGrams, *, tokens: bool):
        self.sets, self.table, self.grams = sets, table, grams
        names, concepts = len(sets.wordings), len(sets.concepts)
        self.name_rows, self.concept_rows = np.full(names, -1), np.full(concepts, -1)
        if tokens:
            words = np.array([*[""] * _WORDS_FROM, *sets.words], object)
            bounds = sets.token_start
            self.name_rows = grams.names.rows(
                " ".join(words[sets.tokens[first + 1 : last - 1]])
                for first, last in zip(bounds[:-1], bounds[1:], strict=True)
            )
            self.concept_rows = grams.concepts.rows(sets.concepts)
        has_word = np.add.reduceat(table.rows[sets.tokens] >= 0, sets.token_start[:-1]) > 0
        self.counts = {
            "names with a token": int((self.name_rows >= 0).sum()),
            "names of known words": int(((self.name_rows < 0) & has_word).sum()),
            "names without a target": int(((self.name_rows < 0) & ~has_word).sum()),
            "concepts with a token": int((self.concept_rows >= 0).sum()),
            "concepts": concepts,
        }

    def of_names(self, names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(q, known): float32 [n, width], 0 where unknown; bool [n], whether the name has a
        target.
        """
        means, known = self._means_of_words(names)
        return _or_token(means, known, self.name_rows[names], self.grams.names.vectors)

    def of_sets(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(g, known) of sets, likewise; the mean of option 2 is over names that have a known
        word.
        """
        bounds, (names,) = joined(
            self.sets.start, numbers, np.arange(len(self.sets.wordings), dtype=np.int64)
        )
        means, known = self._means_of_words(names)
        owner = np.repeat(np.arange(len(numbers)), np.diff(bounds))[known]
        of_sets, some = _means(means[known], owner, len(numbers))
        rows = self.concept_rows[numbers]
        return _or_token(of_sets, some, rows, self.grams.concepts.vectors)

    def _means_of_words(self, names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        bounds, (tokens,) = joined(self.sets.token_start, names, self.sets.tokens)
        rows = self.table.rows[tokens]
        owner = np.repeat(np.arange(len(names)), np.diff(bounds))[rows >= 0]
        return _means(self.table.vectors[rows[rows >= 0]], owner, len(names))


def _means(vectors: np.ndarray, owner: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean vector of each owner (0 for an owner of none), and whether it has any."""
    numbers = np.bincount(owner, minlength=count)
    means = np.zeros((count, vectors.shape[1]), np.float32)
    some = numbers > 0
    if some.any():
        first = (np.cumsum(numbers) - numbers)[some]
        means[some] = np.add.reduceat(vectors, first, axis=0) / numbers[some, None]
    return means, some


def _or_token(
    means: np.ndarray, known: np.ndarray, rows: np.ndarray, vectors: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of tokens where `rows` names one, else the means."""
    there = rows >= 0
    means[there] = vectors[rows[there]]
    return means, known | there


# -------------------------------------------------------------------------------------------------
# Batches of the encoder of names: pairs of names of one concept. NumPy alone.
#
# Phan, Sun, Tay 2019 (BNE). The names are those of a dataset, whatever
# its tokenizer: they become words by the rule of `sources.text`, as text does.

_FIRST_NAME, _SECOND_NAME = ORDER + 1, ORDER + 2  # streams of random numbers
_PLANNING_STEPS = 64


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NameSpec:
    """The batch of a step are pairs of two different names of a concept.

    The paper draws over all pairs of names (equation 3) and over all names (equations 4 and 5), and
    says of neither how.
    """

    pairs: int = 64
    """Pairs of names in a step (section 4: batches of 64)."""
    draw: Literal["concepts", "names", "pairs"] = "concepts"
    """What comes once an epoch: each concept, with two of its names; each name, with another of its
    concept; or each pair of names."""
    targets: Literal["auto", "tokens", "words"] = "auto"
    """What q of a name and g of a concept are: vectors of their tokens (section 3.2, option 1), or
    means of vectors of words (option 2). auto: tokens where the vectors have concepts."""
    languages: Annotated[tuple[str, ...], Flag(metavar="LANGUAGE")] = ()
    """Train only on terms in these languages of the dataset, such as ENG."""
    groups: int = 8
    """Parts of a step that may lie on different devices; changes no result but for rounding."""
    row_length: int = 32
    """Words in a row, which short names share, with two marks for each; longer names are cut."""
    seed: int = 0
    """For the order, the choice of names and negatives, the start and the dropout."""

    @property
    def terms(self) -> int:
        """The names of a step."""
        return 2 * self.pairs

    @property
    def arrays(self) -> dict[str, tuple[int, ...]]:
        """The arrays beside packed rows and targets, and the shape of each in one group."""
        names = ("concepts", "wordings", "name_known", "concept_known")
        return dict.fromkeys(names, (self.terms // self.groups,))

    def hyperparameters(self) -> dict[str, Any]:
        """What a step is made of, for the model card."""
        return {"pairs per step": self.pairs, "draw": f"each of the {self.draw} once an epoch"}

    def validate(self) -> None:
        """Raise BadInput where a value cannot be used."""
        check_least(self, 1, "pairs", "groups")
        check_least(self, 3, "row_length")
        check_least(self, 0, "seed")
        check_divides(self, "pairs")
        if self.pairs < 2:
            raise BadInput(
                "--pairs is 1: negatives come from the other pairs of a step; give 2 or more"
            )


class NameBatches(EpochBatches):
    """The batches of a run of an encoder of names.

    A batch has the packed arrays of `pack_names`, [P, B, R, ...]; and [P, B, groups, N]
    each, N names of a group, first one of each pair and then the others in the same order:
    `concepts`, the number of the set; `wordings`, equal for names of equal words; `name_known`,
    `concept_known`, whether there is a target; and float32 [P, B, groups, N, width] `name_targets`,
    `concept_targets`.

    Args:
        folder: of the dataset.
        vectors: folder of skip-grams, here or in a bucket.
        spec: what a step is made of.
        cut, rows, run_steps, shapes: as for `BatchMaker`.

    Raises:
        BadInput: if a folder is none of these, words were made by other rules, names were cleaned
            by rules that change words, or there are fewer pairs than a step takes.
    """

    kept: tuple[str, ...] = ()
    packed: tuple[str, ...] = PACKED
    floats: tuple[str, ...] = ("word_vectors", "name_targets", "concept_targets")

    def __init__(
        self,
        folder: Path,
        vectors: str | Path,
        spec: NameSpec,
        cut: StepCut | None = None,
        *,
        rows: int = 0,
        run_steps: int = LONG_RUN,
        shapes: int = MOST_SHAPES,
    ):
        spec.validate()
        self.spec, self.cut, self.folder = spec, cut or StepCut(), folder
        self.groups = self.cut.groups(spec)
        self.grams = open_vectors(local_folder(vectors, SKIP_GRAMS.file))
        if self.grams.manifest.word_rules != rules_hash():
            raise BadInput(
                f"{vectors}: its words were made by rules of hash "
                f"{self.grams.manifest.word_rules[:12]}; expected those of this version, "
                f"{rules_hash()[:12]}: make it again with `python -m data_pipeline.skip_gram`"
            )
        self.targets_are = _targets_of(spec, self.grams.manifest.rows["concepts"], vectors)
        dataset = open_dataset(folder, strings=True)
        self.manifest = dataset.manifest
        check_cleaning(self.manifest, folder)
        self.sets = _sets_of(dataset, spec.row_length - 2, spec.languages)
        self.alphabet = Alphabet.of(self.sets.words)
        self.table = WordTable.of(self.sets.words, self.alphabet, self.grams.words)
        tokens = self.targets_are == "tokens"
        self.targets = _Targets(self.sets, self.table, self.grams, tokens=tokens)
        counts = np.diff(self.sets.start)
        # How many items of the draw each set has.
        items = {"concepts": np.ones_like(counts), "names": counts, "pairs": counts * (counts - 1)}
        self.item_start = np.concatenate([[0], np.cumsum(items[spec.draw])])
        self.size = int(self.item_start[-1])
        self.check_size(f"{spec.draw} to draw")
        self._plan(rows, run_steps, shapes)

    @property
    def identity(self) -> dict[str, Any]:
        """What the data must have in common with those of a run that is resumed."""
        of_vectors = ("variant", "width", "word_rules", "content_hash")
        return {
            "dataset": super().identity["dataset"],
            "vectors": {name: getattr(self.grams.manifest, name) for name in of_vectors},
        }

    def shapes(self, rows: int) -> dict[str, tuple[int, ...]]:
        """The shape of each array of a batch whose blocks have so many rows."""
        width = self.grams.manifest.width
        small = {name: (*self.groups.shape, *shape) for name, shape in self.spec.arrays.items()}
        packed = self.row.shapes(width)
        return {
            **{name: (*self.groups.shape[:2], rows, *shape) for name, shape in packed.items()},
            **small,
            **dict.fromkeys(("name_targets", "concept_targets"), (*small["concepts"], width)),
        }

    def rows_in_use(self, batch: Any) -> int:
        """The rows that the fullest block of a batch needs."""
        return _rows_in_use(batch)

    def some_terms(self) -> list[str]:
        """A few names spread over the sets, the same in every run."""
        start, words = self.sets.token_start, self.sets.words
        return [
            " ".join(
                words[n - _WORDS_FROM] for n in self.sets.tokens[start[i] + 1 : start[i + 1] - 1]
            )
            for i in spread(len(start) - 1)
        ]

    # ---- The draw ----

    def names(self, step: int, groups: np.ndarray) -> np.ndarray:
        """int64 [G, N]: the names of some groups of a step; the names of a pair are N / 2 apart.

        A pure function of the sets, the spec and the step.
        """
        spec = self.spec
        items, epoch = self.drawn(step, groups), step // self.steps_per_epoch
        of_set = np.searchsorted(self.item_start, items, side="right") - 1
        within_set = items - self.item_start[of_set]
        start, count = self.sets.start[of_set], np.diff(self.sets.start)[of_set]
        if spec.draw == "pairs":
            first, other = np.divmod(within_set, count - 1)
        else:
            first = within_set
            if spec.draw == "concepts":
                first = random_below(count, items, spec.seed, _FIRST_NAME, epoch)
            other = random_below(count - 1, items, spec.seed, _SECOND_NAME, epoch)
        # Any other name, all equally likely: counted on from the first.
        second = (first + 1 + other) % count
        return np.concatenate([start + first, start + second], axis=1)

    # ---- The batch ----

    def batch(self, step: int) -> dict[str, np.ndarray]:
        """The batch of a step."""
        passes, blocks, _ = shape = self.groups.shape
        names = self.names(step, self.groups.ravel())
        q, name_known = self.targets.of_names(names.ravel())
        sets = self.sets.set_of_names[names.ravel()]
        g, concept_known = self.targets.of_sets(sets)
        packed = [
            pack_names(self.table, tokens, bounds, self.row, self.plan.ample)
            for bounds, tokens in self._blocks(names, passes * blocks)
        ]
        small = {
            "concepts": sets,
            "wordings": self.sets.wordings[names],
            "name_known": name_known,
            "concept_known": concept_known,
        }
        return {
            **{
                name: np.stack([block[name] for block in packed]).reshape(
                    passes, blocks, *packed[0][name].shape
                )
                for name in PACKED
            },
            **{name: array.astype(np.int32).reshape(*shape, -1) for name, array in small.items()},
            "name_targets": q.reshape(*shape, names.shape[1], -1),
            "concept_targets": g.reshape(*shape, names.shape[1], -1),
        }

    def _blocks(self, names: np.ndarray, blocks: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """(bounds, words) of the names of each block."""
        found = []
        for of_block in names.reshape(blocks, -1):
            bounds, (tokens,) = joined(self.sets.token_start, of_block, self.sets.tokens)
            found.append((bounds, tokens))
        return found

    def _plan(self, rows: int, run_steps: int, shapes: int) -> None:
        """The capacity of a row and the numbers of rows, planned from a sample of steps."""
        cut, length = self.cut, self.spec.row_length
        steps = range(_PLANNING_STEPS)
        every = np.arange(self.spec.groups)
        needs = np.array(
            [
                [
                    needs_of(self.table, tokens, bounds, length)
                    for bounds, tokens in self._blocks(
                        self.names(step, every), cut.passes * cut.blocks
                    )
                ]
                for step in steps
            ]
        )
        of_rows, *others = needs.mean(axis=(0, 1))
        self.row = RowSize(length, *(int(np.ceil(other / of_rows)) for other in others))
        needed = self.row.rows(needs)
        self.plan = plan_sizes(needed, cut, rows, run_steps, shapes)


def _targets_of(spec: NameSpec, concepts: int, vectors: str | Path) -> Literal["tokens", "words"]:
    """The kind of targets that a run uses.

    Raises:
        BadInput: if they are to be vectors of tokens, of which there are none.
    """
    if spec.targets == "words" or (spec.targets == "auto" and not concepts):
        return "words"
    if not concepts:
        raise BadInput(
            f"targets is tokens, but {vectors} has no vectors of concepts; make it with "
            "`python -m data_pipeline.skip_gram --variant names_concepts`, or use --targets words"
        )
    return "tokens"
