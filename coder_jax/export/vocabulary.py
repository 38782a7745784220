"""Export of an encoder with a larger or smaller vocabulary: its table of words, and the folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from huggingface_hub import ModelCardData
from msgspec import UNSET
from tokenizers import Tokenizer

from coder_jax.encoding.readers import within_positions
from coder_jax.export.folder import (
    PROBE_TERMS,
    check_exportable,
    sentence_transformers_vectors,
    transformers_tokens,
    transformers_vectors,
    unreported,
    whole_export,
    write_model,
)
from coder_jax.export.model_card import LICENSE, markdown_table, read_card, section
from coder_jax.models.bert import Bert
from coder_jax.models.hf_files import (
    EncoderSettings,
    Module,
    find_folder,
    read_export,
    read_settings,
    read_tensors,
    write_settings,
)
from coder_jax.models.hf_weights import (
    abstract_bert,
    anchor,
    check_vocabulary,
    from_hf,
    load_bert,
    name_table,
    read_config,
    to_hf,
)
from data_pipeline.dataset.tokenizer import load_tokenizer, save_tokenizer, vocabulary_size
from data_pipeline.dataset.vocabulary import WordPieceVocabulary, with_pieces_alone
from data_pipeline.files.buckets import in_bucket
from data_pipeline.files.identity import ENCODER, read_json, read_json_value, typed
from data_pipeline.flags import hub_id_of
from data_pipeline.process import BadInput
from data_pipeline.terminology.cleaning import clean, clean_in

# -------------------------------------------------------------------------------------------------
# The word embeddings after the vocabulary grew: new rows are made of those of old pieces.


def _old_pieces(piece: str, vocabulary: WordPieceVocabulary) -> list[int]:
    """Ids of the old pieces that a string was split into.

    They are the longest from the left, as always. A character that is there in its other form
    only, such as "##é" for "é", is taken in that; one that is there in neither is left out.

    Args:
      piece: a string; with the prefix it goes on with a word.
      vocabulary: without it.

    Returns:
      the ids, in their order; none where all characters are unknown.
    """
    first = "" if not piece.startswith(vocabulary.prefix) else vocabulary.prefix
    rest, found = piece.removeprefix(vocabulary.prefix), []
    while rest:
        fitting = (
            end for end in range(len(rest), 0, -1) if first + rest[:end] in vocabulary.pieces
        )
        end = next(fitting, 0)
        other = "" if first else vocabulary.prefix
        if end:
            found.append(vocabulary.pieces[first + rest[:end]])
        elif other + rest[0] in vocabulary.pieces:
            found.append(vocabulary.pieces[other + rest[0]])
        rest, first = rest[max(end, 1) :], vocabulary.prefix
    return found


def _rows_for(vocabulary: WordPieceVocabulary, table_rows: int, size: int) -> int:
    """Rows of a word table for `size` entries, padded as that of an encoder is.

    Where it has a row for each entry of its tokenizer and no more, so has the new one. Else its
    rows are a multiple of some power of two, and the new ones are, too, up to 128.
    """
    if table_rows == vocabulary.size:
        return size
    multiple = min(table_rows & -table_rows, 128)
    return max(table_rows, -(-size // multiple) * multiple)


def _extended_table(
    table: np.ndarray, vocabulary: WordPieceVocabulary, new: Sequence[str]
) -> tuple[np.ndarray, int]:
    """The word embeddings with a row for each new piece: the mean of its old pieces' rows.

    A piece that has none, such as one of Chinese characters for an English encoder, begins at a row
    that is drawn: normal, each dimension with mean and spread of the table's rows. Began they all
    at the unknown token's, as what they were until now, none could be told from another, and
    training would have to part them first. Rows that pad the table are the unknown token's.

    Args:
      table: float32 [V, D], V at least the size of the vocabulary.
      vocabulary: before it grew.
      new: the pieces, with the ids vocabulary.size, vocabulary.size + 1, ...

    Returns:
      (float32 [_rows_for(...), D], whose first rows are those of `table`; how many rows of new
      pieces were drawn). The same each time.
    """
    unknown = table[vocabulary.pieces[vocabulary.unknown]]
    size = vocabulary.size + len(new)
    extended = np.tile(unknown, (_rows_for(vocabulary, len(table), size), 1))
    extended[: len(table)] = table
    of_entries = table[: vocabulary.size]
    mean, spread = of_entries.mean(axis=0), of_entries.std(axis=0)
    # Seeded by the size, so that extending twice does not give the same rows twice.
    random = np.random.default_rng(vocabulary.size)
    drawn = 0
    for row, piece in enumerate(new, start=vocabulary.size):
        ids = _old_pieces(piece, vocabulary)
        extended[row] = table[ids].mean(axis=0) if ids else random.normal(mean, spread)
        drawn += not ids
    return extended, drawn


def _with_word_table(bert: Bert, table: np.ndarray) -> Bert:
    """The same encoder with another embedding table, float32 [V, D]."""
    config = replace(bert.config, vocab_size=len(table))
    has_pooler = bert.pooler is not None
    return from_hf(
        to_hf(bert) | {anchor(config): table},
        name_table(config, pooler=has_pooler),
        abstract_bert(config, bert.dtype, pooler=has_pooler),
        "the extended encoder",
    )


# -------------------------------------------------------------------------------------------------
# The export of an encoder with other word pieces.

# Parts of the encoder's model card that hold for the new one, too.
_OF_BASE = ("language", *LICENSE)
_TOLERANCE = 1e-6  # of unit vectors, float32, before and after
# Files that stay valid when the vocabulary changes. Weights in other formats do not.
_KEPT = (
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
    *("relations.json", "relations.safetensors", "LICENSE*", "NOTICE*"),
)


@dataclass(frozen=True)
class Extendable:
    """An encoder to which word pieces can be added, or from which they can be taken.

    Attributes:
      name: folder or hub id, as it was given.
      folder: where its files are.
      settings: how it makes vectors.
      tokenizer: without padding and truncation.
      bert, hf_config: weights and config.json.
      left_out: weights of the file that are no part of an encoder, such as heads and buffers.
    """

    name: str
    folder: Path
    settings: EncoderSettings
    tokenizer: Tokenizer
    bert: Bert
    hf_config: dict[str, Any]
    left_out: tuple[str, ...]

    @cached_property
    def vocabulary(self) -> WordPieceVocabulary:
        """Its pieces. Raises BadInput where they are of another kind."""
        return WordPieceVocabulary.of(self.tokenizer, self.name)

    @property
    def recorded(self) -> Path | None:
        """coder_jax.json, if the encoder is an export of ours, whose tokenizer cleans terms."""
        path = self.folder / ENCODER.file
        return path if path.is_file() else None

    def cleaned(self, terms: Sequence[str]) -> list[str]:
        """The strings that become word pieces: the terms, cleaned by the tokenizer if it cleans."""
        if self.recorded is None:
            return list(terms)
        return clean(pl.Series(terms, dtype=pl.String), self.settings.cleaning).to_list()


class Extended(NamedTuple):
    """The result of an extension, or of leaving out pieces.

    Attributes:
      rows: of the word table.
      drawn: new pieces of unknown characters, whose rows are random.
      same: terms of the check whose tokens did not change.
      largest: difference of their unit vectors before and after, by library.
    """

    rows: int
    drawn: int
    same: int
    largest: dict[str, float]


def open_extendable(name: str, out: Path, *, only_used: bool = False) -> Extendable:
    """Opens an encoder and checks, before the work, that a changed one can be written to `out`.

    Args:
      name: folder or hub id.
      out: the folder to write later.
      only_used: pieces will be left out (`write_trimmed`) and not added.

    Raises:
      BadInput: no such model, another architecture, a vocabulary that is not WordPiece (unless
        only_used), PyTorch missing, or an `out` that is something else than an earlier folder of
        this kind.
    """
    folder = find_folder(name)
    read_config(read_json(folder / "config.json"), str(folder / "config.json"))
    tokenizer = load_tokenizer(folder)
    settings = within_positions(read_settings(folder), folder)
    bert, hf_config, report = load_bert(folder)
    check_vocabulary(vocabulary_size(tokenizer), bert.config, name)
    if in_bucket(out):
        raise BadInput(
            f"--out: found {out}; expected a folder on this machine: copy it there after"
        )
    check_exportable(bert, settings, {}, out)
    if out.resolve() == folder.resolve():
        raise BadInput(f"--out {out} is the encoder itself; give another folder")
    if (earlier := read_export(out)) and not isinstance(earlier.vocabulary, dict):
        raise BadInput(
            f"--out {out} is an encoder whose vocabulary was not extended; give a new or empty "
            "folder"
        )
    left_out = (*report.heads_ignored, *report.only_in_file)
    encoder = Extendable(name, folder, settings, tokenizer, bert, hf_config, tuple(left_out))
    if not only_used:
        _ = encoder.vocabulary  # another kind is refused
    return encoder


def write_extended(
    encoder: Extendable,
    new: Sequence[str],
    out: Path,
    *,
    probes: Sequence[str],
    facts: Mapping[str, Any],
) -> Extended:
    """Writes and checks the encoder with new pieces at the end of its vocabulary.

    Args:
      encoder: from `open_extendable`.
      new: pieces that it lacks, each once.
      out: the folder to write; an earlier one is replaced.
      probes: terms to check with, beside PROBE_TERMS.
      facts: label -> value, for the model card and coder_jax.json.

    Raises:
      BadInput: a disk that is full.
      RuntimeError: the folder opens with other tokens, or with other vectors of terms whose tokens
        did not change. Nothing is left behind.
    """
    vocabulary = encoder.vocabulary.with_pieces(new)
    table, drawn = _extended_table(_word_table(encoder.bert), encoder.vocabulary, new)
    about = (
        "with new word pieces at the end of its vocabulary, made by "
        "`python -m coder_jax extend-vocabulary`. Every weight that it had is unchanged; the row "
        "of a new piece is the mean of the rows of the pieces that spelt it before; one of unknown "
        "characters is random. Nothing was trained: a term with new pieces has a useful vector "
        "only after training on such terms."
    )
    same, largest = _write(
        encoder,
        out,
        table,
        vocabulary.put_into,
        np.arange(encoder.vocabulary.size),
        probes=probes,
        about=about,
        facts={"new pieces": len(new), **facts},
    )
    return Extended(len(table), drawn, same, largest)


def write_trimmed(
    encoder: Extendable,
    kept: np.ndarray,
    out: Path,
    *,
    probes: Sequence[str],
    facts: Mapping[str, Any],
) -> Extended:
    """Writes and checks the encoder with some pieces of its vocabulary.

    Args:
      encoder: from `open_extendable`.
      kept: int64 [n], ascending: the ids to keep, from `used_pieces`.
      out, probes, facts: as of `write_extended`.

    Raises:
      As `write_extended`.
    """
    # RoBERTa's positions count from the padding token's id, which must stay.
    kept = np.union1d(kept, np.arange(encoder.bert.config.first_position))
    table = _word_table(encoder.bert)[kept]
    about = (
        "without the word pieces that a terminology does not use, made by "
        "`python -m coder_jax extend-vocabulary --only-used`. Every weight that is left is "
        "unchanged, and so are the vectors of that terminology's terms. Other words may fall into "
        "more pieces than before."
    )
    pieces = vocabulary_size(encoder.tokenizer)
    same, largest = _write(
        encoder,
        out,
        table,
        lambda tokenizer: with_pieces_alone(tokenizer, kept),
        kept,
        probes=probes,
        about=about,
        facts={"pieces kept": f"{len(kept):,} of {pieces:,}", **facts},
    )
    return Extended(len(table), 0, same, largest)


def _word_table(bert: Bert) -> np.ndarray:
    """float32 [V, D]."""
    return to_hf(bert)[anchor(bert.config)]


def _write(
    encoder: Extendable,
    out: Path,
    table: np.ndarray,
    change: Callable[[Tokenizer], Tokenizer],
    old_ids: np.ndarray,
    *,
    probes: Sequence[str],
    about: str,
    facts: Mapping[str, Any],
) -> tuple[int, dict[str, float]]:
    """Writes and checks an encoder with another vocabulary.

    Args:
      encoder: what there was.
      out: the folder to write.
      table: float32 [V, D], the new word table.
      change: gives a tokenizer of the old vocabulary the new one.
      old_ids: int64 [n], the old ids of the new vocabulary's first pieces.
      probes: terms to check with, beside PROBE_TERMS.
      about: what was done, in words for the model card.
      facts: label -> value.

    Returns:
      As `_check`.
    """
    new = {int(old): number for number, old in enumerate(old_ids)}
    token_ids = {
        name: new.get(value, value) if isinstance(value, int) else value
        for name, value in encoder.hf_config.items()
    }
    with whole_export(out) as folder:
        write_model(folder, _with_word_table(encoder.bert, table), token_ids, pytorch_bin=False)
        _write_tokenizer(folder, encoder, change)
        _copy_kept(encoder.folder, folder)
        _write_descriptions(folder, encoder, about, facts)
        return _check(folder, encoder, change(encoder.tokenizer), old_ids, [*PROBE_TERMS, *probes])


def _write_tokenizer(
    folder: Path, encoder: Extendable, change: Callable[[Tokenizer], Tokenizer]
) -> None:
    """The encoder's tokenizer, its own padding and truncation too, with other pieces."""
    save_tokenizer(encoder.folder, folder)
    path = folder / "tokenizer.json"
    tokenizer = change(Tokenizer.from_file(str(path)))
    tokenizer.save(str(path))
    if encoder.recorded is not None:
        clean_in(folder, encoder.settings.cleaning)
    if (folder / "vocab.txt").exists():  # transformers may write it, and must not read an old one
        tokenizer.model.save(str(folder))


