"""CODER++: CODER on groups of nearest neighbours, found anew while it trains.

Zeng, Yuan and Yu, Automatic Biomedical Term Clustering by Learning Fine-grained Term
Representations, BioNLP 2022.
"""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import tyro

from coder_jax.devices.mesh import local_copy
from coder_jax.encoding.search import Products
from coder_jax.models.bert import merge_encoder, split_encoder
from coder_jax.systems.coder.objective import CoderSystem
from coder_jax.training.config import OptimizerConfig
from coder_jax.training.system import View
from data_pipeline.batches.checks import check_least
from data_pipeline.batches.draws.neighbour_spec import NeighbourSpec
from data_pipeline.batches.spec import BatchSource
from data_pipeline.process.errors import BadInput


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoderPlusPlusSystem(CoderSystem):
    """The losses of CODER; of triplets that show neighbours the one on terms alone."""

    name: ClassVar[str] = "coderpp"
    title: ClassVar[str] = "CODER++"
    paper: ClassVar[str] = "Zeng, Yuan and Yu 2022"

    batch: Annotated[NeighbourSpec, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=NeighbourSpec
    )
    mu: float = 0.0
    """Weight of the term-relation-term loss of the triplets that are drawn; CODER++ has none."""
    refresh_steps: int = 31_250
    """Steps after which neighbours are found anew; the first time is before step 1."""
    search: Products = "exact"
    """By which products they are found: float32 (exact), or bfloat16 whose candidates are ranked
    again in float32, for accelerators: of names of the HPO these are 99.99 % of the same."""

    def validate(self, optimizer: OptimizerConfig) -> None:
        super().validate(optimizer)
        if self.batch.mined_share:
            check_least(self, 1, "refresh_steps")
        if self.mu and self.batch.mined_triplets == self.batch.triplets:
            raise BadInput(
                f"mu is {self.mu}, but mined_share is {self.batch.mined_share}: groups of "
                "neighbours alone have no relations; use --mu 0 or a smaller --mined-share"
            )

    def told(self) -> dict[str, Any]:
        told = super().told()
        if self.batch.mined_share:
            told["neighbours found every"] = f"{self.refresh_steps:,} steps"
        return told

    def fitted(self, source: BatchSource) -> Self:
        every = self.refresh_steps if self.batch.mined_share else 0
        return dataclasses.replace(self, refresh_steps=every)

    @property
    def needs_dataset(self) -> str:
        return "as the neighbours in a batch are found while a run trains"

    def refresh(self, view: View, source: BatchSource, folder: Path) -> None:
        """The nearest neighbours of all anchors, with the encoder of the moment."""
        from coder_jax.encoding.readers.embed import place
        from coder_jax.systems.coderpp.neighbours import write_neighbours
        from coder_jax.systems.encoders.chunks import hash_of

        draw: Any = source.draw  # type: ignore[attr-defined]  # of a `BatchMaker`
        encoder = local_copy(view.mesh, view.params["encoder"])
        graph, _ = split_encoder(self.structure(view.about))
        write_neighbours(
            folder,
            draw,
            place(merge_encoder(graph, encoder)),
            pooling=self.model.pooling,
            products=self.search,
            about=hash_of(source.manifest, encoder),
        )
