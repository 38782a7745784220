"""Mentions to concepts: the same string, then the nearest term, or no answer."""

import numpy as np
import polars as pl
import pytest

from coder_jax.encoding.encoder import EncodedDictionary, TermEncoder
from coder_jax.mapping import normalizer as exact
from coder_jax.mapping.candidates import Candidates
from coder_jax.mapping.coded_list import Status
from coder_jax.mapping.normalizer import (
    Confidence,
    Normalizer,
    Rule,
    _SameStrings,
    read_abbreviations,
    why_unanswerable,
    writer_out,
)
from data_pipeline.dataset.dictionary import AboutConcept, Dictionary
from data_pipeline.process import BadInput

ROWS = [
    ("Hemiplegia (left)", "LEFT"),
    ("Hemiplegia (right)", "RIGHT"),
    ("Diabetes mellitus (type 1)", "DM1"),
    ("Diabetes mellitus (type 2)", "DM2"),
    ("Myocardial infarction", "HEART"),
    ("AIDS", "IMMUNE"),
    ("aids", "HELP"),
    ("Aids", "MORE HELP"),
    ("cold", "LOW TEMPERATURE"),
    ("cold", "COMMON COLD|LOW TEMPERATURE"),
    ("Coryza", "COMMON COLD"),
]


def dictionary_of(rows, **about):
    terms, concepts = map(list, zip(*rows, strict=True))
    return Dictionary(terms, concepts, "test", about_concepts=about)


@pytest.fixture(scope="module")
def normalizer_of_normalizer(minilm_path):
    encoder = TermEncoder.from_pretrained(minilm_path, cleaning="none")
    dictionary = dictionary_of(ROWS, **{"COMMON COLD": AboutConcept("cold")})
    encoded = encoder.encode_dictionary((dictionary.terms, dictionary.concepts))
    own = {"MI": "myocardial infarction"}
    candidates = Candidates(encoder, encoded)
    return Normalizer(dictionary, candidates, rule=Rule(0.5), abbreviations=own)


@pytest.mark.parametrize(
    ("mention", "concept", "status", "ties"),
    [
        ("Hemiplegia (right)", "RIGHT", Status.EXACT, 0),
        ("hemiplegia  (RIGHT)", "RIGHT", Status.EXACT, 0),
        ("Diabetes mellitus (type 2)", "DM2", Status.EXACT, 0),
        ("AIDS", "IMMUNE", Status.EXACT, 2),  # three concepts, of which one writes it so
        ("aids", "HELP", Status.EXACT, 2),
        ("aIDS", "HELP", Status.TIED, 2),  # nobody does: the first that is no acronym
        ("Cold", "LOW TEMPERATURE", Status.TIED, 1),  # its first name, as it is of the other one
        ("MI", "HEART", Status.EXACT, 0),
        ("hemiplégia (left)", "LEFT", Status.MISSPELT, 0),
        ("Diabetes melitus (type 2)", "DM2", Status.MISSPELT, 0),
        ("Hemi\u00adplegia\u200b\u00a0(left)", "LEFT", Status.EXACT, 0),
        ("diabetes, type 2", "DM2", Status.NEAR, 0),
        ("n/a", None, Status.NO_ANSWER, 0),
        ("", None, Status.NO_ANSWER, 0),
        ("fracture of the wrist", None, Status.NO_ANSWER, 0),
    ],
)
def test_right_before_near(normalizer_of_normalizer, mention, concept, status, ties):
    (answer,) = normalizer_of_normalizer.answers([mention])
    assert (answer.mention, answer.concept, answer.status) == (mention, concept, status)
    assert answer.ties == ties
    assert bool(answer.reason) == (status == Status.NO_ANSWER)


def test_candidates_beside_the_answer(normalizer_of_normalizer):
    far, exact, empty = normalizer_of_normalizer.answers(
        ["fracture of the wrist", "hemiplegia (left)", "?"], k=3
    )
    assert far.reason == f"similarity {far.candidates[0].similarity:.3f} is below 0.500"
    assert len({candidate.concept for candidate in far.candidates}) == 3
    assert [candidate.concept for candidate in exact.candidates[:2]] == ["LEFT", "RIGHT"]
    assert exact.candidates[0].similarity == 1 > exact.candidates[1].similarity > 0.9
    assert (empty.candidates, empty.reason) == ([], "no letters")


