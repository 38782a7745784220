"""Packages that travel: which fit, and that only missing ones are taken."""

import sys
import zipfile

import pytest

from benchmarks.accelerator import wheels
from data_pipeline.process import BadInput


@pytest.mark.parametrize(
    ("file", "minor", "fit"),
    [
        ("anyascii-0.3.3-py3-none-any.whl", 12, True),
        ("six-1.16.0-py2.py3-none-any.whl", 13, True),
        ("msgspec-0.22.0-cp312-cp312-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", 12, True),
        ("msgspec-0.22.0-cp312-cp312-manylinux2014_x86_64.whl", 11, False),
        ("polars_runtime_32-2.1.0-cp311-abi3-manylinux_2_17_x86_64.whl", 12, True),
        ("polars_runtime_32-2.1.0-cp311-abi3-manylinux_2_17_x86_64.whl", 10, False),
        ("a-1.0-1-cp312-cp312-linux_x86_64.whl", 12, True),
        ("no wheel.whl", 12, False),
    ],
)
def test_whether_a_wheel_fits(file, minor, fit):
    assert wheels._fits(file, (3, minor)) == fit


def test_missing_packages_are_unpacked_and_others_left(tmp_path, capsys):
    other = f"cp3{sys.version_info[1] + 1}"
    for name in (
        "no_such_package-1.0-py3-none-any.whl",
        "numpy-9.0-py3-none-any.whl",
        f"of_another_python-1.0-{other}-{other}-linux_x86_64.whl",
    ):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(f"{name.partition('-')[0]}/__init__.py", "")
    site = tmp_path / "site"
    assert wheels.unpack_missing(tmp_path, site) == ["no_such_package"]
    assert [path.name for path in site.iterdir()] == ["no_such_package"]
    assert "of_another_python" in capsys.readouterr().err
    assert wheels.unpack_missing(tmp_path / "nowhere", site) == []


def test_a_version_that_is_none_is_refused(tmp_path):
    with pytest.raises(BadInput, match="'312'; expected a version of Python such as 3.12"):
        wheels.fetch_wheels(["anyascii"], "312", tmp_path)


def test_pip_that_finds_nothing_is_said(tmp_path, monkeypatch):
    asked = []

    class Failed:
        returncode = 1

    monkeypatch.setattr(wheels.subprocess, "run", lambda command: asked.append(command) or Failed)
    with pytest.raises(BadInput, match="pip found no wheels of anyascii for Python 3.12"):
        wheels.fetch_wheels(["anyascii"], "3.12", tmp_path)
    (command,) = asked
    assert command[-1] == "anyascii" and "--no-deps" in command and "3.12" in command
