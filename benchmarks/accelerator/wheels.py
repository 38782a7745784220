"""Packages brought as wheels to a machine without access to a registry.

They are unpacked beside the environment there, never installed into it, and only those that it
lacks.
"""

import importlib.metadata
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from data_pipeline.process import BadInput, tell

# What machines with jax and PyTorch often lack, for our step and the recipe's.
PACKAGES = (
    *("msgspec", "anyascii"),
    *("google-crc32c", "polars", "polars-runtime-32"),
    "pytorch-metric-learning",
)
_PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014", "manylinux1")
_WHEEL = re.compile(r"(?P<name>.+?)-[^-]+(-\d[^-]*)?-(?P<python>[^-]+)-(?P<abi>[^-]+)-[^-]+\.whl")


def fetch_wheels(packages: Sequence[str], version: str, folder: Path) -> None:
    """Fetches wheels of packages in the versions of constraints.txt, without dependencies.

    Args:
        packages: names.
        version: of the other machine's Python, such as 3.12; it has x86-64 and Linux.
        folder: for them.

    Raises:
        BadInput: a version that is none, or pip finds no wheel.
    """
    if not re.fullmatch(r"3\.\d+", version):
        raise BadInput(f"--wheels is {version!r}; expected a version of Python such as 3.12")
    constraints = Path(__file__).resolve().parents[2] / "constraints.txt"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--disable-pip-version-check", "--implementation", "cp"]
    command += ["--python-version", version, "-c", str(constraints), "-d", str(folder)]
    for platform in _PLATFORMS:
        command += ["--platform", f"{platform}_x86_64"]
    if subprocess.run([*command, *packages]).returncode:
        raise BadInput(
            f"pip found no wheels of {', '.join(packages)} for Python {version}; see above; leave "
            "some out with --packages"
        )


def _fits(file: str, python: tuple[int, int]) -> bool:
    """Whether a wheel of this file's name is for a version of CPython."""
    found = _WHEEL.fullmatch(file)
    if found is None:
        return False
    tags = found["python"].split(".")
    if "py3" in tags or f"cp3{python[1]}" in tags:
        return True
    lowest = [int(tag[3:]) for tag in tags if re.fullmatch(r"cp3\d+", tag)]
    return "abi3" in found["abi"] and bool(lowest) and min(lowest) <= python[1]


def _is_installed(name: str) -> bool:
    """Whether the environment has a package."""
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def unpack_missing(wheels: Path, site: Path) -> list[str]:
    """Unpacks the wheels of packages that are not installed; returns their names.

    Args:
        wheels: folder of them; it need not be there.
        site: folder for their modules, to be put on PYTHONPATH.
    """
    unpacked = []
    for path in sorted(wheels.glob("*.whl")):
        name = path.name.partition("-")[0]
        if _is_installed(name):
            continue
        if not _fits(path.name, sys.version_info[:2]):
            version = ".".join(map(str, sys.version_info[:2]))
            tell(f"{path.name} is not for Python {version}: left out")
            continue
        with zipfile.ZipFile(path) as archive:
            archive.extractall(site)
        unpacked.append(name)
    return unpacked
