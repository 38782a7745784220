"""New word pieces for a tokenizer, learnt from the words of terms."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.trainers import WordPieceTrainer

from data_pipeline import process
from data_pipeline.dataset.dictionary import read_dictionary
from data_pipeline.dataset.mentions import MANIFEST, open_mentions
from data_pipeline.dataset.tokenizer import splits_at_blanks, tokenize_uncut
from data_pipeline.files.identity import MENTIONS, is_of_kind
from data_pipeline.files.tables import DOUBLE_PIPE, is_workbook, read_text
from data_pipeline.process import BadInput
from data_pipeline.sources.term_tables import UNDETERMINED
from data_pipeline.terminology.cleaning import clean

# -------------------------------------------------------------------------------------------------
# The vocabulary of a WordPiece tokenizer, to which pieces can be appended.


@dataclass(frozen=True)
class WordPieceVocabulary:
    """Pieces of words and their ids (Devlin et al. 2019, after Wu et al. 2016, section 4.1).

    A word becomes its longest piece from the left, then the longest of what is left, and so on;
    where none fits, all of the word is the unknown token.

    Attributes:
      pieces: piece -> id.
      unknown: the unknown token.
      prefix: what pieces begin with that go on with a word, "##".
      longest_word: characters; a longer word is unknown.
      size: one more than the largest id of the tokenizer, tokens added to it included.
    """

    pieces: dict[str, int]
    unknown: str
    prefix: str
    longest_word: int
    size: int

    @classmethod
    def of(cls, tokenizer: Tokenizer, source: str) -> WordPieceVocabulary:
        """The vocabulary of a tokenizer; `source` names it in messages.

        Raises:
          BadInput: it has another kind of vocabulary.
        """
        model = json.loads(tokenizer.to_str())["model"]
        if model["type"] != "WordPiece":
            kind = {"Unigram": "SentencePiece (Unigram), as of XLM-R"}.get(
                model["type"], f"{model['type']}, as of RoBERTa and ModernBERT"
            )
            raise BadInput(
                f"{source}: the vocabulary is of the kind {kind}; expected WordPiece, as of BERT. "
                "It spells any string by pieces or bytes that it has: train the encoder as it is "
                "(--only-used makes the table of XLM-R small), or give a BERT"
            )
        return cls(
            model["vocab"],
            model["unk_token"],
            model["continuing_subword_prefix"],
            model["max_input_chars_per_word"],
            max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1,
        )

    def with_pieces(self, new: Sequence[str]) -> WordPieceVocabulary:
        """The same vocabulary with new pieces appended; existing ids stay."""
        ids = range(self.size, self.size + len(new))
        return replace(
            self,
            pieces=self.pieces | dict(zip(new, ids, strict=True)),
            size=self.size + len(new),
        )

    def split(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of the words of `Words`: (int32 [sum], start int64 [n + 1])."""
        model = WordPiece(
            vocab=self.pieces,
            unk_token=self.unknown,
            max_input_chars_per_word=self.longest_word,
            continuing_subword_prefix=self.prefix,
        )
        return tokenize_uncut(Tokenizer(model), words, special=False)

    def pieces_of(self, words: Sequence[str]) -> list[list[str]]:
        """The pieces of each word."""
        names = {number: piece for piece, number in self.pieces.items()}
        ids, start = self.split(words)
        return [[names[one] for one in part.tolist()] for part in np.split(ids, start[1:-1])]

    def put_into(self, tokenizer: Tokenizer) -> Tokenizer:
        """The tokenizer with these pieces as its model's vocabulary; the rest is unchanged."""
        content = json.loads(tokenizer.to_str())
        # An added token (behind the model's pieces) keeps its id only if the model knows it, too.
        added = {token["content"]: token["id"] for token in content["added_tokens"]}
        content["model"]["vocab"] = added | self.pieces
        return Tokenizer.from_str(json.dumps(content))


# -------------------------------------------------------------------------------------------------
# A vocabulary without the pieces that no term uses.

_OF_WORDS = ("##", "\u2581")  # beside the characters of a piece, by WordPiece and SentencePiece


