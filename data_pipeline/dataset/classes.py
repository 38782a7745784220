"""The classes that a run can learn: which concept is which number, and the semantic groups of each.

classes.tsv  one line per number: the concept, a tab, its semantic groups joined by blanks
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_pipeline.files.whole_files import written_whole
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.semantic_groups import ANY, GROUPS, group_number, groups_of

CLASSES = "classes.tsv"


@dataclass(frozen=True)
class Classes:
    """The concepts that a class model answers with.

    Attributes:
        concepts: by number.
        groups: uint16 [C], the semantic groups of each as a bit set; bit `ANY` always.
    """

    concepts: list[str]
    groups: np.ndarray


def classes_of(folder: Path) -> Classes:
    """The classes of a dataset, or of batches in files that are of one.

    Raises:
        BadInput: if the folder cannot be read.
    """
    if (folder / CLASSES).exists():
        return read_classes(folder)
    # TensorFlow: it is not there where batches in files are trained on.
    from data_pipeline.dataset.store import open_dataset

    dataset = open_dataset(folder, strings=True)
    assert dataset.cuis is not None
    return Classes(dataset.cuis, groups_of(dataset))


def write_classes(folder: Path, classes: Classes) -> None:
    """Write the file of the classes."""
    with written_whole(folder / CLASSES) as path, path.open("w", encoding="utf-8") as file:
        for concept, bits in zip(classes.concepts, classes.groups.tolist(), strict=True):
            names = " ".join(name for number, name in enumerate(GROUPS) if bits >> number & 1)
            file.write(f"{concept}\t{names}\n")


def read_classes(folder: Path) -> Classes:
    """The classes of a run, of an export, or of batches in files.

    Raises:
        BadInput: if the file is missing or broken; says where.
    """
    path = folder / CLASSES
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}; fetch the folder again") from error
    concepts, groups = [], np.full(len(lines), 1 << ANY, np.uint16)
    for number, line in enumerate(lines):
        concept, tab, names = line.partition("\t")
        if not (concept and tab):
            raise BadInput(
                f"{path}, line {number + 1}: found {line!r}; expected a concept, a tab and its "
                "semantic groups; fetch the folder again"
            )
        concepts.append(concept)
        for name in names.split():
            groups[number] |= 1 << group_number(name)
    return Classes(concepts, groups)
