"""Compares two results on the same mentions or pairs: a paired test of whether one is better.

Both were looked up for the same mentions, so their differences say more than two intervals do: most
mentions are as easy for one as for the other. What is compared is what records keep of each
mention, the place of its gold concept (`GoldCounts.as_text`), and of each rated pair, its cosine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coder_jax.evaluation.given_groups import GroupedMentions
from coder_jax.evaluation.ranks import GoldCounts, rank_values
from coder_jax.evaluation.record import EvaluationRecord, read_records
from coder_jax.evaluation.results import (
    TOGETHER,
    Row,
    Table,
    intervals_of_means,
    percent,
    spearman_differences,
    summed,
)
from data_pipeline.process import BadInput, tell

_FLIPS = 10_000  # of signs, in a permutation test
_TINY = 1e-9  # ties are means over orders: the same ones may differ in the last bits
_SMALL_P = 0.001
_HEADER = [
    *("comparison", "score", "mentions", "A", "B", "B - A", "95 % interval", "p", "won", "lost"),
]

_Values = Mapping[str, np.ndarray]  # what each mention adds to a score, by the score's name


@dataclass(frozen=True)
class ScoreDifference:
    """One score of two results.

    Attributes:
      score: its name.
      a, b: the score of each.
      interval: 95 %, of b - a, over mentions that are drawn anew within their fold; equal ones
        with equal gold concepts together, as a model gives them one answer.
      p: of the two-sided paired test, which exchanges the answers to such mentions together.
      mentions: how many there are; of similarity, pairs.
      won, lost: of these, how many b is better on, and worse. Of pairs: whose place among all
        cosines is nearer to its place among all ratings.
    """

    score: str
    a: float
    b: float
    interval: list[float]
    p: float
    mentions: int
    won: int
    lost: int


def compare_files(path_a: str, path_b: str, *, seed: int = 0) -> Table:
    """The table of two files of `evaluate --json`: a row for each benchmark, pooling and score.

    Benchmarks that only one of them has are left out, and told.

    Raises:
      BadInput: another file, no mentions that both have, or a benchmark of one name in both whose
        mentions differ.
    """
    rows = []
    for a, b in _pairs_of(read_records(path_a), read_records(path_b), path_a, path_b):
        models = (a.encoder.model, b.encoder.model)
        poolings = dict.fromkeys(one.encoder.pooling for one in (a, b))
        label = f"{a.benchmark}, {' and '.join(poolings)}"
        for found in differences_of(a, b, path_a, path_b, seed):
            rows.append(Row([label, *_cells_of(found)], " and ".join(models)))
        hashes = [(one.dictionary or {}).get("content_hash") for one in (a, b)]
        if hashes[0] != hashes[1]:
            tell(f"{a.benchmark}: A and B searched different dictionaries")
    return _HEADER, rows


def _pairs_of(
    a: Sequence[EvaluationRecord], b: Sequence[EvaluationRecord], path_a: str, path_b: str
) -> Iterator[tuple[EvaluationRecord, EvaluationRecord]]:
    """The records of the same mentions or pairs, and of the same pooling where one has several.

    Those of which nothing is kept that could be compared are told.
    """
    sides = [[one for one in side if one.answers or one.pairs] for side in (a, b)]
    for path, side in ((path_a, a), (path_b, b)):
        bare = dict.fromkeys(
            f"{one.benchmark} ({one.kind})" for one in side if not (one.answers or one.pairs)
        )
        if bare:
            tell(
                f"left out, as {path} keeps no answers to them one by one: {'; '.join(bare)} (of "
                "pairs that people rated, score them again with this version)"
            )
    for record in sides[0]:
        for other in sides[1]:
            if record.benchmark == other.benchmark and record.content_hash != other.content_hash:
                counts = [f"{_size_of(one)} of {one.path}" for one in (record, other)]
                raise BadInput(
                    f"--compare: the benchmark {record.benchmark!r} is {counts[0]} in {path_a} and "
                    f"{counts[1]} in {path_b}, and what is asked or its answers differ; expected "
                    "the same: evaluate both on one file"
                )
    same, left = [], []
    for record in sides[0]:
        others = [one for one in sides[1] if _mentions_of(one) == _mentions_of(record)]
        alone = (
            len(others) == 1 == sum(_mentions_of(one) == _mentions_of(record) for one in sides[0])
        )
        chosen = [one for one in others if alone or one.encoder.pooling == record.encoder.pooling]
        same += [(record, one) for one in chosen[:1]]
        left += [] if chosen else [f"{record.benchmark}, {record.encoder.pooling}"]
    if not same:
        held = [
            ", ".join(dict.fromkeys(f"{one.benchmark} ({one.kind})" for one in side)) or "nothing"
            for side in (a, b)
        ]
        raise BadInput(
            f"--compare: {path_a} has {held[0]}; {path_b} has {held[1]}; found no mentions that "
            "both have, with the rank of their gold concepts; expected the same benchmark of "
            "mentions in both: evaluate both on it with this version"
        )
    if left:
        tell(f"left out, as {path_b} has no such mentions and pooling: {'; '.join(left)}")
    yield from same


def _mentions_of(record: EvaluationRecord) -> tuple[str, str]:
    """What two records must have in common to be compared."""
    return record.kind, record.content_hash


def _size_of(record: EvaluationRecord) -> str:
    """How many mentions or pairs a record is of, in words."""
    what = "pairs" if record.pairs else "mentions"
    return f"{record.counts.get(what, 0):,} {what}"


def differences_of(
    a: EvaluationRecord, b: EvaluationRecord, path_a: str, path_b: str, seed: int
) -> list[ScoreDifference]:
    """The differences of the scores that both records have, of the mean over their folds.

    Of MANTRA GSC these are precision, and F1 with as many gold pairs as there are; of mentions
    whose group is given recall and acc@k; of rated pairs Spearman's rho.

    Args:
      a, b: of the same mentions or pairs, by their content hash.
      path_a, path_b: what names them in messages.
      seed: of what is drawn.

    Raises:
      BadInput: mentions or pairs in another order, or ranks that are broken.
    """
    if a.pairs and b.pairs:
        return _differences_of_pairs(a, b, path_a, path_b, seed)
    ranks = [_ranks_of(one, path) for one, path in ((a, path_a), (b, path_b))]
    sizes = [{name: len(same) for name, (_, same) in side.items()} for side in ranks]
    orders = [one.answers and one.answers.order for one in (a, b)]
    if sizes[0] != sizes[1] or orders[0] != orders[1]:
        raise BadInput(
            f"--compare: {a.benchmark} has the same mentions in {path_a} and in {path_b}, in "
            "another order; expected one order: evaluate both on one file"
        )
    ks = [int(name[4:]) for name in a.scores if name[4:].isdigit() and name in b.scores]
    of_a, of_b = (
        [_values_of(record, name, one, ks) for name, (one, _) in side.items()]
        for record, side in zip((a, b), ranks, strict=True)
    )
    # Records of earlier versions do not say which mentions are the same, as those of now do.
    same = [
        np.minimum(one, other)
        for (_, one), (_, other) in zip(*(side.values() for side in ranks), strict=True)
    ]
    if not any(TOGETHER in one.scoring.get("intervals", TOGETHER) for one in (a, b)):
        tell(
            f"warning: {a.benchmark}: {path_a} and {path_b} are of an earlier version, which does "
            "not say which mentions are the same: if some are, the interval is too narrow and p "
            "too small; evaluate one of them again"
        )
    return [_difference(name, of_a, of_b, same, seed) for name in of_a[0] if name in of_b[0]]


def _differences_of_pairs(
    a: EvaluationRecord, b: EvaluationRecord, path_a: str, path_b: str, seed: int
) -> list[ScoreDifference]:
    """The difference of Spearman's rho by each kind of rating; see `spearman_differences`."""
    from scipy.stats import rankdata  # not at the top: `--help` stays quick

    assert a.pairs and b.pairs
    if a.pairs.ratings != b.pairs.ratings:
        raise BadInput(
            f"--compare: {a.benchmark} has the same pairs in {path_a} and in {path_b}, in another "
            "order; expected one order: evaluate both on one file"
        )
    found = []
    for name, ratings in a.pairs.ratings.items():
        score_a, score_b = a.scores.get(name), b.scores.get(name)
        if score_a is None or score_b is None:
            continue
        sides = [np.array(side) for side in (a.pairs.cosines, b.pairs.cosines, ratings)]
        interval, p = spearman_differences(sides[0], sides[1], sides[2], seed)
        place_a, place_b, place = map(rankdata, sides)
        nearer = np.abs(place_a - place) - np.abs(place_b - place)
        won, lost = int((nearer > 0).sum()), int((nearer < 0).sum())
        found.append(ScoreDifference(name, score_a, score_b, interval, p, len(ratings), won, lost))
    return found


