"""Files of Hugging Face models, and how a model folder says that its vectors are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self, TypedDict

import numpy as np
from msgspec import UNSET, Meta, UnsetType

from coder_jax.models.bert_config import POOLINGS
from data_pipeline.files.buckets import local_folder
from data_pipeline.files.identity import (
    ENCODER,
    LONGEST,
    RUN,
    Count,
    Length,
    is_lfs_pointer,
    read_identity,
    read_json,
    read_json_value,
    typed,
    write_identity,
)
from data_pipeline.files.whole import recover_folder
from data_pipeline.process import BadInput, tell
from data_pipeline.terminology.cleaning import CLEANING

# -------------------------------------------------------------------------------------------------
# Reads the JSON and weight files of a model, from a folder or the Hub.

_SMALL_FILES = ["*.json", "*.txt", "*.model", "README.md", "LICENSE*"]
SAFETENSORS, _TORCH_BIN = "model.safetensors", "pytorch_model.bin"
_OLD_LAYOUT = "0_Transformer"
WORD_VECTORS = "word_vectors.safetensors"  # of an encoder of names
_BESIDE = ["generator.safetensors", "ranker.safetensors", "keywords.tsv", WORD_VECTORS]


class _WeightIndex(TypedDict):
    """Which file holds which weight, for sharded weights."""

    weight_map: dict[str, str]


class Weight(NamedTuple):
    """A row of a name table: a weight in a file, and its place among our parameters."""

    hf_name: str
    path: tuple[str | int, ...]  # in the parameter tree
    transposed: bool = False  # torch keeps dense kernels as [out, in]
    part: int | None = None  # 0, 1, 2: the third of the fused qkv's last axis


def find_folder(path_or_hub_id: str | Path, *, onnx: bool = False, whole: bool = False) -> Path:
    """The local folder of a model; fetches it (once) from a bucket, or where a hub id is given.

    From the hub its ONNX files come only where they are asked for, and the
    folders of sentence-transformers' modules with their code only of a `whole` one.

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
            if (path / _OLD_LAYOUT / "config.json").is_file():
                raise BadInput(
                    f"{path} is laid out as by sentence-transformers 1, with the encoder in its "
                    f"folder {_OLD_LAYOUT}; give {path / _OLD_LAYOUT}, and its pooling (in "
                    "1_Pooling/config.json) by --pooling"
                )
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
    return _download(name, [*_BESIDE, *["*.onnx"] * onnx, *["[0-9]*/*", "*.py"] * whole])


