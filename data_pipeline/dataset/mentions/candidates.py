"""Lists of candidates beside the mentions that they are of.

FOLDER/candidates/SPLIT/  names.npy, distances.npy, numbers.npy (`CandidateLists`)
FOLDER/candidates.tsv     the same for people

FOLDER is a folder of mentions (`store.py`), so that a ranker needs no other.
"""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import numpy as np

from data_pipeline.files.array_files import map_array
from data_pipeline.process.errors import BadInput

CANDIDATES, TABLE = "candidates", "candidates.tsv"
AGAIN = "make the folder again with `python -m coder_jax candidates`"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CandidateLists:
    """For M mentions their k nearest concepts, nearest first."""

    names: np.ndarray
    """int32 [M, k], the nearest name of each concept."""
    distances: np.ndarray
    """float32 [M, k], the Euclidean distance of this name."""
    numbers: np.ndarray
    """float32 [M, C], the probability that the mention has one, two, ..., C or more concepts."""

    @property
    def content_hash(self) -> str:
        """SHA-256 of all that they hold."""
        content = hashlib.sha256()
        for field in dataclasses.fields(self):
            array = getattr(self, field.name)
            content.update(f"{field.name} {array.dtype.name} {array.shape}\n".encode())
            content.update(np.ascontiguousarray(array).tobytes())
        return content.hexdigest()

    def write(self, folder: Path, split: str) -> None:
        """Write the lists of a split into a new folder of mentions."""
        within = folder / CANDIDATES / split
        within.mkdir(parents=True)
        for field in dataclasses.fields(self):
            np.save(within / f"{field.name}.npy", getattr(self, field.name))


def read_lists(folder: Path, split: str, mentions: int, names: int) -> CandidateLists:
    """The lists of a split.

    Args:
        folder: of mentions and their candidates.
        split: train, dev or test.
        mentions, names: how many there are.

    Raises:
        BadInput: if there are none, or they are not of these mentions.
    """
    within = folder / CANDIDATES / split
    if not within.is_dir():
        raise BadInput(
            f"{folder} has no candidates of its mentions of {split}; expected what "
            "`python -m coder_jax candidates --model ... --data ... --out ...` writes"
        )
    arrays = {
        field.name: map_array(within / f"{field.name}.npy", AGAIN)
        for field in dataclasses.fields(CandidateLists)
    }
    shape = arrays["names"].shape
    for name, kind in {"names": "i", "distances": "f", "numbers": "f"}.items():
        found = arrays[name]
        expected = (mentions, found.shape[-1]) if name == "numbers" else (mentions, shape[-1])
        if found.dtype.kind != kind or found.shape != expected:
            raise BadInput(
                f"{within / name}.npy holds {found.dtype} {found.shape}; expected {expected}: "
                f"{AGAIN}"
            )
    if arrays["names"].size and not 0 <= arrays["names"].min() <= arrays["names"].max() < names:
        raise BadInput(f"{within}/names.npy has numbers beyond the {names} names: {AGAIN}")
    return CandidateLists(**arrays)


def candidate_rows(lists: CandidateLists) -> np.ndarray:
    """int64 [M * k, 2]: the mention and the name of each candidate, mention by mention."""
    mentions, k = lists.names.shape
    return np.stack([np.repeat(np.arange(mentions), k), np.ravel(lists.names)], axis=1)
