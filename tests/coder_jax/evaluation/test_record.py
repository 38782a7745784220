"""Records of evaluations: what they hold, and what is written as JSON."""

import dataclasses
import json

import numpy as np
import pytest
from evaluating import ENCODER

from coder_jax.evaluation.normalization.accuracy import evaluate_normalization
from coder_jax.evaluation.normalization.benchmark import NormalizationFold, normalization_record
from coder_jax.evaluation.normalization.mentions import Mentions
from coder_jax.evaluation.record import write_records
from coder_jax.evaluation.similarity.spearman import SimilarityResult, similarity_record
from coder_jax.evaluation.similarity.term_pairs import SimilarityBenchmark
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.retired_cuis import RetiredCuis

RETIRED = RetiredCuis({"C0": "C1"}, "MRCUI.RRF")


def record_of(terms=("pain", "fever"), concepts=("C1", "C2"), made_of=Mentions):
    dictionary = Dictionary(list(terms), list(concepts), "toy.tsv", retired=1)
    folds = [
        NormalizationFold(name, ["sore", "hot"], ["C1", gold], dictionary)
        for name, gold in (("one", "C2"), ("two", "C9"))
    ]
    benchmark = made_of("toy", "toy", folds, "hash", 1, RETIRED)

    def encode(strings):
        return np.random.default_rng(0).normal(size=(len(strings), 3)).astype(np.float32)

    return normalization_record(benchmark, evaluate_normalization(encode, benchmark), ENCODER)


def test_json(tmp_path):
    pairs = SimilarityBenchmark("pairs", "p.tsv", ["a", "b"], ["c", "d"], [1, 2], "hash")
    undefined = SimilarityResult(2, {"spearman": None})
    records = [record_of(), similarity_record(pairs, undefined, ENCODER)]
    write_records(tmp_path / "out.json", records)
    assert json.loads((tmp_path / "out.json").read_text()) == {
        "format": "coder_jax evaluation 2",
        "records": [dataclasses.asdict(record) for record in records],
    }
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_nothing_half_written(tmp_path):
    path = tmp_path / "out.json"
    write_records(path, [record_of()])
    before = path.read_text()
    broken = dataclasses.replace(record_of(), scores={"acc@1": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_records(path, [broken])
    assert path.read_text() == before
    with pytest.raises(BadInput, match=r"out.json: cannot be written \(.*\); give another path"):
        write_records(tmp_path / "absent" / "out.json", [record_of()])
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
