"""Filters of rows and of whole concepts, with counts of what they drop by reason."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated

import polars as pl

from data_pipeline.flags import Flag
from data_pipeline.process import BadInput, did_you_mean
from data_pipeline.sources.corpora import MESH_AND_OMIM, PREFIX
from data_pipeline.sources.source import Source
from data_pipeline.terminology.semantic_groups import GROUPS, group_number, group_of

Strict = Annotated[
    bool,
    Flag(
        "refuse an OBO ontology with lines that are not valid; without this they are left out, "
        "counted and named"
    ),
]

# -------------------------------------------------------------------------------------------------
# Filters of a `Source`'s rows, and the reason for which each row is dropped.
#
# Filters are applied to the distinct combinations of the filtered columns (a few thousand rows at
# most), so that counting the drops costs one grouped scan.

_NO_SOURCE = "source not asked for"
_NO_GROUP, _NOT_LISTED = "semantic group not asked for", "not in --concepts-of"
WHAT_TO_KEEP = "what to keep (default: all that is not suppressed)"  # heading of these flags
SUPPRESSED = ("O", "E", "Y")  # obsolete; suppressed by an editor; suppressed by source and type


@dataclass(frozen=True, kw_only=True)
class Filters:
    """The filters; an empty tuple keeps everything.

    Attributes:
      language_sources: vocabularies of the terms of a language; a language that is not named keeps
        all. For terms alone.
    """

    languages: Annotated[
        tuple[str, ...],
        Flag(
            "languages to keep, such as ENG FRE, the most wanted first (default: all; ENG first, "
            "then A to Z). A string that a concept has in several languages is one term: it stands "
            "with the first, and is there for each (`train --languages`, dictionaries)",
            "LAT",
            heading=WHAT_TO_KEEP,
        ),
    ] = ()
    sources: Annotated[
        tuple[str, ...],
        Flag(
            "vocabularies to keep, such as MSH NCI; or those of the terms of a language: "
            "ENG=CHV,MSH FRE=MSHFRE (a language that is not named keeps all of its, and relations "
            "stay)",
            "SAB",
        ),
    ] = ()
    without_sources: Annotated[tuple[str, ...], Flag("vocabularies to leave out", "SAB")] = ()
    term_types: Annotated[
        tuple[str, ...], Flag("types of terms to keep, such as PT SY", "TTY")
    ] = ()
    relations: Annotated[
        tuple[str, ...],
        Flag("relation labels REL|RELA to keep, quoted, such as 'CHD|isa' 'RO|*'", "LABEL"),
    ] = ()
    keep_suppressed: Annotated[
        bool,
        Flag(
            "keep terms and relations whose SUPPRESS is O (obsolete), E or Y (suppressed by the "
            "editors or with their source and type), as CODER's released code does"
        ),
    ] = False
    language_sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    semantic_groups: Annotated[
        tuple[str, ...],
        Flag(
            "only concepts with a semantic type of one of these groups of the UMLS: "
            f"{', '.join(GROUPS)}",
            "GROUP",
        ),
    ] = ()
    mirror: Annotated[
        str | None,
        Flag(
            "only concepts that have a term in this language, with their terms in all --languages "
            "(FRE: French and its English mirror). With --sources ENG=CHV,MSH these keep all their "
            "English terms, whatever the vocabulary, and all other concepts come in, too, with "
            "their English terms of CHV and MSH",
            "LAT",
        ),
    ] = None

    def validate(self) -> None:
        """Raise BadInput for unknown groups, and for languages that are not kept."""
        for name in self.semantic_groups:
            try:
                group_number(name)
            except BadInput as error:
                raise BadInput(f"--semantic-groups: {error}") from None
        named = [(f"--sources {name}=...", name) for name in self.language_sources]
        if self.mirror:
            named.append(("--mirror", self.mirror))
        for option, language in named:
            if self.languages and language not in self.languages:
                raise BadInput(
                    f"{option}: {language} is none of --languages {' '.join(self.languages)}; "
                    f"expected one of them: add it there, or name another"
                    f"{did_you_mean(language, self.languages)}"
                )


def term_drop_reason(filters: Filters) -> pl.Expr:
    """The reason for which a row of `Source.atoms` is dropped (string), null if it is kept.

    What semantic groups, a list of concepts and a mirror drop is known only of whole concepts: see
    `mark_concepts` and `needs_mirror`.
    """
    needed = [
        _reason_unless((pl.col("language") != language) | _allowed("source", sources), _NO_SOURCE)
        for language, sources in filters.language_sources.items()
        if filters.mirror in (None, language)
    ]
    return pl.coalesce(
        *_shared_reasons(filters),
        _reason_unless(_allowed("language", filters.languages), "language not asked for"),
        _reason_unless(_allowed("term_type", filters.term_types), "term type not asked for"),
        *needed,
    )


def needs_mirror(filters: Filters) -> pl.Expr:
    """Whether a kept row of `Source.atoms` needs its concept to be in the mirror (bool)."""
    if filters.mirror is None:
        return pl.lit(False)
    stays = pl.col("language") == filters.mirror
    for language, sources in filters.language_sources.items():
        stays |= (pl.col("language") == language) & _allowed("source", sources)
    return ~stays


def relation_drop_reason(filters: Filters, labels: Iterable[str]) -> pl.Expr:
    """The reason for which a row of `Source.relations` is dropped (string), null if it is kept.

    `labels` are the labels that `chosen_labels` keeps. Which concepts are unknown, and which the
    same, is known only when retired identifiers have been replaced.
    """
    label = relation_label()
    return pl.coalesce(
        *_shared_reasons(filters),
        _reason_unless(label != "|", "empty REL and RELA"),
        _reason_unless(label.is_in(list(labels)), "relation not asked for"),
    )


def count_reasons(counts: pl.DataFrame, what: str, report: Counter[str]) -> None:
    """Add the dropped rows to the report, by reason; the column len is summed."""
    dropped = counts.filter(pl.col("reason").is_not_null())
    for reason, rows in dropped.group_by("reason").agg(pl.col("len").sum()).sort("reason").rows():
        report[f"{what} dropped: {reason}"] += rows


def relation_label() -> pl.Expr:
    """REL and RELA joined by a pipe; either may be empty ("RO|", "|isa")."""
    return pl.col("rel") + "|" + pl.col("rela")


def chosen_labels(labels: Iterable[str], filters: Filters) -> list[str]:
    """The labels, sorted, that the filter's patterns match; all if there is no pattern."""
    known = sorted(set(labels) - {"|"})
    for pattern in filters.relations:
        if not any(fnmatchcase(label, pattern) for label in known):
            raise BadInput(
                f"no relation label matches {pattern!r}; expected a pattern for REL|RELA, such as "
                f"'CHD|isa' or 'RO|*'. The source has {some(known)}."
            )
    patterns = filters.relations or ("*",)
    return [label for label in known if any(fnmatchcase(label, p) for p in patterns)]


