"""Files that say what a thing is: written, read, compared; and why others are refused."""

import json

import pytest

from data_pipeline.files.identity import (
    BATCHES,
    DATASET,
    EVALUATION,
    KINDS,
    differences,
    is_of_kind,
    read_identity,
    shortened,
    write_identity,
)
from data_pipeline.files.whole_files import write_json
from data_pipeline.process.errors import BadInput


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "results.json"
    write_identity(path, EVALUATION, {"records": [], "of": "mine", "format": "before"})
    written = {"format": EVALUATION.format, "records": [], "of": "mine"}
    assert json.loads(path.read_text()) == written
    assert list(json.loads(path.read_text())) == list(written)
    assert read_identity(path, EVALUATION) == written  # what is not named in its type stays
    assert len(KINDS) == 9


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is missing; expected a JSON file there"),
        ("{", "batches.json is not JSON .*; make it again with `python -m data_pipeline.batch_fi"),
        ("\udc80", "batches.json is not JSON .*; make it again with"),
        ("[]", "holds an empty list; expected a JSON object; make it again with `python -m data_"),
        ("{}", "has the format None, expected 'coder_jax batches 1': .* did not write it, or an o"),
        ('{"format": 2}', "has the format 2, expected .* or an older version of coder_jax did;"),
        ('{"format": "zip 1"}', "the format 'zip 1', expected .* make it again with this one, or"),
        ('{"format": "coder_jax batches 0"}', "an older version of coder_jax wrote it; make it a"),
        ('{"format": "coder_jax batches 2"}', "a newer version of coder_jax wrote it; update cod"),
        ('{"format": "coder_jax run 3"}', "`python -m coder_jax train` writes such files; give o"),
        (
            '{"format": "coder_jax batches 1", "spec": {}, "first_step": -1}',
            "batches.json: first_step is -1; expected int >= 0; make it again with `python -m",
        ),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    path = tmp_path / "batches.json"
    if content is not None:
        path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(BadInput, match=message):
        read_identity(path, BATCHES)


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
    assert shortened("x" * 100) == "'" + "x" * 76 + "..."
