"""Records of evaluations: what they hold, and the way to JSON and back."""

import dataclasses
import json

import numpy as np
import pytest

from coder_jax.evaluation.benchmarks import (
    NormalizationBenchmark,
    NormalizationFold,
    SimilarityBenchmark,
)
from coder_jax.evaluation.dictionary import Dictionary
from coder_jax.evaluation.normalization import evaluate_normalization
from coder_jax.evaluation.protocol import (
    EncoderProtocol,
    normalization_record,
    read_records,
    similarity_record,
    write_records,
)
from coder_jax.evaluation.similarity import SimilarityResult
from data_pipeline.errors import BadInput

ENCODER = EncoderProtocol(
    model="toy",
    weights_hash="1f",
    pooling="cls",
    max_length=32,
    attend_padding=False,
    lowercases=True,
    cleaning="none",
    dtype="float32",
)


def record_of(terms=("pain", "fever"), concepts=("C1", "C2")):
    dictionary = Dictionary(list(terms), list(concepts), "toy.tsv")
    folds = [
        NormalizationFold(name, ["sore", "hot"], ["C1", gold], dictionary)
        for name, gold in (("one", "C2"), ("two", "C9"))
    ]
    benchmark = NormalizationBenchmark("toy", "toy", folds, "hash", retired=1)

    def encode(strings):
        return np.random.default_rng(0).normal(size=(len(strings), 3)).astype(np.float32)

    return normalization_record(benchmark, evaluate_normalization(encode, benchmark), ENCODER)


def test_record_names_the_whole_protocol():
    record = record_of()
    assert record.counts == {"mentions": 4, "unreachable": 1, "tied": 0, "retired": 1}
    assert record.dictionary["source"] == "toy.tsv"
    assert (record.dictionary["terms"], record.dictionary["concepts"]) == (2, 2)
    assert record.folds["two"]["counts"]["unreachable"] == 1
    assert record.folds["two"]["dictionary"] == record.dictionary
    assert record.scoring["tie_tolerance"] == 1e-6
    assert record.scoring["folds"] == "unweighted mean over folds"
    assert {"python", "jax", "numpy"} <= record.versions.keys()
    assert record.date.endswith("+00:00")


def test_dictionary_hash_ignores_order_and_sees_a_changed_term():
    first = record_of().dictionary["content_hash"]
    assert record_of(("fever", "pain"), ("C2", "C1")).dictionary["content_hash"] == first
    assert record_of(("pain", "fever", "pain"), ("C1", "C2", "C1")).dictionary["terms"] == 2
    assert record_of(("pain", "Fever")).dictionary["content_hash"] != first
    assert record_of(("pain", "fever"), ("C2", "C1")).dictionary["content_hash"] != first


def test_json_round_trip(tmp_path):
    pairs = SimilarityBenchmark("pairs", "p.tsv", ["a", "b"], ["c", "d"], [1, 2], "hash")
    undefined = SimilarityResult(2, {"spearman": None})
    records = [record_of(), similarity_record(pairs, undefined, ENCODER)]
    write_records(tmp_path / "out.json", records)
    assert read_records(tmp_path / "out.json") == records
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


@pytest.mark.parametrize(
    "content, message",
    [
        ("{", "out.json: cannot be read as JSON"),
        ("[]", "found the format 'list'; expected 'coder_jax evaluation 1'"),
        (json.dumps({"format": "x", "records": []}), "found the format 'x'; expected 'coder_jax"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    (tmp_path / "out.json").write_text(content)
    with pytest.raises(BadInput, match=message):
        read_records(tmp_path / "out.json")
