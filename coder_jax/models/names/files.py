"""The files of an encoder of names: written, and read.

config.json               model_type bne, the shape, the alphabet
model.safetensors         the trained parameters, names with dots
words.txt                 a word in each line
word_vectors.safetensors  vectors, float32 [words, D]: the fixed ones of these words
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import jax
import numpy as np
from msgspec import Meta
from safetensors.numpy import save_file

from coder_jax.models.hf_files import SAFETENSORS, WORD_VECTORS, read_safetensors
from coder_jax.models.names.name_encoder import NameEncoderConfig, name_encoder_shapes
from data_pipeline.batches.names.alphabet import MARKS, MOST_CHARACTERS, Alphabet
from data_pipeline.files.contents import Hash, Width
from data_pipeline.files.json_files import read_json, typed
from data_pipeline.files.rows import read_text
from data_pipeline.files.whole_files import write_json
from data_pipeline.process.errors import BadInput
from data_pipeline.skip_gram.store import VectorTable
from data_pipeline.sources.text.words import STOP_WORDS, TOKEN, rules_hash

MODEL_TYPE = "bne"
CONFIG, WORDS = "config.json", "words.txt"
WEIGHT_FILES = (SAFETENSORS, WORDS, WORD_VECTORS)
AGAIN = "export the run again"


class NameConfig(TypedDict):
    """config.json."""

    model_type: Literal["bne"]
    alphabet: str
    width: Width
    character_width: Annotated[int, Meta(ge=1, le=100_000)]
    hidden: Annotated[int, Meta(ge=1, le=100_000)]
    cell: Literal["plain", "coupled"]
    projection: Literal["linear", "tanh"]
    word_rules: Hash


class NameFiles(NamedTuple):
    """What the files hold."""

    config: NameEncoderConfig
    params: dict[str, Any]
    alphabet: Alphabet
    vectors: VectorTable


def is_name_encoder(folder: Path) -> bool:
    """Whether a model folder is one of an encoder of names."""
    path = folder / CONFIG
    return path.is_file() and read_json(path).get("model_type") == MODEL_TYPE


def write_name_encoder(folder: Path, encoder: NameFiles) -> None:
    """Writes the files."""
    shape = dataclasses.asdict(encoder.config) | {"alphabet": encoder.alphabet.characters}
    rules = {
        "word_rules": rules_hash(),
        "token_pattern": TOKEN.pattern,
        "stop_words": sorted(STOP_WORDS),
        "most_characters": MOST_CHARACTERS,
    }
    about = {"model_type": MODEL_TYPE, **shape, "marks": list(MARKS), **rules}
    write_json(folder / CONFIG, about)
    save_file(named(encoder.params), folder / SAFETENSORS, metadata={"format": "pt"})
    words = "".join(f"{word}\n" for word in encoder.vectors.strings)
    (folder / WORDS).write_text(words, encoding="utf-8")
    vectors = np.ascontiguousarray(encoder.vectors.vectors, np.float32)
    save_file({"vectors": vectors}, folder / WORD_VECTORS, metadata={"format": "pt"})


def read_name_encoder(folder: Path) -> NameFiles:
    """What `write_name_encoder` wrote.

    Raises:
        BadInput: a file that is missing, damaged or does not fit the others, with what was
            expected; or words by other rules than this version's.
    """
    about = typed(read_json(folder / CONFIG), NameConfig, str(folder / CONFIG), AGAIN)
    if about["word_rules"] != rules_hash():
        raise BadInput(
            f"{folder / CONFIG}: its words were made by rules of hash {about['word_rules'][:12]}; "
            f"expected those of this version, {rules_hash()[:12]}: export a run of this version"
        )
    alphabet = Alphabet(about["alphabet"])
    shape = {
        field.name: about[field.name]  # type: ignore[literal-required]
        for field in dataclasses.fields(NameEncoderConfig)
        if field.name != "alphabet"
    }
    config = NameEncoderConfig(alphabet=alphabet.size, **shape)
    params = _as_tree(read_safetensors(_there(folder / SAFETENSORS)), config, folder / SAFETENSORS)
    words = read_text(_there(folder / WORDS)).split("\n")[:-1]
    path = _there(folder / WORD_VECTORS)
    vectors = read_safetensors(path).get("vectors", np.zeros(0, np.float32))
    if vectors.shape != (len(words), config.width):
        raise BadInput(
            f"{path}: found vectors {list(vectors.shape)}; expected {[len(words), config.width]}, "
            f"of the words in {WORDS} and as wide as {CONFIG} says: {AGAIN}"
        )
    counts = np.zeros(len(words), np.int64)
    return NameFiles(config, params, alphabet, VectorTable(words, counts, vectors))


def named(params: Mapping[str, Any]) -> dict[str, np.ndarray]:
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
            raise BadInput(f"{path}: {name}: found {what}; expected {list(shape.shape)}: {AGAIN}")
        return found

    return jax.tree_util.tree_map_with_path(of, name_encoder_shapes(config))


def _there(path: Path) -> Path:
    if not path.is_file():
        raise BadInput(f"{path} is missing; {AGAIN}, or fetch the whole folder")
    return path
