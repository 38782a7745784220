import pytest

from data_pipeline.process import BadInput
from data_pipeline.skip_gram.names import (
    Annotator,
    _NameMatcher,
    _surface_of,
    read_names,
    read_stop_names,
)
from data_pipeline.sources.text import Annotation, Document

NAMES = """heart attack\tC1
myocardial infarction\tC1
infarction\tC2
attack of the heart\tC1
disease\tC3
MI\tC1
MI\tC4
X\tC5
21\tC5
non-small carcinoma\tC6
lung, non-small carcinoma\tC7
"""


@pytest.fixture
def names(write):
    return read_names(write("names.tsv", NAMES))


def found(annotator, document):
    """[name, concept] of each mention of a document, in order."""
    return [
        [" ".join(sentence.tokens[one.first : one.last]), one.concept]
        for sentence in annotator.sentences(document)
        for one in sentence.mentions
    ]


def test_the_longest_match_of_whole_words_whatever_their_case(names):
    text = "Myocardial INFARCTION, heart-attack, attacks; the attack of the heart x 21 infarctions"
    assert found(Annotator(names), Document(text)) == [
        ["myocardial infarction", "C1"],
        ["heart attack", "C1"],
        ["attack of the heart", "C1"],
    ]


def test_of_overlapping_names_the_longest_then_the_left_one(write):
    rows = "breast\tC1\nbreast cancer\tC2\ncancer risk\tC3\ncancer risk of men\tC4\n"
    annotator = Annotator(read_names(write("names.tsv", rows)))
    text = "Breast cancer risk, breast cancer risk of men"
    expected = [["breast cancer", "C2"], ["breast", "C1"], ["cancer risk of men", "C4"]]
    assert found(annotator, Document(text)) == expected


def test_abbreviations_are_matched_in_capitals_alone(write):
    rows = "AIDS\tC1\nGout\tC2\nDI\tC3\ndi\tC4\nHIV INFECTION\tC5\nhearing aids\tC6\n"
    names = read_names(write("names.tsv", rows))
    text = "AIDS aids Aids, gout GOUT, di, hiv infection of hearing AIDS"
    assert found(Annotator(names), Document(text)) == [
        ["aids", "C1"],
        ["gout", "C2"],
        ["gout", "C2"],
        ["di", ""],
        ["hiv infection", "C5"],
        ["hearing aids", "C6"],
    ]
    loud = read_names(write("loud.tsv", "AIDS\tC1\nGOUT\tC2\n"))
    assert found(Annotator(loud), Document("aids")) == [["aids", "C1"]]


def test_matches_do_not_go_beyond_marks_and_sentences_but_hyphens_do_not_count(names):
    text = "Small non small carcinoma. Heart. Attack, lung non-small carcinoma. heart, attack"
    assert found(Annotator(names), Document(text)) == [
        ["non small carcinoma", "C6"],
        ["non small carcinoma", "C6"],
    ]


def test_names_that_share_words_and_neighbours():
    matcher = _NameMatcher([_surface_of(name) for name in ("a1 b", "b c", "c", "xx", "a1 b c dd")])
    tokens = "a1 b c a1 b xx xx".split()
    hits = [(first, last) for first, last, _ in matcher.matches(tokens)]
    assert sorted(hits) == [(0, 2), (1, 3), (3, 5), (5, 6), (6, 7)]  # "c" has one letter
    assert _NameMatcher([]).matches(tokens) == []


def test_a_name_of_several_concepts_means_what_the_document_is_about(names):
    annotator = Annotator(names)
    assert found(annotator, Document("An MI.")) == [["mi", ""]]
    assert found(annotator, Document("An MI.", (), ("C4",))) == [["mi", "C4"]]
    assert found(annotator, Document("An MI.", (), ("C4", "C1"))) == [["mi", ""]]
    assert annotator.counts["mentions of one of several concepts, without any"] == 2
    assert annotator.counts["mentions of the dictionary"] == 3


def test_names_of_what_a_document_is_about_come_before_the_dictionary(names):
    document = Document(
        "Big infarction of Myocardial infarction", (), ("C4",), ("big  Infarction",)
    )
    annotator = Annotator(names)
    assert found(annotator, document) == [
        ["big infarction", "C4"],
        ["myocardial infarction", "C1"],
    ]
    # About two, it is not said whose name it is; about none that is known, nothing is.
    for concepts in (("C4", "C1"), ("C99",)):
        document = Document("Big infarction", (), concepts, ("big infarction",))
        assert found(annotator, document) == [["infarction", "C2"]]


