"""Systems of groups that learn relations: CODER and CODER v1 share the table and its training."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from coder_jax.systems.encoders.contents import EncoderRun
from coder_jax.systems.groups.group import Group
from coder_jax.systems.groups.group_system import GroupSystem
from coder_jax.systems.groups.relations import all_queries, init_relations, table_shape
from coder_jax.training.config import OptimizerConfig
from coder_jax.training.system import Params, Part, SavedRun
from data_pipeline.files.json_files import typed
from data_pipeline.process.errors import BadInput


@dataclasses.dataclass(frozen=True, kw_only=True)
class RelationSystem(GroupSystem):
    """A system with a table of relations: one matrix, or one translation, for each label.

    Subclasses have `mu`, the weight of what is learnt of relations, and `score`, how a head, a
    relation and a tail are compared: "bilinear" or "translation".
    """

    mu: float
    score = "bilinear"

    relation_noise: float = 0.01
    """Standard deviation around the identity in a new relation matrix, or around 0 in a new
    translation."""
    relation_learning_rate_factor: float = 1.0
    """Relations, and the head of semantic types, learn at this multiple of the encoder's rate."""

    def validate(self, optimizer: OptimizerConfig) -> None:
        super().validate(optimizer)
        if self.mu and self.batch.draw in ("synonyms", "pairs"):
            raise BadInput(
                f"mu is {self.mu}, but the draw {self.batch.draw!r} takes no relations; "
                "use --mu 0 or another draw"
            )

    def told(self) -> dict[str, Any]:
        return {"mu": self.mu}

    def needs(self, manifest: Mapping[str, Any], folder: Path) -> None:
        if self.mu and not manifest["relations"]:
            raise BadInput(
                f"mu is {self.mu}, but {folder} has no relations; use --mu 0 to train on "
                "synonyms alone"
            )

    def relation_part(self, *, lazy: bool) -> Part:
        """How the table is trained.

        It does not decay: towards zero, matrices would forget the identity that they start at.

        Args:
            lazy: whether a step works on the matrices that it uses alone.
        """
        bilinear = self.score == "bilinear"
        return Part(
            rate=self.relation_learning_rate_factor,
            spread=1 if bilinear else None,
            touched="relations" if bilinear and lazy else None,
        )

    def head_shapes(self, about: Mapping[str, Any], width: int) -> Params:
        if not (self.mu and about["relations"]):
            return {}
        shape = table_shape(self.score, about["relations"], width)
        return {"relations": jax.ShapeDtypeStruct(shape, jnp.float32)}

    def carried_heads(
        self, run: SavedRun, manifest: Mapping[str, Any], about: Mapping[str, Any]
    ) -> Params:
        shapes, _ = self.shapes(about)
        table = run.params.get("relations")
        if table is None or "relations" not in shapes:
            return {}
        theirs = typed(run.identity, EncoderRun, "run.json of the run to start from")["dataset"]
        # A table that numbers other labels, or has another shape, would be another table.
        same_labels = theirs["relations"] == manifest["relations"]
        same_shape = shapes["relations"].shape == table.shape
        return {"relations": table} if same_labels and same_shape else {}

    def new_heads(self, shapes: Params) -> Params:
        if "relations" not in shapes:
            return {}
        shape, noise = shapes["relations"].shape, self.relation_noise
        return {"relations": init_relations(shape, noise=noise, seed=self.batch.seed)}

    def fill(self, group: Group, params: Params, mesh: Mesh) -> Group:
        if "relations" not in params:
            return group
        head_BGkD = group.vectors[:, :, : self.batch.pairs]
        queries = all_queries(mesh, params["relations"], group.relations, head_BGkD)
        return dataclasses.replace(group, queries=queries)
