"""ConceptClassifier: mentions and their semantic groups in, concepts and probabilities out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.encoding.search import search
from coder_jax.systems.mlnorm.head import apply_head
from data_pipeline.dataset.classes import Classes
from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.semantic_groups import ANY, GROUPS, group_number

CHUNK = 1024  # mentions that go through the head, or are compared, at once
BLOCK = 1 << 15  # classes that they are compared with at once


class ConceptClassifier:
    """The softmax of MLNorm over all concepts of a mention's semantic group (equation 5).

    Example:
        classifier = load_classifier("runs/s2")
        index, probability = classifier.nearest(["mal de tête"], ["DISO"], k=3)
        print([classifier.concepts[i] for i in index[0]], probability[0])

    Attributes:
        encoder: of the mentions, with the pooling and cleaning of training.
        head: parameters of the head, with its running statistics `mean` and `variance`.
        table: float32 [C, D], one row per concept, of any length but 0.
        classes: the concepts, and their semantic groups.
        scale: by which cosines are multiplied.
    """

    def __init__(
        self,
        encoder: TermEncoder,
        head: dict[str, np.ndarray],
        table: np.ndarray,
        classes: Classes,
        *,
        scale: float,
    ):
        if len(table) < len(classes.concepts):
            raise BadInput(
                f"found {len(table):,} rows of classes for {len(classes.concepts):,} concepts; "
                "expected one for each: fetch the folder again"
            )
        self.encoder, self.head, self.classes, self.scale = encoder, head, classes, scale
        self.table = table[: len(classes.concepts)]

    @property
    def concepts(self) -> list[str]:
        """The concepts, by the number of their class."""
        return self.classes.concepts

    @property
    def groups(self) -> np.ndarray:
        """uint16 [C], the semantic groups of each concept as a bit set."""
        return self.classes.groups

    @cached_property
    def unit_table(self) -> np.ndarray:
        """float32 [C, D]: the rows at unit length."""
        length = np.linalg.norm(self.table, axis=1, keepdims=True)
        return self.table / np.maximum(length, 1e-12)

    def encode(self, mentions: Sequence[str], *, progress: bool = False) -> np.ndarray:
        """float32 [M, D]: the unit vectors that are compared with the classes."""
        pooled = self.encoder.encode(list(mentions), unit=False, progress=progress)
        parts = [
            np.asarray(_apply_head(self.head, jnp.asarray(pooled[first : first + CHUNK])))
            for first in range(0, len(pooled), CHUNK)
        ]
        width = self.table.shape[1]
        return np.concatenate(parts) if parts else np.zeros((0, width), np.float32)

    def nearest(
        self, mentions: Sequence[str], groups: Sequence[str | None], k: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k most probable concepts of each mention.

        Args:
            mentions: strings.
            groups: the semantic group of each, such as "DISO"; None where it is not known: then
                the softmax is over all concepts.
            k: how many.

        Returns:
            (index, probability): int64 and float32 [M, k], best first; -1 and 0 where a group has
            fewer concepts.

        Raises:
            BadInput: for a group that there is not.
            Stopped: if a signal asked for it.
        """
        numbers = np.array([ANY if group is None else group_number(group) for group in groups])
        return self.nearest_of(self.encode(mentions), numbers, k)

    def nearest_of(
        self, vectors: np.ndarray, numbers: np.ndarray, k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """As `nearest`, for vectors of `encode` and numbers of semantic groups."""
        index = np.full((len(vectors), k), -1, np.int64)
        probability = np.zeros((len(vectors), k), np.float32)
        for number in np.unique(numbers):
            rows = np.flatnonzero(self.groups >> number & 1)
            mine = np.flatnonzero(numbers == number)
            if not rows.size:
                continue
            keys = self.unit_table if rows.size == len(self.table) else self.unit_table[rows]
            here = min(k, rows.size)
            cosine, found = search(vectors[mine], keys, here)
            log_sum = log_sums(vectors[mine], keys, self.scale)
            index[mine, :here] = rows[found]
            probability[mine, :here] = np.exp(self.scale * cosine - log_sum[:, None])
        return index, probability

    def known_group(self, name: str) -> bool:
        """Whether any concept is of this semantic group."""
        return bool((self.groups >> GROUPS.index(name) & 1).any())


def log_sums(vectors: np.ndarray, keys: np.ndarray, scale: float) -> np.ndarray:
    """float32 [M]: the logarithm of the sum of exp(scale x cosine) over all keys.

    Args:
        vectors: float32 [M, D], of unit length.
        keys: float32 [C, D], of unit length.
        scale: s, at most 40.
    """
    sums = []
    for first in range(0, len(vectors), CHUNK):
        stopping.poll()
        part = jnp.asarray(vectors[first : first + CHUNK])
        total = np.zeros(len(part), np.float64)
        for start in range(0, len(keys), BLOCK):
            block = keys[start : start + BLOCK]
            total += np.asarray(_sum_of_exponentials(part, jnp.asarray(block), scale=scale))
        sums.append(scale + np.log(total))
    return np.concatenate(sums).astype(np.float32) if sums else np.zeros(0, np.float32)


@partial(jax.jit, static_argnames="scale")
def _sum_of_exponentials(vector_MD: jax.Array, key_CD: jax.Array, *, scale: float) -> jax.Array:
    cosine_MC = jnp.einsum("md,cd->mc", vector_MD, key_CD, precision=jax.lax.Precision.HIGHEST)
    return jnp.exp(scale * (cosine_MC - 1)).sum(1)


@jax.jit
def _apply_head(head: dict[str, Any], pooled_MW: jax.Array) -> jax.Array:
    return apply_head(head, head, pooled_MW)
