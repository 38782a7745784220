"""The step of a run with what belongs to it: made for training, for counting and for timing."""

import dataclasses
from collections.abc import Sequence

import jax
import optax
from flax import nnx
from jax.sharding import Mesh

from coder_jax.devices.mesh import make_mesh, step_cut
from coder_jax.models.bert import Bert
from coder_jax.systems.groups.heads import head_shapes
from coder_jax.training.config import Config
from coder_jax.training.lazy_rows import MissedSteps
from coder_jax.training.optimizer import make_optimizer
from coder_jax.training.state import TrainState, abstract_state, split_encoder
from coder_jax.training.step import TrainStep, make_train_step
from data_pipeline.batches.spec import StepCut


@dataclasses.dataclass(frozen=True)
class RunStep:
    """A step that is made and not yet compiled, with what belongs to it."""

    mesh: Mesh
    cut: StepCut
    graph: nnx.GraphDef
    like: TrainState  # shapes with their places
    optimizer: optax.GradientTransformation
    train_step: TrainStep


def make_run_step(
    config: Config,
    structure: Bert,
    relations: int,
    types: int = 0,
    *,
    devices: Sequence[jax.Device] | None = None,
    dropout: bool = True,
) -> RunStep:
    """The step of a run.

    Args:
        config: the run; its batch, loss, optimizer, pooling, passes and placement are used.
        structure: of `bert.abstract_bert`.
        relations: R, the relations of the data; there is no table if mu is 0.
        types: S, the semantic types of the data.
        devices: of the mesh; all if None.
        dropout: whether the encoder's dropout is on.
    """
    mesh = make_mesh(config.batch.groups // config.run.passes, devices)
    graph, shapes = split_encoder(structure)
    optimizer = make_optimizer(config.optimizer)
    like = abstract_state(
        shapes,
        head_shapes(config.loss, relations, types, structure.config.hidden_size),
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
        pairs=config.batch.pairs,
        pooling=config.model.pooling,
        seed=config.batch.seed,
        dropout=dropout,
        missed=MissedSteps(config.optimizer) if like.relation_steps is not None else None,
    )
    return RunStep(mesh, step_cut(mesh, config.run.passes), graph, like, optimizer, train_step)
