"""Train an encoder on a built dataset, or resume a run.

A recipe sets all values, and flags change single ones. The same command with the same --out resumes
the run; another configuration or dataset is refused (but --extend gives a run more steps). --data,
--init and --out may be folders in a bucket, s3://... or gs://... (requirements-cloud.txt).
"""

import argparse
import inspect
import sys
from dataclasses import replace
from pathlib import Path

from coder_jax.devices.hosts import log
from coder_jax.systems.recipes import RECIPES, config_of
from coder_jax.training.metrics import check_installed
from coder_jax.training.run_folder import read_run_identity, small_files
from coder_jax.training.system import Config
from data_pipeline.batches.spec import BatchSource, check_passes
from data_pipeline.files.buckets import in_bucket, local_folder
from data_pipeline.files.identity import DATASET, RUN
from data_pipeline.flags import HELP_FLAGS, changed_by, first_clause, flags_by_heading, option_table
from data_pipeline.process import BadInput, did_you_mean

_PURPOSES = {
    "your own terminology, on one machine": ("small", "small_synonyms", "coderpp_small"),
    "many languages, on one machine": ("small_all",),
    "the UMLS on accelerators": ("coder_eng", "coder_all", "coderpp"),
    "mentions with a known semantic group": ("mlnorm", "mlnorm_classes", "mlnorm_small"),
    "mentions of several concepts": ("recall", "rank", "recall_small", "rank_small"),
    "a light encoder without BERT": ("bne", "bne_small", "bne_released"),
    "other methods, to compare with": (
        *("sapbert", "small_sapbert", "coder_v1_eng", "coder_v1_all", "small_v1", "small_transe"),
    ),
}
COMMON = (
    *("--data", "--out", "--init", "--steps", "--epochs", "--passes", "--eval-steps", "--extend"),
    *("--from", "--learning-rate", "--warmup-steps", "--groups", "--triplets", "--terms"),
    "--quiet",
)
_EXAMPLES = """\
  python -m coder_jax build --source hp.obo --hold-out 1149 --out data/hpo \\
      --tokenizer sentence-transformers/all-MiniLM-L6-v2
  python -m coder_jax train --recipe small --data data/hpo --out runs/hpo
  python -m coder_jax train --recipe coder_eng --data data/umls --out runs/coder_eng --passes 2"""
_PROG = "python -m coder_jax train"


def parse(arguments: list[str]) -> Config:
    """The settings that --recipe or --config names, with the values that the other flags change.

    Raises:
        BadInput: if neither is given, or there is no such recipe or run.
    """
    chooser = argparse.ArgumentParser(prog=_PROG, add_help=False, allow_abbrev=False)
    chooser.add_argument("--recipe")
    chooser.add_argument("--config")
    chosen, flags = chooser.parse_known_args(arguments)
    asked = set(HELP_FLAGS) & set(flags)
    if asked:
        named = chosen.recipe is not None or chosen.config is not None
        settings, source = _starting_settings(
            chosen.recipe if named else _DEFAULT_RECIPE, chosen.config
        )
        recipe = chosen.recipe if chosen.recipe in RECIPES else None
        print((_full_help if "--help-all" in asked else _brief_help)(settings, source, recipe))
        sys.exit(0)
    settings, source = _starting_settings(chosen.recipe, chosen.config)
    changed, given = changed_by(settings, flags, f"{_PROG} {source}")
    if {"optimizer.steps", "optimizer.epochs"} <= given:
        raise BadInput("found --steps and --epochs; expected one of them: both say how long it is")
    optimizer = changed.optimizer
    if "optimizer.steps" in given:
        optimizer = replace(optimizer, epochs=0.0)
    elif optimizer.epochs and optimizer.warmup_steps >= 1 and "optimizer.warmup_steps" not in given:
        optimizer = replace(optimizer, warmup_steps=optimizer.warmup_steps / optimizer.steps)
    return replace(changed, optimizer=optimizer)


# -------------------------------------------------------------------------------------------------
# --help of a typed configuration: of the flags that COMMON names; --help-all: of all.

_DEFAULT_RECIPE = "small"  # whose values --help shows where none is named
_CHOOSERS = (
    ("--recipe NAME", "what to train, and all values; `train --help` lists the recipes"),
    ("--config RUN", "in place of --recipe: the settings of a run, by its folder or run.json"),
)