def hub_errors() -> tuple[type[Exception], ...]:
    """Errors of the hub's client: invalid names, refusals, failed connections."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    # A refusal derives from the error of the HTTP library, as does a failed connection.
    return (HFValidationError, OSError, *HfHubHTTPError.__bases__)


def _download(hub_id: str, beside: Sequence[str]) -> Path:
    """Fetches config, tokenizer and weights of a hub model; safetensors where there are any."""
    from huggingface_hub import snapshot_download

    def fetch(weights: str) -> Path:
        return Path(snapshot_download(hub_id, allow_patterns=[*_SMALL_FILES, *beside, weights]))

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
    for single, read in ((SAFETENSORS, read_safetensors), (_TORCH_BIN, _read_torch)):
        if (folder / single).is_file():
            return read(folder / single)
        index = folder / f"{single}.index.json"
        if index.is_file():
            shards = sorted(
                set(typed(read_json(index), _WeightIndex, str(index))["weight_map"].values())
            )
            for shard in shards:
                if Path(shard).name != shard:
                    raise BadInput(
                        f"{index}: found the weight file {shard[:200]!r}; expected the name of a "
                        "file in the same folder, without a path: fetch the folder again"
                    )
            there = {file.name for file in folder.iterdir() if file.is_file()}
            absent = [shard for shard in shards if shard not in there]
            if absent:
                raise BadInput(
                    f"{folder}: {len(absent)} of {len(shards)} weight files are missing "
                    f"({', '.join(absent):.200}), which {index.name} lists; fetch the folder again"
                )
            return {name: t for shard in shards for name, t in read(folder / shard).items()}
    raise BadInput(
        f"{folder} has no weights; expected {SAFETENSORS} or {_TORCH_BIN} (or their sharded forms)"
    )


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError, safe_open

    tensors = {}
    try:
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():
                try:
                    tensors[name] = _as_float32(file.get_tensor(name))
                except (AttributeError, TypeError) as error:  # NumPy has no such type
                    raise BadInput(
                        f"{path}: {name} has values of {file.get_slice(name).get_dtype()}; "
                        "expected finite floats: it is quantized: give the full weights"
                    ) from error
    except SafetensorError as error:
        _check_fetched(path)
        raise BadInput(
            f"{path} is not a whole safetensors file ({error}); fetch it again"
        ) from error
    return tensors


def _check_fetched(path: Path) -> None:
    """Raise BadInput for a pointer of Git LFS."""
    if is_lfs_pointer(path):
        raise BadInput(
            f"{path} is a pointer of Git LFS, not the weights themselves; expected the file: fetch "
            "it with 'git lfs pull', or from the Hub"
        )


def _read_torch(path: Path) -> dict[str, np.ndarray]:
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
        _check_fetched(path)
        # What torch says of its own flags would not help, and has codes for colours.
        reason = str(error).partition("\n")[0]
        why = "" if isinstance(error, pickle.UnpicklingError) else f" ({reason})"
        raise BadInput(
            f"{path} is not a plain dict of tensors{why}; whole pickled models can run code and "
            "are not read: save state_dict() of the model instead"
        ) from error
    if not isinstance(state, dict):
        raise BadInput(f"{path} holds a {type(state).__name__}; expected a dict of tensors")
    nested = [str(name) for name, value in state.items() if isinstance(value, dict)]
    if nested and not any(isinstance(value, torch.Tensor) for value in state.values()):
        raise BadInput(
            f"{path} is a dict of dicts ({', '.join(nested)}); expected a dict of tensors: save "
            f"the one that holds the weights alone, such as torch.load(file)[{nested[0]!r}]"
        )
    return {
        name: _as_float32(value.float().numpy() if value.is_floating_point() else value.numpy())
        for name, value in state.items()
        if isinstance(value, torch.Tensor)
    }


def _as_float32(array: np.ndarray) -> np.ndarray:
    """Float types (half, bfloat16, double) to float32; anything else as it is."""
    integer = np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_
    return array if integer else array.astype(np.float32)


# -------------------------------------------------------------------------------------------------
# How vectors are made (pooling, cleaning, length), read from and written to a model folder.
#
# Our exports say it in coder_jax.json; sentence-transformers folders in modules.json and
# 1_Pooling/config.json; a plain BERT says nothing, and gets the paper's [CLS] and length 32.

OF_NAMES = "bilstm-max"  # the pooling of an encoder of names (BNE); no BERT has it
# What sentence-transformers alone computes: the modules of a folder as they are; the last token.
OF_LIBRARY = ("modules", "last")
# Both generations of 1_Pooling/config.json; other modes have no counterpart here.
_OLD_POOLING_KEYS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}


class Module(TypedDict):
    """An entry of sentence-transformers' modules.json."""

    type: str
    path: Annotated[str, Meta(pattern=r"^[\w./-]*$")]


