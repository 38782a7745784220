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
    """(dataset, tiny encoder) of an invented release, with mentions that repeat."""
    folder = tmp_path_factory.mktemp("built")
    _write_release(folder / "META", _scaled(0.00004))
    tiny_bert.write_model(folder / "bert")
    with (folder / "META" / "MRCONSO.RRF").open(encoding="utf-8") as rows:
        cui = rows.readline().split("|")[0]
    lines = [f"{text}\t{cui}\tENG\n" for text in ["sore throat"] * 5 + ["sick"]]
    (folder / "mentions.tsv").write_text("mention\tcui\tlanguage\n" + "".join(lines))
    how = {"tokenizer": folder / "bert", "cleaning": "mlnorm", "hold_out": 20}
    how |= {"supervised": (folder / "mentions.tsv",)}
    build_dataset(BuildOptions(source=folder / "META", out=folder / "data", **how))
    return folder / "data", folder / "bert"


@pytest.fixture(scope="session")
def first(built, tmp_path_factory):
    """(folder, result) of a whole run of the first step."""
    out = tmp_path_factory.mktemp("runs") / "first"
    given = config_of_first(built, out)
    with one_device():
        return out, train(given, source_of(built[0], given.system))
