"""A run folder or a model folder in; its encoder, relation matrices and training metrics out."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.export.relations import ExportedRelations, read_relations
from coder_jax.models.hf_files import find_folder
from coder_jax.runs.files import is_run
from coder_jax.runs.metrics import read_metrics
from coder_jax.systems.finished_run import load_run
from coder_jax.systems.mlnorm.prediction.classifier import ConceptClassifier
from coder_jax.systems.mlnorm.prediction.export import is_classifier, read_classifier
from coder_jax.systems.recall_rank.prediction.candidates import CandidateGenerator
from coder_jax.systems.recall_rank.prediction.export import is_generator, read_generator
from coder_jax.systems.recall_rank.prediction.term_ranker import TermRanker, is_ranker
from coder_jax.training.system import SavedRun, System
from data_pipeline.files.identity import ENCODER, read_identity


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


def load_subject(name: str, path: str, pooling: str | None = None) -> Subject:
    """The newest checkpoint of a run; or an export, or any BERT of Hugging Face, by folder or id.

    Args:
      name: what the report is to call it.
      path: folder, address in a bucket, or hub id.
      pooling: cls, mean or pooler; None for the model's own.

    Raises:
      BadInput: as `load_run` and `TermEncoder.from_pretrained`.
    """
    if is_run(path):
        return run_subject(name, path, *load_run(Path(path)), pooling)
    return model_subject(name, path, pooling)


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


def model_subject(name: str, path: str, pooling: str | None) -> Subject:
    """A Hugging Face folder, with the relations that an export of ours has."""
    folder = find_folder(path)
    encoder = TermEncoder.from_pretrained(folder, pooling)
    facts = [("model", path)]
    if (folder / ENCODER.file).is_file():
        saved = read_identity(folder / ENCODER.file, ENCODER)
        facts += [(key, str(value)) for key, value in saved.get("recipe", {}).items()]
        if saved.get("dataset_hash"):
            facts.append(("dataset hash", saved["dataset_hash"][:12]))
    classes = read_classifier(folder) if is_classifier(folder) else None
    return Subject(
        name,
        encoder,
        read_relations(folder),
        facts=facts,
        classes=classes,
        generator=read_generator(folder, encoder) if is_generator(folder) else None,
        ranker=TermRanker.from_pretrained(folder) if is_ranker(folder) else None,
    )