def test_annotations_come_first_and_have_the_concepts_of_the_dictionary(names):
    text = "A heart attack risk. No disease, heart attacks"
    annotations = (
        Annotation(33, 46, ("C2", "C1")),
        Annotation(2, 19, ("C2",)),
        Annotation(24, 31, ("C99",)),
        Annotation(34, 38, ("C1",)),  # a part of a word
        Annotation(24, 29, ("C1",)),
    )
    annotator = Annotator(names, read_stop_names(None))
    assert found(annotator, Document(text, annotations)) == [
        ["heart attack risk", "C2"],
        ["disease", ""],
        ["heart attacks", ""],
    ]
    assert annotator.counts == {
        "mentions annotated": 3,
        "mentions of one of several concepts, without any": 1,
        "annotated with a concept that the dictionary lacks": 1,
        "left out: annotation of a part of a word": 2,
    }


def test_without_a_dictionary_identifiers_are_concepts():
    annotator = Annotator(None)
    document = Document("A heart attack.", (Annotation(2, 14, ("D1",)),))
    assert found(annotator, document) == [["heart attack", "D1"]]


def test_stop_names_are_only_matched_where_they_are_annotated(names, write):
    text = "A disease and heart attack, infarction"
    assert found(Annotator(names), Document(text))[0] == ["disease", "C3"]
    stop = read_stop_names(write("stop.txt", "Heart Attack\n\n"))
    annotator = Annotator(names, stop)
    assert found(annotator, Document(text)) == [["infarction", "C2"]]
    annotated = Document(text, (Annotation(2, 9, ("C3",)),))
    assert found(annotator, annotated)[0] == ["disease", "C3"]


def test_names_of_excluded_concepts_are_not_matched_whoever_has_them(write):
    path, exclude = write("names.tsv", NAMES), write("out.tsv", "mention\tCUI\nx\tC1\ny\tC99\n")
    names = read_names(path, exclude=exclude)
    assert names.record["excluded_concepts"] == 1 and names.record["excluded_names"] == 4
    text = "Heart attack, MI and myocardial infarction. Foo."
    document = Document(text, (Annotation(44, 47, ("C1",)), Annotation(14, 16, ("C4",))))
    annotator = Annotator(names)
    assert found(annotator, document) == [["infarction", "C2"]]
    assert annotator.counts["left out: annotation of an excluded concept"] == 2
    own = Document("Big one, heart attack", (), ("C2",), ("heart attack",))
    assert found(annotator, own) == []


def test_other_identifiers_of_medic_lead_to_its_concepts(write):
    medic = "D1|OMIM:7||heart attack|MI\nD2|7||stroke|MI\nD3|8||fit\n"
    names = read_names(write("medic.txt", medic))
    assert names.concepts_of[" mi "] == ("D1", "D2")
    assert names.concept("8") == "D3" and names.concept("D1") == "D1"
    assert names.concept("7") == ""  # of two
    excluded = read_names(write("medic.txt", medic), exclude=write("x.txt", "D3\n"))
    assert excluded.concept("8") == "" and "8" in excluded.excluded


def test_sentences_that_are_too_long_are_cut(names, monkeypatch):
    monkeypatch.setattr("data_pipeline.skip_gram.names._MOST_TOKENS", 4)
    text = "a1 b1 heart attack c1 d1 e1 heart attack"
    (one, two, three) = Annotator(names).sentences(Document(text))
    assert [one.tokens, two.tokens, three.tokens] == [
        ["a1", "b1", "heart", "attack"],
        ["c1", "d1", "e1", "heart"],
        ["attack"],
    ]
    assert one.mentions == [(2, 4, "C1")] and two.mentions == [] and three.mentions == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("\n", "found no lines; expected a concept in each"),
        ("a\tb\nc\td\n", "found the columns a, b; expected one that is called CUI or concept"),
        ("C98\nC99\n", "found 'C98' and 1 more, none of which .*names.tsv has; .* such as 'C1'"),
    ],
)
def test_lists_of_concepts_that_are_none(write, content, message):
    with pytest.raises(BadInput, match=message):
        read_names(write("names.tsv", NAMES), exclude=write("list.txt", content))


def test_a_dictionary_without_a_name_that_has_a_word(write):
    with pytest.raises(BadInput, match="found no name that has a word"):
        read_names(write("names.tsv", "of\tC1\n+\tC2\n"))
