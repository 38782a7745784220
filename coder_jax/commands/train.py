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
from data_pipeline.batches.spec import StepCut
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
    return tyro.cli(
        Config,
        args=flags,
        default=RECIPES[known.recipe](),
        prog="python -m coder_jax train [--recipe RECIPE]",
        description=f"{__doc__}\n{described}\n\nDefaults below are those of {known.recipe}.",
    )


WHEN_ASKED_TO_STOP = "saving after this step, then stopping; the same command goes on"
ON_ALL_HOSTS = True
MARKS = ("manifest.json", "batches.json")  # of a built dataset, of batches in files


def open_source(config: Config):
    """The batches of `config.run.data`: made from a built dataset, or read from .npz files."""
    from coder_jax.devices.mesh import make_mesh, step_cut

    run, steps = config.run, config.optimizer.steps
    if not run.data or not run.out:
        raise BadInput("give --data (a built dataset) and --out (the folder of the run)")
    folder = local_folder(run.data, *MARKS)
    if not folder.is_dir():
        raise BadInput(
            f"--data {folder} is not there; build a dataset with `python -m data_pipeline.build`"
        )
    groups = StepCut(passes=run.passes).groups_per_block(config.batch)
    cut = step_cut(make_mesh(groups), run.passes)
    from data_pipeline.batches.files import INDEX, BatchFiles

    if (folder / INDEX).exists():
        files = BatchFiles(folder, config.batch, cut, rows=run.rows, run_steps=steps)
        if steps > files.last_step:
            raise BadInput(
                f"{folder} has the batches of {files.last_step} steps, but the run has "
                f"{steps}; write more of them, or set --steps {files.last_step}"
            )
        return files
    # Only here does training meet TensorFlow.
    from data_pipeline.batches.stream import BatchMaker
    from data_pipeline.dataset.store import open_dataset

    return BatchMaker(open_dataset(folder), config.batch, cut, rows=run.rows, run_steps=steps)


def run(config: Config) -> int:
    """Train, and say where the results are."""
    config.validate()
    source = open_source(config)
    from coder_jax.training.train import say, train

    result = train(config, source)
    say(f"{result.steps} steps; checkpoints, metrics and curves in {result.out}")
    say(f"export: python -m coder_jax export --checkpoint {result.out} --out FOLDER")
    return 0
