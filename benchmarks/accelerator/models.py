"""Encoders of random weights with the tokenizer of a dataset, for all parts to use.

python -m benchmarks.accelerator.models --data OUT/prepared/dataset --out FOLDER base minilm
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.command import Row, parser_of, run_measured
from benchmarks.random_encoders import SHAPES, save_random_encoder
from data_pipeline.dataset.store import read_manifest

_SETTINGS = ("encoder",)


def measure(args: argparse.Namespace) -> list[Row]:
    """Writes the encoders; call it in a process of its own."""
    manifest = read_manifest(args.data)
    rows = []
    for shape in args.shapes:
        folder = args.out / shape
        save_random_encoder(folder, shape, manifest.tokenizer.vocab_size)
        shutil.copytree(args.data / "tokenizer", folder, dirs_exist_ok=True)
        size = sum(path.stat().st_size for path in folder.iterdir())
        rows.append({"encoder": shape, "bytes": size} | SHAPES[shape])
    return rows


def table(rows: Sequence[Row]) -> str:
    """The encoders as a Markdown table."""
    lines = ["| encoder, random weights | layers | width | heads | MB |", "|---|" + 4 * "---:|"]
    for row in rows:
        cells = [row["encoder"], *(str(row[name]) for name in ("num_layers", "hidden_size"))]
        lines.append(f"| {' | '.join(cells)} | {row['num_heads']} | {row['bytes'] / 1e6:.0f} |")
    return "\n".join(lines)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The flags."""
    parser = parser_of("accelerator.models", __doc__)
    parser.add_argument("shapes", nargs="+", choices=list(SHAPES))
    parser.add_argument("--data", type=Path, required=True, help="a built dataset")
    parser.add_argument("--out", type=Path, required=True, help="folder for a folder of each")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Runs it."""
    return run_measured(parse(argv), measure, table, _SETTINGS)


if __name__ == "__main__":
    sys.exit(main())