def check_filter_values(values: pl.DataFrame, filters: Filters) -> None:
    """Raise BadInput if a filter asks for a language, vocabulary or term type that does not occur.

    `values` has the distinct combinations of the columns language, source and term_type.
    """
    for option, column, asked in (
        ("languages", "language", filters.languages),
        ("sources", "source", filters.sources),
        ("without-sources", "source", filters.without_sources),
        ("term-types", "term_type", filters.term_types),
    ):
        there = sorted(values[column].unique().to_list())
        if missing := [value for value in asked if value not in there]:
            raise BadInput(
                f"--{option} {missing[0]}: no term of the source has it. It has {some(there)}."
            )
    languages = sorted(values["language"].unique().to_list())
    named = [("sources", language) for language in filters.language_sources]
    if filters.mirror:
        named.append(("mirror", filters.mirror))
    for option, language in named:
        if language not in languages:
            raise BadInput(
                f"--{option}: no term of the source is in {language}. It has {some(languages)}."
            )
    for language, sources in filters.language_sources.items():
        there = sorted(values.filter(language=language)["source"].unique().to_list())
        if missing := [value for value in sources if value not in there]:
            raise BadInput(
                f"--sources {language}={missing[0]}: no term of the source in {language} has it. "
                f"It has {some(there)}; leave out what it has not."
            )


