"""TermEncoder: settings of each kind of folder, encoding, normalization."""

import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import msgspec
import numpy as np
import pandas
import polars as pl
import pytest
from msgspec import UNSET
from tiny_bert import TERMS, TINY, VOCABULARY, write_model, write_tokenizer
from tiny_modernbert import write_tokenizer as write_byte_pieces

from coder_jax import TermEncoder
from coder_jax.encoding.encoder import (
    EncodedDictionary,
    Match,
    RememberingEncoder,
    _terms_and_concepts,
    nearest_concepts,
)
from coder_jax.encoding.vector_files import encoder_protocol
from coder_jax.models.bert import split_encoder
from coder_jax.models.hf_files import EncoderSettings, read_settings, write_settings
from coder_jax.models.hf_weights import random_bert
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.dataset.tokenizer import load_tokenizer, vocabulary_size
from data_pipeline.files.identity import ENCODER
from data_pipeline.process import BadInput


@pytest.fixture(scope="module")
def encoder(tiny_folder):
    return TermEncoder.from_pretrained(tiny_folder)


def test_a_plain_bert_gets_the_settings_of_the_paper(encoder):
    assert encoder.settings == EncoderSettings(
        pooling="cls", cleaning="none", max_length=32, attend_padding=False
    )
    assert encoder.report.loaded > 30


def test_word_pieces_are_its_tokens(encoder):
    # [CLS] and [SEP] count, and so does what a long term is cut to.
    assert encoder.token_counts(["heart attack", "", "pain " * 99]).tolist() == [4, 2, 32]


MARK = {"format": ENCODER.format}


def test_settings_of_our_export_and_what_overrides_them(tiny_folder, tmp_path):
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    saved = {"pooling": "mean", "cleaning": "paper", "max_length": 20, "attend_padding": True}
    (folder / "coder_jax.json").write_text(json.dumps(saved | MARK | {"recipe": {"name": "any"}}))
    assert TermEncoder.from_pretrained(folder).settings == EncoderSettings(**saved)
    changed = TermEncoder.from_pretrained(
        folder, "cls", cleaning="none", max_length=24, attend_padding=False
    )
    assert changed.settings == EncoderSettings("cls", "none", 24, False)


def sentence_transformers_folder(folder, pooling_config, modules=("Transformer", "Pooling")):
    listed = [
        {"idx": i, "name": str(i), "path": f"{i}_{name}", "type": f"sentence_transformers.{name}"}
        for i, name in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling_config))


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"embedding_dimension": 32, "pooling_mode": "mean"}, "mean"),
    ],
)
def test_settings_of_sentence_transformers_folders(tmp_path, config, pooling):
    sentence_transformers_folder(tmp_path, config, ("Transformer", "Pooling", "Normalize"))
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 48}')
    assert read_settings(tmp_path) == EncoderSettings(pooling=pooling, max_length=48)


def test_settings_of_minilm(minilm_path):
    assert read_settings(minilm_path) == EncoderSettings(pooling="mean", max_length=256)


@pytest.mark.parametrize(
    ("config", "modules", "message"),
    [
        ({"pooling_mode": "max"}, ("Transformer", "Pooling"), "pooling is 'max'; expected cls or"),
        (
            {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True},
            ("Transformer", "Pooling"),
            "pooling is .*pooling_mode_max_tokens.*; expected cls or mean",
        ),
        (
            {"pooling_mode": "cls"},
            ("Transformer", "Pooling", "Dense"),
            "found the modules Transformer, Pooling, Dense; expected",
        ),
    ],
)
def test_poolings_without_counterpart_must_be_settled(tmp_path, config, modules, message):
    sentence_transformers_folder(tmp_path, config, modules)
    with pytest.raises(BadInput, match=message):
        read_settings(tmp_path)
    assert read_settings(tmp_path, pooling="cls").pooling == "cls"


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("config_sentence_transformers.json", {"default_prompt_name": "query"}),
        ("sentence_bert_config.json", {"do_lower_case": True}),
    ],
)
def test_what_changes_texts_before_they_are_read_must_be_settled(tmp_path, file, changes):
    sentence_transformers_folder(tmp_path, {"pooling_mode": "cls"}, ("Transformer", "Pooling"))
    (tmp_path / file).write_text(json.dumps(dict.fromkeys(changes)))
    assert read_settings(tmp_path).pooling == "cls"
    (tmp_path / file).write_text(json.dumps(changes))
    with pytest.raises(BadInput, match=f"{[*changes][0]} is .*before the tokenizer reads it"):
        read_settings(tmp_path)
    assert read_settings(tmp_path, pooling="cls").pooling == "cls"
    if "do_lower_case" in changes:  # a prompt settles only which prompt
        with pytest.raises(
            BadInput, match="do_lower_case is True.*--backend sentence-transformers"
        ):
            read_settings(tmp_path, prompt="query: ")
    else:
        assert read_settings(tmp_path, prompt="query: ").pooling == "cls"


