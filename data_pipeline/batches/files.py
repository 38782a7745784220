"""Batches as .npz files: written once where TensorFlow is, read where it is not."""

import dataclasses
import json
import math
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data_pipeline.batches.candidates import classes_of, write_classes
from data_pipeline.batches.packing import (
    LONG_RUN,
    MOST_SHAPES,
    PackedGroups,
    decoded_terms,
    made_ahead,
    pack_rows,
    plan_rows,
)
from data_pipeline.batches.spec import BatchSpec, StepCut, StepSpec, TermSpec
from data_pipeline.dataset.manifest import Manifest
from data_pipeline.files.identity import BATCHES, Count, read_identity, write_identity
from data_pipeline.files.whole import map_array, whole_folder
from data_pipeline.process import BadInput, poll, progress_bar
from data_pipeline.terminology.semantic_groups import ANY

if TYPE_CHECKING:
    from data_pipeline.batches.stream import BatchMaker


# -------------------------------------------------------------------------------------------------
# Arrays of stored batches, read within the bounds that the settings of the batches set.

_AGAIN = (
    "see that the disk is well, or write the batches again; a run then goes on from its last "
    "checkpoint with the same command"
)
_HEADER = 4096  # bytes, more than an array's file has before its values


def _read_stored(path: Path, spec: StepSpec, manifest: Manifest) -> dict[str, np.ndarray]:
    """The arrays of one step, as `BatchMaker.unpacked` says.

    Args:
        path: the .npz file.
        spec: what the batches are made of.
        manifest: of their dataset, which says how many of everything there are.

    Raises:
        BadInput: if the file cannot be read, holds other arrays, or numbers that nothing has.
    """
    terms = spec.terms // spec.groups
    longest = manifest.tokenizer.max_length
    shapes: dict[str, tuple[int, ...]] = {
        "lengths": (spec.groups, terms),
        **{name: (spec.groups, *shape) for name, shape in spec.arrays.items()},
    }
    most = 8 * (spec.terms * longest + sum(map(math.prod, shapes.values()))) + 8 * _HEADER
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
        raise BadInput(f"{path} cannot be read: {error}; {_AGAIN}") from error
    bounds = {  # -1 says that there is none
        "tokens": (0, manifest.tokenizer.vocab_size - 1),
        "lengths": (1, longest),
        "concepts": (0, manifest.counts.concepts - 1),
        "relations": (-1, len(manifest.relations) - 1),
        "types": (-1, len(manifest.semantic_types) - 1),
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


def _read_sample(path: Path, spec: StepSpec, manifest: Manifest) -> np.ndarray:
    """int [S, G, N]: the lengths of the terms of some steps, on which rows are planned.

    Raises:
        BadInput: if the file cannot be read, or holds something else.
    """
    shape = (spec.groups, spec.terms // spec.groups)
    lengths = map_array(path, _AGAIN)
    longest = manifest.tokenizer.max_length
    if lengths.dtype.kind != "i" or lengths.shape[1:] != shape or not len(lengths):
        raise _broken(path, f"{lengths.dtype} {lengths.shape}", f"integers (steps, *{shape})")
    low, high = lengths.min(), lengths.max()
    if low < 1 or high > longest:
        raise _broken(path, f"lengths from {low} to {high}", f"1 to {longest}")
    return np.array(lengths)


def _broken(path: Path, found: str, expected: str) -> BadInput:
    return BadInput(f"{path} holds {found}; expected {expected}; {_AGAIN}")


# -------------------------------------------------------------------------------------------------
# Batches as .npz files: written once where TensorFlow is, read where it is not.
#
# One file per step, with the dataset's manifest, tokenizer and held-out terms beside them, and of
# batches of terms the classes. The files hold the terms of a step unpacked: passes, hosts and
# devices are the business of the run that reads them.

INDEX = BATCHES.file
_SAMPLE = "sample_lengths.npy"  # what the number of rows is planned on
_PACKED = ("tokens", "lengths")  # of a file; the rest is there by group


@dataclasses.dataclass(frozen=True, kw_only=True)
class _BatchIndex:
    """batches.json of a folder of batches."""

    spec: dict[str, Any]
    first_step: Count
    last_step: Count
    manifest: Manifest


def batch_path(folder: Path, step: int) -> Path:
    """The file of a step's batch."""
    return folder / f"batch-{step:08d}.npz"


def write_batches(maker: "BatchMaker", folder: Path, first_step: int, last_step: int) -> None:
    """Write the batches of steps first_step to last_step - 1 into a new folder.

    Raises:
        BadInput: if the folder is there and not empty.
    """
    if folder.exists() and any(folder.iterdir()):
        raise BadInput(f"{folder} is not empty; choose another folder for the batches")
    steps = range(first_step, last_step)
    batches = maker.unpacked_batches(first_step, last_step)
    with whole_folder(folder) as new:
        for step, batch in progress_bar(
            zip(steps, batches, strict=True),
            total=len(steps),
            desc="write batches",
            unit="step",
        ):
            poll()
            np.savez_compressed(batch_path(new, step), **batch)  # type: ignore[arg-type]
        np.save(new / _SAMPLE, maker.sample_lengths())
        shutil.copytree(maker.folder / "tokenizer", new / "tokenizer")
        if (maker.folder / "heldout").exists():
            shutil.copytree(maker.folder / "heldout", new / "heldout")
        if isinstance(maker.spec, TermSpec):
            write_classes(new, classes_of(maker.folder))
        index = _BatchIndex(
            spec=dataclasses.asdict(maker.spec),
            first_step=first_step,
            last_step=last_step,
            manifest=maker.manifest,
        )
        write_identity(new / INDEX, BATCHES, index)


class BatchFiles(PackedGroups):
    """The batches of a folder that `write_batches` made; needs no TensorFlow.

    Args:
        folder: the folder.
        spec: what the run expects its batches to be made of.
        cut, rows, run_steps: as for `BatchMaker`.

    Raises:
        BadInput: if the batches were made otherwise, or the numbers do not fit each other.
    """

    def __init__(
        self,
        folder: Path,
        spec: BatchSpec | TermSpec,
        cut: StepCut | None = None,
        *,
        rows: int = 0,
        run_steps: int = LONG_RUN,
        shapes: int = MOST_SHAPES,
    ):
        self.folder, self.spec, self.cut = folder, spec, cut or StepCut()
        self.index = read_identity(folder / INDEX, BATCHES, _BatchIndex)
        self.manifest, self.last_step = self.index.manifest, self.index.last_step
        # As JSON keeps them: tuples are lists there.
        expected = json.loads(json.dumps(dataclasses.asdict(spec)))
        found = self.index.spec
        differing = [
            f"{name} is {found.get(name)!r}, the run wants {expected[name]!r}"
            for name in expected
            if found.get(name) != expected[name]
        ]
        if differing:
            raise BadInput(
                f"the batches in {folder} were made with other settings: {'; '.join(differing)}. "
                "Write them again, or give the run the settings that they were made with"
            )
        self.groups = self.cut.groups(spec)
        sample = _read_sample(folder / _SAMPLE, spec, self.manifest)
        self.plan = plan_rows(sample, spec, self.cut, rows, run_steps, shapes)

    def some_terms(self) -> list[str]:
        """A few terms of the first batch, always the same."""
        first = batch_path(self.folder, self.index.first_step)
        stored = _read_stored(first, self.spec, self.manifest)
        start = np.concatenate([[0], np.cumsum(stored["lengths"], dtype=np.int64)])
        return decoded_terms(self.folder, stored["tokens"], start)

    def batch(self, step: int) -> dict[str, np.ndarray]:
        """The batch of a step, as `BatchMaker.batch` says.

        Raises:
            BadInput: if its file cannot be read, or a block needs more rows than were planned.
        """
        stored = _read_stored(batch_path(self.folder, step), self.spec, self.manifest)
        start = np.concatenate([[0], np.cumsum(stored["lengths"], dtype=np.int64)])
        terms = stored["concepts"].shape[1]
        shape = self.groups.shape
        packed = []
        for groups in self.groups.reshape(-1, shape[-1]):  # the groups of a block are neighbours
            bounds = start[groups[0] * terms : (groups[-1] + 1) * terms + 1]
            tokens = stored["tokens"][bounds[0] : bounds[-1]]
            packed.append(
                pack_rows(tokens, bounds - bounds[0], self.spec.row_length, self.plan.ample)
            )
        return {
            **{
                name: np.stack([block[name] for block in packed]).reshape(
                    *shape[:2], self.plan.ample, self.spec.row_length
                )
                for name in packed[0]
            },
            **{name: values[self.groups] for name, values in stored.items() if name not in _PACKED},
        }

    def batches(self, first_step: int, last_step: int) -> Iterator[dict[str, np.ndarray]]:
        """The batches of steps first_step to last_step - 1, read and packed ahead.

        Raises:
            BadInput: if some of them were not written.
        """
        if first_step < self.index.first_step or last_step > self.last_step:
            raise BadInput(
                f"{self.folder} has the batches of steps {self.index.first_step} to "
                f"{self.last_step}, but the run needs {first_step} to {last_step}; "
                "write more of them"
            )
        yield from made_ahead(self.batch, first_step, last_step)
