"""The benchmark of a step's cost: a small step compiled here, and what its devices exchange."""

import argparse
import dataclasses
import json

import jax
import pytest
from tiny_bert import write_tokenizer
from tiny_rrf import write_release

from benchmarks import compiled_step, step_cost
from benchmarks.compiled_step import _figures, _usual_rows, find_devices, measure
from benchmarks.program_cost import Collective, StepCost
from coder_jax.models.bert_config import BertConfig
from coder_jax.systems.coder import CoderSystem, coder_eng
from coder_jax.training.system import Config, RunConfig
from data_pipeline.batches.spec import BatchSpec, StepCut
from data_pipeline.build_dataset.build import build_dataset
from data_pipeline.build_dataset.options import BuildOptions
from data_pipeline.dataset.store import read_manifest
from data_pipeline.process import BadInput

pytestmark = pytest.mark.slow

# Wide enough that a matrix is much larger than the vectors that meet it.
WIDE = BertConfig(
    vocab_size=60,
    hidden_size=256,
    num_layers=1,
    num_heads=2,
    intermediate_size=64,
    max_positions=32,
)
SPEC = BatchSpec(groups=8, triplets=4, repeats=2, row_length=32)


def cost(spec=SPEC, mu=1.0, **run):
    system = CoderSystem(batch=spec, mu=mu)
    config = Config(recipe="wide", system=system, run=RunConfig(**run))
    return measure(config, WIDE, jax.devices()[:8], dtype="float32", relations=16, rows=4)


@pytest.fixture(scope="module")
def alone():
    return cost(mu=0.0)


@pytest.fixture(scope="module")
def with_relations():
    return cost()


def check_that_matrices_stay(found, spec):
    """Nothing moves that is larger than all heads of the step; sums are of the encoder's."""
    heads = spec.groups * spec.pairs * WIDE.hidden_size * 4
    matrices = spec.groups * spec.triplets * WIDE.hidden_size**2 * 4 // 8  # on each device
    assert matrices > 10 * heads
    moved = [one for one in found["largest_exchanges"] if one["kind"] != "all-reduce"]
    assert moved and max(one["size"] for one in moved) <= heads
    return matrices


def test_relation_matrices_do_not_travel(alone, with_relations):
    matrices = check_that_matrices_stay(with_relations, SPEC)
    assert 0 < with_relations["sent"] - alone["sent"] < matrices // 4


def test_relation_matrices_do_not_travel_where_devices_share_a_block():
    spec = dataclasses.replace(SPEC, groups=2, triplets=16)
    found = cost(spec)
    assert found["mesh"] == {"groups": 2, "within": 4}
    check_that_matrices_stay(found, spec)


def test_what_a_step_costs(alone, with_relations):
    assert with_relations["mesh"] == {"groups": 8, "within": 1}
    assert with_relations["flops"] > alone["flops"] > 0
    assert with_relations["peak"] >= with_relations["arguments"] + with_relations["temporaries"]
    table_and_moments = 3 * 16 * WIDE.hidden_size**2 * 4 // 8
    grown = with_relations["arguments"] - alone["arguments"]
    assert grown == pytest.approx(table_and_moments, rel=0.01)
    assert with_relations["sent"] == sum(with_relations["sent_by_kind"].values())
    largest = [one["sent"] for one in with_relations["largest_exchanges"]]
    assert largest == sorted(largest, reverse=True)


def test_a_spread_encoder_takes_less_memory_and_sends_weights_and_gradients_alone(
    alone, monkeypatch
):
    """A sum over devices sends each gradient twice; to gather weights takes half as much. (The
    compiler of TPUs also scatters the sums, so that both take as much as one sum.)"""
    monkeypatch.setattr("coder_jax.devices.mesh._SMALLEST_TO_SHARD", 1000)
    found = cost(mu=0.0, shard_encoder=True)
    assert found["arguments"] < alone["arguments"] / 3
    assert found["sent"] == pytest.approx(1.5 * alone["sent"], rel=0.02)


def test_a_loop_over_passes_hides_work_so_none_is_given():
    one = StepCost(8, 2.0, 3.0, 4, 5, 9, (Collective("all-reduce", 80, 8, 1, "sum"),))
    assert _figures(one, passes=1)["flops"] == 2.0
    found = _figures(one, passes=2)
    assert found["flops"] is None and found["bytes_accessed"] is None
    assert found["peak"] == 9 and found["sent_by_kind"] == {"all-reduce": 140}


def test_a_program_that_does_not_fit_is_a_row_of_its_own(monkeypatch):
    def refuse(*args, **kwargs):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: 18.55G exceeds 15.75G")

    monkeypatch.setattr(jax.stages.Lowered, "compile", refuse)
    found = cost()
    assert "18.55G" in found["refused"]
    text = step_cost.table([found | {"chip": "v5e", "ms_at_peak": {}, "bound": None}])
    assert "| v5e x8 | 8 | 4 | - | - | - | - | too much | - | - | - | - | - |" in text


