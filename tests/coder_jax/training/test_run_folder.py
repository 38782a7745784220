"""The claim of a run's folder: what is there stays, and one that was cut off is made again."""

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from coder_jax.training import run_folder as run_lock
from coder_jax.training.run_folder import (
    as_it_was,
    check_identity,
    claim_run_folder,
    going_on,
    lock_run,
    read_run_identity,
)
from coder_jax.training.train import _content_hash
from data_pipeline.files.identity import RUN, write_identity
from data_pipeline.process import BadInput, Stopped, _stop_when_asked

THIS_RUN = {
    "format": RUN.format,
    "config": {
        "recipe": "toy",
        "system": {"name": "toy", "seed": 0},
        "optimizer": {"steps": 2, "learning_rate": 0.1},
        "start": "",
    },
    "start": {},
}


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    out = tmp_path / "thesis"
    (out / "tokenizer").mkdir(parents=True)
    (out / "tokenizer" / "mine.txt").write_text("my only copy")
    for names in (["lock", "thesis.tex"], [], ["lock", "thesis.tex", ".partial"]):
        for name in names:
            (out / name).touch()
        with pytest.raises(BadInput, match="is not empty and is not the folder of a run"):
            claim_run_folder(out, THIS_RUN, tmp_path / "unused", ["tokenizer"])
        for name in names:
            (out / name).unlink()
    assert (out / "tokenizer" / "mine.txt").read_text() == "my only copy"


@pytest.mark.parametrize("cut", ["before the tokenizer", "before run.json"])
def test_a_claim_that_was_cut_off_is_made_again(tmp_path, cut, monkeypatch):
    tokenizer, out = tmp_path / "tokenizer", tmp_path / "run"
    tokenizer.mkdir()
    (tokenizer / "vocab.txt").write_text("a\nb\n")
    real = os.replace

    def killed(source, target):
        if Path(target).name == {"before the tokenizer": "tokenizer"}.get(cut, "run.json"):
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            claim_run_folder(out, THIS_RUN, tmp_path, ["tokenizer"])
    assert not (out / "run.json").exists()
    claim_run_folder(out, THIS_RUN, tmp_path, ["tokenizer"])
    assert json.loads((out / "run.json").read_text()) == THIS_RUN
    assert sorted(path.name for path in out.iterdir()) == ["lock", "run.json", "tokenizer"]
    assert (out / "tokenizer" / "vocab.txt").read_text() == "a\nb\n"


def test_what_a_run_is_that_cannot_be_read(tmp_path):
    with pytest.raises(BadInput, match="is not the folder of a training run: it has no run.json"):
        read_run_identity(tmp_path)
    for content, message in (
        ("{", "run.json is not JSON .*; make it again with `python -m coder_jax train`"),
        ('{"format": 2, "config": {}}', f"has the format 2, expected '{RUN.format}': .*an older"),
        (json.dumps({**THIS_RUN, "config": {}}), "run.json: config.recipe is missing; make it ag"),
        ('{"format": "coder_jax triplets 3"}', "`python -m data_pipeline.build` writes such"),
    ):
        (tmp_path / "run.json").write_text(content)
        with pytest.raises(BadInput, match=message):
            read_run_identity(tmp_path)


# -------------------------------------------------------------------------------------------------
# A run that is made longer: what its run.json says, and what its checkpoints said before.


def run_of(steps, **parts):
    optimizer = {"steps": steps, "learning_rate": 0.1}
    config = {"optimizer": optimizer, "recipe": "small", "system": {"name": "coder"}, "start": ""}
    return {"format": RUN.format, "config": config, "start": {}, "dataset": {"hash": "a"}, **parts}


def test_the_same_run_goes_on_as_it_is():
    assert going_on(run_of(6), run_of(6), "runs/x", step=3, extend=False) == run_of(6)
    assert going_on(run_of(6), run_of(6), "runs/x", step=3, extend=True) == run_of(6)


@pytest.mark.parametrize("told", [{}, {"provenance": {"command": "build of another machine"}}])
def test_how_the_data_was_made_may_differ(told):
    """As of an earlier version, which did not tell it; run.json stays as it is."""
    saved = run_of(6, dataset={"hash": "a", **told})
    current = run_of(6, dataset={"hash": "a", "provenance": {"command": "build"}})
    assert going_on(saved, current, "runs/x", step=3, extend=False) == saved
    check_identity(saved, current, "runs/x")
    hashes = {_content_hash(SimpleNamespace(identity=run)) for run in (saved, current)}
    assert len(hashes) == 1, "hosts may have copies of the data"
    other = run_of(6, dataset={"hash": "b", **told})
    assert _content_hash(SimpleNamespace(identity=other)) not in hashes
    with pytest.raises(BadInput, match="dataset.hash: 'b' there, 'a' here"):
        going_on(other, current, "runs/x", step=3, extend=False)


