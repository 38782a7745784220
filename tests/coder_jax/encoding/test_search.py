"""Exact search: a full sort in NumPy gives the same, whatever blocks and devices, ties by index."""

import jax
import numpy as np
import pytest

from coder_jax.encoding import search as search_module
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.encoding.search import (
    _NOTHING,
    KeptRows,
    _merge_block,
    _merge_blocks,
    _pack,
    _unpack,
    nearest_others,
    search,
)
from data_pipeline import process
from data_pipeline.process import BadInput
from data_pipeline.sources.obo import read_obo


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


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("keys", [513, 3000])
def test_real_numbers_and_negative_similarities(devices, keys):
    rng = np.random.default_rng(0)
    q = rng.normal(size=(33, 24)).astype(np.float32)
    n = -np.abs(rng.normal(size=(keys, 24))).astype(np.float32)
    q = np.abs(q)  # all similarities are below the zeros of padding rows
    similarity, index = search(q, n, 5, block_keys=1024, devices=jax.devices()[:devices])
    expected_similarity, expected_index = by_sorting(q, n, 5)
    np.testing.assert_array_equal(index, expected_index)
    np.testing.assert_allclose(similarity, expected_similarity, rtol=1e-5)


@pytest.mark.parametrize("devices", [1, 2, 3, 8])
@pytest.mark.parametrize("keys", [64, 65, 1000, 1029])
def test_keys_spread_over_devices(devices, keys):
    rng = np.random.default_rng(keys)
    q, n = small_integers(rng, 9, 5), small_integers(rng, keys, 5)
    some = jax.devices()[:devices]
    similarity, index = search(q, n, 33, block_queries=4, block_keys=64, devices=some)
    expected_similarity, expected_index = by_sorting(q, n, 33)
    np.testing.assert_array_equal(index, expected_index)
    np.testing.assert_array_equal(similarity, expected_similarity)


