"""MANTRA GSC: precision, recall and F1, by hand and against CODER's released code."""

import dataclasses

import numpy as np
import pytest
from evaluating import ENCODER
from mantra_corpus import DICTIONARY, write_brat

from coder_jax.evaluation.benchmarks import read_benchmark
from coder_jax.evaluation.normalization.accuracy import evaluate_normalization
from coder_jax.evaluation.normalization.mantra import (
    MEASURES,
    Mantra,
    mantra_record,
    mantra_scores,
    measures_drawn,
)


@pytest.fixture
def brat(tmp_path):
    return write_brat(tmp_path)


def released_f1(predicted, gold):
    """As CODER's released code counts: each pair of mention and CUI is a mention with one CUI."""
    pairs = [(answer, cui) for answer, cuis in zip(predicted, gold, strict=True) for cui in cuis]
    correct = sum(answer == cui for answer, cui in pairs)
    precision = recall = correct / len(pairs)
    return 2 * precision * recall / (precision + recall)


def naive_scores(predicted, gold):
    """Sets of (mention, CUI), counted."""
    right = sum(cui in cuis for cui, cuis in zip(predicted, gold, strict=True))
    precision, recall = right / len(predicted), right / sum(map(len, gold))
    return {
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / (precision + recall),
    }


def test_one_cui_per_mention(brat, tmp_path):
    english = brat / "English" / "EMEA_ec22-cui-best_man"
    english.mkdir(parents=True)
    (english / "0001.txt").write_text("Wrist")
    (english / "0001.ann").write_text("T1\tC0000003 0 5\tWrist\n")
    benchmark = read_benchmark("mantra", brat, dictionary=DICTIONARY)
    place = {"Douleur": 0, "main": 3, "toux main": 2, "Wrist": 3}
    place |= {term: number for number, term in enumerate(DICTIONARY.terms)}

    def encode(strings):
        return np.eye(4, dtype=np.float32)[[place[string] for string in strings]]

    result = evaluate_normalization(encode, benchmark, ks=[1])
    record = mantra_record(benchmark, result, None)
    gold = [{"C0000001"}, {"C0000004", "C0000009"}, {"C0000002"}]
    predicted = ["C0000001", "C0000004", "C0000003"]
    expected = naive_scores(predicted, gold)
    assert expected["recall"] == pytest.approx(released_f1(predicted, gold))
    assert record.folds["Medline fr"]["scores"] == pytest.approx(expected)
    assert record.scores == pytest.approx(expected), "English is not in the mean"
    assert record.counts["folds"] == 1
    header, (row, released, *_) = Mantra.table([dataclasses.replace(record, encoder=ENCODER)], {})
    cells = dict(zip(header, released.cells, strict=True))
    assert released.cells[0] == "mantra, hits per pair (released code)"
    score = {name: cell.partition(" ±")[0] for name, cell in cells.items()}
    assert score["Medline fr"] == score["F1"] == "50.0" and row.cells[-1].startswith("57.1 ±")
    assert record.folds["EMEA en"]["scores"]["f1"] == 0
    assert record.folds["Medline fr"]["counts"] == {
        **{"mentions": 3, "annotations": 4, "unreachable": 0}
    }
    assert (record.kind, record.counts["annotations"]) == ("MANTRA GSC", 5)
    # One sub-corpus alone has no folds of its own.
    alone = read_benchmark("mantra", brat / "French", dictionary=DICTIONARY)
    only = mantra_record(alone, evaluate_normalization(encode, alone, ks=[1]), None)
    assert only.scores == pytest.approx(expected) and list(only.folds) == ["Medline fr"]


def test_scores_by_hand():
    assert mantra_scores(0.5, 8, 10) == pytest.approx(
        {"precision": 0.5, "recall": 0.4, "f1": 4 / 9}
    )
    assert mantra_scores(0.0, 8, 10)["f1"] == 0


def test_what_is_drawn_is_scored_alike():
    outcomes = np.array([[1.0, 1], [0, 2], [0.5, 3]])
    drawn = np.array([[1, 1, 1], [3, 0, 1], [0, 2, 0]])
    for counts, found in zip(drawn, measures_drawn(outcomes, drawn), strict=True):
        hits, pairs = counts @ outcomes
        expected = mantra_scores(hits / counts.sum(), counts.sum(), pairs)
        assert found == pytest.approx([expected[name] for name in MEASURES])


def test_the_mean_leaves_english_out(brat):
    benchmark = read_benchmark("mantra", brat, dictionary=DICTIONARY)
    assert benchmark.averaged() == ["Medline fr"]
    english = [dataclasses.replace(fold, name="Medline en") for fold in benchmark.folds]
    both = dataclasses.replace(benchmark, folds=[*english, *benchmark.folds])
    assert both.averaged() == ["Medline fr"]
    assert dataclasses.replace(benchmark, folds=english).averaged() == ["Medline en"]
    assert all(fold.languages == [fold.name[-2:]] * len(fold.mentions) for fold in benchmark.folds)
