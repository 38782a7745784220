"""The encoder of names of BNE: characters, BiLSTM, the word's vector, BiLSTM, max, linear layer.

Phan, Sun, Tay 2019, "Robust representation learning of biomedical names", section 3.2. Words have
a fixed vector of skip-grams, which comes with the batch; a word without one has a trained vector
and its characters. Distinct words of a block are read once each.

Shapes: R packed rows, L words of names per row, N names, W distinct words, D width of a vector.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp

from coder_jax.models.names.lstm import (
    DIRECTIONS,
    Cell,
    bilstm,
    final_states,
    gate_inputs,
    lstm_shapes,
    matmul,
    max_states,
)
from coder_jax.models.packed.dropout import hash_dropout
from data_pipeline.batches.names.alphabet import MARKS
from data_pipeline.batches.names.word_table import HAS_VECTOR

Tree = Mapping[str, Any]
DROPOUT_SITE = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class NameEncoderConfig:
    """The shape of an encoder.

    Attributes:
        alphabet: numbers of marks and characters (`Alphabet.size`).
        width: of a word's vector and of a name's.
        character_width: of a character's vector.
        hidden: of both LSTMs, in each direction.
        cell: as for `lstm`.
        projection: what follows the max: linear (equation of section 3.2), or tanh of it (the
            released code).
    """

    alphabet: int
    width: int
    character_width: int = 50
    hidden: int = 200
    cell: Cell = "plain"
    projection: Literal["linear", "tanh"] = "linear"


def name_encoder_shapes(config: NameEncoderConfig) -> dict[str, Any]:
    """The parameters as shapes, float32.

    Returns:
        `characters` [alphabet, C] and `marks` [7, D], the trained vectors of words; `spelling` and
        `name`, the BiLSTMs over characters and over words; `projection`, kernel [2 H, D] and bias.
    """

    def array(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    both, hidden = 2 * config.hidden, config.hidden
    spelling = lstm_shapes(config.character_width, hidden, config.cell)
    name = lstm_shapes(both + config.width, hidden, config.cell)
    return {
        "characters": array(config.alphabet, config.character_width),
        "marks": array(len(MARKS), config.width),
        "spelling": {direction: dict(spelling) for direction in DIRECTIONS},
        "name": {direction: dict(name) for direction in DIRECTIONS},
        "projection": {"kernel": array(both, config.width), "bias": array(config.width)},
    }


def new_name_encoder(config: NameEncoderConfig, key: jax.Array) -> dict[str, Any]:
    """Parameters before the first step.

    Kernels, starts and tables are uniform by Glorot and Bengio 2010 (the released code's), biases
    0, but 1 at the forget gates of the plain cell (Jozefowicz, Zaremba, Sutskever 2015): the
    coupled one adds it itself.
    """
    paths, tree = jax.tree_util.tree_flatten_with_path(name_encoder_shapes(config))
    keys = jax.random.split(key, len(paths))
    made = []
    for (path, shape), one in zip(paths, keys, strict=True):
        name = path[-1].key
        if name == "bias":
            array = jnp.zeros(shape.shape)
            if config.cell == "plain" and path[0].key in ("spelling", "name"):
                array = array.at[config.hidden : 2 * config.hidden].set(1.0)
        else:
            rows, columns = shape.shape if shape.ndim == 2 else (1, shape.shape[0])
            bound = (6 / (rows + columns)) ** 0.5
            array = jax.random.uniform(one, shape.shape, minval=-bound, maxval=bound)
        made.append(array)
    return jax.tree_util.tree_unflatten(tree, made)


def word_representations(config: NameEncoderConfig, params: Tree, block: Tree) -> jax.Array:
    """float32 [W, 2 H + D]: of each distinct word of a block its characters and its vector.

    Args:
        config, params: as for `name_vectors`.
        block: `characters` and `spelled` [..., M] in rows, `word_kinds` and `word_vectors` of
            `packing.pack_names`.
    """
    kinds = block["word_kinds"].reshape(-1)
    words = kinds.shape[0]
    characters = block["characters"].reshape(-1, block["characters"].shape[-1])
    spelled = block["spelled"].reshape(characters.shape)
    # Few characters and many of each: their gates' inputs are a table.
    table = gate_inputs(params["spelling"], params["characters"], config.cell)
    into = {name: gates[jnp.maximum(characters - 1, 0)] for name, gates in table.items()}
    states = bilstm(params["spelling"], into, spelled, config.cell)
    vectors_WD = block["word_vectors"].reshape(words, -1)
    mark_WD = params["marks"][jnp.maximum(kinds - 1 - HAS_VECTOR, 0)]
    vectors_WD = jnp.where((kinds > HAS_VECTOR)[:, None], mark_WD, vectors_WD)
    return jnp.concatenate([final_states(states, spelled, words), vectors_WD], axis=-1)


def vectors_of_gates(
    config: NameEncoderConfig,
    params: Tree,
    into: Mapping[str, jax.Array],
    segments_RL: jax.Array,
    names: int,
) -> jax.Array:
    """float32 [N, D]: f(s) of names, whose words have given this to the gates, [R, L, G] each."""
    states = bilstm(params["name"], into, segments_RL, config.cell)
    max_NH = max_states(jnp.concatenate(states, axis=-1), segments_RL, names)
    projection = params["projection"]
    vector_ND = matmul(max_NH, projection["kernel"]) + projection["bias"][None]
    return jnp.tanh(vector_ND) if config.projection == "tanh" else vector_ND


def name_vectors(
    config: NameEncoderConfig,
    params: Tree,
    block: Tree,
    names: int,
    *,
    dropout_ids_RL: jax.Array | None = None,
    dropout: float = 0.0,
) -> jax.Array:
    """float32 [N, D]: f(s) of the names of a block, of any length.

    Args:
        config: the shape.
        params: as of `name_encoder_shapes`.
        block: the arrays of `data_pipeline.batches.names.packing.pack_names`.
        names: N; a number that no word carries gets the projection of zeros.
        dropout_ids_RL: uint32, a number for each word of a name; None: no dropout.
        dropout: its rate, on the representations of the words of a name.
    """
    word_WE = word_representations(config, params, block)
    input_RLE = word_WE[jnp.maximum(block["words"] - 1, 0)]
    if dropout_ids_RL is not None:
        features_E = jnp.arange(input_RLE.shape[-1], dtype=jnp.uint32)[None, None]
        ids_RL1 = dropout_ids_RL[..., None]
        input_RLE = hash_dropout(input_RLE, ids_RL1, DROPOUT_SITE, features_E, dropout)
    into = gate_inputs(params["name"], input_RLE, config.cell)
    return vectors_of_gates(config, params, into, block["segments"], names)
