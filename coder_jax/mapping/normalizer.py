"""Mentions in, concepts of a dictionary out: the same string before the nearest term."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import polars as pl

from coder_jax.mapping.abbreviations import writer_out
from coder_jax.mapping.answers import Answer, Candidate, Status
from coder_jax.mapping.candidates import SAME, Candidates
from coder_jax.mapping.exact import SameStrings, folded
from coder_jax.mapping.rule import Rule, margin_of
from coder_jax.mapping.unanswerable import why_unanswerable
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.rows import split_concepts
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.cleaning.rules import semantic_tags, without_tags


class Near(NamedTuple):
    """What comes into question for a string."""

    candidates: list[Candidate]  # best first
    number: int = 1  # so many of them are the answer


class SameStringNormalizer(abc.ABC):
    """Answers mentions that are strings of the dictionary; a subclass answers all others."""

    def __init__(self, dictionary: Dictionary, abbreviations: Mapping[str, str] | None = None):
        """
        Args:
          dictionary: with its terms as the source writes them.
          abbreviations: what they stand for; mentions are looked up with these written out.
        """
        self.dictionary = dictionary
        self.write_out = writer_out(abbreviations or {})
        self.tags = semantic_tags(dictionary.terms)
        self.same_strings = SameStrings(self._without_tags(dictionary.terms))

    @abc.abstractmethod
    def near(self, strings: Sequence[str], k: int) -> list[Near]:
        """For each of some strings what comes into question, k candidates or more, best first."""

    @abc.abstractmethod
    def answer(self, mention: str, string: str, near: Near, k: int) -> Answer:
        """The answer to a mention that is no string of the dictionary.

        Args:
          mention: as it was given.
          string: as it was looked up, with abbreviations written out.
          near: what came into question.
          k: candidates.
        """

    def answers(self, mentions: Sequence[str], k: int = 1) -> list[Answer]:
        """The answer to each mention, with up to k candidates.

        1. What names nothing (`why_unanswerable`) has no answer.
        2. A string of the dictionary, case and blanks aside, is the answer, whatever is near it; a
           semantic tag at its end, such as "(disorder)", may be missing. Of several concepts that
           have it, those that write it exactly as the mention does come first, tag and case
           included; if they are several still, the answer is tied.
        3. Else the concept of the nearest term. Of several that are equally near, the one whose
           term is written most like the mention.

        Args:
          mentions: strings.
          k: candidates per mention, at least 1.
        """
        if k < 1:
            raise BadInput(f"k is {k}; expected at least 1 concept per mention")
        why = [why_unanswerable(mention) for mention in mentions]
        strings = [self.write_out(mention) for mention in mentions]
        exact = self.exact(strings)
        # Nothing is encoded that needs no candidates beside those of its own string.
        asked = [row for row in range(len(strings)) if not why[row] and (k > 1 or not exact[row])]
        near = self.near([strings[row] for row in asked], k)
        near_of = dict(zip(asked, near, strict=True))
        answers = []
        for row, mention in enumerate(mentions):
            if why[row]:
                answers.append(Answer(mention, Status.NO_ANSWER, [], reason=why[row]))
            elif exact[row]:
                others = near_of[row].candidates if row in near_of else []
                answers.append(of_same_string(mention, exact[row], others, k))
            else:
                answers.append(self.answer(mention, strings[row], near_of[row], k))
        return answers

    def _without_tags(self, terms: Sequence[str]) -> Sequence[str]:
        if not self.tags:
            return terms
        return without_tags(pl.Series(list(terms), dtype=pl.String), self.tags).to_list()

    def exact(self, mentions: Sequence[str]) -> list[list[tuple[int, Candidate]]]:
        """For each mention the concepts with its string, best first.

        Before each how it is written: 2 as the mention is, 1 in other case, 0 with another tag.
        """
        found = []
        same = self.same_strings.rows(self._without_tags(mentions))
        for mention, rows in zip(mentions, same, strict=True):
            by_concept: dict[str, tuple[int, bool, str]] = {}
            for row in rows:
                term = self.dictionary.terms[row]
                for concept in split_concepts(self.dictionary.concepts[row]):
                    is_preferred = self.dictionary.about(concept).preferred == term
                    held = (likeness_of_same(mention, term), is_preferred, term)
                    by_concept[concept] = max(by_concept.get(concept, held), held)
            # A stable order: where nothing tells concepts apart, the dictionary's.
            ranked = sorted(by_concept.items(), key=lambda one: one[1][:2], reverse=True)
            found.append(
                [(alike, Candidate(concept, term, 1.0)) for concept, (alike, _, term) in ranked]
            )
        return found


class Normalizer(SameStringNormalizer):
    """Maps mentions to the concepts of one dictionary.

    Example:
      encoder = TermEncoder.from_pretrained("runs/demo/export", cleaning="lookup")
      dictionary = read_dictionary("terms.tsv")
      encoded = encoder.encode_dictionary("terms.tsv")
      normalizer = Normalizer(dictionary, Candidates(encoder, encoded, "both"))
      for answer in normalizer.answers(["heart attack", "n/a"], k=3):
          print(answer.mention, answer.status, answer.concept)
    """

    def __init__(
        self,
        dictionary: Dictionary,
        candidates: Candidates,
        *,
        rule: Rule | None = None,
        abbreviations: Mapping[str, str] | None = None,
    ):
        """
        Args:
          dictionary: with its terms as the source writes them.
          candidates: of the same rows.
          rule: which of the nearest concepts are answers; None: all.
          abbreviations: what they stand for; mentions are looked up with these written out.
        """
        encoded = candidates.encoded
        if dictionary.concepts != encoded.concepts:
            raise BadInput(
                f"the dictionary has {len(dictionary.concepts):,} rows and its vectors are of "
                f"{len(encoded.concepts):,} others; encode the same dictionary"
            )
        super().__init__(dictionary, abbreviations)
        self.candidates, self.rule = candidates, rule or Rule()

    def near(self, strings: Sequence[str], k: int) -> list[Near]:
        return [Near(found) for found in self.candidates.ranked(strings, max(k, 2))]

    def answer(self, mention: str, string: str, near: Near, k: int) -> Answer:
        return of_nearest(mention, string, near.candidates, k, self.rule)


def likeness_of_same(mention: str, term: str) -> int:
    """How alike two strings are written that differ in case, blanks and semantic tag at most."""
    one, other = " ".join(mention.split()), " ".join(term.split())
    return 2 if one == other else int(one.lower() == other.lower())


def of_same_string(
    mention: str, exact: list[tuple[int, Candidate]], near: list[Candidate], k: int
) -> Answer:
    """The answer to a mention that is a string of the dictionary.

    Args:
      mention: as it was given.
      exact: as of `Normalizer.exact`, one or more.
      near: the concepts with the nearest terms, for the places behind those.
      k: candidates.
    """
    rivals = sum(alike == exact[0][0] for alike, _ in exact) - 1
    candidates = [candidate for _, candidate in exact]
    held = {candidate.concept for candidate in candidates}
    candidates += [one for one in near if one.concept not in held]
    status = Status.TIED if rivals else Status.EXACT
    return Answer(mention, status, candidates[:k], ties=len(exact) - 1)


def of_nearest(mention: str, string: str, near: list[Candidate], k: int, rule: Rule) -> Answer:
    """The answer to a mention that is no string of the dictionary.

    Args:
      mention: as it was given.
      string: as it was looked up.
      near: the concepts with the nearest terms, best first: all that are as near as the first.
      k: candidates.
      rule: what an answer must have.
    """
    if not near:  # letters alone may find nothing
        return Answer(mention, Status.NO_ANSWER, [], reason="nothing is written like it")
    best, margin = near[0].similarity, margin_of(near)
    tied = [one for one in near if best - one.similarity <= SAME]
    likeness = {one: written_like(string, one.term) for one in tied}
    ranked = sorted(tied, key=likeness.__getitem__, reverse=True) + near[len(tied) :]
    rivals = sum(likeness[one] == likeness[ranked[0]] for one in tied) - 1
    confidence, reason = rule.confidence(best, margin), rule.why_not(best, margin)
    status = Status.NO_ANSWER if reason else Status.TIED if rivals else Status.NEAR
    return Answer(mention, status, ranked[:k], len(tied) - 1, margin, confidence, reason)


def written_like(mention: str, term: str) -> float:
    """How alike two strings are in their letters, 0 to 1; case and blanks aside."""
    one, other = folded([mention, term])
    return SequenceMatcher(None, one, other, autojunk=False).ratio()
