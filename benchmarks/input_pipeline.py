"""Batches of terms per second: our BatchMaker beside the DataLoader of CODER's released code.

Both make the batches of the paper, 8 groups of 16 triplets, 8 times each: 2,048 terms a step, from
the same RRF files with all rows, suppressed ones too. Ours reads a dataset that was built once,
draws with stateless random numbers, and packs the tokens into rows of 128. The peer holds the
release as Python strings, draws with Python's random, tokenizes what it drew with the fast
tokenizer, and pads to 32; 0, 1 and 2 DataLoader workers are tried and the best is kept. Each is a
process of its own; they take turns, one waiting while the other is measured, and medians are kept.

    python -m benchmarks.input_pipeline --work /tmp/work --scale 0.05 \\
        --json benchmarks/results/input_pipeline.json
    python -m benchmarks.input_pipeline --work /tmp/work --source openmeta --seconds 10

The results of earlier runs on other sources stay in the JSON file. The whole size of the UMLS,
which the peer cannot hold, is `benchmarks.umls_size`.
"""

import argparse
import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.command import plain_parser
from benchmarks.machine import machine, one_line
from benchmarks.process import Child, copy_bandwidth_apart, run_child, tree_memory
from benchmarks.release import add_source_arguments, prepared
from benchmarks.results_file import keep_rows
from benchmarks.rounds import turns
from benchmarks.stream import MADE_AHEAD, stream
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.process import peak_memory, run_command

# In reverse order, so that workers are forked from a process whose tokenizer has no threads yet.
_WORKERS = (2, 1, 0)

_Ask = Callable[[dict], dict[str, Any]]


def _serve(ready: dict[str, Any], measure: _Ask) -> None:
    """Answers each JSON line on standard input with a JSON line."""
    print(json.dumps(ready), flush=True)
    for line in sys.stdin:
        print(json.dumps(measure(json.loads(line))), flush=True)


def _serve_ours(dataset: Path) -> None:
    """Opens the dataset, and streams each time it is asked to."""
    from data_pipeline.batches.batch_maker import BatchMaker
    from data_pipeline.dataset.store import open_dataset

    before, started = peak_memory(), time.monotonic()
    maker = BatchMaker(open_dataset(dataset), BatchSpec())
    batches = maker.batches(0)
    batch = next(batches)
    ready = {
        "load_s": time.monotonic() - started,
        "empty_gb": before,
        "terms": int(maker.token_start.shape[0]) - 1,
        "relations": maker.draw.size,
        # Read once and written once, less the tables' offsets.
        "batch_bytes": sum(array.nbytes for array in batch.values())
        + int((batch["segments"] > 0).sum()) * maker.tokens.dtype.itemsize,
    }
    _serve(
        ready,
        lambda question: stream(batches, maker, question["seconds"]) | {"memory_gb": peak_memory()},
    )


def _serve_peer(release: Path, tokenizer: str) -> None:
    """Loads the release, and streams with the requested number of workers."""
    from benchmarks.released_loader import (
        PADDED_LENGTH,
        Collate,
        ReleasedDataset,
        released_batches,
    )

    before, started = peak_memory(), time.monotonic()
    spec = BatchSpec()
    dataset = ReleasedDataset(release, spec, items=10**9)
    collate = Collate(tokenizer, spec)
    open_streams: dict[int, Iterator[dict]] = {}
    ready = {
        "load_s": time.monotonic() - started,
        "empty_gb": before,
        "terms": sum(map(len, dataset.terms.values())),
        "relations": len(dataset.relations),
    }

    def measure(question: dict) -> dict[str, Any]:
        workers = question["workers"]
        if workers not in open_streams:
            open_streams.clear()  # ends the workers of the others
            open_streams[workers] = released_batches(dataset, collate, workers)
        batches = open_streams[workers]
        for _ in range(MADE_AHEAD):
            next(batches)
        begun, count, tokens = time.monotonic(), 0, 0
        while time.monotonic() - begun < question["seconds"]:
            tokens += int((next(batches)["input_ids"] > 0).sum())
            count += 1
        taken = time.monotonic() - begun
        return {
            "terms_per_s": count * spec.terms / taken,
            "tokens_per_s": tokens / taken,
            "fill": tokens / (count * spec.terms * PADDED_LENGTH),
            "batches": count,
            "workers": workers,
            "memory_gb": max(peak_memory(), tree_memory()),
        }

    _serve(ready, measure)


