"""What a batch is made of: the numbers that decide the batch of every step."""

import dataclasses
from typing import Literal

from data_pipeline.errors import BadInput


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BatchSpec:
    """The batch of a step is a function of the dataset, this, and the step's number.

    The draw decides what fills a group. `relations`: uniform over relation rows, as in the paper.
    `concepts`: uniform over the concepts that have a synonym, each with one of the triplets that it
    heads and whose tail has a synonym too; where there is none, a synonym of the head stands for
    the tail. `synonyms`: the same concepts, without relations.

    A group is the paper's mini-batch: `triplets` distinct triplets, each `repeats` times with terms
    sampled afresh, so k = triplets * repeats pairs and 2k terms. A step has `groups` groups.
    """

    draw: Literal["relations", "concepts", "synonyms"] = "relations"
    """What fills a group: relation rows (the paper), concepts that have a synonym with one of
    their relations, or such concepts alone."""
    distinct_terms: bool = False
    """Repeat no term of a concept in a triplet's repeats while others are left."""
    groups: int = 8
    """G, groups per step; the paper's gradient accumulation."""
    triplets: int = 16
    """U, distinct triplets in a group."""
    repeats: int = 8
    """m, times that each triplet occurs in its group."""
    row_length: int = 128
    """Tokens in a packed row."""
    seed: int = 0
    """Of the order of the triplets, the choice of terms and the dropout."""

    @property
    def pairs(self) -> int:
        """k, the (head, tail) pairs of a group."""
        return self.triplets * self.repeats

    @property
    def terms(self) -> int:
        """The terms of a step."""
        return self.groups * 2 * self.pairs

    def validate(self) -> None:
        """Raise BadInput where a value cannot be used."""
        for name in ("groups", "triplets", "repeats"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.draw == "relations" and self.repeats < 2:
            raise BadInput(
                f"repeats is {self.repeats}: with the draw 'relations' each triplet must occur at "
                "least twice in its group, or terms have no positives (CODER, section 3.3); use "
                "repeats of 2 or more"
            )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RowPlan:
    """How a step is cut for the machine; changes no result.

    `passes` parts of a step follow one another; each has `usual` rows, or `ample` where its terms
    need more.
    """

    passes: int
    usual: int
    ample: int
