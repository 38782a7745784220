"""What one record of a dataset holds: names, types, and what says how many there are of each."""

import hashlib
from collections.abc import Iterable

import numpy as np

from data_pipeline.dataset.quiet_tensorflow import tfds
from data_pipeline.files.contents import Count, Hash, Shard

DATASET_NAME, SPLIT = "triplets", "train"
BLOCK = 1024  # concepts per record; the content hash depends on it

# Per record; n_ is a count per concept or term, from which readers make CSR offsets.
ARRAYS = {
    "n_terms": np.int32,  # per concept
    "n_tokens": np.int32,  # per term
    "tokens": np.int32,
    "term_languages": np.uint8,  # per term, index into manifest["languages"]
    "n_vocabularies": np.uint16,  # per term
    "term_vocabularies": np.uint16,  # index into manifest["vocabularies"]
    "n_types": np.int32,  # per concept
    "types": np.int32,  # index into manifest["semantic_types"]
    "n_triplets": np.int32,  # per concept, as head
    "relations": np.int32,  # index into manifest["relations"]
    "tails": np.int32,  # concept
}
FIRST_CONCEPT = (
    "first_concept"  # number of the block's first concept; makes a record whole by itself
)
STRINGS = ("cuis", "terms")  # one UTF-8 text per record, one line per concept or term
FOR_READERS = ("n_vocabularies", "term_vocabularies")  # as strings are; no batch has need of them

# What the source itself has: for look-ups, read on demand alone, and in no content hash.
SOURCE_ARRAYS = {
    "n_source_strings": np.uint16,  # per term
    "n_source_vocabularies": np.uint16,  # per source string
    "source_vocabularies": np.uint16,  # index into manifest["vocabularies"]
    "n_codes": np.int32,  # per concept
    "code_vocabularies": np.uint16,  # per code, index into manifest["vocabularies"]
}
# Texts as STRINGS are, and which array has an entry for each line. A string that is the term as it
# was cleaned is an empty line.
SOURCE_STRINGS = {"source_strings": "n_source_vocabularies", "codes": "code_vocabularies"}

# The key of manifest["shards"][i] that gives each array's length.
SIZES = {
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
SOURCE_SIZES = {
    "n_source_strings": "terms",
    "n_source_vocabularies": "source_strings",
    "source_vocabularies": "source_vocabularies",
    "n_codes": "concepts",
    "code_vocabularies": "codes",
}


class DescribedShard(Shard):
    """What a build keeps of a shard that it has finished."""

    longest_term_tokens: Count
    cut_terms: Count
    unknown_terms: Count
    digests: list[Hash]


def features(names: Iterable[str] | None = None) -> tfds.features.FeaturesDict:
    """The TFDS description of a record, or of these parts of it and its first concept.

    Arrays are stored as raw bytes, which reads quickest.
    """
    arrays = {
        name: tfds.features.Tensor(shape=(None,), dtype=dtype, encoding="bytes")
        for name, dtype in (ARRAYS | SOURCE_ARRAYS).items()
    }
    texts = {name: tfds.features.Text() for name in (*STRINGS, *SOURCE_STRINGS)}
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
    for name, dtype in ARRAYS.items():
        array = np.ascontiguousarray(record[name], np.dtype(dtype).newbyteorder("<"))
        content.update(f"{name} {len(array)}\n".encode())
        content.update(array.tobytes())
    for name in STRINGS:
        data = record[name].encode()
        content.update(f"{name} {len(data)}\n".encode())
        content.update(data)
    return content.hexdigest()
