"""Systems that learn from groups of terms: their loss is the mean over the groups of a step.

A subclass adds the parts that are trained beside the encoder, and the loss of a group.
"""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import tyro
from jax.sharding import Mesh

from coder_jax.models.bert import merge_encoder, split_encoder
from coder_jax.systems.encoders.encoder_system import EncoderSystem
from coder_jax.systems.encoders.packed_encoder import term_vectors
from coder_jax.systems.groups.contents import GroupRun
from coder_jax.systems.groups.group import Group
from coder_jax.training.system import Batch, Loss, Params, Tick, Tree
from data_pipeline.batches.spec import BatchSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupSystem(EncoderSystem):
    """A system whose loss is the mean over groups of terms (`Group`)."""

    scored: ClassVar[tuple[str, ...]] = ("encoder",)
    content: ClassVar[Any] = GroupRun

    batch: Annotated[BatchSpec, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=BatchSpec
    )

    @abc.abstractmethod
    def group_loss(self, group: Group) -> tuple[jax.Array, dict[str, jax.Array]]:
        """The loss of one group and its metrics."""

    def about(self, encoder: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **super().about(encoder, manifest),
            "relations": len(manifest["relations"]),
            "types": len(manifest["semantic_types"]),
        }

    def fill(self, group: Group, params: Params, mesh: Mesh) -> Group:
        """Groups [B, G, ...] with what the parts beside the encoder make of their vectors."""
        return group

    def loss(self, about: Mapping[str, Any], mesh: Mesh, *, dropout: bool = True) -> Loss:
        """The mean loss over the groups of a pass."""
        graph, _ = split_encoder(self.structure(about))
        group_loss = jax.vmap(jax.vmap(self.group_loss))

        def pass_loss(params: Params, extra: Tree, batch: Batch, tick: Tick) -> Any:
            seed = self.batch.seed if dropout else None
            bert = merge_encoder(graph, params["encoder"])
            vector_BGND = term_vectors(bert, batch, tick, mesh, self.model.pooling, seed)
            group = Group(
                vectors=vector_BGND,
                concepts=batch["concepts"],
                relations=batch["relations"],
                types=batch.get("types"),
            )
            loss_BG, metrics_BG = group_loss(self.fill(group, params, mesh))
            return loss_BG.mean(), (extra, jax.tree.map(jnp.mean, metrics_BG))

        return pass_loss
