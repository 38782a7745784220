"""From RRF files to arrays of tokens and triplets: our build beside pandas and plain Python.

Every loader does the same work on the same files: parse and filter, clean, group the terms by
concept, number the triplets, tokenize with the same tokenizer, write to disk. Each is a fresh
process, so that time and peak memory are its own; they take turns, and medians are kept. That the
work is the same is checked: terms, concepts, triplets, semantic types and tokens must be equal
array by array. Beside the times stands what reading the files takes at least.

Our build does more than its peers: it checks every line and the row counts, hashes what it writes,
goes on after a kill, and reports every row that it dropped.

    python -m benchmarks.ingest --work /tmp/work --scale 0.05 --json benchmarks/results/ingest.json
    python -m benchmarks.ingest --work /tmp/work --source openmeta --rounds 3

The results of earlier runs on other sources stay in the JSON file. pandas and pyarrow come from
requirements-benchmarks.txt; where they are missing, their rows are left out, and it is said.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.command import plain_parser
from benchmarks.ingest_loaders import LOADERS, PARTS, check_same, installed, load_by_peer, load_ours
from benchmarks.machine import machine, one_line
from benchmarks.process import copy_bandwidth_apart, read_bandwidth, run_child
from benchmarks.release import add_source_arguments, prepared, remove
from benchmarks.results_file import keep_rows, read_figures
from benchmarks.rounds import turns
from data_pipeline.files.whole import write_json
from data_pipeline.process import run_command


def measure(
    work: Path, release: Path, label: str, tokenizer: str, rounds: int, names: list[str]
) -> dict[str, Any]:
    """The figures of all loaders on one release."""
    before = machine()
    used = [path for path in sorted(release.glob("*.RRF")) if path.stem != "MRFILES"]
    reading = read_bandwidth(used)  # after it, every loader finds the files in memory
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    outs = {name: work / f"ingest-{name}" for name in names}
    for order in turns(names, rounds):
        for name in order:
            remove(outs[name])
            report = work / "ingest.json"
            command = [sys.executable, "-m", "benchmarks.ingest", "--load", name]
            command += ["--source", str(release), "--out", str(outs[name])]
            ended = run_child([*command, "--tokenizer", tokenizer, "--json", str(report)])
            parts = json.loads(report.read_text(encoding="utf-8"))
            runs[name].append(
                {
                    "seconds": ended.seconds,
                    **parts,
                    "start": ended.seconds - sum(parts.values()),
                    "cpu_seconds": ended.cpu_seconds,
                    "peak_gb": ended.peak_gb,
                }
            )
            print(f"{name}: {runs[name][-1]}", file=sys.stderr, flush=True)
    counts = check_same(outs["ours"], [outs[name] for name in names if name != "ours"])
    for out in outs.values():
        remove(out)
    return {
        "source": label,
        "machine": before,
        "release_bytes": sum(path.stat().st_size for path in used),
        "read_bandwidth": reading,
        "copy_bandwidth": copy_bandwidth_apart(),
        "counts": counts,
        "loaders": {name: _medians(found) for name, found in runs.items()},
    }


def _medians(runs: list[dict[str, float]]) -> dict[str, Any]:
    """The median of each figure over some runs, and the runs."""
    middle = {part: statistics.median(run[part] for run in runs) for part in runs[0]}
    return middle | {"runs": runs}


def _with_earlier(path: Path, result: dict[str, Any]) -> dict[str, Any]:
    """The result, extended by rounds in the JSON file with the same loaders and source."""
    for found in read_figures(path):
        if (found["source"], found["counts"]) == (result["source"], result["counts"]):
            for name, loader in found["loaders"].items():
                new = result["loaders"].get(name, {"runs": []})["runs"]
                result["loaders"][name] = _medians(loader["runs"] + new)
    return result


def table(result: dict[str, Any]) -> str:
    """The figures as a Markdown table."""
    counts, ours = result["counts"], result["loaders"]["ours"]["seconds"]
    lines = [
        f"**{result['source']}**, {len(result['loaders']['ours']['runs'])} rounds: "
        f"{counts['concepts']:,} concepts, {counts['terms']:,} terms, "
        f"{counts['tokens']:,} tokens, {counts['triplets']:,} triplets, the same from each.\n",
        "| loader | total, s | of ours | parse, filter, number | tokenize | write | start "
        "| peak, GB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, found in result["loaders"].items():
        parts = " | ".join(f"{found[part]:.1f}" for part in (*PARTS, "start"))
        lines.append(
            f"| {LOADERS[name]} | {found['seconds']:.1f} | {found['seconds'] / ours:.2f} | "
            f"{parts} | {found['peak_gb']:.2f} |"
        )
    size = result["release_bytes"]
    disk, copy = size / result["read_bandwidth"], 2 * size / result["copy_bandwidth"]
    lines.append(
        f"\nLimit: {size / 1e9:.2f} GB must be read: {disk:.2f} s from this disk "
        f"({result['read_bandwidth'] / 1e9:.1f} GB/s), {copy:.2f} s copied once in memory; ours "
        f"takes {ours / disk:.0f} times the first. {one_line(result['machine'])}."
    )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark, or, with --load, the process that it measures."""
    parser = plain_parser("ingest", __doc__)
    add_source_arguments(parser)
    parser.add_argument(
        "--add", action="store_true", help="add the rounds to those in --json of the same source"
    )
    parser.add_argument("--load", choices=LOADERS, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)

    def work() -> int:
        if args.load == "ours":
            write_json(args.json, load_ours(args.source, args.out, args.tokenizer))
        elif args.load:
            write_json(args.json, load_by_peer(args.load, args.source, args.out, args.tokenizer))
        else:
            _compare(args)
        return 0

    return run_command(work, when_asked=None)


def _compare(args: argparse.Namespace) -> None:
    """Measures, prints and keeps."""
    with prepared(args) as (release, label, tokenizer):
        result = measure(args.work, release, label, tokenizer, args.rounds, installed())
    if args.json and args.add:
        result = _with_earlier(args.json, result)
    print(table(result))
    if args.json:
        keep_rows(args.json, [result], ["source"])


if __name__ == "__main__":
    sys.exit(main())
