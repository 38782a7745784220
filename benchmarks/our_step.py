"""Our train step outside a training run, for timing."""

import dataclasses
from typing import Any

import jax

from benchmarks.train_step_work import Terms, Work, initial_relations
from coder_jax.devices.feed import Fed, Feed, SaveClock
from coder_jax.models.bert import split_encoder
from coder_jax.models.hf_weights import load_bert
from coder_jax.systems.coder import coder_eng
from coder_jax.systems.encoder_system import EncoderOfRun
from coder_jax.systems.group_losses import StartOfGroups
from coder_jax.training.state import new_state
from coder_jax.training.step import make_step
from coder_jax.training.system import RunConfig
from data_pipeline.batches.batch_maker import BatchMaker
from data_pipeline.dataset.store import open_dataset


class OnDevice:
    """What all steps with a state on JAX's devices share."""

    state: Any

    def wait(self) -> None:
        """Waits until the device has finished."""
        jax.block_until_ready(self.state)

    def peak_device_memory(self) -> int | None:
        """Bytes on an accelerator; None where the platform does not say."""
        stats = jax.devices()[0].memory_stats()
        return stats["peak_bytes_in_use"] if stats else None


class Ours(OnDevice):
    """The system of this project; see `benchmarks.train_step_process.MeasuredSystem`."""

    def __init__(self, work: Work):
        recipe = coder_eng()
        dropout = None if work.dropout else 0.0
        model = dataclasses.replace(recipe.system.model, dtype=work.dtype, dropout=dropout)
        system = dataclasses.replace(work.coder, model=model, batch=work.spec)
        run = RunConfig(cache_chunks=work.cache_chunks)
        config = dataclasses.replace(recipe, system=system, optimizer=work.optimizer, run=run)
        bert, hf_config, _ = load_bert(work.encoder)
        pooler = bert.pooler is not None
        about = StartOfGroups(
            encoder=EncoderOfRun(config=hf_config, pooler=pooler, license=None),
            relations=work.relations,
            types=0,
        )
        self.train_step = make_step(config, about, BatchMaker.packed, devices=jax.devices()[:1])
        initial = {
            "encoder": split_encoder(bert)[1],
            "relations": initial_relations(work.relations, bert.config.hidden_size),
        }
        like, parts = self.train_step.like, self.train_step.parts
        self.state = new_state(like, system, initial, parts, self.train_step.optimizer)
        dataset, cut = open_dataset(work.data), self.train_step.cut
        self.source = BatchMaker(dataset, work.spec, cut, shapes=work.shapes)
        self.feed = Feed(self.train_step.mesh, SaveClock(float("inf")))

    def prepare(self, step: int, terms: Terms) -> Fed:
        """The packed batch of a step, on the device."""
        (fed,) = self.feed(self.source, step, step + 1)
        return fed

    def step(self, batch: Fed) -> jax.Array:
        """Takes one optimizer step; returns the loss, on the device. A new number of rows is
        compiled first.
        """
        if batch.rows not in self.train_step.compiled:
            self.train_step.compile(self.source, batch.rows)
        self.state, metrics = self.train_step(self.state, batch.batch, batch.rows)
        return metrics["loss"]