def _values_of(record: EvaluationRecord, fold: str, ranks: GoldCounts, ks: list[int]) -> _Values:
    """The contribution of each mention of a fold to the compared scores; `ks` are those of
    acc@k.
    """
    values = rank_values(ranks, ks or [1])
    if record.kind == GroupedMentions.kind:
        return _grouped_values(record, fold, values)
    return values if ks else _mantra_values(record, fold, values["acc@1"])


def _grouped_values(record: EvaluationRecord, fold: str, values: _Values) -> _Values:
    """As `_values_of`, of mentions whose group is given.

    Without MRR, which is over gold CUIs, not over mentions; with recall, counted as MLNorm does: an
    answer is one of its mention's gold CUIs at most.
    """
    kept = {name: value for name, value in values.items() if name != "mrr"}
    if record.scoring["count_as"] != "mlnorm":
        return kept
    hits, gold = values["acc@1"], record.folds[fold]["counts"]["gold"]
    return {"recall": hits * len(hits) / gold, **kept}


def _mantra_values(record: EvaluationRecord, fold: str, hits: np.ndarray) -> _Values:
    """The contribution of each mention of a sub-corpus to precision and F1."""
    pairs = record.folds.get(fold, {}).get("counts", {}).get("annotations", len(hits))
    return {"precision": hits, "f1": hits * 2 * len(hits) / (len(hits) + pairs)}


