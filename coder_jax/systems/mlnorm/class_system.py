"""What the two steps of MLNorm share: classes of a width, at a scale, and what becomes of them."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from coder_jax.models.bert import Bert
from coder_jax.systems.encoders.encoder_system import EncoderSystem
from coder_jax.systems.encoders.packed_encoder import PACKED
from coder_jax.systems.mlnorm.class_softmax import padded_rows, unit_rows
from coder_jax.systems.mlnorm.head import apply_head, head_shapes
from coder_jax.training.config import OptimizerConfig
from coder_jax.training.system import Params, SavedRun, Trained, Tree
from data_pipeline.batches.checks import check_least
from data_pipeline.batches.draws.term_spec import TermSpec
from data_pipeline.process.errors import BadInput

PROVED = 64  # classes


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

    # ---- What proves what leaves the run: cosines with the first classes ----

    def proof_outputs(
        self, bert: Bert, params: Params, extra: Tree, rows: Mapping[str, Any], terms: int
    ) -> dict[str, jax.Array]:
        tokens, positions, segments = (rows[name] for name in PACKED)
        pooled = bert.term_vectors(tokens, positions, segments, terms, self.model.pooling)
        vectors = apply_head(params["head"], extra or params["statistics"], pooled)
        classes = unit_rows(params["classes"][:PROVED])
        cosines = jnp.dot(vectors, classes.T, precision=jax.lax.Precision.HIGHEST)
        return {**super().proof_outputs(bert, params, extra, rows, terms), "cosines": cosines}

    def answers(self, run: SavedRun, terms: list[str]) -> dict[str, Any]:
        from coder_jax.systems.mlnorm.prediction.export import trained_classifier

        found = super().answers(run, terms)
        classes = np.asarray(unit_rows(jnp.asarray(run.params["classes"][:PROVED])))
        return {**found, "cosines": trained_classifier(self, run).encode(terms) @ classes.T}

    def trained(self, run: SavedRun) -> Trained:
        from coder_jax.systems.mlnorm.prediction.export import trained_classifier

        found = super().trained(run)
        return dataclasses.replace(found, tables={"classes": trained_classifier(self, run)})

    def export(self, run: SavedRun, out: Path, **options: Any) -> dict[str, float]:
        from coder_jax.systems.mlnorm.prediction.export import export_classifier

        return export_classifier(self, run, out, **options)
