"""BERT in PyTorch on packed rows, written for speed; a term's vector is its [CLS].

One product for query, key and value; no padding but at the end of rows; and of the last layer only
what [CLS] needs, as nothing else leaves it. Letters of dimensions as in `coder_jax/__init__.py`.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


def _dropout(x: Any, rate: float) -> Any:
    """`F.dropout` in a third of its time on a CPU, with a rate exact to 16 bits.

    Torch draws a float for each element there; a random integer holds the bits of four elements.
    """
    if x.is_cuda or not rate:
        return F.dropout(x, rate)
    dropped = round(rate * 2**16)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)
    return x * (bits >= dropped - 2**15).to(x.dtype).mul_(1 / (1 - dropped / 2**16))


class _Layer(nn.Module):
    """A layer of a transformers BERT, with its weights.

    Args:
        layer: of transformers.
        config: of transformers; its dropout rates are used.
    """

    def __init__(self, layer: Any, config: Any):
        super().__init__()
        own, width = layer.attention.self, config.hidden_size
        self.qkv = nn.Linear(width, 3 * width)
        with torch.no_grad():
            parts = (own.query, own.key, own.value)
            self.qkv.weight.copy_(torch.cat([part.weight for part in parts]))
            self.qkv.bias.copy_(torch.cat([part.bias for part in parts]))
        self.attention_output = layer.attention.output.dense
        self.attention_norm = layer.attention.output.LayerNorm
        self.intermediate = layer.intermediate.dense
        self.output = layer.output.dense
        self.output_norm = layer.output.LayerNorm
        self.heads = config.num_attention_heads
        self.attention_dropout = config.attention_probs_dropout_prob
        self.hidden_dropout = config.hidden_dropout_prob

    def attend(self, q_RHLK: Any, k_RHLK: Any, v_RHLK: Any, same_R1LL: Any) -> Any:
        """[R, H, L, K]; written out on a CPU, where torch has no fused operator with dropout."""
        if q_RHLK.is_cuda:
            return F.scaled_dot_product_attention(
                q_RHLK, k_RHLK, v_RHLK, attn_mask=same_R1LL, dropout_p=self.attention_dropout
            )
        logits_RHLL = (q_RHLK * q_RHLK.shape[-1] ** -0.5) @ k_RHLK.mT
        probs_RHLL = logits_RHLL.masked_fill(~same_R1LL, -1e30).softmax(-1)
        return _dropout(probs_RHLL, self.attention_dropout) @ v_RHLK

    def forward(self, x_RLD: Any, same_R1LL: Any, cls_N: Any = None) -> Any:
        """[R, L, D], or [N, D] of the tokens at the places `cls_N` of the flattened rows."""
        rows, length, width = x_RLD.shape
        qkv_RL3HK = self.qkv(x_RLD).view(rows, length, 3, self.heads, width // self.heads)
        q_RHLK, k_RHLK, v_RHLK = qkv_RL3HK.permute(2, 0, 3, 1, 4).unbind(0)
        mixed_RHLK = self.attend(q_RHLK, k_RHLK, v_RHLK, same_R1LL)
        mixed, x = mixed_RHLK.transpose(1, 2).reshape(rows, length, width), x_RLD
        if cls_N is not None:
            mixed, x = mixed.flatten(0, 1)[cls_N], x.flatten(0, 1)[cls_N]
        x = self.attention_norm(x + _dropout(self.attention_output(mixed), self.hidden_dropout))
        inner = self.output(F.gelu(self.intermediate(x)))
        return self.output_norm(x + _dropout(inner, self.hidden_dropout))


class PackedBert(nn.Module):
    """The encoder of a transformers BERT; takes its parameters over."""

    def __init__(self, bert: Any):
        super().__init__()
        self.word = bert.embeddings.word_embeddings
        self.position = bert.embeddings.position_embeddings
        self.token_type = bert.embeddings.token_type_embeddings
        self.norm = bert.embeddings.LayerNorm
        self.hidden_dropout = bert.config.hidden_dropout_prob
        self.layers = nn.ModuleList(_Layer(layer, bert.config) for layer in bert.encoder.layer)

    def forward(self, tokens_RL: Any, positions_RL: Any, segments_RL: Any, cls_N: Any) -> Any:
        """float [N, D], the vector of the [CLS] at each place of the flattened rows.

        Args:
            tokens_RL: int word pieces.
            positions_RL: int, from 0 in each term.
            segments_RL: int, equal for the tokens of one term.
            cls_N: int, places of the first tokens.
        """
        same_R1LL = (segments_RL[:, :, None] == segments_RL[:, None, :])[:, None]
        embedded_RLD = self.word(tokens_RL) + self.position(positions_RL)
        x_RLD = self.norm(embedded_RLD + self.token_type.weight[0])
        x_RLD = _dropout(x_RLD, self.hidden_dropout)
        for layer in self.layers[:-1]:
            x_RLD = layer(x_RLD, same_R1LL)
        return self.layers[-1](x_RLD, same_R1LL, cls_N)
