"""Relations in an export: written and read back, applied as the paper has it, messages."""

import json

import numpy as np
import pytest

from coder_jax.export.relations import ExportedRelations, read_relations, write_relations
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
