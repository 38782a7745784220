"""Import and export of Hugging Face weights, for the supported architectures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from coder_jax.models.bert import Bert, merge_encoder, structure_and_shapes
from coder_jax.models.bert_config import ARCHITECTURES, BertConfig
from coder_jax.models.hf_files import Weight, find_folder, read_tensors
from coder_jax.models.modernbert import MODERNBERT, ModernBert, ModernBertConfig
from coder_jax.models.mpnet import DISTILBERT, MPNET, DistilBertConfig, MpNet, MpNetConfig
from data_pipeline.files.identity import read_json
from data_pipeline.files.whole import aligned
from data_pipeline.process import BadInput

# -------------------------------------------------------------------------------------------------
# The supported architectures, with the config and encoder class of each.

# model_type in config.json -> the config class.
_CONFIGS: dict[str, type[BertConfig]] = {
    **dict.fromkeys(ARCHITECTURES, BertConfig),
    MODERNBERT: ModernBertConfig,
    MPNET: MpNetConfig,
    DISTILBERT: DistilBertConfig,
}
# The networks of those configs that are no plain BERT.
_NETWORKS: dict[type[BertConfig], type[Bert]] = {ModernBertConfig: ModernBert, MpNetConfig: MpNet}


def read_config(config: Mapping[str, Any], source: str = "config.json") -> BertConfig:
    """The sizes of an encoder, from its config.json; `source` is named in errors.

    Raises:
      BadInput: another architecture, a size that is missing or that none has, or a variant that is
        not computed here.
    """
    model_type = config.get("model_type", "bert")
    if model_type not in (*_CONFIGS,):
        raise BadInput(
            f"{source}: model_type is {model_type!r}; expected one of {', '.join(_CONFIGS)}. Give "
            "a checkpoint of BERT (BioBERT, PubMedBERT, mBERT, MiniLM, SapBERT, CODER), of RoBERTa "
            "(XLM-R, CamemBERT), of ModernBERT (BioClinical ModernBERT), of MPNet (BioLORD) or of "
            "DistilBERT"
        )
    return _CONFIGS[model_type].from_hf(config, source)


def first_layers(config: Mapping[str, Any], layers: int, source: str) -> dict[str, Any]:
    """The config.json of an encoder that is the first layers of another one.

    Args:
      config: config.json of the other one.
      layers: how many are kept; 0: all.
      source: what names the other one in errors.

    Raises:
      BadInput: as `read_config`; or it has fewer layers.
    """
    sizes = read_config(config, source)
    there = sizes.num_layers
    if layers > there:
        raise BadInput(
            f"--layers {layers}: {source} has {there} layers; expected at most so many, or 0 to "
            "keep all"
        )
    kept = {**config, sizes.layers_key: layers or there}
    if kept.get("layer_types"):  # the kind of each layer of a ModernBERT
        kept["layer_types"] = kept["layer_types"][: layers or there]
    return kept


def _encoder_class(config: BertConfig) -> type[Bert]:
    """The network with these sizes."""
    return _NETWORKS.get(type(config), Bert)


def abstract_bert(
    config: BertConfig, dtype: Any = jnp.float32, *, pooler: bool | None = None
) -> Bert:
    """An encoder whose parameters are shapes only: its structure, at no cost.

    Args:
      config: of any architecture.
      dtype: of its arithmetic.
      pooler: whether it has the tanh pooler; if None, as its architecture has it.
    """
    pooler = config.pooled if pooler is None else pooler
    kind = _encoder_class(config)
    return merge_encoder(*structure_and_shapes(kind, config, jnp.dtype(dtype), pooler))


# -------------------------------------------------------------------------------------------------
# Hugging Face's weight names of a ModernBERT, and our parameters.

_MODERN_ANCHOR = "embeddings.tok_embeddings.weight"  # what tells the prefix of a file's names


def _modernbert_names(config: ModernBertConfig) -> list[Weight]:
    """All weights of a ModernBERT, in the order of the network; qkv is fused in files, too."""

    def norm(hf: str, *path: str | int) -> Weight:
        return Weight(f"{hf}.weight", (*path, "scale"))

    def dense(hf: str, *path: str | int) -> Weight:
        return Weight(f"{hf}.weight", (*path, "kernel"), transposed=True)

    table = [
        Weight(_MODERN_ANCHOR, ("embeddings", "word", "embedding")),
        norm("embeddings.norm", "embeddings", "norm"),
    ]
    for i in range(config.num_layers):
        hf, ours = f"layers.{i}", ("layers", i)
        table += [norm(f"{hf}.attn_norm", *ours, "attention_norm")] if i else []
        table += [
            dense(f"{hf}.attn.Wqkv", *ours, "qkv"),
            dense(f"{hf}.attn.Wo", *ours, "attention_output"),
            norm(f"{hf}.mlp_norm", *ours, "mlp_norm"),
            dense(f"{hf}.mlp.Wi", *ours, "intermediate"),
            dense(f"{hf}.mlp.Wo", *ours, "output"),
        ]
    return [*table, norm("final_norm", "final_norm")]


# -------------------------------------------------------------------------------------------------
# Import and export of weights, through one name table for each architecture.
#
# In: a local folder or a hub id (config.json with model.safetensors or pytorch_model.bin, single or
# sharded). Out: a Bert and a report of what was only in the file or only in the model; or, the
# other way, a dict of arrays under Hugging Face's names.

_ANCHOR = "embeddings.word_embeddings.weight"  # what tells the prefix of a file's names
_HEADS = ("cls.", "lm_head.", "classifier.", "qa_outputs.", "head.", "decoder.", "vocab_")
_BUFFERS = ("position_ids", "token_type_ids")


@dataclass(frozen=True, kw_only=True)
class _NamesInFiles:
    """What the weights of a layer are called; the defaults are BERT's."""

    layer: str = "encoder.layer"
    qkv: tuple[str, str, str] = (
        *("attention.self.query", "attention.self.key"),
        "attention.self.value",
    )
    attention_output: str = "attention.output.dense"
    attention_norm: str = "attention.output.LayerNorm"
    intermediate: str = "intermediate.dense"
    output: str = "output.dense"
    output_norm: str = "output.LayerNorm"


