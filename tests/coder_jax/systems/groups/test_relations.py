"""The relation table: values against a loop, gradients only where a group touches."""

import jax
import jax.numpy as jnp
import numpy as np

from coder_jax.systems.groups.relations import init_relations, relation_matrices
from coder_jax.systems.groups.relations import relation_queries as queries_of_matrices


def relation_queries(table, relations, heads):
    return queries_of_matrices(relation_matrices(table, relations), relations, heads)


def test_starts_at_the_identity_plus_noise():
    table = init_relations((50, 16, 16), noise=0.01, seed=1)
    assert table.dtype == np.float32
    noise = np.asarray(table) - np.eye(16, dtype=np.float32)
    assert abs(noise.mean()) < 1e-3 and abs(noise.std() - 0.01) < 1e-3
    np.testing.assert_array_equal(table, init_relations((50, 16, 16), noise=0.01, seed=1))
    assert not np.array_equal(table, init_relations((50, 16, 16), noise=0.01, seed=2))


def test_query_is_the_transposed_matrix_times_the_head():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(7, 4, 4)).astype(np.float32)
    heads = rng.normal(size=(3, 2, 4)).astype(np.float32)
    relations = np.array([5, -1, 0])
    queries = relation_queries(jnp.asarray(table), jnp.asarray(relations), jnp.asarray(heads))
    for u, relation in enumerate(relations):
        for j in range(2):
            matrix = np.eye(4) if relation < 0 else table[relation]
            np.testing.assert_allclose(queries[u, j], matrix.T @ heads[u, j], rtol=1e-5, atol=1e-6)


def test_gradient_reaches_touched_matrices_only():
    table = jnp.asarray(init_relations((6, 4, 4), noise=0.1, seed=0))
    heads = jnp.ones((3, 2, 4))
    gradient = jax.grad(lambda t: jnp.sum(relation_queries(t, jnp.array([4, 4, -1]), heads) ** 2))(
        table
    )
    touched = np.abs(np.asarray(gradient)).sum(axis=(1, 2)) > 0
    assert touched.tolist() == [False, False, False, False, True, False]
