"""Both steps of MLNorm on two processes give what one process gives."""

import os
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest
from short_run import lines_of

from coder_jax.training.checkpoints import read_params
from data_pipeline.batches.candidates import CANDIDATES, VECTORS

pytestmark = pytest.mark.slow

STEPS = 6
# Calm: see test_objective.py. eps: where the true gradient is 0 Adam would step by rounding noise.
FLAGS = f"""--steps {STEPS} --terms 64 --groups 4 --width 10 --scale 4 --eps 1e-3 --log-steps 1
--save-steps 100""".split()
FIRST = """--recipe mlnorm --row-length 32 --warmup-steps 2 --learning-rate 1e-3
--head-learning-rate-factor 1 --dtype float32 --jitter-noise 0.5 --jitter-drop 0.3
--eval-steps 0""".split()
SECOND = """--recipe mlnorm_classes --candidates 7 --learning-rate 1e-3 --refresh-steps 3
--eval-steps 6""".split()
# So that the work on vectors and candidates has several chunks.
CHUNKS = "; ".join(
    (
        "import sys",
        "from coder_jax.systems.mlnorm import training as second_step",
        "second_step._TERMS_AT_ONCE = 200",
        "from coder_jax.__main__ import main",
    )
)


def train(out, processes, *flags):
    """A run of so many processes, one device each."""
    words = [*map(str, ["train", *FLAGS, *flags, "--out", out])]
    command = [sys.executable, "-c", f"{CHUNKS}; sys.exit(main({words!r}))"]
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "1"}
    if processes > 1:
        with socket.socket() as listener:
            listener.bind(("localhost", 0))
            address = f"localhost:{listener.getsockname()[1]}"
        environment |= {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": str(processes)}
    started = []
    for index in range(processes):
        of_host = {"JAX_PROCESS_ID": str(index)} if processes > 1 else {}
        with out.with_name(f"{out.name}-{index}.log").open("wb") as log:
            started.append(
                subprocess.Popen(
                    command, env=environment | of_host, stdout=log, stderr=subprocess.STDOUT
                )
            )
    statuses = [process.wait(timeout=300) for process in started]
    assert statuses == [0] * processes, out.with_name(f"{out.name}-0.log").read_text()
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def straight(built, folder):
    """Step 1 on one process."""
    return train(folder / "one", 1, *FIRST, "--data", built[0], "--init", built[1])


def assert_same_run(out, straight):
    """To 1e-6 relative in float32: losses, scores, and every parameter at the end."""
    ours, theirs = (lines_of(run / "metrics.jsonl") for run in (out, straight))
    losses = [[line["loss"] for line in lines if "loss" in line] for lines in (ours, theirs)]
    assert len(losses[0]) == STEPS and losses[0] == pytest.approx(losses[1], rel=1e-6)
    scores = [[line["eval"] for line in lines if "eval" in line] for lines in (ours, theirs)]
    assert scores[0] == scores[1]
    params = [jax.tree.leaves(read_params(run, STEPS)) for run in (out, straight)]
    for got, want in zip(*params, strict=True):
        if got.dtype == np.float32:
            assert np.linalg.norm(got - want) <= 1e-6 * np.linalg.norm(want) + 1e-9


def test_step_1(built, straight, folder):
    two = train(folder / "two", 2, *FIRST, "--data", built[0], "--init", built[1])
    assert_same_run(two, straight)


def test_step_2(built, straight, folder):
    """Vectors and candidates are made by both, each half of the chunks."""
    given = (*SECOND, "--data", built[0], "--from", straight)
    one, two = (train(folder / f"classes_{number}", number, *given) for number in (1, 2))
    assert_same_run(two, one)
    for name in (VECTORS, f"index/0/{CANDIDATES}", f"index/3/{CANDIDATES}"):
        np.testing.assert_allclose(np.load(two / name), np.load(one / name), atol=1e-6)
