"""What mapping answers: for each mention a status and the concepts that come into question."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

# What candidates are found by.
KINDS = ("vectors", "characters", "both")


class Status(StrEnum):
    """How a mention was answered."""

    EXACT = "exact"  # the mention is a string of the dictionary, case and blanks aside
    NEAR = "near"  # the nearest term
    TIED = "tied"  # the first of several concepts that are equally near, or have the same string
    NO_ANSWER = "no answer"
    DECIDED = "decided"  # a person said so


class Candidate(NamedTuple):
    """A concept that comes into question, by its best term."""

    concept: str
    term: str  # as the dictionary writes it
    similarity: float  # of the mention and its terms, at most 1: see `candidates.Candidates`


@dataclass(frozen=True)
class Answer:
    """What a mention is mapped to.

    Attributes:
      mention: as it was given.
      status: how it was answered.
      candidates: best first. The first one is the answer, unless the status is NO_ANSWER: then they
        are what was nearest, if anything was looked up.
      ties: how many other concepts are as good as the first.
      margin: by how much the similarity of the first is larger than the second's.
      confidence: how likely the nearest concept is the right one, in [0, 1], as measured on
        mentions whose concept is known; None where nothing was measured, or the string is the same.
      reason: why there is no answer, in a few words; "" where there is one.
      count: so many of the candidates are the answer: a mention may mean several concepts.
    """

    mention: str
    status: Status
    candidates: list[Candidate]
    ties: int = 0
    margin: float = 0.0
    confidence: float | None = None
    reason: str = ""
    count: int = 1

    @property
    def concept(self) -> str | None:
        """The concept that the mention is mapped to."""
        return None if self.status == Status.NO_ANSWER else self.candidates[0].concept
