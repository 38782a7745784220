"""Concepts that relations join: who is an ancestor of whom, and which concepts of a group are kin.

The hierarchy are the relations PAR (the tail is a parent of the head) and CHD (a child), as MRREL
and all sources here have them, whatever else their label says.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from data_pipeline.batches.order import below, mix
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.dataset.store import TripletDataset, open_dataset
from data_pipeline.files.identity import DATASET, is_of_kind
from data_pipeline.process import BadInput

_PARENT, _GRANDPARENT, _OTHERWISE = 1, 2, 3
"""How two concepts are related: by so many steps up or down the hierarchy, or by another
relation."""


class _Adjacent:
    """For each concept some others, as a table of rows of any length.

    Args:
        one, other: int [n]; `other` is in the row of `one`.
        concepts: how many there are.
    """

    def __init__(self, one: np.ndarray, other: np.ndarray, concepts: int):
        pairs = np.unique(one.astype(np.int64) * concepts + other)
        pairs = pairs[pairs // concepts != pairs % concepts]
        self.others = (pairs % concepts).astype(np.int32)
        self.start = np.searchsorted(pairs, np.arange(concepts + 1) * concepts)

    def of(self, concepts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(places, others): of each entry in the rows of some concepts, int [n], its concept's
        place among them, and itself.
        """
        first = self.start[concepts]
        counts = self.start[concepts + 1] - first
        ends = np.cumsum(counts)
        at = np.repeat(first - (ends - counts), counts) + np.arange(ends[-1] if ends.size else 0)
        return np.repeat(np.arange(len(concepts)), counts), self.others[at]

    def one(self, random: np.ndarray, concepts: np.ndarray) -> np.ndarray:
        """int64 [n]: of each concept's row one at random; -1 where it is empty."""
        first = self.start[concepts]
        counts = self.start[concepts + 1] - first
        if not self.others.size:
            return np.full(concepts.shape, -1)
        nth = np.minimum(first + below(random, np.maximum(counts, 1)), self.others.size - 1)
        return np.where(counts > 0, self.others[nth].astype(np.int64), -1)


def _steps_up(dataset: TripletDataset) -> tuple[np.ndarray, np.ndarray]:
    """(children, parents): int [n] each, of the relations PAR and CHD."""
    rel = np.array([label.partition("|")[0] for label in dataset.manifest.relations] or [""])
    up, down = (np.isin(dataset.relations, np.flatnonzero(rel == name)) for name in ("PAR", "CHD"))
    children = np.concatenate([dataset.heads[up], dataset.tails[down]])
    return children, np.concatenate([dataset.tails[up], dataset.heads[down]])


def _parents(dataset: TripletDataset, flag: str) -> _Adjacent:
    """The parents of each concept.

    Raises:
        BadInput: if the dataset has no hierarchy; `flag` is what needs it.
    """
    children, parents = _steps_up(dataset)
    if not children.size:
        raise BadInput(
            f"{flag} needs a hierarchy, and {dataset.folder} has no relation of the kind PAR or "
            "CHD; leave it out, or build with relations (not with --relations of other kinds)"
        )
    return _Adjacent(children, parents, dataset.term_start.size - 1)


def broader_in(
    dictionary: str | Path, number: Mapping[str, int], concepts: int
) -> tuple[np.ndarray, np.ndarray]:
    """(parent_start, parents): what is a step broader than each concept (`MentionDataset`).

    Nothing is, where the dictionary is no dataset folder, or has no hierarchy.

    Args:
        dictionary: its path.
        number: identifier -> concept.
        concepts: how many there are.
    """
    steps = np.zeros((2, 0), np.int64)
    if is_of_kind(Path(dictionary) / DATASET.file, DATASET):
        dataset = open_dataset(dictionary, strings=True)
        place = np.array([number.get(cui, -1) for cui in dataset.cuis or []])
        steps = place[np.stack(_steps_up(dataset))]
    children, parents = steps[:, (steps >= 0).all(axis=0)]
    found = _Adjacent(children, parents, concepts)
    return found.start, found.others


class Ancestors:
    """The parents and grandparents of concepts.

    Args:
        dataset: the opened dataset.

    Raises:
        BadInput: if it has no hierarchy.
    """

    def __init__(self, dataset: TripletDataset):
        self.parents = _parents(dataset, "--ancestors")

    def __call__(self, random: np.ndarray, concepts: np.ndarray) -> np.ndarray:
        """int64 [n]: an ancestor of each concept; the concept itself where it has none.

        One of its parents; half of the time one of the parents of that, if it has one.

        Args:
            random: uint64 [n].
            concepts: int64 [n].
        """
        parent = self.parents.one(mix(random), concepts)
        known = np.maximum(parent, 0)
        grandparent = self.parents.one(mix(mix(random)), known)
        further = (parent >= 0) & (grandparent >= 0) & (grandparent != concepts)
        further &= (random & np.uint64(1)).astype(bool)
        return np.where(further, grandparent, np.where(parent >= 0, parent, concepts))


class Kin:
    """Which concepts of a group are related, and how.

    Args:
        dataset: the opened dataset.
        spec: with `mask_related` or `ancestors`.

    Raises:
        BadInput: if the dataset has no such relations.
    """

    def __init__(self, dataset: TripletDataset, spec: BatchSpec):
        self.by_any: _Adjacent | None = None
        concepts = dataset.term_start.size - 1
        if spec.mask_related == "any":
            if not dataset.heads.size:
                raise BadInput(
                    f"--mask-related is any, but {dataset.folder} has no relations; give "
                    "--mask-related none"
                )
            self.by_any = _Adjacent(dataset.heads, dataset.tails, concepts)
        self.parents: _Adjacent | None = None
        if spec.mask_related == "hierarchy" or spec.ancestors:
            flag = "--ancestors" if spec.ancestors else "--mask-related hierarchy"
            self.parents = _parents(dataset, flag)

    def __call__(self, concepts: np.ndarray) -> np.ndarray:
        """int32 [G, N * N]: how the concepts of each two terms are related; 0 if they are not.

        1 if one is the parent of the other, 2 if it is the grandparent, 3 if another relation joins
        them; of several the smallest.

        Args:
            concepts: int32 [G, N], of the terms.
        """
        return np.stack([self._of_group(group).ravel() for group in concepts])

    def _of_group(self, concepts_N: np.ndarray) -> np.ndarray:
        distinct_U, place_N = np.unique(concepts_N, return_inverse=True)
        kin_UU = np.zeros((distinct_U.size, distinct_U.size), np.int32)

        def mark(kind: int, place: np.ndarray, others: np.ndarray) -> None:
            """The pairs of distinct concepts at `place` and those of `others` that are there."""
            column = np.minimum(np.searchsorted(distinct_U, others), distinct_U.size - 1)
            there = distinct_U[column] == others
            place, column = place[there], column[there]
            kin_UU[place, column] = kin_UU[column, place] = kind

        if self.by_any is not None:
            mark(_OTHERWISE, *self.by_any.of(distinct_U))
        if self.parents is not None:
            child, parents = self.parents.of(distinct_U)
            nth, grandparents = self.parents.of(parents)
            mark(_GRANDPARENT, child[nth], grandparents)
            mark(_PARENT, child, parents)
        np.fill_diagonal(kin_UU, 0)
        return kin_UU[place_N[:, None], place_N[None, :]]
