"""Checkpoints of a run: Orbax behind a few functions.

OUT/checkpoints/N/  state after step N: params, rest (of the state), identity (as in run.json),
                    notes (what the run knew then), checksums

A checkpoint is written under another name and renamed when it is whole; one that makes place for
another is renamed before it is deleted. So what bears a step's number is whole, whenever the
process was killed. What was damaged later, by the disk, shows when it is read. In a bucket, which
has no renames, a file that is written last says that a checkpoint is whole (orbax_patches.py).
"""

import contextlib
import errno
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import preservation_policy

from coder_jax.devices.agree import barrier, first_decides, is_first
from coder_jax.runs.checkpoint_reader import check_keys, examine, in_a_line, or_damaged
from coder_jax.runs.checksums import Damaged, check_sums, checksums
from coder_jax.runs.extension import as_it_was
from coder_jax.runs.folder import check_identity
from coder_jax.runs.lock import lock_run
from coder_jax.runs.orbax_patches import atomicity, checkpoint_folder, quieten
from data_pipeline.files.buckets import client_errors, in_bucket, move_folder
from data_pipeline.process.errors import BadInput

FULL = (errno.ENOSPC, errno.EDQUOT)
DELETED = "deleted"  # folder of the checkpoints that made place for others
# Folders of NFS are looked at again after a minute at the latest, unless it was told otherwise.
SEEN_WITHIN_SECONDS = 90
RELOAD_SECONDS = 2


class Kept(preservation_policy.PreservationPolicy):
    """Which checkpoints stay: the two newest, the best, and those at multiples of some steps.

    Args:
        multiples: the steps, at multiples of any of which they stay.
    """

    def __init__(self, multiples: Sequence[int]):
        self.multiples, self.best = multiples, -1

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> Sequence[bool]:
        """A flag for each checkpoint, oldest first."""
        steps = [found.step for found in checkpoints]
        return [
            step in steps[-2:]
            or step == self.best
            or any(step % multiple == 0 for multiple in self.multiples)
            for step in steps
        ]