@pytest.mark.parametrize("asked", [None, 66])
def test_terms_are_as_long_as_there_are_positions(tiny_folder, tmp_path, capsys, asked):
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    (folder / "tokenizer_config.json").write_text("{}")  # it names no length either
    sentence_transformers_folder(folder, {"pooling_mode": "mean"}, ("Transformer", "Pooling"))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": asked}))
    encoder = TermEncoder.from_pretrained(folder)
    assert encoder.settings.max_length == TINY.max_positions
    told = "asks for terms of up to 66 tokens, but its encoder has" in capsys.readouterr().out
    assert told == (asked is not None)
    assert np.isfinite(encoder.encode(["pain " * 500])).all()


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        ({"pooling": "max"}, "pooling is 'max'; expected one of cls, mean, pieces, pooler"),
        ({"cleaning": "soap"}, "cleaning is 'soap'; expected one of paper, lookup, none"),
        ({"max_length": 2}, "coder_jax.json: max_length is 2; expected int >= 3"),
        ({"max_length": "32"}, 'coder_jax.json: max_length is "32"; expected int; make it again'),
    ],
)
def test_broken_settings(tmp_path, saved, message):
    whole = {"pooling": "cls", "cleaning": "none", "max_length": 32, "attend_padding": False}
    (tmp_path / "coder_jax.json").write_text(json.dumps(MARK | whole | saved))
    with pytest.raises(BadInput, match=message):
        read_settings(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "coder_jax.json",
            "{",
            "coder_jax.json is not JSON .*; make it again with `python -m coder_jax export`",
        ),
        ("coder_jax.json", "[]", "coder_jax.json holds an empty list; expected a JSON object"),
        ("coder_jax.json", '{"format": "coder_jax encoder 9"}', "a newer version of coder_jax wro"),
        ("modules.json", "[{", "modules.json is not JSON .*; fetch or write it again"),
        (
            "modules.json",
            '{"type": 1}',
            "modules.json: the content is an object; expected array; fe",
        ),
        (
            "modules.json",
            '[{"type": "Transformer"}]',
            r"modules.json: \[0\].path is missing; fetch the folder again",
        ),
    ],
)
def test_broken_files_of_settings(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(BadInput, match=message):
        read_settings(tmp_path)


def test_encode_cleans_first(encoder):
    cleaning = TermEncoder(encoder.bert, encoder.tokenizer, EncoderSettings(cleaning="paper"))
    dirty, clean = ["Heart-attack NOS (disorder)", "(x)"], ["heart attack", ""]
    np.testing.assert_array_equal(cleaning.encode(dirty), cleaning.encode(clean))
    assert np.abs(encoder.encode(dirty) - encoder.encode(clean)).max(axis=1).min() > 0.01


def test_the_weights_are_copied_to_the_devices_once(encoder, monkeypatch):
    """For all that encode with one reader, whatever their settings."""
    encoder.encode(["pain"])
    copied, put = [], jax.device_put
    monkeypatch.setattr(
        jax, "device_put", lambda given, *a: (copied.append(given), put(given, *a))[1]
    )
    other = TermEncoder(encoder.reader, None, encoder.settings.changed(pooling="mean"))
    for one in (encoder, other):
        one.encode(["heart", "limb pain"])
        list(one.encode_chunks([["heart"], ["limb pain"]]))
    assert copied and all(leaf.dtype == np.int32 for leaf in jax.tree.leaves(copied))


def test_a_cpu_shares_the_memory_of_the_weights(tiny_folder):
    """JAX takes arrays as they are that begin at a multiple of 64 bytes."""
    leaves = jax.tree.leaves(split_encoder(TermEncoder.from_pretrained(tiny_folder).bert)[1])
    on_device = jax.device_put(leaves, jax.devices()[0])
    places = [leaf.unsafe_buffer_pointer() for leaf in on_device]
    assert places == [leaf.ctypes.data for leaf in leaves]


def test_encode_takes_one_string_and_whatever_has_several(encoder):
    vectors = encoder.encode(TERMS[:3])
    assert vectors.shape == (3, 32)
    one = encoder.encode(TERMS[1])
    assert one.shape == (32,)
    np.testing.assert_allclose(one, vectors[1], atol=1e-6)
    for given in (
        tuple(TERMS[:3]),
        (term for term in TERMS[:3]),
        np.array(TERMS[:3]),
        np.array(TERMS[:3], object),
        pl.Series(TERMS[:3]),
        pandas.Series(TERMS[:3], index=[7, 8, 9]),
        dict.fromkeys(TERMS[:3]).keys(),
    ):
        np.testing.assert_array_equal(encoder.encode(given), vectors)
    assert encoder.encode(iter([])).shape == (0, 32)


def test_encode_wants_strings_in_an_order(encoder):
    for wrong, message in (
        (["pain", None], "found NoneType 'None' at place 1 .*; expected a string or strings"),
        ([1.0], "found float '1.0' at place 0"),
        (pandas.Series(["pain", float("nan")]), "found float 'nan' at place 1 .* missing"),
        ([["pain"]], "found list"),
        (np.array([["pain"]]), r"found ndarray .*; expected .*: a list, a generator, a one-dim"),
        ({"pain", "limb"}, "found a set, which is no row of strings; expected .*sorted"),
        ({"pain": "C1"}, "found a dict"),
        (pandas.DataFrame({"term": ["pain"]}), r"found a DataFrame; .* frame\['term'\]"),
        (b"pain", "found bytes"),
        (3, "found int '3'"),
    ):
        with pytest.raises(BadInput, match=message):
            encoder.encode(wrong)


def test_half_a_character_is_said(encoder):
    cut = json.loads('"heart \\ud83d"')  # of an emoji
    for terms, place in ((cut, 0), (["Übelkeit", cut], 1)):
        with pytest.raises(BadInput, match=rf"'heart .ud83d' at place {place} .* half of a char"):
            encoder.encode(terms)


def test_arguments_of_sentence_transformers(encoder, capsys):
    vectors = encoder.encode(TERMS[:3])
    raw = encoder.encode(TERMS[:3], unit=False)
    assert np.abs(np.linalg.norm(raw, axis=1) - 1).min() > 0.1
    same = encoder.encode(TERMS[:3], batch_size=1, show_progress_bar=False, convert_to_numpy=True)
    np.testing.assert_array_equal(same, vectors)
    np.testing.assert_array_equal(encoder.encode(TERMS[:3], normalize_embeddings=False), raw)
    np.testing.assert_array_equal(
        encoder.encode(TERMS[:3], unit=False, normalize_embeddings=True), vectors
    )
    assert capsys.readouterr().err == ""
    encoder.encode(TERMS[:3], show_progress_bar=True)
    assert "encoding" in capsys.readouterr().err
    with pytest.raises(BadInput, match="convert_to_numpy is False; .*torch.from_numpy"):
        encoder.encode(TERMS[:3], convert_to_numpy=False)


def test_the_first_numbers_of_vectors(encoder, tiny_folder, tmp_path):
    terms = ["heart attack", "pain in limb", "renal failure"]
    short = TermEncoder.from_pretrained(tiny_folder, width=5)
    whole = encoder.encode(terms, unit=False)
    first = whole[:, :5]
    wanted = first / np.linalg.norm(first, axis=1, keepdims=True)
    assert short.width == 5 and "width=5" in repr(short)
    np.testing.assert_allclose(short.encode(terms), wanted, rtol=1e-6)
    np.testing.assert_array_equal(short.encode(terms, unit=False), first)
    (chunk,) = short.encode_chunks([terms])
    np.testing.assert_allclose(chunk, wanted, rtol=1e-6)
    protocols = [encoder_protocol(one, "x") for one in (short, encoder)]
    assert (protocols[0].width, protocols[1].width) == (5, UNSET)
    folder = shutil.copytree(tiny_folder, tmp_path / "export")
    write_settings(folder, short.settings)
    assert TermEncoder.from_pretrained(folder).width == 5
    with pytest.raises(BadInput, match="width is 33, but vectors of this encoder have 32 numbers"):
        TermEncoder.from_pretrained(tiny_folder, width=33)


def test_similarity_is_the_cosine(encoder):
    similarity = encoder.similarity(TERMS[:3], TERMS)
    assert similarity.shape == (3, len(TERMS))
    np.testing.assert_allclose(similarity[[0, 1, 2], [0, 1, 2]], 1, atol=1e-6)
    assert similarity.min() < 0.9
    # Of vectors, of any length, as well.
    vectors = encoder.encode(TERMS)
    for these in (3 * vectors[:3], (2 * vectors[:3]).tolist(), list(vectors[:3]), TERMS[:3]):
        for others in (vectors, TERMS, pl.Series(TERMS)):
            np.testing.assert_allclose(encoder.similarity(these, others), similarity, atol=1e-6)
    np.testing.assert_allclose(
        encoder.similarity(vectors[1], TERMS[2]), similarity[1:2, 2:3], atol=1e-6
    )
    assert encoder.similarity([], TERMS).shape == (0, len(TERMS))
    with pytest.raises(BadInput, match="found vectors of widths 5 and 32; expected one width"):
        encoder.similarity(np.ones((2, 5)), TERMS)
    with pytest.raises(BadInput, match=r"array of shape \(1, 12, 32\); expected vectors \[n, D\]"):
        encoder.similarity(vectors[None], TERMS)
    with pytest.raises(BadInput, match="found vectors of several widths"):
        encoder.similarity([[1.0], [1.0, 2.0]], TERMS)
    with pytest.raises(BadInput, match="found NoneType 'None' at place 1"):
        encoder.similarity(["pain", None], TERMS)


def test_what_it_says_of_itself(encoder, tiny_folder):
    assert repr(encoder) == (
        f"TermEncoder({str(tiny_folder)!r}, width=32, pooling='cls', cleaning='none', "
        "max_length=32, attend_padding=False)"
    )
    in_memory = TermEncoder(encoder.bert, encoder.tokenizer, EncoderSettings("mean"))
    in_memory.languages = ("ENG", "FRE")
    assert repr(in_memory).endswith("attend_padding=False, languages=('ENG', 'FRE'))")
    assert repr(in_memory).startswith("TermEncoder('in memory', width=32, pooling='mean'")
    assert repr(RememberingEncoder(encoder)).startswith(f"RememberingEncoder({str(tiny_folder)!r}")


def test_a_tokenizer_or_pooling_that_does_not_fit(encoder, minilm_path, tiny_folder, tmp_path):
    with pytest.raises(BadInput, match="tokenizer has ids up to 30521"):
        TermEncoder(encoder.bert, load_tokenizer(minilm_path))
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    (folder / "vocab.txt").write_text((folder / "vocab.txt").read_text() + "one\ntwo\n")
    with pytest.raises(BadInput, match=r"model: the tokenizer has ids up to \d+, the word table"):
        TermEncoder.from_pretrained(folder)
    bert = random_bert(TINY, 0)
    bert.pooler = None
    with pytest.raises(BadInput, match="pooling is 'pooler', but the weights have no pooler"):
        TermEncoder(bert, encoder.tokenizer, EncoderSettings(pooling="pooler"))


@pytest.mark.parametrize("rows", ["of all lines", "of all pieces"])
def test_a_line_that_is_twice_in_a_vocabulary_counts_twice(tmp_path, rows):
    folder = tmp_path / "model"
    more = ["[unused]", "[unused]", "zebra"]  # its id is that of its line
    lines = len(VOCABULARY) + len(more)
    write_model(folder, more=more, vocab_size=lines - (rows == "of all pieces"))
    tokenizer = load_tokenizer(folder)
    assert vocabulary_size(tokenizer) == lines == tokenizer.get_vocab_size() + 1
    if rows == "of all pieces":
        with pytest.raises(BadInput, match=f"ids up to {lines - 1}, the word table .{lines - 1}, "):
            TermEncoder.from_pretrained(folder)
    else:
        assert np.isfinite(TermEncoder.from_pretrained(folder).encode(["heart zebra"])).all()


def test_vectors_that_are_not_finite_are_not_given(encoder, monkeypatch):
    embed, chunks = encoder.reader.embed, encoder.reader.embed_chunks

    def broken(vectors):
        vectors[1, 3] = np.nan
        return vectors

    monkeypatch.setattr(encoder.reader, "embed", lambda *a, **b: broken(embed(*a, **b)))
    monkeypatch.setattr(
        encoder.reader, "embed_chunks", lambda *a, **b: map(broken, chunks(*a, **b))
    )
    message = "gives 1 of 2 terms vectors with NaN or infinite values"
    with pytest.raises(BadInput, match=message):
        encoder.encode(["pain", "heart"])
    with pytest.raises(BadInput, match=message):
        list(encoder.encode_chunks([["pain", "heart"]]))


def test_normalize_finds_each_term_of_the_dictionary(encoder, tmp_path):
    terms = list(dict.fromkeys(term.lower().strip() for term in TERMS if term))
    concepts = [f"C{i}" for i in range(len(terms))]
    (tmp_path / "dictionary.tsv").write_text(
        "term\tCUI\n" + "".join(f"{t}\t{c}\n" for t, c in zip(terms, concepts, strict=True))
    )
    expected = encoder.normalize(terms, (terms, concepts), 3)
    assert [ranked[0].concept for ranked in expected] == concepts
    for term, ranked in zip(terms, expected, strict=True):
        assert ranked[0].term == term and ranked[0].similarity == pytest.approx(1, abs=1e-6)
        assert len({match.concept for match in ranked}) == 3
        similarities = [match.similarity for match in ranked]
        assert similarities == sorted(similarities, reverse=True)
    assert encoder.normalize(terms, tmp_path / "dictionary.tsv", 3) == expected
    encoded = encoder.encode_dictionary(str(tmp_path / "dictionary.tsv"))
    assert encoder.normalize(terms, encoded, 3) == expected
    assert encoder.normalize([], encoded) == []


def test_concepts_rank_by_their_nearest_term_and_once():
    # Concept A has 40 terms nearer than any of B, and C shares a string with B.
    vectors = np.eye(4, dtype=np.float32)[[0] * 40 + [1, 2, 1]]
    vectors[:40, 3] = np.arange(40) / 100
    dictionary = EncodedDictionary(
        [f"a{i}" for i in range(40)] + ["b", "d", "b"], ["A"] * 40 + ["B", "D", "C"], vectors
    )
    query = np.array([[0.9, 0.5, 0.1, 0.0], [0.0, 1.0, 0.0, 1.0]], np.float32)
    first, second = nearest_concepts(query, dictionary, 4)
    assert [match.concept for match in first] == ["A", "B", "C", "D"]
    assert first[0] == Match("A", "a0", pytest.approx(0.9))  # of equal ones the first
    assert [match.term for match in second] == ["b", "b", "a39", "d"]
    assert [match.concept for match in nearest_concepts(query, dictionary, 1)[1]] == ["B"]


def test_joined_concepts_of_a_term_are_several(encoder):
    """As in `Dictionary.pairs`: "B|C" shares its terms with B and with C, and is no third one."""
    vectors = np.eye(4, dtype=np.float32)
    dictionary = EncodedDictionary(list("abcd"), ["A", "B|C", "C", "A|D"], vectors)
    assert dictionary.num_concepts == 4
    query = np.array([[0.1, 0.9, 0.3, 0.2]], np.float32)
    (found,) = nearest_concepts(query, dictionary, 4)
    assert [(match.concept, match.term) for match in found] == [
        *(("B", "b"), ("C", "b"), ("A", "d"), ("D", "d")),
    ]
    assert [len(nearest_concepts(query, dictionary, k)[0]) for k in (1, 2, 3)] == [1, 2, 3]
    (ranked,) = encoder.normalize(["pain"], (["pain", "cough"], ["C1|C2", "C2"]), 9)
    assert [match.concept for match in ranked] == ["C1", "C2"]


def test_dictionaries_that_cannot_be_used(encoder):
    with pytest.raises(BadInput, match="2 terms and 1 concepts"):
        encoder.normalize(["pain"], (["pain", "limb"], ["C1"]))
    with pytest.raises(BadInput, match="0 terms and 0 concepts"):
        encoder.normalize(["pain"], ([], []))
    with pytest.raises(BadInput, match="k is 0; expected at least 1"):
        encoder.normalize(["pain"], (["pain"], ["C1"]), 0)
    assert len(encoder.normalize(["pain"], (["pain"], ["C1"]), 5)[0]) == 1


def test_matches_as_a_table(encoder):
    dictionary = {"heart attack": "C1", "pain in limb": "C2", "acute pain": "C3"}
    mentions = ["pain in limb", "heart attack"]
    found = encoder.normalize(mentions, dictionary, 2)
    assert [[match.concept for match in one][0] for one in found] == ["C2", "C1"]
    rows = [
        (mention, *match, rank)
        for mention, matches in zip(mentions, found, strict=True)
        for rank, match in enumerate(matches, 1)
    ]
    names = ["mention", "concept", "matched_term", "similarity", "rank"]
    for kind, module in ((True, pandas), ("pandas", pandas), ("polars", pl)):
        frame = encoder.normalize(mentions, dictionary, 2, as_frame=kind)
        assert isinstance(frame, module.DataFrame) and list(frame.columns) == names
        values = frame.rows() if module is pl else list(frame.itertuples(index=False, name=None))
        assert values == rows
    ((match, _),) = encoder.normalize("pain in limb", dictionary, 2)  # one mention
    assert match[:2] == found[0][0][:2] and match.similarity == pytest.approx(1, abs=1e-6)
    with pytest.raises(BadInput, match="as_frame is 'arrow'; expected True, 'pandas' or 'polars'"):
        encoder.normalize(mentions, dictionary, as_frame="arrow")


def test_a_table_of_pandas_without_pandas(encoder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BadInput, match="needs pandas, .*: pip install pandas; or take as_frame='p"):
        encoder.normalize(["pain"], {"pain": "C1"}, as_frame=True)


# -------------------------------------------------------------------------------------------------
# Dictionaries in all their forms; saved and loaded for the same encoder, and for no other.

PAIRS = [("heart attack", "C1"), ("pain in limb", "C2"), ("a\nb\t\"c'", "C2|C3")]
TERMS_ENCODED_DICTIONARY, CONCEPTS = map(list, zip(*PAIRS, strict=True))


@pytest.fixture(scope="module")
def encoder_of_encoded_dictionary(tiny_folder):
    return TermEncoder.from_pretrained(tiny_folder)


def test_every_form_is_the_same_dictionary(tmp_path):
    for given in (
        dict(PAIRS),
        PAIRS,
        [list(pair) for pair in PAIRS],
        tuple(PAIRS),
        zip(TERMS_ENCODED_DICTIONARY, CONCEPTS, strict=True),
        dict(PAIRS).items(),
        (TERMS_ENCODED_DICTIONARY, CONCEPTS),
        [TERMS_ENCODED_DICTIONARY, CONCEPTS],
        (np.array(TERMS_ENCODED_DICTIONARY), pandas.Series(CONCEPTS)),
        Dictionary(TERMS_ENCODED_DICTIONARY, CONCEPTS, "here"),
        EncodedDictionary(TERMS_ENCODED_DICTIONARY, CONCEPTS, np.eye(3)),
        pandas.DataFrame({"CUI": CONCEPTS, "other": 1, "Term": TERMS_ENCODED_DICTIONARY}),
        pl.DataFrame({"name": TERMS_ENCODED_DICTIONARY, "concept": CONCEPTS}),
    ):
        assert _terms_and_concepts(given) == (TERMS_ENCODED_DICTIONARY, CONCEPTS), type(given)
    (tmp_path / "d.tsv").write_text("heart attack\tC1\npain in limb\tC2\n")
    for path in (tmp_path / "d.tsv", str(tmp_path / "d.tsv")):
        assert _terms_and_concepts(path) == (TERMS_ENCODED_DICTIONARY[:2], CONCEPTS[:2])


def test_two_by_two_strings():
    two = (TERMS_ENCODED_DICTIONARY[:2], CONCEPTS[:2])
    assert _terms_and_concepts((TERMS_ENCODED_DICTIONARY[:2], CONCEPTS[:2])) == two, (
        "a tuple of lists: columns"
    )
    assert _terms_and_concepts(PAIRS[:2]) == two, "a list of tuples: pairs"
    assert _terms_and_concepts(iter(PAIRS[:2])) == two
    for either in (tuple(PAIRS[:2]), [TERMS_ENCODED_DICTIONARY[:2], CONCEPTS[:2]]):
        with pytest.raises(BadInput, match="may be two columns or two pairs; give a dict of term"):
            _terms_and_concepts(either)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "the dictionary is a int; expected the path of a dictionary, a dict of term"),
        ({("pain", "C1")}, "the dictionary is a set; expected"),
        (["pain", "limb", "x"], "the dictionary has the row 'pain'; expected the path"),
        (["pain", "limb"], "the dictionary has the row 'pain'; expected the path"),
        (("pain", "C1"), "the dictionary has the row 'pain'"),
        ([("pain", "C1"), ("limb",), ("x", "C")], r"the dictionary has the row \"\('limb',\)\""),
        ({"C1": ["pain", "limb"]}, "found list .* at place 0 .*; expected a dictionary: the path"),
        ({"pain": 5}, "found int '5' at place 0"),
        (pandas.DataFrame({"a": ["pain"], "cui": ["C1"]}), "has the columns a, cui; expected one"),
        (
            pandas.DataFrame({"term": ["pain"], "name": ["pain"], "cui": ["C1"]}),
            "has the columns term, name, cui; expected one of terms among them",
        ),
        ([], "0 terms and 0 concepts"),
        ({}, "0 terms and 0 concepts"),
        ((["pain"], ["C1", "C2"]), "1 terms and 2 concepts"),
    ],
)
def test_what_is_no_dictionary(given, message):
    with pytest.raises(BadInput, match=message):
        _terms_and_concepts(given)


