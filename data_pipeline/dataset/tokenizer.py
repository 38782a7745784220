"""Tokenization of terms: flat int32 word-piece ids with CSR offsets."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tokenizers import Tokenizer
from tokenizers.normalizers import BertNormalizer

from data_pipeline.files.buckets import local_folder
from data_pipeline.files.identity import is_lfs_pointer, read_json
from data_pipeline.process import BadInput
from data_pipeline.terminology.cleaning import without_cleaning

# -------------------------------------------------------------------------------------------------
# The encoder's own tokenizer, applied to many terms; ids are cut to a maximum length.
#
# A dataset thus holds exactly the ids that the encoder will see. TensorFlow is not needed.

# The files of a fast tokenizer (BERT, XLM-R or RoBERTa); any of them is enough.
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "sentencepiece.bpe.model", "vocab.json")
_SETTINGS = "tokenizer_config.json"
# Normalizers differ in capitals, accents (composed or not), signs like letters, full width.
_PROBE = "Fracture \u00c9tat nai\u0308ve 1\u00ba \uff08\u2163\uff09"
_OS_ERROR = re.compile(r"\(os error (\d+)\)$")  # how Rust writes an errno


def _auto_tokenizer(path_or_hub_id: str | Path):
    # Where PyTorch is not installed transformers would say so, though tokenizers need none.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    # Imported here: transformers takes seconds to import, and `tokenize` alone does not need it.
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    name = str(local_folder(path_or_hub_id, *_TOKENIZERS))
    is_folder = Path(name).exists()
    if is_folder and not any((Path(name) / f).is_file() for f in _TOKENIZERS):
        raise BadInput(
            f"{name} is not a tokenizer folder: it has none of {', '.join(_TOKENIZERS)}. "
            "Give the folder of a Hugging Face model, or a hub id such as "
            "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract."
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
        if _has_lost_normalizer(tokenizer, name):
            tokenizer = PreTrainedTokenizerFast.from_pretrained(name)
        return tokenizer
    except Exception as error:  # tokenizers raises this very class for what it cannot read
        pointers = [file for file in _TOKENIZERS if is_lfs_pointer(Path(name) / file)]
        if pointers:
            raise BadInput(
                f"{name}: {', '.join(pointers)} is a pointer of Git LFS, not the file itself; "
                "fetch it with 'git lfs pull', or from the Hub"
            ) from error
        # If one of the packages is missing, transformers reads the file with the other.
        if any(package in str(error) for package in ("sentencepiece", "tiktoken")) and (
            not is_folder or list(Path(name).glob("*.model"))
        ):
            raise BadInput(
                f"the tokenizer of {name!r} is a sentencepiece file, without a tokenizer.json; to "
                "read it, install sentencepiece: 'pip install sentencepiece protobuf'"
            ) from error
        first_line = _what_is_damaged(Path(name)) or " ".join(
            f"{type(error).__name__}: {error}".split("\n")[0].split()
        )
        raise BadInput(
            f"no tokenizer could be loaded from {name!r}: {first_line}\n"
            "Expected a local folder with tokenizer.json or vocab.txt, or the id of a model on the "
            "Hugging Face hub that this machine can reach (download it first where there is no "
            "network, and give the folder)."
        ) from error


def _has_lost_normalizer(tokenizer: Any, name: str) -> bool:
    """Whether a tokenizer normalizes strings otherwise than its tokenizer.json says.

    transformers 5 makes the tokenizers of some classes, such as XLMRobertaTokenizer, anew from the
    pieces of the file, and of its normalizers only those that it knows. Without NFKC, "\u00ba" and
    full-width letters become unknown. The settings of a BERT (do_lower_case) are those of its
    tokenizer_config.json, whatever the file says, as they are for transformers' users. A
    file without a normalizer is not compared.
    """
    from transformers import PreTrainedTokenizerFast
    from transformers.utils import cached_file

    made = getattr(tokenizer, "backend_tokenizer", None)
    if made is None or type(tokenizer) is PreTrainedTokenizerFast:  # which is the file
        return False
    path = cached_file(name, "tokenizer.json", _raise_exceptions_for_missing_entries=False)
    file = Tokenizer.from_file(str(path)) if path is not None else made
    both = [one.normalizer for one in (file, made)]
    if both[0] is None or all(isinstance(one, BertNormalizer) for one in both):
        return False
    told, found = (one.normalize_str(_PROBE) if one is not None else _PROBE for one in both)
    return told != found


def _what_is_damaged(folder: Path) -> str:
    """What is wrong with the settings of a tokenizer that could not be loaded, if they are it."""
    import transformers

    found = ""
    for path in (folder / "config.json", folder / _SETTINGS):
        try:
            settings = read_json(path) if path.is_file() else {}
        except BadInput as error:
            return str(error)
        found = str(settings.get("tokenizer_class") or "")
    if found and not hasattr(transformers, found):
        return (
            f"{_SETTINGS} has the tokenizer_class {found!r}, which transformers does not know; "
            "expected one that it knows, such as BertTokenizer"
        )
    return ""


def load_tokenizer(path_or_hub_id: str | Path) -> Tokenizer:
    """The `tokenizers.Tokenizer` of a model folder or hub id, without cleaning of its own.

    Padding and truncation are off, and so is the cleaning of an export (`cleaning`).

    Raises BadInput if the folder holds no tokenizer, one without special tokens, or the hub id
    cannot be reached.
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
        ends_of_terms(tokenizer, path_or_hub_id)
    except BaseException as error:
        # The library's own are plain ones; a panic of Rust is no Exception.
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise BadInput(
            f"the tokenizer of {str(path_or_hub_id)!r} fails at any term: {error}; its "
            "tokenizer.json is damaged: fetch or export it again"
        ) from error
    return tokenizer


