"""The task of all systems of `benchmarks.train_step`: batches, initial matrices, operations.

NumPy arrays and plain values, which each system puts on the device in its own way.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Literal

import numpy as np

from coder_jax.models.bert_config import BertConfig, encoder_flops
from coder_jax.systems.coder import CoderSystem
from coder_jax.training.system import OptimizerConfig
from data_pipeline.batches.batch_maker import BatchMaker
from data_pipeline.batches.packing import MOST_SHAPES
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.dataset.store import open_dataset

_RELATION_NOISE = 0.01


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A task for every system; plain values, which are sent to processes."""

    encoder: Path
    """Hugging Face folder of a BERT."""
    data: Path
    """Folder of a dataset."""
    spec: BatchSpec
    """What the batches are made of."""
    steps: int
    """Batches that are used, again and again."""
    relations: int
    """R, matrices in the table."""
    dtype: Literal["float32", "bfloat16"]
    """Arithmetic of the encoder; of the recipe it is TF32 where the others have bfloat16."""
    dropout: bool
    """At the rate of the encoder's config.json, or none."""
    cache_chunks: int = 1
    """Of ours: `RunConfig.cache_chunks`."""
    shapes: int = MOST_SHAPES
    """Numbers of rows that ours may compile; losses do not depend on it."""
    coder: CoderSystem = dataclasses.field(default_factory=CoderSystem)
    """The losses, and the rate of relations; batch and model are those of `spec` and `dtype`."""
    optimizer: OptimizerConfig = dataclasses.field(
        # No warm-up: the first update already moves the losses of the second step.
        default_factory=lambda: OptimizerConfig(warmup_steps=0)
    )

    def stored(self, step: int) -> "Terms":
        """The terms of a step."""
        drawn = _maker(self.data, self.spec).unpacked(step)
        return Terms(**drawn)


@functools.cache
def _maker(data: Path, spec: BatchSpec) -> BatchMaker:
    return BatchMaker(open_dataset(data), spec)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of a step, unpacked; N = 2k terms in each of G groups."""

    tokens: np.ndarray
    """int32 [sum of lengths], term after term."""
    lengths: np.ndarray
    """int32 [G, N], tokens of each."""
    concepts: np.ndarray
    """int32 [G, N], heads, then tails."""
    relations: np.ndarray
    """int32 [G, U]; pair u * m + j is the j-th occurrence of triplet u."""


def initial_relations(relations: int, width: int) -> np.ndarray:
    """float32 [R, D, D]: identity plus noise, the same in every process."""
    table = np.random.default_rng(0).standard_normal((relations, width, width), np.float32)
    table *= _RELATION_NOISE
    table[:, np.arange(width), np.arange(width)] += 1
    return table


def useful_flops(encoder: BertConfig, terms: Terms) -> float:
    """Floating-point operations of one step for tokens that are not padding, forward and backward.

    Those of the encoder as `encoder_flops` counts them, the queries M_r^T e, both similarity
    matrices. The backward pass has two products for each of the forward pass, hence the factor 3;
    the optimizer has none.
    """
    width = encoder.hidden_size
    groups, vectors = terms.concepts.shape
    pairs = vectors // 2
    head = groups * 2 * width * (vectors**2 + pairs**2 + pairs * width)
    return 3.0 * (encoder_flops(encoder, terms.lengths) + head)
