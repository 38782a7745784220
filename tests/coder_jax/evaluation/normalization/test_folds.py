"""Folds of Cadec and PsyTar: what is read, quotes, folds that are not whole."""

import pytest

from coder_jax.evaluation.benchmarks import read_benchmark
from data_pipeline.process.errors import BadInput


def test_folds(write, tmp_path):
    for fold, mention in (("fold_2", "sore"), ("fold_1", "hot")):
        write(f"set/{fold}/test.txt", f"1\t{mention}\r\n")
        write(f"set/{fold}/standard.txt", "1\tpain\r\n2\tfever\r\n")
        write(f"set/{fold}/train.txt", b"\xff broken, and never read")
    write("set/README.md", "not a fold")
    benchmark = read_benchmark("toy", tmp_path / "set")
    assert [fold.name for fold in benchmark.folds] == ["fold_1", "fold_2"]
    assert [fold.mentions for fold in benchmark.folds] == [["hot"], ["sore"]]
    assert benchmark.folds[0].dictionary.terms == ["pain", "fever"]
    one = read_benchmark("toy", tmp_path / "set" / "fold_1")
    assert [fold.mentions for fold in one.folds] == [["hot"]]


@pytest.mark.parametrize("file", ["standard.txt", "train.txt", None, "notes.txt"])
def test_a_fold_that_is_not_whole_is_refused_beside_others(write, tmp_path, file):
    for fold in ("fold_1", "fold_2"):
        write(f"{fold}/test.txt", "1\thot\n")
        write(f"{fold}/standard.txt", "1\theat\n")
    write("scripts/run.sh", "no fold")
    (tmp_path / "fold_3").mkdir()
    if file:
        write(f"fold_3/{file}", "1\thot\n")
    lost = "test.txt" if file == "standard.txt" else "test.txt and standard.txt"
    with pytest.raises(BadInput, match=f"fold_3: found a fold without {lost}; .*: fetch it again"):
        read_benchmark("toy", tmp_path)
    (tmp_path / "fold_3").rename(tmp_path / "more")
    if file in ("standard.txt", "train.txt"):
        with pytest.raises(BadInput, match="more: found a fold without"):
            read_benchmark("toy", tmp_path)
    else:
        assert len(read_benchmark("toy", tmp_path).folds) == 2


def test_quotes_of_a_spreadsheet_are_taken_off_folds(write, tmp_path):
    """As in PsyTar's files; a field that no CSV writer would have made stays as it is."""
    rows = ['"became ""flat"""', '"weak, tired"', '"x" and "y"', 'say "x"', '"', "flat"]
    write("fold_1/test.txt", "".join(f"7\t{row}\n" for row in rows))
    write("fold_1/standard.txt", '7\tFlat affect\n8\t"fear, mental"\n')
    benchmark = read_benchmark("psytar", tmp_path)
    (fold,) = benchmark.folds
    expected = ['became "flat"', "weak, tired", '"x" and "y"', 'say "x"', '"', "flat"]
    assert fold.mentions == expected and benchmark.quoted == 2
    assert fold.dictionary.terms == ["Flat affect", "fear, mental"]


def test_cadec(shared_data):
    benchmark = read_benchmark("cadec", shared_data / "openmeta/eval/cadec")
    assert [fold.name for fold in benchmark.folds] == [f"CADEC_{i}" for i in range(5)]
    assert [len(fold.mentions) for fold in benchmark.folds] == [504, 459, 424, 397, 375]
    assert benchmark.folds[0].mentions[0] == "feel a bit weird"
    assert benchmark.folds[0].gold[0] == "367391008"
    assert len({fold.dictionary.description["content_hash"] for fold in benchmark.folds}) == 1
    for fold in benchmark.folds:
        # One standard name for each target concept, in another order in each fold.
        assert len(fold.dictionary.terms) == len(fold.dictionary.concept_set) == 181
        assert fold.dictionary.concept_set.issuperset(fold.gold)