@dataclass(frozen=True)
class EncoderSettings:
    """What turns hidden states into the vectors that a model was trained for.

    Attributes:
      pooling: 'cls', 'mean', 'pieces' or 'pooler'; OF_NAMES of an encoder of names; one of
        OF_LIBRARY where sentence-transformers runs the encoder.
      cleaning: name of the rule set of `terminology.cleaning` that terms go through first.
      max_length: longest term in tokens, the marks at both ends included.
      attend_padding: pad to `max_length` and attend to the padding (published CODER only).
      prompt: stands before each cleaned term, such as "query: " (E5).
      width: so many numbers of a vector are kept, the first ones; 0: all.
    """

    pooling: str = "cls"
    cleaning: str = "none"
    max_length: int = 32
    attend_padding: bool = False
    prompt: str = ""
    width: int = 0

    def __post_init__(self):
        for name, known in (
            ("pooling", (*POOLINGS, OF_NAMES, *OF_LIBRARY)),
            ("cleaning", tuple(CLEANING)),
        ):
            if getattr(self, name) not in known:
                raise BadInput(
                    f"{name} is {getattr(self, name)!r}; expected one of {', '.join(known)}"
                )
        if not isinstance(self.max_length, int) or self.max_length < 3:
            raise BadInput(
                f"max_length is {self.max_length!r}; expected a whole number of at least 3"
            )

    @classmethod
    def of_data(cls, manifest: Any, pooling: str) -> Self:
        """Those of an encoder that is trained on a dataset, or on mentions, with this manifest."""
        return cls(pooling, manifest.cleaning, manifest.tokenizer.max_length)

    def __str__(self) -> str:
        """The settings in words, for people."""
        words = [f"pooling {self.pooling}", f"cleaning {self.cleaning}"]
        words.append(f"terms cut at {self.max_length:,} tokens")
        if self.attend_padding:
            words.append("padded to as many, which are attended to")
        if self.prompt:
            words.append(f"behind {self.prompt!r}")
        if self.width:
            words.append(f"the first {self.width:,} numbers of a vector")
        return ", ".join(words)

    def recorded(self) -> dict[str, Any]:
        """The values for a file, which has prompt and width only where there are some."""
        told = {"prompt": self.prompt or UNSET, "width": self.width or UNSET}
        return {**asdict(self), **told}

    def changed(self, **overrides: Any) -> EncoderSettings:
        """These settings with the values of `overrides` that are not None."""
        return replace(self, **{k: v for k, v in overrides.items() if v is not None})


@dataclass(frozen=True, kw_only=True)
class ExportedEncoder:
    """coder_jax.json of an export: its settings, and what it was made by."""

    format: str = ENCODER.format
    pooling: str
    cleaning: str
    max_length: Length
    attend_padding: bool
    prompt: str | UnsetType = UNSET
    width: Count | UnsetType = UNSET
    recipe: dict[str, Any] | UnsetType = UNSET
    dataset_hash: str | None | UnsetType = UNSET
    languages: list[str] | UnsetType = UNSET
    vocabulary: dict[str, Any] | UnsetType = UNSET
    """What was added to the vocabulary of an encoder."""
    versions: dict[str, Any] | UnsetType = UNSET

    @property
    def settings(self) -> EncoderSettings:
        return EncoderSettings(
            self.pooling,
            self.cleaning,
            self.max_length,
            self.attend_padding,
            self.prompt or "",
            self.width or 0,
        )


def read_export(folder: Path) -> ExportedEncoder | None:
    """What coder_jax.json of a model folder says; None if the folder is no export of ours.

    Raises BadInput if it is broken, or of another version.
    """
    path = folder / ENCODER.file
    return read_identity(path, ENCODER, ExportedEncoder) if path.is_file() else None


def read_settings(
    folder: Path, *, pooling: str | None = None, prompt: str | None = None
) -> EncoderSettings:
    """The settings that a model folder asks for, with `pooling` in their place where given.

    A folder of sentence-transformers that has prompts, one of which it does not choose itself, is
    warned of where no `prompt` is given: its vectors are others without.

    Raises:
      BadInput: a file is broken, or the folder pools in a way that only `pooling` can settle.
    """
    if export := read_export(folder):
        return export.settings.changed(pooling=pooling)
    if (folder / "modules.json").is_file():
        check_prompts(folder, prompt, chosen=pooling is not None)
        return EncoderSettings(
            pooling=pooling or _sentence_transformers_pooling(folder),
            max_length=_sentence_transformers_length(folder),
        )
    return EncoderSettings().changed(pooling=pooling)


def read_languages(folder: Path) -> tuple[str, ...]:
    """The languages that an export of ours was trained on; none if unknown."""
    export = read_export(folder)
    return tuple(export.languages or ()) if export else ()


