"""`TermEncoder`: encodes terms, and finds the nearest concepts of a dictionary for mentions.

A reader is what an encoder reads terms with: a BERT and its tokenizer, or an encoder of names.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
import polars as pl
from tokenizers import Tokenizer

from coder_jax.encoding.readers import (
    ONNX_FILES,
    Backend,
    BertReader,
    LibraryReader,
    NameReader,
    OnnxReader,
    within_positions,
)
from coder_jax.encoding.search import KeptRows, search
from coder_jax.encoding.vector_files import (
    TERMS_PER_CHUNK,
    Rows,
    TermList,
    about_file,
    about_vectors,
    cached_vectors,
    given_vectors,
    products,
    read_vectors,
    strings_of,
)
from coder_jax.encoding.vector_files import unit as unit_rows
from coder_jax.models.bert import Bert
from coder_jax.models.hf_files import (
    EncoderSettings,
    check_prompts,
    find_folder,
    read_languages,
    read_settings,
)
from coder_jax.models.hf_weights import LoadReport, load_bert
from coder_jax.models.names import (
    is_name_encoder,
    read_name_encoder,
)
from data_pipeline.dataset.dictionary import Dictionary, read_dictionary
from data_pipeline.dataset.tokenizer import load_tokenizer
from data_pipeline.files.identity import VECTORS, write_identity
from data_pipeline.files.tables import CONCEPT_COLUMNS, TERM_COLUMNS, split_concepts
from data_pipeline.files.whole import aligned, recover_folder, whole_folder, write_array
from data_pipeline.process import BadInput, Progress, progress_bar
from data_pipeline.terminology.cleaning import clean

# -------------------------------------------------------------------------------------------------
# Dictionaries with their vectors: search, save and load.

# The first search takes this many terms per wanted concept, as concepts often have several near
# terms.
_TERMS_PER_CONCEPT = 8
_VECTORS_FILE, _TERMS_FILE = "vectors.npy", "terms.parquet"
_ROWS_AT_A_TIME = 1 << 16
_SAVE_AGAIN = "encode the dictionary with this encoder and save it again"


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
    def keys(self) -> KeptRows:
        """The vectors, for `search`: accelerators keep their copy from one search to the next."""
        return KeptRows(self.vectors)

    @cached_property
    def num_concepts(self) -> int:
        return len({one for joined in set(self.concepts) for one in split_concepts(joined)})

    def save(self, folder: str | Path) -> None:
        """Writes terms, concepts, vectors and their provenance into a folder, atomically.

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
        if in_use and not (folder / _TERMS_FILE).is_file():
            raise BadInput(
                f"{folder} exists and is no saved dictionary; give a new or empty folder"
            )
        dtype = np.asarray(self.vectors[:1]).dtype
        terms = TermList(self.terms, TERMS_PER_CHUNK)
        about = about_vectors(encoder, str(encoder.name), encoder.weights_hash, terms, dtype.name)
        with whole_folder(folder) as new:
            pl.DataFrame({"term": self.terms, "concept": self.concepts}).write_parquet(
                new / _TERMS_FILE
            )
            path = new / _VECTORS_FILE
            starts = range(0, len(self.terms), _ROWS_AT_A_TIME)
            parts = (np.asarray(self.vectors[n : n + _ROWS_AT_A_TIME], dtype) for n in starts)
            write_array(path, self.vectors.shape, dtype, parts)
            write_identity(about_file(path), VECTORS, about)

    @classmethod
    def load(cls, folder: str | Path, encoder: TermEncoder) -> EncodedDictionary:
        """Loads what `save` wrote; needs the same encoder. Vectors stay on disk.

        Raises:
          BadInput: no such folder, a damaged one, or one that another encoder made or the same one
            with other settings; it says what differs.
        """
        folder = Path(folder)
        recover_folder(folder)
        try:
            rows = pl.read_parquet(folder / _TERMS_FILE, columns=["term", "concept"])
        except (OSError, pl.exceptions.PolarsError) as error:
            problem = str(error).splitlines()[0]
            raise BadInput(
                f"{folder}: found no dictionary that EncodedDictionary.save wrote, or a damaged "
                f"one ({problem}); {_SAVE_AGAIN}"
            ) from error
        terms, concepts = rows["term"].to_list(), rows["concept"].to_list()
        listed = TermList(terms, TERMS_PER_CHUNK)
        vectors = read_vectors(
            folder / _VECTORS_FILE, encoder, str(encoder.weights_hash), listed, _SAVE_AGAIN
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
_FORMS = (
    "the path of a dictionary, a dict of term -> concept, a list of (term, concept) pairs, a "
    "tuple of two columns (terms, concepts), or a DataFrame with the columns term and concept"
)


def _terms_and_concepts(given: Any) -> tuple[list[str], list[str]]:
    """The columns of a dictionary given in any of the usual Python forms.

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
        columns = (given[name] for name in _named_columns(list(given.columns)))
    elif not isinstance(given, Iterable) or isinstance(given, bytes | set | frozenset):
        raise BadInput(f"the dictionary is a {type(given).__name__}; expected {_FORMS}")
    else:
        columns = _columns_of_rows(given if isinstance(given, tuple) else list(given))
    terms, concepts = (strings_of(column, f"a dictionary: {_FORMS}") for column in columns)
    if len(terms) != len(concepts) or not terms:
        raise BadInput(
            f"the dictionary has {len(terms)} terms and {len(concepts)} concepts; expected one "
            "concept for each term, and at least one"
        )
    return terms, concepts


def _named_columns(found: list[Any]) -> list[Any]:
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


def _columns_of_rows(given: tuple | list) -> tuple[Any, Any]:
    """The two columns of pairs, or of a tuple or a list of the columns."""
    are_pairs = all(map(_is_pair, given))
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
    row = next(row for row in given if not _is_pair(row))
    raise BadInput(f"the dictionary has the row {str(row)[:60]!r}; expected {_FORMS}")


def _is_pair(row: Any) -> bool:
    """Whether a row of a dictionary is (term, concept)."""
    return (
        isinstance(row, tuple | list) and len(row) == 2 and all(isinstance(one, str) for one in row)
    )


def _finite(vectors: np.ndarray) -> np.ndarray:
    """Vectors, float32 [n, D], as they are; BadInput if one has values that are not finite."""
    broken = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if broken.size:
        raise BadInput(
            f"the encoder gives {broken.size} of {len(vectors)} terms vectors with NaN or infinite "
            "values; expected finite numbers. Its weights are damaged, or too large for the "
            "arithmetic: try dtype (--dtype) float32, else fetch or export the encoder again"
        )
    return vectors


def dictionary_vectors(
    encoder: TermEncoder,
    terms: Sequence[str],
    *,
    unit: bool = True,
    of_run: bool = False,
    cache: bool,
    progress: bool,
) -> Rows:
    """float32 [n, D]: the vectors of a dictionary's terms, bitwise equal whether cached or not.

    Args:
      encoder, terms, unit, of_run, progress: as for `cached_vectors`.
      cache: read them where this machine has them, and keep them for the next time.
    """
    options = {"unit": unit, "progress": progress}
    kept = cached_vectors(encoder, terms, of_run=of_run, **options) if cache else None
    return _vectors_in_chunks(encoder, terms, **options) if kept is None else kept


def _vectors_in_chunks(
    encoder: TermEncoder, terms: Sequence[str], *, unit: bool, progress: bool
) -> np.ndarray:
    """The vectors of many terms, bitwise equal to those of `cached_vectors`."""
    if len(terms) <= TERMS_PER_CHUNK:
        return encoder.encode(list(terms), unit=unit, progress=progress)
    listed = TermList(terms, TERMS_PER_CHUNK)
    vectors = aligned((len(terms), encoder.width), np.float32)
    bar = progress_bar(total=len(terms), unit=" terms", desc="encoding", disable=not progress)
    numbers = range(listed.chunks)
    found = encoder.encode_chunks(map(listed.chunk, numbers), unit=unit, bar=bar)
    with bar, closing(found) as chunks:
        for number, chunk in enumerate(chunks):
            first = number * TERMS_PER_CHUNK
            vectors[first : first + len(chunk)] = chunk
    return vectors


def nearest_concepts(
    queries_QD: np.ndarray, dictionary: EncodedDictionary, k: int
) -> list[list[Match]]:
    """The k concepts nearest to each query; the search widens until k concepts are found."""
    found: list[list[Match]] = [[] for _ in queries_QD]
    open_queries = np.arange(len(queries_QD))
    width = 1 if k == 1 else k * _TERMS_PER_CONCEPT
    while len(open_queries):
        width = min(width, len(dictionary.terms))
        similarity, index = search(queries_QD[open_queries], dictionary.keys, width)
        for query, values, numbers in zip(open_queries, similarity, index, strict=True):
            found[query] = _first_of_each_concept(values, numbers, dictionary, k)
        open_queries = np.array([q for q in open_queries if len(found[q]) < k], np.int64)
        width *= 8
    return found


def _first_of_each_concept(
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


def _match_columns(
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


def _frame_maker(kind: bool | str) -> Callable[[dict[str, list[Any]]], Any]:
    """A function from columns to a DataFrame: True or "pandas", or "polars"; BadInput if not
    installed.
    """
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


# -------------------------------------------------------------------------------------------------
# `TermEncoder` itself.


class TermEncoder:
    """Encodes terms and finds the concepts of mentions.

    Example:
      encoder = TermEncoder.from_pretrained("runs/demo/export")
      vectors = encoder.encode(["heart attack", "myocardial infarction"])
      print(vectors @ vectors.T)

    Attributes:
      reader: what reads terms: a BERT with its tokenizer, or an encoder of names.
      settings: pooling, cleaning, max_length, attend_padding, width.
      report: what loading found, or None for an encoder made in memory.
      name, folder: the folder or hub id that was asked for, and where it is on this machine; None
        for an encoder made in memory.
      languages: those of the terms that it was trained on, such as ("ENG",), where that is known.
    """

    name: str | None = None
    folder: Path | None = None
    languages: tuple[str, ...] = ()

    def __init__(
        self,
        bert: Bert | BertReader | NameReader | OnnxReader | LibraryReader,
        tokenizer: Tokenizer | None,
        settings: EncoderSettings | None = None,
        report: LoadReport | None = None,
    ):
        """An encoder made of parts in memory, for instance between training steps.

        Encoders of the same structure share compiled code, however many are made. `bert` may also
        be a reader, without a tokenizer. BadInput for settings or a tokenizer that do not fit.
        """
        if isinstance(bert, Bert):
            assert tokenizer is not None, "a BERT has a tokenizer"
            bert = BertReader(bert, tokenizer)
        self.reader: BertReader | NameReader | OnnxReader | LibraryReader = bert
        self.settings, self.report = settings or EncoderSettings(), report
        bert.check(self.settings, report.source if report else "TermEncoder")
        if not 0 <= self.settings.width <= bert.width:
            raise BadInput(
                f"width is {self.settings.width}, but vectors of this encoder have {bert.width} "
                "numbers; give 1 to so many, or none for all"
            )

    @property
    def bert(self) -> Bert:
        """The BERT; BadInput for an encoder of names."""
        return self.reader.bert

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer; BadInput for an encoder of names."""
        return self.reader.tokenizer

    @property
    def width(self) -> int:
        """The width D of a vector."""
        return self.settings.width or self.reader.width

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | Path,
        pooling: str | None = None,
        *,
        cleaning: str | None = None,
        max_length: int | None = None,
        attend_padding: bool | None = None,
        prompt: str | None = None,
        width: int | None = None,
        dtype: Any = jnp.float32,
        backend: Backend = "jax",
    ) -> TermEncoder:
        """Loads an export of ours, or any BERT, RoBERTa, ModernBERT, MPNet or DistilBERT.

        What is None comes from the folder: coder_jax.json of our exports, or the pooling and
        length of a sentence-transformers model, or else the paper's: [CLS], 32 tokens, and no
        cleaning (but runs of blanks become one, which byte-level tokenizers see). The released
        CODER checkpoints want pooling='pooler', attend_padding=True.

        Args:
          path_or_hub_id: a local folder, or a hub id such as 'org/name'.
          pooling: 'cls', 'mean' or 'pooler'.
          cleaning: rule set for terms, 'none' or 'paper'.
          max_length: longest term in tokens, [CLS] and [SEP] included.
          attend_padding: pad every term to max_length and attend to the padding.
          prompt: what to put before each cleaned term, such as 'query: ' (E5).
          width: keep the first so many numbers of a vector, of an encoder that was trained with
            --matryoshka.
          dtype: compute dtype, float32 or bfloat16.
          backend: 'jax', or 'onnx' or 'onnx-int8' for what `export --onnx --int8` has written: ONNX
            Runtime is often faster on a CPU. Or 'sentence-transformers', for any encoder that it
            opens; its modules pool as the folder says, or by 'cls', 'mean' or 'last'.

        Raises:
          BadInput: no such model, another architecture, a tokenizer of another model, a pooling
            that the folder's files do not settle.
        """
        changes = {
            "cleaning": cleaning,
            "max_length": max_length,
            "attend_padding": attend_padding,
            "prompt": prompt,
            "width": width,
        }
        if backend == "sentence-transformers":
            local = Path(path_or_hub_id)
            there = local if local.is_dir() else find_folder(path_or_hub_id, whole=True)
            check_prompts(there, prompt, chosen=pooling is not None, lowers=True)
            reader = LibraryReader(there, pooling)
            settings = EncoderSettings(reader.pooling, max_length=reader.max_length, prompt="")
            encoder = cls(reader, None, settings.changed(**changes))
            encoder.name, encoder.folder = str(path_or_hub_id), reader.folder
            return encoder
        folder = find_folder(path_or_hub_id, onnx=backend != "jax")
        settings = read_settings(folder, pooling=pooling, prompt=prompt).changed(**changes)
        if max_length is None and not is_name_encoder(folder):
            settings = within_positions(settings, folder)
        if backend != "jax":
            encoder = cls(OnnxReader(folder, backend), None, settings)
        elif is_name_encoder(folder):
            encoder = cls(NameReader(*read_name_encoder(folder)), None, settings)
        else:
            bert, _, report = load_bert(folder, dtype=dtype, pooling=settings.pooling)
            encoder = cls(bert, load_tokenizer(folder), settings, report)
        encoder.name, encoder.folder = str(path_or_hub_id), folder
        encoder.languages = read_languages(folder)
        return encoder

    def rates_of_backends(self, terms: Sequence[str]) -> dict[str, float]:
        """Terms per second of each backend that this encoder's folder has; {} if only jax.

        Each encodes the terms twice, and the second time counts: in the first jax compiles.
        """
        folder = self.folder
        if folder is None or self.settings.attend_padding:  # which jax alone has
            return {}
        there = [name for name, file in ONNX_FILES.items() if (folder / file).is_file()]
        if not there or importlib.util.find_spec("onnxruntime") is None:
            return {}
        rates: dict[str, float] = {}
        backends: list[Backend] = ["jax", *there]
        for backend in backends:
            encoder = TermEncoder.from_pretrained(folder, backend=backend, **asdict(self.settings))
            for _ in range(2):
                started = time.perf_counter()
                encoder.encode(terms)
                rates[backend] = len(terms) / (time.perf_counter() - started)
        return rates

    @cached_property
    def weights_hash(self) -> str | None:
        """SHA-256 of the weight files; None for an encoder made in memory."""
        return None if self.folder is None else self.reader.hash_of(self.folder)

    def encode(
        self,
        terms: str | Iterable[str],
        *,
        unit: bool = True,
        progress: bool = False,
        normalize_embeddings: bool | None = None,
        show_progress_bar: bool | None = None,
        batch_size: int | None = None,
        convert_to_numpy: bool = True,
    ) -> np.ndarray:
        """Vectors of terms, float32 [n, D], in the given order; [D] for a single string.

        Args:
          terms: n strings in an order (a list, a generator, an array, a Series); equal strings cost
            once. Or one string.
          unit: vectors of length 1; else as they come out of the pooling.
          progress: show a progress bar on stderr.
          normalize_embeddings, show_progress_bar: what sentence-transformers calls `unit` and
            `progress`; they go before these.
          batch_size: of sentence-transformers; without effect.
          convert_to_numpy: likewise; only True.

        Raises:
          BadInput: what is given are not strings, or have no order.
          Stopped: a signal asked for it.
        """
        if not convert_to_numpy:
            raise BadInput(
                "convert_to_numpy is False; vectors are NumPy arrays: torch.from_numpy(vectors) "
                "makes a tensor of them"
            )
        vectors = self.encode_list(
            strings_of([terms] if isinstance(terms, str) else terms, "a string or strings"),
            unit=unit if normalize_embeddings is None else normalize_embeddings,
            progress=progress if show_progress_bar is None else show_progress_bar,
        )
        return vectors[0] if isinstance(terms, str) else vectors

    def encode_list(self, terms: list[str], *, unit: bool, progress: bool) -> np.ndarray:
        """As `encode`, of a list of strings."""
        given = self._cleaned(terms), self.settings
        vectors = self.reader.embed(*given, unit=unit, progress=progress)
        return self._first_numbers(_finite(vectors), unit)

    def token_counts(self, terms: Sequence[str]) -> np.ndarray:
        """int64 [n]: how many tokens of each term are read, special ones included."""
        return self.reader.token_counts(self._cleaned(terms), self.settings)

    def encode_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        *,
        unit: bool = True,
        bar: Progress | None = None,
    ) -> Generator[np.ndarray, None, None]:
        """As `encode` for each of many lists of terms, one after the other.

        Args:
          chunks: lists of strings; read one ahead, in another thread. Close what is returned, for
            that thread to end where you stop early.
          unit: as in `encode`.
          bar: a progress bar that counts terms.
        """
        given = map(self._cleaned, chunks), self.settings
        found = self.reader.embed_chunks(*given, unit=unit, bar=bar)
        return (self._first_numbers(_finite(vectors), unit) for vectors in found)

    def _first_numbers(self, vectors: np.ndarray, unit: bool) -> np.ndarray:
        """Vectors of `settings.width`; those of length 1 are so again."""
        if not self.settings.width:
            return vectors
        first = np.ascontiguousarray(vectors[:, : self.settings.width])
        return unit_rows(first) if unit else first

    def _cleaned(self, terms: Sequence[str]) -> list[str]:
        cleaned = clean(pl.Series(list(terms), dtype=pl.String), self.settings.cleaning)
        own = isinstance(self.reader, LibraryReader)  # which puts the prompt itself
        prompt = "" if own else self.settings.prompt
        return (prompt + cleaned if prompt else cleaned).to_list()

    def similarity(self, terms: Any, others: Any) -> np.ndarray:
        """Cosines of terms with other terms, float32 [n, m].

        Args:
          terms: n strings or one, as for `encode`; or vectors, float [n, D] or [D], of any length.
          others: m of either.

        Raises:
          BadInput: neither strings nor vectors, or vectors of another width.
        """
        return products(self._unit_vectors(terms), self._unit_vectors(others))

    def _unit_vectors(self, given: Any) -> np.ndarray:
        """Unit vectors of strings, or of vectors; float32 [n, D]."""
        if isinstance(given, str):
            return self.encode([given])
        vectors = given_vectors(given)
        return self.encode(given) if vectors is None else unit_rows(vectors)

    def encode_dictionary(
        self, dictionary: DictionarySource, *, progress: bool = False, cache: bool = True
    ) -> EncodedDictionary:
        """Encodes a dictionary once, to give it to `normalize` many times.

        Args:
          dictionary: the path of a TSV file term<TAB>concept or of a dataset folder, or any of the
            forms that `_terms_and_concepts` tells: a dict of term -> concept, columns, pairs, ...
          progress: show a progress bar on stderr, and say where the vectors come from.
          cache: read the vectors where this machine has them, and keep them for the next time: see
            `vector_files.cached_vectors`.

        Raises:
          BadInput: a dictionary that cannot be read, or is none of these.
          Stopped: a signal asked for it.
        """
        if isinstance(dictionary, EncodedDictionary):
            return dictionary
        terms, concepts = _terms_and_concepts(dictionary)
        vectors = dictionary_vectors(self, terms, cache=cache, progress=progress)
        return EncodedDictionary(terms, concepts, vectors, self)

    def normalize(
        self,
        mentions: str | Iterable[str],
        dictionary: DictionarySource,
        k: int = 1,
        *,
        progress: bool = False,
        as_frame: bool | Literal["pandas", "polars"] = False,
    ) -> Any:
        """The k nearest concepts of each mention, best first: list[list[Match]].

        A concept is as near as its nearest term (zero-shot normalization of the CODER paper); of
        equal ones the earlier in the dictionary comes first. Fewer than k matches where the
        dictionary has fewer concepts.

        Args:
          mentions: strings, as for `encode`; one string is one mention.
          dictionary: as in `encode_dictionary`, or what that returned.
          k: concepts per mention, at least 1.
          progress: as in `encode_dictionary`.
          as_frame: return a DataFrame of pandas (True) or "polars", a row for each match.

        Raises:
          BadInput: k below 1, no such dictionary, mentions that are no strings, or no pandas.
          Stopped: a signal asked for it.
        """
        if k < 1:
            raise BadInput(f"k is {k}; expected at least 1 concept per mention")
        make_frame = _frame_maker(as_frame) if as_frame else None
        mentions = strings_of([mentions] if isinstance(mentions, str) else mentions)
        encoded = self.encode_dictionary(dictionary, progress=progress)
        k = min(k, encoded.num_concepts)
        found = nearest_concepts(self.encode(mentions, progress=progress), encoded, k)
        return make_frame(_match_columns(mentions, found)) if make_frame else found

    def __repr__(self) -> str:
        settings = self.settings
        words = [repr(self.name or "in memory"), f"width={self.width}"]
        told = {**asdict(settings), "prompt": settings.prompt or None, "width": None}
        words += [f"{name}={value!r}" for name, value in told.items() if value is not None]
        words += [f"languages={self.languages}"] if self.languages else []
        return f"{type(self).__name__}({', '.join(words)})"


# -------------------------------------------------------------------------------------------------
# An encoder with a cache in memory: each term is encoded once.
#
# For a few tens of thousands of terms that several parts of one program look at, such as scores,
# plots and a report: it keeps the vectors of all terms in memory.


class RememberingEncoder(TermEncoder):
    """A `TermEncoder` with a cache: `encode` encodes only terms that it has not encoded before."""

    def __init__(self, encoder: TermEncoder):
        super().__init__(encoder.reader, None, encoder.settings, encoder.report)
        self.name, self.languages = encoder.name, encoder.languages
        self.held: dict[str, np.ndarray] = {}  # term -> float32 [D], of unit length

    def encode_list(self, terms: list[str], *, unit: bool, progress: bool) -> np.ndarray:
        """As `TermEncoder.encode_list`; only unit-length vectors are cached."""
        if not unit:
            return super().encode_list(terms, unit=False, progress=progress)
        new = [term for term in dict.fromkeys(terms) if term not in self.held]
        if new:
            vectors = super().encode_list(new, unit=True, progress=progress)
            self.held.update(zip(new, vectors, strict=True))
        held = [self.held[term] for term in terms]
        return np.array(held, np.float32).reshape(len(held), self.width)
