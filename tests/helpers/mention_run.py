"""Short runs of the two stages of recall and rank on mentions that were built."""

import dataclasses

from coder_jax.systems.encoder_system import ModelConfig
from coder_jax.systems.recall_rank.training import rank, recall
from coder_jax.training.system import RunConfig
from data_pipeline.batches.spec import StepCut

STEPS = 8


def config_of(stage, mentions, out, *, batch=None, **changes):
    """A short run of a stage; `batch` and `changes` are of its system, `run` of RunConfig."""
    base = {"recall": recall, "rank": rank}[stage]()
    sizes = {
        "recall": {"pairs": 4, "negatives_per_pair": 2},
        "rank": {"pairs": 8, "pair_length": 40},
    }
    spec = dataclasses.replace(
        base.system.batch, **({"groups": 4, "row_length": 64} | sizes[stage] | (batch or {}))
    )
    run = {"eval_steps": 4, "save_steps": 4, "log_steps": 4} | changes.pop("run", {})
    init = str(mentions.parent / "bert")
    pooling = base.system.model.pooling
    model = ModelConfig(init=init, pooling=pooling, dropout=0.1, dtype="float32")
    return dataclasses.replace(
        base,
        system=dataclasses.replace(base.system, batch=spec, model=model, **changes),
        optimizer=dataclasses.replace(base.optimizer, epochs=0, steps=STEPS, learning_rate=1e-3),
        run=RunConfig(out=str(out), **run),
    )


def source_of(config, data):
    return config.system.open(data, StepCut(), rows=0, steps=STEPS)
