"""A trained concept classifier as a folder: the encoder for the Hub, the head and the classes.

Beside what `export_encoder` writes
  classes.safetensors    classes [C, D], one row per concept; the head's kernel [W, D], bias, scale,
                         shift, and its running mean and variance, [D] each
  classes.tsv            the concept of each row and its semantic groups
  classifier.json        the scale of cosines
  concept_classifier.py  all of it in PyTorch, without coder_jax
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.export.verify import PROBE_TERMS, largest_difference, load_module
from coder_jax.systems.encoders.trained import encoder_of, export_trained
from coder_jax.systems.mlnorm.prediction.classifier import ConceptClassifier
from coder_jax.training.system import SavedRun
from data_pipeline.dataset.classes import CLASSES, read_classes
from data_pipeline.files.json_files import read_json, typed
from data_pipeline.files.whole_files import write_json
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.semantic_groups import GROUPS

if TYPE_CHECKING:
    from coder_jax.systems.mlnorm.class_system import ClassSystem

TABLE, SETTINGS, MODULE = "classes.safetensors", "classifier.json", "concept_classifier.py"


class Settings(TypedDict):
    """What classifier.json must have."""

    scale: float


def is_classifier(path: str | Path) -> bool:
    """Whether a folder is an export with classes."""
    return (Path(path) / SETTINGS).is_file()


def trained_classifier(system: ClassSystem, run: SavedRun) -> ConceptClassifier:
    """The classifier of a run."""
    return ConceptClassifier(
        encoder_of(run),
        {**run.params["head"], **(run.extra or run.params["statistics"])},
        run.params["classes"],
        read_classes(run.folder),
        scale=system.scale,
    )


def export_classifier(
    system: ClassSystem, run: SavedRun, out: Path, **options: Any
) -> dict[str, float]:
    """Export a run; what comes back, and what can go wrong, is as in `export_encoder`.

    Args:
        system, run: what was trained.
        out: the folder to write.
        options: of `export_trained`.
    """
    classifier = trained_classifier(system, run)

    def write(folder: Path) -> dict[str, float]:
        write_classifier(folder, classifier, run.folder / CLASSES)
        return {"probabilities in PyTorch": compare(folder, classifier)}

    return export_trained(system, run, out, beside=write, **options)


def write_classifier(folder: Path, classifier: ConceptClassifier, classes: Path) -> None:
    """Write the files beside the encoder's."""
    tensors = {"classes": classifier.table, **classifier.head}
    contiguous = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    save_file(contiguous, folder / TABLE, metadata={"format": "pt"})
    shutil.copyfile(classes, folder / CLASSES)
    write_json(folder / SETTINGS, {"scale": classifier.scale})
    shutil.copyfile(Path(__file__).with_name("torch_module.py"), folder / MODULE)


def compare(folder: Path, classifier: ConceptClassifier) -> float:
    """The largest difference of probabilities of the exported PyTorch module and ours.

    Raises:
        RuntimeError: if it is too large, or NaN.
    """
    import torch

    module = load_module(folder / MODULE)
    there: list[str | None] = [name for name in GROUPS if classifier.known_group(name)]
    there.append(None)
    groups = [there[place % len(there)] for place in range(len(PROBE_TERMS))]
    with torch.inference_mode():
        theirs = module.ConceptClassifier(folder).probabilities(PROBE_TERMS, groups).numpy()
    index, ours = classifier.nearest(PROBE_TERMS, groups, k=min(100, len(classifier.concepts)))
    known = index >= 0
    picked = np.take_along_axis(theirs, np.maximum(index, 0), axis=1)
    ours = np.where(known, ours, picked)
    what = "the exported classifier gives probabilities that"
    return largest_difference(ours, picked, what, folder)


def read_classifier(folder: Path) -> ConceptClassifier:
    """The classifier of an export.

    Raises:
        BadInput: if its files cannot be read.
    """
    settings = typed(read_json(folder / SETTINGS), Settings, str(folder / SETTINGS))
    try:
        tensors = load_file(folder / TABLE)
        table = tensors.pop("classes")
    except (OSError, KeyError, SafetensorError) as error:
        raise BadInput(f"{folder / TABLE} cannot be read: {error}; export the run again") from error
    return ConceptClassifier(
        TermEncoder.from_pretrained(folder),
        tensors,
        table,
        read_classes(folder),
        scale=settings["scale"],
    )