def used_pieces(tokenizer: Tokenizer, terms: Sequence[str], source: str) -> np.ndarray:
    """Ids of the pieces that terms need, and of those that keep other strings readable.

    These are special and added tokens, and pieces of one character: no character becomes unknown
    that was not. SentencePiece's piece of lowest score stays, too, as the score of unknown
    characters follows from it.

    Args:
      tokenizer: from `load_tokenizer`.
      terms: as they are tokenized.
      source: the tokenizer's name, for messages.

    Returns:
      int64 [n], ascending.

    Raises:
      BadInput: pieces of bytes, made by merges.
    """
    content = json.loads(tokenizer.to_str())
    kind = content["model"]["type"]
    if kind not in ("WordPiece", "Unigram"):
        raise BadInput(
            f"{source}: its vocabulary is of the kind {kind}, as of RoBERTa and ModernBERT, where "
            "a piece is made of other pieces; expected WordPiece (BERT) or SentencePiece (XLM-R). "
            "Train the encoder as it is"
        )
    ids, _ = tokenize_uncut(tokenizer, terms)
    kept = {*np.unique(ids).tolist(), *tokenizer.encode("").ids}
    kept |= {token["id"] for token in content["added_tokens"]}
    for piece, number in tokenizer.get_vocab(with_added_tokens=False).items():
        for mark in _OF_WORDS:
            piece = piece.removeprefix(mark)
        if len(piece) <= 1:
            kept.add(number)
    if kind == "Unigram":
        scores = [score for _, score in content["model"]["vocab"]]
        kept |= {scores.index(min(scores)), content["model"]["unk_id"]}
    else:
        kept.add(content["model"]["vocab"][content["model"]["unk_token"]])
    return np.array(sorted(kept), np.int64)


def with_pieces_alone(tokenizer: Tokenizer, kept: np.ndarray) -> Tokenizer:
    """The tokenizer with some of its pieces; what it does beside is unchanged.

    A term whose pieces are all kept has the same ones: they are the longest of WordPiece, and the
    likeliest of SentencePiece, among fewer, too.

    Args:
      tokenizer: WordPiece or Unigram.
      kept: int64 [n], ascending, from `used_pieces`; kept[i] becomes i.
    """
    content = json.loads(tokenizer.to_str())
    new = {old: number for number, old in enumerate(kept.tolist())}
    model = content["model"]
    if model["type"] == "Unigram":
        model["vocab"] = [entry for old, entry in enumerate(model["vocab"]) if old in new]
        model["unk_id"] = new[model["unk_id"]]
    else:
        model["vocab"] = {piece: new[old] for piece, old in model["vocab"].items() if old in new}
    for token in content["added_tokens"]:
        token["id"] = new[token["id"]]
    after = content["post_processor"] or {}
    for token in (after.get("special_tokens") or {}).values():  # of a template
        token["ids"] = [new[old] for old in token["ids"]]
    for role in ("sep", "cls"):  # of BERT's and RoBERTa's own
        if role in after:
            after[role][1] = new[after[role][1]]
    if content.get("padding"):
        content["padding"]["pad_id"] = new[content["padding"]["pad_id"]]
    return Tokenizer.from_str(json.dumps(content))


# -------------------------------------------------------------------------------------------------
# The words of terms, and how well a vocabulary covers them.


class OfLanguage(NamedTuple):
    """The words of the terms of one language.

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
        """int64 [W]: how often each word occurs in all languages."""
        total = np.zeros(len(self.words), np.int64)
        for one in self.languages.values():
            total[one.places] += one.counts
        return total


def count_words(tokenizer: Tokenizer, terms: Mapping[str, Sequence[str]]) -> Words:
    """The words of terms, by language.

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
                process.poll()
            for word in _divided(tokenizer, string):
                counts[place_of.setdefault(word, len(place_of))] += times
        columns = (np.fromiter(one, np.int64, len(counts)) for one in (counts, counts.values()))
        languages[language] = OfLanguage(len(own), *columns)
    return Words(list(place_of), languages)