def test_the_order_of_mentions_and_their_number_change_nothing(normalizer_of_normalizer):
    mentions = ["diabetes, type 2", "n/a", "AIDS", "infarct of the heart", "diabetes, type 2"]
    together = normalizer_of_normalizer.answers(mentions, k=2)
    alone = [normalizer_of_normalizer.answers([mention], k=2)[0] for mention in mentions]
    for one, other in zip(together, alone, strict=True):
        assert (one.concept, one.status, one.reason) == (other.concept, other.status, other.reason)
        for here, there in zip(one.candidates, other.candidates, strict=True):
            assert here[:2] == there[:2]
            np.testing.assert_allclose(here.similarity, there.similarity, atol=1e-6)


class Given:
    """An encoder of strings whose vectors are given."""

    def __init__(self, vectors):
        self.vectors = vectors

    def encode(self, terms):
        return np.array([self.vectors[term] for term in terms], np.float32).reshape(-1, 2)


def normalizer_of(vectors, concepts, mention, looked_up=None):
    dictionary = Dictionary(list(vectors), concepts, "test")
    rows = np.array(list(vectors.values()), np.float32)
    encoded = EncodedDictionary(dictionary.terms, dictionary.concepts, rows)
    return Normalizer(dictionary, Candidates(Given({looked_up or mention: [1, 0]}), encoded))


def test_of_equally_near_terms_the_one_written_like_the_mention():
    vectors = {"heart": [1, 0], "haemo-globin": [1, 0], "far": [0, 1]}
    (answer,) = normalizer_of(vectors, ["B", "A", "F"], "myo-globin").answers(["myo-globin"])
    assert (answer.concept, answer.status, answer.ties) == ("A", Status.NEAR, 1)


def test_a_term_of_the_other_side_is_passed_over():
    """It is nearest, but its side is not that of the mention."""
    vectors = {"Pain of left hand": [1, 0], "Pain of right hand": [0.96, 0.28], "far": [0, 1]}
    normalizer = normalizer_of(vectors, ["L", "R", "F"], "hand pain (R)", "hand pain right")
    (answer,) = normalizer.answers(["hand pain (R)"], k=3)
    assert (answer.concept, answer.status, answer.reason) == ("R", Status.NEAR, "")
    assert [one.concept for one in answer.candidates] == ["R", "L", "F"]
    assert answer.margin == pytest.approx(0.96)  # before "far", not behind the other side


def test_where_all_that_is_near_contradicts_the_row_says_so():
    vectors = {"Drug 0.25 MG": [1, 0], "Drug 0.5 MG": [0.96, 0.28], "far": [0, 1]}
    normalizer = normalizer_of(vectors, ["D25", "D5", "F"], "drug 25 mcg")
    (answer,) = normalizer.answers(["drug 25 mcg"])
    assert (answer.concept, answer.status) == ("D25", Status.DIFFERS)
    assert answer.reason == "differs: strength"
    normalizer.rule = Rule(measured=Confidence(9.0, 0.0, 0.0), least_confidence=0.5)
    (answer,) = normalizer.answers(["drug 25 mcg"])  # a precision is asked for
    assert (answer.concept, answer.status) == (None, Status.NO_ANSWER)
    assert answer.reason == "differs: strength"


def test_a_concept_that_says_the_side_comes_before_one_that_lacks_it():
    vectors = {"Pain of hand": [1, 0], "Pain of right hand": [0.96, 0.28], "far": [0, 1]}
    normalizer = normalizer_of(vectors, ["H", "R", "F"], "hand pain R", "hand pain right")
    (answer,) = normalizer.answers(["hand pain R"])
    assert (answer.concept, answer.reason) == ("R", "")
    further = vectors | {"Pain of right hand": [0.6, 0.8]}
    normalizer = normalizer_of(further, ["H", "R", "F"], "hand pain R", "hand pain right")
    (answer,) = normalizer.answers(["hand pain R"])
    assert (answer.concept, answer.status, answer.reason) == ("H", Status.NEAR, "lost: side")


