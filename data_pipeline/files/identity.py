"""The project's JSON files: their kinds and versions, the types of their content, typed reading."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from data_pipeline.files.whole import recover_folder, write_json
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
        problem = str(error)
        if content.startswith(codecs.BOM_UTF8):
            problem, remedy = "it begins with a byte order mark", "save it as UTF-8 without one"
        raise BadInput(f"{source} is not JSON ({problem}); {remedy}") from error


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
Finite = Annotated[float, Meta(gt=-1e300, lt=1e300)]
# Upper limits of what a file may ask of a tokenizer or encoder: ten times the largest in use.
LONGEST = 100_000
Length = Annotated[int, Meta(ge=3, le=LONGEST)]  # tokens of a term, [CLS] and [SEP] included
Vocabulary = Annotated[int, Meta(ge=1, le=10_000_000)]
Width = Annotated[int, Meta(ge=1, le=100_000)]

Cosine = Annotated[float, Meta(ge=-1.001, le=1.001)]  # rounding may lead beyond 1


# -------------------------------------------------------------------------------------------------
# The kinds of JSON files that identify a dataset, mentions, skip-grams, a run, an encoder,
# vectors, scores or cut-offs.
#
# Each is an object whose "format" is "coder_jax NAME VERSION"; the rest is what must be the same
# for two such things to be the same. This module is the one place where they are written, read and
# compared, and where their formats are listed; what each holds is a frozen dataclass beside its
# reader.


@dataclass(frozen=True)
class Kind:
    """A kind of file, and the command that writes it.

    Attributes:
      name, version: of the format; the version grows when older files can no longer be read.
      file: its name in the folder that it describes, "" where it has none of its own.
      command: what writes it.
    """

    name: str
    version: int
    file: str
    command: str

    @property
    def format(self) -> str:
        return f"coder_jax {self.name} {self.version}"


DATASET = Kind("triplets", 3, "manifest.json", "python -m data_pipeline.build")
MENTIONS = Kind("mentions", 1, "manifest.json", "python -m data_pipeline.build_mentions")
SKIP_GRAMS = Kind("skip_grams", 1, "manifest.json", "python -m data_pipeline.skip_gram")
RUN = Kind("run", 3, "run.json", "python -m coder_jax train")
ENCODER = Kind("encoder", 1, "coder_jax.json", "python -m coder_jax export")
VECTORS = Kind("vectors", 1, "", "python -m coder_jax encode")
EVALUATION = Kind("evaluation", 2, "", "python -m coder_jax evaluate --json")
CUTOFFS = Kind("cutoffs", 1, "cutoffs.json", "python -m coder_jax evaluate --cutoffs")
CELL = Kind("cell", 1, "", "python -m coder_jax leaderboard")
_KINDS = {
    kind.name: kind
    for kind in (DATASET, MENTIONS, SKIP_GRAMS, RUN, ENCODER, VECTORS, EVALUATION, CUTOFFS, CELL)
}

_FORMAT = re.compile(r"coder_jax (\w+) (\d+)")
_HASH = re.compile(r"[0-9a-f]{64}")
PROVENANCE = "provenance"  # what a run says of how its dataset was made
# Settings that not all versions have, with the value that does what the others do: a run that has
# recorded it is the same as one without the setting.
NEUTRAL: tuple[tuple[str, Any], ...] = (
    ("relation_rank", 0),
    ("epochs", 0.0),
    ("augment", 0.0),
    ("ancestors", 0),
    ("ancestor_weight", 0.5),
    ("mask_related", "none"),
    ("matryoshka", []),
    ("teacher", ""),
    ("teacher_weight", 1.0),
    ("teacher_temperature", 0.05),
    ("first_moment", "float32"),
    ("keep_stop_words", False),
    ("development", []),
    ("development_dictionary", ""),
    ("fold", ""),
    ("broader", False),
    ("layers", 0),
    ("triplet_weight", 1.0),
    ("keep_similarities", 0.0),
    ("mask_shared_names", False),
    ("relation_start", "identity"),
    ("ridge_penalty", 0.3),
    ("ridge_triplets", 2_000),
)


def marked(kind: Kind, content: Any) -> dict[str, Any]:
    """The content, a mapping or a dataclass, as JSON values with its format in front."""
    values = msgspec.to_builtins(content, str_keys=True)
    return {"format": kind.format} | values | {"format": kind.format}


def is_lfs_pointer(path: Path) -> bool:
    """Whether a file is what Git LFS leaves in its place where it was not fetched."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(64).startswith(b"version https://git-lfs")


def write_identity(path: Path, kind: Kind, content: Any) -> None:
    """Write such a file atomically. ValueError for NaN and infinity."""
    write_json(path, marked(kind, content))


def read_identity(path: Path, kind: Kind, content: type[T]) -> T:
    """What a file of this kind says, as `content`, a type for `typed`.

    Raises:
        BadInput: if there is no such file, it is broken or not whole, or it is of another kind or
            of another version; with what to do.
    """
    again = f"make it again with `{kind.command}`"
    values = read_json(path, again)
    found = values.get("format")
    if found != kind.format:
        raise BadInput(
            f"{path} has the format {found!r}, expected {kind.format!r}: {_remedy(found, kind)}"
        )
    return typed(values, content, str(path), again)


def is_of_kind(path: Path, kind: Kind) -> bool:
    """Whether a file is of this kind, of any version and even if incomplete."""
    try:
        found = read_json(path).get("format")
    except BadInput:
        return False
    match = _FORMAT.fullmatch(str(found))
    return match is not None and match[1] == kind.name


def check_free(out: Path, kind: Kind, what: str, *, overwrite: bool) -> None:
    """BadInput if something is at --out that must not be replaced.

    Args:
        out: the folder that a command will write.
        kind: of the file that identifies such a folder; it has a name of its own.
        what: such folders hold.
        overwrite: whether one may be replaced.
    """
    recover_folder(out)
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not is_of_kind(out / kind.file, kind):
        raise BadInput(
            f"--out {out} exists and is no folder of {what}; expected a new folder, an empty one, "
            f"or one of {what} to replace with --overwrite. Give another --out, or move it away."
        )
    if not overwrite:
        raise BadInput(
            f"--out {out} already holds {what}; add --overwrite to replace them, or give another "
            "--out"
        )


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


_ABSENT = "absent"


def differences(there: Any, here: Any, prefix: str = "") -> list[str]:
    """A line for each value that differs between two nested dictionaries, or dataclasses."""
    there, here = msgspec.to_builtins(there), msgspec.to_builtins(here)
    lines = []
    for name in sorted(there.keys() | here.keys()):
        a, b = there.get(name, _ABSENT), here.get(name, _ABSENT)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            lines += differences(a, b, f"{prefix}{name}.")
        elif a != b and not (_ABSENT in (a, b) and (name, a if b == _ABSENT else b) in NEUTRAL):
            lines.append(f"{prefix}{name}: {_shortened(a)} there, {_shortened(b)} here")
    return lines


def _shortened(value: Any) -> str:
    """A value as text of at most 80 characters; a hash by its first 12 digits."""
    if isinstance(value, str) and _HASH.fullmatch(value):
        return value[:12]
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
