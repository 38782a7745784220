"""Train an encoder on a built dataset, or go on where a run stopped.

    python -m coder_jax train --recipe coder_eng --data datasets/umls --out runs/coder_eng

A recipe sets every value; flags change single ones. The same command on the same --out goes on
where the run stopped; another configuration or dataset is refused. --data, --init and --out may be
folders in a bucket, s3://... or gs://... (requirements-cloud.txt).
"""

import argparse

import tyro

from coder_jax.systems.recipes import RECIPES
from coder_jax.training.config import Config
from data_pipeline.batches.spec import BatchSource
from data_pipeline.files.buckets import local_folder
from data_pipeline.process.errors import BadInput


def parse(arguments: list[str]) -> Config:
    """The recipe that `--recipe` names, with the values that the other flags change."""
    recipes = argparse.ArgumentParser(add_help=False)
    recipes.add_argument("--recipe", choices=RECIPES, default="coder_eng")
    known, flags = recipes.parse_known_args(arguments)
    described = "\n".join(
        f"    --recipe {name}: {(recipe.__doc__ or '').splitlines()[0]}"
        for name, recipe in RECIPES.items()
    )
    recipe = RECIPES[known.recipe]()
    return tyro.cli(
        Config[type(recipe.system)],  # type: ignore
        args=flags,
        default=recipe,
        prog="python -m coder_jax train [--recipe RECIPE]",
        description=f"{__doc__}\n{described}\n\nDefaults below are those of {known.recipe}.",
    )


WHEN_ASKED_TO_STOP = "saving after this step, then stopping; the same command goes on"
ON_ALL_HOSTS = True
MARKS = ("manifest.json", "batches.json")  # of a built dataset, of batches in files


def open_source(config: Config) -> BatchSource:
    """The batches of `config.run.data`: made from a built dataset, or read from .npz files."""
    from coder_jax.devices.mesh import make_mesh, step_cut

    system, run = config.system, config.run
    if not run.data or not run.out:
        raise BadInput("give --data (a built dataset) and --out (the folder of the run)")
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
    source = open_source(config)
    from coder_jax.devices.agree import say
    from coder_jax.training.train import train

    result = train(config, source)
    say(f"{result.steps} steps; checkpoints, metrics and curves in {result.out}")
    say(f"export: python -m coder_jax export --checkpoint {result.out} --out FOLDER")
    return 0
