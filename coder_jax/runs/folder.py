"""The folder of a training run: what the run is, and whose it is.

OUT/run.json        what the run is: configuration, dataset, encoder; refused if it differs
OUT/tokenizer/      the tokenizer of the dataset
OUT/checkpoints/    checkpoint.py
OUT/metrics.jsonl   metrics.py
OUT/lock            held by the process that trains (run_lock.py)
"""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coder_jax.models.hf_files import read_json
from coder_jax.runs.lock import LOCK, lock_run
from coder_jax.training.config import Config, differences, to_json
from data_pipeline.files.whole_files import write_json
from data_pipeline.process.errors import BadInput

FORMAT = 2
# What a claim that was cut off leaves.
OF_A_CLAIM = {LOCK, ".partial", "tokenizer", "run.json.unfinished"}


def identity(
    config: Config, manifest: Mapping[str, Any], encoder: Mapping[str, Any]
) -> dict[str, Any]:
    """What must be the same when a run goes on: all but where and how it is carried out.

    Args:
        config: of the run.
        manifest: of the dataset.
        encoder: what is known of the initial encoder: `config` (its config.json), `pooler`
            (whether it has one), `license`.
    """
    settings = to_json(config)
    del settings["run"]
    dataset = {
        name: manifest[name]
        for name in ("name", "release", "cleaning", "counts", "relations", "content_hash")
    }
    tokenizer = {name: manifest["tokenizer"][name] for name in ("hash", "max_length")}
    parts = {"config": settings, "dataset": dataset, "tokenizer": tokenizer, "encoder": encoder}
    return json.loads(json.dumps({"format": FORMAT, **parts}))


def claim_run_folder(out: Path, this_run: dict[str, Any], tokenizer: Path) -> None:
    """Make `out` the folder of this run, or see that it already is.

    Raises:
        BadInput: if the folder belongs to a run with another configuration or dataset (with the
            differences), is in use by another process, or holds something else.
    """
    path = out / "run.json"
    names = {entry.name for entry in out.iterdir()} if out.exists() else set()
    if not path.exists() and names and not {LOCK} <= names <= OF_A_CLAIM:
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
        shutil.copytree(tokenizer, partial / "tokenizer")
        shutil.rmtree(out / "tokenizer", ignore_errors=True)  # of a claim that was cut off
        os.replace(partial / "tokenizer", out / "tokenizer")
        partial.rmdir()
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
