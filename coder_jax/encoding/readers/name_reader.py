"""An encoder of names as what reads terms: any string of characters gets a vector."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np

from coder_jax.encoding.encoder_protocol import hash_arrays
from coder_jax.encoding.readers.embed_names import embed_names, place
from coder_jax.models.encoder_settings import OF_NAMES, EncoderSettings
from coder_jax.models.names.files import WEIGHT_FILES
from coder_jax.models.names.name_encoder import NameEncoderConfig
from data_pipeline.batches.names.alphabet import Alphabet
from data_pipeline.dataset.aligned import aligned
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import Progress, progress_bar
from data_pipeline.skip_gram.store import VectorTable
from data_pipeline.sources.text.words import rules_hash

CHUNK_NAMES = 1 << 15


class NameReader:
    """Reads terms as words and characters.

    Args:
      config, params: the encoder.
      alphabet: its characters.
      vectors: of words.
    """

    def __init__(
        self, config: NameEncoderConfig, params: Any, alphabet: Alphabet, vectors: VectorTable
    ):
        self.config, self.params, self.alphabet, self.vectors = config, params, alphabet, vectors

    @property
    def bert(self) -> NoReturn:
        """There is none.

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
        """Of a vector."""
        return self.config.width

    @property
    def structure(self) -> str:
        """All of its shape that vectors depend on."""
        return repr(self.config)

    @property
    def tokenizer_hash(self) -> str:
        """Of the rules that make words of terms."""
        return rules_hash()

    lowercases = True
    dtype = "float32"

    def hash_of(self, folder: Path) -> str:
        """SHA-256 of the weight files that it was read from, the vectors of words too."""
        digest = hashlib.sha256()
        for name in WEIGHT_FILES:
            with (folder / name).open("rb") as file:
                hashlib.file_digest(file, lambda: digest)
        return digest.hexdigest()

    def hash_of_parameters(self) -> str:
        """SHA-256 of all that it knows, of an encoder that was read from no folder."""
        known = "\n".join([self.alphabet.characters, *self.vectors.strings]).encode()
        words = [np.frombuffer(known, np.uint8), self.vectors.vectors]
        return hash_arrays([*jax.tree.leaves(dict(self.params)), *words])

    def check(self, settings: EncoderSettings, source: str) -> None:
        """Raises BadInput for settings of a BERT."""
        if settings.pooling != OF_NAMES or settings.attend_padding:
            asked = "attend_padding" if settings.attend_padding else f"pooling {settings.pooling!r}"
            raise BadInput(
                f"{source}: found {asked}; an encoder of names (BNE) has {OF_NAMES!r} alone: "
                "leave it out"
            )

    @cached_property
    def _placed(self) -> Any:
        return place(self.config, self.params)

    def embed(
        self,
        terms: Sequence[str],
        settings: EncoderSettings,
        *,
        unit: bool,
        rows: int | None,
        progress: bool,
    ) -> np.ndarray:
        """float32 [n, D], in the order of cleaned terms, aligned for `search`; equal ones once."""
        slot = {term: i for i, term in enumerate(dict.fromkeys(terms))}
        distinct = list(slot)
        found = aligned((len(distinct), self.width), np.float32)
        bar = progress_bar(
            total=len(distinct), unit=" terms", desc="encoding", disable=not progress
        )
        with bar:
            for first in range(0, len(distinct), CHUNK_NAMES):
                some = distinct[first : first + CHUNK_NAMES]
                found[first : first + len(some)] = self._vectors(some, settings, unit, rows, bar)
        if len(distinct) == len(terms):
            return found
        places = np.fromiter((slot[term] for term in terms), np.int64, len(terms))
        repeated = aligned((len(terms), self.width), np.float32)
        return np.take(found, places, axis=0, out=repeated, mode="clip")  # "raise" would copy

    def embed_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        settings: EncoderSettings,
        *,
        unit: bool,
        rows: int | None,
        bar: Progress | None,
    ) -> Iterator[np.ndarray]:
        """Vectors of each of many lists of cleaned terms, one after the other."""
        for terms in chunks:
            vectors = self.embed(terms, settings, unit=unit, rows=rows, progress=False)
            if bar is not None:
                bar.update(len(terms))
            yield vectors

    def _vectors(
        self,
        terms: list[str],
        settings: EncoderSettings,
        unit: bool,
        rows: int | None,
        bar: Progress,
    ) -> np.ndarray:
        most = settings.max_length - 2  # the marks around a name count
        given = self._placed, self.alphabet, self.vectors, terms
        return embed_names(*given, most_words=most, unit=unit, rows=rows, bar=bar)
