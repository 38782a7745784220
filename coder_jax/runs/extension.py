"""A run that is made longer: `train --steps MORE --extend`.

run.json then has the new number of steps and, under "extended", each change: the step at which it
was made, and the numbers before and after. Checkpoints from before keep what run.json was then.
"""

import contextlib
from pathlib import Path
from typing import Any

from coder_jax.runs.folder import check_identity
from coder_jax.runs.lock import lock_run
from data_pipeline.files.identity import RUN, differences, write_identity
from data_pipeline.process.errors import BadInput

CHANGES = "extended"


def going_on(
    there: dict[str, Any], here: dict[str, Any], where: str, *, step: int, extend: bool
) -> dict[str, Any]:
    """What the run in a folder is from now on.

    Args:
        there: of run.json.
        here: of `identity`, for the settings of now.
        where: the folder, for messages.
        step: of the newest checkpoint, 0 without one.
        extend: whether it may become longer.

    Raises:
        BadInput: if another run is there, with the differences; or this one, but shorter or, unless
            `extend`, longer; with what to do.
    """
    if CHANGES in there:
        here = {**here, CHANGES: there[CHANGES]}
    before, now = steps_of(there), steps_of(here)
    if before == now or differences(there, with_steps(here, before)):
        check_identity(there, here, where)
        return here
    if now < before:
        raise BadInput(
            f"{where} holds a run of {before:,} steps, and --steps is {now:,}: a run cannot become "
            f"shorter. Use --steps {before} to go on, `export --step` for one of its earlier "
            "checkpoints, or another --out"
        )
    if not extend:
        raise BadInput(
            f"{where} holds a run of {before:,} steps, and --steps is {now:,}. To make it longer, "
            f"add --extend: it goes on from its newest checkpoint, step {step:,}, at the learning "
            f"rate that a run of {now:,} steps has there (with --schedule constant the same as "
            f"before; with linear it rises again). Or begin a new run with its parameters: "
            f"--from {where} --out NEW"
        )
    change = {"step": step, "from": before, "to": now}
    return {**here, CHANGES: [*there.get(CHANGES, []), change]}


def extend_run(out: Path, this_run: dict[str, Any]) -> None:
    """Write what a run is from now on, of `going_on`, into its folder.

    Raises:
        BadInput: if another process trains there.
    """
    with lock_run(out) or contextlib.nullcontext():
        write_identity(out / RUN.file, RUN, this_run)


def as_it_was(this_run: dict[str, Any], saved: dict[str, Any]) -> dict[str, Any]:
    """What a run was when a checkpoint was written, before it was made longer.

    Args:
        this_run: what it is now.
        saved: what the checkpoint says; the number of its changes counts.
    """
    changes = this_run.get(CHANGES, [])
    kept = len(saved.get(CHANGES, []))
    if kept >= len(changes):
        return this_run
    then = with_steps(this_run, changes[kept]["from"])
    del then[CHANGES]
    return then if kept == 0 else {**then, CHANGES: changes[:kept]}


def as_it_began(this_run: dict[str, Any]) -> dict[str, Any]:
    """What a run was before it was ever made longer."""
    return as_it_was(this_run, {})


def steps_of(run: dict[str, Any]) -> int:
    """The steps of the whole run."""
    return run["config"]["optimizer"]["steps"]


def with_steps(run: dict[str, Any], steps: int) -> dict[str, Any]:
    """The same with another number of steps."""
    optimizer = {**run["config"]["optimizer"], "steps": steps}
    return {**run, "config": {**run["config"], "optimizer": optimizer}}
