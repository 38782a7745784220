"""Candidates: for each mention the concepts with the nearest names, and how many it may have.

Liang, Xue, Ruan 2021, sections 3.1 and 3.2. Any encoder can be the generator: one that was not
trained for it compares vectors of length one, and takes each mention to have one concept.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coder_jax.encoding.encoded_dictionary import dictionary_vectors
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.systems.recall_rank.prediction.nearest import nearest, nearest_concepts
from data_pipeline.dataset.mentions.candidates import CandidateLists
from data_pipeline.process.errors import BadInput

CANDIDATES = 10  # kc (section 4.2)


class Generator(abc.ABC):
    """What finds candidates of mentions, and tells how many concepts they mean."""

    @abc.abstractmethod
    def encode(self, strings: Sequence[str], *, progress: bool = False) -> list[np.ndarray]:
        """float32 [n, D] of each encoder: vectors whose distances count."""

    @abc.abstractmethod
    def encode_names(
        self, names: Sequence[str], *, progress: bool = False, cache: bool = False
    ) -> list[np.ndarray]:
        """As `encode`, of the names of a dictionary.

        Args:
            names: N strings.
            progress: show a progress bar.
            cache: read the vectors where this machine has them, and keep them for the next time;
                they are equal to the bit to those that are made anew.
        """

    @abc.abstractmethod
    def numbers(self, mentions: Sequence[str]) -> np.ndarray:
        """float32 [M, C]: the probability of each number of concepts; [M, 1] of ones if unknown."""

    def lists(
        self,
        mentions: Sequence[str],
        names: Sequence[np.ndarray],
        name_concepts: np.ndarray,
        k: int = CANDIDATES,
        *,
        progress: bool = False,
    ) -> CandidateLists:
        """The candidates of mentions.

        Args:
            mentions: M strings.
            names: what `encode_names` gives of N names.
            name_concepts: int [N], the concept of each name.
            k: candidates of a mention.
            progress: show a progress bar.
        """
        vectors = self.encode(mentions, progress=progress)
        distances, found = nearest_concepts(vectors, names, name_concepts, k)
        return CandidateLists(
            names=found.astype(np.int32),
            distances=distances,
            numbers=self.numbers(mentions),
        )


class CandidateGenerator(Generator):
    """An encoder whose distances order candidates, and what tells the number of concepts.

    Args:
        encoder: of mentions and names.
        number: kernel [W, C] and bias [C] of a generator that was trained; None for any other
            encoder.
    """

    def __init__(self, encoder: TermEncoder, number: Mapping[str, Any] | None = None):
        self.encoder, self.number = encoder, number

    def encode(self, strings: Sequence[str], *, progress: bool = False) -> list[np.ndarray]:
        return [self.encoder.encode(strings, unit=self.number is None, progress=progress)]

    def encode_names(
        self, names: Sequence[str], *, progress: bool = False, cache: bool = False
    ) -> list[np.ndarray]:
        unit, how = self.number is None, {"cache": cache, "progress": progress}
        found = dictionary_vectors(self.encoder, names, unit=unit, of_run=True, **how)
        return [found if isinstance(found, np.ndarray) else np.array(found)]

    def numbers(self, mentions: Sequence[str]) -> np.ndarray:
        if self.number is None:
            return np.ones((len(mentions), 1), np.float32)
        bert, tokenizer = self.encoder.bert, self.encoder.tokenizer
        reads = "cls" if bert.pooler is None else "pooler"
        settings = dataclasses.replace(self.encoder.settings, pooling=reads)
        reader = TermEncoder(bert, tokenizer, settings)
        first = reader.encode(mentions, unit=False).astype(np.float64)
        logits = first @ np.asarray(self.number["kernel"], np.float64)
        logits += np.asarray(self.number["bias"], np.float64)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        return (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)


class GeneratorEnsemble(Generator):
    """Several generators as one: their distances and their probabilities of numbers are averaged.

    The released code combines five so, and the paper's figures are very likely of them.

    Args:
        members: in any order; they may have different encoders.

    Raises:
        BadInput: if some tell the number of concepts and others do not; the distances of these are
            of unit vectors, and no mean can be taken.
    """

    def __init__(self, members: Sequence[CandidateGenerator]):
        self.members = list(members)
        if len({one.number is None for one in self.members}) > 1:
            raise BadInput(
                "found generators and other encoders together, whose distances have no common "
                "measure; expected generators of the recipe recall alone, or other encoders alone"
            )

    def encode(self, strings: Sequence[str], *, progress: bool = False) -> list[np.ndarray]:
        return [array for one in self.members for array in one.encode(strings, progress=progress)]

    def encode_names(
        self, names: Sequence[str], *, progress: bool = False, cache: bool = False
    ) -> list[np.ndarray]:
        each = (one.encode_names(names, progress=progress, cache=cache) for one in self.members)
        return [array for arrays in each for array in arrays]

    def numbers(self, mentions: Sequence[str]) -> np.ndarray:
        shares = [one.numbers(mentions) for one in self.members]
        return np.asarray(np.mean(shares, axis=0, dtype=np.float64), np.float32)

    def lists_by(
        self,
        member: np.ndarray | None,
        mentions: Sequence[str],
        names: Sequence[np.ndarray],
        name_concepts: np.ndarray,
        k: int = CANDIDATES,
    ) -> CandidateLists:
        """The candidates of mentions, of each by one of the members.

        Args:
            member: int [M], which one; None: by all together.
            mentions, names, name_concepts, k: as for `lists`.
        """
        if member is None:
            return self.lists(mentions, names, name_concepts, k, progress=True)
        rows = [np.flatnonzero(member == number) for number in range(len(self.members))]
        parts = [
            one.lists(
                [mentions[row] for row in some.tolist()], [array], name_concepts, k, progress=True
            )
            for one, some, array in zip(self.members, rows, names, strict=True)
        ]
        back = np.argsort(np.concatenate(rows))
        return CandidateLists(
            **{
                field.name: np.concatenate([getattr(part, field.name) for part in parts])[back]
                for field in dataclasses.fields(CandidateLists)
            }
        )


def nearest_others(
    mentions: np.ndarray, names: np.ndarray, own: Sequence[np.ndarray], k: int
) -> np.ndarray:
    """int32 [M, k]: the names nearest to each mention that are none of its own.

    Args:
        mentions, names: float [M, D] and [N, D], vectors.
        own: int, for each mention the names that it may mean.
        k: names for each mention.

    Raises:
        BadInput: if a mention has fewer than k names that are not its own.
    """
    counts = np.array([len(one) for one in own], np.int64)
    if len(names) - counts.max(initial=0) < k:
        raise BadInput(
            f"the dictionary has {len(names)} names, of which a mention may mean "
            f"{counts.max()}; expected {k} others: use fewer (--negatives-per-pair)"
        )
    _, found = nearest(mentions, names, k + int(counts.max(initial=0)))
    rows = np.repeat(np.arange(len(mentions)), counts)
    taken = rows * len(names) + np.concatenate([np.zeros(0, np.int64), *own])
    is_own = np.isin(np.arange(len(mentions))[:, None] * len(names) + found, taken)
    place = np.argsort(is_own, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(found, place, axis=1).astype(np.int32)
