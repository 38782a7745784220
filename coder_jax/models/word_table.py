"""The word table of a BERT whose vocabulary grew: rows of new pieces begin at those of old ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from coder_jax.models.architectures import abstract_bert
from coder_jax.models.bert import Bert
from coder_jax.models.hf_weights import anchor, from_hf, name_table, to_hf
from data_pipeline.dataset.vocabulary.word_piece import WordPieceVocabulary


def old_pieces(piece: str, vocabulary: WordPieceVocabulary) -> list[int]:
    """Ids of the pieces that a vocabulary has for a string that is no piece of it.

    They are the longest from the left, as always. A character that is there in its other form
    only, such as "##é" for "é", is taken in that; one that is there in neither is left out.

    Args:
      piece: a string; with the prefix it goes on with a word.
      vocabulary: without it.

    Returns:
      the ids, in their order; none where all characters are unknown.
    """
    first = "" if not piece.startswith(vocabulary.prefix) else vocabulary.prefix
    rest, found = piece.removeprefix(vocabulary.prefix), []
    while rest:
        fitting = (
            end for end in range(len(rest), 0, -1) if first + rest[:end] in vocabulary.pieces
        )
        end = next(fitting, 0)
        other = "" if first else vocabulary.prefix
        if end:
            found.append(vocabulary.pieces[first + rest[:end]])
        elif other + rest[0] in vocabulary.pieces:
            found.append(vocabulary.pieces[other + rest[0]])
        rest, first = rest[max(end, 1) :], vocabulary.prefix
    return found


def rows_for(vocabulary: WordPieceVocabulary, table_rows: int, size: int) -> int:
    """Rows of a word table for `size` entries, padded as that of an encoder is.

    Where it has a row for each entry of its tokenizer and no more, so has the new one. Else its
    rows are a multiple of some power of two, and the new ones are, too, up to 128.
    """
    if table_rows == vocabulary.size:
        return size
    multiple = min(table_rows & -table_rows, 128)
    return max(table_rows, -(-size // multiple) * multiple)


def extended_table(
    table: np.ndarray, vocabulary: WordPieceVocabulary, new: Sequence[str]
) -> tuple[np.ndarray, int]:
    """The word table with a row for each new piece: the mean of the rows of its old pieces.

    A piece that has none, such as one of Chinese characters for an English encoder, begins at a row
    that is drawn: normal, each dimension with mean and spread of the table's rows. Began they all
    at the unknown token's, as what they were until now, none could be told from another, and
    training would have to part them first. Rows that pad the table are the unknown token's.

    Args:
      table: float32 [V, D], V at least the size of the vocabulary.
      vocabulary: before it grew.
      new: the pieces, with the ids vocabulary.size, vocabulary.size + 1, ...

    Returns:
      (float32 [rows_for(...), D], whose first rows are those of `table`; how many rows of new
      pieces were drawn). The same each time.
    """
    unknown = table[vocabulary.pieces[vocabulary.unknown]]
    size = vocabulary.size + len(new)
    extended = np.tile(unknown, (rows_for(vocabulary, len(table), size), 1))
    extended[: len(table)] = table
    of_entries = table[: vocabulary.size]
    mean, spread = of_entries.mean(axis=0), of_entries.std(axis=0)
    # By its size, so that an encoder extended twice does not get the same rows twice.
    random = np.random.default_rng(vocabulary.size)
    drawn = 0
    for row, piece in enumerate(new, start=vocabulary.size):
        ids = old_pieces(piece, vocabulary)
        extended[row] = table[ids].mean(axis=0) if ids else random.normal(mean, spread)
        drawn += not ids
    return extended, drawn


def with_word_table(bert: Bert, table: np.ndarray) -> Bert:
    """The same encoder with another word table, float32 [V, D]."""
    config = replace(bert.config, vocab_size=len(table))
    has_pooler = bert.pooler is not None
    return from_hf(
        to_hf(bert) | {anchor(config): table},
        name_table(config, pooler=has_pooler),
        abstract_bert(config, bert.dtype, pooler=has_pooler),
        "the extended encoder",
    )
