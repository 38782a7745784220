"""How a model folder's vectors are made: pooling, cleaning, length; read from and written to it.

Our exports say it in coder_jax.json; sentence-transformers folders in modules.json and
1_Pooling/config.json; a plain BERT says nothing, and gets the paper's [CLS] and length 32.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from coder_jax.models.bert_config import POOLINGS
from data_pipeline.files.contents import Length
from data_pipeline.files.identity import ENCODER, read_identity, write_identity
from data_pipeline.files.json_files import read_json, read_json_value, typed
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.cleaning.rules import CLEANING

OF_NAMES = "bilstm-max"  # the pooling of an encoder of names (BNE); no BERT has it
# Both generations of 1_Pooling/config.json; other modes have no counterpart here.
OLD_POOLING_KEYS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}


class Module(TypedDict):
    """One of the modules that modules.json of sentence-transformers lists."""

    type: str
    path: Annotated[str, Meta(pattern=r"^[\w./-]*$")]


@dataclass(frozen=True)
class EncoderSettings:
    """What turns hidden states into the vectors that a model was trained for.

    Attributes:
      pooling: 'cls', 'mean', 'pieces' or 'pooler'; OF_NAMES of an encoder of names.
      cleaning: name of the rule set of `terminology.cleaning.rules` that terms go through first.
      max_length: longest term in tokens, the marks at both ends included.
      attend_padding: pad to `max_length` and attend to the padding (published CODER only).
    """

    pooling: str = "cls"
    cleaning: str = "none"
    max_length: int = 32
    attend_padding: bool = False

    def __post_init__(self):
        for name, known in (("pooling", (*POOLINGS, OF_NAMES)), ("cleaning", tuple(CLEANING))):
            if getattr(self, name) not in known:
                raise BadInput(
                    f"{name} is {getattr(self, name)!r}; expected one of {', '.join(known)}"
                )
        if not isinstance(self.max_length, int) or self.max_length < 3:
            raise BadInput(
                f"max_length is {self.max_length!r}; expected a whole number of at least 3"
            )

    def __str__(self) -> str:
        """The settings in words, for people."""
        words = [f"pooling {self.pooling}", f"cleaning {self.cleaning}"]
        words.append(f"at most {self.max_length:,} tokens")
        if self.attend_padding:
            words.append("padded to as many, which are attended to")
        return ", ".join(words)

    def changed(self, **overrides: Any) -> EncoderSettings:
        """These settings with what is not None in `overrides`."""
        return replace(self, **{k: v for k, v in overrides.items() if v is not None})


def read_settings(folder: Path, *, pooling: str | None = None) -> EncoderSettings:
    """The settings that a model folder asks for, with `pooling` in their place where given.

    Raises:
      BadInput: a file is broken, or the folder pools in a way that only `pooling` can settle.
    """
    if (folder / ENCODER.file).is_file():
        saved = read_identity(folder / ENCODER.file, ENCODER)
        own = {name: saved[name] for name in asdict(EncoderSettings())}
        return EncoderSettings(**own).changed(pooling=pooling)
    if (folder / "modules.json").is_file():
        return EncoderSettings(
            pooling=pooling or sentence_transformers_pooling(folder),
            max_length=sentence_transformers_length(folder),
        )
    return EncoderSettings().changed(pooling=pooling)


def read_languages(folder: Path) -> tuple[str, ...]:
    """The languages that an export of ours was trained on; none where nothing tells."""
    path = folder / ENCODER.file
    return tuple(read_identity(path, ENCODER).get("languages", ())) if path.is_file() else ()


def write_settings(folder: Path, settings: EncoderSettings, extra: dict[str, Any]) -> None:
    """Writes coder_jax.json: the settings, and `extra` (recipe, dataset hash, versions, ...)."""
    write_identity(folder / ENCODER.file, ENCODER, asdict(settings) | extra)


def sentence_transformers_pooling(folder: Path) -> str:
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
        mode = OLD_POOLING_KEYS.get(chosen[0], chosen[0]) if len(chosen) == 1 else str(chosen)
    if mode not in OLD_POOLING_KEYS.values():
        raise BadInput(
            f"{path}: pooling is {mode!r}; expected cls or mean; choose a pooling "
            f"({', '.join(POOLINGS)}) to use the encoder in another way"
        )
    return mode


def sentence_transformers_length(folder: Path) -> int:
    """max_seq_length of a sentence-transformers folder, 32 where it names none."""
    for name, key in (
        ("sentence_bert_config.json", "max_seq_length"),
        ("tokenizer_config.json", "model_max_length"),
    ):
        if (folder / name).is_file():
            length = read_json(folder / name).get(key)
            # Tokenizers without a limit carry a number of 30 digits.
            if length is not None and not (isinstance(length, int) and length >= 10**6):
                return typed(length, Length, f"{folder / name}: {key}", "fetch the folder again")  # type: ignore[arg-type]
    return EncoderSettings().max_length
