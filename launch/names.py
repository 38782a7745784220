"""From text to an evaluated encoder of names: skip-grams, BNE, its export, one table.

    python -m launch.names --data data/diseases --text abstracts.jsonl.gz --out runs/names \\
        --benchmark ncbi=NCBItestset_corpus.txt coverage=data/diseases --dictionary medic.txt

learns vectors of words from the text (`python -m data_pipeline.skip_gram`), trains BNE with them on
the names of a dataset, exports it, and scores it beside the mean of a name's word vectors and
encoders of yours (--compare), each with the command that it prints. OUT/table.md and OUT/table.json
hold what came out. A command that was stopped goes on when it is given again; what is done is not
done again.

The dataset is made by

    python -m data_pipeline.build --source umls --semantic-groups DISO --languages ENG \\
        --tokenizer bert-base-uncased --cleaning none --hold-out-concepts 1000 --out data/diseases

--cleaning none keeps the words of names as they are; BNE has a rule of its own for words.
"""

import argparse
import os
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from coder_jax.evaluation.name_pairs import WMD
from coder_jax.training.system import to_json
from data_pipeline.batches.bne import check_cleaning
from data_pipeline.dataset.store import read_manifest
from data_pipeline.files.buckets import local_folder
from data_pipeline.files.identity import DATASET, read_json
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
    with_seeds,
)

_SETTINGS = "names.json"  # in OUT, beside the first results
_FORMAT = 2  # of SETTINGS
_HELD_OUT = Path("heldout/concepts.tsv")  # of a dataset built with --hold-out-concepts
_AVERAGED, _MOVED = "mean of word vectors", "word vectors by WMD"
_EVAL_STEPS = 500  # with --development; --eval-steps changes it
_SHOWN = [score for score in SCORES if score != "mrr"]  # beside acc@1 it would say the same


