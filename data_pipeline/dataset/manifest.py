"""manifest.json of a dataset: what it holds, key by key, for who reads no records of it."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from data_pipeline.files.identity import DATASET, Count, Hash, Length, Vocabulary


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
    terms_by_language: dict[str, Count]


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
    versions: dict[str, str] = field(default_factory=dict)
    shards: list[Shard]
