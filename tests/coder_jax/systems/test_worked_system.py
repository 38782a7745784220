"""The loss and the system that CONTRIBUTING.md writes out: trained, exported, reported."""

import importlib.util
import json
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from short_run import licensed_model, one_device
from tiny_run import write_tiny_dataset

from coder_jax.__main__ import main
from coder_jax.commands import train as train_command
from coder_jax.devices.mesh import make_mesh, step_cut
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.systems import recipes


@pytest.fixture(scope="module")
def written(repo, tmp_path_factory):
    """The document's file as a module."""
    text = (repo / "CONTRIBUTING.md").read_text()
    path = tmp_path_factory.mktemp("written") / "info_nce_of_the_document.py"
    path.write_text(re.findall(r"```python\n(.*?)```", text, re.S)[0])
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[path.stem]


def test_the_loss_is_the_formula(written):
    rng = np.random.default_rng(0)
    similarity = rng.uniform(-1, 1, (5, 7)).astype(np.float32)
    positive = rng.random((5, 7)) < 0.3
    negative = ~positive & (rng.random((5, 7)) < 0.8)
    terms, nearer = [], []
    for i, j in zip(*np.nonzero(positive), strict=True):
        others = np.exp(similarity[i][negative[i]] / 0.2)
        own = np.exp(similarity[i, j] / 0.2)
        terms.append(-np.log(own / (own + others.sum())))
        nearer.append(own > others.sum())
    loss, share = written.info_nce_loss(similarity, positive, negative, temperature=0.2)
    assert float(loss) == pytest.approx(np.mean(terms), rel=1e-5)
    assert float(share) == pytest.approx(np.mean(nearer))
    nothing = np.zeros((5, 7), bool)

    def without_pairs(similarity):
        return written.info_nce_loss(similarity, nothing, nothing)[0]

    value, gradient = jax.value_and_grad(without_pairs)(jnp.asarray(similarity))
    assert value == 0 and np.isfinite(gradient).all()


@pytest.mark.slow
def test_the_system_trains_exports_and_is_reported(repo, written, tmp_path, monkeypatch, capsys):
    text = (repo / "CONTRIBUTING.md").read_text()
    tables = re.search(r"Add `InfoNceSystem` to `(\w+)` and `info_nce` to `(\w+)`", text)
    monkeypatch.setitem(getattr(recipes, tables[1]), "info_nce", written.InfoNceSystem)
    monkeypatch.setitem(getattr(recipes, tables[2]), "info_nce", written.info_nce)
    model = licensed_model(tmp_path / "bert")
    flags = ["--recipe", "info_nce", "--temperature", "0.1", "--groups", "2", "--triplets", "8"]
    flags += ["--names", "distinct", "--row-length", "64", "--steps", "3", "--warmup-steps", "1"]
    out = tmp_path / "run"
    flags += ["--init", str(model), "--data", str(tmp_path / "data"), "--out", str(out)]
    config = train_command.parse([*flags, "--eval-steps", "3", "--log-steps", "1"])
    assert config.system.temperature == 0.1
    write_tiny_dataset(tmp_path / "data", model)
    with one_device():
        source = config.system.open(
            tmp_path / "data", step_cut(make_mesh(1, jax.devices()[:1]), 1), rows=0, steps=3
        )
        from coder_jax.training.train import train

        assert train(config, source).steps == 3
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "eval" in line] == [0, 3]
    assert all(0 <= line["nearer"] <= 1 for line in lines if "loss" in line)

    export, page = tmp_path / "export", tmp_path / "report.html"
    assert main(["export", "--checkpoint", str(out), "--out", str(export)]) == 0
    assert "# InfoNCE (info_nce)" in (export / "README.md").read_text()
    vectors = TermEncoder.from_pretrained(export).encode(["heart attack"])
    assert np.abs(vectors - TermEncoder.from_pretrained(model).encode(["heart attack"])).max() > 0
    assert main(["report", "--model", str(out), "--out", str(page)]) == 0
    text = page.read_text()
    assert "info_nce" in text and "nearer" in text
