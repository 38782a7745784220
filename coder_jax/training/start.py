"""The start of a new run: a system's own initial files, or the parameters of another run."""

import dataclasses
import hashlib
import json
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from coder_jax.devices.hosts import first_decides, log
from coder_jax.training.run_folder import (
    CarriedFrom,
    StartOfRun,
    before_change,
    read_run_identity,
    small_files,
)
from coder_jax.training.system import Config, Params, SavedRun
from data_pipeline.batches.spec import BatchSource
from data_pipeline.process import BadInput


def carried_from(run: SavedRun) -> CarriedFrom:
    """What run.json says of a run that was started from: the step, and a hash of the run that does
    not depend on its length.
    """
    began = json.dumps(before_change(run.identity, 0), sort_keys=True)
    return CarriedFrom(step=run.step, run=hashlib.sha256(began.encode()).hexdigest())


def read_other_run(flag: str, out: str, *, best: bool, began: CarriedFrom | UnsetType) -> SavedRun:
    """Opens a run to start from; all hosts use the checkpoint that the first one chooses.

    Args:
        flag: that named it, for messages.
        out: its folder.
        best: whether to take its best checkpoint, not the newest.
        began: what this run began with, if it did (`carried_from`): the same checkpoint is read
            again.

    Raises:
        BadInput: if there is no run in `out`, or no such checkpoint.
    """
    # Imported here, as it imports Orbax: `train --help` stays quick.
    from coder_jax.training.checkpoints import best_step, read_notes, read_params, saved_steps

    folder = small_files(out)
    identity = read_run_identity(folder)
    steps = saved_steps(Path(out))
    if began is not UNSET:
        step = began.step
    elif not steps:
        raise BadInput(f"{flag} {out} has no checkpoint yet; train it first")
    else:
        step = first_decides(best_step(Path(out)) if best else steps[-1])
    if step not in steps:
        raise BadInput(
            f"{flag} {out}: the run begins with its checkpoint of step {step}, which is not "
            f"there; it has {', '.join(map(str, steps)) or 'none'}. Choose another --out to begin "
            "with one of these; on a network file system, try again in a minute"
        )
    params, notes = read_params(Path(out), step), read_notes(Path(out), step)
    return SavedRun(step=step, params=params, identity=identity, folder=folder, notes=notes)


def load_start(
    config: Config, source: BatchSource, recorded_start: StartOfRun | None = None
) -> tuple[StartOfRun, Params]:
    """The start of a new run: `System.load_initial`, or the parameters of the run in `--from`.

    Args:
        config: the run.
        source: its batches.
        recorded_start: what this gave when the run began, if it did: the same is read again.

    Raises:
        BadInput: as `System.load_initial`; or if there is no such run, or no checkpoint of it.
    """
    system = config.system
    if not config.start:
        return system.load_initial(source, recorded_start)
    other = read_other_run(
        "--from",
        config.start,
        best=system.best is not None,
        began=recorded_start.origin if recorded_start else UNSET,
    )
    from coder_jax.training.checkpoints import read_extra  # as above

    extra = read_extra(Path(config.start), other.step) if system.init_needs_extra else {}
    start, params = system.init_from_run(dataclasses.replace(other, extra=extra), source)
    log(f"starting from step {other.step} of {config.start}: {', '.join(params)}")
    return msgspec.structs.replace(start, origin=carried_from(other)), params
