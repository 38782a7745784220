"""A BERT of two layers with its tokenizer, as a Hugging Face folder: what tests encode with."""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coder_jax.models.bert_config import BertConfig

WORDS = "acute heart attack pain in limb disease of the chronic renal failure myocardial infarction"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
UNUSED = ["[unused1]", "[unused2]"]  # of BERT's vocabularies; probes of keywords take them
VOCABULARY = [
    *SPECIAL,
    *string.ascii_lowercase + string.digits + ".,()-",
    *(f"##{letter}" for letter in string.ascii_lowercase + string.digits),
    *WORDS.split(),
]
TINY = BertConfig(
    vocab_size=len(VOCABULARY),
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    intermediate_size=48,
    max_positions=64,
    initializer_range=0.2,  # large enough that every weight matters to the vectors
)
TERMS = [
    "heart attack",
    "acute myocardial infarction",
    "pain in limb",
    "",
    "x",
    "chronic renal failure",
    "Heart Attack",
    "pseudopseudohypoparathyroidism",
    "disease of the heart (acute)",
    "µ ☃",
    "pain in limb",
    "the heart of the acute disease of the chronic renal failure of the limb in pain " * 3,
]


def write_tokenizer(folder: Path, more: Sequence[str] = ()) -> None:
    """A lower-casing WordPiece tokenizer with VOCABULARY, and more behind it."""
    pieces = [*VOCABULARY, *more]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 64}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def random_model(seed: int = 0, **changes):
    """A transformers BertModel in eval mode, no weight of which is 0 or 1."""
    import torch
    from transformers import BertConfig as HFConfig
    from transformers import BertModel

    torch.manual_seed(seed)
    model = BertModel(HFConfig(**(TINY.to_hf() | changes))).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def write_model(folder: Path, seed: int = 0, more: Sequence[str] = (), **changes):
    """A random BERT with tokenizer in `folder`; returns the transformers model."""
    folder.mkdir(exist_ok=True)
    model = random_model(seed, **({"vocab_size": len(VOCABULARY) + len(more)} | changes))
    model.save_pretrained(folder)
    write_tokenizer(folder, more)
    return model


def single_row(ids: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One term alone in its row, without any padding: tokens, positions, segments [1, L]."""
    tokens = np.array([ids], np.int32)
    return tokens, np.arange(tokens.shape[1], dtype=np.int32)[None], np.ones_like(tokens)
