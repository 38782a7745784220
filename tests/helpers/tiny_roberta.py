"""An XLM-R of two layers with its unigram tokenizer, as a Hugging Face folder."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from tiny_bert import TERMS, TINY

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]  # in the order of XLM-R's ids
TEXTS = (*TERMS, "infarctus du myocarde", "Überempfindlichkeit", "инфаркт миокарда", "心筋梗塞")
# As XLM-R's config.json: the position table has rows for padding and what stands before it.
CHANGES = {
    **{"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
    **{"type_vocab_size": 1, "layer_norm_eps": 1e-5},
    **{"vocab_size": 120, "max_position_embeddings": 66},
}


@cache
def pieces(texts: tuple[str, ...] = TEXTS) -> list[tuple[str, float]]:
    """Pieces and their scores, trained on some texts."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=110, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(texts * 5, trainer)
    trained = json.loads(tokenizer.to_str())["model"]["vocab"]
    return [*map(tuple, trained), ("<mask>", 0.0)]


def write_tokenizer(folder: Path, texts: tuple[str, ...] = TEXTS) -> None:
    """XLM-R's tokenizer over `pieces`; vocabulary and settings in tokenizer.json."""
    from transformers import XLMRobertaTokenizer

    XLMRobertaTokenizer(vocab=pieces(texts), model_max_length=64).save_pretrained(folder)


def write_model(
    folder: Path,
    model_type: str = "xlm-roberta",
    seed: int = 0,
    texts: tuple[str, ...] = TEXTS,
    **changes,
):
    """A random model of RoBERTa's layout with tokenizer in `folder`; returns transformers' model.

    No weight of it is 0 or 1.
    """
    import torch
    from transformers import AutoConfig, AutoModel

    torch.manual_seed(seed)
    sizes = {k: v for k, v in TINY.to_hf().items() if k not in ("model_type", "architectures")}
    model = AutoModel.from_config(
        AutoConfig.for_model(model_type, **(sizes | CHANGES | changes))
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    folder.mkdir(exist_ok=True)
    model.save_pretrained(folder)
    write_tokenizer(folder, texts)
    return model
