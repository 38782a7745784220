"""Concept sets: lists and datasets that they are read from."""

import numpy as np
import pytest
from tiny_dataset import tiny_dataset

from coder_jax.evaluation.benchmarks import read_benchmark
from coder_jax.evaluation.concepts.concept_set import bare_type, read_dataset_concepts
from data_pipeline.process.errors import BadInput

LIST = (
    "CUI\tSemantic types\tterm\n"
    "C1\tT033 Finding|T184 Sign or Symptom\tpain\nC2\tFinding\tcough\n"
    "C3\tSign or Symptom\tfever\nC4\tCell\tneuron\n"
)


@pytest.mark.parametrize(
    "content, types, message",
    [
        (LIST + "C5\tCell\n", (), r"c.tsv:6: found \['C5', 'Cell'\]; expected 3 columns: CUI"),
        (LIST + "C2\tCell\tx\n", (), r"c.tsv:6: found C2 again, as in line 3; expected one row"),
        (LIST, ["Cell", "Gene"], r"c.tsv: found no concept of the type 'Gene'; give --types of"),
        (LIST.replace("Finding", "Cell"), (), r"no concept of the type 'Pharmacologic.*: Cell, "),
    ],
)
def test_lists_that_cannot_be_used(tmp_path, content, types, message):
    path = tmp_path / "c.tsv"
    path.write_text(content)
    with pytest.raises(BadInput, match=message):
        read_benchmark("toy", path, types=types)


def test_a_dataset_gives_the_first_term_of_each_concept(tmp_path, monkeypatch):
    import dataclasses

    from data_pipeline.dataset import store

    tiny = tiny_dataset(concepts=3, triplets=2)
    terms = [f"term {i}" for i in range(tiny.term_start[-1])]
    made = dataclasses.replace(
        tiny,
        manifest=tiny.manifest | {"semantic_types": ["T025 Cell", "T033 Finding"]},
        type_start=np.array([0, 1, 1, 3]),
        types=np.array([1, 0, 1]),
        cuis=["C1", "C2", "C3"],
        terms=terms,
    )
    monkeypatch.setattr(store, "open_dataset", lambda path, strings: made)
    benchmark = read_dataset_concepts("toy", tmp_path, ["Finding", "T025 Cell"])
    assert benchmark.terms == [terms[i] for i in tiny.term_start[:-1]]
    assert benchmark.of_type["Finding"].tolist() == [True, False, True]
    assert benchmark.of_type["Cell"].tolist() == [False, False, True]
    assert benchmark.content_hash == tiny.manifest["content_hash"]


def test_names_of_types():
    assert bare_type("T047 Disease or Syndrome") == "Disease or Syndrome"
    assert bare_type("Disease or Syndrome") == "Disease or Syndrome"
    assert bare_type("Tick bite") == "Tick bite" and bare_type("T047") == "T047"