def test_saved_and_loaded(encoder_of_encoded_dictionary, tmp_path):
    folder = tmp_path / "saved"
    encoded = encoder_of_encoded_dictionary.encode_dictionary(PAIRS)
    encoded.save(folder)
    loaded = EncodedDictionary.load(folder, encoder_of_encoded_dictionary)
    assert (loaded.terms, loaded.concepts) == (TERMS_ENCODED_DICTIONARY, CONCEPTS)
    np.testing.assert_array_equal(loaded.vectors, encoded.vectors)
    assert encoder_of_encoded_dictionary.normalize(
        TERMS_ENCODED_DICTIONARY, loaded, 3
    ) == encoder_of_encoded_dictionary.normalize(TERMS_ENCODED_DICTIONARY, encoded, 3)
    loaded.save(str(folder))  # over the file that it reads from
    again = EncodedDictionary.load(str(folder), encoder_of_encoded_dictionary)
    np.testing.assert_array_equal(again.vectors, encoded.vectors)
    assert sorted(os.listdir(tmp_path)) == ["saved"]
    assert sorted(os.listdir(folder)) == ["terms.parquet", "vectors.npy", "vectors.npy.json"]
    about = json.loads((folder / "vectors.npy.json").read_text())
    assert about["format"] == "coder_jax vectors 1" and about["terms"]["count"] == 3


