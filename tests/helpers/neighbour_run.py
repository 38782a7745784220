"""A tiny run of CODER++ whose neighbours are found three times, and what it wrote of them."""

import numpy as np

from coder_jax.systems.coderpp import CoderPlusPlusSystem
from coder_jax.systems.encoder_system import ModelConfig
from coder_jax.training.system import Config, OptimizerConfig, RunConfig
from data_pipeline.batches.spec import NEIGHBOURS, NeighbourSpec

K = 3
SPEC = NeighbourSpec(
    groups=2, triplets=8, repeats=2, names="distinct", row_length=64, neighbours=K, mined_share=0.5
)
STEPS = 6  # neighbours are found before step 1, and after steps 2 and 4


def config_of(model, out, spec=SPEC, **changes):
    system = CoderPlusPlusSystem(
        model=ModelConfig(init=str(model), dtype="float32", dropout=0.1),
        batch=spec,
        **{"refresh_steps": 2, "mu": 0.5 if spec.mined_share < 1 else 0.0} | changes,
    )
    # Adam divides by the size of a gradient: of one near 0 it would show the rounding.
    optimizer = OptimizerConfig(steps=STEPS, learning_rate=1e-2, warmup_steps=1, eps=1e-3)
    run = RunConfig(out=str(out), save_steps=100, log_steps=1, eval_steps=0)
    return Config(recipe="test", system=system, optimizer=optimizer, run=run)


def index_of(out, step):
    return np.load(out / "index" / str(step) / NEIGHBOURS)


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())
