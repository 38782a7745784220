"""Synonym benchmarks on names: coverage, retrieval, and the baselines BM25 and word movers."""

from __future__ import annotations

import logging
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from coder_jax.encoding.vector_files import EncoderProtocol, unit
from coder_jax.evaluation.benchmark import Benchmark, Found, Given, Options
from coder_jax.evaluation.normalization import NormalizationOptions
from coder_jax.evaluation.ranks import TIE_TOLERANCE, GoldCounts, ahead_and_tied
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.results import (
    ABOUT,
    Row,
    Table,
    missing_column,
    named,
    percent,
    ratios,
    resampled,
    summed,
)
from coder_jax.evaluation.vectors import ComparedStrings, Vectors, WordVectors, terms_only
from data_pipeline import process
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.tables import content_hash, split_concepts, two_columns
from data_pipeline.process import BadInput, did_you_mean
from data_pipeline.sources.text import words_of
from data_pipeline.terminology.tf_idf import CharacterTfIdf

if TYPE_CHECKING:
    from scipy import sparse


# -------------------------------------------------------------------------------------------------
# Coverage: the share of a name's synonyms that are among its k nearest names.
#
# Phan et al. 2019 (BNE), section 4.1: the names are all those of concepts that training has not
# seen. Each name is looked up among all others; coverage at k is the share of its other synonyms
# that are among the k nearest, so less than 1 where it has more than k; the score is the mean over
# all names. The paper shows curves (figure 4) and prints no numbers, so no row of it stands beside
# ours.

_FILE = "concepts.tsv"
_HELD_OUT = f"heldout/{_FILE}"
_COVERAGE_AT = (1, 5, 10, 20, 50)  # the k of coverage at k, unless --k says otherwise