def ends_of_terms(tokenizer: Tokenizer, source: str | Path) -> tuple[int, int]:
    """The ids of the special tokens before and behind every term, such as [CLS] and [SEP].

    Raises BadInput, which names `source`, if there are not two.
    """
    ends, term = tokenizer.encode("").ids, tokenizer.encode("term").ids
    if len(ends) != 2 or [term[0], term[-1]] != ends:
        raise BadInput(
            f"the tokenizer of {str(source)!r} puts {len(ends)} special tokens around a term; "
            "expected two, such as [CLS] and [SEP]: an encoder reads the first one, and a term "
            "that is cut keeps the last one. Its tokenizer.json has lost its post_processor: fetch "
            "that of the model from which it was made, or, for a BERT, put "
            f'"tokenizer_class": "BertTokenizer" into {_SETTINGS}'
        )
    return ends[0], ends[1]


def warn_of_case(tokenizer: Tokenizer, source: str | Path) -> None:
    """Says on stderr where a vocabulary has words with capitals and its tokenizer lower-cases.

    Args:
      tokenizer: from `load_tokenizer`.
      source: its folder or hub id, for the message.
    """
    normalizer = tokenizer.normalizer
    if normalizer is None or normalizer.normalize_str("A") != "a":
        return
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    capital = sorted(
        piece
        for piece in tokenizer.get_vocab()
        if piece != piece.lower() and piece not in added and not piece.startswith(("[", "<"))
    )
    if capital:
        print(
            f"warning: {len(capital):,} pieces of the vocabulary of {source} have capitals "
            f"(such as {', '.join(capital[:3])}), but its tokenizer makes terms lower case and "
            'never uses them; for a cased model, put "tokenizer_class": "BertTokenizer" and '
            f'"do_lower_case": false into its {_SETTINGS}',
            file=sys.stderr,
            flush=True,
        )


def save_tokenizer(path_or_hub_id: str | Path, folder: Path) -> None:
    """Copies the tokenizer (vocabulary and settings) into `folder`, readable by AutoTokenizer.

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
        number = _OS_ERROR.search(str(error))
        if isinstance(error, OSError) or number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(folder)) from error


def vocabulary_size(tokenizer: Tokenizer) -> int:
    """The rows that a word table needs: one more than the largest id.

    A vocabulary that has a piece twice has fewer entries.
    """
    return 1 + max(tokenizer.get_vocab().values(), default=-1)


def tokenizer_hash(tokenizer: Tokenizer) -> str:
    """SHA-256 of the tokenizer's full definition: equal hashes give equal ids for every term."""
    return hashlib.sha256(tokenizer.to_str().encode()).hexdigest()


