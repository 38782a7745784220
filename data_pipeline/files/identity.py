"""The project's JSON files: their kinds, the types of their content, and typed reading."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict, TypeVar

import msgspec
from msgspec import Meta

from data_pipeline.files.whole import write_json
from data_pipeline.process import BadInput

# -------------------------------------------------------------------------------------------------
# Typed reading of JSON: a value of the wrong type is reported before it is used.
#
# A type is anything that msgspec knows: a TypedDict, a dataclass, a list, with bounds of
# numbers and patterns of strings by `msgspec.Meta`.

T = TypeVar("T")

_MOST_BYTES = 32 << 20  # of a JSON file: a UMLS's largest has some megabytes
_JSON_KINDS = {dict: ("an object", "an empty object"), list: ("a list", "an empty list")}
_AGAIN = "fetch or write it again"
_PROBLEM = re.compile(r"(.*?)(?: - at (`key` in )?`\$(.*)`)?", re.DOTALL)  # of msgspec's messages
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def read_json(path: Path, remedy: str = _AGAIN) -> dict[str, Any]:
    """The JSON object in a file.

    Args:
        path: the file.
        remedy: what to do about a broken one, for the message.

    Raises:
        BadInput: if there is no such file, or something else in it.
    """
    content = read_json_value(path, remedy)
    if not isinstance(content, dict):
        raise BadInput(f"{path} holds {_described(content)}; expected a JSON object; {remedy}")
    return content


def read_json_value(path: Path, remedy: str = _AGAIN) -> Any:
    """The value in a JSON file, of any type.

    Raises:
        BadInput: if there is no such file, or it is not JSON.
    """
    try:
        if path.exists() and not path.is_file():
            raise BadInput(f"{path} is no regular file; expected a JSON file there")
        if path.stat().st_size > _MOST_BYTES:
            raise BadInput(
                f"{path} has {path.stat().st_size / 1e6:,.0f} MB; expected a JSON file of at most "
                f"{_MOST_BYTES / 1e6:,.0f} MB; {remedy}"
            )
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise BadInput(f"{path} is missing; expected a JSON file there") from error
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read ({error.strerror}); expected a JSON file there"
        ) from error
    return decoded_json(content, str(path), remedy)


def decoded_json(content: bytes, source: str, remedy: str = _AGAIN) -> Any:
    """The value of a JSON text; `source` names it in the message of BadInput."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{source} is not JSON ({error}); {remedy}") from error


def typed(value: Any, kind: type[T], source: str, remedy: str = _AGAIN) -> T:
    """A JSON value, converted to a type.

    Args:
        value: what JSON told.
        kind: the type; keys that a TypedDict or a dataclass does not name are left out.
        source: what names the value in the message: a file, or a place in one.
        remedy: what to do, for the message.

    Raises:
        BadInput: if it is not of the type: with its key, what was found and what was expected.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise BadInput(f"{source}: {_in_words(str(error), value)}; {remedy}") from error
    except RecursionError as error:
        raise BadInput(f"{source}: is nested too deeply; {remedy}") from error


def _in_words(problem: str, value: Any) -> str:
    """msgspec's error in words: the place, what was found there and what was expected."""
    match = _PROBLEM.fullmatch(problem)
    assert match, problem
    what, key, place = match[1].replace("`", ""), match[2], (match[3] or "").removeprefix(".")
    if missing := re.fullmatch(r"Object missing required field (.*)", what):
        return f"{place + '.' if place else ''}{missing[1]} is missing"
    named, *below = place.split("[...]")  # msgspec does not tell the keys of a dict
    subject = named or "the content"
    if below:
        subject = f"{'a key' if key else 'a value'} in {subject}"
    expected = re.fullmatch(r"Expected (.*?)(?:, got (.*))?", what, re.DOTALL)
    if expected is None:
        return f"{subject}: {what}"
    found = expected[2] or "another" if below or key else _described(_at(value, place))
    return f"{subject} is {found}; expected {expected[1]}"


def _at(value: Any, place: str) -> Any:
    """A place in words, such as "counts.terms" or "shards[2].file"."""
    for key, index in _STEP.findall(place):
        value = value[int(index)] if index else value[key]
    return value


