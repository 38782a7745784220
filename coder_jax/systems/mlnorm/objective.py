"""MLNorm's first step: an encoder, a head and one row per concept, by a softmax over all of them.

Wajsbürt, Sarfati and Tannier, Medical concept normalization in French using multilingual
terminologies and contextual embeddings, Journal of Biomedical Informatics 114, 2021, sections 4.2
and 4.3.1.
"""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax.sharding import Mesh

from coder_jax.devices.agree import is_first
from coder_jax.devices.mesh import EVERYWHERE, constrain
from coder_jax.models.bert import merge_encoder, split_encoder
from coder_jax.systems.encoders.encoder_system import ModelConfig
from coder_jax.systems.encoders.packed_encoder import drop_vectors, term_vectors, token_ids
from coder_jax.systems.mlnorm.class_softmax import class_scores, class_softmax_loss, padded_rows
from coder_jax.systems.mlnorm.class_system import ClassSystem
from coder_jax.systems.mlnorm.head import new_head, new_statistics, train_head
from coder_jax.systems.mlnorm.token_jitter import jittered
from coder_jax.training.config import OptimizerConfig, RunConfig
from coder_jax.training.system import (
    Batch,
    Loss,
    Params,
    Part,
    Scorer,
    Tick,
    Tree,
    View,
)
from data_pipeline.batches.checks import check_rate
from data_pipeline.batches.spec import BatchSource
from data_pipeline.dataset.classes import classes_of, write_classes
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.semantic_groups import ANY

POOLED_SITE = 1_000_000  # of dropout: no layer of an encoder has this number


@dataclasses.dataclass(frozen=True, kw_only=True)
class MLNormSystem(ClassSystem):
    """Encoder, head and classes are trained together; the loss needs the whole batch."""

    name: ClassVar[str] = "mlnorm"

    model: Annotated[ModelConfig, tyro.conf.arg(name="")] = ModelConfig(
        init="bert-base-multilingual-uncased", pooling="pieces", dropout=0.2
    )
    within_group: bool = True
    """The softmax is over the concepts of the term's semantic group (the paper), or over all (what
    the released code does in this step)."""
    head_learning_rate_factor: float = 400.0
    """Head and classes learn at this multiple of the encoder's rate, without a warm-up: 8e-3."""
    jitter_noise: float = 0.0
    """Word pieces are sorted by their place plus normal noise of this deviation, in training alone;
    0.5 in the released code, not in the paper."""
    jitter_drop: float = 0.0
    """Rate at which word pieces are left out, in training alone, but for two of a term; 0.1 in the
    released code, not in the paper."""

    @property
    def jitters(self) -> bool:
        """Whether word pieces are moved or left out."""
        return self.jitter_noise > 0 or self.jitter_drop > 0

    def told(self) -> dict[str, Any]:
        of = "the semantic group" if self.within_group else "the dataset"
        told = {"softmax": f"{self.scale:g} x cosine, over all concepts of {of}"}
        if self.jitters:
            told["token jitter"] = f"noise {self.jitter_noise:g}, drop {self.jitter_drop:g}"
        return told

    def validate(self, optimizer: OptimizerConfig) -> None:
        super().validate(optimizer)
        if not 0 <= self.jitter_noise < math.inf:
            raise BadInput(f"jitter_noise is {self.jitter_noise}; it must be at least 0")
        check_rate(self, "jitter_drop")

    def needs(self, manifest: Mapping[str, Any], folder: Path) -> None:
        if self.within_group and not manifest["semantic_types"]:
            raise BadInput(
                f"{folder} has no semantic types, but the softmax is over the concepts of a "
                "semantic group; use --no-within-group, or a release with semantic types"
            )

    # ---- Parameters ----

    def parts(self) -> dict[str, Part]:
        rate = self.head_learning_rate_factor
        return {
            **super().parts(),
            "head": Part(rate=rate, warms_up=False),
            "classes": Part(rate=rate, warms_up=False, spread=0),
            "class_groups": Part(rate=None, spread=0),
        }

    def begin(self, params: Params, extra: Tree) -> tuple[Params, Tree]:
        key = jax.random.key(self.batch.seed)
        begun: Params = {}
        if "head" in params:
            begun["head"] = new_head(params["head"], jax.random.fold_in(key, 0))
        if "classes" in params:  # Xavier's uniform, as the released code has it
            shape = params["classes"].shape
            bound = (6 / (shape[0] + shape[1])) ** 0.5
            of_classes = jax.random.fold_in(key, 1)
            begun["classes"] = jax.random.uniform(of_classes, shape, minval=-bound, maxval=bound)
        return begun, new_statistics(extra)

    def prepare(
        self, source: BatchSource, about: Mapping[str, Any], initial: Params, folder: Path
    ) -> Params:
        classes = classes_of(source.folder)
        if is_first():
            write_classes(folder, classes)
        groups = np.zeros(padded_rows(about["concepts"]), np.uint16)
        groups[: len(classes.concepts)] = classes.groups
        return {"class_groups": groups}

    # ---- The loss ----

    def loss(self, about: Mapping[str, Any], mesh: Mesh, *, dropout: bool = True) -> Loss:
        """Cross-entropy of the softmax over the concepts (equation 5), meant over the terms."""
        structure = self.structure(about)
        graph, _ = split_encoder(structure)
        rate = structure.config.hidden_dropout
        seed = self.batch.seed if dropout else None

        def pass_loss(params: Params, extra: Tree, batch: Batch, tick: Tick) -> Any:
            bert = merge_encoder(graph, params["encoder"])
            if self.jitters and seed is not None:
                ids = token_ids(batch, tick, seed)
                batch = jittered(batch, ids, noise=self.jitter_noise, drop=self.jitter_drop)
            vector_BGNW = term_vectors(bert, batch, tick, mesh, self.model.pooling, seed)
            pooled_NW = vector_BGNW.reshape(-1, vector_BGNW.shape[-1])
            pooled_NW = constrain(mesh, pooled_NW, EVERYWHERE)
            if seed is not None:
                pooled_NW = drop_vectors(pooled_NW, seed, tick, POOLED_SITE, rate)
            vector_ND, extra = train_head(params["head"], extra, pooled_NW)
            class_N = batch["concepts"].reshape(-1)
            group_N = batch["semantic_groups"].reshape(-1)
            if not self.within_group:
                group_N = jnp.full_like(group_N, ANY)
            scores = class_scores(
                vector_ND,
                params["classes"],
                params["class_groups"],
                class_N,
                group_N,
                scale=self.scale,
                mesh=mesh,
            )
            loss, metrics = class_softmax_loss(scores)
            return loss, (extra, metrics)

        return pass_loss

    # ---- Scores ----

    def scorer(self, source: BatchSource, run: RunConfig) -> Scorer | None:
        """acc@1 and others of the held-out terms: by the nearest term, and by the classes."""
        from coder_jax.systems.mlnorm.prediction.heldout import HeldOutClasses

        nearest = super().scorer(source, run)
        assert nearest is not None
        heldout = HeldOutClasses(self, source)

        def score(view: View) -> dict[str, dict[str, float]]:
            return {**nearest(view), "classes": heldout.scores(view)}

        return score
