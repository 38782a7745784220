"""Exact search: the same as a full sort in NumPy, for all block sizes, with ties by index."""

import numpy as np
import pytest

from coder_jax.search import search


def by_sorting(queries: np.ndarray, keys: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    similarity = queries.astype(np.float64) @ keys.astype(np.float64).T
    index = np.argsort(-similarity, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(similarity, index, axis=1), index


def small_integers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Their dot products are exact in float32, and full of ties."""
    return rng.integers(-2, 3, shape).astype(np.float32)


@pytest.mark.parametrize("k", [1, 3, 40])
@pytest.mark.parametrize(
    ("queries", "keys", "block_queries", "block_keys"),
    [(7, 1000, 4, 128), (5, 4096, 512, 65536), (9, 4097, 4, 2048), (1, 40, 512, 16)],
)
def test_search_equals_a_full_stable_sort(queries, keys, block_queries, block_keys, k):
    rng = np.random.default_rng(queries + keys + k)
    q, n = small_integers(rng, queries, 6), small_integers(rng, keys, 6)
    similarity, index = search(q, n, k, block_queries=block_queries, block_keys=block_keys)
    expected_similarity, expected_index = by_sorting(q, n, k)
    np.testing.assert_array_equal(index, expected_index)
    np.testing.assert_array_equal(similarity, expected_similarity.astype(np.float32))
    assert similarity.dtype == np.float32 and index.dtype == np.int64


def test_real_numbers_and_negative_similarities():
    rng = np.random.default_rng(0)
    q = rng.normal(size=(33, 24)).astype(np.float32)
    n = -np.abs(rng.normal(size=(3000, 24))).astype(np.float32)
    q = np.abs(q)  # all similarities are below the zeros of padding rows
    similarity, index = search(q, n, 5, block_keys=1024)
    expected_similarity, expected_index = by_sorting(q, n, 5)
    np.testing.assert_array_equal(index, expected_index)
    np.testing.assert_allclose(similarity, expected_similarity, rtol=1e-5)


def test_no_queries_and_unusable_arguments():
    keys = np.zeros((4, 3), np.float32)
    similarity, index = search(np.zeros((0, 3), np.float32), keys, 2)
    assert similarity.shape == index.shape == (0, 2)
    for k in (0, 5):
        with pytest.raises(ValueError, match=f"k is {k}; expected 1 to 4"):
            search(keys, keys, k)
    with pytest.raises(ValueError, match=r"\(4, 3\).*\(4, 2\)"):
        search(keys, keys[:, :2], 1)
