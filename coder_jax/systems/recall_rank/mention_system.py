"""What generator and ranker share: mentions as data, one dense layer, the best by accuracy."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from coder_jax.systems.encoders.encoder_system import EncoderSystem
from coder_jax.systems.recall_rank.contents import MentionRun
from coder_jax.training.system import Params, Part, SavedRun
from data_pipeline.dataset.mentions.store import MentionDataset, MentionSplit
from data_pipeline.process.errors import BadInput

INITIAL_SPREAD = 0.02  # of the normal distribution from which BERT's layers begin


@dataclasses.dataclass(frozen=True, kw_only=True)
class MentionSystem(EncoderSystem):
    """A system that learns from mentions, with a dense layer on its encoder."""

    content: ClassVar[Any] = MentionRun
    best: ClassVar[str | None] = "dev/accuracy"
    head: ClassVar[str]
    """The part that the dense layer is."""
    outputs: ClassVar[int]
    """Its width."""

    def told_of_data(self, dataset: Mapping[str, Any]) -> dict[str, Any]:
        counts = dataset["counts"]
        return {
            "mentions": f"{dataset['name']} {dataset['release']}",
            "training mentions": f"{counts['train: mentions']:,}",
            "concepts": f"{counts['concepts']:,}",
            "names": f"{counts['names']:,}",
            "cleaning": dataset["cleaning"],
        }

    # ---- The dense layer ----

    def head_parts(self) -> dict[str, Part]:
        return {self.head: Part(decay=True)}

    def head_shapes(self, about: Mapping[str, Any], width: int) -> Params:
        sizes = {"kernel": (width, self.outputs), "bias": (self.outputs,)}
        shapes = {name: jax.ShapeDtypeStruct(size, jnp.float32) for name, size in sizes.items()}
        return {self.head: shapes}

    def new_heads(self, shapes: Params) -> Params:
        if self.head not in shapes:
            return {}
        kernel = shapes[self.head]["kernel"]
        normal = jax.random.normal(jax.random.key(self.batch.seed), kernel.shape)
        return {
            self.head: {"kernel": INITIAL_SPREAD * normal, "bias": jnp.zeros(self.outputs)},
        }

    def carried_heads(
        self, run: SavedRun, manifest: Mapping[str, Any], about: Mapping[str, Any]
    ) -> Params:
        return {self.head: run.params[self.head]} if self.head in run.params else {}


def dev_mentions(data: MentionDataset) -> MentionSplit:
    """The mentions that a run is chosen by.

    Raises:
        BadInput: if there are none.
    """
    if "dev" not in data.splits:
        raise BadInput(
            f"{data.folder} has no mentions to choose the best checkpoint by; build it with --dev "
            "or --hold-out"
        )
    return data.splits["dev"]
