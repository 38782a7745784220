"""Datasets on disk as TFDS records: the layout of a record, and `open_dataset`, which reads them.

Reading needs neither TensorFlow nor TFDS; `write.py` needs both.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from google_crc32c import value as crc32c
from msgspec import UNSET, Meta, UnsetType

from data_pipeline.files.buckets import local_folder
from data_pipeline.files.identity import (
    DATASET,
    Count,
    Hash,
    Length,
    Vocabulary,
    is_of_kind,
    read_identity,
)
from data_pipeline.files.whole import aligned, recover_folder
from data_pipeline.process import BadInput
from data_pipeline.terminology.semantic_groups import ANY, GROUPS, group_bits, group_number

# -------------------------------------------------------------------------------------------------
# The layout of a record: arrays, their types, and the sizes that determine their lengths.

DATASET_NAME, SPLIT = "triplets", "train"
BLOCK = 1024  # concepts per record; the content hash depends on it

# One of each per record. n_ arrays are counts per concept or term; readers turn them into CSR
# offsets.
ARRAYS = {
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
    # Per further occurrence of a term, as `Occurrences` says:
    "occurrence_terms": np.int32,  # place of the term in the block
    "occurrence_languages": np.uint8,  # index into manifest.languages
    "occurrence_counts": np.int32,
}
_LATER = ("occurrence_terms", "occurrence_languages", "occurrence_counts")  # older datasets lack it
FIRST_CONCEPT = (
    "first_concept"  # number of the block's first concept; makes a record whole by itself
)
STRINGS = ("cuis", "terms")  # one UTF-8 text per record, one line per concept or term
_FOR_READERS = ("n_vocabularies", "term_vocabularies")  # as strings are; no batch has need of them

# The source's own strings and codes: for look-ups only, read on demand, not in the content hash.
SOURCE_ARRAYS = {
    "n_source_strings": np.uint16,  # per term
    "n_source_vocabularies": np.uint16,  # per source string
    "source_vocabularies": np.uint16,  # index into manifest.vocabularies
    "n_codes": np.int32,  # per concept
    "code_vocabularies": np.uint16,  # per code, index into manifest.vocabularies
}
# Texts in the format of STRINGS, and the array that has an entry for each of their lines. An empty
# line stands for a string that equals the cleaned term.
SOURCE_STRINGS = {"source_strings": "n_source_vocabularies", "codes": "code_vocabularies"}

# What the entries of an array index, or count: each is below the length of that.
_INDEXES = {
    "term_languages": "languages",
    "term_vocabularies": "vocabularies",
    "types": "semantic_types",
    "relations": "relations",
    "occurrence_languages": "languages",
    "source_vocabularies": "vocabularies",
    "code_vocabularies": "vocabularies",
}
# Arrays of counts, which add up to the length of another.
_COUNTS = {
    "n_terms": "n_tokens",
    "n_tokens": "tokens",
    "n_vocabularies": "term_vocabularies",
    "n_types": "types",
    "n_triplets": "tails",
    "n_source_strings": "n_source_vocabularies",
    "n_source_vocabularies": "source_vocabularies",
    "n_codes": "code_vocabularies",
}
_AT_LEAST_ONE = ("n_terms", "n_tokens", "n_source_strings")

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
    **dict.fromkeys(_LATER, "occurrences"),
}
_SOURCE_SIZES = {
    "n_source_strings": "terms",
    "n_source_vocabularies": "source_strings",
    "source_vocabularies": "source_vocabularies",
    "n_codes": "concepts",
    "code_vocabularies": "codes",
}


# -------------------------------------------------------------------------------------------------
# What manifest.json of a dataset holds, key by key.


@dataclass(frozen=True, kw_only=True)
class TokenizerOfData:
    """Which tokenizer a dataset was made with."""

    name: str
    hash: Hash
    vocab_size: Vocabulary
    max_length: Length


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A file of a dataset, and how much of everything is in it."""

    file: Annotated[str, Meta(pattern=r"^[\w-]+\.tfrecord-\d{5}-of-\d{5}$")]
    bytes: Count
    records: Count
    concepts: Count
    terms: Count
    tokens: Count
    term_vocabularies: Count
    concept_types: Count
    triplets: Count
    source_strings: Count
    source_vocabularies: Count
    codes: Count
    occurrences: Count = 0
    cut_terms: Count = 0
    unknown_terms: Count = 0
    longest_term_tokens: Count = 0


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How much of everything is in a dataset, and what is only counted in the whole of it."""

    concepts: Count
    terms: Count
    tokens: Count
    triplets: Count
    concept_types: Count
    term_vocabularies: Count
    cut_terms: Count
    unknown_terms: Count
    longest_term_tokens: Count
    concepts_with_synonyms: Count
    triplets_with_synonyms: Count
    terms_by_language: dict[str, Count]  # a term of two languages counts in both
    occurrences: Count = 0


@dataclass(frozen=True)
class HeldOutCounts:
    """How many synonyms a dataset holds out, and among how many terms they are looked up."""

    mentions: Count
    dictionary: Count


@dataclass(frozen=True)
class HeldOutConcepts:
    """How many concepts a dataset holds out, and how many terms these have."""

    concepts: Count
    terms: Count


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a dataset is, and which files it has."""

    format: str = DATASET.format
    name: str
    release: str
    sources: list[dict[str, Any]] = field(default_factory=list)
    filters: dict[str, Any] = field(default_factory=dict)
    cleaning: str
    languages: list[str]
    vocabularies: list[str]
    licenses: dict[str, str] = field(default_factory=dict)  # of vocabularies
    relations: list[str]
    semantic_types: list[str]
    counts: Counts
    report: dict[str, Count]
    warnings: list[str]
    held_out: HeldOutCounts | None
    held_out_concepts: HeldOutConcepts | UnsetType = UNSET
    tokenizer: TokenizerOfData
    content_hash: Hash
    fingerprint: Hash
    options: dict[str, Any] = field(default_factory=dict)
    command: str = ""  # that builds it again
    versions: dict[str, str] = field(default_factory=dict)
    shards: list[Shard]


