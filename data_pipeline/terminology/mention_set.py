"""Mentions, each with a set of concepts, and the names of a dictionary that stand for these.

Two kinds of gold become one structure. Where gold is written as names, as in CHIP-2019, a concept
is a distinct name, however many codes that has: ranked by code, one name would take two places.
Where gold is written as codes, as in NCBI disease, a concept is a code with all its names, any of
which stands for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from data_pipeline.process.errors import BadInput
from data_pipeline.sources.corpora.gold import GoldMention, GoldMentions, split_unknown

GoldAs = Literal["names", "codes"]
UNREACHABLE = -1  # a gold concept that the dictionary lacks


class Entry(NamedTuple):
    """A row of a dictionary: its codes, the main one first, and its names, the preferred first."""

    codes: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class ConceptNames:
    """C concepts with N names.

    Attributes:
      concepts: their identifiers; names, where gold is written as these.
      codes: of each concept, none or several.
      branches: of each concept the branches of the dictionary's tree that it is on: what its codes
        begin with before the dot.
      names: those of a concept one after the other, the preferred first.
      name_concepts: int32 [N], ascending.
      number: gold as it may be written -> concept.
    """

    concepts: list[str]
    codes: list[tuple[str, ...]]
    branches: list[tuple[str, ...]]
    names: list[str]
    name_concepts: np.ndarray
    number: Mapping[str, int]


def gold_form(entries: Iterable[Entry], mentions: Iterable[GoldMention]) -> GoldAs:
    """Whether gold is written as names or as codes: as what more of it is among a dictionary's."""
    names: set[str] = set()
    codes: set[str] = set()
    for entry in entries:
        names.update(entry.names)
        codes.update(entry.codes)
    as_names = as_codes = 0
    for row in mentions:
        as_names += sum(part in names for one in row.gold for part in split_unknown(one, names))
        as_codes += sum(part in codes for one in row.gold for part in split_unknown(one, codes))
    return "codes" if as_codes > as_names else "names"


def concept_names(entries: Iterable[Entry], gold_as: GoldAs) -> ConceptNames:
    """The concepts of a dictionary, in its order, whichever its gold is written as.

    Raises:
      BadInput: a dictionary without names.
    """
    merged: dict[str, dict[str, dict[str, None]]] = {}
    for entry in entries:
        keys = entry.names if gold_as == "names" else entry.codes[:1]
        for key in keys:
            of = merged.setdefault(key, {"codes": {}, "names": {}})
            of["codes"].update(dict.fromkeys(entry.codes))
            of["names"].update(dict.fromkeys([key] if gold_as == "names" else entry.names))
    if not merged:
        raise BadInput("the dictionary has no names; expected rows of code<TAB>name")
    concepts = list(merged)
    codes = [tuple(of["codes"]) for of in merged.values()]
    number = {concept: place for place, concept in enumerate(concepts)}
    if gold_as == "codes":
        for place, known in enumerate(codes):  # a main code is never taken for another's
            for code in known:
                number.setdefault(code, place)
    return ConceptNames(
        concepts=concepts,
        codes=codes,
        branches=[stems(known) for known in codes],
        names=[name for of in merged.values() for name in of["names"]],
        name_concepts=np.repeat(
            np.arange(len(concepts), dtype=np.int32), [len(of["names"]) for of in merged.values()]
        ),
        number=number,
    )


def stems(codes: Iterable[str]) -> tuple[str, ...]:
    """What codes begin with before the dot: of 01.0900 "01", a chapter of ICD-9-CM-3."""
    return tuple(dict.fromkeys(code.partition(".")[0] for code in codes))


@dataclass(frozen=True)
class MentionSet:
    """M mentions; the gold of mention m is gold[gold_start[m] : gold_start[m + 1]].

    Attributes:
      mentions: strings, [M].
      gold_start: int64 [M + 1].
      gold: int32; concepts, each once for a mention; UNREACHABLE for each that the dictionary
        lacks: it counts when scores are taken, and nothing is trained on it.
      counts: what was seen on the way, by what it is.
      odd: a line for each oddity, with its place.
    """

    mentions: list[str]
    gold_start: np.ndarray
    gold: np.ndarray
    counts: Mapping[str, int]
    odd: Sequence[str]


def mention_set(read: GoldMentions, dictionary: ConceptNames) -> MentionSet:
    """The mentions of a file with the concepts of a dictionary as their gold."""
    number = dictionary.number
    counts, odd = Counter(read.counts), list(read.odd)
    gold, lengths = [], []
    for row in read.rows:
        strings = [part for one in row.gold for part in split_unknown(one, number)]
        known = dict.fromkeys(number[one] for one in strings if one in number)
        unknown = list(dict.fromkeys(one for one in strings if one not in number))
        if repeated := len(strings) - len(known) - len(unknown):
            counts["gold of the same concept, counted once"] += repeated
            odd.append(f"{row.place}: gold of the same concept: {strings}")
        for one in unknown:
            counts["gold outside the dictionary"] += 1
            odd.append(f"{row.place}: gold outside the dictionary: {one!r}")
        counts["mentions with gold outside the dictionary"] += bool(unknown)
        gold += [*known, *[UNREACHABLE] * len(unknown)]
        lengths.append(len(known) + len(unknown))
    counts |= {
        "mentions": len(read.rows),
        "mentions of one concept": lengths.count(1),
        "mentions of several": len(lengths) - lengths.count(1),
        "gold": len(gold),
    }
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    mentions = [row.mention for row in read.rows]
    return MentionSet(mentions, start, np.array(gold, np.int32), counts, odd)
