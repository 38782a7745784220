"""`export --interpolate auto`: a weight between the start and the end of a run, by held-out names.

It is the smallest one that finds about as many held-out names of the dataset as any, of those that
lose nothing which the encoder found before training: neither held-out names of one language nor
names of a second set. What lies nearer to the start keeps more of what no set here asks for. No
public test set has a part in the choice, so that their scores stay fair.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coder_jax.devices.hosts import log
from coder_jax.evaluation.benchmark import Given
from coder_jax.evaluation.normalization import (
    Mentions,
    NormalizationFold,
    evaluate_normalization,
    with_terms_at_most,
)
from coder_jax.evaluation.ranks import rank_values
from coder_jax.systems.encoder_system import encoder_of, from_start_to_end
from coder_jax.training.system import SavedRun, System
from data_pipeline.batches.order import key
from data_pipeline.process import BadInput
from data_pipeline.terminology.rewrites import KINDS, Rewriter

_WEIGHTS = tuple(round(0.1 * tenths, 1) for tenths in range(11))
_TERMS = 10_000  # that are searched, if the gold concepts have no more
_SAME = 1e-9  # shares that differ by rounding alone
_HELD_OUT, _REWRITTEN = "held-out names", "as people write them"


@dataclass(frozen=True)
class WeightChoice:
    """The chosen weight, and what was measured to choose it.

    Attributes:
      run: the run with the encoder of that weight.
      rows: of each weight a row for the model card: the weight, and acc@1 in percent of each set
        of names; last the standard errors at the chosen one. The first column says among how many
        terms.
    """

    weight: float
    run: SavedRun
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class _Names:
    """Some mentions of a fold that are looked up, and whether none of them may be lost."""

    name: str
    fold: NormalizationFold
    rows: np.ndarray
    kept: bool


def choose_weight(system: System, run: SavedRun, second: Path | None = None) -> WeightChoice:
    """The smallest weight that is about best on held-out names and nowhere below the start.

    Weights 0, 0.1, ... 1 are tried. Of the weights at which no set that is to be kept has a lower
    acc@1 than at 0, it is the smallest whose acc@1 of all held-out names is within one standard
    error of the highest.

    Args:
        system, run: what was trained; the run's folder has the dataset's held-out names.
        second: mentions that are to be kept: a file for the same dictionary, or with one beside it;
            None: the held-out names as people write them.

    Raises:
        BadInput: if the run has no held-out names, if no weight above 0 is as good as the start,
            or as `from_start_to_end`.
    """
    at = from_start_to_end(system, run)
    heldout = run.folder / "heldout"
    if not (heldout / "mentions.tsv").is_file():
        raise BadInput(
            "--interpolate auto: found no held-out names in the run. If its dataset was built "
            "without --hold-out, give --interpolate 0.6. If an earlier version trained it, give "
            "the command of `train` again: it copies them from the dataset"
        )
    sets = _sets(heldout, second)
    counted = {one.name: f"{one.name} ({len(one.rows):,})" for one in sets}
    log(
        f"--interpolate auto tries {len(_WEIGHTS)} weights, by acc@1. To be high: "
        f"{counted[_HELD_OUT]}. Not to be below the start: "
        f"{', '.join(counted[one.name] for one in sets if one.kept)}"
    )
    scores = []
    for weight in _WEIGHTS:
        scores.append(_scores(encoder_of(at(weight)).encode, sets))
        shown = (f"{one.name} {scores[-1][one.name]:.1f}" for one in sets if _is_main(one))
        log(f"weight {weight:g}: {', '.join(shown)}")
    terms = sorted({len(one.fold.dictionary.terms) for one in sets})
    head = f"weight; acc@1 among {' or '.join(f'{n:,}' for n in terms)} terms"
    start = scores[0]
    kept = [one.name for one in sets if one.kept or one.name == _HELD_OUT]
    allowed = [
        number
        for number in range(1, len(_WEIGHTS))
        if all(scores[number][name] >= start[name] - _SAME for name in kept)
    ]
    if not allowed:
        raise BadInput(
            "--interpolate auto: at each weight above 0 the encoder finds fewer names than "
            f"before training: {_falls(scores, kept)}. Train with a smaller --learning-rate, or "
            "give --interpolate WEIGHT or none, if that does not matter"
        )
    highest = max(scores[number][_HELD_OUT] for number in allowed)
    enough = highest - _standard_error(highest, sets[0])
    number = next(one for one in allowed if scores[one][_HELD_OUT] >= enough - _SAME)
    chosen = at(_WEIGHTS[number])
    chosen = dataclasses.replace(chosen, weights=f"{chosen.weights}, chosen by held-out names")
    rows: list[dict[str, Any]] = [
        {head: weight, **{counted[name]: round(acc, 1) for name, acc in found.items()}}
        for weight, found in zip(_WEIGHTS, scores, strict=True)
    ]
    errors = {
        counted[one.name]: f"{_standard_error(scores[number][one.name], one):.1f}" for one in sets
    }
    rows.append({head: f"standard error at {_WEIGHTS[number]:g}", **errors})
    return WeightChoice(_WEIGHTS[number], chosen, rows)


def _standard_error(acc: float, names: _Names) -> float:
    """Of an acc@1 in percent of so many names."""
    return float(np.sqrt(max(acc * (100 - acc), 0) / len(names.rows)))


def _sets(heldout: Path, second: Path | None) -> list[_Names]:
    """The sets of names: all held-out ones, those of each language, the second set, its kinds."""
    whole = Mentions.read(Given(_HELD_OUT, heldout))
    (fold,) = whole.folds
    languages = np.array(fold.languages or [""] * len(fold.mentions))
    told = list(dict.fromkeys(languages.tolist()))
    everything = np.arange(len(fold.mentions))
    sets = [_Names(_HELD_OUT, fold, everything, kept=False)]
    if len(told) > 1:
        sets += [
            _Names(f"held-out {one}", fold, np.flatnonzero(languages == one), kept=True)
            for one in told
        ]
    if second is not None:
        own = second.is_dir() or (second.parent / "dictionary.tsv").is_file()
        given = Mentions.read(Given(second.name, second, None if own else fold.dictionary))
        (other,) = given.folds
        sets.append(_Names(second.name, other, np.arange(len(other.mentions)), kept=True))
    else:
        other, kinds = _rewritten(fold)
        sets.append(_Names(_REWRITTEN, other, np.arange(len(kinds)), kept=True))
        sets += [
            _Names(kind, other, np.flatnonzero(kinds == kind), kept=False)
            for kind in KINDS
            if kind in kinds
        ]
    return _smaller(sets)


def _smaller(sets: Sequence[_Names]) -> list[_Names]:
    """The sets with dictionaries of fewer terms, the gold concepts' among them."""
    whole = Mentions("", "", [], "")
    folds = list({id(one.fold): one.fold for one in sets}.values())
    cut: dict[int, NormalizationFold] = {}
    for dictionary in {id(fold.dictionary): fold.dictionary for fold in folds}.values():
        sharing = [fold for fold in folds if fold.dictionary is dictionary]
        named = [dataclasses.replace(fold, name=str(n)) for n, fold in enumerate(sharing)]
        small = with_terms_at_most(dataclasses.replace(whole, folds=named), _TERMS)
        cut |= {id(fold): one for fold, one in zip(sharing, small.folds, strict=True)}
    return [dataclasses.replace(one, fold=cut[id(one.fold)]) for one in sets]


