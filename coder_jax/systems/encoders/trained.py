"""A trained encoder as a folder for the Hub: the encoder, its relations, a model card."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import jax.numpy as jnp

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.export.folder import export_encoder
from coder_jax.export.relations import ExportedRelations
from coder_jax.models.architectures import abstract_bert, read_config
from coder_jax.models.bert import Bert, merge_encoder, split_encoder
from coder_jax.models.encoder_settings import EncoderSettings
from coder_jax.runs.metrics import read_metrics
from coder_jax.training.proof import PROOF
from coder_jax.training.system import SavedRun, Trained
from data_pipeline.batches.spec import StepSpec
from data_pipeline.dataset.tokenize_terms import load_tokenizer

if TYPE_CHECKING:
    from coder_jax.systems.encoders.encoder_system import EncoderSystem


class TellingSystem(Protocol):
    """A system that learns from a dataset, and has words for how."""

    title: ClassVar[str]
    paper: ClassVar[str]

    @property
    def batch(self) -> StepSpec:
        """What a batch is made of."""
        ...

    def told(self) -> dict[str, Any]:
        """The system's own settings, for the model card."""
        ...


def trained_encoder(system: EncoderSystem, run: SavedRun) -> Trained:
    """The encoder of a run, its relations, and what is known of it."""
    relations = trained_relations(run)
    tables = {} if relations is None else {"relations": relations}
    return Trained(encoder=encoder_of(run), card=describe(system, run), tables=tables)


def encoder_of(run: SavedRun) -> TermEncoder:
    """The encoder of a run with its tokenizer."""
    tokenizer = load_tokenizer(run.folder / "tokenizer")
    return TermEncoder(trained_bert(run), tokenizer, trained_settings(run))


def trained_bert(run: SavedRun) -> Bert:
    """The encoder of a run, in float32."""
    encoder = run.identity["start"]["encoder"]
    config = read_config(encoder["config"])
    graph, _ = split_encoder(abstract_bert(config, jnp.float32, pooler=encoder["pooler"]))
    return merge_encoder(graph, run.params["encoder"])


def trained_settings(run: SavedRun) -> EncoderSettings:
    """How terms became vectors in training."""
    return EncoderSettings(
        pooling=run.identity["config"]["system"]["model"]["pooling"],
        cleaning=run.identity["dataset"]["cleaning"],
        max_length=run.identity["tokenizer"]["max_length"],
    )


def trained_relations(run: SavedRun) -> ExportedRelations | None:
    """The relation table of a run with its labels; None if none was learnt."""
    table = run.params.get("relations")
    return None if table is None else ExportedRelations(table, run.identity["dataset"]["relations"])


def export_trained(
    system: EncoderSystem,
    run: SavedRun,
    out: Path,
    *,
    card: Mapping[str, Any] | None = None,
    pytorch_bin: bool = False,
    beside: Callable[[Path], dict[str, float]] | None = None,
) -> dict[str, float]:
    """Export a run; what comes back, and what can go wrong, is as in `export_encoder`.

    Args:
        system, run: what was trained.
        out: the folder to write.
        card: what the model card says in place of, or beside, what is known of the run.
        pytorch_bin, beside: of `export_encoder`.
    """
    settings = trained_settings(run)
    return export_encoder(
        trained_bert(run),
        run.folder / "tokenizer",
        run.identity["start"]["encoder"]["config"],
        out,
        pooling=settings.pooling,
        cleaning=settings.cleaning,
        max_length=settings.max_length,
        relations=trained_relations(run),
        card={**describe(system, run), **(card or {})},
        pytorch_bin=pytorch_bin,
        beside=beside,
        proof=run.notes.get(PROOF),
    )


def describe(system: EncoderSystem, run: SavedRun) -> dict[str, Any]:
    """What the model card tells of a run, from run.json and metrics.jsonl."""
    start = run.identity["start"]
    return {
        **told_of_run(system, run),
        "license": start["encoder"]["license"],
        # With --from, or --init of a run, the start was another run, which has a base of its own.
        "base_model": None if of_another_run(start) else system.model.init,
        "data": system.told_of_data(run.identity["dataset"]),
    }


def told_of_run(system: TellingSystem, run: SavedRun) -> dict[str, Any]:
    """The part of `describe` that is told of any system with a dataset, a BERT or none."""
    config, dataset = run.identity["config"], run.identity["dataset"]
    batch, optimizer = system.batch, config["optimizer"]
    by_language = dataset["counts"].get("terms_by_language", {})
    metrics = run.folder / "metrics.jsonl"  # not there if it was stopped before its first line
    lines = read_metrics(metrics) if metrics.exists() else []
    rows = [
        {"benchmark": f"held-out terms, step {run.step}", **line["eval"]["heldout"]}
        for line in lines
        if "heldout" in line.get("eval", {}) and line["step"] == run.step and not run.weights
    ]
    return {
        "name": f"{system.title} ({config['recipe']})",
        "method": f"{system.title} ({system.paper})",
        "languages": [name for name, terms in by_language.items() if terms],
        "recipe": {
            "name": config["recipe"],
            "steps": f"{run.step:,} of {optimizer['steps']:,}",
            **({"weights": run.weights} if run.weights else {}),
            "terms per step": batch.terms,
            **batch.told(),
            **system.told(),
            "learning rate": optimizer["learning_rate"],
            "seed": batch.seed,
        },
        "results": rows,
        "dataset_hash": dataset["content_hash"],
    }


def of_another_run(start: Mapping[str, Any]) -> bool:
    """Whether a run began with what another one had learnt."""
    return "from" in start or "run" in start["encoder"]
