"""A training run: stop and go on bitwise, refuse what does not fit, export what was trained."""

import copy
import dataclasses
import errno
import gzip
import json
import math
import os
import re
import signal
import time

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from short_run import SPEC, Stops, assert_same_parameters, config, lines_of
from tiny_bert import TERMS

import coder_jax.training.step
import coder_jax.training.train
from coder_jax.devices.mesh import make_mesh, step_cut
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.evaluation.normalization import (
    HeldOut,
    Mentions,
    NormalizationFold,
    with_terms_at_most,
)
from coder_jax.systems.trained_models import load_run
from coder_jax.training.checkpoints import _read_item, read_params
from coder_jax.training.run_folder import claim_run_folder, lock_run, read_run_identity
from coder_jax.training.train import _Pace, _Window, train
from data_pipeline.batches.batch_maker import BatchMaker
from data_pipeline.batches.spec import StepCut
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process import BadInput, Stopped, _stop_when_asked, poll


@pytest.fixture(scope="module")
def straight(model, source, tmp_path_factory):
    """The folder of a run of six steps without a stop, evaluated at steps 3 and 6."""
    out = tmp_path_factory.mktemp("runs") / "straight"
    result = train(config(model, out, eval_steps=3), source)
    assert result.steps == 6
    assert set(result.scores["heldout"]) == {"acc@1", "acc@5", "mrr", "terms"}
    return out


@pytest.mark.slow
@pytest.mark.usefixtures("on_one_device")
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