def _described(value: Any) -> str:
    """A JSON value for messages: short values in full, else their kind."""
    if isinstance(value, dict | list):
        filled, empty = _JSON_KINDS[type(value)]
        return filled if value else empty
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else f"{text[:77]}..."


# -------------------------------------------------------------------------------------------------
# The types of the project's own JSON files, key by key.
#
# Other keys may stand beside these: what is only shown to people is not named here.

Count = Annotated[int, Meta(ge=0, le=2**53)]  # the largest that all readers of JSON have exactly
Positive = Annotated[int, Meta(ge=1, le=2**53)]
Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]  # SHA-256
_Finite = Annotated[float, Meta(gt=-1e300, lt=1e300)]
# Upper limits of what a file may ask of a tokenizer or encoder: ten times the largest in use.
LONGEST = 100_000
Length = Annotated[int, Meta(ge=3, le=LONGEST)]  # tokens of a term, [CLS] and [SEP] included
Vocabulary = Annotated[int, Meta(ge=1, le=10_000_000)]
Width = Annotated[int, Meta(ge=1, le=100_000)]

Cosine = Annotated[float, Meta(ge=-1.001, le=1.001)]  # rounding may lead beyond 1


class _Amounts(TypedDict):
    """The numbers of concepts, terms, tokens etc. of a dataset or of one of its shards."""

    concepts: Count
    terms: Count
    tokens: Count
    triplets: Count
    concept_types: Count
    term_vocabularies: Count


class Shard(_Amounts):
    """A file of a dataset, and what it holds."""

    source_strings: Count
    source_vocabularies: Count
    codes: Count
    file: Annotated[str, Meta(pattern=r"^[\w-]+\.tfrecord-\d{5}-of-\d{5}$")]
    bytes: Count
    records: Count


class Counts(_Amounts):
    """The numbers of concepts, terms etc. of a dataset, with some that only the whole dataset
    has.
    """

    cut_terms: Count
    unknown_terms: Count
    longest_term_tokens: Count
    concepts_with_synonyms: Count
    triplets_with_synonyms: Count
    terms_by_language: dict[str, Count]


class _HeldOut(TypedDict):
    """The number of held-out synonyms, and of the terms that they are looked up in."""

    mentions: Count
    dictionary: Count


class _TokenizerOfData(TypedDict):
    """The tokenizer that a dataset was made with."""

    name: str
    hash: Hash
    vocab_size: Vocabulary
    max_length: Length


class _AboutData(TypedDict):
    """The description of a dataset, independent of the place of its files."""

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
    held_out: _HeldOut | None
    tokenizer: _TokenizerOfData
    content_hash: Hash
    fingerprint: Hash


class _Manifest(_AboutData):
    """manifest.json of a dataset."""

    shards: list[Shard]


class _StoredArray(TypedDict):
    """The type and size of a .npy file of one dimension in a folder of mentions."""

    dtype: Literal["uint8", "int32", "int64"]
    length: Count


class _Mentions(TypedDict):
    """manifest.json of a folder of mentions."""

    name: str
    release: str
    cleaning: str
    relations: Annotated[list[str], Meta(max_length=0)]  # mentions have none; a run asks for them
    keyword_kinds: Annotated[list[str], Meta(max_length=7)]
    splits: list[Literal["train", "dev", "test"]]
    counts: dict[str, Count]
    warnings: list[str]
    arrays: dict[Annotated[str, Meta(pattern=r"^[a-z_.]+$")], _StoredArray]
    tokenizer: _TokenizerOfData
    content_hash: Hash


class _SkipGrams(TypedDict):
    """manifest.json of a folder of skip-grams."""

    variant: Literal["words", "names", "names_concepts"]
    width: Width
    rows: dict[Literal["words", "names", "concepts"], Count]
    word_rules: Hash
    content_hash: Hash


class DataOfRun(TypedDict):
    """The dataset of a run, in run.json."""

    name: str
    release: str
    cleaning: str
    counts: Counts
    relations: list[str]
    content_hash: Hash


class TokenizerOfRun(TypedDict):
    """The tokenizer of a run, in run.json."""

    hash: Hash
    max_length: Length


class SystemOfRun(TypedDict):
    """The name of a run's system; the system itself types its settings."""

    name: str


class OptimizerOfRun(TypedDict):
    """The settings of a run's optimizer that other commands read."""

    steps: Positive
    learning_rate: Annotated[float, Meta(ge=0)]