def test_not_loaded_for_another_encoder(encoder_of_encoded_dictionary, tiny_folder, tmp_path):
    encoder_of_encoded_dictionary.encode_dictionary(PAIRS).save(tmp_path / "saved")
    other = tmp_path / "other"
    write_model(other, seed=1)
    for one, difference in (
        (TermEncoder.from_pretrained(tiny_folder, "mean"), "encoder.pooling: 'cls' there, 'mean'"),
        (TermEncoder.from_pretrained(other), "encoder.weights_hash: .* there, .* here"),
        (
            TermEncoder(
                encoder_of_encoded_dictionary.bert, encoder_of_encoded_dictionary.tokenizer
            ),
            "encoder.weights_hash: .* there, 'None'",
        ),
    ):
        with pytest.raises(
            BadInput,
            match=rf"vectors.npy: was made of something else \({difference}.*\); encode the dict.* "
            "with this encoder and save it again",
        ):
            EncodedDictionary.load(tmp_path / "saved", one)


def test_what_cannot_be_saved(encoder_of_encoded_dictionary, tmp_path):
    in_memory = TermEncoder(
        encoder_of_encoded_dictionary.bert, encoder_of_encoded_dictionary.tokenizer
    )
    for dictionary in (
        in_memory.encode_dictionary(PAIRS),
        EncodedDictionary(TERMS_ENCODED_DICTIONARY, CONCEPTS, np.eye(3)),
    ):
        with pytest.raises(BadInput, match="made by an encoder in memory.*; export it, and encode"):
            dictionary.save(tmp_path / "saved")
    (tmp_path / "mine.txt").write_text("mine")
    for place in (tmp_path, tmp_path / "mine.txt"):
        with pytest.raises(BadInput, match="exists and is no saved dictionary; give a new or empt"):
            encoder_of_encoded_dictionary.encode_dictionary(PAIRS).save(place)
    assert os.listdir(tmp_path) == ["mine.txt"]


