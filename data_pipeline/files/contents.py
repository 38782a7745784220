"""What the project's own JSON files hold, key by key: types for `json_files.typed`.

Other keys may stand beside these: what is only shown to people is not named here.
"""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=2**53)]  # the largest that all readers of JSON have exactly
Positive = Annotated[int, Meta(ge=1, le=2**53)]
Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]  # SHA-256
Finite = Annotated[float, Meta(gt=-1e300, lt=1e300)]
# What a tokenizer and an encoder may ask for: ten times the largest that there are.
LONGEST = 100_000
Length = Annotated[int, Meta(ge=3, le=LONGEST)]  # tokens of a term, [CLS] and [SEP] included
Vocabulary = Annotated[int, Meta(ge=1, le=10_000_000)]
Width = Annotated[int, Meta(ge=1, le=100_000)]

Cosine = Annotated[float, Meta(ge=-1.001, le=1.001)]  # rounding may lead beyond 1


class Amounts(TypedDict):
    """How much of everything is in a dataset, or in one of its shards."""

    concepts: Count
    terms: Count
    tokens: Count
    triplets: Count
    concept_types: Count
    term_vocabularies: Count


class Shard(Amounts):
    """A file of a dataset, and how much of everything is in it."""

    source_strings: Count
    source_vocabularies: Count
    codes: Count
    file: Annotated[str, Meta(pattern=r"^[\w-]+\.tfrecord-\d{5}-of-\d{5}$")]
    bytes: Count
    records: Count


class Counts(Amounts):
    """How much of everything is in a dataset, and what is only counted in the whole of it."""

    cut_terms: Count
    unknown_terms: Count
    longest_term_tokens: Count
    concepts_with_synonyms: Count
    triplets_with_synonyms: Count
    terms_by_language: dict[str, Count]


class HeldOut(TypedDict):
    """How many synonyms a dataset holds out, and among how many terms they are looked up."""

    mentions: Count
    dictionary: Count


class TokenizerOfData(TypedDict):
    """Which tokenizer a dataset was made with."""

    name: str
    hash: Hash
    vocab_size: Vocabulary
    max_length: Length


class AboutData(TypedDict):
    """What a dataset is, wherever its files are."""

    name: str
    release: str
    cleaning: str
    languages: list[str]
    vocabularies: list[str]
    relations: list[str]
    semantic_types: list[str]
    counts: Counts
    report: dict[str, Count]
    warnings: list[str]
    held_out: HeldOut | None
    tokenizer: TokenizerOfData
    content_hash: Hash
    fingerprint: Hash


class Manifest(AboutData):
    """manifest.json of a dataset."""

    shards: list[Shard]


class StoredArray(TypedDict):
    """What a .npy file of a folder of mentions holds: an array of one dimension."""

    dtype: Literal["uint8", "int32", "int64"]
    length: Count


class Mentions(TypedDict):
    """manifest.json of a folder of mentions."""

    name: str
    release: str
    cleaning: str
    relations: Annotated[list[str], Meta(max_length=0)]  # mentions have none; a run asks for them
    keyword_kinds: Annotated[list[str], Meta(max_length=7)]
    splits: list[Literal["train", "dev", "test"]]
    counts: dict[str, Count]
    warnings: list[str]
    arrays: dict[Annotated[str, Meta(pattern=r"^[a-z_.]+$")], StoredArray]
    tokenizer: TokenizerOfData
    content_hash: Hash


class SkipGrams(TypedDict):
    """manifest.json of a folder of skip-grams."""

    variant: Literal["words", "names", "names_concepts"]
    width: Width
    rows: dict[Literal["words", "names", "concepts"], Count]
    word_rules: Hash
    content_hash: Hash


class Batches(TypedDict):
    """batches.json of a folder of batches."""

    spec: dict[str, Any]
    first_step: Count
    last_step: Count
    manifest: AboutData


