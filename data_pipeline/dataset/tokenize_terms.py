"""Term strings in, word-piece ids out: flat int32 tokens with CSR offsets, cut to a maximum length.

TensorFlow-free. The tokenizer is the encoder's own, so that a dataset holds exactly the ids that
the encoder will see.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from data_pipeline.files.buckets import local_folder
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.cleaning.in_tokenizers import without_cleaning

# The files of a fast tokenizer, of BERT, of XLM-R, of RoBERTa: any of them is enough.
TOKENIZERS = ("tokenizer.json", "vocab.txt", "sentencepiece.bpe.model", "vocab.json")
OS_ERROR = re.compile(r"\(os error (\d+)\)$")  # how Rust writes an errno


def _auto_tokenizer(path_or_hub_id: str | Path):
    # Imported here: transformers takes seconds to import, and `tokenize` alone does not need it.
    from transformers import AutoTokenizer

    name = str(local_folder(path_or_hub_id, *TOKENIZERS))
    is_folder = Path(name).exists()
    if is_folder and not any((Path(name) / f).is_file() for f in TOKENIZERS):
        raise BadInput(
            f"{name} is not a tokenizer folder: it has none of {', '.join(TOKENIZERS)}. "
            "Give the folder of a Hugging Face model, or a hub id such as "
            "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract."
        )
    try:
        return AutoTokenizer.from_pretrained(name)
    except Exception as error:  # tokenizers raises this very class for what it cannot read
        # Where the one package is missing, transformers tries the file with the other.
        if any(package in str(error) for package in ("sentencepiece", "tiktoken")):
            raise BadInput(
                f"the tokenizer of {name!r} is a sentencepiece file, without a tokenizer.json; to "
                "read it, install sentencepiece: 'pip install sentencepiece protobuf'"
            ) from error
        first_line = " ".join(f"{type(error).__name__}: {error}".split("\n")[0].split())
        raise BadInput(
            f"no tokenizer could be loaded from {name!r}: {first_line}\n"
            "Expected a local folder with tokenizer.json or vocab.txt, or the id of a model on the "
            "Hugging Face hub that this machine can reach (download it first where there is no "
            "network, and give the folder)."
        ) from error


def load_tokenizer(path_or_hub_id: str | Path) -> Tokenizer:
    """The `tokenizers.Tokenizer` of a local model folder or hub id, which takes terms as they are.

    Padding and truncation are off, and so is the cleaning of an export (`cleaning.in_tokenizers`).

    Raises BadInput if the folder holds no tokenizer or the hub id cannot be reached.
    """
    tokenizer = getattr(_auto_tokenizer(path_or_hub_id), "backend_tokenizer", None)
    if tokenizer is None:
        raise BadInput(
            f"the tokenizer of {str(path_or_hub_id)!r} has no fast (Rust) version; convert it to a "
            "tokenizer.json first"
        )
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer = without_cleaning(tokenizer)
    try:
        tokenizer.encode("term")
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of Rust, which is no Exception
            raise
        raise BadInput(
            f"the tokenizer of {str(path_or_hub_id)!r} fails at any term: {error}; its "
            "tokenizer.json is damaged: fetch or export it again"
        ) from error
    return tokenizer


def save_tokenizer(path_or_hub_id: str | Path, folder: Path) -> None:
    """Copies the tokenizer (vocabulary, settings) into `folder`, readable by AutoTokenizer.

    Without the cleaning of an export.

    OSError where the disk is full or may not be written to.
    """
    tokenizer = _auto_tokenizer(path_or_hub_id)
    own = without_cleaning(tokenizer.backend_tokenizer)
    try:
        tokenizer.save_pretrained(str(folder))
        if own is not tokenizer.backend_tokenizer:
            own.save(str(folder / "tokenizer.json"))
    except Exception as error:  # tokenizers has no type for it
        number = OS_ERROR.search(str(error))
        if isinstance(error, OSError) or number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(folder)) from error


def tokenizer_hash(tokenizer: Tokenizer) -> str:
    """SHA-256 of the tokenizer's full definition: equal hashes give equal ids for every term."""
    return hashlib.sha256(tokenizer.to_str().encode()).hexdigest()


def tokenize_uncut(
    tokenizer: Tokenizer, terms: Sequence[str], *, special: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Ids of whole terms, with [CLS] and [SEP] if `special`: (int32 [sum], start int64 [n + 1])."""
    encodings = tokenizer.encode_batch_fast(list(terms), add_special_tokens=special)
    ids = [encoding.ids for encoding in encodings]
    start = np.zeros(len(ids) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, ids), np.int64, len(ids)), out=start[1:])
    tokens = np.fromiter(itertools.chain.from_iterable(ids), np.int32, int(start[-1]))
    return tokens, start


def cut(tokens: np.ndarray, start: np.ndarray, max_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Cuts every term to `max_length` ids and keeps its last id, [SEP], in the last place.

    The same result as the tokenizer's own truncation from the right of "[CLS] term [SEP]"
    (Hugging Face `truncation=True`), done on the flat arrays.
    """
    if max_length < 3:
        raise BadInput(f"max length {max_length}: expected 3 or more ([CLS], a piece, [SEP])")
    lengths = np.diff(start)
    if not len(lengths) or lengths.max() <= max_length:
        return tokens, start
    cut_start = np.zeros_like(start)
    np.cumsum(np.minimum(lengths, max_length), out=cut_start[1:])
    position = np.arange(len(tokens)) - np.repeat(start[:-1], lengths)
    cut_tokens = tokens[position < max_length]
    cut_tokens[cut_start[1:] - 1] = tokens[start[1:] - 1]
    return cut_tokens, cut_start


def tokenize(
    tokenizer: Tokenizer, terms: Sequence[str], max_length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Word-piece ids of many terms at once, in parallel, [CLS] first and [SEP] last in each.

    Args:
      tokenizer: from `load_tokenizer`; pieces outside its vocabulary become its unknown token.
      terms: n strings.
      max_length: longest term in ids, special tokens included; longer terms are cut.
    Returns:
      tokens int32 [sum of lengths] and start int64 [n + 1]; term i is tokens[start[i]:start[i+1]].
    """
    return cut(*tokenize_uncut(tokenizer, terms), max_length)
