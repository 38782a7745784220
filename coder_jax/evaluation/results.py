"""Cells of result tables, and bootstrap intervals of scores."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coder_jax.evaluation.published import PublishedRow, rows_for
from coder_jax.evaluation.record import EvaluationRecord

# -------------------------------------------------------------------------------------------------
# Bootstrap intervals: how much a score would vary with other mentions, pairs or triplets.
#
# 95 % percentile intervals of the bootstrap: what was scored is drawn anew with replacement, as
# many as there were, 2,000 times. An interval says nothing of what else could differ, such as the
# dictionary or the seed of training; of a score of exactly 0 or 1 it has no width, as no other
# outcome was seen.
#
# Drawing n things anew is drawing how often each distinct outcome comes (a multinomial), of which
# there are few: so it takes no longer for a million mentions than for a thousand.

_RESAMPLES = 2000
_EXCHANGES = 10_000  # of the places of pairs, in a permutation test
_LEVEL = 0.95
ABOUT = f"{_LEVEL:.0%}, bootstrap percentiles of {_RESAMPLES:,} resamples"
TOGETHER = "equal ones with equal gold concepts together"  # are drawn: mentions (`first_same`)
_MOST_VALUES = 1 << 22  # that are drawn at a time: 32 MB

# The distinct outcomes [U, S] and how often each was drawn [B, U] -> statistics [B, T].
Statistic = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _bounds(statistics: np.ndarray) -> np.ndarray:
    """The 95 % percentile interval, float [2, T], of statistics of resamples, [B, T]."""
    outside = (1 - _LEVEL) / 2
    return np.quantile(statistics, [outside, 1 - outside], axis=0)


def ratios(distinct_US: np.ndarray, drawn_BU: np.ndarray) -> np.ndarray:
    """The `Statistic` of ratios of sums; the last column is the denominator."""
    summed_BS = drawn_BU @ distinct_US
    return summed_BS[:, :-1] / summed_BS[:, -1:]


def first_same(*columns: Iterable[Hashable]) -> np.ndarray:
    """For each of n mentions the first with the same values in all columns, int [n].

    An encoder gives all of them one answer. Were they drawn as if each had its own, the intervals
    of texts that repeat few names would be two or three times too narrow.
    """
    firsts: dict[tuple[Hashable, ...], int] = {}
    rows = zip(*columns, strict=True)
    return np.array([firsts.setdefault(row, n) for n, row in enumerate(rows)], np.int64)


def summed(outcomes_nS: np.ndarray, same_n: np.ndarray) -> np.ndarray:
    """The sums of the outcomes of equal mentions, and how many they are, float [U, S + 1].

    Args:
      outcomes_nS: of each mention.
      same_n: equal numbers for mentions that are drawn together, as of `first_same`.
    """
    distinct, places = np.unique(same_n, return_inverse=True)
    found = np.zeros((len(distinct), outcomes_nS.shape[1] + 1))
    np.add.at(found, places, np.column_stack([outcomes_nS, np.ones(len(outcomes_nS))]))
    return found


def resampled(
    outcomes_nS: np.ndarray, statistic: Statistic, rng: np.random.Generator
) -> np.ndarray:
    """A statistic of RESAMPLES resamples, [RESAMPLES, T].

    Args:
      outcomes_nS: of each thing that was scored, 1 or more.
      statistic: see `Statistic`.
      rng: what is drawn from.
    """
    distinct_US, counts_U = np.unique(outcomes_nS, axis=0, return_counts=True)
    n, at_once = len(outcomes_nS), max(1, _MOST_VALUES // len(distinct_US))
    parts = []
    for first in range(0, _RESAMPLES, at_once):
        size = min(at_once, _RESAMPLES - first)
        parts.append(statistic(distinct_US, rng.multinomial(n, counts_U / n, size=size)))
    return np.concatenate(parts)


def intervals_of_means(
    groups: Sequence[Mapping[str, np.ndarray]],
    seed: int = 0,
    same: Sequence[np.ndarray] | None = None,
) -> dict[str, list[float]]:
    """Bootstrap intervals of the mean of each score; for several groups, of the mean over groups.

    Args:
      groups: for each group, such as a fold, by the score's name float [n], what each mention
        adds. Mentions are drawn anew within their group.
      seed: of what is drawn.
      same: for each group int [n], equal for mentions that are drawn together (`first_same`); None
        if no two are.

    Returns:
      [low, high] by the score's name; nothing for no groups.
    """
    if not groups:
        return {}
    rng = np.random.default_rng(seed)
    names = list(groups[0])
    found = []
    for number, group in enumerate(groups):
        values = np.stack([group[name] for name in names], axis=1)
        equal = np.arange(len(values)) if same is None else same[number]
        found.append(resampled(summed(values, equal), ratios, rng))
    return named(names, np.mean(found, axis=0))


def named(names: Sequence[str], statistics: np.ndarray) -> dict[str, list[float]]:
    """[low, high] of each column of statistics of resamples, by its name."""
    return dict(zip(names, _bounds(statistics).T.tolist(), strict=True))


def _rhos(first_Bn: np.ndarray, second_Bn: np.ndarray) -> np.ndarray:
    """Spearman's rho of each row, [B]; NaN where all values of a side are equal."""
    from scipy.stats import rankdata  # not at the top: `--help` stays quick

    ranks = [rankdata(side, axis=1) for side in (first_Bn, second_Bn)]
    a, b = (side - side.mean(axis=1, keepdims=True) for side in ranks)
    lengths = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    with np.errstate(invalid="ignore"):
        return (a * b).sum(axis=1) / lengths


