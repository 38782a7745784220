"""New pieces: the characters that are missing, and learnt ones that make words shorter."""

from collections import Counter

import numpy as np
import pytest
import tiny_bert
import tiny_modernbert
import tiny_roberta
from tiny_mentions import tiny_mentions
from tiny_ontology import write_ontology
from tiny_rrf import write_release
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import WhitespaceSplit

from data_pipeline.dataset.tokenizer import load_tokenizer
from data_pipeline.dataset.vocabulary import (
    _MOST_OF_A_TERM,
    WordPieceVocabulary,
    _chosen_pieces,
    _learnt_pieces,
    _lengths,
    _missing_characters,
    changes,
    count_words,
    coverage,
    new_pieces,
    read_terms,
    total,
    used_pieces,
    with_pieces_alone,
)
from data_pipeline.process import BadInput

GERMAN = [f"{a}{b}" for a in ("herz", "leber", "nieren") for b in ("entzündung", "kranke", "stein")]
CHINESE = ["心肌梗死", "心肌炎", "心脏病", "µ"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tiny_bert.write_tokenizer(folder)
    return load_tokenizer(folder)


@pytest.fixture(scope="module")
def vocabulary(tokenizer):
    return WordPieceVocabulary.of(tokenizer, "tiny")


def words_of(tokenizer, terms):
    return count_words(tokenizer, {"UND": terms})


def test_characters_come_by_frequency_and_inside_words_where_they_may_be(tokenizer, vocabulary):
    words = words_of(tokenizer, [*CHINESE, "ЪЖ", "ъж", "pain", "é"])
    found = _missing_characters(words, vocabulary, 1)
    assert found[:4] == ["心", "ж", "##ж", "ъ"] and found[4:6] == ["##ъ", "肌"]
    assert {*found[6:]} == {"炎", "梗", "死", "脏", "病", "µ"}, "normalized as the encoder does it"
    assert _missing_characters(words, vocabulary, 3) == ["心"]
    assert _missing_characters(words, vocabulary.with_pieces(found), 1) == []


def test_learnt_pieces_are_new_longer_than_a_character_and_the_same_each_time(
    tokenizer, vocabulary
):
    words = words_of(tokenizer, GERMAN)
    once, *more = (_learnt_pieces(tokenizer, vocabulary, GERMAN, words, 30, 2) for _ in range(8))
    assert once and all(again == once for again in more)
    assert all(len(piece.removeprefix("##")) > 1 for piece in once)
    assert vocabulary.pieces.keys().isdisjoint(once) and len({*once}) == len(once)
    assert {"herz", "##stein"} <= {*once}
    knows_one = vocabulary.with_pieces(["herz"])
    assert "herz" not in _learnt_pieces(tokenizer, knows_one, GERMAN, words, 30, 2)
    assert not _learnt_pieces(tokenizer, vocabulary, GERMAN, words, 30, 100)


def test_with_its_new_pieces_terms_are_shorter(tokenizer, vocabulary):
    words = words_of(tokenizer, [*GERMAN, *CHINESE])
    found = new_pieces(tokenizer, vocabulary, [*GERMAN, *CHINESE], words, 20, 1)
    assert len(found) == 20 and len({*found}) == 20
    assert found[0] == "心", "characters first"
    before, after = (
        coverage(words, one)["UND"] for one in (vocabulary, vocabulary.with_pieces(found))
    )
    assert before.unknown == 11 and after.unknown == 0
    assert after.tokens < before.tokens
    is_longer = _lengths(words, vocabulary) < _lengths(words, vocabulary.with_pieces(found))
    assert not is_longer.any()


def test_characters_alone_or_as_many_as_were_asked_for(tokenizer, vocabulary):
    words = words_of(tokenizer, [*GERMAN, *CHINESE])
    every = _missing_characters(words, vocabulary, 1)
    assert new_pieces(tokenizer, vocabulary, GERMAN, words, None, 1) == every
    assert new_pieces(tokenizer, vocabulary, GERMAN, words, 3, 1) == every[:3]


def test_a_piece_that_makes_words_longer_gives_its_place_to_the_next(tokenizer, vocabulary):
    """ "hearta" leaves "ttack", five letters; with "hearts" the word is one piece."""
    vocabulary = vocabulary.with_pieces(["##attack"])
    words = words_of(tokenizer, ["heartattack", "hearts"])
    assert vocabulary.pieces_of(words.words) == [["heart", "##attack"], ["heart", "##s"]]
    assert _chosen_pieces(vocabulary, words, [], ["hearta", "hearts", "##zz"], 1) == ["hearts"]
    # What no word uses goes, too; a character stays, if only for words that are yet to come.
    assert _chosen_pieces(vocabulary, words, ["##ж"], ["##zz", "hearts"], 2) == ["##ж", "hearts"]
    assert _chosen_pieces(vocabulary, words, [], ["hearta", "##zz"], 2) == []


# -------------------------------------------------------------------------------------------------
# Terms to learn from: every source, each term once in its language, as the encoder gets it.


def test_a_list_has_a_term_in_each_line(write):
    path = write("terms.txt", "\ufeffHerz\n\n Niere, links \r\nHerz\nLeber\n")
    assert read_terms([path]) == {"UND": ["Herz", "Niere, links", "Leber"]}


def test_tables_with_and_without_languages(write):
    two = write("two.tsv", "mention\tCUI\nHerz\tC1\nNiere\tC2\n")
    assert read_terms([two]) == {"UND": ["Herz", "Niere"]}
    piped = write("piped.txt", "C1||Herz\nC2||Niere\n")
    assert read_terms([two, piped]) == {"UND": ["Herz", "Niere"]}
    table = write("table.csv", "code,name,language\n1,Herz,GER\n1,coeur,FRE\n2,Herz,GER\n")
    assert read_terms([table, two]) == {"FRE": ["coeur"], "GER": ["Herz"], "UND": ["Herz", "Niere"]}
    assert read_terms([table], ["FRE"]) == {"FRE": ["coeur"]}


def test_a_release_by_languages(tmp_path):
    release = write_release(tmp_path)
    found = read_terms([release / "MRCONSO.RRF"], ["FRE"])
    assert found.keys() == {"FRE"} and "Infarctus" in found["FRE"]
    assert {"ENG", "FRE"} <= read_terms([release / "MRCONSO.RRF"]).keys()


def test_names_and_training_mentions_of_a_folder(tmp_path):
    data = tiny_mentions(tmp_path)
    (found,) = read_terms([data.folder]).values()
    train = {*data.splits["train"].mentions.strings}
    assert {*found} == {*data.names.strings} | train
    held_out = {*data.splits["test"].mentions.strings} - {*found}
    assert held_out, "mentions of the test split are not learnt from"


def test_terms_are_cleaned_as_the_encoder_does_it(write):
    path = write("terms.txt", "Diabetes (disorder)\n")
    (raw,), (cleaned,) = (read_terms([path], (), one)["UND"] for one in ("none", "paper"))
    assert raw == "Diabetes (disorder)" and cleaned != raw


def test_a_dataset_has_languages(tmp_path):
    from tiny_bert import write_tokenizer

    from data_pipeline.build_dataset import __main__ as build

    (tmp_path / "tokenizer").mkdir()
    write_tokenizer(tmp_path / "tokenizer")
    ontology = write_ontology(tmp_path / "tiny.obo", classes=20)
    words = ["--source", ontology, "--tokenizer", tmp_path / "tokenizer", "--out", tmp_path / "d"]
    assert build.main([*map(str, words)]) == 0
    found = read_terms([tmp_path / "d"])
    assert found.keys() == {"ENG"} and len(found["ENG"]) >= 20


@pytest.mark.parametrize(
    ("content", "languages", "message"),
    [
        ("\n \n", [], "found no term"),
        ("", [], "found no term"),
        ("Herz\n", ["GER"], "expected a source that names languages"),
        ("x" * (_MOST_OF_A_TERM + 1), [], "found a term of 10,001 characters"),
    ],
)
def test_what_cannot_be_learnt_from_is_said(write, content, languages, message):
    with pytest.raises(BadInput, match=message):
        read_terms([write("terms.txt", content)], languages)


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(BadInput, match="absent.txt"):
        read_terms([tmp_path / "absent.txt"])
    with pytest.raises(BadInput, match=r"manifest\.json"):
        read_terms([tmp_path])


# -------------------------------------------------------------------------------------------------
# The vocabulary of a WordPiece tokenizer: the library's own pieces; new ones at its end.

WORDS = ["heart", "hearts", "attacks", "Ω", "a" * 101, "(", "renal2"]


@pytest.fixture(scope="module")
def tokenizer_of_word_piece(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tiny_bert.write_tokenizer(folder)
    return load_tokenizer(folder)


def test_words_have_the_tokenizer_s_own_pieces(tokenizer_of_word_piece):
    vocabulary = WordPieceVocabulary.of(tokenizer_of_word_piece, "tiny")
    assert vocabulary.size == len(tiny_bert.VOCABULARY)
    assert (vocabulary.unknown, vocabulary.prefix, vocabulary.longest_word) == ("[UNK]", "##", 100)
    ids, start = vocabulary.split(WORDS)
    own = [tokenizer_of_word_piece.encode(word, add_special_tokens=False) for word in WORDS]
    assert [part.tolist() for part in np.split(ids, start[1:-1])] == [one.ids for one in own]
    assert vocabulary.pieces_of(WORDS) == [one.tokens for one in own]


def test_new_pieces_are_those_of_the_model_and_change_no_other_id(tokenizer_of_word_piece):
    vocabulary = WordPieceVocabulary.of(tokenizer_of_word_piece, "tiny").with_pieces(
        ["hearts", "##acks", "Ω"]
    )
    size = len(tiny_bert.VOCABULARY)
    extended = vocabulary.put_into(tokenizer_of_word_piece)
    assert extended.encode("hearts backs sacks", add_special_tokens=False).tokens == [
        *("hearts", "b", "##acks", "s", "##acks")
    ], "within a word they match where a piece does, and not anywhere"
    assert [extended.token_to_id(piece) for piece in ("hearts", "##acks", "Ω")] == [
        *(size, size + 1, size + 2)
    ]
    assert vocabulary.size == size + 3
    old = tokenizer_of_word_piece.get_vocab()
    assert {piece: extended.get_vocab()[piece] for piece in old} == old
    assert (
        extended.get_added_tokens_decoder().keys()
        == tokenizer_of_word_piece.get_added_tokens_decoder().keys()
    )
    assert tokenizer_of_word_piece.token_to_id("hearts") is None, (
        "the tokenizer itself is as it was"
    )


def test_new_pieces_stand_behind_tokens_that_were_added(tokenizer_of_word_piece):
    longer = Tokenizer.from_str(tokenizer_of_word_piece.to_str())
    longer.add_tokens(["<drug>"])
    vocabulary = WordPieceVocabulary.of(longer, "tiny")
    assert vocabulary.size == len(tiny_bert.VOCABULARY) + 1
    extended = vocabulary.with_pieces(["hearts"]).put_into(longer)
    assert extended.encode("<drug> hearts", add_special_tokens=False).ids == [
        *(vocabulary.size - 1, vocabulary.size)
    ]


def test_other_kinds_of_vocabulary_are_refused(tmp_path):
    tiny_roberta.write_tokenizer(tmp_path)
    with pytest.raises(BadInput, match=r"xlm: the vocabulary is .* SentencePiece .* WordPiece"):
        WordPieceVocabulary.of(load_tokenizer(tmp_path), "xlm")
    with pytest.raises(BadInput, match="BPE, as of RoBERTa and ModernBERT; expected WordPiece"):
        WordPieceVocabulary.of(Tokenizer(BPE()), "roberta")


# -------------------------------------------------------------------------------------------------
# Words of terms and how a vocabulary covers them: as tokenizing the terms themselves tells it.

TERMS = {
    "CHI": ["心肌 pain", "心"],
    "ENG": ["Heart attack, acute", "heart  attacks", "pain (acute)", "µ-pain", "acute", "\x07"],
}


@pytest.fixture(scope="module")
def tokenizer_of_words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tiny_bert.write_tokenizer(folder)
    return load_tokenizer(folder)


def test_words_are_counted_by_language(tokenizer_of_words):
    words = count_words(tokenizer_of_words, TERMS)
    english = words.languages["ENG"]
    counted = dict(zip((words.words[one] for one in english.places), english.counts, strict=True))
    assert counted == {
        **{"heart": 2, "attack": 1, "attacks": 1, ",": 1, "acute": 3, "pain": 2},
        **{"(": 1, ")": 1, "µ": 1, "-": 1},
    }
    assert words.counts()[words.words.index("pain")] == 3
    assert [one.terms for one in words.languages.values()] == [2, 6]


@pytest.mark.parametrize("at_blanks", [True, False])
def test_coverage_is_that_of_the_terms_tokenized_whole(tokenizer_of_words, at_blanks):
    if not at_blanks:
        tokenizer_of_words = Tokenizer.from_str(tokenizer_of_words.to_str())
        tokenizer_of_words.pre_tokenizer = WhitespaceSplit()
    vocabulary = WordPieceVocabulary.of(tokenizer_of_words, "tiny")
    found = coverage(count_words(tokenizer_of_words, TERMS), vocabulary)
    for language, terms in TERMS.items():
        tokens = [
            tokenizer_of_words.encode(term, add_special_tokens=False).tokens for term in terms
        ]
        kinds = Counter(token for one in tokens for token in one)
        assert found[language].tokens == kinds.total()
        assert found[language].unknown == kinds["[UNK]"] > 0
        assert found[language].terms == len(terms)
    both = total(found.values())
    assert both.tokens == sum(one.tokens for one in found.values())
    assert found["CHI"].in_cells() == ["75.00%", "1.00", "2.00"]


def test_no_words_at_all(tokenizer_of_words):
    words = count_words(tokenizer_of_words, {"UND": ["\x07"]})
    vocabulary = WordPieceVocabulary.of(tokenizer_of_words, "tiny")
    assert words.words == []
    assert coverage(words, vocabulary)["UND"].in_cells() == ["0.00%", "0.00", "0.00"]


def test_what_becomes_of_words(tokenizer_of_words):
    words = count_words(
        tokenizer_of_words, {"UND": ["heart attacks", "attacks 心", "hearten pains"]}
    )
    before = WordPieceVocabulary.of(tokenizer_of_words, "tiny")
    after = before.with_pieces(["attacks", "心", "hearte"])
    assert dict(zip(words.words, _lengths(words, before), strict=True)) == {
        **{"heart": 1, "attacks": 2, "心": 2, "hearten": 3, "pains": 2}
    }, "an unknown word counts one more than its characters"
    changed = changes(words, before, after)
    assert (changed.shorter, changed.longer) == (3, 0)
    assert changed.examples("UND", 1) == [("attacks", ["attack", "##s"], ["attacks"])]
    assert {word for word, _, _ in changed.examples("UND", 9)} == {"attacks", "心", "hearten"}


def test_a_longer_first_piece_can_make_a_word_longer(tokenizer_of_words):
    words = count_words(tokenizer_of_words, {"UND": ["heartattack"]})
    before = WordPieceVocabulary.of(tokenizer_of_words, "tiny").with_pieces(["##attack"])
    worse = changes(words, before, before.with_pieces(["hearta"]))
    assert worse.saved.tolist() == [-4] and (worse.shorter, worse.longer) == (0, 1)
    assert worse.examples("UND", 9) == []


# -------------------------------------------------------------------------------------------------
# Pieces that no term uses are left out.


@pytest.mark.parametrize("kind", [tiny_bert, tiny_roberta])
def test_only_used_pieces_stay_and_those_that_keep_strings_readable(tmp_path, kind):
    kind.write_tokenizer(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    terms = ["heart attack", "pain in heart"]
    kept = used_pieces(tokenizer, terms, "x")
    fewer = with_pieces_alone(tokenizer, kept)
    assert kept.tolist() == sorted({*kept.tolist()}) and len(kept) < tokenizer.get_vocab_size()
    for term in (*terms, "heart pain"):
        assert [kept[one] for one in fewer.encode(term).ids] == tokenizer.encode(term).ids
        assert fewer.encode(term).tokens == tokenizer.encode(term).tokens
    # Every character that was read is: alone, inside a word, and where nothing is known.
    left_out = {*tokenizer.get_vocab()} - {*fewer.get_vocab()}
    assert left_out and min(len(piece.strip("#\u2581")) for piece in left_out) > 1
    for text in ("limb", "abdominal pain", "a b c", "☃"):
        unknown = [one.encode(text).tokens.count(UNKNOWN[kind]) for one in (tokenizer, fewer)]
        assert unknown[0] == unknown[1], text
    special = tokenizer.encode("").tokens
    assert fewer.encode("").tokens == special and len(special) == 2


UNKNOWN = {tiny_bert: "[UNK]", tiny_roberta: "<unk>"}


def test_pieces_of_bytes_are_not_left_out(tmp_path):
    tiny_modernbert.write_tokenizer(tmp_path)
    with pytest.raises(BadInput, match="x: its vocabulary is of the kind BPE"):
        used_pieces(load_tokenizer(tmp_path), ["heart"], "x")
