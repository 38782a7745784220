"""Mentions in, concepts of a classifier out, for `normalize`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coder_jax.mapping.abbreviations import writer_out
from coder_jax.mapping.answers import Answer, Candidate, Status
from coder_jax.mapping.unanswerable import why_unanswerable
from coder_jax.systems.mlnorm.prediction.classifier import ConceptClassifier
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.semantic_groups import GROUPS, group_number


class ClassNormalizer:
    """Maps mentions to the concepts of a classifier: as `mapping.Normalizer`, without terms.

    The similarity of a candidate, and the confidence of an answer, is the probability of its
    concept among those of the semantic group.
    """

    def __init__(
        self,
        classifier: ConceptClassifier,
        dictionary: Dictionary,
        *,
        group: str | None = None,
        threshold: float = 0.0,
        abbreviations: Mapping[str, str] | None = None,
    ):
        """
        Args:
          classifier: what answers.
          dictionary: that has the names of the concepts (`Dictionary.knowing` all of them).
          group: the semantic group of all mentions; None where it is not known.
          threshold: no answer where the most probable concept is less probable.
          abbreviations: what they stand for; mentions are looked up with these written out.

        Raises:
          BadInput: if no class is of this group.
        """
        if group is not None:
            number = group_number(group)
            if not (classifier.groups >> number & 1).any():
                known = [name for name in GROUPS if classifier.known_group(name)]
                raise BadInput(
                    f"--semantic-group {group}: the model has no concept of it; it has "
                    f"{', '.join(known) or 'concepts without semantic types'}"
                )
            group = GROUPS[number]
        self.classifier, self.dictionary = classifier, dictionary
        self.group, self.threshold = group, threshold
        self.write_out = writer_out(abbreviations or {})

    def answers(self, mentions: Sequence[str], k: int = 1) -> list[Answer]:
        """The answer to each mention, with up to k candidates, best first."""
        if k < 1:
            raise BadInput(f"k is {k}; expected at least 1 concept per mention")
        why = [why_unanswerable(mention) for mention in mentions]
        asked = [row for row in range(len(mentions)) if not why[row]]
        strings = [self.write_out(mentions[row]) for row in asked]
        found = self.classifier.nearest(strings, [self.group] * len(strings), k)
        near = dict(zip(asked, zip(*found, strict=True), strict=True))
        answers = []
        for row, mention in enumerate(mentions):
            if why[row]:
                answers.append(Answer(mention, Status.NO_ANSWER, [], reason=why[row]))
                continue
            candidates = [
                Candidate(self.classifier.concepts[index], "", float(probability))
                for index, probability in zip(*near[row], strict=True)
                if index >= 0
            ]
            best = candidates[0].similarity
            sure = best >= self.threshold
            reason = "" if sure else f"probability {best:.2f} is less than {self.threshold:g}"
            status = Status.NEAR if sure else Status.NO_ANSWER
            answers.append(Answer(mention, status, candidates, confidence=best, reason=reason))
        return answers
