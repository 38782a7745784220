"""Listings of nearest terms, and the papers' figures that stand beside our own."""

from functools import partial

import numpy as np
import pytest

from coder_jax.encoding import search as searching
from coder_jax.evaluation.benchmarks import options_with, print_records, read_benchmark
from coder_jax.evaluation.case_studies import (
    CaseStudy,
    CaseTerm,
    _nearest_terms,
)
from coder_jax.evaluation.normalization import NormalizationOptions
from coder_jax.evaluation.record import VectorFileProtocol
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process import BadInput

DICTIONARY = Dictionary(
    ["back pain", "chest pain", "cough", "cough", "fever"], ["C1", "C2", "C3", "C4", "C5"], "icd9"
)
ENCODER = VectorFileProtocol(
    **{"model": "w.bin", "weights_hash": "1f", "keyed_by": "words", "pooling": "mean of words"},
    **{"width": 3, "vectors": 9, "used": 4, "look_up": "as they stand"},
)
PLACES = {
    "back pain": [1, 0, 0],
    "chest pain": [3, 1, 0],
    "cough": [0, 5, 0],
    "fever": [0, 0, 1],
    "Dorsalgie": [2, 0.2, 0],
    "toux": [0.1, 1, 0],
}


class Table:
    keyed_by = "terms"

    def encode(self, keys):
        return np.array([PLACES.get(key, [0, 0, 0]) for key in keys], np.float32)

    def known(self, keys):
        return np.array([key in PLACES for key in keys])


def test_nearest_terms_of_a_file(tmp_path, capsys):
    path = tmp_path / "terms.tsv"
    path.write_text("language\tterm\nFrench\tDorsalgie\nFrench\ttoux\nKorean\t배통\n")
    study = read_benchmark("case", path, dictionary=DICTIONARY)
    record = study.score(Table(), ENCODER, options_with(neighbours=2))
    listing = list(record.folds.values())
    assert [one["term"] for one in listing[0]["nearest"]] == ["back pain", "chest pain"]
    cosine = 2 / np.hypot(2, 0.2)
    assert listing[0]["nearest"][0]["cosine"] == pytest.approx(cosine, abs=1e-6)
    assert listing[1]["nearest"][0] | {"cosine": 0} == {
        **{"term": "cough", "concept": "C3|C4", "cosine": 0}
    }, "a string of two concepts comes once"
    assert listing[2]["missing"] and listing[2]["nearest"] == []
    assert record.counts == {"terms": 3, "missing": 1}
    print_records([record], NormalizationOptions(k=(1,)))
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["Dorsalgie", "(French)", "back", "pain", "0.995", "C1"] + (
        ["mean", "of", "words", "w.bin"]
    )
    assert "(no vector)" in lines[-1]
    assert len(_nearest_terms(Table(), study, 50)[0]["nearest"]) == 4, "all there are"


def test_vectors_of_the_dictionary_are_looked_up_block_by_block(monkeypatch):
    places = {f"term {number}": [number + 1, number % 7, 1] for number in range(80)}
    asked = []

    class Watched(Table):
        def encode(self, keys):
            asked.append(len(keys))
            return np.array([places.get(key, [1, 2, 0]) for key in keys], np.float32)

    monkeypatch.setattr(searching, "search", partial(searching.search, block_keys=16))
    dictionary = Dictionary(list(places), [f"C{number}" for number in range(80)], "x")
    study = CaseStudy("case", "x", [CaseTerm("toux", "French")], dictionary, "hash")
    (listing,) = _nearest_terms(Watched(), study, 9)
    assert asked[0] == 1 and max(asked) == 16 and sum(asked[1:]) >= 80
    vectors = np.array(list(places.values()), np.float64)
    cosines = vectors @ [1, 2, 0] / np.linalg.norm(vectors, axis=1) / np.sqrt(5)
    found = [one["cosine"] for one in listing["nearest"]]
    np.testing.assert_allclose(found, -np.sort(-cosines)[:9], atol=2e-6)


def test_the_papers_case_studies():
    study = read_benchmark("t6", "paper:cross-lingual", dictionary=DICTIONARY)
    assert isinstance(study, CaseStudy) and len(study.cases) == 15
    korean = next(case for case in study.cases if case.language == "Korean")
    assert (korean.term, korean.published) == ("배통", ("benign neoplasm of ureter",))
    knowledge = read_benchmark("t7", "paper:knowledge", dictionary=DICTIONARY)
    assert [len(case.published) for case in knowledge.cases] == [5, 5]
    with pytest.raises(BadInput, match="case study paper:x; expected one of paper:cross-lingual"):
        read_benchmark("t", "paper:x", dictionary=DICTIONARY)
    with pytest.raises(BadInput, match="found terms to look up and no dictionary; give --dict"):
        read_benchmark("t", "paper:knowledge")


@pytest.mark.parametrize(
    "content, message",
    [
        ("language\tterm\nFrench\n", r"t.tsv:2: found \['French'\]; expected language<TAB>term"),
        ("term\n", r"t.tsv: found a header and no terms; expected a term in each line"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, content, message):
    (tmp_path / "t.tsv").write_text(content)
    with pytest.raises(BadInput, match=message):
        read_benchmark("t", tmp_path / "t.tsv", dictionary=DICTIONARY)
