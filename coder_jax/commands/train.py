"""Train an encoder on a built dataset, or resume a run.

A recipe sets all values, and flags change single ones. The same command with the same --out resumes
the run; another configuration or dataset is refused (but --extend gives a run more steps). --data,
--init and --out may be folders in a bucket, s3://... or gs://... (requirements-cloud.txt).
"""

import argparse
import dataclasses
import inspect
import sys
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import docstring_parser
import tyro

from coder_jax.devices.hosts import log
from coder_jax.systems.recipes import RECIPES, config_of
from coder_jax.training.metrics import check_installed
from coder_jax.training.run_folder import read_run_identity, small_files
from coder_jax.training.system import Config
from data_pipeline.batches.spec import BatchSource, check_passes
from data_pipeline.files.buckets import in_bucket, local_folder
from data_pipeline.files.identity import DATASET, RUN
from data_pipeline.process import (
    HELP_FLAGS,
    BadInput,
    did_you_mean,
    first_clause,
    option_table,
)

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
    *("data", "out", "init", "from", "steps", "learning_rate", "warmup_steps", "groups"),
    *("triplets", "terms", "passes", "eval_steps", "extend", "quiet"),
)
_EXAMPLES = """\
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
    return tyro.cli(
        Config[type(settings.system)],  # type: ignore
        args=flags,
        default=settings,
        prog=f"{_PROG} {source}",
        add_help=False,
    )


# -------------------------------------------------------------------------------------------------
# --help of a typed configuration: of the flags that COMMON names; --help-all: of all.

_DEFAULT_RECIPE = "coder_eng"  # whose values --help shows where none is named
_CHOOSERS = (
    ("--recipe NAME", "what to train and with which values; one of the above"),
    ("--config RUN", "take the settings of an existing run, from its folder or its run.json"),
)


def _brief_help(settings: Config, source: str, recipe: str | None) -> str:
    """What --help prints: with a recipe what it is for, else which recipes there are."""
    options = [row for _, rows in _option_groups(settings) for row in rows]
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
        rows = [*_CHOOSERS, *shown]
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
    for title, rows in _option_groups(settings):
        parts.append(f"{title}:\n" + option_table((typed, text) for _, typed, text in rows))
    return "\n\n".join(parts)


def _about_recipe(recipe: str) -> str:
    """What a recipe's docstring teaches."""
    return inspect.cleandoc(RECIPES[recipe].__doc__ or "")


def _option_groups(settings: Config) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """The flags of a configuration in groups: name, flag as it is typed, and help of each."""
    groups: dict[str, list[tuple[str, str, str]]] = {}

    def add(part: Any, prefix: str, title: str) -> None:
        hints = get_type_hints(type(part), include_extras=True)
        described = _descriptions(type(part))
        for field in dataclasses.fields(part):
            kind, marks = _unwrapped(hints[field.name])
            if tyro.conf.Suppress in marks:
                continue
            name = next((mark.name for mark in marks if hasattr(mark, "name")), field.name)
            value = getattr(part, field.name)
            if dataclasses.is_dataclass(value):
                inside = f"{prefix}{name}." if name else prefix
                add(value, inside, _TITLES.get(field.name, f"loss: {field.name}"))
                continue
            flag = "--" + (prefix + name).replace("_", "-")
            shown = f"(default: {_shown_value(value)})" if value not in ("", ()) else ""
            text = f"{described.get(field.name, '')} {shown}".strip()
            row = (prefix + name, f"{flag} {_value_name(kind)}".rstrip(), text)
            groups.setdefault(title, []).append(row)

    add(settings, "", "the start")
    return list(groups.items())


_TITLES = {
    "system": "the loss",
    "batch": "what a batch is made of",
    "model": "the encoder",
    "optimizer": "optimizer and schedule",
    "run": "the run: data, checkpoints, evaluation",
}


def _descriptions(kind: type) -> dict[str, str]:
    """What stands below each field of a dataclass and of its bases."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if dataclasses.is_dataclass(base):
            for one in docstring_parser.parse_from_object(base).params:
                found[one.arg_name] = one.description or ""
    return found


def _unwrapped(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without its `Annotated`, and what that says."""
    return (hint.__origin__, hint.__metadata__) if hasattr(hint, "__metadata__") else (hint, ())


def _value_name(kind: Any) -> str:
    """What stands for a value of this type: nothing for a switch."""
    if kind is bool:
        return ""
    if get_origin(kind) is Literal:
        return "{" + ",".join(map(str, get_args(kind))) + "}"
    if get_origin(kind) is tuple:
        return f"{_value_name(get_args(kind)[0])} ..."
    if get_origin(kind) in (types.UnionType, Union):
        return _value_name(next(one for one in get_args(kind) if one is not type(None)))
    return {int: "N", float: "X"}.get(kind, "TEXT")


def _shown_value(value: Any) -> str:
    """A default as it is typed."""
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


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
    cut = step_cut(make_mesh(system.groups // run.passes), run.passes)
    return system.open(folder, cut, rows=run.rows, steps=config.optimizer.steps)


def run(config: Config) -> int:
    """Train, and say where the results are."""
    config.validate()

    check_installed(config.run.track)  # before the data is looked through and a step compiled
    source = open_source(config)
    from coder_jax.training.train import train

    result = train(config, source)
    log(f"{result.steps} steps; checkpoints, metrics and curves in {result.out}")
    log(f"export: python -m coder_jax export --checkpoint {result.out} --out FOLDER")
    return 0
