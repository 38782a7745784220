"""A model with classes, be it a run or an export: what answers mentions with concepts itself."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coder_jax.encoding.encoder_protocol import encoder_protocol, hash_weights
from coder_jax.evaluation.benchmark import Benchmark
from coder_jax.evaluation.given_groups.benchmark import GroupedMentions
from coder_jax.evaluation.record import EvaluationRecord
from coder_jax.runs.files import is_run
from coder_jax.runs.folder import system_name
from coder_jax.systems.finished_run import load_run
from coder_jax.systems.mlnorm.objective import MLNormSystem
from coder_jax.systems.mlnorm.prediction.classifier import ConceptClassifier
from coder_jax.systems.mlnorm.prediction.export import is_classifier, read_classifier
from coder_jax.systems.mlnorm.second_step import MLNormClassesSystem
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import tell

SYSTEMS = (MLNormSystem.name, MLNormClassesSystem.name)  # those that learn classes


def has_classes(path: str | Path) -> bool:
    """Whether `path` is a run that learns classes, or the export of one."""
    return system_name(path) in SYSTEMS or is_classifier(path)


def load_classifier(path: str | Path) -> ConceptClassifier:
    """The classifier of a run, or of an export.

    Raises:
        BadInput: if there is none in `path`, or its files cannot be read.
    """
    if not has_classes(path):
        raise BadInput(f"{path} has no classes; expected a run of the recipe mlnorm, or its export")
    if not is_run(path):
        return read_classifier(Path(path))
    system, run = load_run(Path(path))
    found: ConceptClassifier = system.trained(run).tables["classes"]
    return found


def hash_of(path: str | Path, classifier: ConceptClassifier) -> str:
    """SHA-256 of the weight files of an export, or of the classes of a run; for records."""
    if not is_run(path):
        return hash_weights(Path(path))
    return hashlib.sha256(np.ascontiguousarray(classifier.table).data).hexdigest()


def records_of_classes(
    model: str, benchmarks: Sequence[Benchmark], options: dict[str, Any]
) -> list[EvaluationRecord]:
    """The records of a model with classes.

    Args:
        model: its folder.
        benchmarks: read without a dictionary.
        options: of the kinds of benchmarks.

    Raises:
        BadInput: for a benchmark that classes cannot answer.
    """
    grouped = [one for one in benchmarks if isinstance(one, GroupedMentions)]
    for one in benchmarks:
        if one not in grouped:
            raise BadInput(
                f"--benchmark {one.name}: {model} has classes, which answer mentions with a "
                "semantic group (QUAERO, or MANTRA with --given-groups); to search terms with its "
                "encoder give its export as --model, and --dictionary"
            )
    classifier = load_classifier(model)
    tell(f"answers are the most probable of {len(classifier.concepts):,} classes")
    protocol = encoder_protocol(classifier.encoder, model, hash_of(model, classifier))
    return [
        one.score_normalizer(classifier, protocol, options, similarity="probability of the concept")
        for one in grouped
    ]
