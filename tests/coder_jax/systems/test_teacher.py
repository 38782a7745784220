"""A teacher: its part of the loss against loops in NumPy, its batches, its file, and runs with
it."""

import dataclasses
import json
import math
import re
import shlex
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from short_run import Stops, assert_same_parameters, config, lines_of
from tiny_ontology import write_ontology

import coder_jax.devices.mesh
from coder_jax.__main__ import main
from coder_jax.commands.train import parse
from coder_jax.devices.mesh import make_mesh, put_batch, step_cut
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.systems.coder import CoderSystem
from coder_jax.systems.coder_v1 import CoderV1System
from coder_jax.systems.coderpp import CoderPlusPlusSystem
from coder_jax.systems.encoder_system import term_vectors
from coder_jax.systems.sapbert import SapBertSystem
from coder_jax.systems.teacher import _TEMPERATURE, open_teacher, teacher_loss
from coder_jax.training.checkpoints import read_params
from coder_jax.training.run_folder import read_run_identity
from coder_jax.training.state import new_state
from coder_jax.training.step import make_step
from coder_jax.training.system import StepKey, to_json
from coder_jax.training.train import train
from data_pipeline.batches.batch_maker import BatchMaker, TeacherVectors
from data_pipeline.batches.spec import BatchSpec, NeighbourSpec, StepCut
from data_pipeline.build_dataset import __main__ as build
from data_pipeline.dataset.store import open_dataset
from data_pipeline.process import BadInput

WIDTH = 7  # of the teacher's vectors; the student's have 32 numbers
SPEC = BatchSpec(
    groups=2,
    triplets=4,
    repeats=2,
    row_length=64,
    teacher="teacher.npy",
    teacher_weight=0.7,
    teacher_temperature=0.1,
)


def cosines(vectors):
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit @ unit.T


def by_hand(student, teacher, concepts, temperature):
    """The mean over terms i of sum_j p_j log(p_j / q_j), of the terms j of other concepts."""
    total = 0.0
    for i, concept in enumerate(concepts):
        others = [j for j, other in enumerate(concepts) if other != concept]
        p = [math.exp(teacher[i, j] / temperature) for j in others]
        q = [math.exp(student[i, j] / 0.05) for j in others]
        total += sum(
            a / sum(p) * math.log((a / sum(p)) / (b / sum(q))) for a, b in zip(p, q, strict=True)
        )
    return total / len(concepts)


def random_vectors(n, width, seed):
    return np.random.default_rng(seed).normal(size=(n, width))


@pytest.mark.parametrize("temperature", [0.05, 0.3])
@pytest.mark.parametrize("concepts", [[0, 1, 2, 3, 0, 1, 2, 2], [0, 0, 0, 1, 0]])
def test_the_loss_is_that_of_the_formula(concepts, temperature):
    student, teacher = (
        cosines(random_vectors(len(concepts), width, seed=width)) for width in (32, WIDTH)
    )
    other = np.array(concepts)[:, None] != np.array(concepts)
    found = teacher_loss(*map(jnp.asarray, (student, teacher, other)), temperature=temperature)
    want = by_hand(student, teacher, concepts, temperature)
    assert want > 0.1
    assert float(found) == pytest.approx(want, rel=1e-5)


def test_it_is_0_for_the_same_ranking_and_where_there_is_nothing_to_rank():
    similarity = jnp.asarray(cosines(random_vectors(6, 8, seed=0)))
    concepts = np.array([0, 1, 2, 3, 4, 0])
    other = jnp.asarray(concepts[:, None] != concepts)
    shift = jnp.arange(6.0)[:, None] / 10  # how similar terms are at all does not count

    def loss(student):
        teacher = 2 * similarity + shift
        return teacher_loss(student, teacher, other, temperature=2 * _TEMPERATURE)

    assert float(loss(similarity)) == pytest.approx(0, abs=1e-6)
    assert np.abs(jax.grad(loss)(similarity)).max() < 1e-5
    nothing = jnp.zeros((6, 6), bool)

    def of_one_concept(student):
        return teacher_loss(student, similarity, nothing, temperature=0.1)

    value, slope = jax.value_and_grad(of_one_concept)(jnp.ones((6, 6)))
    assert float(value) == 0 and not np.asarray(slope).any()


