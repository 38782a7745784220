"""CODER v1's objective on a group: against the paper's formulas written out as loops."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from naive_losses import naive

from coder_jax.systems.coder_v1 import CoderV1System
from coder_jax.systems.group_losses import Group, MultiSimilarity, cosine

U, M, D, S = 3, 2, 6, 4
K = U * M
LOSS = CoderV1System(
    mu=0.7, transe_margin=1.5, type_weight=0.3, term=MultiSimilarity(beta=20.0, base=0.4)
)


def random_group(relations=(2, 0, 2), seed=0):
    """A group of 3k terms and the translations of its relations."""
    rng = np.random.default_rng(seed)
    # The second corrupted concept is a head, too; types of it and others: 1, 3 and none.
    concepts = np.repeat([0, 1, 2, 3, 4, 3, 5, 0, 6], M)
    types = np.array([1, 3, -1, 0, 2, 1, -1])[concepts]
    vectors = rng.normal(size=(3 * K, D)).astype(np.float32)
    table = rng.normal(size=(5, D)).astype(np.float32)
    relations = np.array(relations)
    added = np.where(relations[:, None] >= 0, table[relations], 0.0)
    return Group(
        vectors=jnp.asarray(vectors),
        concepts=jnp.asarray(concepts),
        relations=jnp.asarray(relations),
        queries=jnp.asarray(vectors[:K] + np.repeat(added, M, axis=0)),
        types=jnp.asarray(types),
        type_logits=jnp.asarray(rng.normal(size=(3 * K, S)).astype(np.float32)),
    )


def paper_parts(group, loss):
    """L_MS, L_TransE and L_STY of section 3 and of the ablation, term by term."""
    vectors, queries = np.asarray(group.vectors, np.float64), np.asarray(group.queries, np.float64)
    concepts = np.asarray(group.concepts)
    same = concepts[:, None] == concepts[None, :]
    term, *_ = naive(
        np.asarray(cosine(group.vectors, group.vectors)),
        same & ~np.eye(3 * K, dtype=bool),
        ~same,
        **dataclasses.asdict(loss.term),
    )
    transe = [
        max(
            0.0,
            loss.transe_margin
            + math.dist(queries[i], vectors[K + i])
            - math.dist(queries[i], vectors[2 * K + i]),
        )
        for i in range(K)
        if group.relations[i // M] >= 0
    ]
    logits = np.asarray(group.type_logits, np.float64)
    surprise = [
        math.log(sum(math.exp(x) for x in scores)) - scores[kind]
        for scores, kind in zip(logits, np.asarray(group.types), strict=True)
        if kind >= 0
    ]
    return term, np.mean(transe), np.mean(surprise)


@pytest.mark.parametrize("relations", [(2, 0, 2), (2, -1, 4)])
def test_equals_the_formulas(relations):
    group = random_group(relations)
    total, metrics = LOSS.group_loss(group)
    term, transe, types = paper_parts(group, LOSS)
    assert transe > 0.1, "the margin is violated somewhere, or the test shows nothing"
    got = (metrics["loss_term"], metrics["loss_relation"], metrics["loss_type"], total)
    want = (term, transe, types, term + 0.7 * transe + 0.3 * types)
    np.testing.assert_allclose(got, want, rtol=2e-5)


def test_what_is_told_of_the_group():
    group = random_group((2, -1, 4))
    _, metrics = LOSS.group_loss(group)
    vectors, queries = np.asarray(group.vectors), np.asarray(group.queries)
    farther = [
        math.dist(queries[i], vectors[K + i]) < math.dist(queries[i], vectors[2 * K + i])
        for i in (0, 1, 4, 5)
    ]
    assert float(metrics["corrupted_farther"]) == pytest.approx(np.mean(farther))
    types = np.asarray(group.types)
    right = np.asarray(group.type_logits).argmax(1)[types >= 0] == types[types >= 0]
    assert float(metrics["type_accuracy"]) == pytest.approx(np.mean(right))


def test_the_ablations_leave_parts_out():
    group = random_group()
    term, transe, types = paper_parts(group, LOSS)
    without_relations = dataclasses.replace(LOSS, mu=0.0).group_loss(group)[0]
    without_types = dataclasses.replace(LOSS, type_weight=0.0).group_loss(group)[0]
    bare = dataclasses.replace(group, queries=None, type_logits=None)
    assert float(without_relations) == pytest.approx(term + 0.3 * types, rel=2e-5)
    assert float(without_types) == pytest.approx(term + 0.7 * transe, rel=2e-5)
    assert float(LOSS.group_loss(bare)[0]) == pytest.approx(term, rel=2e-5)


def test_a_group_without_relations_or_types_adds_nothing():
    group = random_group((-1, -1, -1))
    group = dataclasses.replace(group, types=jnp.full(3 * K, -1))

    def total(group):
        return LOSS.group_loss(group)[0]

    value, gradient = jax.value_and_grad(total, allow_int=True)(group)
    assert float(value) == pytest.approx(paper_parts(random_group(), LOSS)[0], rel=2e-5)
    assert np.isfinite(gradient.vectors).all() and not np.asarray(gradient.type_logits).any()


def test_the_head_of_types_multiplies_in_float32():
    """An accelerator's products of float32 have less, unless all of it is asked for."""
    _, head = LOSS.heads
    params = {"kernel": jnp.ones((D, S)), "bias": jnp.zeros(S)}
    with jax.default_matmul_precision("default"):
        traced = jax.make_jaxpr(lambda group: head.fill(group, params, None).type_logits)(
            random_group()
        )
    (product,) = [one for one in traced.eqns if one.primitive.name == "dot_general"]
    assert set(product.params["precision"]) == {jax.lax.Precision.HIGHEST}
