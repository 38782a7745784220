"""The same steps and the same vectors on the CPU and on the device: how far they are apart.

One process takes three steps without dropout on the CPU in float32, and computes the vectors of the
first terms before them; one does the same on the device in float32, one in bfloat16. Both are
compared with the CPU. On a machine without a device, float32 is then the same, bit for bit.

    python -m benchmarks.accelerator.parity --data OUT/prepared/dataset --encoder FOLDER
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.accelerator.parity_side import SideResult, read_found
from benchmarks.command import Row, add_batch_arguments, parser_of, run_measured
from data_pipeline.process import BadInput

_SETTINGS = ("encoder", "device")
_STEPS = 3
_CLOSE = 1e-4  # what float32 may differ by, of losses and of vectors


class _Side(NamedTuple):
    """The device and the arithmetic of one side."""

    place: str  # cpu or device
    dtype: str

    @property
    def name(self) -> str:
        """Its name in the table."""
        return f"{self.place}, {self.dtype}"


_REFERENCE = _Side("cpu", "float32")
_SIDES = (_Side("device", "float32"), _Side("device", "bfloat16"))


def _start(side: _Side, args: argparse.Namespace, out: Path) -> subprocess.Popen:
    """Starts the process of a side, which writes `out`."""
    environment = dict(os.environ)
    # Otherwise jax would reserve most of a GPU's memory, which the other side may need.
    environment.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if side.place == "cpu":
        environment["JAX_PLATFORMS"] = "cpu"
    command = [sys.executable, "-P", "-m", "benchmarks.accelerator.parity_side"]
    for name in ("data", "groups", "triplets", "repeats", "row_length", "encoder"):
        command += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    command += ["--out", str(out)]
    command += ["--dtype", side.dtype, "--terms", str(args.terms), "--steps", str(_STEPS)]
    return subprocess.Popen(command, env=environment)


def _finish(side: _Side, process: subprocess.Popen, out: Path) -> SideResult:
    """The results of a side.

    Raises:
        BadInput: if its process failed.
    """
    if process.wait():
        raise BadInput(
            f"the process of {side.name} ended with status {process.returncode}; what it said "
            "stands above"
        )
    return read_found(out)


def _difference(reference: SideResult, other: SideResult) -> dict[str, float]:
    """The difference of a side from the reference.

    Returns:
        `losses`, the largest relative difference of a loss; `vectors`, the largest difference of
        an element of unit vectors; `cosine`, the smallest of a term's two vectors.

    Raises:
        BadInput: if a loss or a vector is not finite.
    """
    for found in (reference, other):
        if not (np.isfinite(found.losses).all() and np.isfinite(found.vectors).all()):
            raise BadInput(
                f"{found.device}: losses {found.losses.tolist()}; expected finite losses and "
                "vectors: there is nothing to compare"
            )
    cosines = (reference.vectors.astype(np.float64) * other.vectors).sum(axis=1)
    return {
        "losses": float(np.abs(other.losses / reference.losses - 1).max()),
        "vectors": float(np.abs(other.vectors - reference.vectors).max()),
        "cosine": float(cosines.min()),
    }


def measure(args: argparse.Namespace) -> list[Row]:
    """One row for each side but the reference."""
    begun: list[subprocess.Popen] = []
    with tempfile.TemporaryDirectory() as folder:

        def begin(side: _Side) -> tuple[_Side, subprocess.Popen, Path]:
            out = Path(folder) / f"{side.place}-{side.dtype}.npz"
            begun.append(_start(side, args, out))
            return side, begun[-1], out

        try:
            # All at once: most of the time they compile.
            at_work = [begin(side) for side in (_REFERENCE, *_SIDES)]
            reference, *others = [_finish(*one) for one in at_work]
            found = dict(zip(_SIDES, others, strict=True))
        finally:
            for process in begun:
                if process.poll() is None:
                    process.kill()
                    process.wait()
    return [
        {
            "encoder": args.encoder.name,
            "device": found[side].device,
            "dtype": side.dtype,
            "terms": len(reference.vectors),
            "losses": found[side].losses.tolist(),
            "reference": reference.losses.tolist(),
            "difference": _difference(reference, found[side]),
        }
        for side in _SIDES
    ]


def table(rows: Sequence[Row]) -> str:
    """The sides as a Markdown table."""
    lines = [
        f"| encoder | device | losses of {_STEPS} steps | relative difference of losses, at most | "
        "difference of vectors, at most | least cosine |",
        "|---|---|---|" + 3 * "---:|",
    ]
    for row in rows:
        gap = row["difference"]
        cells = [
            row["encoder"],
            f"{row['device']}, {row['dtype']}",
            ", ".join(f"{loss:.7f}" for loss in row["losses"]),
            f"{gap['losses']:.1e}",
            f"{gap['vectors']:.1e}",
            f"{gap['cosine']:.7f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    gaps = [row["difference"] for row in rows if row["dtype"] == "float32"]
    is_close = all(max(gap["losses"], gap["vectors"]) <= _CLOSE for gap in gaps)
    verdict = f"as expected, within {_CLOSE:g}"
    if not is_close:
        verdict = f"NOT within {_CLOSE:g}: find out why before you use this device"
    lines.append(f"\nIn float32 losses and vectors are {verdict}.")
    lines.append(
        f"\nBeside the CPU in float32 (losses {', '.join(f'{x:.7f}' for x in rows[0]['reference'])}"
        f"), without dropout; unit vectors of {rows[0]['terms']:,} terms, mean pooling."
    )
    return "\n".join(lines)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The flags."""
    parser = parser_of("accelerator.parity", __doc__)
    add_batch_arguments(parser)
    parser.add_argument("--encoder", type=Path, required=True, help="folder of a BERT")
    parser.add_argument("--terms", type=int, default=400, help="with vectors (default: 400)")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Runs the comparison."""
    return run_measured(parse(argv), measure, table, _SETTINGS)


if __name__ == "__main__":
    sys.exit(main())
