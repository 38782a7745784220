"""Writing the files of a dataset folder from a `Terminology` and a tokenizer (see `store.py`).

Shards are written one by one and renamed when whole, each with a small .json beside it; one that
has it is never written again. `finish` adds TFDS metadata, the manifest, at last the folder's name.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import tensorflow_datasets as tfds
from tokenizers import Tokenizer

from data_pipeline import process
from data_pipeline.dataset.store import (
    ARRAYS,
    BLOCK,
    DATASET_NAME,
    FIRST_CONCEPT,
    MANIFEST,
    SOURCE_ARRAYS,
    SOURCE_STRINGS,
    SPLIT,
    STRINGS,
    DescribedShard,
    Manifest,
    digest,
    shard_name,
)
from data_pipeline.dataset.tokenizer import WordPieces, cut
from data_pipeline.files.identity import DATASET, read_json, typed, write_identity
from data_pipeline.files.whole import OLD, beside, replace_folder, write_json, written_whole
from data_pipeline.process import BadInput, Progress, progress_bar
from data_pipeline.quiet_tensorflow import tf
from data_pipeline.terminology.terminology import Terminology, offsets

_TERMS_PER_SHARD = 100_000
_BLOCKS_AT_ONCE = 64  # tokenized together: the more terms, the more of their words are the same
_MAX_SHARDS = 64


def default_shards(terms: int) -> int:
    """A number of shards for this many terms that allows parallel reading."""
    return min(_MAX_SHARDS, 1 + terms // _TERMS_PER_SHARD)


class BlockWriter:
    """Makes the records of a terminology, one for each block of concepts."""

    def __init__(self, terminology: Terminology, tokenizer: Tokenizer, max_length: int):
        self.terminology = terminology
        self.pieces = WordPieces(tokenizer)
        self.max_length = max_length
        self.concepts = len(terminology.cuis)
        self.blocks = -(-self.concepts // BLOCK)
        self.term_start = terminology.term_start()
        self.triplet_start = offsets(terminology.heads, self.concepts)
        self.code_start = offsets(terminology.codes["concept"].to_numpy(), self.concepts)
        self.unknown_id = _unknown_id(tokenizer)

    def terms_in(self, blocks: range) -> int:
        """The number of terms in consecutive blocks."""
        rows = self._rows(blocks)
        return rows.stop - rows.start

    def _rows(self, blocks: range) -> slice:
        first, last = blocks.start * BLOCK, min(blocks.stop * BLOCK, self.concepts)
        return slice(int(self.term_start[first]), int(self.term_start[last]))

    def records(self, blocks: range) -> Iterator[tuple[dict, dict[str, int]]]:
        """The records of consecutive blocks, each with counts of its content and of cut terms."""
        at_once = _BLOCKS_AT_ONCE if self.pieces.splits_at_blanks else 1
        for first in range(blocks.start, blocks.stop, at_once):
            together = range(first, min(first + at_once, blocks.stop))
            rows = self._rows(together)
            ids, start = self.pieces(self.terminology.terms["term"][rows])
            for block in together:
                own = self._rows(range(block, block + 1))
                bounds = start[own.start - rows.start : own.stop - rows.start + 1]
                yield self._record(block, ids[bounds[0] : bounds[-1]], bounds - bounds[0])

    def _record(
        self, block: int, whole: np.ndarray, whole_start: np.ndarray
    ) -> tuple[dict, dict[str, int]]:
        """The record of one block, from the uncut ids of its terms."""
        this = self.terminology
        first, last = block * BLOCK, min((block + 1) * BLOCK, self.concepts)
        triplets = slice(int(self.triplet_start[first]), int(self.triplet_start[last]))
        types = slice(int(this.type_start[first]), int(this.type_start[last]))
        frame = this.terms[self._rows(range(block, block + 1))]
        terms, vocabularies = frame["term"].to_list(), frame["vocabularies"]
        tokens, start = cut(whole, whole_start, self.max_length)
        record: dict = {
            FIRST_CONCEPT: first,
            "n_terms": np.diff(self.term_start[first : last + 1]).astype(np.int32),
            "n_tokens": np.diff(start).astype(np.int32),
            "tokens": tokens,
            "term_languages": frame["language"].to_numpy(),
            "n_vocabularies": vocabularies.list.len().to_numpy().astype(np.uint16),
            "term_vocabularies": vocabularies.explode().to_numpy(),
            "n_types": np.diff(this.type_start[first : last + 1]).astype(np.int32),
            "types": this.types[types],
            "n_triplets": np.diff(self.triplet_start[first : last + 1]).astype(np.int32),
            "relations": this.relations[triplets],
            "tails": this.tails[triplets],
            **_occurrences(frame),
            "cuis": "\n".join(this.cuis[first:last].to_list()),
            "terms": "\n".join(terms),
            **_source_strings(frame),
            **self._codes(first, last),
        }
        lengths = np.diff(whole_start)
        has_unknown = np.add.reduceat(whole == self.unknown_id, whole_start[:-1]) > 0
        counts = {
            "records": 1,
            "concepts": last - first,
            "terms": len(terms),
            "tokens": len(tokens),
            "term_vocabularies": len(record["term_vocabularies"]),
            "concept_types": len(record["types"]),
            "triplets": len(record["tails"]),
            "occurrences": len(record["occurrence_terms"]),
            "source_strings": len(record["n_source_vocabularies"]),
            "source_vocabularies": len(record["source_vocabularies"]),
            "codes": len(record["code_vocabularies"]),
            "cut_terms": int((lengths > self.max_length).sum()),
            "unknown_terms": int(has_unknown.sum()),
            "longest_term_tokens": int(lengths.max()),
        }
        return record, counts

    def _codes(self, first: int, last: int) -> dict:
        """The code features of the record of consecutive concepts."""
        codes = self.terminology.codes[int(self.code_start[first]) : int(self.code_start[last])]
        return {
            "n_codes": np.diff(self.code_start[first : last + 1]).astype(np.int32),
            "code_vocabularies": codes["vocabulary"].to_numpy(),
            "codes": "\n".join(codes["code"]),
        }


def _occurrences(terms: pl.DataFrame) -> dict:
    """The features of a record that say where terms occur again, from `Terminology.terms`."""
    again = terms.select("more_languages", "more_counts").with_row_index("term")
    again = again.explode("more_languages", "more_counts").drop_nulls()
    return {
        "occurrence_terms": again["term"].to_numpy().astype(np.int32),
        "occurrence_languages": again["more_languages"].to_numpy(),
        "occurrence_counts": again["more_counts"].to_numpy(),
    }


def _source_strings(terms: pl.DataFrame) -> dict:
    """The source-string features of a record, from its rows of `Terminology.terms`."""
    strings = (
        terms.select("strings", "sources")
        .with_row_index("term")
        .explode("strings", "sources")
        .group_by("term", "strings", maintain_order=True)
        .agg(pl.col("sources").unique().sort())
    )
    return {
        "n_source_strings": np.bincount(strings["term"], minlength=terms.height).astype(np.uint16),
        "n_source_vocabularies": strings["sources"].list.len().to_numpy().astype(np.uint16),
        "source_vocabularies": strings["sources"].explode().to_numpy(),
        "source_strings": "\n".join(strings["strings"].fill_null("")),
    }


def _unknown_id(tokenizer: Tokenizer) -> int:
    """Id of the unknown token, or -1 for a tokenizer that has none (every string has pieces)."""
    name = getattr(tokenizer.model, "unk_token", None) or "[UNK]"
    found = tokenizer.token_to_id(name)
    return -1 if found is None else found


def write_shards(writer: BlockWriter, work: Path, shards: int) -> list[DescribedShard]:
    """Writes the shards that `work` lacks; returns the descriptions of all shards.

    A description has a digest for each record, and the summed counts of `BlockWriter.records`.
    """
    shards = min(shards, writer.blocks)
    bounds = [writer.blocks * i // shards for i in range(shards + 1)]
    descriptions = []
    total = writer.terms_in(range(writer.blocks))
    with progress_bar(total=total, desc="tokenize and write", unit="term", unit_scale=True) as bar:
        for index in range(shards):
            file = work / shard_name(index, shards)
            blocks = range(bounds[index], bounds[index + 1])
            description = _finished(file)
            if description:
                bar.update(writer.terms_in(blocks))
            else:
                description = _write_shard(writer, file, blocks, bar)
                write_json(_description_of(file), dataclasses.asdict(description))
            descriptions.append(description)
    return descriptions


def _features() -> tfds.features.FeaturesDict:
    """The TFDS features of a record.

    Arrays are stored as raw bytes, which reads quickest.
    """
    arrays = {
        name: tfds.features.Tensor(shape=(None,), dtype=dtype, encoding="bytes")
        for name, dtype in (ARRAYS | SOURCE_ARRAYS).items()
    }
    texts = {name: tfds.features.Text() for name in (*STRINGS, *SOURCE_STRINGS)}
    first = {FIRST_CONCEPT: tfds.features.Scalar(dtype=np.int32)}
    return tfds.features.FeaturesDict(first | arrays | texts)


def _description_of(file: Path) -> Path:
    return file.with_name(file.name + ".json")


def _finished(file: Path) -> DescribedShard | None:
    """The description of a shard that an earlier run finished; None if it must be written."""
    if not _description_of(file).is_file():
        return None
    try:
        path = _description_of(file)
        description = typed(read_json(path), DescribedShard, str(path))
    except BadInput:
        return None  # written again
    # After a power cut a file can be shorter than what was written.
    is_whole = file.is_file() and file.stat().st_size == description.bytes
    return description if is_whole else None


def _write_shard(writer: BlockWriter, file: Path, blocks: range, bar: Progress) -> DescribedShard:
    totals: dict[str, int] = {}
    digests = []
    description_of_records = _features()
    with (
        written_whole(file) as unfinished,
        tf.io.TFRecordWriter(str(unfinished)) as records,
    ):
        for record, counts in writer.records(blocks):
            process.poll()  # seconds of a shard are lost; waiting for its end could be too long
            records.write(description_of_records.serialize_example(record))
            digests.append(digest(record))
            for name, count in counts.items():
                total = totals.get(name, 0)
                is_maximum = name.startswith("longest")
                totals[name] = max(total, count) if is_maximum else total + count
            bar.update(counts["terms"])
    return DescribedShard(file=file.name, bytes=file.stat().st_size, **totals, digests=digests)


def has_finished_shards(work: Path) -> bool:
    """Whether another run of the same build would find finished shards."""
    return any(work.glob("*.tfrecord-*.json"))


def terminology_hash(terminology: Terminology, shards: Sequence[DescribedShard]) -> str:
    """SHA-256 over all records and the lists that their numbers index.

    Independent of the number of shards, the order of the input rows, the machine and the time.
    """
    lists = [
        terminology.languages,
        terminology.vocabularies,
        terminology.relation_labels,
        terminology.semantic_types,
    ]
    content = hashlib.sha256(json.dumps(lists, ensure_ascii=False).encode())
    for shard in shards:
        for record_digest in shard.digests:
            content.update(record_digest.encode())
    return content.hexdigest()


def finish(work: Path, out: Path, manifest: Manifest) -> None:
    """Completes `work` with TFDS metadata and the manifest, then renames it to `out`.

    An older dataset at `out` is replaced; whether it may be is the caller's question. Killed before
    the renaming, the next run finds all shards finished; killed in it, the next run does it again.
    """
    shards = manifest.shards
    split = tfds.core.SplitInfo(
        name=SPLIT,
        shard_lengths=[shard.records for shard in shards],
        num_bytes=sum(shard.bytes for shard in shards),
        filename_template=tfds.core.ShardedFileTemplate(
            dataset_name=DATASET_NAME, data_dir=work, split=SPLIT, filetype_suffix="tfrecord"
        ),
    )
    tfds.folder_dataset.write_metadata(
        data_dir=work,
        features=_features(),
        split_infos=[split],
        description=f"Terms and triplets of {manifest.name} {manifest.release}, in blocks of "
        f"{BLOCK} concepts; see {MANIFEST}.",
        disable_shuffling=True,  # readers get the blocks in order
    )
    write_identity(work / MANIFEST, DATASET, manifest)
    # Not a `whole_folder`, which starts empty: a resumed build needs the finished shards.
    replace_folder(work, out)
    tidy(out)


def tidy(out: Path) -> None:
    """Removes what is not needed once the finished dataset has its name."""
    for path in left_by_finish(out):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def left_by_finish(out: Path) -> list[Path]:
    """The files that `tidy` removes: descriptions of shards, and a replaced older dataset."""
    old = beside(out, OLD)
    return [*out.glob("*.tfrecord-*.json"), *([old] if old.is_dir() else [])]
