"""The semantic groups of the concepts of a release, of a table, and of neither."""

import pytest
from tiny_rrf import write_release

from data_pipeline.dataset.dictionaries.groups import groups_of_concepts
from data_pipeline.dataset.dictionary import read_dictionary
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.retired_cuis import RetiredCuis
from data_pipeline.terminology.semantic_groups import ANY, GROUPS

NONE = 1 << ANY
DISO, ANAT = (NONE | 1 << GROUPS.index(name) for name in ("DISO", "ANAT"))


def test_of_a_release(tmp_path):
    dictionary = read_dictionary(write_release(tmp_path) / "MRCONSO.RRF")
    found = groups_of_concepts(dictionary)
    assert found.keys() == dictionary.concept_set
    typed = {"C0000001", "C0000002", "C0000003"}
    assert {concept: bits for concept, bits in found.items() if bits != NONE} == dict.fromkeys(
        typed, DISO
    )
    # A concept that stands in for a retired one has its groups.
    renamed = dictionary.with_successors(RetiredCuis({"C0000001": "C0000077"}, "toy"))
    assert groups_of_concepts(renamed)["C0000077"] == DISO


def test_of_a_table(write):
    rows = "concept\tterm\tsemantic_type\nC1\tpain\tT184|T023\nC2\thand\tANAT\nC3\tx\t\n"
    found = groups_of_concepts(read_dictionary(write("t.tsv", rows)))
    assert found == {"C1": DISO | ANAT, "C2": ANAT, "C3": NONE}
    plain = read_dictionary(write("p.tsv", "pain\tC1\n"))
    with pytest.raises(BadInput, match="p.tsv: found no semantic types of its concepts .* give a "):
        groups_of_concepts(plain)
