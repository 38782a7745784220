"""The floors of the house: an import only goes down, and no import leads in a circle. Its names: no
public one stands twice, and what one file alone uses begins with an underscore.

A room is a folder, or a module that has a floor of its own. Rooms of one floor do not import each
other; a folder inside a room belongs to it. What else stands at the top of a package (`__main__`,
`__init__`, a command) may import every room. Imports inside functions and those that only type
checkers read count as any other.
"""

import ast
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

FLOORS = (
    ("benchmarks",),
    ("launch",),
    ("coder_jax.commands",),
    ("coder_jax.report",),
    ("coder_jax.systems",),
    ("coder_jax.evaluation",),
    ("coder_jax.training", "coder_jax.export", "coder_jax.mapping"),
    ("coder_jax.encoding",),
    ("coder_jax.devices", "coder_jax.models"),
    ("data_pipeline.build_dataset", "data_pipeline.build_mentions"),
    ("data_pipeline.batches",),
    ("data_pipeline.skip_gram",),
    ("data_pipeline.dataset",),
    ("data_pipeline.terminology",),
    ("data_pipeline.sources",),
    ("data_pipeline.files",),
    ("data_pipeline.flags",),
    ("data_pipeline.process", "data_pipeline.quiet_tensorflow"),
)
PACKAGES = ("data_pipeline", "coder_jax", "launch", "benchmarks")
FLOOR = {room: number for number, floor in enumerate(FLOORS) for room in floor}
# Where CONTRIBUTING.md says that its two files go.
EXAMPLES = ("coder_jax/systems/info_nce.py", "coder_jax/evaluation/triplets.py")


def module_of(path: Path, repo: Path) -> str:
    return ".".join(path.relative_to(repo).with_suffix("").parts).removesuffix(".__init__")


def room_of(module: str) -> str | None:
    """The room of a module; None for what stands at the top of its package."""
    return next((room for room in FLOOR if f"{module}.".startswith(f"{room}.")), None)


def imports(repo: Path) -> dict[str, set[str]]:
    """Module -> modules of the house that it imports, wherever the import stands."""
    paths = [path for top in PACKAGES for path in sorted((repo / top).rglob("*.py"))]
    modules = {module_of(path, repo): path for path in paths}
    arrows: dict[str, set[str]] = {}
    for module, path in modules.items():
        named = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{path}: found a relative import"
                # A name may be a module of the folder, or stand in it.
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                named |= (inner & modules.keys()) or {str(node.module)}
        arrows[module] = {name for name in named & modules.keys() if name != module}
    return arrows


def wrong_arrows(arrows: dict[str, set[str]], package: str) -> set[tuple[str, str]]:
    """The imports of a package's rooms that go up, or to another room of their floor."""
    wrong = set()
    for module, found in arrows.items():
        room = room_of(module)
        if module.split(".")[0] != package or room is None:
            continue
        for other in found:
            to = room_of(other)
            # What stands at the top of a package is above its rooms, and below other packages'.
            is_above = other.split(".")[0] == package
            down = to == room or (FLOOR[to] > FLOOR[room] if to else not is_above)
            if not down:
                wrong.add((module, other))
    return wrong


@pytest.fixture(scope="module")
def arrows(repo):
    return imports(repo)


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_only_go_down(arrows, package):
    wrong = wrong_arrows(arrows, package)
    lines = "\n".join(f"{module} imports {other}" for module, other in sorted(wrong))
    assert not wrong, f"these imports do not go down:\n{lines}"


def circle(arrows: dict[str, set[str]], package: str) -> list[str] | None:
    """Modules of a package that import each other, one after the other; None if there are none."""
    own = {module: found for module, found in arrows.items() if module.split(".")[0] == package}
    try:
        TopologicalSorter(own).prepare()
    except CycleError as error:
        return error.args[1]
    return None


@pytest.mark.parametrize("package", PACKAGES)
def test_no_import_leads_in_a_circle(arrows, package):
    found = circle(arrows, package)
    assert found is None, f"these modules import each other: {' <- '.join(found)}"


