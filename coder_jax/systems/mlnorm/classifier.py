"""The concept classifier of MLNorm: the head, the prediction, and the answers for `normalize`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.encoding.search import KeptRows, block_size, rows_from, search
from coder_jax.mapping.coded_list import Answer, Candidate, Status
from coder_jax.mapping.normalizer import why_unanswerable, writer_out
from coder_jax.systems.mlnorm.softmax import unit_rows
from data_pipeline import process
from data_pipeline.batches.candidates import Classes
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process import BadInput
from data_pipeline.terminology.semantic_groups import ANY, GROUPS, group_number

# -------------------------------------------------------------------------------------------------
# The head: maps a pooled vector to the space of the classes by linear layer, ReLU, batch norm and
# normalization.
#
# In this order (MLNorm, equation 4). Shapes: N terms, W width of the encoder, D width of the
# classes.

_MOMENTUM = 0.1  # share of the newest batch in the running statistics; PyTorch's default
_EPSILON = 1e-5


def head_shapes(encoder_width: int, width: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """(parameters, running statistics) as `jax.ShapeDtypeStruct`s."""

    def float32(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    params = {
        "kernel": float32(encoder_width, width),
        "bias": float32(width),
        "scale": float32(width),
        "shift": float32(width),
    }
    return params, {"mean": float32(width), "variance": float32(width)}


def new_head(shapes: dict[str, Any], key: jax.Array) -> dict[str, jax.Array]:
    """A head before the first step, initialized like PyTorch's: uniform within 1 / sqrt(W)."""
    of_kernel, of_bias = jax.random.split(key)
    kernel, bias = shapes["kernel"], shapes["bias"]
    bound = kernel.shape[0] ** -0.5
    return {
        "kernel": jax.random.uniform(of_kernel, kernel.shape, minval=-bound, maxval=bound),
        "bias": jax.random.uniform(of_bias, bias.shape, minval=-bound, maxval=bound),
        "scale": jnp.ones(bias.shape),
        "shift": jnp.zeros(bias.shape),
    }


def new_statistics(shapes: dict[str, Any]) -> dict[str, jax.Array]:
    """Running statistics before the first step: mean 0, variance 1."""
    return {
        "mean": jnp.zeros(shapes["mean"].shape),
        "variance": jnp.ones(shapes["variance"].shape),
    }


def _projected(head: dict[str, jax.Array], pooled_NW: jax.Array) -> jax.Array:
    """float32 [N, D]: linear layer and ReLU."""
    linear_ND = jnp.einsum(
        "nw,wd->nd", pooled_NW, head["kernel"], precision=jax.lax.Precision.HIGHEST
    )
    return jax.nn.relu(linear_ND + head["bias"][None, :])


def _normalized(
    head: dict[str, jax.Array], projected_ND: jax.Array, mean_D: jax.Array, variance_D: jax.Array
) -> jax.Array:
    """float32 [N, D]: batch norm with these statistics, then normalization to unit length."""
    root_D = jax.lax.rsqrt(variance_D + _EPSILON)
    normal_ND = (projected_ND - mean_D[None, :]) * (root_D * head["scale"])[None, :]
    return unit_rows(normal_ND + head["shift"][None, :])