def _copy_kept(source: Path, folder: Path) -> None:
    """Copies files that stay valid: KEPT, and the module folders of sentence-transformers."""
    for pattern in _KEPT:
        for path in source.glob(pattern):
            shutil.copyfile(path, folder / path.name)
    if (folder / "modules.json").is_file():
        what = str(source / "modules.json")
        for module in typed(
            read_json_value(source / "modules.json"), list[Module], what, "fetch the folder again"
        ):
            if module["path"] and (source / module["path"]).is_dir():
                shutil.copytree(source / module["path"], folder / module["path"])
            elif module["path"]:  # as Normalize's, which has no files
                (folder / module["path"]).mkdir()


def _write_descriptions(
    folder: Path, encoder: Extendable, about: str, facts: Mapping[str, Any]
) -> None:
    """coder_jax.json for programs and README.md, the model card, for people."""
    before = read_export(encoder.folder)
    versions = {name: version(name) for name in ("jax", "flax", "transformers", "tokenizers")}
    write_settings(
        folder,
        encoder.settings,
        recipe=before.recipe if before else UNSET,
        dataset_hash=before.dataset_hash if before else UNSET,
        languages=before.languages if before else UNSET,
        vocabulary=dict(facts),
        versions=versions,
    )
    of_base = read_card(encoder.folder)
    public = hub_id_of(encoder.name)
    name = public or encoder.folder.name
    tags = set(of_base.get("tags") or ())
    if "new pieces" in facts:
        tags.add("vocabulary-extension")
    metadata = ModelCardData(
        **{key: value for key, value in of_base.items() if key in _OF_BASE},
        base_model=public or of_base.get("base_model"),
        library_name="sentence-transformers"
        if (folder / "modules.json").is_file()
        else "transformers",
        pipeline_tag="feature-extraction",
        tags=sorted(tags) or None,
    )
    text = f"---\n{metadata.to_yaml()}\n---\n\n# {name}, another vocabulary\n\n"
    text += f"The encoder `{name}` {about}\n\n"
    text += section("Vocabulary", markdown_table(facts)) + "\n"
    (folder / "README.md").write_text(text, encoding="utf-8")