@dataclass(frozen=True, kw_only=True)
class DescribedShard(Shard):
    """What a build remembers of a finished shard."""

    digests: list[Hash]


def shard_name(index: int, count: int) -> str:
    """File name of a shard, as TFDS expects it."""
    return f"{DATASET_NAME}-{SPLIT}.tfrecord-{index:05d}-of-{count:05d}"


def digest(record: dict) -> str:
    """SHA-256 of a record's content: names, lengths and little-endian bytes, in a fixed order.

    The source's strings and codes take no part: what is trained on is the same without them.
    Where no term occurs again, it is the digest of a record that older versions wrote.
    """
    content = hashlib.sha256(f"{record[FIRST_CONCEPT]}\n".encode())
    for name, dtype in ARRAYS.items():
        if name in _LATER and not len(record[name]):
            continue
        array = np.ascontiguousarray(record[name], np.dtype(dtype).newbyteorder("<"))
        content.update(f"{name} {len(array)}\n".encode())
        content.update(array.tobytes())
    for name in STRINGS:
        data = record[name].encode()
        content.update(f"{name} {len(data)}\n".encode())
        content.update(data)
    return content.hexdigest()


# -------------------------------------------------------------------------------------------------
# `open_dataset`: reads a dataset folder into arrays.
#
# A dataset folder is what `tfds.builder_from_directory` opens (dataset_info.json, features.json,
# sharded TFRecords) plus manifest.json, tokenizer/ and, where synonyms were held out, heldout/. One
# record is a block of BLOCK consecutive concepts with their terms, the tokens and vocabularies of
# these, semantic types, the triplets whose head is among them, and the strings and codes of the
# source. `write.py` writes such folders.

FORMAT = DATASET.format
MANIFEST = DATASET.file
WORK_MARK = ".building-"  # in the name of a folder that is being built


