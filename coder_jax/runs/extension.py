"""A run that is made longer: `train --steps MORE --extend`.

run.json then has the new number of steps and, under "extended", each change: the step at which it
was made, and the numbers before and after. Checkpoints from before keep what run.json was then. A
change that no checkpoint has yet counts for nothing: it can be taken back, or made another one.
"""

from typing import Any

from coder_jax.runs.folder import check_identity
from data_pipeline.files.identity import differences
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
        step: of the newest checkpoint, or that the run goes on from; 0 without one.
        extend: whether it may become longer.

    Raises:
        BadInput: if another run is there, with the differences; or this one, but shorter or, unless
            `extend`, longer; with what to do.
    """
    if CHANGES in there:
        here = {**here, CHANGES: there[CHANGES]}
    if differences(with_steps(there, steps_of(here)), here):
        check_identity(there, here, where)  # with the steps, if they differ, too
    saved = as_saved(there, step)
    before, now = steps_of(saved), steps_of(here)
    if now == before:
        return saved
    if now < before:
        raise BadInput(
            f"{where} holds a run of {before:,} steps, and --steps is {now:,}: a run cannot become "
            f"shorter. Use --steps {before} to go on, `export --step` for one of its earlier "
            "checkpoints, or another --out"
        )
    if not extend and now != steps_of(there):
        begins = f"goes on from its newest checkpoint, step {step:,}," if step else "begins anew,"
        raise BadInput(
            f"{where} holds a run of {before:,} steps, and --steps is {now:,}. To make it longer, "
            f"add --extend: it {begins} at the learning rate that a run of {now:,} steps has there "
            f"(with --schedule constant the same as before; with linear it rises again). Or begin "
            f"a new run with its parameters: --from {where} --out NEW"
        )
    change = {"step": step, "from": before, "to": now}
    return {**with_steps(saved, now), CHANGES: [*saved.get(CHANGES, []), change]}


def as_saved(this_run: dict[str, Any], step: int) -> dict[str, Any]:
    """What a run was when it saved its newest checkpoint, of `step`; 0 without one."""
    changes = this_run.get(CHANGES, [])
    return before_change(this_run, sum(change["step"] < step for change in changes))


def as_it_was(this_run: dict[str, Any], saved: dict[str, Any]) -> dict[str, Any]:
    """What a run was when a checkpoint was written, before it was made longer.

    Args:
        this_run: what it is now.
        saved: what the checkpoint says; the number of its changes counts.
    """
    return before_change(this_run, len(saved.get(CHANGES, [])))


def before_change(this_run: dict[str, Any], number: int) -> dict[str, Any]:
    """What a run was after so many of its changes, before the next one."""
    changes = this_run.get(CHANGES, [])
    if number >= len(changes):
        return this_run
    then = with_steps(this_run, changes[number]["from"])
    del then[CHANGES]
    return then if number == 0 else {**then, CHANGES: changes[:number]}


def steps_of(run: dict[str, Any]) -> int:
    """The steps of the whole run."""
    return run["config"]["optimizer"]["steps"]


def with_steps(run: dict[str, Any], steps: int) -> dict[str, Any]:
    """The same with another number of steps."""
    optimizer = {**run["config"]["optimizer"], "steps": steps}
    return {**run, "config": {**run["config"], "optimizer": optimizer}}