class ConfigOfRun(TypedDict):
    """The configuration in run.json."""

    recipe: str
    system: SystemOfRun
    optimizer: OptimizerOfRun
    start: str


class CarriedFrom(TypedDict):
    """The checkpoint of another run that a run started from."""

    step: Count
    run: Hash  # of its run.json


StartOfRun = TypedDict("StartOfRun", {"from": NotRequired[CarriedFrom]})


Extension = TypedDict("Extension", {"step": Count, "from": Positive, "to": Positive})
"""At which step a run was made longer, and its steps before and after."""


class Run(TypedDict):
    """run.json; the system types the rest of data and start."""

    config: ConfigOfRun
    start: StartOfRun
    extended: NotRequired[list[Extension]]


class MetricsLine(TypedDict):
    """A line of metrics.jsonl; the metrics of the step are further keys, each a number."""

    step: Count
    seconds: NotRequired[Annotated[float, Meta(ge=0)]]
    time: NotRequired[str]
    eval: NotRequired[dict[str, dict[str, float]]]


class _Encoder(TypedDict):
    """coder_jax.json of an export."""

    pooling: str
    cleaning: str
    max_length: Length
    attend_padding: bool
    recipe: NotRequired[dict[str, Any]]
    dataset_hash: NotRequired[str | None]
    languages: NotRequired[list[str]]


class _EncodedTerms(TypedDict):
    """The terms of a file of vectors."""

    count: Count
    hash: Hash
    per_chunk: Positive


class _StoredVectors(TypedDict):
    """The storage format of vectors."""

    width: Width
    dtype: Literal["float32", "float16"]


class _EncodedBy(TypedDict):
    """The encoder of a file of vectors."""

    model: str
    weights_hash: str | None
    tokenizer_hash: str
    pooling: str
    cleaning: str
    max_length: Length
    attend_padding: bool


class _Vectors(TypedDict):
    """OUT.json, which describes a file of vectors."""

    terms: _EncodedTerms
    vectors: _StoredVectors
    encoder: _EncodedBy


class Checksum(TypedDict):
    """checksum.json of cached vectors."""

    bytes: Count
    crc32: Count


class _Evaluation(TypedDict):
    """A file of results; the code that writes a record defines its type."""

    records: list[dict[str, Any]]


CUTOFF_TABLE = ("mentions", "cutoffs", "answered", "right")


class CutoffTableRecord(TypedDict):
    """At several similarity cut-offs: how many mentions are answered, and how many correctly."""

    mentions: Positive
    cutoffs: list[Cosine]
    answered: list[Count]
    right: list[Count]


class _MeasuredRule(TypedDict):
    """How letters and vectors give a score, and how score and margin give a confidence."""

    weight_of_letters: Annotated[float, Meta(ge=0, le=1000)]
    intercept: _Finite
    of_similarity: _Finite
    of_margin: _Finite


class _MeasuredDictionary(TypedDict):
    """The dictionary that was searched."""

    source: str
    terms: Positive


class _MeasuredOn(TypedDict, total=False):
    """What was measured: the candidate search, the encoder and the dictionary."""

    candidates: str
    model: str
    dictionary: _MeasuredDictionary


class _Cutoffs(TypedDict):
    """cutoffs.json: a table for each language, and one for all mentions."""

    tables: dict[str, CutoffTableRecord]
    rules: NotRequired[dict[str, _MeasuredRule]]
    measured_on: _MeasuredOn


# -------------------------------------------------------------------------------------------------
# The kinds of JSON files that identify a dataset, mentions, skip-grams, a run, an encoder,
# vectors, scores or cut-offs.
#
# Each is an object whose "format" is "coder_jax NAME VERSION"; the rest is what must be the same
# for two such things to be the same. This module is the one place where they are written, read and
# compared, and where their formats are listed.


@dataclass(frozen=True)
class Kind:
    """A kind of file, and the command that writes it.

    Attributes:
      name, version: of the format; the version grows when older files can no longer be read.
      file: its name in the folder that it describes, "" where it has none of its own.
      command: what writes it.
      content: what each such file has beside its format, a type for `typed`.
    """

    name: str
    version: int
    file: str
    command: str
    content: Any

    @property
    def format(self) -> str:
        return f"coder_jax {self.name} {self.version}"


