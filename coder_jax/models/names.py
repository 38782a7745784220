"""The encoder of names of BNE: LSTMs on packed rows, the network, and its files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from msgspec import Meta
from safetensors.numpy import save_file

from coder_jax.models.dropout import hash_dropout
from coder_jax.models.hf_files import SAFETENSORS, WORD_VECTORS, read_safetensors
from data_pipeline.batches.bne import HAS_VECTOR, MARKS, MOST_CHARACTERS, Alphabet
from data_pipeline.files.identity import Hash, Width, read_json, typed
from data_pipeline.files.tables import read_text
from data_pipeline.files.whole import write_json
from data_pipeline.process import BadInput
from data_pipeline.skip_gram.store import StringVectors
from data_pipeline.sources.text import STOP_WORDS, TOKEN, rules_hash

# -------------------------------------------------------------------------------------------------
# LSTMs over packed rows, whose state is reset at the beginning of each sequence.
#
# Shapes: R rows, L tokens per row, N sequences, I input width, H hidden width, G gates * H.

Cell = Literal["plain", "coupled"]
_GATES = {"plain": 4, "coupled": 3}
DIRECTIONS = ("forward", "backward")
Direction = Mapping[str, jax.Array]
"""The parameters of one direction: kernel [I + H, G], bias [G]; of the coupled cell also the state
before the first token, cell [H] and hidden [H]."""


def _lstm_shapes(inputs: int, hidden: int, cell: Cell) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes of the parameters of one direction."""
    gates = _GATES[cell] * hidden
    sizes: dict[str, tuple[int, ...]] = {"kernel": (inputs + hidden, gates), "bias": (gates,)}
    if cell == "coupled":
        sizes |= {"cell": (hidden,), "hidden": (hidden,)}
    return {name: jax.ShapeDtypeStruct(size, jnp.float32) for name, size in sizes.items()}


def gate_inputs(
    directions: Mapping[str, Direction], inputs: jax.Array, cell: Cell
) -> dict[str, jax.Array]:
    """For each of DIRECTIONS the gate inputs of tokens [..., I], float32 [..., G]."""

    def of(direction: Direction) -> jax.Array:
        kernel = direction["kernel"]
        width = kernel.shape[0] - kernel.shape[1] // _GATES[cell]
        bias = direction["bias"].reshape(*[1] * (inputs.ndim - 1), -1)
        return _matmul(inputs, kernel[:width]) + bias

    return {name: of(directions[name]) for name in DIRECTIONS}