@dataclass(frozen=True)
class SourceStrings:
    """The source's own strings for the terms of a dataset, and its codes for the concepts.

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


class Occurrences(NamedTuple):
    """Where a term occurs again: as a name in another language, or as mentions to train on.

    Each term occurs once in its own language without being in this list.

    Attributes:
      terms: int32, rising; a term may occur again in several languages.
      languages: uint8, index into manifest.languages.
      counts: int32, how many more times the term is trained on (`TripletDataset.term_counts`): for
        each mention once; 0 where it is the same name in another language.
    """

    terms: np.ndarray = np.zeros(0, np.int32)
    languages: np.ndarray = np.zeros(0, np.uint8)
    counts: np.ndarray = np.zeros(0, np.int32)


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
      term_language: uint8 [N], index into manifest.languages; of several the most wanted one.
      occurrences: the other languages of terms, and how many mentions of them there are.
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
    occurrences: Occurrences = Occurrences()
    cuis: list[str] | None = None
    terms: list[str] | None = None
    vocabulary_start: np.ndarray | None = None
    term_vocabularies: np.ndarray | None = None
    source: SourceStrings | None = None

    def in_languages(self, languages: Sequence[str]) -> np.ndarray:
        """bool [N]: the terms that are names in some languages; all terms if none is given.

        Raises BadInput if there is no term in one of them.
        """
        return self.language_among(languages) >= 0

    def language_among(self, languages: Sequence[str]) -> np.ndarray:
        """int16 [N]: of some languages the one that each term is a name in; -1 for none.

        Of several its own, or else the most wanted; its own if no languages are given. Indices into
        manifest.languages.

        Raises BadInput if there is no term in one of them.
        """
        asked = self._numbers(languages)
        found = np.where(np.isin(self.term_language, asked), self.term_language, np.int16(-1))
        is_asked = np.isin(self.occurrences.languages, asked)
        again, others = (array[is_asked][::-1] for array in self.occurrences[:2])
        other = found[again] < 0
        found[again[other]] = others[other]  # of several the first, written last
        return found

    def _numbers(self, languages: Sequence[str]) -> list[int]:
        """The indices of languages, of all if none is given."""
        there = self.manifest.languages
        unknown = [language for language in languages if language not in there]
        if unknown:
            raise BadInput(
                f"--languages {' '.join(unknown)}: {self.folder} has no term in it; expected some "
                f"of {' '.join(there)}"
            )
        return [there.index(language) for language in languages or there]

    def term_counts(self, languages: Sequence[str] = ()) -> np.ndarray:
        """int32 [N]: how often an epoch over terms and mentions shows each term.

        A name of the terminology counts one, and each mention to train on counts one. With
        `languages` a term in none of them counts 0, and so do mentions in others; a name in
        others, of which they have mentions alone, counts one and its mentions.

        Raises BadInput as `in_languages` does.
        """
        counts = self.in_languages(languages).astype(np.int32)
        again, others, more = self.occurrences
        is_asked = np.isin(others, self._numbers(languages))
        np.add.at(counts, again[is_asked], more[is_asked])
        return counts


def open_dataset(
    path: str | Path, *, strings: bool = False, source: bool = False
) -> TripletDataset:
    """Reads a whole dataset into memory: shards in parallel, the result always in the same order.

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
    dtypes = ARRAYS | SOURCE_ARRAYS | {"heads": np.int32}
    if manifest.tokenizer.vocab_size <= np.iinfo(np.uint16).max:
        dtypes["tokens"] = np.uint16  # half the memory of the largest array
    wanted = [name for name in sizes if strings or name not in _FOR_READERS]
    arrays = {name: aligned(int(ends[name][-1]), dtypes[name]) for name in wanted}
    texts = (*STRINGS * strings, *(SOURCE_STRINGS if source else ()))
    limits = {name: len(getattr(manifest, values)) for name, values in _INDEXES.items()}
    limits |= {"tokens": manifest.tokenizer.vocab_size, "tails": manifest.counts.concepts}

    def read(index: int) -> dict[str, list[str]]:
        bounds = {name: (int(end[index]), int(end[index + 1])) for name, end in ends.items()}
        return _read_shard(folder / shards[index].file, arrays, bounds, texts, limits)

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
        occurrences=Occurrences(*(arrays[name] for name in _LATER)),
        cuis=joined.get("cuis"),
        terms=joined.get("terms"),
        vocabulary_start=_starts(arrays["n_vocabularies"]) if strings else None,
        term_vocabularies=arrays.get("term_vocabularies"),
        source=_source_strings(arrays, joined) if source else None,
    )


