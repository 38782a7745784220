"""Listings of nearest terms, and the papers' figures that stand beside our own."""

import dataclasses

import numpy as np
import pytest

from coder_jax.evaluation.benchmarks import read_benchmark
from coder_jax.evaluation.concepts.case_studies import CaseStudy, case_study_record, nearest_terms
from coder_jax.evaluation.benchmarks import published_for
from coder_jax.evaluation.record import EvaluationRecord, VectorFileProtocol
from coder_jax.evaluation.tables import print_records
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process.errors import BadInput

DICTIONARY = Dictionary(
    ["back pain", "chest pain", "cough", "cough", "fever"], ["C1", "C2", "C3", "C4", "C5"], "icd9"
)
ENCODER = VectorFileProtocol(
    **{"model": "w.bin", "weights_hash": "1f", "keyed_by": "words", "pooling": "mean of words"},
    **{"width": 3, "vectors": 9, "used": 4},
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
    listing = nearest_terms(Table(), study, 2)
    assert [one["term"] for one in listing[0]["nearest"]] == ["back pain", "chest pain"]
    cosine = 2 / np.hypot(2, 0.2)
    assert listing[0]["nearest"][0]["cosine"] == pytest.approx(cosine, abs=1e-6)
    assert listing[1]["nearest"][0] | {"cosine": 0} == {
        **{"term": "cough", "concept": "C3|C4", "cosine": 0}
    }, "a string of two concepts comes once"
    assert listing[2]["missing"] and listing[2]["nearest"] == []
    record = case_study_record(study, listing, ENCODER)
    assert record.counts == {"terms": 3, "missing": 1}
    print_records([record], k=[1])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["Dorsalgie", "(French)", "back", "pain", "0.995", "C1"] + (
        ["mean", "of", "words"]
    )
    assert "(no vector)" in lines[-1]
    assert len(nearest_terms(Table(), study, 50)[0]["nearest"]) == 4, "all there are"


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


def published(benchmark, encoder, pooling, paper="CODER"):
    (row,) = [
        row
        for row in published_for(benchmark)
        if (row.benchmark, row.encoder, row.pooling) == (benchmark, encoder, pooling)
        and row.paper == paper
    ]
    return row.scores


def test_published_figures():
    """Against the figures of the papers' abstracts and texts, which are told apart from the tables.

    CODER, section 4.4.1: CODER_ENG is better than SapBERT by 5.72, 4.82, 1.47, 5.08; section 4.6:
    by 7.1, 4.05, 4.25 than the best concept, word, contextual embedding. v1, section 4.2: mean F1
    of CODER_ALL 76.1 and 76.4; table 6: average MCSM.
    """
    gains = [
        round(published(b, "CODER_ENG", "mean")[k] - published(b, "SapBERT", "mean")[k], 2)
        for b in ("cadec", "psytar")
        for k in ("acc@1", "acc@3")
    ]
    assert gains == [5.72, 4.82, 1.47, 5.08]
    ours = published("ddbrc", "CODER_ENG", "cls")["frozen"]
    best = (("cui2vec", ""), ("BioNLP-2016-win-30", ""), ("SapBERT", "cls"))
    assert [round(ours - published("ddbrc", *one)["frozen"], 2) for one in best] == [
        7.1,
        4.05,
        4.25,
    ]
    for pooling, mean in (("cls", 76.1), ("mean", 76.4)):
        f1 = published("mantra", "CODER_ALL v1", pooling, "CODER v1")
        assert len(f1) == 10 and round(np.mean(list(f1.values())), 1) == mean
    for encoder, mean in (("v1 MS+REL+STY", 10.6), ("v1 MS+STY", 10.9), ("v1 MS", 9.2)):
        mcsm = published("mcsm", encoder, "mean", "CODER v1")
        assert round(np.mean(list(mcsm.values())), 1) == mean
    # v1 prints two rows in one: "17.19/21.96"; CODER has only the model of abstracts.
    for benchmark, cls, mean in (("cadec", 17.19, 21.96), ("psytar", 16.65, 20.24)):
        for pooling, accuracy in (("cls", cls), ("mean", mean)):
            row = published(benchmark, "PubMedBERT(abs+text)", pooling, "CODER v1")
            assert row["acc@1"] == accuracy
    assert published("mcsm", "PubMedBERT(abs+text)", "mean", "CODER v1")["Finding"] == 7.1
    assert "Clinical Drug" not in published("mcsm", "claims-codes-hs-300", "")
    assert {row.benchmark for row in published_for("my PsyTar")} == {"psytar"} and not published_for("hpo")


def test_published_rows_stand_below_ours_and_are_marked(capsys):
    folds = {"Medline fr": {"scores": {"f1": 0.5}}}
    record = EvaluationRecord(
        **{"benchmark": "mantra", "kind": "MANTRA GSC", "path": "p", "content_hash": "h"},
        **{"scores": {"precision": 0.6, "recall": 0.4, "f1": 0.48}, "unreachable": None},
        **{"counts": {"mentions": 5, "annotations": 7, "unreachable": 1}, "dictionary": None},
        **{"scoring": {}, "folds": folds, "encoder": ENCODER},
    )
    concepts = dataclasses.replace(
        record,
        benchmark="mcsm",
        kind="concept similarity",
        counts={"concepts": 9, "missing": 2},
        folds={"Finding": {"scores": {"mcsm": 3.14, "chance": 1.0}}},
    )
    relations = dataclasses.replace(
        record,
        benchmark="ddbrc",
        kind="relation classification",
        scores={"accuracy": 0.9, "macro_f1": 0.8, "most_frequent": 0.1},
        counts={"train": 4, "test": 2, "labels": 2, "missing": 0, "unnamed": 0},
        scoring={"features": "fine-tuned"},
    )
    print_records([relations, concepts, record], k=[1])
    blocks = [block.splitlines() for block in capsys.readouterr().out.split("\n\n")]
    assert [block[0].split()[0] for block in blocks] == ["MANTRA", "MCSM", "relation"]
    mantra, mcsm, ddbrc = blocks
    assert mantra[2].split()[-4:] == ["50.0", "60.0", "40.0", "48.0"]
    assert any(
        "CODER_ALL (published, CODER, table 2)" in line and "58.9" in line for line in mantra
    )
    assert "3.1" in mcsm[2] and "by chance" in mcsm[3] and mcsm[3].endswith("1.0")
    assert any(line.startswith("mcsm: cui2vec (published, CODER, table 3)") for line in mcsm)
    assert ddbrc[2].split()[-3:] == ["90.00", "80.00", "10.00"]
    sap = next(line for line in ddbrc if "SapBERT (published" in line)
    assert sap.split()[-2:] == ["91.80", "98.79"]