@pytest.mark.slow
@pytest.mark.usefixtures("on_one_device")
def test_so_it_is_with_chunks_and_remat_and_a_run_may_change_them(
    model, source, straight, tmp_path
):
    how = {"cache_chunks": 2, "remat": "layers"}
    chunked = BatchMaker(source.dataset, source.spec, StepCut(row_multiple=2))
    train(config(model, tmp_path / "whole", **how), chunked)
    for out, then, batches in ((tmp_path / "again", how, chunked), (tmp_path / "b", {}, source)):
        with pytest.raises(ConnectionError):
            train(config(model, out, **how), Stops(chunked, after=4))
        train(config(model, out, **then), batches)
    again = read_params(tmp_path / "again", 6)
    assert_same_parameters(again, read_params(tmp_path / "whole", 6))
    for path in (tmp_path / "whole", tmp_path / "b"):
        for line, wanted in zip(_lines(path), _lines(straight), strict=True):
            # The stop cut the window of steps 3 and 4.
            if path.name == "whole" or line["step"] != 4:
                assert line["loss"] == pytest.approx(wanted["loss"], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "how"),
    [
        (1, {"cache_chunks": 2}),
        (1, {"remat": "dots"}),
        (1, {"passes": 2}),
        (2, {}),
        (2, {"shard_encoder": True}),
    ],
)
def test_so_it_is_with_each_alone_and_with_several_devices(
    model, source, tmp_path, monkeypatch, devices, how
):
    def mesh(groups, _=None):
        return make_mesh(groups, jax.devices()[:devices])

    monkeypatch.setattr(coder_jax.training.step, "make_mesh", mesh)
    passes = how.get("passes", 1)
    cut = step_cut(mesh(SPEC.groups // passes), passes, how.get("cache_chunks", 1))
    batches = BatchMaker(source.dataset, source.spec, cut)
    whole, again = tmp_path / "whole", tmp_path / "again"
    train(config(model, whole, **how), batches)
    with pytest.raises(ConnectionError):
        train(config(model, again, **how), Stops(batches, after=4))
    train(config(model, again, **how), batches)
    assert_same_parameters(read_params(again, 6), read_params(whole, 6))
    ends = [_read_item(out / "checkpoints" / "6", "rest") for out in (whole, again)]
    assert_same_parameters(*ends)


@pytest.mark.slow
@pytest.mark.usefixtures("on_one_device")
def test_so_it_is_with_a_first_moment_in_bfloat16_which_a_run_keeps(model, source, tmp_path):
    def with_moment(out, moment):
        plain = config(model, out)
        optimizer = dataclasses.replace(plain.optimizer, first_moment=moment)
        return dataclasses.replace(plain, optimizer=optimizer)

    whole, again = tmp_path / "whole", tmp_path / "again"
    train(with_moment(whole, "bfloat16"), source)
    with pytest.raises(ConnectionError):
        train(with_moment(again, "bfloat16"), Stops(source, after=4))
    with pytest.raises(BadInput, match="first_moment: 'bfloat16' there, 'float32' here"):
        train(with_moment(again, "float32"), source)
    train(with_moment(again, "bfloat16"), source)
    assert_same_parameters(read_params(again, 6), read_params(whole, 6))
    ends = [_read_item(out / "checkpoints" / "6", "rest") for out in (whole, again)]
    assert_same_parameters(*ends)
    kinds = {(array.dtype.name, array.ndim > 0) for array in jax.tree.leaves(ends[0]["opt_state"])}
    assert kinds == {("bfloat16", True), ("float32", True), ("int32", False)}


def _lines(out):
    return [line for line in lines_of(out / "metrics.jsonl") if "loss" in line]


@pytest.mark.usefixtures("on_one_device")
def test_asked_to_stop_it_saves_first(model, source, straight, tmp_path):
    """Ctrl-C and SIGTERM: the step under way is kept, and nothing is lost."""

    class StopsAtTheFourth(Stops):
        def batches(self, first_step, last_step):
            for step, batch in enumerate(super().batches(first_step, last_step), first_step):
                if step == 3:
                    os.kill(os.getpid(), signal.SIGTERM)
                yield batch

    out = tmp_path / "run"
    with _stop_when_asked("stopping"), pytest.raises(Stopped):
        train(config(model, out), StopsAtTheFourth(source, after=99))
    assert sorted(int(path.name) for path in (out / "checkpoints").iterdir()) == [3, 4]
    train(config(model, out), source)
    assert_same_parameters(read_params(out, 6), read_params(straight, 6))


@pytest.mark.usefixtures("on_one_device")
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
        with _stop_when_asked("stopping"), pytest.raises(Stopped):
            train(config(model, out, eval_steps=3), source)
    assert train(config(model, out, eval_steps=3), source).scores
    evaluations = [line for line in lines_of(out / "metrics.jsonl") if "eval" in line]
    wanted = [line for line in lines_of(straight / "metrics.jsonl") if "eval" in line]
    assert [(line["step"], line["eval"]) for line in evaluations] == [
        (line["step"], line["eval"]) for line in wanted
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("on_one_device")
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


@pytest.mark.slow
@pytest.mark.usefixtures("on_one_device")
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


@pytest.mark.usefixtures("on_one_device")
def test_a_finished_run_has_nothing_left_to_do(model, source, straight):
    before = read_params(straight, 6)
    train(config(model, straight), source)
    assert_same_parameters(before, read_params(straight, 6))


@pytest.mark.usefixtures("on_one_device")
def test_metrics_hold_what_is_promised(straight):
    lines = lines_of(straight / "metrics.jsonl")
    assert [line["step"] for line in lines if "loss" in line] == [2, 4, 6]
    names = "loss loss_term loss_relation mined_positives mined_negatives grad_norm learning_rate"
    for line in lines:
        if "loss" in line:
            for name in [*names.split(), "terms_per_s", "tokens_per_s", "fill", "data_wait"]:
                assert math.isfinite(line[name]), name
            for name in ("tflop_per_s", "step_seconds", "compile_s", "eval_s", "peak_memory_gb"):
                assert line[name] > 0, name
            assert (line["save_s"] > 0) == (line["step"] > 3) and line["refresh_s"] < 1
            assert 0 < line["goodput"] < 1 and "mfu" not in line, "a CPU's peak is not known"
            assert 0.3 < line["fill"] <= 1 and 0 <= line["data_wait"] <= 1
            norms = [line["grad_norm/encoder"], line["grad_norm/relations"]]
            assert min(norms) > 0 and line["grad_norm"] == pytest.approx(np.hypot(*norms), rel=0.1)
    assert [line["step"] for line in lines if "eval" in line] == [0, 3, 6]
    assert list((straight / "tensorboard").glob("events.*"))


@pytest.mark.slow
@pytest.mark.usefixtures("on_one_device")
def test_the_time_of_checkpoints_is_no_time_of_steps(model, source, tmp_path, monkeypatch, capsys):
    """Each takes an hour: steps are as fast as without them, and goodput says what was lost."""
    hours, real, save = [], (time.monotonic, time.time), ocp.CheckpointManager.save

    def slow(manager, *words, **named):
        hours.append(3600.0)
        return save(manager, *words, **named)

    monkeypatch.setattr(ocp.CheckpointManager, "save", slow)
    monkeypatch.setattr(time, "monotonic", lambda: real[0]() + sum(hours))
    monkeypatch.setattr(time, "time", lambda: real[1]() + sum(hours))
    train(config(model, tmp_path / "run", save_steps=2, profile="3:4"), source)
    said = capsys.readouterr().out
    assert re.search(r"00:\d\d in steps, 0 % of the time since the run began; peak memory", said)
    lines = lines_of(tmp_path / "run" / "metrics.jsonl")
    assert [line["step"] for line in lines] == [2, 4, 6]
    assert 0 < lines[-1]["step_seconds"] < 600 and lines[-1]["seconds"] > 7000
    assert 7200 < lines[-1]["save_s"] < 7800 and lines[-1]["compile_s"] < 600
    assert lines[0]["goodput"] > 0.01 > lines[-1]["goodput"]
    assert lines[-1]["terms_per_s"] > 32 * 2 / 600
    _check_trace(tmp_path / "run" / "tensorboard", steps=(3, 4))


def _check_trace(folder, steps):
    """The profile that TensorBoard's plugin and Perfetto open names these steps."""
    (found,) = (folder / "plugins" / "profile").iterdir()
    assert any(path.name.endswith(".xplane.pb") for path in found.iterdir())
    with gzip.open(found / "perfetto_trace.json.gz", "rt") as file:
        events = json.load(file)["traceEvents"]
    numbers = {
        int(event["args"]["step_num"]) for event in events if "step_num" in event.get("args", {})
    }
    assert numbers == set(steps)


@pytest.mark.usefixtures("on_one_device")
def test_the_run_exports_what_it_trained(straight, model, tmp_path):
    system, run = load_run(straight)
    card = system.trained(run).card
    assert run.step == 6 and card["license"] == "mit"
    # Wherever it is exported: that --init was a folder is known when the run begins.
    assert card["base_model"] == f"./{model.name}"
    assert card["results"][0]["benchmark"] == "held-out terms, step 6"
    worst = system.export(run, tmp_path / "export")
    assert max(worst.values()) < 1e-5
    exported = TermEncoder.from_pretrained(tmp_path / "export")
    assert list(exported.languages) == card["languages"] == ["ENG"]
    counts = {**run.identity["dataset"]["counts"], "terms_by_language": {"UND": 9}}
    dataset = {**run.identity["dataset"], "counts": counts}
    of_a_table = dataclasses.replace(run, identity={**run.identity, "dataset": dataset})
    assert system.trained(of_a_table).card["languages"] == [], "nobody said which they are"
    trained = exported.encode(TERMS)
    initial = TermEncoder.from_pretrained(model, max_length=12).encode(TERMS)
    assert np.abs(trained - initial).max() > 1e-3
    with pytest.raises(BadInput, match="no checkpoint of step 5; it has 3, 6"):
        load_run(straight, step=5)


@pytest.mark.usefixtures("on_one_device")
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


@pytest.mark.slow
@pytest.mark.usefixtures("on_one_device")
def test_an_unreadable_checkpoint_is_never_replaced_by_a_new_run(model, source, straight, tmp_path):
    import shutil

    out = tmp_path / "damaged"
    shutil.copytree(straight, out)
    for path in (out / "checkpoints" / "6" / "params").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    with pytest.raises(BadInput, match="checkpoints/6 cannot be read"):
        train(config(model, out), source)


@pytest.mark.slow
@pytest.mark.usefixtures("on_one_device")
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


@pytest.mark.usefixtures("on_one_device")
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
    assert read_run_identity(out)["start"]["from"]["step"] == 6
    train(begun, source)  # what it started from is not read again
    assert_same_parameters(read_params(straight, 6), last)
    with pytest.raises(BadInput, match=r"config.start: '.*' there, '' here"):
        train(dataclasses.replace(begun, start=""), source)
    with pytest.raises(BadInput, match="is not the folder of a training run"):
        train(dataclasses.replace(config(model, tmp_path / "third"), start=str(tmp_path)), source)


# -------------------------------------------------------------------------------------------------
# What a run refuses before anything is written, and what a look at it searches.


@pytest.mark.usefixtures("on_one_device")
def test_a_folder_that_is_no_run_is_refused(model, source, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(BadInput, match="is not empty and is not the folder of a run"):
        train(config(model, tmp_path), source)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.usefixtures("on_one_device")
def test_a_second_start_is_refused_before_a_service_hears_of_it(
    model, source, tmp_path, monkeypatch
):
    """It would attach to the first one's run there, and end it."""
    locks = []

    def claim(out, *rest):
        claim_run_folder(out, *rest)
        locks.append(lock_run(out))  # the first start is a moment ahead

    def heard(*_):
        raise AssertionError("the service has heard of it")

    monkeypatch.setattr(coder_jax.training.train, "claim_run_folder", claim)
    monkeypatch.setattr(coder_jax.training.train, "tracking", heard)
    with pytest.raises(BadInput, match="is training in"):
        train(config(model, tmp_path / "run"), source)
    locks[0].close()
    lock_run(tmp_path / "run").close()  # the refused one left no lock


@pytest.mark.usefixtures("on_one_device")
def test_a_tokenizer_of_another_encoder_is_refused(model, source, tmp_path):
    other = Stops(source, after=99)
    tokenizer = dataclasses.replace(source.manifest.tokenizer, hash="f" * 64)
    other.manifest = dataclasses.replace(source.manifest, tokenizer=tokenizer)
    with pytest.raises(BadInput, match="tokenized with tiny, hash ffffffffffff; build the dataset"):
        train(config(model, tmp_path / "run"), other)
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("on_one_device")
def test_a_dataset_that_does_not_fit_the_weights_is_refused(model, source, tmp_path):
    for change, message in (
        ({"vocab_size": 10**6}, "ids up to 999999, the word table"),
        ({"max_length": 65}, "up to 65 tokens, but .* has 64 positions"),
    ):
        other = Stops(source, after=99)
        tokenizer = dataclasses.replace(source.manifest.tokenizer, **change)
        other.manifest = dataclasses.replace(source.manifest, tokenizer=tokenizer)
        with pytest.raises(BadInput, match=message):
            train(config(model, tmp_path / "run"), other)
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("on_one_device")
def test_what_a_run_wants_and_the_dataset_lacks_is_said_at_once(model, source, tmp_path):
    bare = Stops(source, after=99)
    bare.folder = tmp_path
    with pytest.raises(BadInput, match="has no held-out terms; build it with --hold-out"):
        train(config(model, tmp_path / "run", eval_steps=3), bare)
    bare.manifest = dataclasses.replace(source.manifest, relations=[])
    with pytest.raises(BadInput, match="has no relations; give --mu 0"):
        train(config(model, tmp_path / "run"), bare)
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("on_one_device")
def test_a_look_at_a_run_searches_the_gold_concepts_first():
    terms, concepts = list("abcdefg"), ["C9", "C1", "C8", "C2", "C1", "C7", "C6"]
    fold = NormalizationFold("all", ["x"], ["C1"], Dictionary(terms, concepts, "toy"))
    benchmark = Mentions("heldout", "toy", [fold], "hash")
    for most, want in ((4, "beac"), (1, "be"), (99, "beacdfg")):
        found = with_terms_at_most(benchmark, most).folds[0].dictionary
        assert sorted(found.terms[:2]) == ["b", "e"] and sorted(found.terms) == sorted(want)


# -------------------------------------------------------------------------------------------------
# The window of the log: means, rates, and the stop at a loss that is not finite.


NONE = np.zeros(0, np.int64)


def metrics(loss, grad_norm=1.0):
    return {"loss": jnp.float32(loss), "grad_norm": jnp.float32(grad_norm)}


def test_means_over_the_steps_of_a_window():
    window = _Window(256, lambda step: step / 10, "checkpoints in runs/x")
    for step, loss in enumerate([2.0, 4.0, 9.0], 1):
        with window.waiting():
            pass
        window.add(step, metrics(loss), fill=0.1 * step, lengths=NONE)
    values = window.close()
    assert values["loss"] == pytest.approx(5.0) and values["fill"] == pytest.approx(0.2)
    assert values["learning_rate"] == pytest.approx(0.2)  # of the step that was taken at 2
    assert values["terms_per_s"] > 0 and 0 <= values["data_wait"] < 1
    window.add(4, metrics(7.0), fill=1.0, lengths=NONE)
    assert window.close()["loss"] == pytest.approx(7.0)  # the first window is forgotten


def test_pauses_do_not_count(monkeypatch):
    clock = iter([0.0, 1.0, 101.0, 102.0])  # begins, pause from 1 to 101, closes
    monkeypatch.setattr("coder_jax.training.train.time.monotonic", lambda: next(clock, 102.0))
    window = _Window(100, lambda step: 0.0, "")
    with window.paused():
        pass
    window.add(1, metrics(1.0), fill=1.0, lengths=NONE)
    assert window.close()["terms_per_s"] == pytest.approx(50.0)


def test_what_a_step_is_worth(monkeypatch):
    """Of four blocks one is this host's: 5 tokens and 3e12 operations a step, twice in 6 s."""
    clock = iter([0.0, 1.0, 4.0])  # begins; a compilation from 1 to 4
    monkeypatch.setattr("coder_jax.training.train.time.monotonic", lambda: next(clock, 9.0))
    pace = _Pace(flops=lambda lengths: 1e12 * len(lengths), share=0.25, devices=8, peak=2.0)
    window = _Window(100, lambda step: 0.0, "", pace)
    with window.paused("compile_s"):
        pass
    for step in (1, 2):
        window.add(step, metrics(1.0), fill=1.0, lengths=np.array([1, 2, 2]))
    values = window.close()
    assert values["compile_s"] == 3.0 and values["save_s"] == 0.0
    assert values["step_seconds"] == pytest.approx(6.0)
    assert values["tokens_per_s"] == pytest.approx(2 * 5 * 4 / 6)
    assert values["tflop_per_s"] == pytest.approx(2 * 3 * 4 / 8 / 6)
    assert values["mfu"] == pytest.approx(0.25)
    assert values["peak_memory_gb"] > 0.1
    unknown = _Window(100, lambda step: 0.0, "")
    unknown.add(1, metrics(1.0), fill=1.0, lengths=NONE)
    assert not {"mfu", "tflop_per_s", "tokens_per_s"} & unknown.close().keys()


@pytest.mark.parametrize("bad", [metrics(float("nan")), metrics(1.0, float("inf"))])
def test_a_step_that_is_not_finite_is_named_at_the_next(bad):
    window = _Window(256, lambda step: 1e-5, "checkpoints in runs/x")
    window.add(7, bad, fill=1.0, lengths=NONE)
    with pytest.raises(BadInput, match=r"step 7: .*1e-05.*checkpoints in runs/x are good"):
        window.add(8, metrics(1.0), fill=1.0, lengths=NONE)
