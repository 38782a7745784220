"""Terms to ids: the tokenizer's own result, cut like the tokenizer's own truncation."""

import errno
import json

import numpy as np
import polars as pl
import pytest
import tiny_bert
import tiny_modernbert
import tiny_roberta
from devices import FULL, device
from tokenizers import AddedToken, pre_tokenizers

from data_pipeline.dataset import tokenizer as word_pieces
from data_pipeline.dataset.tokenizer import (
    _SETTINGS,
    WordPieces,
    load_tokenizer,
    save_tokenizer,
    tokenize,
    tokenize_uncut,
    tokenizer_hash,
    warn_of_case,
)
from data_pipeline.process import BadInput
from data_pipeline.terminology.cleaning import clean


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


def test_a_pointer_of_git_lfs_is_said_to_be_one(tmp_path):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    (tmp_path / "tokenizer.json").write_text(pointer)
    with pytest.raises(BadInput, match="tokenizer.json is a pointer of Git LFS, .*'git lfs pull'"):
        load_tokenizer(tmp_path)


def with_tokenizer_json(folder, **changes):
    """The tokenizer as transformers saves it, with other values of tokenizer_config.json."""
    tiny_bert.write_tokenizer(folder)
    save_tokenizer(folder, folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text()) | changes
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize("kept", ["none", "the first"])
def test_a_tokenizer_without_special_tokens_is_refused(tmp_path, kept):
    folder = with_tokenizer_json(tmp_path, tokenizer_class="PreTrainedTokenizerFast")
    parts = json.loads((folder / "tokenizer.json").read_text())
    whole = parts["post_processor"]
    one = {"type": "TemplateProcessing", "pair": whole.get("pair") or []}
    one |= {
        "single": [
            {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}},
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    }
    parts["post_processor"] = None if kept == "none" else one
    (folder / "tokenizer.json").write_text(json.dumps(parts))
    count = 0 if kept == "none" else 1
    with pytest.raises(BadInput, match=f"puts {count} special tokens around a term; expected two"):
        load_tokenizer(folder)
    # What the message advises.
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["tokenizer_class"] = "BertTokenizer"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    assert load_tokenizer(folder).encode("pain").tokens == ["[CLS]", "pain", "[SEP]"]


def test_a_tokenizer_in_python_alone_is_refused(monkeypatch):
    monkeypatch.setattr(word_pieces, "_auto_tokenizer", lambda _: object())  # as of MeCab's words
    with pytest.raises(BadInput, match="the tokenizer of 'bert-japanese' has no fast .Rust. vers"):
        load_tokenizer("bert-japanese")