def test_a_broad_concept_comes_before_one_that_contradicts():
    mention = "acute left upper fracture type 2"
    vectors = {"Fracture": [0.97, 0.24], "Chronic fracture": [1, 0], "far": [0, 1]}
    (answer,) = normalizer_of(vectors, ["F", "C", "X"], mention).answers([mention])
    assert answer.concept == "F", "it lacks four values, of which none is wrong"


def test_one_agreeing_name_of_a_concept_is_enough():
    vectors = {"Diabetes": [1, 0], "Diabetes type 2": [0.8, 0.6], "Diabetes type 1": [0.97, 0.24]}
    normalizer = normalizer_of(vectors, ["D2", "D2", "D1"], "type II diabetes")
    (answer,) = normalizer.answers(["type II diabetes"])
    assert (answer.concept, answer.reason) == ("D2", "")
    assert answer.candidates[0].term == "Diabetes type 2"


def test_strengths_are_looked_for_beyond_the_nearest_terms():
    """The right one is the 41st of 41: all are of the same drug."""
    strengths = [f"Drug {number} MG" for number in range(1, 41)]
    vectors = {term: [1, 0] for term in strengths} | {"Drug 0.025 MG": [0.99, 0.141]}
    vectors |= {"far": [0, 1]}
    normalizer = normalizer_of(vectors, [*strengths, "right", "far"], "drug 25 mcg")
    (answer,) = normalizer.answers(["drug 25 mcg"])
    assert (answer.concept, answer.status) == ("right", Status.NEAR)


def test_where_nothing_tells_them_apart_it_is_tied():
    vectors = {"ab": [1, 0], "ba": [1, 0], "far": [0, 1]}
    (answer,) = normalizer_of(vectors, ["B", "A", "F"], "qq").answers(["qq"])
    assert (answer.concept, answer.status, answer.ties) == ("B", Status.TIED, 1)


def test_all_ties_are_counted_however_many():
    vectors = {f"term {'x' * number}z": [1, 0] for number in range(30)} | {"far": [0, 1]}
    concepts = [f"C{number}" for number in range(31)]
    mention = "term xxxxxxxxxyy"
    (answer,) = normalizer_of(vectors, concepts, mention).answers([mention], k=2)
    assert (answer.concept, answer.ties, len(answer.candidates)) == ("C9", 29, 2)


def test_vectors_of_another_dictionary_are_refused(normalizer_of_normalizer):
    other = dictionary_of([("a", "A")])
    with pytest.raises(BadInput, match="has 1 rows and its vectors are of 11 others"):
        Normalizer(other, normalizer_of_normalizer.candidates)
    with pytest.raises(BadInput, match="k is 0"):
        normalizer_of_normalizer.answers(["a"], k=0)


def test_what_names_nothing_is_a_name_where_the_dictionary_has_it():
    terms = {"Na": "SODIUM", "M": "MALE", "Unknown": "ASKED", "3+": "PLUS3", "++": "PLUS2"}
    vectors = dict.fromkeys(terms, [0, 1])
    normalizer = normalizer_of(vectors, list(terms.values()), "x")
    answers = normalizer.answers(["Na", "M", "unknown", "3+", "++"])
    assert [answer.concept for answer in answers] == list(terms.values())
    assert {answer.status for answer in answers} == {Status.EXACT}
    answers = normalizer.answers(["NA", "m", "None", "4+", "+", "#REF!"])
    assert [answer.concept for answer in answers] == [None] * 6
    assert [answer.reason for answer in answers[:3]] == [
        "a placeholder", "one letter", "a placeholder",
    ]  # fmt: skip


