"""The parts of a report out of what the command line names: all that takes time is called here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from coder_jax.encoding.vector_cache import cached_vectors
from coder_jax.export.relations import ExportedRelations
from coder_jax.report.answers import answers
from coder_jax.report.curves import Panel, training_panels
from coder_jax.report.dictionary.candidate_answers import (
    CandidateAnswers,
    candidate_answers,
    mentions_folder,
)
from coder_jax.report.dictionary.class_answers import ClassAnswers, class_answers, find_mentions
from coder_jax.report.dictionary.maps import LEAST_POINTS, MapFigure, draw_maps
from coder_jax.report.dictionary.neighbours import Entries, explorer_data, gather_entries
from coder_jax.report.dictionary.terms import ShownTerms, read_terms
from coder_jax.report.left_out import left_out
from coder_jax.report.page.render import Report
from coder_jax.report.panel_file import read_panels
from coder_jax.report.relation_matrices import RelationFigure, compare_relations
from coder_jax.report.results import answers_shown, read_results, result_tables
from coder_jax.report.subject import Subject, load_subject
from coder_jax.systems.recall_rank.prediction.candidates import CandidateGenerator
from coder_jax.systems.recall_rank.prediction.models import load_ranker
from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The command line of `report`.

    Attributes:
      model, name: the encoder to report on, and what it is called.
      title: of the page.
      pooling: None for the model's own.
      dictionary, languages, sources, types: as `read_dictionary` takes them; or no dictionary.
      results: (what its encoder is called or None, path) of each file of `evaluate --json`.
      mentions: file of mentions for a model with classes; None for those that a dataset holds out.
        Or a folder of mentions, whose candidates are shown.
      rankers: folders of rankers of these candidates.
      curves: files of learning curves, of `launch.ablation`.
      compare: (name, path) of further encoders.
      terms: most terms in the explorer.
      neighbours: of each of them.
      seed: of the choice of terms.
      cache: keep the vectors of the terms on this machine, and use those that are kept.
    """

    model: str
    name: str
    title: str
    pooling: str | None
    dictionary: str | None
    languages: Sequence[str] | None
    sources: Sequence[str] | None
    types: Sequence[str] | None = None
    results: Sequence[tuple[str | None, str]]
    compare: Sequence[tuple[str, str]]
    terms: int
    neighbours: int
    seed: int
    mentions: str | None = None
    rankers: Sequence[str] = ()
    curves: Sequence[str] = ()
    cache: bool = True


Load = Callable[[str, str, str | None], Subject]  # as `load_subject`


def build_report(inputs: Inputs, load: Load = load_subject) -> Report:
    """The report; parts whose input is absent are left out, and it says so.

    Args:
      inputs: what is to be in it.
      load: gives an encoder by its name, path and pooling; of one that is in memory already, that.

    Raises:
      BadInput: an input that is given and cannot be used.
      Stopped: a signal asked for it.
    """
    # What fails soonest comes first.
    records = read_results(inputs.results)
    tables, given = result_tables(records), answers_shown(records)
    learning = learning_panels(inputs.curves)
    shown = None
    if inputs.dictionary is not None:
        dictionary = inputs.dictionary, inputs.languages, inputs.sources, inputs.types
        shown = read_terms(*dictionary, most_terms=inputs.terms, seed=inputs.seed)
    subject = load(inputs.name, inputs.model, inputs.pooling)
    report = Report(
        title=inputs.title,
        answers=answers(records, subject.metrics or []),
        facts=[*subject.facts, *settings_of(subject)],
        tables=tables,
        given=given,
        panels=training_panels(subject.metrics or []),
        learning=learning,
        relations=relation_figure(subject.relations),
        by_candidates=answers_by_candidates(inputs, subject),
    )
    if shown is not None:
        entries = gather_entries(shown.dictionary, shown.concepts, shown.types)
        others = (load(name, path, None) for name, path in inputs.compare)
        by_concept, by_type = draw_figures(shown, subject, others)
        encoder, terms = subject.encoder, entries.terms
        kept = cached_vectors(encoder, terms, progress=True) if inputs.cache else None
        vectors = encoder.encode(terms, progress=True) if kept is None else np.asarray(kept)
        report = replace(
            report,
            by_concept=by_concept,
            by_type=by_type,
            explorer=explorer_data(entries, vectors, inputs.neighbours),
            explorer_note=shown.note(len(entries.terms)),
            by_classes=answers_by_classes(inputs, subject, shown, entries, vectors),
        )
    run = subject.metrics is not None
    missing = left_out(
        report,
        model=inputs.model,
        dictionary=inputs.dictionary,
        run=run,
        classes=subject.classes is not None,
        candidates=subject.generator is not None or subject.ranker is not None,
    )
    return replace(report, left_out=missing)


