"""Terms to ids: the tokenizer's own result, cut like the tokenizer's own truncation."""

import errno

import numpy as np
import pytest
import tiny_bert
from devices import FULL, device

from data_pipeline.dataset.tokenize_terms import (
    load_tokenizer,
    save_tokenizer,
    tokenize,
    tokenizer_hash,
)
from data_pipeline.process.errors import BadInput


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    tiny_bert.write_tokenizer(path)
    return path


def split(tokens, start):
    return [tokens[a:b].tolist() for a, b in zip(start[:-1], start[1:], strict=True)]


@pytest.mark.parametrize("max_length", [3, 5, 8, 64])
def test_equals_transformers_with_truncation(folder, max_length):
    from transformers import AutoTokenizer

    terms = [*tiny_bert.TERMS, "日本 heart", "\u0000", "a" * 300]
    expected = AutoTokenizer.from_pretrained(folder)(terms, truncation=True, max_length=max_length)[
        "input_ids"
    ]
    tokens, start = tokenize(load_tokenizer(folder), terms, max_length)
    assert tokens.dtype == np.int32 and start.dtype == np.int64
    assert split(tokens, start) == expected


def test_equals_transformers_on_minilm(minilm_path):
    from transformers import AutoTokenizer

    terms = ["abdominal pain", "x " * 100, "", "ödem", "痛み", "acute (left) x-ray, 5 mg/ml"]
    expected = AutoTokenizer.from_pretrained(minilm_path)(terms, truncation=True, max_length=32)
    tokens, start = tokenize(load_tokenizer(minilm_path), terms, 32)
    assert split(tokens, start) == expected["input_ids"]


def test_padding_and_truncation_that_a_tokenizer_brings_are_off(folder, tmp_path):
    tokenizer = load_tokenizer(folder)
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=9)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_bytes(
        (folder / "tokenizer_config.json").read_bytes()
    )
    terms = ["pain in limb of the heart", "pain"]
    assert split(*tokenize(load_tokenizer(tmp_path), terms, 64)) == split(
        *tokenize(load_tokenizer(folder), terms, 64)
    )


def test_no_terms(folder):
    tokens, start = tokenize(load_tokenizer(folder), [], 8)
    assert tokens.shape == (0,) and start.tolist() == [0]


def test_a_saved_tokenizer_is_the_same_one(folder, tmp_path):
    save_tokenizer(folder, tmp_path / "copy")
    original, copy = load_tokenizer(folder), load_tokenizer(tmp_path / "copy")
    assert tokenizer_hash(copy) == tokenizer_hash(original)
    for one, other in zip(
        tokenize(copy, tiny_bert.TERMS, 16), tokenize(original, tiny_bert.TERMS, 16), strict=True
    ):
        assert np.array_equal(one, other)


def test_a_disk_without_room_for_the_tokenizer(folder, tmp_path):
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/tokenizer.json").symlink_to(device(tmp_path / "full", FULL))
    with pytest.raises(OSError, match="No space left on device: '.*copy'") as error:
        save_tokenizer(folder, tmp_path / "copy")
    assert error.value.errno == errno.ENOSPC


def test_hash_tells_vocabularies_apart(folder, tmp_path):
    tiny_bert.write_tokenizer(tmp_path)
    words = (tmp_path / "vocab.txt").read_text()
    (tmp_path / "vocab.txt").write_text(words + "ache\n")
    assert tokenizer_hash(load_tokenizer(tmp_path)) != tokenizer_hash(load_tokenizer(folder))


def test_a_folder_without_tokenizer_is_refused(tmp_path):
    with pytest.raises(BadInput, match="none of tokenizer.json, vocab.txt, .*Give the folder"):
        load_tokenizer(tmp_path)


def test_an_unreachable_hub_id_is_refused():  # conftest.py keeps the hub out of reach
    with pytest.raises(BadInput, match="(?s)no tokenizer could be loaded from 'nobody/nothing'.*"):
        load_tokenizer("nobody/nothing")


def test_a_damaged_tokenizer_is_refused(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(BadInput, match="no tokenizer could be loaded"):
        load_tokenizer(tmp_path)


def test_too_short_a_maximum_is_refused(folder):
    with pytest.raises(BadInput, match="max length 2: expected 3 or more"):
        tokenize(load_tokenizer(folder), ["heart"], 2)