class Checkpoints:
    """The checkpoints of the run that this process trains; saving goes on in the background.

    Args:
        out: the run folder. On this machine it is locked until `close`; a bucket has no locks.
        keep_steps: checkpoints at multiples of any of these steps stay, as do the best one and the
            two newest.

    Raises:
        BadInput: if another process trains in the folder.
    """

    def __init__(self, out: Path, keep_steps: Sequence[int]):
        self.remote = in_bucket(out)
        self.lock = lock_run(out) if is_first() and not self.remote else None
        self.folder = checkpoint_folder(out)
        self.kept = Kept(keep_steps)
        options = ocp.CheckpointManagerOptions(
            preservation_policy=self.kept,
            cleanup_tmp_directories=True,  # of saves that were killed
            todelete_subdir=None if self.remote else DELETED,
            atomicity_options=atomicity(self.folder),
        )
        quieten()
        try:
            self.manager = ocp.CheckpointManager(self.folder, options=options)
            self._see_what_the_first_sees()
        except BaseException:
            if self.lock:
                self.lock.close()
            raise

    def _see_what_the_first_sees(self) -> None:
        """Wait until this host sees the first host's steps: a network file system may be late."""
        steps = first_decides(self.steps)
        end = time.monotonic() + SEEN_WITHIN_SECONDS
        while self.steps != steps:
            if time.monotonic() > end:
                raise BadInput(
                    f"in {self.folder} the first host sees the checkpoints {in_words(steps)}, but "
                    f"this host sees {in_words(self.steps)}; --out must be the same folder for all "
                    "hosts. If it is, give the same command again in a minute"
                )
            time.sleep(RELOAD_SECONDS)
            self.manager.reload()

    @property
    def latest(self) -> int | None:
        """The newest step that was saved whole; the same on all hosts."""
        return self.manager.latest_step()

    @property
    def steps(self) -> list[int]:
        """The steps that were saved whole, oldest first."""
        return sorted(self.manager.all_steps())

    def save(
        self,
        step: int,
        params: Any,
        rest: Any,
        *,
        identity: Mapping[str, Any],
        notes: Mapping[str, Any],
    ) -> None:
        """Begin to save the state after `step` steps; nothing is done if it is there already.

        Args:
            step: steps that were taken.
            params, rest: the parameters, and all else of the state.
            identity: of run.json.
            notes: what the run knows at this step: `best`, [step, score] of the best checkpoint so
                far, which stays; and what the caller wants to find again, such as the proof of
                what is saved (`training/proof.py`).
        """
        if step == self.latest:
            return
        check_keys({"params": params, "rest": rest})
        items = {
            "params": ocp.args.StandardSave(params),
            "rest": ocp.args.StandardSave(rest),
            "identity": ocp.args.JsonSave(dict(identity)),
            "notes": ocp.args.JsonSave(dict(notes)),
            "checksums": ocp.args.JsonSave(checksums({"params": params, "rest": rest})),
        }
        self.kept.best = notes["best"][0] if notes.get("best") else -1
        with explain_failed_save(self.folder):
            self.manager.wait_until_finished()
            self._empty_deleted()
            self.manager.save(step, args=ocp.args.Composite(**items), force=True)

    def restore(
        self, params: Any, rest: Any, this_run: dict[str, Any], instead: int = 0
    ) -> tuple[int, Any, Any, dict[str, Any]]:
        """The newest state, laid out on the devices as arrays or shapes are.

        Args:
            params, rest: of `save`, arrays or shapes.
            this_run: what `identity` says.
            instead: the step to go on from if the newest cannot be read; those after it are
                renamed, never deleted. 0 for none.

        Returns:
            (step, params, rest, notes).

        Raises:
            BadInput: if the checkpoint is of another run, or cannot be read; a new run is never
                begun in its place.
        """
        if self.latest is None:
            raise BadInput(f"{self.folder} has no checkpoint to restore")
        step = self._step_to_restore(instead) if instead else self.latest
        try:
            restored = self._read(step, params, rest, this_run)
        except Damaged as damage:
            raise self._cannot_be_read(step, str(damage)) from damage
        self._set_aside([newer for newer in self.steps if newer > step])
        return step, *restored

    def _step_to_restore(self, instead: int) -> int:
        """The newest step if it is whole, else `instead`; the first host looks for all."""
        *older, newest = self.steps
        problem = first_decides(examine(self.folder / str(newest)) if is_first() else None)
        if problem is None:
            return newest
        if is_first():
            print(f"checkpoint {self.folder / str(newest)} cannot be read: {problem}")
        if instead not in older:
            raise BadInput(
                f"{self.folder} has no checkpoint of step {instead} before {newest} to go on from; "
                f"it has {in_words(older)}"
            )
        problem = first_decides(examine(self.folder / str(instead)) if is_first() else None)
        if problem is not None:
            raise self._cannot_be_read(instead, problem)
        return instead

    def _read(
        self, step: int, params: Any, rest: Any, this_run: dict[str, Any]
    ) -> tuple[Any, Any, dict[str, Any]]:
        """The state after `step` steps and its notes; Damaged if it is not what was saved."""
        arrays = ocp.args.Composite(
            params=ocp.args.StandardRestore(params), rest=ocp.args.StandardRestore(rest)
        )
        texts = ocp.args.Composite(
            **{name: ocp.args.JsonRestore() for name in ("identity", "notes", "checksums")}
        )
        saved = or_damaged(lambda: self.manager.restore(step, args=texts))
        then = as_it_was(this_run, saved.identity)
        check_identity(saved.identity, then, f"checkpoint {self.folder / str(step)}")
        restored = or_damaged(lambda: self.manager.restore(step, args=arrays))
        found = {"params": restored.params, "rest": restored.rest}
        check_sums(checksums(found), saved.checksums)
        return restored.params, restored.rest, saved.notes

    def _cannot_be_read(self, step: int, problem: str) -> BadInput:
        """The error that says so, and which other checkpoint is whole."""
        bad = []
        way_out = "No other can be read; to start again, choose another --out"
        for other in reversed(self.steps):
            if other >= step:
                continue
            if examine(self.folder / str(other)) is not None:
                bad.append(other)
                continue
            also = f" ({', '.join(map(str, bad))} cannot be read either)" if bad else ""
            way_out = (
                f"The newest before it that is whole is {other}{also}: the same command with "
                f"--restore-step {other} goes on from it and renames what comes after it"
            )
            break
        return BadInput(
            f"checkpoint {self.folder / str(step)} cannot be read: {problem}. "
            f"Nothing was changed. {way_out}"
        )

    def _set_aside(self, steps: Sequence[int]) -> None:
        """Rename checkpoints, so that the run writes these steps again."""
        if not steps:
            return
        for step in steps if is_first() else ():
            aside = self.folder / f"{step}.unreadable"
            number = 1
            while aside.exists():
                number += 1
                aside = self.folder / f"{step}.unreadable-{number}"
            (move_folder if self.remote else Path.rename)(self.folder / str(step), aside)
            print(f"renamed checkpoint {step} to {aside}")
        barrier("checkpoints renamed")
        self.manager.reload()
        self._see_what_the_first_sees()

    def _empty_deleted(self) -> None:
        """Delete for good what the saves before have put away."""
        if is_first() and not self.remote:
            shutil.rmtree(self.folder / DELETED, ignore_errors=True)

    def close(self) -> None:
        """Finish saving and let go of the folder."""
        try:
            with explain_failed_save(self.folder):
                self.manager.close()
                self._empty_deleted()
        finally:
            if self.lock:
                self.lock.close()


def in_words(steps: Sequence[int]) -> str:
    """Steps, for messages."""
    return ", ".join(map(str, steps)) or "none"


@contextlib.contextmanager
def explain_failed_save(folder: Path) -> Iterator[None]:
    """Turn what a disk refused, in this save or one before in the background, into BadInput."""
    try:
        yield
    except Exception as error:  # Orbax and tensorstore raise errors of several kinds for it
        whole = f"{error} {error.__cause__}"
        full = "No space left" in whole or "quota exceeded" in whole
        if full or getattr(error, "errno", None) in FULL:
            problem = f"the disk of {folder} is full"
        elif isinstance(error, OSError) or "local file" in whole or refused(folder, error, whole):
            problem = f"{folder} cannot be written to ({in_a_line(error)})"
        else:
            raise
        mend = "See to the bucket" if in_bucket(folder) else "Make room or mend the disk"
        raise BadInput(
            f"{problem}, so the last checkpoint was not saved; those that are there are whole. "
            f"{mend}, and give the same command again: the run goes on from them"
        ) from error


def refused(folder: Path, error: Exception, text: str) -> bool:
    """Whether an error with this text comes from the bucket in which `folder` is."""
    return in_bucket(folder) and (isinstance(error, client_errors()) or str(folder) in text)
