"""Records of evaluations: what they hold, and what is written as JSON."""

import dataclasses
import json
import platform

import jax
import msgspec
import pytest
from toy_record import record_of

from coder_jax.evaluation import record
from coder_jax.evaluation.record import installed_versions, write_records
from data_pipeline.process import BadInput


def test_json(tmp_path):
    undefined = dataclasses.replace(record_of(), scores={"spearman": None}, intervals={})
    records = [record_of(), undefined]
    write_records(tmp_path / "out.json", records)
    assert json.loads((tmp_path / "out.json").read_text()) == {
        "format": "coder_jax evaluation 2",
        "records": msgspec.to_builtins(records),
    }
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_nothing_half_written(tmp_path):
    path = tmp_path / "out.json"
    write_records(path, [record_of()])
    before = path.read_text()
    broken = dataclasses.replace(record_of(), scores={"acc@1": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_records(path, [broken])
    assert path.read_text() == before
    with pytest.raises(BadInput, match=r"out.json: cannot be written \(.*\); give another path"):
        write_records(tmp_path / "absent" / "out.json", [record_of()])
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_versions_are_those_of_installed_packages(monkeypatch):
    monkeypatch.setattr(record, "_PACKAGES", ("jax", "no-such-package"))
    assert installed_versions() == {"python": platform.python_version(), "jax": jax.__version__}
