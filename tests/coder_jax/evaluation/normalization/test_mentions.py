"""Mentions in TSV files: what is read, and the dictionary beside them."""

import pytest

from coder_jax.evaluation.benchmarks import read_benchmark
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process.errors import BadInput

DICTIONARY = Dictionary(["pain", "ache", "fever"], ["C1", "C1", "C2"], "toy")


@pytest.mark.parametrize("header", ["", "mention\tCUI\n", "\ufeffMention\tcui\r\n"])
def test_mentions(write, header):
    # U+0085 and U+2028 are no line ends, and quotes are ordinary characters.
    path = write("m.tsv", header + 'so"re\u0085ness\tC1\r\nhot\u2028head\tC1|C2\n\n"x"\tC9\n')
    benchmark = read_benchmark("toy", path, dictionary=DICTIONARY)
    (fold,) = benchmark.folds
    assert fold.mentions == ['so"re\u0085ness', "hot\u2028head", '"x"']
    assert fold.gold == ["C1", "C1|C2", "C9"]
    assert fold.dictionary is DICTIONARY


def test_a_mention_called_term_is_no_header(write):
    path = write("m.tsv", "term\tC1\nlabour\tC2\n")
    assert read_benchmark("toy", path, dictionary=DICTIONARY).folds[0].mentions[0] == "term"


def test_dictionary_beside_the_mentions(write):
    path = write("heldout/mentions.tsv", "mention\tCUI\nsore\tC1\n")
    with pytest.raises(
        BadInput, match=r"no dictionary to search; expected .*heldout/dictionary.tsv"
    ):
        read_benchmark("toy", path)
    write("heldout/dictionary.tsv", "term\tCUI\npain\tC1\nfever\tC2\n")
    for given in (path, path.parent):
        fold = read_benchmark("toy", given).folds[0]
        assert fold.dictionary.terms == ["pain", "fever"]
        assert fold.dictionary.concepts == ["C1", "C2"]