def _ranks_of(record: EvaluationRecord, path: str) -> dict[str, tuple[GoldCounts, np.ndarray]]:
    """The ranks of each fold's gold concepts, and which mentions are the same (`first_same`).

    Raises:
      BadInput: they are missing or broken.
    """
    kept = record.answers and record.answers.ranks
    if not kept:
        raise BadInput(
            f"--compare: {path} has no ranks of the mentions of {record.benchmark}: they are not "
            "kept of so many; give fewer mentions"
        )
    try:
        return {fold: GoldCounts.from_text(text) for fold, text in kept.items()}
    except ValueError as error:
        raise BadInput(
            f"{path}: {record.benchmark}: ranks: {error}; make it again with `python -m coder_jax "
            "evaluate --json`"
        ) from error


def _difference(
    name: str,
    a: Sequence[_Values],
    b: Sequence[_Values],
    same: Sequence[np.ndarray],
    seed: int,
) -> ScoreDifference:
    """The difference of one score, the unweighted mean over folds; a and b have the same folds."""
    pairs = [(one[name], other[name]) for one, other in zip(a, b, strict=True)]
    changes = [np.where(abs(other - one) > _TINY, other - one, 0.0) for one, other in pairs]
    every = np.concatenate(changes)
    won, lost = int((every > 0).sum()), int((every < 0).sum())
    shares = [
        summed(change[:, None] / (len(change) * len(changes)), one)[:, 0]
        for change, one in zip(changes, same, strict=True)
    ]
    p = _p_by_flips(np.concatenate(shares), np.random.default_rng(seed))
    interval = intervals_of_means([{name: change} for change in changes], seed, same)[name]
    score_a, score_b = (float(np.mean([pair[i].mean() for pair in pairs])) for i in (0, 1))
    return ScoreDifference(name, score_a, score_b, interval, p, len(every), won, lost)


def _p_by_flips(changes: np.ndarray, rng: np.random.Generator) -> float:
    """Two-sided p of a paired permutation test: how often random signs give as large a sum.

    Where all changes have one size, exactly: that is McNemar's exact test, a sign test.

    Args:
      changes: float [n], what each mention, or all equal ones, add to the difference.
      rng: what is drawn from. Of c changes of one size as many are positive as a binomial says,
        so that n does not matter.
    """
    from scipy.stats import binomtest  # not at the top: `--help` stays quick

    sizes, counts = np.unique(np.round(np.abs(changes[changes != 0]), 15), return_counts=True)
    if not len(sizes):
        return 1.0
    if len(sizes) == 1:
        return float(binomtest(int((changes > 0).sum()), int(counts[0])).pvalue)
    observed = abs(changes.sum())
    positive = rng.binomial(counts, 0.5, size=(_FLIPS, len(sizes)))
    sums = np.abs((2 * positive - counts) @ sizes)
    return float((1 + (sums >= observed - _TINY).sum()) / (1 + _FLIPS))


def p_in_words(p: float) -> str:
    """A p-value with three decimals: "0.042", "< 0.001"."""
    return f"{p:.3f}" if p >= _SMALL_P else f"< {_SMALL_P}"


def _cells_of(found: ScoreDifference) -> list[str]:
    """The cells after the first: scores in percent, rho with four decimals."""
    low, high = found.interval
    of_rho = found.score.startswith("spearman")
    scale, digits = (1, 4) if of_rho else (100, 2)
    return [
        "MRR" if found.score == "mrr" else found.score,
        f"{found.mentions:,}",
        *(f"{one:.4f}" if of_rho else percent(one) for one in (found.a, found.b)),
        f"{scale * (found.b - found.a):+.{digits}f}",
        f"{scale * low:+.{digits}f} to {scale * high:+.{digits}f}",
        p_in_words(found.p),
        f"{found.won:,}",
        f"{found.lost:,}",
    ]
