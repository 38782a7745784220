"""Annotated mentions: as training terms of their concepts, and with sets of gold concepts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from data_pipeline.process import BadInput
from data_pipeline.sources.corpora import (
    SETS,
    GoldMention,
    GoldMentions,
    is_quaero,
    read_quaero,
    split_unknown,
)
from data_pipeline.sources.source import Source, without_odd
from data_pipeline.sources.term_tables import read_term_table
from data_pipeline.terminology.filters import Filters, count_reasons
from data_pipeline.terminology.semantic_groups import group_of

# -------------------------------------------------------------------------------------------------
# Mentions of annotated text, added to a terminology as training terms of their concepts. Each
# counts: mentions of the same text and concept become one term with their number, and one that is
# a name of the terminology adds to it (`TripletDataset.term_counts`).
#
# Files of them are tables (.tsv, .csv, .xlsx) with the columns mention and cui, and perhaps
# language and semantic_group; or the QUAERO corpus, whose mentions are French.

_VOCABULARY = "supervised"  # that mentions are said to be of
_MENTIONS = ("mention", "cui", "language", "group")
_ROWS = {name: pl.String for name in ("cui", "language", "source", "term", "code")} | {
    "rank": pl.UInt8,
    "needs_mirror": pl.Boolean,
    "is_mention": pl.Boolean,
}
_LAST = np.iinfo(np.uint8).max  # rank: a mention never is the preferred term where there is another


def read_supervised(paths: Sequence[Path], sets: Sequence[str]) -> pl.DataFrame:
    """The mentions of these files, with a row for each CUI of a mention; those of the same text
    stay, one by one.

    Args:
      paths: tables, and folders or archives of the QUAERO corpus.
      sets: of `corpora.SETS`, those of the corpus that are read.

    Returns:
      mention, cui, language and group (strings); "" for a mention without a CUI, a language that
      is not told, and a group that is not told or none of the Semantic Network.

    Raises:
      BadInput: for files that cannot be read, and for a corpus without one of the sets.
    """
    read = [
        _of_corpus(path, sets) if path.is_dir() or is_quaero(path) else _of_table(path)
        for path in paths
    ]
    return pl.concat(read).with_columns(mention=without_odd(pl.col("mention")))


def _of_table(path: Path) -> pl.DataFrame:
    frame = read_term_table(path).frame
    group = pl.col("type").map_elements(lambda name: group_of(name) or "", return_dtype=pl.String)
    return frame.select(mention="term", cui="concept", language="language", group=group)


def _of_corpus(path: Path, sets: Sequence[str]) -> pl.DataFrame:
    corpus = read_quaero(path)
    there = [name for name in SETS if any(name == held for held, _ in corpus)]
    if missing := [name for name in sets if name not in there]:
        raise BadInput(
            f"--supervised {path}: found the sets {', '.join(there)}; expected {missing[0]}, too: "
            f"give another folder, or --supervised-sets {' '.join(there)}"
        )
    rows = [
        (mention.text, cui, "FRE", mention.group)
        for (held, _), mentions in corpus.items()
        if held in sets
        for mention in mentions
        for cui in [one for one in mention.cuis if one] or [""]
    ]
    return pl.DataFrame(rows, schema=dict.fromkeys(_MENTIONS, pl.String), orient="row")


def rows_of_mentions(
    mentions: pl.DataFrame | None,
    source: Source,
    merged: pl.DataFrame,
    filters: Filters,
    report: Counter[str],
) -> pl.DataFrame:
    """The mentions as rows of terms, as far as the release has their concepts and the filters keep
    them.

    Args:
      mentions: from `read_supervised`; None: none. One without a language has that of the mirror,
        or the first of the languages asked for.
      source: its atoms say which concepts there are, with outside as `mark_concepts` adds it.
      merged: retired and cui, from `Terminology.successors`.
      filters: languages and mirror are used; sources and term types are not.
      report: where mentions are counted: what is dropped and why, and those whose concept has no
        type of their group, which stay.

    Returns:
      the columns ROWS, of those of `Source.atoms` and `needs_mirror`.

    Raises:
      BadInput: a mention has no language, and no language is asked for.
    """
    if mentions is None:
        return pl.DataFrame(schema=_ROWS)
    mentions = _with_languages(mentions, filters)
    mentions = _with_concepts(mentions, source, merged)
    spoken = pl.col("language").is_in(filters.languages) if filters.languages else pl.lit(True)
    reason = (
        pl.when(pl.col("cui") == "")
        .then(pl.lit("no CUI"))
        .when(pl.col("is_there").is_null())
        .then(pl.lit("concept not in the release"))
        .when(pl.col("outside").is_not_null())
        .then("outside")
        .when(~spoken)
        .then(pl.lit("language not asked for"))
    )
    mentions = mentions.with_columns(reason=reason, len=1)
    report["supervised mentions read"] = mentions.height
    count_reasons(mentions, "supervised mentions", report)
    mentions = mentions.filter(pl.col("reason").is_null())
    report["supervised mentions kept: concept without a type of their group"] = _of_other_groups(
        mentions, source
    )
    return mentions.select(
        "cui",
        "language",
        source=pl.lit(_VOCABULARY),
        term="mention",
        code=pl.lit(""),
        rank=pl.lit(_LAST, pl.UInt8),
        needs_mirror=pl.lit(False),
        is_mention=pl.lit(True),
    )


def _with_languages(mentions: pl.DataFrame, filters: Filters) -> pl.DataFrame:
    default = filters.mirror or next(iter(filters.languages), None)
    if default is None and (mentions["language"] == "").any():
        raise BadInput(
            "--supervised: found mentions whose language is not told; expected a column language, "
            "or --mirror or --languages, the first of which it then is: add one of them"
        )
    return mentions.with_columns(pl.col("language").replace("", default))


def _with_concepts(mentions: pl.DataFrame, source: Source, merged: pl.DataFrame) -> pl.DataFrame:
    """The mentions with current CUIs, is_there (null where the release lacks the CUI), outside."""
    with_now = mentions.join(
        merged.select(cui="retired", now="cui"), on="cui", how="left", maintain_order="left"
    )
    asked = pl.concat([with_now["cui"], with_now["now"].drop_nulls().rename("cui")]).unique()
    there = (
        source.atoms.join(pl.LazyFrame({"cui": asked}), on="cui", how="semi")
        .select("cui", "outside", is_there=True)
        .unique()
        .collect(engine="streaming")
    )
    is_there = pl.col("cui").is_in(there["cui"].to_list())
    today = pl.when(is_there).then("cui").otherwise(pl.coalesce("now", "cui"))
    return (
        with_now.with_columns(cui=today)
        .drop("now")
        .join(there, on="cui", how="left", maintain_order="left")
    )


def _of_other_groups(mentions: pl.DataFrame, source: Source) -> int:
    """The number of mentions whose semantic group is that of none of their concept's types."""
    asked = mentions.filter(pl.col("group") != "")
    if source.types is None or not asked.height:
        return 0
    types = source.types.join(asked.lazy().select("cui").unique(), on="cui", how="semi").collect()
    groups = {name: group_of(name) for name in types["type"].unique()}
    of_types = types.select("cui", group=pl.col("type").replace_strict(groups)).unique()
    return asked.join(of_types, on=["cui", "group"], how="anti").height


