"""The implementations of attention that `benchmarks.accelerator.attention` compares.

Shapes: R rows, L tokens per row, H heads, K head width.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from coder_jax.models.bert import MASKED, AttentionMask, attention
from coder_jax.models.bert_config import BertConfig

OURS = "ours"
REFERENCE = "ours, float32"
DROPPED = "ours, with dropout"
_BY_XLA = "jax.nn by XLA"
_BY_CUDNN = "jax.nn by cuDNN"

Way = Callable[[jax.Array, jax.Array, jax.Array, "Beside"], jax.Array]  # [R, L, H, K]


class Beside(NamedTuple):
    """The inputs of attention besides queries, keys and values; arguments, as in a model.

    As constants the compiler would compute with them beforehand.
    """

    seen_R1LL: jax.Array  # bool
    added_R1LL: jax.Array  # float32: 0, or MASKED where a token is not seen
    positions_RL: jax.Array  # int32
    ids_RL: jax.Array  # uint32, of tokens, for dropout
    weights_RLHK: jax.Array  # float32: the gradient is that of the sum of the output times these


class Ways(NamedTuple):
    """The implementations that are compared.

    Attributes:
        all: each by its name.
        given: queries, keys and values of each, float32 or the dtype that is compared; what is
            beside them.
    """

    all: dict[str, Way]
    given: dict[str, tuple[jax.Array, jax.Array, jax.Array, Beside]]


def make_ways(
    segments_RL: np.ndarray, positions_RL: np.ndarray, heads: int, width: int, dtype: str
) -> Ways:
    """The implementations for the rows of a batch, with random queries, keys and values.

    Args:
        segments_RL, positions_RL: of a packed batch, int32.
        heads, width: of the encoder, width = H * K.
        dtype: of the arithmetic.
    """
    config = BertConfig(
        vocab_size=1,
        hidden_size=width,
        num_layers=1,
        num_heads=heads,
        intermediate_size=1,
        max_positions=512,
    )
    shape = (*segments_RL.shape, heads, width // heads)
    q, k, v, weights = (
        jnp.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32))
        for seed in range(4)
    )
    seen_R1LL = jnp.asarray(segments_RL[:, None, :, None] == segments_RL[:, None, None, :])
    beside = Beside(
        seen_R1LL=seen_R1LL,
        added_R1LL=jnp.where(seen_R1LL, 0.0, MASKED),
        positions_RL=jnp.asarray(positions_RL),
        ids_RL=jnp.arange(segments_RL.size, dtype=jnp.uint32).reshape(segments_RL.shape),
        weights_RLHK=weights,
    )

    def in_dtype(other: Any) -> tuple[jax.Array, jax.Array, jax.Array, Beside]:
        return q.astype(other), k.astype(other), v.astype(other), beside

    q, k, v, _ = rounded = in_dtype(dtype)
    exact = in_dtype(jnp.float32)

    def own(dropout: bool) -> Way:
        def attend(q, k, v, beside):
            mask = AttentionMask(beside.added_R1LL)
            ids_RL = beside.ids_RL if dropout else None
            out = attention(config, q, k, v, mask, beside.positions_RL, ids_RL, site=1)
            return out.reshape(q.shape)

        return attend

    def of_jax(implementation: Any) -> Way:
        return lambda q, k, v, beside: jax.nn.dot_product_attention(
            q, k, v, mask=beside.seen_R1LL, implementation=implementation
        )

    ways = {
        OURS: own(False),
        DROPPED: own(True),
        _BY_XLA: of_jax("xla"),
        _BY_CUDNN: of_jax("cudnn"),
        REFERENCE: own(False),
    }
    return Ways(ways, {name: exact if name == REFERENCE else rounded for name in ways})
