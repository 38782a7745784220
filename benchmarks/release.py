"""The releases that benchmarks read, real or synthetic."""

import argparse
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.default_model import model_or_default
from benchmarks.process import run_child
from data_pipeline.process import BadInput
from data_pipeline.sources.release_files import unpack_release


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments for the working folder, the source and the number of rounds."""
    parser.add_argument("--work", type=Path, help="folder for what is built, on a roomy disk")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--source", type=Path, metavar="PATH", help="release of real RRF files")
    source.add_argument(
        "--scale",
        type=float,
        default=0.05,
        help="or an invented release, 1 is UMLS 2020AA (default: 0.05); it stays in --work",
    )
    parser.add_argument("--tokenizer", metavar="MODEL", help="default: all-MiniLM-L6-v2")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each (default: 3)")
    parser.add_argument("--json", type=Path, help="file for the figures")


@contextmanager
def prepared(args: argparse.Namespace) -> Iterator[tuple[Path, str, str]]:
    """Release folder, its name and the tokenizer; what was unpacked is removed in the end.

    Raises:
        BadInput: if there is no --work.
    """
    if not args.work:
        raise BadInput("--work is missing; give a folder on a disk with room for the release")
    args.work.mkdir(parents=True, exist_ok=True)
    try:
        yield *_release_of(args), model_or_default(args.tokenizer)
    finally:
        remove(args.work / "unpacked")


def _release_of(args: argparse.Namespace) -> tuple[Path, str]:
    """The folder of plain RRF files to read, and its name in the results."""
    if args.source:
        release = unpack_release(args.source, args.work / "unpacked")
        folders = {path.parent for path in release.files.values()}
        if len(folders) > 1 or not {"MRREL", "MRSTY"} <= release.files.keys():
            raise BadInput(
                f"{args.source}: expected MRCONSO, MRREL and MRSTY, all packed or all plain, in "
                "one folder"
            )
        return folders.pop(), release.name
    folder = args.work / f"META-{args.scale:g}"
    if not (folder / "MRFILES.RRF").exists():
        module = [sys.executable, "-m", "benchmarks.synthetic_release"]
        run_child([*module, "--out", str(folder), "--scale", str(args.scale)])
    return folder, f"invented, scale {args.scale:g}"


def remove(folder: Path) -> None:
    """Removes a folder, if it is there."""
    if folder.exists():
        shutil.rmtree(folder)