def _shared_reasons(filters: Filters) -> list[pl.Expr]:
    reasons = [
        _reason_unless(_allowed("source", filters.sources), _NO_SOURCE),
        _reason_unless(~pl.col("source").is_in(filters.without_sources), _NO_SOURCE),
    ]
    if not filters.keep_suppressed:
        suppressed = pl.col("suppress").is_in(SUPPRESSED)
        text = pl.lit("suppressed, SUPPRESS=") + pl.col("suppress")
        reasons.insert(0, pl.when(suppressed).then(text))
    return reasons


def _allowed(column: str, values: tuple[str, ...]) -> pl.Expr:
    return pl.col(column).is_in(values) if values else pl.lit(True)


def _reason_unless(condition: pl.Expr, reason: str) -> pl.Expr:
    return pl.when(~condition).then(pl.lit(reason))


def some(values: Sequence[str], most: int = 40) -> str:
    """Values for a message; at most the first `most`."""
    more = f" and {len(values) - most:,} more" if len(values) > most else ""
    return ", ".join(values[:most]) + more


# -------------------------------------------------------------------------------------------------
# Filters of whole concepts: by semantic group, by a list, or by a term in some language (the
# mirror).
#
# What they drop is counted.


def mark_concepts(
    source: Source,
    filters: Filters,
    merged: pl.DataFrame,
    listed: Sequence[str] | None,
    report: Counter[str],
) -> Source:
    """The source with a column outside in its atoms: why their concept is not kept, null if it is.

    Args:
      source: from `read_source`.
      filters: `semantic_groups` is used.
      merged: retired and cui (strings), from `Terminology.successors`; what keeps a retired concept
        keeps its successor.
      listed: identifiers of the concepts to keep, which are theirs, or codes of MeSH or OMIM that
        they have; None: all.
      report: where these are counted.

    Raises:
      BadInput: a source without semantic types of the Semantic Network, or a list none of whose
        identifiers it has.
    """
    kept = {}
    if filters.semantic_groups:
        kept[_NO_GROUP] = _concepts_of_groups(source, filters)
    if listed is not None:
        kept[_NOT_LISTED] = _concepts_listed(source, merged, listed, report)
    atoms = source.atoms.with_columns(outside=pl.lit(None, pl.String))
    for reason, concepts in kept.items():
        retired = concepts.join(merged.lazy(), left_on="cui", right_on="retired")
        marked = pl.concat([concepts, retired.select(cui="cui_right")]).unique()
        marked = marked.with_columns(kept=True)
        missing = pl.when(pl.col("kept").is_null()).then(pl.lit(reason))
        atoms = (
            atoms.join(marked, on="cui", how="left", maintain_order="left")
            .with_columns(outside=pl.coalesce("outside", missing))
            .drop("kept")
        )
    return dataclasses.replace(source, atoms=atoms)


def _concepts_of_groups(source: Source, filters: Filters) -> pl.LazyFrame:
    """cui of the concepts with a type of the semantic groups that are asked for."""
    asked = {GROUPS[group_number(name)] for name in filters.semantic_groups}
    types = pl.LazyFrame(schema={"cui": pl.String, "type": pl.String})
    types = types if source.types is None else source.types
    names = types.select(pl.col("type").unique().sort()).collect()["type"].to_list()
    if not any(map(group_of, names)):
        has = f"has {some(names, 5)}" if names else "has no semantic types"
        raise BadInput(
            f"--semantic-groups {' '.join(filters.semantic_groups)}: {source.name} {has}; expected "
            "types of the UMLS, such as 'T047 Disease or Syndrome' (MRSTY.RRF beside MRCONSO.RRF), "
            "or the groups themselves (DISO) as types. Add them, or leave the option out."
        )
    wanted = [name for name in names if group_of(name) in asked]
    return types.filter(pl.col("type").is_in(wanted)).select("cui")


