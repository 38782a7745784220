"""What reads terms for a `TermEncoder`: a BERT in JAX, an encoder of names, or an ONNX file."""

from __future__ import annotations

import abc
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

from coder_jax.devices.hosts import log
from coder_jax.encoding.embed import (
    Placed,
    embed_chunks,
    embed_distinct,
    embed_names,
    embed_terms,
    place,
    place_names,
)
from coder_jax.encoding.vector_files import hash_arrays, hash_weights
from coder_jax.encoding.vector_files import unit as unit_rows
from coder_jax.models.bert import Bert, split_encoder
from coder_jax.models.bert_config import POOLINGS, BertConfig
from coder_jax.models.hf_files import OF_LIBRARY, OF_NAMES, EncoderSettings
from coder_jax.models.hf_weights import check_vocabulary, read_config
from coder_jax.models.names import WEIGHT_FILES, NameEncoderConfig
from data_pipeline import process
from data_pipeline.batches.bne import Alphabet
from data_pipeline.dataset.tokenizer import (
    load_tokenizer,
    tokenize,
    tokenizer_hash,
    vocabulary_size,
)
from data_pipeline.files.identity import LONGEST, read_json
from data_pipeline.process import BadInput, Progress
from data_pipeline.skip_gram.store import StringVectors
from data_pipeline.sources.text import rules_hash, words_of

# -------------------------------------------------------------------------------------------------
# The reader of terms for a BERT.


class _WordPieces:
    """What depends on a reader's tokenizer alone."""

    tokenizer: Tokenizer

    @cached_property
    def tokenizer_hash(self) -> str:
        """The hash of the tokenizer."""
        return tokenizer_hash(self.tokenizer)

    @property
    def lowercases(self) -> bool:
        """Whether the tokenizer lower-cases."""
        normalizer = self.tokenizer.normalizer
        return normalizer is not None and normalizer.normalize_str("A") == "a"

    def token_counts(self, terms: Sequence[str], settings: EncoderSettings) -> np.ndarray:
        """int64 [n]: the word pieces of cleaned terms."""
        return np.diff(tokenize(self.tokenizer, terms, settings.max_length)[1])


class BertReader(_WordPieces):
    """Reads terms as word pieces.

    Args:
      bert: the encoder.
      tokenizer: its own.
    """

    def __init__(self, bert: Bert, tokenizer: Tokenizer):
        self.bert, self.tokenizer = bert, tokenizer

    @property
    def width(self) -> int:
        """The width of a vector."""
        return self.bert.config.hidden_size

    @property
    def structure(self) -> str:
        """All of the network's shape that vectors depend on."""
        return repr(self.bert.config)

    @property
    def dtype(self) -> str:
        """The dtype of its arithmetic."""
        return jnp.dtype(self.bert.dtype).name

    def hash_of(self, folder: Path) -> str:
        """SHA-256 of the weight files that it was read from."""
        return hash_weights(folder)

    def hash_of_parameters(self) -> str:
        """SHA-256 of the parameters, for an encoder that was not read from files."""
        return hash_arrays(jax.tree.leaves(split_encoder(self.bert)[1]))

    def check(self, settings: EncoderSettings, source: str) -> None:
        """Raises BadInput for settings or a tokenizer that do not fit the encoder."""
        if settings.pooling not in POOLINGS:
            raise BadInput(
                f"{source}: pooling is {settings.pooling!r}, which is of an encoder of names; "
                f"expected one of {', '.join(POOLINGS)}"
            )
        check_vocabulary(vocabulary_size(self.tokenizer), self.bert.config, source)
        if settings.pooling == "pooler" and self.bert.pooler is None:
            raise BadInput(f"{source}: pooling is 'pooler', but the weights have no pooler")
        if settings.attend_padding and self.bert.config.model_type != "bert":
            raise BadInput(
                f"{source}: attend_padding (--attend-padding) is for the published CODER "
                f"checkpoints, which are BERTs; found {self.bert.config.model_type}: "
                "encode without it"
            )

    @cached_property
    def _placed(self) -> Placed:
        return place(self.bert)

    def embed(
        self,
        terms: Sequence[str],
        settings: EncoderSettings,
        *,
        unit: bool,
        progress: bool,
    ) -> np.ndarray:
        """As `embed_terms`, of cleaned terms."""
        given = self._placed, self.tokenizer, terms
        return embed_terms(*given, **_how(settings), unit=unit, progress=progress)

    def embed_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        settings: EncoderSettings,
        *,
        unit: bool,
        bar: Progress | None,
    ) -> Iterator[np.ndarray]:
        """As `embed.embed_chunks`, of cleaned terms."""
        how = _how(settings)
        return embed_chunks(self._placed, self.tokenizer, chunks, **how, unit=unit, bar=bar)


