"""Order without state: the item at place i of an epoch, and the random numbers of a slot.

Everything here is a pure function of its arguments, in TensorFlow ops on uint64, so that the batch
of any step can be made at once, on any host, with no shuffle buffer and no iterator to save. Keys
are mixed with the finalizer of SplitMix64 (Steele, Lea, Flood 2014); the permutation is a Feistel
network over two unequal halves with cycle walking (Black, Rogaway 2002), which permutes exactly [0,
size) for any size.
"""

from data_pipeline.dataset.store import tf

# A decision that takes random numbers has its own stream, so that no two decisions share them.
STREAMS = {
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

# Eight rounds mix the halves well even where one of them holds two or three values.
ROUNDS = 8


def uint64(value) -> tf.Tensor:
    """`value` as uint64; Python integers are taken modulo 2**64."""
    if isinstance(value, int):
        return tf.constant(value % 2**64, tf.uint64)
    return tf.cast(value, tf.uint64)


def xor_shift(value: tf.Tensor, bits: int) -> tf.Tensor:
    """`value` xor itself shifted to the right."""
    return tf.bitwise.bitwise_xor(value, tf.bitwise.right_shift(value, uint64(bits)))


def mix(value: tf.Tensor) -> tf.Tensor:
    """One-to-one scrambling of uint64: every input bit changes about half of the output bits."""
    value = value + uint64(0x9E3779B97F4A7C15)
    value = xor_shift(value, 30) * uint64(0xBF58476D1CE4E5B9)
    value = xor_shift(value, 27) * uint64(0x94D049BB133111EB)
    return xor_shift(value, 31)


def key(seed: int, stream: str, *parts) -> tf.Tensor:
    """A random uint64 for each element of `parts`, for one named stream.

    The parts are integers or tensors of integers that broadcast.
    """
    hashed = mix(uint64(seed) * uint64(len(STREAMS)) + uint64(STREAMS[stream]))
    for part in parts:
        hashed = mix(tf.bitwise.bitwise_xor(hashed, uint64(part)))
    return hashed


def below(random: tf.Tensor, size) -> tf.Tensor:
    """Random uint64 -> uniform integer (uint64) in [0, size), for 1 <= size < 2**32.

    Multiply and shift; the bias is under size / 2**32.
    """
    return tf.bitwise.right_shift(
        tf.bitwise.right_shift(random, uint64(32)) * uint64(size), uint64(32)
    )


def permute(index: tf.Tensor, size: int, keys: tf.Tensor) -> tf.Tensor:
    """The item at place `index` of the permutation of [0, size) that `keys` names.

    Args:
        index: integers in [0, size).
        size: the number of items, from 1 to 2**32.
        keys: uint64, broadcastable to `index`; elements with equal keys belong to the same
            permutation.

    Returns:
        uint64, the shape of `index`: for each key a one-to-one map of [0, size) onto itself.
    """
    width = uint64(max(1, round(size**0.5)))
    height = (uint64(size) + width - uint64(1)) // width
    round_keys = [mix(tf.bitwise.bitwise_xor(keys, uint64(number))) for number in range(ROUNDS)]

    def once(value: tf.Tensor) -> tf.Tensor:
        left, right = value % width, value // width
        for number, round_key in enumerate(round_keys):
            if number % 2 == 0:
                left = (left + mix(tf.bitwise.bitwise_xor(round_key, right)) % width) % width
            else:
                right = (right + mix(tf.bitwise.bitwise_xor(round_key, left)) % height) % height
        return right * width + left

    # width * height exceeds size by less than width: few values leave [0, size), and following the
    # cycle brings each of them back in.
    outside = uint64(size)
    return tf.while_loop(
        lambda value: tf.reduce_any(value >= outside),
        lambda value: (tf.where(value >= outside, once(value), value),),
        (once(uint64(index)),),
    )[0]


def distinct_draws(random: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Draw from [0, size) without repeating a value before all of them have been drawn.

    A sparse Fisher-Yates shuffle: only the swapped places are kept. After `size` draws a fresh
    round begins.

    Args:
        random: uint64 [T, n], one random number for each draw.
        size: integers [T], each at least 1.

    Returns:
        uint64 [T, n]; any `size[t]` consecutive draws of a round in row t are distinct.
    """
    size = uint64(size)
    drawn: list[tf.Tensor] = []
    places: list[tf.Tensor] = []  # in the current round, the value at places[i] is values[i]
    values: list[tf.Tensor] = []

    def value_at(place: tf.Tensor, in_round: list[tf.Tensor]) -> tf.Tensor:
        value = place
        for swapped, swapped_value, valid in zip(places, values, in_round, strict=True):
            value = tf.where(tf.logical_and(valid, swapped == place), swapped_value, value)
        return value

    for number in range(random.shape[1]):
        first = uint64(number) % size  # how many were drawn in this round
        in_round = [first > uint64(number - 1 - earlier) for earlier in range(number)]
        place = first + below(random[:, number], size - first)
        drawn.append(value_at(place, in_round))
        values.append(value_at(first, in_round))
        places.append(place)
    return tf.stack(drawn, axis=1)
