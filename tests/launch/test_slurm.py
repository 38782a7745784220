"""slurm.sbatch under a srun, scontrol and scancel that write down what they were asked."""

import os
import re
import signal
import subprocess
from collections.abc import Sequence

import pytest
from launchers import MENDED_BY_A_NEW_START, finish, program, start, wait_for


@pytest.fixture
def job(repo, tmp_path):
    """Runs slurm.sbatch as Slurm would, with commands that write down what they were asked."""
    for name, does in {
        "srun": 'while [ "$1" != bash ]; do shift; done; "$@" & echo $! >task; wait $!',
        "scontrol": "",
        "scancel": 'kill -TERM "$(cat task)"',
    }.items():
        program(
            tmp_path / "bin" / name,
            f'#!/bin/bash\necho {name} "$@" >>"{tmp_path}/asked"\ncd "{tmp_path}"\n{does}\n',
        )

    def run(
        task: str, words: Sequence[str] = ("--recipe", "my own"), **environment: object
    ) -> subprocess.Popen:
        python = program(tmp_path / "python", f"#!/bin/bash\n{task}\n")
        spooled = tmp_path / "spool"
        spooled.write_text((repo / "launch/slurm.sbatch").read_text())
        defaults = {
            "CODER_JAX_PYTHON": python,
            "SLURM_JOB_ID": 7,
            "SLURM_SUBMIT_DIR": repo,
            "SLURM_CPUS_PER_TASK": 8,
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        }
        return start(spooled, *words, cwd=tmp_path, **defaults | environment)

    return run


def test_the_tasks_are_train_sh_with_the_arguments(job, tmp_path):
    status, out, err = finish(job('printf "%s\\n" "$SRUN_CPUS_PER_TASK" "$@"'))
    assert status == 0, err
    assert out.splitlines() == ["8", "-P", "-m", "coder_jax", "train", "--recipe", "my own"]
    assert "scontrol" not in (tmp_path / "asked").read_text()


def test_another_verb_comes_first_and_is_queued_again_too(job, tmp_path):
    words = ("encode", "--out", "my vectors.npy")
    status, out, err = finish(job('printf "%s\n" "$@"; exit 75', words))
    assert out.splitlines() == ["-P", "-m", "coder_jax", *words], err
    assert status == 75 and "to go on where it stopped" in err
    assert "scontrol requeue 7\n" in (tmp_path / "asked").read_text()


@pytest.mark.parametrize("status", MENDED_BY_A_NEW_START)
def test_a_run_that_a_new_start_mends_is_queued_again(job, tmp_path, status):
    assert finish(job(f"exit {status}"))[0] == status
    assert "scontrol requeue 7\n" in (tmp_path / "asked").read_text()


@pytest.mark.parametrize(
    ("status", "variables"),
    [(2, {}), (1, {}), (75, {"SLURM_RESTART_COUNT": 3, "CODER_JAX_MAX_RESTARTS": 3})],
)
def test_any_other_is_not(job, tmp_path, status, variables):
    result, _, err = finish(job(f"exit {status}", **variables))
    assert result == status and "not queued again" in err
    assert "scontrol" not in (tmp_path / "asked").read_text()


def test_before_the_time_limit_the_tasks_are_asked_to_stop(job, tmp_path):
    # Slurm signals the script alone (B:); srun itself must not be signalled, as it would kill.
    process = job(
        f'trap "sleep 1; exit 75" TERM; touch "{tmp_path}/ready"; while :; do sleep 0.1; done'
    )
    wait_for(tmp_path / "ready")
    process.send_signal(signal.SIGTERM)
    status, _, err = finish(process)
    assert status == 75, err
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[1:] == ["scancel --signal=TERM 7", "scontrol requeue 7"]


def test_a_folder_without_the_repository_is_named(job, tmp_path):
    status, _, err = finish(job("exit 0", SLURM_SUBMIT_DIR=tmp_path))
    assert status == 2 and str(tmp_path) in err and "CODER_JAX_REPO" in err


def test_the_options_that_the_rest_relies_on(repo):
    options = re.findall(r"^#SBATCH (.*)", (repo / "launch/slurm.sbatch").read_text(), re.M)
    assert {"--requeue", "--signal=B:TERM@120", "--open-mode=append"} <= set(options)
    assert "--ntasks-per-node=1" in options
