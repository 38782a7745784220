"""The words of terms, as a tokenizer divides them, and how well a vocabulary covers them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from tokenizers import Tokenizer

from data_pipeline.dataset.vocabulary.word_piece import WordPieceVocabulary
from data_pipeline.dataset.word_pieces import splits_at_blanks
from data_pipeline.process import stopping


class OfLanguage(NamedTuple):
    """The words of one language.

    Attributes:
      terms: how many distinct terms it has.
      places, counts: int64 [w] each; word places[i] of all occurs counts[i] times in them.
    """

    terms: int
    places: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True)
class Words:
    """Distinct words after the tokenizer's normalizer and pre-tokenizer, and where they occur.

    Attributes:
      words: [W].
      languages: language -> its own.
    """

    words: list[str]
    languages: dict[str, OfLanguage]

    def counts(self) -> np.ndarray:
        """How often each word occurs in all, int64 [W]."""
        total = np.zeros(len(self.words), np.int64)
        for one in self.languages.values():
            total[one.places] += one.counts
        return total


def count_words(tokenizer: Tokenizer, terms: Mapping[str, Sequence[str]]) -> Words:
    """The words of terms by language.

    Raises:
      Stopped: a signal asked for it.
    """
    place_of: dict[str, int] = {}
    languages = {}
    at_blanks = splits_at_blanks(tokenizer)
    for language, own in terms.items():
        strings = pl.Series("string", own, dtype=pl.String)
        if at_blanks:  # a terminology says the same words again and again
            strings = strings.str.split(" ").explode()
        counts: Counter[int] = Counter()
        for number, (string, times) in enumerate(strings.value_counts(sort=True).iter_rows()):
            if number % 10_000 == 0:
                stopping.poll()
            for word in divided(tokenizer, string):
                counts[place_of.setdefault(word, len(place_of))] += times
        columns = (np.fromiter(one, np.int64, len(counts)) for one in (counts, counts.values()))
        languages[language] = OfLanguage(len(own), *columns)
    return Words(list(place_of), languages)


def divided(tokenizer: Tokenizer, string: str) -> list[str]:
    """The words of a string."""
    if tokenizer.normalizer is not None:
        string = tokenizer.normalizer.normalize_str(string)
    if tokenizer.pre_tokenizer is None:
        return [string] if string else []
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(string)]


class Coverage(NamedTuple):
    """How the words of terms become tokens, special tokens aside."""

    terms: int
    words: int
    tokens: int
    unknown: int

    def in_cells(self) -> list[str]:
        """Share of unknown tokens, pieces a word, tokens a term."""
        return [
            f"{self.unknown / max(self.tokens, 1):.2%}",
            f"{self.tokens / max(self.words, 1):.2f}",
            f"{self.tokens / max(self.terms, 1):.2f}",
        ]


def coverage(words: Words, vocabulary: WordPieceVocabulary) -> dict[str, Coverage]:
    """How a vocabulary covers the terms of each language."""
    ids, start = vocabulary.split(words.words)
    tokens = np.diff(start)
    unknown = is_unknown(vocabulary, ids, start)
    return {
        language: Coverage(
            own.terms,
            int(own.counts.sum()),
            int((tokens[own.places] * own.counts).sum()),
            int((unknown[own.places] * own.counts).sum()),
        )
        for language, own in words.languages.items()
    }


def total(of_languages: Iterable[Coverage]) -> Coverage:
    """That of all languages together."""
    return Coverage(*map(sum, zip(*of_languages, strict=True)))


def is_unknown(vocabulary: WordPieceVocabulary, ids: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Whether a word is the unknown token, bool [W]: it is so as a whole or not at all."""
    return ids[start[:-1]] == vocabulary.pieces[vocabulary.unknown]


def lengths(words: Words, vocabulary: WordPieceVocabulary) -> np.ndarray:
    """Pieces of each word, int64 [W]; an unknown one counts one more than it has characters."""
    ids, start = vocabulary.split(words.words)
    spelt = np.fromiter(map(len, words.words), np.int64, len(words.words)) + 1
    return np.where(is_unknown(vocabulary, ids, start), spelt, np.diff(start))


@dataclass(frozen=True)
class Changes:
    """What became of words when a vocabulary grew.

    Attributes:
      words: all of them.
      before, after: the vocabularies.
      saved: int64 [W], by how much each is shorter (`lengths`).
      counts: int64 [W], how often each occurs.
    """

    words: Words
    before: WordPieceVocabulary
    after: WordPieceVocabulary
    saved: np.ndarray
    counts: np.ndarray

    @property
    def shorter(self) -> int:
        return int((self.saved > 0).sum())

    @property
    def longer(self) -> int:
        return int((self.saved < 0).sum())

    def examples(self, language: str, number: int) -> list[tuple[str, list[str], list[str]]]:
        """(word, pieces before, pieces after) of those for which most is saved in a language."""
        own = self.words.languages[language]
        most = np.argsort(-self.saved[own.places] * own.counts, kind="stable")[:number]
        chosen = [self.words.words[place] for place in own.places[most] if self.saved[place] > 0]
        if not chosen:
            return []
        pieces = (one.pieces_of(chosen) for one in (self.before, self.after))
        return list(zip(chosen, *pieces, strict=True))


def changes(words: Words, before: WordPieceVocabulary, after: WordPieceVocabulary) -> Changes:
    """What became of words from one vocabulary to the next."""
    saved = lengths(words, before) - lengths(words, after)
    return Changes(words, before, after, saved, words.counts())
