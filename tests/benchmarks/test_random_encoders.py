"""Encoders of random weights: whole folders, in the shapes that are promised."""

import numpy as np
import pytest

from benchmarks import random_encoders
from coder_jax.models.hf_weights import load_bert


@pytest.mark.slow
def test_a_folder_is_read_as_any_bert(tmp_path, monkeypatch):
    sizes = random_encoders._TINY | {"vocab_size": 50}
    monkeypatch.setitem(random_encoders.SHAPES, "tiny", sizes)
    random_encoders.save_random_encoder(tmp_path / "small", "tiny", vocabulary=40)
    random_encoders.save_random_encoder(tmp_path / "large", "tiny", vocabulary=70)
    bert, config, report = load_bert(tmp_path / "large")
    assert (bert.config.hidden_size, bert.config.num_layers, bert.config.vocab_size) == (64, 1, 70)
    assert config["model_type"] == "bert" and bert.pooler is not None
    assert not report.only_in_model and not report.only_in_file
    table = np.asarray(bert.embeddings.word.embedding[...])
    assert np.std(table) == pytest.approx(0.02, rel=0.1)
    assert load_bert(tmp_path / "small")[0].config.vocab_size == 50


def test_the_shapes_are_those_of_the_encoders_they_are_named_after(minilm_path):
    import json

    from coder_jax.models.bert_config import BertConfig

    config = json.loads((minilm_path / "config.json").read_text())
    assert BertConfig(**random_encoders._MINILM) == BertConfig.from_hf(config)
    assert random_encoders.NAMES.keys() == random_encoders.SHAPES.keys()
