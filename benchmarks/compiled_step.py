"""Compiles the train step for devices that need not exist, and reads its cost on each of them."""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import jax
from jax.experimental import topologies

from benchmarks.program_cost import StepCost, read_cost
from coder_jax.devices.mesh import placed_batch_shapes
from coder_jax.models.bert_config import BertConfig
from coder_jax.systems.encoder_system import EncoderOfRun, EncoderSystem
from coder_jax.systems.group_losses import StartOfGroups
from coder_jax.training.step import Step, make_step
from coder_jax.training.system import Config
from data_pipeline.batches import packing
from data_pipeline.batches.packing import PackedGroups
from data_pipeline.batches.spec import BatchSpec, StepCut
from data_pipeline.process import BadInput

# The compiler knows TPUs only in slices; one chip of the smallest slice is used.
_SLICES = {1: "2x2", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
# The usual rows of a block, by blocks in a step and groups in a block: what `packing.plan_rows`
# chooses for CODER_ENG's groups (256 terms, 11.0 tokens each, rows of 128) drawn from the invented
# UMLS of `benchmarks.synthetic_release` at scale 0.05 with the tokenizer of all-MiniLM-L6-v2: the
# last size but one, which is enough for nearly all steps. A group needs 22.5 rows in the mean, with
# a standard deviation of 2.2; 8 groups need 176.9 and 6.0. Steps compute less in the mean, of which
# some fit a smaller size: 182.7, 94.4, 49.7, 26.5, 29.4 and 29.1 rows.
_USUAL_ROWS = {(1, 8): 187, (2, 4): 97, (4, 2): 52, (8, 1): 30, (64, 1): 31, (256, 1): 30}
# A weight that is spread is gathered before its product, not piece by piece in a loop with it: the
# program does not tell how often such a loop runs.
_COUNTABLE: dict[str, str | bool] = {"xla_jf_spmd_threshold_for_windowed_einsum_mib": "1000000"}
_TYPES = 127  # semantic types of UMLS 2020AA
_RELATIONS = 1_216  # of the invented UMLS at scale 1


def find_devices(chip: str, count: int) -> list[jax.Device]:
    """The TPUs of a slice that is only described, or fake devices on this machine's CPU.

    Raises:
        BadInput: if there is no slice of this size, or too few fake devices.
    """
    if chip == "cpu":
        if len(jax.devices("cpu")) < count:
            raise BadInput(f"{count} devices asked for, {len(jax.devices('cpu'))} fake ones made")
        return jax.devices("cpu")[:count]
    if count not in _SLICES:
        raise BadInput(f"{count} devices: {chip} comes in slices of {', '.join(map(str, _SLICES))}")
    try:
        slice_ = topologies.get_topology_desc(
            platform="tpu", topology_name=f"{chip}:{_SLICES[count]}"
        )
    except RuntimeError as error:
        raise BadInput(
            f"no compiler for {chip} ({str(error).splitlines()[0][:200]}); give --libtpu the "
            "folder of `pip install --target DIR libtpu`, in the version that jax[tpu] asks for"
        ) from error
    return list(slice_.devices)[:count]


def _usual_rows(config: Config[EncoderSystem], cut: StepCut, data: Path | None, rows: int) -> int:
    """The rows of a block: as given, or enough for nearly all of a dataset or the synthetic UMLS.

    Raises:
        BadInput: if neither is given and the batch is none for which rows were measured.
    """
    spec = config.system.batch
    if rows:
        return rows
    if data:
        from data_pipeline.batches.batch_maker import BatchMaker
        from data_pipeline.dataset.store import open_dataset

        sizes = BatchMaker(open_dataset(data), spec, cut).plan.sizes
        return sizes[max(0, len(sizes) - 2)]  # the last is enough for any block
    key = (cut.passes * cut.blocks, spec.groups // (cut.passes * cut.blocks))
    measured = dataclasses.replace(BatchSpec(), groups=spec.groups)
    if spec != measured or key not in _USUAL_ROWS:
        raise BadInput(
            f"rows were not measured for {key[0]} blocks of {key[1]} groups of this recipe; give "
            "--data DIR (a built dataset), or --rows N"
        )
    return -(-_USUAL_ROWS[key] // cut.row_multiple) * cut.row_multiple


def _numbers_of(data: Path | None) -> tuple[int, int]:
    """R and S: relations and semantic types of a dataset or of the synthetic UMLS."""
    if data is None:
        return _RELATIONS, _TYPES
    from data_pipeline.dataset.store import read_manifest

    manifest = read_manifest(data)
    return len(manifest.relations), len(manifest.semantic_types)


def measure(
    config: Config[EncoderSystem],
    encoder: BertConfig,
    devices: Sequence[jax.Device],
    *,
    dtype: Literal["float32", "bfloat16"],
    relations: int = 0,
    data: Path | None = None,
    rows: int = 0,
    program: Path | None = None,
) -> dict[str, Any]:
    """Compiles one step and reads what it costs each device.

    Args:
        config: the run; its system, optimizer, passes and placement are used.
        encoder: sizes of the encoder.
        devices: what to compile for.
        dtype: arithmetic of the encoder.
        relations: R, the relation matrices; if 0 as many as the data has.
        data, rows: see `_numbers_of` and `_usual_rows`.
        program: where the compiled program is written as text, if anywhere.
    """
    system, passes = config.system, config.run.passes
    model = dataclasses.replace(system.model, dtype=dtype)
    config = dataclasses.replace(config, system=dataclasses.replace(system, model=model))
    relations_of_data, types = _numbers_of(data)
    relations = relations or relations_of_data
    pooler = model.pooling == "pooler"
    about = StartOfGroups(
        encoder=EncoderOfRun(config=encoder.to_hf(), pooler=pooler, license=None),
        relations=relations,
        types=types,
    )
    step = make_step(config, about, PackedGroups.packed, devices=devices)
    rows = _usual_rows(config, step.cut, data, rows)
    shapes = packing.batch_shapes(system.batch, step.cut, rows)
    batch = placed_batch_shapes(step.mesh, step.cut, shapes, PackedGroups.packed)
    found: dict[str, Any] = {
        "devices": len(devices),
        "groups": system.groups,
        "passes": passes,
        "shard_encoder": config.run.shard_encoder,
        "mesh": dict(step.mesh.shape),
        "rows": rows,
        "dtype": dtype,
        "relations": relations,
        "types": types,
    }
    return found | _compile_and_read(step, batch, program)


def _compile_and_read(
    step: Step, batch: dict[str, jax.ShapeDtypeStruct], program: Path | None
) -> dict[str, Any]:
    """The compiler's cost of a step for the shapes of a batch, or its refusal."""
    started = time.monotonic()
    try:
        options = _COUNTABLE if step.mesh.devices.flat[0].platform == "tpu" else None
        compiled = step.lower(batch).compile(compiler_options=options)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return {"refused": str(error).splitlines()[0][:500]}
    if program:
        program.write_text(compiled.as_text() or "", encoding="utf-8")
    try:
        cost = read_cost(compiled)
    except ValueError as error:
        raise BadInput(
            f"the compiled program cannot be counted: {str(error)[:200]}; leave out this setting"
        ) from error
    return _figures(cost, step.cut.passes) | {"compile_s": time.monotonic() - started}


def _figures(cost: StepCost, passes: int) -> dict[str, Any]:
    """A cost as plain values; without work and memory traffic if a loop over passes hides some."""
    largest = sorted(cost.collectives, key=lambda one: -one.sent)[:8]
    return {
        "flops": cost.flops if passes == 1 else None,
        "bytes_accessed": cost.bytes_accessed if passes == 1 else None,
        "arguments": cost.arguments,
        "temporaries": cost.temporaries,
        "peak": cost.peak,
        "sent": cost.sent,
        "sent_by_kind": cost.sent_by_kind(),
        "largest_exchanges": [dataclasses.asdict(one) | {"sent": one.sent} for one in largest],
    }