def test_an_acronym_in_capitals_is_no_word():
    normalizer = normalizer_of({"ODD": [1, 0], "far": [0, 1]}, ["DEFIANT", "F"], "odd")
    (word,) = normalizer.answers(["odd"])
    assert (word.concept, word.status) == ("DEFIANT", Status.NEAR)
    assert word.reason == "the dictionary has it in capitals"
    (acronym,) = normalizer.answers(["ODD"])
    assert (acronym.status, acronym.reason) == (Status.EXACT, "")


def test_what_is_more_likely_wrong_than_right_is_doubtful():
    vectors = {"cough": [1, 0], "fever": [0, 1]}
    normalizer = normalizer_of(vectors, ["A", "B"], "chest ache")
    for intercept, status in ((-1.0, Status.DOUBTFUL), (1.0, Status.NEAR)):
        normalizer.rule = Rule(measured=Confidence(intercept, 0.0, 0.0))
        (answer,) = normalizer.answers(["chest ache"])
        assert (answer.concept, answer.status) == ("A", status)


def test_several_concepts_one_letter_away_are_tied():
    vectors = {"Ketoacidosis": [0, 1], "Ketoacidoses": [1, 0], "far": [0.6, 0.8]}
    (answer,) = normalizer_of(vectors, ["A", "B", "F"], "ketoacidoss").answers(["ketoacidoss"], 3)
    assert (answer.concept, answer.status, answer.ties) == ("B", Status.TIED, 1)
    assert [one.concept for one in answer.candidates] == ["B", "A", "F"]


# -------------------------------------------------------------------------------------------------
# Terms with the string of a mention.

TERMS = [
    "Hemiplegia (left)",
    "Hemiplegia (right)",
    "AIDS",
    "aids",
    "Été",
    "Straße",
    "heart\u00a0attack",
]


@pytest.mark.parametrize(
    ("mention", "rows"),
    [
        ("Hemiplegia (right)", [1]),
        ("  hemiplegia \t(RIGHT)\n", [1]),
        ("Aids", [2, 3]),
        ("e\u0301te\u0301", [4]),  # the accents as signs of their own
        ("STRASSE", [5]),
        ("Ｓｔｒａｓｓｅ", [5]),  # in the wide letters of Japanese
        ("\ufeffheart\u200b attack\r", [6]),
        ("Stra\u00adße", [5]),
        ("Heart attack", [6]),
        ("hemiplegia", []),
        ("", []),
    ],
)
def test_case_and_blanks_are_folded_and_nothing_else(mention, rows):
    assert [found.tolist() for found in _SameStrings(TERMS).rows([mention])] == [rows]


def test_many_at_once_and_none():
    same = _SameStrings(TERMS)
    assert [found.tolist() for found in same.rows(["x", "AIDS", "été"])] == [[], [2, 3], [4]]
    assert same.rows([]) == []


def test_two_strings_with_one_hash_are_told_apart(monkeypatch):
    class Clumsy:
        """Strings whose hash is their length."""

        def __init__(self, strings):
            self.strings = strings

        def hash(self):
            return pl.Series([len(one) for one in self.strings], dtype=pl.UInt64)

        def to_list(self):
            return self.strings

    same = exact.same_letters
    monkeypatch.setattr(exact, "same_letters", lambda terms: Clumsy(same(terms).to_list()))
    rows = _SameStrings(["abc", "abd", "ABC"]).rows(["abd", "abc", "xyz"])
    assert [found.tolist() for found in rows] == [[1], [0, 2], []]
    assert all(found.dtype == np.int64 for found in rows)


def test_an_abbreviation_of_the_user_is_no_placeholder():
    plain = normalizer_of({"phthisis": [1, 0], "far": [0, 1]}, ["TB", "F"], "lung tuberculosis")
    own = {"TBC": "lung tuberculosis", "K": "lung tuberculosis"}
    normalizer = Normalizer(plain.dictionary, plain.candidates, abbreviations=own)
    assert [one.concept for one in plain.answers(["TBC", "K"])] == [None, None]
    assert [one.concept for one in normalizer.answers(["TBC", "K"])] == ["TB", "TB"]


# -------------------------------------------------------------------------------------------------
# Mentions that name nothing.