def groups_of(dataset: TripletDataset) -> np.ndarray:
    """The semantic groups of each concept, as `group_bits` gives them.

    Of the groups that the dataset was built with (--semantic-groups): a concept may have others
    too, but most concepts of these are not there. Of all groups, if it was built with all.
    """
    bits = group_bits(dataset.manifest.semantic_types, dataset.type_start, dataset.types)
    kept = dataset.manifest.filters.get("semantic_groups") or GROUPS
    return bits & np.uint16(1 << ANY | sum(1 << group_number(name) for name in kept))


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
    limits: dict[str, int],
) -> dict[str, list[str]]:
    """Fills a shard's slice (`bounds`) of each array; returns the lines of the wanted texts.

    BadInput for a record that no build writes: entries of an array are below its limit (`limits`).
    """
    at = {name: bounds[name][0] for name in arrays}
    lines: dict[str, list[str]] = {name: [] for name in texts}
    for record in _records(file, [*arrays.keys() - {"heads"}, *texts]):
        first, count = at["n_terms"], len(record["n_triplets"])
        if record[FIRST_CONCEPT] != first:
            raise _damaged(file, "its blocks are out of order")
        _check_record(file, record, limits)
        concepts = np.arange(first, first + count, dtype=np.int32)
        record["heads"] = np.repeat(concepts, record["n_triplets"])
        record["occurrence_terms"] = record["occurrence_terms"] + np.int32(at["n_tokens"])
        for name, array in arrays.items():
            stop = at[name] + len(record[name])
            if stop > bounds[name][1]:
                raise _damaged(file, "it holds more than the manifest says")
            array[at[name] : stop] = record[name]
            at[name] = stop
        for name in texts:
            counted = SOURCE_STRINGS.get(name)
            if counted is None or len(record[counted]):  # no lines are an empty text, as one is
                lines[name] += _lines(file, name, record)
    if any(stop != bounds[name][1] for name, stop in at.items()):
        raise _damaged(file, "it holds less than the manifest says")
    return lines


def _check_record(file: Path, record: dict[str, Any], limits: dict[str, int]) -> None:
    """Raise BadInput for counts that do not add up, or entries that index nothing."""
    terms = len(record["n_tokens"])
    for name, limit in (limits | {"occurrence_terms": terms, "occurrence_counts": 2**31}).items():
        array = record.get(name)
        if array is not None and len(array) and not 0 <= array.min() <= array.max() < limit:
            wrong = array.min() if array.min() < 0 else array.max()
            raise _damaged(file, f"found {wrong:,} in its {name}; expected 0 to {limit - 1:,}")
    for name, counted in _COUNTS.items():
        if name not in record:
            continue
        array, length = record[name], len(record[counted])
        least = name in _AT_LEAST_ONE
        if array.min(initial=least) < least or array.sum(dtype=np.int64) != length:
            raise _damaged(file, f"its {name} do not add up to {length:,}, as its {counted} have")
    if not len(record["term_languages"]) == terms:
        raise _damaged(file, f"it has languages of {len(record['term_languages']):,} terms")
    for concepts in ("n_types", "n_triplets"):
        if len(record[concepts]) != len(record["n_terms"]):
            raise _damaged(file, f"its {concepts} are of other concepts")


