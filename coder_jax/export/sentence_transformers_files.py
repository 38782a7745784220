"""The files that make a model folder open in sentence-transformers: modules and their settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from data_pipeline.files.whole_files import write_json

# Module names and keys as sentence-transformers 2 to 6 all read them.
TRANSFORMER, POOLING, DENSE, NORMALIZE = (
    f"sentence_transformers.models.{name}"
    for name in ("Transformer", "Pooling", "Dense", "Normalize")
)


def write_sentence_transformers_files(
    folder: Path,
    tensors: Mapping[str, np.ndarray],
    *,
    width: int,
    pooling: str,
    max_length: int,
) -> None:
    """Writes modules.json and the module folders beside a transformers model.

    The last module makes vectors of unit length. BERT's tanh pooler becomes a Dense module, which
    sentence-transformers applies to the pooled [CLS].

    Args:
      folder: with config.json, weights and tokenizer.
      tensors: the weights, under Hugging Face's names; the pooler's are read, if any.
      width: of the vectors.
      pooling: 'cls', 'mean' or 'pooler'.
      max_length: longest text in tokens.
    """
    modules = [("", TRANSFORMER), ("1_Pooling", POOLING)]
    if pooling == "pooler":
        modules.append(("2_Dense", DENSE))
    modules.append((f"{len(modules)}_Normalize", NORMALIZE))
    write_modules(folder, modules)
    write_json(
        folder / "sentence_bert_config.json",
        {"max_seq_length": max_length, "do_lower_case": False},
    )
    write_json(
        folder / "1_Pooling" / "config.json",
        {
            "word_embedding_dimension": width,
            "pooling_mode_cls_token": pooling != "mean",
            "pooling_mode_mean_tokens": pooling == "mean",
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
    )
    if pooling == "pooler":
        write_json(
            folder / "2_Dense" / "config.json",
            {
                "in_features": width,
                "out_features": width,
                "bias": True,
                "activation_function": "torch.nn.modules.activation.Tanh",
            },
        )
        dense = {f"linear.{part}": tensors[f"pooler.dense.{part}"] for part in ("weight", "bias")}
        save_file(dense, folder / "2_Dense" / "model.safetensors", metadata={"format": "pt"})


def write_modules(folder: Path, modules: Sequence[tuple[str, str]]) -> None:
    """Writes modules.json, the folders of the modules, and that vectors are compared by cosine.

    Args:
      folder: of the model.
      modules: of each its folder and its class; the folder of the first is "".
    """
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": kind}
        for i, (path, kind) in enumerate(modules)
    ]
    write_json(folder / "modules.json", listed)
    write_json(
        folder / "config_sentence_transformers.json",
        {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"},
    )
    for path, _ in modules[1:]:
        (folder / path).mkdir()
