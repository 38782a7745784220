"""What a batch of terms is made of: the settings of MLNorm, without TensorFlow."""

import dataclasses
from typing import Any

from data_pipeline.batches.checks import check_divides, check_least


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TermSpec:
    """The batch of a step are some terms; each term comes once an epoch.

    Each with its concept and a semantic group of it: a term whose concept is of two groups comes
    twice (`draws/terms.py`).
    """

    terms: int = 128
    """Terms in a step."""
    groups: int = 8
    """Parts of a step that may lie on different devices; changes no result but for rounding."""
    row_length: int = 128
    """Tokens in a packed row."""
    languages: tuple[str, ...] = ()
    """Languages of the dataset whose terms are drawn, such as FRE; none: all. Concepts stay as they
    are, those without such a term too."""
    seed: int = 0
    """Of the order of the terms and the dropout."""

    @property
    def arrays(self) -> dict[str, tuple[int, ...]]:
        """The arrays of a batch beside its packed rows, and the shape of each in one group."""
        return dict.fromkeys(("concepts", "semantic_groups"), (self.terms // self.groups,))

    def told(self) -> dict[str, Any]:
        """What a step is made of, for the model card."""
        of = f" of {', '.join(self.languages)}" if self.languages else ""
        return {"draw": f"each term{of} once an epoch"}

    def validate(self) -> None:
        """Raise BadInput where a value cannot be used."""
        check_least(self, 1, "terms", "groups", "row_length")
        check_least(self, 0, "seed")
        check_divides(self, "terms")
