"""Batches as .npz files: written once where TensorFlow is, read where it is not.

    python -m data_pipeline.batch_files --data datasets/umls --out batches --steps 1000 \\
        --groups 8 --triplets 16 --repeats 8

writes one file per step, with the dataset's manifest, tokenizer and held-out terms beside them;
`python -m coder_jax train --data batches` then trains on them without TensorFlow.
"""

import argparse
import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tyro
from tqdm import tqdm

from data_pipeline.batch_spec import BatchSpec
from data_pipeline.command import run_command
from data_pipeline.errors import BadInput

if TYPE_CHECKING:
    from data_pipeline.batches import BatchMaker

INDEX = "batches.json"


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
    temporary = folder.with_name(folder.name + ".partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    steps = range(first_step, last_step)
    for step, batch in tqdm(
        zip(steps, maker.batches(first_step, last_step), strict=True), total=len(steps), unit="step"
    ):
        np.savez_compressed(batch_path(temporary, step), **batch)  # type: ignore[arg-type]
    shutil.copytree(maker.folder / "tokenizer", temporary / "tokenizer")
    if (maker.folder / "heldout").exists():
        shutil.copytree(maker.folder / "heldout", temporary / "heldout")
    index = {
        "spec": dataclasses.asdict(maker.spec),
        "passes": maker.plan.passes,
        "first_step": first_step,
        "last_step": last_step,
        "manifest": maker.manifest,
    }
    (temporary / INDEX).write_text(json.dumps(index, indent=2), encoding="utf-8")
    if folder.exists():
        folder.rmdir()
    os.replace(temporary, folder)


class BatchFiles:
    """The batches of a folder that `write_batches` made; needs no TensorFlow.

    Args:
        folder: the folder.
        spec: what the run expects its batches to be made of.
        passes: the parts of a step that the run expects.

    Raises:
        BadInput: if the batches were made otherwise.
    """

    def __init__(self, folder: Path, spec: BatchSpec, passes: int = 1):
        self.folder = folder
        self.index: dict[str, Any] = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        self.manifest: dict[str, Any] = self.index["manifest"]
        self.last_step: int = self.index["last_step"]
        expected = dataclasses.asdict(spec) | {"passes": passes}
        found = self.index["spec"] | {"passes": self.index["passes"]}
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

    def batches(self, first_step: int, last_step: int) -> Iterator[dict[str, np.ndarray]]:
        """The batches of steps first_step to last_step - 1.

        Raises:
            BadInput: if some of them were not written.
        """
        if first_step < self.index["first_step"] or last_step > self.last_step:
            raise BadInput(
                f"{self.folder} has the batches of steps {self.index['first_step']} to "
                f"{self.last_step}, but the run needs {first_step} to {last_step}; "
                "write more of them"
            )
        for step in range(first_step, last_step):
            with np.load(batch_path(self.folder, step)) as arrays:
                yield dict(arrays)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m data_pipeline.batch_files",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="What a batch is made of (--draw, --groups, --triplets, ...) as in training; "
        "`python -m coder_jax train --help` explains each.",
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of a built dataset")
    parser.add_argument("--out", type=Path, required=True, help="new folder for the batches")
    parser.add_argument("--steps", type=int, required=True, help="write steps 0 to STEPS - 1")
    parser.add_argument("--passes", type=int, default=1, help="parts of a step (default: 1)")
    known, rest = parser.parse_known_args(arguments)

    def work() -> int:
        spec = tyro.cli(BatchSpec, args=rest)
        from data_pipeline.batches import BatchMaker
        from data_pipeline.store import open_dataset

        maker = BatchMaker(open_dataset(known.data), spec, passes=known.passes)
        write_batches(maker, known.out, 0, known.steps)
        print(f"{known.steps} batches of {spec.terms} terms in {known.out}")
        return 0

    return run_command(work)


if __name__ == "__main__":
    sys.exit(main())
