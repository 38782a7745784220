"""The machine of a benchmark, recorded with every figure."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

_PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "numpy",
    "polars",
    "tokenizers",
    "tensorflow-cpu",
    "tensorflow",
    "tensorflow-datasets",
    "torch",
    "transformers",
    # Peers.
    "faiss-cpu",
    "pandas",
    "pyarrow",
    "pytorch-metric-learning",
    "sentence-transformers",
)


def machine() -> dict[str, Any]:
    """Processor, cores, memory, load, versions and commit."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "memory_gib": round(memory, 1),
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
        "commit": _commit(),
    }


def one_line(found: dict[str, Any]) -> str:
    """The machine in a line, for a table's caption."""
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return (
        f"{found['cores']} cores of {found['processor']}, {found['memory_gib']} GiB, Python "
        f"{found['python']}, {versions}; commit {found['commit']}, {found['date'][:10]}, load "
        f"before {found['load_before']}"
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str:
    """The short commit, with a "+" where files differ from it."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        commit = subprocess.run(
            [*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--untracked-files=no"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + "+" * bool(changed)