def test_more_steps_must_be_asked_for_and_are_written_down():
    with pytest.raises(BadInput, match=r"holds a run of 6 steps, and --steps is 9\. .* --extend"):
        going_on(run_of(6), run_of(9), "runs/x", step=3, extend=False)
    longer = going_on(run_of(6), run_of(9), "runs/x", step=3, extend=True)
    assert longer == run_of(9, extended=[{"step": 3, "from": 6, "to": 9}])
    # From then on it is a run of nine steps, with or without the flag; and may be extended again.
    for extend in (False, True):
        assert going_on(longer, run_of(9), "runs/x", step=6, extend=extend) == longer
    again = going_on(longer, run_of(20), "runs/x", step=9, extend=True)
    assert again["extended"] == [
        {"step": 3, "from": 6, "to": 9},
        {"step": 9, "from": 9, "to": 20},
    ]
    # What its checkpoints say: of the run as it was when they were written.
    assert as_it_was(again, run_of(6)) == run_of(6)
    assert as_it_was(again, longer) == longer
    assert as_it_was(again, again) == again
    assert as_it_was(run_of(6), again) == run_of(6)


def test_fewer_steps_are_refused():
    with pytest.raises(BadInput, match="a run of 6 steps, and --steps is 5: a run cannot become"):
        going_on(run_of(6), run_of(5), "runs/x", step=3, extend=True)


def test_a_change_that_no_checkpoint_has_can_be_taken_back_or_made_another():
    longer = run_of(9000, extended=[{"step": 3, "from": 6, "to": 9000}])
    assert going_on(longer, run_of(9000), "runs/x", step=3, extend=False) == longer
    assert going_on(longer, run_of(6), "runs/x", step=3, extend=False) == run_of(6)
    with pytest.raises(BadInput, match="a run of 6 steps, and --steps is 5: a run cannot become"):
        going_on(longer, run_of(5), "runs/x", step=3, extend=True)
    with pytest.raises(BadInput, match=r"a run of 6 steps, and --steps is 9\. .* --extend"):
        going_on(longer, run_of(9), "runs/x", step=3, extend=False)
    nine = run_of(9, extended=[{"step": 3, "from": 6, "to": 9}])
    assert going_on(longer, run_of(9), "runs/x", step=3, extend=True) == nine
    # With a checkpoint of before that step it is made anew there (--restore-step).
    earlier = run_of(9000, extended=[{"step": 2, "from": 6, "to": 9000}])
    assert going_on(longer, run_of(9000), "runs/x", step=2, extend=False) == earlier
    # From the next checkpoint on it stays.
    with pytest.raises(BadInput, match="a run of 9,000 steps, and --steps is 6: a run cannot"):
        going_on(longer, run_of(6), "runs/x", step=4, extend=True)


def test_a_run_without_a_checkpoint_begins_anew():
    with pytest.raises(BadInput, match="add --extend: it begins anew, at the learning rate"):
        going_on(run_of(6), run_of(9), "runs/x", step=0, extend=False)


def test_another_difference_is_told_with_that_of_the_steps():
    other = run_of(9, dataset={"hash": "b"})
    with pytest.raises(BadInput, match=r"config.optimizer.steps: 6 there, 9 here\n  dataset.hash"):
        going_on(run_of(6), other, "runs/x", step=3, extend=True)


def test_the_folder_says_so(tmp_path):
    longer = going_on(run_of(6), run_of(9), "runs/x", step=3, extend=True)
    write_identity(tmp_path / RUN.file, RUN, longer)
    assert read_run_identity(tmp_path) == longer
    longer["extended"][0]["step"] = "three"
    write_identity(tmp_path / RUN.file, RUN, longer)
    with pytest.raises(BadInput, match=r"extended\[0\]\.step is .*three"):
        read_run_identity(tmp_path)


# -------------------------------------------------------------------------------------------------
# The lock of a run's folder: its holder on another machine, and file systems without locks.


def test_a_lock_of_a_machine_that_died_is_waited_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run_lock, "_RETRY_SECONDS", 0.05)
    held = lock_run(tmp_path)
    assert held is not None
    (tmp_path / "lock").write_text("process 7 on another-machine\n")
    with monkeypatch.context() as patch:
        patch.setattr(run_lock, "_LEASE_SECONDS", 0.2)
        with pytest.raises(BadInput, match="process 7 on another-machine is training in"):
            lock_run(tmp_path)
    with _stop_when_asked("stopping"), pytest.raises(Stopped):
        os.kill(os.getpid(), signal.SIGTERM)
        lock_run(tmp_path)
    lease = threading.Timer(1, held.close)
    lease.start()
    taken = lock_run(tmp_path)
    assert taken is not None and held.closed
    assert "locked by process 7 on another-machine; waiting 120 s" in capsys.readouterr().out
    began = time.monotonic()
    with pytest.raises(BadInput, match=f"process {os.getpid()} on {socket.gethostname()} is tr"):
        lock_run(tmp_path)
    assert time.monotonic() - began < 60, "this machine's processes are not waited for"
    taken.close()


def test_where_the_file_system_has_no_locks_the_run_goes_on_and_says_so(
    tmp_path, monkeypatch, capsys
):
    def no_locks(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("data_pipeline.files.whole.fcntl.flock", no_locks)
    assert lock_run(tmp_path) is None
    assert "cannot be locked (Function not implemented)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "is_published"),
    [
        *(("run.json", True), ("tensorboard/events.1", True), ("mlflow.db", True)),
        *(("mlflow.db-journal", False), ("wandb/run-1/files/config.yaml", False)),
        *(("checkpoints/8/state", False), ("run.json.unfinished", False), ("lock", False)),
    ],
)
def test_files_that_a_tracker_may_delete_meanwhile_are_not_published(name, is_published):
    assert run_lock._is_published(name) == is_published
