"""Make one HTML page about an encoder: scores, learning curves, maps of terms, nearest terms.

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
             dictionary has types: a dataset, MRCONSO.RRF with MRSTY.RRF beside it, a table with
             such a column; encoders of --compare side by side
  relations  singular values of the relation matrices, and how alike they are, where --model is a
             run or an export of one
  explorer   terms of --dictionary with the --neighbours nearest others of each; type to find one,
             click to go on; the address of a term can be kept

What is not given is left out, and the report says which command would make it (learning curves
apart, which are of several systems).

--model is the folder of a run (its newest checkpoint), an export, or any BERT, XLM-R or ModernBERT
of Hugging Face by folder or hub id. --dictionary is a TSV file of term<TAB>CUI, a table whose
header names its columns (.csv, .tsv, .xlsx), a dataset folder, an ontology or MRCONSO.RRF. Of
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

import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from coder_jax.commands.arguments import (
    CacheOptions,
    DictionaryOptions,
    Pooling,
)
from data_pipeline.files.whole import is_stdout
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput

COMMON = (
    *("--model", "--out", "--dictionary", "--dictionary-languages", "--results", "--compare"),
    *("--mentions", "--ranker", "--curves", "--terms"),
)
MOST_TERMS = 50_000  # 5 MB of page, and seconds to find the neighbours of all
WHEN_ASKED_TO_STOP = "stopping after what is under way; nothing is written"
WHEN_STOPPED = "stopped; the same command starts over"


@dataclass(frozen=True, kw_only=True)
class ReportOptions(DictionaryOptions, CacheOptions):
    """The options of `report`."""

    model: Annotated[
        str, Flag("the encoder to report on: a run, a folder or a hub id", "[NAME=]RUN_OR_MODEL")
    ]
    pooling: Pooling = None
    dictionary: Annotated[
        str | None,
        Flag(
            "terms for the maps and the explorer, given as for `normalize`: a table, a dataset "
            "folder, an ontology, a release",
            "PATH",
        ),
    ] = None
    results: Annotated[
        tuple[str, ...],
        Flag(
            "scores to show, files of `evaluate --json`; NAME is what the tables call the encoder, "
            "or `before` or `after` (training)",
            "[NAME=]JSON",
        ),
    ] = ()
    mentions: Annotated[
        str | None,
        Flag(
            "mentions whose answers are shown. For a model with classes a text file, one mention a "
            "line, with CUIs behind a tab where these are known (default: those that the dataset "
            "of --dictionary holds out); for recall and rank a folder of mentions, which for a "
            "ranker has candidates",
            "FILE",
        ),
    ] = None
    ranker: Annotated[
        tuple[str, ...],
        Flag(
            "rankers, to order the candidates that --model finds; runs of the recipe rank, or "
            "exports",
            "FOLDER",
        ),
    ] = ()
    curves: Annotated[
        tuple[str, ...],
        Flag(
            "learning curves to show; the curves.json of `python -m launch.ablation` with several "
            "--steps",
            "JSON",
        ),
    ] = ()
    compare: Annotated[
        tuple[str, ...],
        Flag(
            "other encoders, whose maps are drawn beside this one's",
            "[NAME=]RUN_OR_MODEL",
        ),
    ] = ()
    terms: Annotated[int, Flag("most terms in the explorer; 10,000 add about 1 MB", least=2)] = (
        MOST_TERMS
    )
    neighbours: Annotated[
        int, Flag("nearest terms that the explorer lists for a term", least=1)
    ] = 12
    seed: Annotated[int, Flag("for the choice of terms", least=0)] = 0
    out: Annotated[Path | None, Flag("file to write (default: report.html in the run)", "HTML")] = (
        None
    )


OPTIONS = ReportOptions


def run(options: ReportOptions) -> int:
    # Imported here, as they import jax: `--help` stays quick.
    from coder_jax.report.build import Inputs, build_report
    from coder_jax.report.model_answers import mentions_folder
    from coder_jax.report.page import write_page

    if options.compare and not options.dictionary:
        raise BadInput(f"--compare: found {options.compare[0]!r}; expected --dictionary with it")
    if options.mentions and not (options.dictionary or mentions_folder(options.mentions)):
        raise BadInput(f"--mentions: found {options.mentions}; expected --dictionary with it")
    options.check_choices(options.dictionary)
    out = _find_out(options)
    name, model = _named(options.model)
    compared = [_named(one) for one in options.compare]
    inputs = Inputs(
        model=model,
        name=name or _short_name(model),
        title=name or _short_name(model),
        pooling=options.pooling,
        dictionary=options.dictionary,
        choices=options.choices(),
        results=[_named(one) for one in options.results],
        compare=[(name or _short_name(path), path) for name, path in compared],
        terms=options.terms,
        neighbours=options.neighbours,
        seed=options.seed,
        mentions=options.mentions,
        rankers=list(options.ranker),
        curves=list(options.curves),
        cache=not options.no_cache,
    )
    _check_names([inputs.name, *(name for name, _ in inputs.compare)])
    report = build_report(inputs)
    size = write_page(report, out)
    with redirect_stdout(sys.stderr) if is_stdout(out) else nullcontext():
        for missing in report.left_out:
            print(f"left out: {missing.part} ({missing.why})")
        print(f"{out}: {size / 1e6:.1f} MB; open it in a browser")
    return 0


def _find_out(options: ReportOptions) -> Path:
    """The file to write; BadInput if there is no place for it."""
    from coder_jax.training.run_folder import system_name
    from data_pipeline.files.buckets import check_output, in_bucket

    _, model = _named(options.model)
    out = options.out
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