_NAMES_OF_BERT = _NamesInFiles()
_NAMES_IN_FILES = {
    MPNET: _NamesInFiles(
        qkv=("attention.attn.q", "attention.attn.k", "attention.attn.v"),
        attention_output="attention.attn.o",
        attention_norm="attention.LayerNorm",
    ),
    DISTILBERT: _NamesInFiles(
        layer="transformer.layer",
        qkv=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        attention_output="attention.out_lin",
        attention_norm="sa_layer_norm",
        intermediate="ffn.lin1",
        output="ffn.lin2",
        output_norm="output_layer_norm",
    ),
}


@dataclass(frozen=True)
class LoadReport:
    """The names of a weight file that were loaded, missing or left over; `print(report)` lists
    them.
    """

    source: str
    loaded: int
    heads_ignored: tuple[str, ...]
    only_in_file: tuple[str, ...]
    only_in_model: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.source}: {self.loaded} weights loaded"]
        for label, names in (
            ("not needed (training heads, buffers)", self.heads_ignored),
            ("only in the file", self.only_in_file),
            ("only in the model", self.only_in_model),
        ):
            if names:
                lines.append(f"  {label}: {', '.join(names)}")
        return "\n".join(lines)


def anchor(config: BertConfig) -> str:
    """Hugging Face's name of the word embeddings."""
    return _MODERN_ANCHOR if isinstance(config, ModernBertConfig) else _ANCHOR


def name_table(config: BertConfig, *, pooler: bool) -> list[Weight]:
    """All weights of an encoder: Hugging Face's name and our path, in the network's order."""
    if isinstance(config, ModernBertConfig):
        return _modernbert_names(config)
    called = _NAMES_IN_FILES.get(config.model_type, _NAMES_OF_BERT)

    def norm(hf: str, *path: str | int) -> list[Weight]:
        return [Weight(f"{hf}.weight", (*path, "scale")), Weight(f"{hf}.bias", (*path, "bias"))]

    def dense(hf: str, *path: str | int, part: int | None = None) -> list[Weight]:
        return [
            Weight(f"{hf}.weight", (*path, "kernel"), transposed=True, part=part),
            Weight(f"{hf}.bias", (*path, "bias"), part=part),
        ]

    tables = ("word", "position", *["token_type"] * bool(config.type_vocab_size))
    table = [
        Weight(f"embeddings.{name}_embeddings.weight", ("embeddings", name, "embedding"))
        for name in tables
    ]
    table += norm("embeddings.LayerNorm", "embeddings", "norm")
    if isinstance(config, MpNetConfig):
        table.append(Weight("encoder.relative_attention_bias.weight", ("distance", "embedding")))
    for i in range(config.num_layers):
        hf, ours = f"{called.layer}.{i}", ("layers", i)
        for part, name in enumerate(called.qkv):
            table += dense(f"{hf}.{name}", *ours, "qkv", part=part)
        table += dense(f"{hf}.{called.attention_output}", *ours, "attention_output")
        table += norm(f"{hf}.{called.attention_norm}", *ours, "attention_norm")
        table += dense(f"{hf}.{called.intermediate}", *ours, "intermediate")
        table += dense(f"{hf}.{called.output}", *ours, "output")
        table += norm(f"{hf}.{called.output_norm}", *ours, "output_norm")
    return table + (dense("pooler.dense", "pooler") if pooler else [])


