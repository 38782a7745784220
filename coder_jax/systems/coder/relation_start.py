"""Relation matrices that begin where the initial encoder's own vectors lead, by ridge regression.

For a label with n triplets, X [n, D] and Y [n, D] the unit vectors of a name of each head and tail:

    M = argmin |X M - Y|^2 + penalty |M - I|^2 = (X'X + penalty I)^-1 (X'Y + penalty I)

so that a label with few triplets stays near the identity, at which CODER's matrices begin. The
papers of CODER do not have it.

RUN/.ridge/vectors.npy, matrices.npy   while they are made, in chunks; gone when the run begins
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from coder_jax.devices.agree import barrier, is_first
from coder_jax.encoding.readers.embed import Placed, embed_tokens
from coder_jax.systems.encoders.chunks import hash_of, write_rows
from data_pipeline.batches.packed_groups import joined

if TYPE_CHECKING:  # it loads TensorFlow
    from data_pipeline.dataset.store import TripletDataset

# Hidden, so that what is left there by a run that was stopped does not go into a bucket.
FOLDER, VECTORS, MATRICES = ".ridge", "vectors.npy", "matrices.npy"
TERMS_AT_ONCE, LABELS_AT_ONCE = 16_384, 16


class LabelledPairs(NamedTuple):
    """A name of each head and of each tail of some triplets, sorted by label.

    Attributes:
        terms: int64 [n], distinct terms of the dataset.
        heads, tails: int64 [T], places in `terms`.
        start: int64 [R + 1]; the pairs of label r are start[r] to start[r + 1] - 1.
    """

    terms: np.ndarray
    heads: np.ndarray
    tails: np.ndarray
    start: np.ndarray


def labelled_pairs(data: TripletDataset, most: int, seed: int) -> LabelledPairs:
    """At most so many triplets of each label, drawn, and of each concept in them a drawn name.

    Args:
        data: the dataset.
        most: triplets of one label.
        seed: of the draws.
    """
    labels = len(data.manifest["relations"])
    random = np.random.default_rng([seed, labels])
    order = random.permutation(data.relations.size)
    order = order[np.argsort(data.relations[order], kind="stable")]
    count = np.bincount(data.relations, minlength=labels)
    first = np.cumsum(count) - count
    within = np.arange(order.size) - np.repeat(first, count)
    kept = order[within < most]

    def names(concepts: np.ndarray) -> np.ndarray:
        have = data.term_start[concepts + 1] - data.term_start[concepts]
        return data.term_start[concepts] + random.integers(0, have)

    heads, tails = names(data.heads[kept]), names(data.tails[kept])
    terms, place = np.unique(np.concatenate([heads, tails]), return_inverse=True)
    start = np.concatenate([[0], np.cumsum(np.minimum(count, most))])
    return LabelledPairs(terms, place[: kept.size], place[kept.size :], start)


def ridge_matrix(head_nD: np.ndarray, tail_nD: np.ndarray, penalty: float) -> np.ndarray:
    """float64 [D, D]: M of the module's docstring; the identity where n is 0.

    Args:
        head_nD, tail_nD: float [n, D], of unit length.
        penalty: more than 0.
    """
    head_nD, tail_nD = head_nD.astype(np.float64), tail_nD.astype(np.float64)
    towards = penalty * np.eye(head_nD.shape[1])
    return np.linalg.solve(head_nD.T @ head_nD + towards, head_nD.T @ tail_nD + towards)


def ridge_matrices(
    run: Path,
    data: TripletDataset,
    placed: Placed,
    encoder: Any,
    *,
    pooling: str,
    penalty: float,
    most: int,
    seed: int,
) -> np.ndarray:
    """float32 [R, D, D]: where each label begins; all hosts call it, and share the work.

    Args:
        run: its folder, which all hosts share.
        data: the dataset.
        placed: the initial encoder on the devices.
        encoder: its parameters.
        pooling: how it makes vectors.
        penalty, most, seed: see `ridge_matrix` and `labelled_pairs`.

    Raises:
        Stopped: if it was asked to; what is done is not done again.
    """
    folder = run / FOLDER
    pairs = labelled_pairs(data, most, seed)
    about = hash_of(data.manifest, encoder) + f" {pooling} {penalty} {most} {seed}"

    def make_vectors(first: int, last: int) -> np.ndarray:
        bounds, (tokens,) = joined(data.token_start, pairs.terms[first:last], data.tokens)
        return embed_tokens(placed, tokens.astype(np.int32), bounds, pooling=pooling)

    write_rows(
        folder / VECTORS,
        len(pairs.terms),
        make_vectors,
        chunk=TERMS_AT_ONCE,
        about=f"vectors of {about}",
        what="vectors of heads and tails",
    )
    write_rows(
        folder / MATRICES,
        len(pairs.start) - 1,
        matrices_of(pairs, np.load(folder / VECTORS, mmap_mode="r"), penalty),
        chunk=LABELS_AT_ONCE,
        about=f"matrices of {about}",
        what="ridge regression of relations",
    )
    matrices = np.load(folder / MATRICES)
    barrier("all have the matrices")
    if is_first():
        shutil.rmtree(folder)
    return matrices


def matrices_of(
    pairs: LabelledPairs, vector_ND: np.ndarray, penalty: float
) -> Callable[[int, int], np.ndarray]:
    """(first, last) -> float32 [last - first, D, D], the matrices of these labels.

    Args:
        pairs: of each label.
        vector_ND: float [N, D], of the terms of `pairs`.
        penalty: see `ridge_matrix`.
    """

    def make(first: int, last: int) -> np.ndarray:
        made = []
        for label in range(first, last):
            of_label = slice(pairs.start[label], pairs.start[label + 1])
            heads, tails = (vector_ND[side[of_label]] for side in (pairs.heads, pairs.tails))
            made.append(ridge_matrix(heads, tails, penalty).astype(np.float32))
        return np.stack(made)

    return make
