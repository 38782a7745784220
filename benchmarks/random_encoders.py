"""Encoders of known shapes with random weights, for machines without access to real weights."""

import json
from pathlib import Path
from typing import Any

from benchmarks.step_cost import BASE

# The shape of all-MiniLM-L6-v2, from which the demo starts.
_MINILM: dict[str, Any] = BASE | {
    "hidden_size": 384,
    "num_layers": 6,
    "intermediate_size": 1536,
}
# A shape for trials, which compiles in seconds.
_TINY: dict[str, Any] = BASE | {
    "hidden_size": 64,
    "num_layers": 1,
    "num_heads": 4,
    "intermediate_size": 128,
}
SHAPES = {"base": BASE, "minilm": _MINILM, "tiny": _TINY}
# In words.
NAMES = {"base": "BERT-base", "minilm": "MiniLM's shape", "tiny": "a tiny BERT"}


def save_random_encoder(folder: Path, shape: str, vocabulary: int = 0) -> None:
    """Writes a BERT of random weights, with pooler, as a Hugging Face folder without a tokenizer.

    Args:
        folder: is made.
        shape: a key of SHAPES.
        vocabulary: word pieces of the tokenizer that it is for; the table has at least as many
            rows.
    """
    from safetensors.numpy import save_file

    from coder_jax.models.bert_config import BertConfig
    from coder_jax.models.hf_weights import random_bert, to_hf

    sizes = SHAPES[shape]
    config = BertConfig(**sizes | {"vocab_size": max(vocabulary, sizes["vocab_size"])})
    folder.mkdir(parents=True, exist_ok=True)
    tensors = to_hf(random_bert(config, seed=0))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config.to_hf(), indent=2), encoding="utf-8")
