"""Abstracts with mentions, as PubTator has them."""

import pytest

from data_pipeline.process.errors import BadInput
from data_pipeline.sources.corpora.pubtator import read_abstracts

TEXT = (
    "7|t|Renal and hepatic failure (RF).\r\n7|a|RF | coma.\n"
    "7\t0\t25\tRenal and hepatic failure\tDisease\tD1|D2\trenal failure|hepatic failure\n"
    "7\t27\t29\tRF\tDisease\tD1\n7\tCID\tD9\tD1\n\n"
    "8|t|None.\n8|a|\n9|t|Coma.\n9\t0\t4\tComa\tDisease\t\n"
)


def test_abstracts_and_their_mentions(write):
    first, second, third = read_abstracts(write("a.txt", TEXT))
    assert first.text == "Renal and hepatic failure (RF).\nRF | coma."
    composite, short = first.mentions
    assert composite == (
        *("a.txt:3", "Renal and hepatic failure", "Disease", "D1|D2"),
        ("renal failure", "hepatic failure"),
    )
    assert (short.text, short.identifiers, short.parts) == ("RF", "D1", ())
    assert second.mentions == [] and third.mentions[0].identifiers == ""


@pytest.mark.parametrize(
    "line, message",
    [
        ("7\t0\t5\tRenal\n", r"a.txt:10: found '7.*'; expected a line of PubTator: PMID"),
        ("Abstracts\n", "a.txt:10: found 'Abstracts'; expected a line of PubTator"),
        ("3\t0\t5\tRenal\tDisease\tD1\n", "a.txt:10: found a mention in '3', of which no line ab"),
    ],
)
def test_broken_lines(write, line, message):
    lines = TEXT.splitlines(keepends=True)
    with pytest.raises(BadInput, match=message):
        read_abstracts(write("a.txt", "".join([*lines[:9], line])))
