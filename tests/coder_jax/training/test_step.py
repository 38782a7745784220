"""The train step: devices and passes change nothing, packing and dropout neither."""

import dataclasses
import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_bert import TINY
from tiny_dataset import tiny_dataset
from tiny_modernbert import SIZES

import coder_jax.devices.mesh
import coder_jax.systems.group_losses
import coder_jax.training.step
from coder_jax.devices.mesh import put_batch
from coder_jax.models.bert import split_encoder
from coder_jax.models.hf_weights import random_bert, read_config
from coder_jax.systems.coder import CoderSystem
from coder_jax.systems.coder_v1 import CoderV1System
from coder_jax.systems.coderpp import CoderPlusPlusSystem
from coder_jax.systems.encoder_system import EncoderOfRun, ModelConfig, _dropout_ids
from coder_jax.systems.group_losses import StartOfGroups
from coder_jax.systems.sapbert import SapBertSystem
from coder_jax.training.state import new_state
from coder_jax.training.step import make_step
from coder_jax.training.system import Config, OptimizerConfig, RunConfig
from data_pipeline.batches.batch_maker import BatchMaker
from data_pipeline.batches.spec import BatchSpec, NeighbourSpec
from data_pipeline.process import BadInput

SPEC = BatchSpec(groups=8, triplets=4, repeats=2, row_length=32)
FEW = dataclasses.replace(SPEC, groups=2, triplets=2)  # at most four of five relations in a step
MODEL = ModelConfig(dtype="float32")
CODER = CoderSystem(model=MODEL, batch=SPEC, relation_noise=0.1, relation_update="dense")
SAPBERT = SapBertSystem(
    model=MODEL, batch=dataclasses.replace(SPEC, draw="pairs", triplets=8, repeats=1)
)
PLUSPLUS = CoderPlusPlusSystem(
    model=MODEL,
    batch=NeighbourSpec(**dataclasses.asdict(SPEC), mined_share=0.0),
    mu=1.0,
    relation_noise=0.1,
)
V1 = CoderV1System(
    model=MODEL,
    batch=SPEC,
    relation_noise=0.1,
    type_weight=0.5,
)
CONFIG = OptimizerConfig(steps=10, learning_rate=1e-3, warmup_steps=2, eps=1e-3)
DEEP = dataclasses.replace(TINY, num_layers=12, initializer_range=0.1)
MODERN = read_config(SIZES | {"model_type": "modernbert", "pad_token_id": 3}).with_dropout(0.1)


def with_model(**changes):
    return dataclasses.replace(CODER, model=dataclasses.replace(MODEL, **changes))


@pytest.fixture(scope="module")
def dataset():
    return tiny_dataset(concepts=60, triplets=150, vocabulary=TINY.vocab_size)


@functools.cache
def initial(model=TINY):
    """A random BERT no weight of which is 0 or 1, so that a relative difference says something."""
    _, encoder = split_encoder(random_bert(model, seed=0, dtype=jnp.float32))
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda array: array + 0.1 * rng.standard_normal(array.shape, np.float32), encoder
    )


def step_alone(system, *, devices=1, model=TINY, optimizer=CONFIG, **how):
    """The step of a system on some devices; `how` is of `RunConfig`."""
    config = Config(
        recipe="test",
        system=system,
        optimizer=optimizer,
        run=RunConfig(**how),
    )
    encoder = EncoderOfRun(config=model.to_hf(), pooler=model.pooled, license=None)
    about = StartOfGroups(encoder=encoder, relations=5, types=4)
    where = jax.devices()[:devices]
    return make_step(config, about, BatchMaker.packed, devices=where)


def step_of(system, *, model=TINY, **how):
    """The same, and the state before it."""
    step = step_alone(system, model=model, **how)
    state = new_state(step.like, system, {"encoder": initial(model)}, step.parts, step.optimizer)
    return step, state