def test_a_save_that_fails_leaves_the_old_one(encoder_of_encoded_dictionary, tmp_path, monkeypatch):
    folder = tmp_path / "saved"
    encoder_of_encoded_dictionary.encode_dictionary(PAIRS).save(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(*_, **__):
        raise OSError("no space left")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space left"):
        patch.setattr(np.lib.format, "write_array_header_1_0", full)
        encoder_of_encoded_dictionary.encode_dictionary(PAIRS[:1]).save(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert os.listdir(tmp_path) == ["saved"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "terms.parquet").unlink(), "found no dictionary that .*save wr"),
        (lambda folder: os.truncate(folder / "terms.parquet", 200), "or a damaged one .*; encode"),
        (lambda folder: os.truncate(folder / "vectors.npy", 200), "vectors.npy cannot be read"),
        (lambda folder: (folder / "vectors.npy").unlink(), "vectors.npy: there is no such file"),
        (
            lambda folder: pl.DataFrame({"term": ["x"], "concept": ["C"]}).write_parquet(
                folder / "terms.parquet"
            ),
            "made of something else .*terms.count: 3 there, 1 here",
        ),
    ],
)
def test_damaged_folders(encoder_of_encoded_dictionary, tmp_path, damage, message):
    folder = Path(tmp_path / "saved")
    encoder_of_encoded_dictionary.encode_dictionary(PAIRS).save(folder)
    damage(folder)
    with pytest.raises(BadInput, match=message):
        EncodedDictionary.load(folder, encoder_of_encoded_dictionary)


