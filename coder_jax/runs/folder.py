"""The folder of a training run: what the run is, and whose it is.

OUT/run.json        what the run is: configuration, data, start; refused if it differs
OUT/tokenizer/ ...  what the run keeps of its data
OUT/checkpoints/    checkpoint.py
OUT/metrics.jsonl   metrics.py
OUT/lock            held by the process that trains (lock.py)
"""

import dataclasses
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coder_jax.runs.files import is_run, small_files
from coder_jax.runs.lock import LOCK, lock_run
from data_pipeline.files.contents import Run
from data_pipeline.files.identity import RUN, differences, marked, write_identity
from data_pipeline.files.identity import read_identity as read_identity_file
from data_pipeline.files.whole_files import LOCK as FOLDER_LOCK
from data_pipeline.files.whole_files import OLD, PARTIAL, beside, whole_folder, written_whole
from data_pipeline.process.errors import BadInput

# What a claim that was cut off leaves, beside what the run keeps of its data.
OF_A_CLAIM = {LOCK, f"{RUN.file}.unfinished"}


def identity(
    config: Mapping[str, Any], data: Mapping[str, Any], start: Mapping[str, Any]
) -> dict[str, Any]:
    """What must be the same when a run goes on: all but where and how it is carried out.

    Args:
        config: of the run, as JSON; its `run` does not count.
        data: of `BatchSource.identity`.
        start: of `System.start`.
    """
    settings = {name: value for name, value in config.items() if name != "run"}
    parts = {"config": settings, **data, "start": start}
    return json.loads(json.dumps(marked(RUN, parts)))


def claim_run_folder(out: Path, this_run: dict[str, Any], data: Path, kept: Sequence[str]) -> None:
    """Make `out` the folder of this run, or see that it already is.

    Args:
        out: the folder.
        this_run: of `identity`.
        data: folder of the data.
        kept: names in it of which the run keeps a copy.

    Raises:
        BadInput: if the folder belongs to a run with another configuration or dataset (with the
            differences), is in use by another process, or holds something else.
    """
    path = out / RUN.file
    names = {entry.name for entry in out.iterdir()} if out.exists() else set()
    hidden = {beside(out / name, it).name for name in kept for it in (PARTIAL, OLD, FOLDER_LOCK)}
    if not path.exists() and names and not {LOCK} <= names <= OF_A_CLAIM | set(kept) | hidden:
        raise BadInput(
            f"{out} is not empty and is not the folder of a run (it has no run.json); "
            "choose another --out, or empty it"
        )
    out.mkdir(parents=True, exist_ok=True)
    lock = lock_run(out)
    try:
        if path.exists():
            check_identity(read_identity(out), this_run, str(out))
            return
        for name in kept:
            if (data / name).is_file():
                with written_whole(out / name) as file:
                    shutil.copyfile(data / name, file)
                continue
            with whole_folder(out / name) as new:
                shutil.copytree(data / name, new, dirs_exist_ok=True)
        write_identity(path, RUN, this_run)  # last: with it the folder is the run's
    finally:
        if lock:
            lock.close()


def read_identity(out: Path, content: Any = Run) -> dict[str, Any]:
    """The contents of run.json.

    Args:
        out: the folder of the run.
        content: what it must have, of `System.content`.

    Raises:
        BadInput: if there is no run in `out`, or one of another version.
    """
    path = out / RUN.file
    if not path.exists():
        raise BadInput(f"{out} is not the folder of a training run: it has no run.json; check it")
    return read_identity_file(path, dataclasses.replace(RUN, content=content))


def read_run_there(out: Path, system: str, content: Any) -> dict[str, Any] | None:
    """What the folder's run.json says, if there is one.

    Args:
        out: the folder of the run.
        system: the name of the system of now.
        content: what a run of this system must have; one of another is only to be compared.

    Raises:
        BadInput: as `read_identity`.
    """
    if not (out / RUN.file).exists():
        return None
    there = read_identity(out)
    same = there["config"]["system"]["name"] == system
    return read_identity(out, content) if same else there


def system_name(path: str | Path) -> str | None:
    """The name of the system of a run; None for what is no run."""
    if not is_run(path):
        return None
    name: str = read_identity(small_files(path))["config"]["system"]["name"]
    return name


def check_identity(there: dict[str, Any], here: dict[str, Any], where: str) -> None:
    """Raise BadInput, with every difference, unless both describe the same run."""
    lines = differences(there, here)
    if lines:
        shown = lines[:20] + ([f"... and {len(lines) - 20} more"] if len(lines) > 20 else [])
        raise BadInput(
            f"{where} holds a run that differs from this one, so it cannot go on:\n  "
            + "\n  ".join(shown)
            + "\nUse the same settings and dataset, or another --out"
        )
