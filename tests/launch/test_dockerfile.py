"""The image: what gets in, what it installs, whom it runs as; and that its files are all it takes.

launch/check.sh reads the file with hadolint. Docker itself is not needed here.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launchers import bash


def instructions(repo: Path) -> list[tuple[str, str]]:
    """(instruction, its arguments) of the Dockerfile, without comments."""
    text = (repo / "launch/Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"(?m)^#.*\n", "", text).replace("\\\n", "")
    return [(word, " ".join(rest.split())) for word, rest in re.findall(r"(?m)^(\w+) (.*)", text)]


def goes_in(path: str, patterns: list[str]) -> bool:
    """Whether Docker sends a file of the repository to a build: the last pattern counts."""
    parts = path.split("/")
    above = ["/".join(parts[: i + 1]) for i in range(len(parts))]
    kept = True
    for pattern in patterns:
        name = re.escape(pattern.removeprefix("!"))
        name = name.replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
        if any(re.fullmatch(name, one) for one in above):
            kept = pattern.startswith("!")
    return kept


@pytest.fixture(scope="module")
def patterns(repo) -> list[str]:
    lines = (repo / ".dockerignore").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


@pytest.fixture(scope="module")
def in_git(repo) -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=repo, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("the repository has no git")
    return [name for name in listed.stdout.splitlines() if (repo / name).exists()]


def test_only_code_and_what_it_needs_gets_in(in_git, patterns):
    kept = [name for name in in_git if goes_in(name, patterns)]
    assert {name.split("/")[0] for name in kept} == {
        *("coder_jax", "data_pipeline", "launch", "constraints.txt", "pyproject.toml"),
        *("README.md", "LICENSE", "requirements.txt", "requirements-cloud.txt"),
        *("requirements-demo.txt", "requirements-test.txt", "requirements-benchmarks.txt"),
    }
    rooms = ("coder_jax/", "data_pipeline/", "launch/")
    assert {name for name in in_git if name.startswith(rooms)} <= set(kept)


@pytest.mark.parametrize(
    "path",
    [
        *(".git/config", ".env", "pip.conf", ".netrc", "credentials.json", "id_rsa"),
        *(".venv/bin/python", "runs/demo/results.json", "datasets/umls/manifest.json"),
        *("umls-2020AA-full.zip", "coder_jax.egg-info/PKG-INFO", "tests/conftest.py"),
        *("coder_jax/__pycache__/x.pyc", "coder_jax/models/__pycache__/x.pyc"),
    ],
)
def test_what_lies_about_does_not(patterns, path):
    assert not goes_in(path, patterns)


def test_what_is_copied_is_there_and_gets_in(repo, patterns):
    copied = [rest.split()[:-1] for word, rest in instructions(repo) if word == "COPY"]
    assert copied[-1] == ["."]
    for name in copied[0]:
        assert (repo / name).is_file() and goes_in(name, patterns)


def test_a_change_of_the_code_installs_nothing_again(repo):
    steps = instructions(repo)
    (everything,) = (i for i, step in enumerate(steps) if step == ("COPY", ". ."))
    before, after = steps[:everything], steps[everything:]
    (install,) = (rest for word, rest in before if word == "RUN" and "pip install" in rest)
    copied = next(rest for word, rest in before if word == "COPY").split()[:-1]
    used = set(re.findall(r"-[rc] (\S+)", install))
    assert (
        used
        == set(copied)
        == {
            *("constraints.txt", "requirements.txt", "requirements-cloud.txt"),
            "requirements-demo.txt",
        }
    )
    installs = [part for part in install.split("&&") if "pip install" in part]
    assert all("-c constraints.txt" in part for part in installs)
    assert ["--no-deps" in part for part in installs if "requirements-demo" in part] == [True]
    assert all("--no-deps" in rest for _, rest in after if "pip install" in rest)


def test_it_runs_train_sh_without_rights_by_its_own_python(repo):
    steps = instructions(repo)
    assert [word for word, _ in steps][-1] == "ENTRYPOINT"
    assert json.loads(steps[-1][1]) == ["bash", "/coder_jax/launch/train.sh"]
    (user,) = (rest for word, rest in steps if word == "USER")
    assert re.fullmatch("[1-9][0-9]*:[1-9][0-9]*", user), "a number, which Kubernetes can check"
    folders = [rest for word, rest in steps if word == "WORKDIR"]
    assert folders[0] == "/coder_jax" and folders[-1] != folders[0]
    variables = " ".join(rest for word, rest in steps if word == "ENV").split()
    assert "CODER_JAX_PYTHON=/usr/local/bin/python" in variables
    assert not any("GLIBC" in variable for variable in variables), "train.sh sets them"


def test_the_build_of_jax_is_chosen_by_the_argument(repo, tmp_path):
    """The step itself, with a pip that prints what it was asked."""
    (install,) = (
        rest for word, rest in instructions(repo) if word == "RUN" and "ACCELERATOR" in rest
    )
    assert ("ARG", "ACCELERATOR=cpu") in instructions(repo)
    script = tmp_path / "step"
    script.write_text(re.sub(r"--mount=\S+ ", "", install), encoding="utf-8")
    pip = tmp_path / "pip"
    pip.write_text('#!/bin/sh\necho "$@"\n')
    pip.chmod(0o755)

    def asked(accelerator: str) -> subprocess.CompletedProcess:
        path = f"{tmp_path}:/usr/bin:/bin"
        return bash(script, cwd=tmp_path, ACCELERATOR=accelerator, PATH=path)

    for accelerator in ("cuda12", "cuda13", "tpu"):
        assert f" jax[{accelerator}]\n" in asked(accelerator).stdout
    assert asked("cpu").stdout.splitlines()[0].endswith(" jax")
    wrong = asked("rocm")
    assert wrong.returncode == 2 and not wrong.stdout
    assert "ACCELERATOR is 'rocm'; expected cpu, cuda12, cuda13 or tpu" in wrong.stderr


@pytest.mark.parametrize(("architecture", "compiler"), [("arm64", True), ("amd64", False)])
def test_a_compiler_is_there_where_a_package_has_no_wheel(repo, tmp_path, architecture, compiler):
    """The step itself, with programs that print what they were asked."""
    steps = [rest for word, rest in instructions(repo) if word == "RUN"]
    places = [i for i, rest in enumerate(steps) if "apt-get" in rest]
    assert places == [0] and "pip install" in steps[1]
    for name, says in (("dpkg", architecture), ("apt-get", "apt-get $@"), ("rm", "")):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{says}"\n')
        (tmp_path / name).chmod(0o755)
    script = tmp_path / "step"
    script.write_text(steps[0], encoding="utf-8")
    done = bash(script, cwd=tmp_path, PATH=f"{tmp_path}:/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    assert ("g++" in done.stdout) == compiler and ("apt-get update" in done.stdout) == compiler


@pytest.mark.slow
def test_what_gets_in_is_enough(repo, in_git, patterns, tmp_path):
    """Every module of the rooms is imported from a copy that has nothing else, as is every verb."""
    image = tmp_path / "coder_jax"
    for name in in_git:
        if goes_in(name, patterns):
            (image / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(repo / name, image / name)
    for words in (["demo", "--help"], ["encode", "--help"], ["build", "--help"]):
        done = bash(
            image / "launch/train.sh", *words, cwd=tmp_path, CODER_JAX_PYTHON=sys.executable
        )
        assert done.returncode == 0 and "usage:" in done.stdout, done.stderr
    everything = (
        "import importlib, pkgutil, coder_jax, data_pipeline\n"
        "for room in (coder_jax, data_pipeline):\n"
        "    for module in pkgutil.walk_packages(room.__path__, room.__name__ + '.'):\n"
        "        if not module.name.endswith('__main__'):\n"
        "            print(importlib.import_module(module.name).__file__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", everything], cwd=image, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    files = done.stdout.splitlines()
    assert len(files) > 100 and all(file.startswith(str(image)) for file in files)
