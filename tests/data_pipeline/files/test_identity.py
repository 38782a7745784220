"""Files that say what a thing is: written, read, compared; and why others are refused."""

import json
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from msgspec import Meta

from data_pipeline.files import identity
from data_pipeline.files.identity import (
    _KINDS,
    DATASET,
    EVALUATION,
    SKIP_GRAMS,
    _shortened,
    differences,
    is_of_kind,
    read_identity,
    read_json,
    read_json_value,
    typed,
    write_identity,
)
from data_pipeline.files.whole import write_json
from data_pipeline.process import BadInput
from data_pipeline.skip_gram.store import SkipGramManifest


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "results.json"
    write_identity(path, EVALUATION, {"records": [], "of": "mine", "format": "before"})
    written = {"format": EVALUATION.format, "records": [], "of": "mine"}
    assert json.loads(path.read_text()) == written
    assert list(json.loads(path.read_text())) == list(written)
    assert read_identity(path, EVALUATION, dict[str, Any]) == written
    assert len(_KINDS) == 9


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is missing; expected a JSON file there"),
        ("{", "manifest.json is not JSON .*; make it again with `python -m data_pipeline.skip_gr"),
        ("\udc80", "manifest.json is not JSON .*; make it again with"),
        ("[]", "holds an empty list; expected a JSON object; make it again with `python -m data_"),
        (
            "{}",
            "has the format None, expected 'coder_jax skip_grams 1': .* did not write it, or",
        ),
        ('{"format": 2}', "has the format 2, expected .* or an older version of coder_jax did;"),
        ('{"format": "zip 1"}', "the format 'zip 1', expected .* make it again with this one, or"),
        (
            '{"format": "coder_jax skip_grams 0"}',
            "an older version of coder_jax wrote it; make",
        ),
        (
            '{"format": "coder_jax skip_grams 2"}',
            "a newer version of coder_jax wrote it; upd",
        ),
        ('{"format": "coder_jax run 3"}', "`python -m coder_jax train` writes such files; give o"),
        (
            '{"format": "coder_jax skip_grams 1", "variant": "words", "width": -1}',
            "manifest.json: width is -1; expected int >= 1; make it again with `python -m",
        ),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    path = tmp_path / "manifest.json"
    if content is not None:
        path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(BadInput, match=message):
        read_identity(path, SKIP_GRAMS, SkipGramManifest)


def test_of_a_kind_whatever_its_version(tmp_path):
    path = tmp_path / "manifest.json"
    for content, is_dataset in (
        ({"format": "coder_jax triplets 1"}, True),
        ({"format": "coder_jax triplets 99"}, True),
        ({"format": "coder_jax run 1"}, False),
        ({}, False),
        ([], False),
    ):
        write_json(path, content)
        assert is_of_kind(path, DATASET) == is_dataset, content
    path.write_text("{")
    assert not is_of_kind(path, DATASET) and not is_of_kind(tmp_path / "no", DATASET)


def test_each_difference_has_a_line():
    there = {"a": 1, "b": {"c": [1, 2], "d": "x"}, "e": {"f": 1}, "same": {"g": None}}
    here = {"a": 2, "b": {"c": [1, 3], "d": "x"}, "e": 3, "same": {"g": None}, "new": "ab" * 32}
    assert differences(there, here) == [
        "a: 1 there, 2 here",
        "b.c: [1, 2] there, [1, 3] here",
        "e: {'f': 1} there, 3 here",
        "new: 'absent' there, abababababab here",
    ]
    assert differences(there, there) == []
    assert _shortened("x" * 100) == "'" + "x" * 76 + "..."


# -------------------------------------------------------------------------------------------------
# JSON read with types: what is broken is named with its place, what was found and expected.


class Part(TypedDict):
    file: Annotated[str, Meta(pattern=r"^\w+\.bin$")]
    bytes: Annotated[int, Meta(ge=0, le=100)]


class Whole(TypedDict):
    kind: Literal["a", "b"]
    parts: list[Part]
    counts: dict[str, int]
    share: NotRequired[float | None]


