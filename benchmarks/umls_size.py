"""The data side at the size of the UMLS: time, memory and rate, with the limits beside them.

Writes an invented release of the UMLS's size and shape, builds a dataset from it, and starts fresh
processes that open the dataset and stream batches of the paper's shape (8 groups of 16 triplets, 8
times each, rows of 128 tokens). Each part runs in a process of its own, whose peak memory is what
the system reports.

    python -m benchmarks.umls_size --work /big/disk --json benchmarks/results/umls_size.json
    python -m benchmarks.umls_size --work /tmp/small --scale 0.01
"""

import json
import re
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.command import plain_parser
from benchmarks.default_model import model_or_default
from benchmarks.machine import machine, one_line
from benchmarks.process import forget, in_a_process, run_child
from benchmarks.stream import stream
from data_pipeline.files.whole import write_json
from data_pipeline.process import BadInput, peak_memory, run_command

# The project's limits at scale 1, on two cores.
_LIMITS = {
    "build_minutes": 30.0,
    "build_gb": 12.0,
    "start_s": 60.0,
    "terms_per_s": 500_000,
    "stream_gb": 3.0,
}


def _build(source: Path, out: Path, tokenizer: str) -> dict[str, Any]:
    """Builds the dataset in a fresh process."""
    module = [sys.executable, "-m", "data_pipeline.build"]
    options = ["--source", str(source), "--out", str(out), "--tokenizer", tokenizer]
    # Suppressed rows are included, so that all rows of the files are processed.
    ended = run_child([*module, *options, "--keep-suppressed", "--overwrite"])
    reading = re.search(r"triplets in ([\d.]+) s", ended.said)
    counts = json.loads((out / "manifest.json").read_text(encoding="utf-8"))["counts"]
    return {
        "build_minutes": ended.seconds / 60,
        "build_reading_minutes": float(reading[1]) / 60 if reading else None,
        "build_gb": ended.peak_gb,
        "dataset_gb": sum(file.stat().st_size for file in out.rglob("*")) / 1e9,
        "counts": {name: counts[name] for name in ("concepts", "terms", "tokens", "triplets")},
    }


def _stream_apart(dataset: Path, seconds: float, cold: bool) -> dict[str, Any]:
    """Opens the dataset in a fresh process and streams from it."""
    if cold:
        forget(dataset)
    found = in_a_process(_stream_here, dataset, seconds, time.time())
    return found | {"files_in_memory": not cold}


def _stream_here(dataset: Path, seconds: float, started: float) -> dict[str, Any]:
    """What a training process does before its first step, and then as many batches as it can make.

    Args:
        dataset: the built dataset.
        seconds: to stream for.
        started: when this process was started, seconds since the epoch.
    """
    import coder_jax.training.train  # noqa: F401  (a training process has it, and jax, in memory)
    from data_pipeline.batches.batch_maker import BatchMaker
    from data_pipeline.batches.spec import BatchSpec
    from data_pipeline.dataset.store import open_dataset

    imported = time.time()
    opened_dataset = open_dataset(dataset)
    opened = time.time()
    maker = BatchMaker(opened_dataset, BatchSpec())
    del opened_dataset
    planned = time.time()
    batches = maker.batches(0)
    next(batches)
    ready = time.time()
    return {
        "start_s": ready - started,
        "start_import_s": imported - started,
        "start_open_s": opened - imported,
        "start_plan_s": planned - opened,
        "start_first_batch_s": ready - planned,
        **stream(batches, maker, seconds),
        "stream_gb": peak_memory(),
    }


def measure(work: Path, scale: float, tokenizer: str, repeats: int, seconds: float) -> dict:
    """All figures: medians of the processes that stream, and each process's own."""
    result: dict[str, Any] = {"scale": scale, "machine": machine()}
    module = [sys.executable, "-m", "benchmarks.synthetic_release"]
    release, dataset = work / "META", work / "dataset"
    if not (release / "MRFILES.RRF").exists():
        options = ["--out", str(release), "--scale", str(scale)]
        result["write_minutes"] = run_child([*module, *options]).seconds / 60
    result["release_gb"] = sum(file.stat().st_size for file in release.iterdir()) / 1e9
    result |= _build(release, dataset, tokenizer)
    runs = [_stream_apart(dataset, seconds, cold=number == 0) for number in range(repeats)]
    names = ("start_s", "terms_per_s", "tokens_per_s", "fill", "stream_gb")
    result |= {name: statistics.median(run[name] for run in runs) for name in names}
    return result | {"stream_runs": runs}


def table(result: dict) -> str:
    """The figures as a Markdown table."""
    counts = result["counts"]
    rows = [
        ("build, minutes", "build_minutes", f"{result['build_minutes']:.1f}", "at most"),
        ("build, peak memory, GB", "build_gb", f"{result['build_gb']:.1f}", "at most"),
        ("start to first batch, s", "start_s", f"{result['start_s']:.1f}", "at most"),
        ("stream, terms/s", "terms_per_s", f"{result['terms_per_s']:,.0f}", "at least"),
        ("stream, peak memory, GB", "stream_gb", f"{result['stream_gb']:.2f}", "at most"),
    ]
    lines = ["| what | measured | limit |", "|---|---|---|"]
    for what, name, found, side in rows:
        is_met = (
            result[name] >= _LIMITS[name] if side == "at least" else result[name] <= _LIMITS[name]
        )
        lines.append(
            f"| {what} | {found} | {side} {_LIMITS[name]:,g}{'' if is_met else ', MISSED'} |"
        )
    lines.append(
        f"\nScale {result['scale']:g}: {counts['concepts']:,} concepts, {counts['terms']:,} "
        f"distinct terms, {counts['triplets']:,} distinct triplets built from "
        f"{result['release_gb']:.1f} GB; rows {result['fill']:.3f} full. "
        f"{one_line(result['machine'])}."
    )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark."""
    parser = plain_parser("umls_size", __doc__)
    parser.add_argument("--work", type=Path, help="folder for release and dataset (20 GB)")
    parser.add_argument("--scale", type=float, default=1.0, help="1 is UMLS 2020AA (default: 1)")
    parser.add_argument("--tokenizer", metavar="MODEL", help="default: all-MiniLM-L6-v2")
    parser.add_argument("--repeats", type=int, default=3, help="streaming processes (default: 3)")
    parser.add_argument("--seconds", type=float, default=30, help="to stream (default: 30)")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--keep", action="store_true", help="keep release and dataset")
    args = parser.parse_args(argv)

    def work() -> int:
        if not args.work:
            raise BadInput("--work is missing; give a folder on a disk with 20 GB of room")
        args.work.mkdir(parents=True, exist_ok=True)
        tokenizer = model_or_default(args.tokenizer)
        result = measure(args.work, args.scale, tokenizer, args.repeats, args.seconds)
        print(table(result))
        if not args.keep:
            for name in ("META", "dataset"):
                shutil.rmtree(args.work / name)
        if args.json:
            args.json.parent.mkdir(parents=True, exist_ok=True)
            write_json(args.json, result)
        return 0

    return run_command(work, when_asked=None)


if __name__ == "__main__":
    sys.exit(main())
