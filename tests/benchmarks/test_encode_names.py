"""The benchmark of an encoder of names: three systems, the same strings, one table."""

import json

import pytest
from name_run import config_of, source_of
from quick_benchmark import quicken
from short_run import one_device
from tiny_names import tiny_names, tiny_vectors

from benchmarks import encode_names
from coder_jax.__main__ import main
from coder_jax.training.train import train

ROW = {
    "num_terms": 1000,
    "words": 4000,
    "distinct_words": 900,
    "model": "MiniLM",
    "source": "hp.obo",
    "seconds": {
        encode_names._OURS: 0.5,
        encode_names._BERT: 4.0,
        encode_names._PEER: 10.0,
    },
    "peer": "batch_size 32, float32",
}


def test_the_table_says_how_much_quicker():
    text = encode_names.table([ROW])
    assert "| BNE | 0.50 | 2,000 | 1.0 |" in text
    assert "| BERT | 4.00 | 250 | 8.0 |" in text
    assert "| BERT by sentence-transformers | 10.00 | 100 | 20.0 |" in text
    assert "4,000 words, 900 distinct" in text


@pytest.fixture
def quick(monkeypatch):
    return quicken(monkeypatch, encode_names)


def test_a_bert_is_no_encoder_of_names(minilm_path, quick, capsys):
    assert encode_names.main(["--names", str(minilm_path)]) == 2
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
    report = tmp_path / "names.json"
    arguments = ["--terms", "60", "--rounds", "2", "--batch-sizes", "16", "--json", str(report)]
    assert encode_names.main(["--names", str(export), *arguments]) == 0
    (row,) = json.loads(report.read_text())["rows"]
    assert row["num_terms"] == 60 < row["words"]
    assert [len(taken) for taken in row["rounds"].values()] == [2, 2, 2]
    assert set(encode_names._SETTINGS) <= row.keys()
    assert "| BNE |" in capsys.readouterr().out
