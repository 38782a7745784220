"""A run folder in; the trained encoder, its relation matrices and what is known of it out."""

import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from coder_jax.export.folder import export_encoder
from coder_jax.export.relations import ExportedRelations
from coder_jax.models.bert import Bert, abstract_bert
from coder_jax.models.bert_config import BertConfig
from coder_jax.models.encoder_settings import EncoderSettings
from coder_jax.runs.checkpoint_reader import read_params, saved_steps
from coder_jax.runs.files import small_files
from coder_jax.runs.folder import read_identity
from coder_jax.runs.metrics import read_metrics
from coder_jax.training.state import merge_encoder, split_encoder
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.process.errors import BadInput


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """What `export` needs of a run."""

    step: int
    bert: Bert  # float32
    settings: EncoderSettings
    tokenizer: Path  # folder
    hf_config: dict[str, Any]  # config.json of the initial encoder
    relations: ExportedRelations | None
    card: dict[str, Any]  # for the model card


def load_run(out: Path, step: int | None = None) -> FinishedRun:
    """The encoder of a run after `step` steps; the newest checkpoint if None.

    Raises:
        BadInput: if there is no run in `out`, or no such checkpoint.
    """
    files = small_files(out)
    there = read_identity(files)
    steps = saved_steps(out)
    if not steps or (step is not None and step not in steps):
        raise BadInput(
            f"{out} has no checkpoint{'' if step is None else f' of step {step}'}; it has "
            f"{', '.join(map(str, steps)) or 'none'}"
        )
    step = steps[-1] if step is None else step
    params = read_params(out, step)
    encoder, dataset = there["encoder"], there["dataset"]
    config = BertConfig.from_hf(encoder["config"])
    structure = abstract_bert(config, jnp.float32, pooler=encoder["pooler"])
    graph, _ = split_encoder(structure)
    table = params.get("relations")
    return FinishedRun(
        step=step,
        bert=merge_encoder(graph, params["encoder"]),
        settings=EncoderSettings(
            pooling=there["config"]["model"]["pooling"],
            cleaning=dataset["cleaning"],
            max_length=there["tokenizer"]["max_length"],
        ),
        tokenizer=files / "tokenizer",
        hf_config=encoder["config"],
        relations=None if table is None else ExportedRelations(table, dataset["relations"]),
        card=describe(there, files, step),
    )


def export_run(run: FinishedRun, out: Path, *, pytorch_bin: bool = False) -> dict[str, float]:
    """Export a run; what comes back, and what can go wrong, is as in `export_encoder`."""
    return export_encoder(
        run.bert,
        run.tokenizer,
        run.hf_config,
        out,
        pooling=run.settings.pooling,
        cleaning=run.settings.cleaning,
        max_length=run.settings.max_length,
        relations=run.relations,
        card=run.card,
        pytorch_bin=pytorch_bin,
    )


def describe(there: dict[str, Any], out: Path, step: int) -> dict[str, Any]:
    """What the model card tells of a run, from run.json and metrics.jsonl."""
    config, dataset = there["config"], there["dataset"]
    counts, batch, optimizer = dataset["counts"], config["batch"], config["optimizer"]
    metrics = out / "metrics.jsonl"  # not there if the run was stopped before its first line
    lines = read_metrics(metrics) if metrics.exists() else []
    rows = [
        {"benchmark": f"held-out terms, step {step}", **line["eval"]["heldout"]}
        for line in lines
        if "eval" in line and line["step"] == step
    ]
    return {
        "name": f"CODER ({config['recipe']})",
        "license": there["encoder"]["license"],
        "base_model": config["model"]["init"],
        "data": {
            "terminology": f"{dataset['name']} {dataset['release']}",
            "concepts": f"{counts['concepts']:,}",
            "terms": f"{counts['terms']:,}",
            "triplets": f"{counts['triplets']:,}",
            "relations": len(dataset["relations"]),
            "cleaning": dataset["cleaning"],
        },
        "recipe": {
            "name": config["recipe"],
            "steps": f"{step:,} of {optimizer['steps']:,}",
            "terms per step": BatchSpec(**batch).terms,
            "groups x triplets x repeats": (
                f"{batch['groups']} x {batch['triplets']} x {batch['repeats']}"
            ),
            "draw": batch["draw"],
            "mu": config["loss"]["mu"],
            "learning rate": optimizer["learning_rate"],
            "seed": batch["seed"],
        },
        "results": rows,
        "dataset_hash": dataset["content_hash"],
    }
