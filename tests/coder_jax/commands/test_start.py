"""What a command says that cannot start: wrong words, no such device, a Python without packages."""

import os
import subprocess
import sys

import pytest
from tiny_bert import write_model

from coder_jax.__main__ import _VERBS, main


def start(*words: str, code: str = "", **environment: str) -> subprocess.CompletedProcess:
    """`python -m coder_jax` in a process of its own, after some Python."""
    program = (
        f"import runpy, sys\n{code}\nsys.argv = ['coder_jax', *{list(words)!r}]\n"
        "runpy.run_module('coder_jax', run_name='__main__')"
    )
    return subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=180,
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "there is no verb 'trian'; did you mean train?"),
        (["train", "--data", "x"], "found no --recipe; expected one of"),
        (["train", "--recipe", "smal"], "there is no recipe 'smal'; did you mean small?"),
        (["train", "--config", "absent"], "is not the folder of a training run"),
        (["encode", "--modle", "m"], "there is no option --modle; did you mean --model?"),
        (["normalize", "--dictonary=d"], "did you mean --dictionary?"),
        (["evaluate", "--benchmarks", "a=b"], "did you mean --benchmark?"),
        (["report", "--resluts", "a"], "did you mean --results?"),
        (["export", "--chekpoint", "a"], "did you mean --checkpoint?"),
        ("evaluate --model m --json j --benchmark a=paper:knowlege".split(), "mean knowledge?"),
        (
            "evaluate --model m --json j --benchmark cadec=. --dictionary cadek=.".split(),
            "no benchmark 'cadek'; did you mean cadec?",
        ),
        ("evaluate --model m --json . --benchmark a=b".split(), "--json: . is a folder; expected"),
        ("train --recipe small --out x".split(), "found no --data; give --data"),
        (f"train --recipe small --data x --out {__file__}/x".split(), "is a file; expected a fold"),
    ],
)
def test_a_wrong_word_gets_the_one_that_is_like_it(words, message, capsys):
    assert main(words) == 2
    printed = capsys.readouterr()
    assert message in printed.err and printed.out == ""


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_a_device_that_is_not_there_is_a_message(platform, tmp_path):
    write_model(tmp_path / "bert")
    (tmp_path / "terms.txt").write_text("heart attack\n")
    words = ["encode", "--model", tmp_path / "bert", "--out", tmp_path / "v.npy"]
    done = start(*map(str, [*words, tmp_path / "terms.txt"]), JAX_PLATFORMS=platform)
    assert done.returncode == 2, done.stderr
    assert f"JAX_PLATFORMS is '{platform}': unset it" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", [verb for verb in _VERBS if verb != "build"])  # which needs no jax
def test_a_python_without_the_packages_is_told_which(verb):
    """The jaxlib of a distribution is asked for its version; other packages are imported."""
    code = (
        "import importlib.metadata\n"
        "def version(name): raise importlib.metadata.PackageNotFoundError(name)\n"
        "importlib.metadata.version = version"
    )
    done = start(verb, "--help", code=code, XLA_FLAGS="")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "package jaxlib is not installed for" in done.stderr
    assert "bash launch/train.sh" in done.stderr


@pytest.mark.parametrize("verb", sorted({*_VERBS} - {"train", "demo"}))  # which train
def test_help_starts_no_library_of_arrays(verb):
    code = "sys.modules.update(dict.fromkeys(('jax', 'torch', 'tensorflow', 'sklearn')))"
    done = start(verb, "--help", code=code)
    assert done.returncode == 0 and done.stdout.startswith("usage:"), done.stderr


@pytest.mark.parametrize("package", ["msgspec", "jax"])
def test_a_package_that_is_not_there_is_named(package):
    done = start("train", "--help", code=f"sys.modules[{package!r}] = None")
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert f"package {package} is not installed for" in done.stderr


def test_an_old_python_is_named():
    done = start("--help", code="sys.version_info = (3, 9, 2)")
    assert done.returncode == 2 and "coder_jax needs 3.11, 3.12 or 3.13" in done.stderr


def test_building_where_nothing_is_installed_is_a_message(repo):
    code = (
        "import sys; sys.modules['polars'] = None\n"
        "from data_pipeline.build_dataset.__main__ import main; sys.exit(main(['--help']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=repo, capture_output=True, text=True)
    assert done.returncode == 2 and "package polars is not installed" in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [["--help"], ["encode", "--help"], ["train", "--help"]])
def test_help_may_be_cut_short(words, unbuffered):
    """`--help | head -1`."""
    with subprocess.Popen(
        [sys.executable, "-m", "coder_jax", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
    ) as process:
        assert process.stdout and process.stderr
        process.stdout.close()  # before anything was written
        assert process.stderr.read() == b""
        assert process.wait(60) in (0, 141)  # the work was done, or ended at a full pipe
