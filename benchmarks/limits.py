"""The limits of a machine, measured: its best matrix product, its fastest copy.

What a benchmark prints beside a figure. Both are the best of many tries and of jax and torch, on
the device that each would use by itself; a library that is not installed is left out.

    python -m benchmarks.limits
"""

import argparse
import time
from collections.abc import Callable, Iterator

from benchmarks.command import plain_parser
from benchmarks.machine import machine, one_line
from coder_jax.devices.xla_settings import set_up_xla

_DTYPES = ("float32", "tf32", "bfloat16")
# Large enough to hide a kernel's start, small enough for many tries per second on a CPU.
_SIZES = {
    "cpu": ((1024, 1024, 1024), (2048, 1536, 384), (2048, 2048, 2048)),
    "gpu": ((4096, 4096, 4096), (8192, 8192, 8192), (16384, 3072, 768), (16384, 8192, 8192)),
}
_COPIED_BYTES = {"cpu": 1 << 28, "gpu": 1 << 31}
_SECONDS = 2.0  # to try each shape with each library
_SHORTEST_TRY = 0.05  # seconds; of several calls where one takes less

_Work = tuple[Callable[[], object], Callable[[object], None]]  # do it; wait for what it gave


def _matmul_peak(dtype: str = "float32", *, seconds: float = _SECONDS) -> float:
    """Floating-point operations per second of the fastest matrix product, 2 m n k each.

    Args:
        dtype: of the factors, float32, tf32 (float32 factors that a GPU's tensor cores may round;
            elsewhere the same as float32) or bfloat16.
        seconds: to try each shape with each library.

    Raises:
        ValueError: any other dtype.
    """
    if dtype not in _DTYPES:
        raise ValueError(f"dtype is {dtype!r}; expected one of {', '.join(_DTYPES)}")
    return max(
        2 * m * n * k / _fastest(work, seconds)
        for library in (_jax_products, _torch_products)
        for (m, n, k), work in library(dtype)
    )


def _copy_bandwidth(*, seconds: float = _SECONDS) -> float:
    """Memory bandwidth: bytes read and written per second while a large array is copied."""
    return max(
        2 * size / _fastest(work, seconds)
        for library in (_jax_copies, _torch_copies)
        for size, work in library()
    )


def measured(dtype: str, seconds: float = _SECONDS) -> dict[str, float]:
    """Both, as a row of results holds them."""
    return {
        "peak_flops": _matmul_peak(dtype, seconds=seconds),
        "copy_bytes_per_s": _copy_bandwidth(seconds=seconds),
    }


def add_limit_seconds(parser: argparse.ArgumentParser) -> None:
    """Adds the flag for how long limits are measured."""
    parser.add_argument(
        "--limit-seconds",
        type=float,
        default=_SECONDS,
        help="to try each product and copy for the limits below the table (default: %(default)s)",
    )


def _fastest(work: _Work, seconds: float) -> float:
    """The seconds of the fastest try."""
    call, wait = work
    wait(call())
    calls, best, begun = 1, float("inf"), time.perf_counter()
    while time.perf_counter() - begun < seconds or best == float("inf"):
        started = time.perf_counter()
        for _ in range(calls):
            last = call()
        wait(last)
        taken = time.perf_counter() - started
        if taken < _SHORTEST_TRY:
            calls *= 2  # too short to count: the clock and the start of the calls weigh
        if taken >= _SHORTEST_TRY or time.perf_counter() - begun >= seconds:
            best = min(best, taken / calls)
    return best


def _jax_products(dtype: str) -> Iterator[tuple[tuple[int, int, int], _Work]]:
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return
    exact = jax.lax.Precision.HIGHEST if dtype == "float32" else jax.lax.Precision.DEFAULT
    kind = jnp.bfloat16 if dtype == "bfloat16" else jnp.float32
    product = jax.jit(lambda a, b: jnp.matmul(a, b, precision=exact))
    for m, n, k in _SIZES[_platform(jax.default_backend())]:
        a, b = jnp.ones((m, k), kind), jnp.ones((k, n), kind)
        yield (m, n, k), (lambda a=a, b=b: product(a, b), jax.block_until_ready)  # type: ignore[misc]


def _torch_products(dtype: str) -> Iterator[tuple[tuple[int, int, int], _Work]]:
    try:
        import torch
    except ImportError:
        return
    device, wait = _torch_device()
    kind = torch.bfloat16 if dtype == "bfloat16" else torch.float32
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    try:
        for m, n, k in _SIZES[_platform(device)]:
            a = torch.ones((m, k), dtype=kind, device=device)
            b = torch.ones((k, n), dtype=kind, device=device)
            out = torch.empty((m, n), dtype=kind, device=device)
            yield (m, n, k), (lambda a=a, b=b, out=out: torch.mm(a, b, out=out), wait)  # type: ignore[misc]
    finally:
        torch.set_float32_matmul_precision(before)


def _jax_copies() -> Iterator[tuple[int, _Work]]:
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return
    size = _COPIED_BYTES[_platform(jax.default_backend())]
    source = jnp.ones(size // 4, jnp.float32)
    copy = jax.jit(jnp.copy)
    yield size, (lambda: copy(source), jax.block_until_ready)


def _torch_copies() -> Iterator[tuple[int, _Work]]:
    try:
        import torch
    except ImportError:
        return
    device, wait = _torch_device()
    size = _COPIED_BYTES[_platform(device)]
    source = torch.ones(size // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    yield size, (lambda: target.copy_(source), wait)


def _torch_device() -> tuple[str, Callable[[object], None]]:
    import torch

    if torch.cuda.is_available():
        return "cuda", lambda _: torch.cuda.synchronize()
    return "cpu", lambda _: None


def _platform(name: str) -> str:
    return "cpu" if name == "cpu" else "gpu"


def main() -> None:
    """Prints the limits of this machine."""
    parser = plain_parser("limits", __doc__)
    parser.parse_args()
    set_up_xla()  # the limits of what the other commands run with
    before = machine()
    print("| limit | measured |\n|---|---:|")
    for dtype in _DTYPES:
        print(f"| matrix product, {dtype}, GFLOP/s | {_matmul_peak(dtype) / 1e9:,.0f} |")
    print(f"| copy, GB/s read and written | {_copy_bandwidth() / 1e9:,.1f} |")
    print(f"\n{one_line(before)}")


if __name__ == "__main__":
    main()
