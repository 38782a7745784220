"""Vectors for benchmarks, from encoders and from files."""

from __future__ import annotations

import gzip
import hashlib
import string
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import numpy as np

from coder_jax.encoding.vector_files import (
    TERMS_PER_CHUNK,
    JoinedRows,
    Rows,
    RowsOfFile,
    TermList,
    about_file,
    about_vectors,
    cached_vectors,
    terms_hash,
    write_vectors,
)
from coder_jax.evaluation.record import VectorFileProtocol
from data_pipeline import process
from data_pipeline.files.identity import SKIP_GRAMS, is_of_kind
from data_pipeline.files.tables import bounded_lines
from data_pipeline.process import BadInput
from data_pipeline.skip_gram.store import open_vectors
from data_pipeline.sources.text import rules_hash, words_of

if TYPE_CHECKING:
    from coder_jax.encoding.encoder import TermEncoder
    from coder_jax.evaluation.ranks import GoldCounts
    from coder_jax.export.relations import ExportedRelations
    from data_pipeline.dataset.dictionary import Dictionary


# -------------------------------------------------------------------------------------------------
# Vectors of an evaluation's terms; those of dictionaries are cached on disk.


def vectors_of_terms(
    encoder: TermEncoder,
    terms: Sequence[str],
    searched: Iterable[Sequence[str]],
    beside: Path,
    scratch: list[Path],
) -> tuple[list[str], Rows]:
    """The vectors of all terms, and the terms in the order that the vectors have.

    Args:
      encoder: from a folder or the hub.
      terms: distinct strings, at least one.
      searched: lists of some of them, of dictionaries: their vectors may be kept on this machine,
        and are read again in the next evaluation.
      beside: the vectors of the others grow in a file beside it, named after it and the pooling.
      scratch: gets the files that are to be removed at the end.
    """
    parts: list[tuple[Sequence[str], Rows]] = []
    held: set[str] = set()
    for listed in {terms_hash(one): one for one in map(_distinct, searched)}.values():
        kept = cached_vectors(encoder, listed, progress=True)
        if kept is not None:
            parts.append((listed, kept))
            held.update(listed)
    others = [term for term in terms if term not in held] if held else terms
    if others:
        chunks = TermList(others, TERMS_PER_CHUNK)
        weights_hash = str(encoder.weights_hash)
        about = about_vectors(encoder, str(encoder.name), weights_hash, chunks, "float32")
        which = ".others" if held else ""
        path = beside.with_name(f".{beside.name}.{encoder.settings.pooling}{which}.npy")
        scratch += [path, about_file(path)]
        write_vectors(encoder, chunks, path, about)
        parts.append((others, RowsOfFile(path)))
    if len(parts) == 1:
        return list(parts[0][0]), parts[0][1]
    return [term for part, _ in parts for term in part], JoinedRows([rows for _, rows in parts])


def _distinct(terms: Iterable[str]) -> list[str]:
    """The distinct terms, in order of first occurrence."""
    return list(dict.fromkeys(terms))


# -------------------------------------------------------------------------------------------------
# Files of word or concept vectors, of which only the needed ones are read.
#
# - word2vec binary: "count width" and a line break, then each key, a blank and its float32 values;
# - word2vec text: "count width", then a line for each key, blanks between the values; or, as GloVe
#   has it, without the first line;
# - CSV (cui2vec): a header, then "key",value,value,...
#
# Any may be packed as .gz. Only the keys that are wanted are kept in memory.

_READ_BYTES = 1 << 22
_MOST_KEY_BYTES = 1 << 12
_MOST_WIDTH = 100_000
_POLL_ROWS = 1 << 14


@dataclass(frozen=True)
class VectorTable:
    """A table of vectors by key.

    Attributes:
      row_of: key -> row of `vectors`; the first of equal keys counts.
      vectors: float32 [rows, width].
      in_file: vectors in the file, wanted or not.
      file_hash: SHA-256 of the file.
    """

    row_of: dict[str, int]
    vectors: np.ndarray
    in_file: int
    file_hash: str
    path: str


