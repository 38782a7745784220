"""The small recipes and their ablations on a dataset of yours: one start, as many steps, one table.

    python -m launch.ablation --data DATASET --init MODEL --out runs/ablation --steps 250 \\
        --benchmark en=mentions.tsv --dictionary terms.tsv

trains each system below with `python -m coder_jax train`, exports it, scores it and the initial
encoder with `python -m coder_jax evaluate`, and writes OUT/table.md and OUT/table.json. A command
that was stopped goes on when it is given again; what is done is not done again.

    synonyms             pairs of synonyms alone, at the rate and margin that suit them
    coder                CODER: synonyms and relations, matrices
    coder_no_relations   the same batches as coder, without the loss of relations
    coder_transe         CODER with the TransE-like similarity of its ablation
    sapbert              SapBERT's loss, miner and pairs of names, at the rate of synonyms
    coder_v1             the first CODER paper: TransE with corrupted tails, on 255 terms a step
    uniform              CODER on relation rows as the paper draws them, all equally often
    uniform_no_relations the same batches as uniform, without the loss of relations

All but coder_v1 have 256 terms a step, all but synonyms and sapbert the rate of `small`. Of the
papers' ablations those of v1, with semantic types and without relations, are not among them.
"""

import argparse
import contextlib
import hashlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from coder_jax.runs.folder import check_identity
from coder_jax.training.config import to_json
from data_pipeline.files.buckets import local_folder
from data_pipeline.files.json_files import read_json
from data_pipeline.files.whole_files import write_json, written_whole
from data_pipeline.process.command import run_command
from data_pipeline.process.errors import BadInput
from data_pipeline.process.stopping import Stopped, poll

CODER = ["--recipe", "small"]
UNIFORM = [
    *("--recipe", "small", "--draw", "relations", "--names", "any"),
    *("--triplets", "32", "--repeats", "4"),
]
NO_RELATIONS = ["--mu", "0"]
SYSTEMS = {
    "synonyms": ["--recipe", "small_synonyms"],
    "coder": CODER,
    "coder_no_relations": CODER + NO_RELATIONS,
    "coder_transe": ["--recipe", "small_transe"],
    "coder_v1": ["--recipe", "small_v1"],
    "sapbert": ["--recipe", "small_sapbert"],
    "uniform": UNIFORM,
    "uniform_no_relations": UNIFORM + NO_RELATIONS,
}
INITIAL = "initial encoder"
SETTINGS = "ablation.json"  # in OUT, beside the first results
FORMAT = 3  # of SETTINGS; the first had no hashes, the second no `system`
MANIFEST = "manifest.json"  # of a dataset
# What stands for a benchmark in the table: the first of these that it has, shares in percent.
SCORES = {
    "acc@1": "{:.1%}",
    "mrr": "{:.1%}",
    "accuracy": "{:.1%}",
    "f1": "{:.1%}",
    "mcsm": "{:.2f}",
    "spearman": "{:.3f}",
}


