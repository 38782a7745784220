"""The small recipes and their ablations on a dataset of yours: one start, as many steps, one table.

    python -m launch.ablation --data DATASET --init MODEL --out runs/ablation --steps 250 \\
        --benchmark en=mentions.tsv --dictionary terms.tsv

trains each system below with `python -m coder_jax train`, exports it, scores it and the initial
encoder with `python -m coder_jax evaluate`, and writes OUT/table.md and OUT/table.json. A command
that was stopped goes on when it is given again; what is done is not done again.

With several --steps each system is trained anew for each of them, as a rate that falls to 0 at the
last step makes the end of a run another thing than its middle, and OUT/curves.png has the scores
over the steps, with [CLS]; so has a report that is given --curves OUT/curves.json. Longer runs may
be added later: give the same --out. Of each training the last checkpoint stays; --save-steps 500
keeps one in 500 steps, such as for `export --average`.

    synonyms             pairs of synonyms alone, at the rate and margin that suit them
    coder                CODER: synonyms and relations, matrices
    coder_no_relations   the same batches as coder, without the loss of relations
    coder_transe         CODER with the TransE-like similarity of its ablation
    coderpp              as synonyms, an eighth of each group near concepts (CODER++); they are
                         found before the first step, and anew if --refreshes says so
    sapbert              SapBERT's loss, miner and pairs of names, at the rate of synonyms
    coder_v1             the first CODER paper: TransE with corrupted tails, on 255 terms a step
    uniform              CODER on relation rows as the paper draws them, all equally often
    uniform_no_relations the same batches as uniform, without the loss of relations

And, only where --systems names them, synonyms with one change each:

    augmented            a fifth of the names as people write them
    matryoshka           the loss summed over the first 384, 256, 128 and 64 numbers of a vector

All but coder_v1 have 256 terms a step, all but synonyms (and its changes), coderpp and sapbert the
rate of `small`.
Of the papers' ablations those of v1, with semantic types and without relations, are not among them.
"""

import argparse
import json
import math
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from coder_jax.training.system import to_json
from data_pipeline.files.buckets import local_folder
from data_pipeline.files.whole import write_json, write_text
from data_pipeline.process import BadInput, run_command
from launch.experiment import (
    EXPORT,
    RESULTS,
    SCORES,
    Row,
    add_arguments,
    call,
    dataset_hash,
    described,
    folder_of,
    markdown,
    mean_rows,
    recorded,
    side_by_side,
    with_seeds,
    without,
)
from launch.learning_curves import plot_curves

_CODER = ["--recipe", "small"]
_UNIFORM = [
    *("--recipe", "small", "--draw", "relations", "--names", "any"),
    *("--triplets", "32", "--repeats", "4"),
]
_NO_RELATIONS = ["--mu", "0"]
_SYSTEMS = {
    "synonyms": ["--recipe", "small_synonyms"],
    "coder": _CODER,
    "coder_no_relations": _CODER + _NO_RELATIONS,
    "coder_transe": ["--recipe", "small_transe"],
    "coder_v1": ["--recipe", "small_v1"],
    "sapbert": ["--recipe", "small_sapbert"],
    "coderpp": ["--recipe", "coderpp_small"],
    "uniform": _UNIFORM,
    "uniform_no_relations": _UNIFORM + _NO_RELATIONS,
}
_CHANGES = {
    "augmented": ["--augment", "0.2"],
    "matryoshka": ["--matryoshka", "384", "256", "128", "64"],
}
_ALL = _SYSTEMS | {name: _SYSTEMS["synonyms"] + change for name, change in _CHANGES.items()}
_INITIAL = "initial encoder"
_SETTINGS = "ablation.json"  # in OUT, beside the first results
_FORMAT = 3  # of SETTINGS; the first had no hashes, the second no `system`


