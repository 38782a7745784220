"""Our train step outside a run: with shapes only, to be compiled, or with a state, to be timed."""

import dataclasses
from collections.abc import Sequence

import jax
import optax
from flax import nnx
from jax.sharding import Mesh

from benchmarks.train_step_work import Terms, Work, initial_relations
from coder_jax.bert import Bert
from coder_jax.config import Config, coder_eng
from coder_jax.feed import Feed, SaveClock
from coder_jax.hf_weights import load_bert
from coder_jax.lazy_relations import MissedSteps
from coder_jax.mesh import make_mesh, put_whole, step_cut
from coder_jax.optimizer import make_optimizer
from coder_jax.state import TrainState, abstract_state, new_state, split_encoder
from coder_jax.step import TrainStep, make_train_step
from coder_jax.train import encoder_structure
from data_pipeline.batch_files import BatchFiles
from data_pipeline.batch_spec import StepCut


@dataclasses.dataclass(frozen=True)
class StepParts:
    """A step that was made and not yet compiled, with what it belongs to."""

    mesh: Mesh
    cut: StepCut
    graph: nnx.GraphDef
    like: TrainState  # shapes with their places
    optimizer: optax.GradientTransformation
    train_step: TrainStep


def make_step(
    config: Config,
    structure: Bert,
    relations: int,
    devices: Sequence[jax.Device] | None = None,
    *,
    dropout: bool = True,
) -> StepParts:
    """The step of a run, made as `coder_jax.train` makes it.

    Args:
        config: the run; its batch, loss, optimizer, pooling, passes and placement are used.
        structure: of `bert.abstract_bert`.
        relations: R, the relation matrices.
        devices: what to compile for; all if None.
        dropout: whether the encoder's dropout is on.
    """
    mesh = make_mesh(config.batch.groups // config.run.passes, devices)
    graph, shapes = split_encoder(structure)
    optimizer = make_optimizer(config.optimizer)
    like = abstract_state(
        shapes,
        relations if config.loss.mu else 0,
        structure.config.hidden_size,
        optimizer,
        mesh,
        shard_encoder=config.run.shard_encoder,
        lazy=config.optimizer.relation_update == "lazy",
    )
    train_step = make_train_step(
        graph,
        config.loss,
        optimizer,
        mesh,
        like,
        pooling=config.model.pooling,
        seed=config.batch.seed,
        dropout=dropout,
        missed=MissedSteps(config.optimizer) if like.relation_steps is not None else None,
    )
    return StepParts(mesh, step_cut(mesh, config.run.passes), graph, like, optimizer, train_step)


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
        parts = make_step(
            config, structure, work.relations, jax.devices()[:1], dropout=work.dropout
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