def run(dataset, system=CODER, *, steps=3, **how):
    """(metrics of each step, parameters after them) of a run on some devices in some passes."""
    step, state = step_of(system, **how)
    maker = BatchMaker(dataset, system.batch, step.cut)
    rows = maker.plan.ample  # all of their rows, so there is one shape to compile
    step.compile(maker, rows)
    history = []
    for batch in maker.batches(0, steps):
        placed = put_batch(step.mesh, step.cut, batch, maker.packed)
        state, metrics = step(state, placed, rows)
        history.append({name: float(value) for name, value in metrics.items()})
    for leaf, shape in zip(jax.tree.leaves(state), jax.tree.leaves(step.like), strict=True):
        assert leaf.sharding == shape.sharding
    for behind in state.row_steps.values():
        assert int(behind.max()) == steps
    return history, jax.device_get(step.lazy.settled(state).params)


def assert_same_run(got, want):
    """Losses and parameters to 1e-6 relative, in float32."""
    for a, b in zip(got[0], want[0], strict=True):
        assert a == pytest.approx(b, rel=1e-6, abs=1e-7)
    for a, b in zip(jax.tree.leaves(got[1]), jax.tree.leaves(want[1]), strict=True):
        assert np.linalg.norm(a - b) <= 1e-6 * np.linalg.norm(b)


@pytest.fixture(scope="module")
def plain(dataset):
    return run(dataset)


@pytest.mark.parametrize(
    ("devices", "passes", "shard_encoder"),
    [
        pytest.param(8, 1, False, marks=pytest.mark.slow),
        pytest.param(2, 4, False, marks=pytest.mark.slow),
        pytest.param(8, 4, False, marks=pytest.mark.slow),
        pytest.param(8, 2, True, marks=pytest.mark.slow),
        (3, 1, True),
    ],
)
def test_devices_and_passes_change_nothing(
    dataset, plain, devices, passes, shard_encoder, monkeypatch
):
    """8 devices in 4 passes: four share a block of two groups. 3 devices share the only block."""
    assert jax.device_count() == 8, "the tests need 8 devices: see conftest.py"
    monkeypatch.setattr(coder_jax.devices.mesh, "_SMALLEST_TO_SHARD", 100)
    again = run(dataset, devices=devices, passes=passes, shard_encoder=shard_encoder)
    assert_same_run(again, plain)


@pytest.mark.parametrize(
    ("devices", "how"),
    [
        (1, {"cache_chunks": 3, "remat": "layers"}),
        pytest.param(1, {"cache_chunks": 2, "passes": 2}, marks=pytest.mark.slow),
        pytest.param(8, {"cache_chunks": 2, "passes": 4, "remat": "dots"}, marks=pytest.mark.slow),
        pytest.param(3, {"cache_chunks": 4, "shard_encoder": True}, marks=pytest.mark.slow),
        pytest.param(1, {"remat": "layers"}, marks=pytest.mark.slow),
        pytest.param(1, {"remat": "dots"}, marks=pytest.mark.slow),
    ],
)
def test_neither_chunks_nor_remat_change_anything(dataset, plain, devices, how, monkeypatch):
    """With dropout; 8 devices in 4 passes: four share a block, and each has rows of each chunk."""
    monkeypatch.setattr(coder_jax.devices.mesh, "_SMALLEST_TO_SHARD", 100)
    assert_same_run(run(dataset, devices=devices, **how), plain)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 8])
def test_nor_do_matrices_that_are_gathered_in_parts(dataset, plain, devices, monkeypatch):
    """The four matrices of a group: three, and one."""
    monkeypatch.setattr(coder_jax.systems.group_losses, "_MOST_MATRICES", 3)
    assert_same_run(run(dataset, devices=devices), plain)


@pytest.mark.slow
@pytest.mark.parametrize("how", [{"cache_chunks": 3}, {"remat": "layers"}, {"remat": "dots"}])
@pytest.mark.parametrize("model", [DEEP, MODERN], ids=["12 layers", "ModernBERT"])
def test_nor_in_other_encoders(dataset, model, how):
    again = run(dataset, model=model, steps=1, **how)
    assert_same_run(again, run(dataset, model=model, steps=1))


