"""TermEncoder: a pre-trained model in; terms to vectors, mentions to concepts out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import polars as pl
from tokenizers import Tokenizer

from coder_jax.encoding.embed import embed_chunks, embed_terms
from coder_jax.encoding.rows import Rows
from coder_jax.encoding.search import search
from coder_jax.models.bert import Bert
from coder_jax.models.encoder_settings import EncoderSettings, read_settings
from coder_jax.models.hf_files import find_folder
from coder_jax.models.hf_weights import LoadReport, check_vocabulary, load_bert
from data_pipeline.dataset.dictionary import read_dictionary
from data_pipeline.dataset.tokenize_terms import load_tokenizer
from data_pipeline.files.rows import split_concepts
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import Progress
from data_pipeline.terminology.clean import clean

# Search this many terms per wanted concept at first; a concept often has several near terms.
TERMS_PER_CONCEPT = 8


class Match(NamedTuple):
    """A concept found for a mention, by its nearest term."""

    concept: str
    term: str
    similarity: float  # cosine


@dataclass(frozen=True)
class EncodedDictionary:
    """A dictionary with its vectors, to search more than once: `TermEncoder.encode_dictionary`."""

    terms: list[str]
    concepts: list[str]
    vectors: Rows  # float [n, D], unit length; an array or the rows of a file

    @cached_property
    def num_concepts(self) -> int:
        return len({one for joined in set(self.concepts) for one in split_concepts(joined)})


DictionarySource = EncodedDictionary | tuple[Sequence[str], Sequence[str]] | str | Path


class TermEncoder:
    """Encodes terms with a BERT and finds the concepts of mentions.

    Example:
      encoder = TermEncoder.from_pretrained("runs/demo/export")
      vectors = encoder.encode(["heart attack", "myocardial infarction"])
      print(vectors @ vectors.T)

    Attributes:
      bert: the encoder.
      settings: pooling, cleaning, max_length, attend_padding.
      report: what loading found, or None for an encoder made in memory.
    """

    def __init__(
        self,
        bert: Bert,
        tokenizer: Tokenizer,
        settings: EncoderSettings | None = None,
        report: LoadReport | None = None,
    ):
        """From parts in memory, for instance between training steps.

        Encoders of the same structure share compiled code, however many are made.

        Raises:
          BadInput: a tokenizer larger than the word table, pooling 'pooler' without a pooler, or
            attend_padding for another architecture than BERT's.
        """
        settings = settings or EncoderSettings()
        source = report.source if report else "TermEncoder"
        check_vocabulary(tokenizer.get_vocab_size(), bert.config, source)
        if settings.pooling == "pooler" and bert.pooler is None:
            raise BadInput(f"{source}: pooling is 'pooler', but the weights have no pooler")
        if settings.attend_padding and bert.config.model_type != "bert":
            raise BadInput(
                f"{source}: attend_padding is for the published CODER checkpoints, which are BERTs;"
                f" found {bert.config.model_type}: encode without it"
            )
        self.bert, self.tokenizer, self.settings, self.report = bert, tokenizer, settings, report

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
        """Loads our export, or any Hugging Face BERT or RoBERTa, from a folder or the hub.

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
          BadInput: no such model, not a BERT, a tokenizer of another model, a pooling that the
            folder's files do not settle.
        """
        folder = find_folder(path_or_hub_id)
        settings = read_settings(folder, pooling=pooling).changed(
            cleaning=cleaning, max_length=max_length, attend_padding=attend_padding
        )
        bert, _, report = load_bert(folder, dtype=dtype, pooling=settings.pooling)
        return cls(bert, load_tokenizer(folder), settings, report)

    def encode(
        self,
        terms: Sequence[str],
        *,
        unit: bool = True,
        rows: int | None = None,
        progress: bool = False,
    ) -> np.ndarray:
        """Vectors of terms, float32 [n, D], in the order given.

        Args:
          terms: n strings; equal strings cost once.
          unit: vectors of length 1; else as they come out of the pooling.
          rows: packed rows of 128 tokens per device and batch; chosen for the machine if None.
          progress: show a progress bar on stderr.
        """
        if isinstance(terms, str) or not all(isinstance(term, str) for term in terms):
            raise BadInput(
                f"found {type(terms).__name__} {str(terms)[:60]!r}; expected a list of strings"
            )
        settings = self.settings
        return embed_terms(
            self.bert,
            self.tokenizer,
            clean(pl.Series(list(terms), dtype=pl.String), settings.cleaning).to_list(),
            pooling=settings.pooling,
            max_length=settings.max_length,
            attend_padding=settings.attend_padding,
            unit=unit,
            rows=rows,
            progress=progress,
        )

    def encode_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        *,
        rows: int | None = None,
        bar: Progress | None = None,
    ) -> Iterator[np.ndarray]:
        """As `encode` for each of many lists of terms, one after the other.

        Args:
          chunks: lists of strings; read one ahead, in another thread.
          rows: as in `encode`.
          bar: a progress bar that counts terms.
        """
        settings = self.settings
        return embed_chunks(
            self.bert,
            self.tokenizer,
            (
                clean(pl.Series(list(terms), dtype=pl.String), settings.cleaning).to_list()
                for terms in chunks
            ),
            pooling=settings.pooling,
            max_length=settings.max_length,
            attend_padding=settings.attend_padding,
            rows=rows,
            bar=bar,
        )

    def similarity(self, terms: Sequence[str], others: Sequence[str]) -> np.ndarray:
        """Cosines of terms with other terms, float32 [n, m]."""
        return self.encode(terms) @ self.encode(others).T

    def encode_dictionary(
        self, dictionary: DictionarySource, *, progress: bool = False
    ) -> EncodedDictionary:
        """Encodes a dictionary once, to give it to `normalize` many times.

        Args:
          dictionary: (terms, concepts), or the path of a TSV file term<TAB>concept, or of a
            dataset folder. The concepts that share a term may be joined with "|".
        """
        if isinstance(dictionary, EncodedDictionary):
            return dictionary
        if isinstance(dictionary, str | Path):
            read = read_dictionary(dictionary)
            terms, concepts = read.terms, read.concepts
        else:
            terms, concepts = map(list, dictionary)
        if len(terms) != len(concepts) or not terms:
            raise BadInput(
                f"the dictionary has {len(terms)} terms and {len(concepts)} concepts; expected one "
                "concept for each term, and at least one"
            )
        return EncodedDictionary(terms, concepts, self.encode(terms, progress=progress))

    def normalize(
        self,
        mentions: Sequence[str],
        dictionary: DictionarySource,
        k: int = 1,
        *,
        progress: bool = False,
    ) -> list[list[Match]]:
        """The k nearest concepts of each mention, best first.

        A concept is as near as its nearest term (zero-shot normalization of the CODER paper); of
        equal ones the earlier in the dictionary comes first. Fewer than k matches where the
        dictionary has fewer concepts.

        Args:
          mentions: strings.
          dictionary: as in `encode_dictionary`, or what that returned.
          k: concepts per mention, at least 1.
        """
        if k < 1:
            raise BadInput(f"k is {k}; expected at least 1 concept per mention")
        encoded = self.encode_dictionary(dictionary, progress=progress)
        k = min(k, encoded.num_concepts)
        return nearest_concepts(self.encode(mentions, progress=progress), encoded, k)


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