def within_positions(settings: EncoderSettings, folder: Path) -> EncoderSettings:
    """The settings of a folder, for terms no longer than its encoder has positions."""
    path = folder / "config.json"
    longest = read_config(read_json(path), str(path)).longest_term
    if settings.max_length <= longest:
        return settings
    if settings.max_length < LONGEST:  # a length that the folder names
        log(
            f"{folder} asks for terms of up to {settings.max_length} tokens, but its encoder has "
            f"{longest} positions: longer terms are cut to {longest}"
        )
    return settings.changed(max_length=longest)


def _how(settings: EncoderSettings) -> dict[str, Any]:
    """The settings in the form that `embed_terms` takes."""
    apart = ("cleaning", "prompt", "width")  # before the tokenizer, and after the pooling
    return {name: value for name, value in asdict(settings).items() if name not in apart}


# -------------------------------------------------------------------------------------------------
# Readers that encode each distinct term once, some at a time.


class _ReaderOfDistinct(abc.ABC):
    """A reader whose `_vectors` encodes distinct terms; see `BertReader` for the rest."""

    chunk_terms: int
    """Terms that are encoded together."""

    @property
    @abc.abstractmethod
    def width(self) -> int:
        """The dimension of a vector."""

    @abc.abstractmethod
    def _vectors(
        self,
        terms: list[str],
        settings: EncoderSettings,
        unit: bool,
        bar: Progress,
    ) -> np.ndarray:
        """float32 [n, D]: the vectors of distinct cleaned terms."""

    def embed(
        self,
        terms: Sequence[str],
        settings: EncoderSettings,
        *,
        unit: bool,
        progress: bool,
    ) -> np.ndarray:
        """float32 [n, D]: the vectors of cleaned terms, in their order."""

        def encode(chunks: Iterable[Sequence[str]], bar: Progress) -> Iterator[np.ndarray]:
            return (self._vectors(list(some), settings, unit, bar) for some in chunks)

        return embed_distinct(terms, self.width, self.chunk_terms, encode, progress=progress)

    def embed_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        settings: EncoderSettings,
        *,
        unit: bool,
        bar: Progress | None,
    ) -> Iterator[np.ndarray]:
        """Vectors of each of many lists of cleaned terms, one after the other."""
        for terms in chunks:
            vectors = self.embed(terms, settings, unit=unit, progress=False)
            if bar is not None:
                bar.update(len(terms))
            yield vectors


# -------------------------------------------------------------------------------------------------
# The reader of terms for an encoder of names, which gives a vector to any string.


