"""What tests of MLNorm share: an invented release, and a run of the first step on it."""

import pytest
import tiny_bert
from class_run import config_of_first, source_of
from short_run import one_device

from benchmarks.synthetic_release import _scaled, _write_release
from coder_jax.training.train import train
from data_pipeline.build_dataset.build import build_dataset
from data_pipeline.build_dataset.options import BuildOptions


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """(dataset, tiny encoder) of an invented release."""
    folder = tmp_path_factory.mktemp("built")
    _write_release(folder / "META", _scaled(0.00004, {}))
    tiny_bert.write_model(folder / "bert")
    how = {"tokenizer": folder / "bert", "cleaning": "mlnorm", "hold_out": 20}
    build_dataset(BuildOptions(source=folder / "META", out=folder / "data", **how))
    return folder / "data", folder / "bert"


@pytest.fixture(scope="session")
def first(built, tmp_path_factory):
    """(folder, result) of a whole run of the first step."""
    out = tmp_path_factory.mktemp("runs") / "first"
    given = config_of_first(built, out)
    with one_device():
        return out, train(given, source_of(built[0], given.system))
