"""The index of a refresh: all terms encoded, and for each anchor what is nearest to it.

FOLDER/neighbours.npy   int32 [A, k], of the anchors of the draw (`NeighbourDraw`)

While it is made FOLDER also has vectors.npy (float32 [terms, D]; and concepts.npy [concepts, D]),
which later steps do not need. Each is made in chunks that are files, by all hosts: after a kill it
goes on where it was, to the bit.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np

from coder_jax.devices.agree import barrier, is_first
from coder_jax.encoding.readers.embed import Placed, embed_tokens
from coder_jax.encoding.rows import RowsOfFile, unit
from coder_jax.encoding.search import Products, nearest_others
from coder_jax.systems.encoders.chunks import is_made, remove_rows, write_rows
from data_pipeline.batches.draws.neighbour_spec import NEIGHBOURS

if TYPE_CHECKING:
    from data_pipeline.batches.draws.neighbours import NeighbourDraw
    from data_pipeline.dataset.store import TripletDataset

TERMS_AT_ONCE = 16_384
# All keys travel to the devices once for so many queries: a CPU has them there.
QUERIES_CPU, QUERIES_ACCELERATOR = 1 << 16, 1 << 19
SPARE = 8  # candidates more than are wanted, in place of those that are left out
VECTORS, CONCEPTS = "vectors.npy", "concepts.npy"
DELETE = "delete it and give the same command again, which makes it anew"


def write_neighbours(
    folder: Path,
    draw: NeighbourDraw,
    placed: Placed,
    *,
    pooling: str,
    products: Products,
    about: str,
) -> None:
    """Write the index of a draw; all hosts call it. One that is there, made of the same, stays.

    Terms of an anchor's own concept may be among its neighbours: their label makes them positives.
    What belongs to a concept that shares a name with the anchor's is left out, as it could not be
    told from a positive.

    Args:
        folder: that all hosts share.
        draw: whose neighbours are wanted.
        placed: the encoder.
        pooling: how it makes vectors.
        products: of the search.
        about: a hash of the encoder and the data.

    Raises:
        Stopped: on all hosts, if one was asked to stop.
    """
    on_cpu = jax.default_backend() == "cpu"
    chunk = QUERIES_CPU if on_cpu else QUERIES_ACCELERATOR
    path, of_path = folder / NEIGHBOURS, f"neighbours by {products} of {about}"
    if not is_made(path, of_path, chunk):
        data = draw.dataset
        vectors = write_vectors(folder / VECTORS, data, placed, pooling=pooling, about=about)
        owner = np.arange(data.term_start.size - 1)
        if draw.spec.neighbours_of == "concepts":
            vectors = write_means(folder / CONCEPTS, data, vectors, about=about)
        else:
            owner = np.repeat(owner, np.diff(data.term_start))
        make = Neighbours(draw, vectors, owner, products)
        rows = len(draw.anchors)
        write_rows(path, rows, make, chunk=chunk, about=of_path, what="neighbours")
    if is_first():
        remove_rows(folder / VECTORS, folder / CONCEPTS)
    barrier("vectors are gone")


def write_vectors(
    path: Path, data: TripletDataset, placed: Placed, *, pooling: str, about: str
) -> RowsOfFile:
    """Write the vector of each term, of unit length, without dropout.

    Raises:
        BadInput: if the file is there and damaged.
    """

    def make(first: int, last: int) -> np.ndarray:
        start = data.token_start[first : last + 1]
        tokens = np.asarray(data.tokens[start[0] : start[-1]], np.int32)
        return embed_tokens(placed, tokens, start - start[0], pooling=pooling)

    write_rows(
        path,
        int(data.term_start[-1]),
        make,
        chunk=TERMS_AT_ONCE,
        about=f"vectors of {about}",
        what="vectors of all terms",
    )
    return RowsOfFile(path, DELETE)


def write_means(path: Path, data: TripletDataset, vectors: RowsOfFile, *, about: str) -> RowsOfFile:
    """Write the direction of the mean of each concept's terms, of unit length; as above."""

    def make(first: int, last: int) -> np.ndarray:
        start = data.term_start[first : last + 1]
        of_terms = np.asarray(vectors[start[0] : start[-1]])
        return unit(np.add.reduceat(of_terms, start[:-1] - start[0], axis=0))

    write_rows(
        path,
        data.term_start.size - 1,
        make,
        chunk=TERMS_AT_ONCE,
        about=f"concepts of {about}",
        what="vectors of all concepts",
    )
    return RowsOfFile(path, DELETE)


class Neighbours:
    """Makes rows of the index: called with the first and one after the last of them.

    Args:
        draw: whose neighbours are wanted.
        vectors: of all terms, or all concepts.
        owner: int [len(vectors)], the concept of each.
        products: of the search.
    """

    def __init__(
        self, draw: NeighbourDraw, vectors: RowsOfFile, owner: np.ndarray, products: Products
    ):
        from data_pipeline.batches.draws.shared_names import SharedNames

        self.anchors, self.wanted = draw.anchors, draw.spec.neighbours
        self.vectors, self.owner, self.products = vectors, owner, products
        self.share_a_name = SharedNames(draw.dataset)

    def __call__(self, first: int, last: int) -> np.ndarray:
        anchors = self.anchors[first:last]
        _, found = nearest_others(self.vectors, self.wanted + SPARE, anchors, self.products)
        left_out = self.share_a_name(self.owner[anchors][:, None], self.owner[found])
        order = np.argsort(left_out, axis=1, kind="stable")[:, : self.wanted]
        kept = np.take_along_axis(np.where(left_out, -1, found), order, axis=1)
        nearest = np.full((last - first, self.wanted), -1, np.int32)
        nearest[:, : kept.shape[1]] = kept
        return nearest