def write_settings(folder: Path, settings: EncoderSettings, **extra: Any) -> None:
    """Writes coder_jax.json: the settings, and what else `ExportedEncoder` has."""
    values = settings.recorded()
    write_identity(folder / ENCODER.file, ENCODER, ExportedEncoder(**values, **extra))


def _sentence_transformers_pooling(folder: Path) -> str:
    """'cls' or 'mean' from a sentence-transformers folder."""
    path = folder / "modules.json"
    modules = typed(read_json_value(path), list[Module], str(path), "fetch the folder again")
    types = [module["type"].rsplit(".", 1)[-1] for module in modules]
    paths = [module["path"] for module in modules]
    if types[:2] != ["Transformer", "Pooling"] or types[2:] not in ([], ["Normalize"]):
        raise BadInput(
            f"{folder / 'modules.json'}: found the modules {', '.join(types)}; expected "
            f"Transformer, Pooling and perhaps Normalize; choose a pooling ({', '.join(POOLINGS)}) "
            "to use the encoder without them"
        )
    path = folder / paths[1] / "config.json"
    config = read_json(path)
    mode = config.get("pooling_mode")
    if mode is None:  # the older generation: one key per mode, and several may be true
        chosen = [k for k, v in config.items() if k.startswith("pooling_mode_") and v is True]
        mode = _OLD_POOLING_KEYS.get(chosen[0], chosen[0]) if len(chosen) == 1 else str(chosen)
    if mode not in _OLD_POOLING_KEYS.values():
        raise BadInput(
            f"{path}: pooling is {mode!r}; expected cls or mean; choose a pooling "
            f"({', '.join(POOLINGS)}) to use the encoder in another way"
        )
    return mode


def check_prompts(folder: Path, prompt: str | None, *, chosen: bool, lowers: bool = False) -> None:
    """Looks for what a sentence-transformers folder does to each text before it is read.

    Warns of prompts that wait for a choice. BadInput for a prompt of its own, unless one was given,
    and for lower case; for neither where the pooling was `chosen`, as the message says. Not for
    lower case where what runs the encoder `lowers` by itself.
    """
    path = folder / "config_sentence_transformers.json"
    config = read_json(path) if path.is_file() else {}
    prompts = {name: text for name, text in (config.get("prompts") or {}).items() if text}
    default = config.get("default_prompt_name")
    path = folder / "sentence_bert_config.json"
    lower = read_json(path).get("do_lower_case") if path.is_file() else None
    changes = {
        "default_prompt_name": (
            default if prompt is None else None,
            "give the prompt with --prompt",
        ),
        "do_lower_case": (lower and not lowers, "give --backend sentence-transformers"),
    }
    for key, (value, instead) in changes.items():
        if value and not chosen:
            raise BadInput(
                f"{folder}: {key} is {value!r}, so sentence-transformers changes each text before "
                f"the tokenizer reads it, and coder_jax does not; {instead}, or choose a pooling "
                f"({', '.join(POOLINGS)}) to use the encoder without that"
            )
    if prompts and not default and prompt is None:
        shown = ", ".join(f"{name} {text!r}" for name, text in prompts.items())
        tell(
            f"warning: {folder} has prompts ({shown:.200}), and none is used: give the one that "
            "suits terms with --prompt ('' for none)"
        )


def _sentence_transformers_length(folder: Path) -> int:
    """max_seq_length of a sentence-transformers folder; `LONGEST` where it names none."""
    for name, key in (
        ("sentence_bert_config.json", "max_seq_length"),
        ("tokenizer_config.json", "model_max_length"),
    ):
        if (folder / name).is_file():
            length = read_json(folder / name).get(key)
            # Tokenizers without a limit have a number of 30 digits.
            if length is not None and not (isinstance(length, int) and length >= 10**6):
                return typed(length, Length, f"{folder / name}: {key}", "fetch the folder again")  # type: ignore[arg-type]
    return LONGEST
