"""The cosine softmax of MLNorm: over all concepts of a group, or over candidates."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from coder_jax.devices.mesh import EVERYWHERE, constrain, spread_axes
from data_pipeline.process import BadInput

# -------------------------------------------------------------------------------------------------
# The softmax over all concepts: cosines of terms with one row per concept, within a group.
#
# .. math:: p(c \mid v, g) = \frac{\exp(s \cos(v, h_c))}{\sum_{c' \in g} \exp(s \cos(v, h_{c'}))}
#
# with the concepts of the term's semantic group :math:`g` (MLNorm, equation 5). The rows lie spread
# over all devices; each device sums over its own, block by block, so that the scores of all terms
# with all concepts are never there at once, forward or backward: the backward pass computes each
# block again.
#
# Shapes: N terms, C rows, D width.

_BLOCK = 4096  # rows that are scored at once
# Row counts are a multiple of the first, and for many rows of the second, on any devices: so a
# table has the same size on one device and on many.
_FEW, _MANY = 2048, 32_768
_LEAST = 1e-24  # of a squared norm: a row of zeros has no direction


class Scores(NamedTuple):
    """The statistics of N terms' scores that a loss and a prediction use; float32 [N] each."""

    log_sum: jax.Array
    """The logarithm of the sum over the rows of the term's group."""
    gold: jax.Array
    """The score of the term's own row."""
    best: jax.Array
    """The largest score in the group; no gradient flows through it."""


