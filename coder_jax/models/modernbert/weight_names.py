"""Hugging Face's names of a ModernBERT's weights, and where each goes."""

from __future__ import annotations

from coder_jax.models.hf_files import Weight
from coder_jax.models.modernbert.config import ModernBertConfig

MODERN_ANCHOR = "embeddings.tok_embeddings.weight"  # what tells the prefix of a file's names


def modernbert_names(config: ModernBertConfig) -> list[Weight]:
    """All weights of a ModernBERT, in the order of the network; qkv is fused in files, too."""

    def norm(hf: str, *path: str | int) -> Weight:
        return Weight(f"{hf}.weight", (*path, "scale"))

    def dense(hf: str, *path: str | int) -> Weight:
        return Weight(f"{hf}.weight", (*path, "kernel"), transposed=True)

    table = [
        Weight(MODERN_ANCHOR, ("embeddings", "word", "embedding")),
        norm("embeddings.norm", "embeddings", "norm"),
    ]
    for i in range(config.num_layers):
        hf, ours = f"layers.{i}", ("layers", i)
        table += [norm(f"{hf}.attn_norm", *ours, "attention_norm")] if i else []
        table += [
            dense(f"{hf}.attn.Wqkv", *ours, "qkv"),
            dense(f"{hf}.attn.Wo", *ours, "attention_output"),
            norm(f"{hf}.mlp_norm", *ours, "mlp_norm"),
            dense(f"{hf}.mlp.Wi", *ours, "intermediate"),
            dense(f"{hf}.mlp.Wo", *ours, "output"),
        ]
    return [*table, norm("final_norm", "final_norm")]
