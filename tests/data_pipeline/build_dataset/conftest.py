"""A build of a tiny ontology."""

from pathlib import Path

import pytest
from tiny_build import small_build, write_tokenizer
from tiny_ontology import write_ontology

from data_pipeline.build_dataset.options import BuildOptions


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def ontology(tmp_path_factory) -> Path:
    return write_ontology(tmp_path_factory.mktemp("obo") / "tiny.obo")


@pytest.fixture
def options(model, ontology, tmp_path) -> BuildOptions:
    return small_build(ontology, model, tmp_path / "out")