def _read_vector_file(path: str | Path, wanted: set[str]) -> VectorTable:
    """Reads the wanted keys of a file in any of the formats above.

    Raises:
      BadInput: the file is of none of them, is cut off or longer than its first line says, or a
        vector has the wrong width or values that are not finite numbers.
      Stopped: a signal asked for it.
    """
    path = Path(path)
    try:
        with _opened(path) as file:
            rows = _rows_of(file, path)
            row_of: dict[str, int] = {}
            kept: list[np.ndarray] = []
            in_file = 0
            for in_file, (key, parse) in enumerate(rows, start=1):
                if in_file % _POLL_ROWS == 0:
                    process.poll()
                if key in wanted and key not in row_of:
                    row_of[key] = len(kept)
                    kept.append(parse())
        with path.open("rb") as plain:
            file_hash = hashlib.file_digest(plain, "sha256").hexdigest()
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path}: cannot be read ({error}); give an existing, whole file") from error
    if not kept:
        raise BadInput(
            f"{path}: found {in_file:,} vectors, none of a word or concept of the benchmarks (such "
            f"as {min(wanted, default='')!r}); expected vectors of the same words or concepts"
        )
    return VectorTable(row_of, np.stack(kept), in_file, file_hash, str(path))


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


_Row = tuple[str, Callable[[], np.ndarray]]  # a key, and what makes its vector


def _rows_of(file: IO[bytes], path: Path) -> Iterator[_Row]:
    """The rows of a file, whose format is recognized by its first bytes."""
    if path.name.removesuffix(".gz").endswith(".csv"):
        file.readline(_READ_BYTES)
        return _text_rows(file, path, 2, None, b",")
    first = file.readline(_READ_BYTES)
    numbers = first.split()
    if len(numbers) == 2 and all(number.isdigit() for number in numbers):
        count, width = int(numbers[0]), int(numbers[1])
        if width > _MOST_WIDTH:
            raise BadInput(
                f"{path}:1: found vectors of {width:,} values; expected at most {_MOST_WIDTH:,}: "
                "fetch the file again"
            )
        start = file.tell()
        after = file.read(_READ_BYTES).lstrip()  # in a text file empty lines do not count
        file.seek(start)
        if _is_text(after.split(b"\n", 1)[0], width):
            return _text_rows(file, path, 2, width, b" ", count)
        return _binary_rows(file, path, count, width)
    file.seek(0)
    if len(numbers) > 2 and _is_text(first, first.rstrip().count(b" ")):
        return _text_rows(file, path, 1, None, b" ")
    raise BadInput(
        f"{path}:1: found {first[:60]!r}; expected vectors: word2vec's text or binary format, "
        "which begin with 'count width', lines of a key and numbers, or cui2vec's .csv"
    )


def _is_text(line: bytes, width: int) -> bool:
    """Whether a line consists of a key and `width` numbers."""
    fields = line.rstrip().rsplit(b" ", width)
    try:
        return len(fields) == width + 1 and all(np.isfinite(float(f)) for f in fields[1:])
    except ValueError:
        return False


def _text_rows(
    file: IO[bytes],
    path: Path,
    first: int,
    width: int | None,
    between: bytes,
    count: int | None = None,
) -> Iterator[_Row]:
    """Rows of text; `first` is the number of the first line, `width` that of its vector if None."""
    found = 0
    for number, line in enumerate(bounded_lines(file, str(path), first), start=first):
        stripped = line.rstrip()
        if not stripped:
            continue
        if found == count:
            raise _longer(f"{path}:{number}", count)
        found += 1
        if width is None:
            width = stripped.count(between)
        fields = stripped.rsplit(between, width)
        if len(fields) != width + 1:
            raise BadInput(
                f"{path}:{number}: found {len(fields) - 1} values; expected {width}, as before: "
                "the file may be cut off"
            )
        quoted = fields[0].strip(b'"') if between == b"," else fields[0]
        key = quoted.decode("utf-8", errors="replace")
        yield key, partial(_numbers_of, fields[1:], f"{path}:{number}")
    if count is not None and found < count:
        raise BadInput(
            f"{path}: found {found:,} of {count:,} vectors; it is cut off: fetch it again"
        )


def _numbers_of(fields: Sequence[bytes], place: str) -> np.ndarray:
    try:
        values = np.array([float(field) for field in fields], np.float32)
    except ValueError as error:
        raise BadInput(
            f"{place}: found a value that is no number ({error}); expected numbers: mend the line, "
            "or fetch the file again"
        ) from error
    return _finite(values, place)