def _brief_help(settings: Config, source: str, recipe: str | None) -> str:
    """What --help prints: with a recipe what it is for, else which recipes there are."""
    options = [row for rows in flags_by_heading(settings, _HEADINGS).values() for row in rows]
    by_name = {name: (typed, text) for name, typed, text in options}
    shown = [by_name[name] for name in COMMON if name in by_name]
    count = len(options) + len(_CHOOSERS)
    if recipe is not None:
        head = [_about_recipe(recipe), "", f"Options (defaults of {source}):"]
        rows = shown
    else:
        head = [
            f"usage: {_PROG} --recipe NAME --data DATASET --out RUN [options]",
            "",
            *str(__doc__).splitlines()[:1],
            "",
            "Recipes (--recipe NAME --help explains one: commands, duration, what to expect):",
            option_table(
                ((purpose, ", ".join(names)) for purpose, names in _PURPOSES.items()), widest=40
            ),
            "",
            f"Examples:\n{_EXAMPLES}",
            "",
            f"Options (defaults of {source}):",
        ]
        rows = [_CHOOSERS[0], *shown, _CHOOSERS[1]]
    table = option_table((typed, first_clause(text)) for typed, text in rows)
    return "\n".join([*head, table, "", f"--help-all shows all {count} options"])


def _full_help(settings: Config, source: str, recipe: str | None) -> str:
    """What --help-all prints: every option, in groups."""
    if recipe is not None:
        parts = [_about_recipe(recipe)]
    else:
        parts = [
            f"usage: {_PROG} --recipe NAME [options]",
            str(__doc__).strip(),
            _list_of_recipes(),
        ]
    parts += [
        f"Defaults below are those of {source}.",
        "what to train:\n" + option_table(_CHOOSERS),
    ]
    for title, rows in flags_by_heading(settings, _HEADINGS).items():
        parts.append(f"{title}:\n" + option_table((typed, text) for _, typed, text in rows))
    return "\n\n".join(parts)


def _about_recipe(recipe: str) -> str:
    """What a recipe's docstring teaches."""
    return inspect.cleandoc(RECIPES[recipe].__doc__ or "")


_HEADINGS = {
    "system": "the loss",
    "batch": "what a batch is made of",
    "model": "the encoder",
    "optimizer": "optimizer and schedule",
    "run": "the run: data, checkpoints, evaluation",
    "term": "loss: term",
    "relation": "loss: relation",
}


def _starting_settings(recipe: str | None, run: str | None) -> tuple[Config, str]:
    """The settings of a recipe or of a run, and the words that name it."""
    if run is not None:
        if recipe is not None:
            raise BadInput(f"found --recipe {recipe} and --config {run}; expected one of them")
        folder = Path(run).parent if Path(run).name == RUN.file else Path(run)
        return config_of(read_run_identity(small_files(folder))), f"--config {run}"
    if recipe is None:
        raise BadInput(f"found no --recipe; expected one of\n{_list_of_recipes()}")
    if recipe not in RECIPES:
        raise BadInput(
            f"there is no recipe {recipe!r}{did_you_mean(recipe, RECIPES)}; expected one of\n"
            f"{_list_of_recipes()}"
        )
    return RECIPES[recipe](), f"--recipe {recipe}"


def _list_of_recipes() -> str:
    """A line for each recipe, by what it is for."""
    width = max(map(len, RECIPES))
    lines = []
    for purpose, names in _PURPOSES.items():
        lines.append(f"  {purpose}:")
        for name in names:
            what = (RECIPES[name].__doc__ or "").splitlines()[0]
            lines.append(f"    --recipe {name:<{width}}  {what}")
    return "\n".join(lines)


WHEN_ASKED_TO_STOP = "saving after this step, then stopping; the same command goes on"
ON_ALL_HOSTS = True


def open_source(config: Config) -> BatchSource:
    """The batches of `config.run.data`."""
    from coder_jax.devices.mesh import make_mesh, step_cut

    system, run = config.system, config.run
    if not run.data or not run.out:
        missing = [name for name in ("data", "out") if not getattr(run, name)]
        raise BadInput(
            f"found no --{' and no --'.join(missing)}; give --data (a built dataset) and --out "
            "(the folder of the run)"
        )
    if not in_bucket(run.out):
        taken = [path for path in (Path(run.out), *Path(run.out).parents) if path.is_file()]
        if taken:
            raise BadInput(
                f"--out {run.out}: {taken[0]} is a file; expected a folder, or a new name"
            )
    folder = local_folder(run.data, DATASET.file)
    if not folder.is_dir():
        raise BadInput(
            f"--data {folder} is not there; build a dataset with `python -m data_pipeline.build`"
        )
    check_passes(system.groups, run.passes)
    cut = step_cut(make_mesh(system.groups // run.passes), run.passes, run.cache_chunks)
    return system.open(folder, cut, rows=run.rows, steps=config.optimizer.steps)


def run(config: Config) -> int:
    """Train, and say where the results are."""
    config.validate()

    check_installed(config.run.track)  # before the data is looked through and a step compiled
    source = open_source(config)
    from coder_jax.training.train import train

    result = train(config, source)
    log(f"{result.steps} steps; checkpoints, metrics and curves in {result.out}")
    from coder_jax.systems.encoder_system import has_start_to_keep

    auto = ""
    if not config.start and "heldout" in source.kept and has_start_to_keep(config.system):
        auto = " --interpolate auto"
    log(f"export: python -m coder_jax export --checkpoint {result.out} --out FOLDER{auto}")
    return 0
