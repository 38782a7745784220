"""A run's encoder mixed with its earlier checkpoints, or with the encoder that it began with.

What training brings to names it takes from the rest that an encoder knew. Between the weights of
the start and of the end lie encoders that have most of the one and keep more of the other
(Wortsman et al., Robust fine-tuning of zero-shot models, 2022); the mean of the last checkpoints is
often better than the last one (Izmailov et al., Averaging weights leads to wider optima, 2018).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from coder_jax.encoding.encoder_protocol import hash_arrays
from coder_jax.models.architectures import read_config
from coder_jax.models.bert import split_encoder
from coder_jax.models.hf_files import find_folder
from coder_jax.models.hf_weights import load_bert
from coder_jax.runs.checkpoint_reader import read_params, saved_steps
from coder_jax.systems.encoders.encoder_system import EncoderSystem
from coder_jax.systems.encoders.trained import encoder_of, of_another_run
from coder_jax.training.proof import START, check_proof
from coder_jax.training.system import SavedRun, System
from data_pipeline.process.errors import BadInput

# Parts that are of use beside another encoder.
HEADS = {"encoder", "relations", "types"}


def averaged(out: Path, run: SavedRun, checkpoints: int) -> SavedRun:
    """The run with the mean of the encoders of its last checkpoints; all else is as it was.

    Args:
        out: its folder.
        run: of one of its steps, up to which checkpoints count.
        checkpoints: how many, the run's own among them.

    Raises:
        BadInput: if it has too few, or what it trained is no encoder alone.
    """
    check(run, "--average")
    steps = [step for step in saved_steps(out) if step <= run.step][-checkpoints:]
    if not 2 <= checkpoints == len(steps):
        raise BadInput(
            f"--average {checkpoints}: {out} has the checkpoints "
            f"{', '.join(map(str, saved_steps(out)))}; expected a number of at least 2 and at most "
            f"those up to step {run.step}; --save-steps of `train` says how many there are"
        )
    total = jax.tree.map(lambda array: np.asarray(array, np.float64), run.params["encoder"])
    for step in steps[:-1]:
        total = jax.tree.map(np.add, total, read_params(out, step)["encoder"])
    mean = jax.tree.map(lambda array: (array / len(steps)).astype(np.float32), total)
    return with_encoder(run, mean, f"the mean of steps {', '.join(f'{s:,}' for s in steps)}")


def interpolated(system: System, run: SavedRun, weight: float) -> SavedRun:
    """The run with an encoder between the one that it began with and its own.

    Args:
        system, run: what was trained.
        weight: of what was trained, 0 to 1; the start has the rest.

    Raises:
        BadInput: if the encoder that it began with is not there, is another one, or was a run's;
            if what was trained is no encoder alone.
    """
    check(run, "--interpolate")
    assert isinstance(system, EncoderSystem)
    if not 0 <= weight <= 1:
        raise BadInput(f"--interpolate {weight:g}: expected the trained encoder's weight, 0 to 1")
    if of_another_run(run.identity["start"]):
        raise BadInput(
            "--interpolate: the run began with what another run had learnt, which may have changed "
            "since; expected one that began with an encoder (--init)"
        )
    init, began = system.model.init, run.identity["start"]["encoder"]
    bert, config, _ = load_bert(find_folder(init), pooling=system.model.pooling)
    found = read_config(config), bert.pooler is not None
    if found != (read_config(began["config"]), began["pooler"]):
        raise BadInput(
            f"--interpolate: {init} is another encoder than when the run began: its config.json "
            "says something else; put the old one back"
        )
    parameters = split_encoder(bert)[1]
    found_hash, noted = hash_arrays(jax.tree.leaves(parameters)), began.get("weights_hash")
    if noted and found_hash != noted:
        raise BadInput(
            f"--interpolate: {init} has other weights than when the run began: SHA-256 "
            f"{found_hash[:12]}, expected {noted[:12]}; put the old ones back"
        )
    check_proof(
        lambda terms: {
            "vectors": encoder_of(with_encoder(run, parameters, "the start")).encode(terms)
        },
        run,
        f"--interpolate: {init}",
        START,
    )
    mixed = between(parameters, run.params["encoder"], weight)
    rest = 1 - weight
    return with_encoder(run, mixed, f"{weight:g} x trained + {rest:.4g} x initial encoder")


def between(old: Any, new: Any, weight: float) -> Any:
    """Arrays between those of two nested dictionaries of the same keys."""

    def mixed(start: Any, end: Any) -> np.ndarray:
        return (weight * end + (1 - weight) * np.asarray(start)).astype(np.float32)

    return jax.tree.map(mixed, old, new)


def check(run: SavedRun, flag: str) -> None:
    """BadInput if a run trained more than an encoder and what may be left as it is."""
    others = sorted(set(run.params) - HEADS)
    if others or "encoder" not in run.params:
        raise BadInput(
            f"{flag}: the run trained {', '.join(others)} for its own encoder, and they would not "
            "fit another one; expected a run that trained an encoder, such as of CODER or SapBERT"
        )


def with_encoder(run: SavedRun, encoder: Any, weights: str) -> SavedRun:
    """The run with another encoder, as `weights` tells."""
    told = f"{run.weights}; of that {weights}" if run.weights else weights
    return dataclasses.replace(
        run, params={**run.params, "encoder": encoder}, weights=told, notes={}
    )
