"""Writing a folder of mentions: strings to tokens and keyword kinds, arrays to files.

`store.py` says what such a folder holds, and reads it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from tokenizers import Tokenizer

from data_pipeline.dataset.mentions.store import (
    MANIFEST,
    WORDS,
    MentionDataset,
    StoredStrings,
    TokenTable,
    array_types,
    open_mentions,
    starts,
)
from data_pipeline.dataset.tokenize_terms import cut, save_tokenizer
from data_pipeline.files.identity import MENTIONS, write_identity
from data_pipeline.files.whole_files import whole_folder
from data_pipeline.process import stopping
from data_pipeline.process.progress import progress_bar
from data_pipeline.terminology.cleaning.rules import clean
from data_pipeline.terminology.keywords.vocabulary import KeywordVocabulary, keyword_lines

ODD_LINES = "odd_lines.txt"
AT_ONCE = 4096  # strings whose tokens are held as objects


def token_table(
    tokenizer: Tokenizer,
    strings: Sequence[str],
    *,
    cleaning: str,
    max_length: int,
    keywords: KeywordVocabulary,
    progress: str = "",
) -> tuple[TokenTable, int]:
    """Strings with their tokens and the kinds of the keywords that these overlap.

    Args:
      tokenizer: from `load_tokenizer`.
      strings: as the source has them, [n].
      cleaning: name of a rule set of `clean.CLEANING`; tokens and keywords are of cleaned strings.
      max_length: longest string in tokens, [CLS] and [SEP] included; longer ones are cut.
      keywords: what is marked.
      progress: what a progress bar says; "": there is none.

    Returns:
      the table, and how many strings were cut.
    """
    cleaned = clean(pl.Series(strings, dtype=pl.String), cleaning).to_list()
    tokens, kinds, lengths = [], [], []
    with progress_bar(total=len(strings), desc=progress, disable=not progress) as bar:
        for first in range(0, len(cleaned), AT_ONCE):
            stopping.poll()
            some = cleaned[first : first + AT_ONCE]
            for string, encoding in zip(some, tokenizer.encode_batch(some), strict=True):
                tokens += encoding.ids
                kinds.append(keywords.kinds_of_tokens(string, encoding.offsets))
                lengths.append(len(encoding.ids))
            bar.update(len(some))
    start = starts(lengths)
    flat = np.concatenate([np.zeros(0, np.uint8), *kinds])
    # [CLS] and [SEP] overlap nothing, so what `cut` puts last has kind 0.
    cut_tokens, cut_start = cut(np.array(tokens, np.int32), start, max_length)
    table = TokenTable(list(strings), cut_tokens, cut_start, cut(flat, start, max_length)[0])
    return table, int((np.array(lengths, np.int64) > max_length).sum())


def _strings(name: str, strings: Sequence[str]) -> dict[str, np.ndarray]:
    stored = strings if isinstance(strings, StoredStrings) else StoredStrings.of(strings)
    return {f"{name}.text": stored.text, f"{name}.text_start": stored.start}


def _table(name: str, table: TokenTable) -> dict[str, np.ndarray]:
    rest = {f"{name}.{part}": getattr(table, part) for part in ("tokens", "start", "kinds")}
    return _strings(name, table.strings) | rest


def _arrays(dataset: MentionDataset) -> dict[str, np.ndarray]:
    plain = ("code_start", "branch_start", "branches", "name_concepts")
    arrays = {name: getattr(dataset, name) for name in plain}
    arrays |= _strings("concepts", dataset.concepts) | _strings("codes", dataset.codes)
    arrays |= _table("names", dataset.names)
    for name, split in dataset.splits.items():
        arrays |= _table(name, split.mentions)
        arrays |= {f"{name}.gold_start": split.gold_start, f"{name}.gold": split.gold}
    return {
        name: np.ascontiguousarray(arrays[name], np.dtype(dtype).newbyteorder("<"))
        for name, dtype in array_types(list(dataset.splits)).items()
    }


def write_mentions(
    out: Path, dataset: MentionDataset, tokenizer: str | Path, odd: Sequence[str] = ()
) -> MentionDataset:
    """Writes a folder of mentions, whole or not at all, and opens it.

    Args:
      out: the folder; what is there is replaced.
      dataset: what it is to hold; `arrays` and `content_hash` of its manifest are made here.
      tokenizer: folder or hub id of the tokenizer that made its tokens.
      odd: lines of ODD_LINES, what was odd in the input.
    """
    arrays = _arrays(dataset)
    content = hashlib.sha256("\t".join(dataset.manifest["keyword_kinds"]).encode())
    for name, array in arrays.items():
        content.update(f"\n{name} {array.dtype.name} {len(array)}\n".encode())
        content.update(array.tobytes())
    stored = {name: {"dtype": a.dtype.name, "length": len(a)} for name, a in arrays.items()}
    made = {"arrays": stored, "content_hash": content.hexdigest()}
    with whole_folder(out) as folder:
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        save_tokenizer(tokenizer, folder / "tokenizer")
        (folder / WORDS).write_text(keyword_lines(dataset.words), encoding="utf-8")
        if odd:
            (folder / ODD_LINES).write_text("\n".join(odd) + "\n", encoding="utf-8")
        write_identity(folder / MANIFEST, MENTIONS, {**dataset.manifest, **made})
    return open_mentions(out)
