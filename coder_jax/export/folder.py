"""A trained Bert, its tokenizer and what is known of its training in; a Hugging Face folder out.

The folder opens unchanged with transformers (AutoModel, AutoTokenizer), sentence-transformers and
`TermEncoder.from_pretrained`, and cleans terms in each of them. It is written under another name,
its vectors are compared with the trained encoder's, and only then does it get its name.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from coder_jax.export.model_card import check_card, model_card
from coder_jax.export.relations import ExportedRelations, write_relations
from coder_jax.export.sentence_transformers_files import write_sentence_transformers_files
from coder_jax.export.verify import require_torch, verify_export
from coder_jax.models.bert import Bert
from coder_jax.models.encoder_settings import EncoderSettings, write_settings
from coder_jax.models.hf_weights import check_vocabulary, to_hf
from data_pipeline.files.identity import ENCODER
from data_pipeline.files.whole_files import recover_folder, whole_folder, write_json
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.cleaning.in_tokenizers import clean_in

# What a config.json may say of the place and type it was loaded with, and ours would not be true.
STALE_CONFIG = ("_name_or_path", "torch_dtype", "transformers_version")


def export_encoder(
    bert: Bert,
    tokenizer: Any,
    hf_config: Mapping[str, Any],
    out: str | Path,
    *,
    pooling: str,
    cleaning: str,
    max_length: int,
    relations: ExportedRelations | None = None,
    card: Mapping[str, Any] | None = None,
    pytorch_bin: bool = False,
    beside: Callable[[Path], dict[str, float]] | None = None,
    proof: Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """Writes and checks an export.

    Args:
      bert: the encoder.
      tokenizer: folder or hub id of its tokenizer, or a transformers tokenizer.
      hf_config: config.json of the encoder that training began with.
      out: the folder to write; an earlier export there is replaced, anything else refused.
      pooling: one of POOLINGS; with 'pieces' it opens in no sentence-transformers.
      cleaning: the rule set that terms went through in training.
      max_length: longest term in tokens.
      relations: what was learned of relations, or None.
      card: what the model card tells; see `model_card`.
      pytorch_bin: also write pytorch_model.bin.
      beside: writes more into the folder, and says what it found different, as this does.
      proof: `terms` and `outputs` of them, of the training whose encoder it is; None where it is
        none's.

    Returns:
      The largest difference of vectors for each library that opened the export; see
      `verify_export`.

    Raises:
      BadInput: settings that do not fit the encoder, an `out` that is something else, a disk that
        is full, or PyTorch missing.
      RuntimeError: the export's vectors are not the encoder's. Nothing is left behind.
    """
    out, card = Path(out), dict(card or {})
    settings = EncoderSettings(pooling=pooling, cleaning=cleaning, max_length=max_length)
    check_parts(bert, settings, card, out)
    try:
        with whole_folder(out) as new:
            tensors = write_model(new, bert, hf_config, pytorch_bin)
            write_tokenizer(new, tokenizer, bert, settings)
            if pooling != "pieces":  # which sentence-transformers has no module for
                width = bert.config.hidden_size
                write_sentence_transformers_files(
                    new, tensors, width=width, pooling=pooling, max_length=max_length
                )
            if relations is not None:
                write_relations(new, relations)
            write_descriptions(new, settings, card, relations)
            differences = verify_export(new, bert, settings=settings, proof=proof)
            if beside is not None:
                differences |= beside(new)
            for path in new.rglob("*.safetensors"):  # written for the owner alone
                shutil.copymode(new / "config.json", path)
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{out} could not be written: {error}; nothing was left there") from error
    return differences


def check_parts(bert: Bert, settings: EncoderSettings, card: Mapping[str, Any], out: Path) -> None:
    """Refuses, before anything is written, what could not become an export."""
    require_torch()
    check_card(card)
    if settings.pooling == "pooler" and bert.pooler is None:
        raise BadInput("pooling is 'pooler', but the encoder has no pooler; export 'cls' or 'mean'")
    check_out(out)


def check_out(out: Path) -> None:
    """Refuses a folder that holds something else than an earlier export."""
    recover_folder(out)  # of an export that was killed while it replaced another
    in_use = out.exists() and (not out.is_dir() or any(out.iterdir()))
    if in_use and not (out / ENCODER.file).is_file():
        raise BadInput(f"{out} exists and is no earlier export; give a new or empty folder")


def write_model(
    folder: Path, bert: Bert, hf_config: Mapping[str, Any], pytorch_bin: bool
) -> dict[str, np.ndarray]:
    """config.json, model.safetensors and, if asked, pytorch_model.bin; returns the tensors."""
    ours = bert.config.to_hf()
    config = ours | dict(hf_config) | {"dtype": "float32"}
    config |= {name: ours[name] for name in ("architectures", "model_type")}
    write_json(folder / "config.json", {k: v for k, v in config.items() if k not in STALE_CONFIG})
    tensors = to_hf(bert)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if pytorch_bin:
        import torch

        state = {name: torch.from_numpy(tensor) for name, tensor in tensors.items()}
        torch.save(state, folder / "pytorch_model.bin")
    return tensors


def write_tokenizer(folder: Path, tokenizer: Any, bert: Bert, settings: EncoderSettings) -> None:
    """Tokenizer files that clean and cut terms on their own."""
    if isinstance(tokenizer, str | Path):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(str(tokenizer))
    check_vocabulary(len(tokenizer), bert.config, "export")
    # Padding and truncation saved by an earlier owner would overrule the caller's.
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    previous, tokenizer.model_max_length = tokenizer.model_max_length, settings.max_length
    try:
        tokenizer.save_pretrained(folder)
    finally:
        tokenizer.model_max_length = previous
    clean_in(folder, settings.cleaning)


def write_descriptions(
    folder: Path,
    settings: EncoderSettings,
    card: Mapping[str, Any],
    relations: ExportedRelations | None,
) -> None:
    """coder_jax.json for programs and README.md, the model card, for people."""
    about = {name: card[name] for name in ("recipe", "dataset_hash", "languages") if name in card}
    versions = {name: version(name) for name in ("jax", "flax", "transformers")}
    write_settings(folder, settings, about | {"versions": versions})
    (folder / "README.md").write_text(model_card(card, settings, relations), encoding="utf-8")
