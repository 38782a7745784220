"""The benchmark of the train step: three systems that do the same work, and what is said of it."""

import dataclasses
import functools
import json

import numpy as np
import pytest
from tiny_bert import write_model
from tiny_run import SPEC, write_tiny_dataset

from benchmarks import train_step
from benchmarks.train_step_process import NAMES, SystemProcess, _make_system, time_steps
from benchmarks.train_step_work import Terms, Work, initial_relations, useful_flops
from coder_jax.models.bert_config import BertConfig
from coder_jax.systems.coder import CoderSystem
from coder_jax.systems.group_losses import MultiSimilarity
from coder_jax.training.system import OptimizerConfig
from data_pipeline.process import BadInput

STEPS = 4
BATCHES = ["--groups", "4", "--triplets", "4", "--repeats", "2", "--row-length", "64"]
LIMITS = {"device": "cpu", "peak_flops": 2e9, "copy_bytes_per_s": 1e9}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny encoder and batches for it."""
    folder = tmp_path_factory.mktemp("train-step")
    write_model(folder / "model")
    write_tiny_dataset(folder / "data", folder / "model")
    return folder


def work_in(folder, **changes):
    settings = {"steps": STEPS, "relations": 7, "dtype": "float32", "dropout": False}
    return Work(encoder=folder / "model", data=folder / "data", spec=SPEC, **settings | changes)


def losses(name, work):
    system = _make_system(name, work)
    batches = [system.prepare(step, work.stored(step)) for step in range(work.steps)]
    return [float(system.step(batch)) for batch in batches]


# Updates that are large, that decay and clip: what differs in any of it moves the losses.
UNLIKE_THE_PAPER = {
    "optimizer": OptimizerConfig(
        steps=8,
        learning_rate=1e-2,
        warmup_steps=2,
        weight_decay=0.3,
        clip_norm=0.5,
    ),
    "coder": CoderSystem(
        mu=0.7,
        relation=MultiSimilarity(beta=20.0, base=0.4, margin=0.2),
        relation_learning_rate_factor=5.0,
    ),
}


@pytest.fixture(scope="module")
def without_dropout(folder):
    """Name -> the losses of that system; each is made once."""
    return functools.cache(lambda name: losses(name, work_in(folder, **UNLIKE_THE_PAPER)))


@pytest.mark.slow
@pytest.mark.parity
@pytest.mark.parametrize("name", ["recipe", "tuned"])
def test_the_peers_do_the_same_work(without_dropout, name):
    ours = without_dropout("ours")
    assert np.ptp(ours) > 0.02 * ours[0]
    assert without_dropout(name) == pytest.approx(ours, rel=train_step._LARGEST_DIFFERENCE)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_dropout_is_on_where_it_is_asked_for(folder, without_dropout, name):
    (loss,) = losses(name, work_in(folder, steps=1, dropout=True, **UNLIKE_THE_PAPER))
    assert abs(loss / without_dropout(name)[0] - 1) > 1e-3


@pytest.mark.slow
def test_the_command_prints_what_the_file_holds(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(train_step, "in_a_process", lambda call, *arguments: LIMITS)
    report = tmp_path / "new" / "train_step.json"
    command = ["--data", str(folder / "data"), "--encoder", str(folder / "model"), *BATCHES]
    command += ["--relations", "7", "--rounds", "1", "--steps", "1", "--systems", "ours", "tuned"]
    assert train_step.main([*command, "--batches", "2", "--json", str(report)]) == 0
    (row,) = json.loads(report.read_text())["rows"]
    assert row["machine"]["versions"]["torch"] and row["relations"] == 7
    assert row["terms"] == SPEC.terms and row["largest_difference"] < 1e-4
    assert set(train_step._SETTINGS) <= row.keys()
    out = capsys.readouterr().out
    assert train_step.table(row) in out
    for name in ("ours", "tuned"):
        found = row["systems"][name]
        assert found["step_s"] == found["rounds_s"][0] > 0
        assert found["terms_per_s"] == pytest.approx(SPEC.terms / found["step_s"])
        assert found["share_of_peak"] == pytest.approx(row["flops"] / found["step_s"] / 2e9)
        assert found["hours"] == pytest.approx(found["step_s"] * 100_000 / 3600)
        assert found["peak_memory"] > 50e6
        assert f"| {name} | {found['step_s']:.3f} | " in out
        assert len(row["losses"][name]) == 3


def test_systems_that_differ_are_not_compared(monkeypatch, folder):
    third = {"ours": 3.0, "tuned": 3.001}

    class Process:
        def __init__(self, name, work):
            assert work.dtype == "float32" and not work.dropout
            self.losses = [1.0, 2.0, third[name]]

        def close(self):
            pass

    monkeypatch.setattr(train_step, "SystemProcess", Process)
    with pytest.raises(BadInput, match="differ by 3.3e-04, more than 1e-04"):
        train_step._check_losses(work_in(folder, dtype="bfloat16", dropout=True), ["ours", "tuned"])
    third["tuned"] = 3.0
    assert train_step._check_losses(work_in(folder), ["ours", "tuned"])["ours"] == [1, 2, 3]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("wrong", ["ours", "recipe", "tuned"])
def test_losses_that_are_not_finite_are_refused(monkeypatch, folder, wrong, value):
    """Whoever has them, first, last or alone: a comparison with what is no number is never true."""

    class Process:
        def __init__(self, name, work):
            self.losses = [1.0, value if name == wrong else 2.0]

        def close(self):
            pass

    monkeypatch.setattr(train_step, "SystemProcess", Process)
    for systems in (list(NAMES), [wrong]):
        with pytest.raises(BadInput, match=f"the losses of {wrong} are .*expected finite"):
            train_step._check_losses(work_in(folder), systems)


def test_the_limits_are_those_of_our_settings_of_xla(monkeypatch):
    told = []
    monkeypatch.setattr(train_step, "set_up_xla", lambda: told.append("set up"))
    monkeypatch.setattr("benchmarks.limits.measured", lambda *given: told.append(given) or {})
    assert train_step._measured_limits("float32", 0.3) == {"device": "cpu"}
    assert told == ["set up", ("float32", 0.3)]


def test_systems_take_turns_and_each_begins():
    turns = []

    class Process:
        start_s = 1.0

        def __init__(self, name):
            self.name = name

        def take(self, steps):
            turns.append(self.name)
            return float(len(turns))

        def close(self):
            return {"peak_memory": 1, "peak_device": None}

    systems = [Process("ours"), Process("tuned")]
    found = time_steps(systems, rounds=3, steps={"ours": 1, "tuned": 1})
    assert turns == ["ours", "tuned", "tuned", "ours", "ours", "tuned"]
    assert found["ours"]["rounds_s"] == [1, 4, 5] and found["ours"]["step_s"] == 4


@pytest.mark.slow
def test_a_system_that_ends_is_named(folder, capfd):
    with pytest.raises(BadInput, match="process of ours ended with status 1"):
        SystemProcess("ours", dataclasses.replace(work_in(folder), data=folder / "none")).answer()
    assert "none does not exist" in capfd.readouterr().err


def test_useful_operations():
    """Two terms of 1 and 3 tokens, D = 2, inner 5, one layer; by hand."""
    encoder = BertConfig(
        vocab_size=9,
        hidden_size=2,
        num_layers=1,
        num_heads=1,
        intermediate_size=5,
        max_positions=4,
    )
    none = np.zeros((1, 1), np.int32)
    terms = Terms(
        tokens=none[0],
        lengths=np.array([[1, 3]]),
        concepts=np.zeros((1, 2), np.int32),
        relations=none,
    )
    linear = 4 * 2 * (3 * 2 * 2 + 2 * 2 + 2 * 2 * 5)
    attention = 2 * 2 * 2 * (1 + 9)
    similarities = 2 * 2 * (2 * 2 + 1 * 1)
    queries = 2 * 1 * 2 * 2
    assert useful_flops(encoder, terms) == 3 * (linear + attention + similarities + queries)


def test_matrices_are_near_the_identity_and_differ():
    table = initial_relations(3, 4)
    assert table.dtype == np.float32 and not np.allclose(table[0], table[1], atol=1e-3)
    np.testing.assert_allclose(table, np.broadcast_to(np.eye(4), (3, 4, 4)), atol=0.06)


def test_what_cannot_be_measured_is_said(folder, tmp_path, capsys):
    command = ["--encoder", str(folder / "model"), "--data"]
    assert train_step.main([*command, str(tmp_path)]) == 2
    assert "is no finished dataset" in capsys.readouterr().err
    assert train_step.main([*command, str(folder / "data"), "--relations", "3"]) == 2
    assert "--relations is 3, but the data has 5" in capsys.readouterr().err