def _divided(tokenizer: Tokenizer, string: str) -> list[str]:
    """The words of a string."""
    if tokenizer.normalizer is not None:
        string = tokenizer.normalizer.normalize_str(string)
    if tokenizer.pre_tokenizer is None:
        return [string] if string else []
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(string)]


class TokenCoverage(NamedTuple):
    """Counts of how the words of terms are tokenized, without special tokens."""

    terms: int
    words: int
    tokens: int
    unknown: int

    def in_cells(self) -> list[str]:
        """Share of unknown tokens, pieces per word, tokens per term."""
        return [
            f"{self.unknown / max(self.tokens, 1):.2%}",
            f"{self.tokens / max(self.words, 1):.2f}",
            f"{self.tokens / max(self.terms, 1):.2f}",
        ]


def coverage(words: Words, vocabulary: WordPieceVocabulary) -> dict[str, TokenCoverage]:
    """How a vocabulary covers the terms of each language."""
    ids, start = vocabulary.split(words.words)
    tokens = np.diff(start)
    unknown = _is_unknown(vocabulary, ids, start)
    return {
        language: TokenCoverage(
            own.terms,
            int(own.counts.sum()),
            int((tokens[own.places] * own.counts).sum()),
            int((unknown[own.places] * own.counts).sum()),
        )
        for language, own in words.languages.items()
    }


def total(of_languages: Iterable[TokenCoverage]) -> TokenCoverage:
    """The sum over languages."""
    return TokenCoverage(*map(sum, zip(*of_languages, strict=True)))


def _is_unknown(vocabulary: WordPieceVocabulary, ids: np.ndarray, start: np.ndarray) -> np.ndarray:
    """bool [W]: whether a word becomes the unknown token (a word does so as a whole or not at
    all).
    """
    return ids[start[:-1]] == vocabulary.pieces[vocabulary.unknown]


def _lengths(words: Words, vocabulary: WordPieceVocabulary) -> np.ndarray:
    """int64 [W]: the pieces of each word; an unknown word counts its characters plus one."""
    ids, start = vocabulary.split(words.words)
    spelt = np.fromiter(map(len, words.words), np.int64, len(words.words)) + 1
    return np.where(_is_unknown(vocabulary, ids, start), spelt, np.diff(start))


