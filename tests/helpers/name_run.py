"""Short runs of BNE on the tiny names."""

import dataclasses

from coder_jax.systems.bne import bne
from coder_jax.training.system import RunConfig
from data_pipeline.batches.spec import StepCut

STEPS = 8


def config_of(names, out, *, batch=None, model=None, run=None, **changes):
    """A run with small layers; `batch`, `model`, `run` and `changes` are values in its parts.

    Negatives are random: with the hardest a loss does not fall within a few steps.
    """
    base = bne()
    system = base.system
    spec = dataclasses.replace(
        system.batch, **({"pairs": 8, "groups": 8, "row_length": 16} | (batch or {}))
    )
    sizes = {"init": str(names.parent / "vectors"), "characters": 5, "hidden": 6}
    changed = dataclasses.replace(system.model, **(sizes | (model or {})))
    settings = {"eval_steps": 4, "save_steps": 4, "log_steps": 4} | (run or {})
    return dataclasses.replace(
        base,
        system=dataclasses.replace(
            system, batch=spec, model=changed, **({"negatives": "random"} | changes)
        ),
        optimizer=dataclasses.replace(base.optimizer, steps=STEPS),
        run=RunConfig(out=str(out), **settings),
    )


def source_of(config, names):
    return config.system.open(names, StepCut(), rows=0, steps=STEPS)
