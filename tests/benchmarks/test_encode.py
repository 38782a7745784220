"""The benchmark of encoding: the same terms, the same vectors, and a table of both rates."""

import argparse
import dataclasses
import json

import numpy as np
import pytest
from name_run import config_of, source_of
from quick_benchmark import quicken
from short_run import one_device
from tiny_names import tiny_names, tiny_vectors

from benchmarks import encode
from benchmarks.encode_peer import Variant, variants
from benchmarks.rounds import alternate, medians
from coder_jax.__main__ import main
from coder_jax.encoding.readers import ONNX_FILES
from coder_jax.models.bert_config import BertConfig, encoder_flops
from coder_jax.models.modernbert import ModernBertConfig
from coder_jax.training.train import train
from data_pipeline.process import BadInput

ROW = {
    "num_terms": 1000,
    "dtype": "float32",
    "seconds": {"coder_jax": 2.0, "sentence-transformers": 5.0, "BNE": 0.5},
    "flops": 2e11,
    "peak_flops": 4e11,
    "copy_bytes_per_s": 2e10,
    "peer": "batch_size 32, float32",
    "source": "hp.obo",
    "tokens": 9000,
    "longest": 40,
    "pooling": "mean",
    "max_difference": 3e-7,
    "least_cosine": {"coder_jax, --backend onnx": 0.999},
    "cold_s": 4.0,
    "tokenize_s": 0.1,
    "device": "cpu",
}


def test_the_table_has_rates_shares_and_the_ratio():
    text = encode.table([ROW])
    assert "| coder_jax | 2.00 | 500 | 100 | 25% |" in text
    name = "sentence-transformers (batch_size 32, float32)"
    assert f"| {name} | 5.00 | 200 | 40 | 10% |" in text
    assert "| BNE | 0.50 | 2,000 | - | - |" in text
    assert "coder_jax, --backend onnx: cosine to the vectors of coder_jax at least 0.999" in text
    assert "2.50 times as fast" in text and "at most 3e-07" in text


def test_useful_flops_by_hand():
    bert = BertConfig(
        vocab_size=9,
        hidden_size=4,
        num_layers=3,
        num_heads=2,
        intermediate_size=8,
        max_positions=16,
    )
    # One token: query, key, value, output (4 x 4 x 4), two of 4 x 8, twice 4 of attention.
    assert encoder_flops(bert, np.array([1])) == 3 * 2 * (64 + 64 + 8)
    assert encoder_flops(bert, np.array([2, 1])) == 3 * 2 * (3 * 128 + (4 + 1) * 8)
    sizes = dataclasses.asdict(bert) | {"model_type": "modernbert", "pad_token_id": 0}
    gated = ModernBertConfig(**sizes, layer_types=("full_attention",) * 3)
    # Three of 4 x 8: those of the gates too.
    assert encoder_flops(gated, np.array([1])) == 3 * 2 * (64 + 96 + 8)


@pytest.mark.slow
def test_terms_come_from_a_file_an_ontology_or_the_default(tmp_path, hpo_path):
    (tmp_path / "terms.txt").write_text("pain\nlimb\npain\n", encoding="utf-8")
    assert encode.read_benchmark_terms(tmp_path / "terms.txt") == (["pain", "limb"], "terms.txt")
    terms, name = encode.read_benchmark_terms(None)
    assert name == "hp.obo" and len(terms) == len(set(terms)) > 30_000
    assert encode.read_benchmark_terms(hpo_path) == (terms, name)
    assert encode.sample(terms, 5) == encode.sample(terms, 5) != terms[:5]
    assert encode.sample(["pain"], 5) == ["pain"]
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(BadInput, match=r"empty.txt: found no terms"):
        encode.read_benchmark_terms(tmp_path / "empty.txt")


def test_variants_of_the_rival():
    args = argparse.Namespace(dtype="float32", compile=False, batch_sizes=[8, 16])
    assert variants(args) == [Variant(8, "float32", False), Variant(16, "float32", False)]
    args = argparse.Namespace(dtype="bfloat16", compile=True, batch_sizes=[8])
    assert [str(variant) for variant in variants(args)] == [
        "batch_size 8, bfloat16",
        "batch_size 8, bfloat16, compiled",
        "batch_size 8, float16",
        "batch_size 8, float16, compiled",
    ]


def test_rivals_take_turns():
    calls = []
    systems = {name: lambda name=name: calls.append(name) for name in "abc"}
    seconds = alternate(systems, 3)
    assert "".join(calls) == "abcbcacab"
    assert {name: len(taken) for name, taken in seconds.items()} == {"a": 3, "b": 3, "c": 3}
    assert medians({"a": [3.0, 1.0, 2.0]}) == {"a": 2.0}


def test_vectors_that_differ_by_more_than_rounding_are_an_error():
    ours = np.float32([[0.6, 0.8]])
    assert encode._check_same(ours, ours + np.float32(0.01), "bfloat16") == pytest.approx(0.01)
    for theirs, dtype in (
        (ours + 0.01, "float32"),
        (ours + 0.1, "bfloat16"),
        (ours * np.nan, "float32"),
    ):
        with pytest.raises(BadInput, match="the vectors differ by up to"):
            encode._check_same(ours, theirs, dtype)


@pytest.fixture
def quick(monkeypatch):
    return quicken(monkeypatch, encode)


def test_a_bert_is_no_encoder_of_names(minilm_path, quick, capsys):
    assert encode.main(["--names", str(minilm_path)]) == 2
    assert "found a BERT; expected an export of BNE" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command(tmp_path, minilm_path, hpo_path, quick, capsys):
    pytest.importorskip("sentence_transformers")
    tiny_vectors(tmp_path / "vectors")
    names = tiny_names(tmp_path)
    config = config_of(names, tmp_path / "run")
    with one_device():
        train(config, source_of(config, names))
    export = tmp_path / "export"
    assert main(["export", "--checkpoint", str(tmp_path / "run"), "--out", str(export)]) == 0
    report = tmp_path / "encode.json"
    arguments = ["--terms", "60", "--rounds", "2", "--batch-sizes", "16", "--json", str(report)]
    arguments += ["--onnx", "--names", str(export)]
    assert encode.main(arguments) == 0
    (row,) = json.loads(report.read_text())["rows"]
    assert row["max_difference"] < 1e-5 and row["num_terms"] == 60
    assert set(encode._SETTINGS) <= row.keys()
    assert quick == ["glibc.malloc.hugetlb=1", "set up"]
    assert len(row["rounds"]["coder_jax"]) == 2 and row["cold_s"] > 0
    assert len(row["rounds"]["BNE"]) == 2 and "BNE" not in row["least_cosine"]
    exact, small = (row["least_cosine"][f"coder_jax, --backend {one}"] for one in ONNX_FILES)
    assert exact > 1 - 1e-5 > small > 0.9
    assert "sentence-transformers (batch_size 16, float32)" in capsys.readouterr().out


@pytest.mark.slow
def test_other_vectors_are_an_error(tmp_path, minilm_path, quick, monkeypatch, capsys):
    pytest.importorskip("sentence_transformers")
    terms = tmp_path / "terms.txt"
    terms.write_text("".join(f"pain of {number}\n" for number in range(60)), encoding="utf-8")
    monkeypatch.setattr("benchmarks.encode_peer.Peer.encode", lambda *_: np.ones((60, 384)))
    arguments = ["--data", str(terms), "--terms", "60", "--rounds", "1", "--batch-sizes", "16"]
    assert encode.main(arguments) == 2
    assert "the vectors differ by up to" in capsys.readouterr().err
