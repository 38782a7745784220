"""Checkpoints with checksums, saved by Orbax to disks and buckets."""

import contextlib
import errno
import gc
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import fsspec
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from etils.epath import gpath
from jax.errors import JaxRuntimeError
from orbax.checkpoint._src.path import gcs_utils
from orbax.checkpoint._src.serialization import tensorstore_utils
from orbax.checkpoint.checkpoint_managers import preservation_policy

from coder_jax.devices.hosts import barrier, first_decides, host_count, is_first, lost_host
from coder_jax.devices.mesh import OUT_OF_MEMORY
from coder_jax.models.dropout import GOLDEN_RATIO, mix_bits
from coder_jax.training.run_folder import RunJson, as_it_was, check_identity
from coder_jax.training.system import Notes
from data_pipeline.files.buckets import address, client_errors, in_bucket, move_folder, open_bucket
from data_pipeline.files.identity import typed
from data_pipeline.process import BadInput

# -------------------------------------------------------------------------------------------------
# Checksums of a state's arrays, by which damage is detected on restore.
#
# tensorstore checks the indexes of what it stores, but not the bytes of the arrays: a bit that
# flips on a disk comes back as another weight. A checksum here is a sum of integers over all
# elements, so it does not depend on how an array is spread over devices and hosts, and each device
# reads only its own part.


class _Damaged(Exception):
    """A checkpoint is unreadable or does not hold what was saved; the message says what."""


@jax.jit
def _checksum(array: jax.Array) -> jax.Array:
    """uint32: the sum of a hash of every element's bits and place, modulo 2^32.

    The hash is a bijection of the bits, so that one changed element always changes the sum; several
    go unnoticed once in four billion.
    """
    bits = jax.lax.bitcast_convert_type(array, jnp.dtype(f"uint{8 * array.dtype.itemsize}"))
    place = jnp.zeros(array.shape, jnp.uint32)
    for dimension in range(array.ndim):
        index = jax.lax.broadcasted_iota(jnp.uint32, array.shape, dimension)
        place += index * jnp.uint32((GOLDEN_RATIO * (2 * dimension + 1)) % 2**32)
    return jnp.sum(mix_bits(bits.astype(jnp.uint32) ^ mix_bits(place)), dtype=jnp.uint32)


