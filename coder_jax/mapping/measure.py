"""Mentions whose concept is known in, the rule by which `normalize` answers out.

For each language it is measured how much letters should count beside vectors, how likely an answer
is right by its similarity and margin, and what precision and coverage each cut-off then has.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from coder_jax.mapping.candidates import WEIGHT_OF_LETTERS, Candidates
from coder_jax.mapping.cutoffs import ALL, Cutoffs, MeasuredRule, precision_and_coverage
from coder_jax.mapping.normalizer import Normalizer
from coder_jax.mapping.rule import Confidence, margin_of
from coder_jax.mapping.unanswerable import why_unanswerable
from data_pipeline.files.rows import split_concepts
from data_pipeline.process.errors import BadInput

WEIGHTS = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 10.0)  # of letters, to choose from
LEAST_MENTIONS = 100  # of a language, for a table of its own
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def measured_cutoffs(
    normalizer: Normalizer,
    mentions: Sequence[str],
    gold: Sequence[str],
    languages: Sequence[str] | None = None,
    measured_on: Mapping[str, Any] | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Cutoffs:
    """What is to be expected of a normalizer's answers, of all mentions and of each language.

    Mentions that name nothing or are strings of the dictionary are left aside: how they are
    answered does not depend on it.

    Args:
      normalizer: with the dictionary and the kind of candidates that will be used.
      mentions, gold: n strings, and the concepts that are right for each, joined with "|". The
        encoder must not have been trained on them.
      languages: of each mention, such as "ENG"; "" where it is not known. Languages with fewer than
        LEAST_MENTIONS mentions have no table of their own.
      measured_on: see `Cutoffs`.
      tell: what is found is said to it, a line for each language.

    Raises:
      BadInput: fewer than LEAST_MENTIONS mentions are left.
    """
    exact = normalizer.exact(mentions)
    kept = [
        row
        for row, mention in enumerate(mentions)
        if not exact[row] and not why_unanswerable(mention)
    ]
    if len(kept) < LEAST_MENTIONS:
        raise BadInput(
            f"found {len(kept)} mentions that are no strings of the dictionary; expected "
            f"{LEAST_MENTIONS} or more to measure cut-offs on: give more mentions"
        )
    strings = [mentions[row] for row in kept]
    concepts = [set(split_concepts(gold[row])) for row in kept]
    of_language = np.array([languages[row] if languages else "" for row in kept])
    tables, rules = {}, {}
    for language in [ALL, *np.unique(of_language[of_language != ""]).tolist()]:
        rows = np.flatnonzero((of_language == language) | (language == ALL))
        if len(rows) < LEAST_MENTIONS:
            tell(f"{language}: {len(rows)} mentions, fewer than {LEAST_MENTIONS}: no table")
            continue
        some = [strings[row] for row in rows]
        tables[language], rules[language], accuracy = _of_language(
            normalizer.candidates, some, [concepts[row] for row in rows]
        )
        tell(
            f"{language}: {len(rows):,} mentions, {accuracy:.1%} right; letters count "
            f"{rules[language].weight_of_letters:g}"
        )
    described = {"candidates": normalizer.candidates.kind, **(measured_on or {})}
    return Cutoffs(tables, described, rules)


def _of_language(candidates: Candidates, mentions: Sequence[str], gold: Sequence[set[str]]):
    """(table, rule, share of right answers) of mentions in one language."""
    weight = candidates.weight
    if candidates.kind == "both":
        weight = best_weight(candidates, mentions, gold)
    similarities, margins, right = outcomes(candidates.with_weight(weight), mentions, gold)
    found = np.isfinite(similarities)
    confidence = Confidence.fitted(similarities[found], margins[found], right[found])
    likely = np.full(len(mentions), -np.inf)
    likely[found] = list(map(confidence.of, similarities[found], margins[found]))
    table = precision_and_coverage(likely, right)
    return table, MeasuredRule(weight, *confidence), float(right.mean())


def best_weight(candidates: Candidates, mentions: Sequence[str], gold: Sequence[set[str]]) -> float:
    """The weight of letters with which most of the mentions, and of them misspelt, are right.

    Of equally good ones the nearest to WEIGHT_OF_LETTERS.
    """
    firsts = candidates.first_by_weight([*mentions, *misspelt(mentions)], WEIGHTS)
    right = [
        sum(concept in concepts for concept, concepts in zip(first, [*gold, *gold], strict=True))
        for first in firsts
    ]
    best = max(right)
    equal = [weight for weight, count in zip(WEIGHTS, right, strict=True) if count == best]
    return min(equal, key=lambda weight: abs(weight - WEIGHT_OF_LETTERS))


def outcomes(
    candidates: Candidates, mentions: Sequence[str], gold: Sequence[set[str]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each mention the similarity of its nearest concept, the margin, and whether it is right.

    Returns:
      (float64 [n], float64 [n], bool [n]).
    """
    ranked = candidates.ranked(mentions, 2)
    similarities = [found[0].similarity if found else -np.inf for found in ranked]
    right = [
        bool(found) and found[0].concept in concepts
        for found, concepts in zip(ranked, gold, strict=True)
    ]
    return np.array(similarities), np.array([margin_of(one) for one in ranked]), np.array(right)


def misspelt(names: Sequence[str], seed: int = 0) -> list[str]:
    """Each name with one error at a random place, not the first letter where there are others.

    Args:
      names: strings; those of fewer than two letters stay as they are.
      seed: another one draws other errors.
    """
    draw = random.Random(seed)
    return [_one_error(name, draw) if len(name) > 1 else name for name in names]


def _one_error(name: str, draw: random.Random) -> str:
    place = draw.randrange(1, len(name))
    before, letter, after = name[:place], name[place], name[place + 1 :]
    kind = draw.choice(("too few", "too many", "wrong", "swapped"))
    if kind == "too few":
        return before + after
    if kind == "too many":
        return before + draw.choice(LETTERS) + letter + after
    if kind == "wrong" or not after or after[0] == letter:
        return before + draw.choice(LETTERS.replace(letter, "")) + after
    return before + after[0] + letter + after[1:]
