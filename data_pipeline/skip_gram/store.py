"""A folder of skip-grams: vectors of words, of names and of concepts, with their counts.

manifest.json says how they were made. words.tsv (word<TAB>count, with a header) names the rows of
words.npy, float32; names.tsv and concepts.tsv likewise, where there are any. A name stands as the
words that `sources.text` makes of it, with blanks between them. Rows are in the order of
their counts, the most frequent first. Nothing here needs gensim.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from data_pipeline.files.identity import (
    SKIP_GRAMS,
    Count,
    Hash,
    Width,
    read_identity,
    write_identity,
)
from data_pipeline.files.tables import read_text
from data_pipeline.files.whole import map_array, recover_folder, whole_folder
from data_pipeline.process import BadInput

_Table = Literal["words", "names", "concepts"]
TABLES: tuple[_Table, ...] = get_args(_Table)
ODD_LINES = "odd_lines.txt"
_AGAIN = f"make the folder again with `{SKIP_GRAMS.command}`"


@dataclass(frozen=True)
class StringVectors:
    """Strings with their counts in the text and their vectors.

    Attributes:
      strings: [n], each once, the most frequent first.
      counts: int64 [n].
      vectors: float32 [n, width].
    """

    strings: Sequence[str]
    counts: np.ndarray
    vectors: np.ndarray

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {string: row for row, string in enumerate(self.strings)}

    def rows(self, strings: Iterable[str]) -> np.ndarray:
        """int64 [len(strings)]: the row of each string, -1 for an unknown string."""
        return np.array([self._rows.get(string, -1) for string in strings], np.int64)


@dataclass(frozen=True, kw_only=True)
class SkipGramManifest:
    """manifest.json of a folder of skip-grams."""

    format: str = SKIP_GRAMS.format
    variant: Literal["words", "names", "names_concepts"]
    word_rules: Hash
    text: list[dict[str, Any]] = field(default_factory=list)
    dictionary: dict[str, Any] | None = None
    counts: dict[str, Count] = field(default_factory=dict)
    coverage: dict[str, Count] = field(default_factory=dict)
    most_frequent_names: list[tuple[str, Count]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    width: Width
    rows: dict[_Table, Count]
    content_hash: Hash


@dataclass(frozen=True)
class SkipGrams:
    """A folder of skip-grams; the vectors of all tables share one space.

    Attributes:
      folder: where it lies.
      manifest: how it was made.
      words, names, concepts: empty tables of what the variant has none.
    """

    folder: Path
    manifest: SkipGramManifest
    words: StringVectors
    names: StringVectors
    concepts: StringVectors


def write_skip_grams(
    out: Path,
    tables: Mapping[str, StringVectors],
    manifest: SkipGramManifest,
    odd: Sequence[str] = (),
) -> SkipGrams:
    """Writes a folder of skip-grams atomically, and opens it.

    Args:
      out: the folder; what is there is replaced.
      tables: of each of TABLES one.
      manifest: what it says; rows, width and content_hash are made here.
      odd: lines of ODD_LINES, what was odd in the text.
    """
    content = hashlib.sha256()
    with whole_folder(out) as folder:
        for kind in TABLES:
            table = tables[kind]
            if not len(table.strings):
                continue
            lines = zip(table.strings, table.counts.tolist(), strict=True)
            text = f"{kind[:-1]}\tcount\n" + "".join(f"{one}\t{count}\n" for one, count in lines)
            vectors = np.ascontiguousarray(table.vectors, np.dtype("<f4"))
            content.update(text.encode() + vectors.tobytes())
            (folder / f"{kind}.tsv").write_text(text, encoding="utf-8")
            np.save(folder / f"{kind}.npy", vectors)
        if odd:
            (folder / ODD_LINES).write_text("\n".join(odd) + "\n", encoding="utf-8")
        made = dataclasses.replace(
            manifest,
            width=tables["words"].vectors.shape[1],
            rows={kind: len(tables[kind].strings) for kind in TABLES},
            content_hash=content.hexdigest(),
        )
        write_identity(folder / SKIP_GRAMS.file, SKIP_GRAMS, made)
    return open_vectors(out)


def open_vectors(folder: str | Path) -> SkipGrams:
    """Opens a folder of skip-grams; vectors are memory-mapped, and read once.

    Raises:
      BadInput: no such folder, or a damaged one.
    """
    folder = Path(folder)
    recover_folder(folder)
    manifest = read_identity(folder / SKIP_GRAMS.file, SKIP_GRAMS, SkipGramManifest)
    tables = {
        kind: _read_table(folder, kind, manifest.rows.get(kind, 0), manifest.width)
        for kind in TABLES
    }
    content = hashlib.sha256()
    for kind, table in tables.items():
        if len(table.strings):
            content.update((folder / f"{kind}.tsv").read_bytes())
            content.update(np.ascontiguousarray(table.vectors).data)
    if content.hexdigest() != manifest.content_hash:
        raise BadInput(
            f"{folder} is damaged: it does not hold what {SKIP_GRAMS.file} says; {_AGAIN}"
        )
    return SkipGrams(folder, manifest, **tables)


def _read_table(folder: Path, kind: _Table, rows: int, width: int) -> StringVectors:
    if not rows:  # an empty file cannot be mapped
        return StringVectors([], np.zeros(0, np.int64), np.zeros((0, width), np.float32))
    path = folder / f"{kind}.tsv"
    lines = read_text(path).split("\n")[1:-1]
    fields = [line.split("\t") for line in lines]
    if len(fields) != rows or not all(len(one) == 2 and one[1].isdecimal() for one in fields):
        raise BadInput(
            f"{path}: found {len(fields):,} rows, or other than two columns; expected {rows:,} of "
            f"{kind[:-1]}<TAB>count: {_AGAIN}"
        )
    vectors = map_array(folder / f"{kind}.npy", _AGAIN, (rows, width), "float32")
    counts = np.array([int(count) for _, count in fields], np.int64)
    return StringVectors([string for string, _ in fields], counts, vectors)
