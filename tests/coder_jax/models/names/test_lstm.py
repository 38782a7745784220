"""Both cells, packed: torch.nn.LSTM, a loop in NumPy, each sequence alone; pooling by loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coder_jax.models.names.lstm import bilstm, final_states, gate_inputs, lstm_shapes, max_states
from data_pipeline.batches.packing import pack_rows

INPUTS, HIDDEN = 5, 7
LENGTHS = [3, 1, 6, 4, 1, 2, 5]
RNG = np.random.default_rng(0)


def directions(cell):
    rng = np.random.default_rng(1)
    shapes = lstm_shapes(INPUTS, HIDDEN, cell)
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
    return bilstm(params, gate_inputs(params, given, cell), segments, cell)


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
    last = final_states(states, jnp.asarray(segments), len(LENGTHS) + 1)
    most = max_states(jnp.concatenate(states, -1), jnp.asarray(segments), len(LENGTHS) + 1)
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
        return (max_states(jnp.concatenate(states, -1), segments, len(LENGTHS)) * weights).sum()

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


def test_equal_greatest_values_share_the_gradient():
    values = jnp.array([[[1.0], [3.0], [3.0], [7.0]]])
    segments = jnp.array([[1, 1, 1, 2]])
    gradient = jax.grad(lambda given: max_states(given, segments, 2).sum())(values)
    assert gradient.ravel().tolist() == [0, 0.5, 0.5, 1]
