"""Classes among candidates: the scores of a step, and where new rows start."""

import jax
import jax.numpy as jnp
import numpy as np

from coder_jax.systems.mlnorm.class_softmax import Scores, unit_rows
from data_pipeline.process.errors import BadInput

CONCEPTS_AT_ONCE = 65_536


def candidate_scores(
    vector_ND: jax.Array,
    row_VD: jax.Array,
    place_NK: jax.Array,
    *among: tuple[jax.Array, jax.Array],
    scale: float,
) -> Scores:
    """The scores of terms with the rows that any of them has as candidate.

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
    # Rows that no term uses have none of the sets.
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
    classes_CD: np.ndarray, vectors: np.ndarray, term_start: np.ndarray, *, length: float
) -> np.ndarray:
    """The rows; those of zeros become the direction of their terms' mean (equation 6).

    At the length of the rows that were learnt, as in the released code: it changes no score, but
    Adam moves each number of a row by about the learning rate, so that it turns a short row away
    from where it started.

    Args:
        classes_CD: float32.
        vectors: float32 [terms, D], of unit length.
        term_start: int64 [C + 1]; concept c has the terms term_start[c] .. term_start[c + 1] - 1.
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
    for first in range(0, len(filled), CONCEPTS_AT_ONCE):
        last = min(first + CONCEPTS_AT_ONCE, len(filled))
        start = term_start[first : last + 1]
        sums = np.add.reduceat(vectors[start[0] : start[-1]], start[:-1] - start[0], axis=0)
        norm = np.linalg.norm(sums, axis=1, keepdims=True)
        rows = np.flatnonzero(np.atleast_1d(new)[first:last])
        filled[first + rows] = (length * sums / np.maximum(norm, 1e-12))[rows]
    return filled