def _parse(arguments: list[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """The parsed arguments, and the flags that are passed to every training."""
    parser = argparse.ArgumentParser(
        prog="python -m launch.names",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Other flags go to every training: python -m coder_jax train --recipe bne --help",
    )
    add_arguments(parser, "recipe")
    parser.add_argument(
        "--text", nargs="+", type=Path, required=True, metavar="FILE", help="files of text"
    )
    parser.add_argument(
        "--exact-match",
        nargs="+",
        default=[],
        metavar="[NAME=]FILE",
        help="annotated abstracts for training, as for evaluate",
    )
    parser.add_argument(
        "--compare",
        nargs="+",
        default=[],
        metavar="NAME=MODEL",
        help="encoders to score beside: folders or hub ids",
    )
    parser.add_argument(
        "--wmd",
        action="store_true",
        help="also score mentions in text by Word Mover's Distance of the word vectors, in a row "
        "of its own, as evaluate --wmd does; it takes long",
    )
    _add_training(parser)
    return parser.parse_known_args(arguments)


def _add_training(parser: argparse.ArgumentParser) -> None:
    """The arguments of skip-grams and of trainings."""
    parser.add_argument(
        "--variant",
        choices=("words", "names", "names_concepts"),
        default="words",
        help="what gets a vector, as for skip_gram; names are those of the dataset, but for "
        "held-out concepts (default: words)",
    )
    parser.add_argument(
        "--keep-stop-words",
        action="store_true",
        help="keep stop words and marks of the text, as for skip_gram",
    )
    parser.add_argument(
        "--epochs",
        type=int,
        default=5,
        help="passes over the text, as for skip_gram; of a text of some million words 10 to 20 "
        "give better vectors (default: 5)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=os.cpu_count(),
        help="threads that learn vectors; with one the same vectors come out each time (default: "
        "all cores)",
    )
    parser.add_argument(
        "--recipes",
        nargs="+",
        default=["bne"],
        help="recipes of BNE to train, with their flags in quotes: bne 'bne --negatives random' "
        "(default: bne)",
    )
    parser.add_argument(
        "--steps", type=int, metavar="N", help="steps of each training (default: the recipe's)"
    )
    parser.add_argument(
        "--development",
        nargs="+",
        default=[],
        metavar="NAME=PATH",
        help=f"take each training's checkpoint that is best on these sets, every {_EVAL_STEPS} "
        "steps, as train does; they are looked up in the --dictionary for all",
    )


def _trainings_of(args: argparse.Namespace, flags: list[str]) -> dict[str, list[str]]:
    """The flags of each training on which its result depends."""
    from coder_jax.commands.evaluate import paths_of

    sets = []
    if args.development:
        sets = ["--development", *args.development, "--eval-steps", str(_EVAL_STEPS)]
        if dictionary := paths_of(args.benchmark, args.dictionary)[1].get(""):
            sets += ["--development-dictionary", dictionary]
    steps = ["--steps", str(args.steps)] if args.steps is not None else []
    return {
        name: [*sets, "--recipe", *shlex.split(recipe), *steps, "--seed", str(seed), *flags]
        for recipe in args.recipes
        for name, seed in with_seeds(recipe, args.seeds).items()
    }


def _compared(args: argparse.Namespace) -> dict[str, str]:
    """The models of --compare by name; BadInput for a word without a name."""
    models = {}
    for word in args.compare:
        name, equals, model = word.partition("=")
        if not (name and equals and model):
            raise BadInput(f"--compare {word}: expected NAME=MODEL, such as MiniLM={word}")
        models[name] = model
    return models


def _settings_of(args: argparse.Namespace, flags: list[str]) -> dict[str, Any]:
    """The settings that results depend on.

    Raises:
      BadInput: no dataset, or one of cleaned names, a flag that `train` does not have, what
        `evaluate` does not take, or --wmd where nothing is scored by it.
    """
    from coder_jax.commands.evaluate import paths_of
    from coder_jax.commands.train import parse as parse_training
    from coder_jax.evaluation.annotated_text import AnnotatedText
    from coder_jax.evaluation.benchmarks import kind_of
    from coder_jax.systems.bne import BneSystem

    hash_of_data = dataset_hash(args.data)
    check_cleaning(read_manifest(local_folder(args.data, DATASET.file)), args.data)
    systems = {name: {"model": described(model)} for name, model in _compared(args).items()}
    for name, training in _trainings_of(args, flags).items():
        config = parse_training(training)
        config.validate()
        if not isinstance(config.system, BneSystem):
            raise BadInput(f"--recipes {config.recipe}: expected recipes of BNE, such as bne")
        written = to_json(config)
        systems[name] = {part: written[part] for part in written if part != "run"}
    benchmarks, dictionaries = paths_of(args.benchmark, args.dictionary)
    if args.wmd and AnnotatedText not in map(kind_of, benchmarks.values()):
        raise BadInput(
            f"--wmd: found the benchmarks {', '.join(benchmarks)}; expected one of mentions in "
            "text (NCBI disease, BC5CDR), which alone are scored by Word Mover's Distance"
        )
    for path in args.text:
        if not path.is_file():
            raise BadInput(f"--text {path}: there is no such file")
    return {
        "format": _FORMAT,
        "data": hash_of_data,
        "text": [described(str(path)) for path in args.text],
        "variant": args.variant,
        "keep_stop_words": args.keep_stop_words,
        "epochs": args.epochs,
        "benchmark": {name: described(path) for name, path in benchmarks.items()},
        "dictionary": {name: described(path) for name, path in dictionaries.items()},
        "exact_match": [described(word.rpartition("=")[2]) for word in args.exact_match],
        "systems": systems,
    }


def _learn_vectors(args: argparse.Namespace) -> Path:
    """The folder of skip-grams of the text, which is made if it is missing."""
    folder = args.out / "vectors"
    if not folder.exists():
        held_out = Path(args.data) / _HELD_OUT
        names = ["--dictionary", args.data] if args.variant != "words" else []
        if names and held_out.exists():
            names += ["--exclude-concepts", held_out]
        own = ["--variant", args.variant, "--epochs", str(args.epochs)]
        own += ["--keep-stop-words"] if args.keep_stop_words else []
        own += ["--workers", str(args.workers), "--out", str(folder)]
        call("data_pipeline.skip_gram", "--text", *args.text, *names, *own)
    return folder


def _scores_of(name: str, args: argparse.Namespace, *model: str | Path) -> Row:
    """The row of an encoder, which is scored if the row is missing.

    Args:
      model: what `evaluate` is told of it.
    """
    file = args.out / folder_of(name) / RESULTS
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        asked = ["--benchmark", *args.benchmark]
        for flag, words in (("dictionary", args.dictionary), ("exact-match", args.exact_match)):
            asked += [f"--{flag}", *words] if words else []
        call("coder_jax", "evaluate", *model, "--json", file, *asked)
    row: Row = {"encoder": name.partition(",")[0]}
    for record in read_json(file)["records"]:
        found = _moved(record) if name == _MOVED else record["scores"]
        row |= {
            f"{record['benchmark']} {score}": found[score] for score in _SHOWN if score in found
        }
    return row


def _moved(record: Any) -> dict[str, float]:
    """The scores of Word Mover's Distance, means over the types of mentions, where it has any."""
    found = [fold["baselines"] for fold in record.get("folds", {}).values() if "baselines" in fold]
    return {score: fmean(one[WMD][score] for one in found) for one in found for score in one[WMD]}


def _rows_of(args: argparse.Namespace, flags: list[str]) -> Iterator[tuple[str, Row]]:
    """(name, row) of each encoder; the trained ones come last."""
    vectors = _learn_vectors(args)
    words = ("--model", vectors, "--vectors-of", "words")
    yield _AVERAGED, _scores_of(_AVERAGED, args, *words)
    if args.wmd:
        yield _MOVED, _scores_of(_MOVED, args, *words, "--wmd")
    for name, model in _compared(args).items():
        yield name, _scores_of(name, args, "--model", model)
    for name, training in _trainings_of(args, flags).items():
        folder = args.out / folder_of(name)
        if not (folder / EXPORT).exists():
            own = ["--data", args.data, "--init", vectors, "--out", folder / "run"]
            call("coder_jax", "train", *own, *training)
            call("coder_jax", "export", "--checkpoint", folder / "run", "--out", folder / EXPORT)
        yield name, _scores_of(name, args, "--model", folder / EXPORT)


def main(arguments: list[str] | None = None) -> int:
    """Make the encoder and the table; its exit status is that of `run_command`."""
    args, flags = _parse(arguments)

    def work() -> int:
        began = time.monotonic()
        settings = _settings_of(args, flags)
        rows = list(recorded(args.out, _SETTINGS, settings, _rows_of(args, flags)))
        write_json(args.out / "table.json", {"seeds": args.seeds, "rows": rows})
        shown = markdown(mean_rows(rows, ("encoder",)))
        write_text(args.out / "table.md", shown)
        minutes = (time.monotonic() - began) / 60
        print(f"\n{shown}\ntable: {args.out / 'table.md'} (this call took {minutes:.1f} minutes)")
        return 0

    return run_command(work)


if __name__ == "__main__":
    sys.exit(main())
