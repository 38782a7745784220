"""The benchmark of a refresh: recall by hand, invented vectors, the command on a tiny encoder."""

import json

import numpy as np
import pytest
from quick_benchmark import quicken
from tiny_bert import TERMS, write_model

from benchmarks import refresh


def test_recall_by_hand():
    exact = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    found = np.array([[3, 1, 2], [4, 5, 0], [0, 0, 0]])
    assert refresh._compared(exact, found) == {
        "recall": pytest.approx((3 + 2 + 0) / 9),
        "whole": pytest.approx(1 / 3),
    }


def test_invented_vectors_are_like_real_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(refresh, "_ROWS_AT_ONCE", 40)
    real = np.eye(8, dtype=np.float32)[:3]
    refresh._write_vectors(tmp_path / "v.npy", real, 100)
    vectors = np.load(tmp_path / "v.npy")
    assert vectors.shape == (100, 8) and vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors[:3], real)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    best = (vectors[3:] @ real.T).max(axis=1)
    assert np.isclose(best, refresh._LIKENESS, atol=1e-5).mean() > 0.9
    assert len(np.unique(vectors.round(5), axis=0)) == 100


def test_the_command(tmp_path, monkeypatch, capsys):
    told = quicken(monkeypatch, refresh)
    write_model(tmp_path / "bert")
    words = [word for term in TERMS for word in term.split() if word.isascii()]
    lines = sorted({f"{one} {other}" for one in words for other in words})[:300]
    (tmp_path / "terms.txt").write_text("\n".join(lines) + "\n")
    out = tmp_path / "refresh.json"
    arguments = ["--work", tmp_path, "--terms", "700", "--encoded", "250", "--queries", "90"]
    arguments += ["--neighbours", "5", "--model", tmp_path / "bert", "--data"]
    arguments += [tmp_path / "terms.txt", "--json", out]
    assert refresh.main([str(word) for word in arguments]) == 0
    assert told == ["glibc.malloc.hugetlb=1", "set up"]
    (row,) = json.loads(out.read_text())["rows"]
    assert (row["terms"], row["encoded"], row["queries"], row["width"]) == (700, 250, 90, 32)
    assert row["index_bytes"] == 700 * 5 * 4 and row["vector_bytes"] >= 700 * 32 * 4
    assert 0.98 < row["bfloat16"]["recall"] <= 1 and "recall_of_real_queries" in row["bfloat16"]
    for products in ("exact", "bfloat16"):
        found = row[products]
        assert found["pairs_per_s"] == pytest.approx(90 * 700 / found["seconds"])
        whole = 700 / row["terms_per_s"] + 700 * 700 / found["pairs_per_s"]
        assert found["refresh_s"] == pytest.approx(whole)
    said = capsys.readouterr().out
    assert "450 vectors are invented" in said and "| bfloat16 |" in said
    assert not list(tmp_path.glob("tmp*")), "the vectors are gone"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--terms", "60"], "--terms is 60 and --neighbours 30; expected more than twice"),
        (["--queries", "0"], "--queries is 0; expected 1 or more"),
    ],
)
def test_numbers_that_cannot_be(flags, words, tmp_path, capsys):
    assert refresh.main(["--work", str(tmp_path), *flags]) == 2
    assert words in capsys.readouterr().err
