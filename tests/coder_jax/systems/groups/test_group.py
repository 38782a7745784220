"""What a group makes of its masks: shared names, and the drift of similarities, by loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from naive_losses import naive

from coder_jax.systems.coder.objective import CoderSystem
from coder_jax.systems.groups.group import Group, similarity_drift, unpacked_bits

N, D = 10, 4
RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(N, D)).astype(np.float32)
VECTORS[[1, 6]] = VECTORS[[0, 5]] + 0.1  # concepts 0 and 1 are near: hard negatives
CONCEPTS = np.tile(np.arange(N // 2), 2)


def shared():
    """bool [N, N]: concepts 0 and 1 share a name."""
    mask = np.zeros((N, N), bool)
    for one, other in ((0, 1), (1, 0)):
        mask |= (CONCEPTS[:, None] == one) & (CONCEPTS[None] == other)
    return mask


def group(**changes):
    fields = {"vectors": VECTORS, "concepts": CONCEPTS, "relations": -np.ones(N // 2, np.int32)}
    return Group(**jax.tree.map(jnp.asarray, fields | changes))


def cosines(vectors):
    vectors = vectors.astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors @ vectors.T


@pytest.mark.parametrize("terms", [5, 32, 33, 70])
def test_bits_come_out_as_they_went_in(terms):
    wanted = np.random.default_rng(terms).random((2, 3, terms, terms)) < 0.5
    padded = np.zeros((2, 3, terms, -(-terms // 32) * 32), bool)
    padded[..., :terms] = wanted
    bits = padded.reshape(2, 3, -1, 32).astype(np.uint64) << np.arange(32, dtype=np.uint64)
    words = bits.sum(-1).astype(np.uint32).view(np.int32)
    assert (words < 0).any() == (terms >= 32)  # the last bit is the sign
    np.testing.assert_array_equal(unpacked_bits(jnp.asarray(words), terms), wanted)


def test_terms_that_may_share_a_name_are_no_negatives():
    """In the loss on terms, and in that on relations, of whose candidates tails are the columns."""
    system = CoderSystem(mu=0.7)
    queries = VECTORS[N // 2 :] + RNG.normal(size=(N // 2, D)).astype(np.float32) / 5
    relations = np.zeros(N // 2, np.int32)
    masked = group(share_a_name=shared(), queries=queries, relations=relations)
    total, metrics = system.group_loss(masked)
    same = CONCEPTS[:, None] == CONCEPTS[None]
    constants = {"alpha": 2.0, "beta": 50.0, "base": 0.5, "margin": 0.1}
    negative = ~same & ~shared()
    term, *_ = naive(cosines(VECTORS), same & ~np.eye(N, dtype=bool), negative, **constants)
    tails = VECTORS[N // 2 :]
    to_tails = cosines(np.concatenate([queries, tails]))[: N // 2, N // 2 :]
    half = slice(N // 2, None)
    relation, *_ = naive(to_tails, same[half, half], negative[half, half], **constants)
    assert float(metrics["loss_term"]) == pytest.approx(term, abs=1e-5)
    assert float(metrics["loss_relation"]) == pytest.approx(relation, abs=1e-5)
    assert float(total) == pytest.approx(term + 0.7 * relation, abs=1e-5)
    _, unmasked = system.group_loss(group(queries=queries, relations=relations))
    for name in ("loss_term", "loss_relation"):  # or nothing above would tell of the mask
        assert float(unmasked[name]) > float(metrics[name]) + 1e-3


def test_drift_of_similarities():
    """The mean over pairs of different concepts; its slope does not move what was kept."""
    initial = RNG.normal(size=(N, D)).astype(np.float32)
    squares = (cosines(VECTORS) - cosines(initial)) ** 2
    wanted = np.mean(
        [squares[i, j] for i in range(N) for j in range(N) if CONCEPTS[i] != CONCEPTS[j]]
    )
    drift = similarity_drift(group(initial_vectors=initial))
    assert float(drift) == pytest.approx(wanted, abs=1e-6)
    assert float(similarity_drift(group(initial_vectors=3 * VECTORS))) == pytest.approx(0, abs=1e-9)
    slope = jax.grad(lambda kept: similarity_drift(group(initial_vectors=kept)))(initial)
    assert not np.asarray(slope).any()


def test_the_drift_of_a_group_of_one_concept_is_nothing():
    alone = group(concepts=np.zeros(N, np.int32), initial_vectors=2.0 + VECTORS)
    assert float(similarity_drift(alone)) == 0