# -------------------------------------------------------------------------------------------------
# Mentions with sets of gold concepts, and the dictionary names of these.
#
# Two kinds of gold become one structure. Where gold is written as names, as in CHIP-2019, a concept
# is a distinct name, however many codes that has: ranked by code, one name would take two places.
# Where gold is written as codes, as in NCBI disease, a concept is a code with all its names, any of
# which stands for it.

GoldAs = Literal["names", "codes"]
_UNREACHABLE = -1  # a gold concept that the dictionary lacks


class Entry(NamedTuple):
    """An entry of a dictionary: its codes, the main one first, and its names, the preferred
    first.
    """

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
    """Whether gold is written as names or as codes: whichever more of it is found in the
    dictionary.
    """
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
    """The concepts of a dictionary, in order, for gold written as names or as codes.

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
        branches=[_stems(known) for known in codes],
        names=[name for of in merged.values() for name in of["names"]],
        name_concepts=np.repeat(
            np.arange(len(concepts), dtype=np.int32), [len(of["names"]) for of in merged.values()]
        ),
        number=number,
    )


def _stems(codes: Iterable[str]) -> tuple[str, ...]:
    """The parts of codes before the dot: "01" of 01.0900, a chapter of ICD-9-CM-3."""
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
    """The mentions of a file, with their gold as concepts of a dictionary."""
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
        gold += [*known, *[_UNREACHABLE] * len(unknown)]
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
