"""environment.sh, as the other scripts call it; nothing is downloaded.

It is run on a copy whose requirement files are empty, so that pip has an environment to make but
nothing to fetch. The setuptools that requirements.txt brings is that of the tests' own environment.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from launchers import bash, finish, program, start, without_settings


def test_without_a_fit_python_the_message_says_what_to_install(repo, tmp_path):
    only_basics = tmp_path / "bin"
    only_basics.mkdir()
    for tool in ("bash", "dirname", "ls", "cat", "ln", "mkdir", "readlink", "rm", "uname"):
        (only_basics / tool).symlink_to(shutil.which(tool))
    result = bash(
        *(repo / "launch/environment.sh", "requirements.txt"),
        cwd=tmp_path,
        CODER_JAX_VENV=tmp_path / "venv",
        CODER_JAX_ACCELERATOR="cpu",
        PATH=only_basics,
    )
    assert result.returncode == 1
    assert "Python 3.11" in result.stderr and "apt-get install" in result.stderr
    assert result.stderr.count("coder_jax:") == 1, "it stops at the first problem"
    assert not result.stdout


@pytest.fixture(scope="module")
def setuptools(tmp_path_factory) -> Path:
    """A folder with setuptools alone."""
    folder = tmp_path_factory.mktemp("setuptools")
    there = Path(importlib.util.find_spec("setuptools").origin).parent.parent
    for path in (*there.glob("setuptools*"), there / "_distutils_hack"):
        (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture
def empty_project(repo, tmp_path) -> Path:
    return copy_alone(repo, tmp_path / "project")


def copy_alone(repo: Path, project: Path) -> Path:
    """A copy of environment.sh and of what tells of the project, beside requirement files that ask
    for nothing."""
    for package in ("launch", "coder_jax", "data_pipeline"):
        (project / package).mkdir(parents=True)
    shutil.copy(repo / "launch/environment.sh", project / "launch")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(repo / name, project)
    (project / "coder_jax/__init__.py").touch()
    (project / "coder_jax/__main__.py").write_text(
        "import coder_jax\ndef main(): print(coder_jax.__file__)\nif __name__ == '__main__': main()"
    )
    for name in ("requirements.txt", "requirements-cloud.txt", "requirements-test.txt"):
        (project / name).write_text("# nothing\n", encoding="utf-8")
    (project / "constraints.txt").touch()
    return project


@pytest.fixture(scope="module")
def made(repo, tmp_path_factory, setuptools) -> tuple[Path, list[tuple[str, str]]]:
    """A project with the environment that two calls made at once, and what each of them said."""
    project = copy_alone(repo, tmp_path_factory.mktemp("made") / "project")
    calls = [
        start(
            *(project / "launch/environment.sh", "requirements.txt"),
            cwd=project,
            CODER_JAX_ACCELERATOR="cpu",
            PYTHONPATH=setuptools,
        )
        for _ in range(2)
    ]
    said = [finish(call) for call in calls]
    assert [status for status, *_ in said] == [0, 0], said
    return project, sorted(((out, err) for _, out, err in said), key=lambda call: len(call[1]))


@pytest.mark.slow
def test_environment_is_made_once_repaired_and_updated(made, setuptools):
    empty_project, (_, first) = made

    def environment(*names):
        return bash(
            empty_project / "launch/environment.sh",
            *names,
            cwd=empty_project,
            CODER_JAX_ACCELERATOR="cpu",
            PYTHONPATH=setuptools,
        )

    python = empty_project / ".venv/bin/python"

    out, told = first
    assert out == f"{python}\n"  # the one line that train.sh reads
    assert "making the environment" in told and "requirements.txt" in told
    assert all(line.startswith("coder_jax: ") for line in told.splitlines()), told

    again = environment("requirements.txt")
    assert (again.stdout, again.stderr) == (out, ""), "the second call has nothing to do"

    more = environment("requirements.txt", "requirements-test.txt")
    assert "requirements-test.txt" in more.stderr and "requirements.txt into" not in more.stderr

    assert not environment("requirements.txt", "--", "--data", "s3", "--out", "x/s3:").stderr
    bucket = environment("requirements.txt", "--", "--data=s3://bucket/data", "--out", "runs/a")
    assert "installing requirements-cloud.txt" in bucket.stderr

    (empty_project / "constraints.txt").write_text("# changed\n", encoding="utf-8")
    assert "installing requirements.txt" in environment("requirements.txt").stderr

    python.unlink()  # as after a kill half-way, or when the Python beneath it was removed
    python.symlink_to("/no/such/python")
    repaired = environment("requirements.txt")
    assert repaired.stdout == out, repaired.stderr
    assert "making the environment" in repaired.stderr
    subprocess.run([python, "-m", "pip", "--version"], check=True, capture_output=True)


@pytest.mark.slow
def test_of_two_calls_at_once_one_makes_the_environment_and_the_other_waits(made):
    empty_project, said = made
    assert said[0][0] == said[1][0] == f"{empty_project / '.venv/bin/python'}\n"
    assert "waiting for another process" in said[0][1] and "making" not in said[0][1]
    assert "making the environment" in said[1][1]
    assert not (empty_project / ".venv.lock").exists()


@pytest.mark.slow
def test_the_lock_of_a_killed_call_is_taken_away_once(
    empty_project, empty_venv, tmp_path, setuptools
):
    """The slower of two that see it must not take the lock of the faster one away."""
    lock = empty_venv.with_name("venv.lock")
    dead = subprocess.Popen(["true"])
    dead.wait()
    lock.symlink_to(f"{os.uname().nodename} {dead.pid}")
    # Both have seen it before either does anything; then one is slow.
    program(
        tmp_path / "bin/readlink",
        f'#!/bin/sh\n{shutil.which("readlink")} "$@"\ntouch "{tmp_path}/saw-$PPID"\n'
        f'until set -- "{tmp_path}"/saw-* && [ $# -gt 1 ]; do sleep 0.1; done\n',
    )
    program(
        tmp_path / "bin/rm",
        f'#!/bin/sh\nmkdir "{tmp_path}/one" || sleep 0.5\nexec {shutil.which("rm")} "$@"\n',
    )
    with ThreadPoolExecutor() as pool:
        calls = [
            pool.submit(
                bash,
                *(empty_project / "launch/environment.sh", "requirements.txt"),
                cwd=empty_project,
                CODER_JAX_VENV=empty_venv,
                CODER_JAX_ACCELERATOR="cpu",
                PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}",
                PYTHONPATH=setuptools,
            )
            for _ in range(2)
        ]
    said = [call.result().stderr for call in calls]
    assert [call.result().returncode for call in calls] == [0, 0], said
    assert sum("installing" in text for text in said) == 1, said
    assert not lock.is_symlink() and not lock.with_name("venv.lock.gone").is_symlink()


@pytest.fixture(scope="module")
def empty_venv(tmp_path_factory) -> Path:
    """An environment with nothing but pip in it."""
    venv = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True, timeout=180)
    return venv


@pytest.mark.slow
def test_what_pip_says_is_shown_and_the_next_call_tries_again(empty_project, empty_venv):
    # A line that pip cannot read fails before it asks any server.
    (empty_project / "requirements.txt").write_text("not a requirement\n", encoding="utf-8")
    for _ in range(2):
        result = bash(
            *(empty_project / "launch/environment.sh", "requirements.txt"),
            cwd=empty_project,
            CODER_JAX_VENV=empty_venv,
            CODER_JAX_ACCELERATOR="cpu",
        )
        assert result.returncode == 1
        assert "not a requirement" in result.stderr and "pip.log" in result.stderr
        assert not result.stdout


@pytest.mark.slow
def test_the_project_itself_is_installed_wherever_its_folder_goes(
    repo, tmp_path, empty_venv, setuptools
):
    """From any other folder; nothing is written into a checkout, which may be read-only."""

    def environment(project: Path) -> str:
        result = bash(
            *(project / "launch/environment.sh", "requirements.txt"),
            cwd=project,
            CODER_JAX_VENV=empty_venv,
            CODER_JAX_ACCELERATOR="cpu",
            PYTHONPATH=setuptools,
        )
        assert result.returncode == 0, result.stderr
        return result.stderr

    def answers() -> list[str]:
        elsewhere = {"cwd": tmp_path, "text": True, "env": without_settings(os.environ)}
        return [
            subprocess.check_output([str(word) for word in words], **elsewhere).strip()
            for words in (
                [empty_venv / "bin/coder-jax"],
                [empty_venv / "bin/python", "-m", "coder_jax"],
                [empty_venv / "bin/python", "-c", "import coder_jax; print(coder_jax.__file__)"],
            )
        ]

    project = copy_alone(repo, tmp_path / "project")
    before = sorted(project.rglob("*"))
    environment(project)
    assert answers() == 3 * [str(project / "coder_jax/__init__.py")]
    assert environment(project) == "", "the second call has nothing to do"
    assert [
        path for path in sorted(project.rglob("*")) if "__pycache__" not in path.parts
    ] == before
    # Only what was installed from it is elsewhere; the requirement files are as they were.
    moved = project.rename(tmp_path / "moved")
    assert environment(moved) == ""
    assert answers() == 3 * [str(moved / "coder_jax/__init__.py")]


def test_an_unknown_accelerator_is_refused_with_the_known_ones(repo, tmp_path):
    result = bash(
        *(repo / "launch/environment.sh", "requirements.txt"),
        cwd=tmp_path,
        CODER_JAX_VENV=tmp_path / "venv",
        CODER_JAX_ACCELERATOR="cuda",
    )
    assert result.returncode == 1 and not result.stdout
    assert "CODER_JAX_ACCELERATOR is 'cuda'; expected cpu, cuda12, cuda13 or tpu" in result.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    ("driver", "build"), [("580.65.06", "cuda13"), ("535.104.05\n535.104.05", "cuda12")]
)
def test_the_driver_decides_which_jax_is_installed(
    driver, build, empty_project, empty_venv, tmp_path
):
    # pip is cut off from every server, so it stops at the package that it was asked for.
    nvidia_smi = tmp_path / "bin/nvidia-smi"
    nvidia_smi.parent.mkdir()
    nvidia_smi.write_text(f"#!/bin/sh\necho '{driver}'\n", encoding="utf-8")
    nvidia_smi.chmod(0o755)
    result = bash(
        *(empty_project / "launch/environment.sh", "requirements.txt"),
        cwd=empty_project,
        CODER_JAX_VENV=empty_venv,
        PATH=f"{nvidia_smi.parent}:{os.environ['PATH']}",
        PIP_NO_INDEX=1,
        PIP_FIND_LINKS="",
    )
    assert result.returncode == 1
    assert f"jax[{build}]" in result.stderr


def test_a_folder_that_is_no_environment_is_left_alone(repo, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
    result = bash(
        *(repo / "launch/environment.sh", "requirements.txt"),
        cwd=tmp_path,
        CODER_JAX_VENV=tmp_path,
    )
    assert result.returncode == 1
    assert str(tmp_path) in result.stderr and "CODER_JAX_VENV" in result.stderr
    assert (tmp_path / "thesis.txt").read_text(encoding="utf-8") == "years of work"