def _checksums(tree: Any) -> dict[str, int]:
    """The checksum of every array, by its path; values have at most 32 bits.

    Every host calls it with the same tree, as it does the step.
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
    sums = jax.device_get([_checksum(array) for _, array in leaves])
    return {name: int(value) for name, value in zip(names, sums, strict=True)}


def _check_sums(found: dict[str, int], saved: dict[str, int]) -> None:
    """Raise Damaged, naming an array, unless all checksums match."""
    wrong = sorted(name for name in found | saved if found.get(name) != saved.get(name))
    if wrong:
        more = f" and {len(wrong) - 1} more arrays" if len(wrong) > 1 else ""
        raise _Damaged(
            f"{wrong[0]}{more} came back with other values than were saved (by checksum), so the "
            "file was changed or the disk is failing"
        )


# -------------------------------------------------------------------------------------------------
# Changes to Orbax: support of s3:// buckets, and less output.
#
# Orbax writes arrays through tensorstore, which has a driver for S3, but hands it only gs:// and
# local paths (google/orbax issue 359). Here its three functions that tell them apart learn s3:// as
# well. Small files go through epath and fsspec.

_Spec = dict[str, Any]


def _checkpoint_folder(out: str | Path) -> Path:
    """OUT/checkpoints for Orbax, on this machine or in a bucket.

    Raises:
        BadInput: if the package for such addresses is missing, or this Orbax cannot be told.
    """
    if not in_bucket(out):
        return (Path(out) / "checkpoints").resolve()
    url = address(out)
    files, _ = open_bucket(url)
    # tensorstore writes into the same folders, so fsspec must not cache listings: otherwise only
    # files in a stale listing would be deleted of a checkpoint that makes place for another.
    for protocol in (files.protocol,) if isinstance(files.protocol, str) else files.protocol:
        fsspec.config.conf.setdefault(protocol, {})["use_listings_cache"] = False
    # With TensorFlow installed epath would use its file systems, which do not know s3://.
    os.environ["EPATH_USE_TF"] = "false"
    gpath._is_tf_installed.cache_clear()
    if url.startswith("s3://"):
        _allow_s3()
    return epath.Path(f"{url}/checkpoints")


def _atomicity(folder: Path) -> ocp.options.AtomicityOptions:
    """How a checkpoint is committed: by a rename or, in a bucket, by a file written last."""
    modes = ocp.options.AtomicityMode
    mode = modes.COMMIT_FILE if in_bucket(folder) else modes.ATOMIC_RENAME
    return ocp.options.AtomicityOptions(mode=mode)


def _allow_s3() -> None:
    """Make this process's Orbax accept s3:// addresses; a second call changes nothing.

    Raises:
        BadInput: if Orbax has other functions than those that are known here.
    """
    probe = "s3://bucket/folder"
    try:
        if tensorstore_utils.build_kvstore_tspec(probe, use_ocdbt=False)["driver"] == "s3":
            return
        _extend(gcs_utils, "get_kvstore_for_gcs", lambda known: lambda path: _s3_or(known, path))
        _extend(
            tensorstore_utils,
            "_use_gcs_driver",
            lambda known: lambda path: path.startswith("s3://") or known(path),
        )
        _extend(
            tensorstore_utils,
            "_normalize_path",
            lambda known: lambda path: re.sub("^s3:/(?!/)", "s3://", known(path)),
        )
        driver = tensorstore_utils.build_kvstore_tspec(probe, use_ocdbt=False)["driver"]
    except (AttributeError, NameError, KeyError, TypeError, ValueError) as error:
        driver = f"error: {error}"
    if driver != "s3":
        raise BadInput(
            f"checkpoints cannot be kept at s3:// with orbax-checkpoint {ocp.__version__} "
            f"({driver}); install the version of constraints.txt, or mount the bucket as a folder"
        )


def _extend(module: Any, name: str, around: Callable[[Any], Any]) -> None:
    """Replace a function of a module by `around` of it."""
    setattr(module, name, around(getattr(module, name)))


def _s3_or(known: Callable[[str], _Spec], path: str) -> _Spec:
    """tensorstore's spec for an s3:// address; for any other address the result of `known`.

    fsspec reads end point and region from the environment, but tensorstore must be told.
    """
    if not path.startswith("s3://"):
        return known(path)
    parts = urlsplit(path)
    spec: _Spec = {"driver": "s3", "bucket": parts.netloc, "path": parts.path.lstrip("/")}
    for option, names in (
        ("endpoint", ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")),
        ("aws_region", ("AWS_REGION", "AWS_DEFAULT_REGION")),
    ):
        values = [os.environ[name] for name in names if os.environ.get(name)]
        spec |= {option: values[0]} if values else {}
    if os.environ.get("AWS_ACCESS_KEY_ID"):  # else it looks for files first, and says so at length
        spec["aws_credentials"] = {"type": "environment"}
    return spec


def _quieten() -> None:
    """From now on drop log records with a traceback, and echoes of dropped reads and writes.

    One full disk or damaged file gives pages of tracebacks, one for each array under way, and the
    message that says what to do would be lost among them: what failed is raised as well. And one
    item of a checkpoint, read alone, has no metadata file of a whole one, which Orbax warns of.
    """
    for name in ("absl", "asyncio"):
        logging.getLogger(name).addFilter(_is_news)
    if sys.unraisablehook is not _without_echoes:
        _before.append(sys.unraisablehook)
        sys.unraisablehook = _without_echoes


_before: list[Any] = []


def _is_news(record: logging.LogRecord) -> bool:
    return record.exc_info is None and not str(record.msg).startswith("Metadata file does not")


def _without_echoes(unraisable: Any) -> None:
    if str(unraisable.exc_value) != "Event loop is closed":
        _before[-1](unraisable)


# What tensorstore says of a bucket that refuses or cannot be reached.
_REFUSED = re.compile(r"\b(PERMISSION_DENIED|UNAUTHENTICATED|UNAVAILABLE|DEADLINE_EXCEEDED)\b")


# -------------------------------------------------------------------------------------------------
# Reading checkpoints on one host: for an export during a run, and to find complete ones.

_Read = TypeVar("_Read")


def saved_steps(out: Path) -> list[int]:
    """The steps with a checkpoint, oldest first, for readers beside a running training."""
    folder = _checkpoint_folder(out)
    names = ocp.path.step.standard_name_format(atomicity_options=_atomicity(folder))
    return sorted(found.step for found in names.find_all(folder))


def newest_step(out: str) -> int:
    """The step of the newest checkpoint; 0 if there is none."""
    return max(saved_steps(Path(out)), default=0)


def best_step(out: Path) -> int:
    """The step of a run's best checkpoint, by the score that its system names.

    Raises:
        BadInput: if the newest checkpoint, which tells it, cannot be read, or tells none.
    """
    newest = saved_steps(out)[-1]
    best = _read_text(out, newest, "notes").get("best")
    if best is None or best[0] not in saved_steps(out):
        raise BadInput(
            f"checkpoint {_checkpoint_folder(out) / str(newest)} tells no best one: the run was "
            "not scored yet. Let it go on to its next scores (--eval-steps), or name a step of "
            f"{', '.join(map(str, saved_steps(out)))}"
        )
    return best[0]


def read_params(out: Path, step: int) -> dict[str, Any]:
    """The parameters of a run after `step` steps, as NumPy arrays, whatever devices they had.

    Raises:
        BadInput: if they cannot be read, or are not what was saved.
    """
    return _read_of(out, step, lambda folder: _read_item(folder, "params"))


def read_extra(out: Path, step: int) -> Any:
    """`TrainState.extra` of a checkpoint, as NumPy arrays.

    Raises:
        BadInput: if it cannot be read, or is not what was saved.
    """
    return _read_of(out, step, lambda folder: _read_item(folder, "rest")["extra"])


def read_saved_identity(out: Path, step: int) -> dict[str, Any]:
    """run.json as it was when the checkpoint after `step` steps was saved.

    Raises:
        BadInput: if it cannot be read.
    """
    return _read_text(out, step, "identity")


def read_notes(out: Path, step: int) -> Notes:
    """The notes saved with the checkpoint after `step` steps (`Checkpoints.save`).

    Raises:
        BadInput: if it cannot be read.
    """
    return typed(_read_text(out, step, "notes"), Notes, f"the notes of step {step} of {out}")


def _read_text(out: Path, step: int, item: str) -> dict[str, Any]:
    """An item of a checkpoint that is JSON; BadInput if it cannot be read."""
    return _read_of(out, step, lambda folder: _or_damaged(lambda: _read_json_item(folder, item)))


def _read_of(out: Path, step: int, read: Callable[[Path], Any]) -> Any:
    """What `read` finds in the folder of a checkpoint; BadInput if it is damaged."""
    folder = _checkpoint_folder(out) / str(step)
    try:
        return read(folder)
    except _Damaged as damage:
        raise BadInput(
            f"checkpoint {folder} cannot be read: {damage}; take another step"
        ) from damage


def _examine(folder: Path) -> str | None:
    """The problem of the checkpoint in `folder`, read by this host alone; None if it is whole."""
    try:
        for item in ("params", "rest"):
            _read_item(folder, item)
        for item in ("identity", "notes"):
            _or_damaged(partial(_read_json_item, folder, item))
    except _Damaged as damage:
        return str(damage)
    return None


def _read_item(folder: Path, item: str) -> Any:
    """One item of a checkpoint as NumPy arrays, without waiting for other hosts.

    Raises:
        Damaged: if it cannot be read, or is not what was saved.
    """
    alone = _this_host()
    _quieten()

    def read() -> tuple[Any, dict[str, int]]:
        saved = _read_json_item(folder, "checksums")
        arrays = ocp.StandardCheckpointHandler(multiprocessing_options=alone)
        with ocp.Checkpointer(arrays, multiprocessing_options=alone) as reader:
            about = reader.metadata(folder / item).item_metadata
            if about is None:
                raise _Damaged(f"files of {folder / item} are missing, among them _METADATA")
            shapes = _numbered(about.tree)
            like = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), shapes)
            restored = reader.restore(folder / item, args=ocp.args.StandardRestore(like))
        return restored, saved

    restored, saved = _or_damaged(read)
    saved = {name: value for name, value in saved.items() if name.startswith(f"{item}/")}
    _check_sums(_checksums({item: restored}), saved)
    return restored


def _numbered(tree: Any) -> Any:
    """The saved tree, from its metadata, in which numbers of children became text.

    nnx numbers the layers of an encoder, 0, 1, 2, ...; Orbax writes keys as text, by which 10 comes
    before 2. `_check_keys` sees to it that no name which is saved looks like a number.
    """
    if isinstance(tree, list):
        return [_numbered(child) for child in tree]
    if not isinstance(tree, dict):
        return tree
    numbers = bool(tree) and all(_is_number(key) for key in tree)
    pairs = [(int(key) if numbers else key, _numbered(child)) for key, child in tree.items()]
    return dict(sorted(pairs) if numbers else pairs)


def _is_number(key: Any) -> bool:
    """Whether a key is the text of a child's number."""
    return isinstance(key, str) and key.isascii() and key.isdecimal() and str(int(key)) == key