def _rewritten(fold: NormalizationFold) -> tuple[NormalizationFold, np.ndarray]:
    """The held-out names as people write them, and the kind of each; names that no kind fits, not.

    How a name is written depends on its place in the file alone.
    """
    dictionary = fold.dictionary
    _, concepts = np.unique(dictionary.concepts, return_inverse=True)
    order = np.argsort(concepts, kind="stable")
    rewriter = Rewriter([dictionary.terms[row] for row in order.tolist()], concepts[order])
    places = np.arange(len(fold.mentions))
    languages = fold.languages or ["ENG"] * len(fold.mentions)
    written, kinds = rewriter(fold.mentions, languages, key(0, "permutation", places))
    rows = [row for row, kind in enumerate(kinds) if kind]
    if not rows:
        raise BadInput(
            f"--interpolate auto: no held-out name of {dictionary.source} can be rewritten as "
            "people write names; give a set of your own by --not-below"
        )
    other = dataclasses.replace(
        fold,
        mentions=[written[row] for row in rows],
        gold=[fold.gold[row] for row in rows],
        languages=[languages[row] for row in rows],
    )
    return other, np.array([kinds[row] for row in rows])


def _scores(
    encode: Callable[[Sequence[str]], np.ndarray], sets: Sequence[_Names]
) -> dict[str, float]:
    """acc@1 in percent of each set of names, tied concepts in random order."""
    folds = list({id(one.fold): one.fold for one in sets}.values())
    named = [dataclasses.replace(fold, name=str(number)) for number, fold in enumerate(folds)]
    result = evaluate_normalization(encode, Mentions("", "", named, ""), ks=(1,))
    right = {
        id(fold): rank_values(result.ranks[str(number)], (1,))["acc@1"]
        for number, fold in enumerate(folds)
    }
    return {one.name: 100 * float(right[id(one.fold)][one.rows].mean()) for one in sets}


def _is_main(names: _Names) -> bool:
    return names.kept or names.name == _HELD_OUT


def _falls(scores: Sequence[dict[str, float]], names: Sequence[str]) -> str:
    """What falls at the smallest weight above 0, in words."""
    before, after = scores[0], scores[1]
    fallen = [name for name in names if after[name] < before[name] - _SAME]
    return ", ".join(f"{name} {before[name]:.1f} to {after[name]:.1f}" for name in fallen)