@pytest.mark.parametrize(
    ("mention", "why"),
    [
        ("", "empty"),
        (" \t", "empty"),
        ("\u3000", "empty"),
        ("n/a", "a placeholder"),
        ("N/A.", "a placeholder"),
        ("[none]", "a placeholder"),
        ("Unknown", "a placeholder"),
        ("k.A.", "a placeholder"),
        ("n.b.", "a placeholder"),
        ("o.B.", "a placeholder"),
        ("Keine  Angabe", "a placeholder"),
        ("non renseigné", "a placeholder"),
        ("see attached letter", "a placeholder"),
        ("Please see the report, 3/4", "a placeholder"),
        ("siehe Anlage", "a placeholder"),
        ("?", "no letters"),
        ("---", "no letters"),
        ("§", "no letters"),
        ("12", "a number"),
        ("1,5 %", "a number"),
        ("１２", "a number"),
        ("x", "one letter"),
        ("К", "one letter"),
        ("#N/A", "an error of a spreadsheet"),
        ("#BEZUG!", "an error of a spreadsheet"),
        ("#N/D", "an error of a spreadsheet"),
        ("#NAAM?", "an error of a spreadsheet"),
        ("#GESPERRT!", "an error of a spreadsheet"),
        ("Err:502", "an error of a spreadsheet"),
        ("s. Anlage", "a placeholder"),
        ("Sonstiges", "a placeholder"),
        ("yes", "a placeholder"),
        ("Patient is well. " * 40, "a text of 680 characters, no name"),
    ],
)
def test_no_answer(mention, why):
    assert why_unanswerable(mention) == why


@pytest.mark.parametrize(
    "mention",
    [
        *("咳", "痛", "T2", "II", "12 mg", "K+", "see-saw nystagmus", "seeing double"),
        *("unknown primary tumour", "testis", "nothing by mouth", "kala-azar", "absence"),
        *("#NOF?", "#wrist?"),  # a fracture
    ],
)
def test_a_name_is_looked_up(mention):
    assert why_unanswerable(mention) == ""


# -------------------------------------------------------------------------------------------------
# A user's own abbreviations.

OWN = {"MI": "myocardial infarction", "MI II": "second infarction", "c.": "cum", "MS": "sclerosis"}


@pytest.mark.parametrize(
    ("mention", "written_out"),
    [
        ("MI", "myocardial infarction"),
        ("old MI, anterior", "old myocardial infarction, anterior"),
        ("MI II", "second infarction"),
        ("STEMI", "STEMI"),
        ("5 ms", "5 ms"),
        ("ulcus c. perforatione", "ulcus cum perforatione"),
        ("MI/MS", "myocardial infarction/sclerosis"),
    ],
)
def test_whole_words_are_written_out(mention, written_out):
    assert writer_out(OWN)(mention) == written_out
    assert writer_out({})(mention) == mention


def test_what_is_written_out_is_not_looked_at_again():
    assert writer_out({"A": "B", "B": "A"})("A B") == "B A"


def test_the_file(write):
    path = write("own.tsv", "MI\tmyocardial infarction\nMS\tsclerosis\nMS\tsclerosis\n")
    assert read_abbreviations(path) == {"MI": "myocardial infarction", "MS": "sclerosis"}
    path = write("own.csv", "abbreviation;words\nn/v/d;nausea, vomiting\nMI;infarction\n")
    assert read_abbreviations(path) == {"n/v/d": "nausea, vomiting", "MI": "infarction"}
    path = write("own.csv", "MI,infarction,heart\n")
    with pytest.raises(BadInput, match="own.csv:1: found .*expected abbreviation<TAB>words"):
        read_abbreviations(path)
    path = write("own.tsv", "MS\tsclerosis\nMS\tmitral stenosis\n")
    with pytest.raises(BadInput, match="'MS' stands for 'sclerosis' and for 'mitral stenosis'"):
        read_abbreviations(path)


def test_abbreviations_with_signs_count_in_any_case():
    write_out = writer_out({"n/v/d": "nausea", "ms": "milliseconds"})
    assert write_out("N/V/D for 3 MS") == "nausea for 3 MS"
