"""A user's own abbreviations."""

import pytest

from coder_jax.mapping.abbreviations import read_abbreviations, writer_out
from data_pipeline.process.errors import BadInput

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
    path = write("own.tsv", "MS\tsclerosis\nMS\tmitral stenosis\n")
    with pytest.raises(BadInput, match="'MS' stands for 'sclerosis' and for 'mitral stenosis'"):
        read_abbreviations(path)
