"""The benchmark of a dictionary of the UMLS's size: what it writes, scores and says."""

import json

import numpy as np
import pytest

from benchmarks import dictionary_size
from benchmarks.machine import machine
from data_pipeline.files.tables import two_columns

TERMS, WIDTH, MENTIONS = 3000, 32, 200


def figures(**peaks):
    part = {"seconds": 1500.0, "score_s": 1200.0, "concepts": 4_300_000, "mentions": 1000}
    part |= {"acc@1": 0.5, "peak_gb": 7.0}
    result = {"terms": 15_500_000, "width": 768, "vectors_gb": 23.8, "machine": machine()}
    return result | {
        name: part | {"peak_gb": peaks.get(name, 7.0)} for name in ("evaluate", "normalize")
    }


def test_figures_stand_beside_their_limit():
    text = dictionary_size.table(figures())
    assert "| evaluate: acc@k and MRR | 1,500 | 1,200 | 7.0 | at most 16 |" in text
    assert "15,500,000 terms of 4,300,000 concepts, width 768: 23.8 GB of vectors" in text
    assert "MISSED" not in text


@pytest.mark.parametrize("part", ["evaluate", "normalize"])
def test_a_limit_that_is_missed_is_said(part):
    assert dictionary_size.table(figures(**{part: 16.1})).count("MISSED") == 1


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    dictionary_size._write_files(folder, TERMS, WIDTH, MENTIONS)
    return folder


def vectors_of(path):
    return np.load(path).astype(np.float64)


def test_the_invented_dictionary(work):
    rows = two_columns(work / dictionary_size._DICTIONARY, "")
    terms, vectors = [term for term, _ in rows], np.load(work / dictionary_size._TERM_VECTORS)
    assert len(terms) == len(set(terms)) == TERMS
    assert vectors.shape == (TERMS, WIDTH) and vectors.dtype == np.float16
    np.testing.assert_allclose(np.linalg.norm(vectors.astype(np.float32), axis=1), 1, atol=2e-3)
    first = [concepts.split("|")[0] for _, concepts in rows]
    assert first == sorted(first), "in order of the concept"
    assert 3 < TERMS / len(set(first)) < 4.2
    assert 0.01 < np.mean(["|" in concepts for _, concepts in rows]) < 0.03


def test_both_parts_give_the_scores_of_brute_force(work):
    rows = two_columns(work / dictionary_size._DICTIONARY, "")
    gold = [concept for _, concept in two_columns(work / dictionary_size._MENTIONS, "")]
    cosines = vectors_of(work / dictionary_size._MENTION_VECTORS) @ (
        vectors_of(work / dictionary_size._TERM_VECTORS).T
    )
    nearest = [rows[row][1].split("|") for row in cosines.argmax(axis=1)]
    pairs = list(zip(nearest, gold, strict=True))
    scored = dictionary_size._evaluate(work)
    assert scored["acc@1"] == pytest.approx(np.mean([(g in c) / len(c) for c, g in pairs]))
    assert 0.3 < scored["acc@1"] < 0.97, "neither all right nor all wrong"
    assert (scored["terms"], scored["mentions"]) == (TERMS, MENTIONS)
    found = dictionary_size._normalize(work)
    assert found["acc@1"] == pytest.approx(np.mean([c[0] == g for c, g in pairs]))
    assert found["concepts"] == scored["concepts"]


def test_no_room(tmp_path, capsys):
    flags = ["--work", str(tmp_path), "--terms", "1000000000000"]
    assert dictionary_size.main(flags) == 2
    assert "GB are needed and" in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_small_run(tmp_path, repo, monkeypatch, capsys):
    monkeypatch.chdir(repo)  # its processes import the packages from where they start
    report = tmp_path / "report.json"
    flags = ["--work", str(tmp_path / "work"), "--json", str(report)]
    flags += ["--terms", "300000", "--width", "64", "--mentions", "100"]
    assert dictionary_size.main(flags) == 0
    found = json.loads(report.read_text())
    for part in ("evaluate", "normalize"):
        assert 0.1 < found[part]["peak_gb"] < 3 and found[part]["seconds"] > 0
    assert "| normalize: the 5 nearest concepts |" in capsys.readouterr().out
    assert not list((tmp_path / "work").iterdir())
