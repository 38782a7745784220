"""Whether a file can be written is asked before the work; nothing is changed by asking."""

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from data_pipeline.files.buckets import check_output
from data_pipeline.process import BadInput


def refused(path: Path, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        check_output(path, "--json", "results.json")


def test_a_file_and_a_new_name_will_do_and_stay_as_they_are(tmp_path):
    folder = tmp_path / "ein Ordner für Ä"
    folder.mkdir()
    check_output(folder / "neu.json", "--json", "results.json")
    assert list(folder.iterdir()) == []
    (folder / "alt.json").write_text("before")
    check_output(folder / "alt.json", "--json", "results.json")
    assert (folder / "alt.json").read_text() == "before"
    assert [path.name for path in folder.iterdir()] == ["alt.json"]


def test_a_pipe_will_do_and_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    check_output(tmp_path / "pipe", "--json", "results.json")


def test_what_will_not_do_is_named(tmp_path, monkeypatch):
    folder, file, circle = tmp_path / "folder", tmp_path / "file", tmp_path / "circle"
    folder.mkdir()
    file.touch()
    circle.symlink_to("circle")
    (tmp_path / "lost").symlink_to(tmp_path / "absent" / "results.json")
    example = re.escape(str(folder / "results.json"))
    refused(folder, f"--json: {folder} is a folder; expected a file, such as {example}")
    refused(tmp_path / "no" / "x", f"--json: there is no folder {tmp_path}/no; make it first")
    refused(file / "x", f"--json: there is no folder {file}; make it first")
    refused(tmp_path / "lost", f"--json: there is no folder {tmp_path}/absent; make it first")
    refused(circle, "circle cannot be written .*(loop|levels).*give another file")
    refused(tmp_path / ("x" * 300), "cannot be written .*too long")
    refused(Path("s3://bucket/results.json"), "expected a file on this machine")
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "file", "circle", "lost"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_the_right_to_write(tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    refused(tmp_path / "x", "cannot be written .Permission denied.; check the rights of its folder")


READ_ONLY = """
import sys
from pathlib import Path
from data_pipeline.files.buckets import check_output
from data_pipeline.process import run_command
sys.exit(run_command(lambda: check_output(Path(sys.argv[1]) / "x", "--json", "r.json") or 0))
"""


@pytest.mark.skipif(not shutil.which("unshare"), reason="no unshare: no disk can be mounted here")
def test_a_disk_that_may_not_be_written_to(tmp_path):
    script = 'mount -t tmpfs -o ro none "$1" || exit 99; shift; exec "$@"'
    command = [sys.executable, "-c", READ_ONLY, str(tmp_path)]
    unshare = ["unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path)]
    done = subprocess.run([*unshare, *command], capture_output=True, text=True)
    if done.returncode in (1, 99) and "error:" not in done.stderr:
        pytest.skip(f"no disk can be mounted here: {done.stderr}")
    assert done.returncode == 2, done.stderr
    assert f"error: --json: {tmp_path}/x cannot be written (Read-only file system)" in done.stderr
