"""Folders that are whole or not there, wherever the process that writes them is killed."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from data_pipeline.files.whole_files import beside, recover_folder, replace_folder, whole_folder
from data_pipeline.process.errors import BadInput


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
from data_pipeline.files.whole_files import whole_folder

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
        cwd=repo, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


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


def test_what_processes_of_earlier_versions_left_goes_once_they_are_gone(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    kept = [f".folder.partial-{os.getppid()}", ".folder.old-x", ".folder2.old-1", ".folder.mine"]
    for name in (
        *kept,
        f".folder.partial-{ended.pid}",
        f".folder.old-{ended.pid}",
        f".folder.replaced-{ended.pid}",
        f".folder.old-{os.getpid()}",
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "large").touch()
    write(tmp_path / "folder", "after")
    assert names(tmp_path) == sorted([*kept, "folder"])


def test_file_systems_without_locks(tmp_path, monkeypatch):
    def no_lock(path, *, shared=False):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("data_pipeline.files.whole_files.lock_file", no_lock)
    write(tmp_path / "folder", "after")
    assert content(tmp_path / "folder") == AFTER and names(tmp_path) == ["folder"]
