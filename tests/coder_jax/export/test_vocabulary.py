"""An encoder with more pieces: it opens everywhere, and what it knew is as it was."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
import tiny_bert
import tiny_roberta
from safetensors.numpy import load_file, save_file
from tiny_bert import TERMS, TINY, VOCABULARY, write_model

from coder_jax import TermEncoder
from coder_jax.export import vocabulary as extended_export
from coder_jax.export.folder import PROBE_TERMS, export_encoder
from coder_jax.export.vocabulary import (
    _extended_table,
    _old_pieces,
    _rows_for,
    _with_word_table,
    open_extendable,
    write_extended,
    write_trimmed,
)
from coder_jax.models.hf_files import read_settings
from coder_jax.models.hf_weights import _ANCHOR, load_bert, random_bert, to_hf
from data_pipeline.dataset.tokenizer import load_tokenizer, save_tokenizer, vocabulary_size
from data_pipeline.dataset.vocabulary import WordPieceVocabulary, used_pieces
from data_pipeline.process import BadInput

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

NEW = ["心", "hearts", "##acks", "ж", "##ж"]
UNCHANGED = ["heart attack", "pain in limb", "", "µ ☃", "Heart Attack (acute)"]
CARD = """---
license: other
license_name: house
base_model: org/base
language: en
tags: [tiny]
---
# tiny
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A tiny BERT with a model card, a license, and a head of masked words."""
    folder = tmp_path_factory.mktemp("source") / "tiny-bert"
    write_model(folder)
    (folder / "README.md").write_text(CARD)
    (folder / "LICENSE").write_text("MIT")
    (folder / "onnx").mkdir()
    tensors = load_file(folder / "model.safetensors")
    head = np.zeros(len(VOCABULARY), np.float32)
    renamed = {f"bert.{name}": tensor for name, tensor in tensors.items()}
    save_file(renamed | {"cls.predictions.bias": head}, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def written(source, tmp_path_factory):
    """(the folder, what is said of it)."""
    out = tmp_path_factory.mktemp("written") / "extended"
    encoder = open_extendable(str(source), out)
    return out, write_extended(encoder, NEW, out, probes=TERMS, facts={"learnt from": "a.txt"})


def test_old_rows_are_bitwise_the_same_and_new_ones_behind_them(source, written):
    out, said = written
    before, after = (load_bert(folder)[0] for folder in (source, out))
    size = len(VOCABULARY)
    assert said.rows == after.config.vocab_size == size + len(NEW)
    assert said.drawn == 3, "心, ж, ##ж"
    old, new = (np.asarray(one.embeddings.word.embedding[...]) for one in (before, after))
    np.testing.assert_array_equal(new[:size], old)
    both = [old[VOCABULARY.index(piece)] for piece in ("heart", "##s")]
    np.testing.assert_allclose(new[size + 1], np.mean(both, axis=0), rtol=1e-6)
    assert "bert." not in "".join(load_file(out / "model.safetensors"))


def test_it_opens_with_transformers_with_the_new_pieces(written):
    out, said = written
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    size = len(VOCABULARY)
    assert len(tokenizer) == size + len(NEW)
    assert tokenizer("心 hearts", add_special_tokens=False)["input_ids"] == [size, size + 1]
    assert tokenizer.tokenize("xacks") == ["x", "##acks"]
    assert {*tokenizer.all_special_tokens} == {"[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"}
    assert tokenizer.convert_tokens_to_ids("[MASK]") == VOCABULARY.index("[MASK]")
    model = transformers.AutoModel.from_pretrained(out)
    assert model.config.vocab_size == size + len(NEW)
    assert said.same > len(UNCHANGED) and said.largest == {"transformers": 0.0}
    assert not (out / "modules.json").exists(), "nor had the model"


def test_terms_with_the_same_tokens_have_the_same_vectors(source, written):
    out, _ = written
    before, after = (TermEncoder.from_pretrained(folder) for folder in (source, out))
    np.testing.assert_array_equal(before.encode(UNCHANGED), after.encode(UNCHANGED))
    assert before.settings == after.settings
    changed = ["hearts", "心", "backs"]
    assert (np.abs(before.encode(changed) - after.encode(changed)).max(axis=1) > 1e-3)[[0, 2]].all()


def test_what_the_folder_says_and_keeps(source, written):
    out, _ = written
    card = (out / "README.md").read_text()
    assert (
        "license: other" in card
        and "license_name: house" in card
        and "base_model: org/base" in card
        and "- tiny" in card
        and "vocabulary-extension" in card
    )
    assert "| learnt from | a.txt |" in card and "| new pieces | 5 |" in card
    assert str(source.parent) not in card
    assert (out / "LICENSE").read_text() == "MIT" and not (out / "onnx").exists()
    recorded = json.loads((out / "coder_jax.json").read_text())
    assert recorded["vocabulary"]["new pieces"] == 5 and recorded["pooling"] == "cls"
    modes = {path.stat().st_mode & 0o777 for path in out.iterdir() if path.is_file()}
    assert len(modes) == 1


def export_of(source, out, cleaning, **about):
    """The folder of an export whose tokenizer cleans."""
    bert, hf_config, _ = load_bert(source)
    settings = {"pooling": "pooler", "cleaning": cleaning, "max_length": 24}
    export_encoder(bert, source, hf_config, out, **settings, card=about)
    return out


def test_an_export_of_ours_opens_with_sentence_transformers_as_before(source, tmp_path):
    from sentence_transformers import SentenceTransformer

    about = {"recipe": {"steps": 3}, "languages": ["ENG"]}
    export_of(source, tmp_path / "export", "paper", **about)
    out = tmp_path / "extended"
    encoder = open_extendable(str(tmp_path / "export"), out)
    said = write_extended(encoder, NEW, out, probes=[], facts={})
    assert said.largest == {"transformers": 0.0, "sentence-transformers": 0.0}
    before, after = (
        SentenceTransformer(str(folder), device="cpu") for folder in (tmp_path / "export", out)
    )
    np.testing.assert_array_equal(before.encode(UNCHANGED), after.encode(UNCHANGED))
    opened = TermEncoder.from_pretrained(out)
    assert opened.settings == encoder.settings and opened.languages == ("ENG",)
    assert json.loads((out / "coder_jax.json").read_text())["recipe"] == {"steps": 3}
    # Once more, over the one that is there.
    again = open_extendable(str(out), tmp_path / "twice")
    assert again.vocabulary.size == len(VOCABULARY) + len(NEW)


@pytest.mark.parametrize(
    "cleaning, raw, cleaned, new",
    [
        ("paper", "Diabetes (type 2)", "diabetes", "diabetes"),
        pytest.param(*("mlnorm", "œdème(2)", "oedeme ( 2 )", "oedeme"), marks=pytest.mark.slow),
    ],
)
def test_an_extended_export_cleans_as_it_did(source, tmp_path, cleaning, raw, cleaned, new):
    out = tmp_path / "extended"
    encoder = open_extendable(str(export_of(source, tmp_path / "export", cleaning)), out)
    said = write_extended(encoder, [new], out, probes=[raw, cleaned], facts={})
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    of_raw, of_cleaned = tokenizer([raw, cleaned], add_special_tokens=False)["input_ids"]
    assert of_raw == of_cleaned and of_raw[0] == len(VOCABULARY), "the new piece"
    # Of the check both and, where it has the word, "œdème aigu du poumon" have other tokens.
    changed = 2 + sum(new in term for term in encoder.cleaned(PROBE_TERMS))
    assert said.same == len(PROBE_TERMS) + 2 - changed
    assert read_settings(out).cleaning == cleaning


def test_an_extended_export_that_no_longer_cleans_is_refused(source, tmp_path, monkeypatch):
    export_of(source, tmp_path / "export", "paper")
    encoder = open_extendable(str(tmp_path / "export"), tmp_path / "extended")
    monkeypatch.setattr(extended_export, "clean_in", lambda folder, rules: None)
    with pytest.raises(RuntimeError, match="differ by"):
        write_extended(encoder, NEW, tmp_path / "extended", probes=[], facts={})
    assert not (tmp_path / "extended").exists()


def test_an_export_of_when_tokenizers_did_not_clean_is_extended(source, tmp_path):
    export_of(source, tmp_path / "export", "paper")
    save_tokenizer(source, tmp_path / "export")
    encoder = open_extendable(str(tmp_path / "export"), tmp_path / "extended")
    said = write_extended(encoder, NEW, tmp_path / "extended", probes=[], facts={})
    assert 0 < said.same < len(PROBE_TERMS)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "extended")
    assert tokenizer.tokenize("Heart (acute)") == ["heart"]


def test_a_vocab_txt_is_of_the_new_vocabulary_or_not_there(written):
    out, _ = written
    path = out / "vocab.txt"
    assert not path.exists() or path.read_text().split("\n")[len(VOCABULARY)] == "心"
    assert load_tokenizer(out).token_to_id("心") == len(VOCABULARY)


@pytest.mark.parametrize("broken", ["ids", "rows", "vectors"])
def test_a_folder_that_is_not_right_is_not_left_behind(
    source, tmp_path, monkeypatch, caplog, broken
):
    out = tmp_path / "extended"
    encoder = open_extendable(str(source), out)
    if broken == "ids":
        monkeypatch.setattr(extended_export, "_copy_kept", spoil_tokenizer)
    elif broken == "rows":
        real = extended_export._extended_table
        monkeypatch.setattr(
            extended_export, "_extended_table", lambda *a: (np.roll(real(*a)[0], 1, 0), 0)
        )
    else:
        monkeypatch.setattr(extended_export, "_copy_kept", spoil_weights)
    message = {"ids": "other tokens", "rows": "other rows", "vectors": "differ by"}[broken]
    with pytest.raises(RuntimeError, match=message):
        write_extended(encoder, NEW, out, probes=TERMS, facts={})
    assert list(tmp_path.iterdir()) == []
    assert "LOAD REPORT" not in caplog.text, "of the head that the file has, too"


def spoil_tokenizer(source, folder):
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace('"心"', '"肌"'))


def spoil_weights(source, folder):
    tensors = load_file(folder / "model.safetensors")
    spoilt = {
        name: tensor + (0.1 if "LayerNorm.bias" in name else 0) for name, tensor in tensors.items()
    }
    assert _ANCHOR in spoilt
    save_file(spoilt, folder / "model.safetensors", metadata={"format": "pt"})


def test_what_is_refused_before_the_work(source, tmp_path, written):
    tiny_roberta.write_model(tmp_path / "xlm")
    with pytest.raises(BadInput, match="SentencePiece"):
        open_extendable(str(tmp_path / "xlm"), tmp_path / "out")
    write_model(tmp_path / "gpt2")
    config = json.loads((tmp_path / "gpt2" / "config.json").read_text())
    (tmp_path / "gpt2" / "config.json").write_text(json.dumps(config | {"model_type": "gpt2"}))
    with pytest.raises(BadInput, match="model_type is 'gpt2'"):
        open_extendable(str(tmp_path / "gpt2"), tmp_path / "out")
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="is no earlier export"):
        open_extendable(str(source), other)
    (other / "coder_jax.json").write_text(
        (written[0] / "coder_jax.json").read_text().replace('"vocabulary"', '"other"')
    )
    with pytest.raises(BadInput, match="whose vocabulary was not extended"):
        open_extendable(str(source), other)
    with pytest.raises(BadInput, match="is the encoder itself"):
        open_extendable(str(written[0]), written[0])
    with pytest.raises(BadInput, match="expected a folder on this machine"):
        open_extendable(str(source), "s3://bucket/out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parity
def test_minilm_gets_chinese_characters(minilm_path, tmp_path):
    out = tmp_path / "minilm"
    encoder = open_extendable(str(minilm_path), out)
    new = ["梗", "腔", "##癌"]
    assert not {*new} & encoder.vocabulary.pieces.keys()
    said = write_extended(encoder, new, out, probes=["心肌梗死"], facts={})
    assert said.rows == 30522 + 3 and said.same > 30
    assert max(said.largest.values()) <= 1e-6
    assert said.largest.keys() == {"transformers", "sentence-transformers"}
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    assert tokenizer("梗", add_special_tokens=False)["input_ids"] == [30522]
    assert (out / "1_Pooling" / "config.json").is_file()


# -------------------------------------------------------------------------------------------------
# Rows of new pieces begin at the mean of those of their old ones; all other weights stay.

SIZE = len(VOCABULARY)
TINY_VOCABULARY = WordPieceVocabulary(
    {piece: number for number, piece in enumerate(VOCABULARY)}, "[UNK]", "##", 100, SIZE
)


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        ("hearts", ["heart", "##s"]),
        ("##heart", ["##h", "##e", "##a", "##r", "##t"]),
        ("painz", ["pain", "##z"]),
        ("##.", ["."]),  # in its other form only
        ("a-b", ["a", "-", "##b"]),
        ("üpain", ["##p", "##a", "##i", "##n"]),
        ("心", []),
        ("##ü", []),
    ],
)
def test_a_piece_is_spelt_by_the_old_ones(piece, expected):
    found = _old_pieces(piece, TINY_VOCABULARY)
    assert [VOCABULARY[number] for number in found] == expected


def test_rows_are_means_of_old_rows_or_drawn():
    table = np.random.default_rng(0).normal(size=(SIZE, 4)).astype(np.float32)
    extended, unknown = _extended_table(table, TINY_VOCABULARY, ["hearts", "心", "##."])
    assert extended.shape == (SIZE + 3, 4) and extended.dtype == np.float32 and unknown == 1
    np.testing.assert_array_equal(extended[:SIZE], table)
    heart, s = (table[VOCABULARY.index(piece)] for piece in ("heart", "##s"))
    np.testing.assert_allclose(extended[SIZE], (heart + s) / 2, rtol=1e-6)
    assert np.abs(extended[:SIZE] - extended[SIZE + 1]).max(axis=1).min() > 0.1
    np.testing.assert_array_equal(extended[SIZE + 2], table[VOCABULARY.index(".")])


def test_rows_of_unknown_characters_are_spread_as_others_and_all_differ():
    random = np.random.default_rng(0)
    table = (random.normal(size=(SIZE, 8)) * np.arange(1, 9) + np.arange(8)).astype(np.float32)
    new = [chr(code) for code in range(0x4E00, 0x4E00 + 4000)]
    extended, drawn = _extended_table(table, TINY_VOCABULARY, new)
    assert drawn == 4000
    rows = extended[SIZE:]
    assert len(np.unique(rows, axis=0)) == 4000
    np.testing.assert_allclose(rows.std(axis=0), table.std(axis=0), rtol=0.05)
    distance = np.abs(rows.mean(axis=0) - table.mean(axis=0))
    assert (distance < 4 * table.std(axis=0) / np.sqrt(4000)).all()
    again, _ = _extended_table(table, TINY_VOCABULARY, new)
    np.testing.assert_array_equal(again, extended)
    once_more = WordPieceVocabulary(
        TINY_VOCABULARY.pieces | {"心": SIZE}, "[UNK]", "##", 100, SIZE + 1
    )
    other, _ = _extended_table(extended[: SIZE + 1], once_more, ["肝"])
    assert not np.array_equal(other[SIZE + 1], extended[SIZE])


@pytest.mark.parametrize(
    ("rows", "size", "expected"),
    [
        (SIZE, SIZE + 5, SIZE + 5),  # not padded, and so it stays
        (104, 105, 112),  # a multiple of 8
        (104, 103, 104),  # the padding has room
        (128, 200, 256),
        (1024, 1025, 1152),  # of 128 at most
    ],
)
def test_a_padded_table_stays_padded(rows, size, expected):
    assert _rows_for(TINY_VOCABULARY, rows, size) == expected


def test_padding_makes_room_and_repeats_the_unknown_token():
    table = np.random.default_rng(0).normal(size=(104, 4)).astype(np.float32)
    new = [f"heart{letter}" for letter in "abcdefghi"]  # one more than there is room for
    extended, _ = _extended_table(table, TINY_VOCABULARY, new)
    assert SIZE + len(new) > len(table) and len(extended) == 112
    np.testing.assert_array_equal(extended[:SIZE], table[:SIZE])
    heart, a = (table[VOCABULARY.index(piece)] for piece in ("heart", "##a"))
    np.testing.assert_allclose(extended[SIZE], (heart + a) / 2, rtol=1e-6)
    unknown = np.broadcast_to(table[VOCABULARY.index("[UNK]")], (112 - SIZE - 9, 4))
    np.testing.assert_array_equal(extended[SIZE + 9 :], unknown)


@pytest.mark.parametrize("pooler", [True, False])
def test_all_other_weights_stay(pooler):
    bert = random_bert(TINY, 0, dtype=jnp.bfloat16)
    if not pooler:
        bert.pooler = None
    before = to_hf(bert)
    table = np.concatenate([before[_ANCHOR], before[_ANCHOR][:3]])
    extended = _with_word_table(bert, table)
    assert extended.config.vocab_size == SIZE + 3 and extended.dtype == jnp.bfloat16
    after = to_hf(extended)
    assert after.keys() == before.keys()
    for name, value in after.items():
        np.testing.assert_array_equal(value, table if name == _ANCHOR else before[name])


# -------------------------------------------------------------------------------------------------
# An encoder without the pieces that no term uses.


@pytest.mark.parametrize("kind", [tiny_bert, tiny_roberta])
def test_what_is_left_gives_the_same_vectors(tmp_path, kind):
    kind.write_model(tmp_path / "whole")
    out, terms = tmp_path / "out", ["heart attack", "pain in heart"]
    encoder = open_extendable(str(tmp_path / "whole"), out, only_used=True)
    kept = used_pieces(encoder.tokenizer, terms, "x")
    said = write_trimmed(encoder, kept, out, probes=terms, facts={"distinct terms": 2})
    assert said.rows == len(kept) < encoder.bert.config.vocab_size
    assert said.largest == {"transformers": 0.0} and said.same >= 2
    for opened in (out, tmp_path / "whole"):
        config = json.loads((opened / "config.json").read_text())
        tokenizer = transformers.AutoTokenizer.from_pretrained(opened)
        assert config["pad_token_id"] == tokenizer.pad_token_id
        assert tokenizer.convert_tokens_to_ids(tokenizer.mask_token) < config["vocab_size"]
    before, after = (TermEncoder.from_pretrained(one) for one in (tmp_path / "whole", out))
    np.testing.assert_array_equal(before.encode(terms), after.encode(terms))
    card = (out / "README.md").read_text()
    assert f"| pieces kept | {len(kept):,} of {vocabulary_size(encoder.tokenizer):,} |" in card
    assert "vocabulary-extension" not in card
    # It is trained and exported like any other.
    tokens = export_of(out, tmp_path / "export", "none")
    assert TermEncoder.from_pretrained(tokens).bert.config.vocab_size == len(kept)


def test_rows_of_other_pieces_are_seen(tmp_path, source, monkeypatch):
    encoder = open_extendable(str(source), tmp_path / "out", only_used=True)
    kept = used_pieces(encoder.tokenizer, ["heart"], "x")
    rolled = lambda bert, table: _with_word_table(bert, np.roll(table, 1, 0))  # noqa: E731
    monkeypatch.setattr(extended_export, "_with_word_table", rolled)
    with pytest.raises(RuntimeError, match="other rows"):
        write_trimmed(encoder, kept, tmp_path / "out", probes=[], facts={})
    assert not (tmp_path / "out").exists()
