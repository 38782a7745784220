"""When the nearest concept is the answer: how near it must be, and how likely it then is right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression

from coder_jax.mapping.answers import Candidate


class Confidence(NamedTuple):
    """How likely an answer is right: a logistic regression on its similarity and margin.

    The margin, by how much the second concept is further away, tells more than the similarity: near
    the right concept of "fracture of the left hand" is that of "fracture of the right hand".
    """

    intercept: float
    of_similarity: float
    of_margin: float

    @classmethod
    def fitted(cls, similarities: np.ndarray, margins: np.ndarray, right: np.ndarray) -> Confidence:
        """From mentions whose concept is known: float [n], float [n], bool [n].

        Where all are right, or none is, the likelihood is the same for all: Laplace's estimate.
        """
        if len(np.unique(right)) < 2:
            share = (np.sum(right) + 1) / (len(right) + 2)
            return cls(float(np.log(share / (1 - share))), 0.0, 0.0)
        model = LogisticRegression(C=10, max_iter=1000)
        model.fit(np.stack([similarities, margins], axis=1), right)
        return cls(float(model.intercept_[0]), *map(float, model.coef_[0]))

    def of(self, similarity: float, margin: float) -> float:
        """The likelihood, in [0, 1]."""
        logit = self.intercept + self.of_similarity * similarity + self.of_margin * margin
        return 1 / (1 + math.exp(-max(min(logit, 500.0), -500.0)))


@dataclass(frozen=True)
class Rule:
    """What the nearest concept needs to be the answer.

    Attributes:
      least_similarity: of the best term.
      measured: how likely an answer is right; None where nothing was measured.
      least_confidence: by `measured`.
    """

    least_similarity: float = -1.0
    measured: Confidence | None = None
    least_confidence: float = 0.0

    def confidence(self, similarity: float, margin: float) -> float | None:
        """How likely the answer is right; None where nothing was measured."""
        return None if self.measured is None else self.measured.of(similarity, margin)

    def why_not(self, similarity: float, margin: float) -> str:
        """Why this is no answer; "" where it is one."""
        if similarity < self.least_similarity:
            return f"similarity {similarity:.3f} is below {self.least_similarity:.3f}"
        confidence = self.confidence(similarity, margin)
        if confidence is not None and confidence < self.least_confidence:
            return f"confidence {confidence:.3f} is below {self.least_confidence:.3f}"
        return ""


def margin_of(candidates: Sequence[Candidate]) -> float:
    """By how much the first of ranked candidates is nearer than the second."""
    if not candidates:
        return 0.0
    second = candidates[1].similarity if len(candidates) > 1 else 0.0
    return candidates[0].similarity - second
