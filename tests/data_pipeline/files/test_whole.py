"""Files that are whole or not there; locks that one process holds."""

import errno
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from devices import FULL, NULL, device

from data_pipeline.files.whole import (
    _ALIGNMENT,
    aligned,
    beside,
    is_stdout,
    is_stream,
    lock_file,
    locked,
    map_array,
    recover_folder,
    replace_folder,
    whole_folder,
    write_array,
    write_json,
    written_whole,
)
from data_pipeline.process import BadInput, message_of


def test_a_file_gets_its_name_when_it_is_whole(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("before")
    with written_whole(path) as unfinished:
        unfinished.write_text("after")
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


def test_after_an_error_the_old_file_is_there_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("before")
    with pytest.raises(ZeroDivisionError), written_whole(path) as unfinished:
        unfinished.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_goes_on_leading_to_the_file_that_is_written(tmp_path, there):
    folder, link = tmp_path / "elsewhere", tmp_path / "link"
    folder.mkdir()
    if there:
        (folder / "a.txt").write_text("before")
    link.symlink_to("elsewhere/a.txt")
    with written_whole(link) as unfinished:
        unfinished.write_text("after")
    assert os.readlink(link) == "elsewhere/a.txt"
    assert (folder / "a.txt").read_text() == "after"
    assert list(folder.iterdir()) == [folder / "a.txt"]
    assert {path.name for path in tmp_path.iterdir()} == {"elsewhere", "link"}


def test_json_with_what_json_has_not_is_an_error_and_changes_nothing(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"µ": [1, 2.5, None]})
    assert json.loads(path.read_text(encoding="utf-8")) == {"µ": [1, 2.5, None]}
    with pytest.raises(ValueError):
        write_json(path, float("nan"))
    assert json.loads(path.read_text(encoding="utf-8")) == {"µ": [1, 2.5, None]}


HOLDER = """
import sys
from pathlib import Path
from data_pipeline.files.whole import lock_file
held = lock_file(Path(sys.argv[1]))
print("held" if held else "refused", flush=True)
sys.stdin.read()
"""


def holder(path: Path) -> tuple[subprocess.Popen, str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_a_lock_ends_with_its_process_even_if_that_is_killed(tmp_path):
    path = tmp_path / "lock"
    first, said = holder(path)
    assert said == "held"
    second, said = holder(path)
    assert said == "refused"
    assert lock_file(path) is None
    with pytest.raises(BadInput, match="busy"), locked(path, "busy: wait"):
        pass
    first.kill()
    first.communicate()
    second.communicate()
    with locked(path, "busy: wait"):
        assert lock_file(path) is None
    taken = lock_file(path)
    assert taken is not None
    taken.close()


# -------------------------------------------------------------------------------------------------
# Folders that are whole or not there, wherever the process that writes them is killed.


def write(folder: Path, words: str) -> None:
    with whole_folder(folder) as new:
        assert not any(new.iterdir())
        (new / "inside").mkdir()
        (new / "inside" / "a").write_text(words)
        (new / words).touch()


def content(folder: Path) -> list[str]:
    return [(folder / "inside" / "a").read_text(), *sorted(path.name for path in folder.iterdir())]


BEFORE, AFTER = ["before", "before", "inside"], ["after", "after", "inside"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_gets_its_name_when_it_is_whole(tmp_path):
    folder = tmp_path / "new" / "folder"
    write(folder, "before")
    with whole_folder(folder) as new:
        (new / "b").touch()
        assert content(folder) == BEFORE and new.parent == folder.parent
    assert names(folder) == ["b"] and names(folder.parent) == ["folder"]
    shutil.rmtree(folder)
    folder.mkdir()
    write(folder, "after")  # an empty one
    assert content(folder) == AFTER and names(folder.parent) == ["folder"]


def test_a_link_goes_on_leading_to_the_folder(tmp_path):
    write(tmp_path / "disk" / "folder", "before")
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "folder")
    with whole_folder(tmp_path / "link") as new:
        assert new.parent == tmp_path / "disk", "it is renamed within one disk"
    write(tmp_path / "link", "after")
    assert (tmp_path / "link").is_symlink() and content(tmp_path / "disk" / "folder") == AFTER
    assert names(tmp_path) == ["disk", "link"] and names(tmp_path / "disk") == ["folder"]


def test_after_an_error_the_old_folder_is_there_and_nothing_else(tmp_path):
    write(tmp_path / "folder", "before")
    for error in (ZeroDivisionError, KeyboardInterrupt):
        with pytest.raises(error), whole_folder(tmp_path / "folder") as new:
            (new / "half").touch()
            raise error
        assert content(tmp_path / "folder") == BEFORE and names(tmp_path) == ["folder"]


@pytest.mark.parametrize("rename", [1, 2, 3])
def test_an_error_in_a_rename_leaves_one_of_the_two(tmp_path, rename, monkeypatch):
    write(tmp_path / "folder", "before")
    calls, real = [], os.replace

    def replace(old, new):
        calls.append(new)
        if len(calls) == rename:
            raise KeyboardInterrupt
        real(old, new)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "folder", "after")
    assert content(tmp_path / "folder") == (AFTER if rename == 3 else BEFORE)
    write(tmp_path / "folder", "after")
    assert content(tmp_path / "folder") == AFTER and names(tmp_path) == ["folder"]