@pytest.mark.slow
@pytest.mark.parametrize(
    "system",
    [V1, SAPBERT, PLUSPLUS, with_model(pooling="mean"), with_model(pooling="pooler")],
    ids=["v1", "sapbert", "coderpp", "mean", "pooler"],
)
def test_nor_in_other_losses_and_poolings(dataset, system):
    assert_same_run(run(dataset, system, cache_chunks=3), run(dataset, system))


@pytest.mark.slow
def test_nor_in_bfloat16_but_for_its_rounding(dataset):
    """Gradients of weights are summed in float32 over chunks, and in one product without them."""
    system = with_model(dtype="bfloat16")
    (plain, _), (again, _) = (
        run(dataset, system, steps=1, **how) for how in ({}, {"cache_chunks": 3, "remat": "layers"})
    )
    assert again[0]["loss"] == plain[0]["loss"]
    assert again[0]["grad_norm"] == pytest.approx(plain[0]["grad_norm"], rel=1e-3)


@pytest.mark.slow
def test_a_step_takes_its_state_over_and_nothing_from_the_host(dataset):
    """A buffer that could not be donated would be a warning, which is an error in tests."""
    step, state = step_of(CODER, devices=2)
    maker = BatchMaker(dataset, CODER.batch, step.cut)
    rows = maker.plan.ample
    step.compile(maker, rows)
    (batch,) = maker.batches(0, 1)
    placed = put_batch(step.mesh, step.cut, batch, maker.packed)
    size = sum(leaf.addressable_data(0).nbytes for leaf in jax.tree.leaves(state))
    assert step.compiled[rows].memory_analysis().alias_size_in_bytes == size
    after, _ = step(state, placed, rows)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))
    on_host = placed | {"tokens": np.asarray(placed["tokens"])}
    with pytest.raises(Exception, match="Disallowed host-to-device transfer"):
        step(after, on_host, rows)


@pytest.mark.slow
@pytest.mark.parametrize("system", [CODER, SAPBERT], ids=lambda system: system.name)
def test_runs_of_another_seed_rate_and_length_share_a_program(dataset, system):
    """The compiler caches a program by its text; the numbers that differ are arguments."""
    seeded = dataclasses.replace(system, batch=dataclasses.replace(system.batch, seed=7))
    other = dataclasses.replace(CONFIG, steps=50, learning_rate=3e-4, warmup_steps=20)
    texts, metrics = [], []
    for one, optimizer in ((system, CONFIG), (seeded, other)):
        step, state = step_of(one, optimizer=optimizer)
        maker = BatchMaker(dataset, one.batch, step.cut)
        rows = maker.plan.ample
        shapes = {
            name: jax.ShapeDtypeStruct(shape, np.int32)
            for name, shape in maker.shapes(rows).items()
        }
        texts.append(step.lower(shapes).as_text())
        step.compile(maker, rows)
        # The same batch: so seed and rate alone make the difference.
        (batch,) = BatchMaker(dataset, system.batch, step.cut).batches(0, 1)
        placed = put_batch(step.mesh, step.cut, batch, maker.packed)
        before = jax.device_get(state.params["encoder"])
        after, found = step(state, placed, rows)
        moves = jax.tree.map(
            lambda new, old: np.abs(new - old).max(), after.params["encoder"], before
        )
        metrics.append((float(found["loss"]), max(jax.tree.leaves(jax.device_get(moves)))))
    assert texts[0] == texts[1]
    (loss, moved), (other_loss, less) = metrics
    assert loss != other_loss  # another dropout
    assert less == pytest.approx(moved * (3e-4 / 21) / (1e-3 / 3), rel=0.05)