class NameReader(_ReaderOfDistinct):
    """Reads terms as words and characters.

    Args:
      config, params: the encoder.
      alphabet: its characters.
      vectors: of words.
    """

    def __init__(
        self, config: NameEncoderConfig, params: Any, alphabet: Alphabet, vectors: StringVectors
    ):
        self.config, self.params, self.alphabet, self.vectors = config, params, alphabet, vectors

    @property
    def bert(self) -> NoReturn:
        """Raises: an encoder of names has no BERT.

        Raises:
          BadInput: always.
        """
        raise BadInput(
            "the model is an encoder of names (BNE), which has no BERT and no word pieces; what "
            "was asked for needs a BERT: give another --model"
        )

    tokenizer = bert

    @property
    def width(self) -> int:
        """The width of a vector."""
        return self.config.width

    @property
    def structure(self) -> str:
        """All of the network's shape that vectors depend on."""
        return repr(self.config)

    @property
    def tokenizer_hash(self) -> str:
        """The hash of the rules that split terms into words."""
        return rules_hash()

    lowercases = True
    dtype = "float32"
    chunk_terms = 1 << 15

    def hash_of(self, folder: Path) -> str:
        """SHA-256 of the weight files that it was read from, word vectors included."""
        digest = hashlib.sha256()
        for name in WEIGHT_FILES:
            with (folder / name).open("rb") as file:
                hashlib.file_digest(file, lambda: digest)
        return digest.hexdigest()

    def hash_of_parameters(self) -> str:
        """SHA-256 of all parameters and vectors, for an encoder that was not read from files."""
        known = "\n".join([self.alphabet.characters, *self.vectors.strings]).encode()
        words = [np.frombuffer(known, np.uint8), self.vectors.vectors]
        return hash_arrays([*jax.tree.leaves(dict(self.params)), *words])

    def check(self, settings: EncoderSettings, source: str) -> None:
        """Raises BadInput for settings that only a BERT has."""
        if settings.pooling != OF_NAMES or settings.attend_padding:
            asked = "attend_padding" if settings.attend_padding else f"pooling {settings.pooling!r}"
            raise BadInput(
                f"{source}: found {asked}; an encoder of names (BNE) has {OF_NAMES!r} alone: "
                "leave it out"
            )

    def token_counts(self, terms: Sequence[str], settings: EncoderSettings) -> np.ndarray:
        """int64 [n]: the words of cleaned terms, and the marks around each."""
        words = [len(words_of(term)) + 2 for term in terms]
        return np.minimum(np.array(words, np.int64), settings.max_length)

    @cached_property
    def _placed(self) -> Any:
        return place_names(self.config, self.params)

    def _vectors(
        self,
        terms: list[str],
        settings: EncoderSettings,
        unit: bool,
        bar: Progress,
    ) -> np.ndarray:
        most = settings.max_length - 2  # the marks around a name count
        given = self._placed, self.alphabet, self.vectors, terms
        return embed_names(*given, most_words=most, unit=unit, bar=bar)


# -------------------------------------------------------------------------------------------------
# Encoders as ONNX files, which ONNX Runtime runs: often the fastest on a CPU.
# `coder_jax.export.onnx_files` writes such files into an export.

# What runs the encoder.
Backend = Literal["jax", "onnx", "onnx-int8", "sentence-transformers"]
# The backends that read such a file, and its name in a folder.
ONNX_FILES: dict[Backend, str] = {"onnx": "model.onnx", "onnx-int8": "model_int8.onnx"}
_TERMS_BETWEEN_POLLS = 1024
_BATCH_TERMS = 64  # of much the same length, so that there is little padding