@pytest.mark.parametrize("far", [True, False])
def test_its_gradient_draws_to_what_the_teacher_finds_near(far):
    vectors = np.array([[1.0, 0, 0], [0.6, 0.8, 0], [0.6, -0.8, 0.1]])
    teacher = cosines(np.array([[1.0, 0], [0.9, 0.1], [0.1, 0.9]])[[0, 2, 1] if far else [0, 1, 2]])

    def loss(vectors):
        unit = vectors / jnp.linalg.norm(vectors, axis=1, keepdims=True)
        other = ~jnp.eye(3, dtype=bool)
        return teacher_loss(unit @ unit.T, jnp.asarray(teacher), other, temperature=0.1)

    moved = vectors - 0.01 * np.asarray(jax.grad(loss)(jnp.asarray(vectors)))
    nearer = cosines(moved)[0] - cosines(vectors)[0]
    assert (nearer[2] > nearer[1]) == far


# ---- In batches and steps ----


def teacher_for(dataset, seed=0):
    """Random vectors of the terms of a dataset, in another order and with others between."""
    terms = int(dataset.term_start[-1])
    rows = np.random.default_rng(seed).permutation(2 * terms)[:terms]
    return TeacherVectors(
        vectors=random_vectors(2 * terms, WIDTH, seed).astype(np.float16),
        row_of_term=rows,
        hash=f"{seed:064x}",
    )


@pytest.fixture(scope="module")
def taught(source):
    maker = BatchMaker(source.dataset, SPEC, teacher=teacher_for(source.dataset))
    maker.plan = source.plan  # one shape to compile
    return maker


def test_a_batch_has_the_vectors_of_its_terms(taught):
    teacher = taught.teacher
    cut = BatchMaker(taught.dataset, SPEC, StepCut(passes=2), teacher=teacher)
    for step, batch in enumerate(cut.batches(0, 10)):
        assert batch["teacher"].shape == cut.shapes(1)["teacher"] == (2, 1, 1, 16, WIDTH)
        assert batch["teacher"].dtype == np.float32 and "teacher" in cut.floats
        drawn = taught.draw(step, np.arange(2))
        want = teacher.vectors[teacher.row_of_term[drawn["terms"]]].astype(np.float32)
        np.testing.assert_array_equal(batch["teacher"][:, 0, 0], want)
        np.testing.assert_array_equal(taught.batch(step)["teacher"][0, 0], want)
        np.testing.assert_array_equal(taught.unpacked(step)["teacher"], want)
        concepts = batch["concepts"][:, 0, 0]
        np.testing.assert_array_equal(concepts, drawn["concepts"])
    assert step == 9
    seeds = [
        BatchMaker(taught.dataset, dataclasses.replace(SPEC, seed=seed), teacher=teacher)
        for seed in (0, 3)
    ]
    assert seeds[0].plan == seeds[1].plan and "teacher" in seeds[1].batch(0)


def values(system, source, step=0):
    """The loss of a step, its metrics, its vectors [G, N, D], and its batch without dropout."""
    system = dataclasses.replace(system, model=dataclasses.replace(system.model, dropout=0.0))
    start, params = system.load_initial(source)
    mesh = make_mesh(1, jax.devices()[:1])
    batch = {name: jnp.asarray(array[0]) for name, array in source.batch(step).items()}
    where = StepKey(step=jnp.int32(step), number=jnp.int32(0))
    total, (_, metrics) = system.loss(start, mesh)(params, {}, batch, where)
    from coder_jax.models.bert import merge_encoder, split_encoder

    bert = merge_encoder(split_encoder(system.structure(start))[0], params["encoder"])
    vectors = term_vectors(bert, batch, where, mesh, system.model.pooling, 0)
    return float(total), metrics, np.asarray(vectors[0]), jax.device_get(batch)


def system_of(kind, model, spec, **changes):
    """A system without relations."""
    given = {} if kind is SapBertSystem else {"mu": 0.0}
    model = config(model, "x").system.model
    return kind(**{**given, "model": model, "batch": spec, **changes}).resolved()


