"""The files of a Hugging Face model: folder or hub id in, JSON dicts and numpy tensors out."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, TypedDict

import numpy as np

from data_pipeline.files.buckets import local_folder
from data_pipeline.files.identity import RUN
from data_pipeline.files.json_files import read_json, typed
from data_pipeline.files.whole_files import recover_folder
from data_pipeline.process.errors import BadInput

SMALL_FILES = ["*.json", "*.txt", "*.model", "README.md", "LICENSE*"]
SAFETENSORS, TORCH_BIN = "model.safetensors", "pytorch_model.bin"
WORD_VECTORS = "word_vectors.safetensors"  # of an encoder of names
BESIDE = ["generator.safetensors", "ranker.safetensors", "keywords.tsv", WORD_VECTORS]


class WeightIndex(TypedDict):
    """Which file has which weight, where there are several."""

    weight_map: dict[str, str]


class Weight(NamedTuple):
    """One row of a table of names: a weight in a file, and its place among our parameters."""

    hf_name: str
    path: tuple[str | int, ...]  # in the parameter tree
    transposed: bool = False  # torch keeps dense kernels as [out, in]
    part: int | None = None  # 0, 1, 2: the third of the fused qkv's last axis


def find_folder(path_or_hub_id: str | Path) -> Path:
    """The local folder of a model; fetches it (once) from a bucket, or where a hub id is given.

    Raises:
      BadInput: neither a folder nor an address or hub id that can be fetched.
    """
    path = local_folder(path_or_hub_id, "config.json")
    recover_folder(path)  # of an export that was killed while it replaced another
    if path.is_dir():
        if (path / RUN.file).is_file():
            raise BadInput(
                f"{path} is a training run; expected a model: make one of it with "
                f"python -m coder_jax export --checkpoint {path} --out FOLDER"
            )
        if not (path / "config.json").is_file():
            inside = ", ".join(sorted(entry.name for entry in path.iterdir())[:8]) or "nothing"
            raise BadInput(
                f"{path} has no config.json (found: {inside}); expected a Hugging Face model "
                "folder with config.json, weights and tokenizer"
            )
        return path
    name = str(path_or_hub_id)
    if path.exists() or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise BadInput(
            f"{name} is not a folder; expected a model folder or a hub id such as org/name"
        )
    return download(name)


def here_or_fetched(path: str | Path) -> Path:
    """What is on this machine, whatever it is; else the folder of a model, which is fetched.

    Raises:
      BadInput: as `find_folder`, if nothing is here.
    """
    return Path(path) if Path(path).exists() else find_folder(path)


def hub_errors() -> tuple[type[Exception], ...]:
    """What the hub's client raises: names that cannot be, refusals, failed connections."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    # A refusal derives from the error of the HTTP library, as does a failed connection.
    return (HFValidationError, OSError, *HfHubHTTPError.__bases__)


def download(hub_id: str) -> Path:
    """Fetches config, tokenizer and weights of a hub model; safetensors where there are any."""
    from huggingface_hub import snapshot_download

    def fetch(weights: str) -> Path:
        return Path(snapshot_download(hub_id, allow_patterns=[*SMALL_FILES, *BESIDE, weights]))

    try:
        folder = fetch("model*.safetensors")
        if not list(folder.glob("model*.safetensors")):
            folder = fetch("pytorch_model*.bin")
    except hub_errors() as error:
        raise BadInput(
            f"{hub_id} is no folder here and could not be fetched from the Hugging Face Hub "
            f"({type(error).__name__}: {str(error).splitlines()[0]}). If this machine is offline, "
            "give the path of a downloaded folder; if the name is wrong or the model is private, "
            "check it or run 'hf auth login'"
        ) from error
    return folder


def read_tensors(folder: Path) -> dict[str, np.ndarray]:
    """All tensors of a model folder under the names in the file, as float32 where they are floats.

    Looks for model.safetensors, its sharded form, pytorch_model.bin, its sharded form: in this
    order.
    """
    for single, read in ((SAFETENSORS, read_safetensors), (TORCH_BIN, read_torch)):
        if (folder / single).is_file():
            return read(folder / single)
        index = folder / f"{single}.index.json"
        if index.is_file():
            shards = sorted(
                set(typed(read_json(index), WeightIndex, str(index))["weight_map"].values())
            )
            absent = [shard for shard in shards if not (folder / shard).is_file()]
            if absent:
                raise BadInput(
                    f"{folder}: {len(absent)} of {len(shards)} weight files are missing "
                    f"({', '.join(absent)}), which {index.name} lists; fetch the folder again"
                )
            return {name: t for shard in shards for name, t in read(folder / shard).items()}
    raise BadInput(
        f"{folder} has no weights; expected {SAFETENSORS} or {TORCH_BIN} (or their sharded forms)"
    )


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError, safe_open

    tensors = {}
    try:
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():
                tensors[name] = as_float32(file.get_tensor(name))
    except SafetensorError as error:
        raise BadInput(
            f"{path} is not a whole safetensors file ({error}); fetch it again"
        ) from error
    return tensors


def read_torch(path: Path) -> dict[str, np.ndarray]:
    """Reads a state dict with torch's restricted unpickler: no code in the file is ever run."""
    import pickle

    try:
        import torch
    except ImportError as error:
        raise BadInput(
            f"{path} needs PyTorch to be read: 'pip install torch', or convert it to {SAFETENSORS}"
        ) from error
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise BadInput(
            f"{path} is not a plain dict of tensors ({str(error).splitlines()[0]}); whole pickled "
            "models can run code and are not read: save state_dict() of the model instead"
        ) from error
    if not isinstance(state, dict):
        raise BadInput(f"{path} holds a {type(state).__name__}; expected a dict of tensors")
    return {
        name: as_float32(value.float().numpy() if value.is_floating_point() else value.numpy())
        for name, value in state.items()
        if isinstance(value, torch.Tensor)
    }


def as_float32(array: np.ndarray) -> np.ndarray:
    """Float types (half, bfloat16, double) to float32; anything else as it is."""
    integer = np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_
    return array if integer else array.astype(np.float32)
