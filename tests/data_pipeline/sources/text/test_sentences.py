import pytest

from data_pipeline.sources.text.sentences import sentence_spans


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One here. Two (there). 3 mg!", ["One here.", "Two (there).", "3 mg!"]),
        ("E. coli, i.e. Foo et al. Bar, Fig. 2", ["E. coli, i.e. Foo et al. Bar, Fig. 2"]),
        ("Tokenized text . It goes on ( so ) .", ["Tokenized text .", "It goes on ( so ) ."]),
        ("a title\n\nan abstract of\ntwo lines", ["a title", "an abstract of\ntwo lines"]),
        ('He said "no." Then left', ['He said "no."', "Then left"]),
        ("p. values. are lower", ["p. values. are lower"]),
        ("  \n\n ", []),
        ("", []),
    ],
)
def test_where_sentences_end(text, sentences):
    assert [text[first:last].strip() for first, last in sentence_spans(text)] == sentences


def test_no_character_is_lost():
    text = "\n\nOne. Two? Three\n\nFour.  "
    assert "".join(text[first:last] for first, last in sentence_spans(text)) == text