def train_head(
    head: dict[str, jax.Array], statistics: dict[str, jax.Array], pooled_NW: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The vectors of a batch, normalized by its own statistics, and the updated running statistics.

    As in PyTorch the running variance takes the unbiased one of the batch, N / (N - 1).

    Args:
        head: the parameters.
        statistics: the running ones before.
        pooled_NW: float32, of all terms of the step.
    """
    projected_ND = _projected(head, pooled_NW)
    mean_D, variance_D = projected_ND.mean(0), projected_ND.var(0)
    terms = projected_ND.shape[0]
    seen = {"mean": mean_D, "variance": variance_D * (terms / max(terms - 1, 1))}
    running = {
        name: (1 - _MOMENTUM) * statistics[name] + _MOMENTUM * jax.lax.stop_gradient(seen[name])
        for name in statistics
    }
    return _normalized(head, projected_ND, mean_D, variance_D), running


def apply_head(
    head: dict[str, jax.Array], statistics: dict[str, jax.Array], pooled_NW: jax.Array
) -> jax.Array:
    """float32 [N, D]: vectors by the running statistics, for prediction.

    Args:
        head, statistics: of a trained run.
        pooled_NW: float32.
    """
    projected_ND = _projected(head, pooled_NW)
    return _normalized(head, projected_ND, statistics["mean"], statistics["variance"])


# -------------------------------------------------------------------------------------------------
# `ConceptClassifier`: predicts concepts, with probabilities, for mentions with a semantic group.

_CHUNK = 1024  # mentions that go through the head, or are compared, at once
_BLOCK = 1 << 15  # classes that they are compared with at once


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
        # The concepts of each semantic group that was asked for, and their rows.
        self._of_group: dict[int, tuple[np.ndarray, KeptRows]] = {}

    @property
    def concepts(self) -> list[str]:
        """The concepts, in the order of their class numbers."""
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
        """float32 [M, D]: the unit vectors that are compared with the class rows."""
        pooled = self.encoder.encode(list(mentions), unit=False, progress=progress)
        rows = block_size(len(pooled), _CHUNK)
        parts = [
            np.asarray(_apply_head(self.head, rows_from(pooled, first, rows)))
            for first in range(0, len(pooled), rows)
        ]
        width = self.table.shape[1]
        return np.concatenate(parts)[: len(pooled)] if parts else np.zeros((0, width), np.float32)

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
            if number not in self._of_group:
                rows = np.flatnonzero(self.groups >> number & 1)
                every = rows.size == len(self.table)
                keys = KeptRows(self.unit_table if every else self.unit_table[rows])
                self._of_group[number] = rows, keys
            rows, keys = self._of_group[number]
            mine = np.flatnonzero(numbers == number)
            if not rows.size:
                continue
            count = min(k, rows.size)
            cosine, found = search(vectors[mine], keys, count)
            log_sum = _log_sums(vectors[mine], keys, self.scale)
            index[mine, :count] = rows[found]
            probability[mine, :count] = np.exp(self.scale * cosine - log_sum[:, None])
        return index, probability

    def known_group(self, name: str) -> bool:
        """Whether any concept belongs to this semantic group."""
        return bool((self.groups >> GROUPS.index(name) & 1).any())


def _log_sums(vectors: np.ndarray, keys: KeptRows, scale: float) -> np.ndarray:
    """float32 [M]: the logarithm of the sum of exp(scale x cosine) over all keys.

    Args:
        vectors: float32 [M, D], of unit length.
        keys: float32 [C, D], of unit length.
        scale: s, at most 40.
    """
    sums = []
    rows = block_size(len(vectors), _CHUNK)
    for first in range(0, len(vectors), rows):
        process.poll()
        part = jax.device_put(rows_from(vectors, first, rows))
        total = np.zeros(rows, np.float64)
        for start in range(0, len(keys), _BLOCK):
            block = keys[start : start + _BLOCK]
            total += np.asarray(_sum_of_exponentials(part, block, scale=scale))
        sums.append(scale + np.log(total))
    if not sums:
        return np.zeros(0, np.float32)
    return np.concatenate(sums)[: len(vectors)].astype(np.float32)


@partial(jax.jit, static_argnames="scale")
def _sum_of_exponentials(vector_MD: jax.Array, key_CD: jax.Array, *, scale: float) -> jax.Array:
    cosine_MC = jnp.einsum("md,cd->mc", vector_MD, key_CD, precision=jax.lax.Precision.HIGHEST)
    return jnp.exp(scale * (cosine_MC - 1)).sum(1)


@jax.jit
def _apply_head(head: dict[str, Any], pooled_MW: jax.Array) -> jax.Array:
    return apply_head(head, head, pooled_MW)


# -------------------------------------------------------------------------------------------------
# The classifier as a normalizer, for `normalize`.


class ClassNormalizer:
    """Maps mentions to the concepts of a classifier, like `mapping.Normalizer` but without terms.

    The similarity of a candidate, and the confidence of an answer, is the probability of its
    concept among those of the semantic group.
    """

    def __init__(
        self,
        classifier: ConceptClassifier,
        dictionary: Dictionary,
        *,
        group: str | None = None,
        threshold: float = 0.0,
        abbreviations: Mapping[str, str] | None = None,
    ):
        """
        Args:
          classifier: what answers.
          dictionary: that has the names of the concepts (`Dictionary.knowing` all of them).
          group: the semantic group of all mentions; None where it is not known.
          threshold: no answer where the most probable concept is less probable.
          abbreviations: what they stand for; mentions are looked up with these written out.

        Raises:
          BadInput: if no class is of this group.
        """
        if group is not None:
            number = group_number(group)
            if not (classifier.groups >> number & 1).any():
                known = [name for name in GROUPS if classifier.known_group(name)]
                raise BadInput(
                    f"--semantic-group {group}: the model has no concept of it; it has "
                    f"{', '.join(known) or 'concepts without semantic types'}"
                )
            group = GROUPS[number]
        self.classifier, self.dictionary = classifier, dictionary
        self.group, self.threshold = group, threshold
        self.write_out = writer_out(abbreviations or {})

    def answers(self, mentions: Sequence[str], k: int = 1) -> list[Answer]:
        """The answer to each mention, with up to k candidates, best first."""
        if k < 1:
            raise BadInput(f"k is {k}; expected at least 1 concept per mention")
        strings = list(map(self.write_out, mentions))
        why = list(map(why_unanswerable, strings))
        asked = [row for row in range(len(mentions)) if not why[row]]
        found = self.classifier.nearest(
            [strings[row] for row in asked], [self.group] * len(asked), k
        )
        near = dict(zip(asked, zip(*found, strict=True), strict=True))
        answers = []
        for row, mention in enumerate(mentions):
            if why[row]:
                answers.append(Answer(mention, Status.NO_ANSWER, [], reason=why[row]))
                continue
            candidates = [
                Candidate(self.classifier.concepts[index], "", float(probability))
                for index, probability in zip(*near[row], strict=True)
                if index >= 0
            ]
            best = candidates[0].similarity
            sure = best >= self.threshold
            reason = "" if sure else f"probability {best:.2f} is less than {self.threshold:g}"
            status = Status.NEAR if sure else Status.NO_ANSWER
            answers.append(Answer(mention, status, candidates, confidence=best, reason=reason))
        return answers
