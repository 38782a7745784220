"""Data flows one way: data_pipeline needs no jax, coder_jax needs and loads no TensorFlow."""

import ast
import subprocess
import sys

import pytest

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
