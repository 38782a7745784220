"""What experiments with several trainings share: their commands, and their table of results.

An experiment keeps its settings in its folder and takes no result of other settings for its own. A
command that was stopped goes on when it is given again; what is done is not done again.
"""

import argparse
import contextlib
import hashlib
import json
import math
import os
import shlex
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from coder_jax.training.run_folder import check_identity
from data_pipeline.files.buckets import local_folder
from data_pipeline.files.identity import read_json
from data_pipeline.files.whole import write_json
from data_pipeline.process import BadInput, Stopped, poll

_MANIFEST = "manifest.json"  # of a dataset
RESULTS, EXPORT = "results.json", "export"  # in the folder of a training
# The labels of scores; shares are in percent.
SCORES = {
    "acc@1": "{:.1%}",
    "acc@1 + XM": "{:.1%}",
    "map": "{:.1%}",
    "coverage@10": "{:.1%}",
    "mrr": "{:.1%}",
    "accuracy": "{:.1%}",
    "f1": "{:.1%}",
    "mcsm": "{:.2f}",
    "spearman": "{:.3f}",
}
Row = dict[str, Any]
T = TypeVar("T")


def call(*words: str | Path, log: Path | None = None) -> None:
    """Runs `python -m` with these words in another process; BadInput if it fails.

    Where a signal asks this process to stop, the other one is asked, too, and has time to save.

    Args:
      log: what it prints is added to this file, where several run side by side.
    """
    command = [sys.executable, "-P", "-m", *map(str, words)]
    shown = f"\n$ {shlex.join(['python', *command[2:]])}"
    print(shown if log is None else f"{log.parent.name}: {words[1]}, see {log}", flush=True)
    repo = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, (repo, os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path}
    status, output = None, None
    with contextlib.ExitStack() as opened:
        if log is not None:
            # Else the first would reserve most of a GPU's memory.
            environment.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
            output = opened.enter_context(log.open("a", encoding="utf-8"))
            print(shown, file=output, flush=True)
        process = opened.enter_context(
            subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        )
        try:
            while status is None:
                poll()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(0.5)
        except Stopped:
            process.terminate()  # Ctrl-C may have reached it already: two at once are one request
            raise
    poll()  # a Ctrl-C reaches both
    if status:
        name = " ".join(map(str, words[:2] if words[0] == "coder_jax" else words[:1]))
        raise BadInput(
            f"`{name}` ended with status {status}: see {log or 'above'}; when that is mended, the "
            "same command goes on"
        )


def side_by_side(number: int, works: Sequence[Callable[[], T]]) -> Iterator[T]:
    """The results of some works as they are done, so many at a time; after a failure no other
    begins.
    """
    waiting, under_way = iter(works), set[Future[T]]()
    with ThreadPoolExecutor(number) as pool:
        while True:
            under_way |= {pool.submit(work) for work in islice(waiting, number - len(under_way))}
            if not under_way:
                return
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for one in done:
                yield one.result()


def add_arguments(parser: argparse.ArgumentParser, trained: str) -> None:
    """Adds the arguments that all experiments have.

    Args:
      trained: what has several trainings, in the help.
    """
    parser.add_argument(
        "--data", required=True, metavar="DATASET", help="folder of a built dataset"
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder of all that is made"
    )
    parser.add_argument(
        "--benchmark",
        nargs="+",
        required=True,
        metavar="NAME=PATH",
        help="test sets, each with a name of your choice, as for evaluate",
    )
    parser.add_argument(
        "--dictionary",
        nargs="+",
        default=[],
        metavar="[NAME=]PATH",
        help="terms to search, as for evaluate (default: those that the test sets have)",
    )
    parser.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        default=[0],
        metavar="N",
        help=f"seeds, with each of which every {trained} is trained; the table has the means and "
        "standard errors (default: 0)",
    )


def dataset_hash(path: str) -> str | None:
    """The content hash in a built dataset's manifest."""
    folder = local_folder(path, _MANIFEST)
    if not (folder / _MANIFEST).is_file():
        raise BadInput(
            f"--data {path}: found no {_MANIFEST} there; expected a dataset: build one with "
            "`python -m data_pipeline.build`"
        )
    return read_json(folder / _MANIFEST).get("content_hash")


def described(path: str, *files: Path) -> str:
    """A hash of the files at a path, wherever they are; for a path that is not here, its name."""
    return _hash_of(files or [Path(path)]) or path


