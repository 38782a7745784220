"""Put all there is to see of an encoder into one HTML file: scores, curves, maps, neighbours.

The file needs neither network nor server: open it, mail it, keep it with the run. It has

  answer     the scores before training beside those after it, and on what: of --results files that
             are named before=JSON and after=JSON (or of the demo's results.json), else as the run
             evaluated itself
  results    the scores in --results, files of `evaluate --json`, beside the papers' own rows
  answers    of --results on mentions: how similar right and wrong answers are, what a cut-off costs
             and gains, and, where evaluate was given --predictions, the surest wrong answers
  training   losses, rates, speed and evaluations over steps, where --model is a run
  learning   of --curves, the curves.json of `python -m launch.ablation` with several --steps: the
             scores of systems over the lengths of their trainings
  classes    of a run with classes (recipes mlnorm, mlnorm_classes) or its export: the most probable
             concepts of some mentions that the dataset of --dictionary holds out, or of --mentions,
             beside the nearest terms of the same encoder
  candidates of a generator or a ranker of recall and rank: candidates of mentions of the folder
             --mentions by their distances, and as rankers order them; those of dev where it has any
  maps       t-SNE of terms of --dictionary, coloured by concept, and by semantic type where the
             dictionary is a dataset folder that has them; encoders of --compare side by side
  relations  singular values of the relation matrices, and how alike they are, where --model is a
             run or an export of one
  explorer   terms of --dictionary with the --neighbours nearest others of each; type to find one,
             click to go on; the address of a term can be kept

What is not given is left out, and the report says which command would make it (learning curves
apart, which are of several systems).

--model is the folder of a run (its newest checkpoint), an export, or any BERT, XLM-R or ModernBERT
of Hugging Face by folder or hub id. --dictionary is a TSV file of term<TAB>CUI, a table whose
header names its columns (.csv, .tsv, .xlsx), a dataset folder, or the MRCONSO.RRF of a release. Of
a dictionary with more than --terms terms, the explorer has whole concepts with so many in all,
chosen by --seed. The same input gives the same pictures.

Examples:
  python -m coder_jax report --model runs/demo/run --dictionary runs/demo/dataset \\
      --results runs/demo/results.json --compare before=sentence-transformers/all-MiniLM-L6-v2
  python -m coder_jax report --model CODER=runs/coder_eng --dictionary datasets/umls_eng \\
      --dictionary-languages ENG --compare SapBERT=cambridgeltl/SapBERT-from-PubMedBERT-fulltext \\
      --results CODER=results.json SapBERT=sapbert.json --out coder_eng.html
  python -m coder_jax report --model runs/rank --mentions data/chip_lists
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path

from coder_jax.commands.arguments import (
    add_cache_argument,
    add_dictionary_choices,
    check_dictionary_choices,
    dictionary_choices,
)
from coder_jax.models.bert_config import POOLINGS
from data_pipeline.files.whole import is_stdout
from data_pipeline.process import BadInput

COMMON = (
    *("--model", "--out", "--dictionary", "--dictionary-languages", "--results", "--compare"),
    *("--mentions", "--ranker", "--curves", "--terms"),
)
MOST_TERMS = 50_000  # 5 MB of page, and seconds to find the neighbours of all
WHEN_ASKED_TO_STOP = "stopping after what is under way; nothing is written"
WHEN_STOPPED = "stopped; the same command starts over"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", required=True, metavar="[NAME=]RUN_OR_MODEL", help="the encoder to report on"
    )
    parser.add_argument(
        "--pooling",
        choices=POOLINGS,
        help="how a term becomes a vector (default: the model's own, or cls)",
    )
    parser.add_argument(
        "--dictionary",
        metavar="PATH",
        help="terms for the maps and the explorer; a TSV file of term<TAB>CUI, a table whose "
        "header names its columns, a dataset folder, or MRCONSO.RRF",
    )
    add_dictionary_choices(parser)
    add_cache_argument(parser)
    parser.add_argument(
        "--results",
        action="extend",
        nargs="+",
        default=[],
        metavar="[NAME=]JSON",
        help="scores to show, files of `evaluate --json`; NAME is what the tables call the "
        "encoder, or `before` or `after` (training)",
    )
    parser.add_argument(
        "--mentions",
        metavar="FILE",
        help="mentions to answer. For a model with classes a text file, one mention a line, with "
        "CUIs behind a tab where these are known (default: those that the dataset of --dictionary "
        "holds out); for recall and rank a folder of mentions, which for a ranker has candidates",
    )
    parser.add_argument(
        "--ranker",
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="rankers of the candidates that --model finds; runs of the recipe rank, or exports",
    )
    parser.add_argument(
        "--curves",
        action="extend",
        nargs="+",
        default=[],
        metavar="JSON",
        help="learning curves to show; the curves.json of `python -m launch.ablation` with several "
        "--steps",
    )
    parser.add_argument(
        "--compare",
        action="extend",
        nargs="+",
        default=[],
        metavar="[NAME=]RUN_OR_MODEL",
        help="other encoders, whose maps are drawn side by side with this one's",
    )
    parser.add_argument(
        "--terms",
        type=int,
        metavar="N",
        default=MOST_TERMS,
        help="most terms in the explorer; 10,000 add about 1 MB (default: %(default)s)",
    )
    parser.add_argument(
        "--neighbours",
        type=int,
        metavar="N",
        default=12,
        help="nearest terms that the explorer lists for a term (default: 12)",
    )
    parser.add_argument("--seed", type=int, default=0, help="for the choice of terms (default: 0)")
    parser.add_argument(
        "--out", type=Path, metavar="HTML", help="file to write (default: report.html in the run)"
    )


def run(args: argparse.Namespace) -> int:
    # Imported here, as they import jax: `--help` stays quick.
    from coder_jax.devices.hosts import alone
    from coder_jax.report.build import Inputs, build_report
    from coder_jax.report.model_answers import mentions_folder
    from coder_jax.report.page import write_page

    alone("report")
    for option, value, least in (
        ("--terms", args.terms, 2),
        ("--neighbours", args.neighbours, 1),
        ("--seed", args.seed, 0),
    ):
        if value < least:
            raise BadInput(f"{option}: found {value}; expected {least} or more")
    if args.compare and not args.dictionary:
        raise BadInput(f"--compare: found {args.compare[0]!r}; expected --dictionary with it")
    if args.mentions and not (args.dictionary or mentions_folder(args.mentions)):
        raise BadInput(f"--mentions: found {args.mentions}; expected --dictionary with it")
    check_dictionary_choices(args)
    out = _find_out(args)
    name, model = _named(args.model)
    compared = [_named(one) for one in args.compare]
    inputs = Inputs(
        model=model,
        name=name or _short_name(model),
        title=name or _short_name(model),
        pooling=args.pooling,
        dictionary=args.dictionary,
        **dictionary_choices(args),
        results=[_named(one) for one in args.results],
        compare=[(name or _short_name(path), path) for name, path in compared],
        terms=args.terms,
        neighbours=args.neighbours,
        seed=args.seed,
        mentions=args.mentions,
        rankers=args.ranker,
        curves=args.curves,
        cache=args.cache,
    )
    _check_names([inputs.name, *(name for name, _ in inputs.compare)])
    report = build_report(inputs)
    size = write_page(report, out)
    with redirect_stdout(sys.stderr) if is_stdout(out) else nullcontext():
        for missing in report.left_out:
            print(f"left out: {missing.part} ({missing.why})")
        print(f"{out}: {size / 1e6:.1f} MB; open it in a browser")
    return 0


def _find_out(args: argparse.Namespace) -> Path:
    """The file to write; BadInput if there is no place for it."""
    from coder_jax.training.run_folder import system_name
    from data_pipeline.files.buckets import check_output, in_bucket

    _, model = _named(args.model)
    out = args.out
    if out is None:
        if in_bucket(model) or not system_name(model):
            raise BadInput(
                f"--out: found none, and {model} is no folder of a run here; expected the HTML "
                "file to write, such as --out report.html"
            )
        out = Path(model) / "report.html"
    check_output(out, "--out", "report.html")
    return out


def _named(argument: str) -> tuple[str | None, str]:
    """(NAME or None, PATH) of NAME=PATH or PATH; a NAME has no slash, a PATH may have a =."""
    name, equals, path = argument.partition("=")
    if not equals or "/" in name:
        return None, argument
    if not (name and path):
        raise BadInput(f"found {argument!r}; expected NAME=PATH or PATH")
    return name, path


def _short_name(path: str) -> str:
    """The last two parts of a path or hub id."""
    known = Path(path).resolve() if Path(path).exists() else Path(path)
    return "/".join(known.parts[-2:])


def _check_names(names: Sequence[str]) -> None:
    """BadInput for two encoders of one name."""
    for name in names:
        if names.count(name) > 1:
            raise BadInput(
                f"found the encoder {name!r} twice; expected different names: say NAME=PATH"
            )