def test_a_second_writer_is_refused(tmp_path):
    with whole_folder(tmp_path / "folder") as new:
        (new / "a").touch()
        with (
            pytest.raises(BadInput, match="folder: another process is writing it; wait for it"),
            whole_folder(tmp_path / "folder"),
        ):
            pass
    assert names(tmp_path / "folder") == ["a"] and names(tmp_path) == ["folder"]


# It changes the disk in some twenty steps, and is killed before or after one of them.
KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from data_pipeline.files.whole import whole_folder

folder, moment, before = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "before"
steps = 0

def watched(original):
    def change(*args, **kwargs):
        global steps
        steps += 1
        if steps == moment and before:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return original(*args, **kwargs)
        finally:
            if steps >= moment:
                os.kill(os.getpid(), signal.SIGKILL)
    return change

for owner, name in (
    (os, "replace"), (os, "fsync"), (Path, "mkdir"), (Path, "unlink"), (Path, "write_text"),
    (shutil, "rmtree"),
):
    setattr(owner, name, watched(getattr(owner, name)))
with whole_folder(folder) as new:
    (new / "inside").mkdir()
    (new / "inside" / "a").write_text("after")
    (new / "after").touch()
print(steps)
"""


def killed(folder: Path, moment: int, when: str, repo: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder), str(moment), when],
        cwd=repo, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_change_of_the_disk(tmp_path, repo, when):
    write(tmp_path / "count" / "folder", "before")
    status, said = killed(tmp_path / "count" / "folder", 10**9, when, repo)
    assert status == 0 and int(said) > 10, said
    absent = 0
    for moment in range(1, int(said) + 1):
        folder = tmp_path / str(moment) / "folder"
        write(folder, "before")
        status, said = killed(folder, moment, when, repo)
        assert status == -signal.SIGKILL, said
        absent += not folder.exists()
        recover_folder(folder)  # as a reader does
        assert content(folder) in (BEFORE, AFTER)
        write(folder, "after")
        assert content(folder) == AFTER and names(folder.parent) == ["folder"], moment
    assert absent == 1, "it was killed between the two renames"


def test_the_next_writer_recovers_too(tmp_path):
    write(tmp_path / "folder", "before")
    write(tmp_path / ".folder.partial", "after")
    (tmp_path / "folder").rename(beside(tmp_path / "folder", "old"))
    with pytest.raises(ZeroDivisionError), whole_folder(tmp_path / "folder"):
        raise ZeroDivisionError
    assert content(tmp_path / "folder") == AFTER
    write(tmp_path / "folder", "after")
    assert names(tmp_path) == ["folder"]


def test_a_folder_under_a_name_of_its_own(tmp_path):
    folder, work = tmp_path / "folder", tmp_path / "work"
    write(folder, "before")
    write(work, "after")
    (tmp_path / ".folder.partial").mkdir()  # of a killed writer: not whole
    folder.rename(beside(folder, "old"))
    (tmp_path / ".folder.partial").rmdir()
    recover_folder(folder)
    assert content(folder) == BEFORE
    (tmp_path / ".folder.partial").mkdir()
    replace_folder(work, folder)
    assert content(folder) == AFTER and names(tmp_path) == ["folder"]


def test_file_systems_without_locks(tmp_path, monkeypatch):
    def no_lock(path, *, shared=False):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("data_pipeline.files.whole.lock_file", no_lock)
    write(tmp_path / "folder", "after")
    assert content(tmp_path / "folder") == AFTER and names(tmp_path) == ["folder"]


# -------------------------------------------------------------------------------------------------
# Devices, pipes and a process's own output are written into; no file ever takes their place.
#
# All devices here are made for the test: a wrong program, run by root, would replace the system's.

CONTENT = {"µ": [1, 2.5, None]}
TEXT = '{\n "µ": [\n  1,\n  2.5,\n  null\n ]\n}\n'


def listen(pipe: Path) -> tuple[threading.Thread, list[str]]:
    heard: list[str] = []
    thread = threading.Thread(target=lambda: heard.append(pipe.read_text(encoding="utf-8")))
    thread.daemon = True
    thread.start()
    return thread, heard


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_gets_the_content_and_stays(tmp_path, linked):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    path = pipe
    if linked:
        path = tmp_path / "link"
        path.symlink_to("pipe")
    thread, heard = listen(pipe)
    write_json(path, CONTENT)
    thread.join(300)
    assert heard == [TEXT]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert path.is_symlink() == linked
    assert {entry.name for entry in tmp_path.iterdir()} == {"pipe", path.name}


def test_nothing_goes_into_a_pipe_before_all_is_there(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ZeroDivisionError), written_whole(pipe) as unfinished:
        unfinished.write_text("half")  # a pipe without a reader would wait here for ever
        raise ZeroDivisionError
    assert not unfinished.exists()


def test_a_device_stays_a_device(tmp_path):
    null = device(tmp_path / "null", NULL)
    write_json(null, CONTENT)
    assert stat.S_ISCHR(null.stat().st_mode)
    assert list(tmp_path.iterdir()) == [null]


def test_a_full_device_is_an_error_and_stays(tmp_path):
    full = device(tmp_path / "full", FULL)
    with pytest.raises(OSError) as error:
        write_json(full, CONTENT)
    assert error.value.errno == errno.ENOSPC
    assert stat.S_ISCHR(full.stat().st_mode)


def test_a_terminal_is_a_stream(tmp_path):
    ours, theirs = os.openpty()
    try:
        path = Path(os.ttyname(theirs))
        write_json(path, CONTENT)
        heard = b""
        while len(heard) < len(TEXT.encode()) + TEXT.count("\n"):
            heard += os.read(ours, 4096)
        assert heard.decode().replace("\r\n", "\n") == TEXT
        assert stat.S_ISCHR(path.stat().st_mode)
    finally:
        os.close(ours)
        os.close(theirs)


def test_what_can_be_neither_written_nor_replaced_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's name must be short
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind("socket")
        for path, what in ((Path("socket"), "a socket"), (tmp_path, "a folder")):
            with pytest.raises(BadInput, match=f"is {what}; expected a file, or the name of a new"):
                is_stream(path)
            with pytest.raises(BadInput, match=re.escape(str(path))), written_whole(path):
                raise AssertionError("the work has begun")


def test_a_disk_is_refused(tmp_path):
    path = tmp_path / "disk"
    try:
        os.mknod(
            path, stat.S_IFBLK | 0o600, os.makedev(7, 250)
        )  # of a loop device that is not there
    except PermissionError:
        pytest.skip("only root makes devices")
    with pytest.raises(BadInput, match="is a disk; expected a file"):
        is_stream(path)


def test_files_and_new_names_are_no_streams(tmp_path):
    assert not is_stream(tmp_path / "new")
    (tmp_path / "file").touch()
    assert not is_stream(tmp_path / "file")
    assert not is_stdout(tmp_path / "file") and not is_stdout(tmp_path / "new")


PRINT_AROUND = """
import sys
from pathlib import Path
from data_pipeline.files.whole import is_stdout
from data_pipeline.files.whole import written_whole
path = Path(sys.argv[1])
print("before")
print("warning", file=sys.stderr)
with written_whole(path) as unfinished:
    unfinished.write_text("it\\n")
