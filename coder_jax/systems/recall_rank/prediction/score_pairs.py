"""Pairs of a mention and a candidate in, the probability that the candidate is right out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from coder_jax.models.bert import Bert
from coder_jax.models.packed.probes import Probes
from data_pipeline.batches.mentions.pairs import Pairs
from data_pipeline.batches.packed_groups import joined
from data_pipeline.batches.packing import pack_rows
from data_pipeline.process import stopping
from data_pipeline.process.progress import progress_bar

PAIRS_AT_ONCE = 512
ROW_LENGTH = 128

Mask = Literal["after", "before"]


def rank_logits(
    bert: Bert,
    head: Mapping[str, jax.Array],
    rows: Mapping[str, jax.Array],
    pairs: int,
    probes: int,
    mask: Mask,
) -> jax.Array:
    """float32 [N]: the score of each pair of some packed rows, before the sigmoid.

    Args:
        bert: the encoder.
        head: kernel [D, 1] and bias [1].
        rows: tokens, positions, segments, kinds, types, [R, L] each.
        pairs: N.
        probes: K, the kinds of keywords.
        mask: where keyword masks apply (`Probes.after`).
    """
    led = Probes(kinds=rows["kinds"], types=rows["types"], number=probes, after=mask == "after")
    vector_ND = bert.pair_vectors(rows["tokens"], rows["positions"], rows["segments"], led, pairs)
    return score_of(vector_ND, head)


def score_of(vector_ND: jax.Array, head: Mapping[str, jax.Array]) -> jax.Array:
    """float32 [N]: a linear layer of one output."""
    product = jnp.dot(vector_ND, head["kernel"], precision=jax.lax.Precision.HIGHEST)
    return (product + head["bias"][None])[:, 0]


# Compiled once for each shape and each structure of an encoder.
compiled_logits: Any = nnx.jit(rank_logits, static_argnums=(3, 4, 5))


def probabilities(
    bert: Bert,
    head: Mapping[str, Any],
    pairs: Pairs,
    *,
    probes: int,
    mask: Mask,
    progress: bool = False,
) -> np.ndarray:
    """float32 [n]: the probability of each pair, whatever others it is packed with.

    Equal pairs, such as of a mention that texts repeat, are computed once.

    Args:
        bert, head, probes, mask: as for `rank_logits`.
        pairs: n of them.
        progress: show a progress bar.

    Raises:
        Stopped: a signal asked for it.
    """
    first_of, place = distinct_pairs(pairs)
    found = np.empty(len(first_of), np.float32)
    lengths = np.diff(pairs.start)
    row_length = max(ROW_LENGTH, int(lengths.max(initial=1)))
    # Pairs of like lengths are packed together.
    order = np.argsort(-lengths[first_of], kind="stable")
    parts = range(0, len(first_of), PAIRS_AT_ONCE)
    for first in progress_bar(parts, desc="ranking", unit="block", disable=not progress):
        stopping.poll()
        chosen = order[first : first + PAIRS_AT_ONCE]
        rows = packed(pairs, first_of[chosen], row_length)
        logits = compiled_logits(bert, dict(head), rows, PAIRS_AT_ONCE, probes, mask)
        found[chosen] = jax.nn.sigmoid(logits[: len(chosen)])
    return found[place]


def distinct_pairs(pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """(first, place): int64 [u] and [n].

    `first` numbers the pairs that are equal to none before them, and `place` says for each pair
    which of these it is equal to.
    """
    places: dict[tuple[bytes, ...], int] = {}
    first: list[int] = []
    place = np.empty(len(pairs.start) - 1, np.int64)
    bounds = pairs.start.tolist()
    for number, within in enumerate(map(slice, bounds[:-1], bounds[1:])):
        key = tuple(array[within].tobytes() for array in pairs[:3])
        place[number] = places.setdefault(key, len(places))
        if len(first) < len(places):
            first.append(number)
    return np.array(first, np.int64), place


def packed(pairs: Pairs, chosen: np.ndarray, row_length: int) -> dict[str, np.ndarray]:
    """Some pairs in rows, whose number is a power of two: few shapes to compile."""
    bounds, (tokens, kinds, types) = joined(
        pairs.start, chosen, pairs.tokens, pairs.kinds, pairs.types
    )
    rows = pack_rows(tokens, bounds, row_length, kinds=kinds, types=types)
    needed = len(rows["tokens"])
    padding = np.zeros(((1 << (needed - 1).bit_length()) - needed, row_length), np.int32)
    return {name: np.concatenate([array, padding]) for name, array in rows.items()}
