"""What tests of encoding share: the folder of a tiny BERT."""

from pathlib import Path

import pytest
from tiny_bert import write_model


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT with its tokenizer, as a Hugging Face folder."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("model") / "tiny"
    write_model(folder)
    return folder
