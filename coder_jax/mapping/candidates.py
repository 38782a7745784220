"""Candidate terms for a mention: similar by vectors, by letters, or by both."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from coder_jax.encoding.encoder import EncodedDictionary, TermEncoder
from coder_jax.encoding.search import search
from coder_jax.mapping.coded_list import KINDS, Candidate
from coder_jax.mapping.contradictions import contradiction, sides_in_words
from data_pipeline.files.tables import split_concepts
from data_pipeline.process import BadInput
from data_pipeline.terminology.tf_idf import CharacterTfIdf

# Letters complement vectors of word pieces, which are weak at typing errors and at names of another
# language that share a root with the dictionary's. Trigrams do not go over the ends of words; case
# and accents do not count.
TRIGRAMS: dict[str, Any] = {
    "analyzer": "char_wb",
    "ngram_range": (3, 3),
    "strip_accents": "unicode",
    "sublinear_tf": True,
    "dtype": np.float32,
}
# Scores closer than this count as equal: rounding and packing move them by as much.
SAME = 1e-6
# How many terms of each kind are compared first; concepts often have several near terms.
_LOOKED_AT = 20
# How much letters count beside vectors, where it was not measured. Of 0, 1, 2, 3, 4, 6, 10 it was
# the best for English names that were held out of openmeta and the same names with one typing error
# each, together: 50.0 % and 42.9 % right, and 47.5 % and 36.1 % with vectors alone (606 names among
# 130,000 terms of five vocabularies, MiniLM after 250 steps of CODER v1).
WEIGHT_OF_LETTERS = 3.0
# A concept whose terms contradict the mention goes behind those that are less similar by up to this
# much, and one that lacks a value of the mention behind those within that (`contradictions`).
_PASSED_OVER = 0.15
_LESS_SAID = 0.05
# Where all that was found contradicts, so many terms of each kind are compared at most.
_MOST_LOOKED_AT = 1280


class _Compared(NamedTuple):
    """Terms of the dictionary, compared with one string."""

    rows: np.ndarray  # int64 [m], of the dictionary
    cosines: np.ndarray  # float32 [m], of the vectors
    letters: np.ndarray  # float32 [m], how alike they are in their letters


class Candidates:
    """Ranks the concepts of a dictionary for mentions.

    A concept's score is `(cosine + w * letters) / (1 + w)`: of its terms that were found, the
    largest cosine of the vectors and the largest similarity of the letters. Letters count the more,
    the further away the nearest vector is: `w = weight * (1 - largest cosine of all terms)`. So
    they decide where the encoder knows no word of a mention, and not between near neighbours.

    Concepts that contradict the mention, such as another side or strength, go behind similar ones
    that do not; see `_judged`. The similarity that is told stays what it was.

    Args:
      encoder: of mentions; the one that `encoded` was made with.
      encoded: the dictionary.
      kind: 'vectors', 'characters' or 'both'.
      weight: of letters beside vectors; WEIGHT_OF_LETTERS if None.
      compare: look for contradictions; without, similarity alone counts.
    """

    def __init__(
        self,
        encoder: TermEncoder,
        encoded: EncodedDictionary,
        kind: str = "vectors",
        weight: float | None = None,
        *,
        compare: bool = True,
    ):
        if kind not in KINDS:
            raise BadInput(f"candidates: found {kind!r}; expected {', '.join(KINDS)}")
        self.encoder, self.encoded, self.kind = encoder, encoded, kind
        self.weight = WEIGHT_OF_LETTERS if weight is None else weight
        self.compare = compare
        self.characters = None
        if kind != "vectors":
            self.characters = CharacterTfIdf(encoded.terms, **TRIGRAMS)

    def with_weight(self, weight: float) -> Candidates:
        """The same with another weight of letters."""
        other = copy.copy(self)
        other.weight = weight
        return other

    def ranked(self, strings: Sequence[str], k: int) -> list[list[Candidate]]:
        """For each string at least k concepts, best first, and all that tie with the first.

        Fewer than k where the dictionary has fewer, or letters alone find no others.
        """
        strings = self._written_out(strings)
        vectors = self._vectors(strings)
        found: list[list[Candidate]] = [[] for _ in strings]
        open_rows = list(range(len(strings)))
        width = max(_LOOKED_AT, 2 * k)
        while open_rows:
            width = min(width, len(self.encoded.terms))
            some = [strings[row] for row in open_rows]
            compared = self._compared(some, vectors[open_rows], width)
            for row, one in zip(open_rows, compared, strict=True):
                found[row] = self._of_concepts(strings[row], one, self.weight)
            if width == len(self.encoded.terms):
                break
            more = width < _MOST_LOOKED_AT
            open_rows = [row for row in open_rows if _is_open(found[row], k, more)]
            width *= 8
        return found

    def first_by_weight(
        self, strings: Sequence[str], weights: Sequence[float]
    ) -> list[list[str | None]]:
        """The best concept of each string for each weight of letters, [weights][strings].

        The terms are compared once; None where none is found.
        """
        strings = self._written_out(strings)
        compared = self._compared(strings, self._vectors(strings), _LOOKED_AT)
        return [
            [
                found[0].concept if (found := self._of_concepts(string, one, weight)) else None
                for string, one in zip(strings, compared, strict=True)
            ]
            for weight in weights
        ]

    def _written_out(self, strings: Sequence[str]) -> Sequence[str]:
        return [sides_in_words(one) for one in strings] if self.compare else strings

    def _vectors(self, strings: Sequence[str]) -> np.ndarray:
        """float32 [q, D]: vectors of the strings; zeros where vectors do not count."""
        if self.kind == "characters":
            return np.zeros((len(strings), self.encoded.vectors.shape[1]), np.float32)
        return self.encoder.encode(list(strings))

    def _compared(self, strings: Sequence[str], vectors: np.ndarray, width: int) -> list[_Compared]:
        """For each string the `width` nearest terms of each kind."""
        width = min(width, len(self.encoded.terms))
        rows: list[np.ndarray] = [np.zeros(0, np.int64) for _ in strings]
        if self.kind != "characters":
            rows = list(search(vectors, self.encoded.keys, width)[1])
        if self.characters is not None:
            alike = self.characters.most_alike(strings, width)
            rows = [np.union1d(one, other) for one, other in zip(rows, alike, strict=True)]
        cosines = self._cosines(vectors, rows)
        letters = [np.zeros(len(some), np.float32) for some in rows]
        if self.characters is not None:
            counts = [len(some) for some in rows]
            of_string = np.repeat(np.arange(len(strings)), counts)
            every = np.concatenate([np.zeros(0, np.int64), *rows])
            found = self.characters.between(strings, of_string, every)
            letters = np.split(found.astype(np.float32), np.cumsum(counts)[:-1])
        return [_Compared(*parts) for parts in zip(rows, cosines, letters, strict=True)]

    def _cosines(self, vectors: np.ndarray, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Of each vector the cosines with the vectors of some rows."""
        if self.kind == "characters":
            return [np.zeros(len(some), np.float32) for some in rows]
        distinct = np.unique(np.concatenate([np.zeros(0, np.int64), *rows]))
        keys = np.asarray(self.encoded.vectors[distinct], np.float32)
        return [
            keys[np.searchsorted(distinct, some)] @ vector
            for some, vector in zip(rows, vectors, strict=True)
        ]

    def _of_concepts(self, string: str, compared: _Compared, weight: float) -> list[Candidate]:
        """The concepts of some terms, best first; ties in the dictionary's order."""
        rows, cosines, letters = compared
        of_vectors, of_letters = self._shares(cosines, weight)
        scores = of_vectors * cosines + of_letters * letters
        of_concept: dict[str, list[int]] = {}
        for place in np.argsort(rows, kind="stable"):
            for concept in split_concepts(self.encoded.concepts[rows[place]]):
                of_concept.setdefault(concept, []).append(place)
        candidates = []
        for concept, places in of_concept.items():
            score = of_vectors * cosines[places].max() + of_letters * letters[places].max()
            places = sorted(places, key=lambda place: -scores[place])
            terms = [self.encoded.terms[rows[place]] for place in places]
            if self.compare:
                candidates.append(
                    _judged(string, Candidate(concept, terms[0], float(score)), terms)
                )
            else:
                candidates.append(Candidate(concept, terms[0], float(score)))
        return sorted(candidates, key=lambda one: -_rank_by(one))

    def _shares(self, cosines: np.ndarray, weight: float) -> tuple[float, float]:
        """The weights of cosines and of letters in a score; their sum is 1."""
        if self.kind != "both":
            return (1.0, 0.0) if self.kind == "vectors" else (0.0, 1.0)
        w = weight * max(0.0, 1 - float(cosines.max(initial=-1.0)))
        return 1 / (1 + w), w / (1 + w)


