"""What vectors are said to be made with: of a real encoder, and the hash of its weights."""

import dataclasses
import hashlib

import jax.numpy as jnp
import pytest

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.encoding.encoder_protocol import encoder_protocol, hash_weights
from data_pipeline.dataset.tokenize_terms import load_tokenizer, tokenizer_hash


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_protocol_of_a_real_encoder(minilm_path, dtype):
    encoder = TermEncoder.from_pretrained(minilm_path, pooling="cls", max_length=24, dtype=dtype)
    assert encoder.bert.dtype == jnp.dtype(dtype)
    assert dataclasses.asdict(encoder_protocol(encoder, "some/model", "1f")) == {
        **{"model": "some/model", "weights_hash": "1f", "pooling": "cls", "max_length": 24},
        **{"attend_padding": False, "lowercases": True, "cleaning": "none", "dtype": dtype},
        "tokenizer_hash": tokenizer_hash(load_tokenizer(minilm_path)),
    }
    encoder.tokenizer.normalizer = None
    assert not encoder_protocol(encoder, "some/model").lowercases


def test_the_hash_of_weights(tmp_path):
    def sha(*parts):
        return hashlib.sha256(b"".join(parts)).hexdigest()

    assert hash_weights(tmp_path) == sha()
    (tmp_path / "pytorch_model.bin").write_bytes(b"torch")
    (tmp_path / "config.json").write_bytes(b"{}")
    assert hash_weights(tmp_path) == sha(b"torch")
    for number in (2, 1):  # in the order of their names
        (tmp_path / f"model-{number}-of-2.safetensors").write_bytes(bytes([number]))
    assert hash_weights(tmp_path) == sha(b"\1", b"\2"), "safetensors before PyTorch's"
