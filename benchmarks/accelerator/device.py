"""The device that jax finds, its driver, and the packages that are not here.

python -m benchmarks.accelerator.device
"""

import argparse
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.command import Row, parser_of, run_measured

_SETTINGS = ("device",)
# The packages that the parts import, besides jax and numpy.
_PACKAGES = (
    "flax",
    "optax",
    "orbax",
    "msgspec",
    "tqdm",
    "safetensors",
    "tokenizers",
    "transformers",
    "torch",
    "pytorch_metric_learning",
    "sentence_transformers",
    "polars",
    "anyascii",
    "tensorflow",
)


def _missing() -> list[str]:
    """Those of PACKAGES that cannot be imported here."""
    return [name for name in _PACKAGES if importlib.util.find_spec(name) is None]


def _driver() -> str | None:
    """What nvidia-smi says of the first GPU; None where there is none."""
    if not shutil.which("nvidia-smi"):
        return None
    query = "--query-gpu=name,driver_version,memory.total"
    found = subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True
    )
    lines = found.stdout.strip().splitlines()
    return lines[0] if found.returncode == 0 and lines else None


def measure(args: argparse.Namespace) -> list[Row]:
    """One row; call it in a process of its own."""
    import jax

    device = jax.devices()[0]
    stats: dict[str, Any] = device.memory_stats() or {}
    return [
        {
            "device": device.device_kind,
            "platform": device.platform,
            "platform_version": device.client.platform_version,
            "devices": jax.device_count(),
            "memory": stats.get("bytes_limit"),
            "driver": _driver(),
            "jax": jax.__version__,
            "missing": _missing(),
        }
    ]


def table(rows: Sequence[Row]) -> str:
    """The device in lines."""
    (row,) = rows
    memory = f", {row['memory'] / 2**30:.0f} GiB for jax" if row["memory"] else ""
    lines = [
        f"{row['devices']} x {row['device']} ({row['platform']}{memory}), jax {row['jax']}; "
        f"{row['driver'] or 'no nvidia-smi'}.",
        f"Packages that are not here: {', '.join(row['missing']) or 'none'}.",
    ]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Runs it."""
    args = parser_of("accelerator.device", __doc__).parse_args(argv)
    return run_measured(args, measure, table, _SETTINGS)


if __name__ == "__main__":
    sys.exit(main())
