"""The loss over first numbers of vectors (--matryoshka), of CODER and SapBERT, against loops in
NumPy."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from short_run import config
from tiny_bert import TINY

from coder_jax.devices.mesh import make_mesh
from coder_jax.systems.coder import CoderSystem
from coder_jax.systems.coderpp import CoderPlusPlusSystem
from coder_jax.systems.encoder_system import term_vectors
from coder_jax.systems.group_losses import MultiSimilarity
from coder_jax.systems.sapbert import SapBertSystem
from coder_jax.training.system import StepKey
from data_pipeline.process import BadInput

TERM = MultiSimilarity(alpha=2.0, beta=10.0, base=0.4, margin=0.3)


def cosines(vectors):
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit @ unit.T


def coder_keeps(pos, neg, i, s, margin):
    """The mined pairs of an anchor by the rule of the multi-similarity loss."""
    kept = [j for j in pos if neg and s[i, j] < max(s[i, n] for n in neg) + margin]
    hard = [n for n in neg if pos and s[i, n] > min(s[i, j] for j in pos) - margin]
    return kept, hard


def sapbert_keeps(pos, neg, i, s, margin):
    """Those of the triplets in which the negative is not farther by a margin."""

    def distance(j):
        return math.sqrt(max(2 - 2 * s[i, j], 0))

    kept = [j for j in pos if any(distance(n) - distance(j) <= margin for n in neg)]
    hard = [n for n in neg if any(distance(n) - distance(j) <= margin for j in pos)]
    return kept, hard


def by_hand(vectors, concepts, term, keeps):
    """L = mean of log(1 + sum e^(-a (S - l))) / a + log(1 + sum e^(b (S - l))) / b."""
    s, total, n = cosines(vectors.astype(np.float64)), 0.0, len(concepts)
    for i in range(n):
        others = [j for j in range(n) if j != i]
        pos = [j for j in others if concepts[j] == concepts[i]]
        neg = [j for j in others if concepts[j] != concepts[i]]
        kept, hard = keeps(pos, neg, i, s, term.margin)
        near = sum(math.exp(-term.alpha * (s[i, j] - term.base)) for j in kept)
        far = sum(math.exp(term.beta * (s[i, j] - term.base)) for j in hard)
        total += math.log1p(near) / term.alpha + math.log1p(far) / term.beta
    return total / n


def is_clear(vectors, concepts, margin, keeps):
    """Whether rounding decides about no pair: the same are mined at margins a little off."""
    s, n = cosines(vectors.astype(np.float64)), len(concepts)
    for i in range(n):
        pos = [j for j in range(n) if j != i and concepts[j] == concepts[i]]
        neg = [j for j in range(n) if concepts[j] != concepts[i]]
        less, more = (keeps(pos, neg, i, s, margin + off) for off in (-2e-3, 2e-3))
        if less != more:
            return False
    return True


def value(system, source, step=0):
    """The loss of a step, its metrics and its vectors [B, G, N, D], without dropout."""
    system = dataclasses.replace(system, model=dataclasses.replace(system.model, dropout=0.0))
    start, params = system.load_initial(source)
    mesh = make_mesh(1, jax.devices()[:1])
    batch = {name: jnp.asarray(array[0]) for name, array in source.batch(step).items()}
    where = StepKey(step=jnp.int32(step), number=jnp.int32(0))
    loss = system.loss(start, mesh)
    total, (_, metrics) = loss(params, {}, batch, where)
    from coder_jax.models.bert import merge_encoder, split_encoder

    bert = merge_encoder(split_encoder(system.structure(start))[0], params["encoder"])
    vectors = term_vectors(bert, batch, where, mesh, system.model.pooling, 0)
    return float(total), metrics, np.asarray(vectors[0]), np.asarray(batch["concepts"][0])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [CoderSystem, SapBertSystem])
def test_widths_are_a_sum_over_first_numbers(kind, model, source):
    plain = kind(model=config(model, "x").system.model, batch=source.spec, term=TERM)
    if kind is CoderSystem:
        plain = dataclasses.replace(plain, mu=0.0)
    keeps = coder_keeps if kind is CoderSystem else sapbert_keeps
    system = dataclasses.replace(plain, matryoshka=(32, 8, 3)).resolved()
    widths = system.matryoshka
    for step in range(50):
        total, metrics, vectors, concepts = value(system, source, step)
        parts = [vectors[g, :, :width] for g in (0, 1) for width in widths]
        groups = [concepts[g] for g in (0, 1) for _ in widths]
        if all(is_clear(*group, TERM.margin, keeps) for group in zip(parts, groups, strict=True)):
            break
    else:
        pytest.fail("rounding decides in all steps")
    want = {
        width: np.mean([by_hand(vectors[g, :, :width], concepts[g], TERM, keeps) for g in (0, 1)])
        for width in widths
    }
    assert total == pytest.approx(sum(want.values()), rel=1e-4)
    for width, loss in want.items():
        assert float(metrics[f"loss_first_{width}"]) == pytest.approx(loss, rel=1e-4)
    assert float(metrics["loss_term"]) == pytest.approx(want[32], rel=1e-4)
    alone, *_ = value(plain.resolved(), source, step)
    assert alone == pytest.approx(want[32], rel=1e-4)
    assert system.hyperparameters()["matryoshka"] == "32, 8, 3"


@pytest.mark.slow
def test_widths_with_relations(model, source):
    """The queries of relations are cut as the vectors are."""
    plain = config(model, "x").system
    still = dataclasses.replace(plain.model, dropout=0.0)
    system = dataclasses.replace(plain, model=still, mu=0.5, relation_noise=0.0).resolved()
    start, params = system.load_initial(source)
    shapes, _ = system.shapes(start)
    params |= system.init_params(shapes, {})[0]
    mesh = make_mesh(1, jax.devices()[:1])
    batch = {name: jnp.asarray(array[0]) for name, array in source.batch(0).items()}
    where = StepKey(step=jnp.int32(0), number=jnp.int32(0))

    def found(widths):
        own = dataclasses.replace(system, matryoshka=widths)
        return float(own.loss(start, mesh)(params, {}, batch, where)[0])

    assert found((32, 8)) == pytest.approx(found((32,)) + found((8,)), rel=1e-5)
    assert found((32,)) == pytest.approx(found(()), rel=1e-6)


@pytest.mark.parametrize("widths", [(8, 8), (0,), (16, -1)])
@pytest.mark.parametrize("kind", [CoderSystem, SapBertSystem, CoderPlusPlusSystem])
def test_widths_that_are_none(kind, widths, source):
    system = kind(matryoshka=widths)
    with pytest.raises(BadInput, match="--matryoshka is .*; expected different numbers of 1 or"):
        system.validate(config("x", "y").optimizer)


def test_a_width_beyond_the_vectors(model, source):
    system = dataclasses.replace(config(model, "x").system, matryoshka=(TINY.hidden_size + 1,))
    start, _ = system.resolved().load_initial(source)
    with pytest.raises(BadInput, match="--matryoshka has 33, but the vectors .* have 32 numbers"):
        system.resolved().loss(start, make_mesh(1, jax.devices()[:1]))
