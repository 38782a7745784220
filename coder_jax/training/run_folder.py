"""The folder of a training run: its identity, small files and lock, and how a run is extended."""

import atexit
import contextlib
import dataclasses
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from coder_jax.devices.hosts import host_count, is_first
from data_pipeline import process
from data_pipeline.dataset.store import Counts
from data_pipeline.files.buckets import address, explained, file_sizes, in_bucket, open_bucket
from data_pipeline.files.identity import (
    PROVENANCE,
    RUN,
    Count,
    Hash,
    Length,
    Positive,
    differences,
    marked,
    typed,
    write_identity,
)
from data_pipeline.files.identity import read_identity as read_identity_file
from data_pipeline.files.whole import LOCK as FOLDER_LOCK
from data_pipeline.files.whole import (
    NO_LOCKS,
    OLD,
    PARTIAL,
    beside,
    lock_file,
    whole_folder,
    written_whole,
)
from data_pipeline.process import BadInput

# -------------------------------------------------------------------------------------------------
# The lock of a run folder, which admits one training process and ends with it.

T = TypeVar("T")

_LOCK = "lock"

# A network file system releases the lock of a dead machine once its lease is over.
_LEASE_SECONDS = 120
_RETRY_SECONDS = 2


def lock_run(out: Path) -> IO[str] | None:
    """Lock OUT/lock until the returned file is closed or the process ends, even by kill -9.

    None where the file system has no locks; this is said.

    Raises:
        BadInput: if another process holds it: one of another machine still after _LEASE_SECONDS.
        Stopped: if a signal asked for it meanwhile.
    """
    try:
        file = _wait_for_lock(out)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        print(f"{out} cannot be locked ({error.strerror}): start no second run on it")
        return None
    # A full disk must not stop a run from resuming: the name is only for the message below.
    with contextlib.suppress(OSError):
        os.ftruncate(file.fileno(), 0)
        os.write(file.fileno(), f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    return file


def _wait_for_lock(out: Path) -> IO[str]:
    """OUT/lock, locked at once or, if another machine seems to hold it, after a while."""
    end = None
    while (file := lock_file(out / _LOCK)) is None:
        owner = (out / _LOCK).read_text(encoding="utf-8").strip() or "another process"
        _, elsewhere, machine = owner.rpartition(" on ")
        same_machine = not elsewhere or machine == socket.gethostname()
        if same_machine or (end is not None and time.monotonic() > end):
            raise BadInput(
                f"{owner} is training in {out}; wait until it ends or stop it, or choose another "
                "--out. Two processes would overwrite each other's checkpoints"
            )
        if end is None:
            end = time.monotonic() + _LEASE_SECONDS
            print(f"{out} is locked by {owner}; waiting {_LEASE_SECONDS} s, in case it is gone")
        if host_count() == 1:  # else the others, who wait for this host, would wait for ever
            process.poll()
        time.sleep(_RETRY_SECONDS)
    return file


# -------------------------------------------------------------------------------------------------
# The small files of a run; if OUT is in a bucket, a local copy that is published.
#
# run.json, metrics.jsonl, tensorboard/, index/ (of refreshes) and what the run keeps of its data
# are written here, by the first host, and copied to OUT at each checkpoint and at the end.
# Checkpoints are written to OUT itself, by all hosts.

INDEX = "index"  # the folder of what refreshes wrote; what is old there goes in the bucket, too
_NOT_FETCHED = ("checkpoints/", "tensorboard/", "wandb/")
# Trackers write and delete files of their own meanwhile: wandb/, mlflow.db-journal.
_NOT_PUBLISHED = ("checkpoints/", "wandb/", "mlflow.db-", _LOCK)


class RunFiles:
    """The small files of the run that this process trains; all are published when the context ends.

    Args:
        out: the run folder, here or in a bucket.
        kept: names of folders and files that a start which was cut off may have left there.

    Attributes:
        name: OUT, for messages.
        folder: the folder to read and write them in: OUT itself if it is on this machine.

    Raises:
        BadInput: if the bucket cannot be read, or holds something else.
    """

    def __init__(self, out: str | Path, kept: Sequence[str] = ("tokenizer",)):
        self.url = address(out) if in_bucket(out) else None
        self.name = self.url or str(out)
        self.published: dict[str, tuple[int, int]] = {}
        self.folder = Path(out)
        if self.url:
            self.folder = _fetch_small_files(self.url, kept)
            # What was fetched is already published.
            self.published = {name: _state_of(file) for name, file in self._to_publish().items()}

    def fetch(self) -> None:
        """Fetch what the first host has published."""
        if self.url and not is_first():
            shutil.rmtree(self.folder / INDEX, ignore_errors=True)
            _fetch_into(self.folder, self.url)

    def publish(self) -> None:
        """Copy new files to the bucket; run.json is the last file of a new run.

        Raises:
            BadInput: if the bucket cannot be written to.
        """
        if self.url is None or not is_first():
            return
        found = self._to_publish()
        with explained(self.url, "write"):
            files, root = open_bucket(self.url)
            for name in sorted(found, key=lambda name: name == RUN.file):
                state = _state_of(found[name])
                if self.published.get(name) != state:
                    files.put_file(str(found[name]), f"{root}/{name}")
                    self.published[name] = state
            for name in [name for name in self.published if name not in found]:
                if name.startswith(f"{INDEX}/"):
                    files.rm_file(f"{root}/{name}")
                del self.published[name]

    def _to_publish(self) -> dict[str, Path]:
        """The files to publish, by name."""
        files = [file for file in sorted(self.folder.rglob("*")) if file.is_file()]
        found = {str(file.relative_to(self.folder)): file for file in files}
        return {name: file for name, file in found.items() if _is_published(name)}

    def __enter__(self) -> "RunFiles":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            self.publish()
        except BadInput as problem:
            if error is None:
                raise
            print(problem)  # the other error is the cause


def _state_of(file: Path) -> tuple[int, int]:
    """What changes with a file: its size and modification time."""
    stat = file.stat()
    return stat.st_size, stat.st_mtime_ns


def _is_published(name: str) -> bool:
    """Whether a file of the run's folder is published: not while it is half written."""
    half = name.endswith(".unfinished") or any(part.startswith(".") for part in Path(name).parts)
    return not half and not name.startswith(_NOT_PUBLISHED)


def small_files(out: str | Path) -> Path:
    """A folder with the small files of an existing run, for reading.

    Raises:
        BadInput: if the bucket cannot be read, or there is no run.
    """
    files = RunFiles(out)
    if files.url and not (files.folder / RUN.file).exists():
        raise BadInput(
            f"{files.url} is not the folder of a training run: it has no {RUN.file}; check it"
        )
    return files.folder


def _is_run(path: str | Path) -> bool:
    """Whether `path` is the folder of a training run, here or in a bucket."""
    if not in_bucket(path):
        return (Path(path) / RUN.file).is_file()
    with explained(address(path), "read"):
        return RUN.file in file_sizes(*open_bucket(address(path)))


def _fetch_small_files(url: str, kept: Sequence[str] = ("tokenizer",)) -> Path:
    """A temporary folder with a run's small files, empty if there is none.

    Raises:
        BadInput: if the bucket cannot be read, or there is something else at the address.
    """
    folder = Path(tempfile.mkdtemp(prefix="coder_jax-run-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _fetch_into(folder, url, kept)
    return folder


def _fetch_into(folder: Path, url: str, kept: Sequence[str] = ("tokenizer",)) -> None:
    """Copy the small files of the run at `url`, if there is one."""
    with explained(url, "read"):
        files, root = open_bucket(url)
        names = _names_in(files, root)
        if RUN.file not in names:
            if names - set(kept):  # that is of a start that was cut off
                raise BadInput(
                    f"{url} is not empty (it has {min(names)}) and is not the folder of a run (it "
                    f"has no {RUN.file}); choose another --out, or empty it"
                )
            return
        for name in sorted(names):
            if f"{name}/" in _NOT_FETCHED:
                continue
            for path in files.find(f"{root}/{name}"):
                inside = path.removeprefix(f"{root}/")
                (folder / inside).parent.mkdir(parents=True, exist_ok=True)
                files.get_file(path, str(folder / inside))


def _names_in(files: Any, root: str) -> set[str]:
    """The names of files and folders in a bucket's folder; none if it does not exist.

    Raises:
        FileNotFoundError: if there is no such bucket.
    """
    try:
        found = files.ls(root, detail=False)
    except FileNotFoundError:
        files.ls(root.split("/")[0], detail=False)
        return set()
    return {name.rstrip("/").rsplit("/", 1)[1] for name in found if name.rstrip("/") != root}


# -------------------------------------------------------------------------------------------------
# The folder of a training run.
#
# OUT/run.json        what the run is: configuration, data, start; refused if it differs
# OUT/tokenizer/ ...  what the run keeps of its data
# OUT/checkpoints/    checkpoints.py
# OUT/metrics.jsonl   metrics.py
# OUT/lock            held by the process that trains


@dataclass(frozen=True, kw_only=True)
class AnyDataOfRun:
    """What run.json says of whatever data a run learns from."""

    name: str
    release: str
    cleaning: str
    content_hash: Hash


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What run.json says of how its dataset was made; nothing where that was not recorded.

    Attributes:
        licenses: what the source's files say of the license of each vocabulary.
        command: that builds the dataset.
    """

    licenses: dict[str, str] = dataclasses.field(default_factory=dict)
    command: str = ""


@dataclass(frozen=True, kw_only=True)
class DataOfRun(AnyDataOfRun):
    """What run.json says of the dataset."""

    counts: Counts
    relations: list[str]
    provenance: Provenance = Provenance()


@dataclass(frozen=True, kw_only=True)
class TokenizerOfRun:
    """What run.json says of the tokenizer."""

    hash: Hash
    max_length: Length


@dataclass(frozen=True, kw_only=True)
class SystemOfRun:
    """The name of a run's system; its settings are typed by the system."""

    name: str


@dataclass(frozen=True, kw_only=True)
class OptimizerOfRun:
    """What others read of a run's optimizer."""

    steps: Positive
    learning_rate: Annotated[float, Meta(ge=0)]


@dataclass(frozen=True, kw_only=True)
class ConfigOfRun:
    """The configuration in run.json."""

    recipe: str
    system: SystemOfRun
    optimizer: OptimizerOfRun
    start: str


@dataclass(frozen=True, kw_only=True)
class CarriedFrom:
    """Which checkpoint of another run a run began with."""

    step: Count
    run: Hash  # of its run.json


class StartOfRun(Struct, frozen=True, kw_only=True):
    """What a run must know of its start to go on; a system's own has more."""

    origin: CarriedFrom | UnsetType = field(name="from", default=UNSET)


class Extension(Struct, frozen=True):
    """At which step a run was made longer, and its steps before and after."""

    step: Count
    before: Positive = field(name="from")
    after: Positive = field(name="to")
    epochs_before: float = field(name="from_epochs", default=0.0)
    """0 where it was asked for steps."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """run.json; what there must be of data and start, too, is said by the system."""

    config: ConfigOfRun
    start: StartOfRun
    extended: list[Extension] | UnsetType = UNSET


RunJson = dict[str, Any]
"""run.json as it stands, of any version: compared, saved and hashed with all that it has."""

# What an interrupted claim leaves, besides what the run keeps of its data.
_OF_A_CLAIM = {_LOCK, f"{RUN.file}.unfinished"}


def identity(
    config: Mapping[str, Any], data: Mapping[str, Any], start: StartOfRun | RunJson
) -> RunJson:
    """What must not change when a run resumes: all but where and how it is carried out.

    It also tells the provenance of the data, which may change.

    Args:
        config: of the run, as JSON; its `run` does not count.
        data: of `BatchSource.identity`.
        start: of `System.load_initial`.
    """
    settings = {name: value for name, value in config.items() if name != "run"}
    began = msgspec.to_builtins(start)
    if "from" in began:
        began["from"] = began.pop("from")  # last
    return json.loads(json.dumps(marked(RUN, {"config": settings, **data, "start": began})))


def claim_run_folder(out: Path, this_run: RunJson, data: Path, kept: Sequence[str]) -> None:
    """Make `out` the folder of this run, or check that it already is.

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
    if not path.exists() and names and not {_LOCK} <= names <= _OF_A_CLAIM | set(kept) | hidden:
        raise BadInput(
            f"{out} is not empty and is not the folder of a run (it has no run.json); "
            "choose another --out, or empty it"
        )
    out.mkdir(parents=True, exist_ok=True)
    lock = lock_run(out)
    try:
        is_there = path.exists()
        if is_there:
            check_identity(read_run_identity(out), this_run, str(out))
        for name in kept:
            if is_there and _names_under(data / name) <= _names_under(out / name):
                continue  # else an earlier version began the run, which kept less
            if (data / name).is_file():
                with written_whole(out / name) as file:
                    shutil.copyfile(data / name, file)
                continue
            with whole_folder(out / name) as new:
                shutil.copytree(data / name, new, dirs_exist_ok=True)
        if not is_there:
            write_identity(path, RUN, this_run)  # last: with it the folder is the run's
    finally:
        if lock:
            lock.close()


def _names_under(path: Path) -> set[Path]:
    """The files and folders in a folder, and itself; nothing if it is not there."""
    return {one.relative_to(path) for one in (path, *path.rglob("*")) if one.exists()}


def read_run_identity(out: Path) -> RunJson:
    """The contents of run.json, of the system of whatever run.

    Raises:
        BadInput: if there is no run in `out`, or one of another version.
    """
    path = out / RUN.file
    if not path.exists():
        raise BadInput(f"{out} is not the folder of a training run: it has no run.json; check it")
    found = read_identity_file(path, RUN, RunJson)
    typed_run(found, Run, str(path))
    return found


def typed_run(found: RunJson, content: type[T], source: str) -> T:
    """run.json as a type such as `System.content` has it; BadInput if it is not of the type.

    Args:
        found: of `read_run_identity`.
        content: the type.
        source: what names it in the message.
    """
    return typed(found, content, source, f"make it again with `{RUN.command}`")


def read_identity_if_any(out: Path, system: str, content: Any) -> RunJson | None:
    """The content of the folder's run.json, if it has one.

    Args:
        out: the folder of the run.
        system: the name of the system of now.
        content: what a run of this system must have; one of another is only to be compared.

    Raises:
        BadInput: as `read_run_identity`.
    """
    if not (out / RUN.file).exists():
        return None
    saved = read_run_identity(out)
    if typed_run(saved, Run, str(out)).config.system.name == system:
        typed_run(saved, content, str(out / RUN.file))
    return saved


def system_name(path: str | Path) -> str | None:
    """The name of a run's system; None if it is not a run."""
    if not _is_run(path):
        return None
    return typed_run(read_run_identity(small_files(path)), Run, str(path)).config.system.name


def without_provenance(run: RunJson) -> RunJson:
    """A run, or its data, without how the dataset was made; its content hash says whether it is
    the same.
    """
    if "dataset" not in run:
        return run
    kept = {name: said for name, said in run["dataset"].items() if name != PROVENANCE}
    return {**run, "dataset": kept}


def check_identity(saved: RunJson, current: RunJson, where: str) -> None:
    """Raise BadInput, with every difference, unless both describe the same run."""
    lines = differences(without_provenance(saved), without_provenance(current))
    if lines:
        shown = lines[:20] + ([f"... and {len(lines) - 20} more"] if len(lines) > 20 else [])
        raise BadInput(
            f"{where} holds a run that differs from this one, so it cannot go on:\n  "
            + "\n  ".join(shown)
            + "\nUse the same settings and dataset, or another --out"
        )


# -------------------------------------------------------------------------------------------------
# Extending a run: `train --steps MORE --extend`.
#
# run.json then has the new number of steps and, under "extended", each change: the step at which it
# was made, and the numbers before and after. Checkpoints from before keep what run.json was then. A
# change that no checkpoint has yet counts for nothing: it can be taken back, or made another one.

_CHANGES = "extended"


def going_on(saved: RunJson, current: RunJson, where: str, *, step: int, extend: bool) -> RunJson:
    """What the run in a folder is from now on.

    Args:
        saved: of run.json.
        current: of `identity`, for the settings of now.
        where: the folder, for messages.
        step: of the newest checkpoint, or that the run goes on from; 0 without one.
        extend: whether it may become longer.

    Raises:
        BadInput: if another run is there, with the differences; or this one, but shorter or, unless
            `extend`, longer; with what to do.
    """
    if _CHANGES in saved:
        current = {**current, _CHANGES: saved[_CHANGES]}
    length = steps_of(current), _epochs_of(current)
    if differences(without_provenance(_with_length(saved, *length)), without_provenance(current)):
        check_identity(saved, current, where)  # with the steps, if they differ, too
    recorded = as_saved(saved, step)
    before, now = steps_of(recorded), steps_of(current)
    if now == before:
        return recorded
    asked = f"--epochs is {length[1]:g}, {now:,} steps" if length[1] else f"--steps is {now:,}"
    if now < before:
        raise BadInput(
            f"{where} holds a run of {before:,} steps, and {asked}: a run cannot become "
            f"shorter. Use --steps {before} to go on, `export --step` for one of its earlier "
            "checkpoints, or another --out"
        )
    if not extend and now != steps_of(saved):
        begins = f"goes on from its newest checkpoint, step {step:,}," if step else "begins anew,"
        raise BadInput(
            f"{where} holds a run of {before:,} steps, and {asked}. To make it longer, "
            f"add --extend: it {begins} at the learning rate that a run of {now:,} steps has there "
            f"(with --schedule constant the same as before; with linear it rises again). Or begin "
            f"a new run with its parameters: --from {where} --out NEW"
        )
    change: dict[str, float] = {"step": step, "from": before, "to": now}
    if epochs := _epochs_of(recorded):
        change["from_epochs"] = epochs
    extended = _with_length(recorded, *length)
    return {**extended, _CHANGES: [*recorded.get(_CHANGES, []), change]}


def as_saved(this_run: RunJson, step: int) -> RunJson:
    """The run as it was when its newest checkpoint, of `step`, was saved; 0 without one."""
    changes = this_run.get(_CHANGES, [])
    return before_change(this_run, sum(change["step"] < step for change in changes))


def as_it_was(this_run: RunJson, saved: RunJson) -> RunJson:
    """The run as it was when a checkpoint was written, before it was extended.

    Args:
        this_run: what it is now.
        saved: what the checkpoint says; the number of its changes counts.
    """
    return before_change(this_run, len(saved.get(_CHANGES, [])))


def before_change(this_run: RunJson, number: int) -> RunJson:
    """The run after this many of its extensions."""
    changes = this_run.get(_CHANGES, [])
    if number >= len(changes):
        return this_run
    change = changes[number]
    then = _with_length(this_run, change["from"], change.get("from_epochs", 0.0))
    del then[_CHANGES]
    return then if number == 0 else {**then, _CHANGES: changes[:number]}


def steps_of(run: RunJson) -> int:
    """The steps of the whole run."""
    return typed_run(run, Run, RUN.file).config.optimizer.steps


def _epochs_of(run: RunJson) -> float:
    """Those that the run was asked for; 0 if it was asked for steps."""
    return run["config"]["optimizer"].get("epochs", 0.0)


def _with_length(run: RunJson, steps: int, epochs: float) -> RunJson:
    """The same with other steps, and the epochs that they are."""
    optimizer = {**run["config"]["optimizer"], "steps": steps}
    if epochs or "epochs" in optimizer:
        optimizer["epochs"] = epochs
    return {**run, "config": {**run["config"], "optimizer": optimizer}}