def _check_keys(tree: Any) -> None:
    """Raise ValueError if a tree read later would not have the keys that are saved."""
    for path, _ in jax.tree_util.tree_leaves_with_path(tree):
        if any(_is_number(getattr(key, "key", None)) for key in path):
            raise ValueError(
                f"{jax.tree_util.keystr(path)}: found a number as text; expected an integer, or a "
                "name that is no number: when it is read, a number is an integer"
            )


def _read_json_item(folder: Path, item: str) -> dict[str, Any]:
    """One item of a checkpoint that is JSON, without waiting for other hosts."""
    alone = _this_host()
    handler = ocp.JsonCheckpointHandler(multiprocessing_options=alone)
    with ocp.Checkpointer(handler, multiprocessing_options=alone) as reader:
        return _object(reader.restore(folder / item), item)


def _object(found: Any, item: str) -> dict[str, Any]:
    """What a JSON item of a checkpoint holds; Damaged if it is no object."""
    if not isinstance(found, dict):
        raise _Damaged(f"{item} holds {str(found)[:80]}, where an object was saved")
    return found


def _this_host() -> ocp.options.MultiprocessingOptions:
    """Options that make Orbax wait for no other host."""
    return ocp.options.MultiprocessingOptions(
        primary_host=jax.process_index(), active_processes={jax.process_index()}
    )


