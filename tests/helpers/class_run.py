"""Short runs of the two steps of MLNorm on a dataset that was built."""

import dataclasses

from coder_jax.systems.encoder_system import ModelConfig
from coder_jax.systems.mlnorm.training import MLNormClassesSystem, MLNormSystem
from coder_jax.training.system import Config, OptimizerConfig, RunConfig
from data_pipeline.batches.spec import StepCut, TermSpec

MODEL = ModelConfig(dtype="float32", pooling="pieces", dropout=0.2)
SPEC = TermSpec(terms=32, groups=8, row_length=32)
FIRST = MLNormSystem(model=MODEL, batch=SPEC, width=10, head_learning_rate_factor=20.0)
SECOND = MLNormClassesSystem(batch=SPEC, width=10, candidates=7)
ADAM = OptimizerConfig(
    steps=12, learning_rate=1e-3, warmup_steps=2, weight_decay=0.0, clip_norm=0.0, eps=1e-3
)


def config_of_first(built, out, **run):
    """A run of the first step."""
    system = dataclasses.replace(FIRST, model=dataclasses.replace(MODEL, init=str(built[1])))
    return Config(recipe="test", system=system, optimizer=ADAM, run=run_config(out, **run))


def config_of_second(first, out, *, changes=None, **run):
    """A run of the second step, from a run of the first."""
    optimizer = dataclasses.replace(ADAM, learning_rate=8e-3, warmup_steps=0)
    system = dataclasses.replace(SECOND, **(changes or {}))
    where = run_config(out, **run)
    return Config(recipe="test", system=system, optimizer=optimizer, start=str(first), run=where)


def run_config(out, **run):
    return RunConfig(**{"out": str(out), "save_steps": 6, "log_steps": 6, "eval_steps": 6} | run)


def source_of(data, system):
    return system.open(data, StepCut(blocks=1), rows=0, steps=12)
