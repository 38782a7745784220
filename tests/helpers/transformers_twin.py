"""Vectors of packed terms beside those of transformers, each term alone and without padding."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from coder_jax.models.bert import Bert
from coder_jax.models.bert_config import POOLINGS
from data_pipeline.batches.packing import pack_rows


def poolings(bert: Bert) -> tuple[str, ...]:
    """Those that an encoder has, the pooler's last."""
    return POOLINGS if bert.pooler is not None else POOLINGS[:-1]


@partial(jax.jit, static_argnums=4)
def encode(bert, tokens, positions, segments, num_terms):
    """All poolings at once: [pooling, N, D]."""
    packed = tokens, positions, segments, num_terms
    return jnp.stack([bert.term_vectors(*packed, pooling) for pooling in poolings(bert)])


def torch_vectors(model, tokens, start):
    """[pooling, N, D] by transformers, all terms of a length at once, without any padding."""
    import torch

    lengths = np.diff(start)
    vectors = {}
    for length in np.unique(lengths):
        index = np.flatnonzero(lengths == length)
        ids = np.stack([tokens[start[i] : start[i + 1]] for i in index])
        output = model(torch.from_numpy(ids.astype(np.int64)))
        hidden = output.last_hidden_state
        pieces = hidden[:, 1:-1].sum(1) / max(length - 2, 1)
        pooled = [hidden[:, 0], hidden.mean(1), pieces]
        if "pooler_output" in output:
            pooled.append(output.pooler_output)
        vectors |= {int(i): torch.stack(pooled)[:, row] for row, i in enumerate(index)}
    return torch.stack([vectors[i] for i in range(len(lengths))], dim=1)


def check_vectors(bert, model, tokens, start):
    """Asserts that all poolings of packed terms are those of transformers, to 1e-5."""
    import torch

    packed = pack_rows(tokens, start, 128)
    ours = encode(bert, *packed.values(), len(start) - 1)
    with torch.inference_mode():
        theirs = torch_vectors(model, tokens, start).numpy()
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
