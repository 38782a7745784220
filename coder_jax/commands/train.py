"""Train an encoder on a built dataset, or go on where a run stopped.

    python -m coder_jax train --recipe coder_eng --data datasets/umls --out runs/coder_eng

A recipe sets every value; flags change single ones. The same command on the same --out goes on
where the run stopped; another configuration or dataset is refused (but --extend gives a run more
steps). --data, --init and --out may be folders in a bucket, s3://... or gs://...
(requirements-cloud.txt).
"""

import argparse
import inspect
import re
from pathlib import Path

import tyro

from coder_jax.systems.recipes import RECIPES, config_of
from coder_jax.training.run_folder import read_identity, small_files
from coder_jax.training.system import Config
from data_pipeline.batches.spec import BatchSource
from data_pipeline.files.buckets import in_bucket, local_folder
from data_pipeline.files.identity import RUN
from data_pipeline.process import BadInput, did_you_mean

WHICH = """\
An ontology of your own on one machine: small, or coderpp_small; of many languages: small_all. The
UMLS on accelerators: coder_eng for English, coder_all for all languages, then coderpp to train
these on with nearest neighbours. Mentions whose semantic group is known: mlnorm, mlnorm_classes.
Mentions that may mean several concepts: recall, then rank. A light encoder without a BERT, of words
and characters: bne. The others are there to compare with: SapBERT, the first CODER paper. The flags
of the papers' ablations are in launch/README.md."""
OF_ONE = """\
--recipe NAME --help tells of one recipe: its commands, how long it takes, what to expect.

--config takes the settings of a run that is there, from its folder or its run.json."""


def parse(arguments: list[str]) -> Config:
    """The settings that --recipe or --config names, with the values that the other flags change.

    Raises:
        BadInput: if neither is given, or there is no such recipe or run.
    """
    prog = "python -m coder_jax train"
    chooser = argparse.ArgumentParser(prog=prog, add_help=False, allow_abbrev=False)
    chooser.add_argument("--recipe")
    chooser.add_argument("--config")
    chosen, flags = chooser.parse_known_args(arguments)
    about = f"{__doc__}\n{WHICH}\n\n{list_of_recipes()}\n\n{OF_ONE}"
    if chosen.recipe in RECIPES:
        written = inspect.cleandoc(RECIPES[chosen.recipe].__doc__ or "")
        about = re.sub(r"^\|", "    |", written, flags=re.MULTILINE)  # a row stays in its line
    if chosen.recipe is None and chosen.config is None and {"-h", "--help"} & set(flags):
        chosen.recipe = "coder_eng"
    settings, source = starting_settings(chosen.recipe, chosen.config)
    return tyro.cli(
        Config[type(settings.system)],  # type: ignore
        args=flags,
        default=settings,
        prog=f"{prog} {source}",
        description=f"{about}\n\nDefaults below are those of {source}.",
    )


def starting_settings(recipe: str | None, run: str | None) -> tuple[Config, str]:
    """The settings of a recipe or of a run, and the words that name it."""
    if run is not None:
        if recipe is not None:
            raise BadInput(f"found --recipe {recipe} and --config {run}; expected one of them")
        folder = Path(run).parent if Path(run).name == RUN.file else Path(run)
        return config_of(read_identity(small_files(folder))), f"--config {run}"
    if recipe is None:
        raise BadInput(f"found no --recipe; expected one of\n{list_of_recipes()}\n{WHICH}")
    if recipe not in RECIPES:
        raise BadInput(
            f"there is no recipe {recipe!r}{did_you_mean(recipe, RECIPES)}\n"
            f"{list_of_recipes()}\n{WHICH}"
        )
    return RECIPES[recipe](), f"--recipe {recipe}"


def list_of_recipes() -> str:
    """A line for each recipe."""
    width = max(map(len, RECIPES))
    return "\n".join(
        f"    --recipe {name:<{width}}  {(recipe.__doc__ or '').splitlines()[0]}"
        for name, recipe in RECIPES.items()
    )


WHEN_ASKED_TO_STOP = "saving after this step, then stopping; the same command goes on"
ON_ALL_HOSTS = True
MARKS = ("manifest.json", "batches.json")  # of a built dataset, of batches in files


def open_source(config: Config) -> BatchSource:
    """The batches of `config.run.data`: made from a built dataset, or read from .npz files."""
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
    folder = local_folder(run.data, *MARKS)
    if not folder.is_dir():
        raise BadInput(
            f"--data {folder} is not there; build a dataset with `python -m data_pipeline.build`"
        )
    if system.groups % run.passes:
        raise BadInput(
            f"{system.groups} groups do not divide evenly into {run.passes} passes; use a number "
            f"of passes that divides {system.groups}"
        )
    cut = step_cut(make_mesh(system.groups // run.passes), run.passes)
    return system.open(folder, cut, rows=run.rows, steps=config.optimizer.steps)


def run(config: Config) -> int:
    """Train, and say where the results are."""
    config.validate()
    from coder_jax.training.metrics import check_installed

    check_installed(config.run.track)  # before the data is looked through and a step compiled
    source = open_source(config)
    from coder_jax.devices.hosts import log
    from coder_jax.training.train import train

    result = train(config, source)
    log(f"{result.steps} steps; checkpoints, metrics and curves in {result.out}")
    log(f"export: python -m coder_jax export --checkpoint {result.out} --out FOLDER")
    return 0
