"""A file of vectors, or a folder of skip-grams, in; what benchmarks ask of it out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from coder_jax.evaluation.vectors.word2vec_files import VectorTable, read_vector_file
from coder_jax.evaluation.vectors.words_and_concepts import (
    KINDS,
    ConceptVectors,
    TableVectors,
    WordVectors,
)
from data_pipeline.files.identity import SKIP_GRAMS, is_of_kind
from data_pipeline.process.errors import BadInput
from data_pipeline.skip_gram.store import open_vectors
from data_pipeline.sources.text.words import rules_hash, words_of

NAME = "name: "  # before a name in a table that has words, too: no word has a blank


class SkipGramWords(WordVectors):
    """A term's vector is the mean over its words that have one (SG_W of Phan et al. 2019)."""

    look_up = "words by the rules of the text that the vectors are of (sources.text.words)"

    @staticmethod
    def keys_of(keys: Iterable[str]) -> set[str]:
        return {word for term in keys for word in words_of(term)}

    @staticmethod
    def words(key: str) -> list[str]:
        return words_of(key)

    def rows(self, key: str) -> list[int]:
        row_of = self.table.row_of
        return [row_of[word] for word in self.words(key) if word in row_of]


class SkipGramNames(SkipGramWords):
    """A term's vector is its own, or of one that the text has not, the mean over its words.

    SG_S and SG_S.C of Phan et al. 2019.
    """

    vectors_of = "names"
    pooling = "own, or mean of words"

    @staticmethod
    def keys_of(keys: Iterable[str]) -> set[str]:
        words = [words_of(term) for term in keys]
        return {NAME + " ".join(one) for one in words} | {word for one in words for word in one}

    def rows(self, key: str) -> list[int]:
        own = self.table.row_of.get(NAME + " ".join(self.words(key)))
        return super().rows(key) if own is None else [own]

    def partly_known(self, keys: Iterable[str]) -> int:
        own = self.table.row_of
        return super().partly_known(
            key for key in keys if NAME + " ".join(self.words(key)) not in own
        )


OF_SKIP_GRAMS: dict[str, type[TableVectors]] = {
    "words": SkipGramWords,
    "names": SkipGramNames,
    "concepts": ConceptVectors,
}


def is_skip_grams(path: str | Path) -> bool:
    """Whether a path is a folder of `python -m data_pipeline.skip_gram`."""
    return is_of_kind(Path(path) / SKIP_GRAMS.file, SKIP_GRAMS)


def open_table(path: str | Path, vectors_of: str, keys: Iterable[str]) -> TableVectors:
    """The vectors of words, names or concepts, of which those for these keys are read.

    Args:
      path: a file as `read_vector_file` takes it, or a folder of skip-grams.
      vectors_of: of OF_SKIP_GRAMS; names only of a folder.
      keys: terms, or for vectors of concepts identifiers.

    Raises:
      BadInput: a broken file, or nothing of what is wanted in it.
    """
    if not is_skip_grams(path):
        kind = KINDS[vectors_of]
        return kind(read_vector_file(path, kind.keys_of(keys)))
    kind = OF_SKIP_GRAMS[vectors_of]
    return kind(table_of_skip_grams(Path(path), vectors_of, kind.keys_of(keys)))


def table_of_skip_grams(folder: Path, vectors_of: str, wanted: set[str]) -> VectorTable:
    """The wanted rows of a folder of skip-grams; of names also those of words."""
    grams = open_vectors(folder)
    if grams.manifest["word_rules"] != rules_hash():
        raise BadInput(
            f"{folder}: found text that was divided into words by other rules than those of this "
            "version; expected the same, or words are not found: make the folder again"
        )
    tables = {"words": ("", grams.words), "names": (NAME, grams.names)}
    tables["concepts"] = ("", grams.concepts)
    if not len(tables[vectors_of][1].strings):
        made = [name for name, (_, table) in tables.items() if len(table.strings)]
        raise BadInput(
            f"{folder}: found vectors of {' and '.join(made)}, none of {vectors_of}; expected them "
            f"for --vectors-of {vectors_of}: make the folder with another --variant, or give "
            f"--vectors-of {made[0]}"
        )
    row_of: dict[str, int] = {}
    kept: list[np.ndarray] = []
    in_file = 0
    for name in ("names", "words") if vectors_of == "names" else (vectors_of,):
        before, table = tables[name]
        in_file += len(table.strings)
        rows = [row for row, one in enumerate(table.strings) if before + one in wanted]
        for place, row in enumerate(rows, start=len(row_of)):
            row_of[before + table.strings[row]] = place
        kept.append(table.vectors[rows])
    if not row_of:
        raise BadInput(
            f"{folder}: found {in_file:,} vectors, none for what the benchmarks have (such as "
            f"{min(wanted, default='')!r}); expected vectors of the same language or vocabulary"
        )
    file_hash = grams.manifest["content_hash"]
    return VectorTable(row_of, np.concatenate(kept), in_file, file_hash, str(folder))
