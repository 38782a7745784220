"""JSON files, read with types: a value that is none of its type is named, before anything uses it.

A type is what msgspec knows: a TypedDict (`contents.py`), a dataclass, a list, with bounds of
numbers and patterns of strings by `msgspec.Meta`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from data_pipeline.process.errors import BadInput

T = TypeVar("T")

MOST_BYTES = 32 << 20  # of a JSON file: a UMLS's largest has some megabytes
KINDS = {dict: ("an object", "an empty object"), list: ("a list", "an empty list")}
AGAIN = "fetch or write it again"
PROBLEM = re.compile(r"(.*?)(?: - at (`key` in )?`\$(.*)`)?", re.DOTALL)  # of msgspec's messages
STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def read_json(path: Path, remedy: str = AGAIN) -> dict[str, Any]:
    """The JSON object in a file.

    Args:
        path: the file.
        remedy: what to do about a broken one, for the message.

    Raises:
        BadInput: if there is no such file, or something else in it.
    """
    content = read_json_value(path, remedy)
    if not isinstance(content, dict):
        raise BadInput(f"{path} holds {described(content)}; expected a JSON object; {remedy}")
    return content


def read_json_value(path: Path, remedy: str = AGAIN) -> Any:
    """Whatever a JSON file holds.

    Raises:
        BadInput: if there is no such file, or it is not JSON.
    """
    try:
        if path.exists() and not path.is_file():
            raise BadInput(f"{path} is no regular file; expected a JSON file there")
        if path.stat().st_size > MOST_BYTES:
            raise BadInput(
                f"{path} has {path.stat().st_size / 1e6:,.0f} MB; expected a JSON file of at most "
                f"{MOST_BYTES / 1e6:,.0f} MB; {remedy}"
            )
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise BadInput(f"{path} is missing; expected a JSON file there") from error
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read ({error.strerror}); expected a JSON file there"
        ) from error
    return decoded_json(content, str(path), remedy)


def decoded_json(content: bytes, source: str, remedy: str = AGAIN) -> Any:
    """The value that a JSON text tells; `source` names it in the message of BadInput."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{source} is not JSON ({error}); {remedy}") from error


def typed(value: Any, kind: type[T], source: str, remedy: str = AGAIN) -> T:
    """A value of JSON as a type wants it.

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
        raise BadInput(f"{source}: {in_words(str(error), value)}; {remedy}") from error
    except RecursionError as error:
        raise BadInput(f"{source}: is nested too deeply; {remedy}") from error


def in_words(problem: str, value: Any) -> str:
    """What msgspec says of a value, with the place, what was found there and what was expected."""
    match = PROBLEM.fullmatch(problem)
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
    found = expected[2] or "another" if below or key else described(at(value, place))
    return f"{subject} is {found}; expected {expected[1]}"


def at(value: Any, place: str) -> Any:
    """The value at a place such as counts.terms or shards[2].file."""
    for key, index in STEP.findall(place):
        value = value[int(index)] if index else value[key]
    return value


def described(value: Any) -> str:
    """A value of JSON for messages: short ones as they are, of others the kind."""
    if isinstance(value, dict | list):
        filled, empty = KINDS[type(value)]
        return filled if value else empty
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else f"{text[:77]}..."