def test_no_folder(encoder_of_encoded_dictionary, tmp_path):
    with pytest.raises(BadInput, match="absent: found no dictionary that EncodedDictionary.save"):
        EncodedDictionary.load(tmp_path / "absent", encoder_of_encoded_dictionary)


# -------------------------------------------------------------------------------------------------
# An encoder that remembers: the same vectors as the one it is made of, and each term once.


@pytest.fixture
def encoder_of_remembered(tmp_path):
    write_tokenizer(tmp_path)
    return TermEncoder(random_bert(TINY, seed=0), load_tokenizer(tmp_path))


def test_the_same_vectors_and_each_term_once(encoder_of_remembered, monkeypatch):
    asked = []
    encode = TermEncoder.encode
    encode_list = TermEncoder.encode_list

    def counted(self, terms, **options):
        asked.append(list(terms))
        return encode_list(self, terms, **options)

    monkeypatch.setattr(TermEncoder, "encode_list", counted)
    remembering = RememberingEncoder(encoder_of_remembered)
    assert (
        remembering.settings is encoder_of_remembered.settings
        and remembering.bert is encoder_of_remembered.bert
    )
    first = remembering.encode(TERMS[:4])
    again = remembering.encode([TERMS[5], TERMS[2], TERMS[5], TERMS[0]])
    assert asked == [TERMS[:4], [TERMS[5]]]
    np.testing.assert_array_equal(first, encode(encoder_of_remembered, TERMS[:4]))
    np.testing.assert_array_equal(again[[1, 3]], first[[2, 0]])
    np.testing.assert_allclose(
        again[[0, 2]], encode(encoder_of_remembered, [TERMS[5]] * 2), atol=1e-6
    )
    assert again.dtype == np.float32 and again.shape == (4, 32)
    asked.clear()
    np.testing.assert_array_equal(remembering.encode(iter(TERMS[:3])), first[:3])
    np.testing.assert_array_equal(remembering.encode(TERMS[2]), first[2])
    assert not asked, "all are known"


