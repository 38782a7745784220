"""The pages of docs/: their Python runs, the site builds without a warning, the notebook runs.

Their commands and links are tested with those of the README, in tests/launch/test_readme.py.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tiny_bert import write_model

from coder_jax.export.folder import export_encoder
from coder_jax.export.onnx_files import add_onnx
from coder_jax.models.hf_weights import load_bert

PAGES = ("README.md", "docs/map.md", "docs/export.md")
MOST_BYTES_OF_A_NOTEBOOK = 20_000
DICTIONARY = "heart attack\tC1\nchronic renal failure\tC2\npain in limb\tC3\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A folder with what the pages speak of: exports, the demo's dictionary, vectors."""
    folder = tmp_path_factory.mktemp("home")
    write_model(folder / "model")
    bert, hf_config, _ = load_bert(folder / "model")
    settings = {"pooling": "cls", "cleaning": "none", "max_length": 32}
    for name in ("runs/demo/export", "my-coder"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        export_encoder(bert, folder / "model", hf_config, folder / name, **settings)
    add_onnx(folder / "my-coder")
    heldout = folder / "runs/demo/dataset/heldout"
    heldout.mkdir(parents=True)
    (heldout / "dictionary.tsv").write_text(DICTIONARY)
    np.save(folder / "vectors.npy", np.eye(3, 32, dtype=np.float32))
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_its_python_runs(repo, home, page, monkeypatch, capsys):
    """The blocks of a page are one program."""
    pytest.importorskip("torch")
    pytest.importorskip("sentence_transformers")
    monkeypatch.chdir(home)
    text = (repo / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks
    names: dict = {}
    for block in blocks:
        if "import spacy" in block:  # that it is found without this has a test of its own
            pytest.importorskip("coder_jax.commands.spacy_linker", exc_type=ImportError)
        exec(compile(block, page, "exec"), names)
    vectors = np.asarray(names.get("vectors", np.eye(1)))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert capsys.readouterr().out


def test_the_ways_to_open_an_export_agree(repo, home, monkeypatch, capsys):
    """docs/export.md says that each of them gives the encoder's vectors."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    monkeypatch.chdir(home)
    text = (repo / "docs/export.md").read_text(encoding="utf-8")
    (block,) = (one for one in re.findall(r"```python\n(.*?)```", text, re.S) if "AutoModel" in one)
    names: dict = {}
    exec(compile(block, "docs/export.md", "exec"), names)
    peer = sentence_transformers.SentenceTransformer("my-coder", device="cpu")
    expected = peer.encode(["heart attack", "myocardial infarction"])
    np.testing.assert_allclose(names["vectors"].numpy(), expected, atol=1e-5)


def test_the_site_builds_strictly(repo, tmp_path):
    """Links, anchors and pages without a place are errors; no network is asked for anything."""
    for package in ("mkdocs", "material", "mkdocstrings_handlers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(
                f"no {package}: bash launch/docs.sh builds the site (requirements-docs.txt)"
            )
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "-d",
        tmp_path / "site",
    ]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=repo, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        fetched = re.findall(
            r'<(?:script|img|link)[^>]+(?:src|href)="(https?://[^"]+)', page.read_text()
        )
        assert not fetched, f"{page}: the reader's browser would ask {fetched}"


def notebook(repo: Path) -> dict:
    return json.loads((repo / "docs" / "tour.ipynb").read_text(encoding="utf-8"))


def test_the_notebook_is_small_and_without_outputs(repo):
    assert (repo / "docs" / "tour.ipynb").stat().st_size <= MOST_BYTES_OF_A_NOTEBOOK
    cells = notebook(repo)["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code and not any(cell["outputs"] or cell["execution_count"] for cell in code)
    for cell in code:
        compile("".join(cell["source"]), "docs/tour.ipynb", "exec")


@pytest.mark.slow
def test_the_notebook_runs(repo, tmp_path, hpo_path, minilm_path):
    code = "\n".join(
        "".join(cell["source"]) for cell in notebook(repo)["cells"] if cell["cell_type"] == "code"
    )
    (tmp_path / "tour.py").write_text(code, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(repo), "CODER_JAX_TOUR": str(tmp_path / "tour")}
    done = subprocess.run(
        [sys.executable, "tour.py"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    scores = [float(score) for score in re.findall(r"^step \d+: acc@1 (0\.\d+)", done.stdout, re.M)]
    assert len(scores) == 2 and scores[1] > scores[0], done.stdout
    assert (tmp_path / "tour" / "export" / "model.safetensors").is_file()