def _floats_of(values: bytes, place: str) -> np.ndarray:
    return _finite(np.frombuffer(values, "<f4").astype(np.float32), place)


def _finite(values: np.ndarray, place: str) -> np.ndarray:
    if not np.isfinite(values).all():
        raise BadInput(
            f"{place}: found NaN or infinite values; expected finite numbers: mend this vector, or "
            "fetch the file again"
        )
    return values


def _binary_rows(file: IO[bytes], path: Path, count: int, width: int) -> Iterator[_Row]:
    """Rows of word2vec's binary format."""
    buffer, place, size = b"", 0, 4 * width
    for number in range(1, count + 1):
        end = buffer.find(b" ", place)
        while end < 0 or end + 1 + size > len(buffer):
            more = file.read(_READ_BYTES)
            if not more or (end < 0 and len(buffer) - place > _MOST_KEY_BYTES):
                raise BadInput(
                    f"{path}: found {number - 1:,} of {count:,} vectors of {width} values; it is "
                    "cut off or not in word2vec's binary format: fetch it again"
                )
            buffer, place = buffer[place:] + more, 0
            end = buffer.find(b" ", place)
        key = buffer[place:end].lstrip(b"\n").decode("utf-8", errors="replace")
        values = buffer[end + 1 : end + 1 + size]
        place = end + 1 + size
        yield key, partial(_floats_of, values, f"{path}, vector {number}")
    if (buffer[place:] + file.read(_READ_BYTES)).strip():
        raise _longer(str(path), count)


def _longer(place: str, count: int) -> BadInput:
    return BadInput(
        f"{place}: found more than the {count:,} vectors that the first line counts; expected no "
        "more: correct the first line, or fetch the file again"
    )


# -------------------------------------------------------------------------------------------------
# The protocol `Vectors`, through which benchmarks get vectors for keys.
#
# A key is a term, or, for concept vectors, a concept. A benchmark that has concepts as well as
# terms uses those that the vectors are keyed by.

TERMS, CONCEPTS = "terms", "concepts"


class Vectors(Protocol):
    """Vectors of the keys of all benchmarks of an evaluation.

    Attributes:
      keyed_by: TERMS or CONCEPTS.
    """

    keyed_by: str

    def encode(self, keys: Sequence[str]) -> np.ndarray:
        """Unit vectors for cosines, float32 [n, D]; zeros for a key without vector."""

    def known(self, keys: Sequence[str]) -> np.ndarray:
        """Which keys have a vector, bool [n]."""

    def features(self, keys: Sequence[str]) -> np.ndarray:
        """Vectors as a classifier's features, float32 [n, D], not normalized."""


class EncodedTerms:
    """The vectors of a `TermEncoder`; every term has one."""

    keyed_by = TERMS

    def __init__(
        self,
        encoder: TermEncoder,
        terms: Sequence[str],
        vectors: Rows,
        relations: ExportedRelations | None = None,
    ):
        """From encoded terms: unit vectors, float [n, D], possibly rows of a file.

        `relations` are those that were learned with the encoder.
        """
        self.encoder, self.vectors, self.relations = encoder, vectors, relations
        self.row_of = {term: row for row, term in enumerate(terms)}

    def encode(self, keys: Sequence[str]) -> np.ndarray:
        return self.vectors[np.fromiter(map(self.row_of.__getitem__, keys), np.int64, len(keys))]

    def known(self, keys: Sequence[str]) -> np.ndarray:
        return np.ones(len(keys), bool)

    def features(self, keys: Sequence[str]) -> np.ndarray:
        return self.encoder.encode(keys, unit=False)


class ComparedStrings(ABC):
    """What compares strings without vectors, such as BM25; benchmarks of names and pairs take it
    in the place of vectors.
    """

    keyed_by = TERMS

    def known(self, keys: Sequence[str]) -> np.ndarray:
        return np.ones(len(keys), bool)

    def encode(self, keys: Sequence[str]) -> np.ndarray:
        """BadInput: there are none."""
        raise BadInput("found no vectors, as strings are compared; this benchmark needs vectors")

    features = encode

    @abstractmethod
    def counts(
        self, mentions: Sequence[str], gold: Sequence[str], dictionary: Dictionary
    ) -> GoldCounts:
        """The places of the gold concepts of mentions; concepts joined with "|"."""

    @abstractmethod
    def of_pairs(self, first: Sequence[str], second: Sequence[str]) -> np.ndarray:
        """The similarity of first[i] and second[i], float [n], in [0, 1]."""


