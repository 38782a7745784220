"""The protocol: what a path shows to the kinds of benchmarks, and how flags are named."""

from dataclasses import dataclass

import pytest

from coder_jax.evaluation.benchmark import Benchmark, Found, Options
from data_pipeline.process import BadInput


@pytest.mark.parametrize("name", ["m.xml", "m.ZIP", "absent.tsv", "folder", "paper:x"])
def test_what_is_no_file_of_rows_shows_none(write, tmp_path, name):
    (tmp_path / "folder").mkdir()
    write("m.xml", b"\xff")
    write("m.ZIP", b"PK\xff")
    found = Found(tmp_path / name)
    assert not found.is_text and found.first_row == found.header == []


def test_the_first_row_of_a_file(write):
    found = Found(write("m.tsv", "\n Term1\tCUI \na\tb\tc\n"))
    assert found.is_text and not found.is_folder and not found.holds("m.tsv")
    assert found.first_row == ["Term1", "CUI"] and found.header == ["term1", "cui"]
    for content, message in ((b"\xe4", "not UTF-8"), ("", "found no lines")):
        with pytest.raises(BadInput, match=message):
            assert Found(write("m.tsv", content)).first_row


def test_what_a_folder_holds(write, tmp_path):
    write("set/y.txt", "1")
    (tmp_path / "set" / "z.txt").mkdir()
    found = Found(tmp_path / "set")
    assert found.is_folder and found.holds("x.txt", "y.txt")
    assert not found.holds("x.txt") and not found.holds("z.txt"), "a folder is no file"


def test_a_kind_reads_its_own_options_or_their_defaults():
    @dataclass(frozen=True, kw_only=True)
    class Own(Options):
        margin: float = 0.5

    assert Own(margin=1).of(Own).margin == 1
    assert Options(seed=3).of(Own) == Own(margin=0.5, seed=3)


def test_a_kind_that_leaves_something_out_cannot_be_used():
    class Half(Benchmark):
        kind = "half"

        @classmethod
        def claims(cls, found):
            return True

    with pytest.raises(TypeError, match="keys.*read.*score.*table"):
        Half()
    assert not Half.would_take(None) and not Half.brings_dictionary(None)
