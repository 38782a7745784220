"""A run of six steps on one device, with batches over a dataset in memory: the parts of it."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from tiny_bert import write_model
from tiny_run import dataset_for

import coder_jax.training.step
from coder_jax.devices.mesh import make_mesh
from coder_jax.systems.coder import CoderSystem
from coder_jax.systems.encoder_system import ModelConfig
from coder_jax.training.system import Config, OptimizerConfig, RunConfig
from data_pipeline.batches.batch_maker import BatchMaker
from data_pipeline.batches.spec import BatchSpec, RowPlan

SPEC = BatchSpec(groups=2, triplets=4, repeats=2, row_length=64)


def licensed_model(folder: Path) -> Path:
    """A folder with a tiny BERT and its tokenizer, under a license."""
    write_model(folder)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# tiny\n")
    return folder


def source_for(model: Path) -> BatchMaker:
    """Batches over a dataset in memory, with a tokenizer and held-out terms beside the model."""
    maker = BatchMaker(dataset_for(model, model.parent / "dataset"), SPEC)
    maker.plan = RowPlan((maker.plan.ample,))  # compile one shape
    return maker


def config(model, out, **run):
    return Config(
        recipe="test",
        system=CoderSystem(model=ModelConfig(init=str(model)), batch=SPEC),
        optimizer=OptimizerConfig(steps=6, learning_rate=1e-3, warmup_steps=2),
        run=RunConfig(**{"out": str(out), "save_steps": 3, "log_steps": 2} | run),
    )


class Stops:
    """A source of batches that fails at a step, as a run does that loses its disk."""

    def __init__(self, source, after):
        self.source, self.after = source, after

    def __getattr__(self, name):
        return getattr(self.source, name)

    @property
    def __class__(self):  # systems ask what kind of source they have
        return type(self.source)

    def with_index(self, index):
        return Stops(self.source.with_index(index), self.after)

    def batches(self, first_step, last_step):
        for step, batch in enumerate(self.source.batches(first_step, last_step), first_step):
            if step == self.after:
                raise ConnectionError("the data disk is gone")
            yield batch


@contextlib.contextmanager
def one_device() -> Iterator[None]:
    """Eight fake devices would only make the compiler slow here; test_step.py has them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            coder_jax.training.step,
            "make_mesh",
            lambda groups, _=None: make_mesh(groups, jax.devices()[:1]),
        )
        yield


def assert_same_parameters(got, want):
    jax.tree.map(np.testing.assert_array_equal, got, want)


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]