@dataclass(frozen=True)
class Changes:
    """How the pieces of words change when a vocabulary grows.

    Attributes:
      words: all of them.
      before, after: the vocabularies.
      saved: int64 [W], by how much each is shorter (`_lengths`).
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
        """(word, pieces before, pieces after) of the words that save most pieces in a language."""
        own = self.words.languages[language]
        most = np.argsort(-self.saved[own.places] * own.counts, kind="stable")[:number]
        chosen = [self.words.words[place] for place in own.places[most] if self.saved[place] > 0]
        if not chosen:
            return []
        pieces = (one.pieces_of(chosen) for one in (self.before, self.after))
        return list(zip(chosen, *pieces, strict=True))


def changes(words: Words, before: WordPieceVocabulary, after: WordPieceVocabulary) -> Changes:
    """How the pieces of words change from one vocabulary to the next."""
    saved = _lengths(words, before) - _lengths(words, after)
    return Changes(words, before, after, saved, words.counts())


# -------------------------------------------------------------------------------------------------
# The choice of new pieces: missing characters, and pieces that make words shorter.


def new_pieces(
    tokenizer: Tokenizer,
    vocabulary: WordPieceVocabulary,
    terms: Sequence[str],
    words: Words,
    number: int | None,
    min_frequency: int,
) -> list[str]:
    """The pieces to add to a vocabulary, in the order of their ids.

    Args:
      tokenizer: the encoder's.
      vocabulary: its pieces.
      terms: to learn from.
      words: of these terms.
      number: how many at most; None: the characters that are missing, and nothing else.
      min_frequency: how often a character, or a pair of pieces that become one, must occur.

    Raises:
      Stopped: a signal asked for it.
    """
    characters = _missing_characters(words, vocabulary, min_frequency)
    if number is None or len(characters) >= number:
        return characters[:number]
    wanted = number - len(characters)
    learnt = _learnt_pieces(tokenizer, vocabulary, terms, words, wanted, min_frequency)
    return _chosen_pieces(vocabulary, words, characters, learnt, wanted)


def _missing_characters(
    words: Words, vocabulary: WordPieceVocabulary, min_frequency: int
) -> list[str]:
    """The characters of words that a vocabulary lacks, most frequent first.

    One that occurs in a word of several characters is given in both forms, alone and with the
    prefix of what goes on with a word: a letter that began the words here may be inside others.
    Chinese characters, of each of which BERT makes a word, are given alone.

    Args:
      words: of the terms.
      vocabulary: what there is.
      min_frequency: how often a character must occur.
    """
    frequency: Counter[str] = Counter()
    inside: set[str] = set()
    for word, count in zip(words.words, words.counts().tolist(), strict=True):
        for character in word:
            frequency[character] += count
        if len(word) > 1:
            inside.update(word)
    by_frequency = sorted(frequency, key=lambda character: (-frequency[character], character))
    return [
        form
        for character in by_frequency
        if frequency[character] >= min_frequency
        for form in (character, vocabulary.prefix + character)[: 1 + (character in inside)]
        if form not in vocabulary.pieces
    ]


def _learnt_pieces(
    tokenizer: Tokenizer,
    vocabulary: WordPieceVocabulary,
    terms: Sequence[str],
    words: Words,
    number: int,
    min_frequency: int,
) -> list[str]:
    """Multi-character pieces that a vocabulary lacks, in the order in which they were learnt.

    They are the merges that the trainer of the library tokenizers makes of the terms after the
    tokenizer's own normalizer and pre-tokenizer: the most frequent pair first.

    Args:
      tokenizer: the encoder's.
      vocabulary: its pieces.
      terms: to learn from.
      words: of these terms.
      number: how many are wanted; at most twice as many come, fewer where terms have no more.
      min_frequency: how often a pair of pieces must occur to become one.
    """
    process.poll()
    trained = Tokenizer(WordPiece(unk_token=vocabulary.unknown))
    if tokenizer.normalizer is not None:
        trained.normalizer = tokenizer.normalizer
    if tokenizer.pre_tokenizer is not None:
        trained.pre_tokenizer = tokenizer.pre_tokenizer
    characters = sorted({character for word in words.words for character in word})
    # The trainer numbers the characters inside words in the order of a hash map, which differs from
    # call to call, and breaks ties by these numbers. Special tokens keep the given order.
    inside = [vocabulary.prefix + character for character in characters]
    trainer = WordPieceTrainer(
        vocab_size=2 * (len(characters) + number) + len(vocabulary.pieces),
        min_frequency=min_frequency,
        limit_alphabet=len(characters),
        continuing_subword_prefix=vocabulary.prefix,
        special_tokens=inside,
        show_progress=False,
    )
    trained.train_from_iterator(terms, trainer)
    process.poll()
    single = {*characters, *inside}
    merges = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    new = [p for p, _ in merges if p not in single and p not in vocabulary.pieces]
    return new[: 2 * number]


def _chosen_pieces(
    vocabulary: WordPieceVocabulary,
    words: Words,
    characters: list[str],
    learnt: list[str],
    number: int,
) -> list[str]:
    """The missing characters, followed by the first `number` learnt pieces that shorten words.

    A word takes its longest piece from the left, so that a new piece can leave a rest that takes
    more pieces than before. A learnt piece is kept if the words that use it become shorter by it,
    all in all; the next takes the place of one that is not.
    """
    counts = words.counts()
    before = _lengths(words, vocabulary)
    while True:
        process.poll()
        chosen = [*characters, *learnt[:number]]
        extended = vocabulary.with_pieces(chosen)
        saved = (before - _lengths(words, extended)) * counts
        ids, start = extended.split(words.words)
        is_new = ids >= vocabulary.size
        word_of_id = np.repeat(np.arange(len(words.words)), np.diff(start))
        gain = np.zeros(len(chosen), np.int64)
        np.add.at(gain, ids[is_new] - vocabulary.size, saved[word_of_id[is_new]])
        useless = {piece for piece, one in zip(chosen, gain, strict=True) if one <= 0}
        if useless.isdisjoint(learnt):
            return chosen
        learnt = [piece for piece in learnt if piece not in useless]


# -------------------------------------------------------------------------------------------------
# Distinct terms by language, read from files and folders: what word pieces are learnt from.

_TABLES = (".csv", ".tsv", ".gz")
_MOST_OF_A_TERM = 10_000  # characters; more is a text and no term


def read_terms(
    paths: Sequence[Path], languages: Sequence[str] = (), cleaning: str = "none"
) -> dict[str, list[str]]:
    """The distinct terms of files and folders, by language, cleaned as the encoder's input is.

    Args:
      paths: text files of a term in each line, whatever `read_dictionary` reads, and folders of
        mentions (their names and the mentions of their training split).
      languages: the terms in these alone.
      cleaning: rules that terms go through. Those of a dataset are cleaned already, and those of a
        folder of mentions have their own rules.

    Returns:
      language, UNDETERMINED where nothing tells -> its terms, in the order of their first place.

    Raises:
      BadInput: nothing that can be read, a language that is not there, or no term.
    """
    found: dict[str, dict[str, None]] = {}
    for path in paths:
        for language, terms in _terms_of(path, languages, cleaning).items():
            found.setdefault(language, {}).update(dict.fromkeys(filter(None, terms)))
    if not any(found.values()):
        raise BadInput(
            f"{', '.join(map(str, paths))}: found no term; expected a term in each line, a "
            "table of terms, a dataset or a folder of mentions"
        )
    longest = max((term for terms in found.values() for term in terms), key=len)
    if len(longest) > _MOST_OF_A_TERM:
        raise BadInput(
            f"found a term of {len(longest):,} characters ({longest[:40]!r} ...); expected "
            f"at most {_MOST_OF_A_TERM:,}: give a term in each line"
        )
    return {language: list(terms) for language, terms in sorted(found.items()) if terms}


def _terms_of(path: Path, languages: Sequence[str], cleaning: str) -> dict[str, list[str]]:
    """The cleaned terms of one file or folder, by language."""
    is_mentions = path.is_dir() and is_of_kind(path / MANIFEST, MENTIONS)
    if not (is_mentions or _is_list(path)):
        dictionary = read_dictionary(path, languages)
        is_clean = dictionary.dataset is not None
        terms = dictionary.terms if is_clean else _cleaned(dictionary.terms, cleaning)
        if dictionary.languages is None:
            return {UNDETERMINED: terms}
        by_language: dict[str, list[str]] = {}
        for term, language in zip(terms, dictionary.languages, strict=True):
            by_language.setdefault(language, []).append(term)
        return by_language
    if languages:
        raise BadInput(
            f"{path}: found the languages {', '.join(languages)} asked for; expected a source that "
            "names languages: a dataset, MRCONSO.RRF or a table with the column language. Give "
            "one, or no --languages"
        )
    if is_mentions:
        folder = open_mentions(path)
        terms = [*folder.names.strings, *folder.splits["train"].mentions.strings]
        return {UNDETERMINED: _cleaned(terms, folder.manifest.cleaning)}
    lines = [line.strip() for line in read_text(path).split("\n")]
    return {UNDETERMINED: _cleaned(lines, cleaning)}


def _is_list(path: Path) -> bool:
    """Whether a file has a term in each line and nothing else, judged by its name and first
    line.
    """
    if path.is_dir() or is_workbook(path) or path.name.lower().endswith((*_TABLES, ".rrf")):
        return False
    first = next((line for line in read_text(path).split("\n") if line.strip()), "")
    return "\t" not in first and DOUBLE_PIPE not in first


def _cleaned(terms: Sequence[str], rules: str) -> list[str]:
    return clean(pl.Series(terms, dtype=pl.String), rules).to_list()
