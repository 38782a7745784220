"""What a batch of nearest neighbours is made of: the settings of CODER++, without TensorFlow."""

import dataclasses
from typing import Any, Literal

from data_pipeline.batches.checks import check_least
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.process.errors import BadInput

NEIGHBOURS = "neighbours.npy"  # of an index: int32 [A, k]; `NeighbourDraw` says of what


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourSpec(BatchSpec):
    """As BatchSpec, but a share of each group's triplets makes room for nearest neighbours.

    The room is filled with blocks of 1 + `neighbours` pairs, each of an anchor and what is nearest
    to it: the first name of a pair is the anchor, or one of its neighbours; `positives` says what
    the second is. The last block of a group may be cut short. With the draw `relations` anchors are
    any terms (or concepts), else those of the concepts that the draw takes.
    """

    mined_share: float = 1.0
    """The share of a group's triplets whose room neighbours take, 0 to 1, rounded to whole
    triplets; the others are drawn."""
    neighbours: int = 30
    """k, the neighbours of an anchor."""
    neighbours_of: Literal["terms", "concepts"] = "terms"
    """What the neighbours of an anchor are: the terms nearest to a term (CODER++); or the concepts
    nearest to a concept, by the means of their terms' vectors, each shown by names of its own. A
    terminology has fewer concepts than terms, so that these are found sooner."""
    positives: Literal["anchor", "each"] = "anchor"
    """The second names of a block's pairs: all of the anchor's concept, so that its neighbours are
    there for it alone (CODER++); or each of the first's own concept, so that neighbours learn, too.
    """

    @property
    def mined_triplets(self) -> int:
        """The triplets of a group whose room neighbours take."""
        return round(self.mined_share * self.triplets)

    @property
    def mined_pairs(self) -> int:
        """The pairs of a group that show neighbours."""
        return self.mined_triplets * self.repeats

    @property
    def blocks(self) -> int:
        """The blocks of a group; each has an anchor."""
        return -(-self.mined_pairs // (1 + self.neighbours))

    def drawn(self) -> BatchSpec:
        """What the rest of a group is made of; there must be some."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(BatchSpec)}
        return BatchSpec(**{**fields, "triplets": self.triplets - self.mined_triplets})

    def told(self) -> dict[str, Any]:
        """What a step is made of, for the model card."""
        # Of a slotted dataclass: super() without arguments means the class before it had slots.
        told = BatchSpec.told(self)
        if self.mined_share:
            of_each = f"{self.neighbours} nearest {self.neighbours_of} of each"
            told["neighbours"] = f"{self.mined_share:.0%}, the {of_each}"
        return told

    def validate(self) -> None:
        """Raise BadInput where a value cannot be used."""
        BatchSpec.validate(self)
        check_least(self, 1, "neighbours")
        if not 0 <= self.mined_share <= 1:
            raise BadInput(f"mined_share is {self.mined_share}; it must be from 0 to 1")
        if self.mined_share and not self.mined_triplets:
            raise BadInput(
                f"mined_share is {self.mined_share}: of {self.triplets} triplets that is none; use "
                f"at least {1 / self.triplets:.3g}, or 0"
            )
        if 0 < self.mined_pairs <= self.neighbours:
            raise BadInput(
                f"neighbours is {self.neighbours}, but a group has room for {self.mined_pairs} "
                f"pairs of an anchor and its neighbours ({self.mined_triplets} triplets x "
                f"{self.repeats}); use fewer neighbours, or more triplets or a larger mined_share"
            )
        if self.draw == "pairs":
            raise BadInput(
                "draw is 'pairs', which neighbours are not mixed with; use --draw synonyms"
            )
        for name in ("fill_pairs", "corrupted_tails", "semantic_types"):
            if getattr(self, name):
                raise BadInput(
                    f"{name} is {getattr(self, name)}, but groups with neighbours have none (it is "
                    "of CODER v1); leave it out"
                )
