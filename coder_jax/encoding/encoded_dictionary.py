"""A dictionary with its vectors: searched for concepts, saved to a folder and loaded from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from coder_jax.encoding.encoder_protocol import about_vectors
from coder_jax.encoding.rows import Rows
from coder_jax.encoding.search import search
from coder_jax.encoding.term_lines import TERMS_PER_CHUNK, TermList, strings_of
from coder_jax.encoding.vector_cache import cached_vectors
from coder_jax.encoding.vector_file import about_file, read_vectors
from data_pipeline.dataset.aligned import aligned
from data_pipeline.dataset.dictionary import Dictionary, read_dictionary
from data_pipeline.files.array_files import write_array
from data_pipeline.files.identity import VECTORS, write_identity
from data_pipeline.files.rows import CONCEPT_COLUMNS, TERM_COLUMNS, split_concepts
from data_pipeline.files.whole_files import recover_folder, whole_folder
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import progress_bar

if TYPE_CHECKING:
    from coder_jax.encoding.encoder import TermEncoder

# Search this many terms per wanted concept at first; a concept often has several near terms.
TERMS_PER_CONCEPT = 8
VECTORS_FILE, TERMS_FILE = "vectors.npy", "terms.parquet"
ROWS_AT_A_TIME = 1 << 16
SAVE_AGAIN = "encode the dictionary with this encoder and save it again"


class Match(NamedTuple):
    """A concept found for a mention, by its nearest term."""

    concept: str
    term: str
    similarity: float  # cosine


@dataclass(frozen=True)
class EncodedDictionary:
    """A dictionary with its vectors, to search more than once: `TermEncoder.encode_dictionary`.

    `encoder` is what made the vectors, where it is known: without it they cannot be saved.
    """

    terms: list[str]
    concepts: list[str]
    vectors: Rows  # float [n, D], unit length; an array or the rows of a file
    encoder: TermEncoder | None = field(default=None, repr=False, compare=False)

    @cached_property
    def num_concepts(self) -> int:
        return len({one for joined in set(self.concepts) for one in split_concepts(joined)})

    def save(self, folder: str | Path) -> None:
        """Writes terms, concepts, vectors and what made them into a folder, whole or not at all.

        What `save` wrote there before is replaced.

        Raises:
          BadInput: the encoder came from no folder, so that nothing could tell it from others; or
            something else is in the folder.
        """
        folder, encoder = Path(folder), self.encoder
        if encoder is None or encoder.weights_hash is None:
            raise BadInput(
                f"{folder}: the vectors were made by an encoder in memory, which another process "
                "cannot know again; export it, and encode the dictionary with "
                "TermEncoder.from_pretrained(EXPORT)"
            )
        in_use = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
        if in_use and not (folder / TERMS_FILE).is_file():
            raise BadInput(
                f"{folder} exists and is no saved dictionary; give a new or empty folder"
            )
        dtype = np.asarray(self.vectors[:1]).dtype
        terms = TermList(self.terms, TERMS_PER_CHUNK)
        about = about_vectors(encoder, str(encoder.name), encoder.weights_hash, terms, dtype.name)
        with whole_folder(folder) as new:
            pl.DataFrame({"term": self.terms, "concept": self.concepts}).write_parquet(
                new / TERMS_FILE
            )
            path = new / VECTORS_FILE
            starts = range(0, len(self.terms), ROWS_AT_A_TIME)
            parts = (np.asarray(self.vectors[n : n + ROWS_AT_A_TIME], dtype) for n in starts)
            write_array(path, self.vectors.shape, dtype, parts)
            write_identity(about_file(path), VECTORS, about)

    @classmethod
    def load(cls, folder: str | Path, encoder: TermEncoder) -> EncodedDictionary:
        """What `save` wrote into a folder, for the encoder that made it; vectors stay on the disk.

        Raises:
          BadInput: no such folder, a damaged one, or one that another encoder made or the same one
            with other settings; it says what differs.
        """
        folder = Path(folder)
        recover_folder(folder)
        try:
            rows = pl.read_parquet(folder / TERMS_FILE, columns=["term", "concept"])
        except (OSError, pl.exceptions.PolarsError) as error:
            problem = str(error).splitlines()[0]
            raise BadInput(
                f"{folder}: found no dictionary that EncodedDictionary.save wrote, or a damaged "
                f"one ({problem}); {SAVE_AGAIN}"
            ) from error
        terms, concepts = rows["term"].to_list(), rows["concept"].to_list()
        listed = TermList(terms, TERMS_PER_CHUNK)
        vectors = read_vectors(
            folder / VECTORS_FILE, encoder, str(encoder.weights_hash), listed, SAVE_AGAIN
        )
        return cls(terms, concepts, vectors, encoder)


DictionarySource = (
    EncodedDictionary
    | Dictionary
    | Mapping[str, str]
    | tuple[Sequence[str], Sequence[str]]
    | Iterable[tuple[str, str]]
    | str
    | Path
)
FORMS = (
    "the path of a dictionary, a dict of term -> concept, a list of (term, concept) pairs, a "
    "tuple of two columns (terms, concepts), or a DataFrame with the columns term and concept"
)


def terms_and_concepts(given: Any) -> tuple[list[str], list[str]]:
    """The columns of a dictionary in any of the forms that Python has for it.

    Args:
      given: a path for `read_dictionary`; what that returned; a dict of term -> concept; a tuple of
        two columns, terms and concepts; an iterable of (term, concept) pairs; or a DataFrame of
        pandas or polars with such columns. The concepts that share a term may be joined with "|".

    Raises:
      BadInput: it is none of these, or pairs and columns cannot be told apart.
    """
    if isinstance(given, str | Path):
        given = read_dictionary(given)
    if isinstance(given, Dictionary | EncodedDictionary):
        return list(given.terms), list(given.concepts)
    if isinstance(given, Mapping):
        columns: Iterable[Any] = (given.keys(), given.values())
    elif hasattr(given, "columns"):
        columns = (given[name] for name in named_columns(list(given.columns)))
    elif not isinstance(given, Iterable) or isinstance(given, bytes | set | frozenset):
        raise BadInput(f"the dictionary is a {type(given).__name__}; expected {FORMS}")
    else:
        columns = columns_of_rows(given if isinstance(given, tuple) else list(given))
    terms, concepts = (strings_of(column, f"a dictionary: {FORMS}") for column in columns)
    if len(terms) != len(concepts) or not terms:
        raise BadInput(
            f"the dictionary has {len(terms)} terms and {len(concepts)} concepts; expected one "
            "concept for each term, and at least one"
        )
    return terms, concepts


def named_columns(found: list[Any]) -> list[Any]:
    """The names of the columns of terms and of concepts among those of a DataFrame."""
    chosen = []
    for known, what in ((TERM_COLUMNS, "terms"), (CONCEPT_COLUMNS, "concepts")):
        fitting = [name for name in found if str(name).lower() in known]
        if len(fitting) != 1:
            raise BadInput(
                f"the dictionary's DataFrame has the columns {', '.join(map(str, found))}; "
                f"expected one of {what} among them, called {', '.join(sorted(known))}; or give "
                "a tuple of two columns (terms, concepts)"
            )
        chosen += fitting
    return chosen


def columns_of_rows(given: tuple | list) -> tuple[Any, Any]:
    """The two columns of pairs, or of a tuple or a list of the columns."""
    are_pairs = all(map(is_pair, given))
    if are_pairs and len(given) == 2:  # two by two strings
        inner = {type(one) for one in given}
        if (type(given), inner) not in ((tuple, {list}), (list, {tuple})):
            raise BadInput(
                f"the dictionary {given!r} may be two columns or two pairs; give a dict of term -> "
                "concept"
            )
        are_pairs = isinstance(given, list)
    if are_pairs:
        return [term for term, _ in given], [concept for _, concept in given]
    if len(given) == 2 and not any(isinstance(one, str) for one in given):
        return given[0], given[1]
    row = next(row for row in given if not is_pair(row))
    raise BadInput(f"the dictionary has the row {str(row)[:60]!r}; expected {FORMS}")


def is_pair(row: Any) -> bool:
    """Whether a row of a dictionary is (term, concept)."""
    return (
        isinstance(row, tuple | list) and len(row) == 2 and all(isinstance(one, str) for one in row)
    )


def dictionary_vectors(
    encoder: TermEncoder,
    terms: Sequence[str],
    *,
    unit: bool = True,
    of_run: bool = False,
    cache: bool,
    progress: bool,
) -> Rows:
    """float32 [n, D]: the vectors of the terms of a dictionary, the same to the bit either way.

    Args:
      encoder, terms, unit, of_run, progress: as for `cached_vectors`.
      cache: read them where this machine has them, and keep them for the next time.
    """
    options = {"unit": unit, "progress": progress}
    kept = cached_vectors(encoder, terms, of_run=of_run, **options) if cache else None
    return vectors_in_chunks(encoder, terms, **options) if kept is None else kept


def vectors_in_chunks(
    encoder: TermEncoder, terms: Sequence[str], *, unit: bool = True, progress: bool = False
) -> np.ndarray:
    """The vectors of many terms, equal to the bit to those that `cached_vectors` keeps."""
    if len(terms) <= TERMS_PER_CHUNK:
        return encoder.encode(list(terms), unit=unit, progress=progress)
    listed = TermList(terms, TERMS_PER_CHUNK)
    vectors = aligned((len(terms), encoder.width), np.float32)
    bar = progress_bar(total=len(terms), unit=" terms", desc="encoding", disable=not progress)
    with bar:
        numbers = range(listed.chunks)
        chunks = encoder.encode_chunks(map(listed.chunk, numbers), unit=unit, bar=bar)
        for number, chunk in enumerate(chunks):
            first = number * TERMS_PER_CHUNK
            vectors[first : first + len(chunk)] = chunk
    return vectors


def nearest_concepts(
    queries_QD: np.ndarray, dictionary: EncodedDictionary, k: int
) -> list[list[Match]]:
    """The k concepts nearest to each query; searches more terms until k concepts are among them."""
    found: list[list[Match]] = [[] for _ in queries_QD]
    open_queries = np.arange(len(queries_QD))
    width = 1 if k == 1 else k * TERMS_PER_CONCEPT
    while len(open_queries):
        width = min(width, len(dictionary.terms))
        similarity, index = search(queries_QD[open_queries], dictionary.vectors, width)
        for query, values, numbers in zip(open_queries, similarity, index, strict=True):
            found[query] = first_of_each_concept(values, numbers, dictionary, k)
        open_queries = np.array([q for q in open_queries if len(found[q]) < k], np.int64)
        width *= 8
    return found


def first_of_each_concept(
    similarity: np.ndarray, index: np.ndarray, dictionary: EncodedDictionary, k: int
) -> list[Match]:
    """The best term of each of the first k concepts among ranked terms."""
    matches: dict[str, Match] = {}
    for value, number in zip(similarity, index, strict=True):
        for concept in split_concepts(dictionary.concepts[number]):
            if concept not in matches:
                matches[concept] = Match(concept, dictionary.terms[number], float(value))
        if len(matches) >= k:
            break
    return list(matches.values())[:k]


def match_columns(
    mentions: Sequence[str], matches: Sequence[Sequence[Match]]
) -> dict[str, list[Any]]:
    """The matches of mentions as columns of a table, a row for each match."""
    rows = [
        (mention, match.concept, match.term, match.similarity, rank)
        for mention, found in zip(mentions, matches, strict=True)
        for rank, match in enumerate(found, start=1)
    ]
    names = ("mention", "concept", "matched_term", "similarity", "rank")
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def frame_maker(kind: bool | str) -> Callable[[dict[str, list[Any]]], Any]:
    """What makes a DataFrame of columns: True or "pandas", or "polars"; BadInput without it."""
    if kind == "polars":
        return pl.DataFrame
    if kind not in (True, "pandas"):
        raise BadInput(f"as_frame is {kind!r}; expected True, 'pandas' or 'polars'")
    try:
        import pandas
    except ImportError as error:
        raise BadInput(
            f"a DataFrame of pandas needs pandas, which cannot be imported ({error}): pip install "
            "pandas; or take as_frame='polars'"
        ) from error
    return pandas.DataFrame