@pytest.mark.parametrize("kind", [CoderSystem, SapBertSystem, CoderV1System, CoderPlusPlusSystem])
def test_a_step_has_it_with_its_weight(kind, model, source, taught):
    spec, maker = SPEC, taught
    if kind is CoderPlusPlusSystem:
        spec = NeighbourSpec(**dataclasses.asdict(SPEC), mined_share=0.0)
        maker = BatchMaker(taught.dataset, spec, teacher=taught.teacher)
    total, metrics, vectors, batch = values(system_of(kind, model, spec), maker)
    plain, others, *_ = values(system_of(kind, model, source.spec), source)
    want = np.mean(
        [
            by_hand(
                *(cosines(one[g].astype(np.float64)) for one in (vectors, batch["teacher"][0])),
                batch["concepts"][0, g],
                temperature=0.1,
            )
            for g in range(2)
        ]
    )
    assert float(metrics["loss_teacher"]) == pytest.approx(want, rel=1e-4)
    assert total == pytest.approx(plain + 0.7 * want, rel=1e-5)
    assert metrics.keys() == {*others, "loss_teacher"}


def test_with_widths_each_has_it(model, source, taught):
    widths = (32, 8)
    total, metrics, vectors, batch = values(
        system_of(CoderSystem, model, SPEC, matryoshka=widths), taught
    )
    for width in widths:
        _, alone, *_ = values(
            system_of(CoderSystem, model, source.spec, matryoshka=(width,)), source
        )
        part = np.mean(
            [
                by_hand(
                    cosines(vectors[g, :, :width].astype(np.float64)),
                    cosines(np.asarray(batch["teacher"][0, g], np.float64)),
                    batch["concepts"][0, g],
                    temperature=0.1,
                )
                for g in range(2)
            ]
        )
        found = float(metrics[f"loss_first_{width}"])
        assert found == pytest.approx(float(alone["loss_term"]) + 0.7 * part, rel=1e-4)


def after_steps(model, taught, devices=1, **how):
    """Metrics and parameters after two steps with dropout, divided in some way."""
    run = config(model, "x", **how)
    system = system_of(CoderSystem, model, SPEC)
    start, params = system.load_initial(taught)
    # Adam's eps: where a gradient is nearly 0, rounding would decide the direction of a step.
    optimizer = dataclasses.replace(run.optimizer, eps=1e-3)
    made = dataclasses.replace(run, system=system, optimizer=optimizer)
    step = make_step(made, start, taught.packed, devices=jax.devices()[:devices])
    state = new_state(step.like, system, params, step.parts, step.optimizer)
    maker = BatchMaker(taught.dataset, SPEC, step.cut, teacher=taught.teacher)
    step.compile(maker, maker.plan.ample)
    found = []
    for batch in maker.batches(0, 2):
        placed = put_batch(step.mesh, step.cut, batch, maker.packed)
        state, metrics = step(state, placed, maker.plan.ample)
        found.append({name: float(value) for name, value in metrics.items()})
    return found, jax.device_get(state.params)


@pytest.fixture(scope="module")
def undivided(model, taught):
    return after_steps(model, taught)


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        {"cache_chunks": 3},
        {"devices": 3},
        {"devices": 2},
        {"passes": 2, "remat": "layers"},
    ],
)
def test_chunks_passes_and_devices_change_nothing(how, model, taught, undivided, monkeypatch):
    monkeypatch.setattr(coder_jax.devices.mesh, "_SMALLEST_TO_SHARD", 100)
    found, params = after_steps(model, taught, **how)
    for one, plain in zip(found, undivided[0], strict=True):
        assert "loss_teacher" in one
        assert one == pytest.approx(plain, rel=1e-6, abs=1e-7)
    for one, plain in zip(*map(jax.tree.leaves, (params, undivided[1])), strict=True):
        assert np.linalg.norm(one - plain) <= 1e-6 * np.linalg.norm(plain)