def parse(arguments: list[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """The arguments, and flags that go to every training."""
    parser = argparse.ArgumentParser(
        prog="python -m launch.ablation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Other flags go to every training: python -m coder_jax train --recipe small --help",
    )
    parser.add_argument("--data", required=True, help="folder of a built dataset")
    parser.add_argument("--init", required=True, help="folder or hub id of the initial encoder")
    parser.add_argument("--out", type=Path, required=True, help="folder of all runs and results")
    parser.add_argument(
        "--benchmark", nargs="+", required=True, metavar="NAME=PATH", help="as for evaluate"
    )
    parser.add_argument(
        "--dictionary", nargs="+", default=[], metavar="[NAME=]PATH", help="as for evaluate"
    )
    parser.add_argument(
        "--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="default: all"
    )
    parser.add_argument("--steps", type=int, default=250, help="of each (default: 250)")
    return parser.parse_known_args(arguments)


def training_of(system: str, args: argparse.Namespace, flags: list[str]) -> list[str]:
    """The flags of a system's training that its result depends on."""
    steps = ["--steps", str(args.steps), "--warmup-steps", str(args.steps // 10)]
    return [*SYSTEMS[system], *steps, *flags]


def settings_of(args: argparse.Namespace, flags: list[str]) -> dict[str, Any]:
    """What the results depend on; how trainings are carried out does not count.

    Raises:
      BadInput: no dataset, a flag that `train` does not have, or what `evaluate` does not take.
    """
    from coder_jax.commands.arguments.evaluate import paths_of
    from coder_jax.commands.train import parse as parse_training

    systems = {}
    for name in args.systems:
        config = to_json(parse_training(training_of(name, args, flags)))
        systems[name] = {part: config[part] for part in config if part != "run"}
    benchmarks, dictionaries = paths_of(args.benchmark, args.dictionary)

    def files_of(benchmark: str) -> list[Path]:
        """Those that it names, and where mentions are looked up if no dictionary is given."""
        path = Path(benchmark)
        return [path, path.with_name("dictionary.tsv")] if path.is_file() else [path]

    def described(path: str, *files: Path) -> str:
        """What is there, wherever that is; of what is not on this machine the name."""
        return hash_of(files) or path

    return {
        "format": FORMAT,
        "data": dataset_hash(args.data),
        "init": described(args.init, local_folder(args.init, "config.json")),
        "benchmark": {name: described(path, *files_of(path)) for name, path in benchmarks.items()},
        "dictionary": {name: described(path, Path(path)) for name, path in dictionaries.items()},
        "systems": systems,
    }


def dataset_hash(path: str) -> str | None:
    """The content hash of a built dataset, as its manifest says it."""
    folder = local_folder(path, MANIFEST)
    if not (folder / MANIFEST).is_file():
        raise BadInput(
            f"--data {path}: found no {MANIFEST} there; expected a dataset: build one with "
            "`python -m data_pipeline.build`"
        )
    return read_json(folder / MANIFEST).get("content_hash")


def hash_of(paths: Iterable[Path]) -> str | None:
    """SHA-256 of files, and of all in folders with their names; None where there are none."""
    digests = []
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in filter(Path.is_file, inside):
            poll()
            with file.open("rb") as content:
                digest = hashlib.file_digest(content, "sha256").hexdigest()
            digests.append(f"{digest} {file.relative_to(path)}")
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest() if digests else None


def check_settings(args: argparse.Namespace, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of the systems that OUT has results of; BadInput if other settings made them."""
    done: dict[str, Any] = {}
    if (args.out / SETTINGS).exists():
        there = read_json(args.out / SETTINGS)
        if there.get("format") != FORMAT:
            raise BadInput(
                f"{args.out / SETTINGS} has the format {there.get('format')!r}, expected {FORMAT}: "
                "another version wrote it, whose settings cannot be compared with these, so its "
                "results are not taken for those of now; give another --out"
            )
        done = there["systems"]
        again = {name: settings["systems"].get(name, config) for name, config in done.items()}
        check_identity(there, settings | {"systems": again}, str(args.out))
    elif any(args.out.glob("*/results.json")):
        raise BadInput(
            f"{args.out} holds results but no {SETTINGS} that says what they are of; expected the "
            "folder of an ablation, or a new one: give another --out"
        )
    return done


def call(*words: str | Path) -> None:
    """A command of ours, in a process of its own; BadInput if it fails."""
    command = [sys.executable, "-P", "-m", "coder_jax", *map(str, words)]
    print(f"\n$ {shlex.join(['python', *command[2:]])}", flush=True)
    repo = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, (repo, os.environ.get("PYTHONPATH"))))
    status = None
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}) as process:
        try:
            while status is None:
                poll()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(0.5)
        except Stopped:
            process.terminate()  # it saves what it has
            raise
    poll()  # a Ctrl-C reaches both
    if status:
        raise BadInput(
            f"`coder_jax {words[0]}` ended with status {status}: see above; when that is mended, "
            "the same command goes on"
        )


def results_of(name: str, args: argparse.Namespace, flags: list[str]) -> list[dict[str, Any]]:
    """The records of one system, trained and scored if they are not there yet."""
    folder = args.out / name.replace(" ", "_")
    folder.mkdir(parents=True, exist_ok=True)
    scores, model = folder / "results.json", args.init
    if not scores.exists():
        if name != INITIAL:
            model = folder / "export"
            own = ["--data", args.data, "--init", args.init, "--out", folder / "run"]
            call("train", *own, "--eval-steps", "0", *training_of(name, args, flags))
            call("export", "--checkpoint", folder / "run", "--out", model)
        dictionary = ["--dictionary", *args.dictionary] if args.dictionary else []
        asked = ["--benchmark", *args.benchmark, *dictionary, "--pooling", "cls", "mean"]
        call("evaluate", "--model", model, "--json", scores, *asked)
    return json.loads(scores.read_text(encoding="utf-8"))["records"]


def row_of(system: str, pooling: str, records: list[dict[str, Any]]) -> dict[str, Any]:
    """{"system", "pooling", and for each benchmark the score that stands for it}."""
    row: dict[str, Any] = {"system": system, "pooling": pooling}
    for record in records:
        score = next((name for name in SCORES if name in record["scores"]), None)
        if score and record["encoder"]["pooling"] == pooling:
            row[f"{record['benchmark']} {score}"] = record["scores"][score]
    return row


def markdown(rows: list[dict[str, Any]]) -> str:
    """The rows as a table."""
    columns = list(rows[0])

    def cell(name: str, value: Any) -> str:
        if value is None or isinstance(value, str):
            return value or "undefined"
        return SCORES[name.rpartition(" ")[2]].format(value).removesuffix("%")

    lines = [columns, ["---"] * len(columns)]
    lines += [[cell(name, row[name]) for name in columns] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the ablations; its exit status is that of `run_command`."""
    args, flags = parse(arguments)

    def work() -> int:
        settings = settings_of(args, flags)
        rows, versions = [], {}
        done = check_settings(args, settings)
        for name in (INITIAL, *args.systems):
            records = results_of(name, args, flags)
            if name != INITIAL:
                done[name] = settings["systems"][name]
            write_json(args.out / SETTINGS, settings | {"systems": done})
            rows += [row_of(name, pooling, records) for pooling in ("cls", "mean")]
            versions[name] = records[0]["versions"]
        table = {"steps": args.steps, "versions": versions, "rows": rows}
        write_json(args.out / "table.json", table)
        with written_whole(args.out / "table.md") as unfinished:
            unfinished.write_text(markdown(rows), encoding="utf-8")
        print(f"\n{markdown(rows)}\ntable: {args.out / 'table.md'}")
        return 0

    return run_command(work)


if __name__ == "__main__":
    sys.exit(main())
