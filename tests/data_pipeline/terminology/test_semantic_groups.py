import gzip
from types import SimpleNamespace

import numpy as np
import pytest

from data_pipeline.dataset.store import groups_of
from data_pipeline.process import BadInput
from data_pipeline.terminology.semantic_groups import (
    ANY,
    GROUPS,
    _group_of_type,
    group_number,
    group_of,
)

# How many of the 127 types each group has, as the NLM's SemGroups.txt (2018) counts them.
SIZES = {
    **{"ACTI": 9, "ANAT": 11, "CHEM": 20, "CONC": 12, "DEVI": 3, "DISO": 12, "GENE": 5, "GEOG": 1},
    **{"LIVB": 21, "OBJC": 5, "OCCU": 2, "ORGA": 4, "PHEN": 6, "PHYS": 9, "PROC": 7},
}


def test_each_of_the_127_types_is_of_one_group():
    assert len(_group_of_type) == 127
    assert {group: list(_group_of_type.values()).count(group) for group in GROUPS} == SIZES
    assert list(GROUPS) == sorted(GROUPS) and len(GROUPS) == 15 == ANY
    for tui, group in {
        **{"T047": "DISO", "T023": "ANAT", "T121": "CHEM", "T083": "GEOG", "T028": "GENE"},
        **{"T038": "PHEN", "T201": "PHYS", "T060": "PROC", "T074": "DEVI", "T168": "OBJC"},
        **{"T007": "LIVB", "T053": "ACTI", "T078": "CONC", "T090": "OCCU", "T092": "ORGA"},
    }.items():
        assert _group_of_type[tui] == group


def test_types_of_a_release_are_all_known(shared_data):
    with gzip.open(shared_data / "openmeta" / "MRSTY.RRF.gz", "rt", encoding="utf-8") as lines:
        types = {line.split("|")[1] + " " + line.split("|")[3] for line in lines}
    assert len(types) > 60
    assert [name for name in types if group_of(name) is None] == []


def test_a_type_is_known_by_its_identifier_or_by_its_group():
    assert group_of("T047 Disease or Syndrome") == group_of("T047") == group_of("DISO") == "DISO"
    assert group_of("Gene or Genome") is None and group_of("") is None


def test_number_of_a_group():
    assert [group_number(name) for name in GROUPS] == list(range(15))
    assert group_number("diso") == GROUPS.index("DISO")
    with pytest.raises(BadInput, match=r"'DISOS'; expected one of ACTI, .*PROC; did you mean DISO"):
        group_number("DISOS")


def test_groups_of_a_dataset_are_bit_sets():
    names = ["T047 Disease or Syndrome", "T184 Sign or Symptom", "T023 Body Part", "of my own"]
    dataset = SimpleNamespace(
        manifest=SimpleNamespace(semantic_types=names, filters={}),
        type_start=np.array([0, 2, 2, 4, 6]),
        types=np.array([0, 1, 0, 2, 3, 2], np.int32),
    )
    found = groups_of(dataset)
    every, disorder, anatomy = 1 << 15, 1 << GROUPS.index("DISO"), 1 << GROUPS.index("ANAT")
    assert found.dtype == np.uint16
    assert found.tolist() == [
        every | disorder,
        every,
        every | disorder | anatomy,
        every | anatomy,
    ]


def test_groups_are_those_that_the_dataset_was_built_with():
    dataset = SimpleNamespace(
        manifest=SimpleNamespace(
            semantic_types=["T047 Disease or Syndrome", "T023 Body Part"],
            filters={"semantic_groups": ["DISO", "CHEM"]},
        ),
        type_start=np.array([0, 1, 3]),
        types=np.array([1, 0, 1], np.int32),
    )
    assert groups_of(dataset).tolist() == [1 << ANY, 1 << ANY | 1 << GROUPS.index("DISO")]


def test_groups_of_a_dataset_without_types():
    start, none = np.zeros(3, np.int64), np.zeros(0, np.int32)
    manifest = SimpleNamespace(semantic_types=[], filters={})
    dataset = SimpleNamespace(manifest=manifest, type_start=start, types=none)
    assert groups_of(dataset).tolist() == [1 << ANY] * 2
