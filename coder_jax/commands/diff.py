"""List the decisions that a new release of a vocabulary affects.

OLD is the release that the mapping was made with, NEW the later one: each a dictionary as
`normalize` takes it. Of the decisions on local terms (--decided), the table has a row for each
concept to look at again. The columns are:

COLUMNS

A change is one of:

CHANGES

The vocabulary itself says what replaces a concept: MRCUI of the UMLS, replaced_by and alt_id of an
ontology, "Concept replaced by" and "Maps to" of OMOP, the associations of SNOMED CT, MapTo.csv of
LOINC, retired_cuis.tsv of a dataset. A table says nothing: what it lacks is gone.

Examples:
  python -m coder_jax diff athena_2025.zip athena_2026.zip --decided list_decisions.csv \\
      --out changes.csv
  python -m coder_jax diff hp_2024.obo hp_2025.obo --decided list_decisions.csv
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from coder_jax.commands.arguments import DictionaryOptions
from data_pipeline.files.buckets import check_not_input, check_output
from data_pipeline.files.tables import CONCEPT_SEPARATOR, STDOUT, check_table_name, write_table
from data_pipeline.files.whole import is_stream
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput, tell

if TYPE_CHECKING:
    from coder_jax.mapping.coded_list import Decision
    from data_pipeline.dataset.dictionary import Dictionary

COMMON = (*("--decided", "--out", "--encoding", "--dictionary-languages", "--dictionary-sources"),)
WHEN_ASKED_TO_STOP = "stopping"

_COLUMNS = {
    "mention": "the local term",
    "code": "its local code, where the decisions have codes",
    "change": "one of those below",
    "concept": "that people decided on; empty where they said that none fits",
    "name": "its preferred name in OLD",
    "new_concept": "what NEW has in its place, several with | between them",
    "new_name": "the preferred name in NEW, likewise",
    "reason": "as the vocabulary puts it, such as replaced_by or DEL",
}
_GONE, _REPLACED, _NOT_STANDARD = "gone", "replaced", "not standard"
_RENAMED, _BETTER, _UNKNOWN = "renamed", "better match", "in neither"
_CHANGES = {
    _GONE: "NEW does not have it, and names nothing in its place",
    _REPLACED: "NEW does not have it, and names others in its place",
    _NOT_STANDARD: "OMOP: it was a standard concept, and is none in NEW",
    _RENAMED: "its preferred name is another",
    _BETTER: "another concept of NEW has the local term as a name, which none had in OLD",
    _UNKNOWN: "neither release has it: another dictionary was reviewed with",
}


@dataclass(frozen=True, kw_only=True)
class DiffOptions(DictionaryOptions):
    """The options of `diff`."""

    old: Annotated[
        str, Flag("the release that the mapping was made with", "OLD", name="", heading="releases")
    ]
    new: Annotated[str, Flag("the later release", "NEW", name="")]
    decided: Annotated[
        Path,
        Flag(
            "decisions that the --review page saved, a file of Usagi or SSSOM, or a list that was "
            "coded with decisions, with --column",
            "CSV",
        ),
    ]
    column: Annotated[str, Flag("of a coded list: the column that has the terms", "NAME")] = (
        "mention"
    )
    code_column: Annotated[
        str | None, Flag("of a coded list: the column that has your codes", "NAME")
    ] = None
    prefix: Annotated[
        str, Flag("of a coded list: what stands before the names of the added columns", "TEXT")
    ] = ""
    out: Annotated[
        Path | None,
        Flag("file to write, .csv, .tsv or .xlsx (default: tab-separated, on stdout)", "FILE"),
    ] = None
    encoding: Annotated[
        str | None, Flag("encoding of files that are not UTF-8, such as cp1252 (Excel)", "NAME")
    ] = None


OPTIONS = DiffOptions


def _listed(of: dict[str, str]) -> str:
    return "\n".join(f"  {name:13s} {what}" for name, what in of.items())


__doc__ = str(__doc__).replace("COLUMNS", _listed(_COLUMNS)).replace("CHANGES", _listed(_CHANGES))


class _Release(NamedTuple):
    """What a release says of the concepts and the terms that are asked about."""

    names: dict[str, str]  # preferred ones, of the concepts that it has
    exact: dict[str, tuple[str, ...]]  # local term -> the concepts that have it as a name
    led: dict[str, list[tuple[str, str]]]  # concept -> (relation, concept or "") of what it became


class _Change(NamedTuple):
    """A row of the table."""

    mention: str
    code: str
    change: str
    concept: str
    name: str
    new_concepts: tuple[str, ...] = ()
    reason: str = ""


def run(options: DiffOptions) -> int:
    import polars as pl

    from coder_jax.mapping.coded_list import read_decisions
    from data_pipeline.dataset.dictionary import read_dictionary

    if options.out is not None:
        check_table_name(options.out, "--out")
        check_output(options.out, "--out", "changes.csv")
        if not is_stream(options.out):
            given: dict[str, str | Path | None] = {"OLD": options.old, "NEW": options.new}
            check_not_input(options.out, "--out", given | {"--decided": options.decided})
    decisions = read_decisions(
        options.decided,
        options.encoding,
        column=options.column,
        code_column=options.code_column,
        prefix=options.prefix,
    ).made
    if not decisions:
        raise BadInput(f"{options.decided}: found no decision; expected accepted or rejected ones")
    concepts = {concept for decision in decisions.values() for concept in decision.concepts}
    mentions = {mention for _, mention in decisions}

    def read(path: str) -> Dictionary:
        choice = options.choices()
        return read_dictionary(path, **choice, raw=True, encoding=options.encoding)

    old = _asked(options.old, read(options.old), concepts, mentions)
    dictionary = read(options.new)
    new = _asked(options.new, dictionary, concepts, mentions)
    changes = [
        change
        for (code, mention), decision in decisions.items()
        for change in _changes_of(code, mention, decision, old, new)
    ]
    known = dictionary.concept_set

    def named(concepts: tuple[str, ...]) -> str:
        names = [dictionary.about(one).preferred if one in known else "" for one in concepts]
        return CONCEPT_SEPARATOR.join(names)

    rows = [
        (*one[:5], CONCEPT_SEPARATOR.join(one.new_concepts), named(one.new_concepts), one.reason)
        for one in changes
    ]
    schema = dict.fromkeys(_COLUMNS, pl.String)
    write_table(options.out or STDOUT, pl.DataFrame(rows, schema=schema, orient="row"))
    counts = Counter(one.change for one in changes)
    told = ", ".join(f"{counts[kind]:,} {kind}" for kind in _CHANGES if counts[kind])
    same = len(decisions) - len({one[:2] for one in changes})
    where = f"; written to {options.out}" if options.out else ""
    tell(f"{len(decisions):,} decisions: {told or 'nothing changed'}; {same:,} as before{where}")
    return 0


def _asked(
    path: str, dictionary: Dictionary, concepts: Collection[str], mentions: Collection[str]
) -> _Release:
    """What the release at a path says of some concepts and local terms."""
    from coder_jax.mapping.normalizer import ExactNames
    from data_pipeline.terminology.retired_cuis import successions_of

    known = dictionary.concept_set
    names = {one: dictionary.about(one).preferred for one in concepts if one in known}
    asked = sorted(mentions)
    exact = {}
    for mention, found in zip(asked, ExactNames(dictionary).exact(asked), strict=True):
        best = [one.concept for alike, one in found if alike == found[0][0]]
        exact[mention] = tuple(best)
    led: dict[str, list[tuple[str, str]]] = {}
    table = successions_of(path, sorted(concepts)).select("retired", "relation", "cui")
    for concept, relation, other in table.iter_rows():
        led.setdefault(concept, []).append((relation, other))
    return _Release(names, exact, led)


def _changes_of(
    code: str, mention: str, decision: Decision, old: _Release, new: _Release
) -> Iterator[_Change]:
    """What is to be looked at of one decision."""
    followed: set[str] = set()
    for concept in decision.concepts:
        name = old.names.get(concept, "")
        of_new, of_old = new.led.get(concept, []), old.led.get(concept, [])
        followers = tuple(dict.fromkeys(other for _, other in of_new if other))
        why = ", ".join(dict.fromkeys(relation for relation, _ in of_new))
        now_not_standard = _is_not_standard(of_new) and not _is_not_standard(of_old)
        change = ""
        if of_new and not _is_not_standard(of_new):
            change = _REPLACED if followers else _GONE
        elif now_not_standard:
            change, why = _NOT_STANDARD, ""
        elif concept not in new.names:
            change = _GONE if name else _UNKNOWN
        elif name and name != new.names[concept]:
            change, followers, why = _RENAMED, (concept,), ""
        if change:
            followed.update(followers)
            yield _Change(mention, code, change, concept, name, followers, why)
    held = {*decision.concepts, *followed, *old.exact[mention]}
    better = tuple(one for one in new.exact[mention] if one not in held)
    if better and not set(new.exact[mention]) & {*decision.concepts, *followed}:
        concepts = CONCEPT_SEPARATOR.join(decision.concepts)
        names = CONCEPT_SEPARATOR.join(old.names.get(one, "") for one in decision.concepts)
        reason = "it has the local term as a name"
        yield _Change(mention, code, _BETTER, concepts, names, better, reason)


def _is_not_standard(led: list[tuple[str, str]]) -> bool:
    from data_pipeline.sources.omop import NOT_STANDARD

    return any(relation == NOT_STANDARD for relation, _ in led)
