"""Our train step outside a run: with shapes only, to be compiled, or with a state, to be timed."""

import dataclasses

import jax

from benchmarks.train_step_work import Terms, Work, initial_relations
from coder_jax.devices.feed import Feed, SaveClock
from coder_jax.devices.mesh import put_whole
from coder_jax.models.hf_weights import load_bert
from coder_jax.systems.recipes import coder_eng
from coder_jax.training.run_step import make_run_step
from coder_jax.training.state import TrainState, new_state, split_encoder
from coder_jax.training.train import encoder_structure
from data_pipeline.batches.files import BatchFiles


class Ours:
    """The system of this project; see `benchmarks.train_step_process.System`."""

    def __init__(self, work: Work):
        recipe = coder_eng()
        config = dataclasses.replace(
            recipe,
            batch=work.spec,
            model=dataclasses.replace(recipe.model, dtype=work.dtype),
            loss=work.loss,
            optimizer=work.optimizer,
        )
        bert, hf_config, _ = load_bert(work.encoder)
        encoder = {"config": hf_config, "pooler": bert.pooler is not None}
        structure = encoder_structure(config, encoder)
        parts = make_run_step(
            config, structure, work.relations, devices=jax.devices()[:1], dropout=work.dropout
        )
        state = new_state(parts.like, split_encoder(bert)[1], parts.optimizer, noise=0.0, seed=0)
        table = initial_relations(work.relations, structure.config.hidden_size)
        where = parts.like.params["relations"].sharding
        params = {**state.params, "relations": put_whole(table, where)}
        self.state: TrainState = dataclasses.replace(state, params=params)
        self.train_step = parts.train_step
        self.files = BatchFiles(work.batches, work.spec, parts.cut)
        self.feed = Feed(parts.mesh, parts.cut, self.files.plan, SaveClock(float("inf")))

    def prepare(self, step: int, terms: Terms) -> dict[str, jax.Array]:
        """The packed batch of a step, on the device."""
        return next(self.feed([self.files.batch(step)])).batch

    def step(self, batch: dict[str, jax.Array]) -> jax.Array:
        """One optimizer step; the loss, on the device."""
        self.state, metrics = self.train_step(self.state, batch)
        return metrics["loss"]

    def wait(self) -> None:
        """Until the device has done its work."""
        jax.block_until_ready(self.state)

    def peak_device_memory(self) -> int | None:
        """Bytes on an accelerator; None where the platform does not say."""
        stats = jax.devices()[0].memory_stats()
        return stats["peak_bytes_in_use"] if stats else None
