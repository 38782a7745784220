"""What the two steps of MLNorm share: classes of a width, at a scale, and what becomes of them."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import tyro

from coder_jax.systems.encoders.encoder_system import EncoderSystem
from coder_jax.systems.mlnorm.class_softmax import padded_rows
from coder_jax.systems.mlnorm.head import head_shapes
from coder_jax.training.config import OptimizerConfig
from coder_jax.training.system import Params, SavedRun, Trained, Tree
from data_pipeline.batches.checks import check_least
from data_pipeline.batches.draws.term_spec import TermSpec
from data_pipeline.process.errors import BadInput


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassSystem(EncoderSystem):
    """A system with one row, its class, for each concept of the dataset."""

    title: ClassVar[str] = "MLNorm"
    paper: ClassVar[str] = "Wajsbürt, Sarfati and Tannier 2021"
    whole: ClassVar[bool] = True

    batch: Annotated[TermSpec, tyro.conf.arg(name="")] = dataclasses.field(default_factory=TermSpec)

    width: int = 350
    """Of the vectors that are compared with the classes."""
    scale: float = 20.0
    """s, by which cosines are multiplied in the softmax."""

    def validate(self, optimizer: OptimizerConfig) -> None:
        super().validate(optimizer)
        check_least(self, 1, "width")
        if not 0 < self.scale <= 40:
            raise BadInput(
                f"scale is {self.scale}; it must be more than 0 and at most 40: e^-2s is computed"
            )

    def about(self, encoder: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, Any]:
        return {**super().about(encoder, manifest), "concepts": manifest["counts"]["concepts"]}

    def shapes(self, about: Mapping[str, Any]) -> tuple[Params, Tree]:
        """With the running statistics of the head as `extra`."""
        params, _ = super().shapes(about)
        head, statistics = head_shapes(self.structure(about).config.hidden_size, self.width)
        rows = padded_rows(about["concepts"])
        return {
            **params,
            "head": head,
            "classes": jax.ShapeDtypeStruct((rows, self.width), jnp.float32),
            "class_groups": jax.ShapeDtypeStruct((rows,), jnp.uint16),
        }, statistics

    def trained(self, run: SavedRun) -> Trained:
        from coder_jax.systems.mlnorm.prediction.export import trained_classifier

        found = super().trained(run)
        return dataclasses.replace(found, tables={"classes": trained_classifier(self, run)})

    def export(self, run: SavedRun, out: Path, **options: Any) -> dict[str, float]:
        from coder_jax.systems.mlnorm.prediction.export import export_classifier

        return export_classifier(self, run, out, **options)
