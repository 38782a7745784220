"""What a vector was made with: which encoder, which tokenizer, and how strings became vectors.

A vector means little without it. Files of vectors and records of evaluations hold all of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data_pipeline.files.identity import VECTORS, marked

if TYPE_CHECKING:
    from coder_jax.encoding.encoder import TermEncoder
    from coder_jax.encoding.term_lines import Terms

# Of `about`: what a query's vector must share with these vectors to be compared with them.
COMPARABLE = (
    *("weights_hash", "tokenizer_hash", "pooling", "cleaning", "max_length"),
    "attend_padding",
)


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


def hash_arrays(arrays: Iterable[Any]) -> str:
    """SHA-256 of the bytes of arrays, one after the other."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def hash_weights(folder: Path) -> str:
    """SHA-256 of the weight files of a Hugging Face folder, one after the other by name."""
    files = sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()


def hash_of_encoder(encoder: TermEncoder) -> str:
    """SHA-256 of its weight files; of one made in memory, of its parameters."""
    return encoder.weights_hash or encoder.reader.hash_of_parameters()


def about_vectors(
    encoder: TermEncoder,
    model: str,
    weights_hash: str,
    terms: Terms,
    dtype: str,
    *,
    unit: bool = True,
) -> dict[str, Any]:
    """What vectors are made of, for `write_vectors`.

    Args:
      model: its name (folder or hub id), for people; the hash is what counts.
      terms: what is encoded.
      dtype: how a vector is stored, 'float32' or 'float16'.
      unit: vectors of length 1; else as they come out of the pooling.
    """
    vectors = {"width": encoder.width, "dtype": dtype}
    about = {
        "terms": {"count": terms.count, "hash": terms.hash, "per_chunk": terms.per_chunk},
        "vectors": vectors if unit else vectors | {"unit": False},
        "encoder": asdict(encoder_protocol(encoder, model, weights_hash)),
    }
    return marked(VECTORS, about)


def same_vectors(about: dict[str, Any]) -> dict[str, Any]:
    """What must be the same for work on `about` to go on: all of it but the model's name."""
    encoder = {name: value for name, value in about["encoder"].items() if name != "model"}
    return about | {"encoder": encoder}


def comparable(about: dict[str, Any]) -> dict[str, Any]:
    """What must be the same for vectors to be compared with a query's, and to be of these terms."""
    return {
        "encoder": {name: about["encoder"].get(name) for name in COMPARABLE},
        "terms": {name: about["terms"].get(name) for name in ("count", "hash")},
        "vectors": {"unit": about["vectors"].get("unit", True)},
    }
