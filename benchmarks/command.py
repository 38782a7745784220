"""What the benchmark commands share: the parser, and printing and storing of figures."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import machine, one_line
from benchmarks.process import huge_pages, in_a_process
from benchmarks.results_file import keep_rows
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.process import run_command

Row = dict[str, Any]


def plain_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """A parser without arguments; `name` is that of the module."""
    return argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def parser_of(name: str, description: str | None) -> argparse.ArgumentParser:
    """A parser with --json; `name` is that of the module."""
    parser = plain_parser(name, description)
    parser.add_argument("--json", type=Path, help="file for the figures; earlier ones stay in it")
    return parser


def run_measured(
    args: argparse.Namespace,
    measure: Callable[[argparse.Namespace], list[Row]],
    table: Callable[[list[Row]], str],
    settings: Sequence[str],
) -> int:
    """Runs a benchmark; returns its exit status.

    Args:
        args: of a parser of `parser_of`.
        measure: is called in a process of its own, with memory in huge pages.
        table: what is shown of the rows.
        settings: names of what tells rows of a file apart (`keep_rows`).
    """

    def work() -> int:
        before = machine()
        with huge_pages():
            rows = [row | {"machine": before} for row in in_a_process(measure, args)]
        print(f"\n{table(rows)}\n\n{one_line(before)}")
        if args.json:
            keep_rows(args.json, rows, settings)
        return 0

    return run_command(work, when_asked=None)


def add_batch_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --data and the settings of a step."""
    parser.add_argument("--data", type=Path, required=True, help="a built dataset")
    parser.add_argument("--groups", type=int, default=8, help="G (default: 8)")
    parser.add_argument("--triplets", type=int, default=16, help="U of a group (default: 16)")
    parser.add_argument("--repeats", type=int, default=8, help="m of a triplet (default: 8)")
    parser.add_argument(
        "--row-length", type=int, default=128, help="of ours (default: 128; on a CPU 32 is better)"
    )


def batches_of(args: argparse.Namespace) -> dict[str, Any]:
    """`data` and `spec` of a `Work`, from the arguments."""
    names = ("groups", "triplets", "repeats", "row_length")
    return {"data": args.data, "spec": BatchSpec(**{name: getattr(args, name) for name in names})}
