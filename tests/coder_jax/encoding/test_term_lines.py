"""Terms in chunks: the lines of a file as they are, one hash however they are read."""

import hashlib
import io

import pytest

from coder_jax.encoding.term_lines import TermLines, TermList
from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput

TERMS = ["pain", "", "µ limb", "a\u2028b", "pain", "x"]
CONTENT = "\ufeffpain\r\n\nµ limb\r\na\u2028b\npain\nx"


def all_chunks(terms):
    return [terms.chunk(number) for number in range(terms.chunks)]


@pytest.mark.parametrize("per_chunk", [1, 2, 4, 6, 100])
@pytest.mark.parametrize("end", ["", "\n"])
def test_lines_and_lists_give_the_same_chunks(per_chunk, end):
    lines = TermLines(io.BytesIO((CONTENT + end).encode()), "terms.txt", per_chunk)
    listed = TermList(TERMS, per_chunk)
    assert sum(all_chunks(lines), []) == TERMS
    assert all_chunks(lines) == all_chunks(listed)
    assert lines.count == listed.count == 6
    assert lines.hash == listed.hash
    assert lines.hash == hashlib.sha256("".join(f"{t}\n" for t in TERMS).encode()).hexdigest()


def test_chunks_can_be_read_in_any_order():
    lines = TermLines(io.BytesIO(CONTENT.encode()), "terms.txt", 2)
    assert [lines.chunk(number) for number in (2, 0, 1)] == [TERMS[4:], TERMS[:2], TERMS[2:4]]


def test_no_lines_and_empty_lines():
    assert TermLines(io.BytesIO(b""), "terms.txt", 4).chunks == 0
    assert TermLines(io.BytesIO(b""), "terms.txt", 4).hash == TermList([], 4).hash
    assert all_chunks(TermLines(io.BytesIO(b"\n\n"), "terms.txt", 4)) == [["", ""]]


def test_the_hash_sees_each_term_and_the_order():
    hashes = {TermList(terms, 4).hash for terms in (TERMS, TERMS[::-1], TERMS[1:], [*TERMS, ""])}
    assert len(hashes) == 4


def test_bytes_that_are_not_utf8_are_found_before_work_begins():
    with pytest.raises(BadInput, match=r"terms.txt:5: found byte 0xe4, which is not UTF-8; conv"):
        TermLines(io.BytesIO(b"a\nb\nc\nd\nl\xe4hmung\nf\n"), "terms.txt", 3)


def test_reading_stops_when_asked(monkeypatch):
    monkeypatch.setattr(stopping, "_asked", [15])
    with pytest.raises(stopping.Stopped):
        TermLines(io.BytesIO(b"a\n"), "terms.txt", 3)
