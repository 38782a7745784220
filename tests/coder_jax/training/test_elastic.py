"""Hosts change nothing: 1, 2 and 4 processes give the same run, and one goes on as another."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tiny_bert import write_model
from tiny_run import write_tiny_dataset

from coder_jax.training.checkpoints import read_params, saved_steps
from data_pipeline.process import TRY_AGAIN

STEPS = 40


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder with the model and a dataset."""
    folder = tmp_path_factory.mktemp("inputs")
    write_model(folder / "model")
    write_tiny_dataset(folder / "data", folder / "model")
    return folder


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


FLAGS = """--groups 4 --triplets 4 --repeats 2 --row-length 64 --warmup-steps 2 --learning-rate 1e-3
--eps 1e-3 --log-steps 1 --save-steps 100""".split()
# eps: where the true gradient is 0 (the bias of keys) Adam would make steps of rounding noise.


def start(
    inputs: Path, out: Path, processes: int, flags: tuple = (), of_last: tuple = ()
) -> list[subprocess.Popen]:
    """The processes of a run, one CPU device each; the last one has more flags than the others."""
    command = [
        sys.executable,
        "-m",
        "coder_jax",
        "train",
        "--recipe",
        "coder_eng",
        *FLAGS,
        "--steps",
        str(STEPS),
        *flags,
    ]
    command += ["--data", str(inputs / "data"), "--init", str(inputs / "model")]
    command += ["--out", str(out)]
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "1", "CODER_JAX_LOST_HOST_TIMEOUT": "20"}
    if processes > 1:
        environment["JAX_COORDINATOR_ADDRESS"] = f"localhost:{free_port()}"
        environment["JAX_NUM_PROCESSES"] = str(processes)
    started = []
    for index in range(processes):
        more = of_last if index == processes - 1 else ()
        with (out.parent / f"{out.name}-{index}.log").open("ab") as log:
            started.append(
                subprocess.Popen(
                    [*command, *more],
                    env=environment | ({"JAX_PROCESS_ID": str(index)} if processes > 1 else {}),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )
    return started


def statuses(processes: list[subprocess.Popen]) -> list[int]:
    return [process.wait(timeout=400) for process in processes]  # a slow machine takes 130 s


def losses(out: Path) -> dict[int, float]:
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return {line["step"]: line["loss"] for line in map(json.loads, lines)}


def assert_same_run(out: Path, straight: Path):
    """To 1e-6 relative in float32: every loss, and every parameter at the end."""
    assert losses(out) == pytest.approx(losses(straight), rel=1e-6)
    flat = [
        {path: leaf for path, leaf in leaves(read_params(folder, STEPS))}
        for folder in (out, straight)
    ]
    assert flat[0].keys() == flat[1].keys()
    for path, want in flat[1].items():
        assert np.linalg.norm(flat[0][path] - want) <= 1e-6 * np.linalg.norm(want) + 1e-9, path


def leaves(tree, path=()):
    if not isinstance(tree, dict):
        yield path, np.asarray(tree)
        return
    for name, branch in tree.items():
        yield from leaves(branch, (*path, name))


@pytest.fixture(scope="module")
def straight(inputs, tmp_path_factory):
    """A run on one process."""
    out = tmp_path_factory.mktemp("runs") / "one"
    assert statuses(start(inputs, out, 1)) == [0]
    return out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "flags"),
    [
        (2, ()),
        # One group per pass, which both share; some blocks need more rows than others.
        (2, ("--passes", "4", "--shard-encoder")),
        (4, ("--passes", "2")),
    ],
)
def test_several_processes_give_the_run_of_one(inputs, straight, tmp_path, processes, flags):
    out = tmp_path / "run"
    assert statuses(start(inputs, out, processes, flags)) == [0] * processes
    assert_same_run(out, straight)
    logs = [(tmp_path / f"run-{index}.log").read_text() for index in range(2)]
    assert f"{STEPS} steps; checkpoints" in logs[0] and "memory on each of" in logs[0]
    assert "step" not in logs[1] and "memory" not in logs[1], "the first alone speaks"


@pytest.mark.slow
def test_stopped_on_four_it_goes_on_on_two_and_ends_on_one(inputs, straight, tmp_path):
    """SIGTERM to one host, not the first: all save at the same step and say 'try again'."""
    out = tmp_path / "run"
    reached = 0
    for hosts, asked in ((4, 2), (2, 1)):
        processes = start(inputs, out, hosts)
        wait_for_step(out, reached + 3, processes)
        processes[asked].send_signal(signal.SIGTERM)
        assert statuses(processes) == [TRY_AGAIN] * hosts
        last = saved_steps(out)[-1]
        assert reached + 3 <= last < STEPS
        reached = last
    assert statuses(start(inputs, out, 1)) == [0]
    assert_same_run(out, straight)


def wait_for_step(out: Path, step: int, processes: list[subprocess.Popen]) -> None:
    """Until metrics.jsonl has the step."""
    limit = time.monotonic() + 120
    while not (out / "metrics.jsonl").exists() or step not in losses_so_far(out):
        assert time.monotonic() < limit, "the run does not come on"
        assert all(process.poll() is None for process in processes), "a process has ended"
        time.sleep(0.02)


def losses_so_far(out: Path) -> list[int]:
    lines = (out / "metrics.jsonl").read_text().split("\n")[:-1]
    return [json.loads(line)["step"] for line in lines]


@pytest.mark.slow
def test_hosts_that_were_started_differently_say_so(inputs, tmp_path):
    out = tmp_path / "run"
    assert statuses(start(inputs, out, 2, of_last=("--save-steps", "7"))) == [2, 2]
    assert "save_steps is 7 on host 1, but 100 on host 0" in (tmp_path / "run-1.log").read_text()
    assert not out.exists()


@pytest.mark.slow
def test_two_processes_share_an_evaluation_and_find_the_scores_of_one(inputs, tmp_path):
    """Each encodes half of the held-out terms and of the dictionary; the first one searches."""
    scores, flags = [], ("--eval-steps", "20")
    for processes in (1, 2):
        out = tmp_path / str(processes)
        assert statuses(start(inputs, out, processes, flags)) == [0] * processes
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        scores.append({line["step"]: line["eval"] for line in lines if "eval" in line})
    assert scores[0].keys() == {0, 20, 40} and scores[0] == scores[1]
