"""What tests share: tiny encoders, batches for one, and one of the fake devices."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from short_run import licensed_model, one_device, source_for
from tiny_bert import write_model

from data_pipeline.batches.batch_maker import BatchMaker


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT with its tokenizer, as a Hugging Face folder."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("model") / "tiny"
    write_model(folder)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny encoder."""
    return licensed_model(tmp_path_factory.mktemp("model") / "tiny-bert")


@pytest.fixture(scope="module")
def source(model: Path) -> BatchMaker:
    """Batches for that encoder."""
    return source_for(model)


@pytest.fixture(scope="module")
def on_one_device() -> Iterator[None]:
    """Training uses one of the fake devices: a program for it compiles sooner."""
    with one_device():
        yield