def load_bert(
    path_or_hub_id: str | Path, *, dtype: Any = jnp.float32, pooling: str = "cls", layers: int = 0
) -> tuple[Bert, dict[str, Any], LoadReport]:
    """Loads an encoder of one of `_CONFIGS`; the pooler is kept where the file has one.

    Args:
      path_or_hub_id: local folder, or 'organisation/name' on the Hugging Face Hub.
      dtype: compute dtype, float32 or bfloat16; the parameters are float32 either way.
      pooling: with 'pooler' a file without a pooler is an error.
      layers: keep so many, from the first; 0: all.

    Returns:
      (bert, its config.json as a dict, the report).

    Raises:
      BadInput: nothing found, another architecture, weights missing or of another shape than
        config.json says, or a file that cannot be read safely.
    """
    folder = find_folder(path_or_hub_id)
    whole = read_json(folder / "config.json")
    hf_config = first_layers(whole, layers, str(folder / "config.json"))
    config = read_config(hf_config)
    tensors, others = _strip_names(read_tensors(folder), anchor(config), str(folder))
    has_pooler = config.pooled and "pooler.dense.weight" in tensors
    if pooling == "pooler" and not has_pooler:
        raise BadInput(
            f"{folder}: pooling 'pooler' needs the weights pooler.dense.*, which the file lacks; "
            "take pooling 'cls' or 'mean'"
        )
    table = name_table(config, pooler=has_pooler)
    _check_names(
        tensors, table, str(folder)
    )  # before the layers that config.json promises are made
    bert = from_hf(tensors, table, abstract_bert(config, dtype, pooler=has_pooler), str(folder))
    known = {weight.hf_name for weight in name_table(read_config(whole), pooler=has_pooler)}
    whole_table = name_table(config, pooler=config.pooled)
    pooler_names = {weight.hf_name for weight in whole_table} - known
    ignored = {n for n in others if n.startswith(_HEADS)} | {n for n in tensors if _is_buffer(n)}
    report = LoadReport(
        source=f"{path_or_hub_id}, layers 1 to {layers}" if layers else str(path_or_hub_id),
        loaded=len(table),
        heads_ignored=tuple(sorted(ignored)),
        only_in_file=tuple(sorted(({*tensors} | {*others}) - known - ignored)),
        only_in_model=tuple(sorted(pooler_names)),
    )
    return bert, hf_config, report


def random_bert(config: BertConfig, seed: int, *, dtype: Any = jnp.float32) -> Bert:
    """An encoder with BERT's initial values (normal, `initializer_range`), pooler included."""
    graph, _ = nnx.split(abstract_bert(config, dtype))
    made, pooler = _encoder_class(config), config.pooled

    # Compiled as one program: a compilation for each shape of weight takes far longer.
    @jax.jit
    def init() -> nnx.State:
        return nnx.state(made(config, dtype=dtype, pooler=pooler, rngs=nnx.Rngs(seed)), nnx.Param)

    return nnx.merge(graph, init())


def _is_buffer(name: str) -> bool:
    return name.rsplit(".", 1)[-1] in _BUFFERS


def _strip_names(
    tensors: Mapping[str, np.ndarray], anchor: str, source: str
) -> tuple[dict[str, np.ndarray], list[str]]:
    """(the encoder's tensors under its plain names, the names that are not the encoder's).

    Files carry prefixes such as 'bert.', and the first checkpoints named the scale and bias of
    a layer norm gamma and beta.
    """
    prefixes = [name.removesuffix(anchor) for name in tensors if name.endswith(anchor)]
    if len(prefixes) != 1:
        found = ", ".join(sorted(tensors)[:5]) if not prefixes else ", ".join(prefixes)
        raise BadInput(
            f"{source}: {len(prefixes)} word tables ('*{anchor}') among {len(tensors)} weights "
            f"({found}{', ...' if not prefixes else ''}); expected one encoder"
        )
    inside, others = {}, []
    for name, value in tensors.items():
        if not name.startswith(prefixes[0]) or name.startswith(_HEADS):
            others.append(name)
            continue
        name = name.removeprefix(prefixes[0])
        for old, new in (
            ("LayerNorm.gamma", "LayerNorm.weight"),
            ("LayerNorm.beta", "LayerNorm.bias"),
        ):
            name = name.replace(old, new)
        inside[name] = value
    return inside, others