@pytest.mark.slow
@pytest.mark.usefixtures("on_one_device")
def test_a_run_that_goes_on_is_bitwise_the_straight_one(model, taught, tmp_path):
    def settings(out, **changes):
        run = config(model, tmp_path / out)
        batch = dataclasses.replace(SPEC, **changes)
        return dataclasses.replace(run, system=system_of(CoderSystem, model, batch))

    train(settings("straight"), taught)
    with pytest.raises(ConnectionError):
        train(settings("stopped"), Stops(taught, after=4))
    other = BatchMaker(taught.dataset, SPEC, teacher=teacher_for(taught.dataset, seed=1))
    with pytest.raises(BadInput, match=r"teacher.hash: 000000000000 there, 000000000000 here"):
        train(settings("stopped"), other)
    with pytest.raises(BadInput, match=r"teacher_weight: 0.7 there, 0.5 here"):
        train(settings("stopped", teacher_weight=0.5), taught)
    train(settings("stopped"), taught)
    assert_same_parameters(*(read_params(tmp_path / out, 6) for out in ("stopped", "straight")))
    assert read_run_identity(tmp_path / "stopped")["teacher"] == {"hash": f"{0:064x}"}
    assert all(
        line["loss_teacher"] > 0
        for line in lines_of(tmp_path / "stopped" / "metrics.jsonl")
        if "loss" in line
    )


# ---- The file ----


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    """A dataset, and `v.npy` with the vectors of its strings, by the command `encode`."""
    folder = tmp_path_factory.mktemp("teacher")
    ontology = write_ontology(folder / "tiny.obo", classes=60)
    ontology.write_text(ontology.read_text().replace("name: pain", "name: Pain"))
    made = ["--source", ontology, "--tokenizer", model, "--hold-out", "5"]
    assert build.main([*map(str, made), "--out", str(folder / "data")]) == 0
    encode = ["encode", "--model", model, "--out", folder / "v.npy", "--dictionary"]
    assert main([str(word) for word in [*encode, folder / "data"]]) == 0
    return folder


@pytest.fixture(scope="module")
def dataset(folder):
    return open_dataset(folder / "data", source=True)


def test_a_file_of_encode_is_taken_as_it_is(folder, dataset, model):
    teacher = open_teacher(folder / "v.npy", folder / "data")
    assert len(teacher.row_of_term) == len(dataset.terms)
    found = teacher(np.arange(len(dataset.terms)).reshape(1, -1))[0]
    first = [dataset.source.strings[row] for row in dataset.source.string_start[:-1]]
    assert first != dataset.terms, "cleaning changes terms"
    encoder = TermEncoder.from_pretrained(model)
    np.testing.assert_allclose(found, encoder.encode(first), rtol=0, atol=1e-5)


def write_file(tmp_path, vectors, terms=None):
    path = tmp_path / "teacher.npy"
    np.save(path, vectors)
    if terms is not None:
        path.with_suffix(".txt").write_text("".join(f"{term}\n" for term in terms))
    return path


@pytest.mark.parametrize("as_cleaned", [True, False])
def test_a_file_of_another_program_has_its_terms_beside_it(folder, dataset, tmp_path, as_cleaned):
    """In any order, each as it is trained on or as its source writes it, and others too."""
    last = [dataset.source.strings[row - 1] for row in dataset.source.string_start[1:]]
    terms = ["another", *reversed(dataset.terms if as_cleaned else last)]
    vectors = random_vectors(len(terms), WIDTH, seed=0)
    vectors[0] = 0  # a term that is not needed
    teacher = open_teacher(write_file(tmp_path, vectors, terms), folder / "data")
    np.testing.assert_array_equal(
        teacher(np.arange(len(dataset.terms))), vectors[:0:-1].astype(np.float32)
    )
    again = open_teacher(write_file(tmp_path, vectors, terms), folder / "data")
    assert again.hash == teacher.hash
    terms[1], terms[2] = terms[2], terms[1]
    others = open_teacher(write_file(tmp_path, vectors, terms), folder / "data")
    assert others.hash != teacher.hash, "other terms have the vectors"
    vectors[5, 0] += 1
    assert open_teacher(write_file(tmp_path, vectors, terms), folder / "data").hash != others.hash


@pytest.mark.parametrize("value", [None, 0.0, np.nan, 1e30])
def test_terms_without_a_vector_are_counted_before_the_run(folder, dataset, tmp_path, value):
    terms = list(dict.fromkeys(dataset.terms))
    vectors = random_vectors(len(terms), WIDTH, seed=0)
    if value is None:
        terms, vectors = terms[2:], vectors[2:]
    else:
        vectors[:2] = value
    path = write_file(tmp_path, vectors, terms)
    found = r"found no vector for 2 of the \d+ terms of .*such as '.*expected one for each: make it"
    with pytest.raises(BadInput, match=found) as error:
        open_teacher(path, folder / "data")
    make = f"encode --model TEACHER --dictionary {folder / 'data'} --out {path}"
    assert make in str(error.value)


