"""The folder of a training run: what the run is, and whose it is.

OUT/run.json        what the run is: configuration, data, start; refused if it differs
OUT/tokenizer/ ...  what the run keeps of its data
OUT/checkpoints/    checkpoint.py
OUT/metrics.jsonl   metrics.py
OUT/lock            held by the process that trains (run_lock.py)
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coder_jax.models.hf_files import read_json
from coder_jax.runs.lock import LOCK, lock_run
from coder_jax.training.config import differences
from data_pipeline.files.whole_files import write_json
from data_pipeline.process.errors import BadInput

FORMAT = 3
# What a claim that was cut off leaves, beside what the run keeps of its data.
OF_A_CLAIM = {LOCK, ".partial", "run.json.unfinished"}


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
    return json.loads(json.dumps({"format": FORMAT, **parts}))


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
    path = out / "run.json"
    names = {entry.name for entry in out.iterdir()} if out.exists() else set()
    if not path.exists() and names and not {LOCK} <= names <= OF_A_CLAIM | set(kept):
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
        partial = out / ".partial"
        shutil.rmtree(partial, ignore_errors=True)
        for name in kept:
            shutil.copytree(data / name, partial / name)
            shutil.rmtree(out / name, ignore_errors=True)  # of a claim that was cut off
            os.replace(partial / name, out / name)
        shutil.rmtree(partial, ignore_errors=True)
        write_json(path, this_run)  # last: with it the folder is the run's
    finally:
        if lock:
            lock.close()


def read_identity(out: Path) -> dict[str, Any]:
    """The contents of run.json.

    Raises:
        BadInput: if there is no run in `out`.
    """
    path = out / "run.json"
    if not path.exists():
        raise BadInput(f"{out} is not the folder of a training run: it has no run.json; check it")
    found = read_json(path)
    if found.get("format") != FORMAT:
        raise BadInput(
            f"{path} has format {found.get('format')!r}, expected {FORMAT}: it is not a run of "
            "this version of coder_jax; choose another folder"
        )
    return found


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