def test_no_terms_and_other_lengths(encoder_of_remembered):
    remembering = RememberingEncoder(encoder_of_remembered)
    assert remembering.encode([]).shape == (0, 32)
    raw = remembering.encode(["pain"], unit=False)
    assert np.linalg.norm(raw) != pytest.approx(1, abs=1e-3) and remembering.held == {}
    assert np.linalg.norm(remembering.encode(["pain"])) == pytest.approx(1, abs=1e-5)


# -------------------------------------------------------------------------------------------------
# Prompts, and encoders that sentence-transformers runs.


def test_a_prompt_stands_before_each_cleaned_term(encoder, tiny_folder):
    asking = TermEncoder.from_pretrained(
        tiny_folder, "mean", prompt="heart of ", cleaning="paper", max_length=64
    )
    plain = TermEncoder.from_pretrained(tiny_folder, "mean", max_length=64)
    prompted = asking.encode(["Pain (disorder)", ""])
    np.testing.assert_array_equal(prompted, plain.encode(["heart of pain", "heart of "]))
    assert np.abs(prompted[0] - plain.encode("pain")).max() > 1e-3
    assert "behind 'heart of '" in str(asking.settings)
    protocols = [msgspec.to_builtins(encoder_protocol(one, "m")) for one in (asking, plain)]
    assert protocols[0]["prompt"] == "heart of "
    assert "prompt" not in protocols[1], "files of earlier versions are the same as without one"


def test_a_prompt_that_is_saved_with_an_encoder(tiny_folder, tmp_path):
    shutil.copytree(tiny_folder, tmp_path / "m")
    write_settings(tmp_path / "m", EncoderSettings("mean", prompt="query: "))
    assert TermEncoder.from_pretrained(tmp_path / "m").settings.prompt == "query: "
    assert TermEncoder.from_pretrained(tmp_path / "m", prompt="").settings.prompt == ""
    write_settings(tmp_path / "m", EncoderSettings("mean"))
    assert "prompt" not in json.loads((tmp_path / "m" / ENCODER.file).read_text())


