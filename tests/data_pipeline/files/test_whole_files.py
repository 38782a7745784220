"""Files that are whole or not there; locks that one process holds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from data_pipeline.files.file_lock import lock_file, locked
from data_pipeline.files.whole_files import write_json, written_whole
from data_pipeline.process.errors import BadInput


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
from data_pipeline.files.file_lock import lock_file
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
