"""MRREL of an invented release: every relation in both directions, sorted by CUI1.

A row is one int64, (head * labels + label) * concepts + tail, until its text is made. Rows are
drawn in chunks that depend on the seed alone; where there are more than fit into memory, they are
drawn once for each span of heads and only that span is kept.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from data_pipeline.synthetic.terms import CHUNK, SOURCES, cui, numbered, suppress, zipf

RELATIONS = 5  # a stream of random numbers, as in synthetic_terms
ROWS_IN_MEMORY = 100_000_000
MODIFIERS = (
    "associated primary direct possible active former regional clinical procedure finding"
    " dose method target parent component"
).split()
NOUNS = (
    "site part form agent cause result class member ingredient mechanism effect course context"
    " device specimen time property scale status substance structure process location pathway"
    " product reagent measure stage gene tissue exposure"
).split()
# REL in one direction and the other, share of the rows, share of these without a RELA, and how many
# RELA there are: about those of the UMLS, whose MRREL has 14 REL and 900 RELA.
KINDS = (
    ("SIB", "SIB", 0.24, 0.9, 4),
    ("RO", "RO", 0.41, 0.05, 455),
    ("PAR", "CHD", 0.15, 0.35, 20),
    ("RB", "RN", 0.07, 0.3, 80),
    ("RQ", "RQ", 0.05, 0.4, 20),
    ("SY", "SY", 0.05, 0.2, 20),
    ("QB", "AQ", 0.02, 1.0, 0),
    ("RL", "RL", 0.004, 0.5, 2),
    ("RU", "RU", 0.003, 1.0, 0),
    ("XR", "XR", 0.002, 1.0, 0),
    ("DEL", "DEL", 0.001, 1.0, 0),
)


class Labels:
    """The relation labels of an invented release and their frequencies.

    Attributes:
      rel, rela: strings, one per label; label 2 * i + 1 is the other direction of 2 * i.
      share: cumulated frequencies of the pairs of labels.
    """

    def __init__(self) -> None:
        pairs = [(f"has_{m}_{n}", f"{m}_{n}_of") for m in MODIFIERS for n in NOUNS]
        rel, rela, share = [], [], []
        for there, back, part, without, count in KINDS:
            weights = 1 / (np.arange(count) + 3.0)
            weights *= part * (1 - without) / max(weights.sum(), 1e-9)
            own = [("inverse_isa", "isa")] if there == "PAR" else []
            own += pairs[: count - len(own)]
            rel += [there, back] * (count + 1)
            rela += ["", ""] + [name for pair in own for name in pair]
            share += [part * without, *weights]
        self.rel, self.rela = pl.Series(rel), pl.Series(rela)
        self.share = np.cumsum(share) / np.sum(share)


def mrrel(concepts: int, rows: int, seed: int) -> Iterator[pl.DataFrame]:
    """Chunks of MRREL, `rows` rows in all (an even number)."""
    labels = Labels()
    spans = -(-rows // ROWS_IN_MEMORY)
    bounds = [concepts * i // spans for i in range(spans + 1)]
    done = 0
    for first, last in zip(bounds, bounds[1:], strict=False):
        keys = _sorted_keys(concepts, rows, seed, labels, first, last)
        for start in range(0, len(keys), CHUNK):
            part = keys[start : start + CHUNK]
            yield _text(part, done, concepts, labels, np.random.default_rng([seed, 6, done]))
            done += len(part)


def _sorted_keys(
    concepts: int, rows: int, seed: int, labels: Labels, first: int, last: int
) -> np.ndarray:
    """The keys of all rows whose head is in first .. last - 1, sorted."""
    kept = []
    factor = len(labels.rel) * concepts
    for chunk, start in enumerate(range(0, rows // 2, CHUNK)):
        rng = np.random.default_rng([seed, RELATIONS, chunk])
        size = min(CHUNK, rows // 2 - start)
        head, tail = _concepts(concepts, size, rng), _concepts(concepts, size, rng)
        label = 2 * np.searchsorted(labels.share, rng.random(size))
        same = rng.random(size)
        tail = np.where(same < 0.02, head, tail)  # a relation of a concept to itself
        again = np.flatnonzero(same > 0.97)  # another vocabulary has the same relation
        for column in (head, tail, label):
            column[again] = column[again - 1]
        for one, other, name in ((head, tail, label), (tail, head, label + 1)):
            is_kept = (one >= first) & (one < last)
            key = (one * len(labels.rel) + name) * concepts + other
            kept.append(key[is_kept])
    keys = np.concatenate(kept)
    assert factor * concepts < 2**63
    keys.sort()
    return keys


def _concepts(concepts: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """int64 [size]: a quarter of the draws fall on few concepts, as on the heads of hierarchies."""
    popular = (concepts * rng.random(size) ** 8).astype(np.int64)
    # Popular concepts lie all over the release: a step that shares no factor with their number.
    step = concepts // 2 - 1 | 1
    while np.gcd(step, concepts) > 1:
        step += 2
    uniform = rng.integers(0, concepts, size)
    return np.where(rng.random(size) < 0.25, popular * step % concepts, uniform)


def _text(
    key: np.ndarray, first_row: int, concepts: int, labels: Labels, rng: np.random.Generator
) -> pl.DataFrame:
    tail = key % concepts
    label = key // concepts % len(labels.rel)
    head = key // concepts // len(labels.rel)
    size = len(key)
    row = np.arange(first_row, first_row + size)
    source = pl.Series(np.array(SOURCES)[zipf(len(SOURCES), size, rng)])
    return pl.DataFrame(
        {
            "CUI1": cui(head),
            "AUI1": numbered("A", 3 * head + row % 3),
            "STYPE1": "AUI",
            "REL": labels.rel.gather(label),
            "CUI2": cui(tail),
            "AUI2": numbered("A", 3 * tail + row % 3),
            "STYPE2": "AUI",
            "RELA": labels.rela.gather(label),
            "RUI": numbered("R", row),
            "SRUI": "",
            "SAB": source,
            "SL": source,
            "RG": "",
            "DIR": pl.Series(np.array(["", "Y", "N"])[zipf(3, size, rng)]),
            "SUPPRESS": pl.Series(suppress(size, rng)),
            "CVF": "",
        }
    )