@pytest.mark.parametrize("k", [1, 3, 40])
@pytest.mark.parametrize(
    ("queries", "keys", "block_queries", "block_keys"),
    # Blocks of fewer groups than k and of more; the last one full, cut in a group, a single key.
    [(7, 1000, 4, 64), (9, 4096, 4, 2048), (9, 4097, 8, 2048), (3, 5003, 512, 1024)],
)
def test_one_cpu_equals_a_full_stable_sort(queries, keys, block_queries, block_keys, k):
    rng = np.random.default_rng(queries + keys + k)
    q, n = small_integers(rng, queries, 6), small_integers(rng, keys, 6)
    q[1], n[: keys // 3] = 0, n[0]  # all keys tie; many groups of one value
    one = {"block_queries": block_queries, "block_keys": block_keys, "devices": jax.devices()[:1]}
    similarity, index = search(q, n, k, **one)
    expected_similarity, expected_index = by_sorting(q, n, k)
    np.testing.assert_array_equal(index, expected_index)
    np.testing.assert_array_equal(similarity, expected_similarity.astype(np.float32))
    assert similarity.dtype == np.float32 and index.dtype == np.int64


@pytest.mark.parametrize("rising", [True, False])
def test_one_cpu_where_every_block_is_better_than_those_before_it(rising):
    n = np.linspace(-1, 1, 3000, dtype=np.float32)[:: 1 if rising else -1, None]
    q = np.float32([[1.0], [-2.0]])
    similarity, index = search(q, n, 70, block_keys=256, devices=jax.devices()[:1])
    expected_similarity, expected_index = by_sorting(q, n, 70)
    np.testing.assert_array_equal(index, expected_index)
    np.testing.assert_allclose(similarity, expected_similarity, rtol=1e-6)


@pytest.mark.parametrize("devices", [1, 3])
def test_devices_keep_the_keys_while_they_have_room(monkeypatch, devices):
    keys = np.random.default_rng(0).standard_normal((1029, 24), np.float32)
    copied = []

    class Counted(np.ndarray):
        def __getitem__(self, rows):
            copied.append(rows)
            return np.asarray(self)[rows]

    kept = KeptRows(keys.view(Counted))
    settings = {"block_keys": 64, "devices": jax.devices()[:devices], "products": "bfloat16"}
    room = iter([True] * 2 * devices + [False] * 100)
    monkeypatch.setattr(search_module, "_is_half_free", lambda device: next(room))
    for queries in (keys[:5], keys[7:9]):
        expected = search(queries, keys, 3, **settings)
        before = len(copied)
        found = search(queries, kept, 3, **settings)
        np.testing.assert_array_equal(found, expected)
        copies = len(copied) - before
        blocks = -(-1029 // (64 * devices)) * devices
        assert copies == (blocks if before == 0 else blocks - 2 * devices)


def test_padding_beside_the_last_keys_hides_no_better_group():
    n = np.full((1024 + 70, 1), -2, np.float32)  # below the zeros of padding
    n[1024 + 3] = -1
    similarity, index = search(
        np.ones((1, 1), np.float32), n, 1, block_keys=1024, devices=jax.devices()[:1]
    )
    assert (similarity.item(), index.item()) == (-1, 1027)


def test_packed_keys_sort_by_similarity_and_then_by_index():
    values = np.float32([-np.inf, -2, -1e-45, -0.0, 0.0, 1e-45, 0.5, 0.5, 3, np.inf])
    index = np.array([0, 9, 1, 7, 3, 2, 2**30, 4, 5, 6])
    packed = _pack(values, index)
    order = np.lexsort((index, -values))
    np.testing.assert_array_equal(np.argsort(packed), order)
    similarity, number = _unpack(packed)
    np.testing.assert_array_equal(similarity, values)
    np.testing.assert_array_equal(number, index)
    assert _NOTHING > packed.max()


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(devices, value):
    """Minus infinity where there are not enough other keys; behind them it changes nothing."""
    keys = np.ones((600, 4), np.float32)
    keys[500, 2] = value
    one = {"block_keys": 64, "devices": jax.devices()[:devices]}
    with pytest.raises(BadInput, match="infinite or not a number; expected finite queries"):
        search(keys[:3], keys, 600, **one)
    if value != -np.inf:
        with pytest.raises(BadInput, match="infinite or not a number"):
            search(keys[:3], keys, 1, **one)
    else:
        similarity, index = search(keys[:3], keys, 599, **one)
        assert np.all(similarity == 4) and 500 not in index


@pytest.mark.parametrize("width", [24, 384, 768])
@pytest.mark.parametrize("keys", [257, 1026, 1033, 5000])  # the last block: one key, few, many
def test_devices_change_no_bit_and_equal_keys_tie(width, keys):
    rng = np.random.default_rng(0)
    q, n = (rng.normal(size=(rows, width)).astype(np.float32) for rows in (20, keys))
    n[-1] = n[0]
    q[0] = n[0]
    one = search(q, n, 10, block_keys=256, devices=jax.devices()[:1])
    assert one[0][0, 0] == one[0][0, 1] and one[1][0, :2].tolist() == [0, keys - 1]
    for devices in (2, 7, 8):
        many = search(q, n, 10, block_keys=256, devices=jax.devices()[:devices])
        np.testing.assert_array_equal(many[0], one[0])
        np.testing.assert_array_equal(many[1], one[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_keys_in_a_file_are_read_block_by_block(tmp_path, dtype):
    rng = np.random.default_rng(0)
    q, n = small_integers(rng, 5, 6), small_integers(rng, 1000, 6)
    np.save(tmp_path / "keys.npy", n.astype(dtype))

    class Watched:
        """The file, which says how many rows are asked for at a time."""

        mapped = np.load(tmp_path / "keys.npy", mmap_mode="r")
        ndim, shape, most = mapped.ndim, mapped.shape, 0

        def __len__(self):
            return len(self.mapped)

        def __getitem__(self, rows):
            self.most = max(self.most, rows.stop - rows.start)
            return self.mapped[rows]

    watched = Watched()
    _, index = search(q, watched, 7, block_keys=64)
    np.testing.assert_array_equal(index, by_sorting(q, n, 7)[1])
    assert watched.most == 64


def test_one_program_for_any_number_of_blocks():
    _merge_blocks.clear_cache()
    for keys in (600, 5000, 1025):
        search(np.ones((3, 4), np.float32), np.ones((keys, 4), np.float32), 2, block_keys=64)
    assert _merge_blocks._cache_size() == 1


@pytest.mark.parametrize("as_on_host", [True, False])
def test_only_cpus_are_held_to_the_order_of_the_factors(as_on_host):
    """A barrier costs what the compiler could have fused; accelerators have no bits to equal."""
    arrays = np.ones((2, 4)), np.ones((64, 4)), np.int32([0, 64]), np.ones((2, 3))
    lowered = jax.jit(_merge_block, static_argnums=(5, 6)).lower(
        *map(np.float32, arrays[:2]), arrays[2], np.float32(arrays[3]), np.ones((2, 3), np.int32),
        *(3, as_on_host),
    )  # fmt: skip
    assert ("optimization_barrier" in lowered.as_text()) == as_on_host


def test_it_stops_when_asked(monkeypatch):
    monkeypatch.setattr(process, "_asked", [15])
    with pytest.raises(process.Stopped):
        search(np.ones((1, 4), np.float32), np.ones((5, 4), np.float32), 1)


def test_no_queries_and_unusable_arguments():
    keys = np.zeros((4, 3), np.float32)
    similarity, index = search(np.zeros((0, 3), np.float32), keys, 2)
    assert similarity.shape == index.shape == (0, 2)
    for k in (0, 5):
        with pytest.raises(ValueError, match=f"k is {k}; expected 1 to 4"):
            search(keys, keys, k)
    with pytest.raises(ValueError, match="there are 1073741825 keys; expected at most 1073741824"):
        search(keys, np.broadcast_to(keys[:1], ((1 << 30) + 1, 3)), 1)
    with pytest.raises(ValueError, match=r"\(4, 3\).*\(4, 2\)"):
        search(keys, keys[:, :2], 1)


@pytest.mark.parametrize("rows", [None, np.array([3, 45, 59, 89])])
def test_nearest_others_are_those_of_brute_force(rows):
    vectors = np.random.default_rng(4).normal(size=(90, 16)).astype(np.float32)
    vectors[40:60] = vectors[40]  # more equal ones than k
    similarity, index = nearest_others(vectors, 5, rows)
    exact = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    np.fill_diagonal(exact, -np.inf)
    rows = np.arange(90) if rows is None else rows
    assert index.shape == (len(rows), 5) and not (index == rows[:, None]).any()
    best = -np.sort(-exact[rows], axis=1)[:, :5]
    np.testing.assert_allclose(similarity, best, rtol=1e-5, atol=1e-5)
    taken = np.take_along_axis(exact[rows], index, 1)
    np.testing.assert_allclose(taken, similarity, rtol=1e-5, atol=1e-5)
    for few in (3, 1):
        assert nearest_others(vectors[:few], 5)[1].shape == (few, few - 1), "what there is"


@pytest.mark.parametrize("devices", [1, 2, 8])
@pytest.mark.parametrize(("keys", "k"), [(64, 40), (1029, 5), (1000, 33)])
def test_bfloat16_products_that_are_exact_give_the_full_stable_sort(devices, keys, k):
    rng = np.random.default_rng(keys)
    q, n = small_integers(rng, 9, 5), small_integers(rng, keys, 5)
    one = {"block_queries": 4, "block_keys": 64, "devices": jax.devices()[:devices]}
    similarity, index = search(q, n, k, products="bfloat16", **one)
    expected_similarity, expected_index = by_sorting(q, n, k)
    np.testing.assert_array_equal(index, expected_index)
    np.testing.assert_array_equal(similarity, expected_similarity)


def test_keys_that_differ_in_bfloat16_alone_tie():
    """1 + 2**-8 becomes 1 there, 1 - 2**-8 stays: both keys have 2 in float32, the first less."""
    n = np.float32([[1 + 2**-8, 1 - 2**-8], [1, 1]])
    _, index = search(np.ones((1, 2), np.float32), n, 2, products="bfloat16")
    assert index.tolist() == [[0, 1]]


def test_candidates_of_bfloat16_are_ranked_again_in_float32():
    """Keys so near to each other that bfloat16 orders them by chance; padding is no key."""
    rng = np.random.default_rng(0)
    n = np.concatenate([1 + 1e-4 * rng.normal(size=(20, 16)), -1 + 0 * rng.normal(size=(500, 16))])
    q, n = np.ones((3, 16), np.float32), n.astype(np.float32)
    expected_similarity, expected_index = by_sorting(q, n, 10)
    for block_keys in (64, 1024):
        similarity, index = search(q, n, 10, products="bfloat16", block_keys=block_keys)
        np.testing.assert_array_equal(index, expected_index)
        np.testing.assert_allclose(similarity, expected_similarity, rtol=1e-6)
    # All similarities are below the zeros of padding rows.
    similarity, index = search(-q, n[:20], 15, products="bfloat16", block_keys=32)
    np.testing.assert_array_equal(index, by_sorting(-q, n[:20], 15)[1])


@pytest.mark.slow
def test_bfloat16_misses_few_neighbours_of_real_terms(minilm_path, hpo_path):
    """2,000 names of the HPO: 30 of each; all keys in one block, where most are missed."""
    names = read_obo(hpo_path).atoms.collect()["term"].to_list()[:2000]
    encoder = TermEncoder.from_pretrained(minilm_path, "cls")
    vectors = encoder.encode(list(dict.fromkeys(names)))
    _, exact = nearest_others(vectors, 30)
    similarity, found = nearest_others(vectors, 30, products="bfloat16")
    held = [np.isin(one, other).mean() for one, other in zip(exact, found, strict=True)]
    assert np.mean(held) > 0.9999
    double = vectors.astype(np.float64)
    expected = np.take_along_axis(double @ double.T, found, axis=1)
    np.testing.assert_allclose(similarity, expected, atol=3e-6)  # sums of 384 in float32
