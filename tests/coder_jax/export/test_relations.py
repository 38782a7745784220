"""Relations in an export: written and read back, applied as the paper has it, messages."""

import dataclasses
import json

import numpy as np
import pytest
from short_run import config, licensed_model, one_device, source_for

from coder_jax.export.relations import ExportedRelations, read_relations, write_relations
from coder_jax.systems.trained_models import load_run
from coder_jax.training.train import train
from data_pipeline.process import BadInput

RNG = np.random.default_rng(0)
MATRICES = ExportedRelations(RNG.normal(size=(2, 4, 4)).astype(np.float32), ["RO|a", "PAR|"])
TRANSLATIONS = ExportedRelations(RNG.normal(size=(2, 4)).astype(np.float32), ["RO|a", "PAR|"])


@pytest.mark.parametrize("relations", [MATRICES, TRANSLATIONS])
def test_what_was_written_is_read(tmp_path, relations):
    write_relations(tmp_path, relations)
    found = read_relations(tmp_path)
    assert found is not None
    np.testing.assert_array_equal(found.table, relations.table)
    assert found.labels == relations.labels


def test_queries():
    heads = RNG.normal(size=(3, 4)).astype(np.float32)
    for head, bilinear, translated in zip(
        heads, MATRICES.queries(heads, 1), TRANSLATIONS.queries(heads, 1), strict=True
    ):
        np.testing.assert_allclose(bilinear, MATRICES.table[1].T @ head, rtol=1e-5)
        np.testing.assert_allclose(translated, head + TRANSLATIONS.table[1], rtol=1e-6)


def test_messages(tmp_path):
    with pytest.raises(BadInput, match="2 relations and 1 labels; expected one label per"):
        ExportedRelations(MATRICES.table, ["RO|"])
    assert read_relations(tmp_path) is None
    write_relations(tmp_path, MATRICES)
    (tmp_path / "relations.json").write_text(json.dumps({"labels": ["RO|"]}))
    with pytest.raises(BadInput, match="2 relations and 1 labels"):
        read_relations(tmp_path)
    (tmp_path / "relations.json").write_text("{")
    with pytest.raises(BadInput, match="cannot be read: .*; export the run again"):
        read_relations(tmp_path)


@pytest.mark.slow
def test_matrices_of_low_rank_are_exported_whole(tmp_path):
    model = licensed_model(tmp_path / "tiny")
    short = config(model, tmp_path / "run")
    short = dataclasses.replace(short, system=dataclasses.replace(short.system, relation_rank=2))
    with one_device():
        train(short, source_for(model))
    system, run = load_run(tmp_path / "run")
    system.export(run, tmp_path / "export")
    exported = read_relations(tmp_path / "export")
    u, v = np.moveaxis(run.params["relations"], 1, 0)
    heads = np.random.default_rng(0).normal(size=(3, u.shape[1])).astype(np.float32)
    for relation in range(len(u)):
        expected = heads + heads @ u[relation] @ v[relation].T
        np.testing.assert_allclose(exported.queries(heads, relation), expected, atol=1e-5)
    assert np.abs(v).max() > 1e-3, "they learnt"
