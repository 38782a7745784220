"""Mentions that say more than a name: "no fever", "rule out pneumonia", "mother had cancer"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, Protocol

from coder_jax.mapping.coded_list import Answer, Status
from coder_jax.mapping.normalizer import MOST_CHARACTERS
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.terminology.context import ContextRules

ContextMode = Literal["leave-out", "code", "keep"]


class AnswersMentions(Protocol):
    """A normalizer: of terms, of classes, or of recall and rank."""

    @property
    def dictionary(self) -> Dictionary: ...

    @property
    def write_out(self) -> Callable[[str], str]: ...

    def answers(self, mentions: Sequence[str], k: int = 1) -> list[Answer]: ...


class ContextNormalizer:
    """A normalizer that tells in which context a mention has its name.

    A mention in context is looked up twice, as it stands and by its name alone. Where the term that
    is nearest to the whole says the same context ("Family history of breast cancer", "No pain") and
    is no further away than that of the name, it is an answer as any other. Else the name is what
    counts, and the answer is no plain one: its status is CONTEXT, or NO_ANSWER.
    """

    def __init__(
        self,
        normalizer: AnswersMentions,
        rules: ContextRules | None = None,
        mode: ContextMode = "leave-out",
    ):
        """
        Args:
          normalizer: that answers.
          rules: which phrases tell a context; None: those of this project.
          mode: what becomes of a mention in context. leave-out: no answer, with the concept of the
            name as what was nearest. code: the concept of the name. keep: the concept of the
            mention as it stands.
        """
        self.normalizer, self.mode = normalizer, mode
        self.rules = rules or ContextRules()

    @property
    def dictionary(self) -> Dictionary:
        return self.normalizer.dictionary

    def answers(self, mentions: Sequence[str], k: int = 1) -> list[Answer]:
        """The answer to each mention, with up to k candidates; see `SameStringNormalizer`."""
        # Written out first: a user's FH may be an enzyme. A whole text is no name, and not read.
        names = [one if len(one) <= MOST_CHARACTERS else "" for one in mentions]
        read = [self.rules.read(self.normalizer.write_out(one)) for one in names]
        rows = [row for row, one in enumerate(read) if one.contexts]
        found = self.normalizer.answers([*mentions, *(read[row].name for row in rows)], k)
        answers, of_names = found[: len(mentions)], found[len(mentions) :]
        for row, of_name in zip(rows, of_names, strict=True):
            whole, contexts = answers[row], read[row].contexts
            if not whole.candidates or self._is_in_term(whole, of_name, contexts):
                continue  # a placeholder, or a term of the dictionary
            chosen = whole if self.mode == "keep" or not of_name.candidates else of_name
            answers[row] = self._in_context(mentions[row], chosen, contexts)
        return answers

    def _is_in_term(self, whole: Answer, of_name: Answer, contexts: tuple[str, ...]) -> bool:
        """Whether the nearest term says the context itself, and is as near as that of the name."""
        best = whole.candidates[0]
        nearest = max((one.similarity for one in of_name.candidates[:1]), default=-1.0)
        return whole.status == Status.EXACT or (
            whole.concept is not None
            and best.similarity >= nearest
            and self.rules.read(best.term).contexts == contexts
        )

    def _in_context(self, mention: str, answer: Answer, contexts: tuple[str, ...]) -> Answer:
        told = f"context: {', '.join(contexts)}"
        reason = f"{told}; {answer.reason}" if answer.reason else told
        is_answer = self.mode != "leave-out" and answer.concept is not None
        return replace(
            answer,
            mention=mention,
            status=Status.CONTEXT if is_answer else Status.NO_ANSWER,
            reason=reason,
            context=contexts,
        )