@pytest.mark.slow
def test_what_chunks_save(dataset):
    """Memory beside state and batch, as the compiler plans it."""
    system = dataclasses.replace(CODER, batch=dataclasses.replace(SPEC, groups=1, triplets=64))
    planned = []
    for chunks in (1, 4, 16):
        step, _ = step_of(system, cache_chunks=chunks)
        maker = BatchMaker(dataset, system.batch, step.cut)
        step.compile(maker, maker.plan.ample)
        analysis = step.compiled[maker.plan.ample].memory_analysis()
        planned.append(analysis.temp_size_in_bytes)
    assert planned[1] < planned[0] / 2 and planned[2] < planned[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "system",
    [dataclasses.replace(CODER, score="translation"), V1],
    ids=["transe", "v1"],
)
def test_nor_for_the_other_objectives(dataset, system):
    plain = run(dataset, system)
    assert_same_run(run(dataset, system, devices=8, passes=4), plain)
    assert plain[1]["relations"].shape == (5, TINY.hidden_size)


@pytest.mark.slow
def test_nor_for_matrices_of_low_rank_that_are_updated_alone(dataset):
    system = dataclasses.replace(CODER, batch=FEW, relation_rank=3)
    plain = run(dataset, system, steps=6)
    lazy = dataclasses.replace(system, relation_update="lazy")
    assert_same_run(run(dataset, lazy, steps=6, devices=8), plain)
    table = plain[1]["relations"]
    assert table.shape == (5, 2, TINY.hidden_size, 3)
    assert np.abs(table[:, 1]).max() > 1e-3, "V began at 0"


@pytest.mark.slow
def test_nor_for_a_modernbert(dataset, monkeypatch):
    monkeypatch.setattr(coder_jax.devices.mesh, "_SMALLEST_TO_SHARD", 100)
    again = run(dataset, model=MODERN, devices=8, passes=2, shard_encoder=True)
    assert_same_run(again, run(dataset, model=MODERN))


@pytest.mark.slow
def test_types_are_learned(dataset):
    history, params = run(dataset, V1, steps=1)
    assert 0.5 < history[0]["loss_type"] / np.log(4) < 2
    assert params["types"]["kernel"].shape == (TINY.hidden_size, 4)
    assert params["types"]["bias"].all(), "it began at zero"
    without = run(dataset, dataclasses.replace(V1, type_weight=0.0), steps=1)
    assert "types" not in without[1] and "loss_type" not in without[0][0]


def test_the_norm_of_the_gradient_is_told_by_part(plain):
    first = plain[0][0]
    parts = [first["grad_norm/encoder"], first["grad_norm/relations"]]
    assert min(parts) > 0 and np.hypot(*parts) == pytest.approx(first["grad_norm"], rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "passes"), [(1, 1), (8, 1), (3, 2)])
def test_the_lazy_update_changes_nothing(dataset, devices, passes):
    """With few triplets, so that steps lack relations; devices and passes, too."""
    dense = dataclasses.replace(CODER, batch=FEW)
    lazy = dataclasses.replace(dense, relation_update="lazy")
    again = run(dataset, lazy, steps=6, devices=devices, passes=passes)
    assert_same_run(again, run(dataset, dense, steps=6))
    assert all(step["grad_norm/relations"] > 0 for step in again[0])


