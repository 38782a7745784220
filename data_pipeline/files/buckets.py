"""Folders in buckets (gs://, s3://), files on the web, and whether an output can be written."""

import contextlib
import hashlib
import logging
import os
import re
import shutil
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from data_pipeline.files.whole import (
    PARTIAL,
    beside,
    is_stream,
    lock_file,
    replace_folder,
    written_whole,
)
from data_pipeline.process import BadInput, poll, progress_bar, tell

# -------------------------------------------------------------------------------------------------
# Folders in buckets, at gs:// and s3:// addresses: fetched to this machine, or published from it.
#
# Buckets have no rename, but each file is either absent or complete. So a folder is published
# with its mark last, the one file without which no reader accepts it (a dataset's
# manifest.json, a model's config.json). Credentials and end points come from the environment, as
# the AWS and Google tools read them.

_ADDRESS = re.compile(r"(gs|s3):/{1,2}([^/].*)")  # one slash is left where it went through a Path
_PACKAGES = {"gs": "gcsfs", "s3": "s3fs"}
_TRANSFERS = 8  # files at the same time


def in_bucket(path: str | Path) -> bool:
    """Whether a path is an address in a bucket."""
    return _ADDRESS.fullmatch(str(path)) is not None


def address(path: str | Path) -> str:
    """The full form of an address, without a trailing slash."""
    found = _ADDRESS.fullmatch(str(path))
    assert found, f"{path} is not in a bucket"
    return f"{found[1]}://{found[2].rstrip('/')}"


def local_folder(path: str | Path, *marks: str) -> Path:
    """A folder on this machine: `path` itself, or a local copy of a bucket's folder
    (`_fetch_folder`).
    """
    return _fetch_folder(path, *marks) if in_bucket(path) else Path(path)


def _fetch_folder(path: str | Path, *marks: str) -> Path:
    """A local copy of a bucket's folder, fetched again only if its files changed.

    Of several processes of a host one fetches and the others wait. A fetch that was killed goes on
    with the files that it has.

    Args:
        path: address of the folder.
        marks: the file that was written last, without which nobody takes the folder for whole;
            several if the folder may be of several kinds.

    Raises:
        BadInput: if there is no such folder, or it cannot be read.
    """
    url = address(path)
    with explained(url, "read"):
        files, root = open_bucket(url)
        there = _file_tags(files, root)
    if not there.keys() & set(marks):
        raise BadInput(
            f"{url} has no {' and no '.join(marks)}; expected a folder that was published whole. "
            "Check the address, or publish it again"
        )
    name = (
        f"{url.rsplit('/', 1)[1]}-{short_hash(url.encode(), repr(sorted(there.items())).encode())}"
    )
    folder = cache_folder() / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _wait_for_lock(folder.with_name(f".{name}.lock")):
        if not folder.is_dir():
            partial = beside(folder, PARTIAL)
            with explained(url, "read"):
                _download(files, root, partial)
            # Not a `whole_folder`, which starts empty: a killed fetch is continued.
            replace_folder(partial, folder)
    return folder


def _download(files: Any, root: str, folder: Path) -> None:
    """Fetch all files under `root`, except those that are already there with the right size."""
    sizes = file_sizes(files, root)
    missing = [
        name
        for name, size in sizes.items()
        if not (folder / name).is_file() or (folder / name).stat().st_size != size
    ]
    total = sum(sizes[name] for name in missing)
    tell(f"fetching {len(missing)} files, {total / 1e6:,.1f} MB, to {folder.parent}")
    free = shutil.disk_usage(folder.parent).free
    if total > free:
        raise BadInput(
            f"{folder.parent} has {free / 1e9:.1f} GB left, but {total / 1e9:.1f} GB are to be "
            "fetched; make room, or set CODER_JAX_CACHE to a folder on a larger disk"
        )

    def fetch(name: str) -> None:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        arriving = file.with_name(f".{file.name}.arriving")
        files.get_file(f"{root}/{name}", str(arriving))
        if arriving.stat().st_size != sizes[name]:
            raise OSError(f"{name} came with {arriving.stat().st_size:,} of {sizes[name]:,} bytes")
        os.replace(arriving, file)

    _transfer(fetch, missing)