def _lines(file: Path, name: str, record: dict[str, Any]) -> list[str]:
    """The lines of a text of a record; BadInput if there are more or fewer than it counts."""
    try:
        lines: list[str] = record[name].decode().split("\n")
    except UnicodeDecodeError as error:
        raise _damaged(file, f"its {name} are not UTF-8") from error
    counted = {"cuis": "n_terms", "terms": "n_tokens"} | SOURCE_STRINGS
    if len(lines) != len(record[counted[name]]):
        raise _damaged(file, f"it has {len(lines):,} {name} for {len(record[counted[name]]):,}")
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
        for name, dtype in (ARRAYS | SOURCE_ARRAYS).items():  # before memory for so much is taken
            size = (_SIZES | _SOURCE_SIZES)[name]
            if getattr(shard, size) * np.dtype(dtype).itemsize > shard.bytes:
                raise _damaged(
                    folder / MANIFEST,
                    f"it says {getattr(shard, size):,} {size} of {shard.file}, which cannot be in "
                    f"{shard.bytes:,} bytes",
                )
    return manifest


def is_dataset(folder: Path) -> bool:
    """Whether a folder is a dataset, of any version and even if damaged."""
    return is_of_kind(folder / MANIFEST, DATASET)


def _starts(lengths: np.ndarray) -> np.ndarray:
    start = aligned(len(lengths) + 1, np.int64)
    start[0] = 0
    np.cumsum(lengths, out=start[1:])
    return start


def _records(file: Path, names: Sequence[str]) -> Iterator[dict]:
    """The wanted features of each record of a shard, with the record's first concept.

    Arrays are read-only views, texts are bytes. A record of a TFRecord file is its length, a
    checksum of that, a `tf.train.Example`, and a checksum of that.
    """
    dtypes = ARRAYS | SOURCE_ARRAYS
    try:
        with file.open("rb") as records:
            while length := records.read(8):
                checksum = records.read(4)
                _check(file, length, checksum)
                example = records.read(int.from_bytes(length, "little"))
                _check(file, example, records.read(4))
                try:
                    parts = _parts_of_example(example)
                    first, _ = _varint(parts[FIRST_CONCEPT], 0)
                    record = {FIRST_CONCEPT: first} | {
                        name: np.frombuffer(
                            parts.get(name, b"") if name in _LATER else parts[name], dtypes[name]
                        )
                        if name in dtypes
                        else bytes(parts[name])
                        for name in names
                    }
                except (ValueError, KeyError, IndexError) as error:
                    raise _damaged(file, f"a record has another form ({error})") from error
                yield record
    except OSError as error:
        raise BadInput(
            f"{file} cannot be read: {error}. See whether the disk is well and give the "
            "same command again; if it fails again, copy the dataset anew."
        ) from error


def _check(file: Path, content: bytes, checksum: bytes) -> None:
    """Raises BadInput if bytes of a TFRecord file do not match the checksum that follows them."""
    crc = crc32c(content)
    expected = ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32
    if checksum != expected.to_bytes(4, "little"):
        raise _damaged(file, "a record's checksum is wrong")


def _parts_of_example(example: bytes) -> dict[str, memoryview]:
    """The value of each feature of a `tf.train.Example` in which all features have one value."""
    found = {}
    for features in _fields(memoryview(example)):
        for entry in _fields(features):
            name, feature = _fields(entry)
            (values,) = _fields(feature)
            (found[bytes(name).decode()],) = _fields(values)
    return found


def _fields(message: memoryview) -> Iterator[memoryview]:
    """The fields of a protocol-buffer message in which all fields are length-delimited."""
    place = 0
    while place < len(message):
        length, begin = _varint(message, place + 1)  # after the field's number and type
        place = begin + length
        yield message[begin:place]


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """The varint (seven bits a byte) that begins at a position, and the position after it."""
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place


def _damaged(file: Path, what: str) -> BadInput:
    return BadInput(
        f"{file} is damaged ({what}); copy the dataset again, or rebuild it with the options in "
        f"its {MANIFEST} and --overwrite"
    )