def measure(
    work: Path, release: Path, label: str, tokenizer: str, rounds: int, seconds: float
) -> dict[str, Any]:
    """The figures of both on one release."""
    before = machine()
    dataset = work / ("dataset-" + re.sub(r"[^\w.]+", "-", label))
    command = [sys.executable, "-m", "data_pipeline.build", "--source", str(release)]
    command += ["--out", str(dataset), "--tokenizer", tokenizer, "--keep-suppressed"]
    run_child(command)  # one that is there, of the same files, stays as it is
    module = [sys.executable, "-m", "benchmarks.input_pipeline"]
    ours = Child([*module, "--serve", "ours", "--dataset", str(dataset)])
    peer = Child([*module, "--serve", "peer", "--source", str(release), "--tokenizer", tokenizer])
    ready = {"ours": ours.answer(), "peer": peer.answer()}

    def ask(child: Child, **question: float) -> dict[str, Any]:
        found = child.ask(json.dumps(question))
        print(found, file=sys.stderr, flush=True)
        return found

    tried = [ask(peer, seconds=seconds / 2, workers=workers) for workers in _WORKERS]
    best = max(tried, key=lambda found: found["terms_per_s"])["workers"]
    asked = {
        "ours": lambda: ask(ours, seconds=seconds),
        "peer": lambda: ask(peer, seconds=seconds, workers=best),
    }
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in asked}
    for order in turns(list(asked), rounds):
        for name in order:
            runs[name].append(asked[name]())
    for child in (ours, peer):
        child.finish()
    return {
        "source": label,
        "machine": before,
        "release_bytes": sum(path.stat().st_size for path in release.glob("*.RRF")),
        "copy_bandwidth": copy_bandwidth_apart(),
        "tried": tried,
        "pipelines": {
            name: ready[name]
            | {
                figure: statistics.median(run[figure] for run in found)
                for figure in ("terms_per_s", "tokens_per_s", "fill", "memory_gb")
            }
            | {"runs": found}
            for name, found in runs.items()
        },
    }


def table(result: dict[str, Any]) -> str:
    """The figures as a Markdown table."""
    ours, peer = result["pipelines"]["ours"], result["pipelines"]["peer"]
    workers = peer["runs"][0]["workers"]
    bytes_per_term = ours["batch_bytes"] / BatchSpec().terms
    limit = result["copy_bandwidth"] / bytes_per_term
    lines = [
        f"**{result['source']}**: {ours['terms']:,} distinct terms and {ours['relations']:,} "
        f"distinct triplets in ours, {peer['terms']:,} (first rows of LUIs) and "
        f"{peer['relations']:,} in the peer.\n",
        "| pipeline | terms/s | tokens/s | fill | memory, GB | loading, s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, found in (
        ("ours: BatchMaker, packed rows of 128", ours),
        (f"released code's DataLoader, padded to 32, {workers} workers", peer),
    ):
        lines.append(
            f"| {name} | {found['terms_per_s']:,.0f} | {found['tokens_per_s']:,.0f} | "
            f"{found['fill']:.3f} | {found['memory_gb']:.2f} | {found['load_s']:.1f} |"
        )
    lines.append(f"| ratio | {ours['terms_per_s'] / peer['terms_per_s']:.1f} |  |  |  |  |")
    tried = ", ".join(f"{x['workers']}: {x['terms_per_s']:,.0f}" for x in result["tried"])
    lines.append(
        f"\nTerms/s of the peer by its number of workers: {tried}. Limit: a term of ours moves "
        f"{bytes_per_term:.0f} bytes, {limit:,.0f} terms/s at the "
        f"{result['copy_bandwidth'] / 1e9:.1f} GB/s of a copy; ours reaches "
        f"{ours['terms_per_s'] / limit:.1%} of that."
    )
    if "scale" in result:
        whole = peer["empty_gb"] + (peer["memory_gb"] - peer["empty_gb"]) / result["scale"]
        lines.append(f"At the size of the UMLS the peer would take, in proportion, {whole:.0f} GB.")
    return "\n".join([*lines, f"\n{one_line(result['machine'])}."])


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark, or, with --serve, one of the processes that it measures."""
    parser = plain_parser("input_pipeline", __doc__)
    add_source_arguments(parser)
    parser.add_argument("--seconds", type=float, default=10, help="of a turn (default: 10)")
    parser.add_argument("--serve", choices=("ours", "peer"), help=argparse.SUPPRESS)
    parser.add_argument("--dataset", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)

    def work() -> int:
        if args.serve == "ours":
            _serve_ours(args.dataset)
        elif args.serve == "peer":
            _serve_peer(args.source, args.tokenizer)
        else:
            _compare(args)
        return 0

    return run_command(work, when_asked=None)


def _compare(args: argparse.Namespace) -> None:
    """Measures, prints and keeps."""
    with prepared(args) as (release, label, tokenizer):
        result = measure(args.work, release, label, tokenizer, args.rounds, args.seconds)
    if not args.source:
        result["scale"] = args.scale
    print(table(result))
    if args.json:
        keep_rows(args.json, [result], ["source"])


if __name__ == "__main__":
    sys.exit(main())
