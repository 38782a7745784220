"""LSTMs over packed rows: the state begins anew where a sequence does.

Shapes: R rows, L tokens per row, N sequences, I input width, H hidden width, G gates * H.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp

Cell = Literal["plain", "coupled"]
GATES = {"plain": 4, "coupled": 3}
DIRECTIONS = ("forward", "backward")
Direction = Mapping[str, jax.Array]
"""The parameters of one direction: kernel [I + H, G], bias [G]; of the coupled cell also the state
before the first token, cell [H] and hidden [H]."""


def lstm_shapes(inputs: int, hidden: int, cell: Cell) -> dict[str, jax.ShapeDtypeStruct]:
    """The parameters of one direction, as shapes."""
    gates = GATES[cell] * hidden
    sizes: dict[str, tuple[int, ...]] = {"kernel": (inputs + hidden, gates), "bias": (gates,)}
    if cell == "coupled":
        sizes |= {"cell": (hidden,), "hidden": (hidden,)}
    return {name: jax.ShapeDtypeStruct(size, jnp.float32) for name, size in sizes.items()}


def gate_inputs(
    directions: Mapping[str, Direction], inputs: jax.Array, cell: Cell
) -> dict[str, jax.Array]:
    """Of DIRECTIONS what tokens [..., I] give to the gates, float32 [..., G] each."""

    def of(direction: Direction) -> jax.Array:
        kernel = direction["kernel"]
        width = kernel.shape[0] - kernel.shape[1] // GATES[cell]
        bias = direction["bias"].reshape(*[1] * (inputs.ndim - 1), -1)
        return matmul(inputs, kernel[:width]) + bias

    return {name: of(directions[name]) for name in DIRECTIONS}


def lstm(
    direction: Direction, into_RLG: jax.Array, begins_RL: jax.Array, cell: Cell, *, reverse: bool
) -> jax.Array:
    """Hidden states after each token, float32 [R, L, H].

    plain: Hochreiter and Schmidhuber 1997 with forget gates, as `torch.nn.LSTM` (gates i, f, g, o;
    c' = f c + i g, h' = o tanh(c')), from zeros. coupled: input and forget gate are one (Greff et
    al. 2017), with 1 added to it and a learned start, as the released checkpoint of BNE has it
    (gates j, f, o; c' = f c + (1 - f) tanh(j), h' = o tanh(c')).

    Args:
        direction: the parameters.
        into_RLG: of `gate_inputs`; what padding has goes nowhere.
        begins_RL: bool, whether a token is the first of its sequence in this direction.
        cell: which of the two.
        reverse: from the last token of a row to its first.
    """
    hidden = into_RLG.shape[-1] // GATES[cell]
    recurrent_HG = direction["kernel"][-hidden:]
    zeros = jnp.zeros(hidden, jnp.float32)
    start = direction.get("cell", zeros)[None], direction.get("hidden", zeros)[None]

    def step(state: tuple[jax.Array, jax.Array], token: Any) -> Any:
        into_RG, begins_R = token
        c_RH, h_RH = (
            jnp.where(begins_R[:, None], first, one)
            for first, one in zip(start, state, strict=True)
        )
        gates_RG = into_RG + matmul(h_RH, recurrent_HG)
        c_RH, h_RH = after(gates_RG, c_RH, cell)
        return (c_RH, h_RH), h_RH

    nothing = jnp.zeros((into_RLG.shape[0], hidden), jnp.float32)
    tokens = jnp.swapaxes(into_RLG, 0, 1), begins_RL.T
    _, states_LRH = jax.lax.scan(step, (nothing, nothing), tokens, reverse=reverse)
    return jnp.swapaxes(states_LRH, 0, 1)


def after(gates_RG: jax.Array, c_RH: jax.Array, cell: Cell) -> tuple[jax.Array, jax.Array]:
    """(c', h') of one token."""
    if cell == "plain":
        i_RH, f_RH, g_RH, o_RH = jnp.split(gates_RG, 4, axis=-1)
        c_RH = jax.nn.sigmoid(f_RH) * c_RH + jax.nn.sigmoid(i_RH) * jnp.tanh(g_RH)
    else:
        j_RH, f_RH, o_RH = jnp.split(gates_RG, 3, axis=-1)
        forget_RH = jax.nn.sigmoid(f_RH + 1.0)
        c_RH = forget_RH * c_RH + (1.0 - forget_RH) * jnp.tanh(j_RH)
    return c_RH, jax.nn.sigmoid(o_RH) * jnp.tanh(c_RH)


def bilstm(
    directions: Mapping[str, Direction],
    into: Mapping[str, jax.Array],
    segments_RL: jax.Array,
    cell: Cell,
) -> tuple[jax.Array, jax.Array]:
    """(forward, backward) hidden states, float32 [R, L, H] each.

    Args:
        directions: the parameters of DIRECTIONS.
        into: of `gate_inputs`, [R, L, G] each.
        segments_RL: int32, of one sequence equal, of neighbours in a row different.
        cell: as for `lstm`.
    """
    first_RL, last_RL = ends(segments_RL)

    def states(name: str, begins_RL: jax.Array) -> jax.Array:
        return lstm(directions[name], into[name], begins_RL, cell, reverse=name == "backward")

    return states("forward", first_RL), states("backward", last_RL)


def ends(segments_RL: jax.Array) -> tuple[jax.Array, jax.Array]:
    """bool [R, L] each: whether a token is the first of its sequence, and whether the last."""
    differs = segments_RL[:, 1:] != segments_RL[:, :-1]
    edge = jnp.ones((segments_RL.shape[0], 1), bool)
    return jnp.concatenate([edge, differs], axis=1), jnp.concatenate([differs, edge], axis=1)


def final_states(states: tuple[jax.Array, jax.Array], segments_RL: jax.Array, number: int) -> Any:
    """float32 [N, 2 H]: of each sequence the last state of both directions (last pooling).

    The backward direction ends at the first token.
    """
    first_RL, last_RL = ends(segments_RL)
    return jnp.concatenate(
        [
            pick(state_RLH, jnp.where(ends_RL, segments_RL, 0), number)
            for state_RLH, ends_RL in zip(states, (last_RL, first_RL), strict=True)
        ],
        axis=-1,
    )


def pick(values_RLD: jax.Array, numbers_RL: jax.Array, number: int) -> jax.Array:
    """float32 [N, D]: the value at the one place of a number 1 .. N; 0 for one that is nowhere."""
    numbers = numbers_RL.reshape(-1)
    size = numbers.shape[0]
    to = jnp.where(numbers > 0, numbers - 1, number)
    place = jnp.full(number, size, jnp.int32)
    place = place.at[to].set(jnp.arange(size, dtype=jnp.int32), mode="drop")
    flat = values_RLD.reshape(size, -1)
    return flat.at[place].get(mode="fill", fill_value=0)


def max_states(values_RLD: jax.Array, segments_RL: jax.Array, number: int) -> jax.Array:
    """float32 [N, D]: the greatest value over the tokens of each sequence 1 .. N (max pooling).

    Equal greatest values share the gradient. 0 for a sequence of no token.
    """
    segments = segments_RL.reshape(-1)
    flat = values_RLD.reshape(segments.shape[0], -1)
    most = jax.ops.segment_max(jax.lax.stop_gradient(flat), segments, number + 1)
    is_most = (flat == most[segments]).astype(flat.dtype)
    total = jax.ops.segment_sum(flat * is_most, segments, number + 1)
    count = jax.ops.segment_sum(is_most, segments, number + 1)
    return (total / jnp.maximum(count, 1.0))[1:]


def matmul(one: jax.Array, other: jax.Array) -> jax.Array:
    """A float32 product in full precision."""
    return jnp.matmul(one, other, precision=jax.lax.Precision.HIGHEST)
