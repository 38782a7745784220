"""Order and random numbers without state, in NumPy: a pure function of a few integers.

The scrambling is that of `order.py` (the finalizer of SplitMix64; Steele, Lea, Flood 2014), so that
the numbers stay the same with every version of NumPy.
"""

import numpy as np


def mix(value: np.ndarray) -> np.ndarray:
    """One-to-one scrambling of uint64: every input bit changes about half of the output bits."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def random_numbers(items: np.ndarray, *parts: int) -> np.ndarray:
    """uint64, a random number for each of some items (integers), named by further integers."""
    hashed = np.zeros(1, np.uint64)
    for part in parts:
        hashed = mix(hashed ^ np.uint64(part))
    return mix(hashed ^ np.asarray(items, np.uint64))


def random_below(sizes: np.ndarray, items: np.ndarray, *parts: int) -> np.ndarray:
    """int64, for each item a random integer in [0, size), for sizes below 2**32.

    Multiply and shift; the bias is under size / 2**32.
    """
    high = random_numbers(items, *parts) >> np.uint64(32)
    return ((high * np.asarray(sizes, np.uint64)) >> np.uint64(32)).astype(np.int64)


def permutation(size: int, *parts: int) -> np.ndarray:
    """int64 [size]: the numbers below `size` in an order that the other integers name."""
    return np.argsort(random_numbers(np.arange(size), *parts), kind="stable")
