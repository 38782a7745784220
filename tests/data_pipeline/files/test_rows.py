"""Rows of text files: what is a header, what is refused, and hashes of many rows."""

import pytest

from data_pipeline.files.rows import content_hash, distinct_rows, split_concepts, two_columns
from data_pipeline.process.errors import BadInput

EXPECTED = "term<TAB>CUI"


def test_two_columns_line_by_line(write):
    path = write("a.tsv", "\ufeff\n  \nTerm\tCUI\r\n pain \t C1\r\n\na\u2028b\tC1\nterm\tCUI")
    rows = two_columns(path, EXPECTED)
    assert rows == [("pain", "C1"), ("a\u2028b", "C1"), ("term", "CUI")], "a header comes first"
    assert rows[0][1] is rows[1][1], "equal concepts are one object"


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "a.tsv: found no lines; expected tab-separated rows"),
        (" \n\n", "a.tsv: found no lines"),
        ("term\tcui\n\n", "a.tsv: found a header and no rows; expected term<TAB>CUI"),
        ("a\tC1\n\nb\n", "a.tsv:3: found 1 columns; expected 2: term<TAB>CUI"),
        ("a\tC1\n\t\t\nb\tC1\tx\n", "a.tsv:3: found 3 columns"),
        ("term\tcui\nb\t \n", "a.tsv:2: found 1 columns|a.tsv:2: found an empty column"),
    ],
)
def test_broken_rows_are_named(write, content, message):
    with pytest.raises(BadInput, match=message):
        two_columns(write("a.tsv", content), EXPECTED)


def test_the_hash_of_distinct_rows_is_that_of_their_set():
    rows = [("b", "C1"), ("a", "C2"), ("b", "C1"), ("ä", "C3"), ("b", "C0")]
    assert distinct_rows(rows) == (content_hash(set(rows)), 4)
    assert distinct_rows(reversed(rows)) == distinct_rows(rows)
    assert distinct_rows([]) == (content_hash([]), 0)


def test_concepts_of_a_field():
    assert split_concepts("C1") == ["C1"] and split_concepts("C2|C1") == ["C2", "C1"]
