"""Data flows one way: data_pipeline needs no jax, coder_jax needs and loads no TensorFlow."""

import ast
import csv
import re
import subprocess
import sys
import tomllib

import pytest
from tiny_bert import write_model
from tiny_ontology import write_ontology
from tiny_run import write_tiny_dataset

# What no line of a package may import, not even inside a function.
FORBIDDEN = {
    "data_pipeline": {"jax", "jaxlib", "flax", "optax", "orbax", "coder_jax"},
    "coder_jax": {"tensorflow", "tensorflow_datasets"},
}

IMPORT_EVERY_MODULE = """
for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
    if not module.name.endswith(".__main__"):
        importlib.import_module(module.name)
"""

# None in sys.modules makes Python say that there is no such module.
WITHOUT = f"""
import importlib, pkgutil, sys
package, *forbidden = sys.argv[1:]
sys.modules.update(dict.fromkeys(forbidden))
{IMPORT_EVERY_MODULE}
"""

# The first finder is asked for every import, so it can keep the stack of the first request.
WITNESS = f"""
import importlib, pkgutil, sys, traceback
package, *forbidden = sys.argv[1:]
first_request = {{}}

class Witness:
    def find_spec(self, name, path=None, target=None):
        if name in forbidden:
            first_request.setdefault(name, "".join(traceback.format_stack()))

sys.meta_path.insert(0, Witness())
{IMPORT_EVERY_MODULE}
for name in forbidden:
    if name in sys.modules:
        print(f"{{name}} was loaded here:\\n{{first_request[name]}}")
"""


def in_a_fresh_process(code, package, repo):
    """The output of Python code that imports a package, given the names forbidden to it."""
    result = subprocess.run(
        [sys.executable, "-c", code, package, *FORBIDDEN[package]],
        cwd=repo,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def imported_modules(tree):
    """(line, module) of each import of a file, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module


@pytest.mark.parametrize("package", FORBIDDEN)
def test_no_line_imports_the_other_side(package, repo):
    paths = sorted((repo / package).rglob("*.py"))
    assert paths
    wrong = [
        f"{path.relative_to(repo)}:{line} imports {module}"
        for path in paths
        for line, module in imported_modules(ast.parse(path.read_text(encoding="utf-8")))
        if module.split(".")[0] in FORBIDDEN[package]
    ]
    assert not wrong, "\n".join(wrong)


def test_data_pipeline_works_where_jax_is_not_installed(repo):
    in_a_fresh_process(WITHOUT, "data_pipeline", repo)


def test_coder_jax_never_loads_tensorflow(repo):
    # Nor does a third package load it in passing: it takes seconds and memory. (TensorFlow itself
    # loads jax where there is one, so data_pipeline cannot promise the reverse.)
    loaded = in_a_fresh_process(WITNESS, "coder_jax", repo)
    assert not loaded, loaded


# -------------------------------------------------------------------------------------------------
# The extras of pyproject.toml: what the core does without, and what is said where one is missing.


def requirements(lines):
    """Name, with its marker -> bounds."""
    found = {}
    for line in lines:
        line = line.partition("#")[0].strip()
        if line and not line.startswith("-"):
            name, bounds, marker = re.fullmatch(r"([\w.-]+)([^;]*)(;.*)?", line).groups()
            key = re.sub(r"[\s'\"]", "", name.lower().replace("_", "-") + (marker or ""))
            found[key] = re.sub(r"\s", "", bounds)
    return found


def test_core_and_extras_are_the_requirements(repo):
    project = tomllib.loads((repo / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert extras.pop("all") == [f"coder-jax[{','.join(extras)}]"]
    cloud = (repo / "requirements-cloud.txt").read_text().splitlines()
    assert requirements(extras.pop("cloud")) == requirements(cloud)
    # What answers other programs is no part of the environment of the scripts.
    for_tests = requirements((repo / "requirements-test.txt").read_text().splitlines())
    for_tests |= requirements(["abbreviations>=0.2.5"])  # of the extra `text`, too
    for extra in ("serve", "spacy"):
        assert requirements(extras.pop(extra)).items() <= for_tests.items()
    whole = requirements((repo / "requirements.txt").read_text().splitlines())
    whole.pop("setuptools")  # for launch/environment.sh
    assert requirements(project["dependencies"] + sum(extras.values(), [])) == whole


EXTRAS = ("tensorflow", "tensorflow_datasets", "torch", "gensim")
EXTRAS += (
    "sentence_transformers",
    "ahocorasick",
    "abbreviations",
    "bm25s",
    "ot",
    "matplotlib",
    "s3fs",
)
# Libraries that are there take these along: it is coder_jax that must not ask for them.
WITHOUT_EXTRAS = f"""
import importlib.util, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
real = importlib.util.find_spec  # by which libraries ask whether a package is there
importlib.util.find_spec = lambda name, *more: None if name in {EXTRAS!r} else real(name, *more)
from coder_jax.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def without_extras(*words, cwd):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
def test_the_core_encodes_and_maps_with_an_ontology(tmp_path):
    write_model(tmp_path / "bert")
    write_ontology(tmp_path / "tiny.obo", classes=30)
    (tmp_path / "list.csv").write_text("id,local_term\n1,pain of limb 3\n2,acute attac 4\n")
    command = ("--model", "bert", "--pooling", "cls", "--dictionary", "tiny.obo")
    done = without_extras("normalize", *command, "--column", "local_term", "list.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(done.stdout.splitlines(), delimiter="\t"))
    assert [row["concept"] for row in rows][0] == "T:00003" and rows[0]["status"] == "exact"
    done = without_extras("encode", *command[:4], "--out", "v.npy", "list.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_core_trains_on_a_dataset_that_is_there(tmp_path):
    write_model(tmp_path / "bert")
    write_tiny_dataset(tmp_path / "data", tmp_path / "bert")
    flags = "--groups 1 --triplets 4 --repeats 2 --row-length 64 --steps 2 --warmup-steps 1"
    command = f"train --recipe small --data data --out run --init bert --eval-steps 0 {flags}"
    done = without_extras(*command.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 steps; checkpoints" in done.stdout


def test_a_verb_says_which_extra_it_lacks(tmp_path):
    write_model(tmp_path / "bert")
    write_ontology(tmp_path / "tiny.obo", classes=30)
    command = ("--source", "tiny.obo", "--tokenizer", "bert", "--out", "data")
    done = without_extras("build", *command, cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "install it with: pip install 'coder-jax[train]'" in done.stderr