def _or_damaged(read: Callable[[], _Read]) -> _Read:
    """The result of `read`; errors of Orbax and tensorstore become a one-line Damaged, or BadInput
    where the checkpoint is not at fault.

    After the first failed read Orbax drops the others, each of which then prints a traceback of its
    own; these are kept off the terminal, so that the message can be found.
    """
    hooks = sys.unraisablehook, sys.excepthook
    sys.unraisablehook, sys.excepthook = lambda _: None, lambda *_: None
    try:
        try:
            return read()
        except Exception as error:
            if host_count() > 1 and lost_host(error):
                raise  # that host's end, not the checkpoint's
            problem, way_out = _error_in_a_line(error), _way_out(error)
        gc.collect()  # the dropped reads
        time.sleep(0.2)  # those still under way in tensorstore's threads
    finally:
        sys.unraisablehook, sys.excepthook = hooks
    if way_out:
        raise BadInput(
            f"a checkpoint cannot be read here, and may be whole ({problem}): {way_out}, and give "
            "the same command again. Nothing was changed"
        )
    raise _Damaged(problem)


def _way_out(error: BaseException | None) -> str | None:
    """What to do about a failed read that is this machine's fault; None if it is the file's."""
    while error is not None:
        if isinstance(error, MemoryError) or (
            isinstance(error, JaxRuntimeError) and OUT_OF_MEMORY in str(error)
        ):
            return "make memory free, or use more devices or larger ones"
        if isinstance(error, (PermissionError, *client_errors())) or _REFUSED.search(str(error)):
            return "check the rights, the credentials in the environment and the network"
        error = error.__cause__ or error.__context__
    return None