def publish_folder(folder: Path, path: str | Path, mark: str, *, overwrite: bool = False) -> None:
    """Copy a folder into a bucket, its mark last. An interrupted copy can be repeated.

    Args:
        folder: the whole folder on this machine.
        path: address that it gets.
        mark: the file in it without which nobody takes it for whole.
        overwrite: replace what is there.

    Raises:
        BadInput: if something else is there already, or the bucket cannot be written.
    """
    url = address(path)
    names = [str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()]
    assert mark in names, f"{folder} has no {mark}"
    with explained(url, "write"):
        files, root = open_bucket(url)
        there = set(file_sizes(files, root))
        if not overwrite and (mark in there or there - set(names)):
            raise BadInput(
                f"{url} is not empty (it has {sorted(there)[0]}); choose another address, or "
                "give --overwrite where the command has it"
            )
        for name in sorted(there, key=lambda name: name != mark):  # first of all, it is not whole
            if name == mark or name not in names:
                files.rm_file(f"{root}/{name}")
        names.remove(mark)
        _transfer(lambda name: files.put_file(str(folder / name), f"{root}/{name}"), names)
        files.put_file(str(folder / mark), f"{root}/{mark}")


def move_folder(path: str | Path, to: str | Path) -> None:
    """Rename a folder of a bucket: copy all files within the bucket, then delete the old ones.

    Raises:
        BadInput: if the bucket refuses.
    """
    with explained(address(path), "write"):
        files, root = open_bucket(address(path))
        _, target = open_bucket(address(to))
        names = list(file_sizes(files, root))
        _transfer(lambda name: files.cp_file(f"{root}/{name}", f"{target}/{name}"), names)
        _transfer(lambda name: files.rm_file(f"{root}/{name}"), names)


def file_sizes(files: Any, root: str) -> dict[str, int]:
    """Name below `root` -> size in bytes, for all files under it."""
    return {name: size for name, (size, _) in _file_tags(files, root).items()}


def _file_tags(files: Any, root: str) -> dict[str, tuple[int, str]]:
    """Name below `root` -> size in bytes, and the bucket's tag of the content (ETag, say)."""
    found = files.find(root, detail=True)
    return {
        name.removeprefix(f"{root}/"): (info["size"], info.get("ETag") or info.get("etag", ""))
        for name, info in found.items()
        if not name.endswith("/")  # what some tools leave to stand for a folder
    }


def _transfer(one: Callable[[str], None], names: Iterable[str]) -> None:
    """Run `one` for each name, several at a time; stops at the first error."""
    pool = ThreadPoolExecutor(max_workers=_TRANSFERS)
    try:
        for done in as_completed([pool.submit(one, name) for name in names]):
            done.result()
            poll()
    finally:
        pool.shutdown(cancel_futures=True)


def open_bucket(url: str) -> tuple[Any, str]:
    """The file system of an address, and the address as that file system writes it.

    Raises:
        BadInput: if the package for such addresses is not installed.
    """
    import fsspec

    # It logs each error with its traceback and also raises it.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    try:
        # Listings are not cached: other processes and libraries write into the same bucket.
        return fsspec.core.url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        package = _PACKAGES[url[:2]]
        raise BadInput(
            f"{url} needs the package {package}, which cannot be imported ({error}); install "
            "it with: pip install -r requirements-cloud.txt -c constraints.txt"
        ) from error


@contextlib.contextmanager
def explained(url: str, verb: str) -> Iterator[None]:
    """Turn the libraries' errors for an unreachable or forbidden bucket into BadInput."""
    try:
        yield
    except BadInput:
        raise
    except Exception as error:
        if not isinstance(error, (OSError, *client_errors())):
            raise
        raise BadInput(
            f"{url} cannot be {'read' if verb == 'read' else 'written'} "
            f"({type(error).__name__}: {error}); check the address, that the bucket is there, the "
            "credentials and the region in the environment, and the network"
        ) from error


def client_errors() -> tuple[type[Exception], ...]:
    """The exceptions of the bucket libraries other than OSError, for the libraries that are
    loaded.
    """
    names = (
        ("botocore.exceptions", "BotoCoreError"),
        ("aiohttp", "ClientError"),
        ("google.auth.exceptions", "GoogleAuthError"),
        ("gcsfs.retry", "HttpError"),
    )
    return tuple(
        getattr(sys.modules[module], name) for module, name in names if module in sys.modules
    )


@contextlib.contextmanager
def _wait_for_lock(path: Path) -> Iterator[None]:
    """Take the lock, waiting while another process holds it."""
    while (file := lock_file(path)) is None:
        poll()
        time.sleep(0.2)
    with file:
        yield