def padded_rows(concepts: int) -> int:
    """C, the rows of a table for so many concepts; those at the end belong to no concept."""
    multiple = _FEW if concepts <= _MANY else _MANY
    return -(-concepts // multiple) * multiple


def unit_rows(rows: jax.Array) -> jax.Array:
    """The rows (last dimension) at unit length; zeros stay zeros."""
    return rows * jax.lax.rsqrt(jnp.maximum((rows**2).sum(-1, keepdims=True), _LEAST))


def class_scores(
    vector_ND: jax.Array,
    table_CD: jax.Array,
    groups_C: jax.Array,
    class_N: jax.Array,
    group_N: jax.Array,
    *,
    scale: float,
    mesh: Mesh,
) -> Scores:
    """The scores of terms with the rows of their groups.

    Args:
        vector_ND: float32, of unit length, whole on each device.
        table_CD: float32, the rows, of any length but 0; spread over the devices if C divides.
        groups_C: uint16, the semantic groups of each row as a bit set; 0 for rows of no concept.
        class_N: int32, the row of each term's own concept.
        group_N: int32, the semantic group of each term, a number of a bit.
        scale: s.
        mesh: the devices.
    """
    axes = spread_axes(mesh, table_CD.shape[0])
    spread = PartitionSpec(axes)
    one_device = partial(_scores_of_rows, scale=scale, axes=axes)
    return Scores(
        *jax.shard_map(
            one_device,
            mesh=mesh,
            in_specs=(EVERYWHERE, spread, spread, EVERYWHERE, EVERYWHERE),
            out_specs=(EVERYWHERE, EVERYWHERE, EVERYWHERE),
        )(
            constrain(mesh, vector_ND, EVERYWHERE),
            constrain(mesh, table_CD, spread),
            constrain(mesh, groups_C, spread),
            constrain(mesh, class_N, EVERYWHERE),
            constrain(mesh, group_N, EVERYWHERE),
        )
    )


def _scores_of_rows(
    vector_ND: jax.Array,
    table_cD: jax.Array,
    groups_c: jax.Array,
    class_N: jax.Array,
    group_N: jax.Array,
    *,
    scale: float,
    axes: tuple[str, ...] | None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`Scores` of the c rows on one device; `axes` are the mesh axes over which rows are spread."""
    rows, width = table_cD.shape
    block = math.gcd(rows, _BLOCK)
    first = 0 if axes is None else jax.lax.axis_index(axes) * rows

    def varying(value: jax.Array) -> jax.Array:
        return value if axes is None else jax.lax.pcast(value, axes, to="varying")

    vector_ND = varying(vector_ND)

    def of_block(sums: tuple[jax.Array, jax.Array], part: tuple[jax.Array, jax.Array]):
        row_bD, groups_b = part
        cosine_Nb = jnp.einsum(
            "nd,bd->nb", vector_ND, unit_rows(row_bD), precision=jax.lax.Precision.HIGHEST
        )
        of_group_Nb = (groups_b[None, :].astype(jnp.int32) >> group_N[:, None]) & 1 > 0
        # A cosine is at most 1, so no maximum is needed first: e^-2s is a normal float32.
        share_Nb = jnp.where(of_group_Nb, jnp.exp(scale * (cosine_Nb - 1)), 0.0)
        nearest_N = jnp.where(of_group_Nb, jax.lax.stop_gradient(cosine_Nb), -2.0).max(1)
        total_N, best_N = sums
        return (total_N + share_Nb.sum(1), jnp.maximum(best_N, nearest_N)), None

    zeros_N = varying(jnp.zeros(class_N.shape, vector_ND.dtype))
    blocks = table_cD.reshape(-1, block, width), groups_c.reshape(-1, block)
    (total_N, best_N), _ = jax.lax.scan(jax.checkpoint(of_block), (zeros_N, zeros_N - 2), blocks)
    place_N = class_N - first
    here_N = (place_N >= 0) & (place_N < rows)
    own_ND = unit_rows(table_cD[jnp.clip(place_N, 0, rows - 1)])
    gold_N = jnp.where(here_N, (vector_ND * own_ND).sum(1), 0.0)
    if axes is not None:
        total_N, gold_N = jax.lax.psum((total_N, gold_N), axes)
        best_N = jax.lax.pmax(jax.lax.stop_gradient(best_N), axes)
    return scale + jnp.log(total_N), scale * gold_N, scale * best_N


def class_softmax_loss(scores: Scores) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The mean cross-entropy over the terms, and the accuracy.

    Args:
        scores: of `class_scores`.
    """
    right_N = scores.gold >= scores.best - 1e-5  # its own row is scored twice, rounded otherwise
    return (scores.log_sum - scores.gold).mean(), {"acc@1": right_N.mean(dtype=jnp.float32)}


# -------------------------------------------------------------------------------------------------
# The softmax over candidate classes: the scores of a step, and the start of new rows.

_CONCEPTS_AT_ONCE = 65_536


def candidate_scores(
    vector_ND: jax.Array,
    row_VD: jax.Array,
    place_NK: jax.Array,
    *among: tuple[jax.Array, jax.Array],
    scale: float,
) -> Scores:
    """The scores of terms with the rows that are a candidate of any of them.

    Args:
        vector_ND: float32, of unit length.
        row_VD: float32, the rows that a step uses, each once; others may stand behind them.
        place_NK: int32, the rows of each term among these, its own concept first; -1 for none.
        among: pairs of int32 arrays: sets of each of these as bits [N, K], such as the semantic
            groups of a concept, and one of each term [N], such as its group. A term is told from
            the rows alone that have all of its own.
        scale: s.
    """
    cosine_NV = jnp.einsum(
        "nd,vd->nv", vector_ND, unit_rows(row_VD), precision=jax.lax.Precision.HIGHEST
    )
    # Rows that no term uses have empty sets.
    place = jnp.where(place_NK < 0, row_VD.shape[0], place_NK).reshape(-1)
    score_NV = scale * cosine_NV
    for sets_NK, own_N in among:
        sets_V = (
            jnp.zeros(row_VD.shape[0], jnp.int32).at[place].max(sets_NK.reshape(-1), mode="drop")
        )
        has_NV = (sets_V[None, :] >> own_N[:, None]) & 1 > 0
        score_NV = jnp.where(has_NV, score_NV, -jnp.inf)
    gold_N = jnp.take_along_axis(scale * cosine_NV, place_NK[:, :1], axis=1)[:, 0]
    best_N = jax.lax.stop_gradient(score_NV).max(1)
    return Scores(jax.nn.logsumexp(score_NV, axis=1), gold_N, best_N)


def with_means(
    classes_CD: np.ndarray,
    vectors: np.ndarray,
    term_start: np.ndarray,
    term_counts: np.ndarray,
    *,
    length: float,
) -> np.ndarray:
    """The rows; zero rows become the normalized mean of their terms (equation 6).

    The vectors have unit length, as in the released code; equation 6 sums them as equation 4 leaves
    them.

    At the length of the rows that were learnt, as in the released code: it changes no score, but
    Adam moves each number of a row by about the learning rate, so that it turns a short row away
    from where it started.

    Args:
        classes_CD: float32.
        vectors: float32 [terms, D], of unit length.
        term_start: int64 [C + 1]; concept c has the terms term_start[c] .. term_start[c + 1] - 1.
        term_counts: int [terms], how often each counts (`TripletDataset.term_counts`).
        length: of the new rows.

    Raises:
        BadInput: for a concept without a term.
    """
    empty = np.flatnonzero(np.diff(term_start) < 1)
    if empty.size:
        raise BadInput(
            f"{empty.size:,} concepts have no term, such as number {empty[0]}; expected one or "
            "more of each: build the dataset again"
        )
    filled = classes_CD.copy()
    new = np.logical_not(np.any(classes_CD, axis=1))
    for first in range(0, len(filled), _CONCEPTS_AT_ONCE):
        last = min(first + _CONCEPTS_AT_ONCE, len(filled))
        start = term_start[first : last + 1]
        counts = term_counts[start[0] : start[-1], None].astype(np.float32)
        weighted = vectors[start[0] : start[-1]] * counts
        sums = np.add.reduceat(weighted, start[:-1] - start[0], axis=0)
        norm = np.linalg.norm(sums, axis=1, keepdims=True)
        rows = np.flatnonzero(np.atleast_1d(new)[first:last])
        filled[first + rows] = (length * sums / np.maximum(norm, 1e-12))[rows]
    return filled
