"""Pairs of names of one concept as packed batches, with vectors of words and targets. NumPy alone.

For the encoder of names of Phan, Sun, Tay 2019 (BNE). The names are those of a dataset, whatever
its tokenizer: they become words by the rule of `sources.text.words`, as text does.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal

import numpy as np

from data_pipeline.batches.checks import check_divides, check_least
from data_pipeline.batches.draws.epochs import ORDER, EpochBatches
from data_pipeline.batches.draws.shuffles import random_below
from data_pipeline.batches.names.alphabet import Alphabet
from data_pipeline.batches.names.packing import PACKED, Row, needs_of, pack_names, rows_in_use
from data_pipeline.batches.names.sets import sets_of
from data_pipeline.batches.names.targets import Targets
from data_pipeline.batches.names.word_table import WORDS_FROM, WordTable
from data_pipeline.batches.packed_groups import joined
from data_pipeline.batches.packing import LONG_RUN, MOST_SHAPES, plan_sizes
from data_pipeline.batches.some_terms import spread
from data_pipeline.batches.spec import StepCut
from data_pipeline.files.buckets import local_folder
from data_pipeline.files.identity import SKIP_GRAMS
from data_pipeline.process.errors import BadInput
from data_pipeline.skip_gram.store import open_vectors
from data_pipeline.sources.text.words import rules_hash

FIRST_NAME, SECOND_NAME = ORDER + 1, ORDER + 2  # streams of random numbers
PLANNING_STEPS = 64


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
    languages: tuple[str, ...] = ()
    """Languages of the dataset whose terms are names, such as ENG; none: all."""
    groups: int = 8
    """Parts of a step that may lie on different devices; changes no result but for rounding."""
    row_length: int = 32
    """Words in a packed row, with two marks for each name; of longer names so many count."""
    seed: int = 0
    """Of the order, the choice of names and negatives, the start and the dropout."""

    @property
    def terms(self) -> int:
        """The names of a step."""
        return 2 * self.pairs

    @property
    def arrays(self) -> dict[str, tuple[int, ...]]:
        """The arrays beside packed rows and targets, and the shape of each in one group."""
        names = ("concepts", "wordings", "name_known", "concept_known")
        return dict.fromkeys(names, (self.terms // self.groups,))

    def told(self) -> dict[str, Any]:
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
                "pairs is 1: negatives come from the other pairs of a step; use 2 or more"
            )


class NameBatches(EpochBatches):
    """The batches of a run of an encoder of names.

    A batch has the packed arrays of `packing.pack_names`, [P, B, R, ...]; and [P, B, groups, N]
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
        BadInput: if a folder is none of these, words were made by other rules, or there are fewer
            pairs than a step takes.
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
        if self.grams.manifest["word_rules"] != rules_hash():
            raise BadInput(
                f"{vectors}: its words were made by rules of hash "
                f"{self.grams.manifest['word_rules'][:12]}; expected those of this version, "
                f"{rules_hash()[:12]}: make it again with `python -m data_pipeline.skip_gram`"
            )
        self.targets_are = targets_of(spec, self.grams.manifest["rows"]["concepts"], vectors)
        # Only here does training meet TensorFlow.
        from data_pipeline.dataset.store import open_dataset

        dataset = open_dataset(folder, strings=True)
        self.manifest = dataset.manifest
        self.sets = sets_of(dataset, spec.row_length - 2, spec.languages)
        self.alphabet = Alphabet.of(self.sets.words)
        self.table = WordTable.of(self.sets.words, self.alphabet, self.grams.words)
        tokens = self.targets_are == "tokens"
        self.targets = Targets(self.sets, self.table, self.grams, tokens=tokens)
        counts = np.diff(self.sets.start)
        # Of the sets, how many items of the draw each has.
        items = {"concepts": np.ones_like(counts), "names": counts, "pairs": counts * (counts - 1)}
        self.item_start = np.concatenate([[0], np.cumsum(items[spec.draw])])
        self.size = int(self.item_start[-1])
        self.check_size(f"{spec.draw} to draw")
        self._plan(rows, run_steps, shapes)

    @property
    def identity(self) -> dict[str, Any]:
        """What of the data must be the same when a run goes on."""
        of_vectors = ("variant", "width", "word_rules", "content_hash")
        return {
            "dataset": super().identity["dataset"],
            "vectors": {name: self.grams.manifest[name] for name in of_vectors},
        }

    def shapes(self, rows: int) -> dict[str, tuple[int, ...]]:
        """The shape of each array of a batch whose blocks have so many rows."""
        width = self.grams.manifest["width"]
        small = {name: (*self.groups.shape, *shape) for name, shape in self.spec.arrays.items()}
        packed = self.row.shapes(width)
        return {
            **{name: (*self.groups.shape[:2], rows, *shape) for name, shape in packed.items()},
            **small,
            **dict.fromkeys(("name_targets", "concept_targets"), (*small["concepts"], width)),
        }

    def rows_in_use(self, batch: Any) -> int:
        """The rows that the fullest block of a batch needs."""
        return rows_in_use(batch)

    def some_terms(self) -> list[str]:
        """A few names that are spread over the sets, always the same."""
        start, words = self.sets.token_start, self.sets.words
        return [
            " ".join(
                words[n - WORDS_FROM] for n in self.sets.tokens[start[i] + 1 : start[i + 1] - 1]
            )
            for i in spread(len(start) - 1)
        ]

    # ---- The draw ----

    def names(self, step: int, groups: np.ndarray) -> np.ndarray:
        """int64 [G, N]: the names of some groups of a step, the two of a pair N / 2 apart.

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
                first = random_below(count, items, spec.seed, FIRST_NAME, epoch)
            other = random_below(count - 1, items, spec.seed, SECOND_NAME, epoch)
        # Any of the others, each with the same chance: counted on from the first.
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
        """(bounds, tokens) of the names of each block."""
        found = []
        for of_block in names.reshape(blocks, -1):
            bounds, (tokens,) = joined(self.sets.token_start, of_block, self.sets.tokens)
            found.append((bounds, tokens))
        return found

    def _plan(self, rows: int, run_steps: int, shapes: int) -> None:
        """What a row has room for, and how many rows blocks have, from a sample of steps."""
        cut, length = self.cut, self.spec.row_length
        steps = range(PLANNING_STEPS)
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
        self.row = Row(length, *(int(np.ceil(other / of_rows)) for other in others))
        needed = self.row.rows(needs)
        self.plan = plan_sizes(needed, cut, rows, run_steps, shapes)


def targets_of(spec: NameSpec, concepts: int, vectors: str | Path) -> Literal["tokens", "words"]:
    """Which targets a run has.

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
