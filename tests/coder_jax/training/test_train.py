"""A training run: stop and go on bitwise, refuse what does not fit, export what was trained."""

import copy
import dataclasses
import errno
import math
import os
import signal

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from short_run import (
    SPEC,
    Stops,
    assert_same_parameters,
    config,
    lines_of,
)
from tiny_bert import TERMS

import coder_jax.training.step
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.evaluation.normalization.heldout import HeldOut
from coder_jax.runs.checkpoint_reader import read_params
from coder_jax.runs.folder import read_identity
from coder_jax.systems.finished_run import load_run
from coder_jax.training.train import train
from data_pipeline.batches.files import BatchFiles, write_batches
from data_pipeline.process.errors import BadInput
from data_pipeline.process.stopping import Stopped, poll, stop_when_asked

pytestmark = pytest.mark.usefixtures("on_one_device")


@pytest.fixture(scope="module")
def straight(model, source, tmp_path_factory):
    """The folder of a run of six steps without a stop, evaluated at steps 3 and 6."""
    out = tmp_path_factory.mktemp("runs") / "straight"
    result = train(config(model, out, eval_steps=3), source)
    assert result.steps == 6
    assert set(result.scores["heldout"]) == {"acc@1", "acc@5", "mrr", "terms"}
    return out


def test_stop_and_go_on_is_bitwise_the_straight_run(model, source, straight, tmp_path):
    out = tmp_path / "stopped"
    with pytest.raises(ConnectionError):
        train(config(model, out), Stops(source, after=4))
    assert sorted(int(path.name) for path in (out / "checkpoints").iterdir()) == [3]
    train(config(model, out), source)
    for step in (3, 6):
        assert_same_parameters(read_params(out, step), read_params(straight, step))
    losses = [
        {line["step"]: line["loss"] for line in lines_of(path) if "loss" in line}
        for path in (out / "metrics.jsonl", straight / "metrics.jsonl")
    ]
    # The window of steps 3 and 4 was cut by the stop; the others are the same.
    assert losses[0][6] == losses[1][6] and losses[0][2] == losses[1][2]


def test_asked_to_stop_it_saves_first(model, source, straight, tmp_path):
    """Ctrl-C and SIGTERM: the step under way is kept, and nothing is lost."""

    class StopsAtTheFourth(Stops):
        def batches(self, first_step, last_step):
            for step, batch in enumerate(super().batches(first_step, last_step), first_step):
                if step == 3:
                    os.kill(os.getpid(), signal.SIGTERM)
                yield batch

    out = tmp_path / "run"
    with stop_when_asked("stopping"), pytest.raises(Stopped):
        train(config(model, out), StopsAtTheFourth(source, after=99))
    assert sorted(int(path.name) for path in (out / "checkpoints").iterdir()) == [3, 4]
    train(config(model, out), source)
    assert_same_parameters(read_params(out, 6), read_params(straight, 6))


@pytest.mark.slow
def test_stopped_while_it_looks_at_held_out_terms_it_looks_again(
    model, source, straight, tmp_path, monkeypatch
):
    """Before the first step, at the third of six, and at the last one."""
    real, looks = HeldOut.scores, []

    def asked_meanwhile(heldout, bert):
        looks.append(bert)
        if len(looks) in (1, 3, 5):
            os.kill(os.getpid(), signal.SIGTERM)
        poll()
        return real(heldout, bert)

    monkeypatch.setattr(HeldOut, "scores", asked_meanwhile)
    out = tmp_path / "run"
    for _ in range(3):
        with stop_when_asked("stopping"), pytest.raises(Stopped):
            train(config(model, out, eval_steps=3), source)
    assert train(config(model, out, eval_steps=3), source).scores
    evaluations = [line for line in lines_of(out / "metrics.jsonl") if "eval" in line]
    wanted = [line for line in lines_of(straight / "metrics.jsonl") if "eval" in line]
    assert [(line["step"], line["eval"]) for line in evaluations] == [
        (line["step"], line["eval"]) for line in wanted
    ]


