"""A ModernBERT of four layers with its byte-level BPE tokenizer, as a Hugging Face folder."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from tiny_bert import TERMS

TEXTS = [*TERMS, "infarctus du myocarde", "Überempfindlichkeit", "инфаркт миокарда", "心筋梗塞"]
WINDOW = 8  # a token sees four on either side in the layers 1 and 2; terms have up to 64
SIZES = {
    **{"vocab_size": 512, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4},
    **{"intermediate_size": 48, "max_position_embeddings": 128, "initializer_range": 0.2},
    **{"local_attention": WINDOW, "global_attn_every_n_layers": 3},
    **{"global_rope_theta": 500.0, "local_rope_theta": 20.0},
}
SPECIAL = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]


@cache
def tokenizer_json() -> str:
    """As that of the published ModernBERTs, with fewer pieces.

    Byte-level BPE after NFC, cased. Behind the learnt pieces are runs of blanks, as added tokens,
    and behind them the special tokens.
    """
    from tokenizers import (
        AddedToken,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["|||IP_ADDRESS|||", "<|padding|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 5, trainer)
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    tokenizer.add_tokens(["|||EMAIL_ADDRESS|||"])
    tokenizer.add_special_tokens(SPECIAL[:-1])
    tokenizer.add_special_tokens([AddedToken("[MASK]", lstrip=True, special=True)])
    tokenizer.add_tokens([f"[unused{n}]" for n in range(3)])
    cls, sep = (tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", cls), ("[SEP]", sep)],
    )
    parts = json.loads(tokenizer.to_str())
    parts["added_tokens"][0] |= {"normalized": True, "special": False}  # of the address
    return json.dumps(parts)


def write_tokenizer(folder: Path) -> None:
    """tokenizer.json, and what the published ModernBERTs have in tokenizer_config.json."""
    (folder / "tokenizer.json").write_text(tokenizer_json(), encoding="utf-8")
    settings = {
        **{f"{name[1:-1].lower()}_token": name for name in SPECIAL},
        **{"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64},
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": True,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def special_ids() -> dict[str, int]:
    """The ids that config.json names."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(tokenizer_json())
    names = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "bos": "[CLS]", "eos": "[SEP]"}
    return {f"{name}_token_id": tokenizer.token_to_id(token) for name, token in names.items()}


def random_model(seed: int = 0, **changes):
    """A transformers ModernBertModel in eval mode, no weight of which is 0 or 1."""
    import torch
    from transformers import ModernBertConfig, ModernBertModel

    torch.manual_seed(seed)
    model = ModernBertModel(ModernBertConfig(**(SIZES | special_ids() | changes))).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def write_model(folder: Path, seed: int = 0, **changes):
    """A random ModernBERT with tokenizer in `folder`; returns transformers' model."""
    folder.mkdir(exist_ok=True)
    model = random_model(seed, **changes)
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return model