def known_features(
    vectors: Vectors, keys: Sequence[str], path: str
) -> tuple[np.ndarray, np.ndarray]:
    """Which keys have a vector, bool [n], and the features of these, float32 [known, D].

    BadInput if none has.
    """
    known = vectors.known(keys)
    if not known.any():
        raise BadInput(
            f"{path}: found a vector for none of its {len(keys):,} concepts (such as {keys[0]!r}); "
            "expected vectors of the same vocabulary"
        )
    return known, vectors.features([key for key, held in zip(keys, known, strict=True) if held])


def terms_only(keyed_by: str, path: str) -> None:
    """Raise BadInput for vectors of concepts, for benchmarks that have only terms."""
    if keyed_by != TERMS:
        raise BadInput(
            f"{path}: found terms to look up, and concept vectors, which have none for a term; "
            "give such vectors with benchmarks of concepts, relations or pairs with CUIs"
        )


# -------------------------------------------------------------------------------------------------
# Vectors from a table: of a concept by its key, or of a term by its words.


class TableVectors(ABC):
    """The vector of a key is the mean of its rows of a table; a key without rows has no vector."""

    keyed_by: str
    vectors_of: str  # what has a row of its own: "words", "names" or "concepts"
    pooling: str
    look_up: str

    def __init__(self, table: VectorTable):
        self.table = table

    @classmethod
    @abstractmethod
    def keys_of(cls, keys: Iterable[str]) -> set[str]:
        """All entries of a table that these keys may look up."""

    @abstractmethod
    def rows(self, key: str) -> list[int]:
        """The rows of the table that make up a key's vector."""

    def encode(self, keys: Sequence[str]) -> np.ndarray:
        vectors = np.zeros((len(keys), self.table.vectors.shape[1]), np.float32)
        for place, key in enumerate(keys):
            if rows := self.rows(key):
                vectors[place] = self.table.vectors[rows].mean(axis=0)
        return vectors

    features = encode

    def known(self, keys: Sequence[str]) -> np.ndarray:
        return np.array([bool(self.rows(key)) for key in keys], bool)


class WordVectors(TableVectors):
    """The vector of a term is the mean of the vectors of its words (CODER paper, section 4.3).

    Words stand between blanks. One that is not in the file is looked up without the punctuation at
    its ends, then in small letters.
    """

    keyed_by = TERMS
    vectors_of = "words"
    pooling = "mean of words"
    look_up = (
        "words between blanks as they stand, else without punctuation at their ends, else that "
        "in small letters; no other cleaning"
    )

    @staticmethod
    def words(key: str) -> list[str]:
        """The words that make up a term."""
        return key.split()

    @staticmethod
    def forms(word: str) -> tuple[str, ...]:
        """The forms in which a word is looked up, in order."""
        bare = word.strip(string.punctuation)
        return tuple(dict.fromkeys((word, bare, bare.lower())))

    @classmethod
    def keys_of(cls, keys: Iterable[str]) -> set[str]:
        return {form for term in keys for word in cls.words(term) for form in cls.forms(word)}

    def rows(self, key: str) -> list[int]:
        row_of = self.table.row_of
        found = (
            next((row_of[form] for form in self.forms(word) if form in row_of), None)
            for word in self.words(key)
        )
        return [row for row in found if row is not None]

    def partly_known(self, keys: Iterable[str]) -> int:
        """The distinct terms with a vector for some of their words only."""
        return sum(0 < len(self.rows(key)) < len(self.words(key)) for key in set(keys))


class _ConceptVectors(TableVectors):
    """A concept's own vector."""

    keyed_by = CONCEPTS
    vectors_of = "concepts"
    pooling = "concept"
    look_up = "as they stand"

    @classmethod
    def keys_of(cls, keys: Iterable[str]) -> set[str]:
        return set(keys)

    def rows(self, key: str) -> list[int]:
        row = self.table.row_of.get(key)
        return [] if row is None else [row]


