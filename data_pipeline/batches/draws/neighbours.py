"""The draw of nearest neighbours: blocks of an anchor and its neighbours, mixed with another draw.

Zeng, Yuan and Yu, Automatic Biomedical Term Clustering by Learning Fine-grained Term
Representations (CODER++), BioNLP 2022. A group of a step is a pure function of dataset, spec, index
and step.
"""

import copy
from pathlib import Path
from typing import Self

import numpy as np

from data_pipeline.batches.draws.groups import Draw
from data_pipeline.batches.draws.names import Names
from data_pipeline.batches.draws.neighbour_spec import NEIGHBOURS, NeighbourSpec
from data_pipeline.batches.order import key, permute
from data_pipeline.dataset.aligned import aligned
from data_pipeline.dataset.quiet_tensorflow import as_tensor, tf
from data_pipeline.dataset.store import TripletDataset
from data_pipeline.files.array_files import map_array
from data_pipeline.process.errors import BadInput

AGAIN = (
    "it is damaged, or of other data: move the checkpoints after its step away and give the same "
    "command again, which makes it anew"
)
BLOCKS = 1  # a part of the keys of blocks of neighbours, which those of triplets do not have


class NeighbourDraw:
    """The groups of any step, all of them or those of one host.

    Args:
        dataset: the opened dataset.
        spec: what a batch is made of.

    Attributes:
        anchors: int [A], NumPy: the terms, or the concepts, that blocks are made of; row a of an
            index holds the neighbours of anchors[a], likewise terms or concepts, the nearest first,
            and -1 where there are no more.

    Raises:
        BadInput: if the dataset has too few triplets, concepts or terms for a group.
    """

    def __init__(self, dataset: TripletDataset, spec: NeighbourSpec):
        spec.validate()
        self.dataset, self.spec = dataset, spec
        self.names = Names(dataset, spec)
        self.drawn = None
        if spec.mined_triplets < spec.triplets:
            self.drawn = Draw(dataset, spec.drawn(), self.names)
        taken = self.names.has_synonym
        if spec.draw == "relations":
            taken = np.ones(taken.size, bool)
        if spec.neighbours_of == "terms":
            taken = np.repeat(taken, np.diff(dataset.term_start))
        self.anchors = np.flatnonzero(taken)
        self.size = self.anchors.size
        if self.size < spec.blocks:
            raise BadInput(
                f"the dataset has {self.size} {spec.neighbours_of} to find neighbours of, "
                f"but a group takes {spec.blocks} distinct ones (draw {spec.draw!r}); use fewer "
                "triplets per group, more neighbours, or build with fewer filters"
            )
        self.items = tf.constant(self.anchors)
        self.lists: tf.Tensor | None = None

    def with_index(self, index: Path) -> Self:
        """The same draw with the neighbours of an index.

        Raises:
            BadInput: if they are not those of the anchors.
        """
        path = index / NEIGHBOURS
        mapped = map_array(path, AGAIN)
        expected = (self.size, self.spec.neighbours)
        if mapped.shape != expected or mapped.dtype != np.int32:
            raise BadInput(
                f"{path} holds {mapped.dtype} {mapped.shape}; expected int32 {expected}: {AGAIN}"
            )
        lists = aligned(expected, np.int32)
        lists[:] = mapped
        counts = self.dataset.term_start
        most = (counts[-1] if self.spec.neighbours_of == "terms" else counts.size - 1) - 1
        if lists.min() < -1 or lists.max() > most:
            raise BadInput(
                f"{path} holds numbers from {lists.min()} to {lists.max()}; expected -1 to {most}: "
                f"{AGAIN}"
            )
        other = copy.copy(self)
        other.lists = as_tensor(lists)
        return other

    def __call__(self, step: tf.Tensor, groups: np.ndarray) -> dict[str, tf.Tensor]:
        """The draw of G groups of a step, each of k pairs; as of `Draw`.

        The drawn triplets come first, then the blocks, whose relation is -1. Before there is an
        index each anchor stands for its neighbours, too: for a plan of rows that holds, as no real
        neighbours make groups differ more in length.
        """
        spec = self.spec
        parts = [] if self.drawn is None else [self.drawn(step, groups)]
        if spec.mined_triplets:
            parts.append(self._blocks(step, groups))

        def sides(name: str) -> tf.Tensor:
            halves = [tf.split(part[name], 2, axis=1) for part in parts]
            return tf.concat([half[side] for side in (0, 1) for half in halves], axis=1)

        relations = tf.concat([part["relations"] for part in parts], axis=1)
        return {"concepts": sides("concepts"), "terms": sides("terms"), "relations": relations}

    def _blocks(self, step: tf.Tensor, groups: np.ndarray) -> dict[str, tf.Tensor]:
        """As `Draw.__call__`, of the pairs that show neighbours."""
        spec, width = self.spec, 1 + self.spec.neighbours
        group = tf.cast(step, tf.int64) * spec.groups + tf.constant(groups, tf.int64)
        groups_per_epoch = self.size // spec.blocks
        within = tf.range(spec.blocks, dtype=tf.int64)[None, :]
        index = (group % groups_per_epoch)[:, None] * spec.blocks + within
        keys = key(spec.seed, "permutation", group // groups_per_epoch, BLOCKS)[:, None]
        place = tf.reshape(tf.cast(permute(index, self.size, keys), tf.int64), [-1])
        anchor = tf.gather(self.items, place)[:, None]
        lists = tf.repeat(anchor, spec.neighbours, axis=1)
        if self.lists is not None:
            found = tf.cast(tf.gather(self.lists, place), tf.int64)
            lists = tf.where(found < 0, lists, found)
        # Negative, so that no triplet has the same slot.
        slot = ~tf.reshape(group[:, None] * spec.blocks + within, [-1])
        slots = tf.reshape(slot[:, None] * width - tf.range(width, dtype=tf.int64), [-1])
        heads = self._terms_of(tf.reshape(tf.concat([anchor, lists], axis=1), [-1]), slots)
        concepts = self._concept_of(heads)
        if spec.positives == "each":
            tails = self.names.others("tail term", slots, heads, concepts, 1)
        else:
            firsts = heads[::width], concepts[::width]
            tails = self.names.others("tail term", slot, *firsts, width)
        tails = tf.reshape(tails, [-1])

        def by_group(*sides: tf.Tensor) -> tf.Tensor:
            shape = [len(groups), spec.blocks * width]
            return tf.concat([tf.reshape(x, shape)[:, : spec.mined_pairs] for x in sides], axis=1)

        of_tails = self._concept_of(tails)
        return {
            "concepts": tf.cast(by_group(concepts, of_tails), tf.int32),
            "terms": by_group(heads, tails),
            "relations": tf.fill([len(groups), spec.mined_triplets], np.int32(-1)),
        }

    def _terms_of(self, found: tf.Tensor, slots: tf.Tensor) -> tf.Tensor:
        """int64: what shows an anchor or a neighbour; the term itself, or one of the concept's."""
        if self.spec.neighbours_of == "terms":
            return found
        return self.names("head term", slots, found, 1)[:, 0]

    def _concept_of(self, terms: tf.Tensor) -> tf.Tensor:
        """int64: the concepts that terms belong to."""
        return tf.searchsorted(self.names.term_start, terms, side="right", out_type=tf.int64) - 1
