"""MLNorm's train steps outside a training run, for timing."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.class_work import (
    ENCODER_RATE,
    GROUPS,
    RATE,
    REPEAT,
    ClassTerms,
    ClassWork,
    class_group_bits,
)
from benchmarks.our_step import OnDevice
from benchmarks.process import available_memory
from benchmarks.program_cost import read_cost
from coder_jax.devices.mesh import device_memory, put_batch
from coder_jax.models.bert import split_encoder
from coder_jax.models.hf_weights import random_bert
from coder_jax.systems.encoder_system import EncoderOfRun, ModelConfig
from coder_jax.systems.mlnorm.classifier import new_statistics
from coder_jax.systems.mlnorm.training import (
    MLNormClassesSystem,
    MLNormSystem,
    StartOfClasses,
    mlnorm,
    mlnorm_classes,
)
from coder_jax.training.state import new_state
from coder_jax.training.step import Step, make_step
from coder_jax.training.system import Params, Tree
from data_pipeline.batches.candidates import CandidateBatches
from data_pipeline.batches.packing import PackedGroups
from data_pipeline.batches.spec import TermSpec

_ROWS = 1  # the number under which the one compiled step is kept
_ROW_LENGTH = 128


def _begun(work: ClassWork, params: Params, extra: Tree) -> tuple[Params, Tree]:
    """In traced code: classes as in `ClassWork.rows`, sharded from the start."""
    rows = params["classes"].shape[0]
    class_C = jnp.arange(rows)
    bits = jnp.asarray(class_group_bits(np.arange(GROUPS)))
    parts = {
        "classes": jnp.tile(jnp.asarray(work.rows()), (rows // REPEAT, 1)),
        "class_groups": jnp.where(class_C < work.classes, bits[class_C % GROUPS], 0),
    }
    return parts, new_statistics(extra) if extra else extra


@dataclasses.dataclass(frozen=True, kw_only=True)
class _InventedFirst(MLNormSystem):
    """Step 1 with synthetic classes."""

    work: ClassWork

    def init_params(self, params: Params, extra: Tree) -> tuple[Params, Tree]:
        return _begun(self.work, params, extra)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _InventedSecond(MLNormClassesSystem):
    """Step 2 with synthetic classes."""

    work: ClassWork

    def init_params(self, params: Params, extra: Tree) -> tuple[Params, Tree]:
        return _begun(self.work, params, extra)


def _step_of(work: ClassWork, devices: int = 1) -> tuple[Any, Step]:
    """The system and its step on the first devices, not yet compiled."""
    recipe: Any
    shared: dict[str, Any] = {
        "work": work,
        "batch": TermSpec(terms=work.terms, row_length=_ROW_LENGTH),
        "width": work.width,
        "model": ModelConfig(pooling="pieces", dropout=0.0, dtype="float32"),
    }
    system: Any
    if work.step == 1:
        recipe = mlnorm()
        system = _InventedFirst(**shared, head_learning_rate_factor=RATE / ENCODER_RATE)
    else:
        recipe = mlnorm_classes()
        system = _InventedSecond(**shared, candidates=work.candidates)
    config = dataclasses.replace(recipe, system=system, optimizer=work.optimizer)
    encoder = EncoderOfRun(config=work.encoder.to_hf(), pooler=True, license=None)
    about = StartOfClasses(encoder=encoder, concepts=work.classes)
    packed = PackedGroups.packed if work.step == 1 else CandidateBatches.packed
    return system, make_step(config, about, packed, devices=jax.devices()[:devices])


def _batch_of(work: ClassWork, step: Step, terms: ClassTerms) -> dict[str, jax.Array]:
    """The batch of a step, placed on the device as in training."""
    spec, blocks = step.config.system.batch, step.cut.blocks
    mine = (*step.cut.groups(spec).shape, work.terms // spec.groups)
    if work.step == 2:
        batch = {
            "vectors": terms.vectors.reshape(*mine, -1),
            "classes": terms.classes.reshape(*mine, -1),
            "class_groups": class_group_bits(terms.classes).astype(np.int32).reshape(*mine, -1),
            "semantic_groups": terms.semantic_groups.reshape(mine),
        }
        return put_batch(step.mesh, step.cut, batch, CandidateBatches.packed)
    in_block, in_row = work.terms // blocks, _ROW_LENGTH // work.tokens
    rows = -(-in_block // in_row)
    shape = (1, blocks, rows, in_row * work.tokens)
    tokens = np.zeros((blocks, rows * in_row, work.tokens), np.int32)
    tokens[:, :in_block] = terms.tokens.reshape(blocks, in_block, -1)
    segments, positions = np.zeros_like(tokens), np.zeros_like(tokens)
    segments[:, :in_block] = np.arange(1, in_block + 1)[:, None]
    positions[:, :in_block] = np.arange(work.tokens)
    batch = {
        "tokens": tokens.reshape(shape),
        "positions": positions.reshape(shape),
        "segments": segments.reshape(shape),
        "concepts": terms.classes[:, 0].reshape(mine),
        "semantic_groups": terms.semantic_groups.reshape(mine),
    }
    return put_batch(step.mesh, step.cut, batch, PackedGroups.packed)


def _compiled(work: ClassWork, step: Step) -> jax.stages.Compiled:
    """The compiled step; no state is created."""
    batch = _batch_of(work, step, work.stored(0))
    return step.lower(batch).compile()


def program_memory(work: ClassWork) -> dict[str, Any]:
    """The memory that the compiled step needs, and that of the device; call it in its own process.

    Returns:
        `arguments` (state and batch), `temporaries` and `peak`, what `available` is at the moment,
        in bytes; and the `device`.
    """
    cost = read_cost(_compiled(work, _step_of(work)[1]))
    device = jax.devices()[0]
    available = device_memory()
    if device.platform == "cpu":
        available = available_memory()
    return {
        "arguments": cost.arguments,
        "temporaries": cost.temporaries,
        "peak": cost.peak,
        "available": available,
        "device": device.device_kind,
    }


class OurClassStep(OnDevice):
    """The system of this project; see `benchmarks.train_step_process.MeasuredSystem`."""

    def __init__(self, work: ClassWork):
        self.work = work
        system, self.train_step = _step_of(work)
        self.train_step.compiled[_ROWS] = _compiled(work, self.train_step)
        initial: dict[str, Any] = {"head": work.head()}
        initial["encoder"] = split_encoder(random_bert(work.encoder, 0))[1]
        if work.step == 2:
            zeros = np.zeros(work.width, np.float32)
            initial["statistics"] = {"mean": zeros, "variance": zeros + 1}
        like, parts = self.train_step.like, self.train_step.parts
        self.state = new_state(like, system, initial, parts, self.train_step.optimizer)

    def prepare(self, step: int, terms: ClassTerms) -> dict[str, jax.Array]:
        """The batch of a step, on the device."""
        return _batch_of(self.work, self.train_step, terms)

    def step(self, batch: dict[str, jax.Array]) -> jax.Array:
        """One optimizer step; the loss, on the device."""
        self.state, metrics = self.train_step(self.state, batch, _ROWS)
        return metrics["loss"]