def _lstm(
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
    hidden = into_RLG.shape[-1] // _GATES[cell]
    recurrent_HG = direction["kernel"][-hidden:]
    zeros = jnp.zeros(hidden, jnp.float32)
    start = direction.get("cell", zeros)[None], direction.get("hidden", zeros)[None]

    def step(state: tuple[jax.Array, jax.Array], token: Any) -> Any:
        into_RG, begins_R = token
        c_RH, h_RH = (
            jnp.where(begins_R[:, None], first, one)
            for first, one in zip(start, state, strict=True)
        )
        gates_RG = into_RG + _matmul(h_RH, recurrent_HG)
        c_RH, h_RH = _after(gates_RG, c_RH, cell)
        return (c_RH, h_RH), h_RH

    nothing = jnp.zeros((into_RLG.shape[0], hidden), jnp.float32)
    tokens = jnp.swapaxes(into_RLG, 0, 1), begins_RL.T
    _, states_LRH = jax.lax.scan(step, (nothing, nothing), tokens, reverse=reverse)
    return jnp.swapaxes(states_LRH, 0, 1)


def _after(gates_RG: jax.Array, c_RH: jax.Array, cell: Cell) -> tuple[jax.Array, jax.Array]:
    """(c', h') after one token."""
    if cell == "plain":
        i_RH, f_RH, g_RH, o_RH = jnp.split(gates_RG, 4, axis=-1)
        c_RH = jax.nn.sigmoid(f_RH) * c_RH + jax.nn.sigmoid(i_RH) * jnp.tanh(g_RH)
    else:
        j_RH, f_RH, o_RH = jnp.split(gates_RG, 3, axis=-1)
        forget_RH = jax.nn.sigmoid(f_RH + 1.0)
        c_RH = forget_RH * c_RH + (1.0 - forget_RH) * jnp.tanh(j_RH)
    return c_RH, jax.nn.sigmoid(o_RH) * jnp.tanh(c_RH)


def _bilstm(
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
        cell: as for `_lstm`.
    """
    first_RL, last_RL = _ends(segments_RL)

    def states(name: str, begins_RL: jax.Array) -> jax.Array:
        return _lstm(directions[name], into[name], begins_RL, cell, reverse=name == "backward")

    return states("forward", first_RL), states("backward", last_RL)


def _ends(segments_RL: jax.Array) -> tuple[jax.Array, jax.Array]:
    """bool [R, L] each: whether a token is the first of its sequence, and whether the last."""
    differs = segments_RL[:, 1:] != segments_RL[:, :-1]
    edge = jnp.ones((segments_RL.shape[0], 1), bool)
    return jnp.concatenate([edge, differs], axis=1), jnp.concatenate([differs, edge], axis=1)


def _final_states(states: tuple[jax.Array, jax.Array], segments_RL: jax.Array, number: int) -> Any:
    """float32 [N, 2 H]: the final states of both directions for each sequence (last pooling).

    The backward direction ends at the first token.
    """
    first_RL, last_RL = _ends(segments_RL)
    return jnp.concatenate(
        [
            _pick(state_RLH, jnp.where(ends_RL, segments_RL, 0), number)
            for state_RLH, ends_RL in zip(states, (last_RL, first_RL), strict=True)
        ],
        axis=-1,
    )


def _pick(values_RLD: jax.Array, numbers_RL: jax.Array, number: int) -> jax.Array:
    """float32 [N, D]: the values at the place of each number 1 .. N; 0 for missing numbers."""
    numbers = numbers_RL.reshape(-1)
    size = numbers.shape[0]
    to = jnp.where(numbers > 0, numbers - 1, number)
    place = jnp.full(number, size, jnp.int32)
    place = place.at[to].set(jnp.arange(size, dtype=jnp.int32), mode="drop")
    flat = values_RLD.reshape(size, -1)
    return flat.at[place].get(mode="fill", fill_value=0)


def _max_states(values_RLD: jax.Array, segments_RL: jax.Array, number: int) -> jax.Array:
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


def _matmul(one: jax.Array, other: jax.Array) -> jax.Array:
    """A float32 product in full precision."""
    return jnp.matmul(one, other, precision=jax.lax.Precision.HIGHEST)


# -------------------------------------------------------------------------------------------------
# The network of BNE: characters, BiLSTM, word vector, BiLSTM, max, linear layer.
#
# Phan, Sun, Tay 2019, "Robust representation learning of biomedical names", section 3.2. Words have
# a fixed vector of skip-grams, which comes with the batch; a word without one has a trained vector
# and its characters. Distinct words of a block are read once each.
#
# Shapes: R packed rows, L words of names per row, N names, W distinct words, D width of a vector.

Tree = Mapping[str, Any]
_DROPOUT_SITE = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class NameEncoderConfig:
    """The shape of an encoder.

    Attributes:
        alphabet: numbers of marks and characters (`Alphabet.size`).
        width: of a word's vector and of a name's.
        character_width: of a character's vector.
        hidden: of both LSTMs, in each direction.
        cell: as for `_lstm`.
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
    spelling = _lstm_shapes(config.character_width, hidden, config.cell)
    name = _lstm_shapes(both + config.width, hidden, config.cell)
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
            `names.pack_names`.
    """
    kinds = block["word_kinds"].reshape(-1)
    words = kinds.shape[0]
    characters = block["characters"].reshape(-1, block["characters"].shape[-1])
    spelled = block["spelled"].reshape(characters.shape)
    # Few characters and many of each: their gates' inputs are a table.
    table = gate_inputs(params["spelling"], params["characters"], config.cell)
    into = {name: gates[jnp.maximum(characters - 1, 0)] for name, gates in table.items()}
    states = _bilstm(params["spelling"], into, spelled, config.cell)
    vectors_WD = block["word_vectors"].reshape(words, -1)
    mark_WD = params["marks"][jnp.maximum(kinds - 1 - HAS_VECTOR, 0)]
    vectors_WD = jnp.where((kinds > HAS_VECTOR)[:, None], mark_WD, vectors_WD)
    return jnp.concatenate([_final_states(states, spelled, words), vectors_WD], axis=-1)


def vectors_of_gates(
    config: NameEncoderConfig,
    params: Tree,
    into: Mapping[str, jax.Array],
    segments_RL: jax.Array,
    names: int,
) -> jax.Array:
    """float32 [N, D]: f(s) of names, from the gate inputs of their words, [R, L, G] each."""
    states = _bilstm(params["name"], into, segments_RL, config.cell)
    max_NH = _max_states(jnp.concatenate(states, axis=-1), segments_RL, names)
    projection = params["projection"]
    vector_ND = _matmul(max_NH, projection["kernel"]) + projection["bias"][None]
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
        block: the arrays of `data_pipeline.batches.bne.pack_names`.
        names: N; a number that no word carries gets the projection of zeros.
        dropout_ids_RL: uint32, a number for each word of a name; None: no dropout.
        dropout: its rate, on the representations of the words of a name.
    """
    word_WE = word_representations(config, params, block)
    input_RLE = word_WE[jnp.maximum(block["words"] - 1, 0)]
    if dropout_ids_RL is not None:
        features_E = jnp.arange(input_RLE.shape[-1], dtype=jnp.uint32)[None, None]
        ids_RL1 = dropout_ids_RL[..., None]
        input_RLE = hash_dropout(input_RLE, ids_RL1, _DROPOUT_SITE, features_E, dropout)
    into = gate_inputs(params["name"], input_RLE, config.cell)
    return vectors_of_gates(config, params, into, block["segments"], names)


# -------------------------------------------------------------------------------------------------
# The files of an encoder of names.
#
# config.json               model_type bne, the shape, the alphabet
# model.safetensors         the trained parameters, names with dots
# words.txt                 a word in each line
# word_vectors.safetensors  vectors, float32 [words, D]: the fixed ones of these words

_MODEL_TYPE: Literal["bne"] = "bne"
_CONFIG, _WORDS = "config.json", "words.txt"
WEIGHT_FILES = (SAFETENSORS, _WORDS, WORD_VECTORS)
_AGAIN = "export the run again"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _NameConfig:
    """config.json."""

    model_type: Literal["bne"] = _MODEL_TYPE
    alphabet: str
    width: Width
    character_width: Annotated[int, Meta(ge=1, le=100_000)]
    hidden: Annotated[int, Meta(ge=1, le=100_000)]
    cell: Literal["plain", "coupled"]
    projection: Literal["linear", "tanh"]
    marks: list[str] = dataclasses.field(default_factory=lambda: list(MARKS))
    word_rules: Hash
    token_pattern: str = TOKEN.pattern
    stop_words: list[str] = dataclasses.field(default_factory=lambda: sorted(STOP_WORDS))
    most_characters: int = MOST_CHARACTERS


class NameFiles(NamedTuple):
    """The content of these files."""

    config: NameEncoderConfig
    params: dict[str, Any]
    alphabet: Alphabet
    vectors: StringVectors


def is_name_encoder(folder: Path) -> bool:
    """Whether a model folder is one of an encoder of names."""
    path = folder / _CONFIG
    return path.is_file() and read_json(path).get("model_type") == _MODEL_TYPE


def write_name_encoder(folder: Path, encoder: NameFiles) -> None:
    """Writes the files."""
    shape = dataclasses.asdict(encoder.config) | {"alphabet": encoder.alphabet.characters}
    about = _NameConfig(**shape, word_rules=rules_hash())
    write_json(folder / _CONFIG, dataclasses.asdict(about))
    save_file(_named(encoder.params), folder / SAFETENSORS, metadata={"format": "pt"})
    words = "".join(f"{word}\n" for word in encoder.vectors.strings)
    (folder / _WORDS).write_text(words, encoding="utf-8")
    vectors = np.ascontiguousarray(encoder.vectors.vectors, np.float32)
    save_file({"vectors": vectors}, folder / WORD_VECTORS, metadata={"format": "pt"})


def read_name_encoder(folder: Path) -> NameFiles:
    """What `write_name_encoder` wrote.

    Raises:
        BadInput: a file that is missing, damaged or does not fit the others, with what was
            expected; or words by other rules than this version's.
    """
    about = typed(read_json(folder / _CONFIG), _NameConfig, str(folder / _CONFIG), _AGAIN)
    if about.word_rules != rules_hash():
        raise BadInput(
            f"{folder / _CONFIG}: its words were made by rules of hash {about.word_rules[:12]}; "
            f"expected those of this version, {rules_hash()[:12]}: export a run of this version"
        )
    alphabet = Alphabet(about.alphabet)
    shape = {
        field.name: getattr(about, field.name)
        for field in dataclasses.fields(NameEncoderConfig)
        if field.name != "alphabet"
    }
    config = NameEncoderConfig(alphabet=alphabet.size, **shape)
    params = _as_tree(read_safetensors(_there(folder / SAFETENSORS)), config, folder / SAFETENSORS)
    words = read_text(_there(folder / _WORDS)).split("\n")[:-1]
    path = _there(folder / WORD_VECTORS)
    vectors = read_safetensors(path).get("vectors", np.zeros(0, np.float32))
    if vectors.shape != (len(words), config.width):
        raise BadInput(
            f"{path}: found vectors {list(vectors.shape)}; expected {[len(words), config.width]}, "
            f"of the words in {_WORDS} and as wide as {_CONFIG} says: {_AGAIN}"
        )
    counts = np.zeros(len(words), np.int64)
    return NameFiles(config, params, alphabet, StringVectors(words, counts, vectors))


def _named(params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of a tree by the names in its file."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): np.ascontiguousarray(
            array, np.float32
        )
        for path, array in jax.tree_util.tree_leaves_with_path(dict(params))
    }


def _as_tree(
    arrays: Mapping[str, np.ndarray], config: NameEncoderConfig, path: Path
) -> dict[str, Any]:
    """The arrays of a file as the tree of parameters."""

    def of(place: Any, shape: Any) -> np.ndarray:
        name = jax.tree_util.keystr(place, simple=True, separator=".")
        found = arrays.get(name)
        if found is None or found.shape != shape.shape:
            what = "nothing" if found is None else f"an array {list(found.shape)}"
            raise BadInput(f"{path}: {name}: found {what}; expected {list(shape.shape)}: {_AGAIN}")
        return found

    return jax.tree_util.tree_map_with_path(of, name_encoder_shapes(config))


def _there(path: Path) -> Path:
    if not path.is_file():
        raise BadInput(f"{path} is missing; {_AGAIN}, or fetch the whole folder")
    return path
