"""Lists of retired CUIs: what is read from each format, what they change, messages."""

from pathlib import Path

import pytest

from coder_jax.evaluation.benchmarks import read_benchmark
from coder_jax.evaluation.dictionary import Dictionary
from coder_jax.evaluation.retired_cuis import choose_list, read_retired_cuis
from data_pipeline.errors import BadInput

DICTIONARY = Dictionary(["pain", "ache", "fever"], ["C1", "C1", "C2"], "toy")


def test_retired_cuis_of_gold_and_dictionary(write):
    retired = read_retired_cuis(write("r.tsv", "old\tnew\nC7\tC8\nC8\tC2\nC5\tC6\nC1\tC4\n"))
    assert retired.successor == {"C7": "C2", "C8": "C2", "C5": "C6", "C1": "C4"}
    path = write("m.tsv", "a\tC7\nb\tC1|C8\nc\tC2\nd\tC8|C7\n")
    plain = read_benchmark("toy", path, dictionary=DICTIONARY)
    benchmark = read_benchmark("toy", path, dictionary=DICTIONARY, retired_cuis=retired)
    (fold,) = benchmark.folds
    assert fold.gold == ["C2", "C4|C2", "C2", "C2"]
    assert fold.dictionary.concepts == ["C4", "C4", "C2"]
    assert (benchmark.retired, fold.dictionary.retired) == (3, 2)
    assert benchmark.content_hash == plain.content_hash, "of the file as it is"
    assert benchmark.retired_cuis is retired
    assert (plain.retired, plain.folds[0].dictionary.retired) == (0, 0)


def test_a_dictionary_as_old_as_the_gold(write):
    # The list is newer than both: what they share they still share, and merged concepts are one.
    retired = read_retired_cuis(write("r.tsv", "C1\tC9\nC2\tC9\n"))
    path = write("m.tsv", "a\tC1\nb\tC2\n")
    (fold,) = read_benchmark("toy", path, dictionary=DICTIONARY, retired_cuis=retired).folds
    assert fold.gold == ["C9", "C9"] and fold.dictionary.concept_set == {"C9"}


ROWS = ["C1|SY|C5", "C2|RO|C6", "C3|DEL|", "C5|SY|C9", "C6|RB|C1", "C6|SY|C2", "C7|RN|C1"]
SPLIT = ["C4|SY|C7", "C4|SY|C8"]


def test_only_merges_count_of_a_dataset(write):
    rows = [f"{row}|{str('|SY|' in row).lower()}".replace("|", "\t") for row in [*ROWS, *SPLIT]]
    path = write("r.tsv", "\n".join(["retired\trelation\tcui\tmerged", *rows]))
    assert read_retired_cuis(path).successor == {"C1": "C9", "C5": "C9", "C6": "C2"}


def test_only_merges_count_of_mrcui(write):
    rows = [row.split("|") for row in [*ROWS, *SPLIT]]
    lines = [f"{old}|2019AA|{rel}|||{new}|{'Y' if new else ''}|\r\n" for old, rel, new in rows]
    path = write("MRCUI.RRF", "".join(lines))
    retired = read_retired_cuis(path)
    assert retired.successor == {"C1": "C9", "C5": "C9", "C6": "C2"}
    assert retired.source == str(path) and len(retired.content_hash) == 64
    with pytest.raises(BadInput, match=r"MRCUI.RRF:2: found 'C2.*'; expected the columns CUI1.VER"):
        read_retired_cuis(write("MRCUI.RRF", lines[0] + "C2|2019AA|SY|||C3|\n"))


def test_which_list_counts(tmp_path, write):
    write("data/retired_cuis.tsv", "C1\tC2\n")
    own = tmp_path / "data" / "retired_cuis.tsv"
    assert choose_list(None, str(tmp_path / "data")) == own
    assert choose_list("r.tsv", str(tmp_path / "data")) == Path("r.tsv")
    assert choose_list("none", str(tmp_path / "data")) is None
    assert choose_list(None, None) is choose_list(None, str(own)) is None


def test_retired_cuis_that_cannot_be_used(write):
    with pytest.raises(BadInput, match=r"r.tsv:2: found 1 columns \('C2'\); expected 2: old CUI"):
        read_retired_cuis(write("r.tsv", "C1\tC3\nC2\n"))
    with pytest.raises(BadInput, match=r"r.tsv:1: found an empty column; expected two CUIs"):
        read_retired_cuis(write("r.tsv", "\tC3\n"))
    with pytest.raises(BadInput, match=r"leads back to itself \(C1 -> C2 -> C1\).*remove the row"):
        read_retired_cuis(write("r.tsv", "C1\tC2\nC2\tC1\n"))
    with pytest.raises(BadInput, match=r"leads back to itself \(C3 -> C3\)"):
        read_retired_cuis(write("r.tsv", "C3\tC3\n"))