def _hash_of(paths: Iterable[Path]) -> str | None:
    """SHA-256 of files, and of folders' files with their names; None if there are none."""
    digests = []
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in filter(Path.is_file, inside):
            poll()
            with file.open("rb") as content:
                digest = hashlib.file_digest(content, "sha256").hexdigest()
            digests.append(f"{digest} {file.relative_to(path)}")
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest() if digests else None


def _check_settings(out: Path, file: str, settings: Row) -> Row:
    """The settings of the trainings whose results are in OUT; BadInput if others made them.

    Args:
      out, file: the folder of the experiment, and the name of its settings there.
      settings: those of now, with "format", and under "systems" those of each training.
    """
    done: Row = {}
    if (out / file).exists():
        there = read_json(out / file)
        if there.get("format") != settings["format"]:
            raise BadInput(
                f"{out / file} has the format {there.get('format')!r}, expected "
                f"{settings['format']!r}: another version wrote it, whose settings cannot be "
                "compared with these, so its results are not taken for those of now; give another "
                "--out"
            )
        done = there["systems"]
        again = {name: settings["systems"].get(name, config) for name, config in done.items()}
        check_identity(there, settings | {"systems": again}, str(out))
    elif any(out.glob(f"*/{RESULTS}")):
        raise BadInput(
            f"{out} holds results but no {file} that says what they are of; expected the folder of "
            "such an experiment, or a new one: give another --out"
        )
    return done


def recorded(out: Path, file: str, settings: Row, results: Iterable[tuple[str, T]]) -> Iterator[T]:
    """The results in OUT so far; if there are any, OUT also records their settings.

    Scores and exports of trainings that were cut off before that are made again: of which settings
    they are is not known. Of its run `train` knows it.

    Args:
      out, file, settings: as for `_check_settings`.
      results: (name, result) of each, made one after the other as they are asked for.
    """
    done = _check_settings(out, file, settings)
    for folder in (out / folder_of(name) for name in settings["systems"] if name not in done):
        (folder / RESULTS).unlink(missing_ok=True)
        shutil.rmtree(folder / EXPORT, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / file, settings | {"systems": done})
    for name, result in results:
        if name in settings["systems"]:
            done[name] = settings["systems"][name]
            write_json(out / file, settings | {"systems": done})
        yield result


def with_seeds(name: str, seeds: Sequence[int]) -> dict[str, int]:
    """The names of one system's trainings, by seed; with seed 0 it is the system's name."""
    return {f"{name}, seed {seed}" if seed else name: seed for seed in seeds}


def folder_of(name: str) -> str:
    """The folder of a training's files: coder_seed_1 for "coder, seed 1"."""
    return name.replace(",", "").replace(" ", "_")


def mean_rows(rows: Sequence[Row], keys: Sequence[str]) -> list[Row]:
    """One row for those with equal `keys`: the mean of each score, and its standard error.

    Returns:
        Rows with `{score: (mean, standard error)}`, the error None for a single row; a score that
        is undefined in one row is None.
    """
    grouped: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        grouped.setdefault(tuple(row[key] for key in keys), []).append(row)
    return [
        {
            name: first[name] if name in keys else _mean_of([row.get(name) for row in same])
            for name in first
        }
        for same in grouped.values()
        for first in same[:1]
    ]


def without(row: Row, name: str) -> Row:
    """A row without one of its columns."""
    return {column: value for column, value in row.items() if column != name}


def _mean_of(values: Sequence[float | None]) -> tuple[float, float | None] | None:
    """The mean, and its standard error (None for one value); None if a value is undefined."""
    defined = [value for value in values if value is not None]
    if not defined or len(defined) < len(values):
        return None
    error = statistics.stdev(defined) / math.sqrt(len(defined)) if len(defined) > 1 else None
    return statistics.fmean(defined), error


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of `mean_rows` as a Markdown table, with the labels of SCORES."""
    columns = list(rows[0])

    def cell(name: str, value: Any) -> str:
        if value is None or isinstance(value, str):
            return value or "undefined"
        if isinstance(value, int):
            return f"{value:,}"
        form = next(form for score, form in SCORES.items() if name.endswith(f" {score}"))
        shown = [form.format(part).removesuffix("%") for part in value if part is not None]
        return " ± ".join(shown)

    lines = [columns, ["---"] * len(columns)]
    lines += [[cell(name, row[name]) if name in row else "" for name in columns] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