def _error_in_a_line(error: BaseException) -> str:
    """The message of an Orbax or tensorstore error, without its pages of settings."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split("[tensorstore_spec=")[0].split()) or type(error).__name__
    return text if len(text) <= 400 else f"{text[:200]} ... {text[-200:]}"


# -------------------------------------------------------------------------------------------------
# The checkpoints of a run.
#
# OUT/checkpoints/N/  state after step N: params, rest (of the state), identity (as in run.json),
#                     notes (what the run knew then), checksums
#
# A checkpoint is written under another name and renamed when it is whole; one that makes place for
# another is renamed before it is deleted. So what bears a step's number is whole, whenever the
# process was killed. What was damaged later, by the disk, shows when it is read. In a bucket, which
# has no renames, a file that is written last says that a checkpoint is whole.

_FULL = (errno.ENOSPC, errno.EDQUOT)
_DELETED = "deleted"  # folder of the checkpoints that made place for others
# NFS may cache for a minute what a folder holds, and that a file is not there.
_SEEN_WITHIN_SECONDS = 90
_RELOAD_SECONDS = 2


def comes_into_sight(
    is_there: Callable[[], bool], look_again: Callable[[], object] = lambda: None
) -> bool:
    """Whether this host sees what the first host wrote; a network file system may lag."""
    end = time.monotonic() + _SEEN_WITHIN_SECONDS
    while not is_there():
        if time.monotonic() > end:
            return False
        time.sleep(_RELOAD_SECONDS)
        look_again()
    return True


class _Kept(preservation_policy.PreservationPolicy):
    """The policy of which checkpoints stay: the two newest, the best, and multiples of some steps.

    Args:
        multiples: the steps, at multiples of any of which they stay.
        most: so many of these stay, the newest; 0: all.
    """

    def __init__(self, multiples: Sequence[int], most: int):
        self.multiples, self.most, self.best = multiples, most, -1

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> Sequence[bool]:
        """A flag for each checkpoint, oldest first."""
        steps = [found.step for found in checkpoints]
        regular = [step for step in steps if any(step % one == 0 for one in self.multiples)]
        kept = {*regular[-self.most :], *steps[-2:], self.best}  # [-0:] is all
        return [step in kept for step in steps]


class Checkpoints:
    """The checkpoints of the run that this process trains; saving continues in the background.

    Args:
        out: the run folder. On this machine the caller has locked it (`lock_run`).
        keep_steps: checkpoints at multiples of any of these steps stay, as do the best one and the
            two newest.
        most: so many of those at multiples stay, the newest; 0: all.
    """

    def __init__(self, out: Path, keep_steps: Sequence[int], most: int = 0):
        self.remote = in_bucket(out)
        self.folder = _checkpoint_folder(out)
        self.kept = _Kept(keep_steps, most)
        options = ocp.CheckpointManagerOptions(
            preservation_policy=self.kept,
            todelete_subdir=None if self.remote else _DELETED,
            atomicity_options=_atomicity(self.folder),
        )
        _quieten()
        self._clear_killed_saves()
        self.manager = ocp.CheckpointManager(self.folder, options=options)
        self._see_what_the_first_sees()

    def _clear_killed_saves(self) -> None:
        """Delete what killed saves left, before anything is read or saved.

        Orbax would do it in the background and wait for it only before a save: a run that ends
        without one, or fails early, would leave it, or a part of it.
        """
        if is_first() and self.folder.is_dir():
            atomicity = _atomicity(self.folder)
            for left in ocp.path.step.all_temporary_paths(self.folder, atomicity_options=atomicity):
                epath.Path(left.get()).rmtree()

    def _see_what_the_first_sees(self) -> None:
        """Wait until this host sees the first host's steps; a network file system may lag."""
        steps = first_decides(self.steps)
        if not comes_into_sight(lambda: self.steps == steps, self.manager.reload):
            raise BadInput(
                f"in {self.folder} the first host sees the checkpoints {_in_words(steps)}, but "
                f"this host sees {_in_words(self.steps)}; --out must be the same folder for all "
                "hosts. If it is, give the same command again in a minute"
            )

    @property
    def latest(self) -> int | None:
        """The newest complete step; the same on all hosts."""
        return self.manager.latest_step()

    @property
    def steps(self) -> list[int]:
        """The complete steps, oldest first."""
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
        """Start saving the state after `step` steps; nothing is done if it exists.

        Args:
            step: steps that were taken.
            params, rest: the parameters, and all else of the state.
            identity: of run.json.
            notes: what the run knows at this step: `best`, [step, score] of the best checkpoint so
                far, which stays; and what the caller wants to find again, such as the proof of
                what is saved (`training/system.py`).
        """
        if step == self.latest:
            return
        _check_keys({"params": params, "rest": rest})
        items = {
            "params": ocp.args.StandardSave(params),
            "rest": ocp.args.StandardSave(rest),
            "identity": ocp.args.JsonSave(dict(identity)),
            "notes": ocp.args.JsonSave(dict(notes)),
            "checksums": ocp.args.JsonSave(_checksums({"params": params, "rest": rest})),
        }
        self.kept.best = notes["best"][0] if notes.get("best") else -1
        with _explain_failed_save(self.folder):
            self.manager.wait_until_finished()
            self._empty_deleted()
            self.manager.save(step, args=ocp.args.Composite(**items), force=True)

    def restore(
        self, params: Any, rest: Any, this_run: RunJson, instead: int = 0
    ) -> tuple[int, Any, Any, dict[str, Any]]:
        """The newest state, placed on the devices as the given arrays or shapes are.

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
        except _Damaged as damage:
            raise self._cannot_be_read(step, str(damage)) from damage
        self._set_aside([newer for newer in self.steps if newer > step])
        return step, *restored

    def _step_to_restore(self, instead: int) -> int:
        """The newest step if it is whole, else `instead`; the first host decides for all."""
        *older, newest = self.steps
        problem = first_decides(_examine(self.folder / str(newest)) if is_first() else None)
        if problem is None:
            return newest
        if is_first():
            print(f"checkpoint {self.folder / str(newest)} cannot be read: {problem}")
        if instead not in older:
            raise BadInput(
                f"{self.folder} has no checkpoint of step {instead} before {newest} to go on from; "
                f"it has {_in_words(older)}"
            )
        problem = first_decides(_examine(self.folder / str(instead)) if is_first() else None)
        if problem is not None:
            raise self._cannot_be_read(instead, problem)
        return instead

    def _read(
        self, step: int, params: Any, rest: Any, this_run: RunJson
    ) -> tuple[Any, Any, dict[str, Any]]:
        """The state after `step` steps and its notes; Damaged if it is not as saved."""
        arrays = ocp.args.Composite(
            params=ocp.args.StandardRestore(params), rest=ocp.args.StandardRestore(rest)
        )
        texts = ocp.args.Composite(
            **{name: ocp.args.JsonRestore() for name in ("identity", "notes", "checksums")}
        )
        saved = _or_damaged(lambda: self.manager.restore(step, args=texts))
        for item in ("identity", "notes", "checksums"):
            _object(saved[item], item)
        then = as_it_was(this_run, saved.identity)
        check_identity(saved.identity, then, f"checkpoint {self.folder / str(step)}")
        restored = _or_damaged(lambda: self.manager.restore(step, args=arrays))
        found = {"params": restored.params, "rest": restored.rest}
        _check_sums(_checksums(found), saved.checksums)
        return restored.params, restored.rest, saved.notes

    def _cannot_be_read(self, step: int, problem: str) -> BadInput:
        """The error for a damaged checkpoint; it names another one that is whole."""
        bad = []
        way_out = "No other can be read; to start again, choose another --out"
        for other in reversed(self.steps):
            if other >= step:
                continue
            try:
                is_whole = _examine(self.folder / str(other)) is None
            except BadInput:  # nor can it be read here, for whatever reason
                is_whole = False
            if not is_whole:
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
        """Rename checkpoints, so that the run writes their steps again."""
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
        """Delete for good what earlier saves moved away."""
        if is_first() and not self.remote:
            shutil.rmtree(self.folder / _DELETED, ignore_errors=True)

    def close(self) -> None:
        """Finish saving and close the folder."""
        with _explain_failed_save(self.folder):
            self.manager.close()
            self._empty_deleted()


def _in_words(steps: Sequence[int]) -> str:
    """Steps, for messages."""
    return ", ".join(map(str, steps)) or "none"


@contextlib.contextmanager
def _explain_failed_save(folder: Path) -> Iterator[None]:
    """Turn a disk's error, in this save or an earlier background save, into BadInput."""
    try:
        yield
    except Exception as error:  # Orbax and tensorstore raise errors of several kinds for it
        whole = f"{error} {error.__cause__}"
        full = "No space left" in whole or "quota exceeded" in whole
        if full or getattr(error, "errno", None) in _FULL:
            problem = f"the disk of {folder} is full"
        elif isinstance(error, OSError) or "local file" in whole or _refused(folder, error, whole):
            problem = f"{folder} cannot be written to ({_error_in_a_line(error)})"
        else:
            raise
        mend = "See to the bucket" if in_bucket(folder) else "Make room or mend the disk"
        raise BadInput(
            f"{problem}, so the last checkpoint was not saved; those that are there are whole. "
            f"{mend}, and give the same command again: the run goes on from them"
        ) from error


def _refused(folder: Path, error: Exception, text: str) -> bool:
    """Whether an error text comes from the bucket of `folder`."""
    return in_bucket(folder) and (isinstance(error, client_errors()) or str(folder) in text)