def test_settings_that_cannot_be_read_are_named(tmp_path):
    tiny_bert.write_tokenizer(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    whole = path.read_text()
    path.write_text(whole, encoding="utf-8-sig")
    with pytest.raises(BadInput, match="tokenizer_config.json .* byte order mark.*without one"):
        load_tokenizer(tmp_path)
    path.write_text(json.dumps(json.loads(whole) | {"tokenizer_class": "NoSuchTokenizer"}))
    with pytest.raises(BadInput, match="has the tokenizer_class 'NoSuchTokenizer', which transfor"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("file", ["vocab.txt", "tokenizer.json"])
def test_capitals_that_are_never_used_are_told(tmp_path, capsys, file):
    if file == "tokenizer.json":
        with_tokenizer_json(tmp_path)
    else:
        tiny_bert.write_tokenizer(tmp_path)
    warn_of_case(load_tokenizer(tmp_path), "small")
    assert capsys.readouterr().err == "", "[CLS] and the like are no words"
    for path in tmp_path.iterdir():
        path.unlink()
    # As cased models were published once: the words alone.
    words = [*tiny_bert.VOCABULARY, "Heart", "##B", "Ödem"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    if file == "tokenizer.json":
        save_tokenizer(tmp_path, tmp_path)
    warn_of_case(load_tokenizer(tmp_path), "cased")
    said = capsys.readouterr().err
    assert "warning: 3 pieces of the vocabulary of cased have capitals (such as ##B, Heart" in said
    assert load_tokenizer(tmp_path).encode("Heart").tokens[1:-1] == ["heart"]
    # What the message advises.
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": False}
    assert all(f'"{name}": {json.dumps(value)}' in said for name, value in settings.items())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    warn_of_case(load_tokenizer(tmp_path), "cased")
    assert capsys.readouterr().err == ""
    assert load_tokenizer(tmp_path).encode("Heart").tokens[1:-1] == ["Heart"]


def test_a_cased_tokenizer_of_bytes_is_not_told_of(tmp_path, capsys):
    tiny_modernbert.write_tokenizer(tmp_path)
    warn_of_case(load_tokenizer(tmp_path), "modern")
    assert capsys.readouterr().err == ""


def test_too_short_a_maximum_is_refused(folder):
    with pytest.raises(BadInput, match="max length 2: expected 3 or more"):
        tokenize(load_tokenizer(folder), ["heart"], 2)


# -------------------------------------------------------------------------------------------------
# Word pieces: the ids of words put together are those of the whole terms.

TERMS = [
    *tiny_bert.TERMS,
    "",
    " ",
    "  pain  in  limb ",
    "acute (left) x-ray, 5 mg/ml",
    "日本 heart 痛み",
    "o\u0308dem \u0308dem \u0301",  # an accent of its own, behind a blank
    "a\u0000b \u0000 c",
    "pain\tin\u00a0limb\u3000heart",
    "a" * 300 + " heart",
    "[SEP] heart[CLS] [UNK] [unk]",
    "ΟΔΟΣ İris straße",
]


def check(pieces, terms):
    ids, start = pieces(terms)
    expected_ids, expected_start = tokenize_uncut(pieces.tokenizer, list(terms))
    assert ids.dtype == np.int32 and start.dtype == np.int64
    assert np.array_equal(start, expected_start) and np.array_equal(ids, expected_ids)


@pytest.fixture
def tokenizer_of_word_pieces(tmp_path):
    tiny_bert.write_tokenizer(tmp_path)
    return load_tokenizer(tmp_path)


def test_equal_to_whole_terms(tokenizer_of_word_pieces, minilm_path):
    for one in (tokenizer_of_word_pieces, load_tokenizer(minilm_path)):
        pieces = WordPieces(one)
        assert pieces.splits_at_blanks
        check(pieces, TERMS)
        check(pieces, TERMS[::-1])  # all words known
        check(pieces, pl.Series(["heart", "never seen"]))
        check(pieces, [])


def test_equal_on_random_characters(minilm_path):
    random = np.random.default_rng(0)
    points = np.concatenate([np.arange(1, 0x3100), np.arange(0xFE00, 0xFFFE)])
    points[random.random(len(points)) < 0.3] = ord(" ")
    texts = ["".join(map(chr, random.choice(points, 12))) for _ in range(5_000)]
    check(WordPieces(load_tokenizer(minilm_path)), texts)


def test_equal_on_real_terms_of_many_languages(shared_data, minilm_path):
    path = shared_data / "openmeta" / "MRCONSO.RRF.gz"
    table = pl.read_csv(path, has_header=False, separator="|", quote_char=None, infer_schema=False)
    terms = clean(table["column_15"][::40].fill_null(""), "paper")
    assert len(terms) > 20_000
    check(WordPieces(load_tokenizer(minilm_path)), terms)


def test_a_word_is_tokenized_once(tokenizer_of_word_pieces, monkeypatch):
    asked = []

    def listen(tokenizer, terms, **options):
        asked.extend(terms)
        return tokenize_uncut(tokenizer, terms, **options)

    monkeypatch.setattr(word_pieces, "tokenize_uncut", listen)
    pieces = WordPieces(tokenizer_of_word_pieces)
    pieces(["pain in limb", "limb pain"])
    pieces(["heart pain"])
    assert sorted(asked) == ["heart", "in", "limb", "pain"]


def test_too_many_words_are_forgotten(tokenizer_of_word_pieces, monkeypatch):
    monkeypatch.setattr(word_pieces, "_WORDS_KEPT", 2)
    pieces = WordPieces(tokenizer_of_word_pieces)
    check(pieces, ["pain in limb"])
    check(pieces, ["heart pain"])
    assert sorted(pieces.known) == ["heart", "pain"]


def test_a_tokenizer_that_works_otherwise_gets_whole_terms(tokenizer_of_word_pieces):
    tokenizer_of_word_pieces.add_tokens([AddedToken("limb pain", normalized=False)])
    pieces = WordPieces(tokenizer_of_word_pieces)
    assert not pieces.splits_at_blanks
    check(pieces, ["in limb pain", "limb pain"])


@pytest.mark.parametrize("content", ["limb\tpain", "limb\u00a0pain"])
def test_white_space_in_an_added_token_becomes_a_blank(tokenizer_of_word_pieces, content):
    tokenizer_of_word_pieces.add_tokens([AddedToken(content, normalized=True)])
    pieces = WordPieces(tokenizer_of_word_pieces)
    assert len(tokenizer_of_word_pieces.encode("limb pain", add_special_tokens=False).ids) == 1
    assert not pieces.splits_at_blanks
    check(pieces, ["in limb pain", content])


@pytest.mark.parametrize("what", ["truncation", "padding"])
def test_a_tokenizer_that_cuts_or_fills_up_gets_whole_terms(tokenizer_of_word_pieces, what):
    if what == "truncation":
        tokenizer_of_word_pieces.enable_truncation(3)
    else:
        tokenizer_of_word_pieces.enable_padding()
    pieces = WordPieces(tokenizer_of_word_pieces)
    assert not pieces.splits_at_blanks
    check(pieces, ["in limb pain", "limb pain"])


def test_a_tokenizer_that_does_not_split_at_blanks_gets_whole_terms(tokenizer_of_word_pieces):
    tokenizer_of_word_pieces.pre_tokenizer = pre_tokenizers.Metaspace()
    pieces = WordPieces(tokenizer_of_word_pieces)
    assert not pieces.splits_at_blanks
    check(pieces, ["in limb pain", "limb pain"])


def test_a_special_token_that_takes_blanks_gets_whole_terms(tokenizer_of_word_pieces):
    tokenizer_of_word_pieces.add_special_tokens([AddedToken("[X]", lstrip=True)])
    assert not WordPieces(tokenizer_of_word_pieces).splits_at_blanks


@pytest.mark.parametrize("accents", [False, True])
def test_the_normalizer_of_a_file_is_kept(tmp_path, accents):
    """transformers makes a tokenizer of this class anew, without the normalizer of its file."""
    tiny_roberta.write_tokenizer(tmp_path, (*tiny_roberta.TEXTS, "typo 2"))
    plain = load_tokenizer(tmp_path)
    file = tmp_path / "tokenizer.json"
    content = json.loads(file.read_text()) | {"normalizer": {"type": "NFKC"}}
    if accents:
        parts = [{"type": "NFD"}, {"type": "StripAccents"}]
        content["normalizer"] = {"type": "Sequence", "normalizers": parts}
    file.write_text(json.dumps(content))
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert settings["tokenizer_class"] == "XLMRobertaTokenizer"
    again = tmp_path / "again"
    save_tokenizer(tmp_path, again)
    for folder in (tmp_path, again):
        tokenizer = load_tokenizer(folder)
        pairs = {"\uff12": "2", "typ\u00ba": "typo", "\uff12\u00ba": "2o"}
        for letter, same in {"typ\u00f6": "typo"}.items() if accents else pairs.items():
            assert tokenizer.encode(letter).ids == tokenizer.encode(same).ids
            assert plain.encode(letter).ids != plain.encode(same).ids


def test_which_settings_of_a_bert_count(tmp_path):
    """As with transformers, those of its tokenizer_config.json, if nothing else is lost."""
    tiny_bert.write_tokenizer(tmp_path)
    save_tokenizer(tmp_path, tmp_path / "fast")
    file, settings = (tmp_path / "fast" / name for name in ("tokenizer.json", _SETTINGS))
    content = json.loads(file.read_text())
    content["normalizer"]["lowercase"] = False
    file.write_text(json.dumps(content))
    told = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    settings.write_text(json.dumps(json.loads(settings.read_text()) | told))
    assert load_tokenizer(tmp_path / "fast").normalizer.normalize_str("Ab") == "ab"
    content["normalizer"] = {"type": "Sequence", "normalizers": [content["normalizer"]]}
    file.write_text(json.dumps(content))
    assert load_tokenizer(tmp_path / "fast").normalizer.normalize_str("Ab") == "Ab"
