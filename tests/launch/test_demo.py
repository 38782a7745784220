"""The demo, shortened to a few steps: every promise but the score. Slow: real data and weights."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_demo(repo, tmp_path, hpo_path, minilm_path):
    command = [sys.executable, str(repo / "launch" / "demo.py"), "--out", "demo", "--steps", "4"]
    flags = ["--warmup-steps", "1", "--save-steps", "2", "--eval-steps", "0", "--triplets", "8"]
    environment = os.environ | {"PYTHONPATH": str(repo)}
    done = subprocess.run(
        [*command, *flags], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "demo" / "results.json").read_text())
    for name in ("before", "after"):
        assert 0.3 < results[name]["acc@1"] < results[name]["acc@5"] < 1
        assert results[name]["protocol"]["counts"]["mentions"] == 1149
        assert results[name]["protocol"]["dictionary"]["terms"] == 37_758
        assert len(results[name]["protocol"]["encoder"]["weights_hash"]) == 64
        assert f"{100 * results[name]['acc@1']:.1f}" in done.stdout
    assert results["before"]["acc@1"] == max(
        scores["acc@1"] for scores in results["before_by_pooling"].values()
    )
    assert results["train_seconds"] > 0 and results["machine"]["cores"] and results["versions"]
    export = tmp_path / results["export"]
    assert (export / "model.safetensors").exists() and (export / "relations.json").exists()
    assert f"{results['after']['acc@1']:.4f}"[:5] in (export / "README.md").read_text()
    plots = {path.name for path in Path(tmp_path / results["plots"]).iterdir()}
    assert plots == {"training.png", "scores.png", "similarities.png"}