def _check(
    folder: Path,
    encoder: Extendable,
    planned: Tokenizer,
    old_ids: np.ndarray,
    terms: Sequence[str],
) -> tuple[int, dict[str, float]]:
    """Opens a new folder as its users will.

    Args:
      folder: what was written.
      encoder: what there was.
      planned: the tokenizer with the new vocabulary.
      old_ids: int64 [n], the old ids of its first pieces.
      terms: to compare.

    Returns:
      (terms whose pieces did not change, the largest difference of their vectors by library).

    Raises:
      RuntimeError: other tokens than planned, other rows of old pieces, or vectors that differ.
    """
    opened = load_tokenizer(folder)
    cleaned = encoder.cleaned(terms)
    expected, after = (
        [one.ids for one in tokenizer.encode_batch(cleaned)] for tokenizer in (planned, opened)
    )
    if after != expected or opened.get_vocab() != planned.get_vocab():
        raise RuntimeError(f"{folder} opens with other tokens than those that were written")
    rows = read_tensors(folder)[anchor(encoder.bert.config)][: len(old_ids)]
    if not np.array_equal(rows, _word_table(encoder.bert)[old_ids]):
        raise RuntimeError(f"{folder} has other rows for the pieces that were there before")
    with unreported():
        before = transformers_tokens(encoder.folder, terms)
    old_id = dict(enumerate(old_ids.tolist()))
    same = [
        term
        for term, old, new in zip(terms, before, expected, strict=True)
        if old == [old_id.get(one) for one in new]
    ]
    by_library = {"transformers": lambda path: transformers_vectors(path, same, encoder.settings)}
    if (folder / "modules.json").is_file() and find_spec("sentence_transformers") is not None:
        by_library["sentence-transformers"] = lambda path: sentence_transformers_vectors(path, same)
    largest = {}
    for library, vectors in by_library.items():
        with unreported():
            largest[library] = float(np.abs(vectors(folder) - vectors(encoder.folder)).max())
        if not largest[library] <= _TOLERANCE:  # catches NaN too
            raise RuntimeError(
                f"{folder} opened by {library} gives vectors of terms with the same tokens that "
                f"differ by {largest[library]:.2e}; expected at most {_TOLERANCE:.0e}"
            )
    return len(same), largest