@pytest.mark.parametrize(("devices", "groups"), [(8, 8), (8, 2)])
def test_everything_is_spread_over_the_devices(dataset, monkeypatch, devices, groups):
    monkeypatch.setattr(coder_jax.devices.mesh, "_SMALLEST_TO_SHARD", 100)
    system = dataclasses.replace(CODER, batch=dataclasses.replace(SPEC, groups=groups))
    step, state = step_of(system, devices=devices, shard_encoder=True)
    maker = BatchMaker(dataset, system.batch, step.cut)
    made = next(maker.batches(0))
    assert {name: array.shape for name, array in made.items()} == maker.shapes(maker.plan.ample)
    for name, array in put_batch(step.mesh, step.cut, made, maker.packed).items():
        share = devices if name in ("tokens", "positions", "segments") else groups
        assert array.addressable_shards[0].data.size * share == array.size, name
        np.testing.assert_array_equal(array, made[name])
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        if leaf.ndim == 3 or leaf.size >= 100:
            assert leaf.addressable_shards[0].data.size * 8 == leaf.size, path
    _, alone = step_of(system)
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(alone), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("how", "memory", "helps"),
    [
        ({}, 2**40, "--passes 2"),
        ({"passes": 8, "shard_encoder": True}, 2**40, "--cache-chunks 2"),
        ({}, 1, "--shard-encoder"),
        ({"shard_encoder": True}, 1, "devices with more memory"),
    ],
)
def test_a_step_that_the_compiler_refuses_is_refused_with_what_helps(
    dataset, monkeypatch, how, memory, helps
):
    """TPUs' compiler itself finds that a step does not fit."""

    def refuses():
        raise jax.errors.JaxRuntimeError(f"{said}: 18.55G exceeds 15.75G\nand pages more")

    lowered = types.SimpleNamespace(compile=refuses)
    monkeypatch.setattr(coder_jax.training.step.Step, "lower", lambda *_: lowered)
    monkeypatch.setattr(coder_jax.training.step, "device_memory", lambda: memory)
    step = step_alone(CODER, **how)
    maker = BatchMaker(dataset, SPEC, step.cut)
    said = "RESOURCE_EXHAUSTED"
    with pytest.raises(BadInput, match=f"does not fit .*18.55G exceeds 15.75G.; .*{helps}"):
        step.compile(maker, maker.plan.ample)
    said = "INTERNAL"
    with pytest.raises(jax.errors.JaxRuntimeError):
        step.compile(maker, maker.plan.ample)


def test_a_step_fetches_nothing_from_the_host(dataset):
    """A batch that lies in this host's memory would be copied in every step: it is refused."""
    step, state = step_of(CODER)
    maker = BatchMaker(dataset, SPEC, step.cut)
    step.compile(maker, maker.plan.ample)
    with pytest.raises(Exception, match="Disallowed host-to-device transfer"):
        step(state, next(maker.batches(0)), maker.plan.ample)


@pytest.mark.slow
def test_without_mu_no_relation_is_learned(dataset):
    history, params = run(dataset, dataclasses.replace(CODER, mu=0.0), steps=1)
    assert "relations" not in params and "loss_relation" not in history[0]


@pytest.mark.slow
def test_the_pooler_learns_where_it_is_used_and_only_there(dataset, plain):
    before = initial()["pooler"]["kernel"]
    np.testing.assert_array_equal(before, plain[1]["encoder"]["pooler"]["kernel"])
    used = with_model(pooling="pooler")
    _, params = run(dataset, used, steps=1)
    assert not np.array_equal(before, params["encoder"]["pooler"]["kernel"])
    assert used.parts()["encoder"].undecayed == (), "it decays as other kernels do"


@pytest.mark.slow
def test_bfloat16_is_the_encoder_alone(dataset, plain):
    """The loss is near the one in float32 and not the same; what is learned stays in float32."""
    history, params = run(dataset, with_model(dtype="bfloat16"), steps=1)
    assert history[0]["loss"] == pytest.approx(plain[0][0]["loss"], rel=0.02)
    assert history[0]["loss"] != plain[0][0]["loss"]
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype("float32")}


def test_dropout_is_on(dataset, plain):
    still = with_model(dropout=0.0)
    assert run(dataset, still, steps=1)[0][0]["loss"] != plain[0][0]["loss"]


@pytest.mark.slow
def test_dropout_ids_differ_between_steps_terms_positions_and_seeds():
    segments = jnp.array([[[1, 1, 2, 2, 2]]])
    positions = jnp.array([[[0, 1, 0, 1, 2]]])

    def ids(seed, step, first, segments=segments, positions=positions):
        return np.asarray(
            _dropout_ids(seed, jnp.int32(step), jnp.array([first]), segments, positions)
        )

    all_ids = [ids(seed, step, first) for seed in (0, 1) for step in (0, 1) for first in (0, 8)]
    assert len(np.unique(np.concatenate(all_ids))) == 40
    # A term keeps its numbers wherever it is packed, and in whatever pass or block.
    positions = jnp.array([[[0, 1, 2]]])
    moved = ids(0, 0, 8, jnp.full((1, 1, 3), 5), positions)
    np.testing.assert_array_equal(moved, ids(0, 0, 0, jnp.full((1, 1, 3), 13), positions))
