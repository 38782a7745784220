"""What a batch is made of: the numbers that decide the batch of every step, and their cut."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, Self

import numpy as np

from data_pipeline.batches.checks import check_least
from data_pipeline.process.errors import BadInput


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BatchSpec:
    """The batch of a step is a function of the dataset, this, and the step's number.

    The draw decides what fills a group. `relations`: uniform over relation rows, as in the paper.
    `concepts`: uniform over the concepts that have a synonym, each with one of the triplets that it
    heads and whose tail has a synonym too; where there is none, a synonym of the head stands for
    the tail. `synonyms`: the same concepts, without relations. `pairs`: uniform over the pairs of
    two names of a concept, so that concepts with many names come often (SapBERT; `draws/pairs.py`).

    A group is the paper's mini-batch: `triplets` distinct triplets, each `repeats` times with terms
    sampled afresh, so k = triplets * repeats pairs and 2k terms, or 3k with corrupted tails; or as
    many triplets as fill k pairs, with `fill_pairs`. A step has `groups` groups.
    """

    draw: Literal["relations", "concepts", "synonyms", "pairs"] = "relations"
    """What fills a group: relation rows (the paper), concepts that have a synonym with one of
    their relations, or such concepts alone; or pairs of two names of a concept (SapBERT)."""
    names: Literal["any", "distinct", "unlike", "languages"] = "any"
    """Which terms of its concept a triplet's repeats show: any (the paper); none twice while others
    are left; each in another language while there are others, so that all languages of a concept
    come equally often; or (unlike) such as share few word pieces. Then a name that shares over 60 %
    of its pieces with its concept's first is no synonym to the draws that take concepts that have
    one."""
    groups: int = 8
    """G, groups per step; the paper's gradient accumulation."""
    triplets: int = 16
    """U, distinct triplets in a group."""
    repeats: int = 8
    """m, times that each triplet occurs in its group."""
    fill_pairs: int = 0
    """If not 0, k: as many triplets follow as fill so many pairs of a group, each of them as often
    as head and tail both have terms, at most `repeats` times, no term twice (CODER v1). `triplets`
    does not count then."""
    corrupted_tails: bool = False
    """Add to each pair a term of another random concept in the place of its tail (CODER v1)."""
    semantic_types: bool = False
    """Tell the semantic type of each term's concept (CODER v1's type loss)."""
    row_length: int = 128
    """Tokens in a packed row."""
    seed: int = 0
    """Of the order of the triplets, the choice of terms and the dropout."""

    @property
    def pairs(self) -> int:
        """k, the (head, tail) pairs of a group."""
        return self.fill_pairs or self.triplets * self.repeats

    @property
    def labels(self) -> int:
        """The relations that a batch tells of a group: of each triplet, or else of each pair."""
        return self.fill_pairs or self.triplets

    @property
    def terms(self) -> int:
        """The terms of a step."""
        return self.groups * (3 if self.corrupted_tails else 2) * self.pairs

    @property
    def arrays(self) -> dict[str, tuple[int, ...]]:
        """The arrays of a batch beside its packed rows, and the shape of each in one group."""
        names = ("concepts", "types") if self.semantic_types else ("concepts",)
        terms = self.terms // self.groups
        return {**dict.fromkeys(names, (terms,)), "relations": (self.labels,)}

    def told(self) -> dict[str, Any]:
        """What a step is made of, for the model card."""
        made = {"groups x triplets x repeats": f"{self.groups} x {self.triplets} x {self.repeats}"}
        if self.fill_pairs:
            made = {"groups x pairs": f"{self.groups} x {self.fill_pairs}"}
        return {**made, "draw": self.draw}

    def validate(self) -> None:
        """Raise BadInput where a value cannot be used."""
        check_least(self, 1, "groups", "triplets", "repeats", "row_length")
        check_least(self, 0, "fill_pairs", "seed")
        if self.fill_pairs and self.names == "any":
            raise BadInput(
                f"fill_pairs is {self.fill_pairs} and names is 'any': groups that are filled with "
                "pairs show no term of a triplet twice; use --names distinct or --names unlike"
            )
        if self.draw == "pairs":
            needed = {"repeats": 1, "names": "any", "fill_pairs": 0}
            for name, value in {
                **needed,
                "corrupted_tails": False,
                "semantic_types": False,
            }.items():
                if getattr(self, name) != value:
                    raise BadInput(
                        f"{name} is {getattr(self, name)}, but the draw 'pairs' takes each pair of "
                        f"names once, as it is, and needs {value}; or use another draw"
                    )
        if self.draw == "relations" and self.repeats < 2:
            raise BadInput(
                f"repeats is {self.repeats}: with the draw 'relations' each triplet must occur at "
                "least twice in its group, or terms have no positives (CODER, section 3.3); use "
                "repeats of 2 or more"
            )


