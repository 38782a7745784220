"""What answers mentions whose semantic group is given: the protocol, and the nearest term.

A classifier over concepts and a plain encoder are scored alike: each gives the best concepts of the
group, and how good each is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from coder_jax.encoding.encoded_dictionary import EncodedDictionary, nearest_concepts
from coder_jax.encoding.rows import unit
from coder_jax.evaluation.normalization.answers import TermRows
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.terminology.semantic_groups import ANY, group_number


class GroupNormalizer(Protocol):
    """Answers mentions with concepts of their semantic group.

    Attributes:
      concepts: identifiers of the concepts, such as CUIs.
      groups: uint16 [C], the semantic groups of each as `semantic_groups.groups_of` has them.
    """

    @property
    def concepts(self) -> Sequence[str]: ...
    @property
    def groups(self) -> np.ndarray: ...

    def nearest(
        self, mentions: Sequence[str], groups: Sequence[str | None], k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k best concepts for each mention among those of its group.

        Args:
          mentions: M strings.
          groups: of each mention, such as "DISO"; None: all concepts.
          k: at least 1.

        Returns:
          (int64 [M, k], numbers of distinct concepts, best first, -1 where there are fewer;
          float32 [M, k], how good each is: a probability or a cosine, -inf where there is none).

        Raises:
          BadInput: an unknown group.
        """


class NearestTerms:
    """The concepts with the nearest terms, exact; of equally near ones the first of the dictionary.

    Attributes:
      concepts, groups: see `GroupNormalizer`; concepts are in the order of their first terms.
    """

    def __init__(
        self,
        encode: Callable[[Sequence[str]], np.ndarray],
        dictionary: Dictionary,
        groups: Mapping[str, int],
    ):
        """
        Args:
          encode: strings -> float [n, D], for instance `TermEncoder.encode`; it is asked for the
            terms of a group one block at a time.
          dictionary: its terms, each of one concept or more.
          groups: the semantic groups of concepts as bit sets, from `groups_of_concepts`.
        """
        self.encode = encode
        pairs = [(term, concept) for _, term, concept in dictionary.pairs()]
        number_of: dict[str, int] = {}
        numbers = [number_of.setdefault(concept, len(number_of)) for _, concept in pairs]
        self.terms = [term for term, _ in pairs]
        self.concepts = list(number_of)
        self.groups = np.array([groups.get(one, 1 << ANY) for one in self.concepts], np.uint16)
        self.concept_of_pair, self.number_of = np.array(numbers, np.int64), number_of

    def nearest(
        self, mentions: Sequence[str], groups: Sequence[str | None], k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        numbers = np.full((len(mentions), k), -1, np.int64)
        scores = np.full((len(mentions), k), -np.inf, np.float32)
        group_of = np.array([ANY if one is None else group_number(one) for one in groups], int)
        for group in np.unique(group_of):
            rows = np.flatnonzero(group_of == group)
            found = self._nearest_in([mentions[int(row)] for row in rows], int(group), k)
            numbers[rows], scores[rows] = found
        return numbers, scores

    def _nearest_in(
        self, mentions: Sequence[str], group: int, k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """`nearest` of mentions of one group, by its number."""
        numbers = np.full((len(mentions), k), -1, np.int64)
        scores = np.full((len(mentions), k), -np.inf, np.float32)
        is_in = (self.groups >> group & 1).astype(bool)
        pairs = np.flatnonzero(is_in[self.concept_of_pair])
        if not len(pairs):
            return numbers, scores
        queries = unit(self.encode(mentions), "mention vectors")
        terms = [self.terms[pair] for pair in pairs]
        concepts = [self.concepts[number] for number in self.concept_of_pair[pairs]]
        vectors = TermRows(self.encode, terms, queries.shape[1])
        searched = EncodedDictionary(terms, concepts, vectors)
        most = min(k, int(is_in.sum()))
        for row, matches in enumerate(nearest_concepts(queries, searched, most)):
            numbers[row, :most] = [self.number_of[match.concept] for match in matches]
            scores[row, :most] = [match.similarity for match in matches]
        return numbers, scores
