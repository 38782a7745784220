"""Reading a run that was trained: what it learnt, and what is known of it."""

from pathlib import Path
from typing import Any

import jax

from coder_jax.runs.checkpoint_reader import (
    best_step,
    read_extra,
    read_notes,
    read_params,
    read_saved_identity,
    saved_steps,
)
from coder_jax.runs.extension import as_it_was
from coder_jax.runs.files import small_files
from coder_jax.runs.folder import read_identity
from coder_jax.systems.recipes import system_of
from coder_jax.training.proof import check_proof
from coder_jax.training.system import SavedRun, System
from data_pipeline.files.identity import differences
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import tell


def check_unchanged(out: Path, step: int, identity: dict[str, Any]) -> None:
    """BadInput if run.json is another than when a checkpoint was saved, but for more steps."""
    saved = read_saved_identity(out, step)
    lines = differences(as_it_was(identity, saved), saved)
    if lines:
        raise BadInput(
            f"run.json in {out} was changed since checkpoint {step} was saved: {'; '.join(lines)}; "
            f"expected it as it was written: put it back (the checkpoint has a copy, identity/)"
        )


def load_run(out: Path, step: int | None = None) -> tuple[System, SavedRun]:
    """A run after `step` steps.

    Args:
        out: its folder, here or in a bucket.
        step: of one of its checkpoints; None: the best one, for a system that has a score to choose
            it by, else the newest.

    Raises:
        BadInput: if there is no run in `out`, or no such checkpoint; or if what is read of it gives
            other outputs than training gave.
    """
    files = small_files(out)
    identity = read_identity(files)
    system = system_of(identity)
    identity = read_identity(files, system.content)
    steps = saved_steps(out)
    if not steps or (step is not None and step not in steps):
        raise BadInput(
            f"{out} has no checkpoint{'' if step is None else f' of step {step}'}; it has "
            f"{', '.join(map(str, steps)) or 'none'}"
        )
    if step is None:
        step = best_step(out) if system.best else steps[-1]
    check_unchanged(out, step, identity)
    has_extra = jax.tree.leaves(system.shapes(identity["start"])[1])
    run = SavedRun(
        step=step,
        params=read_params(out, step),
        identity=identity,
        folder=files,
        extra=read_extra(out, step) if has_extra else {},
        notes=read_notes(out, step),
    )
    if not check_proof(lambda terms: system.answers(run, terms), run, f"step {step} of {out}"):
        tell(
            f"step {step} of {out} was saved by a version that kept no proof: what is read of it "
            "is not compared with what training gave"
        )
    return system, run