@dataclass(frozen=True)
class Coverage(Benchmark):
    """Distinct names with their concepts; each concept has at least two names."""

    name: str
    path: str
    names: list[str]
    concepts: list[str]
    content_hash: str

    kind: ClassVar[str] = "coverage"
    formats: ClassVar[str] = (
        "coverage: a dataset built with --hold-out-concepts, or its heldout/concepts.tsv"
    )
    about: ClassVar[str] = """\
coverage  a dataset built with --hold-out-concepts, or its heldout/concepts.tsv. Scored by coverage
          at k: the share of a name's synonyms among the k names nearest to it, of all names of the
          concepts that training has not seen.\
"""
    options: ClassVar[type[Options]] = NormalizationOptions

    @classmethod
    def claims(cls, found: Found) -> bool:
        return found.holds(_HELD_OUT, _FILE) or (
            found.path.name == _FILE and found.header == ["term", "cui"]
        )

    @classmethod
    def brings_dictionary(cls, path: object) -> bool:
        return True

    @classmethod
    def read(cls, given: Given) -> Coverage:
        inside = (given.path / _HELD_OUT, given.path / _FILE)
        path = next((path for path in inside if path.is_file()), given.path)
        rows = two_columns(path, "term<TAB>CUI")
        names, concepts = [term for term, _ in rows], [cui for _, cui in rows]
        if len(set(names)) < len(names):
            again = next(name for place, name in enumerate(names) if name in names[:place])
            raise BadInput(
                f"{path}: found {again!r} twice; expected each name once: take one of its rows out"
            )
        found = cls(given.name, str(path), names, concepts, content_hash(rows))
        if alone := [cui for cui, names in found.sizes.items() if names < 2]:
            raise BadInput(
                f"{path}: found one name of {alone[0]}; expected two or more of each concept, as "
                "`python -m data_pipeline.build --hold-out-concepts` writes them: take it out"
            )
        return found

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The number of names of each concept."""
        sizes: dict[str, int] = {}
        for concept in self.concepts:
            sizes[concept] = sizes.get(concept, 0) + 1
        return sizes

    def keys(self, keyed_by: str) -> list[str]:
        terms_only(keyed_by, self.path)
        return self.names

    def score(self, vectors: Vectors, encoder: EncoderRecord, options: Options) -> EvaluationRecord:
        ks = sorted(set(options.of(NormalizationOptions).k or _COVERAGE_AT))
        number = {concept: place for place, concept in enumerate(self.sizes)}
        concepts = np.array([number[concept] for concept in self.concepts])
        found = _coverage_of_names(Cosine(vectors, self.names), self.names, concepts, ks)
        by_words = _coverage_of_names(WordJaccard(self.names), self.names, concepts, ks)
        columns = [f"coverage@{k}" for k in ks]
        # The names of a concept depend on each other, so whole concepts are drawn.
        drawn = resampled(summed(found, concepts), ratios, np.random.default_rng(options.seed))
        return EvaluationRecord(
            benchmark=self.name,
            kind=self.kind,
            path=self.path,
            content_hash=self.content_hash,
            scores=dict(zip(columns, found.mean(axis=0).tolist(), strict=True)),
            intervals=named(columns, drawn),
            counts={
                "names": len(self.names),
                "concepts": len(number),
                "missing": int((~vectors.known(self.names)).sum()),
            },
            scoring={
                "similarity": "cosine",
                "score": "share of a name's other synonyms among its k nearest; mean over names",
                "ties": "mean over random orders of names that are equally near",
                "missing": "names without a vector have the cosine 0 with all others",
                "intervals": f"{ABOUT}, whole concepts drawn anew",
            },
            encoder=encoder,
            folds={
                JACCARD: {"scores": dict(zip(columns, by_words.mean(axis=0).tolist(), strict=True))}
            },
        )

    @classmethod
    def table(cls, records: Sequence[EvaluationRecord], options: Options) -> Table:
        """Coverage at each k, in percent: of encoders and, for each benchmark, of word
        baselines.
        """
        columns = list(dict.fromkeys(name for record in records for name in record.scores))
        missing = missing_column(records)
        header = ["coverage", "pooling", "names", "concepts", *missing, *columns]
        rows = []
        for benchmark in dict.fromkeys(record.benchmark for record in records):
            own = [record for record in records if record.benchmark == benchmark]
            for record in own:
                counts = [record.counts[name] for name in ("names", "concepts", *missing)]
                cells = [benchmark, record.encoder.pooling, *(f"{one:,}" for one in counts)]
                cells += [
                    percent(record.scores[one], record.intervals.get(one))
                    if one in record.scores
                    else ""
                    for one in columns
                ]
                rows.append(Row(cells, record.encoder.model))
            for label, fold in own[0].folds.items():
                cells = [f"{benchmark}: {label}", *[""] * (len(header) - len(columns) - 1)]
                scores = fold["scores"]
                cells += [percent(scores[one]) if one in scores else "" for one in columns]
                rows.append(Row(cells, label))
        return header, rows


# -------------------------------------------------------------------------------------------------
# Measures of the similarity of names: by vectors, or by words without an encoder.
#
# A measure is made of a list of names; `similarities` compares others with some of these.

_MOST_SIMILARITIES = 1 << 23  # at a time: 64 MB
JACCARD, SAME_WORDS = "word Jaccard", "same words"


class Measure(Protocol):
    """The protocol of a similarity of names; larger is more similar."""

    def similarities(self, queries: Sequence[str], rows: np.ndarray) -> np.ndarray:
        """float [Q, n]: of each query with the names at these rows, int [n]."""


class Baseline(Measure, Protocol):
    """A measure that needs no encoder."""

    def nearest(self, query: str) -> np.ndarray:
        """int: the rows of the names nearest to a query, all of them in a tie."""


class Cosine:
    """The cosine of vectors; 0 for a name without a vector."""

    def __init__(self, vectors: Vectors, names: Sequence[str], rows: np.ndarray | None = None):
        """
        Args:
          vectors: have one of each query and name.
          names: [N].
          rows: of the names that will be compared; none: all.
        """
        self.vectors = vectors
        rows = np.arange(len(names)) if rows is None else rows
        self.place = np.full(len(names), -1)
        self.place[rows] = np.arange(len(rows))
        compared = [names[row] for row in rows.tolist()]
        self.unit_vectors = unit(vectors.encode(compared), "vectors of names")

    def similarities(self, queries: Sequence[str], rows: np.ndarray) -> np.ndarray:
        found = unit(self.vectors.encode(list(queries)), "vectors of mentions")
        return found @ self.unit_vectors[self.place[rows]].T


class WordJaccard:
    """The Jaccard index of two names' sets of words.

    Words are those of `sources.text`: without punctuation and stop words, in small letters.
    """

    def __init__(self, names: Sequence[str]):
        self.column: dict[str, int] = {}
        words = [set(words_of(name)) for name in names]
        for word in chain.from_iterable(words):
            self.column.setdefault(word, len(self.column))
        self.names = self._matrix(words)

    def _matrix(self, words: Sequence[set[str]]) -> sparse.csr_matrix:
        """1 where a name has a word, float32 [n, V]; words of no name are left out."""
        from scipy import sparse

        columns = [[self.column[word] for word in one if word in self.column] for one in words]
        starts = np.concatenate([[0], np.cumsum([len(one) for one in columns])])
        flat = np.fromiter(chain.from_iterable(columns), np.int64, starts[-1])
        shape = len(words), len(self.column)
        return sparse.csr_matrix((np.ones(len(flat), np.float32), flat, starts), shape=shape)

    def similarities(self, queries: Sequence[str], rows: np.ndarray) -> np.ndarray:
        words = [set(words_of(query)) for query in queries]
        names = self.names[rows]
        shared = (self._matrix(words) @ names.T).toarray().astype(np.float64)
        sizes = np.array([len(one) for one in words])[:, None] + np.diff(names.indptr)
        return shared / (sizes - shared)

    def nearest(self, query: str) -> np.ndarray:
        (similarity,) = self.similarities([query], np.arange(self.names.shape[0]))
        return np.flatnonzero(similarity >= similarity.max())


class SameWords:
    """1 for names with the same words, otherwise 0."""

    def __init__(self, shared: WordJaccard):
        self.shared = shared

    def similarities(self, queries: Sequence[str], rows: np.ndarray) -> np.ndarray:
        return np.floor(self.shared.similarities(queries, rows))

    def nearest(self, query: str) -> np.ndarray:
        (similarity,) = self.similarities([query], np.arange(self.shared.names.shape[0]))
        return np.flatnonzero(similarity == 1)


def _blocks(queries: Sequence[object], names: int) -> Iterator[slice]:
    """Parts of the queries, so many that their similarities to all names fit into memory."""
    size = max(1, _MOST_SIMILARITIES // max(1, names))
    for first in range(0, len(queries), size):
        process.poll()
        yield slice(first, first + size)


# -------------------------------------------------------------------------------------------------
# Coverage at k of each of many names, for any measure.


def _coverage_of_names(
    measure: Measure, names: Sequence[str], concepts: np.ndarray, ks: Sequence[int]
) -> np.ndarray:
    """The share of each name's other synonyms that are among its k nearest other names.

    Names that are as near as the k-th one are taken in random order, and the mean over all orders
    counts.

    Args:
      measure: of these names.
      names: [N], each once.
      concepts: int [N]; each concept has two names or more.
      ks: each 1 or more; there are never more than N - 1 others.

    Returns:
      float [N, len(ks)].
    """
    found = np.zeros((len(names), len(ks)))
    everything = np.arange(len(names))
    others = np.bincount(concepts)[concepts] - 1
    for part in _blocks(names, len(names)):
        similarity = measure.similarities(names[part], everything)
        here = everything[part]
        similarity[np.arange(len(here)), here] = -np.inf
        is_synonym = concepts[here][:, None] == concepts
        is_synonym[np.arange(len(here)), here] = False
        for column, k in enumerate(ks):
            places = min(k, len(names) - 1)
            last = np.partition(similarity, -places, axis=1)[:, -places][:, None]
            ahead, tied = ahead_and_tied(similarity, last)
            free = (places - ahead.sum(axis=1)) / tied.sum(axis=1)
            synonyms = (ahead & is_synonym).sum(axis=1) + free * (tied & is_synonym).sum(axis=1)
            found[here, column] = synonyms / others[here]
    return found


# -------------------------------------------------------------------------------------------------
# Synonym retrieval: candidates by BM25, ranked by any measure, scored by average precision.
#
# Phan et al. 2019 (BNE), section 4.2: BM25 compares a mention with all names; a concept is as good
# as its best name; all names of the 20 best concepts are candidates, and those of the mention's
# concept are what is to be found.

CANDIDATE_CONCEPTS = 20
# The paper does not give BM25's parameters: these are the usual ones, in Lucene's form.
K1, B, FORM = 1.2, 0.75, "lucene"


def _bm25_of(names: Sequence[str]) -> Any:
    """The index of BM25 over the words of names."""
    import bm25s  # not at the top: `--help` stays quick

    logging.getLogger(bm25s.__name__).setLevel(logging.WARNING)
    search = bm25s.BM25(k1=K1, b=B, method=FORM)
    search.index([words_of(name) for name in names], show_progress=False)
    return search


class NamesByConcept:
    """The names of a dictionary in the order of their concepts.

    Attributes:
      names: str [P], a name once for each concept that has it.
      concepts: int [P], rising.
      starts: int [C], where the names of each concept begin.
      number: of each concept.
      strings: int [P], equal for equal names.
    """

    def __init__(self, dictionary: Dictionary):
        self.number: dict[str, int] = {}
        names, concepts = [], []
        for _, term, concept in dictionary.pairs():
            names.append(term)
            concepts.append(self.number.setdefault(concept, len(self.number)))
        order = np.argsort(concepts, kind="stable")
        self.names = [names[row] for row in order]
        self.concepts = np.asarray(concepts)[order]
        self.starts = np.searchsorted(self.concepts, np.arange(len(self.number)))
        distinct: dict[str, int] = {}
        self.strings = np.array([distinct.setdefault(one, len(distinct)) for one in self.names])

    def numbers(self, joined: str) -> list[int]:
        """The numbers of the concepts joined by "|", as far as they are known."""
        return [self.number[one] for one in split_concepts(joined) if one in self.number]

    def rows_of(self, concepts: Sequence[int] | np.ndarray) -> np.ndarray:
        """int: the rows of the names of some concepts."""
        ends = np.append(self.starts[1:], len(self.names))
        parts = [np.arange(self.starts[one], ends[one]) for one in concepts]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def best_of_concepts(self, similarity: np.ndarray) -> np.ndarray:
        """The largest of each concept's similarities, [..., C], from those of all names [...,
        P].
        """
        return np.maximum.reduceat(similarity, self.starts, axis=-1)

    @cached_property
    def _bm25(self) -> Any:
        return _bm25_of(self.names)

    def candidates(self, mention: str) -> np.ndarray:
        """int: up to CANDIDATE_CONCEPTS concepts that share a word with a mention, best first; ties
        go to the dictionary's first.
        """
        process.poll()
        words = [word for word in words_of(mention) if word in self._bm25.vocab_dict]
        if not words:
            return np.zeros(0, np.int64)
        scores = self.best_of_concepts(self._bm25.get_scores(words))
        best = np.argsort(-scores, kind="stable")[:CANDIDATE_CONCEPTS]
        return best[scores[best] > 0]


# -------------------------------------------------------------------------------------------------
# Comparisons of strings in the place of an encoder, as rows beside encoders.


class _SameString:
    """1 for a name that is equal but for case, otherwise 0."""

    def __init__(self, names: Sequence[str]):
        self.names = np.array([name.casefold() for name in names], object)

    def similarities(self, queries: Sequence[str], rows: np.ndarray) -> np.ndarray:
        names = self.names[rows]
        return np.array([names == query.casefold() for query in queries], np.float64)


class _FewestEdits:
    """1 less the edits per character of the longer string (Levenshtein), whatever the case."""

    def __init__(self, names: Sequence[str]):
        self.names = [name.casefold() for name in names]

    def similarities(self, queries: Sequence[str], rows: np.ndarray) -> np.ndarray:
        from rapidfuzz.distance import Levenshtein
        from rapidfuzz.process import cdist

        asked = [query.casefold() for query in queries]
        names = [self.names[row] for row in rows.tolist()]
        # In doubles: ties are told from neighbours by the last digits.
        return cdist(asked, names, scorer=Levenshtein.normalized_similarity, dtype=np.float64)


class _Trigrams:
    """The cosine of TF-IDF vectors of three-letter pieces, as `normalize` compares letters."""

    def __init__(self, names: Sequence[str]):
        from coder_jax.mapping.candidates import TRIGRAMS  # which imports jax

        self.letters = CharacterTfIdf(names, **TRIGRAMS)

    def similarities(self, queries: Sequence[str], rows: np.ndarray) -> np.ndarray:
        return np.concatenate([some[:, rows] for some in self.letters.similarity(queries)])


class _Bm25:
    """BM25 of names as documents, not limited to 1."""

    def __init__(self, names: Sequence[str]):
        self.index = _bm25_of(names)

    def similarities(self, queries: Sequence[str], rows: np.ndarray) -> np.ndarray:
        found = np.zeros((len(queries), len(rows)))
        for place, query in enumerate(queries):
            if words := [word for word in words_of(query) if word in self.index.vocab_dict]:
                found[place] = self.index.get_scores(words)[rows]
        return found


STRINGS: dict[str, tuple[str, Callable[[Sequence[str]], Measure]]] = {
    "exact match": ("equal but for case", _SameString),
    "edit distance": ("1 - edits / characters of the longer string", _FewestEdits),
    "tf-idf": ("TF-IDF of three-letter pieces", _Trigrams),
    "bm25": (f"BM25 of words ({FORM}, k1 {K1}, b {B})", _Bm25),
}


class NameStrings(ComparedStrings):
    """One of STRINGS in the place of vectors.

    A concept is as similar as its nearest name. One that shares nothing with a mention is no
    answer: a gold concept of similarity 0 has the last place.
    """

    def __init__(self, kind: str):
        if kind not in STRINGS:
            raise BadInput(
                f"found {kind!r}{did_you_mean(kind, STRINGS)}; expected {', '.join(STRINGS)}"
            )
        self.kind = kind

    @property
    def protocol(self) -> EncoderProtocol:
        """The comparison as described in records."""
        return EncoderProtocol(
            model=self.kind,
            weights_hash=None,
            tokenizer_hash="",
            pooling=STRINGS[self.kind][0],
            max_length=0,
            attend_padding=False,
            lowercases=True,
            cleaning="none",
            dtype="float64",
        )

    def measure(self, names: Sequence[str]) -> Measure:
        """The comparison with these names."""
        return STRINGS[self.kind][1](names)

    def counts(
        self, mentions: Sequence[str], gold: Sequence[str], dictionary: Dictionary
    ) -> GoldCounts:
        names = NamesByConcept(dictionary)
        measure, everything = self.measure(names.names), np.arange(len(names.names))
        asked = {pair: None for pair in zip(mentions, gold, strict=True)}
        pairs, found = list(asked), np.zeros((4, len(asked)), np.int64)
        for part in _blocks(pairs, len(names.names)):
            similarity = measure.similarities([mention for mention, _ in pairs[part]], everything)
            best = names.best_of_concepts(similarity)
            for place, row in enumerate(best, start=part.start):
                numbers = list(dict.fromkeys(names.numbers(pairs[place][1])))
                found[:, place] = _place_of_gold(row, numbers)
        place_of = {pair: place for place, pair in enumerate(pairs)}
        rows = [place_of[pair] for pair in zip(mentions, gold, strict=True)]
        ahead, tied, gold_tied, reachable = found[:, rows]
        return GoldCounts(ahead, tied, gold_tied, reachable.astype(bool))

    def of_pairs(self, first: Sequence[str], second: Sequence[str]) -> np.ndarray:
        if self.kind == "bm25":
            raise BadInput("found rated pairs, of which BM25 has no similarity; leave it out")
        strings = list(dict.fromkeys([*first, *second]))
        row_of = {string: row for row, string in enumerate(strings)}
        measure = self.measure(strings)
        found = [
            measure.similarities([a], np.array([row_of[b]]))[0, 0]
            for a, b in zip(first, second, strict=True)
        ]
        return np.clip(found, 0, 1)  # a sum of floats may be a little more


def _place_of_gold(similarity: np.ndarray, gold: Sequence[int]) -> tuple[int, int, int, bool]:
    """A row of `GoldCounts`.

    Args:
      similarity: float [C], of a mention with each concept.
      gold: the numbers of its gold concepts that are in the dictionary.
    """
    if not gold:
        return 0, 0, 1, False
    of_gold = similarity[list(gold)]
    if of_gold.max() <= 0:
        return len(similarity) - len(gold), 0, 1, True
    ahead, tied = ahead_and_tied(similarity, of_gold.max())
    gold_tied = int(ahead_and_tied(of_gold, of_gold.max())[1].sum())
    return int(ahead.sum()), int(tied.sum()) - gold_tied, gold_tied, True


def average_precision(similarity: np.ndarray, relevant: np.ndarray, expected: int) -> float:
    """Average precision, the mean over all orders of equally near candidates.

    Args:
      similarity: float [n], of the candidates.
      relevant: bool [n].
      expected: how many are relevant, whether or not they are candidates; 1 or more.

    References:
      McSherry and Najork, Computing information retrieval performance measures efficiently in the
      presence of tied scores, 2008, section 2.5.
    """
    order = np.argsort(-similarity, kind="stable")
    ranked, hits = similarity[order], relevant[order].astype(np.int64)
    ends = np.append(np.flatnonzero(ranked[:-1] - ranked[1:] > TIE_TOLERANCE) + 1, len(ranked))
    starts = np.append(0, ends[:-1])
    found = np.append(0, np.cumsum(hits))
    summed = 0.0
    for start, end in zip(starts, ends, strict=True):
        size, within = end - start, found[end] - found[start]
        if within:
            place = np.arange(size)
            before = place * (within - 1) / max(size - 1, 1)  # of the same group, on the mean
            precision = (found[start] + before + 1) / (start + place + 1)
            summed += within / size * precision.sum()
    return float(summed / expected)


# -------------------------------------------------------------------------------------------------
# Word Mover's Distance: what it costs to move the words of one name onto those of another.
#
# Kusner et al., From word embeddings to document distances, 2015: each name is a distribution over
# its words that have a vector (each as often as it occurs); moving a word costs the Euclidean
# distance of the vectors, which are of unit length here, as gensim's `wmdistance` has it since 4.0.

WMD = "Word Mover's Distance"
_FARTHEST = 2.0  # of unit vectors; of names without a word that has a vector
_TIE = 1e-6


class WordMovers:
    """The negative Word Mover's Distance, as a `Baseline`."""

    def __init__(self, words: WordVectors, names: Sequence[str]):
        _load_pot()
        self.words = words
        self.vectors = unit(words.table.vectors, "vectors of words", np.float64)
        bags = [self.bag(name) for name in names]
        self.sizes = np.array([len(words) for words, _ in bags])
        self.known = np.flatnonzero(self.sizes)
        # Words and weights of all names that have any, one name after the other.
        self.ends = np.cumsum(self.sizes)
        self.flat = np.concatenate([words for words, _ in bags])
        self.weights = np.concatenate([weights for _, weights in bags])
        self.distinct, self.place = np.unique(self.flat, return_inverse=True)

    def bag(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """int [w] and float [w]: the rows of a name's words, and the weight of each."""
        counts = Counter(self.words.rows(name))
        shares = np.array(list(counts.values()), np.float64)
        return np.array(list(counts), np.int64), shares / max(1, shares.sum())

    def of_row(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        part = slice(self.ends[row] - self.sizes[row], self.ends[row])
        return self.flat[part], self.weights[part]

    def similarities(self, queries: Sequence[str], rows: np.ndarray) -> np.ndarray:
        bags = [self.bag(query) for query in queries]
        return -np.array([[self.distance(bag, self.of_row(row)) for row in rows] for bag in bags])

    def distance(
        self, first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray]
    ) -> float:
        """The distance of two bags; FARTHEST if one is empty."""
        import ot  # not at the top: `--help` stays quick, and see `_load_pot`

        if not (len(first[0]) and len(second[0])):
            return _FARTHEST
        costs = self.costs(first[0], second[0])
        if 1 in costs.shape:  # all goes one way
            return float((first[1][:, None] * second[1] * costs).sum())
        return float(ot.emd2(first[1], second[1], costs))

    def costs(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The distances of words, float [a, b]."""
        cosines = self.vectors[first] @ self.vectors[second].T
        return np.sqrt(np.maximum(2 - 2 * cosines, 0))

    def nearest(self, query: str) -> np.ndarray:
        """int: the rows of the names nearest to a query, all of them in a tie.

        Names are looked at in the order of a lower bound of their distance (section 4 of the paper:
        each word to the nearest one of the other name), until none can be nearer.
        """
        process.poll()
        bag = self.bag(query)
        if not len(bag[0]) or not len(self.known):
            return np.arange(len(self.sizes))
        bounds = self._lower_bounds(bag)
        order = np.argsort(bounds, kind="stable")
        best, found = np.inf, []
        for place in order:
            if bounds[place] > best + _TIE:
                break
            row = int(self.known[place])
            distance = self.distance(bag, self.of_row(row))
            best = min(best, distance)
            found.append((distance, row))
        return np.array([row for distance, row in found if distance <= best + _TIE])

    def _lower_bounds(self, bag: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """A lower bound of the distance to each name of `known`, float [n]."""
        costs = self.costs(bag[0], self.distinct)[:, self.place]  # [w, words of all names]
        starts = (self.ends - self.sizes)[self.known]
        there = bag[1] @ np.minimum.reduceat(costs, starts, axis=1)
        back = np.add.reduceat(costs.min(axis=0) * self.weights, starts)
        return np.maximum(there, back)


def _load_pot() -> None:
    """Loads POT without its optional backends, as it only gets arrays.

    That is each of TensorFlow, PyTorch, jax that is installed. Its files have escapes that Python
    warns of when it compiles them, which is the first import of an installation.
    """
    for name in ("PYTORCH", "JAX", "CUPY", "TENSORFLOW"):
        os.environ.setdefault(f"POT_BACKEND_DISABLE_{name}", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ot  # noqa: F401