def spearman_interval(first: np.ndarray, second: np.ndarray, seed: int = 0) -> list[float] | None:
    """The bootstrap interval of Spearman's rho over pairs; None where it is undefined.

    Resamples in which all values of a side are equal have no ranks and are left aside.

    Args:
      first, second: float [n].
      seed: of what is drawn.
    """
    rng, n = np.random.default_rng(seed), len(first)
    found = []
    at_once = max(1, _MOST_VALUES // n)
    for start in range(0, _RESAMPLES, at_once):
        rows = rng.integers(n, size=(min(at_once, _RESAMPLES - start), n))
        found.append(_rhos(first[rows], second[rows]))
    rhos = np.concatenate(found)
    rhos = rhos[np.isfinite(rhos)]
    return _bounds(rhos[:, None])[:, 0].tolist() if len(rhos) else None


def spearman_differences(
    a: np.ndarray, b: np.ndarray, ratings: np.ndarray, seed: int = 0
) -> tuple[list[float], float]:
    """(95 % interval of rho of b - rho of a, p of the two-sided paired test that they are equal).

    The interval is over pairs that are drawn anew, the same for both. The test exchanges the two
    systems' places of a pair at random: were they equal, either could be either's.

    Args:
      a, b: float [n], the values of each system; not all equal.
      ratings: float [n], not all equal.
      seed: of what is drawn.
    """
    from scipy.stats import rankdata  # not at the top: `--help` stays quick

    rng, n = np.random.default_rng(seed), len(ratings)
    at_once = max(1, _MOST_VALUES // n)
    drawn, flipped = [], []
    for start in range(0, _RESAMPLES, at_once):
        rows = rng.integers(n, size=(min(at_once, _RESAMPLES - start), n))
        drawn.append(_rhos(b[rows], ratings[rows]) - _rhos(a[rows], ratings[rows]))
    differences = np.concatenate(drawn)
    places_a, places_b, human = rankdata(a), rankdata(b), ratings[None]
    for start in range(0, _EXCHANGES, at_once):
        swap = rng.random((min(at_once, _EXCHANGES - start), n)) < 0.5
        first = _rhos(np.where(swap, places_b, places_a), human)
        flipped.append(_rhos(np.where(swap, places_a, places_b), human) - first)
    observed = abs(_rhos(b[None], human) - _rhos(a[None], human))[0]
    as_large = (np.abs(np.concatenate(flipped)) >= observed - 1e-12).sum()
    interval = _bounds(differences[np.isfinite(differences)][:, None])[:, 0].tolist()
    return interval, float((1 + as_large) / (1 + _EXCHANGES))


# -------------------------------------------------------------------------------------------------
# Rows and cells of result tables.


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
      cells: the first is the benchmark or the term.
      encoder: the model of the record, or what the paper calls its encoder.
      published: paper and table that the row is from; "" for a row of a record.
    """

    cells: list[str]
    encoder: str
    published: str = ""


Table = tuple[list[str], list[Row]]  # header and rows
PLUS_MINUS = " ±"  # between a score and half the width of its interval


def missing_column(records: Sequence[EvaluationRecord]) -> list[str]:
    """["missing"] if some record lacks vectors of something; encoders never do."""
    return ["missing"] if any(record.counts.get("missing") for record in records) else []


def published_rows(
    records: Sequence[EvaluationRecord],
    published: Iterable[PublishedRow],
    scores: Sequence[str],
    width: int,
    *,
    before: int,
    digits: int,
) -> list[Row]:
    """The papers' rows for the benchmarks of the records, marked as published.

    Args:
      published: all rows of this kind of benchmark.
      scores: what the paper calls the columns that have a value.
      width: columns of the table; the scores stand behind the first `before` of them.
      digits: behind the decimal point.
    """
    rows = []
    for name in dict.fromkeys(record.benchmark for record in records):
        for row in rows_for(name, published):
            values = [row.scores.get(score) for score in scores]
            if all(value is None for value in values):
                continue
            shown = ["" if value is None else f"{value:.{digits}f}" for value in values]
            cells = [name, row.pooling, *[""] * (before - 2), *shown]
            cells += [""] * (width - len(cells))
            rows.append(Row(cells, row.encoder, f"{row.paper}, table {row.table}"))
    return rows


def percent(share: float | None, interval: Sequence[float] | None = None) -> str:
    """A share in [0, 1] with two decimals: "75.00"; with its interval "75.00 ±1.9"."""
    return "undefined" if share is None else f"{100 * share:.2f}{half(interval, 100, 1)}"


def short_percent(share: float | None, interval: Sequence[float] | None = None) -> str:
    """A share in [0, 1] with one decimal, as the papers print F1: "75.0", "75.0 ±1.9"."""
    return one_decimal(None if share is None else 100 * share) + half(interval, 100, 1)


def one_decimal(value: float | None) -> str:
    """A number, or a dash for none: "3.1"."""
    return "-" if value is None else f"{value:.1f}"


def half(interval: Sequence[float] | None, scale: float, digits: int) -> str:
    """ " ±" and half the width of an interval [low, high], times `scale`; "" for none."""
    if not interval:
        return ""
    low, high = interval
    return f"{PLUS_MINUS}{scale * (high - low) / 2:.{digits}f}"