def test_the_files_that_contributing_writes_out_pass_the_checks(repo, tmp_path):
    for package in PACKAGES:
        shutil.copytree(repo / package, tmp_path / package, ignore=shutil.ignore_patterns("*.json"))
    shutil.copy(repo / "pyproject.toml", tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (repo / "CONTRIBUTING.md").read_text(), re.S)
    for name, block in zip(EXAMPLES, blocks, strict=True):
        (tmp_path / name).write_text(block)
    for check in (["check"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *check, "--no-cache", *EXAMPLES]
        done = subprocess.run(ruff, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
    found = imports(tmp_path)
    assert not wrong_arrows(found, "coder_jax") and circle(found, "coder_jax") is None


@pytest.mark.parametrize("package", PACKAGES[:2])
def test_each_room_stands_on_a_floor(repo, package):
    folders = [path.parent for path in (repo / package).rglob("*/__init__.py")]
    homeless = {
        module_of(folder, repo) for folder in folders if not room_of(module_of(folder, repo))
    }
    assert not homeless, f"give these folders a floor: {sorted(homeless)}"
    rooms = {room for room in FLOOR if room.startswith(f"{package}.")}
    there = {module_of(path, repo) for path in (repo / package).glob("*.py")}
    there |= {module_of(folder, repo) for folder in folders}
    assert rooms <= there, f"these rooms are gone: {sorted(rooms - there)}"


# What commands and measurements are asked for by name: each has its own.
OF_COMMANDS = {"main", "run", "parse", "measure", "table", "MARKS"}


def definitions(tree: ast.Module) -> dict[str, ast.stmt]:
    """The public classes, functions and constants of a module, those of commands left out."""
    found: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [name for target in targets for name in ast.walk(target)]
            found |= {name.id: node for name in names if isinstance(name, ast.Name)}
    return {
        name: node
        for name, node in found.items()
        if name not in OF_COMMANDS and not name.startswith(("_", "WHEN_", "ON_ALL_HOSTS"))
    }


def words_of_types(tree: ast.Module) -> set[str]:
    """The names that stand in annotations and in the aliases of types."""
    types: list[ast.AST | None] = []
    for node in ast.walk(tree):
        types += [getattr(node, "annotation", None), getattr(node, "returns", None)]
    values = [node.value for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    types += [value for value in values if isinstance(value, ast.Subscript | ast.BinOp)]
    words = [word for one in types if one for word in ast.walk(one)]
    return {word.id for word in words if isinstance(word, ast.Name)}


@pytest.fixture(scope="module")
def trees(repo):
    paths = [path for top in PACKAGES for path in sorted((repo / top).rglob("*.py"))]
    return {module_of(path, repo): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def test_no_public_name_stands_twice(trees):
    where = defaultdict(list)
    for module, tree in trees.items():
        for name, node in definitions(tree).items():
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                where[name].append(module)
    lines = [f"{name}: {', '.join(found)}" for name, found in where.items() if len(found) > 1]
    assert not lines, "give each its own name:\n" + "\n".join(lines)


def test_what_one_file_alone_uses_begins_with_an_underscore(trees, repo):
    used = defaultdict(set)  # a word -> the files that import it, or reach it as an attribute
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    used[alias.name].add(module)
            elif isinstance(node, ast.Attribute):
                used[node.attr].add(module)
    guide = (repo / "CONTRIBUTING.md").read_text(encoding="utf-8")
    lines = []
    for module, tree in trees.items():
        types = words_of_types(tree)
        for name, node in definitions(tree).items():
            of_types = not isinstance(node, ast.FunctionDef) and name in types
            in_exports = module.endswith("torch_module") and isinstance(node, ast.ClassDef)
            if not (used[name] - {module} or of_types or in_exports or f"`{name}`" in guide):
                lines.append(f"{module}: {name}")
    assert not lines, "no other file uses these:\n" + "\n".join(lines)
