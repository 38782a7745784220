"""Vectors of terms in groups in, maps out: t-SNE in two dimensions, encoders side by side.

Figures 2 and 3 of the CODER papers (section 5.2), whose groups are concepts and semantic types. The
number below each map is measured on the vectors themselves, which a map only hints at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import orthogonal_procrustes

from coder_jax.encoding.search import nearest_others
from coder_jax.report.dictionary.terms import Group

PERPLEXITY = 30.0
LEAST_POINTS = 8


@dataclass(frozen=True)
class Map:
    """One encoder's map.

    Attributes:
      encoder: its name in the report.
      places: float64 [N, 2], the largest distance from the middle is 1.
      near: share of the N terms whose nearest other term, by cosine, is of their group.
    """

    encoder: str
    places: np.ndarray
    near: float


@dataclass(frozen=True)
class MapFigure:
    """The same terms in the map of each encoder."""

    groups: list[Group]
    maps: list[Map]

    @property
    def terms(self) -> list[str]:
        """The N terms, group by group."""
        return [term for group in self.groups for term in group.terms]

    @property
    def group_of(self) -> np.ndarray:
        """int64 [N], the group of each term."""
        return np.repeat(np.arange(len(self.groups)), [len(group.terms) for group in self.groups])


def draw_maps(groups: list[Group], vectors: Sequence[tuple[str, np.ndarray]]) -> MapFigure:
    """The map of each encoder; those behind the first are turned to lie as much as it as they can.

    Args:
      groups: with N terms in all.
      vectors: (name of an encoder, its vectors float [N, D] of unit length).
    """
    figure = MapFigure(groups, [])
    for name, vectors_ND in vectors:
        places = project(vectors_ND)
        if figure.maps:
            places = places @ orthogonal_procrustes(places, figure.maps[0].places)[0]
        figure.maps.append(Map(name, places, same_group_nearest(vectors_ND, figure.group_of)))
    return figure


def project(vectors_ND: np.ndarray) -> np.ndarray:
    """t-SNE (van der Maaten and Hinton 2008) of vectors float [N, D]: float64 [N, 2].

    The middle is 0, the largest distance from it 1. The same vectors give the same picture: it
    begins with principal components and runs on one thread, as sums over threads may differ in
    their last bits, which t-SNE makes into other pictures.
    """
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    if np.allclose(vectors_ND, vectors_ND[0]):  # no direction to begin with
        return np.zeros((len(vectors_ND), 2))
    perplexity = min(PERPLEXITY, (len(vectors_ND) - 1) / 3)
    tsne = TSNE(perplexity=perplexity, init="pca", random_state=0)
    with threadpool_limits(1):
        places = tsne.fit_transform(vectors_ND.astype(np.float64)).astype(np.float64)
    places -= (places.min(axis=0) + places.max(axis=0)) / 2
    return places / max(float(np.linalg.norm(places, axis=1).max()), 1e-12)


def same_group_nearest(vectors_ND: np.ndarray, group_of: np.ndarray) -> float:
    """Share of the N vectors whose nearest other one, by cosine, is of their group.

    Of equally near ones the first counts.
    """
    other = nearest_others(vectors_ND, 1)[1][:, 0]
    return float((group_of[other] == group_of).mean())
