"""Names of a block as packed rows: words in rows, each distinct word spelled once, its vector once.

All arrays of a block have as many rows, so that they are cut and placed as packed rows are. A row
has L places for words of names, K short rows of spellings, and V distinct words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from data_pipeline.batches.names.alphabet import SPELLING
from data_pipeline.batches.names.word_table import WordTable
from data_pipeline.batches.packing import first_fit_decreasing, pack_rows

PACKED = (
    *("words", "positions", "segments"),
    *("characters", "spelled", "word_kinds", "word_vectors"),
)
NUMBERS = tuple(name for name in PACKED if name != "word_vectors")


class Row(NamedTuple):
    """What a row has room for."""

    length: int
    """L, words of names with their marks."""
    spellings: int
    """K, rows of 34 characters."""
    words: int
    """V, distinct words."""

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """The shape of each packed array in one row; vectors of words have `width` numbers."""
        spelled = (self.spellings, SPELLING)
        return {
            **dict.fromkeys(("words", "positions", "segments"), (self.length,)),
            **dict.fromkeys(("characters", "spelled"), spelled),
            "word_kinds": (self.words,),
            "word_vectors": (self.words, width),
        }

    def rows(self, needs: np.ndarray) -> np.ndarray:
        """int [...]: rows that are enough for `needs` [..., 3], as `needs_of` tells them."""
        return (-(-needs // np.array([1, self.spellings, self.words]))).max(axis=-1)


def needs_of(table: WordTable, tokens: np.ndarray, bounds: np.ndarray, length: int) -> np.ndarray:
    """int64 [3]: rows of words, rows of spellings, and distinct words of a block.

    Args:
        table: of the words.
        tokens: int [sum of lengths], the words of its names.
        bounds: int64 [N + 1], where names begin.
        length: L.
    """
    distinct = np.unique(tokens)
    rows, _ = first_fit_decreasing(np.diff(bounds), length)
    spelling_bounds, _ = table.spelled(distinct)
    spellings, _ = first_fit_decreasing(np.diff(spelling_bounds), SPELLING)
    return np.array([rows.max() + 1, spellings.max() + 1, len(distinct)])


def pack_names(
    table: WordTable, tokens: np.ndarray, bounds: np.ndarray, row: Row, rows: int
) -> dict[str, np.ndarray]:
    """The packed arrays of a block, int32 [R, ...] each as in `Row.shapes`, but `word_vectors`.

    - `words`: 1 + the place of a word among the distinct ones of the block; 0 for none.
    - `positions`, `segments`: as in `packing.pack_rows`.
    - `characters`: of the spellings; `spelled`: 1 + the place of the word that they spell.
    - `word_kinds`: of the distinct words, place after place over the rows; 0 for none.
    - `word_vectors`: float32.

    Args:
        table, tokens, bounds: as for `needs_of`.
        row: what a row has room for.
        rows: R.

    Raises:
        BadInput: if the names need more than `rows` rows, or a spelling does.
    """
    distinct, places = np.unique(tokens, return_inverse=True)
    packed = pack_rows(places.astype(np.int32) + 1, bounds, row.length, rows)
    spelling_bounds, characters = table.spelled(distinct)
    spelled = pack_rows(characters, spelling_bounds, SPELLING, rows * row.spellings)
    width = table.vectors.shape[1]
    kinds = np.zeros(rows * row.words, np.int32)
    vectors = np.zeros((rows * row.words, width), np.float32)
    kinds[: len(distinct)] = table.kinds[distinct]
    vectors[: len(distinct)] = table.vectors_of(distinct)
    made = {
        "words": packed["tokens"],
        "positions": packed["positions"],
        "segments": packed["segments"],
        "characters": spelled["tokens"],
        "spelled": spelled["segments"],
        "word_kinds": kinds,
        "word_vectors": vectors,
    }
    return {name: made[name].reshape(rows, *shape) for name, shape in row.shapes(width).items()}


def rows_in_use(batch: dict[str, np.ndarray]) -> int:
    """The rows up to the last one in which any block of a batch [P, B, R, ...] has anything."""
    used = np.zeros(batch["words"].shape[2], bool)
    for name in NUMBERS:
        array = np.moveaxis(batch[name], 2, 0)
        used |= array.reshape(len(array), -1).any(axis=1)
    return int(np.flatnonzero(used)[-1]) + 1 if used.any() else 0