def learning_panels(paths: Sequence[str]) -> list[Panel]:
    """The panels of files of learning curves; of several files each says which one it is of."""
    panels = {path: read_panels(path) for path in paths}
    if len(panels) == 1:
        return panels[paths[0]]
    return [
        replace(one, note=f"{path}. {one.note}".strip()) for path in panels for one in panels[path]
    ]


def answers_by_candidates(inputs: Inputs, subject: Subject) -> CandidateAnswers | None:
    """Candidates of mentions and how they are ranked; None where no folder of mentions was given.

    Raises:
      BadInput: rankers without mentions, or for a model that is one itself; and as
        `candidate_answers`.
    """
    folder = mentions_folder(inputs.mentions)
    if folder is None or (subject.ranker and inputs.rankers):
        if inputs.rankers:
            found = f"{inputs.model}, a ranker itself" if folder else "no folder of mentions"
            raise BadInput(
                f"--ranker {inputs.rankers[0]}: found {found}; expected --mentions with a folder "
                "of `python -m data_pipeline.build_mentions`, and a generator as --model"
            )
        return None
    if subject.ranker:
        return candidate_answers(folder, inputs.seed, None, [subject.ranker])
    generator = subject.generator or CandidateGenerator(subject.encoder)
    rankers = [*map(load_ranker, inputs.rankers)]
    return candidate_answers(folder, inputs.seed, generator, rankers, cache=inputs.cache)


def answers_by_classes(
    inputs: Inputs, subject: Subject, shown: ShownTerms, entries: Entries, vectors: np.ndarray
) -> ClassAnswers | None:
    """What a model with classes answers to mentions; None where it has none, or there are none.

    Raises:
      BadInput: mentions were given, but the model has no classes.
    """
    if subject.classes is None:
        if inputs.mentions is not None and mentions_folder(inputs.mentions) is None:
            raise BadInput(
                f"--mentions {inputs.mentions}: {inputs.model} has no classes to answer them; "
                "expected a run of the recipe mlnorm or mlnorm_classes, or its export"
            )
        return None
    path = find_mentions(inputs.mentions, shown.dictionary)
    if path is None:
        return None
    return class_answers(
        subject.classes, shown.dictionary, subject.encoder, entries, vectors, path, inputs.seed
    )


def relation_figure(relations: ExportedRelations | None) -> RelationFigure | None:
    """What there is to see of relation matrices; of translations nothing."""
    if relations is None or not relations.bilinear:
        return None
    return compare_relations(relations.table, relations.labels)


def settings_of(subject: Subject) -> list[tuple[str, str]]:
    """How its vectors are made, for people."""
    settings = subject.encoder.settings
    return [
        ("pooling", settings.pooling),
        ("longest term", f"{settings.max_length} tokens"),
        ("width of a vector", str(subject.encoder.width)),
    ]


def draw_figures(
    shown: ShownTerms, subject: Subject, others: Iterable[Subject]
) -> tuple[MapFigure | None, MapFigure | None]:
    """The maps by concept and by semantic type; None where there are too few terms for one.

    Args:
      shown: the terms of both.
      subject: the encoder of the report.
      others: encoders beside it; each is asked for when the one before is done with.
    """
    drawn = [
        groups if sum(len(group.terms) for group in groups) >= LEAST_POINTS else []
        for groups in (shown.by_concept, shown.by_type)
    ]
    encoded: list[list[tuple[str, np.ndarray]]] = [[], []]
    for one in chain([subject], others) if any(drawn) else ():
        stopping.poll()
        for groups, vectors in zip(drawn, encoded, strict=True):
            terms = [term for group in groups for term in group.terms]
            vectors.append((one.name, one.encoder.encode(terms)))
    by_concept, by_type = (
        draw_maps(groups, vectors) if groups else None
        for groups, vectors in zip(drawn, encoded, strict=True)
    )
    return by_concept, by_type
