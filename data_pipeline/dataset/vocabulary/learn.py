"""New word pieces for a vocabulary: characters that it lacks, pieces that make words shorter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.trainers import WordPieceTrainer

from data_pipeline.dataset.vocabulary.word_piece import WordPieceVocabulary
from data_pipeline.dataset.vocabulary.words import Words, lengths
from data_pipeline.process import stopping


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
    characters = missing_characters(words, vocabulary, min_frequency)
    if number is None or len(characters) >= number:
        return characters[:number]
    wanted = number - len(characters)
    learnt = learnt_pieces(tokenizer, vocabulary, terms, words, wanted, min_frequency)
    return chosen_pieces(vocabulary, words, characters, learnt, wanted)


def missing_characters(
    words: Words, vocabulary: WordPieceVocabulary, min_frequency: int
) -> list[str]:
    """The characters of words that a vocabulary lacks, the most frequent first.

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


def learnt_pieces(
    tokenizer: Tokenizer,
    vocabulary: WordPieceVocabulary,
    terms: Sequence[str],
    words: Words,
    number: int,
    min_frequency: int,
) -> list[str]:
    """Pieces of several characters that a vocabulary lacks, in the order in which they were learnt.

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
    stopping.poll()
    trained = Tokenizer(WordPiece(unk_token=vocabulary.unknown))
    if tokenizer.normalizer is not None:
        trained.normalizer = tokenizer.normalizer
    if tokenizer.pre_tokenizer is not None:
        trained.pre_tokenizer = tokenizer.pre_tokenizer
    characters = sorted({character for word in words.words for character in word})
    # The trainer numbers characters inside words in the order of a hash map, which differs from
    # call to call, and settles ties by these numbers. Special tokens are numbered as given.
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
    stopping.poll()
    single = {*characters, *inside}
    merges = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    new = [p for p, _ in merges if p not in single and p not in vocabulary.pieces]
    return new[: 2 * number]


def chosen_pieces(
    vocabulary: WordPieceVocabulary,
    words: Words,
    characters: list[str],
    learnt: list[str],
    number: int,
) -> list[str]:
    """The characters, and behind them the first `number` learnt pieces that serve the words.

    A word takes its longest piece from the left, so that a new piece can leave a rest that takes
    more pieces than before. A learnt piece is kept if the words that use it become shorter by it,
    all in all; the next takes the place of one that is not.
    """
    counts = words.counts()
    before = lengths(words, vocabulary)
    while True:
        stopping.poll()
        chosen = [*characters, *learnt[:number]]
        extended = vocabulary.with_pieces(chosen)
        saved = (before - lengths(words, extended)) * counts
        ids, start = extended.split(words.words)
        is_new = ids >= vocabulary.size
        word_of_id = np.repeat(np.arange(len(words.words)), np.diff(start))
        gain = np.zeros(len(chosen), np.int64)
        np.add.at(gain, ids[is_new] - vocabulary.size, saved[word_of_id[is_new]])
        useless = {piece for piece, one in zip(chosen, gain, strict=True) if one <= 0}
        if useless.isdisjoint(learnt):
            return chosen
        learnt = [piece for piece in learnt if piece not in useless]
