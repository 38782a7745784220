"""The launch scripts, run as a user runs them; nothing is downloaded.

CODER_JAX_PYTHON names a program that prints what it was given. What makes the environment has tests
of its own, test_environment.py.
"""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from launchers import bash

SCRIPTS = [
    "launch/environment.sh",
    "launch/train.sh",
    "launch/test.sh",
    "launch/check.sh",
    "launch/docs.sh",
    "launch/local_pod.sh",
    "launch/tpu_pod.sh",
    "launch/slurm.sbatch",
    "benchmarks/accelerator.sh",
    ".ci/run",
]

SHOW_ARGUMENTS = """#!/bin/sh
echo "folder: $PWD"
echo "PYTHONPATH: $PYTHONPATH"
for argument in "$@"; do echo "argument: $argument"; done
"""


@pytest.fixture
def show_arguments(tmp_path) -> Path:
    """A stand-in for python that prints its folder, PYTHONPATH and arguments, one per line."""
    program = tmp_path / "show arguments"
    program.write_text(SHOW_ARGUMENTS, encoding="utf-8")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("script", SCRIPTS)
def test_bash_can_parse_it(script, repo):
    result = bash("-n", repo / script, cwd=repo)
    assert result.returncode == 0, result.stderr
    assert os.access(repo / script, os.X_OK), f"{script} is not executable"


@pytest.mark.parametrize(
    "script",
    ["train.sh", "test.sh", "local_pod.sh", "tpu_pod.sh", "check.sh", "environment.sh", "docs.sh"],
)
def test_help_needs_no_environment(script, repo, tmp_path):
    result = bash(
        repo / "launch" / script, "--help", cwd=tmp_path, CODER_JAX_VENV=tmp_path / "venv"
    )
    assert result.returncode == 0, result.stderr
    assert f"bash launch/{script}" in result.stdout
    assert "#" not in result.stdout and "set -euo" not in result.stdout
    assert not (tmp_path / "venv").exists()


def test_train_stays_in_the_callers_folder_and_passes_arguments_unchanged(
    repo, tmp_path, show_arguments
):
    folder = tmp_path / "a folder"
    folder.mkdir()
    result = bash(
        *(repo / "launch/train.sh", "--data", "my data", "--out", "runs/x", ""),
        cwd=folder,
        CODER_JAX_PYTHON=show_arguments,
        PYTHONPATH="/elsewhere",
    )
    assert result.stdout.splitlines() == [
        f"folder: {folder}",
        f"PYTHONPATH: {repo}:/elsewhere",
        *("argument: -P", "argument: -m", "argument: coder_jax", "argument: train"),
        *("argument: --data", "argument: my data", "argument: --out", "argument: runs/x"),
        "argument: ",
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["train", "--recipe", "x"], ["-P", "-m", "coder_jax", "train", "--recipe", "x"]),
        (["encode", "my terms.txt"], ["-P", "-m", "coder_jax", "encode", "my terms.txt"]),
        (["build", "--out", "x y"], ["-P", "-m", "coder_jax", "build", "--out", "x y"]),
    ],
)
def test_train_takes_a_verb_first(given, expected, repo, tmp_path, show_arguments):
    result = bash(repo / "launch/train.sh", *given, cwd=tmp_path, CODER_JAX_PYTHON=show_arguments)
    arguments = [line for line in result.stdout.splitlines() if line.startswith("argument")]
    assert arguments == [f"argument: {argument}" for argument in expected]


@pytest.mark.parametrize("given", [[], ["demo"], ["demo", "--out", "x y"]])
def test_train_without_a_recipe_is_the_demo(given, repo, tmp_path, show_arguments):
    result = bash(repo / "launch/train.sh", *given, cwd=tmp_path, CODER_JAX_PYTHON=show_arguments)
    arguments = [line for line in result.stdout.splitlines() if line.startswith("argument")]
    expected = ["-P", "-m", "coder_jax", "demo", *given[1:]]
    assert arguments == [f"argument: {argument}" for argument in expected]


def test_train_hands_over_signals_and_exit_status(repo, tmp_path):
    """A scheduler sends SIGTERM to the script's own process: it must have become Python."""
    waiting = tmp_path / "python"
    waiting.write_text(
        "#!/bin/sh\ntrap 'echo saved; exit 7' TERM\necho ready\nwhile :; do sleep 0.1; done\n"
    )
    waiting.chmod(0o755)
    process = subprocess.Popen(
        ["bash", str(repo / "launch/train.sh")],
        env=os.environ | {"CODER_JAX_PYTHON": str(waiting)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=180)[0] == "saved\n"
        assert process.returncode == 7
    finally:
        process.kill()


def test_a_python_that_is_not_there_is_named(repo, tmp_path):
    result = bash(repo / "launch/train.sh", cwd=tmp_path, CODER_JAX_PYTHON="no-such-python")
    assert result.returncode == 1
    assert "no-such-python" in result.stderr
