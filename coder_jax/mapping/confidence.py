"""Confidence in answers: cut-offs of similarity, and how they are measured."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from msgspec import Meta

from data_pipeline.files.identity import (
    CUTOFFS,
    Cosine,
    Count,
    Finite,
    Positive,
    read_identity,
    typed,
    write_identity,
)
from data_pipeline.files.tables import split_concepts
from data_pipeline.process import BadInput

if TYPE_CHECKING:  # they bring jax, which --help does not wait for
    from coder_jax.mapping.candidates import Candidates
    from coder_jax.mapping.normalizer import Confidence, Normalizer, SameStringNormalizer

# -------------------------------------------------------------------------------------------------
# Cut-offs: from which similarity on mentions are answered, and what share of answers is right.
#
# They are measured on mentions whose concept is known (`evaluate`), a table for each language, and
# kept as cutoffs.json.

ALL = "all"  # in place of a language: all mentions
BROADER = "broader"  # likewise, of a ranker: the answers that are broader than what is meant
RANKER = "ranker"  # in place of a kind of candidates: measured are a ranker's probabilities
_DIGITS = 4  # of a cut-off
# A similarity below a cut-off by no more than this counts as equal to it (rounding).
_TOLERANCE = 1e-6
_MOST_ROWS = 200
_LEAST_ANSWERED = 30
_MEASURE_AGAIN = f"make it again with `{CUTOFFS.command}`"
_MOST_TIMES = 1.1  # as large as another: a dictionary that may be another release of the same


class Cutoff(NamedTuple):
    """A row of a table: the expected coverage and precision of a cut-off."""

    cutoff: float  # of similarities
    precision: float  # share of the answers that were right
    coverage: float  # share of the mentions that were answered
    answered: int  # mentions


@dataclass(frozen=True)
class CutoffTable:
    """Results at some cut-offs, lowest first; each has fewer answers than the one before.

    Attributes:
      mentions: how many were looked up.
      cutoffs: n similarities.
      answered: of each cut-off, the mentions whose similarity is that or more; 1 or more.
      right: how many of these were answered rightly.
    """

    mentions: Positive
    cutoffs: list[Cosine]
    answered: list[Count]
    right: list[Count]

    @property
    def rows(self) -> list[Cutoff]:
        """The table for people."""
        return [
            Cutoff(cutoff, right / answered, answered / self.mentions, answered)
            for cutoff, answered, right in zip(self.cutoffs, self.answered, self.right, strict=True)
        ]


def _precision_and_coverage(similarities: np.ndarray, right: np.ndarray) -> CutoffTable:
    """Precision and coverage at each cut-off that separates mentions.

    Cut-offs are similarities, rounded down to 4 decimals; of more than 200 those stay that split
    the answered mentions most evenly, with the first and the last.

    Args:
      similarities: float [n], of each mention and its answer; -inf for one that has no answer.
      right: bool [n], whether the answer is right.

    Raises:
      ValueError: lengths differ, there is no mention, or a similarity is not a number.
    """
    similarities = np.asarray(similarities, np.float64)
    right = np.asarray(right, bool)
    if similarities.ndim != 1 or similarities.shape != right.shape or not len(right):
        raise ValueError(
            f"found similarities of shape {similarities.shape} and answers of shape {right.shape}; "
            "expected two lists of the same length, 1 or more"
        )
    if np.isnan(similarities).any() or (similarities == np.inf).any():
        raise ValueError("found a similarity that is no number; expected cosines, or -inf for none")
    order = np.argsort(-similarities, kind="stable")
    falling = -similarities[order]
    scale = 10**_DIGITS
    given = similarities[np.isfinite(similarities)]
    cutoffs = np.unique(np.floor((given + _TOLERANCE) * scale)) / scale
    answered = np.searchsorted(falling, -(cutoffs - _TOLERANCE), side="right")
    tells_apart = np.diff(answered, append=0) < 0
    cutoffs, answered = cutoffs[tells_apart], answered[tells_apart]
    if len(cutoffs) > _MOST_ROWS:
        even = np.linspace(answered[0], answered[-1], _MOST_ROWS)
        chosen = np.unique(len(answered) - 1 - np.searchsorted(answered[::-1], even, side="left"))
        cutoffs, answered = cutoffs[chosen], answered[chosen]
    right_so_far = np.append(0, np.cumsum(right[order]))
    return CutoffTable(
        len(similarities), cutoffs.tolist(), answered.tolist(), right_so_far[answered].tolist()
    )


def cutoff_for(
    table: CutoffTable,
    precision: float,
    *,
    least_answered: int = _LEAST_ANSWERED,
) -> float | None:
    """The smallest cut-off from which on precision stays at least as wanted; None if there is none.

    Cut-offs with few answers tell little: they are neither chosen nor stand in the way of lower
    ones.

    Args:
      table: of `_precision_and_coverage`.
      precision: the wanted share of right answers, in [0, 1].
      least_answered: cut-offs with fewer answers are left aside.

    Raises:
      ValueError: a precision out of bounds.
    """
    if not 0 <= precision <= 1:
        raise ValueError(f"found the precision {precision}; expected a share")
    answered, right = np.array(table.answered), np.array(table.right)
    found = right / np.maximum(answered, 1)
    chosen = None
    for cutoff, answers, share in zip(
        table.cutoffs[::-1], answered[::-1], found[::-1], strict=True
    ):
        if answers < least_answered:
            continue
        if share < precision:
            break
        chosen = cutoff
    return chosen


@dataclass(frozen=True)
class MeasuredRule:
    """The rule measured for a language, stored beside its table: see `normalizer.Confidence`."""

    weight_of_letters: Annotated[float, Meta(ge=0, le=1000)]  # see `candidates.Candidates`
    intercept: Finite
    of_similarity: Finite
    of_margin: Finite

    @property
    def confidence(self) -> Confidence:
        from coder_jax.mapping.normalizer import Confidence

        return Confidence(self.intercept, self.of_similarity, self.of_margin)


@dataclass(frozen=True, kw_only=True)
class _MeasuredDictionary:
    """What readers need to know of the dictionary that answers were taken from."""

    source: str
    terms: Positive


@dataclass(frozen=True, kw_only=True)
class _MeasuredOn:
    """What readers need of `Cutoffs.measured_on`; the rest is for people."""

    candidates: str | None = None
    dictionary: _MeasuredDictionary | None = None
    ordered_by: str | None = None


@dataclass(frozen=True)
class Cutoffs:
    """The tables of an encoder: for all mentions, and for each language if known.

    Attributes:
      tables: by language, such as "ENG"; ALL is always there. Their cut-offs are of similarities,
        or, where there are rules, of the confidence that these give.
      measured_on: what they hold for: benchmark, dictionary, encoder; for people and messages.
      rules: by language as the tables, or empty.
    """

    tables: dict[str, CutoffTable]
    measured_on: dict[str, Any] = field(default_factory=dict)
    rules: dict[str, MeasuredRule] = field(default_factory=dict)

    def of(self, language: str | None = None) -> CutoffTable:
        """The table of a language, or of all mentions if the language has none."""
        return self.tables.get(language or ALL, self.tables[ALL])

    def of_another_dictionary(self, terms: int) -> str:
        """A warning if the size shows that this is not the measured dictionary; else "".

        Among few terms the nearest is farther ahead of the next than among many, right or wrong.
        """
        measured = self._known("").dictionary
        there = measured.terms if measured else terms
        if measured is None or max(there, terms) <= _MOST_TIMES * min(there, terms):
            return ""
        return (
            f"confidence was measured with a dictionary of {there:,} terms "
            f"({measured.source}), this one has {terms:,}: with another terminology it may be far "
            "off; measure it on terms of yours whose concept is known: python -m coder_jax "
            "evaluate --cutoffs"
        )

    @property
    def candidates(self) -> str | None:
        """The kind of candidates that they were measured with, where it is known."""
        return self._known("").candidates

    @property
    def ordered_by(self) -> str | None:
        """Of a ranker: the score that ordered the candidates (`Choice.fused`)."""
        return self._known("").ordered_by

    def _known(self, source: str) -> _MeasuredOn:
        return typed(self.measured_on, _MeasuredOn, f"{source}: measured_on", _MEASURE_AGAIN)

    def write(self, path: str | Path) -> None:
        """Writes cutoffs.json, whole or not at all."""
        content = {"tables": self.tables, "measured_on": self.measured_on}
        write_identity(Path(path), CUTOFFS, content | ({"rules": self.rules} if self.rules else {}))

    @classmethod
    def read(cls, path: str | Path) -> Cutoffs:
        """Reads cutoffs.json; BadInput for what is broken, or another file."""
        found = read_identity(Path(path), CUTOFFS, cls)
        found._known(str(path))
        found.check(str(path), _MEASURE_AGAIN)
        return found

    def check(self, source: str, again: str) -> None:
        """BadInput for tables that no mentions can have."""
        for language, table in self.tables.items():
            _check_table(table, f"{source}: tables.{language}", again)
        if ALL not in self.tables:
            raise BadInput(f"{source}: found no table {ALL!r}; {again}")
        if self.rules and self.rules.keys() != self.tables.keys():
            raise BadInput(f"{source}: found tables and rules of different languages; {again}")


def measure_cutoffs(
    similarities: np.ndarray,
    right: np.ndarray,
    languages: np.ndarray | None = None,
) -> Cutoffs:
    """The cut-offs of mentions, of all and of each language.

    Args:
      similarities, right: as of `_precision_and_coverage`, [n].
      languages: str [n], "" where it is not known; None if nothing is known.
    """
    similarities, right = np.asarray(similarities), np.asarray(right)
    tables = {ALL: _precision_and_coverage(similarities, right)}
    for language in [] if languages is None else np.unique(languages).tolist():
        if language:
            those = np.asarray(languages) == language
            tables[language] = _precision_and_coverage(similarities[those], right[those])
    return Cutoffs(tables)


def _check_table(table: CutoffTable, where: str, again: str) -> None:
    """Raise BadInput for an impossible table."""
    cutoffs, answered, right = (
        np.array(column) for column in (table.cutoffs, table.answered, table.right)
    )
    is_whole = (
        len(cutoffs) == len(answered) == len(right)
        and np.all(np.diff(cutoffs) > 0)
        and np.all(np.diff(answered) < 0)
        and np.all((right <= answered) & (answered <= table.mentions))
        and np.all(answered > 0)
        # Of the answers that a higher cut-off removes, at most all are right.
        and np.all((np.diff(right) <= 0) & (np.diff(right) >= np.diff(answered)))
    )
    if not is_whole:
        raise BadInput(
            f"{where}: found columns that do not fit together; expected rising cut-offs with ever "
            f"fewer answers, and no more right ones than answers; {again}"
        )


# -------------------------------------------------------------------------------------------------
# Measures the rule by which `normalize` answers, on mentions whose concept is known.
#
# For each language it is measured how much letters should count beside vectors, how likely an
# answer is right by its similarity and margin, and what precision and coverage each cut-off then
# has.

_WEIGHTS = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 10.0)  # of letters, to choose from
_LEAST_MENTIONS = 100  # of a language, for a table of its own
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def measured_cutoffs(
    normalizer: Normalizer,
    mentions: Sequence[str],
    gold: Sequence[str],
    languages: Sequence[str] | None = None,
    measured_on: Mapping[str, Any] | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Cutoffs:
    """The expected quality of a normalizer's answers, for all mentions and each language.

    Mentions that name nothing or are strings of the dictionary, perhaps misspelt, are left aside:
    how they are answered does not depend on it.

    Args:
      normalizer: with the dictionary and the kind of candidates that will be used.
      mentions, gold: n strings, and the concepts that are right for each, joined with "|". The
        encoder must not have been trained on them.
      languages: of each mention, such as "ENG"; "" where it is not known. Languages with fewer than
        _LEAST_MENTIONS mentions have no table of their own.
      measured_on: see `Cutoffs`.
      tell: what is found is said to it, a line for each language.

    Raises:
      BadInput: fewer than _LEAST_MENTIONS mentions are left.
    """
    kept = no_strings_of(normalizer, mentions)
    _check_enough(len(kept))
    strings = [mentions[row] for row in kept]
    concepts = [set(split_concepts(gold[row])) for row in kept]
    of_language = np.array([languages[row] if languages else "" for row in kept])
    tables, rules = {}, {}
    for language in [ALL, *np.unique(of_language[of_language != ""]).tolist()]:
        rows = np.flatnonzero((of_language == language) | (language == ALL))
        if len(rows) < _LEAST_MENTIONS:
            tell(f"{language}: {len(rows)} mentions, fewer than {_LEAST_MENTIONS}: no table")
            continue
        some = [strings[row] for row in rows]
        tables[language], rules[language], accuracy = _of_language(
            normalizer, some, [concepts[row] for row in rows]
        )
        tell(
            f"{language}: {len(rows):,} mentions, {accuracy:.1%} right with letters at "
            f"weight {rules[language].weight_of_letters:g}"
        )
    described = {"candidates": normalizer.candidates.kind, **(measured_on or {})}
    return Cutoffs(tables, described, rules)


def no_strings_of(normalizer: SameStringNormalizer, mentions: Sequence[str]) -> list[int]:
    """The places of the mentions that are looked up further than as strings of the dictionary."""
    from coder_jax.mapping.normalizer import why_unanswerable

    exact, spelt = normalizer.exact(mentions), normalizer.misspelt(mentions)
    return [
        row
        for row, mention in enumerate(mentions)
        if not exact[row] and not spelt[row] and not why_unanswerable(mention)
    ]


def _check_enough(count: int, what: str = "mentions") -> None:
    if count < _LEAST_MENTIONS:
        raise BadInput(
            f"found {count} {what} that are no strings of the dictionary; expected "
            f"{_LEAST_MENTIONS} or more to measure cut-offs on: give more mentions"
        )


def _of_language(normalizer: Normalizer, mentions: Sequence[str], gold: Sequence[set[str]]):
    """(table, rule, share of right answers) of mentions in one language."""
    candidates = normalizer.candidates
    weight = candidates.weight
    if candidates.kind == "both":
        weight = _best_weight(candidates, *_with_errors(normalizer, mentions, gold))
    similarities, margins, right = _outcomes(candidates.with_weight(weight), mentions, gold)
    return *_table_and_rule(similarities, margins, right, weight), float(right.mean())


def _table_and_rule(
    similarities: np.ndarray, margins: np.ndarray, right: np.ndarray, weight: float
) -> tuple[CutoffTable, MeasuredRule]:
    """How likely answers are right by their similarity and margin, [n] each, and cut-offs of it."""
    from coder_jax.mapping.normalizer import Confidence

    found = np.isfinite(similarities)
    confidence = Confidence.fitted(similarities[found], margins[found], right[found])
    likely = np.full(len(similarities), -np.inf)
    likely[found] = list(map(confidence.of, similarities[found], margins[found]))
    return _precision_and_coverage(likely, right), MeasuredRule(weight, *confidence)


def likeliest(probability_KA: np.ndarray) -> list[tuple[int, float, float]]:
    """(place, probability, lead) of the candidate of each of a ranker's answers.

    The first candidate may be the concept; if the ranker tells broader ones, the most probable of
    them may be broader. The lead is by how much it is more probable than all others.

    Args:
      probability_KA: the probabilities of candidates, best first.
    """
    places = [0, *probability_KA[:, 1:].argmax(axis=0).tolist()]
    return [
        (place, float(of[place]), float(of[place] - np.delete(of, place).max(initial=0.0)))
        for place, of in zip(places, probability_KA.T, strict=True)
    ]


def cutoffs_of_ranker(benchmarks: Sequence[np.ndarray], measured_on: Mapping[str, Any]) -> Cutoffs:
    """The cut-offs of a ranker's answers, which are of probabilities in place of similarities.

    Args:
      benchmarks: the cases of each (`ThreeAnswers`).
      measured_on: see `Cutoffs`.

    Raises:
      BadInput: too few cases.
    """
    cases = np.concatenate(benchmarks)
    _check_enough(len(cases), "cases of mentions")
    tables, rules = {}, {}
    for name, columns in zip((ALL, BROADER), np.moveaxis(cases, 0, 2), strict=False):
        probabilities, leads, right = columns
        tables[name], rules[name] = _table_and_rule(probabilities, leads, right > 0, 0.0)
    return Cutoffs(tables, {"candidates": RANKER, **measured_on}, rules)


def _with_errors(
    normalizer: Normalizer, mentions: Sequence[str], gold: Sequence[set[str]]
) -> tuple[list[str], list[set[str]]]:
    """Mentions, the same misspelt, and as many misspelt terms of the dictionary, with their
    concepts; without those that are looked up as they are, or as a typing error.
    """
    terms, concepts = normalizer.dictionary.terms, normalizer.dictionary.concepts
    rows = np.linspace(0, len(terms) - 1, min(len(mentions), len(terms))).astype(int)
    strings = [*mentions, *misspelt(mentions), *misspelt([terms[row] for row in rows])]
    right = [*gold, *gold, *(set(split_concepts(concepts[row])) for row in rows)]
    found = zip(normalizer.exact(strings), normalizer.misspelt(strings), strict=True)
    kept = [row for row, (exact, spelt) in enumerate(found) if not exact and not spelt]
    return [strings[row] for row in kept], [right[row] for row in kept]


def _best_weight(candidates: Candidates, strings: Sequence[str], gold: Sequence[set[str]]) -> float:
    """The weight of letters with the most right answers.

    Of equally good ones the nearest to WEIGHT_OF_LETTERS.
    """
    firsts = candidates.first_by_weight(strings, _WEIGHTS)
    right = [
        sum(concept in concepts for concept, concepts in zip(first, gold, strict=True))
        for first in firsts
    ]
    best = max(right)
    equal = [weight for weight, count in zip(_WEIGHTS, right, strict=True) if count == best]
    from coder_jax.mapping.candidates import WEIGHT_OF_LETTERS

    return min(equal, key=lambda weight: abs(weight - WEIGHT_OF_LETTERS))


def _outcomes(
    candidates: Candidates, mentions: Sequence[str], gold: Sequence[set[str]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each mention: similarity of the nearest concept, margin, and whether it is right.

    Returns:
      (float64 [n], float64 [n], bool [n]).
    """
    ranked = candidates.ranked(mentions, 2)
    similarities = [found[0].similarity if found else -np.inf for found in ranked]
    right = [
        bool(found) and found[0].concept in concepts
        for found, concepts in zip(ranked, gold, strict=True)
    ]
    from coder_jax.mapping.normalizer import margin_of

    return np.array(similarities), np.array([margin_of(one) for one in ranked]), np.array(right)


def misspelt(names: Sequence[str], seed: int = 0) -> list[str]:
    """Each name with one typing error at a random place (not the first letter, if avoidable).

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
        return before + draw.choice(_LETTERS) + letter + after
    if kind == "wrong" or not after or after[0] == letter:
        return before + draw.choice(_LETTERS.replace(letter, "")) + after
    return before + after[0] + letter + after[1:]