GOOD: dict[str, Any] = {
    "kind": "a",
    "parts": [{"file": "x.bin", "bytes": 3}],
    "counts": {"terms": 4},
    "shown to people": 1,
}


def test_what_is_of_the_type_comes_back():
    named = {name: GOOD[name] for name in ("kind", "parts", "counts")}
    assert typed(GOOD, Whole, "a.json") == named
    assert typed({**GOOD, "share": 1}, Whole, "a.json")["share"] == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "c"}, "a.json: kind: Invalid enum value 'c'; mend it"),
        ({"kind": 1}, "a.json: kind is 1; expected str; mend it"),
        ({"parts": None}, "a.json: parts is null; expected array; mend it"),
        ({"parts": ["x"]}, 'a.json: parts[0] is "x"; expected object; mend it'),
        ({"parts": [{"file": "x.bin"}]}, "a.json: parts[0].bytes is missing; mend it"),
        (
            {"parts": [{"file": "x.bin", "bytes": -1}]},
            "a.json: parts[0].bytes is -1; expected int >= 0; mend it",
        ),
        (
            {"parts": [{"file": "x.bin", "bytes": 10**30}]},
            f"a.json: parts[0].bytes is {10**30}; expected int <= 100; mend it",
        ),
        (
            {"parts": [{"file": "../x.bin", "bytes": 1}]},
            r'a.json: parts[0].file is "../x.bin"; expected str matching regex '
            r"'^\\w+\\.bin$'; mend it",
        ),
        ({"counts": {"terms": "many"}}, "a.json: a value in counts is str; expected int; mend it"),
        ({"counts": []}, "a.json: counts is an empty list; expected object; mend it"),
        ({"share": {"a": 1}}, "a.json: share is an object; expected float | null; mend it"),
        ({"kind": "x" * 100}, f"a.json: kind: Invalid enum value '{'x' * 100}'; mend it"),
    ],
)
def test_what_is_not_is_named(change, message):
    with pytest.raises(BadInput) as error:
        typed({**GOOD, **change}, Whole, "a.json", "mend it")
    assert str(error.value) == message


def test_the_whole_is_named_too():
    with pytest.raises(BadInput, match="a.json: the content is a list; expected object; fetch or"):
        typed([1], Whole, "a.json")
    with pytest.raises(BadInput, match="a.json: kind is missing; fetch or write it again"):
        typed({}, Whole, "a.json")
    long = [{"a": "x" * 200}]
    with pytest.raises(BadInput, match=r"a.json: \[0\].a is \"x{76}\.\.\.; expected int"):
        typed(long, list[NumberOfA], "a.json")


class NumberOfA(TypedDict):
    a: int


def test_files(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    with pytest.raises(BadInput, match="a.json is missing; expected a JSON file there"):
        read_json(path)
    path.write_text(json.dumps(GOOD))
    assert read_json(path) == GOOD and read_json_value(path) == GOOD
    for content, message in (
        (b"[1]", "a.json holds a list; expected a JSON object; do this"),
        (b"{'a': 1}", r"a.json is not JSON \(.*\); do this"),
        (b'{"a": NaN}', r"a.json is not JSON \(.*\); do this"),
        (b'{"a": "\xff"}', r"a.json is not JSON \(.*\); do this"),
        (b'\xef\xbb\xbf{"a": 1}', "a.json .*byte order mark.*; save it as UTF-8 without one"),
        (b"[" * 100_000, r"a.json is not JSON \(maximum recursion depth.*\); do this"),
        (b"", r"a.json is not JSON \(.*\); do this"),
    ):
        path.write_bytes(content)
        with pytest.raises(BadInput, match=message):
            read_json(path, "do this")
    monkeypatch.setattr(identity, "_MOST_BYTES", 2)
    path.write_text("[1]")
    with pytest.raises(BadInput, match="a.json has 0 MB; expected a JSON file of at most 0 MB"):
        read_json_value(path)
    with pytest.raises(BadInput, match="is no regular file; expected a JSON file there"):
        monkeypatch.setattr(identity, "_MOST_BYTES", 1 << 20)
        read_json_value(tmp_path)
