"""The dataset on disk as TFDS records: what a record holds, and `open_dataset`, which reads it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_pipeline.dataset.manifest import Manifest, Shard
from data_pipeline.files.buckets import local_folder
from data_pipeline.files.identity import DATASET, Hash, is_of_kind, read_identity
from data_pipeline.files.whole import aligned, recover_folder
from data_pipeline.process import BadInput

# -------------------------------------------------------------------------------------------------
# TensorFlow for reading data only: no GPU memory taken, no start-up messages.
#
# Import `tf` and `tfds` from here wherever data_pipeline needs them. What the user sets in the
# environment stays as it is.

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # its notice ignores the level above

import absl.logging  # noqa: E402
import tensorflow as tf  # noqa: E402
import tensorflow_datasets as tfds  # noqa: E402

absl.logging.set_verbosity(absl.logging.ERROR)
tf.config.set_visible_devices([], "GPU")  # JAX or PyTorch own the accelerators


# -------------------------------------------------------------------------------------------------
# What one record of a dataset holds: names, types, and what says how many there are of each.

DATASET_NAME, SPLIT = "triplets", "train"
BLOCK = 1024  # concepts per record; the content hash depends on it

# Per record; n_ is a count per concept or term, from which readers make CSR offsets.
_ARRAYS = {
    "n_terms": np.int32,  # per concept
    "n_tokens": np.int32,  # per term
    "tokens": np.int32,
    "term_languages": np.uint8,  # per term, index into manifest.languages
    "n_vocabularies": np.uint16,  # per term
    "term_vocabularies": np.uint16,  # index into manifest.vocabularies
    "n_types": np.int32,  # per concept
    "types": np.int32,  # index into manifest.semantic_types
    "n_triplets": np.int32,  # per concept, as head
    "relations": np.int32,  # index into manifest.relations
    "tails": np.int32,  # concept
}
FIRST_CONCEPT = (
    "first_concept"  # number of the block's first concept; makes a record whole by itself
)
_STRINGS = ("cuis", "terms")  # one UTF-8 text per record, one line per concept or term
_FOR_READERS = ("n_vocabularies", "term_vocabularies")  # as strings are; no batch has need of them

# What the source itself has: for look-ups, read on demand alone, and in no content hash.
_SOURCE_ARRAYS = {
    "n_source_strings": np.uint16,  # per term
    "n_source_vocabularies": np.uint16,  # per source string
    "source_vocabularies": np.uint16,  # index into manifest.vocabularies
    "n_codes": np.int32,  # per concept
    "code_vocabularies": np.uint16,  # per code, index into manifest.vocabularies
}
# Texts as STRINGS are, and which array has an entry for each line. A string that is the term as it
# was cleaned is an empty line.
_SOURCE_STRINGS = {"source_strings": "n_source_vocabularies", "codes": "code_vocabularies"}

# The field of manifest.shards[i] that gives each array's length.
_SIZES = {
    "n_terms": "concepts",
    "n_tokens": "terms",
    "tokens": "tokens",
    "term_languages": "terms",
    "n_vocabularies": "terms",
    "term_vocabularies": "term_vocabularies",
    "n_types": "concepts",
    "types": "concept_types",
    "n_triplets": "concepts",
    "relations": "triplets",
    "tails": "triplets",
    "heads": "triplets",
}
_SOURCE_SIZES = {
    "n_source_strings": "terms",
    "n_source_vocabularies": "source_strings",
    "source_vocabularies": "source_vocabularies",
    "n_codes": "concepts",
    "code_vocabularies": "codes",
}


@dataclass(frozen=True, kw_only=True)
class DescribedShard(Shard):
    """What a build keeps of a shard that it has finished."""

    digests: list[Hash]


def features(names: Iterable[str] | None = None) -> tfds.features.FeaturesDict:
    """The TFDS description of a record, or of these parts of it and its first concept.

    Arrays are stored as raw bytes, which reads quickest.
    """
    arrays = {
        name: tfds.features.Tensor(shape=(None,), dtype=dtype, encoding="bytes")
        for name, dtype in (_ARRAYS | _SOURCE_ARRAYS).items()
    }
    texts = {name: tfds.features.Text() for name in (*_STRINGS, *_SOURCE_STRINGS)}
    parts = arrays | texts
    wanted = parts if names is None else {name: parts[name] for name in names}
    return tfds.features.FeaturesDict(
        {FIRST_CONCEPT: tfds.features.Scalar(dtype=np.int32)} | wanted
    )


def shard_name(index: int, count: int) -> str:
    """File name of a shard, as TFDS expects it."""
    return f"{DATASET_NAME}-{SPLIT}.tfrecord-{index:05d}-of-{count:05d}"


def digest(record: dict) -> str:
    """SHA-256 of a record's content: names, lengths and little-endian bytes, in a fixed order.

    The source's strings and codes take no part: what is trained on is the same without them.
    """
    content = hashlib.sha256(f"{record[FIRST_CONCEPT]}\n".encode())
    for name, dtype in _ARRAYS.items():
        array = np.ascontiguousarray(record[name], np.dtype(dtype).newbyteorder("<"))
        content.update(f"{name} {len(array)}\n".encode())
        content.update(array.tobytes())
    for name in _STRINGS:
        data = record[name].encode()
        content.update(f"{name} {len(data)}\n".encode())
        content.update(data)
    return content.hexdigest()


# -------------------------------------------------------------------------------------------------
# A dataset folder in, its arrays out (`open_dataset`).
#
# A dataset folder is what `tfds.builder_from_directory` opens (dataset_info.json, features.json,
# sharded TFRecords) plus manifest.json, tokenizer/ and, where synonyms were held out, heldout/. One
# record is a block of BLOCK consecutive concepts with their terms, the tokens and vocabularies of
# these, semantic types, the triplets whose head is among them, and the strings and codes of the
# source (`store.py`). `write.py` writes such folders.

FORMAT = DATASET.format
MANIFEST = DATASET.file
WORK_MARK = ".building-"  # in the name of a folder that is being built


@dataclass(frozen=True)
class SourceStrings:
    """What the source itself has of the terms and concepts of a dataset.

    Vocabularies index manifest.vocabularies.

    Attributes:
      string_start: int64 [N + 1]; the strings that became term n when they were cleaned are
        strings[string_start[n] : string_start[n + 1]], one or more, distinct, the preferred first.
      strings: list of str, as the source writes them, but tabs and line breaks are blanks.
      vocabulary_start, vocabularies: int64 [strings + 1] and uint16; the vocabularies that have
        string s for its concept are vocabularies[vocabulary_start[s] : vocabulary_start[s + 1]].
      code_start: int64 [C + 1]; the codes of concept c are codes[code_start[c] : code_start[c + 1]]
        of code_vocabularies (uint16) at these places; distinct, sorted by vocabulary and code.
      codes: list of str.
    """

    string_start: np.ndarray
    strings: list[str]
    vocabulary_start: np.ndarray
    vocabularies: np.ndarray
    code_start: np.ndarray
    code_vocabularies: np.ndarray
    codes: list[str]


@dataclass(frozen=True)
class TripletDataset:
    """A dataset in memory. Concepts, terms and triplets are numbered from 0, in stored order.

    Attributes:
      folder: where it was read from.
      manifest: what manifest.json says.
      term_start: int64 [C + 1]; the terms of concept c are term_start[c] .. term_start[c + 1] - 1,
        the preferred term first.
      token_start: int64 [N + 1]; tokens of term n, [CLS] and [SEP] included.
      tokens: int32, or uint16 where that holds the tokenizer's vocabulary, [sum of term lengths].
      heads, relations, tails: int32 [T]; sorted by head, relation, tail. heads and tails are
        concepts, relations index manifest.relations.
      term_language: uint8 [N], index into manifest.languages.
      type_start, types: int64 [C + 1] and int32; the semantic types of concept c are
        types[type_start[c] : type_start[c + 1]], which index manifest.semantic_types.
      cuis, terms: lists of str, [C] and [N], or None without `strings=True`.
      vocabulary_start, term_vocabularies: int64 [N + 1] and uint16, or None without `strings=True`;
        the vocabularies that have term n for its concept are
        term_vocabularies[vocabulary_start[n] : vocabulary_start[n + 1]], which index
        manifest.vocabularies.
      source: what the source itself has of them, or None without `source=True`.
    """

    folder: Path
    manifest: Manifest
    term_start: np.ndarray
    token_start: np.ndarray
    tokens: np.ndarray
    heads: np.ndarray
    relations: np.ndarray
    tails: np.ndarray
    term_language: np.ndarray
    type_start: np.ndarray
    types: np.ndarray
    cuis: list[str] | None = None
    terms: list[str] | None = None
    vocabulary_start: np.ndarray | None = None
    term_vocabularies: np.ndarray | None = None
    source: SourceStrings | None = None

    def in_languages(self, languages: Sequence[str]) -> np.ndarray:
        """bool [N]: the terms in some languages; all where none is given.

        Raises BadInput if there is no term in one of them.
        """
        there = self.manifest.languages
        unknown = [language for language in languages if language not in there]
        if unknown:
            raise BadInput(
                f"--languages {' '.join(unknown)}: {self.folder} has no term in it; expected some "
                f"of {' '.join(there)}"
            )
        if not languages:
            return np.ones(len(self.term_language), bool)
        return np.isin(self.term_language, [there.index(language) for language in languages])


def open_dataset(
    path: str | Path, *, strings: bool = False, source: bool = False
) -> TripletDataset:
    """Reads a whole dataset into memory, shards in parallel, always in the same order.

    Args:
      path: a folder that `python -m data_pipeline.build` made, here or in a bucket.
      strings: also the identifiers and the terms as strings, and the vocabularies of each term
        (a UMLS needs two gigabytes more).
      source: also the strings as the source writes them, and the codes of the concepts (about as
        much again); `strings` come with them.
    Raises BadInput if the folder is missing, half-built, not a dataset, or damaged.
    """
    folder = local_folder(path, MANIFEST)
    manifest = read_manifest(folder)
    shards, strings = manifest.shards, strings or source
    sizes = _SIZES | (_SOURCE_SIZES if source else {})
    ends = {
        name: np.cumsum([0] + [getattr(s, size) for s in shards]) for name, size in sizes.items()
    }
    for name, size in _SIZES.items():
        if getattr(manifest.counts, size) != ends[name][-1]:
            raise _damaged(folder / MANIFEST, f"the {size} of its shards do not add up")
    dtypes = _ARRAYS | _SOURCE_ARRAYS | {"heads": np.int32}
    if manifest.tokenizer.vocab_size <= np.iinfo(np.uint16).max:
        dtypes["tokens"] = np.uint16  # half the memory of the largest array
    wanted = [name for name in sizes if strings or name not in _FOR_READERS]
    arrays = {name: aligned(int(ends[name][-1]), dtypes[name]) for name in wanted}
    texts = (*_STRINGS * strings, *(_SOURCE_STRINGS if source else ()))

    def read(index: int) -> dict[str, list[str]]:
        bounds = {name: (int(end[index]), int(end[index + 1])) for name, end in ends.items()}
        return _read_shard(folder / shards[index].file, arrays, bounds, texts)

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        parts = list(pool.map(read, range(len(shards))))
    joined = {name: [line for part in parts for line in part[name]] for name in texts}
    return TripletDataset(
        folder=folder,
        manifest=manifest,
        term_start=_starts(arrays["n_terms"]),
        token_start=_starts(arrays["n_tokens"]),
        tokens=arrays["tokens"],
        heads=arrays["heads"],
        relations=arrays["relations"],
        tails=arrays["tails"],
        term_language=arrays["term_languages"],
        type_start=_starts(arrays["n_types"]),
        types=arrays["types"],
        cuis=joined.get("cuis"),
        terms=joined.get("terms"),
        vocabulary_start=_starts(arrays["n_vocabularies"]) if strings else None,
        term_vocabularies=arrays.get("term_vocabularies"),
        source=_source_strings(arrays, joined) if source else None,
    )


def _source_strings(arrays: dict[str, np.ndarray], texts: dict[str, list[str]]) -> SourceStrings:
    terms = np.repeat(np.array(texts["terms"], object), arrays["n_source_strings"])
    lines = zip(texts["source_strings"], terms, strict=True)
    return SourceStrings(
        string_start=_starts(arrays["n_source_strings"]),
        strings=[string or term for string, term in lines],
        vocabulary_start=_starts(arrays["n_source_vocabularies"]),
        vocabularies=arrays["source_vocabularies"],
        code_start=_starts(arrays["n_codes"]),
        code_vocabularies=arrays["code_vocabularies"],
        codes=texts["codes"],
    )


def _read_shard(
    file: Path,
    arrays: dict[str, np.ndarray],
    bounds: dict[str, tuple[int, int]],
    texts: Sequence[str],
) -> dict[str, list[str]]:
    """Fills the shard's part, `bounds`, of each array; returns the lines of these texts."""
    at = {name: bounds[name][0] for name in arrays}
    lines: dict[str, list[str]] = {name: [] for name in texts}
    for record in _records(file, [*arrays.keys() - {"heads"}, *texts]):
        first, count = at["n_terms"], len(record["n_triplets"])
        if record[FIRST_CONCEPT] != first:
            raise _damaged(file, "its blocks are out of order")
        concepts = np.arange(first, first + count, dtype=np.int32)
        record["heads"] = np.repeat(concepts, record["n_triplets"])
        for name, array in arrays.items():
            stop = at[name] + len(record[name])
            if stop > bounds[name][1]:
                raise _damaged(file, "it holds more than the manifest says")
            if record[name].max(initial=0) > np.iinfo(array.dtype).max:
                raise _damaged(file, f"its {name} are not in the tokenizer's vocabulary")
            array[at[name] : stop] = record[name]
            at[name] = stop
        for name in texts:
            counted = _SOURCE_STRINGS.get(name)
            if counted is None or len(record[counted]):  # no lines are an empty text, as one is
                lines[name] += record[name].decode().split("\n")
    if any(stop != bounds[name][1] for name, stop in at.items()):
        raise _damaged(file, "it holds less than the manifest says")
    return lines


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a complete dataset folder; raises BadInput for any other folder."""
    build = "build one with python -m data_pipeline.build"
    if WORK_MARK in folder.name:
        raise BadInput(
            f"{folder} is a build that did not finish; run the same build command again, which "
            "goes on where it stopped, and open the folder named by its --out"
        )
    recover_folder(folder)  # of a build that was killed while it replaced another
    if not folder.is_dir():
        unfinished = sorted(folder.parent.glob(f".{folder.name}{WORK_MARK}*"))
        hint = (
            f"a build of it did not finish ({unfinished[0]}): run the same build command again"
            if unfinished
            else build
        )
        raise BadInput(f"{folder} does not exist; expected a dataset folder: {hint}")
    if not (folder / MANIFEST).is_file():
        raise BadInput(
            f"{folder} is no finished dataset: it has no {MANIFEST}. Expected a folder that "
            f"python -m data_pipeline.build made; {build} in another folder"
        )
    manifest = read_identity(folder / MANIFEST, DATASET, Manifest)
    for shard in manifest.shards:
        file = folder / shard.file
        if not file.is_file():
            raise _damaged(file, "the file is missing")
        if file.stat().st_size != shard.bytes:
            raise _damaged(file, f"{file.stat().st_size:,} bytes, expected {shard.bytes:,}")
        for name, dtype in (_ARRAYS | _SOURCE_ARRAYS).items():  # before memory for so much is taken
            size = (_SIZES | _SOURCE_SIZES)[name]
            if getattr(shard, size) * np.dtype(dtype).itemsize > shard.bytes:
                raise _damaged(
                    folder / MANIFEST,
                    f"it says {getattr(shard, size):,} {size} of {shard.file}, which cannot be in "
                    f"{shard.bytes:,} bytes",
                )
    return manifest


def is_dataset(folder: Path) -> bool:
    """Whether a folder is a dataset of any version, be it damaged."""
    return is_of_kind(folder / MANIFEST, DATASET)


def _starts(lengths: np.ndarray) -> np.ndarray:
    start = aligned(len(lengths) + 1, np.int64)
    start[0] = 0
    np.cumsum(lengths, out=start[1:])
    return start


def _records(file: Path, names: Iterable[str]) -> Iterator[dict]:
    """These parts of the records of one shard: arrays as NumPy views, texts as bytes."""
    description = features(names)
    try:
        for serialized in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
            yield description.deserialize_example_np(serialized)
    except tf.errors.DataLossError as error:
        raise _damaged(file, "a record's checksum is wrong") from error
    except tf.errors.OpError as error:
        raise BadInput(
            f"{file} cannot be read: {error.message}. See whether the disk is well and give the "
            "same command again; if it fails again, copy the dataset anew."
        ) from error


def _damaged(file: Path, what: str) -> BadInput:
    return BadInput(
        f"{file} is damaged ({what}); copy the dataset again, or rebuild it with the options in "
        f"its {MANIFEST} and --overwrite"
    )
