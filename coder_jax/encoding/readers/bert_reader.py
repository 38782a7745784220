"""A BERT and its tokenizer as what reads terms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

from coder_jax.encoding.encoder_protocol import hash_arrays, hash_weights
from coder_jax.encoding.readers.embed import embed_chunks, embed_terms
from coder_jax.models.bert import POOLINGS, Bert, split_encoder
from coder_jax.models.encoder_settings import EncoderSettings
from coder_jax.models.hf_weights import check_vocabulary
from data_pipeline.dataset.tokenize_terms import tokenizer_hash
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import Progress


class BertReader:
    """Reads terms as word pieces.

    Args:
      bert: the encoder.
      tokenizer: its own.
    """

    def __init__(self, bert: Bert, tokenizer: Tokenizer):
        self.bert, self.tokenizer = bert, tokenizer

    @property
    def width(self) -> int:
        """Of a vector."""
        return self.bert.config.hidden_size

    @property
    def structure(self) -> str:
        """All of its shape that vectors depend on."""
        return repr(self.bert.config)

    @cached_property
    def tokenizer_hash(self) -> str:
        """Of what makes tokens of terms."""
        return tokenizer_hash(self.tokenizer)

    @property
    def lowercases(self) -> bool:
        """Whether the tokenizer does."""
        normalizer = self.tokenizer.normalizer
        return normalizer is not None and normalizer.normalize_str("A") == "a"

    @property
    def dtype(self) -> str:
        """Of its arithmetic."""
        return jnp.dtype(self.bert.dtype).name

    def hash_of(self, folder: Path) -> str:
        """SHA-256 of the weight files that it was read from."""
        return hash_weights(folder)

    def hash_of_parameters(self) -> str:
        """SHA-256 of the parameters, of an encoder that was read from no folder."""
        return hash_arrays(jax.tree.leaves(split_encoder(self.bert)[1]))

    def check(self, settings: EncoderSettings, source: str) -> None:
        """Raises BadInput for settings that do not fit it, or a tokenizer that does not."""
        if settings.pooling not in POOLINGS:
            raise BadInput(
                f"{source}: pooling is {settings.pooling!r}, which is of an encoder of names; "
                f"expected one of {', '.join(POOLINGS)}"
            )
        check_vocabulary(self.tokenizer.get_vocab_size(), self.bert.config, source)
        if settings.pooling == "pooler" and self.bert.pooler is None:
            raise BadInput(f"{source}: pooling is 'pooler', but the weights have no pooler")
        if settings.attend_padding and self.bert.config.model_type != "bert":
            raise BadInput(
                f"{source}: attend_padding is for the published CODER checkpoints, which are BERTs;"
                f" found {self.bert.config.model_type}: encode without it"
            )

    def embed(
        self,
        terms: Sequence[str],
        settings: EncoderSettings,
        *,
        unit: bool,
        rows: int | None,
        progress: bool,
    ) -> np.ndarray:
        """As `embed_terms`, of cleaned terms."""
        given = self.bert, self.tokenizer, terms
        return embed_terms(*given, **_how(settings), unit=unit, rows=rows, progress=progress)

    def embed_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        settings: EncoderSettings,
        *,
        unit: bool,
        rows: int | None,
        bar: Progress | None,
    ) -> Iterator[np.ndarray]:
        """As `embed.embed_chunks`, of cleaned terms."""
        how = _how(settings)
        return embed_chunks(self.bert, self.tokenizer, chunks, **how, unit=unit, rows=rows, bar=bar)


def _how(settings: EncoderSettings) -> dict[str, Any]:
    """The settings that `embed_terms` wants."""
    return {name: value for name, value in asdict(settings).items() if name != "cleaning"}
