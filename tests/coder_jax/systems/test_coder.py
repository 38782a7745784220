"""CODER's objective on a group: against the paper's formulas written out as loops."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from naive_losses import naive

from coder_jax.systems.coder import CoderSystem
from coder_jax.systems.encoder_system import unit_length
from coder_jax.systems.group_losses import (
    Group,
    MultiSimilarity,
    _distance,
    _low_rank_queries,
    _relation_matrices,
    _relation_queries,
    _translated,
    cosine,
    norm,
)
from coder_jax.training.system import OptimizerConfig
from data_pipeline.process import BadInput

LOSS = CoderSystem(mu=0.7, relation=MultiSimilarity(alpha=1.0, beta=20.0, base=0.4, margin=0.2))
U, M, D = 4, 3, 6
K = U * M


def group(seed=0):
    rng = np.random.default_rng(seed)
    head, tail = np.array([0, 1, 2, 0]), np.array([3, 4, 3, 3])  # concepts repeat over triplets
    concepts = np.concatenate([np.repeat(head, M), np.repeat(tail, M)])
    vectors = rng.normal(size=(2 * K, D)).astype(np.float32)
    table = rng.normal(size=(5, D, D)).astype(np.float32)
    return vectors, concepts, np.array([2, 0, 2, 4]), table


def group_loss(vectors, concepts, relations, table, loss):
    """The loss of a group with the queries that its relations give."""
    relations = jnp.asarray(relations)
    heads = jnp.asarray(vectors)[:K].reshape(U, M, D)
    if table.ndim == 3:
        queries = _relation_queries(_relation_matrices(table, relations), relations, heads)
    else:
        queries = (_translated if table.ndim == 2 else _low_rank_queries)(table, relations, heads)
    return loss.group_loss(
        Group(
            vectors=jnp.asarray(vectors),
            concepts=jnp.asarray(concepts),
            relations=relations,
            queries=queries.reshape(K, D),
        )
    )


def cos(a, b):
    return float(a @ b / math.sqrt((a @ a) * (b @ b)))


def paper_loss(vectors, concepts, relations, table, loss):
    """L_MS + mu * L_MS^rel of section 3.3 (or of 5.1, for translations), one pair at a time."""
    vectors, table = vectors.astype(np.float64), table.astype(np.float64)
    similarity = [[cos(a, b) for b in vectors] for a in vectors]
    same = concepts[:, None] == concepts[None, :]
    term, *_ = naive(
        similarity, same & ~np.eye(2 * K, dtype=bool), ~same, **dataclasses.asdict(loss.term)
    )

    def score(i, j):
        of_relation = table[relations[i // M]]
        if table.ndim == 3:
            return cos(of_relation.T @ vectors[i], vectors[K + j])
        return -float(np.linalg.norm(vectors[i] + of_relation - vectors[K + j]))

    related = [[score(i, j) for j in range(K)] for i in range(K) if relations[i // M] >= 0]
    rows = [i for i in range(K) if relations[i // M] >= 0]
    reached = same[K:, K:][rows]
    relation, *_ = naive(related, reached, ~reached, **dataclasses.asdict(loss.relation))
    return term + loss.mu * relation, term, relation


@pytest.mark.parametrize("relations", [[2, 0, 2, 4], [2, -1, 2, -1]])
def test_equals_the_formulas(relations):
    vectors, concepts, _, table = group()
    total, metrics = group_loss(
        jnp.asarray(vectors), jnp.asarray(concepts), jnp.array(relations), jnp.asarray(table), LOSS
    )
    want = paper_loss(vectors, concepts, np.array(relations), table, LOSS)
    got = (total, metrics["loss_term"], metrics["loss_relation"])
    np.testing.assert_allclose(got, want, rtol=2e-5)


@pytest.mark.parametrize("relations", [[2, 0, 2, 4], [2, -1, 2, -1]])
def test_matrices_of_low_rank_equal_the_formulas(relations):
    vectors, concepts, _, _ = group()
    factors = np.random.default_rng(1).normal(size=(5, 2, D, 2)).astype(np.float32)
    table = np.eye(D, dtype=np.float32) + factors[:, 0] @ factors[:, 1].transpose(0, 2, 1)
    total, metrics = group_loss(
        jnp.asarray(vectors),
        jnp.asarray(concepts),
        jnp.array(relations),
        jnp.asarray(factors),
        LOSS,
    )
    want = paper_loss(vectors, concepts, np.array(relations), table, LOSS)
    got = (total, metrics["loss_term"], metrics["loss_relation"])
    np.testing.assert_allclose(got, want, rtol=2e-5)


@pytest.mark.parametrize("relations", [[2, 0, 2, 4], [2, -1, 2, -1]])
def test_equals_the_formulas_of_the_ablation(relations):
    vectors, concepts, _, table = group()
    loss = CoderSystem(
        mu=0.3,
        score="translation",
        relation=MultiSimilarity(alpha=0.2, beta=5.0, base=-3.0, margin=0.1),
    )
    total, metrics = group_loss(vectors, concepts, relations, jnp.asarray(table[:, 0]), loss)
    want = paper_loss(vectors, concepts, np.array(relations), table[:, 0], loss)
    got = (total, metrics["loss_term"], metrics["loss_relation"])
    np.testing.assert_allclose(got, want, rtol=2e-5)


def test_identity_matrices_give_the_similarity_of_heads_and_tails():
    """S_ij is the special case of S^rel_ij with M = I: relation 0 equals no relation at all."""
    vectors, concepts, _, _ = group()
    identity = jnp.eye(D)[None]

    def relation_loss(relations):
        return group_loss(
            jnp.asarray(vectors), jnp.asarray(concepts), jnp.array(relations), identity, LOSS
        )[1]["loss_relation"]

    heads, tails = vectors[:K], vectors[K:]
    same = concepts[K:, None] == concepts[None, K:]
    want, *_ = naive(
        np.asarray(cosine(heads, tails)), same, ~same, **dataclasses.asdict(LOSS.relation)
    )
    assert float(relation_loss([0, 0, 0, 0])) == pytest.approx(want, rel=1e-5)


def test_without_relations_the_table_is_not_touched():
    vectors, concepts, relations, table = group()
    loss = dataclasses.replace(LOSS, mu=0.0)

    def total(table):
        return group_loss(jnp.asarray(vectors), jnp.asarray(concepts), relations, table, loss)[0]

    assert not np.asarray(jax.grad(total)(jnp.asarray(table))).any()
    assert float(total(jnp.asarray(table))) == pytest.approx(
        paper_loss(vectors, concepts, relations, table, loss)[1], rel=2e-5
    )


def test_zero_and_huge_vectors_keep_the_gradient_finite():
    vectors, concepts, relations, table = group()
    vectors[0] = 0
    vectors[1] *= 1e12

    def total(vectors):
        return group_loss(vectors, jnp.asarray(concepts), relations, jnp.asarray(table), LOSS)[0]

    value, gradient = jax.value_and_grad(total)(jnp.asarray(vectors))
    assert np.isfinite(value) and np.isfinite(gradient).all()


def test_translations_have_no_rank():
    system = CoderSystem(relation_rank=4, score="translation")
    with pytest.raises(BadInput, match="--relation-rank is 4 and --score is translation"):
        system.validate(OptimizerConfig())


def test_unit():
    vectors = unit_length(jnp.array([[3.0, 4.0], [0.0, 0.0], [1e-15, 0.0]]))
    np.testing.assert_allclose(vectors, [[0.6, 0.8], [0, 0], [1e-3, 0]], rtol=1e-6)


def test_distance():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5, 8)).astype(np.float32), rng.normal(size=(6, 8)).astype(np.float32)
    want = [[np.linalg.norm(x - y) for y in b] for x in a]
    np.testing.assert_allclose(_distance(jnp.asarray(a), jnp.asarray(b)), want, rtol=1e-5)
    np.testing.assert_allclose(norm(jnp.asarray(a)), [np.linalg.norm(x) for x in a], rtol=1e-6)
    same = jax.grad(lambda x: _distance(x, x).sum() + norm(x - x).sum())(jnp.asarray(a))
    assert np.isfinite(same).all()
