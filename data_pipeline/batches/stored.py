"""Arrays of stored batches, read within the bounds that the settings of the batches set."""

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from data_pipeline.batches.spec import StepSpec
from data_pipeline.files.array_files import map_array
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.semantic_groups import ANY

AGAIN = (
    "see that the disk is well, or write the batches again; a run then goes on from its last "
    "checkpoint with the same command"
)
HEADER = 4096  # bytes, more than an array's file has before its values


def read_stored(path: Path, spec: StepSpec, manifest: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of one step, as `BatchMaker.unpacked` says.

    Args:
        path: the .npz file.
        spec: what the batches are made of.
        manifest: of their dataset, which says how many of everything there are.

    Raises:
        BadInput: if the file cannot be read, holds other arrays, or numbers that nothing has.
    """
    terms = spec.terms // spec.groups
    longest = manifest["tokenizer"]["max_length"]
    shapes: dict[str, tuple[int, ...]] = {
        "lengths": (spec.groups, terms),
        **{name: (spec.groups, *shape) for name, shape in spec.arrays.items()},
    }
    most = 8 * (spec.terms * longest + sum(map(math.prod, shapes.values()))) + 8 * HEADER
    try:
        with zipfile.ZipFile(path) as archive:
            stored = sum(member.file_size for member in archive.infolist())
            if stored > most:
                raise ValueError(
                    f"it holds {stored:,} bytes, more than a batch can have ({most:,})"
                )
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            batch = dict(arrays)
    except Exception as error:  # of the archive, of its packing, of NumPy's headers
        raise BadInput(f"{path} cannot be read: {error}; {AGAIN}") from error
    bounds = {  # -1 says that there is none
        "tokens": (0, manifest["tokenizer"]["vocab_size"] - 1),
        "lengths": (1, longest),
        "concepts": (0, manifest["counts"]["concepts"] - 1),
        "relations": (-1, len(manifest["relations"]) - 1),
        "types": (-1, len(manifest["semantic_types"]) - 1),
        "semantic_groups": (0, ANY),
    }
    if batch.keys() != shapes.keys() | {"tokens"}:
        raise _broken(path, f"the arrays {', '.join(batch)}", ", ".join([*shapes, "tokens"]))
    shapes["tokens"] = (int(batch["lengths"].sum()),)
    for name, shape in shapes.items():
        array = batch[name]
        if array.dtype != np.int32 or array.shape != shape:
            raise _broken(path, f"{name} {array.dtype} {array.shape}", f"int32 {shape}")
        low, high = bounds[name]
        if array.min(initial=high) < low or array.max(initial=low) > high:
            found = f"{name} from {array.min()} to {array.max()}"
            raise _broken(path, found, f"{low} to {high}")
    return batch


def read_sample(path: Path, spec: StepSpec, manifest: Mapping[str, Any]) -> np.ndarray:
    """int [S, G, N]: the lengths of the terms of some steps, on which rows are planned.

    Raises:
        BadInput: if the file cannot be read, or holds something else.
    """
    shape = (spec.groups, spec.terms // spec.groups)
    lengths = map_array(path, AGAIN)
    longest = manifest["tokenizer"]["max_length"]
    if lengths.dtype.kind != "i" or lengths.shape[1:] != shape or not len(lengths):
        raise _broken(path, f"{lengths.dtype} {lengths.shape}", f"integers (steps, *{shape})")
    low, high = lengths.min(), lengths.max()
    if low < 1 or high > longest:
        raise _broken(path, f"lengths from {low} to {high}", f"1 to {longest}")
    return np.array(lengths)


def _broken(path: Path, found: str, expected: str) -> BadInput:
    return BadInput(f"{path} holds {found}; expected {expected}; {AGAIN}")
