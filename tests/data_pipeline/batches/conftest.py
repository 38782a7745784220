"""The tiny dataset of names and its vectors, built once."""

import pytest
from tiny_names import tiny_names, tiny_vectors


@pytest.fixture(scope="session")
def names(tmp_path_factory):
    """The folder of the dataset; `vectors` and `words` lie beside it."""
    folder = tmp_path_factory.mktemp("names")
    tiny_vectors(folder / "vectors")
    tiny_vectors(folder / "words", "words")
    return tiny_names(folder)