def _concepts_listed(
    source: Source, merged: pl.DataFrame, listed: Sequence[str], report: Counter[str]
) -> pl.LazyFrame:
    """cui of the concepts, retired ones too, that a list has."""

    def bare(column: str) -> pl.Expr:
        return pl.col(column).str.replace(f"(?i)^{PREFIX.pattern}", "")

    asked = pl.LazyFrame({"listed": listed}, schema={"listed": pl.String}).unique()
    concepts = pl.concat([source.atoms.select("cui"), merged.lazy().select(cui="retired")]).unique()
    codes = (
        source.atoms.filter(pl.col("source").str.to_uppercase().is_in(MESH_AND_OMIM))
        .select("cui", code=bare("code"))
        .filter(pl.col("code") != "")
        .unique()
    )
    called, coded = pl.collect_all(
        [
            asked.join(concepts, left_on="listed", right_on="cui").with_columns(cui="listed"),
            asked.with_columns(code=bare("listed")).join(codes, on="code").select("listed", "cui"),
        ],
        engine="streaming",
    )
    found = pl.concat([called, coded.join(called, on="listed", how="anti")])
    if not found.height:
        examples = pl.collect_all([one.head(1) for one in (concepts, codes)])
        concept, code = (one.item(0, -1) if one.height else None for one in examples)
        has = f"such as {code!r}" if code else "of which it has none"
        raise BadInput(
            f"--concepts-of: found {len(set(listed)):,} identifiers, such as "
            f"{min(listed, default='')!r}, none of which {source.name} {source.release} has; "
            f"expected its concepts, such as {concept!r}, or codes of MeSH or OMIM, {has}"
        )
    report["identifiers in --concepts-of"] = len(set(listed))
    report["identifiers in --concepts-of found"] = found["listed"].n_unique()
    return found.lazy().select("cui")


def keep_mirror(
    frame: pl.DataFrame, filters: Filters, languages: Sequence[str], report: Counter[str]
) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Drops terms that are kept only for concepts of the mirror, if their concept is not in it.

    Args:
      frame: a row per term; its columns cui, language (a place in `languages`) and needs_mirror.
      filters: `mirror` is used.
      languages: those that are kept.
      report: where dropped terms are counted.

    Returns:
      the frame without the column needs_mirror, and the mirror: cui of the concepts that have a
      term of its language; None without a mirror.
    """
    if filters.mirror is None:
        return frame.drop("needs_mirror"), None
    number = languages.index(filters.mirror) if filters.mirror in languages else len(languages)
    mirror = frame.filter(pl.col("language") == number).select("cui").unique()
    kept = in_mirror(frame.lazy(), mirror).collect()
    dropped = frame["cui"].n_unique() - kept["cui"].n_unique()
    why = f"dropped: concept without a term in {filters.mirror}"
    report[f"concepts {why}"], report[f"terms {why}"] = dropped, frame.height - kept.height
    return kept.drop("needs_mirror"), mirror


def in_mirror(rows: pl.LazyFrame, mirror: pl.DataFrame | None) -> pl.LazyFrame:
    """The rows with a false needs_mirror or a cui in the mirror, in order."""
    if mirror is None:
        return rows
    marked = mirror.lazy().with_columns(is_mirrored=True)
    return (
        rows.join(marked, on="cui", how="left", maintain_order="left")
        .filter(~pl.col("needs_mirror") | pl.col("is_mirrored").is_not_null())
        .drop("is_mirrored")
    )
