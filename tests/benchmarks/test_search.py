"""The benchmark of search: rivals must find the same keys, and a table says how fast each was."""

import json

import numpy as np
import pytest
from quick_benchmark import quicken

from benchmarks import search
from benchmarks.search_peers import SearchResult
from data_pipeline.process import BadInput

KEYS = np.float32([[1, 0], [0, 1], [0.6, 0.8], [0.6, 0.8]])
QUERIES = np.float32([[1, 0]])


def found(similarity, index):
    return SearchResult(np.float32([similarity]), np.array([index]))


def test_equal_keys_may_change_places():
    ours, theirs = found([1, 0.6, 0.6], [0, 2, 3]), found([1, 0.6, 0.6], [0, 3, 2])
    compared = search._differences(ours, theirs, QUERIES, KEYS)
    assert compared == {"similarity": 0.0, "moved": pytest.approx(2 / 3), "worse": 0.0}
    search._check_same(compared, "faiss-cpu")


def test_a_worse_key_or_another_similarity_is_an_error():
    ours, theirs = found([1, 0.6], [0, 1]), found([1, 0.6], [0, 2])
    compared = search._differences(ours, theirs, QUERIES, KEYS)
    assert compared["worse"] == pytest.approx(0.6)
    with pytest.raises(BadInput, match=r"faiss-cpu differ.*ours is 6.0e-01 less similar"):
        search._check_same(compared, "faiss-cpu")
    compared = search._differences(found([1], [0]), found([0.9], [0]), QUERIES, KEYS)
    with pytest.raises(BadInput, match=r"similarities by up to 1.0e-01"):
        search._check_same(compared, "faiss-cpu")


@pytest.mark.parametrize("values", [[np.nan, 0.6], [1, np.nan], [np.inf, 0.6]])
def test_what_is_not_finite_is_an_error(values):
    ours = found([1, 0.6], [0, 2])
    with pytest.raises(BadInput, match="faiss-cpu differ"):
        search._check_same(
            search._differences(ours, found(values, [0, 2]), QUERIES, KEYS), "faiss-cpu"
        )
    keys = np.where(KEYS == 0.8, np.float32(np.nan), KEYS)
    compared = search._differences(ours, found([1, 0.6], [0, 1]), QUERIES, keys)
    with pytest.raises(BadInput, match="ours is nan less similar"):
        search._check_same(compared, "faiss-cpu")


def test_the_table_has_rates_shares_and_ratios():
    row = {
        "source": "random unit vectors",
        "queries": 1000,
        "keys": 50_000,
        "width": 384,
        "k": 10,
        "device": "cpu",
        "seconds": {"coder_jax": 0.5, "faiss-cpu": 1.0},
        "differences": {"faiss-cpu": {"similarity": 1e-7, "moved": 0.0, "worse": 0.0}},
        "flops": 1e11,
        "peak_flops": 4e11,
        "copy_bytes_per_s": 2e10,
    }
    text, what = search.table([row]), "1,000 | 50,000 | 384 | 10"
    assert f"| coder_jax | {what} | 0.5000 | 2,000 | 200 | 50% | 0.2 | 1.00 |" in text
    assert f"| faiss-cpu | {what} | 1.0000 | 1,000 | 100 | 25% | 0.1 | 2.00 |" in text
    assert "differ by at most 1e-07" in text


def test_vectors_of_a_file_are_spread_over_it(tmp_path):
    np.save(tmp_path / "keys.npy", np.arange(20, dtype=np.float16).reshape(10, 2))
    vectors = search._read_vectors(tmp_path / "keys.npy", 3)
    assert vectors.dtype == np.float32 and vectors[:, 0].tolist() == [0, 6, 12]
    np.save(tmp_path / "flat.npy", np.zeros(3))
    with pytest.raises(BadInput, match=r"flat.npy: found an array of shape \(3,\)"):
        search._read_vectors(tmp_path / "flat.npy", 3)


@pytest.fixture
def quick(monkeypatch):
    return quicken(monkeypatch, search)


def test_the_command(tmp_path, quick, capsys):
    pytest.importorskip("faiss", reason="faiss is in requirements-benchmarks.txt")
    report = tmp_path / "search.json"
    arguments = ["--num-queries", "1", "5", "--num-keys", "700", "--width", "8", "--k", "1", "3"]
    assert search.main([*arguments, "--rounds", "2", "--json", str(report)]) == 0
    assert search.main([*arguments, "--rounds", "1", "--json", str(report)]) == 0
    assert quick == ["glibc.malloc.hugetlb=1", "set up"] * 2
    rows = json.loads(report.read_text())["rows"]
    assert [(row["queries"], row["k"]) for row in rows] == [(1, 1), (1, 3), (5, 1), (5, 3)]
    assert all(len(row["rounds"]["faiss-cpu"]) == 1 for row in rows)
    assert rows[0]["differences"]["faiss-cpu"]["similarity"] < 1e-5
    assert "| faiss-cpu | 5 | 700 | 8 | 3 |" in capsys.readouterr().out


def test_a_rival_is_needed_and_both_files(monkeypatch, quick, capsys):
    monkeypatch.setattr("benchmarks.search_peers._faiss_search", lambda keys: {})
    monkeypatch.setattr("benchmarks.search_peers._torch_search", lambda keys: {})
    assert search.main(["--num-queries", "2", "--num-keys", "9", "--width", "4"]) == 2
    assert "no rival" in capsys.readouterr().err
    assert search.main(["--keys", "keys.npy"]) == 2
    assert "expected both or none" in capsys.readouterr().err
