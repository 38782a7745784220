"""The arguments of `python -m coder_jax evaluate`, in groups, and what they must be."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from coder_jax.commands.arguments.encoder import (
    add_cache_argument,
    add_dictionary_choices,
    add_model_arguments,
)
from coder_jax.commands.arguments.recall_rank import add_ranker_arguments, check_one_model
from coder_jax.evaluation.benchmarks import all_flags, flags_by_heading
from coder_jax.mapping.answers import KINDS
from data_pipeline.files.output_file import check_output
from data_pipeline.process.errors import BadInput
from data_pipeline.process.suggestions import did_you_mean


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--benchmark",
        action="extend",
        nargs="+",
        default=[],
        metavar="NAME=PATH",
        help="what to score it on; NAME is yours to choose",
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="OUT",
        help="file for scores and protocol; where it is /dev/stdout, the tables go to stderr",
    )
    parser.add_argument(
        "--compare",
        nargs=2,
        metavar=("A", "B"),
        help="score nothing: compare two files of --json, mention by mention",
    )
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn (default: 0)")
    add_cutoffs(parser.add_argument_group("normalize"))
    add_encoder(parser.add_argument_group("encoder"))
    add_dictionary(parser.add_argument_group("dictionary"))
    add_flags_of_kinds(parser)
    add_ranker_arguments(parser, several=True)


def add_cutoffs(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--cutoffs",
        type=Path,
        metavar="FILE",
        help="also measure in the mentions how sure `normalize` may be, and write it here: "
        "cutoffs.json in the model's folder is found by itself",
    )
    group.add_argument(
        "--candidates",
        choices=KINDS,
        default="both",
        help="for --cutoffs: what is near, as in `normalize` (default: both)",
    )


def add_encoder(group: argparse._ArgumentGroup) -> None:
    add_model_arguments(group, several_poolings=True, several_models="words", required=False)
    group.add_argument(
        "--vectors-of",
        choices=("words", "names", "concepts"),
        help="what --model has vectors of: a file in word2vec's formats or cui2vec's, or a folder "
        "of `python -m data_pipeline.skip_gram`, which alone may have names",
    )


def add_dictionary(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--dictionary",
        action="extend",
        nargs="+",
        default=[],
        metavar="[NAME=]PATH",
        help="terms to search, and names of concepts: a TSV file of term<TAB>CUI, a table (.csv, "
        ".tsv, .xlsx) with a header such as concept, term, language, vocabulary, a dataset folder "
        "or the MRCONSO.RRF of a release; for one benchmark (NAME=PATH) or for all that bring none",
    )
    add_dictionary_choices(group)
    add_cache_argument(group)
    group.add_argument(
        "--dictionary-concepts-of",
        nargs="+",
        metavar="SAB",
        help="of these, take all terms of the concepts that these vocabularies have "
        "(such as ICD9CM, for the papers' case studies)",
    )
    group.add_argument(
        "--retired-cuis",
        metavar="FILE",
        help="MRCUI.RRF, a dataset's retired_cuis.tsv, or a TSV file of old<TAB>new: CUIs of gold "
        "and dictionary count as what they were merged into; where pairs and concepts have one "
        "without a concept vector, that of what it was merged into is taken (default: the list of "
        "the dictionary, where it is a dataset folder; none: no list)",
    )


def add_flags_of_kinds(parser: argparse.ArgumentParser) -> None:
    """The flags that the kinds of benchmarks have, each under its heading."""
    for heading, flags in flags_by_heading().items():
        group = parser.add_argument_group(heading)
        for flag in flags:
            group.add_argument(flag.name, help=flag.help, default=flag.default, **flag.argparse)


def check(args: argparse.Namespace) -> None:
    """BadInput for values that no evaluation can use, and for one that is not there."""
    needed = {"--model": args.model, "--benchmark": args.benchmark, "--json": args.json}
    if missing := [name for name, value in needed.items() if not value]:
        raise BadInput(
            f"found no {', no '.join(missing)}; expected --model, --benchmark and --json to score "
            "an encoder, or --compare A B to compare two files of --json"
        )
    for flag in all_flags():
        value = getattr(args, flag.option)
        values = value if isinstance(value, list) else [] if value is None else [value]
        if flag.least is not None and min(values, default=flag.least) < flag.least:
            raise BadInput(f"{flag.name}: found {min(values)}; expected {flag.least} or more")
    if args.seed < 0:
        raise BadInput(f"--seed: found {args.seed}; expected 0 or more")
    check_output(args.json, "--json", "results.json")
    if args.cutoffs is not None:
        check_output(args.cutoffs, "--cutoffs", "cutoffs.json")
        if args.vectors_of:
            raise BadInput("found --cutoffs and --vectors-of; expected --cutoffs with an encoder")
    if args.predictions is not None:
        check_folder(args.predictions)
    check_vectors(args)


def check_vectors(args: argparse.Namespace) -> None:
    """BadInput for vectors without --vectors-of, or for anything else with it."""
    from coder_jax.evaluation.vectors.tables import is_skip_grams

    if args.vectors_of:
        check_one_model(args.models, "--vectors-of takes a file of vectors, or a folder of them")
    is_file, is_folder = Path(args.model).is_file(), is_skip_grams(args.model)
    if (is_file or is_folder) and not args.vectors_of:
        raise BadInput(
            f"--model: found the {'file' if is_file else 'skip-grams'} {args.model}; expected a "
            "model folder or hub id, or, for vectors, --vectors-of words or --vectors-of concepts "
            "beside it"
        )
    if args.wmd and args.vectors_of != "words":
        found = f"--vectors-of {args.vectors_of}" if args.vectors_of else "an encoder"
        raise BadInput(f"--wmd: found {found}; expected vectors of words: give --vectors-of words")
    if args.vectors_of and not (is_folder or (is_file and args.vectors_of != "names")):
        missing = "" if is_file else ", which is no file"
        needed = "" if args.vectors_of == "names" else "a file of vectors or "
        raise BadInput(
            f"--model: found {args.model}{missing}; expected {needed}a folder of skip-grams for "
            f"--vectors-of {args.vectors_of}"
        )


def check_folder(path: Path) -> None:
    """Makes the folder of --predictions where there is none; BadInput if it cannot be written."""
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"--predictions: found {path}, which is no folder and cannot be made ({error.strerror})"
            "; expected a folder, or a new name in one"
        ) from error
    check_output(path / "predictions.tsv", "--predictions", "predictions.tsv")


def check_alone(args: argparse.Namespace) -> None:
    """BadInput for --compare beside what scores an encoder."""
    given = [name for name in ("model", "benchmark", "json", "dictionary") if getattr(args, name)]
    if given:
        raise BadInput(
            f"--compare: found --{given[0]} with it; expected the two files of results alone: it "
            "scores nothing"
        )


def paths_of(
    benchmark: Sequence[str], dictionary: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The path of each benchmark, and of its dictionary; "" stands for all that have none.

    BadInput for words that are not what --benchmark and --dictionary take.
    """
    paths: dict[str, str] = {}
    for argument in benchmark:
        name, equals, path = argument.partition("=")
        if not (name and equals and path):
            raise BadInput(
                f"--benchmark: found {argument!r}; expected NAME=PATH, such as cadec=data/cadec"
            )
        if name in paths:
            raise BadInput(
                f"--benchmark: found the name {name!r} twice; expected one PATH for each"
            )
        paths[name] = path
    dictionaries: dict[str, str] = {}
    for argument in dictionary:
        name, equals, path = argument.partition("=")
        if equals and name not in paths and not Path(argument).exists() and Path(path).exists():
            raise BadInput(
                f"--dictionary: found {argument!r}, but no benchmark {name!r}"
                f"{did_you_mean(name, paths)}; expected PATH, or NAME=PATH with one of "
                f"{', '.join(paths)}"
            )
        name, path = (name, path) if equals and name in paths else ("", argument)
        if name in dictionaries:
            raise BadInput(
                f"--dictionary: found {dictionaries[name]!r} and {path!r} for "
                f"{name or 'all benchmarks'}; expected one"
            )
        dictionaries[name] = path
    return paths, dictionaries
