"""What a vector was made with: which encoder, which tokenizer, and how strings became vectors.

A vector means little without it. Files of vectors and records of evaluations hold all of it.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coder_jax.encoding.encoder import TermEncoder


@dataclass(frozen=True, kw_only=True)
class EncoderProtocol:
    """How strings became vectors."""

    model: str  # folder or hub id
    weights_hash: str | None  # SHA-256 of the weight file, where it is known
    tokenizer_hash: str  # SHA-256 of its definition
    pooling: str
    max_length: int  # tokens, [CLS] and [SEP] included
    attend_padding: bool
    lowercases: bool  # whether the tokenizer does
    cleaning: str  # rule set of terminology.cleaning.rules, applied to mentions and dictionary
    dtype: str  # of the encoder's arithmetic


def encoder_protocol(
    encoder: TermEncoder, model: str, weights_hash: str | None = None
) -> EncoderProtocol:
    """The protocol of an encoder; `model` names it (folder, hub id, or step of a run)."""
    return EncoderProtocol(
        model=model,
        weights_hash=weights_hash,
        tokenizer_hash=encoder.reader.tokenizer_hash,
        lowercases=encoder.reader.lowercases,
        dtype=encoder.reader.dtype,
        **asdict(encoder.settings),
    )


def hash_weights(folder: Path) -> str:
    """SHA-256 of the weight files of a Hugging Face folder, one after the other by name."""
    files = sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()
