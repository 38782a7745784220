"""The limits of a machine: they grow with nothing but the machine, and are of the right size."""

import pytest

from benchmarks import limits


def test_rates_count_operations_and_bytes_of_the_fastest_try(monkeypatch):
    """A product of 2 m n k operations and a copy that reads and writes, in half a second each."""
    monkeypatch.setattr(limits, "_fastest", lambda work, seconds: 0.5)
    monkeypatch.setattr(limits, "_SIZES", {"cpu": ((2, 3, 5), (4, 4, 4))})
    monkeypatch.setattr(limits, "_COPIED_BYTES", {"cpu": 1 << 20})
    assert limits._matmul_peak() == 2 * 4 * 4 * 4 / 0.5
    assert limits._copy_bandwidth() == 2 * (1 << 20) / 0.5


def test_both_libraries_do_the_work_that_is_timed(monkeypatch):
    monkeypatch.setattr(limits, "_SIZES", {"cpu": ((2, 3, 5),)})
    monkeypatch.setattr(limits, "_COPIED_BYTES", {"cpu": 64})
    for library in (limits._jax_products, limits._torch_products):
        (((m, n, k), (call, wait)),) = library("float32")
        product = call()
        wait(product)
        assert product.shape == (m, n) and float(product[0, 0]) == k
    for library in (limits._jax_copies, limits._torch_copies):
        ((size, (call, wait)),) = library()
        copied = call()
        wait(copied)
        assert copied.nbytes == size and float(copied.sum()) == size // 4


def test_the_fastest_try_is_taken_per_call(monkeypatch):
    """Calls of 20, 10, 10, ... ms by a clock that only they move: several make up a try."""
    clock = [0.0]
    took = iter([0.02] + [0.01] * 10_000)
    monkeypatch.setattr(limits.time, "perf_counter", lambda: clock[0])

    def call():
        clock[0] += next(took)

    assert limits._fastest((call, lambda _: None), 1.0) == pytest.approx(0.01)


def test_an_unknown_dtype_is_named():
    with pytest.raises(ValueError, match="dtype is 'float64'; expected one of float32, tf32"):
        limits._matmul_peak("float64")