def test_stopped_before_the_first_checkpoint_it_begins_again(model, source, straight, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(ConnectionError):
        train(config(model, out), Stops(source, after=0))
    assert (out / "run.json").exists() and not list((out / "checkpoints").iterdir())
    with pytest.raises(BadInput, match="has no checkpoint; it has none"):
        load_run(out)
    (out / "metrics.jsonl").write_text('{"step": 1, "eval": {"heldout": {"acc@1": 0.5}')
    train(config(model, out, save_minutes=0.0), source)
    kept = sorted(int(path.name) for path in (out / "checkpoints").iterdir())
    assert kept == [3, 5, 6]  # every step was saved; of those between only the newest stay


def test_a_full_disk_is_said_and_keeps_what_is_there(model, source, tmp_path, monkeypatch):
    real = ocp.CheckpointManager.save

    def full(manager, step, **arguments):
        if step == 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(manager, step, **arguments)

    monkeypatch.setattr(ocp.CheckpointManager, "save", full)
    out = tmp_path / "run"
    with pytest.raises(BadInput, match="(?s)disk of .* is full.*Make room"):
        train(config(model, out), source)
    assert load_run(out)[1].step == 3


def test_a_finished_run_has_nothing_left_to_do(model, source, straight):
    before = read_params(straight, 6)
    train(config(model, straight), source)
    assert_same_parameters(before, read_params(straight, 6))


def test_metrics_hold_what_is_promised(straight):
    lines = lines_of(straight / "metrics.jsonl")
    assert [line["step"] for line in lines if "loss" in line] == [2, 4, 6]
    names = "loss loss_term loss_relation mined_positives mined_negatives grad_norm learning_rate"
    for line in lines:
        if "loss" in line:
            for name in [*names.split(), "terms_per_s", "fill", "data_wait"]:
                assert math.isfinite(line[name]), name
            assert 0.3 < line["fill"] <= 1 and 0 <= line["data_wait"] <= 1
            norms = [line["grad_norm/encoder"], line["grad_norm/relations"]]
            assert min(norms) > 0 and line["grad_norm"] == pytest.approx(np.hypot(*norms), rel=0.1)
    assert [line["step"] for line in lines if "eval" in line] == [0, 3, 6]
    assert list((straight / "tensorboard").glob("events.*"))


def test_the_run_exports_what_it_trained(straight, model, tmp_path):
    system, run = load_run(straight)
    card = system.trained(run).card
    assert run.step == 6 and card["license"] == "mit"
    assert card["results"][0]["benchmark"] == "held-out terms, step 6"
    worst = system.export(run, tmp_path / "export")
    assert max(worst.values()) < 1e-5
    exported = TermEncoder.from_pretrained(tmp_path / "export")
    assert list(exported.languages) == card["languages"] == ["ENG"]
    trained = exported.encode(TERMS)
    initial = TermEncoder.from_pretrained(model, max_length=12).encode(TERMS)
    assert np.abs(trained - initial).max() > 1e-3
    with pytest.raises(BadInput, match="no checkpoint of step 5; it has 3, 6"):
        load_run(straight, step=5)


def test_another_configuration_or_dataset_is_refused_with_the_difference(model, source, straight):
    other = config(model, straight)
    batch = dataclasses.replace(SPEC, seed=7)
    other = dataclasses.replace(other, system=dataclasses.replace(other.system, batch=batch))
    with pytest.raises(BadInput, match=r"config.system.batch.seed: 0 there, 7 here"):
        train(other, source)
    changed = Stops(source, after=99)
    changed.identity = copy.deepcopy(source.identity)
    changed.identity["dataset"]["content_hash"] = "another"
    with pytest.raises(BadInput, match=r"dataset.content_hash: \w{12} there, 'another' here"):
        train(config(model, straight), changed)


def test_an_unreadable_checkpoint_is_never_replaced_by_a_new_run(model, source, straight, tmp_path):
    import shutil

    out = tmp_path / "damaged"
    shutil.copytree(straight, out)
    for path in (out / "checkpoints" / "6" / "params").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    with pytest.raises(BadInput, match="checkpoints/6 cannot be read"):
        train(config(model, out), source)


@pytest.mark.parametrize(("bad", "kept"), [(3, []), (5, [3])])
def test_a_loss_that_is_not_finite_stops_the_run_and_spoils_nothing(
    model, source, tmp_path, monkeypatch, bad, kept
):
    """Also where the bad step is the one to be saved."""
    real = coder_jax.training.step.Step.__call__

    def spoiled(step, state, batch, rows):
        state, metrics = real(step, state, batch, rows)
        return state, metrics | {"loss": metrics["loss"] / (state.step != bad)}

    monkeypatch.setattr(coder_jax.training.step.Step, "__call__", spoiled)
    out = tmp_path / "run"
    with pytest.raises(
        BadInput, match=rf"step {bad}: the loss is inf .*(?s:.)*lower learning rate"
    ):
        train(config(model, out), source)
    assert sorted(int(path.name) for path in (out / "checkpoints").iterdir()) == kept


def test_trains_on_batches_from_files(model, source, straight, tmp_path):
    write_batches(source, tmp_path / "batches", 0, 6)
    files = BatchFiles(tmp_path / "batches", SPEC)
    files.plan = source.plan
    train(config(model, tmp_path / "run"), files)
    assert_same_parameters(read_params(tmp_path / "run", 6), read_params(straight, 6))


@pytest.mark.slow
def test_a_run_starts_from_another_runs_parameters(model, source, straight, tmp_path):
    """With another loss: the encoder and the matrices are those of the other run's last step."""
    out, begun = tmp_path / "second", config(model, tmp_path / "second", save_minutes=0.0)
    system = dataclasses.replace(begun.system, mu=0.5)
    begun = dataclasses.replace(begun, system=system, start=str(straight))
    with pytest.raises(ConnectionError):
        train(begun, Stops(source, after=1))
    first, last = read_params(out, 1), read_params(straight, 6)
    for part in ("encoder", "relations"):
        for a, b in zip(jax.tree.leaves(first[part]), jax.tree.leaves(last[part]), strict=True):
            assert np.abs(a - b).max() < 2e-3  # one step of at most the rate
    assert read_identity(out)["start"]["from"]["step"] == 6
    train(begun, source)  # what it started from is not read again
    assert_same_parameters(read_params(straight, 6), last)
    with pytest.raises(BadInput, match=r"config.start: '.*' there, '' here"):
        train(dataclasses.replace(begun, start=""), source)
    with pytest.raises(BadInput, match="is not the folder of a training run"):
        train(dataclasses.replace(config(model, tmp_path / "third"), start=str(tmp_path)), source)