def test_the_prompt_of_a_folder_is_not_dropped_by_the_library_s_backend(tmp_path, monkeypatch):
    sentence_transformers_folder(tmp_path, {"pooling_mode": "cls"}, ("Transformer", "Pooling"))
    (tmp_path / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    path = tmp_path / "config_sentence_transformers.json"
    path.write_text(json.dumps({"prompts": {"query": "query: "}, "default_prompt_name": "query"}))
    opened = SimpleNamespace(
        pooling="cls", max_length=32, folder=None, width=32, check=lambda *_: None
    )
    monkeypatch.setattr("coder_jax.encoding.encoder.LibraryReader", lambda *_: opened)
    with pytest.raises(BadInput, match="default_prompt_name is 'query', .*give the prompt with"):
        TermEncoder.from_pretrained(tmp_path, backend="sentence-transformers")
    for settled in ({"prompt": "query: "}, {"pooling": "cls"}):
        TermEncoder.from_pretrained(tmp_path, backend="sentence-transformers", **settled)


def test_prompts_of_a_folder_that_none_chooses_are_told(tiny_folder, tmp_path, capsys):
    folder = shutil.copytree(tiny_folder, tmp_path / "m")
    modules = [
        {"type": f"sentence_transformers.models.{name}", "path": path}
        for name, path in (("Transformer", ""), ("Pooling", "1_Pooling"))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "mean"}))
    config = folder / "config_sentence_transformers.json"
    config.write_text(json.dumps({"prompts": {"query": "query: ", "document": ""}}))
    TermEncoder.from_pretrained(folder)
    said = capsys.readouterr().err
    assert "has prompts (query 'query: '), and none is used: give" in said
    assert TermEncoder.from_pretrained(folder, prompt="query: ").settings.pooling == "mean"
    assert TermEncoder.from_pretrained(folder, prompt="").settings.prompt == ""
    assert "none is used" not in capsys.readouterr().err
    config.write_text(json.dumps({"prompts": {}, "default_prompt_name": None}))
    TermEncoder.from_pretrained(folder)
    assert "prompts" not in capsys.readouterr().err


@pytest.mark.parity
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_sentence_transformers_runs_what_jax_runs(tiny_folder, pooling):
    pytest.importorskip("sentence_transformers")
    ours = TermEncoder.from_pretrained(tiny_folder, pooling, prompt="the ", max_length=20)
    theirs = TermEncoder.from_pretrained(
        *(tiny_folder, pooling), prompt="the ", max_length=20, backend="sentence-transformers"
    )
    np.testing.assert_allclose(ours.encode(TERMS), theirs.encode(TERMS), rtol=0, atol=1e-5)
    plain = theirs.encode(TERMS, unit=False)
    np.testing.assert_allclose(ours.encode(TERMS, unit=False), plain, rtol=0, atol=1e-5)
    assert (theirs.width, theirs.reader.dtype) == (32, "float32")
    assert theirs.reader.lowercases and len(theirs.weights_hash) == 64
    about = encoder_protocol(theirs, "m", theirs.weights_hash)
    assert about.pooling == pooling and about.prompt == "the " and len(about.tokenizer_hash) == 64
    with pytest.raises(BadInput, match="sentence-transformers runs the encoder; what was asked"):
        _ = theirs.bert
    with pytest.raises(BadInput, match="pooling is 'pooler'; expected one of cls, mean, last"):
        TermEncoder.from_pretrained(tiny_folder, "pooler", backend="sentence-transformers")
    with pytest.raises(BadInput, match="none is not a folder; expected a"):
        TermEncoder.from_pretrained(tiny_folder / "none", backend="sentence-transformers")


@pytest.mark.parity
def test_the_last_token_of_a_decoder(tmp_path):
    """An architecture that jax does not have; by transformers each term is alone."""
    pytest.importorskip("sentence_transformers")
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 512, "hidden_size": 32, "intermediate_size": 48}
    sizes |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = transformers.Qwen2Model(transformers.Qwen2Config(**sizes, initializer_range=0.2))
    model.eval().save_pretrained(tmp_path / "m")
    write_byte_pieces(tmp_path / "m")
    terms = ["pain", "infarctus du myocarde", "a heart attack"]
    with pytest.raises(BadInput, match="model_type is 'qwen2'"):
        TermEncoder.from_pretrained(tmp_path / "m")
    encoder = TermEncoder.from_pretrained(
        tmp_path / "m", "last", prompt="term: ", backend="sentence-transformers"
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    for term, vector in zip(terms, encoder.encode(terms, unit=False), strict=True):
        with torch.inference_mode():
            hidden = model(**tokenizer(f"term: {term}", return_tensors="pt")).last_hidden_state
        np.testing.assert_allclose(vector, hidden[0, -1], rtol=0, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(encoder.encode(terms), axis=1), 1, rtol=1e-6)