print("after", is_stdout(path))
"""


@pytest.mark.parametrize("into", ["pipe", "file"])
@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/fd/1"])
def test_stdout_gets_it_between_what_is_printed(tmp_path, monkeypatch, into, path):
    command = [sys.executable, "-c", PRINT_AROUND, path]
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # what is printed must wait in Python
    file = tmp_path / "out"
    if into == "file":
        with file.open("w") as out:
            subprocess.run(command, stdout=out, check=True)
        said = file.read_text()
        assert list(tmp_path.iterdir()) == [file]
    else:
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert said == "before\nit\nafter True\n"


def test_stderr_too(tmp_path):
    out, err = tmp_path / "out", tmp_path / "err"
    with out.open("w") as one, err.open("w") as other:
        command = [sys.executable, "-c", PRINT_AROUND, "/dev/stderr"]
        subprocess.run(command, stdout=one, stderr=other, check=True)
    assert (out.read_text(), err.read_text()) == (
        "before\nafter False\n",
        "warning\nit\n",
    )


# -------------------------------------------------------------------------------------------------
# Files of one array: written in parts, read as one; a full disk is an error.


@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 2, 4), (0, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_parts_are_one_array(tmp_path, shape, dtype):
    whole = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    path = tmp_path / "rows.npy"
    for _ in range(2):  # a file that is there is replaced
        write_array(path, shape, whole.dtype, np.array_split(whole, [2, 2, 3]))
    assert np.load(path).dtype == dtype
    if whole.size:
        np.testing.assert_array_equal(map_array(path, "make it again"), whole)


def test_a_full_disk_is_an_error_that_is_told(tmp_path):
    rows = np.ones((4_096, 64), np.float32)
    with pytest.raises(OSError) as caught:
        write_array(device(tmp_path / "full", FULL), rows.shape, rows.dtype, [rows])
    assert "make room" in str(message_of(caught.value))


# -------------------------------------------------------------------------------------------------
# Aligned arrays begin where TensorFlow and XLA want them, with the shape that was asked for.


@pytest.mark.parametrize("shape", [7, (3, 5), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.int64])
def test_arrays_begin_at_a_multiple(shape, dtype):
    for _ in range(5):  # one may by chance
        array = aligned(shape, dtype)
        assert array.shape == np.empty(shape).shape and array.dtype == dtype
        assert array.ctypes.data % _ALIGNMENT == 0 and array.flags.writeable


def test_nothing_has_its_shape():
    assert aligned(0, np.int32).shape == (0,) and aligned((0, 4), np.float32).shape == (0, 4)
