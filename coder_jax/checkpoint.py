"""Checkpoints of a run: Orbax behind a few functions, and the folder that makes a run.

OUT/run.json        what the run is: configuration, dataset, encoder; refused if it differs
OUT/tokenizer/      the tokenizer of the dataset
OUT/checkpoints/N/  state after step N: params, opt_state, identity (run.json again)
OUT/metrics.jsonl   one line per logged step
"""

import contextlib
import dataclasses
import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from coder_jax.config import Config, differences, to_json
from coder_jax.hf_files import read_json
from coder_jax.state import TrainState
from data_pipeline.errors import BadInput

FORMAT = 1


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
            differences), or holds something else.
    """
    path = out / "run.json"
    if path.exists():
        check_identity(read_identity(out), this_run, str(out))
        return
    if out.exists() and any(out.iterdir()):
        raise BadInput(
            f"{out} is not empty and is not the folder of a run (it has no run.json); "
            "choose another --out, or empty it"
        )
    out = out.absolute()
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    shutil.copytree(tokenizer, partial / "tokenizer")
    (partial / "run.json").write_text(json.dumps(this_run, indent=2) + "\n", encoding="utf-8")
    os.replace(partial, out)  # takes the place of an empty folder


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


class Checkpoints:
    """The checkpoints of a run; saving goes on in the background.

    Args:
        out: the run folder.
        keep_steps: checkpoints at multiples of this step stay; of the others the two newest.
    """

    def __init__(self, out: Path, keep_steps: int):
        self.folder = (out / "checkpoints").resolve()
        options = ocp.CheckpointManagerOptions(max_to_keep=2, keep_period=keep_steps)
        self.manager = ocp.CheckpointManager(self.folder, options=options)

    @property
    def latest(self) -> int | None:
        """The newest step that was saved whole."""
        return self.manager.latest_step()

    @property
    def steps(self) -> list[int]:
        """The steps that were saved whole, oldest first."""
        return sorted(self.manager.all_steps())

    def save(self, state: TrainState, step: int, this_run: dict[str, Any]) -> None:
        """Begin to save the state after `step` steps; nothing is done if it is there already."""
        if step == self.latest:
            return
        items = {
            "params": ocp.args.StandardSave(state.params),
            "opt_state": ocp.args.StandardSave(state.opt_state),
            "identity": ocp.args.JsonSave(this_run),
        }
        with explain_full_disk(self.folder):
            self.manager.save(step, args=ocp.args.Composite(**items), force=True)

    def restore(self, like: TrainState, this_run: dict[str, Any]) -> TrainState:
        """The newest state, laid out on the devices as the arrays or shapes of `like` are.

        Raises:
            BadInput: if the checkpoint is of another run, or cannot be read; a new run is never
                begun in its place.
        """
        step = self.latest
        if step is None:
            raise BadInput(f"{self.folder} has no checkpoint to restore")
        where = f"checkpoint {self.folder / str(step)}"
        try:
            saved = self.manager.restore(
                step, args=ocp.args.Composite(identity=ocp.args.JsonRestore())
            )
            check_identity(saved.identity, this_run, where)
            restored = self.manager.restore(
                step,
                args=ocp.args.Composite(
                    params=ocp.args.StandardRestore(like.params),
                    opt_state=ocp.args.StandardRestore(like.opt_state),
                ),
            )
        except (OSError, ValueError, KeyError) as error:
            raise BadInput(
                f"{where} cannot be read: {error}. To go on from an older one, move this one out "
                "of the folder; to start again, choose another --out"
            ) from error
        return dataclasses.replace(
            like,
            step=jax.device_put(np.int32(step), like.step.sharding),
            params=restored.params,
            opt_state=restored.opt_state,
        )

    def close(self) -> None:
        """Finish saving and let go of the folder."""
        with explain_full_disk(self.folder):
            self.manager.close()


@contextlib.contextmanager
def explain_full_disk(folder: Path) -> Iterator[None]:
    """Turn 'no space left', from this save or one before in the background, into BadInput."""
    try:
        yield
    except Exception as error:  # Orbax and tensorstore raise errors of several kinds for it
        if "No space left" not in str(error) and getattr(error, "errno", None) != errno.ENOSPC:
            raise
        raise BadInput(
            f"the disk of {folder} is full, so the last checkpoint was not saved; those that are "
            "there are whole. Make room and give the same command again: the run goes on from them"
        ) from error


def read_params(out: Path, step: int) -> dict[str, Any]:
    """The parameters of a run after `step` steps, as NumPy arrays, whatever devices they had."""
    path = (out / "checkpoints" / str(step) / "params").resolve()
    with ocp.StandardCheckpointer() as reader:
        shapes = reader.metadata(path).item_metadata.tree
        like = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), shapes)
        return reader.restore(path, like)
