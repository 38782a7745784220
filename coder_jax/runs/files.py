"""The small files of a run: where OUT is in a bucket, a copy on this machine that is published.

run.json, metrics.jsonl, tensorboard/, index/ (of refreshes) and what the run keeps of its data are
written here, by the first host, and copied to OUT at each checkpoint and at the end. Checkpoints
are written to OUT itself, by all hosts.
"""

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from coder_jax.devices.agree import is_first
from coder_jax.runs.lock import LOCK
from data_pipeline.files.buckets import address, explained, file_sizes, in_bucket, open_bucket
from data_pipeline.files.identity import RUN
from data_pipeline.process.errors import BadInput

INDEX = "index"  # the folder of what refreshes wrote; what is old there goes in the bucket, too
NOT_FETCHED = ("checkpoints/", "tensorboard/")
NOT_PUBLISHED = ("checkpoints/", LOCK)


class RunFiles:
    """The small files of the run that this process trains; a context, at whose end all is there.

    Args:
        out: the run folder, here or in a bucket.
        kept: names of folders and files that a start which was cut off may have left there.

    Attributes:
        name: OUT, for messages.
        here: the folder to read and write them in: OUT itself if it is on this machine.

    Raises:
        BadInput: if the bucket cannot be read, or holds something else.
    """

    def __init__(self, out: str | Path, kept: Sequence[str] = ("tokenizer",)):
        self.url = address(out) if in_bucket(out) else None
        self.name = self.url or str(out)
        self.published: dict[str, tuple[int, int]] = {}
        self.here = Path(out)
        if self.url:
            self.here = fetch_small_files(self.url, kept)
            # What was fetched is there.
            self.published = {name: state_of(file) for name, file in self._to_publish().items()}

    def fetch(self) -> None:
        """See what the first host has published."""
        if self.url and not is_first():
            shutil.rmtree(self.here / INDEX, ignore_errors=True)
            fetch_into(self.here, self.url)

    def publish(self) -> None:
        """Copy what is new to the bucket; a folder that was not the run's yet becomes it last.

        Raises:
            BadInput: if the bucket cannot be written to.
        """
        if self.url is None or not is_first():
            return
        found = self._to_publish()
        with explained(self.url, "write"):
            files, root = open_bucket(self.url)
            for name in sorted(found, key=lambda name: name == RUN.file):
                state = state_of(found[name])
                if self.published.get(name) != state:
                    files.put_file(str(found[name]), f"{root}/{name}")
                    self.published[name] = state
            for name in [name for name in self.published if name not in found]:
                if name.startswith(f"{INDEX}/"):
                    files.rm_file(f"{root}/{name}")
                del self.published[name]

    def _to_publish(self) -> dict[str, Path]:
        """By name, what goes to the bucket."""
        files = [file for file in sorted(self.here.rglob("*")) if file.is_file()]
        found = {str(file.relative_to(self.here)): file for file in files}
        return {name: file for name, file in found.items() if is_published(name)}

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


def state_of(file: Path) -> tuple[int, int]:
    """What changes when a file does: its size and the time of its last change."""
    stat = file.stat()
    return stat.st_size, stat.st_mtime_ns


def is_published(name: str) -> bool:
    """Whether a file of the run's folder goes to the bucket: not what is half written."""
    half = name.endswith(".unfinished") or any(part.startswith(".") for part in Path(name).parts)
    return not half and not name.startswith(NOT_PUBLISHED)


def small_files(out: str | Path) -> Path:
    """The folder of the small files of a run that is there, to read them.

    Raises:
        BadInput: if the bucket cannot be read, or there is no run.
    """
    files = RunFiles(out)
    if files.url and not (files.here / RUN.file).exists():
        raise BadInput(
            f"{files.url} is not the folder of a training run: it has no {RUN.file}; check it"
        )
    return files.here


def is_run(path: str | Path) -> bool:
    """Whether `path` is the folder of a training run, here or in a bucket."""
    if not in_bucket(path):
        return (Path(path) / RUN.file).is_file()
    with explained(address(path), "read"):
        return RUN.file in file_sizes(*open_bucket(address(path)))


def fetch_small_files(url: str, kept: Sequence[str] = ("tokenizer",)) -> Path:
    """A new folder with a run's small files, or empty if there is none; gone when Python ends.

    Raises:
        BadInput: if the bucket cannot be read, or there is something else at the address.
    """
    here = Path(tempfile.mkdtemp(prefix="coder_jax-run-"))
    atexit.register(shutil.rmtree, here, ignore_errors=True)
    fetch_into(here, url, kept)
    return here


def fetch_into(here: Path, url: str, kept: Sequence[str] = ("tokenizer",)) -> None:
    """Copy the small files of the run at `url`, if there is one."""
    with explained(url, "read"):
        files, root = open_bucket(url)
        there = names_in(files, root)
        if RUN.file not in there:
            if there - set(kept):  # that is of a start that was cut off
                raise BadInput(
                    f"{url} is not empty (it has {min(there)}) and is not the folder of a run (it "
                    f"has no {RUN.file}); choose another --out, or empty it"
                )
            return
        for name in sorted(there):
            if f"{name}/" in NOT_FETCHED:
                continue
            for path in files.find(f"{root}/{name}"):
                inside = path.removeprefix(f"{root}/")
                (here / inside).parent.mkdir(parents=True, exist_ok=True)
                files.get_file(path, str(here / inside))


def names_in(files: Any, root: str) -> set[str]:
    """The names of files and folders in a folder of a bucket; none if there is no such folder.

    Raises:
        FileNotFoundError: if there is no such bucket.
    """
    try:
        found = files.ls(root, detail=False)
    except FileNotFoundError:
        files.ls(root.split("/")[0], detail=False)
        return set()
    return {name.rstrip("/").rsplit("/", 1)[1] for name in found if name.rstrip("/") != root}