def _check_names(tensors: Mapping[str, np.ndarray], table: list[Weight], source: str) -> None:
    """Refuses weights that lack some of those that `table` names."""
    missing = [weight.hf_name for weight in table if weight.hf_name not in tensors]
    if missing:
        raise BadInput(
            f"{source}: {len(missing)} of {len(table)} weights are missing "
            f"({', '.join(missing[:5])}{', ...' if len(missing) > 5 else ''}); expected every "
            "weight of the encoder that "
            "config.json describes; is the file truncated, or the number of layers wrong?"
        )


def from_hf(
    tensors: Mapping[str, np.ndarray], table: list[Weight], abstract: Bert, source: str
) -> Bert:
    """Fills the shapes of `abstract` with the tensors that `table` names."""
    graph, params = nnx.split(abstract, nnx.Param)
    flat = dict(nnx.to_flat_state(params))
    filled: dict[Any, np.ndarray] = {}
    for weight in table:
        # Memory is allocated once the file is seen to hold as much as config.json promises.
        shape = flat[weight.path].shape
        target = _part_of(np.broadcast_to(np.float32(0), shape), weight)
        value = tensors[weight.hf_name]
        value = value.T if weight.transposed else value
        if value.shape != target.shape:
            order = -1 if weight.transposed else 1
            raise BadInput(
                f"{source}: {weight.hf_name} has shape {list(value.shape[::order])}; expected "
                f"{list(target.shape[::order])} by config.json; weights and config do not belong "
                "together"
            )
        if value.dtype.kind != "f" or not np.isfinite(value).all():
            raise BadInput(
                f"{source}: {weight.hf_name} has {_what_is_wrong(value)}; expected finite floats: "
                "the file is damaged, or quantized: fetch it again, or give the full weights"
            )
        if weight.path not in filled:
            filled[weight.path] = aligned(shape, np.float32)
        _part_of(filled[weight.path], weight)[...] = value
    # In host memory, which a CPU shares: the caller decides about devices.
    leaves = {path: variable.replace(filled[path]) for path, variable in flat.items()}
    return nnx.merge(graph, nnx.from_flat_state(leaves))


def _what_is_wrong(value: np.ndarray) -> str:
    """The message for weights that cannot be used."""
    return "NaN or infinite values" if value.dtype.kind == "f" else f"values of {value.dtype}"


def _part_of(array: Any, weight: Weight) -> Any:
    """The view of our array that one Hugging Face weight fills."""
    if weight.part is None:
        return array
    width = array.shape[-1] // 3  # queries, keys and values
    return array[..., weight.part * width : (weight.part + 1) * width]


def to_hf(bert: Bert) -> dict[str, np.ndarray]:
    """All weights as float32 arrays under the names of Hugging Face's model."""
    flat = dict(nnx.to_flat_state(nnx.state(bert, nnx.Param)))
    flat = {path: np.asarray(jax.device_get(leaf[...])) for path, leaf in flat.items()}
    table = name_table(bert.config, pooler=bert.pooler is not None)
    tensors = {}
    for weight in table:
        value = _part_of(flat[weight.path], weight)
        # A copy of its own: device memory is read-only, and thirds of qkv are not contiguous.
        tensors[weight.hf_name] = np.array(value.T if weight.transposed else value, order="C")
    return tensors


def check_vocabulary(tokenizer_size: int, config: BertConfig, source: str) -> None:
    """Refuses a tokenizer whose ids the word table has no rows for.

    Fewer are fine: word tables are often padded.

    Args:
      tokenizer_size: of `tokenizer.vocabulary_size`.
      config: of the encoder.
      source: what names both in the message.
    """
    if tokenizer_size > config.vocab_size:
        raise BadInput(
            f"{source}: the tokenizer has ids up to {tokenizer_size - 1}, the word table "
            f"[{config.vocab_size}, {config.hidden_size}]; expected a row for each id; give the "
            "tokenizer that the weights were trained with"
        )
