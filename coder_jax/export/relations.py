"""The relation table of a trained encoder and its labels, in an export."""

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from data_pipeline.files.identity import read_json, typed
from data_pipeline.files.whole import write_json
from data_pipeline.process import BadInput

_TABLE, _LABELS = "relations.safetensors", "relations.json"
# By number of dimensions: the table's name in the file, and its operation.
KINDS = {
    3: (
        "relation_matrices",
        "Row r of relation_matrices [R, D, D] belongs to labels[r]. A head term with vector e "
        "points with relation r to tail terms near M_r^T e: similarity = cos(M_r^T e_head, "
        "e_tail).",
    ),
    2: (
        "relation_translations",
        "Row r of relation_translations [R, D] belongs to labels[r]. A head term with vector e, "
        "not normalized, points with relation r to tail terms near e + r: similarity = "
        "-|e_head + r - e_tail|.",
    ),
}


@dataclasses.dataclass(frozen=True)
class _Labels:
    """relations.json."""

    labels: list[str]
    how_to_use: str = ""


@dataclasses.dataclass(frozen=True)
class ExportedRelations:
    """R relations: float32 matrices [R, D, D] or translations [R, D], and their labels."""

    table: np.ndarray
    labels: Sequence[str]

    def __post_init__(self) -> None:
        if len(self.table) != len(self.labels):
            raise BadInput(
                f"there are {len(self.table)} relations and {len(self.labels)} labels; expected "
                "one label per relation"
            )

    @property
    def bilinear(self) -> bool:
        """Whether they are matrices."""
        return self.table.ndim == 3

    @property
    def content_hash(self) -> str:
        """SHA-256 of the table and its labels."""
        digest = hashlib.sha256("\n".join(self.labels).encode())
        digest.update(np.ascontiguousarray(self.table, np.float32).data)
        return digest.hexdigest()

    def queries(self, heads_ND: np.ndarray, relation: int) -> np.ndarray:
        """float32 [N, D]: the queries of one relation for head vectors, which need not be
        normalized.
        """
        if self.bilinear:
            return heads_ND @ self.table[relation]
        return heads_ND + self.table[relation]


def write_relations(folder: Path, relations: ExportedRelations) -> None:
    """Writes relations.safetensors and relations.json."""
    name, how_to_use = KINDS[relations.table.ndim]
    save_file({name: np.ascontiguousarray(relations.table, np.float32)}, folder / _TABLE)
    labels = _Labels(list(relations.labels), how_to_use)
    write_json(folder / _LABELS, dataclasses.asdict(labels))


def read_relations(folder: Path) -> ExportedRelations | None:
    """The relations of an encoder's folder; None if it has none.

    Raises:
        BadInput: if they cannot be read.
    """
    if not (folder / _TABLE).exists():
        return None
    try:
        tensors = load_file(folder / _TABLE)
        labels = typed(read_json(folder / _LABELS), _Labels, str(folder / _LABELS)).labels
    except (BadInput, OSError, ValueError, SafetensorError) as error:
        raise BadInput(
            f"the relations in {folder} cannot be read: {error}; export the run again"
        ) from error
    known = [name for name, _ in KINDS.values() if name in tensors]
    if not known:
        raise BadInput(
            f"{folder / _TABLE} has {', '.join(tensors)}; expected relation_matrices or "
            "relation_translations; export the run again"
        )
    return ExportedRelations(tensors[known[0]], labels)
