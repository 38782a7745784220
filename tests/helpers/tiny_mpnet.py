"""An MPNet of twelve layers and a DistilBERT of six, narrow, as Hugging Face folders."""

from __future__ import annotations

from pathlib import Path

import tiny_bert
import tiny_roberta

_SIZES = {
    "mpnet": {
        **{"vocab_size": 120, "hidden_size": 32, "num_hidden_layers": 12},
        **{"num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": 130},
        **{"layer_norm_eps": 1e-5, "initializer_range": 0.1},
    },
    "distilbert": {
        **{"vocab_size": len(tiny_bert.VOCABULARY), "dim": 32, "n_layers": 6, "n_heads": 4},
        **{"hidden_dim": 48, "max_position_embeddings": 128, "initializer_range": 0.1},
    },
}


def write_model(folder: Path, kind: str = "mpnet", seed: int = 0, **changes):
    """A random model with tokenizer in `folder`; returns transformers' model.

    No weight of it is 0 or 1. A layer multiplies what goes through it by about as much as in models
    of the usual width (0.11 times the root of 32, and 0.02 times that of 768): with larger weights
    twelve layers would magnify the rounding of float32.
    """
    import torch
    from transformers import AutoConfig, AutoModel

    torch.manual_seed(seed)
    model = AutoModel.from_config(AutoConfig.for_model(kind, **(_SIZES[kind] | changes))).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    folder.mkdir(exist_ok=True)
    model.save_pretrained(folder)
    (tiny_roberta if kind == "mpnet" else tiny_bert).write_tokenizer(folder)
    return model