class OnnxReader(_WordPieces, _ReaderOfDistinct):
    """Reads terms as word pieces, with ONNX Runtime on the CPU.

    Args:
      folder: of an export that has the file.
      backend: a key of `ONNX_FILES`.

    Raises:
      BadInput: the file is not there, or cannot be read.
      ModuleNotFoundError: ONNX Runtime is not installed.
    """

    chunk_terms = 1 << 14  # sorted by length together

    def __init__(self, folder: Path, backend: Backend):
        self.path = folder / ONNX_FILES[backend]
        if not self.path.is_file():
            raise BadInput(
                f"{folder} has no {self.path.name}; write it with `python -m coder_jax export "
                f"--onnx{' --int8' if 'int8' in backend else ''}`, or take the backend jax"
            )
        self.config: BertConfig = read_config(read_json(folder / "config.json"), str(folder))
        self.tokenizer = load_tokenizer(folder)
        self.session = _session(self.path)
        self.inputs = {one.name for one in self.session.get_inputs()}
        self.outputs = {one.name for one in self.session.get_outputs()}

    @property
    def bert(self) -> NoReturn:
        """Raises BadInput: there is no encoder in JAX."""
        raise BadInput(
            f"{self.path} is run by ONNX Runtime; what was asked for needs the encoder in JAX: "
            "take the backend jax"
        )

    @property
    def width(self) -> int:
        """The dimension of a vector."""
        return self.config.hidden_size

    @property
    def structure(self) -> str:
        """All of its shape that vectors depend on."""
        return f"{self.config!r} in {self.path.name}"

    @property
    def dtype(self) -> str:
        """The arithmetic."""
        return "int8" if self.path.name == ONNX_FILES["onnx-int8"] else "float32"

    def hash_of(self, folder: Path) -> str:
        """SHA-256 of the ONNX file."""
        with (folder / self.path.name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def hash_of_parameters(self) -> str:
        """SHA-256 of the ONNX file."""
        return self.hash_of(self.path.parent)

    def check(self, settings: EncoderSettings, source: str) -> None:
        """Raises BadInput for settings, or a tokenizer, that do not fit the file."""
        check_vocabulary(vocabulary_size(self.tokenizer), self.config, source)
        if settings.attend_padding or settings.pooling not in POOLINGS:
            asked = "attend_padding" if settings.attend_padding else f"pooling {settings.pooling!r}"
            raise BadInput(f"{source}: found {asked}, which the backend jax alone has")
        if settings.pooling == "pooler" and "pooler_output" not in self.outputs:
            raise BadInput(
                f"{source}: pooling is 'pooler', but {self.path.name} was exported with another "
                "pooling and has no pooler"
            )
        if settings.max_length > self.config.longest_term:
            raise BadInput(
                f"{source}: max_length is {settings.max_length}; expected at most "
                f"{self.config.longest_term}, the positions that the encoder has"
            )

    def _vectors(
        self,
        terms: list[str],
        settings: EncoderSettings,
        unit: bool,
        bar: Progress,
    ) -> np.ndarray:
        """float32 [n, D]: the vectors of distinct terms, the longest first through the encoder."""
        tokens, start = tokenize(self.tokenizer, terms, settings.max_length)
        lengths = np.diff(start)
        order = np.argsort(-lengths, kind="stable")
        vectors = np.empty((len(terms), self.width), np.float32)
        for first in range(0, len(terms), _BATCH_TERMS):
            process.poll()
            chosen = order[first : first + _BATCH_TERMS]
            mask = np.arange(lengths[chosen[0]]) < lengths[chosen, None]
            ids = np.full(mask.shape, self.config.pad_token_id, np.int64)
            ids[mask] = np.concatenate([tokens[start[n] : start[n + 1]] for n in chosen])
            given = {
                "input_ids": ids,
                "attention_mask": mask.astype(np.int64),
                "token_type_ids": np.zeros_like(ids),
            }
            fed = {name: array for name, array in given.items() if name in self.inputs}
            vectors[chosen] = self._pooled(fed, mask, settings.pooling)
            bar.update(len(chosen))
        return unit_rows(vectors) if unit else vectors

    def _pooled(self, fed: dict[str, np.ndarray], mask: np.ndarray, pooling: str) -> np.ndarray:
        if pooling == "pooler":
            return self.session.run(["pooler_output"], fed)[0]
        (hidden,) = self.session.run(["last_hidden_state"], fed)
        if pooling == "cls":
            return hidden[:, 0]
        if pooling == "pieces":  # neither the first token nor the last of each term
            mask = mask & np.roll(mask, -1, axis=1)
            mask[:, [0, -1]] = False
        weights = mask[:, :, None].astype(np.float32)
        return (hidden * weights).sum(1) / np.maximum(weights.sum(1), 1)


# -------------------------------------------------------------------------------------------------
# Encoders that sentence-transformers runs: whatever it opens, such as decoders, whose last token is
# the vector, or folders with modules of their own.


class LibraryReader(_WordPieces, _ReaderOfDistinct):
    """Reads terms with sentence-transformers.

    Args:
      path_or_hub_id: a folder, or a hub id, of which it fetches what it needs.
      pooling: 'cls', 'mean' or 'last' in place of the folder's own; None: its modules as they are.

    Raises:
      BadInput: it cannot open the model.
      ModuleNotFoundError: sentence-transformers is not installed.
    """

    chunk_terms = 1 << 14
    model: Any  # a SentenceTransformer, of a library that is imported when it is used

    def __init__(self, path_or_hub_id: str | Path, pooling: str | None):
        from sentence_transformers import SentenceTransformer, __version__  # of an extra
        from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

        name = str(path_or_hub_id)
        self.pooling = pooling or OF_LIBRARY[0]
        modes = {"cls": "cls", "mean": "mean", "last": "lasttoken"}
        if self.pooling not in (OF_LIBRARY[0], *modes):
            raise BadInput(
                f"{name}: pooling is {pooling!r}; expected one of {', '.join(modes)} where "
                "sentence-transformers runs the encoder, or none: as its folder says"
            )
        try:
            if pooling in modes:
                first = Transformer(name)
                pooled = Pooling(first.get_embedding_dimension(), modes[str(pooling)])
                self.model = SentenceTransformer(modules=[first, pooled])
            else:
                self.model = SentenceTransformer(name)
        except Exception as error:  # of the hub, of configurations, of weights: no common class
            raise BadInput(
                f"{name} cannot be opened by sentence-transformers ({type(error).__name__}: "
                f"{str(error).partition(chr(10))[0]:.300}); expected a folder or a hub id of an "
                "encoder that it opens"
            ) from error
        self.model.default_prompt_name = None  # prompts are those of the settings
        self.folder = Path(name) if Path(name).is_dir() else None
        backend = getattr(self.model.tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise BadInput(f"{name}: its tokenizer is none of the library tokenizers: expected one")
        # A copy: the library turns padding and truncation on in its own when it encodes.
        self.tokenizer = Tokenizer.from_str(backend.to_str())
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.max_length = min(int(self.model.max_seq_length or LONGEST), LONGEST)
        self.structure = f"{self.model!r} by sentence-transformers {__version__}"

    @property
    def bert(self) -> NoReturn:
        """Raises BadInput: there is no encoder in JAX."""
        raise BadInput(
            "sentence-transformers runs the encoder; what was asked for needs the encoder in JAX: "
            "take the backend jax"
        )

    @property
    def width(self) -> int:
        """The dimension of a vector."""
        return int(self.model.get_embedding_dimension())

    @property
    def dtype(self) -> str:
        """The arithmetic."""
        return str(next(self.model.parameters()).dtype).removeprefix("torch.")

    @property
    def parameters(self) -> int:
        """How many parameters it has."""
        return sum(one.numel() for one in self.model.parameters())

    def hash_of(self, folder: Path) -> str:
        """SHA-256 of the parameters."""
        return self.hash_of_parameters()

    def hash_of_parameters(self) -> str:
        """SHA-256 of the parameters."""
        tensors = sorted(self.model.state_dict().items())
        return hash_arrays(tensor.float().cpu().numpy() for _, tensor in tensors)

    def check(self, settings: EncoderSettings, source: str) -> None:
        """Raises BadInput for settings that it does not have."""
        if settings.attend_padding or settings.pooling != self.pooling:
            asked = "attend_padding" if settings.attend_padding else f"pooling {settings.pooling!r}"
            raise BadInput(f"{source}: found {asked}, which the backend jax alone has")

    def _vectors(
        self,
        terms: list[str],
        settings: EncoderSettings,
        unit: bool,
        bar: Progress,
    ) -> np.ndarray:
        self.model.max_seq_length = settings.max_length
        parts = []
        for first in range(0, len(terms), _TERMS_BETWEEN_POLLS):
            process.poll()
            some = terms[first : first + _TERMS_BETWEEN_POLLS]
            # It puts the prompt itself, as some poolings leave it out.
            options = {"prompt": settings.prompt or None, "batch_size": _BATCH_TERMS}
            parts.append(self.model.encode(some, show_progress_bar=False, **options))
            bar.update(len(some))
        vectors = np.concatenate(parts).astype(np.float32)
        return unit_rows(vectors) if unit else vectors


def _session(path: Path) -> Any:
    """An ONNX file, ready to run."""
    import onnxruntime  # of the extra `onnx`

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    )
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of a damaged file: its own exceptions have no common class
        raise BadInput(f"{path} cannot be read: {error}; export it again") from error
