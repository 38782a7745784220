"""Systems that learn from groups of terms: their loss is the mean over the groups of a step.

A subclass adds the parts that are trained beside the encoder, and the loss of a group.
"""

import abc
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import tyro
from jax.sharding import Mesh

from coder_jax.models.bert import merge_encoder, split_encoder
from coder_jax.systems.encoders.encoder_system import EncoderSystem
from coder_jax.systems.encoders.packed_encoder import term_vectors
from coder_jax.systems.groups.contents import GroupRun
from coder_jax.systems.groups.group import Group, similarity_drift, unpacked_bits
from coder_jax.training.config import OptimizerConfig
from coder_jax.training.system import Batch, Loss, Params, Part, Tick, Tree
from data_pipeline.batches.checks import check_least
from data_pipeline.batches.spec import SHARED_NAMES, BatchSource, BatchSpec

INITIAL = "initial"  # the part that holds the encoder with which the run began


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupSystem(EncoderSystem):
    """A system whose loss is the mean over groups of terms (`Group`)."""

    scored: ClassVar[tuple[str, ...]] = ("encoder",)
    content: ClassVar[Any] = GroupRun

    batch: Annotated[BatchSpec, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=BatchSpec
    )
    keep_similarities: float = 0.0
    """Weight of a pull towards the encoder that the run begins with: the mean squared difference of
    its cosines of terms of different concepts from those of today. Each step takes a third longer,
    as that encoder reads the terms too; 0: none."""

    def validate(self, optimizer: OptimizerConfig) -> None:
        super().validate(optimizer)
        check_least(self, 0, "keep_similarities")

    def parts(self) -> dict[str, Part]:
        parts = super().parts()
        if self.keep_similarities:
            parts[INITIAL] = Part(rate=None, spread="largest")
        return parts

    def shapes(self, about: Mapping[str, Any]) -> tuple[Params, Tree]:
        params, extra = super().shapes(about)
        if self.keep_similarities:
            params[INITIAL] = params["encoder"]
        return params, extra

    def prepare(
        self, source: BatchSource, about: Mapping[str, Any], initial: Params, folder: Path
    ) -> Params:
        begun = super().prepare(source, about, initial, folder)
        return begun | ({INITIAL: initial["encoder"]} if self.keep_similarities else {})

    @abc.abstractmethod
    def group_loss(self, group: Group) -> tuple[jax.Array, dict[str, jax.Array]]:
        """The loss of one group and its metrics."""

    def loss_with_pull(self, group: Group) -> tuple[jax.Array, dict[str, jax.Array]]:
        """The loss of one group with the pull towards the initial encoder, and its metrics."""
        loss, metrics = self.group_loss(group)
        if group.initial_vectors is not None:
            metrics["loss_kept"] = similarity_drift(group)
            loss += self.keep_similarities * metrics["loss_kept"]
        return loss, metrics

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
        group_loss = jax.vmap(jax.vmap(self.loss_with_pull))

        def pass_loss(params: Params, extra: Tree, batch: Batch, tick: Tick) -> Any:
            seed = self.batch.seed if dropout else None
            bert = merge_encoder(graph, params["encoder"])
            vector_BGND = term_vectors(bert, batch, tick, mesh, self.model.pooling, seed)
            shared = batch.get(SHARED_NAMES)
            terms = vector_BGND.shape[2]
            group = Group(
                vectors=vector_BGND,
                concepts=batch["concepts"],
                relations=batch["relations"],
                types=batch.get("types"),
                share_a_name=None if shared is None else unpacked_bits(shared, terms),
            )
            if INITIAL in params:
                kept = merge_encoder(graph, params[INITIAL])
                vectors = term_vectors(kept, batch, tick, mesh, self.model.pooling, None)
                group = dataclasses.replace(group, initial_vectors=vectors)
            loss_BG, metrics_BG = group_loss(self.fill(group, params, mesh))
            return loss_BG.mean(), (extra, jax.tree.map(jnp.mean, metrics_BG))

        return pass_loss