ROW = {
    "chip": "v5e",
    "recipe": "coder_eng",
    "encoder": {},
    "devices": 8,
    "groups": 8,
    "passes": 1,
    "shard_encoder": False,
    "rows": 27,
    "flops": 1.97e12,
    "bytes_accessed": 8.19e9,
    "arguments": 2.0e9,
    "temporaries": 1.5e9,
    "peak": 3.5e9,
    "sent": 5.0e8,
    "sent_by_kind": {"all-reduce": 4.9e8, "all-to-all": 1.0e7},
}


def test_times_are_counts_over_peak_rates():
    found = step_cost._times(ROW)
    assert found == pytest.approx({"compute": 10, "memory": 10, "links": 5})
    assert step_cost._times(ROW | {"flops": None}) == {}
    assert step_cost._times(ROW | {"chip": "cpu"}) == {}


def test_the_table():
    row = ROW | {"ms_at_peak": step_cost._times(ROW), "bound": "memory"}
    line = "| v5e x8 | 8 | 27 | 1970 | 8.2 | 2.00 | 1.50 | 3.50 | 500 | 10.0 | 10.0 | 5.0 "
    assert line + "| memory |" in step_cost.table([row])
    assert "| v5e x8 | 8 | all-reduce 490.0, all-to-all 10.0 |" in step_cost._kinds([row])
    two = row | {"passes": 2, "shard_encoder": True, "flops": None, "ms_at_peak": {}, "bound": None}
    assert "| v5e x8, 2 passes, encoder sharded | 8 | 27 | - |" in step_cost.table([two])


def test_rows_that_were_measured_are_rounded_to_the_devices_of_a_block():
    cut = StepCut(blocks=8, row_multiple=8)
    assert _usual_rows(coder_eng(), cut, None, 0) == 32
    assert _usual_rows(coder_eng(), StepCut(), None, 0) == 187
    other = Config(recipe="other", system=CoderSystem(batch=BatchSpec(triplets=32)))
    with pytest.raises(BadInput, match="1 blocks of 8 groups.*--data DIR"):
        _usual_rows(other, StepCut(), None, 0)


def test_devices_that_are_not_to_be_had():
    with pytest.raises(BadInput, match="9 devices asked for, 8 fake ones"):
        find_devices("cpu", 9)
    with pytest.raises(BadInput, match="v5e comes in slices of 1, 4, 8"):
        find_devices("v5e", 12)


def test_a_missing_compiler_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    arguments = ["--chip", "v6e", "--libtpu", str(tmp_path)]
    assert step_cost.main(arguments) == 2
    assert f"no {tmp_path}/libtpu/libtpu.so" in capsys.readouterr().err


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "8")
    (tmp_path / "config.json").write_text(json.dumps(WIDE.to_hf()))
    report = tmp_path / "cost.json"
    arguments = ["--chip", "cpu", "--recipe", "small", "--groups", "per-device", "--rows", "4"]
    arguments += ["--encoder", str(tmp_path), "--json", str(report), "--programs", str(tmp_path)]
    assert step_cost.main([*arguments, "--devices", "2"]) == 0
    out = capsys.readouterr().out
    assert "| cpu x2 | 2 | 4 |" in out and "all-reduce" in out
    (row,) = json.loads(report.read_text())["rows"]
    assert row["machine"]["versions"]["jax"] == jax.__version__
    assert row["sent"] > 0 and row["bound"] is None
    assert "num_partitions=2" in (tmp_path / "cpu-2-2-1.txt").read_text().splitlines()[0]


def test_relations_are_those_of_the_dataset(tmp_path, monkeypatch):
    shapes = {}

    def compile_nothing(step, batch, program):
        shapes.update(batch, relations=step.like.params["relations"])
        return {}

    monkeypatch.setattr(compiled_step, "_compile_and_read", compile_nothing)
    write_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(WIDE.to_hf()))
    source, out = write_release(tmp_path / "META"), tmp_path / "umls"
    build_dataset(BuildOptions(source=source, out=out, tokenizer=tmp_path))
    arguments = ["--chip", "cpu", "--encoder", str(tmp_path), "--data", str(out), "--rows", "4"]
    row = step_cost.measure(step_cost.parse([*arguments, "--recipe", "small"]), 1, 1)
    manifest = read_manifest(out)
    sizes = {"relations": len(manifest.relations), "types": len(manifest.semantic_types)}
    assert row["data"] == "umls" and {name: row[name] for name in sizes} == sizes
    assert shapes["relations"].shape == (sizes["relations"], WIDE.hidden_size, WIDE.hidden_size)
    assert shapes["tokens"].shape == (1, 1, 4, 32)


def test_flags():
    args = step_cost.parse(["--chip", "v5e", "--devices", "8", "64"])
    assert isinstance(args, argparse.Namespace) and args.devices == [8, 64]
    assert (args.recipe, args.groups, args.passes) == ("coder_eng", "8", 1)
