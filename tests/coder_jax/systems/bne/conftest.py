"""What tests of BNE share: names, vectors of words, a run."""

import pytest
from name_run import config_of, source_of
from short_run import one_device
from tiny_names import tiny_names, tiny_vectors

from coder_jax.training.train import train


@pytest.fixture(scope="session")
def names(tmp_path_factory):
    """The folder of the dataset; `vectors` lies beside it."""
    folder = tmp_path_factory.mktemp("names")
    tiny_vectors(folder / "vectors")
    return tiny_names(folder)


@pytest.fixture(scope="session")
def trained(names, tmp_path_factory):
    """(folder, result) of a run."""
    out = tmp_path_factory.mktemp("runs") / "bne"
    config = config_of(names, out)
    with one_device():
        return out, train(config, source_of(config, names))
