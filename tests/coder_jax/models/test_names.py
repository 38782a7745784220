"""The encoder of names: the released size, packed as alone, words without a vector, dropout."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coder_jax.models.names import (
    NameEncoderConfig,
    _bilstm,
    _final_states,
    _lstm_shapes,
    _max_states,
    gate_inputs,
    name_encoder_shapes,
    name_vectors,
    new_name_encoder,
)
from data_pipeline.batches.bne import Alphabet, RowSize, WordTable, numbered, pack_names
from data_pipeline.batches.packing import pack_rows
from data_pipeline.skip_gram.store import StringVectors

NAMES = [
    ["heart", "attack"],
    ["attack"],
    ["zzqy", "heart", "pain", "of", "heart"],
    ["zzqx"],
    ["heart"],
]
ALPHABET = Alphabet.of(["heart", "attack", "pain", "xyzq"])
WIDTH = 6
CONFIG = NameEncoderConfig(alphabet=ALPHABET.size, width=WIDTH, character_width=4, hidden=5)
RNG = np.random.default_rng(0)
VECTORS = StringVectors(
    ["heart", "pain", "attack"], np.ones(3, int), RNG.normal(size=(3, WIDTH)).astype(np.float32)
)


def block_of(names, length=12):
    """Six rows, whatever is needed: one shape to compile."""
    words, tokens, start = numbered(names)
    table = WordTable.of(words, ALPHABET, VECTORS)
    return jax.tree.map(jnp.asarray, pack_names(table, tokens, start, RowSize(length, 2, 4), 6))


@partial(jax.jit, static_argnames=("config", "dropout"))
def encode(params, block, ids=None, *, config, dropout=0.0):
    return name_vectors(config, params, block, 10, dropout_ids_RL=ids, dropout=dropout)


@pytest.fixture(params=["plain", "coupled"])
def encoder(request):
    config = dataclasses.replace(CONFIG, cell=request.param)
    return config, new_name_encoder(config, jax.random.key(3))


def test_the_released_shape_has_its_number_of_parameters():
    """minhcp/BNE, models/BNE_SGw: 81 characters, 200 d; the other two are of the synonym loss."""
    config = NameEncoderConfig(alphabet=Alphabet("x" * 81).size, width=200, cell="coupled")
    sizes = [shape.size for shape in jax.tree.leaves(name_encoder_shapes(config))]
    assert sum(sizes) == 1_350_002 - 2


def test_a_new_encoder_has_the_shapes_that_are_told(encoder):
    config, params = encoder
    told = jax.tree.map(lambda shape: shape.shape, name_encoder_shapes(config))
    assert jax.tree.map(lambda array: array.shape, params) == told
    bias = np.asarray(params["name"]["forward"]["bias"])
    assert bias.sum() == (5 if config.cell == "plain" else 0)
    assert len({float(array.ravel()[0]) for array in jax.tree.leaves(params) if array.any()}) > 5


def test_a_name_is_packed_as_alone(encoder):
    config, params = encoder
    alone = [encode(params, block_of([name]), config=config)[0] for name in NAMES]
    for many, length in ((NAMES, 12), (NAMES[::-1] + NAMES, 12), (NAMES + NAMES, 16)):
        vectors = encode(params, block_of(many, length), config=config)[: len(many)]
        expected = [alone[NAMES.index(name)] for name in many]
        np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert np.ptp(vectors, axis=0).min() > 1e-3


def test_words_without_a_vector_keep_their_characters(encoder):
    config, params = encoder
    vectors = encode(params, block_of([["zzqy"], ["zzqx"], ["yyyy"]]), config=config)
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-4
    assert np.abs(vectors[0] - vectors[2]).max() > 1e-4


def test_all_parameters_that_are_read_learn_and_vectors_of_words_count(encoder):
    """Marks that no name has (</dsw>, », and as words <w> and </w>) do not."""
    config, params = encoder
    block = block_of(NAMES)

    def total(params, vectors):
        made = name_vectors(config, params, block | {"word_vectors": vectors}, len(NAMES))
        return (made**2).sum()

    of_params, of_vectors = jax.jit(jax.grad(total, (0, 1)))(params, block["word_vectors"])
    some = {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.abs(np.asarray(gradient)) > 0
        for path, gradient in jax.tree_util.tree_leaves_with_path(of_params)
    }
    assert some.pop("marks").any(axis=1).tolist() == [False, False, True, True, False, True, False]
    assert (~some.pop("characters").any(axis=1)).nonzero()[0].tolist() == [4, 6]
    assert all(one.mean() > 0.9 for one in some.values()), some
    kinds = np.asarray(block["word_kinds"])
    assert (np.asarray(of_vectors).any(axis=-1) == (kinds == 1)).all()


def test_dropout_follows_the_ids_and_not_the_place(encoder):
    config, params = encoder

    def dropped(block, ids):
        return encode(params, block, ids, config=config, dropout=0.5)[:5]

    def ids_of(block):
        return (block["segments"] * 100 + block["positions"]).astype(jnp.uint32)

    one, other = block_of(NAMES), block_of(NAMES, length=16)
    vectors = dropped(one, ids_of(one))
    np.testing.assert_allclose(vectors, dropped(other, ids_of(other)), atol=1e-6)
    assert np.abs(vectors - dropped(one, ids_of(one) + 1)).max() > 1e-3
    whole = encode(params, one, config=config)[:5]
    assert np.abs(vectors - whole).max() > 1e-3


def test_tanh_is_of_the_linear_projection(encoder):
    config, params = encoder
    block = block_of(NAMES)
    linear = encode(params, block, config=config)
    squashed = encode(params, block, config=dataclasses.replace(config, projection="tanh"))
    np.testing.assert_allclose(squashed, np.tanh(linear), atol=1e-6)


# -------------------------------------------------------------------------------------------------
# Both cells, packed: torch.nn.LSTM, a loop in NumPy, each sequence alone; pooling by loops.

INPUTS, HIDDEN = 5, 7
LENGTHS = [3, 1, 6, 4, 1, 2, 5]
RNG_LSTM = np.random.default_rng(0)


def directions(cell):
    rng = np.random.default_rng(1)
    shapes = _lstm_shapes(INPUTS, HIDDEN, cell)
    return {
        name: {key: rng.normal(0, 0.5, shape.shape) for key, shape in shapes.items()}
        for name in ("forward", "backward")
    }


def packed(row_length):
    """(sequences [length, INPUTS], input [R, L, INPUTS], segments [R, L]); padding is no zero."""
    rng = np.random.default_rng(2)
    sequences = [rng.normal(size=(length, INPUTS)) for length in LENGTHS]
    start = np.cumsum([0, *LENGTHS])
    rows = pack_rows(np.arange(start[-1], dtype=np.int32) + 1, start, row_length)
    values = np.concatenate([np.full((1, INPUTS), 9.0), *sequences])
    return sequences, values[rows["tokens"]], rows["segments"]


def states_of(params, given, segments, cell):
    return _bilstm(params, gate_inputs(params, given, cell), segments, cell)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_loop(direction, sequence, cell, reverse):
    """float64 [length, HIDDEN]: the states of one sequence alone, token by token."""
    h, c = direction.get("hidden", np.zeros(HIDDEN)), direction.get("cell", np.zeros(HIDDEN))
    states = []
    for x in sequence[::-1] if reverse else sequence:
        z = np.concatenate([x, h]) @ direction["kernel"] + direction["bias"]
        if cell == "plain":
            i, f, g, o = np.split(z, 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        else:
            j, f, o = np.split(z, 3)
            c = sigmoid(f + 1) * c + (1 - sigmoid(f + 1)) * np.tanh(j)
        h = sigmoid(o) * np.tanh(c)
        states.append(h)
    return np.array(states[::-1] if reverse else states)


@pytest.mark.parametrize("row_length", [6, 22])
@pytest.mark.parametrize("cell", ["plain", "coupled"])
def test_packed_is_each_sequence_alone(cell, row_length):
    params = directions(cell)
    sequences, given, segments = packed(row_length)
    states = jax.jit(states_of, static_argnames="cell")(
        params, jnp.asarray(given, jnp.float32), jnp.asarray(segments), cell=cell
    )
    last = _final_states(states, jnp.asarray(segments), len(LENGTHS) + 1)
    most = _max_states(jnp.concatenate(states, -1), jnp.asarray(segments), len(LENGTHS) + 1)
    for number, sequence in enumerate(sequences):
        forward = by_loop(params["forward"], sequence, cell, False)
        backward = by_loop(params["backward"], sequence, cell, True)
        here = segments == number + 1
        np.testing.assert_allclose(np.asarray(states[0])[here], forward, atol=1e-5)
        np.testing.assert_allclose(np.asarray(states[1])[here], backward, atol=1e-5)
        np.testing.assert_allclose(last[number], [*forward[-1], *backward[0]], atol=1e-5)
        both = np.concatenate([forward, backward], axis=1)
        np.testing.assert_allclose(most[number], both.max(axis=0), atol=1e-5)
    assert not np.asarray(last[-1]).any() and not np.asarray(most[-1]).any()


@pytest.mark.parity
def test_the_plain_cell_is_that_of_torch():
    """Values and gradients, of all parameters and of the input."""
    import torch

    params = directions("plain")
    theirs = torch.nn.LSTM(INPUTS, HIDDEN, bidirectional=True, batch_first=True)
    with torch.no_grad():
        for name, suffix in (("forward", ""), ("backward", "_reverse")):
            kernel = torch.from_numpy(params[name]["kernel"].T).float()
            getattr(theirs, f"weight_ih_l0{suffix}").copy_(kernel[:, :INPUTS])
            getattr(theirs, f"weight_hh_l0{suffix}").copy_(kernel[:, INPUTS:])
            getattr(theirs, f"bias_ih_l0{suffix}").copy_(torch.from_numpy(params[name]["bias"]))
            getattr(theirs, f"bias_hh_l0{suffix}").zero_()
    sequences, given, segments = packed(8)
    weights = np.random.default_rng(3).normal(size=(len(LENGTHS), 2 * HIDDEN))

    def ours(params, given):
        states = states_of(params, given, jnp.asarray(segments), "plain")
        return (_max_states(jnp.concatenate(states, -1), segments, len(LENGTHS)) * weights).sum()

    value, (of_params, of_input) = jax.jit(jax.value_and_grad(ours, (0, 1)))(
        jax.tree.map(lambda array: jnp.asarray(array, jnp.float32), params),
        jnp.asarray(given, jnp.float32),
    )
    inputs = [
        torch.tensor(sequence[None], dtype=torch.float32, requires_grad=True)
        for sequence in sequences
    ]
    of_each = [
        (theirs(one)[0].amax(dim=1)[0] * torch.from_numpy(weight).float()).sum()
        for one, weight in zip(inputs, weights, strict=True)
    ]
    total = sum(of_each)
    total.backward()
    np.testing.assert_allclose(value, total.item(), rtol=1e-5)
    for name, suffix in (("forward", ""), ("backward", "_reverse")):
        kernel = [getattr(theirs, f"weight_{part}_l0{suffix}").grad for part in ("ih", "hh")]
        expected = torch.cat(kernel, dim=1).T.numpy()
        np.testing.assert_allclose(of_params[name]["kernel"], expected, atol=1e-5)
        bias = getattr(theirs, f"bias_ih_l0{suffix}").grad.numpy()
        np.testing.assert_allclose(of_params[name]["bias"], bias, atol=1e-5)
    for number, one in enumerate(inputs, 1):
        np.testing.assert_allclose(of_input[segments == number], one.grad[0], atol=1e-5)
    assert not np.asarray(of_input)[segments == 0].any()


@pytest.mark.slow
def test_equal_greatest_values_share_the_gradient():
    values = jnp.array([[[1.0], [3.0], [3.0], [7.0]]])
    segments = jnp.array([[1, 1, 1, 2]])
    gradient = jax.grad(lambda given: _max_states(given, segments, 2).sum())(values)
    assert gradient.ravel().tolist() == [0, 0.5, 0.5, 1]
