"""Stateless order: the item at place i of an epoch, and the random numbers of a slot.

Everything here is a pure function of its arguments, in NumPy on uint64, so that the batch of any
step can be made at once, on any host, with no shuffle buffer and no iterator to save, and stays the
same with every version of NumPy. Keys are mixed with the finalizer of SplitMix64 (Steele, Lea,
Flood 2014). A permutation of which few places are asked is a Feistel network over two unequal
halves with cycle walking (Black, Rogaway 2002), which permutes exactly [0, size) for any size; a
whole one is the order of random numbers.
"""

import numpy as np
from numpy.typing import ArrayLike

# Each decision that takes random numbers has a stream of its own, so that no two share them.
_STREAMS = {
    name: number
    for number, name in enumerate(
        (
            "permutation",
            "relation",
            "head term",
            "tail term",
            "corrupted tail",
            "corrupted tail term",
        )
    )
}

# Eight rounds mix the halves well even where one of them has only two or three values.
_ROUNDS = 8

# With Python integers NumPy would look up a type at each operation.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST_FACTOR, _SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_BITS_30, _BITS_27, _BITS_31, _BITS_32 = map(np.uint64, (30, 27, 31, 32))


def uint64(value: ArrayLike) -> np.ndarray:
    """`value` as uint64; integers are taken modulo 2**64."""
    if isinstance(value, int):
        value %= 2**64
        return np.array(value, np.uint64)
    return np.asarray(value).astype(np.uint64, copy=False)


def mix(value: ArrayLike) -> np.ndarray:
    """One-to-one scrambling of uint64: every input bit changes about half of the output bits."""
    return _mix_here(np.array(uint64(value)))


def _mix_here(value: np.ndarray) -> np.ndarray:
    """`mix`, in place."""
    value += _GOLDEN
    shifted = np.empty_like(value)
    np.right_shift(value, _BITS_30, out=shifted)
    value ^= shifted
    value *= _FIRST_FACTOR
    np.right_shift(value, _BITS_27, out=shifted)
    value ^= shifted
    value *= _SECOND_FACTOR
    np.right_shift(value, _BITS_31, out=shifted)
    value ^= shifted
    return value


def key(seed: int, stream: str, *parts: ArrayLike) -> np.ndarray:
    """A random uint64 for each element of `parts`, for one named stream.

    The parts are integers or arrays of integers that broadcast.
    """
    hashed = mix(seed * len(_STREAMS) + _STREAMS[stream])
    for part in parts:
        hashed = _mix_here(np.asarray(hashed ^ uint64(part)))
    return hashed


def below(random: np.ndarray, size: ArrayLike) -> np.ndarray:
    """Random uint64 -> uniform int64 in [0, size), for 1 <= size < 2**32.

    Multiply and shift; the bias is under size / 2**32.
    """
    high = np.asarray(random >> _BITS_32) * uint64(size)
    return np.right_shift(high, _BITS_32).astype(np.int64)


def permute(index: np.ndarray, size: int, keys: np.ndarray) -> np.ndarray:
    """The item at place `index` of the permutation of [0, size) that `keys` names.

    Args:
        index: integers in [0, size).
        size: the number of items, from 1 to 2**32.
        keys: uint64, broadcastable to `index`; elements with equal keys belong to the same
            permutation.

    Returns:
        int64, the shape of `index`: for each key a one-to-one map of [0, size) onto itself.
    """
    sides = max(1, round(size**0.5))
    width, height = np.uint64(sides), np.uint64(-(-size // sides))

    def once(value: np.ndarray, keys: np.ndarray) -> np.ndarray:
        right = value // width
        left = value - right * width
        for number in range(_ROUNDS):
            round_key = mix(keys ^ np.uint64(number))
            if number % 2 == 0:
                left += _remainder(_mix_here(round_key ^ right), width)
                left -= width * (left >= width)
            else:
                right += _remainder(_mix_here(round_key ^ left), height)
                right -= height * (right >= height)
        right *= width
        right += left
        return right

    # width * height exceeds size by less than width: few values leave [0, size), and following the
    # cycle brings each of them back in.
    value = once(uint64(index), keys)
    while (outside := value >= np.uint64(size)).any():
        value[outside] = once(value[outside], np.broadcast_to(keys, value.shape)[outside])
    return value.astype(np.int64)


def _remainder(value: np.ndarray, size: np.uint64) -> np.ndarray:
    """`value % size`, computed faster than NumPy does."""
    return value - value // size * size


def distinct_draws(random: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Draw from [0, size) without repeats, as long as there are values that were not drawn.

    A sparse Fisher-Yates shuffle: only the swapped places are kept. After `size` draws a fresh
    round begins.

    Args:
        random: uint64 [T, n], one random number for each draw.
        size: integers [T], each at least 1.

    Returns:
        int64 [T, n]; any `size[t]` consecutive draws of a round in row t are distinct.
    """
    number = np.arange(random.shape[1])[:, None]
    size = np.asarray(size, np.int64)
    # Places are numbered through all rounds, so that no two rounds share one.
    round_start = number - number % size
    place = number + below(random.T, size - (number - round_start))
    # Draw j takes what is at its place and puts there what was at j. `before` and `drawn` are what
    # was at j and at its place: what the last draw with that place has put there, or the place.
    before, drawn = np.broadcast_to(number, place.shape).copy(), place.copy()
    for draw in range(len(place) - 1):
        later = slice(draw + 1, None)
        np.copyto(before[later], before[draw], where=place[draw] == number[later])
        np.copyto(drawn[later], before[draw], where=place[draw] == place[later])
    return (drawn - round_start).T


def _random_numbers(items: ArrayLike, *parts: int) -> np.ndarray:
    """uint64, a random number for each item (integers), determined by further integers."""
    hashed = np.zeros((), np.uint64)
    for part in parts:
        hashed = mix(hashed ^ np.uint64(part))
    return _mix_here(np.asarray(hashed ^ uint64(items)))


def random_below(sizes: ArrayLike, items: ArrayLike, *parts: int) -> np.ndarray:
    """int64: a random integer in [0, size) for each item; sizes must be below 2**32."""
    return below(_random_numbers(items, *parts), sizes)


def permutation(size: int, *parts: int) -> np.ndarray:
    """int64 [size]: the numbers below `size` in an order that the other integers determine."""
    return np.argsort(_random_numbers(np.arange(size), *parts), kind="stable")