def tokenize_uncut(
    tokenizer: Tokenizer, terms: Sequence[str], *, special: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Ids of terms without a length limit, with [CLS] and [SEP] if `special`: (int32 [sum], start
    int64 [n + 1]).
    """
    encodings = tokenizer.encode_batch_fast(list(terms), add_special_tokens=special)
    ids = [encoding.ids for encoding in encodings]
    start = np.zeros(len(ids) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, ids), np.int64, len(ids)), out=start[1:])
    tokens = np.fromiter(itertools.chain.from_iterable(ids), np.int32, int(start[-1]))
    return tokens, start


def cut(tokens: np.ndarray, start: np.ndarray, max_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Cuts each term to `max_length` ids; its last id, [SEP], stays last.

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


# -------------------------------------------------------------------------------------------------
# Tokenization with a cache, in which each distinct word is tokenized once.
#
# A terminology says the same words again and again: the million terms of a release have some
# hundred thousand words. BERT's tokenizer splits at every blank before all else, so a term's ids
# are those of its words, one after the other. Where a tokenizer works otherwise, terms are
# tokenized whole.

_WORDS_KEPT = 2_000_000  # some 300 MB; more than a release of the UMLS has in English


class WordPieces:
    """A tokenizer that caches the ids of words.

    Args:
        tokenizer: from `load_tokenizer`.
    """

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.splits_at_blanks = splits_at_blanks(tokenizer)
        self._forget()

    def _forget(self) -> None:
        self.known: dict[str, int] = {}  # the number of a word
        self.ids = np.zeros(0, np.int32)
        self.start = np.zeros(1, np.int64)  # of a word's ids, by its number

    def __call__(self, terms: Sequence[str] | pl.Series) -> tuple[np.ndarray, np.ndarray]:
        """Ids of whole terms with their special tokens: (ids int32 [sum], start int64 [n + 1])."""
        if not self.splits_at_blanks:
            return tokenize_uncut(self.tokenizer, list(terms))
        split = pl.Series(terms, dtype=pl.String).str.split(" ")
        flat = split.explode()
        distinct = flat.unique()
        numbers = self._numbers(distinct.to_list())
        places = pl.DataFrame({"word": distinct, "number": numbers})
        words = (
            flat.to_frame("word")
            .join(places, on="word", how="left", maintain_order="left")["number"]
            .to_numpy()
        )
        return self._joined(words, split.list.len().to_numpy().astype(np.int64))

    def _numbers(self, words: list[str]) -> np.ndarray:
        """The cache numbers of distinct words; new words are tokenized together."""
        if len(self.known) > _WORDS_KEPT:
            self._forget()
        new = [word for word in words if word not in self.known]
        ids, start = tokenize_uncut(self.tokenizer, new, special=False)
        first = len(self.known)
        self.known.update(zip(new, range(first, first + len(new)), strict=True))
        self.start = np.concatenate([self.start, start[1:] + len(self.ids)])
        self.ids = np.concatenate([self.ids, ids])
        return np.fromiter(map(self.known.__getitem__, words), np.int64, len(words))

    def _joined(self, words: np.ndarray, n_words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ids of terms with n_words[i] words each, from the cache numbers of all words."""
        opening, closing = self.tokenizer.encode("").ids
        lengths = self.start[words + 1] - self.start[words]
        before = np.concatenate([[0], np.cumsum(lengths)])  # ids before each word
        word_start = np.concatenate([[0], np.cumsum(n_words)])
        start = before[word_start] + 2 * np.arange(len(word_start))
        # The place of each word's ids: after those of all words before it, two special tokens of
        # each earlier term, and one of its own.
        shift = 2 * np.repeat(np.arange(len(n_words)), n_words) + 1
        ids = np.empty(int(start[-1]), np.int32)
        within = np.arange(before[-1]) - np.repeat(before[:-1], lengths)
        target = np.repeat(before[:-1] + shift, lengths) + within
        ids[target] = self.ids[np.repeat(self.start[words], lengths) + within]
        ids[start[:-1]] = opening
        ids[start[1:] - 1] = closing
        return ids, start


def splits_at_blanks(tokenizer: Tokenizer) -> bool:
    """Whether the ids of "a b" are the ids of "a" and those of "b" between two special tokens.

    So it is for BERT's normalizer (it looks at single characters and their accents) and BERT's
    splitting at white space and punctuation, unless an added token holds white space (which the
    normalizer makes blanks of) or takes blanks beside it away, or ids are cut off or filled up.
    """
    parts = json.loads(tokenizer.to_str())
    kinds = [(parts[part] or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model")]
    if kinds != ["BertNormalizer", "BertPreTokenizer", "WordPiece"]:
        return False
    if parts["truncation"] or parts["padding"]:
        return False
    for token in parts["added_tokens"]:
        if token["lstrip"] or token["rstrip"] or any(map(str.isspace, token["content"])):
            return False
    special, word = tokenizer.encode("").ids, tokenizer.encode("a", add_special_tokens=False).ids
    return len(special) == 2 and tokenizer.encode("a").ids == [special[0], *word, special[1]]