# -------------------------------------------------------------------------------------------------
# A file on the web (https://), fetched once.

_WEB = re.compile(r"(https?):/{1,2}([^/].*)")  # one slash is left where it went through a Path
_AT_ONCE = 1 << 20  # bytes


def local_file(path: str | Path) -> Path:
    """The file itself, or a copy of one on the web that is fetched once and kept.

    The copy stays the same until its folder is deleted; its SHA-256 lies beside it.

    Raises:
        BadInput: if it cannot be fetched.
    """
    found = _WEB.fullmatch(str(path))
    if not found:
        return Path(path)
    url = f"{found[1]}://{found[2]}"
    name = urllib.parse.unquote(urllib.parse.urlsplit(url).path.rstrip("/").rsplit("/", 1)[-1])
    file = cache_folder() / "files" / short_hash(url.encode()) / (name or "file")
    file.parent.mkdir(parents=True, exist_ok=True)
    with _wait_for_lock(file.with_name(".lock")):
        if not file.is_file():
            _fetch_file(url, file)
    return file


def _fetch_file(url: str, file: Path) -> None:
    content = hashlib.sha256()
    try:
        with (
            urllib.request.urlopen(url, timeout=60) as answer,
            written_whole(file) as unfinished,
            unfinished.open("wb") as written,
        ):
            size = int(answer.headers.get("Content-Length") or 0) or None
            with progress_bar(total=size, desc=f"fetch {file.name}", unit="B") as bar:
                while part := answer.read(_AT_ONCE):
                    poll()
                    written.write(part)
                    content.update(part)
                    bar.update(len(part))
            if size and written.tell() != size:
                raise OSError(f"{written.tell():,} of {size:,} bytes came")
    except (OSError, ValueError) as error:  # of the network, of an address that is none
        raise BadInput(
            f"{url} cannot be fetched ({error}); check the address and the network, or fetch the "
            "file by hand and give its path"
        ) from error
    digest = content.hexdigest()
    file.with_name(f"{file.name}.sha256").write_text(f"{digest}  {file.name}\n")
    tell(f"fetched {url} (SHA-256 {digest[:16]}...); it is kept in {file.parent}")


def cache_folder() -> Path:
    """The folder for local copies of buckets' folders, which are never deleted automatically.

    Vectors of dictionaries are kept in a folder in it, too, up to a size (`vector_files.py`).
    """
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "coder_jax"
    return Path(os.environ.get("CODER_JAX_CACHE") or default).expanduser()


def short_hash(*parts: bytes) -> str:
    """16 hexadecimal digits of the SHA-256 of the parts."""
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


# -------------------------------------------------------------------------------------------------
# A check that an output file can be written, made before the work instead of hours later.


def check_not_input(path: Path, option: str, inputs: Mapping[str, str | Path | None]) -> None:
    """Check that what is written is none of the files that are read, under whatever name.

    Args:
        path: the file to write.
        option: the option that it was given for, such as '--out'.
        inputs: what was given to each option that is read.

    Raises:
        BadInput: links and other spellings of an input count as the input.
    """
    for name, given in inputs.items():
        if given is None or in_bucket(given) or not path.is_file():
            continue
        if Path(given).is_file() and path.samefile(given):
            raise BadInput(
                f"{option}: found {path}, which is read as {name}; expected another file: it would "
                "be overwritten"
            )


def check_output(path: Path, option: str, example: str) -> None:
    """Check that a file can be written to `path`: a file, a new name, a device or a pipe.

    Args:
        path: what the user gave.
        option: the option that it was given for, such as '--json'.
        example: name of such a file, for the message.

    Raises:
        BadInput: if it cannot; nothing was changed.
    """
    if in_bucket(path):
        raise BadInput(
            f"{option}: found {path}; expected a file on this machine: copy it there after"
        )
    try:
        target = path.resolve()  # a link leads to the file that is written
        if not target.parent.is_dir():
            raise BadInput(f"{option}: there is no folder {target.parent}; make it first")
        if path.is_dir():
            raise BadInput(
                f"{option}: {path} is a folder; expected a file, such as {path / example}"
            )
        if not is_stream(path):
            with tempfile.TemporaryFile(dir=target.parent):
                pass
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        why = getattr(error, "strerror", None) or error
        raise BadInput(
            f"{option}: {path} cannot be written ({why}); check the rights of its folder, make "
            "room, or give another file"
        ) from error
