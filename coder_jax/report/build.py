"""Builds the report of a run: its subject, its parts, and why some are left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.encoding.vector_files import cached_vectors
from coder_jax.export.relations import ExportedRelations, read_relations
from coder_jax.models.hf_files import read_export
from coder_jax.report.curves import Panel, read_panels, training_panels
from coder_jax.report.dictionary import (
    LEAST_POINTS,
    Entries,
    MapFigure,
    ShownTerms,
    choose_shown_terms,
    draw_maps,
    explorer_data,
    gather_entries,
)
from coder_jax.report.model_answers import (
    CandidateAnswers,
    ClassAnswers,
    candidate_answers,
    class_answers,
    find_mentions,
    mentions_folder,
)
from coder_jax.report.page import LeftOut, Report
from coder_jax.report.pictures import RelationFigure, compare_relations
from coder_jax.report.results import answers, answers_shown, read_results, result_tables
from coder_jax.systems.mlnorm.classifier import ConceptClassifier
from coder_jax.systems.mlnorm.training import read_classifier
from coder_jax.systems.recall_rank.candidates import CandidateGenerator
from coder_jax.systems.recall_rank.ranking import TermRanker
from coder_jax.systems.recall_rank.training import read_generator
from coder_jax.systems.trained_models import Model, load_ranker, open_model
from coder_jax.training.metrics import read_metrics
from coder_jax.training.system import SavedRun, System
from data_pipeline import process
from data_pipeline.dataset.dictionary import read_dictionary
from data_pipeline.process import BadInput

# -------------------------------------------------------------------------------------------------
# Missing parts of a report, with the reason and the command that provides them.


def _left_out(
    report: Report,
    *,
    model: str,
    dictionary: str | None,
    run: bool,
    classes: bool = False,
    candidates: bool = False,
) -> list[LeftOut]:
    """The missing parts of a report, in the order of the page.

    Args:
      report: with all its parts.
      model, dictionary: as they were given to the command.
      run: whether the model is the folder of a run.
      classes: whether it has classes.
      candidates: whether it is a generator or a ranker of candidates.
    """
    again = f"python -m coder_jax report --model {quote(model)}"
    no_dictionary = "no --dictionary was given"
    build = "python -m data_pipeline.build --source RELEASE --tokenizer TOKENIZER --out DATASET"
    missing = []
    if not report.answers:
        both = "".join(
            f"python -m coder_jax evaluate --model {of} --benchmark cadec=PATH --json {when}.json\n"
            for when, of in (("before", "INITIAL"), ("after", "EXPORT" if run else quote(model)))
        )
        command = f"{both}{again} --results before=before.json after=after.json"
        missing.append(LeftOut("Before and after", "no scores of both were given", command))
    if not report.tables:
        # Models are scored, so a run is scored by its export.
        export = f"python -m coder_jax export --checkpoint {quote(model)} --out EXPORT\n"
        evaluate = (
            f"{export if run else ''}python -m coder_jax evaluate --model "
            f"{'EXPORT' if run else quote(model)} --benchmark cadec=PATH "
            f"--json results.json\n{again} --results results.json"
        )
        missing.append(LeftOut("Results", "no --results were given", evaluate))
    if not report.panels:
        why = "the run has no metrics yet" if run else "the model is not the folder of a run"
        command = "python -m coder_jax report --model RUN"
        missing.append(LeftOut("Training", why, command))
    if classes and report.by_classes is None:
        why = no_dictionary if dictionary is None else "the dictionary holds no mentions out"
        command = f"{again} --dictionary DATASET --mentions mentions.tsv"
        missing.append(LeftOut("Answers by classes", why, command))
    if candidates and report.by_candidates is None:
        command = (
            "python -m coder_jax candidates --model RECALL --data MENTIONS --out LISTS\n"
            "python -m coder_jax report --model RANK --mentions LISTS"
        )
        missing.append(
            LeftOut("Candidates and ranks", "no folder of --mentions was given", command)
        )
    if report.by_concept is None:
        why = "too few concepts of the dictionary have several terms"
        command = f"{again} --dictionary DATASET"
        missing.append(
            LeftOut("Map of concepts", no_dictionary if dictionary is None else why, command)
        )
    if report.by_type is None:
        why = "the dictionary has no semantic types, or too few concepts of each"
        command = f"{build}\n{again} --dictionary DATASET"
        missing.append(
            LeftOut("Map of semantic types", no_dictionary if dictionary is None else why, command)
        )
    if report.relations is None:
        why = (
            "the model has no relation matrices: it is no run with --mu above 0, nor its export; "
            "or it learned translations"
        )
        command = "python -m coder_jax report --model RUN"
        missing.append(LeftOut("Relations", why, command))
    if report.explorer is None:
        missing.append(LeftOut("Explorer", no_dictionary, f"{again} --dictionary DATASET"))
    return missing


# -------------------------------------------------------------------------------------------------
# The subject of a report: the encoder, relation matrices and training metrics of a run or model.


@dataclass(frozen=True)
class Subject:
    """An encoder and what is known of it.

    Attributes:
      name: what the report calls it.
      relations: what was learned of relations, or None.
      classes: what answers mentions with concepts itself; None where nothing does.
      generator: what finds candidates of mentions, of a generator of recall and rank.
      ranker: what ranks them, of a ranker.
      metrics: lines of metrics.jsonl of a run; None where it is no run.
      facts: (what, value) for people.
    """

    name: str
    encoder: TermEncoder
    relations: ExportedRelations | None = None
    metrics: list[dict[str, Any]] | None = None
    facts: list[tuple[str, str]] = field(default_factory=list)
    classes: ConceptClassifier | None = None
    generator: CandidateGenerator | None = None
    ranker: TermRanker | None = None


def _load_subject(name: str, path: str, pooling: str | None = None) -> Subject:
    """Loads the newest checkpoint of a run; or an export, or any BERT of Hugging Face, by folder or
    id.

    Args:
      name: what the report is to call it.
      path: folder, address in a bucket, or hub id.
      pooling: cls, mean or pooler; None for the model's own.

    Raises:
      BadInput: as `load_run` and `TermEncoder.from_pretrained`.
    """
    model = open_model(path)
    if model.folder is None:
        return run_subject(name, path, *model.load_run(), pooling)
    return _model_subject(name, model, model.folder, pooling)


def run_subject(
    name: str, path: str, system: System, run: SavedRun, pooling: str | None = None
) -> Subject:
    """A checkpoint of a run, as `load_run` gives it of the folder `path`."""
    trained = system.trained(run)
    encoder, card, metrics = trained.encoder, trained.card, run.folder / "metrics.jsonl"
    if pooling:
        settings = encoder.settings.changed(pooling=pooling)
        encoder = TermEncoder(encoder.reader, None, settings)
    facts = [("run", path)]
    if "base_model" in card:  # an encoder of names begins with none
        facts.append(("initial encoder", card["base_model"] or "another run"))
    for part in ("recipe", "data"):
        facts += [(key, str(value)) for key, value in card[part].items()]
    facts.append(("dataset hash", card["dataset_hash"][:12]))
    number = trained.tables.get("number")
    return Subject(
        name,
        encoder,
        trained.tables.get("relations"),
        read_metrics(metrics) if metrics.exists() else [],
        [("recipe" if key == "name" else key, value) for key, value in facts],
        trained.tables.get("classes"),
        None if number is None else CandidateGenerator(trained.encoder, number),
        trained.tables.get("ranker"),
    )


def _model_subject(name: str, model: Model, folder: Path, pooling: str | None) -> Subject:
    """A Hugging Face folder, with the relations that an export of ours has."""
    encoder = TermEncoder.from_pretrained(folder, pooling)
    facts = [("model", model.path)]
    if export := read_export(folder):
        facts += [(key, str(value)) for key, value in (export.recipe or {}).items()]
        if export.dataset_hash:
            facts.append(("dataset hash", export.dataset_hash[:12]))
    return Subject(
        name,
        encoder,
        read_relations(folder),
        facts=facts,
        classes=read_classifier(folder) if model.kind == "classes" else None,
        generator=read_generator(folder, encoder) if model.kind == "generator" else None,
        ranker=TermRanker.from_pretrained(folder) if model.kind == "ranker" else None,
    )


# -------------------------------------------------------------------------------------------------
# The parts of a report, built from the command line. All that takes time is called here.


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The command line of `report`.

    Attributes:
      model, name: the encoder to report on, and what it is called.
      title: of the page.
      pooling: None for the model's own.
      dictionary: its path, or none.
      choices: what of it is taken, as `read_dictionary` has it.
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
    choices: Mapping[str, Any] = field(default_factory=dict)
    results: Sequence[tuple[str | None, str]]
    compare: Sequence[tuple[str, str]]
    terms: int
    neighbours: int
    seed: int
    mentions: str | None = None
    rankers: Sequence[str] = ()
    curves: Sequence[str] = ()
    cache: bool = True


Load = Callable[[str, str, str | None], Subject]  # as `_load_subject`


def build_report(inputs: Inputs, load: Load = _load_subject) -> Report:
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
    learning = _learning_panels(inputs.curves)
    shown = None
    if inputs.dictionary is not None:
        dictionary = read_dictionary(inputs.dictionary, **inputs.choices)
        shown = choose_shown_terms(dictionary, most_terms=inputs.terms, seed=inputs.seed)
    subject = load(inputs.name, inputs.model, inputs.pooling)
    report = Report(
        title=inputs.title,
        answers=answers(records, subject.metrics or []),
        facts=[*subject.facts, *_settings_of(subject)],
        tables=tables,
        given=given,
        panels=training_panels(subject.metrics or []),
        learning=learning,
        relations=_relation_figure(subject.relations),
        by_candidates=_answers_by_candidates(inputs, subject),
    )
    if shown is not None:
        entries = gather_entries(shown.dictionary, shown.concepts, shown.types)
        others = (load(name, path, None) for name, path in inputs.compare)
        by_concept, by_type = _draw_figures(shown, subject, others)
        encoder, terms = subject.encoder, entries.terms
        kept = cached_vectors(encoder, terms, progress=True) if inputs.cache else None
        vectors = encoder.encode(terms, progress=True) if kept is None else np.asarray(kept)
        report = replace(
            report,
            by_concept=by_concept,
            by_type=by_type,
            explorer=explorer_data(entries, vectors, inputs.neighbours),
            explorer_note=shown.note(len(entries.terms)),
            by_classes=_answers_by_classes(inputs, subject, shown, entries, vectors),
        )
    run = subject.metrics is not None
    missing = _left_out(
        report,
        model=inputs.model,
        dictionary=inputs.dictionary,
        run=run,
        classes=subject.classes is not None,
        candidates=subject.generator is not None or subject.ranker is not None,
    )
    return replace(report, left_out=missing)


def _learning_panels(paths: Sequence[str]) -> list[Panel]:
    """The panels of files of learning curves; of several files each says which one it is of."""
    panels = {path: read_panels(path) for path in paths}
    if len(panels) == 1:
        return panels[paths[0]]
    return [
        replace(one, note=f"{path}. {one.note}".strip()) for path in panels for one in panels[path]
    ]


def _answers_by_candidates(inputs: Inputs, subject: Subject) -> CandidateAnswers | None:
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


def _answers_by_classes(
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


def _relation_figure(relations: ExportedRelations | None) -> RelationFigure | None:
    """The figure of relation matrices; None for translations."""
    if relations is None or not relations.bilinear:
        return None
    return compare_relations(relations.table, relations.labels)


def _settings_of(subject: Subject) -> list[tuple[str, str]]:
    """How vectors are made, for readers."""
    settings = subject.encoder.settings
    return [
        ("pooling", settings.pooling),
        ("longest term", f"{settings.max_length} tokens"),
        ("width of a vector", str(subject.encoder.width)),
    ]


def _draw_figures(
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
        process.poll()
        for groups, vectors in zip(drawn, encoded, strict=True):
            terms = [term for group in groups for term in group.terms]
            vectors.append((one.name, one.encoder.encode(terms)))
    by_concept, by_type = (
        draw_maps(groups, vectors) if groups else None
        for groups, vectors in zip(drawn, encoded, strict=True)
    )
    return by_concept, by_type