def _judged(string: str, candidate: Candidate, terms: Sequence[str]) -> Candidate:
    """A concept with what it contradicts or lacks of a mention.

    A concept agrees if one of its terms says all that the mention does; its best such term is told.
    Else it contradicts if one of them does. What only some terms lack is not lost. What the mention
    denies of the best term, it denies of the concept.

    Args:
      string: the mention.
      candidate: with its best term.
      terms: of the concept, those that were found, best first.
    """
    found = [contradiction(string, term) for term in terms]
    is_denied = "negation" in found[0].differs
    for term, one in zip(terms, found, strict=True):
        if not (one.differs or one.lost or is_denied):
            return candidate._replace(term=term)
    differs = next((one.differs for one in found if one.differs), ())
    lost = [kind for kind in found[0].lost if all(kind in one.lost for one in found)]
    return candidate._replace(differs=differs, lost=() if differs else tuple(lost))


def _rank_by(one: Candidate) -> float:
    """The similarity of a concept, less what it contradicts and lacks."""
    return one.similarity - _PASSED_OVER * bool(one.differs) - min(_LESS_SAID * len(one.lost), 0.1)


def _is_open(candidates: list[Candidate], k: int, more: bool) -> bool:
    """Whether more terms must be compared: concepts are missing, or more may tie with the first,
    or the first contradicts the mention and `more` may be looked at for that.
    """
    if len(candidates) < k or not candidates:
        return True
    similarities = [one.similarity for one in candidates]
    return max(similarities) - min(similarities) <= SAME or (more and bool(candidates[0].differs))
