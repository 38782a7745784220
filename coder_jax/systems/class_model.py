"""A model with classes, be it a run or an export: what answers mentions with concepts itself."""

from pathlib import Path

from coder_jax.runs.files import is_run
from coder_jax.systems.finished_run import load_run
from coder_jax.systems.mlnorm.classifier import ConceptClassifier
from coder_jax.systems.mlnorm.export import is_classifier, read_classifier
from data_pipeline.process.errors import BadInput


def load_classifier(path: str | Path) -> ConceptClassifier:
    """The classifier of a run, or of an export.

    Raises:
        BadInput: if there is none in `path`, or its files cannot be read.
    """
    if is_run(path):
        system, run = load_run(Path(path))
        tables = system.trained(run).tables
        if "classes" not in tables:
            raise BadInput(
                f"{path} is a run of the system {system.name!r}, which learns no classes; expected "
                "one of the recipe mlnorm, or its export"
            )
        found: ConceptClassifier = tables["classes"]
        return found
    if not is_classifier(path):
        raise BadInput(f"{path} has no classes; expected a run of the recipe mlnorm, or its export")
    return read_classifier(Path(path))
