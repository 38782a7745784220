"""Devices, pipes and a process's own output are written into; no file ever takes their place.

All devices here are made for the test: a wrong program, run by root, would replace the system's.
"""

import errno
import os
import re
import socket
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from devices import FULL, NULL, device

from data_pipeline.files.streams import is_stdout, is_stream
from data_pipeline.files.whole_files import write_json, written_whole
from data_pipeline.process.errors import BadInput

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
    thread.join(60)
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
from data_pipeline.files.streams import is_stdout
from data_pipeline.files.whole_files import written_whole
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