class DataOfRun(TypedDict):
    """What run.json says of the dataset."""

    name: str
    release: str
    cleaning: str
    counts: Counts
    relations: list[str]
    content_hash: Hash


class TokenizerOfRun(TypedDict):
    """What run.json says of the tokenizer."""

    hash: Hash
    max_length: Length


class SystemOfRun(TypedDict):
    """The name of a run's system; its settings are typed by the system."""

    name: str


class OptimizerOfRun(TypedDict):
    """What others read of a run's optimizer."""

    steps: Positive
    learning_rate: Annotated[float, Meta(ge=0)]


class ConfigOfRun(TypedDict):
    """The configuration in run.json."""

    recipe: str
    system: SystemOfRun
    optimizer: OptimizerOfRun
    start: str


class CarriedFrom(TypedDict):
    """Which checkpoint of another run a run began with."""

    step: Count
    run: Hash  # of its run.json


StartOfRun = TypedDict("StartOfRun", {"from": NotRequired[CarriedFrom]})


Extension = TypedDict("Extension", {"step": Count, "from": Positive, "to": Positive})
"""At which step a run was made longer, and its steps before and after."""


class Run(TypedDict):
    """run.json; what there must be of data and start, too, is said by the system."""

    config: ConfigOfRun
    start: StartOfRun
    extended: NotRequired[list[Extension]]


class MetricsLine(TypedDict):
    """A line of metrics.jsonl; beside these the metrics of its step, a number each."""

    step: Count
    seconds: NotRequired[Annotated[float, Meta(ge=0)]]
    time: NotRequired[str]
    eval: NotRequired[dict[str, dict[str, float]]]


class Encoder(TypedDict):
    """coder_jax.json of an export."""

    pooling: str
    cleaning: str
    max_length: Length
    attend_padding: bool
    recipe: NotRequired[dict[str, Any]]
    dataset_hash: NotRequired[str | None]
    languages: NotRequired[list[str]]


class EncodedTerms(TypedDict):
    """Which terms a file of vectors is of."""

    count: Count
    hash: Hash
    per_chunk: Positive


class StoredVectors(TypedDict):
    """How vectors are stored."""

    width: Width
    dtype: Literal["float32", "float16"]


class EncodedBy(TypedDict):
    """What terms became vectors with."""

    model: str
    weights_hash: str | None
    tokenizer_hash: str
    pooling: str
    cleaning: str
    max_length: Length
    attend_padding: bool


class Vectors(TypedDict):
    """OUT.json beside a file of vectors."""

    terms: EncodedTerms
    vectors: StoredVectors
    encoder: EncodedBy


class Checksum(TypedDict):
    """checksum.json of vectors that are kept on this machine."""

    bytes: Count
    crc32: Count


class Evaluation(TypedDict):
    """A file of results; a record is typed where it is written."""

    records: list[dict[str, Any]]


CUTOFF_TABLE = ("mentions", "cutoffs", "answered", "right")


class CutoffTable(TypedDict):
    """At some cut-offs of similarity, how many mentions are answered, and how many rightly."""

    mentions: Positive
    cutoffs: list[Cosine]
    answered: list[Count]
    right: list[Count]


class MeasuredRule(TypedDict):
    """How letters and vectors make a score, and score and margin a confidence."""

    weight_of_letters: Annotated[float, Meta(ge=0, le=1000)]
    intercept: Finite
    of_similarity: Finite
    of_margin: Finite


class MeasuredDictionary(TypedDict):
    """The dictionary that answers were taken from."""

    source: str
    terms: Positive


class MeasuredOn(TypedDict, total=False):
    """What was measured: how candidates were found, by which encoder, in which dictionary."""

    candidates: str
    model: str
    dictionary: MeasuredDictionary


class Cutoffs(TypedDict):
    """cutoffs.json: a table for each language, and for all mentions."""

    tables: dict[str, CutoffTable]
    rules: NotRequired[dict[str, MeasuredRule]]
    measured_on: MeasuredOn
