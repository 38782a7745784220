"""TermEncoder: a pre-trained model in; terms to vectors, mentions to concepts out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
import polars as pl
from tokenizers import Tokenizer

from coder_jax.encoding.encoded_dictionary import (
    DictionarySource,
    EncodedDictionary,
    Match,
    dictionary_vectors,
    frame_maker,
    match_columns,
    nearest_concepts,
    terms_and_concepts,
)
from coder_jax.encoding.readers.bert_reader import BertReader
from coder_jax.encoding.readers.name_reader import NameReader
from coder_jax.encoding.rows import given_vectors, products
from coder_jax.encoding.rows import unit as unit_rows
from coder_jax.encoding.term_lines import strings_of
from coder_jax.models.bert import Bert
from coder_jax.models.encoder_settings import EncoderSettings, read_languages, read_settings
from coder_jax.models.hf_files import find_folder
from coder_jax.models.hf_weights import LoadReport, load_bert
from coder_jax.models.names.files import is_name_encoder, read_name_encoder
from data_pipeline.dataset.tokenize_terms import load_tokenizer
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import Progress
from data_pipeline.terminology.cleaning.rules import clean

__all__ = ["EncodedDictionary", "Match", "TermEncoder", "nearest_concepts"]


class TermEncoder:
    """Encodes terms and finds the concepts of mentions.

    Example:
      encoder = TermEncoder.from_pretrained("runs/demo/export")
      vectors = encoder.encode(["heart attack", "myocardial infarction"])
      print(vectors @ vectors.T)

    Attributes:
      reader: what reads terms: a BERT with its tokenizer, or an encoder of names.
      settings: pooling, cleaning, max_length, attend_padding.
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
        bert: Bert | BertReader | NameReader,
        tokenizer: Tokenizer | None,
        settings: EncoderSettings | None = None,
        report: LoadReport | None = None,
    ):
        """From parts in memory, for instance between training steps.

        Encoders of the same structure share compiled code, however many are made. `bert` may also
        be a reader, without a tokenizer. BadInput for settings or a tokenizer that do not fit.
        """
        if isinstance(bert, Bert):
            assert tokenizer is not None, "a BERT has a tokenizer"
            bert = BertReader(bert, tokenizer)
        self.reader: BertReader | NameReader = bert
        self.settings, self.report = settings or EncoderSettings(), report
        bert.check(self.settings, report.source if report else "TermEncoder")

    @property
    def bert(self) -> Bert:
        """The encoder; BadInput of an encoder of names."""
        return self.reader.bert

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer; BadInput of an encoder of names."""
        return self.reader.tokenizer

    @property
    def width(self) -> int:
        """D, of a vector."""
        return self.reader.width

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | Path,
        pooling: str | None = None,
        *,
        cleaning: str | None = None,
        max_length: int | None = None,
        attend_padding: bool | None = None,
        dtype: Any = jnp.float32,
    ) -> TermEncoder:
        """Loads an export of ours, or any BERT, RoBERTa or ModernBERT, from a folder or the hub.

        What is None comes from the folder: coder_jax.json of our exports, or the pooling and
        length of a sentence-transformers model, or else the paper's: [CLS], 32 tokens, and no
        cleaning. The released CODER checkpoints want pooling='pooler', attend_padding=True.

        Args:
          path_or_hub_id: a local folder, or a hub id such as 'org/name'.
          pooling: 'cls', 'mean' or 'pooler'.
          cleaning: rule set for terms, 'none' or 'paper'.
          max_length: longest term in tokens, [CLS] and [SEP] included.
          attend_padding: pad every term to max_length and attend to the padding.
          dtype: compute dtype, float32 or bfloat16.

        Raises:
          BadInput: no such model, another architecture, a tokenizer of another model, a pooling
            that the folder's files do not settle.
        """
        folder = find_folder(path_or_hub_id)
        settings = read_settings(folder, pooling=pooling).changed(
            cleaning=cleaning, max_length=max_length, attend_padding=attend_padding
        )
        if is_name_encoder(folder):
            encoder = cls(NameReader(*read_name_encoder(folder)), None, settings)
        else:
            bert, _, report = load_bert(folder, dtype=dtype, pooling=settings.pooling)
            encoder = cls(bert, load_tokenizer(folder), settings, report)
        encoder.name, encoder.folder = str(path_or_hub_id), folder
        encoder.languages = read_languages(folder)
        return encoder

    @cached_property
    def weights_hash(self) -> str | None:
        """SHA-256 of the weight files; None for an encoder made in memory."""
        return None if self.folder is None else self.reader.hash_of(self.folder)

    def encode(
        self,
        terms: str | Iterable[str],
        *,
        unit: bool = True,
        rows: int | None = None,
        progress: bool = False,
        normalize_embeddings: bool | None = None,
        show_progress_bar: bool | None = None,
        batch_size: int | None = None,
        convert_to_numpy: bool = True,
    ) -> np.ndarray:
        """Vectors of terms, float32 [n, D], in the order given; [D] of a single string.

        Args:
          terms: n strings in an order (a list, a generator, an array, a Series); equal strings cost
            once. Or one string.
          unit: vectors of length 1; else as they come out of the pooling.
          rows: packed rows of 128 tokens per device and batch; chosen for the machine if None.
          progress: show a progress bar on stderr.
          normalize_embeddings, show_progress_bar: what sentence-transformers calls `unit` and
            `progress`; they go before these.
          batch_size: of sentence-transformers; without effect, as `rows` says it.
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
            [terms] if isinstance(terms, str) else strings_of(terms, "a string or strings"),
            unit=unit if normalize_embeddings is None else normalize_embeddings,
            rows=rows,
            progress=progress if show_progress_bar is None else show_progress_bar,
        )
        return vectors[0] if isinstance(terms, str) else vectors

    def encode_list(
        self, terms: list[str], *, unit: bool, rows: int | None, progress: bool
    ) -> np.ndarray:
        """As `encode`, of a list of strings."""
        given = self._cleaned(terms), self.settings
        return self.reader.embed(*given, unit=unit, rows=rows, progress=progress)

    def encode_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        *,
        unit: bool = True,
        rows: int | None = None,
        bar: Progress | None = None,
    ) -> Iterator[np.ndarray]:
        """As `encode` for each of many lists of terms, one after the other.

        Args:
          chunks: lists of strings; read one ahead, in another thread.
          unit, rows: as in `encode`.
          bar: a progress bar that counts terms.
        """
        given = map(self._cleaned, chunks), self.settings
        return self.reader.embed_chunks(*given, unit=unit, rows=rows, bar=bar)

    def _cleaned(self, terms: Sequence[str]) -> list[str]:
        return clean(pl.Series(list(terms), dtype=pl.String), self.settings.cleaning).to_list()

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
            forms that `terms_and_concepts` tells: a dict of term -> concept, columns, pairs, ...
          progress: show a progress bar on stderr, and say where the vectors come from.
          cache: read the vectors where this machine has them, and keep them for the next time: see
            `vector_cache.cached_vectors`.

        Raises:
          BadInput: a dictionary that cannot be read, or is none of these.
          Stopped: a signal asked for it.
        """
        if isinstance(dictionary, EncodedDictionary):
            return dictionary
        terms, concepts = terms_and_concepts(dictionary)
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
        make_frame = frame_maker(as_frame) if as_frame else None
        mentions = [mentions] if isinstance(mentions, str) else strings_of(mentions)
        encoded = self.encode_dictionary(dictionary, progress=progress)
        k = min(k, encoded.num_concepts)
        found = nearest_concepts(self.encode(mentions, progress=progress), encoded, k)
        return make_frame(match_columns(mentions, found)) if make_frame else found

    def __repr__(self) -> str:
        settings = self.settings
        words = [repr(self.name or "in memory"), f"width={self.width}"]
        words += [f"{name}={value!r}" for name, value in asdict(settings).items()]
        words += [f"languages={self.languages}"] if self.languages else []
        return f"{type(self).__name__}({', '.join(words)})"