def test_a_file_of_unknown_or_other_terms_is_refused(folder, dataset, tmp_path):
    vectors = np.load(folder / "v.npy")
    path = write_file(tmp_path, vectors)
    with pytest.raises(BadInput, match=r"neither teacher.txt nor teacher.npy.json beside it"):
        open_teacher(path, folder / "data")
    about = json.loads((folder / "v.npy.json").read_text())
    about["terms"]["hash"] = "0" * 64
    (tmp_path / "teacher.npy.json").write_text(json.dumps(about))
    with pytest.raises(BadInput, match=r"vectors of other terms than those of .*data, which has"):
        open_teacher(path, folder / "data")
    shutil.copy(folder / "v.npy.json", tmp_path / "teacher.npy.json")
    assert open_teacher(path, folder / "data").width == 32
    write_file(tmp_path, vectors, dataset.source.strings[::-1])
    with pytest.raises(BadInput, match=r"vectors of other terms than those of .*teacher.txt, whi"):
        open_teacher(path, folder / "data")
    (tmp_path / "teacher.npy.json").unlink()
    write_file(tmp_path, vectors, dataset.source.strings[1:])
    with pytest.raises(BadInput, match=rf"{len(vectors)} vectors .* has {len(vectors) - 1}; exp"):
        open_teacher(path, folder / "data")
    with pytest.raises(BadInput, match="cannot be read.*make it with `python -m coder_jax encode"):
        open_teacher(tmp_path / "no.npy", folder / "data")


@pytest.mark.slow
@pytest.mark.usefixtures("on_one_device")
def test_the_flags_train_with_it(folder, model, tmp_path):
    command = ["--recipe", "small_synonyms", "--data", folder / "data", "--init", model]
    command += ["--out", tmp_path / "run", "--steps", "2", "--warmup-steps", "1"]
    command += ["--triplets", "4", "--row-length", "64", "--eval-steps", "0", "--log-steps", "1"]
    command += ["--teacher", folder / "v.npy", "--teacher-weight", "0.5"]
    settings = parse([str(word) for word in command])
    cut = step_cut(make_mesh(1, jax.devices()[:1]), 1)
    source = settings.system.open(folder / "data", cut, rows=0, steps=2)
    assert train(settings, source).steps == 2
    lines = [line for line in lines_of(tmp_path / "run" / "metrics.jsonl") if "loss" in line]
    assert len(lines) == 2
    for line in lines:
        want = line["loss_term"] + 0.5 * line["loss_teacher"]
        assert line["loss_teacher"] > 0 and line["loss"] == pytest.approx(want)
    hashed = open_teacher(folder / "v.npy", folder / "data").hash
    assert read_run_identity(tmp_path / "run")["teacher"] == {"hash": hashed}
    export = ["export", "--checkpoint", tmp_path / "run", "--out", tmp_path / "export"]
    assert main([str(word) for word in export]) == 0
    card = (tmp_path / "export" / "README.md").read_text()
    assert "vectors of v.npy, weight 0.5, temperature 0.05" in card
    assert "| licenses, as its files say | T: https://example.org/tiny |" in card
    built, trained = re.search(r"```bash\n(.*)\n(.*)\n```", card).groups()
    assert built.startswith("python -m data_pipeline.build --source ") and str(folder) not in card
    again = shlex.split(trained)[4:]
    for name, path in ((model.name, model), ("v.npy", folder / "v.npy")):
        again[again.index(name)] = str(path)
    recorded = read_run_identity(tmp_path / "run")["config"]
    assert {name: to_json(parse(again))[name] for name in recorded} == recorded


@pytest.mark.parametrize("recipe", ["mlnorm", "recall", "rank", "bne"])
def test_systems_without_groups_have_no_teacher(recipe):
    with pytest.raises(BadInput, match="there is no option --teacher"):
        parse(["--recipe", recipe, "--teacher", "v.npy"])


def test_a_temperature_is_more_than_0():
    with pytest.raises(BadInput, match="--teacher-temperature is 0; expected more than 0"):
        BatchSpec(teacher_temperature=0).validate()
    with pytest.raises(BadInput, match="--teacher-weight is -1; expected 0 or more"):
        BatchSpec(teacher_weight=-1).validate()