def _parse(arguments: list[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """The parsed arguments, and the flags that are passed to every training."""
    parser = argparse.ArgumentParser(
        prog="python -m launch.ablation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Other flags go to every training: python -m coder_jax train --recipe small --help",
    )
    parser.add_argument(
        "--init", required=True, metavar="MODEL", help="folder or hub id of the initial encoder"
    )
    add_arguments(parser, "system")
    parser.add_argument(
        "--systems",
        nargs="+",
        choices=_ALL,
        default=list(_SYSTEMS),
        metavar="SYSTEM",
        help="which of the above to train (default: all but the changes of synonyms)",
    )
    parser.add_argument(
        "--steps",
        nargs="+",
        type=int,
        default=[250],
        metavar="N",
        help="steps of each training (default: 250); those after the first are trained with the "
        "first seed alone",
    )
    parser.add_argument(
        "--at-once",
        type=int,
        default=1,
        metavar="N",
        help="trainings side by side, such as 6 on one large GPU, which a small encoder does not "
        "fill; what each prints goes to log.txt in its folder (default: 1)",
    )
    parser.add_argument(
        "--refreshes",
        type=int,
        default=1,
        metavar="N",
        help="how often coderpp finds its neighbours, at even distances from the first step on: "
        "all terms are encoded each time, which may take longer than training (default: 1)",
    )
    return parser.parse_known_args(arguments)


class _Training(NamedTuple):
    """A training: its system, its steps, and the flags that its result depends on."""

    system: str
    steps: int
    flags: list[str]


def _trainings_of(args: argparse.Namespace, flags: list[str]) -> dict[str, _Training]:
    """The trainings by name; those with the first value of --steps are named by their system
    alone.
    """
    trainings = {}
    for place, steps in enumerate(dict.fromkeys(args.steps)):
        length = ["--steps", str(steps), "--warmup-steps", str(steps // 10)]
        every = ["--refresh-steps", str(math.ceil(steps / args.refreshes))]
        # Seed by seed: a whole table comes soon, and the first compiles for the others.
        for seed in args.seeds[: 1 if place else None]:
            for system in args.systems:
                own = [*_ALL[system], *length, *(every if system.startswith("coderpp") else [])]
                (name,) = with_seeds(f"{system}, {steps} steps" if place else system, [seed])
                trainings[name] = _Training(system, steps, [*own, "--seed", str(seed), *flags])
    return trainings


def _settings_of(args: argparse.Namespace, flags: list[str]) -> dict[str, Any]:
    """The settings that results depend on; how trainings are carried out is not among them.

    Raises:
      BadInput: no dataset, a flag that `train` does not have, or what `evaluate` does not take.
    """
    from coder_jax.commands.evaluate import paths_of
    from coder_jax.commands.train import parse as parse_training

    systems = {}
    for name, training in _trainings_of(args, flags).items():
        config = to_json(parse_training(training.flags))
        systems[name] = {part: config[part] for part in config if part != "run"}
    benchmarks, dictionaries = paths_of(args.benchmark, args.dictionary)

    def files_of(benchmark: str) -> list[Path]:
        """The files of a benchmark, and the dictionary that it is searched in by default."""
        path = Path(benchmark)
        return [path, path.with_name("dictionary.tsv")] if path.is_file() else [path]

    return {
        "format": _FORMAT,
        "data": dataset_hash(args.data),
        "init": described(args.init, local_folder(args.init, "config.json")),
        "benchmark": {name: described(path, *files_of(path)) for name, path in benchmarks.items()},
        "dictionary": {name: described(path) for name, path in dictionaries.items()},
        "systems": systems,
    }


def _results_of(
    name: str, args: argparse.Namespace, training: _Training | None
) -> list[dict[str, Any]]:
    """The records of one training, which is first carried out and scored if they are missing.

    Args:
      training: None for the initial encoder.
    """
    folder = args.out / folder_of(name)
    folder.mkdir(parents=True, exist_ok=True)
    scores, model = folder / RESULTS, args.init
    log = folder / "log.txt" if args.at_once > 1 else None
    if not scores.exists():
        if training is not None:
            model = folder / EXPORT
            own = ["--data", args.data, "--init", args.init, "--out", folder / "run"]
            # The checkpoint needed to resume is kept anyway; keeping many would fill a disk.
            sparing = ["--eval-steps", "0", "--save-steps", str(training.steps)]
            call("coder_jax", "train", *own, *sparing, *training.flags, log=log)
            call("coder_jax", "export", "--checkpoint", folder / "run", "--out", model, log=log)
        dictionary = ["--dictionary", *args.dictionary] if args.dictionary else []
        asked = ["--benchmark", *args.benchmark, *dictionary, "--pooling", "cls", "mean"]
        call("coder_jax", "evaluate", "--model", model, "--json", scores, *asked, log=log)
    return json.loads(scores.read_text(encoding="utf-8"))["records"]


def _row_of(system: str, steps: int, pooling: str, records: list[dict[str, Any]]) -> Row:
    """{"system", "steps", "pooling", and each benchmark's main score}.

    That is the first of SCORES that it has.
    """
    row: Row = {"system": system, "steps": steps, "pooling": pooling}
    for record in records:
        score = next((name for name in SCORES if name in record["scores"]), None)
        if score and record["encoder"]["pooling"] == pooling:
            row[f"{record['benchmark']} {score}"] = record["scores"][score]
    return row


def main(arguments: list[str] | None = None) -> int:
    """Run the ablations; its exit status is that of `run_command`."""
    args, flags = _parse(arguments)

    def work() -> int:
        for flag, number in (("--refreshes", args.refreshes), ("--at-once", args.at_once)):
            if number < 1:
                raise BadInput(f"{flag} {number}: expected at least 1")
        settings = _settings_of(args, flags)
        trainings: dict[str, _Training | None] = {_INITIAL: None, **_trainings_of(args, flags)}

        def found(name: str) -> tuple[str, tuple[str, list[dict[str, Any]]]]:
            return name, (name, _results_of(name, args, trainings[name]))

        results = side_by_side(args.at_once, [partial(found, name) for name in trainings])
        rows_of, versions = {}, {}
        for name, records in recorded(args.out, _SETTINGS, settings, results):
            training = trainings[name]
            what = (training.system, training.steps) if training else (_INITIAL, 0)
            rows_of[name] = [_row_of(*what, pooling, records) for pooling in ("cls", "mean")]
            versions[name] = records[0]["versions"]
        rows = [row for name in trainings for row in rows_of[name]]
        table = {"steps": args.steps, "seeds": args.seeds, "versions": versions, "rows": rows}
        write_json(args.out / "table.json", table)
        means = mean_rows(rows, ("system", "steps", "pooling"))
        several = len(set(args.steps)) > 1
        shown = markdown(means if several else [without(row, "steps") for row in means])
        write_text(args.out / "table.md", shown)
        print(f"\n{shown}\ntable: {args.out / 'table.md'}")
        if several:
            plot_curves(means, args.out)
        return 0

    return run_command(work)


if __name__ == "__main__":
    sys.exit(main())