DATASET = Kind(*("triplets", 3, "manifest.json", "python -m data_pipeline.build", _Manifest))
MENTIONS = Kind(
    *("mentions", 1, "manifest.json", "python -m data_pipeline.build_mentions", _Mentions)
)
SKIP_GRAMS = Kind(
    *("skip_grams", 1, "manifest.json", "python -m data_pipeline.skip_gram", _SkipGrams)
)
RUN = Kind(*("run", 3, "run.json", "python -m coder_jax train", Run))
ENCODER = Kind(*("encoder", 1, "coder_jax.json", "python -m coder_jax export", _Encoder))
VECTORS = Kind(*("vectors", 1, "", "python -m coder_jax encode", _Vectors))
EVALUATION = Kind(*("evaluation", 2, "", "python -m coder_jax evaluate --json", _Evaluation))
CUTOFFS = Kind(*("cutoffs", 1, "cutoffs.json", "python -m coder_jax evaluate --cutoffs", _Cutoffs))
_KINDS = {
    kind.name: kind
    for kind in (DATASET, MENTIONS, SKIP_GRAMS, RUN, ENCODER, VECTORS, EVALUATION, CUTOFFS)
}

_FORMAT = re.compile(r"coder_jax (\w+) (\d+)")
_HASH = re.compile(r"[0-9a-f]{64}")
# Removed settings, with the value that a run which did not use them has recorded.
GONE = (
    ("keep_similarities", 0.0),
    ("mask_shared_names", False),
    ("relation_start", "identity"),
    ("ridge_penalty", 0.3),
    ("ridge_triplets", 2_000),
)


def marked(kind: Kind, content: Mapping[str, Any]) -> dict[str, Any]:
    """The content with its "format" first."""
    return {"format": kind.format} | dict(content) | {"format": kind.format}


def write_identity(path: Path, kind: Kind, content: Mapping[str, Any]) -> None:
    """Write such a file atomically. ValueError for NaN and infinity."""
    write_json(path, marked(kind, content))


def read_identity(path: Path, kind: Kind) -> dict[str, Any]:
    """The content of a file of this kind, "format" included.

    Raises:
        BadInput: if there is no such file, it is broken or not whole, or it is of another kind or
            of another version; with what to do.
    """
    again = f"make it again with `{kind.command}`"
    content = read_json(path, again)
    found = content.get("format")
    if found != kind.format:
        raise BadInput(
            f"{path} has the format {found!r}, expected {kind.format!r}: {_remedy(found, kind)}"
        )
    typed(content, kind.content, str(path), again)
    return content


def is_of_kind(path: Path, kind: Kind) -> bool:
    """Whether a file is of this kind, of any version and even if incomplete."""
    try:
        found = read_json(path).get("format")
    except BadInput:
        return False
    match = _FORMAT.fullmatch(str(found))
    return match is not None and match[1] == kind.name


def _remedy(found: Any, kind: Kind) -> str:
    """Advice for a file whose format is another one."""
    match = _FORMAT.fullmatch(found) if isinstance(found, str) else None
    other = _KINDS.get(match[1]) if match else None
    if match and other is kind:
        if int(match[2]) > kind.version:
            return "a newer version of coder_jax wrote it; update coder_jax"
        return (
            f"an older version of coder_jax wrote it; make it again with `{kind.command}`, or use "
            "it with that version"
        )
    if other:
        return f"`{other.command}` writes such files; give one that `{kind.command}` wrote"
    return (
        f"`{kind.command}` did not write it, or an older version of coder_jax did; make it again "
        "with this one, or give another path"
    )


def differences(there: Mapping[str, Any], here: Mapping[str, Any], prefix: str = "") -> list[str]:
    """A line for each value that differs between two nested dictionaries."""
    lines = []
    for name in sorted(there.keys() | here.keys()):
        a, b = there.get(name, "absent"), here.get(name, "absent")
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            lines += differences(a, b, f"{prefix}{name}.")
        elif a != b and (b != "absent" or (name, a) not in GONE):
            lines.append(f"{prefix}{name}: {_shortened(a)} there, {_shortened(b)} here")
    return lines


def _shortened(value: Any) -> str:
    """A value as text of at most 80 characters; a hash by its first 12 digits."""
    if isinstance(value, str) and _HASH.fullmatch(value):
        return value[:12]
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