_KINDS: dict[str, type[TableVectors]] = {"words": WordVectors, "concepts": _ConceptVectors}


def vector_file_protocol(vectors: TableVectors) -> VectorFileProtocol:
    """The vectors as described in records."""
    table = vectors.table
    return VectorFileProtocol(
        model=table.path,
        weights_hash=table.file_hash,
        keyed_by=vectors.vectors_of,
        pooling=vectors.pooling,
        width=table.vectors.shape[1],
        vectors=table.in_file,
        used=len(table.row_of),
        look_up=vectors.look_up,
    )


# -------------------------------------------------------------------------------------------------
# `Vectors` made of a file of vectors or a folder of skip-grams.

_NAME = "name: "  # before a name in a table that has words, too: no word has a blank


class _SkipGramWords(WordVectors):
    """A term's vector is the mean over its words that have one (SG_W of Phan et al. 2019)."""

    look_up = "words by the rules of the text that the vectors are of (sources.text.words)"

    @staticmethod
    def words(key: str) -> list[str]:
        return words_of(key)

    @staticmethod
    def forms(word: str) -> tuple[str, ...]:
        return (word,)


class _SkipGramNames(_SkipGramWords):
    """The vector of a term is its own, or for unseen names the mean over its words.

    SG_S and SG_S.C of Phan et al. 2019.
    """

    vectors_of = "names"
    pooling = "own, or mean of words"

    @classmethod
    def keys_of(cls, keys: Iterable[str]) -> set[str]:
        words = [words_of(term) for term in keys]
        return {_NAME + " ".join(one) for one in words} | {word for one in words for word in one}

    def rows(self, key: str) -> list[int]:
        own = self.table.row_of.get(_NAME + " ".join(self.words(key)))
        return super().rows(key) if own is None else [own]

    def partly_known(self, keys: Iterable[str]) -> int:
        own = self.table.row_of
        return super().partly_known(
            key for key in keys if _NAME + " ".join(self.words(key)) not in own
        )


_OF_SKIP_GRAMS: dict[str, type[TableVectors]] = {
    "words": _SkipGramWords,
    "names": _SkipGramNames,
    "concepts": _ConceptVectors,
}


def is_skip_grams(path: str | Path) -> bool:
    """Whether a path is a folder of `python -m data_pipeline.skip_gram`."""
    return is_of_kind(Path(path) / SKIP_GRAMS.file, SKIP_GRAMS)


def open_table(path: str | Path, vectors_of: str, keys: Iterable[str]) -> TableVectors:
    """Opens a file of word, name or concept vectors; only those of these keys are read.

    Args:
      path: a file as `_read_vector_file` takes it, or a folder of skip-grams.
      vectors_of: of _OF_SKIP_GRAMS; names only of a folder.
      keys: terms, or for vectors of concepts identifiers.

    Raises:
      BadInput: a broken file, or nothing of what is wanted in it.
    """
    if not is_skip_grams(path):
        if vectors_of not in _KINDS:
            raise BadInput(
                f"{path}: found no folder of skip-grams; expected one for vectors of names: "
                "`python -m data_pipeline.skip_gram` makes it"
            )
        kind = _KINDS[vectors_of]
        return kind(_read_vector_file(path, kind.keys_of(keys)))
    kind = _OF_SKIP_GRAMS[vectors_of]
    return kind(_table_of_skip_grams(Path(path), vectors_of, kind.keys_of(keys)))


def _table_of_skip_grams(folder: Path, vectors_of: str, wanted: set[str]) -> VectorTable:
    """The wanted rows of a folder of skip-grams; for names also their words' rows."""
    grams = open_vectors(folder)
    if grams.manifest.word_rules != rules_hash():
        raise BadInput(
            f"{folder}: found text that was divided into words by other rules than those of this "
            "version; expected the same, or words are not found: make the folder again"
        )
    tables = {"words": ("", grams.words), "names": (_NAME, grams.names)}
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
    file_hash = grams.manifest.content_hash
    return VectorTable(row_of, np.concatenate(kept), in_file, file_hash, str(folder))
