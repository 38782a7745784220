"""Vectors of packed terms beside those of transformers, each term alone and without padding; and
beside those of the same terms packed otherwise.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from coder_jax.models.bert import Bert
from coder_jax.models.bert_config import POOLINGS
from coder_jax.models.hf_weights import _part_of, name_table
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


# Biases of keys, by the names of BERT, MPNet and DistilBERT. Softmax does not change when all keys
# move alike, so that they have no gradient in exact arithmetic.
BIASES_OF_KEYS = ("key.bias", "attn.k.bias", "k_lin.bias")


def check_gradients(bert, model, tokens, start):
    """Asserts that gradients of every weight of an encoder are those of PyTorch; how many it has.

    They are of a loss of the unit vectors of packed rows. PyTorch computes in float64, each term
    alone: its own float32 gradients are off by as much as ours (up to 7e-6). The difference is in
    units of the largest element of each weight's gradient, since single elements are sums of
    thousands of products that cancel.
    """
    import torch

    count = len(start) - 1
    packed = {k: jnp.asarray(v) for k, v in pack_rows(tokens, start, 128).items()}
    size = count, bert.config.hidden_size
    target = np.random.default_rng(0).normal(size=size).astype(np.float32)
    graph, params = nnx.split(bert, nnx.Param)

    @jax.jit
    def gradients(params):
        def loss(params):
            v = nnx.merge(graph, params).term_vectors(*packed.values(), count, "mean")
            return jnp.sum(target * v / jnp.linalg.norm(v, axis=-1, keepdims=True))

        return jax.grad(loss)(params)

    mean = torch_vectors(model, tokens, start)[POOLINGS.index("mean")]
    unit = torch.nn.functional.normalize(mean, dim=-1)
    torch.sum(torch.from_numpy(target).double() * unit).backward()
    theirs = {n: p.grad.numpy() for n, p in model.named_parameters() if "pooler" not in n}
    ours = dict(nnx.to_flat_state(gradients(params)))
    table = name_table(bert.config, pooler=False)
    assert {weight.hf_name for weight in table} == theirs.keys()
    for weight in table:
        mine = np.asarray(_part_of(ours[weight.path][...], weight))
        mine, wanted = mine.T if weight.transposed else mine, theirs[weight.hf_name]
        scale = np.abs(wanted).max()
        if weight.hf_name.endswith(BIASES_OF_KEYS):
            assert np.abs(mine).max() < 1e-5 and scale < 1e-9, weight.hf_name
            continue
        assert np.abs(mine - wanted).max() < 1e-5 * scale, weight.hf_name
        assert scale > 1e-4, weight.hf_name  # the comparison says something
    return len(table)


def check_neighbours(bert, tokens, start):
    """Asserts that other tokens in one term change no vector of the others, to the bit."""
    packed = pack_rows(tokens, start, 128)
    changed = dict(packed, tokens=np.where(packed["segments"] == 4, 5, packed["tokens"]))
    before = encode(bert, *packed.values(), len(start) - 1)
    after = encode(bert, *changed.values(), len(start) - 1)
    same = (np.asarray(before) == np.asarray(after)).all(axis=(0, 2))
    assert same.tolist() == [i != 3 for i in range(len(start) - 1)]


@partial(jax.jit, static_argnums=(4, 5))
def pooled(bert, tokens, positions, segments, num_terms, pooling, ids=None):
    return bert.term_vectors(tokens, positions, segments, num_terms, pooling, ids)


def check_dropout(bert, dropping, tokens, start):
    """Asserts that dropout follows a term wherever it is packed.

    Args:
        bert, dropping: an encoder without dropout, and the same one with it.
        tokens, start: of six terms or more.
    """
    tokens, start = tokens[: start[6]], start[:7]
    order = np.array([3, 0, 5, 4, 2, 1])
    shuffled = np.concatenate([tokens[start[i] : start[i + 1]] for i in order])
    shuffled_start = np.concatenate([[0], np.cumsum(np.diff(start)[order])])
    longest = int(np.diff(start).max())
    first = pack_rows(tokens, start, longest)
    second = pack_rows(shuffled, shuffled_start, longest + 9)

    def ids(packed, number_of_term):
        """One id per token of (term, position), whatever the place in the pack."""
        numbers = np.concatenate([[999], number_of_term])[packed["segments"]]
        return (numbers * 200 + packed["positions"]).astype(np.uint32)

    vectors = pooled(dropping, *first.values(), 6, "mean", ids(first, np.arange(6)))
    moved = pooled(dropping, *second.values(), 6, "mean", ids(second, order))
    np.testing.assert_allclose(vectors[order], moved, rtol=0, atol=1e-5)
    plain = pooled(dropping, *first.values(), 6, "mean")
    assert (np.abs(vectors - plain).max(axis=1) > 1e-2).all()
    np.testing.assert_allclose(plain, pooled(bert, *first.values(), 6, "mean"), atol=1e-6)
