"""tpu_pod.sh with a script in the place of gcloud that plays one slice; nothing is reached."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from launchers import MENDED_BY_A_NEW_START, finish, program, start

# Plays one slice: its state is a file; a run ends with the next status of a list.
GCLOUD = """#!/bin/bash
echo "$@" >>asked
case "$*" in
    *"$LOSES_FIRST"*) [ -z "$LOSES_FIRST" ] || [ -e lost ] || { touch lost; exit 255; } ;;
esac
case "$*" in
    *"queued-resources describe"*)
        [ -z "$CANNOT_ASK" ] || { echo "ERROR: PERMISSION_DENIED" >&2; exit 1; }
        cat state 2>/dev/null || { echo "ERROR: NOT_FOUND: no such thing" >&2; exit 1; } ;;
    *"queued-resources create"*)
        echo "${CREATED:-ACTIVE}" >state
        [ -z "$LOSES_THE_ANSWER" ] || exit 1 ;;
    *"queued-resources delete"*) rm state ;;
    *"mount /share"*) exit 32 ;;
    *coder_jax.pid*launch/train.sh*)
        read -r status after <runs
        sed -i.before 1d runs
        [ -z "$after" ] || echo "$after" >state
        exit "$status" ;;
esac
"""

WORDS = ("--name", "eng", "--zone", "us-west4-a", "--type", "v5litepod-16")


@pytest.fixture
def pod(repo, tmp_path):
    def run(
        *words: object,
        runs: str = "",
        script: Path = repo / "launch/tpu_pod.sh",
        **environment: str,
    ) -> tuple[int, str, str, list[str]]:
        program(tmp_path / "bin/gcloud", GCLOUD)
        if not (tmp_path / "bin/sleep").exists():
            program(tmp_path / "bin/sleep", "#!/bin/sh\n")
        (tmp_path / "runs").write_text(runs)
        process = start(
            *(script, *words),
            cwd=tmp_path,
            **environment,
            PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        )
        status, out, err = finish(process)
        asked = tmp_path / "asked"
        return status, out, err, asked.read_text().splitlines() if asked.exists() else []

    return run


def test_dry_run_prints_the_commands_and_asks_nothing(pod):
    words = (*WORDS, "--spot", "--project", "p", "--delete", "--env", "A=x y", "--dry-run")
    status, out, err, asked = pod(*words, "--", "--data", "gs://b/my data")
    assert (status, asked) == (0, []), err
    lines = out.splitlines()
    assert all(line.startswith("gcloud compute tpus ") for line in lines)
    assert all("--zone us-west4-a --project p" in line for line in lines)
    create, scp, *_, train, delete = lines
    assert "queued-resources create eng --node-id eng" in create and create.endswith("--spot ")
    assert "--accelerator-type v5litepod-16 --runtime-version v2-alpha-tpuv5-lite" in create
    assert "eng:coder_jax.tgz" in scp and "--worker=all" in scp
    command = subprocess.run(
        ["bash", "-c", f'set -- {train}; echo "${{!#}}"'], capture_output=True, text=True
    ).stdout.strip()
    assert "export CODER_JAX_ACCELERATOR=tpu A=x\\ y;" in command
    assert command.endswith("exec bash coder_jax/launch/train.sh --data gs://b/my\\ data")
    assert "queued-resources delete eng" in delete


def test_another_verb_comes_first(pod):
    status, out, err, _ = pod(*WORDS, "--dry-run", "--", "encode", "--out", "/share/my vectors.npy")
    assert status == 0, err
    words = shlex.split(out.splitlines()[-1])
    assert (
        words[-1]
        .rstrip()
        .endswith("exec bash coder_jax/launch/train.sh encode --out /share/my\\ vectors.npy")
    )


def test_a_run_ends_and_the_slice_stays_unless_asked_otherwise(pod):
    status, _, err, asked = pod(*WORDS, "--", "--x", runs="0\n")
    assert status == 0, err
    assert sum("create" in line for line in asked) == 1
    assert sum("launch/train.sh" in line for line in asked) == 1
    assert not any("delete" in line for line in asked)
    assert "still there, or asked for, and costs" in err


@pytest.mark.parametrize("status", [*MENDED_BY_A_NEW_START, 255])
def test_a_run_that_a_new_start_mends_is_started_again(pod, status):
    result, _, err, asked = pod(*WORDS, "--", "--x", runs=f"{status}\n{status}\n0\n")
    assert result == 0, err
    assert sum("launch/train.sh" in line for line in asked) == 3
    assert sum("create" in line for line in asked) == 1


def test_a_slice_that_was_taken_away_is_asked_for_again(pod):
    status, _, err, asked = pod(*WORDS, "--", "--x", runs="1 SUSPENDED\n0\n")
    assert status == 0, err
    kinds = [re.search("create|delete|launch/train.sh", line) for line in asked]
    assert [kind[0] for kind in kinds if kind] == [
        *("create", "launch/train.sh", "delete", "create", "launch/train.sh")
    ]


def test_a_run_that_fails_by_itself_is_not(pod):
    status, _, err, asked = pod(*WORDS, "--delete", "--", "--x", runs="2\n0\n")
    assert status == 2 and "status 2" in err
    assert sum("launch/train.sh" in line for line in asked) == 1
    assert "delete" in asked[-1], "no slice goes on costing"


def test_a_host_that_cannot_be_prepared_ends_it(pod):
    words = (*WORDS, "--delete", "--prepare", "sudo mount /share", "--", "--x")
    status, _, err, asked = pod(*words, runs="0\n")
    assert status == 32 and "status 32" in err
    assert sum("mount /share" in line for line in asked) == 3, "it may have been a download"
    first, second = (
        next(n for n, line in enumerate(asked) if text in line)
        for text in ("python3.11-venv", "mount /share")
    )
    assert first < second, "Python is installed, too"
    assert not any("launch/train.sh" in line for line in asked) and "delete" in asked[-1]


@pytest.mark.parametrize("delete", [True, False])
def test_a_slice_that_never_came_is_not_forgotten(pod, delete):
    words = (*WORDS, *["--delete"] * delete, "--", "--x")
    status, _, err, asked = pod(*words, CREATED="FAILED")
    assert status == 2 and "the request for the slice failed" in err
    assert any("queued-resources delete" in line for line in asked) == delete
    assert ("to delete it: gcloud" in err) != delete


def test_what_was_never_asked_for_is_not_deleted(pod):
    status, _, err, asked = pod(*WORDS, "--delete", "--", "--x", CANNOT_ASK="yes")
    assert status == 1 and "PERMISSION_DENIED" in err and "still there" not in err
    assert not any("delete" in line for line in asked)


def test_a_request_whose_answer_is_lost_is_not_forgotten(pod):
    status, _, err, asked = pod(*WORDS, "--delete", "--", "--x", LOSES_THE_ANSWER="yes")
    assert status == 1 and "queued-resources delete" in asked[-1], err


def test_a_connection_that_is_lost_before_the_run_is_tried_again(pod):
    status, _, err, asked = pod(*WORDS, "--", "--x", runs="0\n", LOSES_FIRST="kill -KILL")
    assert status == 0, err
    assert sum("kill -KILL" in line for line in asked) == 2


def test_a_request_to_stop_between_two_runs_ends_it(pod, tmp_path):
    program(
        tmp_path / "bin/sleep", "#!/bin/sh\n! grep -q launch/train.sh asked || kill -TERM $PPID\n"
    )
    status, _, err, asked = pod(*WORDS, "--", "--x", runs="255\n0\n")
    assert status == 130, err
    assert sum("launch/train.sh" in line for line in asked) == 1


def test_a_folder_that_is_no_clone_is_refused(pod, repo, tmp_path):
    copy = tmp_path / "coder_jax-main/launch/tpu_pod.sh"
    copy.parent.mkdir(parents=True)
    copy.write_bytes((repo / "launch/tpu_pod.sh").read_bytes())
    status, _, err, asked = pod(*WORDS, "--", "--x", script=copy)
    assert (status, asked) == (2, []) and "expected a git clone" in err


def test_there_is_an_end_to_new_starts(pod):
    status, *_, asked = pod(*WORDS, "--restarts", "1", "--", "--x", runs="75\n75\n75\n")
    assert status == 75
    assert sum("launch/train.sh" in line for line in asked) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--zone", "z", "--", "--x"), "--type is missing"),
        (("--type", "v6e-8", "--", "--x"), "--zone is missing"),
        (("--zone", "z", "--type", "v2-8", "--", "--x"), "--runtime is missing"),
        (WORDS, "found no '-- ARGUMENTS'"),
        (("--zone",), "--zone needs a value"),
        (("--recipe", "small"), "come after '--'"),
        ((*WORDS, "--env", "A", "--", "--x"), "expected NAME=VALUE"),
        ((*WORDS, "--restarts", "x", "--", "--x"), "--restarts is 'x'"),
    ],
)
def test_what_was_typed_wrong_is_named(pod, words, message):
    status, out, err, asked = pod(*words)
    assert (status, out, asked) == (2, "", []) and message in err