class StepSpec(Protocol):
    """What holds of all settings of batches, whatever a batch is made of."""

    @property
    def groups(self) -> int:
        """The parts of a step that may lie on different devices."""
        ...

    @property
    def terms(self) -> int:
        """The terms of a step."""
        ...

    @property
    def row_length(self) -> int:
        """Tokens in a packed row."""
        ...

    @property
    def seed(self) -> int:
        """Of the order of the terms, and the dropout."""
        ...

    @property
    def arrays(self) -> dict[str, tuple[int, ...]]:
        """The arrays of a batch beside its packed rows, and the shape of each in one group."""
        ...

    def told(self) -> dict[str, Any]:
        """What a step is made of, for the model card."""
        ...

    def validate(self) -> None:
        """Raise BadInput where a value cannot be used."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StepCut:
    """How the groups of a step are cut for the machines; changes no result.

    The step's `passes` parts follow one another on the devices. Each part is cut into `blocks`,
    which are packed apart and lie on different devices, so that a term is encoded where its group's
    loss is computed. A host makes the blocks from `first` to `last` - 1 of each pass.
    """

    passes: int = 1
    """P, parts of a step that follow one another."""
    blocks: int = 1
    """B, parts of a pass that lie side by side on the devices of all hosts."""
    row_multiple: int = 1
    """The rows of a block are a multiple of this: the devices that share a block."""
    first: int = 0
    """This host's first block."""
    last: int | None = None
    """One after this host's last block; all of them if None."""

    def groups_per_block(self, spec: StepSpec) -> int:
        """Groups in one block.

        Raises:
            BadInput: if the groups of a step do not divide evenly.
        """
        if spec.groups % (self.passes * self.blocks):
            over = f" and {self.blocks} blocks" if self.blocks > 1 else ""
            raise BadInput(
                f"{spec.groups} groups do not divide evenly into {self.passes} passes{over}; use a "
                f"number of passes that divides {spec.groups // self.blocks or spec.groups}"
            )
        return spec.groups // (self.passes * self.blocks)

    def groups(self, spec: StepSpec) -> np.ndarray:
        """int64 [P, blocks of this host, groups of a block]: their numbers within the step."""
        shape = (self.passes, self.blocks, self.groups_per_block(spec))
        return np.arange(spec.groups).reshape(shape)[:, self.first : self.last]


@dataclasses.dataclass(frozen=True, slots=True)
class RowPlan:
    """The numbers of rows that a block can have; each is a shape to compile.

    The same on all hosts, as it follows from the dataset, the BatchSpec, the StepCut and the length
    of the run alone.
    """

    sizes: tuple[int, ...]
    """Rising; the last is enough for any block."""

    @property
    def ample(self) -> int:
        """Rows that are enough for any block."""
        return self.sizes[-1]

    def rows(self, needed: int) -> int:
        """The smallest number of rows that is enough; `ample` if none is."""
        return next((rows for rows in self.sizes if needed <= rows), self.ample)


class BatchSource(Protocol):
    """Where the batches of a run come from; a pure function of data, settings and step.

    The arrays of a batch are int32 [P, blocks of this host, ...], but for `floats`.
    """

    folder: Path
    """Of the data."""
    kept: tuple[str, ...]
    """Names in `folder`, such as tokenizer, of which a run keeps a copy."""
    cut: StepCut
    """How the steps are cut for the devices."""
    plan: RowPlan
    """The numbers of rows that a block can have."""
    packed: tuple[str, ...]
    """The arrays [P, B, R, L] of packed rows; of all others the third dimension counts groups."""
    floats: tuple[str, ...]
    """The arrays that are float32."""
    manifest: Mapping[str, Any]
    """Of the dataset."""

    @property
    def identity(self) -> dict[str, Any]:
        """What of the data must be the same when a run goes on; plain JSON."""
        ...

    def shapes(self, rows: int) -> dict[str, tuple[int, ...]]:
        """The shape of each array of a batch whose blocks have so many rows."""
        ...

    def rows_in_use(self, batch: Mapping[str, np.ndarray]) -> int:
        """The rows that the fullest block of a batch needs."""
        ...

    def fill(self, batch: Mapping[str, np.ndarray]) -> float:
        """The part of a batch's tokens that are no padding."""
        ...

    def batches(self, first_step: int, last_step: int) -> Iterator[dict[str, np.ndarray]]:
        """This host's batches of first_step to last_step - 1."""
        ...

    def some_terms(self) -> list[str]:
        """A few strings that are spread over the data, always the same."""
        ...

    def with_index(self, index: Path) -> Self:
        """The same data with an index that `System.refresh` has written.

        Raises:
            BadInput: if the index is not of this data.
        """
        ...
